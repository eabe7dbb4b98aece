//! Settling what was claimed: ack, abandon, fail, renew. Only the holder of a lease can, and what was
//! not held stays as it is.

use std::time::Duration;

use postroom::{Abandon, ErrorKind, JoinStatus, Message, NewJoin, OwnerToken, State, WorkItemId};
use testkit::{Backend, Fixture, LEASE, eventually, micros};
use uuid::Uuid;

/// Shows OBX-027, OBX-028, OBX-029, C-05, C-06, C-23.
async fn an_ack_records_what_when_and_by_whom(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;

    let before = fixture.clock().await;
    assert_eq!(fixture.room.outbox().ack(owner, &[id]).await.unwrap(), [id]);
    let after = fixture.clock().await;

    let done = fixture.room.outbox().get(id).await.unwrap().unwrap();
    assert!(done.is_processed());
    assert_eq!(done.state, State::Done);
    assert_eq!(done.progress.processed_by.as_deref(), Some("tester"));
    assert_eq!(
        (done.progress.owner_token, done.progress.locked_until),
        (None, None)
    );
    let processed = fixture.time_of("outbox_done", "processed_at", id).await;
    assert!(
        (before..=after).contains(&processed),
        "{before} {processed} {after}"
    );
    let processed = match fixture.backend {
        Backend::Sqlite | Backend::MySql => {
            "SELECT count(*) FROM {outbox_all} WHERE is_processed = 1 AND status = 2"
        }
        Backend::Postgres => "SELECT count(*) FROM {outbox_all} WHERE is_processed AND status = 2",
        Backend::SqlServer => {
            "SELECT count(*) FROM {outbox_all} WHERE is_processed = 1 AND status = 2"
        }
    };
    assert_eq!(fixture.number(processed).await, 1);
    assert_eq!(fixture.rows("outbox").await, 0);
}

/// Shows OBX-030, OBX-031, OBX-038, OBX-039, OBX-044, OBX-045.
async fn what_another_holds_is_left_alone(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;
    let free = fixture.enqueue(1).await[0];
    let before = [
        outbox.get(id).await.unwrap(),
        outbox.get(free).await.unwrap(),
    ];
    let stranger = OwnerToken::new();
    let ids = [id, free, WorkItemId::new(), id];

    assert!(outbox.ack(stranger, &ids).await.unwrap().is_empty());
    assert!(
        outbox
            .abandon(stranger, &ids, Abandon::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(outbox.fail(stranger, &ids, "no").await.unwrap().is_empty());
    assert!(
        outbox
            .renew(stranger, &ids, LEASE)
            .await
            .unwrap()
            .is_empty()
    );

    assert_eq!(
        [
            outbox.get(id).await.unwrap(),
            outbox.get(free).await.unwrap()
        ],
        before
    );
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (0, 0)
    );
    assert_eq!(outbox.ack(owner, &[id]).await.unwrap(), [id]);
}

/// Unknown, free, foreign and repeated ids among the owner's own: only the owner's own are settled,
/// each once.
///
/// Shows OBX-030, OBX-031, OBX-038, OBX-039, OBX-044, OBX-045, C-55.
async fn among_many_ids_only_ones_own_are_settled(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(6).await;
    let (owner, mine) = fixture.claim(4).await;
    let (_, theirs) = fixture.claim(1).await;
    let free = outbox
        .list(&postroom::List::new(State::Ready))
        .await
        .unwrap()[0]
        .id;
    let with_others = |id| [id, WorkItemId::new(), theirs[0], id, free, id];

    let abandoned = outbox
        .abandon(owner, &with_others(mine[0]), Abandon::default())
        .await
        .unwrap();
    assert_eq!(abandoned, [mine[0]]);
    let progress = outbox.get(mine[0]).await.unwrap().unwrap().progress;
    assert_eq!(
        progress.attempt_count, 1,
        "an id that is given three times is abandoned once"
    );
    assert_eq!(
        outbox
            .renew(owner, &with_others(mine[1]), LEASE)
            .await
            .unwrap(),
        [mine[1]]
    );
    assert_eq!(
        outbox.ack(owner, &with_others(mine[1])).await.unwrap(),
        [mine[1]]
    );
    assert_eq!(
        outbox
            .fail(owner, &with_others(mine[2]), "no")
            .await
            .unwrap(),
        [mine[2]]
    );

    let states = async |id| outbox.get(id).await.unwrap().unwrap().state;
    assert_eq!(states(mine[3]).await, State::InFlight);
    assert_eq!(states(theirs[0]).await, State::InFlight);
    assert_eq!(states(free).await, State::Ready);
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (1, 1)
    );
}

