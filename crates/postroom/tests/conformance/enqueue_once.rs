//! Enqueueing once per key, however often a request is repeated.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use postroom::{ErrorKind, JoinId, Message, MessageId, NewJoin, Once, Receipt, State};
use testkit::Fixture;

const DAY: Duration = Duration::from_secs(86_400);

async fn first(fixture: &Fixture, key: &str, message: &Message) -> Receipt {
    match fixture.room.outbox().enqueue_once(key, message).await {
        Ok(Once::New(receipt)) => receipt,
        other => panic!("expected a new message, got {other:?}"),
    }
}

/// An extension: no requirement asks for it.
async fn the_same_key_again_gives_the_first_receipt_in_every_state(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("order.created", "{}")
        .correlation("c")
        .header("a", "b");
    let done = first(&fixture, "done", &message).await;
    let (owner, ids) = fixture.claim(1).await;
    outbox.ack(owner, &ids).await.unwrap();
    let dead = first(&fixture, "dead", &message).await;
    let (owner, ids) = fixture.claim(1).await;
    outbox.fail(owner, &ids, "no").await.unwrap();
    let ready = first(&fixture, "ready", &message).await;

    for (key, receipt, state) in [
        ("done", done, State::Done),
        ("dead", dead, State::Dead),
        ("ready", ready, State::Ready),
    ] {
        let again = outbox.enqueue_once(key, &message).await.unwrap();
        assert_eq!(again, Once::Again(receipt));
        assert!(!again.is_new());
        let stored = outbox.get(receipt.work_item_id).await.unwrap().unwrap();
        assert_eq!(stored.state, state);
        assert_eq!(stored.message_id, receipt.message_id);
        assert_eq!(stored.headers["a"], "b");
    }
    assert_eq!(fixture.rows("outbox_all").await, 3);
}

/// An extension: no requirement asks for it.
async fn the_same_key_with_another_message_is_a_conflict(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "1");
    first(&fixture, "key", &message).await;

    for other in [
        Message::new("b", "1"),
        Message::new("a", "2"),
        message.clone().header("x", "y"),
        message.clone().correlation("c"),
        message.clone().due_at(UNIX_EPOCH),
        message.clone().message_id(MessageId::new()),
    ] {
        let error = outbox.enqueue_once("key", &other).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::Conflict {
                param: "idempotency_key"
            }
        );
        assert_eq!(error.param(), Some("idempotency_key"));
    }
    assert_eq!(fixture.rows("outbox").await, 1);
    assert!(
        outbox.enqueue_once("Key", &message).await.unwrap().is_new(),
        "keys are compared exactly"
    );
}

/// An extension: no requirement asks for it.
async fn of_many_callers_at_once_exactly_one_enqueues(fixture: Fixture) {
    let message = Message::new("a", "1");
    let callers = (0..24).map(|_| {
        let (outbox, message) = (fixture.room.outbox(), message.clone());
        tokio::spawn(async move { outbox.enqueue_once("key", &message).await.unwrap() })
    });
    let mut outcomes = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        outcomes.push(caller.await.unwrap());
    }
    assert_eq!(outcomes.iter().filter(|once| once.is_new()).count(), 1);
    let receipts: HashSet<_> = outcomes
        .iter()
        .map(|once| once.receipt().work_item_id)
        .collect();
    assert_eq!(receipts.len(), 1);
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// Who comes second waits for the first, who may still fail.
///
/// An extension: no requirement asks for it.
async fn two_stores_on_one_database_share_their_keys(fixture: Fixture) {
    let message = Message::new("a", "1");
    let receipt = first(&fixture, "key", &message).await;
    let other = fixture.again().await;
    assert_eq!(
        other.outbox().enqueue_once("key", &message).await.unwrap(),
        Once::Again(receipt)
    );
}

