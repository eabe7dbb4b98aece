//! What becomes of a message that waits for a join.

use std::time::Duration;

use postroom::{
    ErrorKind, JoinId, JoinStatus, JoinWait, Message, NewJoin, OutboxMessage, OwnerToken, State,
    WaitDecision,
};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(30);

/// A join with one step per topic in `steps`, and a message that waits for it.
async fn join_with_wait(
    fixture: &Fixture,
    steps: &[&str],
    wait: impl Fn(JoinId) -> JoinWait,
) -> JoinId {
    let expected = i32::try_from(steps.len()).unwrap();
    let join = fixture
        .room
        .joins()
        .start(&NewJoin::new(expected))
        .await
        .unwrap();
    for step in steps {
        fixture
            .room
            .outbox()
            .enqueue(&Message::new(*step, "").join(join))
            .await
            .unwrap();
    }
    fixture
        .room
        .joins()
        .enqueue_wait(&wait(join))
        .await
        .unwrap();
    join
}

/// Claims everything that is ready; acks topics that start with `ok`, fails those that start with
/// `bad`, and gives back the rest with its owner.
async fn work_off(fixture: &Fixture) -> (OwnerToken, Vec<OutboxMessage>) {
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    let mut rest = Vec::new();
    for message in outbox.claim(owner, LEASE, 100).await.unwrap() {
        if message.topic.starts_with("ok") {
            outbox.ack(owner, &[message.id]).await.unwrap();
        } else if message.topic.starts_with("bad") {
            outbox.fail(owner, &[message.id], "broken").await.unwrap();
        } else {
            rest.push(message);
        }
    }
    (owner, rest)
}

async fn ready(fixture: &Fixture) -> Vec<(String, String)> {
    let list = postroom::List::new(State::Ready);
    let messages = fixture.room.outbox().list(&list).await.unwrap();
    messages
        .into_iter()
        .map(|message| (message.topic, message.payload))
        .collect()
}

/// Shows OBX-090, OBX-093, JOIN-050, JOIN-051, JOIN-055, JOIN-056, C-32.
async fn a_complete_join_enqueues_its_continuation_and_acks_the_wait(fixture: Fixture) {
    join_with_wait(&fixture, &["ok.a", "ok.b"], |join| {
        JoinWait::new(join, "next", "payload").on_fail("never", "")
    })
    .await;
    let (owner, waits) = work_off(&fixture).await;

    assert_eq!(waits[0].topic, "join.wait");
    let decision = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap();

    let WaitDecision::Completed(receipt) = decision else {
        panic!("{decision:?}")
    };
    let continuation = fixture
        .room
        .outbox()
        .get(receipt.work_item_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (continuation.topic.as_str(), continuation.payload.as_str()),
        ("next", "payload")
    );
    assert!(
        fixture
            .room
            .outbox()
            .get(waits[0].id)
            .await
            .unwrap()
            .unwrap()
            .is_processed()
    );
    assert_eq!(
        ready(&fixture).await,
        [("next".to_owned(), "payload".to_owned())]
    );
}

/// Shows OBX-091, JOIN-053, C-11.
async fn an_incomplete_join_hands_the_wait_back_without_using_up_attempts(fixture: Fixture) {
    join_with_wait(&fixture, &["later"], |join| JoinWait::new(join, "next", "")).await;
    let joins = fixture.room.joins();

    for poll in 1..=30 {
        let (owner, claimed) = work_off(&fixture).await;
        let wait = claimed
            .iter()
            .find(|message| message.topic == "join.wait")
            .unwrap();
        assert_eq!(
            joins.handle_wait(owner, wait).await.unwrap(),
            WaitDecision::NotReady
        );
        let wait = fixture.room.outbox().get(wait.id).await.unwrap().unwrap();
        assert_eq!(wait.state, State::Ready);
        assert_eq!(wait.progress.attempt_count, poll);
        assert_eq!(wait.progress.deferral_count, poll);
        fixture.expire_leases().await;
        fixture.skip_backoff().await;
    }
}

