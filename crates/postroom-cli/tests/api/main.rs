//! The HTTP API of the real daemon: every endpoint on both databases, every endpoint for every role, and
//! what must be refused.

#[path = "../daemon/mod.rs"]
mod daemon;

mod binding;
mod dead;
mod document;
mod inbox;
mod joins;
mod messages;
mod requests;
mod roles;
mod stores;

use std::collections::BTreeSet;
use std::time::Duration;

use daemon::{Answer, Daemon, Start};
use postroom::{Inbound, InboxMessageId, List, Message, OwnerToken, State, WorkItemId};
use serde_json::{Value, json};
use testkit::{Backend, Fixture};

/// Nothing is dispatched unless a test says so: what it enqueues stays where it is.
const QUIET: &str = "[dispatch]\nenabled = false\n";

/// The tokens of every role; `seer` is a viewer who may see payloads.
const TOKENS: &str = r#"
[[auth.token]]
name = "vera"
role = "viewer"
secret = "viewer-secret"

[[auth.token]]
name = "olaf"
role = "operator"
secret = "operator-secret"

[[auth.token]]
name = "anna"
role = "admin"
secret = "admin-secret"

[[auth.token]]
name = "seer"
role = "viewer"
payloads = true
secret = "seer-secret"
"#;

const VIEWER: (&str, &str) = ("authorization", "Bearer viewer-secret");
const OPERATOR: (&str, &str) = ("authorization", "Bearer operator-secret");
const ADMIN: (&str, &str) = ("authorization", "Bearer admin-secret");
const SEER: (&str, &str) = ("authorization", "Bearer seer-secret");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A daemon on the fixture's store that dispatches nothing and shows payloads.
fn quiet(fixture: &Fixture) -> Start {
    Daemon::on(fixture, QUIET).argument("--show-payloads")
}

/// The same with tokens.
fn guarded(fixture: &Fixture) -> Start {
    Daemon::on(fixture, &format!("{QUIET}{TOKENS}"))
}

async fn post(daemon: &Daemon, path: &str, body: &Value) -> Answer {
    daemon.post(path, &[JSON], body.to_string()).await
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    daemon.get(path, &[]).await.expect(200).json()
}

async fn enqueue(daemon: &Daemon, body: &Value) -> String {
    let answer = post(daemon, "/v1/messages", body).await.expect(201).json();
    answer["id"].as_str().expect("an id").to_owned()
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    items
        .iter()
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// An error must be problem+json, with all that belongs to it.
#[track_caller]
fn problem(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem["type"], "about:blank");
    for name in ["title", "detail"] {
        let text = problem[name].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{name}: {problem}");
    }
    problem
}

/// Puts dead messages of a topic into the store, behind the daemon's back.
async fn kill(fixture: &Fixture, topic: &str, count: usize) -> Vec<WorkItemId> {
    let outbox = fixture.room.outbox();
    let messages: Vec<Message> = (0..count).map(|_| Message::new(topic, "{}")).collect();
    let enqueued = outbox.enqueue_many(&messages).await.expect("enqueue");
    let wanted: Vec<WorkItemId> = enqueued
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect();
    let owner = OwnerToken::new();
    let claimed = outbox
        .claim(owner, testkit::LEASE, 10_000)
        .await
        .expect("claim");
    let (dying, others): (Vec<_>, Vec<_>) = claimed
        .into_iter()
        .map(|message| message.id)
        .partition(|id| wanted.contains(id));
    outbox.release(owner, &others).await.expect("release");
    outbox.fail(owner, &dying, "poison").await.expect("fail");
    assert_eq!(dying.len(), count);
    wanted
}

/// Every endpoint with the least role it needs, and a body that it takes.
const ENDPOINTS: &[(&str, &str, &str, (&str, &str))] = &[
    ("GET", "/v1/messages", "", VIEWER),
    ("GET", "/v1/messages/{message}", "", VIEWER),
    (
        "POST",
        "/v1/messages",
        r#"{"topic":"a","payload":1}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/messages/batch",
        r#"{"messages":[{"topic":"a","payload":1}]}"#,
        OPERATOR,
    ),
    ("GET", "/v1/dead", "", VIEWER),
    (
        "POST",
        "/v1/dead/replay",
        r#"{"older_than":"0s"}"#,
        OPERATOR,
    ),
    ("POST", "/v1/dead/purge", r#"{"older_than":"0s"}"#, ADMIN),
    ("GET", "/v1/audit", "", VIEWER),
    ("GET", "/v1/inbox", "", VIEWER),
    ("GET", "/v1/inbox/a/1", "", VIEWER),
    (
        "POST",
        "/v1/inbox",
        r#"{"source":"a","message_id":"2","topic":"t","payload":1}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/inbox/check",
        r#"{"source":"a","message_id":"3"}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/inbox/revive",
        r#"{"older_than":"0s"}"#,
        OPERATOR,
    ),
    ("GET", "/v1/joins?grouping_key=k", "", VIEWER),
    ("GET", "/v1/joins/{join}", "", VIEWER),
    ("POST", "/v1/joins", r#"{"expected_steps":1}"#, OPERATOR),
    (
        "POST",
        "/v1/joins/{join}/members",
        r#"{"message_id":"{message}"}"#,
        OPERATOR,
    ),
    ("POST", "/v1/joins/{join}/cancel", "", OPERATOR),
    ("GET", "/v1/stats", "", VIEWER),
    ("GET", "/v1/topics", "", VIEWER),
    ("GET", "/v1/stores", "", VIEWER),
    ("GET", "/v1/health", "", VIEWER),
    ("GET", "/v1/openapi.json", "", VIEWER),
    ("GET", "/metrics", "", VIEWER),
];
