//! How connections to SQL Server are treated, shown by a server that is none: it says yes to a login, and
//! answers each call as a test tells it to.

#![cfg(feature = "mssql")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::{ErrorKind, Inbound, Message, Options, OwnerToken, Postroom, WorkItemId};
use testkit::logs;

/// What the server says to a call.
#[derive(Clone, Copy)]
enum Answer {
    Yes,
    /// An error of this number, whose text quotes a secret.
    Error(u32),
    /// The same, and the transaction is undone.
    Undone(u32),
    /// Nothing, for as long as the connection lasts.
    Silence,
}

/// A server, the answers that it has left (then it says yes), and what it has seen.
#[derive(Default)]
struct Server {
    url: String,
    answers: Mutex<Vec<Answer>>,
    logins: AtomicUsize,
    calls: AtomicUsize,
    /// Calls that were carried out while no transaction was open.
    alone: AtomicUsize,
    settings: AtomicUsize,
}

const BATCH: u8 = 1;
const CALL: u8 = 3;
const ANSWER: u8 = 4;
const TRANSACTION: u8 = 14;
const LOGIN: u8 = 16;
const GREETING: u8 = 18;

impl Server {
    async fn start() -> (Arc<Self>, Postroom) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Arc::new(Self {
            url: format!("sqlserver://app:hunter2@127.0.0.1:{port}/shop?encrypt=off"),
            ..Self::default()
        });
        let listening = Arc::clone(&server);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let server = Arc::clone(&listening);
                std::thread::spawn(move || server.talk(socket));
            }
        });
        let options = Options::new(&server.url).connections(1);
        let room = options.connect().await.unwrap();
        server.calls.store(0, Ordering::SeqCst);
        server.alone.store(0, Ordering::SeqCst);
        (server, room)
    }

    fn will_say(&self, answers: &[Answer]) {
        *self.answers.lock().unwrap() = answers.iter().rev().copied().collect();
    }

    fn talk(&self, mut socket: TcpStream) {
        let mut in_transaction = false;
        while let Some((kind, body)) = request(&mut socket) {
            let answer = match kind {
                GREETING => greeting(),
                LOGIN => {
                    self.logins.fetch_add(1, Ordering::SeqCst);
                    [login(), done(0)].concat()
                }
                BATCH => {
                    self.settings.fetch_add(1, Ordering::SeqCst);
                    done(0)
                }
                CALL => match self.answer(&body, &mut in_transaction) {
                    Some(answer) => answer,
                    None => continue,
                },
                TRANSACTION => {
                    in_transaction = !in_transaction;
                    let change = if in_transaction { begun() } else { ended() };
                    [change, done(0)].concat()
                }
                other => panic!("a request of kind {other}"),
            };
            let length = u16::try_from(answer.len() + 8).unwrap().to_be_bytes();
            let mut packet = vec![ANSWER, 1, length[0], length[1], 0, 0, 1, 0];
            packet.extend(answer);
            if socket.write_all(&packet).is_err() {
                return;
            }
        }
    }

    /// What it says to a call, if anything.
    fn answer(&self, call: &[u8], in_transaction: &mut bool) -> Option<Vec<u8>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !*in_transaction {
            if let Some(number) = thrown_without_transaction(call) {
                return Some([error(number), done(2)].concat());
            }
            self.alone.fetch_add(1, Ordering::SeqCst);
        }
        let answer = self.answers.lock().unwrap().pop();
        match answer.unwrap_or(Answer::Yes) {
            Answer::Yes => Some(done(0)),
            Answer::Error(number) => Some([error(number), done(2)].concat()),
            Answer::Undone(number) => {
                *in_transaction = false;
                Some([error(number), ended(), done(2)].concat())
            }
            Answer::Silence => None,
        }
    }
}

/// Reads a request to its end and says of what kind it is.
fn request(socket: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let mut head = [0; 8];
        socket.read_exact(&mut head).ok()?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let mut packet = vec![0; length - 8];
        socket.read_exact(&mut packet).ok()?;
        body.extend(packet);
        if head[1] & 1 == 1 {
            return Some((head[0], body));
        }
    }
}

/// The number of the error that a call throws when no transaction is open, if it looks for one.
fn thrown_without_transaction(call: &[u8]) -> Option<u32> {
    // The text is UTF-16, and all of it that matters here is ASCII.
    let text: String = call
        .iter()
        .filter(|byte| byte.is_ascii_graphic())
        .copied()
        .map(char::from)
        .collect();
    let (_, throw) = text.split_once("IF@@TRANCOUNT=0THROW")?;
    throw.split(',').next()?.parse().ok()
}

/// A version, and that there is no encryption.
fn greeting() -> Vec<u8> {
    let options = [0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 255];
    [&options[..], &[15, 0, 0, 0, 0, 0], &[2]].concat()
}

fn login() -> Vec<u8> {
    let mut body = vec![1, 0x74, 0, 0, 4, 1];
    body.extend([b'x', 0, 15, 0, 0, 0]);
    token(0xad, &body)
}

fn error(number: u32) -> Vec<u8> {
    let text: Vec<u8> = "the key is canary-4711"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, 16]);
    body.extend(u16::try_from(text.len() / 2).unwrap().to_le_bytes());
    body.extend(text);
    body.extend([0, 0, 1, 0, 0, 0]);
    token(0xaa, &body)
}

/// A transaction has this number from now on.
fn begun() -> Vec<u8> {
    token(0xe3, &[8, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0])
}

fn ended() -> Vec<u8> {
    token(0xe3, &[10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8])
}

fn token(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_le_bytes();
    [&[kind], &length[..], body].concat()
}

fn done(status: u8) -> Vec<u8> {
    let mut token = vec![0xfd, status, 0, 0, 0];
    token.extend([0; 8]);
    token
}