/// An extension: no requirement asks for it.
async fn a_key_is_1_to_255_characters_without_nul(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "1");
    let long = "é".repeat(256);
    for key in ["", long.as_str(), "a\0b"] {
        let error = outbox.enqueue_once(key, &message).await.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidArgument {
                param: "idempotency_key"
            }
        );
    }
    let error = outbox
        .enqueue_once("key", &Message::new("", ""))
        .await
        .unwrap_err();
    assert_eq!(error.param(), Some("topic"));
    assert_eq!(fixture.rows("outbox_key").await, 0);
    assert!(
        outbox
            .enqueue_once(&"é".repeat(255), &message)
            .await
            .unwrap()
            .is_new()
    );
}

/// An extension: no requirement asks for it.
async fn a_message_that_fails_to_enqueue_leaves_no_key(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "1").join(JoinId::new());
    let error = outbox.enqueue_once("key", &message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    assert_eq!(fixture.rows("outbox_key").await, 0);
    assert_eq!(fixture.rows("outbox").await, 0);
}

/// An extension: no requirement asks for it.
async fn a_step_of_joins_is_attached_once(fixture: Fixture) {
    let room = &fixture.room;
    let join = room.joins().start(&NewJoin::new(2)).await.unwrap();
    let message = Message::new("a", "1").join(join).join(join);
    let receipt = first(&fixture, "key", &message).await;
    let again = room.outbox().enqueue_once("key", &message).await.unwrap();
    assert_eq!(again, Once::Again(receipt));

    let members = room.joins().members(join, None, 10).await.unwrap();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].message_id, receipt.message_id);
    let (owner, ids) = fixture.claim(1).await;
    room.outbox().ack(owner, &ids).await.unwrap();
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(join.completed_steps, 1);
}

/// An extension: no requirement asks for it.
async fn a_cleanup_forgets_old_keys_unless_their_message_is_unfinished_or_dead(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "1");
    first(&fixture, "done", &message).await;
    let (owner, ids) = fixture.claim(1).await;
    outbox.ack(owner, &ids).await.unwrap();
    first(&fixture, "dead", &message).await;
    let (owner, ids) = fixture.claim(1).await;
    outbox.fail(owner, &ids, "no").await.unwrap();
    first(&fixture, "ready", &message).await;

    assert_eq!(outbox.cleanup(DAY).await.unwrap(), 0);
    assert_eq!(fixture.rows("outbox_key").await, 3);
    fixture.age("outbox_key", "created_at", 2 * DAY).await;
    outbox.cleanup(DAY).await.unwrap();
    let mut keys = fixture.texts("SELECT k.key FROM {outbox_key} AS k").await;
    keys.sort();
    assert_eq!(keys, ["dead", "ready"]);
    assert!(
        outbox
            .enqueue_once("done", &message)
            .await
            .unwrap()
            .is_new()
    );
}

/// An extension: no requirement asks for it.
async fn a_paced_cleanup_forgets_keys_batch_by_batch(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    for number in 0..5 {
        first(&fixture, &number.to_string(), &Message::new("a", "1")).await;
    }
    let (owner, ids) = fixture.claim(5).await;
    outbox.ack(owner, &ids).await.unwrap();
    fixture.age("outbox_key", "created_at", 2 * DAY).await;

    let mut batches = Vec::new();
    loop {
        batches.push(outbox.cleanup_batch(DAY, 2).await.unwrap());
        if batches.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(batches, [2, 2, 1, 0]);
}

testkit::mount!(
    the_same_key_again_gives_the_first_receipt_in_every_state,
    the_same_key_with_another_message_is_a_conflict,
    of_many_callers_at_once_exactly_one_enqueues,
    two_stores_on_one_database_share_their_keys,
    a_key_is_1_to_255_characters_without_nul,
    a_message_that_fails_to_enqueue_leaves_no_key,
    a_step_of_joins_is_attached_once,
    a_cleanup_forgets_old_keys_unless_their_message_is_unfinished_or_dead,
    a_paced_cleanup_forgets_keys_batch_by_batch,
);