/// Shows OBX-092, OBX-094, JOIN-054, C-12.
async fn a_failed_step_enqueues_the_failure_continuation(fixture: Fixture) {
    let join = join_with_wait(&fixture, &["ok", "bad"], |join| {
        JoinWait::new(join, "next", "").on_fail("undo", "why")
    })
    .await;
    let (owner, waits) = work_off(&fixture).await;

    let decision = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap();

    assert!(matches!(decision, WaitDecision::Failed(_)), "{decision:?}");
    assert_eq!(
        ready(&fixture).await,
        [("undo".to_owned(), "why".to_owned())]
    );
    let join = fixture.room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(join.status, JoinStatus::Failed);
}

/// Shows JOIN-054, C-13.
async fn a_failed_step_without_a_failure_topic_enqueues_nothing(fixture: Fixture) {
    join_with_wait(&fixture, &["bad"], |join| JoinWait::new(join, "next", "")).await;
    let (owner, waits) = work_off(&fixture).await;

    let decision = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap();

    assert_eq!(decision, WaitDecision::NoContinuation);
    assert_eq!(ready(&fixture).await, []);
    assert!(
        fixture
            .room
            .outbox()
            .get(waits[0].id)
            .await
            .unwrap()
            .unwrap()
            .is_processed()
    );
}

/// Shows JOIN-055, C-12, C-13.
async fn failed_steps_may_be_accepted_and_an_empty_payload_is_a_payload(fixture: Fixture) {
    join_with_wait(&fixture, &["ok", "bad"], |join| {
        JoinWait::new(join, "next", "").even_if_steps_failed()
    })
    .await;
    let (owner, waits) = work_off(&fixture).await;

    let decision = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap();

    assert!(
        matches!(decision, WaitDecision::Completed(_)),
        "{decision:?}"
    );
    assert_eq!(ready(&fixture).await, [("next".to_owned(), String::new())]);
}

