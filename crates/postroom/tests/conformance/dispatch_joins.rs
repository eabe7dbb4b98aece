//! Joins through a dispatcher: steps are counted by their acks, and the message that waits lets the next
//! one go.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::{
    Backoff, Delivery, Dispatcher, HandlerError, JoinId, JoinStatus, JoinWait, JoinWaitHandler,
    Message, NewJoin, Outcome, Postroom, State, WorkItemId, done,
};
use testkit::{Fixture, eventually};

use crate::dispatch_scene::steal;

/// A join of steps that succeed (`ok`), fail (`bad`) or are never ready (`later`), and who waits for it.
async fn join_of(
    room: &Postroom,
    steps: &[&str],
    wait: impl FnOnce(JoinId) -> JoinWait,
) -> (JoinId, WorkItemId) {
    let expected = i32::try_from(steps.len()).unwrap();
    let join = room.joins().start(&NewJoin::new(expected)).await.unwrap();
    for step in steps {
        let step = Message::new("step", *step).join(join);
        room.outbox().enqueue(&step).await.unwrap();
    }
    let receipt = room.joins().enqueue_wait(&wait(join)).await.unwrap();
    (join, receipt.work_item_id)
}

/// What was let go, and with which payload.
type Continued = Arc<Mutex<Vec<(String, String)>>>;

/// A dispatcher for steps, and for whatever follows.
fn dispatcher(room: &Postroom) -> (Dispatcher, Continued) {
    let continued = Continued::default();
    let seen = Arc::clone(&continued);
    let dispatcher = room
        .dispatcher()
        .on("step", |delivery: Delivery| async move {
            match delivery.payload() {
                "bad" => Err(HandlerError::permanent("broken")),
                "later" => Ok(Outcome::NotReady(Some(Duration::from_secs(3600)))),
                _ => done(),
            }
        })
        .otherwise(move |delivery: Delivery| {
            let line = (delivery.topic().to_owned(), delivery.payload().to_owned());
            seen.lock().unwrap().push(line);
            async {}
        });
    (dispatcher, continued)
}

fn read(continued: &Continued) -> Vec<(String, String)> {
    continued.lock().unwrap().clone()
}

fn line(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

async fn state(room: &Postroom, id: WorkItemId) -> State {
    room.outbox().get(id).await.unwrap().unwrap().state
}

/// Shows OBX-090, OBX-093, JOIN-051, JOIN-055, JOIN-056, JOIN-057.
async fn a_join_that_completes_lets_the_next_message_go(fixture: Fixture) {
    let room = &fixture.room;
    let (join, wait) = join_of(room, &["ok", "ok", "ok"], |join| {
        JoinWait::new(join, "next", "payload").on_fail("never", "")
    })
    .await;
    let (dispatcher, continued) = dispatcher(room);

    dispatcher.drain().await.unwrap();

    assert_eq!(read(&continued), [line("next", "payload")]);
    assert_eq!(state(room, wait).await, State::Done);
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps, join.failed_steps),
        (JoinStatus::Completed, 3, 0)
    );
}

/// Shows OBX-092, OBX-094, JOIN-054, C-12.
async fn a_failed_step_lets_the_other_message_go(fixture: Fixture) {
    let room = &fixture.room;
    let (join, wait) = join_of(room, &["ok", "bad"], |join| {
        JoinWait::new(join, "never", "").on_fail("undo", "why")
    })
    .await;
    let (dispatcher, continued) = dispatcher(room);

    dispatcher.drain().await.unwrap();

    assert_eq!(read(&continued), [line("undo", "why")]);
    assert_eq!(state(room, wait).await, State::Done);
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps, join.failed_steps),
        (JoinStatus::Failed, 1, 1)
    );
}

/// Shows JOIN-054, C-13.
async fn a_failed_step_without_a_failure_topic_ends_the_wait(fixture: Fixture) {
    let room = &fixture.room;
    let (_, wait) = join_of(room, &["bad"], |join| JoinWait::new(join, "never", "")).await;
    let (dispatcher, continued) = dispatcher(room);

    dispatcher.drain().await.unwrap();

    assert_eq!(read(&continued), []);
    assert_eq!(state(room, wait).await, State::Done);
}

/// Shows JOIN-055, C-12, C-13.
async fn failed_steps_may_be_accepted_and_an_empty_payload_is_one(fixture: Fixture) {
    let room = &fixture.room;
    let (join, _) = join_of(room, &["bad", "ok"], |join| {
        JoinWait::new(join, "next", "").even_if_steps_failed()
    })
    .await;
    let (dispatcher, continued) = dispatcher(room);

    dispatcher.drain().await.unwrap();

    assert_eq!(read(&continued), [line("next", "")]);
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(join.status, JoinStatus::Failed, "a fact, whatever the flag");
}