/// Shows C-55.
async fn no_ids_are_no_work_and_ten_thousand_are_one_call(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    assert!(outbox.ack(owner, &[]).await.unwrap().is_empty());
    assert!(
        outbox
            .abandon(owner, &[], Abandon::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(outbox.fail(owner, &[], "no").await.unwrap().is_empty());
    assert!(outbox.renew(owner, &[], LEASE).await.unwrap().is_empty());

    let messages = vec![Message::new("a", "b"); 10_000];
    outbox.enqueue_many(&messages).await.unwrap();
    let (owner, mut ids) = fixture.claim(10_000).await;
    assert_eq!(ids.len(), 10_000);
    assert_eq!(
        outbox.renew(owner, &ids, LEASE).await.unwrap().len(),
        10_000
    );
    assert_eq!(
        outbox
            .abandon(owner, &ids, Abandon::after(Duration::ZERO))
            .await
            .unwrap()
            .len(),
        10_000
    );
    let (owner, claimed) = fixture.claim(10_000).await;
    assert_eq!(claimed.len(), 10_000);
    assert_eq!(
        outbox
            .fail(owner, &claimed[..5000], "no")
            .await
            .unwrap()
            .len(),
        5000
    );
    ids.extend((0..10_000).map(|_| WorkItemId::new()));
    assert_eq!(outbox.ack(owner, &ids).await.unwrap().len(), 5000);
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (5000, 5000)
    );
}

/// Shows OBX-030, OBX-038, OBX-044, C-53.
async fn impossible_settlements_are_refused(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;
    let nobody = OwnerToken::from_uuid(Uuid::nil());
    let too_long = Duration::from_secs(400 * 86_400);
    let no_owner = ErrorKind::InvalidArgument { param: "owner" };

    assert_eq!(
        outbox.ack(nobody, &[id]).await.unwrap_err().kind(),
        no_owner
    );
    assert_eq!(
        outbox
            .abandon(nobody, &[id], Abandon::default())
            .await
            .unwrap_err()
            .kind(),
        no_owner
    );
    assert_eq!(
        outbox.fail(nobody, &[id], "no").await.unwrap_err().kind(),
        no_owner
    );
    assert_eq!(
        outbox.renew(nobody, &[id], LEASE).await.unwrap_err().kind(),
        no_owner
    );
    for lease in [Duration::ZERO, too_long] {
        let kind = outbox.renew(owner, &[id], lease).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::OutOfRange { param: "lease" });
    }
    let error = outbox
        .abandon(owner, &[id], Abandon::after(too_long))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "delay" });

    assert_eq!(
        fixture
            .live("attempt_count = 0 AND owner_token IS NOT NULL")
            .await,
        1
    );
}

/// Shows OBX-030, C-18.
async fn a_late_ack_counts_while_nobody_else_took_the_message(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    outbox
        .claim(owner, Duration::from_millis(300), 1)
        .await
        .unwrap();
    eventually(async || (outbox.get(id).await.unwrap()?.state == State::Ready).then_some(())).await;

    assert_eq!(outbox.ack(owner, &[id]).await.unwrap(), [id]);
    assert!(outbox.get(id).await.unwrap().unwrap().is_processed());
}

