//! Looking after the outbox: get, list, count, replay, purge and clean up.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::{
    Abandon, Attached, Counts, ErrorKind, JoinStatus, List, Message, NewJoin, State, WorkItemId,
};
use testkit::Fixture;

const DAY: Duration = Duration::from_secs(86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Enqueues so many messages and acks them.
async fn done(fixture: &Fixture, count: usize) -> Vec<WorkItemId> {
    let receipts = fixture
        .room
        .outbox()
        .enqueue_many(&vec![Message::new("done", "x"); count])
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(count).await;
    assert_eq!(
        fixture.room.outbox().ack(owner, &ids).await.unwrap().len(),
        count
    );
    receipts
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect()
}

/// Enqueues so many messages and fails them.
async fn dead(fixture: &Fixture, count: usize) -> Vec<WorkItemId> {
    let receipts = fixture
        .room
        .outbox()
        .enqueue_many(&vec![Message::new("dead", "x"); count])
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(count).await;
    assert_eq!(
        fixture
            .room
            .outbox()
            .fail(owner, &ids, "no")
            .await
            .unwrap()
            .len(),
        count
    );
    receipts
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect()
}

fn at(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
}

/// Shows OBX-022, C-05.
async fn a_message_is_found_in_every_state(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let state = async |id| outbox.get(id).await.unwrap().map(|message| message.state);
    assert_eq!(state(WorkItemId::new()).await, None);

    let done = done(&fixture, 1).await[0];
    let dead = dead(&fixture, 1).await[0];
    let (_, in_flight) = fixture.enqueue_and_claim().await;
    let ready = fixture.enqueue(1).await[0];
    assert_eq!(state(ready).await, Some(State::Ready));
    assert_eq!(state(in_flight).await, Some(State::InFlight));
    assert_eq!(state(done).await, Some(State::Done));
    assert_eq!(state(dead).await, Some(State::Dead));

    for (id, expected) in [
        (ready, State::Ready),
        (in_flight, State::InFlight),
        (done, State::Done),
        (dead, State::Dead),
    ] {
        let listed = outbox.list(&List::new(expected)).await.unwrap();
        assert_eq!(
            listed.iter().map(|message| message.id).collect::<Vec<_>>(),
            [id]
        );
        assert_eq!(listed[0], outbox.get(id).await.unwrap().unwrap());
    }
    assert_eq!(
        outbox.counts().await.unwrap(),
        Counts {
            ready: 1,
            in_flight: 1,
            done: 1,
            dead: 1
        }
    );
}

/// Shows C-21.
async fn an_expired_lease_counts_as_ready(fixture: Fixture) {
    let (_, id) = fixture.enqueue_and_claim().await;
    fixture.expire_leases().await;

    let outbox = fixture.room.outbox();
    assert_eq!(
        outbox.counts().await.unwrap(),
        Counts {
            ready: 1,
            ..Counts::default()
        }
    );
    assert_eq!(outbox.get(id).await.unwrap().unwrap().state, State::Ready);
    assert_eq!(
        outbox.list(&List::new(State::Ready)).await.unwrap().len(),
        1
    );
    assert!(
        outbox
            .list(&List::new(State::InFlight))
            .await
            .unwrap()
            .is_empty()
    );
}

/// The dead-letter list: page by page, each message once, with its reason.
///
/// Shows OBX-043.
async fn the_dead_are_listed_page_by_page(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids: BTreeSet<_> = dead(&fixture, 25).await.into_iter().collect();
    let mut listed = Vec::new();
    let mut pages = Vec::new();
    loop {
        let mut list = List::new(State::Dead).limit(10);
        if let Some(last) = listed.last() {
            list = list.after(*last);
        }
        let page = outbox.list(&list).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(
            page.iter()
                .all(|message| message.progress.last_error.as_deref() == Some("no"))
        );
        pages.push(page.len());
        listed.extend(page.iter().map(|message| message.id));
    }

    assert_eq!(pages, [10, 10, 5]);
    assert_eq!(listed, ids.into_iter().collect::<Vec<_>>());
    assert!(
        outbox
            .list(&List::new(State::Dead).topic("DEAD"))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        outbox
            .list(&List::new(State::Dead).topic("dead").limit(10_000))
            .await
            .unwrap()
            .len(),
        25
    );
}

/// Shows C-53.
async fn a_list_has_a_limit(fixture: Fixture) {
    for limit in [0, 10_001] {
        let error = fixture
            .room
            .outbox()
            .list(&List::new(State::Ready).limit(limit))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "limit" });
    }
}

