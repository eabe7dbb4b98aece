//! The helpers for users' tests: time that passes when it is told to, expectations, stores of one's own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use postroom::testing::{Expectation, TestRoom};
use postroom::{
    Abandon, Delivery, Dispatcher, ErrorKind, HandlerError, Inbound, InboxState, Message, NewJoin,
    Outcome, OwnerToken, State, done,
};
use serde_json::json;
use testkit::{Backend, Fixture, LEASE, eventually};

testkit::mount!(
    a_due_time_comes_when_time_is_told_to_pass,
    a_retry_comes_when_time_is_told_to_pass,
    an_inbound_retry_comes_when_time_is_told_to_pass,
    a_lease_expires_when_time_is_told_to_pass,
    what_is_done_gets_older,
    a_running_dispatcher_notices_that_time_has_passed,
    every_time_of_the_store_passes,
    retries_are_drained_in_their_time,
    a_message_that_nobody_handles_does_not_stop_the_time,
    a_message_that_another_holds_is_left_alone,
    time_passes_to_its_end_though_nothing_waits,
    another_stores_dispatcher_is_refused,
    a_message_is_performed_and_shown_as_it_then_is,
    expectations_find_what_is_there,
    a_payload_contains_what_is_expected,
    a_due_time_is_expected_from_the_enqueue_on,
    a_missing_message_is_told_with_topics_and_without_payloads,
    a_wrong_number_is_told_with_ids,
    what_is_refuted_must_not_be_there,
    done_and_dead_messages_are_expected_as_such;
    postgres: a_schema_of_its_own_is_made_and_removed
);

const HOUR: Duration = Duration::from_secs(3600);

async fn a_due_time_comes_when_time_is_told_to_pass(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let message = Message::new("a", "").due_at(SystemTime::now() + HOUR);
    room.outbox().enqueue(&message).await.unwrap();
    let dispatcher = room.dispatcher().on("a", |_: Delivery| async {});

    room.advance(HOUR - Duration::from_secs(60)).await.unwrap();
    assert_eq!(dispatcher.drain().await.unwrap().done, 0);
    room.advance(Duration::from_secs(60)).await.unwrap();
    assert_eq!(dispatcher.drain().await.unwrap().done, 1);
}

async fn a_retry_comes_when_time_is_told_to_pass(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    room.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = room.outbox().claim(owner, LEASE, 1).await.unwrap();
    let later = Abandon::after(HOUR);
    room.outbox()
        .abandon(owner, &[claimed[0].id], later)
        .await
        .unwrap();

    room.advance(HOUR - Duration::from_secs(60)).await.unwrap();
    assert_eq!(fixture.claim(1).await.1, []);
    room.advance(Duration::from_secs(60)).await.unwrap();
    assert_eq!(fixture.claim(1).await.1, [claimed[0].id]);
}

/// A redelivery folds the due time and the backoff anew: both must have passed.
async fn an_inbound_retry_comes_when_time_is_told_to_pass(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let inbound = Inbound::new("bank", "1", "a", "");
    room.inbox().enqueue(&inbound).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = room.inbox().claim(owner, LEASE, 1).await.unwrap();
    room.inbox()
        .abandon(owner, &claimed[0].id, Abandon::after(HOUR))
        .await
        .unwrap();

    room.advance(HOUR).await.unwrap();
    room.inbox().enqueue(&inbound).await.unwrap();
    let again = room.inbox().claim(owner, LEASE, 1).await.unwrap();
    assert_eq!(again.len(), 1);
}

async fn a_lease_expires_when_time_is_told_to_pass(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let (_, id) = fixture.enqueue_and_claim().await;
    room.advance(LEASE - Duration::from_secs(10)).await.unwrap();
    assert_eq!(fixture.claim(1).await.1, []);
    room.advance(Duration::from_secs(10)).await.unwrap();
    let claimed = eventually(|| async { fixture.claim(1).await.1.pop() }).await;
    assert_eq!(claimed, id);
}

