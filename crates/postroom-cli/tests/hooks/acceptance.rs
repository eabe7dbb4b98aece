//! What is taken, and what is refused.

use postroom::InboxState;
use testkit::{Backend, Fixture};

use crate::daemon::Daemon;
use crate::sender::*;

testkit::mount!(
    every_scheme_comes_into_the_inbox,
    bytes_that_are_no_text_come_in_as_base64,
    what_is_not_signed_is_refused_and_leaves_nothing,
    a_store_that_refuses_is_told_as_trouble,
);

/// Shows X1, X2.
async fn every_scheme_comes_into_the_inbox(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let event = r#"{"id":"evt_1","amount":100}"#;
    let push = br#"{"ref":"refs/heads/main"}"#;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let json = ("content-type", "application/json");
    let time = now();
    let stamp = time.to_string();
    for (hook, source, key, topic, headers) in [
        (
            Hook::stripe(STRIPE, time, event),
            "stripe",
            "evt_1".to_owned(),
            "payment",
            vec![json],
        ),
        (
            Hook::github(GITHUB, push),
            "github",
            body_key(push),
            "github",
            vec![
                json,
                ("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"),
                ("x-github-event", "push"),
            ],
        ),
        (
            Hook::standard(STANDARD_WEBHOOKS, "msg_1", time, "{}"),
            "standard",
            "msg_1".to_owned(),
            "standard",
            vec![json, ("webhook-id", "msg_1"), ("webhook-timestamp", &stamp)],
        ),
        (
            Hook::plain(PLAIN, b"anything").header("traceparent", trace),
            "acme",
            body_key(b"anything"),
            "acme",
            vec![("traceparent", trace)],
        ),
    ] {
        let answer = hook.send(&daemon).await.expect(202);
        assert_eq!(answer.body, r#"{"duplicate":false}"#);
        let message = kept(&fixture, source, &key).await.expect("the message");
        assert_eq!(message.state, InboxState::Processing);
        assert_eq!(message.topic.as_deref(), Some(topic));
        assert_eq!(message.payload.map(String::into_bytes), Some(hook.body));
        let headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(message.headers, headers.collect(), "{source}");
        assert_eq!(message.hash.map(|hash| hash.len()), Some(32));
    }
}

async fn bytes_that_are_no_text_come_in_as_base64(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    for (body, base64) in [
        (&b"\xff\xfe"[..], "//4="),
        (&b"a\0b"[..], "YQBi"),
        (&b""[..], ""),
    ] {
        Hook::plain(PLAIN, body).send(&daemon).await.expect(202);
        let message = kept(&fixture, "acme", &body_key(body)).await;
        let message = message.expect("the message");
        assert_eq!(message.payload.as_deref(), Some(base64));
        let encoding = message.headers.get("postroom-content-encoding");
        let expected = (!body.is_empty()).then_some("base64");
        assert_eq!(encoding.map(String::as_str), expected);
    }
}

/// Shows X1: nobody is told which part was wrong.
async fn what_is_not_signed_is_refused_and_leaves_nothing(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let event = r#"{"id":"evt_1"}"#;
    let mut altered = Hook::stripe(STRIPE, now(), event);
    altered.body[9] ^= 1;
    let mut unsigned = Hook::stripe(STRIPE, now(), event);
    unsigned.headers.clear();
    let mut bodies = Vec::new();
    for wrong in [
        altered,
        unsigned,
        Hook::stripe("another secret", now(), event),
        Hook::stripe(STRIPE, now() - 400, event),
        Hook::stripe(STRIPE, now() + 400, event),
        Hook::github("another secret", b"{}"),
        Hook::standard(STANDARD_WEBHOOKS, "msg_1", now() - 400, "{}"),
        Hook::standard(STANDARD_WEBHOOKS, "msg_1", now(), "{}").header("webhook-id", "msg_2"),
        Hook::plain("another secret", b"{}"),
    ] {
        let answer = wrong.send(&daemon).await.expect(401);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");

    let mut nobody = Hook::github(GITHUB, b"{}");
    nobody.path = "/hooks/nobody".to_owned();
    let answer = nobody.send(&daemon).await.expect(404);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    nobody.path = "/hooks/%ff".to_owned();
    nobody.send(&daemon).await.expect(404);

    for nameless in [r#"{"no":"id"}"#, r#"{"id":""}"#, r#"{"id":"a\u0000"}"#] {
        let hook = Hook::stripe(STRIPE, now(), nameless);
        hook.send(&daemon).await.expect(422);
    }
    let long = "m".repeat(256);
    let hook = Hook::standard(STANDARD_WEBHOOKS, &long, now(), "{}");
    hook.send(&daemon).await.expect(422);

    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        let answer = daemon.send(method, "/hooks/github", &[], "").await;
        let answer = answer.expect(405);
        assert_eq!(answer.header("allow"), "POST");
    }
    assert_eq!(fixture.rows("inbox_seen").await, 0);
}

/// Shows X3: no 2xx without a commit, and what was not kept is kept when it comes again.
async fn a_store_that_refuses_is_told_as_trouble(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let hook = Hook::stripe(STRIPE, now(), r#"{"id":"evt_1"}"#);
    fixture.refuse("INSERT", "inbox").await;
    let answer = hook.send(&daemon).await.expect(503);
    let pause: u64 = answer.header("retry-after").parse().expect("seconds");
    assert!(pause > 0);
    assert!(kept(&fixture, "stripe", "evt_1").await.is_none());
    fixture.allow("INSERT").await;
    hook.send(&daemon).await.expect(202);
    assert!(kept(&fixture, "stripe", "evt_1").await.is_some());
}

/// Shows X1: while a secret is being changed, both are good; afterwards the old one is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_rotated_without_a_gap() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let during = daemon(&fixture).start().await;
    for (secret, event) in [
        (STRIPE, r#"{"id":"evt_1"}"#),
        (STRIPE_OLDER, r#"{"id":"evt_2"}"#),
    ] {
        let hook = Hook::stripe(secret, now(), event);
        hook.send(&during).await.expect(202);
    }
    drop(during);
    let config = only("stripe", "secrets = [{ env = \"STRIPE\" }]");
    let after = with_secrets(Daemon::on(&fixture, &config)).start().await;
    let again = |secret| Hook::stripe(secret, now(), r#"{"id":"evt_3"}"#);
    again(STRIPE_OLDER).send(&after).await.expect(401);
    again(STRIPE).send(&after).await.expect(202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_could_not_be_verified_keeps_the_daemon_from_starting() {
    for (webhook, reason) in [
        ("scheme = \"github\"\nsecrets = []", "secret"),
        (
            "scheme = \"github\"\nsecrets = [{ env = \"EMPTY\" }]",
            "secret",
        ),
        (
            "scheme = \"standard\"\nsecrets = [{ env = \"ODD\" }]",
            "base64",
        ),
        ("scheme = \"hmac\"\nsecrets = [{ env = \"ODD\" }]", "header"),
        (
            "scheme = \"github\"\nsecrets = [{ env = \"ODD\" }]\nrate = 0",
            "rate",
        ),
    ] {
        let config = format!("[[webhook]]\nsource = \"acme\"\n{webhook}");
        let start = Daemon::new(&config)
            .env("EMPTY", "")
            .env("ODD", "an-odd-secret");
        let said = start.refused().await;
        assert!(said.contains(reason), "{said}");
        assert!(!said.contains("an-odd-secret"), "{said}");
    }
}