/// Shows JOIN-052.
async fn a_wait_for_an_unknown_join_is_failed_not_retried(fixture: Fixture) {
    join_with_wait(&fixture, &["ok"], |join| JoinWait::new(join, "next", "")).await;
    let (owner, waits) = work_off(&fixture).await;
    fixture.sql("DELETE FROM {outbox_join}").await;

    let decision = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap();

    assert_eq!(decision, WaitDecision::UnknownJoin);
    let wait = fixture
        .room
        .outbox()
        .get(waits[0].id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(wait.state, State::Dead);
    assert!(wait.progress.last_error.unwrap().contains("does not exist"));
}

/// Shows JOIN-051, JOIN-052, C-58.
async fn a_payload_that_is_no_valid_wait_is_failed_without_quoting_it(fixture: Fixture) {
    let (room, joins) = (&fixture.room, fixture.room.joins());
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let wait = |topic: &str| {
        format!(
            r#"{{"joinId":"{join}","failIfAnyStepFailed":true,"onCompleteTopic":"{topic}","onCompletePayload":"canary"}}"#
        )
    };
    for payload in [
        "canary".to_owned(),
        wait(""),
        wait(&"canary".repeat(100)),
        wait("a\\u0000b"),
    ] {
        let receipt = room
            .outbox()
            .enqueue(&Message::new("join.wait", payload))
            .await
            .unwrap();
        let (owner, waits) = work_off(&fixture).await;
        assert_eq!(waits[0].id, receipt.work_item_id);

        let decision = joins.handle_wait(owner, &waits[0]).await.unwrap();

        assert_eq!(decision, WaitDecision::Invalid);
        let wait = room.outbox().get(waits[0].id).await.unwrap().unwrap();
        assert_eq!(wait.state, State::Dead);
        assert!(!wait.progress.last_error.unwrap().contains("canary"));
    }
}

/// Shows C-34.
async fn a_cancelled_join_acks_the_wait_and_nothing_goes_on(fixture: Fixture) {
    let join = join_with_wait(&fixture, &["later"], |join| JoinWait::new(join, "next", "")).await;
    assert!(fixture.room.joins().cancel(join).await.unwrap());
    let (owner, claimed) = work_off(&fixture).await;
    let wait = claimed
        .iter()
        .find(|message| message.topic == "join.wait")
        .unwrap();

    let decision = fixture.room.joins().handle_wait(owner, wait).await.unwrap();

    assert_eq!(decision, WaitDecision::Cancelled);
    assert!(
        fixture
            .room
            .outbox()
            .get(wait.id)
            .await
            .unwrap()
            .unwrap()
            .is_processed()
    );
    assert!(ready(&fixture).await.is_empty());
}

/// Shows C-32, JOIN-056.
async fn a_lost_lease_leaves_neither_ack_nor_continuation(fixture: Fixture) {
    join_with_wait(&fixture, &["ok"], |join| JoinWait::new(join, "next", "")).await;
    let (owner, waits) = work_off(&fixture).await;
    fixture.expire_leases().await;
    fixture
        .room
        .outbox()
        .claim(OwnerToken::new(), LEASE, 10)
        .await
        .unwrap();

    let error = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap_err();

    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert!(ready(&fixture).await.is_empty());
    assert_eq!(
        fixture
            .room
            .outbox()
            .get(waits[0].id)
            .await
            .unwrap()
            .unwrap()
            .state,
        State::InFlight
    );
}

/// Shows JOIN-057, C-27.
async fn steps_that_were_attached_too_late_are_counted_before_saying_not_ready(fixture: Fixture) {
    let (room, joins) = (&fixture.room, fixture.room.joins());
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let step = room
        .outbox()
        .enqueue(&Message::new("ok", ""))
        .await
        .unwrap();
    work_off(&fixture).await;
    joins.attach(join, step.message_id).await.unwrap();
    joins
        .enqueue_wait(&JoinWait::new(join, "next", ""))
        .await
        .unwrap();
    let (owner, waits) = work_off(&fixture).await;

    let decision = joins.handle_wait(owner, &waits[0]).await.unwrap();

    assert!(
        matches!(decision, WaitDecision::Completed(_)),
        "{decision:?}"
    );
}

/// Shows JOIN-050.
async fn the_wait_topic_is_configured_and_other_topics_are_refused(fixture: Fixture) {
    let room = fixture
        .options()
        .join_wait_topic("my.wait")
        .connect()
        .await
        .unwrap();
    let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
    room.joins()
        .enqueue_wait(&JoinWait::new(join, "next", ""))
        .await
        .unwrap();
    let (owner, waits) = work_off(&fixture).await;

    assert_eq!(waits[0].topic, "my.wait");
    let error = fixture
        .room
        .joins()
        .handle_wait(owner, &waits[0])
        .await
        .unwrap_err();
    assert_eq!(error.param(), Some("message"));
    assert_eq!(
        room.joins().handle_wait(owner, &waits[0]).await.unwrap(),
        WaitDecision::NotReady
    );
}

testkit::mount!(
    a_complete_join_enqueues_its_continuation_and_acks_the_wait,
    an_incomplete_join_hands_the_wait_back_without_using_up_attempts,
    a_failed_step_enqueues_the_failure_continuation,
    a_failed_step_without_a_failure_topic_enqueues_nothing,
    failed_steps_may_be_accepted_and_an_empty_payload_is_a_payload,
    a_wait_for_an_unknown_join_is_failed_not_retried,
    a_payload_that_is_no_valid_wait_is_failed_without_quoting_it,
    a_cancelled_join_acks_the_wait_and_nothing_goes_on,
    a_lost_lease_leaves_neither_ack_nor_continuation,
    steps_that_were_attached_too_late_are_counted_before_saying_not_ready,
    the_wait_topic_is_configured_and_other_topics_are_refused,
);
