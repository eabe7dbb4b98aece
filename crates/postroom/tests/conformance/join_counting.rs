//! Counting steps: by ack and fail, by hand, and never twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postroom::{
    Abandon, ErrorKind, Join, JoinId, JoinStatus, JoinWait, Joins, Message, MessageId, NewJoin,
    Outbox, OwnerToken, Receipt, Reported, StepStatus, WorkItemId,
};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Shows JOIN-020, JOIN-022, OBX-085, OBX-086.
async fn a_step_reported_completed_counts_once(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 2, 2).await;
    let message = steps[0].message_id;

    assert_eq!(
        joins.report_completed(join, message).await.unwrap(),
        Reported::Counted
    );
    let counted = get(&joins, join).await;
    assert_eq!((counted.completed_steps, counted.failed_steps), (1, 0));
    assert_eq!(status(&joins, join, message).await, StepStatus::Completed);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member} WHERE status = 1")
            .await,
        1
    );

    for _ in 0..3 {
        assert_eq!(
            joins.report_completed(join, message).await.unwrap(),
            Reported::AlreadyReported
        );
        assert_eq!(get(&joins, join).await, counted);
    }
}

/// Shows JOIN-021, JOIN-022, OBX-087, OBX-088.
async fn a_step_reported_failed_counts_once(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 2, 2).await;
    let message = steps[0].message_id;

    assert_eq!(
        joins.report_failed(join, message).await.unwrap(),
        Reported::Counted
    );
    let counted = get(&joins, join).await;
    assert_eq!((counted.completed_steps, counted.failed_steps), (0, 1));
    assert_eq!(status(&joins, join, message).await, StepStatus::Failed);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member} WHERE status = 2")
            .await,
        1
    );

    for _ in 0..3 {
        assert_eq!(
            joins.report_failed(join, message).await.unwrap(),
            Reported::AlreadyReported
        );
        assert_eq!(get(&joins, join).await, counted);
    }
}

/// Shows JOIN-022, JOIN-060, JOIN-061.
async fn thirty_two_reports_of_one_step_count_once(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let (join, steps) = started(&fixture, 2, 2).await;
    let message = steps[0].message_id;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..32 {
        let joins = rooms[task % 2].joins();
        tasks.spawn(async move {
            match task % 3 {
                0 => joins.report_failed(join, message).await.unwrap(),
                _ => joins.report_completed(join, message).await.unwrap(),
            }
        });
    }
    let reported = tasks.join_all().await;
    assert_eq!(
        reported
            .iter()
            .filter(|reported| **reported == Reported::Counted)
            .count(),
        1
    );
    let join = get(&fixture.room.joins(), join).await;
    assert_eq!(join.completed_steps + join.failed_steps, 1);
}

/// Shows JOIN-023, C-29.
async fn the_first_report_of_a_step_wins(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 3, 2).await;
    let (completed, failed) = (steps[0].message_id, steps[1].message_id);
    joins.report_completed(join, completed).await.unwrap();
    joins.report_failed(join, failed).await.unwrap();
    let before = get(&joins, join).await;

    assert_eq!(
        joins.report_failed(join, completed).await.unwrap(),
        Reported::OtherStatus
    );
    assert_eq!(
        joins.report_completed(join, failed).await.unwrap(),
        Reported::OtherStatus
    );

    assert_eq!(get(&joins, join).await, before);
    assert_eq!(status(&joins, join, completed).await, StepStatus::Completed);
    assert_eq!(status(&joins, join, failed).await, StepStatus::Failed);
}

/// Shows C-29, JOIN-022.
async fn a_step_reported_by_hand_is_not_counted_again_by_its_ack(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 3, 2).await;
    joins
        .report_completed(join, steps[0].message_id)
        .await
        .unwrap();
    joins
        .report_failed(join, steps[1].message_id)
        .await
        .unwrap();
    let before = get(&joins, join).await;

    let (owner, ids) = claim(&fixture, 2).await;
    assert_eq!(
        fixture.room.outbox().ack(owner, &ids).await.unwrap().len(),
        2,
        "the acks themselves count"
    );

    assert_eq!(get(&joins, join).await, before);
}