async fn what_is_done_gets_older(fixture: Fixture) {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = room
        .dispatcher()
        .on("a", |_: Delivery| async {})
        .on_inbound("a", |_: Delivery| async {});
    room.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    room.inbox()
        .enqueue(&Inbound::new("bank", "1", "a", ""))
        .await
        .unwrap();
    assert_eq!(dispatcher.drain().await.unwrap().done, 2);

    room.advance(6 * DAY).await.unwrap();
    assert_eq!(room.outbox().cleanup(7 * DAY).await.unwrap(), 0);
    assert_eq!(room.inbox().cleanup(7 * DAY).await.unwrap(), 0);
    room.advance(2 * DAY).await.unwrap();
    assert_eq!(room.outbox().cleanup(7 * DAY).await.unwrap(), 1);
    assert_eq!(room.inbox().cleanup(7 * DAY).await.unwrap(), 1);
}

async fn a_running_dispatcher_notices_that_time_has_passed(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let message = Message::new("a", "").due_at(SystemTime::now() + HOUR);
    room.outbox().enqueue(&message).await.unwrap();
    let running = room
        .dispatcher()
        .poll_interval(10 * HOUR)
        .on("a", |_: Delivery| async {})
        .start()
        .unwrap();
    room.advance(HOUR).await.unwrap();
    eventually(|| async { (running.report().done == 1).then_some(()) }).await;
    let _ = running.stop().await;
}

/// Whoever adds a time to a table adds it to `advance.sql` too.
async fn every_time_of_the_store_passes(fixture: Fixture) {
    let text = match fixture.backend {
        Backend::Sqlite => include_str!("../../src/sql/sqlite/advance.sql"),
        Backend::Postgres => include_str!("../../src/sql/postgres/advance.sql"),
        Backend::MySql => include_str!("../../src/sql/mysql/advance.sql"),
        Backend::SqlServer => include_str!("../../src/sql/mssql/advance.sql"),
    };
    let text = text
        .replace("{join}", "{outbox_join}")
        .replace("{join_member}", "{outbox_join_member}")
        .replace('+', "");
    let mut checked = 0;
    for table in fixture.tables().await {
        if table == "outbox_schema" || table.contains("_done_") {
            continue;
        }
        let update = text
            .split("UPDATE ")
            .find(|update| update.starts_with(&format!("{{{table}}}")))
            .unwrap_or_default();
        for column in fixture.columns(&table).await {
            let is_time = ["_at", "_time", "_until", "_from", "first_seen", "last_seen"]
                .iter()
                .any(|ending| column.ends_with(ending));
            if is_time {
                checked += 1;
                let moved = format!("{column} = {column} - ");
                assert!(update.contains(&moved), "{table}.{column} stays behind");
            }
        }
    }
    assert!(checked >= 30, "only {checked} times were found");
}

/// Fails a number of times, then succeeds.
fn failing(room: &TestRoom, failures: u32) -> Dispatcher {
    room.dispatcher()
        .on("a", move |delivery: Delivery| async move {
            if delivery.attempt() <= failures {
                return Err(HandlerError::business("not yet"));
            }
            Ok(Outcome::enqueue([Message::new("b", "")]))
        })
}

/// The backoff is 2, 4, 8 seconds: the fourth run is 14 seconds after the first.
async fn retries_are_drained_in_their_time(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = failing(&room, 3);
    room.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    let early = Duration::from_secs(13);
    let report = room.drain_for(&dispatcher, early).await.unwrap();
    assert_eq!((report.retried, report.done), (3, 0));
    room.refute_enqueued("b").await;
    let report = room
        .drain_for(&dispatcher, Duration::from_secs(2))
        .await
        .unwrap();
    assert_eq!(report.done, 1);
    room.expect_enqueued("b").times(1).await;
}

/// It is handed back every minute: once at the start and then once for each of ten minutes.
async fn a_message_that_nobody_handles_does_not_stop_the_time(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = failing(&room, 0);
    room.outbox()
        .enqueue(&Message::new("other", ""))
        .await
        .unwrap();
    let report = room
        .drain_for(&dispatcher, Duration::from_secs(630))
        .await
        .unwrap();
    assert_eq!(report.unhandled, 11);
}

