//! What joins log.

use std::time::Duration;

use postroom::{JoinId, JoinWait, Message, MessageId, NewJoin, OwnerToken};
use testkit::Fixture;
use tracing::Level;

use testkit::logs::{self, Line, Logs};

const LEASE: Duration = Duration::from_secs(30);

/// Shows JOIN-070.
async fn a_start_is_logged_at_info(fixture: Fixture) {
    let logs = logs::catch();

    let new = NewJoin::new(3).grouping_key("customer-7");
    let join = fixture.room.joins().start(&new).await.unwrap();

    let lines = logs.at(Level::INFO, "join started");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("join_id"), join.to_string());
    assert_eq!(lines[0].field("grouping_key"), "customer-7");
    assert_eq!(lines[0].field("expected_steps"), "3");
    assert_eq!(lines[0].field("store"), fixture.room.identifier());
}

/// Shows JOIN-071.
async fn an_attach_is_logged_at_debug(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(3)).await.unwrap();
    let message = MessageId::new();
    let logs = logs::catch();

    joins.attach(join, message).await.unwrap();

    let lines = logs.at(Level::DEBUG, "attached to join");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("join_id"), join.to_string());
    assert_eq!(lines[0].field("message_id"), message.to_string());
    assert_eq!(lines[0].field("store"), fixture.room.identifier());
}

/// Shows JOIN-072.
async fn a_completion_is_logged_once_at_info_with_status_and_counts(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let logs = logs::catch();
    for (way, status, completed, failed) in [
        ("ack", "Completed", "2", "0"),
        ("fail", "Failed", "1", "1"),
        ("report", "Failed", "1", "1"),
        ("reconcile", "Completed", "2", "0"),
    ] {
        let join = joins.start(&NewJoin::new(2)).await.unwrap();
        let steps = outbox
            .enqueue_many(&vec![Message::new("step", ""); 3])
            .await
            .unwrap();
        let owner = OwnerToken::new();
        outbox.claim(owner, LEASE, 10).await.unwrap();
        if way == "reconcile" {
            outbox.ack(owner, &[steps[1].work_item_id]).await.unwrap();
        }
        for step in &steps {
            joins.attach(join, step.message_id).await.unwrap();
        }
        outbox.ack(owner, &[steps[0].work_item_id]).await.unwrap();
        assert_eq!(finished(&logs, join).len(), 0, "{way}: a step is missing");

        match way {
            "ack" => drop(outbox.ack(owner, &[steps[1].work_item_id]).await.unwrap()),
            "fail" => drop(
                outbox
                    .fail(owner, &[steps[1].work_item_id], "no")
                    .await
                    .unwrap(),
            ),
            "report" => drop(
                joins
                    .report_failed(join, steps[1].message_id)
                    .await
                    .unwrap(),
            ),
            _ => assert_eq!(joins.reconcile(join).await.unwrap(), 1),
        }
        outbox.ack(owner, &[steps[2].work_item_id]).await.unwrap();

        let lines = finished(&logs, join);
        assert_eq!(lines.len(), 1, "{way}");
        assert_eq!(lines[0].field("status"), status, "{way}");
        assert_eq!(
            (lines[0].field("completed"), lines[0].field("failed")),
            (completed, failed),
            "{way}"
        );
        assert_eq!(lines[0].field("expected"), "2");
        assert_eq!(lines[0].field("store"), fixture.room.identifier());
    }
}

/// Shows C-28.
async fn a_member_that_will_not_count_is_warned_about(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    joins.cancel(join).await.unwrap();
    let logs = logs::catch();

    joins.attach(join, MessageId::new()).await.unwrap();

    let warnings = warnings(&logs);
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field("join_id"), join.to_string());
}

/// Shows C-29, C-30.
async fn a_report_without_effect_is_warned_about(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let (step, stranger) = (MessageId::new(), MessageId::new());
    joins.attach(join, step).await.unwrap();
    let logs = logs::catch();

    joins.report_completed(join, step).await.unwrap();
    joins.report_completed(join, step).await.unwrap();
    assert_eq!(warnings(&logs).len(), 0, "the same again is no surprise");
    joins.report_failed(join, step).await.unwrap();
    joins.report_completed(join, stranger).await.unwrap();

    let about: Vec<_> = warnings(&logs)
        .iter()
        .map(|line| line.field("message_id").to_owned())
        .collect();
    assert_eq!(about, [step.to_string(), stranger.to_string()]);
}

/// Shows C-34.
async fn a_cancellation_is_logged_at_info(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let logs = logs::catch();

    joins.cancel(join).await.unwrap();
    joins.cancel(join).await.unwrap();

    let lines = logs.at(Level::INFO, "join cancelled");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("join_id"), join.to_string());
}

/// Shows OBX-125.
async fn payloads_of_continuations_show_nowhere(fixture: Fixture) {
    const CANARY: &str = "canary-91bd";
    let joins = fixture.room.joins();
    let logs = logs::catch();
    let join = joins
        .start(&NewJoin::new(1).metadata(CANARY))
        .await
        .unwrap();
    let wait = JoinWait::new(join, "next", CANARY).on_fail("undo", CANARY);
    joins.enqueue_wait(&wait).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = fixture.room.outbox().claim(owner, LEASE, 1).await.unwrap();
    assert!(claimed[0].payload.contains(CANARY));
    joins.cancel(join).await.unwrap();
    let wrong = JoinWait::new(JoinId::new(), "next", CANARY);
    let error = joins.enqueue_wait(&wrong).await.unwrap_err();

    for text in [
        format!("{wait:?} {claimed:?} {error} {error:?}"),
        logs.text(),
    ] {
        assert!(!text.contains(CANARY), "{text}");
    }
}

fn finished(logs: &Logs, join: JoinId) -> Vec<Line> {
    let mut lines = logs.at(Level::INFO, "join finished");
    lines.retain(|line| line.field("join_id") == join.to_string());
    lines
}

fn warnings(logs: &Logs) -> Vec<Line> {
    logs.events()
        .into_iter()
        .filter(|line| line.level == Level::WARN)
        .collect()
}

testkit::mount!(
    a_start_is_logged_at_info,
    an_attach_is_logged_at_debug,
    a_completion_is_logged_once_at_info_with_status_and_counts,
    a_member_that_will_not_count_is_warned_about,
    a_report_without_effect_is_warned_about,
    a_cancellation_is_logged_at_info,
    payloads_of_continuations_show_nowhere,
);