/// Shows C-30.
async fn a_report_for_a_message_that_is_no_step_does_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, _) = started(&fixture, 1, 0).await;
    let stranger = fixture
        .room
        .outbox()
        .enqueue(&Message::new("topic", ""))
        .await
        .unwrap()
        .message_id;
    let before = get(&joins, join).await;

    for message in [stranger, MessageId::new()] {
        assert_eq!(
            joins.report_completed(join, message).await.unwrap(),
            Reported::NotAMember
        );
        assert_eq!(
            joins.report_failed(join, message).await.unwrap(),
            Reported::NotAMember
        );
    }

    assert_eq!(get(&joins, join).await, before);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member}")
            .await,
        0
    );
}

/// Shows C-30.
async fn a_report_for_an_unknown_join_is_an_error(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (_, steps) = started(&fixture, 1, 1).await;
    let message = steps[0].message_id;
    for error in [
        joins
            .report_completed(JoinId::new(), message)
            .await
            .unwrap_err(),
        joins
            .report_failed(JoinId::new(), message)
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound { what: "join" });
    }
    let nil = uuid::Uuid::nil();
    let error = joins
        .report_completed(nil.into(), message)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument { param: "join" });
}

/// Shows JOIN-024, JOIN-061.
async fn a_report_that_cannot_move_the_counter_leaves_the_member_too(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 1, 1).await;
    let message = steps[0].message_id;
    fixture.refuse("UPDATE", "outbox_join").await;

    assert_eq!(
        joins
            .report_completed(join, message)
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::Database
    );
    assert_eq!(status(&joins, join, message).await, StepStatus::Pending);

    fixture.allow("UPDATE").await;
    assert_eq!(
        joins.report_completed(join, message).await.unwrap(),
        Reported::Counted
    );
}

/// Shows JOIN-030, OBX-089.
async fn an_ack_counts_a_completed_step(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 2, 2).await;
    let (owner, _) = claim(&fixture, 2).await;

    fixture
        .room
        .outbox()
        .ack(owner, &[steps[0].work_item_id])
        .await
        .unwrap();

    let counted = get(&joins, join).await;
    assert_eq!((counted.completed_steps, counted.failed_steps), (1, 0));
    assert_eq!(
        status(&joins, join, steps[0].message_id).await,
        StepStatus::Completed
    );
    assert_eq!(
        status(&joins, join, steps[1].message_id).await,
        StepStatus::Pending
    );
}

/// Shows JOIN-031, OBX-089.
async fn a_fail_counts_a_failed_step(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 2, 2).await;
    let (owner, _) = claim(&fixture, 2).await;

    fixture
        .room
        .outbox()
        .fail(owner, &[steps[0].work_item_id], "broken")
        .await
        .unwrap();

    let counted = get(&joins, join).await;
    assert_eq!((counted.completed_steps, counted.failed_steps), (0, 1));
    assert_eq!(
        status(&joins, join, steps[0].message_id).await,
        StepStatus::Failed
    );
}

/// Shows C-18.
async fn a_call_that_settles_nothing_counts_nothing(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let (join, _) = started(&fixture, 3, 3).await;
    let before = get(&joins, join).await;
    let (owner, ids) = claim(&fixture, 3).await;

    outbox.ack(OwnerToken::new(), &ids).await.unwrap();
    outbox.fail(OwnerToken::new(), &ids, "no").await.unwrap();
    outbox
        .abandon(owner, &ids[..1], Abandon::default())
        .await
        .unwrap();
    outbox.ack(owner, &ids[..1]).await.unwrap();
    fixture.expire_leases().await;
    outbox.reap().await.unwrap();
    outbox.ack(owner, &ids).await.unwrap();
    outbox.fail(owner, &ids, "no").await.unwrap();

    assert_eq!(get(&joins, join).await, before);
}

