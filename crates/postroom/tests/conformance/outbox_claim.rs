//! Claiming from the outbox: who gets what, for how long, and what nobody gets.

use std::collections::HashSet;
use std::time::Duration;

use postroom::{Abandon, ErrorKind, OwnerToken, State, WorkItemId};
use testkit::{Fixture, LEASE, eventually, micros};
use uuid::Uuid;

/// Shows OBX-017, OBX-022, OBX-026.
async fn a_claim_takes_the_oldest_and_no_more_than_the_batch(fixture: Fixture) {
    let ids = fixture.enqueue(10).await;

    let (first, claimed) = fixture.claim(3).await;
    assert_eq!(claimed, ids[..3]);
    let owned = format!("owner_token = {}", fixture.literal(first));
    assert_eq!(fixture.live(&owned).await, 3);
    assert_eq!(
        fixture
            .live("owner_token IS NULL AND locked_until IS NULL")
            .await,
        7
    );

    assert_eq!(fixture.claim(4).await.1, ids[3..7]);
    assert_eq!(fixture.claim(100).await.1, ids[7..]);
}

/// Shows OBX-022.
async fn a_claim_gives_whole_messages(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = postroom::Message::new("a", "b")
        .correlation("c")
        .header("d", "e");
    let receipt = outbox.enqueue(&message).await.unwrap();

    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 1).await.unwrap().remove(0);
    assert_eq!(
        claimed,
        outbox.get(receipt.work_item_id).await.unwrap().unwrap()
    );
    assert_eq!(claimed.state, State::InFlight);
    assert_eq!(claimed.progress.owner_token, Some(owner));
    assert_eq!(claimed.correlation_id.as_deref(), Some("c"));
}

/// Shows OBX-023.
async fn a_claim_of_nothing_is_an_empty_list(fixture: Fixture) {
    assert!(fixture.claim(10).await.1.is_empty());
    fixture.enqueue(1).await;
    fixture.claim(10).await;
    assert!(fixture.claim(10).await.1.is_empty());
}

/// Shows OBX-020, OBX-021, C-23.
async fn a_claim_writes_the_lease_by_the_databases_clock(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let owner = OwnerToken::new();
    let lease = Duration::from_secs(42);

    let before = fixture.clock().await;
    fixture.room.outbox().claim(owner, lease, 1).await.unwrap();
    let after = fixture.clock().await;

    let until = fixture.time_of("outbox", "locked_until", id).await;
    assert!(
        (before + micros(lease)..=after + micros(lease)).contains(&until),
        "{before} {until} {after}"
    );
    assert_eq!(
        fixture
            .live(&format!("owner_token = {}", fixture.literal(owner)))
            .await,
        1
    );
}

/// Shows OBX-019, OBX-101, C-05.
async fn a_leased_message_is_nobody_elses(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    let outbox = fixture.room.outbox();

    assert!(fixture.claim(10).await.1.is_empty());
    assert!(
        fixture
            .again()
            .await
            .outbox()
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        outbox.claim(owner, LEASE, 10).await.unwrap().is_empty(),
        "not even its owner's twice"
    );
    assert_eq!(
        outbox.get(id).await.unwrap().unwrap().state,
        State::InFlight
    );
    assert_eq!(
        fixture
            .live(&format!("owner_token = {}", fixture.literal(owner)))
            .await,
        1
    );
}

/// The lease ends by itself; no reap is needed.
///
/// Shows OBX-019, C-20, C-21.
async fn an_expired_lease_is_claimed_without_a_reap(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let outbox = fixture.room.outbox();
    outbox
        .claim(OwnerToken::new(), Duration::from_millis(300), 1)
        .await
        .unwrap();
    let until = fixture.time_of("outbox", "locked_until", id).await;

    let owner = OwnerToken::new();
    let claimed = eventually(async || outbox.claim(owner, LEASE, 1).await.unwrap().pop()).await;

    assert_eq!(claimed.id, id);
    assert_eq!(claimed.progress.owner_token, Some(owner));
    let claimed_at = fixture.time_of("outbox", "locked_until", id).await - micros(LEASE);
    assert!(
        claimed_at > until,
        "claimed {} µs too early",
        until - claimed_at
    );
    assert_eq!(claimed.progress.attempt_count, 0);
}

/// A lease holds up to and including its last instant. Claims in quick succession meet that instant
/// on a clock of milliseconds; none of them may get the message there.
///
/// Shows OBX-019, OBX-101, C-20.
async fn a_lease_holds_through_its_last_instant(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let outbox = fixture.room.outbox();
    let lease = Duration::from_millis(4);
    let claim = async || {
        outbox
            .claim(OwnerToken::new(), lease, 1)
            .await
            .unwrap()
            .pop()
    };
    claim().await.unwrap();

    for _ in 0..40 {
        let until = fixture.time_of("outbox", "locked_until", id).await;
        while claim().await.is_none() {}
        let claimed_at = fixture.time_of("outbox", "locked_until", id).await - micros(lease);
        assert!(
            claimed_at > until,
            "claimed {} µs too early",
            until - claimed_at
        );
    }
}

