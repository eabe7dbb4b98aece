//! The admin commands, each with its flags, for people and for programs.

#[path = "../binary/mod.rs"]
mod binary;

mod bench;
mod cleanup;
mod completions;
mod configured;
mod dead;
mod doctor;
mod enqueue;
mod help;
mod inbox;
mod join;
mod list;
mod show;
mod stats;

use std::time::Duration;

use binary::{at, feed, on, postroom};
use postroom::{
    Abandon, Inbound, InboxMessageId, JoinId, JoinWait, List, Message, NewJoin, OwnerToken,
    Postroom, State, WorkItemId,
};
use serde_json::Value;
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);

/// What no command may print unasked.
const PRIVATE: &str = "private-payload";

/// Enqueues messages and lets them fail for good.
async fn kill(room: &Postroom, topic: &str, count: usize) -> Vec<WorkItemId> {
    let outbox = room.outbox();
    let messages = vec![Message::new(topic, PRIVATE).header("secret-header", PRIVATE); count];
    outbox.enqueue_many(&messages).await.expect("enqueue");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, count).await.expect("claim");
    let mut ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
    ids.sort();
    let failed = outbox.fail(owner, &ids, "no such street").await;
    assert_eq!(failed.expect("fail").len(), count);
    ids
}

async fn send(room: &Postroom, message: &Message) -> WorkItemId {
    let receipt = room.outbox().enqueue(message).await.expect("enqueue");
    receipt.work_item_id
}

/// Enqueues inbound messages and lets them fail for good.
async fn kill_inbound(room: &Postroom, messages: &[(&str, &str)]) {
    let inbox = room.inbox();
    for (source, id) in messages {
        let inbound = Inbound::new(*source, *id, "payment.received", PRIVATE);
        inbox.enqueue(&inbound).await.expect("enqueue");
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, messages.len()).await;
    let ids: Vec<WorkItemId> = claimed
        .expect("claim")
        .iter()
        .filter_map(|message| message.work_item_id)
        .collect();
    assert_eq!(ids.len(), messages.len());
    let failed = inbox.fail(owner, &ids, "account closed").await;
    failed.expect("fail");
}

/// The ids of a page, as it shows them.
fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    let id = |item: &Value| item["id"].as_str().expect("an id").to_owned();
    items.iter().map(id).collect()
}

async fn actions(room: &Postroom) -> Vec<(String, String, u64)> {
    let entries = room.audit().list(100, None).await.expect("audit");
    let told = entries
        .into_iter()
        .map(|entry| (entry.actor, entry.action, entry.count));
    told.collect()
}