/// Shows JOIN-032, OBX-089.
async fn an_ack_or_fail_that_cannot_count_does_not_happen(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let (join, steps) = started(&fixture, 2, 2).await;
    let (owner, ids) = claim(&fixture, 2).await;
    fixture.refuse("UPDATE", "outbox_join").await;

    assert_eq!(
        outbox.ack(owner, &ids).await.unwrap_err().kind(),
        ErrorKind::Database
    );
    assert_eq!(
        outbox.fail(owner, &ids, "no").await.unwrap_err().kind(),
        ErrorKind::Database
    );

    let leased = "SELECT count(*) FROM {outbox} WHERE owner_token IS NOT NULL";
    assert_eq!(fixture.number(leased).await, 2);
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_done}").await,
        0
    );
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_dead}").await,
        0
    );
    assert_eq!(
        status(&joins, join, steps[0].message_id).await,
        StepStatus::Pending
    );
    fixture.allow("UPDATE").await;
    assert_eq!(outbox.ack(owner, &ids).await.unwrap().len(), 2);
    assert_eq!(get(&joins, join).await.status, JoinStatus::Completed);
}

/// Shows JOIN-034.
async fn counting_by_hand_and_by_ack_cannot_be_told_apart(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let new = NewJoin::new(3).grouping_key("same").metadata("same");
    let (by_hand, by_itself) = (
        joins.start(&new).await.unwrap(),
        joins.start(&new).await.unwrap(),
    );
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(
            outbox
                .enqueue(&Message::new("topic", "").join(by_itself))
                .await
                .unwrap(),
        );
    }
    let others = [MessageId::new(), MessageId::new(), MessageId::new()];
    for other in others {
        joins.attach(by_hand, other).await.unwrap();
    }
    let (owner, _) = claim(&fixture, 3).await;

    for (number, step) in steps.iter().enumerate() {
        if number == 1 {
            outbox
                .fail(owner, &[step.work_item_id], "no")
                .await
                .unwrap();
            joins.report_failed(by_hand, others[number]).await.unwrap();
        } else {
            outbox.ack(owner, &[step.work_item_id]).await.unwrap();
            joins
                .report_completed(by_hand, others[number])
                .await
                .unwrap();
        }
        let (hand, itself) = (get(&joins, by_hand).await, get(&joins, by_itself).await);
        assert_eq!(
            (hand.completed_steps, hand.failed_steps, hand.status),
            (itself.completed_steps, itself.failed_steps, itself.status)
        );
        assert_eq!(
            status(&joins, by_hand, others[number]).await,
            status(&joins, by_itself, step.message_id).await
        );
    }
    assert_eq!(get(&joins, by_hand).await.status, JoinStatus::Failed);
}

/// Shows C-31, JOIN-030.
async fn two_members_of_one_join_in_one_ack_count_as_two(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, _) = started(&fixture, 5, 5).await;
    let (owner, ids) = claim(&fixture, 5).await;

    fixture.room.outbox().ack(owner, &ids[..2]).await.unwrap();
    assert_eq!(get(&joins, join).await.completed_steps, 2);
    fixture
        .room
        .outbox()
        .fail(owner, &ids[2..4], "no")
        .await
        .unwrap();
    let counted = get(&joins, join).await;
    assert_eq!(
        (
            counted.completed_steps,
            counted.failed_steps,
            counted.status
        ),
        (2, 2, JoinStatus::Pending)
    );
    fixture.room.outbox().ack(owner, &ids[4..]).await.unwrap();
    let counted = get(&joins, join).await;
    assert_eq!(
        (
            counted.completed_steps,
            counted.failed_steps,
            counted.status
        ),
        (3, 2, JoinStatus::Failed)
    );
}

/// Shows C-28, C-31, JOIN-023.
async fn counters_stop_at_the_expected_steps(fixture: Fixture) {
    let joins = fixture.room.joins();
    for well in [true, false] {
        let (join, _) = started(&fixture, 3, 5).await;
        let (owner, ids) = claim(&fixture, 5).await;
        let settled = if well {
            fixture.room.outbox().ack(owner, &ids).await
        } else {
            fixture.room.outbox().fail(owner, &ids, "no").await
        };
        assert_eq!(settled.unwrap().len(), 5);

        let counted = get(&joins, join).await;
        let expected = if well {
            (3, 0, JoinStatus::Completed)
        } else {
            (0, 3, JoinStatus::Failed)
        };
        assert_eq!(
            (
                counted.completed_steps,
                counted.failed_steps,
                counted.status
            ),
            expected
        );
        let members = joins.members(join, None, 10).await.unwrap();
        assert!(
            members
                .iter()
                .all(|member| member.status != StepStatus::Pending),
            "every member has its own status"
        );
    }
}