/// Shows OBX-025, C-05.
async fn a_replayed_message_starts_afresh(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "b")
        .correlation("c")
        .header("d", "e")
        .message_id(postroom::MessageId::new());
    let id = outbox.enqueue(&message).await.unwrap().work_item_id;
    let (owner, _) = fixture.claim(1).await;
    outbox
        .abandon(
            owner,
            &[id],
            Abandon::after(Duration::ZERO).deferred().error("first"),
        )
        .await
        .unwrap();
    let (owner, _) = fixture.claim(1).await;
    outbox.fail(owner, &[id], "no").await.unwrap();
    let before = outbox.get(id).await.unwrap().unwrap();
    assert_eq!(
        (
            before.progress.attempt_count,
            before.progress.deferral_count
        ),
        (1, 1)
    );

    assert_eq!(
        outbox.replay(&[id, id, WorkItemId::new()]).await.unwrap(),
        [id]
    );

    let after = outbox.get(id).await.unwrap().unwrap();
    assert_eq!(after.state, State::Ready);
    assert_eq!(
        (after.progress.attempt_count, after.progress.deferral_count),
        (0, 0)
    );
    assert_eq!(
        (&after.message_id, &after.payload, &after.headers),
        (&before.message_id, &before.payload, &before.headers)
    );
    assert_eq!(
        (&after.correlation_id, after.created_at),
        (&before.correlation_id, before.created_at)
    );
    assert_eq!(fixture.rows("outbox_dead").await, 0);
    let (owner, claimed) = fixture.claim(10).await;
    assert_eq!(claimed, [id]);
    assert_eq!(outbox.ack(owner, &claimed).await.unwrap(), [id]);
}

/// Shows OBX-024, OBX-032.
async fn only_the_dead_are_replayed_or_purged(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let done = done(&fixture, 1).await[0];
    let (owner, in_flight) = fixture.enqueue_and_claim().await;
    let ready = fixture.enqueue(1).await[0];
    let others = [done, in_flight, ready, WorkItemId::new()];

    assert!(outbox.replay(&others).await.unwrap().is_empty());
    assert_eq!(outbox.purge(&others).await.unwrap(), 0);
    assert!(outbox.replay(&[]).await.unwrap().is_empty());
    assert_eq!(outbox.purge(&[]).await.unwrap(), 0);
    assert_eq!(
        outbox.counts().await.unwrap(),
        Counts {
            ready: 1,
            in_flight: 1,
            done: 1,
            dead: 0
        }
    );
    assert_eq!(outbox.ack(owner, &[in_flight]).await.unwrap(), [in_flight]);
}

/// A step that failed is counted; replaying its message does not count it again.
///
/// Shows OBX-033, OBX-046.
async fn a_replayed_step_is_counted_once(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    let id = outbox
        .enqueue(&Message::new("a", "").join(join))
        .await
        .unwrap()
        .work_item_id;
    let (owner, _) = fixture.claim(1).await;
    outbox.fail(owner, &[id], "no").await.unwrap();
    outbox.replay(&[id]).await.unwrap();
    let (owner, _) = fixture.claim(1).await;
    outbox.ack(owner, &[id]).await.unwrap();

    let join = joins.get(join).await.unwrap().unwrap();
    assert_eq!((join.completed_steps, join.failed_steps), (0, 1));
}

