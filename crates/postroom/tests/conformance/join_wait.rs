//! Messages that wait for a join: how they are enqueued, and who wakes them.

use std::time::Duration;

use postroom::{
    Abandon, ErrorKind, JoinId, JoinStatus, JoinWait, Message, MessageId, NewJoin, OwnerToken,
    Receipt, Reported, WorkItemId, tx,
};
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Shows C-11, C-24.
async fn a_wait_is_an_outbox_message_on_the_configured_topic(fixture: Fixture) {
    let join = start(&fixture, 1).await;
    let wait = JoinWait::new(join, "next", "go").on_fail("undo", "");
    let receipt = fixture.room.joins().enqueue_wait(&wait).await.unwrap();
    let elsewhere = fixture
        .options()
        .join_wait_topic("gather.wait")
        .connect()
        .await
        .unwrap();
    let other = elsewhere.joins().enqueue_wait(&wait).await.unwrap();

    let message = fixture
        .room
        .outbox()
        .get(receipt.work_item_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message.topic, "join.wait");
    assert_eq!(message.message_id, receipt.message_id);
    let payload: serde_json::Value = serde_json::from_str(&message.payload).unwrap();
    assert_eq!(
        payload,
        serde_json::json!({
            "joinId": join.as_uuid(),
            "failIfAnyStepFailed": true,
            "onCompleteTopic": "next",
            "onCompletePayload": "go",
            "onFailTopic": "undo",
            "onFailPayload": "",
        })
    );
    let message = fixture
        .room
        .outbox()
        .get(other.work_item_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message.topic, "gather.wait");
}

/// Shows C-11.
async fn a_wait_that_is_not_valid_writes_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = start(&fixture, 1).await;
    let long = "x".repeat(256);
    for (wait, param) in [
        (
            JoinWait::new(JoinId::from_uuid(uuid::Uuid::nil()), "next", ""),
            "join",
        ),
        (JoinWait::new(join, "", ""), "on_complete_topic"),
        (JoinWait::new(join, &long, ""), "on_complete_topic"),
        (JoinWait::new(join, "next", "\0"), "on_complete_payload"),
        (
            JoinWait::new(join, "next", "").on_fail("", ""),
            "on_fail_topic",
        ),
        (
            JoinWait::new(join, "next", "").on_fail(&long, ""),
            "on_fail_topic",
        ),
        (
            JoinWait::new(join, "next", "").on_fail("undo", "\0"),
            "on_fail_payload",
        ),
    ] {
        let error = joins.enqueue_wait(&wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
    }
    let error = joins
        .enqueue_wait(&JoinWait::new(JoinId::new(), "next", ""))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    assert_eq!(fixture.number("SELECT count(*) FROM {outbox}").await, 0);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_wait}")
            .await,
        0
    );
}

/// Shows C-11.
async fn a_wait_enqueued_in_the_callers_transaction_is_there_when_that_commits(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = start(&fixture, 1).await;
    let (wait, unknown) = (
        JoinWait::new(join, "next", ""),
        JoinWait::new(JoinId::new(), "next", ""),
    );
    for commit in [false, true] {
        match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut transaction = connection.transaction().unwrap();
                tx::now(joins.enqueue_wait_in(&mut transaction, &wait)).unwrap();
                assert!(tx::now(joins.enqueue_wait_in(&mut transaction, &unknown)).is_err());
                if commit {
                    transaction.commit().unwrap();
                }
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut transaction = client.transaction().await.unwrap();
                joins
                    .enqueue_wait_in(&mut transaction, &wait)
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    assert!(
                        joins
                            .enqueue_wait_in(&mut transaction, &unknown)
                            .await
                            .is_err()
                    );
                    transaction.rollback().await.unwrap();
                }
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut transaction = testkit::mysql::begin(&mut client).await;
                joins
                    .enqueue_wait_in(&mut transaction, &wait)
                    .await
                    .unwrap();
                if commit {
                    transaction.commit().await.unwrap();
                } else {
                    assert!(
                        joins
                            .enqueue_wait_in(&mut transaction, &unknown)
                            .await
                            .is_err()
                    );
                    transaction.rollback().await.unwrap();
                }
            }
            Backend::SqlServer => {
                let mut transaction = fixture.sqlserver().await;
                transaction.begin_transaction().await.unwrap();
                joins
                    .enqueue_wait_in(&mut transaction, &wait)
                    .await
                    .unwrap();
                if commit {
                    transaction.commit_transaction().await.unwrap();
                } else {
                    assert!(
                        joins
                            .enqueue_wait_in(&mut transaction, &unknown)
                            .await
                            .is_err()
                    );
                    transaction.rollback_transaction().await.unwrap();
                }
            }
        }
        assert_eq!(
            fixture.number("SELECT count(*) FROM {outbox}").await,
            i64::from(commit)
        );
        assert_eq!(
            fixture
                .number("SELECT count(*) FROM {outbox_join_wait}")
                .await,
            i64::from(commit)
        );
    }
}