/// Shows OBX-091, JOIN-053, C-11, C-57. One attempt is all that is allowed, and thirty polls use up none.
async fn thirty_polls_of_a_waiting_join_use_up_no_attempt(fixture: Fixture) {
    let room = &fixture.room;
    let (join, wait) = join_of(room, &["later"], |join| JoinWait::new(join, "next", "")).await;
    let (dispatcher, continued) = dispatcher(room);
    let dispatcher = dispatcher.retry(Backoff::default().max_attempts(1));
    for poll in 1..=30 {
        let report = dispatcher.drain().await.unwrap();
        assert_eq!((report.dead, report.retried), (0, 0), "poll {poll}");
        let message = room.outbox().get(wait).await.unwrap().unwrap();
        assert_eq!(message.state, State::Ready, "poll {poll}");
        assert_eq!(message.progress.attempt_count, poll);
        assert_eq!(message.progress.deferral_count, poll);
        assert_eq!(message.progress.last_error, None, "poll {poll}");
        fixture.skip_backoff().await;
    }
    // It backs off for a minute by now. The transaction that completes the join makes it ready at once.
    dispatcher.drain().await.unwrap();
    let before = room.outbox().get(wait).await.unwrap().unwrap().progress;
    let next = before.next_attempt_at.unwrap();
    assert!(next > fixture.now().await + Duration::from_secs(30));
    let members = room.joins().members(join, None, 10).await.unwrap();
    room.joins()
        .report_completed(join, members[0].message_id)
        .await
        .unwrap();
    dispatcher.drain().await.unwrap();
    assert_eq!(read(&continued), [line("next", "")]);
    assert_eq!(state(room, wait).await, State::Done);
}

/// Shows JOIN-052.
async fn a_wait_for_a_join_that_does_not_exist_is_dead_at_once(fixture: Fixture) {
    let room = &fixture.room;
    let (_, wait) = join_of(room, &["ok"], |join| JoinWait::new(join, "next", "")).await;
    fixture.sql("DELETE FROM {outbox_join}").await;
    let (dispatcher, continued) = dispatcher(room);

    let report = dispatcher.drain().await.unwrap();

    assert_eq!((report.dead, report.retried), (1, 0));
    let message = room.outbox().get(wait).await.unwrap().unwrap();
    assert_eq!(message.state, State::Dead);
    let error = message.progress.last_error.unwrap();
    assert!(error.contains("does not exist"), "{error}");
    assert_eq!(read(&continued), []);
}