/// Shows JOIN-040, JOIN-041, C-12.
async fn a_join_is_complete_with_its_last_step_and_failed_if_any_step_failed(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    for (steps, expected) in [
        (&[true, true, true][..], JoinStatus::Completed),
        (&[false, true, true][..], JoinStatus::Failed),
        (&[true, true, false][..], JoinStatus::Failed),
        (&[false, false][..], JoinStatus::Failed),
        (&[true][..], JoinStatus::Completed),
        (&[false][..], JoinStatus::Failed),
    ] {
        let (join, receipts) = started(&fixture, steps.len(), steps.len()).await;
        let (owner, _) = claim(&fixture, steps.len()).await;
        for (well, receipt) in steps.iter().zip(receipts) {
            let before = get(&joins, join).await;
            assert_eq!(
                (before.status, before.is_complete()),
                (JoinStatus::Pending, false)
            );
            if *well {
                outbox.ack(owner, &[receipt.work_item_id]).await.unwrap();
            } else {
                outbox
                    .fail(owner, &[receipt.work_item_id], "no")
                    .await
                    .unwrap();
            }
        }
        let after = get(&joins, join).await;
        assert_eq!(
            (after.status, after.is_complete()),
            (expected, true),
            "{steps:?}"
        );
    }
}

/// Shows JOIN-042.
async fn a_finished_join_never_changes_again(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    for well in [true, false] {
        let (join, receipts) = started(&fixture, 1, 4).await;
        let (owner, ids) = claim(&fixture, 4).await;
        if well {
            outbox.ack(owner, &ids[..1]).await.unwrap();
        } else {
            outbox.fail(owner, &ids[..1], "no").await.unwrap();
        }
        let finished = get(&joins, join).await;
        assert_eq!(
            finished.status,
            if well {
                JoinStatus::Completed
            } else {
                JoinStatus::Failed
            }
        );

        outbox.ack(owner, &ids[1..2]).await.unwrap();
        outbox.fail(owner, &ids[2..3], "no").await.unwrap();
        joins
            .report_failed(join, receipts[3].message_id)
            .await
            .unwrap();
        joins
            .report_completed(join, receipts[0].message_id)
            .await
            .unwrap();
        joins.reconcile(join).await.unwrap();
        assert!(!joins.cancel(join).await.unwrap());
        outbox.ack(owner, &ids[3..]).await.unwrap();

        assert_eq!(get(&joins, join).await, finished);
    }
}

/// Shows JOIN-043.
async fn last_updated_moves_with_every_change_and_only_then(fixture: Fixture) {
    let joins = fixture.room.joins();
    let (join, steps) = started(&fixture, 4, 3).await;
    let (owner, _) = claim(&fixture, 3).await;
    for change in 0..4 {
        fixture.age("outbox_join", "last_updated_at", HOUR).await;
        let aged = get(&joins, join).await;
        joins.attach(join, steps[0].message_id).await.unwrap();
        joins.reconcile(join).await.unwrap();
        joins
            .report_completed(join, MessageId::new())
            .await
            .unwrap();
        assert_eq!(get(&joins, join).await, aged, "nothing has changed");

        let before = fixture.now().await;
        match change {
            0 => drop(
                fixture
                    .room
                    .outbox()
                    .ack(owner, &[steps[0].work_item_id])
                    .await
                    .unwrap(),
            ),
            1 => drop(
                fixture
                    .room
                    .outbox()
                    .fail(owner, &[steps[1].work_item_id], "no")
                    .await
                    .unwrap(),
            ),
            2 => drop(
                joins
                    .report_completed(join, steps[2].message_id)
                    .await
                    .unwrap(),
            ),
            _ => assert!(joins.cancel(join).await.unwrap()),
        }
        let updated = get(&joins, join).await;
        assert!(
            before <= updated.last_updated_at && updated.last_updated_at <= fixture.now().await
        );
        assert_eq!(updated.created_at, aged.created_at);
    }
}

