//! Messages that the daemon delivers: to HTTP endpoints, to commands, to standard output.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postroom::{Inbound, Message, OutboxMessage, Receipt, State};
use testkit::{Backend, Fixture, eventually};

use daemon::Daemon;
use endpoint::{Answer, Endpoint};

mod daemon;

/// A message is dead after its first failure of the business kind.
const ONCE: &str = "[retry]\nattempts = 1\n";

/// A secret as Standard Webhooks has it, and the key in it.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_c29tZSBvbGQgc2VjcmV0IG9mIG91cnM=";

/// An HTTP target at this machine.
fn http(topic: &str, url: &str, more: &str) -> String {
    format!(
        "{ONCE}[[target]]\ntopics = [\"{topic}\"]\n[target.http]\nurl = \"{url}\"\nallow_http = true\n{more}\n"
    )
}

fn command(argv: &[&str], more: &str) -> String {
    format!("{ONCE}[[target]]\ntopics = [\"*\"]\n[target.command]\nargv = {argv:?}\n{more}\n")
}

async fn sqlite() -> Fixture {
    Fixture::new(Backend::Sqlite).await
}

async fn enqueue(fixture: &Fixture, message: &Message) -> Receipt {
    fixture
        .room
        .outbox()
        .enqueue(message)
        .await
        .expect("enqueued")
}

/// Waits until a message is as it should be.
async fn until(
    fixture: &Fixture,
    receipt: &Receipt,
    is: impl Fn(&OutboxMessage) -> bool,
) -> OutboxMessage {
    eventually(|| async {
        let outbox = fixture.room.outbox();
        let message = outbox.get(receipt.work_item_id).await.expect("an answer");
        message.filter(|message| is(message))
    })
    .await
}

async fn done(fixture: &Fixture, receipt: &Receipt) {
    let settled = until(fixture, receipt, |message| {
        matches!(message.state, State::Done | State::Dead)
    });
    let settled = settled.await;
    assert_eq!(
        settled.state,
        State::Done,
        "{:?}",
        settled.progress.last_error
    );
}

/// Waits until a message is dead, and says why.
async fn dead(fixture: &Fixture, receipt: &Receipt) -> String {
    let dead = until(fixture, receipt, |message| message.state == State::Dead).await;
    dead.progress.last_error.expect("an error")
}

/// Waits until a message has failed and waits for its next attempt: why, and how long it waits.
async fn retried(fixture: &Fixture, receipt: &Receipt) -> (String, Duration) {
    let waiting = until(fixture, receipt, |message| {
        message.state == State::Ready && message.progress.last_error.is_some()
    });
    let progress = waiting.await.progress;
    let (next, last) = (progress.next_attempt_at, progress.last_attempt_at);
    let wait = next.expect("a time").duration_since(last.expect("a time"));
    (progress.last_error.expect("an error"), wait.expect("later"))
}

/// A server that remembers what it was sent.
mod endpoint {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    pub(super) struct Endpoint {
        pub(super) url: String,
        seen: Arc<Seen>,
        serving: tokio::task::JoinHandle<()>,
    }

    #[derive(Default)]
    struct Seen {
        connections: AtomicUsize,
        requests: Mutex<Vec<Request>>,
    }

    #[derive(Debug, Clone)]
    pub(super) struct Request {
        pub(super) line: String,
        headers: HashMap<String, String>,
        pub(super) body: String,
    }

    impl Request {
        /// A header; empty when it is not there.
        pub(super) fn header(&self, name: &str) -> &str {
            self.headers.get(name).map_or("", String::as_str)
        }
    }

    /// What it answers.
    #[derive(Clone)]
    pub(super) enum Answer {
        /// A status line and headers.
        Status(String),
        /// A status and a body that never ends.
        Endless,
        /// Nothing, ever.
        Silence,
    }

    impl From<&str> for Answer {
        fn from(status: &str) -> Self {
            Self::Status(status.to_owned())
        }
    }