/// Shows OBX-042, C-47.
async fn the_dead_stay_until_they_are_purged(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = dead(&fixture, 3).await;
    fixture.age("outbox_dead", "processed_at", 30 * DAY).await;
    assert_eq!(outbox.cleanup(DAY).await.unwrap(), 0);
    assert_eq!(fixture.rows("outbox_dead").await, 3);

    assert_eq!(outbox.purge(&[ids[0], ids[0]]).await.unwrap(), 1);
    assert_eq!(outbox.get(ids[0]).await.unwrap(), None);
    assert_eq!(outbox.purge_older_than(31 * DAY).await.unwrap(), 0);
    assert_eq!(outbox.purge_older_than(29 * DAY).await.unwrap(), 2);
    assert_eq!(fixture.rows("outbox_dead").await, 0);
}

/// Zero means all of them, also those that died this very instant.
///
/// Shows C-47.
async fn a_purge_of_everything_leaves_nothing(fixture: Fixture) {
    fixture.enqueue(1).await;
    fixture.claim(1).await;
    for round in 0..50 {
        dead(&fixture, 1).await;
        assert_eq!(
            fixture
                .room
                .outbox()
                .purge_older_than(Duration::ZERO)
                .await
                .unwrap(),
            1,
            "round {round}"
        );
    }
    assert_eq!(fixture.rows("outbox").await, 1);
}

/// Shows C-47.
async fn a_cleanup_removes_only_what_has_been_done_for_long_enough(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let old = done(&fixture, 2).await;
    dead(&fixture, 1).await;
    fixture.age("outbox_done", "processed_at", 8 * DAY).await;
    fixture.age("outbox_dead", "processed_at", 8 * DAY).await;
    let young = done(&fixture, 2).await;
    let in_flight = fixture.enqueue_and_claim().await.1;
    let ready = fixture.enqueue(1).await[0];
    fixture.age("outbox", "created_at", 30 * DAY).await;

    assert_eq!(outbox.cleanup(9 * DAY).await.unwrap(), 0);
    assert_eq!(outbox.cleanup(WEEK).await.unwrap(), 2);

    for id in old {
        assert_eq!(outbox.get(id).await.unwrap(), None);
    }
    for id in [young[0], young[1], in_flight, ready] {
        assert!(outbox.get(id).await.unwrap().is_some());
    }
    assert_eq!(
        outbox.counts().await.unwrap(),
        Counts {
            ready: 1,
            in_flight: 1,
            done: 2,
            dead: 1
        }
    );
}

/// What was done before a point in time goes; what was done at that point stays.
///
/// Shows C-47, HDT-07.
async fn the_edge_of_a_cleanup_is_exact(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = done(&fixture, 3).await;
    let edge = fixture.clock().await - 3_600_000_000;
    fixture.settled_at("outbox_done", ids[0], edge - 1).await;
    fixture.settled_at("outbox_done", ids[1], edge).await;

    assert_eq!(outbox.cleanup_before(at(edge)).await.unwrap(), 1);
    assert_eq!(outbox.get(ids[0]).await.unwrap(), None);
    assert!(outbox.get(ids[1]).await.unwrap().is_some());
    assert_eq!(outbox.cleanup_before(at(edge + 1)).await.unwrap(), 1);
    assert_eq!(outbox.counts().await.unwrap().done, 1);
}

/// Each batch is a transaction of its own, oldest first; the caller paces them.
///
/// Shows C-48.
async fn a_cleanup_goes_batch_by_batch(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = done(&fixture, 7).await;
    let now = fixture.clock().await;
    for (index, id) in (0..).zip(&ids) {
        let ago = i64::try_from((10 * DAY).as_micros()).unwrap();
        fixture
            .settled_at("outbox_done", *id, now - ago + index)
            .await;
    }

    assert_eq!(outbox.cleanup_batch(WEEK, 3).await.unwrap(), 3);
    let left: Vec<_> = outbox
        .list(&List::new(State::Done))
        .await
        .unwrap()
        .iter()
        .map(|message| message.id)
        .collect();
    assert_eq!(left, ids[3..], "the oldest went first");
    assert_eq!(outbox.cleanup_batch(WEEK, 3).await.unwrap(), 3);
    assert_eq!(outbox.cleanup_batch(WEEK, 3).await.unwrap(), 1);
    assert_eq!(outbox.cleanup_batch(WEEK, 3).await.unwrap(), 0);
    assert_eq!(fixture.rows("outbox_done").await, 0);
}

