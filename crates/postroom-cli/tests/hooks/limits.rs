//! What a request may cost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testkit::{Backend, Fixture, eventually};

use crate::daemon::Daemon;
use crate::sender::*;

/// Speaks to the daemon by hand: sends all it can, and gives whatever comes back until it hangs up.
async fn by_hand(daemon: &Daemon, request: Vec<u8>) -> (String, Duration) {
    let address = daemon.address();
    let talk = move || {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).expect("a connection");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("a timeout");
        // It may hang up before it has heard everything.
        let _ = stream.write_all(&request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer, started.elapsed())
    };
    tokio::task::spawn_blocking(talk).await.expect("a talk")
}

/// The head of a request with a body of this length.
fn head(hook: &Hook, length: usize) -> String {
    let mut head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n",
        hook.path
    );
    for (name, value) in &hook.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

/// Shows X4: a body of the limit's size is taken, one of a byte more is not, signed or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_refused() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = daemon(&fixture).start().await;
    let limit = 1 << 20;
    let largest = Hook::github(GITHUB, &vec![b'a'; limit]);
    largest.send(&daemon).await.expect(202);
    let larger = Hook::github(GITHUB, &vec![b'b'; limit + 1]);
    let mut request = head(&larger, limit + 1).into_bytes();
    request.extend(&larger.body);
    let (answer, _) = by_hand(&daemon, request).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");

    let mut chunked = head(&larger, 0)
        .replace("content-length: 0", "transfer-encoding: chunked")
        .into_bytes();
    for chunk in larger.body.chunks(1 << 16) {
        chunked.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend(chunk);
        chunked.extend(b"\r\n");
    }
    let (answer, _) = by_hand(&daemon, chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_eq!(fixture.rows("inbox").await, 1);
}

/// Shows X4: a larger limit in the configuration holds for webhooks too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configured_body_limit_is_the_one_that_counts() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let config = "[server]\nbody_limit = 4_000_000";
    let daemon = daemon_with(&fixture, config).start().await;
    let large = Hook::github(GITHUB, &vec![b'a'; 4_000_000]);
    large.send(&daemon).await.expect(202);
}

/// Shows X4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_too_large_are_refused() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = daemon(&fixture).start().await;
    let padded = |length| Hook::github(GITHUB, b"{}").header("x-padding", &"p".repeat(length));
    padded(14_000).send(&daemon).await.expect(202);
    let hook = padded(20_000);
    let request = head(&hook, 2) + "{}";
    let (answer, _) = by_hand(&daemon, request.into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

/// Shows X4: whoever sends slowly is cut off, in the headers and in the body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_sender_is_cut_off() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let config = "[server]\nread_timeout = \"1s\"";
    let daemon = daemon_with(&fixture, config).start().await;
    let hook = Hook::github(GITHUB, b"{}");
    let whole = head(&hook, 2);
    let half_a_head = whole.as_bytes()[..40].to_vec();
    let half_a_body = (whole + "{").into_bytes();
    let (answer, lasted) = by_hand(&daemon, half_a_head).await;
    assert!(!answer.contains(" 20"), "{answer}");
    assert!(lasted < Duration::from_secs(10), "{lasted:?}");
    let (answer, lasted) = by_hand(&daemon, half_a_body).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(lasted < Duration::from_secs(10), "{lasted:?}");
    assert_eq!(fixture.rows("inbox").await, 0);
    hook.send(&daemon).await.expect(202);
}

/// Shows X4: whoever cannot sign does not use up the rate of those who can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_has_its_rate() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let config = only("github", "secrets = [{ env = \"GITHUB\" }]\nrate = 1");
    let daemon = with_secrets(Daemon::on(&fixture, &config)).start().await;
    let forged = Hook::github("another secret", b"{}");
    for _ in 0..5 {
        forged.send(&daemon).await.expect(401);
    }
    let hooks: Vec<_> = (0..20_u8)
        .map(|n| Hook::github(GITHUB, &[b'a' + n]))
        .collect();
    let answers = join_all(hooks.iter().map(|hook| hook.send(&daemon))).await;
    let (taken, sent_away): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status == 202);
    assert!(!taken.is_empty() && !sent_away.is_empty());
    for answer in sent_away {
        assert_eq!(answer.expect(429).header("retry-after"), "1");
    }
    // Whoever comes again, now and then, is taken in the end.
    eventually(async || {
        let answer = hooks[19].send(&daemon).await;
        (answer.status != 429).then_some(())
    })
    .await;
    let message = kept(&fixture, "github", &body_key(b"t")).await;
    assert!(message.is_some());
}

/// Shows X4: while the store is slow, requests beyond the limit are sent away at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_has_its_places() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let config = only(
        "github",
        "secrets = [{ env = \"GITHUB\" }]\nconcurrency = 1",
    );
    let daemon = Arc::new(with_secrets(Daemon::on(&fixture, &config)).start().await);
    let lock = fixture.sqlite();
    lock.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    let (answers, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    for body in [b"1", b"2"] {
        let (daemon, answers) = (Arc::clone(&daemon), answers.clone());
        tokio::spawn(async move {
            let answer = Hook::github(GITHUB, body).send(&daemon).await;
            answers.send(answer).expect("a test that waits");
        });
    }
    let sent_away = arrived.recv().await.expect("an answer").expect(503);
    assert_eq!(sent_away.header("retry-after"), "1");
    lock.execute_batch("COMMIT").expect("a commit");
    arrived.recv().await.expect("an answer").expect(202);
}