    impl Endpoint {
        /// Gives these answers, one for each request, and the last one again and again.
        pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            let seen = Arc::new(Seen::default());
            let answers: Arc<Vec<Answer>> = Arc::new(answers.into_iter().collect());
            let shared = Arc::clone(&seen);
            let serving = tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    shared.connections.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(stream, Arc::clone(&shared), Arc::clone(&answers)));
                }
            });
            Self { url, seen, serving }
        }

        pub(super) fn connections(&self) -> usize {
            self.seen.connections.load(Ordering::SeqCst)
        }

        pub(super) fn requests(&self) -> Vec<Request> {
            self.seen.requests.lock().expect("requests").clone()
        }

        pub(super) fn port(&self) -> &str {
            self.url.rsplit(':').next().expect("a port")
        }
    }

    impl Drop for Endpoint {
        fn drop(&mut self) {
            self.serving.abort();
        }
    }

    async fn serve(stream: TcpStream, seen: Arc<Seen>, answers: Arc<Vec<Answer>>) {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read(&mut stream).await {
            let turn = {
                let mut requests = seen.requests.lock().expect("requests");
                requests.push(request);
                requests.len() - 1
            };
            match answers.get(turn).or(answers.last()).expect("an answer") {
                Answer::Status(status) => {
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                Answer::Endless => {
                    let _ = stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
                        .await;
                    while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
                    return;
                }
                Answer::Silence => std::future::pending().await,
            }
        }
    }

    async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        if line.is_empty() {
            return None;
        }
        let mut headers = HashMap::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|text| text.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.ok()?;
        Some(Request {
            line: line.trim_end().to_owned(),
            headers,
            body: String::from_utf8(body).expect("UTF-8"),
        })
    }
}