/// PostgreSQL's clock stands still within one message to the server: the boundary is met exactly.
///
/// Shows OBX-018, OBX-019, C-20.
async fn the_boundaries_are_exact(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let claim = "SELECT count(*) FROM {outbox_claim}(gen_random_uuid(), '1 hour', 10)";
    let arrange = |locked: &str, next: &str| {
        fixture.fill(&format!(
            "UPDATE {{outbox}} SET locked_until = statement_timestamp() {locked}, \
             next_attempt_at = statement_timestamp() {next}; {claim}"
        ))
    };
    let client = fixture.postgres().await;
    let claimed = async |sql: String| {
        let rows = client.simple_query(&sql).await.unwrap();
        rows.iter().any(|row| matches!(row, tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("1")))
    };

    let microsecond = "interval '1 microsecond'";
    assert!(
        !claimed(arrange("", "")).await,
        "a lease that ends now still holds"
    );
    assert!(
        claimed(arrange(&format!("- {microsecond}"), "")).await,
        "due now, lease past"
    );
    assert!(
        !claimed(arrange("- interval '1 hour'", &format!("+ {microsecond}"))).await,
        "not due yet"
    );
    assert!(fixture.room.outbox().get(id).await.unwrap().is_some());
}

/// Shows OBX-024, OBX-025, OBX-032, OBX-048, C-05.
async fn done_and_dead_messages_are_never_claimed(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(2).await;
    let (owner, ids) = fixture.claim(2).await;
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..], "no").await.unwrap();

    fixture.expire_leases().await;
    fixture.skip_backoff().await;
    outbox.reap().await.unwrap();
    assert!(fixture.claim(10).await.1.is_empty());
    assert_eq!(
        outbox.get(ids[0]).await.unwrap().unwrap().state,
        State::Done
    );
    assert_eq!(
        outbox.get(ids[1]).await.unwrap().unwrap().state,
        State::Dead
    );
}

/// Shows OBX-017, OBX-019, OBX-100, OBX-101.
async fn an_expired_lease_is_claimed_by_one_of_many(fixture: Fixture) {
    let ids = fixture.enqueue(4).await;
    let mut rooms = Vec::new();
    for _ in 0..4 {
        rooms.push(fixture.again().await);
    }
    fixture.claim(4).await;

    for round in 0..25 {
        fixture.expire_leases().await;
        let claims = rooms.iter().map(|room| {
            let outbox = room.outbox();
            tokio::spawn(async move { outbox.claim(OwnerToken::new(), LEASE, 4).await.unwrap() })
        });
        let mut got: Vec<WorkItemId> = Vec::new();
        for claim in claims.collect::<Vec<_>>() {
            got.extend(claim.await.unwrap().iter().map(|message| message.id));
        }
        got.sort();
        assert_eq!(got, ids, "round {round}");
    }
}

/// A row that another transaction holds is stepped over, not waited for.
///
/// Shows OBX-017, OBX-098.
async fn a_claim_steps_over_locked_rows(fixture: Fixture) {
    let ids = fixture.enqueue(3).await;
    let mut client = fixture.postgres().await;
    let transaction = client.transaction().await.unwrap();
    let lock = fixture.fill("SELECT 1 FROM {outbox} WHERE id = $1 FOR UPDATE");
    transaction
        .execute(&lock, &[&ids[1].as_uuid()])
        .await
        .unwrap();

    let (_, claimed) = fixture.claim(10).await;
    assert_eq!(claimed, [ids[0], ids[2]]);
    transaction.rollback().await.unwrap();
    assert_eq!(fixture.claim(10).await.1, [ids[1]]);
}

/// Shows C-53, OBX-116, OBX-117.
async fn impossible_claims_are_refused(fixture: Fixture) {
    fixture.enqueue(1).await;
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    let nobody = OwnerToken::from_uuid(Uuid::nil());
    let year = Duration::from_secs(400 * 86_400);
    let out_of_range = |param| ErrorKind::OutOfRange { param };

    for (owner, lease, batch, kind) in [
        (
            nobody,
            LEASE,
            1,
            ErrorKind::InvalidArgument { param: "owner" },
        ),
        (owner, Duration::ZERO, 1, out_of_range("lease")),
        (owner, Duration::from_nanos(1), 1, out_of_range("lease")),
        (owner, year, 1, out_of_range("lease")),
        (owner, Duration::MAX, 1, out_of_range("lease")),
        (owner, LEASE, 0, out_of_range("batch")),
        (owner, LEASE, 10_001, out_of_range("batch")),
        (owner, LEASE, usize::MAX, out_of_range("batch")),
    ] {
        assert_eq!(
            outbox.claim(owner, lease, batch).await.unwrap_err().kind(),
            kind
        );
    }
    assert_eq!(
        fixture
            .live("locked_until IS NULL AND delivery_count = 0")
            .await,
        1
    );
}