fn message() -> Message {
    Message::new("order.created", "canary-4711")
}

/// Nobody knows how much of the answer is still to come.
#[tokio::test]
async fn a_call_that_is_dropped_takes_its_connection_with_it() {
    let (server, room) = Server::start().await;
    server.will_say(&[Answer::Silence]);
    let outbox = room.outbox();
    let message = message();
    let dropped = tokio::time::timeout(Duration::from_millis(200), outbox.enqueue(&message));
    dropped.await.unwrap_err();
    assert_eq!(server.logins.load(Ordering::SeqCst), 1);

    outbox.enqueue(&message).await.unwrap();
    assert_eq!(server.logins.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_deadlock_is_tried_again_on_a_connection_that_was_reset() {
    let (server, room) = Server::start().await;
    let before = server.settings.load(Ordering::SeqCst);
    server.will_say(&[Answer::Error(1205); 3]);
    room.outbox().enqueue(&message()).await.unwrap();
    assert_eq!(server.calls.load(Ordering::SeqCst), 4);
    assert_eq!(server.logins.load(Ordering::SeqCst), 1);
    assert_eq!(server.settings.load(Ordering::SeqCst), before + 3);

    server.will_say(&[Answer::Error(1205); 100]);
    let error = room.outbox().enqueue(&message()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert_eq!(server.calls.load(Ordering::SeqCst), 4 + 6);
}

#[tokio::test]
async fn a_key_that_is_there_is_tried_again_and_then_refused() {
    let (server, room) = Server::start().await;
    server.will_say(&[Answer::Error(2627); 2]);
    room.outbox().enqueue(&message()).await.unwrap();

    server.will_say(&[Answer::Error(2601); 100]);
    let error = room.outbox().enqueue(&message()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists { what: "work item" });
    assert_eq!(error.code(), Some("MSSQLSERVER_2601"));
    assert_eq!(server.calls.load(Ordering::SeqCst), 3 + 3);
}

/// SQL Server's messages quote keys and values, and a URL holds a password.
#[tokio::test]
async fn errors_quote_neither_the_server_nor_the_url() {
    let (server, room) = Server::start().await;
    for number in [102, 208, 245, 547, 1205, 2601, 2628, 8152, 18456] {
        server.will_say(&[Answer::Error(number); 100]);
        let error = room.outbox().enqueue(&message()).await.unwrap_err();
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("canary"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
    assert!(!room.identifier().contains("hunter2"));
    assert!(!format!("{room:?}").contains("app"));
}

/// A server that offers no encryption gets no password.
#[tokio::test]
async fn a_server_without_encryption_is_refused_by_default() {
    let (server, room) = Server::start().await;
    let place = room.identifier().split('#').next().unwrap();
    let url = place.replace("sqlserver://", "sqlserver://app:hunter2@");
    let error = Options::new(url).connect().await.unwrap_err();
    assert!(!error.to_string().contains("hunter2"));
    assert_eq!(server.logins.load(Ordering::SeqCst), 1);
}

/// SQL Server goes on without a transaction when an error has undone it.
#[tokio::test]
async fn nothing_is_written_once_the_callers_transaction_is_gone() {
    let (server, room) = Server::start().await;
    let mut client = testkit::sqlserver::client(&server.url).await;
    client.begin_transaction().await.unwrap();
    room.outbox()
        .enqueue_in(&mut client, &message())
        .await
        .unwrap();
    server.will_say(&[Answer::Undone(2627)]);
    let insert = "INSERT INTO orders (id) VALUES (7)";
    client.execute(insert, &[]).await.unwrap_err();

    let (owner, id) = (OwnerToken::new(), WorkItemId::new());
    let inbound = Inbound::new("bank", "payment-7", "payment.received", "canary-4711");
    let errors = [
        room.outbox()
            .enqueue_in(&mut client, &message())
            .await
            .unwrap_err(),
        room.outbox()
            .ack_in(&mut client, owner, id)
            .await
            .unwrap_err(),
        room.inbox()
            .enqueue_in(&mut client, &inbound)
            .await
            .unwrap_err(),
        room.inbox()
            .ack_in(&mut client, owner, id)
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Transient, "{error}");
    }
    assert_eq!(server.alone.load(Ordering::SeqCst), 0);

    client.begin_transaction().await.unwrap();
    room.outbox()
        .enqueue_in(&mut client, &message())
        .await
        .unwrap();
    client.commit_transaction().await.unwrap();
    assert_eq!(server.alone.load(Ordering::SeqCst), 0);
}

/// The client logs what it sends and what the server says.
#[tokio::test]
async fn logs_show_neither_payloads_nor_the_url() {
    let (server, room) = Server::start().await;
    let mut client = testkit::sqlserver::client(&server.url).await;
    client.begin_transaction().await.unwrap();

    let logs = logs::catch();
    let other = Options::new(&server.url).connect().await.unwrap();
    other.outbox().enqueue(&message()).await.unwrap();
    let outbox = room.outbox();
    for answer in [Answer::Yes, Answer::Error(2601), Answer::Undone(547)] {
        server.will_say(&[answer]);
        let _ = outbox.enqueue(&message()).await;
        server.will_say(&[answer]);
        let _ = outbox.enqueue_in(&mut client, &message()).await;
    }
    outbox
        .enqueue_in(&mut client, &message())
        .await
        .unwrap_err();
    outbox
        .ack_in(&mut client, OwnerToken::new(), WorkItemId::new())
        .await
        .unwrap_err();

    let text = logs.text();
    assert!(text.contains("order.created"), "{text}");
    for secret in ["canary", "hunter2"] {
        assert!(!text.contains(secret), "{text}");
    }
}