/// Shows C-11.
async fn a_deferred_wait_counts_as_an_attempt_that_uses_nothing_up(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let join = start(&fixture, 1).await;
    let wait = fixture
        .room
        .joins()
        .enqueue_wait(&JoinWait::new(join, "next", ""))
        .await
        .unwrap();
    for round in 1..=12 {
        fixture.skip_backoff().await;
        let owner = OwnerToken::new();
        assert_eq!(outbox.claim(owner, LEASE, 1).await.unwrap().len(), 1);
        outbox
            .abandon(owner, &[wait.work_item_id], Abandon::default().deferred())
            .await
            .unwrap();
        let progress = outbox
            .get(wait.work_item_id)
            .await
            .unwrap()
            .unwrap()
            .progress;
        assert_eq!(
            (progress.attempt_count, progress.deferral_count),
            (round, round)
        );
    }
}

/// Every way to finish a join wakes its waits in the same transaction, however far away their next
/// attempt is.
///
/// Shows C-11, C-34.
async fn whatever_finishes_a_join_wakes_its_waits_at_once(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    for way in [
        "ack",
        "fail",
        "report completed",
        "report failed",
        "reconcile",
        "cancel",
        "cleanup",
    ] {
        let join = start(&fixture, 1).await;
        let owner = OwnerToken::new();
        let step = if way == "reconcile" || way == "cleanup" {
            let step = outbox.enqueue(&Message::new("step", "")).await.unwrap();
            outbox.claim(owner, LEASE, 1).await.unwrap();
            outbox.ack(owner, &[step.work_item_id]).await.unwrap();
            joins.attach(join, step.message_id).await.unwrap();
            step
        } else {
            let step = outbox
                .enqueue(&Message::new("step", "").join(join))
                .await
                .unwrap();
            outbox.claim(owner, LEASE, 1).await.unwrap();
            step
        };
        let waits = [asleep(&fixture, join).await, asleep(&fixture, join).await];
        assert_eq!(claim(&fixture).await, [], "{way}");

        match way {
            "ack" => drop(outbox.ack(owner, &[step.work_item_id]).await.unwrap()),
            "fail" => drop(
                outbox
                    .fail(owner, &[step.work_item_id], "no")
                    .await
                    .unwrap(),
            ),
            "report completed" => {
                assert_eq!(
                    joins.report_completed(join, step.message_id).await.unwrap(),
                    Reported::Counted
                )
            }
            "report failed" => assert_eq!(
                joins.report_failed(join, step.message_id).await.unwrap(),
                Reported::Counted
            ),
            "reconcile" => assert_eq!(joins.reconcile(join).await.unwrap(), 1),
            "cancel" => assert!(joins.cancel(join).await.unwrap()),
            _ => {
                fixture
                    .age("outbox_done", "processed_at", 30 * 24 * HOUR)
                    .await;
                outbox.cleanup(7 * 24 * HOUR).await.unwrap();
            }
        }

        let mut expected = waits.map(|wait| wait.work_item_id);
        expected.sort();
        assert_eq!(claim(&fixture).await, expected, "{way}");
    }
}

/// Shows C-11.
async fn a_step_that_does_not_finish_the_join_wakes_nobody(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (join, other) = (start(&fixture, 2).await, start(&fixture, 1).await);
    let step = outbox
        .enqueue(&Message::new("step", "").join(join))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 1).await.unwrap();
    asleep(&fixture, join).await;
    asleep(&fixture, other).await;

    outbox.ack(owner, &[step.work_item_id]).await.unwrap();

    assert_eq!(claim(&fixture).await, []);
}

/// Shows C-11.
async fn a_wait_for_a_join_that_has_finished_is_ready_even_when_it_is_abandoned(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = start(&fixture, 1).await;
    joins.attach(join, MessageId::new()).await.unwrap();
    let step = joins.members(join, None, 1).await.unwrap()[0].message_id;
    joins.report_completed(join, step).await.unwrap();
    let wait = joins
        .enqueue_wait(&JoinWait::new(join, "next", ""))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    assert_eq!(
        fixture
            .room
            .outbox()
            .claim(owner, LEASE, 1)
            .await
            .unwrap()
            .len(),
        1
    );

    fixture
        .room
        .outbox()
        .abandon(owner, &[wait.work_item_id], Abandon::after(HOUR))
        .await
        .unwrap();

    assert_eq!(claim(&fixture).await, [wait.work_item_id]);
}