/// More rows than one batch holds: the loop goes on until nothing is left.
///
/// Shows C-48.
async fn a_cleanup_goes_on_until_nothing_is_left(fixture: Fixture) {
    done(&fixture, 6000).await;
    fixture.age("outbox_done", "processed_at", 8 * DAY).await;
    done(&fixture, 1).await;

    assert_eq!(fixture.room.outbox().cleanup(WEEK).await.unwrap(), 6000);
    assert_eq!(fixture.rows("outbox_done").await, 1);
}

/// A retention that would delete everything is a mistake.
///
/// Shows C-49, C-53.
async fn a_cleanup_without_retention_is_refused(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    done(&fixture, 1).await;

    let retention = ErrorKind::OutOfRange {
        param: "older_than",
    };
    assert_eq!(
        outbox.cleanup(Duration::ZERO).await.unwrap_err().kind(),
        retention
    );
    assert_eq!(
        outbox
            .cleanup_batch(Duration::ZERO, 10)
            .await
            .unwrap_err()
            .kind(),
        retention
    );
    assert_eq!(
        outbox.cleanup(Duration::MAX).await.unwrap_err().kind(),
        retention
    );
    assert_eq!(
        outbox
            .purge_older_than(Duration::MAX)
            .await
            .unwrap_err()
            .kind(),
        retention
    );
    let batch = outbox.cleanup_batch(DAY, 0).await.unwrap_err();
    assert_eq!(batch.kind(), ErrorKind::OutOfRange { param: "batch" });
    assert_eq!(fixture.rows("outbox_done").await, 1);
}

/// A step that was attached after its ack is counted before its message is deleted: no join waits for
/// a message that is gone.
///
/// Shows C-47.
async fn a_cleanup_counts_late_steps_first(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let ids = done(&fixture, 2).await;
    let late = joins.start(&NewJoin::new(2)).await.unwrap();
    for id in &ids {
        let message = postroom::MessageId::from_uuid(id.as_uuid());
        assert_eq!(
            joins.attach(late, message).await.unwrap(),
            Attached::MessageAlreadyDone
        );
    }
    fixture.age("outbox_done", "processed_at", 8 * DAY).await;
    assert_eq!(
        joins.get(late).await.unwrap().unwrap().status,
        JoinStatus::Pending
    );

    assert_eq!(outbox.cleanup_batch(WEEK, 1).await.unwrap(), 1);
    assert_eq!(joins.get(late).await.unwrap().unwrap().completed_steps, 1);
    assert_eq!(outbox.cleanup(WEEK).await.unwrap(), 1);
    let late = joins.get(late).await.unwrap().unwrap();
    assert_eq!(
        (late.completed_steps, late.status),
        (2, JoinStatus::Completed)
    );
    let pending = "SELECT count(*) FROM {outbox_join_member} WHERE status <> 1";
    assert_eq!(fixture.number(pending).await, 0);
}

/// Makes the archive's partition of 5 January 2020.
async fn partition_of_2020(fixture: &Fixture) {
    fixture
        .sql(
            "CREATE TABLE {outbox_done_20200105} PARTITION OF {outbox_done} \
             FOR VALUES FROM ('2020-01-05 00:00:00+00') TO ('2020-01-06 00:00:00+00')",
        )
        .await;
}

const START_OF_DAY: i64 = 1_578_182_400_000_000;
const END_OF_DAY: i64 = 1_578_268_800_000_000;