/// After a reap the token is gone; after a reclaim it is another's. Then nothing changes, and no join
/// counts.
///
/// Shows OBX-030, OBX-031, OBX-038, OBX-044, C-18.
async fn a_late_settlement_changes_nothing_after_reap_or_reclaim(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let join = fixture.room.joins().start(&NewJoin::new(1)).await.unwrap();
    let id = outbox
        .enqueue(&Message::new("a", "").join(join))
        .await
        .unwrap()
        .work_item_id;
    let settles_nothing = async |owner| {
        assert!(outbox.ack(owner, &[id]).await.unwrap().is_empty());
        assert!(
            outbox
                .abandon(owner, &[id], Abandon::default())
                .await
                .unwrap()
                .is_empty()
        );
        assert!(outbox.fail(owner, &[id], "late").await.unwrap().is_empty());
        assert!(outbox.renew(owner, &[id], LEASE).await.unwrap().is_empty());
        assert_eq!(
            fixture
                .live("attempt_count = 0 AND last_error IS NULL")
                .await,
            1
        );
        let join = fixture.room.joins().get(join).await.unwrap().unwrap();
        assert_eq!(
            (join.completed_steps, join.failed_steps, join.status),
            (0, 0, JoinStatus::Pending)
        );
    };

    let (reaped, _) = fixture.claim(1).await;
    fixture.expire_leases().await;
    assert_eq!(outbox.reap().await.unwrap(), 1);
    settles_nothing(reaped).await;

    let (outrun, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [id]);
    fixture.expire_leases().await;
    let (holder, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [id]);
    settles_nothing(outrun).await;
    assert_eq!(outbox.ack(holder, &[id]).await.unwrap(), [id]);
}

/// Shows OBX-032.
async fn an_acked_message_is_settled_for_good(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;
    outbox.ack(owner, &[id]).await.unwrap();

    assert!(outbox.ack(owner, &[id]).await.unwrap().is_empty());
    assert!(outbox.fail(owner, &[id], "no").await.unwrap().is_empty());
    assert!(
        outbox
            .abandon(owner, &[id], Abandon::default())
            .await
            .unwrap()
            .is_empty()
    );
    assert!(fixture.claim(10).await.1.is_empty());
    assert_eq!(fixture.rows("outbox_done").await, 1);
}

/// Shows OBX-033, OBX-034.
async fn an_ack_counts_a_step_in_every_join_of_the_message(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let both = [
        joins.start(&NewJoin::new(2)).await.unwrap(),
        joins.start(&NewJoin::new(1)).await.unwrap(),
    ];
    let other = joins.start(&NewJoin::new(1)).await.unwrap();
    outbox
        .enqueue(&Message::new("a", "").join(both[0]).join(both[1]))
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(1).await;
    outbox.ack(owner, &[ids[0], ids[0]]).await.unwrap();

    let counters = async |join| {
        let join = joins.get(join).await.unwrap().unwrap();
        (join.completed_steps, join.failed_steps, join.status)
    };
    assert_eq!(counters(both[0]).await, (1, 0, JoinStatus::Pending));
    assert_eq!(counters(both[1]).await, (1, 0, JoinStatus::Completed));
    assert_eq!(counters(other).await, (0, 0, JoinStatus::Pending));
}

/// Shows OBX-046, OBX-047.
async fn a_fail_counts_a_failed_step_in_every_join_of_the_message(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let both = [
        joins.start(&NewJoin::new(2)).await.unwrap(),
        joins.start(&NewJoin::new(1)).await.unwrap(),
    ];
    outbox
        .enqueue(&Message::new("a", "").join(both[0]).join(both[1]))
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(1).await;
    outbox.fail(owner, &ids, "no").await.unwrap();

    let counters = async |join| {
        let join = joins.get(join).await.unwrap().unwrap();
        (join.completed_steps, join.failed_steps, join.status)
    };
    assert_eq!(counters(both[0]).await, (0, 1, JoinStatus::Pending));
    assert_eq!(counters(both[1]).await, (0, 1, JoinStatus::Failed));
}

/// When the counter cannot move, the message is not settled either: it is still leased.
///
/// Shows OBX-034, OBX-047, OBX-097.
async fn a_message_is_settled_together_with_its_steps_or_not_at_all(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let join = joins.start(&NewJoin::new(2)).await.unwrap();
    outbox
        .enqueue_many(&[
            Message::new("a", "").join(join),
            Message::new("b", "").join(join),
        ])
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(2).await;

    fixture.refuse("UPDATE", "outbox_join").await;
    outbox.ack(owner, &ids).await.unwrap_err();
    outbox.fail(owner, &ids, "no").await.unwrap_err();
    assert_eq!(
        fixture
            .live(&format!("owner_token = {}", fixture.literal(owner)))
            .await,
        2
    );
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (0, 0)
    );
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_join_member} WHERE status = 0")
            .await,
        2
    );

    fixture.allow("UPDATE").await;
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..], "no").await.unwrap();
    let join = joins.get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.completed_steps, join.failed_steps, join.status),
        (1, 1, JoinStatus::Failed)
    );
}