async fn a_message_that_another_holds_is_left_alone(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = room
        .dispatcher()
        .on("order.created", |_: Delivery| async {});
    let (owner, id) = fixture.enqueue_and_claim().await;
    let report = room
        .drain_for(&dispatcher, Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(report.handled(), 0);
    assert_eq!(room.outbox().ack(owner, &[id]).await.unwrap(), [id]);
}

async fn time_passes_to_its_end_though_nothing_waits(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = failing(&room, 0);
    let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
    let before = room.joins().get(join).await.unwrap().unwrap().created_at;
    room.drain_for(&dispatcher, HOUR).await.unwrap();
    let after = room.joins().get(join).await.unwrap().unwrap().created_at;
    assert_eq!(before.duration_since(after).unwrap(), HOUR);
}

async fn another_stores_dispatcher_is_refused(fixture: Fixture) {
    let room = TestRoom::new().await.unwrap();
    let dispatcher = fixture.room.dispatcher().on("a", |_: Delivery| async {});
    let error = room
        .drain_for(&dispatcher, Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!(error.param(), Some("dispatcher"));
    let too_long = room.advance(Duration::MAX).await.unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::OutOfRange { param: "time" });
}

async fn a_message_is_performed_and_shown_as_it_then_is(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let dispatcher = room
        .dispatcher()
        .on("a", move |delivery: Delivery| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match delivery.payload() {
                    "good" => done(),
                    "early" => Ok(Outcome::NotReady(None)),
                    _ => Err(HandlerError::permanent("bad")),
                }
            }
        })
        .on_inbound("a", |_: Delivery| async {});
    for (payload, state) in [
        ("good", State::Done),
        ("early", State::Ready),
        ("bad", State::Dead),
    ] {
        let message = Message::new("a", payload);
        let message = room.perform(&dispatcher, &message).await.unwrap();
        assert_eq!((message.state, &*message.payload), (state, payload));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    let inbound = Inbound::new("bank", "1", "a", "");
    let message = room.perform_inbound(&dispatcher, &inbound).await.unwrap();
    assert_eq!(message.state, InboxState::Done);
}

async fn expectations_find_what_is_there(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let messages = [
        Message::new("a", "1")
            .correlation("r-1")
            .header("kind", "x"),
        Message::new("a", "2").correlation("r-2"),
        Message::new("A", "1"),
    ];
    room.outbox().enqueue_many(&messages).await.unwrap();
    room.outbox()
        .claim(OwnerToken::new(), LEASE, 1)
        .await
        .unwrap();
    assert_eq!(room.expect_enqueued("a").await.len(), 2, "in flight or not");
    let found = room
        .expect_enqueued("a")
        .correlation("r-1")
        .header("kind", "x")
        .payload("1")
        .times(1)
        .await;
    assert_eq!(found[0].correlation_id.as_deref(), Some("r-1"));
    room.expect_enqueued("A").times(1).await;
}

async fn a_payload_contains_what_is_expected(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let order = json!({"id": 7, "to": {"city": "Bern", "zip": "3000"}});
    let message = Message::json("a", &order).unwrap();
    room.outbox().enqueue(&message).await.unwrap();
    room.expect_enqueued("a")
        .payload_json(&json!({"to": {"city": "Bern"}}))
        .await;
    room.refute_enqueued("a")
        .payload_json(&json!({"to": {"city": "Basel"}}))
        .await;
}

async fn a_due_time_is_expected_from_the_enqueue_on(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let message = Message::new("a", "").due_at(SystemTime::now() + HOUR);
    room.outbox().enqueue(&message).await.unwrap();
    room.advance(HOUR / 2).await.unwrap();
    room.expect_enqueued("a").due_in(HOUR).await;
    room.refute_enqueued("a").due_in(Duration::ZERO).await;
    room.outbox().enqueue(&Message::new("b", "")).await.unwrap();
    room.expect_enqueued("b").due_in(Duration::ZERO).await;
}

/// What an expectation says when it is not met.
async fn failure(expectation: Expectation<'_>) -> String {
    let panic = AssertUnwindSafe(expectation.into_future())
        .catch_unwind()
        .await
        .expect_err("it is not met");
    panic.downcast_ref::<String>().expect("a text").clone()
}