/// A day's partition is dropped whole once its last microsecond is too old, and never before.
///
/// Shows C-47, C-48.
async fn an_old_partition_is_dropped_whole(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    partition_of_2020(&fixture).await;
    let ids = done(&fixture, 4).await;
    for (id, time) in ids
        .iter()
        .zip([START_OF_DAY, START_OF_DAY + 1, END_OF_DAY - 1, END_OF_DAY])
    {
        fixture.settled_at("outbox_done", *id, time).await;
    }
    assert_eq!(fixture.rows("outbox_done_20200105").await, 3);
    let dropped = async || {
        !fixture
            .tables()
            .await
            .contains(&"outbox_done_20200105".to_owned())
    };

    assert_eq!(outbox.cleanup_before(at(START_OF_DAY)).await.unwrap(), 0);
    assert_eq!(
        outbox.cleanup_before(at(START_OF_DAY + 1)).await.unwrap(),
        1,
        "by rows"
    );
    assert_eq!(
        outbox.cleanup_before(at(END_OF_DAY - 1)).await.unwrap(),
        1,
        "by rows"
    );
    assert!(!dropped().await);
    assert_eq!(
        outbox.cleanup_before(at(END_OF_DAY)).await.unwrap(),
        1,
        "the whole partition"
    );
    assert!(dropped().await);
    let left = outbox.list(&List::new(State::Done)).await.unwrap();
    assert_eq!(
        left.iter().map(|message| message.id).collect::<Vec<_>>(),
        ids[3..]
    );
    assert_eq!(outbox.cleanup(WEEK).await.unwrap(), 1);
}

/// Shows C-47.
async fn an_old_partition_counts_its_late_steps_first(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    partition_of_2020(&fixture).await;
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let id = done(&fixture, 1).await[0];
    joins
        .attach(join, postroom::MessageId::from_uuid(id.as_uuid()))
        .await
        .unwrap();
    fixture.settled_at("outbox_done", id, START_OF_DAY).await;

    assert_eq!(outbox.cleanup(WEEK).await.unwrap(), 1);
    assert_eq!(
        joins.get(join).await.unwrap().unwrap().status,
        JoinStatus::Completed
    );
    assert_eq!(fixture.rows("outbox_done").await, 0);
}

/// An archive that somebody reads is not waited for long: its rows go one by one, and the partition
/// the next time.
///
/// Shows C-48, OBX-099.
async fn a_busy_partition_is_cleaned_by_rows(fixture: Fixture) {
    partition_of_2020(&fixture).await;
    let id = done(&fixture, 1).await[0];
    fixture.settled_at("outbox_done", id, START_OF_DAY).await;
    let mut client = fixture.postgres().await;
    let reading = client.transaction().await.unwrap();
    reading
        .execute(&fixture.fill("SELECT FROM {outbox_done}"), &[])
        .await
        .unwrap();

    assert_eq!(fixture.room.outbox().cleanup(WEEK).await.unwrap(), 1);
    assert!(
        fixture
            .tables()
            .await
            .contains(&"outbox_done_20200105".to_owned())
    );
    reading.rollback().await.unwrap();
    assert_eq!(fixture.room.outbox().cleanup(WEEK).await.unwrap(), 0);
    assert!(
        !fixture
            .tables()
            .await
            .contains(&"outbox_done_20200105".to_owned())
    );
}

testkit::mount!(
    a_message_is_found_in_every_state,
    an_expired_lease_counts_as_ready,
    the_dead_are_listed_page_by_page,
    a_list_has_a_limit,
    a_replayed_message_starts_afresh,
    only_the_dead_are_replayed_or_purged,
    a_replayed_step_is_counted_once,
    the_dead_stay_until_they_are_purged,
    a_purge_of_everything_leaves_nothing,
    a_cleanup_removes_only_what_has_been_done_for_long_enough,
    the_edge_of_a_cleanup_is_exact,
    a_cleanup_goes_batch_by_batch,
    a_cleanup_goes_on_until_nothing_is_left,
    a_cleanup_without_retention_is_refused,
    a_cleanup_counts_late_steps_first;
    postgres:
    an_old_partition_is_dropped_whole,
    an_old_partition_counts_its_late_steps_first,
    a_busy_partition_is_cleaned_by_rows,
);
