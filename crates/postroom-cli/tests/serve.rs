//! The daemon as a process: how it starts and stops, and what senders of all kinds cost it.

mod daemon;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use daemon::Daemon;

/// What the process holds in memory now, in bytes.
fn resident(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id()))
        .expect("the status of the process");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("the most it has held");
    let kilobytes: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number");
    kilobytes * 1_024
}

async fn sender(daemon: &Daemon, text: &str, rest: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address())
        .await
        .expect("a connection");
    stream
        .write_all(text.as_bytes())
        .await
        .expect("somebody who listens");
    // Whoever is told to go away may find the door shut already.
    let _ = stream.write_all(rest).await;
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_configuration_it_starts_on_a_file_of_its_own_and_says_where() {
    let mut daemon = Daemon::new("").start().await;
    let out = daemon.stdout();
    assert!(
        out.contains(&format!("dashboard  http://{}/", daemon.address())),
        "{out}"
    );
    assert!(daemon.address().ip().is_loopback());
    assert!(daemon.folder().join("postroom.db").exists());
    assert_eq!(daemon.get("/", &[]).await.status, 200);
    assert!(daemon.stop().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stranger_is_let_in_without_tokens() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refusal = Daemon::new("").bind(address);
        let said = refusal.refused().await;
        assert!(said.contains("no tokens are configured"), "{said}");
    }
    let token =
        "[[auth.token]]\nname = \"ops\"\nrole = \"admin\"\nsecret = { env = \"OPS_TOKEN\" }\n";
    let daemon = Daemon::new(token)
        .env("OPS_TOKEN", "a-token-for-this-test-only")
        .bind("0.0.0.0:0");
    let _ = daemon.start().await;
}

/// How many sockets the process has open.
fn sockets(daemon: &Daemon) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).expect("its files");
    open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
        .filter(|file| file.to_string_lossy().starts_with("socket:"))
        .count()
}