/// Shows JOIN-080, JOIN-081, OBX-096.
async fn one_message_counts_in_all_of_its_joins(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let mut all = Vec::new();
    for expected in 1..=4 {
        all.push(joins.start(&NewJoin::new(expected)).await.unwrap());
    }
    let message = all
        .iter()
        .take(3)
        .fold(Message::new("topic", ""), |message, join| {
            message.join(*join)
        });
    let receipt = outbox.enqueue(&message).await.unwrap();
    joins.attach(all[3], receipt.message_id).await.unwrap();
    let failing = outbox.enqueue(&message.clone()).await.unwrap();
    let (owner, _) = claim(&fixture, 2).await;

    outbox.ack(owner, &[receipt.work_item_id]).await.unwrap();
    for join in &all {
        assert_eq!(get(&joins, *join).await.completed_steps, 1);
    }
    assert_eq!(get(&joins, all[0]).await.status, JoinStatus::Completed);

    outbox
        .fail(owner, &[failing.work_item_id], "no")
        .await
        .unwrap();
    let failed: Vec<_> = [
        get(&joins, all[0]).await.failed_steps,
        get(&joins, all[1]).await.failed_steps,
        get(&joins, all[2]).await.failed_steps,
        get(&joins, all[3]).await.failed_steps,
    ]
    .into();
    assert_eq!(failed, [0, 1, 1, 0]);
    assert_eq!(get(&joins, all[1]).await.status, JoinStatus::Failed);
}

/// Shows C-29, JOIN-031.
async fn a_failed_step_that_is_replayed_and_acked_stays_failed(fixture: Fixture) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let (join, steps) = started(&fixture, 2, 1).await;
    let (owner, ids) = claim(&fixture, 1).await;
    outbox.fail(owner, &ids, "no").await.unwrap();
    let counted = get(&joins, join).await;
    outbox.replay(&ids).await.unwrap();
    let (owner, ids) = claim(&fixture, 1).await;

    outbox.ack(owner, &ids).await.unwrap();

    assert_eq!(get(&joins, join).await, counted);
    assert_eq!(
        status(&joins, join, steps[0].message_id).await,
        StepStatus::Failed
    );
}

/// Shows C-47.
async fn a_cleanup_of_the_outbox_counts_late_members_before_their_message_is_gone(
    fixture: Fixture,
) {
    let joins = fixture.room.joins();
    let outbox = fixture.room.outbox();
    let receipt = outbox.enqueue(&Message::new("topic", "")).await.unwrap();
    let (owner, ids) = claim(&fixture, 1).await;
    outbox.ack(owner, &ids).await.unwrap();
    let (join, _) = started(&fixture, 1, 0).await;
    joins.attach(join, receipt.message_id).await.unwrap();
    fixture
        .age("outbox_done", "processed_at", 30 * 24 * HOUR)
        .await;

    assert_eq!(outbox.cleanup(7 * 24 * HOUR).await.unwrap(), 1);

    assert_eq!(outbox.get(receipt.work_item_id).await.unwrap(), None);
    assert_eq!(get(&joins, join).await.status, JoinStatus::Completed);
}

/// Shows JOIN-030, JOIN-031.
async fn a_store_that_keeps_no_archive_counts_the_same(fixture: Fixture) {
    let room = fixture.options().keep_done(false).connect().await.unwrap();
    let (join, _) = started(&fixture, 2, 2).await;
    let (owner, ids) = claim(&fixture, 2).await;
    assert_eq!(room.outbox().ack(owner, &ids).await.unwrap().len(), 2);
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_done}").await,
        0
    );
    assert_eq!(get(&room.joins(), join).await.status, JoinStatus::Completed);
}