/// Shows C-11, JOIN-060.
async fn an_abandon_that_races_with_the_completion_is_never_lost(fixture: Fixture) {
    let (here, there) = (fixture.room.clone(), fixture.again().await);
    for round in 0..150 {
        let join = start(&fixture, 1).await;
        let step = here
            .outbox()
            .enqueue(&Message::new("step", "").join(join))
            .await
            .unwrap();
        let wait = here
            .joins()
            .enqueue_wait(&JoinWait::new(join, "next", ""))
            .await
            .unwrap();
        let owner = OwnerToken::new();
        assert_eq!(here.outbox().claim(owner, LEASE, 2).await.unwrap().len(), 2);

        let abandoning = {
            let outbox = here.outbox();
            tokio::spawn(async move {
                let how = Abandon::after(HOUR).deferred();
                outbox.abandon(owner, &[wait.work_item_id], how).await
            })
        };
        let finishing = {
            let room = there.clone();
            tokio::spawn(async move {
                match round % 3 {
                    0 => room
                        .outbox()
                        .ack(owner, &[step.work_item_id])
                        .await
                        .map(drop),
                    1 => room
                        .outbox()
                        .fail(owner, &[step.work_item_id], "no")
                        .await
                        .map(drop),
                    _ => room.joins().cancel(join).await.map(drop),
                }
            })
        };
        assert_eq!(abandoning.await.unwrap().unwrap().len(), 1);
        finishing.await.unwrap().unwrap();

        assert_ne!(
            here.joins().get(join).await.unwrap().unwrap().status,
            JoinStatus::Pending
        );
        let woken = claim(&fixture).await;
        assert_eq!(woken, [wait.work_item_id], "round {round}");
        fixture.sql("DELETE FROM {outbox}").await;
    }
}

/// Shows C-12.
async fn the_joins_status_does_not_depend_on_what_the_wait_does_about_failures(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    for strict in [true, false] {
        let join = start(&fixture, 2).await;
        let steps = outbox
            .enqueue_many(&vec![Message::new("step", "").join(join); 2])
            .await
            .unwrap();
        let owner = OwnerToken::new();
        assert_eq!(outbox.claim(owner, LEASE, 2).await.unwrap().len(), 2);
        let wait = JoinWait::new(join, "next", "");
        let wait = if strict {
            wait
        } else {
            wait.even_if_steps_failed()
        };
        joins.enqueue_wait(&wait).await.unwrap();

        outbox
            .fail(owner, &[steps[0].work_item_id], "no")
            .await
            .unwrap();
        outbox.ack(owner, &[steps[1].work_item_id]).await.unwrap();

        assert_eq!(
            joins.get(join).await.unwrap().unwrap().status,
            JoinStatus::Failed
        );
        claim(&fixture).await;
    }
}

async fn start(fixture: &Fixture, expected: i32) -> JoinId {
    fixture
        .room
        .joins()
        .start(&NewJoin::new(expected))
        .await
        .unwrap()
}

/// A wait whose next attempt is an hour away.
async fn asleep(fixture: &Fixture, join: JoinId) -> Receipt {
    let wait = fixture
        .room
        .joins()
        .enqueue_wait(&JoinWait::new(join, "next", ""))
        .await
        .unwrap();
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1).await.unwrap();
    assert_eq!(claimed[0].id, wait.work_item_id);
    outbox
        .abandon(owner, &[wait.work_item_id], Abandon::after(HOUR).deferred())
        .await
        .unwrap();
    wait
}

/// What can be claimed at this moment, by id.
async fn claim(fixture: &Fixture) -> Vec<WorkItemId> {
    let claimed = fixture
        .room
        .outbox()
        .claim(OwnerToken::new(), LEASE, 100)
        .await
        .unwrap();
    let mut ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
    ids.sort();
    ids
}

testkit::mount!(
    a_wait_is_an_outbox_message_on_the_configured_topic,
    a_wait_that_is_not_valid_writes_nothing,
    a_wait_enqueued_in_the_callers_transaction_is_there_when_that_commits,
    a_deferred_wait_counts_as_an_attempt_that_uses_nothing_up,
    whatever_finishes_a_join_wakes_its_waits_at_once,
    a_step_that_does_not_finish_the_join_wakes_nobody,
    a_wait_for_a_join_that_has_finished_is_ready_even_when_it_is_abandoned,
    an_abandon_that_races_with_the_completion_is_never_lost,
    the_joins_status_does_not_depend_on_what_the_wait_does_about_failures,
);