/// Shows OBX-035, OBX-036, C-04, C-05.
async fn an_abandoned_message_is_free_and_was_tried_once_more(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    let abandoned = fixture
        .room
        .outbox()
        .abandon(owner, &[id], Abandon::default())
        .await
        .unwrap();
    assert_eq!(abandoned, [id]);

    let free =
        "locked_until IS NULL AND owner_token IS NULL AND attempt_count = 1 AND deferral_count = 0";
    assert_eq!(fixture.live(free).await, 1);
    assert_eq!(
        fixture.room.outbox().get(id).await.unwrap().unwrap().state,
        State::Ready
    );
}

/// The delay on the row is min(2^attempts, 60) seconds, to the microsecond, with the count as it is
/// stored.
///
/// Shows OBX-036, OBX-037, C-09, C-23.
async fn the_backoff_doubles_up_to_a_minute(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let mut seconds = Vec::new();
    for attempt in 1..=7 {
        seconds.push(backoff_micros(&fixture, id, attempt).await / 1_000_000);
    }
    assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60]);
}

/// Shows OBX-037, C-09.
async fn the_backoff_of_the_seventieth_attempt_is_a_minute_too(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    for attempts in [30, 62, 63, 64, 69, 70, 1_000_000_000] {
        fixture
            .sql(&format!("UPDATE {{outbox}} SET attempt_count = {attempts}"))
            .await;
        assert_eq!(
            backoff_micros(&fixture, id, attempts + 1).await,
            60_000_000,
            "{attempts}"
        );
    }
}

/// Claims and abandons once more; gives next attempt minus last attempt as the row has them.
async fn backoff_micros(fixture: &Fixture, id: WorkItemId, attempt: i64) -> i64 {
    fixture.skip_backoff().await;
    let (owner, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [id]);
    fixture
        .room
        .outbox()
        .abandon(owner, &claimed, Abandon::default())
        .await
        .unwrap();
    assert_eq!(fixture.live(&format!("attempt_count = {attempt}")).await, 1);
    fixture.time_of("outbox", "next_attempt_at", id).await
        - fixture.time_of("outbox", "last_attempt_at", id).await
}

/// With no delay of the caller's, the message comes back after the two seconds of the first backoff,
/// and not before.
///
/// Shows OBX-037, OBX-040.
async fn an_abandoned_message_comes_back_after_its_backoff(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    fixture
        .room
        .outbox()
        .abandon(owner, &[id], Abandon::default())
        .await
        .unwrap();
    let next = fixture.time_of("outbox", "next_attempt_at", id).await;
    assert!(fixture.claim(1).await.1.is_empty());

    eventually(async || (fixture.claim(1).await.1 == [id]).then_some(())).await;
    let claimed_at = fixture.time_of("outbox", "locked_until", id).await - micros(LEASE);
    assert!(
        claimed_at >= next,
        "claimed {} µs too early",
        next - claimed_at
    );
}