/// Shows JOIN-051, C-58.
async fn a_payload_that_is_no_wait_is_dead_at_once_and_not_quoted(fixture: Fixture) {
    let room = &fixture.room;
    let message = Message::new("join.wait", r#"{"joinId":"canary"}"#);
    let receipt = room.outbox().enqueue(&message).await.unwrap();
    let (dispatcher, _) = dispatcher(room);

    assert_eq!(dispatcher.drain().await.unwrap().dead, 1);
    let message = room.outbox().get(receipt.work_item_id).await.unwrap();
    let error = message.unwrap().progress.last_error.unwrap();
    assert!(
        error.starts_with("[BUSINESS]") && !error.contains("canary"),
        "{error}"
    );
}

/// Shows JOIN-050. The topic is the store's; on any other, one may register the handler oneself.
async fn the_wait_topic_is_configured(fixture: Fixture) {
    let options = fixture.options().join_wait_topic("my.wait");
    let room = options.connect().await.unwrap();
    let (_, mine) = join_of(&room, &["ok"], |join| JoinWait::new(join, "next", "mine")).await;
    // Of a store that is configured otherwise.
    let (_, strange) = join_of(&fixture.room, &["ok"], |join| {
        JoinWait::new(join, "next", "strange")
    })
    .await;
    let (dispatcher, continued) = dispatcher(&room);
    dispatcher.drain().await.unwrap();

    assert_eq!(state(&room, mine).await, State::Done);
    assert_eq!(
        state(&room, strange).await,
        State::Done,
        "it went to the handler of all other topics"
    );
    let lines = read(&continued);
    assert!(lines.contains(&line("next", "mine")), "{lines:?}");
    assert!(!lines.contains(&line("next", "strange")), "{lines:?}");

    let (_, again) = join_of(&fixture.room, &["ok"], |join| {
        JoinWait::new(join, "next", "by hand")
    })
    .await;
    let by_hand = room
        .dispatcher()
        .on("join.wait", JoinWaitHandler)
        .on("step", |_: Delivery| async {})
        .on("next", |_: Delivery| async {});
    by_hand.drain().await.unwrap();
    assert_eq!(state(&room, again).await, State::Done);
}

/// One's own handler of the wait topic comes first.
async fn the_handler_of_waits_can_be_replaced(fixture: Fixture) {
    let room = &fixture.room;
    let (_, wait) = join_of(room, &["ok"], |join| JoinWait::new(join, "next", "")).await;
    let (dispatcher, continued) = dispatcher(room);
    let dispatcher = dispatcher.on("join.wait", |_: Delivery| async {});
    dispatcher.drain().await.unwrap();
    assert_eq!(state(room, wait).await, State::Done);
    assert_eq!(read(&continued), []);
}

/// Shows C-32, JOIN-056. The lease is lost between the decision and the ack: neither ack nor continuation.
async fn a_lost_lease_leaves_neither_ack_nor_continuation(fixture: Fixture) {
    let room = &fixture.room;
    let (_, wait) = join_of(room, &["ok"], |join| JoinWait::new(join, "next", "")).await;
    let (steps, _) = dispatcher(room);
    // The step is done, and so the wait is ready.
    let steps = steps.on("join.wait", |_: Delivery| async { Outcome::NotReady(None) });
    assert_eq!(steps.run_once().await.unwrap().done, 1);
    let robbed = fixture.clone();
    let robber = room
        .dispatcher()
        .on("join.wait", move |delivery: Delivery| {
            let robbed = robbed.clone();
            async move {
                let answer = postroom::Handler::handle(&JoinWaitHandler, delivery).await?;
                assert!(matches!(answer, Outcome::DoneAndEnqueue(_)), "{answer:?}");
                steal(&robbed, postroom::Queue::Outbox).await;
                Ok::<_, HandlerError>(answer)
            }
        });

    let report = robber.drain().await.unwrap();

    assert_eq!((report.done, report.lost), (0, 1));
    assert_eq!(state(room, wait).await, State::InFlight, "the thief's");
    assert_eq!(fixture.live("topic = 'next'").await, 0);
}

/// Shows OBX-088, JOIN-030, JOIN-031, JOIN-060, C-31. Three dispatchers settle the steps of ten joins in
/// batches, some in transactions: counters are exact, and each join goes on once.
async fn counters_are_exact_under_several_dispatchers(fixture: Fixture) {
    let room = &fixture.room;
    let mut joins = Vec::new();
    for number in 0..10 {
        let steps = ["ok", "tx", "ok", "bad", "tx", "ok"];
        let payload = number.to_string();
        let joined = join_of(room, &steps, |join| {
            JoinWait::new(join, "next", payload).even_if_steps_failed()
        });
        joins.push(joined.await.0);
    }
    let continued = Continued::default();
    let mut running = Vec::new();
    for _ in 0..3 {
        let seen = Arc::clone(&continued);
        let dispatcher = fixture
            .again()
            .await
            .dispatcher()
            .on("step", |delivery: Delivery| async move {
                match delivery.payload() {
                    "bad" => return Err(HandlerError::permanent("broken")),
                    "tx" => {
                        let mut tx = delivery.transaction();
                        tx.execute("SELECT 1", vec![]).await?;
                    }
                    _ => {}
                }
                done()
            })
            .on("next", move |delivery: Delivery| {
                let line = ("next".to_owned(), delivery.payload().to_owned());
                seen.lock().unwrap().push(line);
                async {}
            });
        running.push(dispatcher.batch(7).start().unwrap());
    }
    eventually(|| async { (continued.lock().unwrap().len() >= 10).then_some(()) }).await;
    for one in running {
        one.stop().await;
    }
    let mut lines = read(&continued);
    lines.sort();
    let expected: Vec<_> = (0..10)
        .map(|number| line("next", &number.to_string()))
        .collect();
    assert_eq!(lines, expected);
    for join in joins {
        let join = room.joins().get(join).await.unwrap().unwrap();
        assert_eq!((join.completed_steps, join.failed_steps), (5, 1));
    }
}

testkit::mount!(
    a_join_that_completes_lets_the_next_message_go,
    a_failed_step_lets_the_other_message_go,
    a_failed_step_without_a_failure_topic_ends_the_wait,
    failed_steps_may_be_accepted_and_an_empty_payload_is_one,
    thirty_polls_of_a_waiting_join_use_up_no_attempt,
    a_wait_for_a_join_that_does_not_exist_is_dead_at_once,
    a_payload_that_is_no_wait_is_dead_at_once_and_not_quoted,
    the_wait_topic_is_configured,
    the_handler_of_waits_can_be_replaced,
    a_lost_lease_leaves_neither_ack_nor_continuation,
    counters_are_exact_under_several_dispatchers,
);