/// Shows JOIN-023, JOIN-060, JOIN-061, JOIN-081, C-31.
async fn five_hundred_steps_and_fifty_workers_count_exactly(fixture: Fixture) {
    let rooms = [fixture.room.clone(), fixture.again().await];
    let joins = rooms[0].joins();
    let (all, _) = started(&fixture, 500, 0).await;
    let (even, _) = started(&fixture, 250, 0).await;
    let (short, _) = started(&fixture, 100, 0).await;
    let messages: Vec<_> = (0..500)
        .map(|number| {
            let message = Message::new("topic", "").join(all).join(short);
            if number % 2 == 0 {
                message.join(even)
            } else {
                message
            }
        })
        .collect();
    rooms[0].outbox().enqueue_many(&messages).await.unwrap();
    let finished = Arc::new(AtomicBool::new(false));
    let watcher = {
        let (joins, finished) = (joins.clone(), Arc::clone(&finished));
        tokio::spawn(async move {
            while !finished.load(Ordering::SeqCst) {
                for join in [all, even, short] {
                    let join = get(&joins, join).await;
                    let steps = join.completed_steps + join.failed_steps;
                    assert!(steps <= join.expected_steps);
                    assert_eq!(join.is_complete(), join.status != JoinStatus::Pending);
                }
                tokio::task::yield_now().await;
            }
        })
    };

    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..50 {
        let outbox = rooms[worker % 2].outbox();
        workers.spawn(work_off(outbox, worker % 5 == 0));
    }
    let results = workers.join_all().await;
    finished.store(true, Ordering::SeqCst);
    watcher.await.unwrap();

    let failed: usize = results.iter().map(|(_, failed)| failed).sum();
    assert_eq!(
        results
            .iter()
            .map(|(acked, failed)| acked + failed)
            .sum::<usize>(),
        500
    );
    let join = get(&joins, all).await;
    assert_eq!(
        (join.completed_steps as usize, join.failed_steps as usize),
        (500 - failed, failed)
    );
    let join = get(&joins, even).await;
    assert_eq!(join.completed_steps + join.failed_steps, 250);
    let join = get(&joins, short).await;
    assert_eq!(join.completed_steps + join.failed_steps, 100);
    let uncounted = "SELECT count(*) FROM {outbox_join_member} WHERE status NOT IN (1, 2)";
    assert_eq!(fixture.number(uncounted).await, 0);
}

