//! The daemon as a process: how it starts and stops, and what senders of all kinds cost it.

mod daemon;

use std::time::{Duration, Instant};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_and_slow_senders_fit_into_200_megabytes() {
    let daemon = Daemon::new("").start().await;
    let host = daemon.address();
    let body = vec![b'x'; 1 << 19];
    let mut senders = Vec::new();
    for number in 0..1_000 {
        let (head, rest): (String, &[u8]) = match number % 4 {
            // Says hello, and stays.
            0 => (
                format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n"),
                b"",
            ),
            // Never ends its headers.
            1 => (format!("GET / HTTP/1.1\r\nhost: {host}\r\nx-slow: "), b""),
            // Never sends the second half of its body.
            _ => (
                format!(
                    "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: 1048576\r\n\r\n"
                ),
                &body,
            ),
        };
        senders.push(sender(&daemon, &head, rest).await);
    }
    // Among all of them a good request is answered.
    assert_eq!(daemon.get("/healthz", &[]).await.status, 200);
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