/// A caller's delay is kept to the microsecond; zero means at once. Both count as an attempt.
///
/// Shows OBX-036, OBX-040, C-08.
async fn a_callers_delay_is_exact_and_may_be_zero(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let id = fixture.enqueue(1).await[0];
    for delay in [
        Duration::from_micros(1),
        Duration::from_secs(123),
        Duration::from_secs(30 * 86_400),
    ] {
        fixture.skip_backoff().await;
        let (owner, claimed) = fixture.claim(1).await;
        outbox
            .abandon(owner, &claimed, Abandon::after(delay))
            .await
            .unwrap();
        let waits = fixture.time_of("outbox", "next_attempt_at", id).await
            - fixture.time_of("outbox", "last_attempt_at", id).await;
        assert_eq!(waits, micros(delay));
    }

    fixture.skip_backoff().await;
    let (owner, claimed) = fixture.claim(1).await;
    outbox
        .abandon(owner, &claimed, Abandon::after(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(fixture.claim(1).await.1, [id]);
    assert_eq!(fixture.live("attempt_count = 4").await, 1);
}

/// Shows C-07, C-23.
async fn an_abandon_leaves_the_due_time_alone(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let due = std::time::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let id = outbox
        .enqueue(&Message::new("a", "").due_at(due))
        .await
        .unwrap()
        .work_item_id;
    let (owner, ids) = fixture.claim(1).await;

    let before = fixture.clock().await;
    outbox
        .abandon(owner, &ids, Abandon::default())
        .await
        .unwrap();
    let after = fixture.clock().await;

    let message = outbox.get(id).await.unwrap().unwrap();
    assert_eq!(message.due_time, Some(due));
    let tried = fixture.time_of("outbox", "last_attempt_at", id).await;
    assert!(
        (before..=after).contains(&tried),
        "the database's clock says when"
    );
}

/// Shows OBX-041, C-25.
async fn an_abandon_keeps_the_last_error(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let id = fixture.enqueue(1).await[0];
    let abandon = async |how| {
        fixture.skip_backoff().await;
        let (owner, ids) = fixture.claim(1).await;
        outbox.abandon(owner, &ids, how).await.unwrap();
        outbox.get(id).await.unwrap().unwrap().progress.last_error
    };

    assert_eq!(abandon(Abandon::default()).await, None);
    assert_eq!(
        abandon(Abandon::default().error("first 'quoted'\n🦀"))
            .await
            .as_deref(),
        Some("first 'quoted'\n🦀")
    );
    assert_eq!(
        abandon(Abandon::default()).await.as_deref(),
        Some("first 'quoted'\n🦀")
    );
    assert_eq!(
        abandon(Abandon::default().error("")).await.as_deref(),
        Some("first 'quoted'\n🦀")
    );
    assert_eq!(
        abandon(Abandon::default().error("second")).await.as_deref(),
        Some("second")
    );
}

/// Shows C-58.
async fn a_stored_error_is_bounded(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(2).await;
    let (owner, ids) = fixture.claim(2).await;
    let long = "é\0".repeat(5000);
    outbox
        .abandon(owner, &ids[..1], Abandon::default().error(long.as_str()))
        .await
        .unwrap();
    outbox.fail(owner, &ids[1..], &long).await.unwrap();

    for id in ids {
        let stored = outbox
            .get(id)
            .await
            .unwrap()
            .unwrap()
            .progress
            .last_error
            .unwrap();
        assert!((1024..=2048).contains(&stored.len()), "{}", stored.len());
        assert!(!stored.contains('\0'));
    }
}

/// A deferral counts as an attempt and is counted a second time, as what it was.
///
/// Shows OBX-036, C-04, C-22.
async fn a_deferral_is_counted_apart(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    let how = Abandon::after(Duration::ZERO).deferred();
    fixture
        .room
        .outbox()
        .abandon(owner, &[id], how)
        .await
        .unwrap();

    let (_, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [id]);
    assert_eq!(
        fixture
            .live("attempt_count = 1 AND deferral_count = 1 AND delivery_count = 2")
            .await,
        1
    );
}

/// Shows OBX-042, OBX-043, OBX-048, C-05, C-06.
async fn a_failed_message_is_dead_with_its_reason(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;

    let before = fixture.clock().await;
    assert_eq!(
        outbox
            .fail(owner, &[id], "the bank said 'no' 🦀")
            .await
            .unwrap(),
        [id]
    );
    let after = fixture.clock().await;

    let dead = outbox.get(id).await.unwrap().unwrap();
    assert_eq!(dead.state, State::Dead);
    assert!(!dead.is_processed());
    assert_eq!(
        dead.progress.last_error.as_deref(),
        Some("the bank said 'no' 🦀")
    );
    assert_eq!(dead.progress.attempt_count, 0);
    assert_eq!(dead.progress.processed_by.as_deref(), Some("tester"));
    let failed = fixture.time_of("outbox_dead", "processed_at", id).await;
    assert!(
        (before..=after).contains(&failed),
        "{before} {failed} {after}"
    );
    assert_eq!(fixture.rows("outbox").await, 0);
    assert!(fixture.claim(10).await.1.is_empty());
}

/// Shows OBX-043, C-25.
async fn an_empty_reason_keeps_the_error_before_it(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;
    outbox
        .abandon(owner, &[id], Abandon::after(Duration::ZERO).error("before"))
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(1).await;
    outbox.fail(owner, &ids, "").await.unwrap();
    assert_eq!(
        outbox
            .get(id)
            .await
            .unwrap()
            .unwrap()
            .progress
            .last_error
            .as_deref(),
        Some("before")
    );

    let (owner, id) = fixture.enqueue_and_claim().await;
    outbox.fail(owner, &[id], "").await.unwrap();
    assert_eq!(
        outbox.get(id).await.unwrap().unwrap().progress.last_error,
        None
    );
}

/// An id that died before may be enqueued again, and may die again.
///
/// Shows OBX-042, OBX-043.
async fn an_id_may_die_twice(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let id = WorkItemId::new();
    for reason in ["first", "second"] {
        outbox
            .enqueue(&Message::new("a", reason).id(id))
            .await
            .unwrap();
        let (owner, ids) = fixture.claim(1).await;
        assert_eq!(outbox.fail(owner, &ids, reason).await.unwrap(), [id]);
    }

    let dead = outbox.get(id).await.unwrap().unwrap();
    assert_eq!(
        (dead.payload.as_str(), dead.progress.last_error.as_deref()),
        ("second", Some("second"))
    );
    assert_eq!(fixture.rows("outbox_dead").await, 1);
}

/// Shows OBX-019, OBX-020, C-20.
async fn a_renewed_lease_runs_from_now(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;

    let before = fixture.clock().await;
    assert_eq!(
        outbox
            .renew(owner, &[id], Duration::from_secs(600))
            .await
            .unwrap(),
        [id]
    );
    let after = fixture.clock().await;
    let until = fixture.time_of("outbox", "locked_until", id).await;
    assert!((before + 600_000_000..=after + 600_000_000).contains(&until));
    assert_eq!(
        fixture
            .live("delivery_count = 1 AND attempt_count = 0")
            .await,
        1
    );
}

/// Who has let a lease expire is told so, even while nobody else took the message.
///
/// Shows C-18.
async fn an_expired_lease_is_not_renewed(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (owner, id) = fixture.enqueue_and_claim().await;
    fixture.expire_leases().await;

    assert!(outbox.renew(owner, &[id], LEASE).await.unwrap().is_empty());
    assert_eq!(fixture.claim(1).await.1, [id]);
}

/// With `keep_done(false)` an ack deletes, and its steps still count.
///
/// Shows OBX-032, OBX-033, C-47.
async fn a_store_may_drop_what_is_done(fixture: Fixture) {
    let room = fixture.options().keep_done(false).connect().await.unwrap();
    let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
    let receipt = room
        .outbox()
        .enqueue(&Message::new("a", "").join(join))
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(1).await;

    assert_eq!(
        room.outbox().ack(owner, &ids).await.unwrap(),
        [receipt.work_item_id]
    );
    assert_eq!(room.outbox().get(receipt.work_item_id).await.unwrap(), None);
    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_done").await
        ),
        (0, 0)
    );
    assert_eq!(
        room.joins().get(join).await.unwrap().unwrap().status,
        JoinStatus::Completed
    );

    let (owner, id) = fixture.enqueue_and_claim().await;
    room.outbox().fail(owner, &[id], "no").await.unwrap();
    assert_eq!(
        fixture.rows("outbox_dead").await,
        1,
        "the dead stay all the same"
    );
}