async fn a_missing_message_is_told_with_topics_and_without_payloads(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let nothing = failure(room.expect_enqueued("order.created")).await;
    assert!(nothing.contains("topics in the outbox: none"), "{nothing}");

    let messages = [
        Message::new("order.created", r#"{"card":"4242","id":7}"#),
        Message::new("order.created", r#"{"card":"4242","id":8}"#).correlation("r-1"),
        Message::new("order.paid", r#"{"card":"4242"}"#),
    ];
    room.outbox().enqueue_many(&messages).await.unwrap();
    let expectation = room
        .expect_enqueued("order.created")
        .payload_json(&json!({"id": 7, "secret": "1234"}))
        .correlation("r-1");
    let text = failure(expectation).await;
    for part in [
        "expected at least one message of `order.created` in the outbox",
        "found 0",
        "0 of the 2 of this topic: whose payload contains the given JSON",
        "1 of the 2 of this topic: with the correlation id `r-1`",
        "`order.created` (2), `order.paid` (1)",
        "tests/conformance/testing.rs:",
    ] {
        assert!(text.contains(part), "expected {part:?} in {text:?}");
    }
    assert!(!text.contains("4242") && !text.contains("1234"), "{text}");
}

async fn a_wrong_number_is_told_with_ids(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let id = fixture.enqueue(1).await[0];
    let topic = room.outbox().get(id).await.unwrap().unwrap().topic;
    let text = failure(room.expect_enqueued(&*topic).times(2)).await;
    assert!(text.contains("expected 2 messages"), "{text}");
    assert!(text.contains(&format!("found 1 ({id})")), "{text}");
}

async fn what_is_refuted_must_not_be_there(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    room.refute_enqueued("a").await;
    room.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    let text = failure(room.refute_enqueued("a")).await;
    assert!(text.contains("expected no message of `a`"), "{text}");
    room.refute_enqueued("a").correlation("r-1").await;
}

async fn done_and_dead_messages_are_expected_as_such(fixture: Fixture) {
    let room = TestRoom::from(fixture.room.clone());
    let dispatcher = room.dispatcher().on("a", |delivery: Delivery| async move {
        match delivery.payload() {
            "good" => done(),
            _ => Err(HandlerError::permanent("bad")),
        }
    });
    let messages = ["good", "bad"].map(|payload| Message::new("a", payload));
    room.outbox().enqueue_many(&messages).await.unwrap();
    dispatcher.drain().await.unwrap();
    room.expect_done("a").payload("good").times(1).await;
    room.expect_dead("a").payload("bad").times(1).await;
    room.refute_enqueued("a").await;
    let text = failure(room.expect_dead("b")).await;
    assert!(text.contains("topics that are dead: `a` (1)"), "{text}");
}

async fn a_schema_of_its_own_is_made_and_removed(fixture: Fixture) {
    let one = TestRoom::on(&fixture.url).await.unwrap();
    let two = TestRoom::on(&fixture.url).await.unwrap();
    one.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    one.expect_enqueued("a").times(1).await;
    two.refute_enqueued("a").await;

    let schema = one.identifier().rsplit('#').next().unwrap().to_owned();
    assert!(schema.starts_with("test_"), "{schema}");
    let count = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    assert_eq!(fixture.number(&count).await, 1);
    one.remove().await.unwrap();
    assert_eq!(fixture.number(&count).await, 0);
    two.remove().await.unwrap();

    let borrowed = TestRoom::from(fixture.room.clone());
    borrowed.remove().await.unwrap();
    fixture.room.verify().await.expect("not ours to remove");
}

#[tokio::test]
async fn rooms_in_memory_do_not_see_each_other() {
    let rooms = [
        TestRoom::new().await.unwrap(),
        TestRoom::new().await.unwrap(),
    ];
    let message = Message::new("a", "");
    rooms[0].outbox().enqueue(&message).await.unwrap();
    rooms[0].expect_enqueued("a").times(1).await;
    rooms[1].refute_enqueued("a").await;
}