/// HMAC-SHA-256 by its definition, so that it is not the daemon's own code that agrees with itself.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let padded = |with: u8| -> Vec<u8> {
        let mut block = [0; 64];
        block[..key.len()].copy_from_slice(key);
        block.iter().map(|byte| byte ^ with).collect()
    };
    let inner = Sha256::digest([padded(0x36), message.to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

mod over_http {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    async fn a_message_arrives_signed(fixture: Fixture) {
        let endpoint = Endpoint::start(["200 OK".into()]).await;
        let more = "allow_private = true\nsecrets = [{ env = \"NEW\" }, { env = \"OLD\" }]\nheaders = { x-tenant = \"acme\" }";
        let url = format!("{}/hooks/orders?from=postroom", endpoint.url);
        let _daemon = Daemon::on(&fixture, &http("order.created", &url, more))
            .env("NEW", SECRET)
            .env("OLD", OLD_SECRET)
            .start()
            .await;
        let trace = postroom::TraceContext::new_root();
        let message = Message::new("order.created", r#"{"id":7}"#).correlation("order-7");
        let receipt = postroom::in_trace(trace, enqueue(&fixture, &message)).await;
        done(&fixture, &receipt).await;

        let requests = endpoint.requests();
        let [request] = requests.as_slice() else {
            panic!("{requests:?}");
        };
        assert_eq!(request.line, "POST /hooks/orders?from=postroom HTTP/1.1");
        assert_eq!(request.body, r#"{"id":7}"#);
        assert_eq!(request.header("content-type"), "application/json");
        assert_eq!(request.header("webhook-id"), receipt.message_id.to_string());
        assert_eq!(request.header("postroom-topic"), "order.created");
        assert_eq!(request.header("postroom-correlation-id"), "order-7");
        assert_eq!(request.header("x-tenant"), "acme");
        assert!(request.header("user-agent").starts_with("postroom/"));
        let traceparent = request.header("traceparent");
        assert_eq!(
            &traceparent[..35],
            &trace.to_string()[..35],
            "{traceparent}"
        );

        let sent: u64 = request
            .header("webhook-timestamp")
            .parse()
            .expect("seconds");
        let age = std::time::UNIX_EPOCH + Duration::from_secs(sent);
        assert!(age.elapsed().expect("the past") < Duration::from_secs(60));
        let signed = format!("{}.{sent}.{}", request.header("webhook-id"), request.body);
        let expected: Vec<String> = [SECRET, OLD_SECRET]
            .map(|secret| {
                let key = STANDARD.decode(&secret["whsec_".len()..]).expect("base64");
                format!("v1,{}", STANDARD.encode(hmac(&key, signed.as_bytes())))
            })
            .into();
        assert_eq!(request.header("webhook-signature"), expected.join(" "));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_retry_has_the_same_id_and_many_share_a_connection() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start(["503 No\r\nretry-after: 1".into(), "200 OK".into()]).await;
        let config =
            http("*", &endpoint.url, "allow_private = true") + "[dispatch]\nconcurrency = 1\n";
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let first = enqueue(&fixture, &Message::new("a", "plain text")).await;
        done(&fixture, &first).await;
        let requests = endpoint.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(
            requests[0].header("webhook-id"),
            requests[1].header("webhook-id")
        );
        assert_eq!(
            requests[0].header("content-type"),
            "text/plain; charset=utf-8"
        );
        assert_eq!(
            requests[0].header("webhook-signature"),
            "",
            "there is no secret"
        );
        for number in 0..20 {
            let receipt = enqueue(&fixture, &Message::new("b", number.to_string())).await;
            done(&fixture, &receipt).await;
        }
        assert_eq!(endpoint.requests().len(), 22);
        assert_eq!(endpoint.connections(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn retry_after_is_honoured_as_seconds_and_as_a_date() {
        let fixture = sqlite().await;
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1_800);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&at)
            .expect("a date");
        let endpoint = Endpoint::start([
            "429 Slow down\r\nretry-after: 3600".into(),
            Answer::Status(format!("503 Away\r\nretry-after: {date}")),
            "500 Oops\r\nretry-after: 9999999999".into(),
            "500 Oops\r\nretry-after: tomorrow".into(),
        ])
        .await;
        let config = http("*", &endpoint.url, "allow_private = true");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        for (seconds, status) in [(3_600, "429"), (1_800, "503"), (86_400, "500"), (1, "500")] {
            let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
            let (error, wait) = retried(&fixture, &receipt).await;
            assert!(
                error.starts_with("[INFRA]") && error.contains(status),
                "{error}"
            );
            assert!(
                wait.as_secs().abs_diff(seconds) <= 30,
                "{wait:?} for {seconds}"
            );
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn answers_are_told_apart() {
        let fixture = sqlite().await;
        let business = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422];
        let infrastructure = [408, 425, 429, 500, 502, 503, 504];
        let answers = business.iter().chain(&infrastructure);
        let endpoint =
            Endpoint::start(answers.map(|status| Answer::Status(format!("{status} X")))).await;
        let config = http("*", &endpoint.url, "allow_private = true");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        for status in business {
            let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
            let error = dead(&fixture, &receipt).await;
            assert!(
                error.contains("[BUSINESS]") && error.contains(&status.to_string()),
                "{error}"
            );
        }
        for status in infrastructure {
            let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
            let (error, _) = retried(&fixture, &receipt).await;
            assert!(
                error.contains("[INFRA]") && error.contains(&status.to_string()),
                "{error}"
            );
        }
    }

    /// Shows X11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redirect_is_not_followed() {
        let fixture = sqlite().await;
        let elsewhere = Endpoint::start(["200 OK".into()]).await;
        let location = format!("307 Elsewhere\r\nlocation: {}/", elsewhere.url);
        let endpoint = Endpoint::start([Answer::Status(location)]).await;
        let config = http("*", &endpoint.url, "allow_private = true");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let error = dead(&fixture, &receipt).await;
        assert!(
            error.contains("307") && error.contains("not followed"),
            "{error}"
        );
        assert_eq!(endpoint.requests().len(), 1);
        assert_eq!(elsewhere.connections(), 0);
    }

    /// Shows X11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_name_with_a_private_address_is_not_connected_to() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start(["200 OK".into()]).await;
        for host in ["localhost", "LOCALHOST"] {
            let config = http(host, &format!("http://{host}:{}/", endpoint.port()), "");
            let _daemon = Daemon::on(&fixture, &config).start().await;
            let receipt = enqueue(&fixture, &Message::new(host, "{}")).await;
            let error = dead(&fixture, &receipt).await;
            assert!(error.contains("private, local or reserved"), "{error}");
        }
        assert_eq!(endpoint.connections(), 0);
    }

    /// Shows X11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_address_from_the_environment_is_checked_too() {
        for (url, says) in [
            ("http://2130706433/canary", "allow_private"),
            ("http://[::ffff:127.0.0.1]/canary", "allow_private"),
            ("http://u:canary@shop.example/", "password"),
        ] {
            let config = http("*", "X", "").replace("\"X\"", "{ env = \"PLACE\" }");
            let err = Daemon::new(&config).env("PLACE", url).refused().await;
            assert!(err.contains(says) && !err.contains("canary"), "{err}");
        }
    }

    /// Shows X11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_proxy_is_asked() {
        let fixture = sqlite().await;
        let proxy = Endpoint::start(["200 OK".into()]).await;
        let endpoint = Endpoint::start(["200 OK".into()]).await;
        let config = http("*", &endpoint.url, "allow_private = true");
        let mut start = Daemon::on(&fixture, &config);
        for name in [
            "http_proxy",
            "HTTP_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
        ] {
            start = start.env(name, &proxy.url);
        }
        let _daemon = start.start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        done(&fixture, &receipt).await;
        assert_eq!((proxy.connections(), endpoint.requests().len()), (0, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_endpoint_that_says_nothing_is_waited_for_only_so_long() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start([Answer::Silence]).await;
        let more = "allow_private = true\ntimeout = \"200ms\"";
        let _daemon = Daemon::on(&fixture, &http("*", &endpoint.url, more))
            .start()
            .await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let (error, _) = retried(&fixture, &receipt).await;
        assert!(error.contains("[INFRA]"), "{error}");
        assert!(error.contains("did not answer within 200ms"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_endless_answer_is_an_answer() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start([Answer::Endless]).await;
        let more = "allow_private = true\ntimeout = \"30s\"";
        let _daemon = Daemon::on(&fixture, &http("*", &endpoint.url, more))
            .start()
            .await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        done(&fixture, &receipt).await;
        assert_eq!(endpoint.requests().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_there_is_infrastructure_and_the_path_is_not_told() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start(["200 OK".into()]).await;
        let url = format!("{}/services/canary", endpoint.url);
        drop(endpoint);
        let _daemon = Daemon::on(&fixture, &http("*", &url, "allow_private = true"))
            .start()
            .await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let (error, _) = retried(&fixture, &receipt).await;
        assert!(
            error.contains("[INFRA]") && error.contains("could not be reached"),
            "{error}"
        );
        assert!(!error.contains("canary"), "{error}");
    }

    /// A server whose certificate nobody vouches for. What it was told after the handshake, once somebody
    /// has come and gone, is sent over the channel.
    fn self_signed() -> (u16, std::sync::mpsc::Receiver<usize>) {
        use std::io::Read;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a certificate");
        let listener = std::net::TcpListener::bind("localhost:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (told, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let tls = rustls::ServerConnection::new(Arc::new(config)).expect("TLS");
            let mut stream = rustls::StreamOwned::new(tls, stream);
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            let _ = told.send(bytes.len());
        });
        (port, heard)
    }

    /// Shows X11.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_certificate_that_nobody_vouches_for_is_refused() {
        let fixture = sqlite().await;
        let (port, heard) = self_signed();
        let url = format!("https://localhost:{port}/");
        let config = http("*", &url, "allow_private = true");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let (error, _) = retried(&fixture, &receipt).await;
        assert!(error.contains("certificate"), "{error}");
        assert_eq!(heard.recv().expect("a visitor"), 0, "bytes were sent");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_came_in_goes_out_under_its_own_id() {
        let fixture = sqlite().await;
        let endpoint = Endpoint::start(["200 OK".into()]).await;
        let config = http("paid", &endpoint.url, "allow_private = true")
            .replace("[target.http]", "queue = \"inbox\"\n[target.http]");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let inbox = fixture.room.inbox();
        // A dot in an id could be mistaken for the one behind it in what is signed.
        for id in ["evt_7", "evt.7"] {
            let inbound = Inbound::new("stripe", id, "paid", "{}");
            inbox.enqueue(&inbound).await.expect("enqueued");
            let before = endpoint.requests().len();
            eventually(|| async { (endpoint.requests().len() > before).then_some(()) }).await;
        }
        let requests = endpoint.requests();
        assert_eq!(requests[0].header("webhook-id"), "stripe/evt_7");
        let id = requests[1].header("webhook-id");
        assert_eq!((id.len(), id.contains('.')), (36, false), "{id}");
    }

    /// Shows X6.
    async fn no_secret_and_no_payload_is_logged(fixture: Fixture) {
        let endpoint = Endpoint::start(["500 Oops".into(), "200 OK".into(), "422 No".into()]).await;
        let more = "allow_private = true\nsecrets = [{ env = \"KEY\" }]\nheaders = { authorization = { env = \"AUTH\" } }";
        let config = http("*", &format!("{}/canary-path", endpoint.url), more)
            + "[[auth.token]]\nname = \"a\"\nrole = \"admin\"\nsecret = { env = \"TOKEN\" }\n";
        let daemon = Daemon::on(&fixture, &config)
            .argument("--log")
            .argument("trace")
            .env("KEY", SECRET)
            .env("AUTH", "Bearer canary-authorization")
            .env("TOKEN", "canary-token")
            .start()
            .await;
        let message = || Message::new("a", r#"{"card":"canary-payload"}"#);
        let retried = enqueue(&fixture, &message()).await;
        super::retried(&fixture, &retried).await;
        let done = enqueue(&fixture, &message()).await;
        super::done(&fixture, &done).await;
        let dead = enqueue(&fixture, &message()).await;
        super::dead(&fixture, &dead).await;
        assert_eq!(
            endpoint.requests()[0].header("authorization"),
            "Bearer canary-authorization"
        );
        let log = daemon.stderr() + &daemon.stdout();
        assert!(log.contains("TRACE"), "there is a log");
        for secret in ["canary", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None);
        }
    }

    testkit::mount!(a_message_arrives_signed, no_secret_and_no_payload_is_logged);
}

mod to_a_command {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_payload_is_its_input_and_only_facts_its_environment() {
        let fixture = sqlite().await;
        let config = command(
            &[
                "sh",
                "-c",
                "cat > payload; env | sort > environment.new; mv environment.new environment",
            ],
            "",
        );
        let daemon = Daemon::on(&fixture, &config)
            .env("CANARY_SECRET", "canary")
            .env("LANG", "C.UTF-8")
            .start()
            .await;
        let payload = "x".repeat(1_000_000);
        let message = Message::new("invoice.requested", &payload).correlation("order-7");
        let receipt = enqueue(&fixture, &message).await;
        done(&fixture, &receipt).await;
        let read =
            |name: &str| std::fs::read_to_string(daemon.folder().join(name)).expect("a file");
        assert_eq!(read("payload"), payload);
        let environment = read("environment");
        for line in [
            "POSTROOM_ATTEMPT=1".to_owned(),
            "POSTROOM_CORRELATION_ID=order-7".to_owned(),
            format!("POSTROOM_MESSAGE_ID={}", receipt.message_id),
            "POSTROOM_TOPIC=invoice.requested".to_owned(),
            "LANG=C.UTF-8".to_owned(),
        ] {
            assert!(
                environment.lines().any(|own| own == line),
                "{line} in {environment}"
            );
        }
        // What a shell sets by itself is no secret of ours.
        let allowed = ["HOME", "LANG", "OLDPWD", "PATH", "PWD", "SHLVL", "_"];
        for line in environment.lines() {
            let name = line.split('=').next().unwrap_or_default();
            assert!(
                name.starts_with("POSTROOM_") || allowed.contains(&name),
                "{line}"
            );
        }
    }

    /// Shows X16.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_shell_reads_its_arguments() {
        let fixture = sqlite().await;
        let config = command(&["touch", "x; touch y", "$(touch z)", "*"], "");
        let daemon = Daemon::on(&fixture, &config).start().await;
        let receipt = enqueue(&fixture, &Message::new("; touch w", "$(touch v)")).await;
        done(&fixture, &receipt).await;
        for (name, is_there) in [
            ("x; touch y", true),
            ("$(touch z)", true),
            ("*", true),
            ("v", false),
            ("w", false),
            ("y", false),
            ("z", false),
        ] {
            assert_eq!(daemon.folder().join(name).exists(), is_there, "{name}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn its_exit_code_decides() {
        let fixture = sqlite().await;
        let script = "read code; echo first >&2; echo last words >&2; exit $code";
        let config = command(&["sh", "-c", script], "").replace("attempts = 1", "attempts = 2");
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let zero = enqueue(&fixture, &Message::new("a", "0\n")).await;
        done(&fixture, &zero).await;

        let data_error = enqueue(&fixture, &Message::new("a", "65\n")).await;
        let error = dead(&fixture, &data_error).await;
        assert!(error.contains("exit code 65: last words"), "{error}");

        let temporary = enqueue(&fixture, &Message::new("a", "75\n")).await;
        let (error, _) = retried(&fixture, &temporary).await;
        assert!(
            error.contains("[INFRA]") && error.contains("exit code 75"),
            "{error}"
        );

        let other = enqueue(&fixture, &Message::new("a", "7\n")).await;
        let (error, _) = retried(&fixture, &other).await;
        assert!(
            error.contains("[BUSINESS]") && error.contains("exit code 7"),
            "{error}"
        );
        assert!(!error.contains("first"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_takes_too_long_is_killed_with_what_it_started() {
        let fixture = sqlite().await;
        let script = "sleep 1000 & echo $! > pid; wait";
        let config = command(&["sh", "-c", script], "timeout = \"500ms\"");
        let daemon = Daemon::on(&fixture, &config).start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let error = dead(&fixture, &receipt).await;
        assert!(
            error.contains("did not end within 500ms and was killed"),
            "{error}"
        );
        let pid = std::fs::read_to_string(daemon.folder().join("pid")).expect("a pid");
        eventually(|| async { (!is_alive(pid.trim())).then_some(()) }).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_leaves_something_behind_is_not_waited_for() {
        let fixture = sqlite().await;
        // What stays behind keeps standard error open.
        let config = command(
            &["sh", "-c", "sleep 60 & echo $! > pid; exit 3"],
            "timeout = \"30s\"",
        );
        let daemon = Daemon::on(&fixture, &config).start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "{}")).await;
        let error = dead(&fixture, &receipt).await;
        assert!(error.contains("exit code 3"), "{error}");
        let pid = std::fs::read_to_string(daemon.folder().join("pid")).expect("a pid");
        assert!(is_alive(pid.trim()), "it may go on");
        let killed = std::process::Command::new("kill").arg(pid.trim()).status();
        assert!(killed.expect("kill").success());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_that_does_not_read_or_is_not_there() {
        let fixture = sqlite().await;
        let config = format!(
            "{ONCE}[[target]]\ntopics = [\"deaf\"]\n[target.command]\nargv = [\"true\"]\n[[target]]\ntopics = [\"missing\"]\n[target.command]\nargv = [\"no-such-program\"]\n"
        );
        let _daemon = Daemon::on(&fixture, &config).start().await;
        let deaf = enqueue(&fixture, &Message::new("deaf", "x".repeat(1_000_000))).await;
        done(&fixture, &deaf).await;
        let missing = enqueue(&fixture, &Message::new("missing", "{}")).await;
        let (error, _) = retried(&fixture, &missing).await;
        assert!(error.contains("[INFRA]"), "{error}");
        assert!(
            error.contains("`no-such-program` cannot be started"),
            "{error}"
        );
    }

    /// Shows X6.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_it_quotes_of_the_payload_is_neither_stored_nor_logged() {
        let fixture = sqlite().await;
        let config = command(&["sh", "-c", "cat >&2; exit 1"], "");
        let daemon = Daemon::on(&fixture, &config)
            .argument("--log")
            .argument("trace")
            .start()
            .await;
        let payload = format!("{} canary-payload {}", "a".repeat(5_000), "b".repeat(500));
        let receipt = enqueue(&fixture, &Message::new("a", payload)).await;
        let error = dead(&fixture, &receipt).await;
        assert!(
            error.contains("exit code 1") && !error.contains("canary"),
            "{error}"
        );
        assert!(!daemon.stderr().contains("canary"));
    }

    fn is_alive(pid: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        // What has ended and waits for its parent is not alive.
        status.is_ok_and(|status| !status.contains(") Z "))
    }
}

mod to_standard_output {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_message_is_a_line() {
        let fixture = sqlite().await;
        let config = "[[target]]\ntopics = [\"*\"]\nstdout = true\n[[target]]\ntopics = [\"paid\"]\nqueue = \"inbox\"\nstdout = true\n";
        let daemon = Daemon::on(&fixture, config).start().await;
        let payload = "{\"text\":\"two\nlines \\u001b[31m é\"}";
        let message = Message::new("order.created", payload)
            .header("tenant", "acme")
            .correlation("order-7");
        let receipt = enqueue(&fixture, &message).await;
        let inbound = Inbound::new("stripe", "evt_7", "paid", "in");
        fixture
            .room
            .inbox()
            .enqueue(&inbound)
            .await
            .expect("enqueued");
        let lines = eventually(|| async {
            let out = daemon.stdout();
            let lines = out.lines().filter(|line| line.starts_with('{'));
            let lines: Vec<serde_json::Value> = lines
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect();
            (lines.len() == 2).then_some(lines)
        })
        .await;
        let of = |topic: &str| {
            lines
                .iter()
                .find(|line| line["topic"] == topic)
                .expect("a line")
        };
        assert_eq!(
            *of("order.created"),
            serde_json::json!({
                "id": receipt.work_item_id.to_string(),
                "message_id": receipt.message_id.to_string(),
                "topic": "order.created",
                "correlation_id": "order-7",
                "headers": { "tenant": "acme" },
                "payload": payload,
            })
        );
        assert_eq!(of("paid")["message_id"], "stripe/evt_7");
        assert_eq!(of("paid")["payload"], "in");
        done(&fixture, &receipt).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn exact_topics_come_before_all_others_and_without_targets_nothing_is_touched() {
        let fixture = sqlite().await;
        let lone = Daemon::on(&fixture, "").start().await;
        let receipt = enqueue(&fixture, &Message::new("a", "1")).await;
        drop(lone);
        let untouched = fixture.room.outbox().get(receipt.work_item_id).await;
        assert_eq!(
            untouched
                .expect("an answer")
                .expect("a message")
                .progress
                .delivery_count,
            0
        );

        let config = "[[target]]\ntopics = [\"*\"]\nstdout = true\n[[target]]\ntopics = [\"b\"]\n[target.command]\nargv = [\"true\"]\n";
        let daemon = Daemon::on(&fixture, config).start().await;
        let exact = enqueue(&fixture, &Message::new("b", "2")).await;
        done(&fixture, &receipt).await;
        done(&fixture, &exact).await;
        eventually(|| async { daemon.stdout().contains("\"payload\":\"1\"").then_some(()) }).await;
        assert!(!daemon.stdout().contains("\"payload\":\"2\""));
    }
}