/// Many small batches over joins that overlap in every order, with reports, reconciles and waits that
/// are claimed and handed back in between.
///
/// Shows JOIN-062, JOIN-060.
async fn a_storm_over_overlapping_joins_surfaces_no_error(fixture: Fixture) {
    const JOINS: usize = 8;
    const STEPS: usize = 240;
    let rooms = [fixture.room.clone(), fixture.again().await];
    let mut all = Vec::new();
    for _ in 0..JOINS {
        all.push(started(&fixture, STEPS / 2, 0).await.0);
    }
    for join in &all {
        rooms[0]
            .joins()
            .enqueue_wait(&JoinWait::new(*join, "next", ""))
            .await
            .unwrap();
    }
    let messages: Vec<_> = (0..STEPS)
        .map(|number| {
            let mut mine: Vec<_> = (0..JOINS / 2)
                .map(|offset| all[(number + offset * 3) % JOINS])
                .collect();
            mine.dedup();
            if number % 2 == 0 {
                mine.reverse();
            }
            mine.into_iter()
                .fold(Message::new("topic", ""), Message::join)
        })
        .collect();
    let receipts = rooms[0].outbox().enqueue_many(&messages).await.unwrap();

    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let outbox = rooms[worker % 2].outbox();
        tasks.spawn(async move {
            work_off(outbox, worker == 0).await;
        });
    }
    for reporter in 0..4 {
        let (joins, all) = (rooms[reporter % 2].joins(), all.clone());
        let mut messages: Vec<_> = receipts.iter().map(|receipt| receipt.message_id).collect();
        messages.rotate_left(reporter * 60);
        tasks.spawn(async move {
            for (number, message) in messages.into_iter().step_by(6).enumerate() {
                joins
                    .report_completed(all[number % JOINS], message)
                    .await
                    .unwrap();
                joins
                    .reconcile(all[(number + reporter) % JOINS])
                    .await
                    .unwrap();
            }
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }

    for join in all {
        let member = format!(
            "SELECT count(*) FROM {{outbox_join_member}} WHERE status <> 0 AND join_id = {}",
            literal(&fixture, join)
        );
        let join = get(&rooms[0].joins(), join).await;
        let counted = u32::try_from(fixture.number(&member).await).unwrap();
        assert_eq!(
            join.completed_steps + join.failed_steps,
            counted.min(join.expected_steps)
        );
        assert_eq!(
            join.status != JoinStatus::Pending,
            counted >= join.expected_steps
        );
    }
}

/// Starts a join and enqueues steps of it.
async fn started(fixture: &Fixture, expected: usize, steps: usize) -> (JoinId, Vec<Receipt>) {
    let expected = i32::try_from(expected).unwrap();
    let join = fixture
        .room
        .joins()
        .start(&NewJoin::new(expected))
        .await
        .unwrap();
    let messages = vec![Message::new("topic", "").join(join); steps];
    (
        join,
        fixture.room.outbox().enqueue_many(&messages).await.unwrap(),
    )
}

/// Claims exactly so many messages.
async fn claim(fixture: &Fixture, count: usize) -> (OwnerToken, Vec<WorkItemId>) {
    let owner = OwnerToken::new();
    let claimed = fixture
        .room
        .outbox()
        .claim(owner, LEASE, 100)
        .await
        .unwrap();
    assert_eq!(claimed.len(), count);
    (
        owner,
        claimed.into_iter().map(|message| message.id).collect(),
    )
}

/// Claims and settles in batches until nothing is left; waits are handed back for later. Says how many
/// messages it has acked and failed.
async fn work_off(outbox: Outbox, failing: bool) -> (usize, usize) {
    let (mut acked, mut failed) = (0, 0);
    loop {
        let owner = OwnerToken::new();
        let claimed = outbox.claim(owner, LEASE, 7).await.unwrap();
        let (steps, waits): (Vec<_>, Vec<_>) = claimed
            .into_iter()
            .partition(|message| message.topic == "topic");
        let ids = |messages: &[postroom::OutboxMessage]| {
            messages
                .iter()
                .map(|message| message.id)
                .collect::<Vec<_>>()
        };
        if steps.is_empty() {
            outbox.ack(owner, &ids(&waits)).await.unwrap();
            if waits.is_empty() {
                return (acked, failed);
            }
        }
        outbox
            .abandon(
                owner,
                &ids(&waits),
                Abandon::after(Duration::from_millis(1)).deferred(),
            )
            .await
            .unwrap();
        if failing {
            failed += outbox.fail(owner, &ids(&steps), "no").await.unwrap().len();
        } else {
            acked += outbox.ack(owner, &ids(&steps)).await.unwrap().len();
        }
    }
}

async fn get(joins: &Joins, join: JoinId) -> Join {
    joins.get(join).await.unwrap().unwrap()
}

async fn status(joins: &Joins, join: JoinId, message: MessageId) -> StepStatus {
    let members = joins.members(join, None, 100).await.unwrap();
    members
        .into_iter()
        .find(|member| member.message_id == message)
        .unwrap()
        .status
}

/// A join's id as SQL writes it.
fn literal(fixture: &Fixture, join: JoinId) -> String {
    match fixture.backend {
        testkit::Backend::Sqlite | testkit::Backend::MySql => {
            format!("x'{}'", join.as_uuid().simple())
        }
        testkit::Backend::Postgres => format!("'{join}'"),
        testkit::Backend::SqlServer => format!("'{join}'"),
    }
}

testkit::mount!(
    a_step_reported_completed_counts_once,
    a_step_reported_failed_counts_once,
    thirty_two_reports_of_one_step_count_once,
    the_first_report_of_a_step_wins,
    a_step_reported_by_hand_is_not_counted_again_by_its_ack,
    a_report_for_a_message_that_is_no_step_does_nothing,
    a_report_for_an_unknown_join_is_an_error,
    a_report_that_cannot_move_the_counter_leaves_the_member_too,
    an_ack_counts_a_completed_step,
    a_fail_counts_a_failed_step,
    a_call_that_settles_nothing_counts_nothing,
    an_ack_or_fail_that_cannot_count_does_not_happen,
    counting_by_hand_and_by_ack_cannot_be_told_apart,
    two_members_of_one_join_in_one_ack_count_as_two,
    counters_stop_at_the_expected_steps,
    a_join_is_complete_with_its_last_step_and_failed_if_any_step_failed,
    a_finished_join_never_changes_again,
    last_updated_moves_with_every_change_and_only_then,
    one_message_counts_in_all_of_its_joins,
    a_failed_step_that_is_replayed_and_acked_stays_failed,
    a_cleanup_of_the_outbox_counts_late_members_before_their_message_is_gone,
    a_store_that_keeps_no_archive_counts_the_same,
    five_hundred_steps_and_fifty_workers_count_exactly,
    a_storm_over_overlapping_joins_surfaces_no_error,
);