fn post(host: SocketAddr, length: usize) -> String {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_and_slow_senders_fit_into_200_megabytes() {
    let daemon = Daemon::new("[server]\nread_timeout = \"5m\"\n")
        .start()
        .await;
    let host = daemon.address();
    let message = format!(r#"{{"topic":"slow","payload":"{}"}}"#, "x".repeat(32 << 10));
    let (half, rest) = message.as_bytes().split_at(message.len() / 2);
    let mut slow = Vec::new();
    let mut others = Vec::new();
    for number in 0..1_000 {
        match number % 4 {
            // Says hello, and stays.
            0 => {
                let hello = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n");
                others.push(sender(&daemon, &hello, b"").await);
            }
            // Never ends its headers.
            1 => {
                let endless = format!("GET / HTTP/1.1\r\nhost: {host}\r\nx-slow: ");
                others.push(sender(&daemon, &endless, b"").await);
            }
            // Takes its time for the second half of its body.
            _ => slow.push(sender(&daemon, &post(host, message.len()), half).await),
        }
    }
    eventually(|| async { (sockets(&daemon) >= 1_000).then_some(()) }).await;
    // Among all of them a good request is answered.
    assert_eq!(daemon.get("/healthz", &[]).await.status, 200);
    for mut stream in slow {
        stream.write_all(rest).await.expect("still connected");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("an answer");
        assert_eq!(&status, b"HTTP/1.1 201");
    }
    let most = resident(&daemon);
    assert!(most < 200_000_000, "{most} bytes");
    drop(others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_that_never_end_are_turned_away_before_the_memory_is_full() {
    // Nobody is sent away for being slow before the memory is full.
    let daemon = Daemon::new("[server]\nread_timeout = \"5m\"\n")
        .start()
        .await;
    let half = vec![b'x'; 1 << 19];
    let mut senders = Vec::new();
    for _ in 0..400 {
        senders.push(sender(&daemon, &post(daemon.address(), 1 << 20), &half).await);
    }
    let mut last = senders.pop().expect("the last");
    let mut answer = vec![0; 512];
    let read = last.read(&mut answer).await.expect("an answer");
    let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
    assert!(answer.starts_with("http/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    let most = resident(&daemon);
    assert!(most < 200_000_000, "{most} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_told_to_go() {
    let daemon = Daemon::new("[server]\nread_timeout = \"1s\"\n")
        .start()
        .await;
    let host = daemon.address();
    for (head, answer) in [
        (format!("GET / HTTP/1.1\r\nhost: {host}\r\nx-slow: "), ""),
        (
            format!(
                "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-length: 10\r\n\r\n12345"
            ),
            "408",
        ),
    ] {
        let begun = Instant::now();
        let mut stream = sender(&daemon, &head, b"").await;
        let mut said = String::new();
        let patience = Duration::from_secs(30);
        let read = stream.read_to_string(&mut said);
        tokio::time::timeout(patience, read)
            .await
            .expect("an end")
            .expect("an answer or none");
        assert!(said.contains(answer), "{said}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "too soon");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_beside_stores_of_the_configuration_is_refused() {
    let config = "[[store]]\nname = \"a\"\nurl = \"sqlite:a.db\"\n";
    let said = Daemon::new(config).url("sqlite:b.db").refused().await;
    assert!(said.contains("leave --url away"), "{said}");
}

/// The README's first request, as it stands there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_message_of_the_readme_is_taken_printed_and_shown() {
    let readme = include_str!("../../../README.md");
    let body = readme
        .split_once("-d '")
        .and_then(|(_, rest)| rest.split_once('\''))
        .expect("a request in the README")
        .0;
    let daemon = Daemon::new("").start().await;
    let json = [("content-type", "application/json")];
    daemon.post("/v1/messages", &json, body).await.expect(201);
    let page = daemon.get("/messages", &[]).await.expect(200).body;
    assert!(page.contains("order.created"), "{page}");
    eventually(|| async { daemon.stdout().contains("order-7").then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modules_and_jobs_of_the_configuration_are_at_work() {
    let config = "[[store]]\nname = \"shop\"\nurl = \"sqlite:shop.db\"\n\
                  [[module]]\nname = \"billing\"\nschema = \"billing\"\n\
                  [[target]]\ntopics = [\"*\"]\nstdout = true\n\
                  [jobs]\noutbox_cleanup = { cron = \"* * * * * *\", keep = \"1s\" }\n";
    let daemon = Daemon::new(config).start().await;
    let json = [("content-type", "application/json")];
    let body = r#"{"topic":"invoice","payload":"of the module"}"#;
    let sent = daemon.post("/v1/messages?store=billing", &json, body).await;
    let id = sent.expect(201).json()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    eventually(|| async { daemon.stdout().contains("of the module").then_some(()) }).await;
    // Done, and a second later the cleanup has taken it away.
    let path = format!("/v1/messages/{id}?store=billing");
    eventually(|| async { (daemon.get(&path, &[]).await.status == 404).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_leaves_its_dashboard_open_until_it_is_told_to_end() {
    let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_postroom"))
        .args(["demo", "--stay", "--orders", "10"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the demo");
    let out = std::io::BufReader::new(demo.stdout.take().expect("a pipe"));
    let mut lines = std::io::BufRead::lines(out).map_while(Result::ok);
    let url = lines
        .find_map(|line| {
            Some(
                line.split_once("still there: ")?
                    .1
                    .split(' ')
                    .next()?
                    .to_owned(),
            )
        })
        .expect("a link at the end");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let page = reqwest::get(format!("{url}dead")).await.expect("a page");
    let page = page.text().await.expect("its text");
    assert!(page.contains("the label crashed the printer"), "{page}");
    let told = std::process::Command::new("kill")
        .args(["-TERM", &demo.id().to_string()])
        .status();
    assert!(told.expect("kill").success());
    lines.for_each(drop);
    assert!(demo.wait().expect("an end").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_nothing_is_cut_off() {
    let config = "[server]\nread_timeout = \"1s\"\nconnections = 2\n";
    let daemon = Daemon::new(config).start().await;
    let page = format!("GET /topics HTTP/1.1\r\nhost: {}\r\n\r\n", daemon.address());
    let mut senders = Vec::new();
    for _ in 0..2 {
        let stream = TcpStream::connect(daemon.address()).await;
        let mut stream = stream.expect("a connection");
        let page = page.clone();
        // Asks for page after page and takes none, until it is cut off.
        senders.push(tokio::spawn(async move {
            while stream.write_all(page.as_bytes()).await.is_ok() {}
        }));
    }
    for sender in senders {
        let ended = tokio::time::timeout(Duration::from_secs(30), sender).await;
        ended.expect("an end").expect("a sender");
    }
    // Their places are free again.
    assert_eq!(daemon.get("/healthz", &[]).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_take_no_memory_from_those_who_are_known() {
    let token =
        "[[auth.token]]\nname = \"ops\"\nrole = \"admin\"\nsecret = \"a-token-for-this-test\"\n";
    let daemon = Daemon::new(token).start().await;
    let body = vec![b'x'; (1 << 20) - 1];
    let mut senders = Vec::new();
    for _ in 0..70 {
        senders.push(sender(&daemon, &post(daemon.address(), 1 << 20), &body).await);
    }
    let headers = [
        ("authorization", "Bearer a-token-for-this-test"),
        ("content-type", "application/json"),
    ];
    let message = format!(r#"{{"topic":"a","payload":"{}"}}"#, "x".repeat(900_000));
    daemon
        .post("/v1/messages", &headers, message)
        .await
        .expect(201);
}

/// A reader that has gone away, or never reads, keeps nobody from stopping in good order.
#[test]
fn standard_output_that_nobody_reads_holds_nothing_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_postroom"))
        .args(["serve", "--bind", "127.0.0.1:0"])
        .current_dir(folder.path())
        .env_remove("POSTROOM_URL")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a daemon");
    let mut out = std::io::BufReader::new(daemon.stdout.take().expect("a pipe"));
    let mut first = String::new();
    std::io::BufRead::read_line(&mut out, &mut first).expect("a line");
    // More than fits into a pipe is printed from now on.
    let url = format!("sqlite:{}", folder.path().join("postroom.db").display());
    let filled = std::process::Command::new(env!("CARGO_BIN_EXE_postroom"))
        .args(["enqueue", "big", "--url", &url])
        .arg("x".repeat(100_000))
        .status();
    assert!(filled.expect("enqueue").success());
    let leased = || {
        let connection = rusqlite::Connection::open(folder.path().join("postroom.db"));
        let count = "SELECT count(*) FROM outbox WHERE owner_token IS NOT NULL";
        connection
            .and_then(|connection| connection.query_row(count, [], |row| row.get::<_, i64>(0)))
            .unwrap_or_default()
    };
    let patience = Instant::now();
    while leased() == 0 {
        assert!(
            patience.elapsed() < Duration::from_secs(30),
            "nobody prints"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    // The first asks it to end, the next one to do so at once.
    let patience = Instant::now();
    while daemon.try_wait().expect("a status").is_none() {
        assert!(
            patience.elapsed() < Duration::from_secs(20),
            "it does not end"
        );
        let _ = std::process::Command::new("kill")
            .args(["-TERM", &daemon.id().to_string()])
            .status();
        std::thread::sleep(Duration::from_millis(100));
    }
}