testkit::mount!(
    an_ack_records_what_when_and_by_whom,
    what_another_holds_is_left_alone,
    among_many_ids_only_ones_own_are_settled,
    no_ids_are_no_work_and_ten_thousand_are_one_call,
    impossible_settlements_are_refused,
    a_late_ack_counts_while_nobody_else_took_the_message,
    a_late_settlement_changes_nothing_after_reap_or_reclaim,
    an_acked_message_is_settled_for_good,
    an_ack_counts_a_step_in_every_join_of_the_message,
    a_fail_counts_a_failed_step_in_every_join_of_the_message,
    a_message_is_settled_together_with_its_steps_or_not_at_all,
    an_abandoned_message_is_free_and_was_tried_once_more,
    the_backoff_doubles_up_to_a_minute,
    the_backoff_of_the_seventieth_attempt_is_a_minute_too,
    an_abandoned_message_comes_back_after_its_backoff,
    a_callers_delay_is_exact_and_may_be_zero,
    an_abandon_leaves_the_due_time_alone,
    an_abandon_keeps_the_last_error,
    a_stored_error_is_bounded,
    a_deferral_is_counted_apart,
    a_failed_message_is_dead_with_its_reason,
    an_empty_reason_keeps_the_error_before_it,
    an_id_may_die_twice,
    a_renewed_lease_runs_from_now,
    an_expired_lease_is_not_renewed,
    a_store_may_drop_what_is_done,
);