/// A claim is a delivery; only an abandon is an attempt.
///
/// Shows C-04, C-22.
async fn a_claim_counts_deliveries_and_not_attempts(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    for delivery in 1..=3 {
        let (_, claimed) = fixture.claim(1).await;
        assert_eq!(claimed, [id]);
        let progress = fixture
            .room
            .outbox()
            .get(id)
            .await
            .unwrap()
            .unwrap()
            .progress;
        assert_eq!(
            (progress.delivery_count, progress.attempt_count),
            (delivery, 0)
        );
        fixture.expire_leases().await;
    }
    assert_eq!(
        fixture
            .live("delivery_count = 3 AND attempt_count = 0")
            .await,
        1
    );
}

/// Due, next attempt and lease must all allow it.
///
/// Shows OBX-018, OBX-019, OBX-040, C-07.
async fn a_message_in_backoff_is_not_claimed(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    fixture
        .room
        .outbox()
        .abandon(owner, &[id], Abandon::after(Duration::from_secs(60)))
        .await
        .unwrap();

    assert!(fixture.claim(10).await.1.is_empty());
    fixture.skip_backoff().await;
    assert_eq!(fixture.claim(10).await.1, [id]);
}

/// A token may be used for many claims, and a fresh one per claim keeps a late task from touching
/// what was claimed after it.
///
/// Shows C-18, C-19.
async fn a_fresh_token_shuts_out_a_late_task(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let (stale, id) = fixture.enqueue_and_claim().await;
    fixture.expire_leases().await;
    let (fresh, claimed) = fixture.claim(1).await;
    assert_eq!(claimed, [id]);
    assert!(outbox.ack(stale, &[id]).await.unwrap().is_empty());
    assert!(outbox.fail(stale, &[id], "late").await.unwrap().is_empty());
    assert_eq!(outbox.ack(fresh, &[id]).await.unwrap(), [id]);

    fixture.enqueue(2).await;
    let steady = OwnerToken::new();
    let mut claimed = outbox.claim(steady, LEASE, 1).await.unwrap();
    claimed.extend(outbox.claim(steady, LEASE, 1).await.unwrap());
    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
    assert_eq!(outbox.ack(steady, &ids).await.unwrap().len(), 2);
}

/// Many claims in a row get every message once, although each starts where the last one ended.
///
/// Shows OBX-026, OBX-051, OBX-101.
async fn claims_in_a_row_miss_nothing(fixture: Fixture) {
    fixture.enqueue(60).await;
    let mut got = HashSet::new();
    for round in 0..20 {
        let (_, claimed) = fixture.claim(3).await;
        assert!(
            claimed.iter().all(|id| got.insert(*id)),
            "claimed twice in round {round}"
        );
    }
    assert_eq!(got.len(), 60);

    let ids = fixture.enqueue(2).await;
    let past = fixture.time(fixture.clock().await - 60_000_000);
    fixture
        .sql(&format!(
            "UPDATE {{outbox}} SET next_attempt_at = {past} WHERE id = {}",
            fixture.literal(ids[1])
        ))
        .await;
    let (_, claimed) = fixture.claim(2).await;
    assert_eq!(claimed.iter().collect::<HashSet<_>>(), ids.iter().collect());
}

testkit::mount!(
    a_claim_takes_the_oldest_and_no_more_than_the_batch,
    a_claim_gives_whole_messages,
    a_claim_of_nothing_is_an_empty_list,
    a_claim_writes_the_lease_by_the_databases_clock,
    a_leased_message_is_nobody_elses,
    an_expired_lease_is_claimed_without_a_reap,
    a_lease_holds_through_its_last_instant,
    done_and_dead_messages_are_never_claimed,
    an_expired_lease_is_claimed_by_one_of_many,
    impossible_claims_are_refused,
    a_claim_counts_deliveries_and_not_attempts,
    a_message_in_backoff_is_not_claimed,
    a_fresh_token_shuts_out_a_late_task,
    claims_in_a_row_miss_nothing;
    postgres:
    the_boundaries_are_exact,
    a_claim_steps_over_locked_rows,
);
