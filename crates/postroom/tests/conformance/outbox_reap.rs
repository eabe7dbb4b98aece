//! Reaping: leases that nobody ended are freed, and nothing else is touched.

use std::time::Duration;

use postroom::{OwnerToken, State};
use testkit::{Fixture, LEASE, eventually};

/// Shows OBX-049, OBX-050, OBX-051.
async fn a_reap_frees_what_has_expired(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let ids = fixture.enqueue(3).await;
    outbox
        .claim(OwnerToken::new(), Duration::from_millis(300), 2)
        .await
        .unwrap();
    let (holder, held) = fixture.claim(1).await;
    assert_eq!(held, ids[2..]);

    let reaped =
        eventually(async || Some(outbox.reap().await.unwrap()).filter(|count| *count > 0)).await;

    assert_eq!(reaped, 2);
    assert_eq!(
        fixture
            .live("locked_until IS NULL AND owner_token IS NULL")
            .await,
        2
    );
    let still_held = format!(
        "owner_token = {} AND locked_until IS NOT NULL",
        fixture.literal(holder)
    );
    assert_eq!(fixture.live(&still_held).await, 1);
    assert_eq!(fixture.claim(10).await.1, ids[..2]);
}

/// Shows OBX-049, C-20.
async fn a_lease_that_has_not_expired_is_left_alone(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    let until = fixture.time_of("outbox", "locked_until", id).await;

    assert_eq!(fixture.room.outbox().reap().await.unwrap(), 0);
    assert_eq!(fixture.time_of("outbox", "locked_until", id).await, until);
    assert_eq!(fixture.room.outbox().ack(owner, &[id]).await.unwrap(), [id]);
}

/// PostgreSQL's clock stands still within one message to the server: the boundary is met exactly.
///
/// Shows OBX-049, C-20.
async fn a_lease_that_ends_now_is_not_reaped(fixture: Fixture) {
    fixture.enqueue_and_claim().await;
    let client = fixture.postgres().await;
    let reap = |until: &str| {
        fixture.fill(&format!(
            "UPDATE {{outbox}} SET locked_until = statement_timestamp() {until}; SELECT {{outbox_reap}}()"
        ))
    };
    let reaped = async |sql: String| {
        let rows = client.simple_query(&sql).await.unwrap();
        rows.iter().any(|row| matches!(row, tokio_postgres::SimpleQueryMessage::Row(row) if row.get(0) == Some("1")))
    };

    assert!(!reaped(reap("")).await);
    assert!(reaped(reap("- interval '1 microsecond'")).await);
}

/// Shows OBX-052, OBX-024, OBX-025.
async fn a_reap_leaves_done_and_dead_alone(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(2).await;
    let (owner, ids) = fixture.claim(2).await;
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..], "no").await.unwrap();
    let before = [
        outbox.get(ids[0]).await.unwrap(),
        outbox.get(ids[1]).await.unwrap(),
    ];

    assert_eq!(outbox.reap().await.unwrap(), 0);
    assert_eq!(
        [
            outbox.get(ids[0]).await.unwrap(),
            outbox.get(ids[1]).await.unwrap()
        ],
        before
    );
    assert_eq!(
        before.map(|message| message.unwrap().state),
        [State::Done, State::Dead]
    );
}

/// Whoever polls may call it as often as he likes.
///
/// Shows OBX-053, OBX-050, OBX-051.
async fn a_reap_may_be_repeated(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    assert_eq!(outbox.reap().await.unwrap(), 0);
    fixture.enqueue(5).await;
    assert_eq!(outbox.reap().await.unwrap(), 0);

    for round in 0..5 {
        assert_eq!(fixture.claim(5).await.1.len(), 5, "round {round}");
        fixture.expire_leases().await;
        assert_eq!(outbox.reap().await.unwrap(), 5, "round {round}");
        assert_eq!(outbox.reap().await.unwrap(), 0, "round {round}");
    }
}

/// Shows OBX-053, OBX-100.
async fn two_reapers_share_the_work(fixture: Fixture) {
    let ids = fixture.enqueue(50).await;
    let other = fixture.again().await;
    for round in 0..10 {
        assert_eq!(fixture.claim(50).await.1.len(), ids.len());
        fixture.expire_leases().await;
        let (one, two) = (fixture.room.outbox(), other.outbox());
        let one = tokio::spawn(async move { one.reap().await.unwrap() });
        let two = tokio::spawn(async move { two.reap().await.unwrap() });
        let reaped =
            one.await.unwrap() + two.await.unwrap() + fixture.room.outbox().reap().await.unwrap();
        assert_eq!(reaped, 50, "round {round}");
    }
}

/// Shows C-22, OBX-050.
async fn a_reap_counts_no_attempt(fixture: Fixture) {
    let (_, id) = fixture.enqueue_and_claim().await;
    fixture.expire_leases().await;
    fixture.room.outbox().reap().await.unwrap();

    assert_eq!(
        fixture
            .live("attempt_count = 0 AND delivery_count = 1 AND last_error IS NULL")
            .await,
        1
    );
    assert_eq!(
        fixture.room.outbox().get(id).await.unwrap().unwrap().state,
        State::Ready
    );
    fixture.claim(1).await;
    assert_eq!(
        fixture
            .live("attempt_count = 0 AND delivery_count = 2")
            .await,
        1
    );
}

/// Reaped, then claimable as before: a backoff that was running goes on.
///
/// Shows OBX-051, C-07.
async fn a_reap_does_not_shorten_a_wait(fixture: Fixture) {
    let (_, id) = fixture.enqueue_and_claim().await;
    let later = fixture.time(fixture.clock().await + 3_600_000_000);
    fixture
        .sql(&format!("UPDATE {{outbox}} SET next_attempt_at = {later}"))
        .await;
    fixture.expire_leases().await;

    assert_eq!(fixture.room.outbox().reap().await.unwrap(), 1);
    assert!(fixture.claim(1).await.1.is_empty());
    fixture.skip_backoff().await;
    assert_eq!(fixture.claim(1).await.1, [id]);
}

/// Either the ack comes first and the message is done, or the reap does and the ack changes nothing;
/// never both, never neither.
///
/// Shows OBX-052, OBX-099, OBX-101, C-18.
async fn an_ack_that_races_a_reap_has_one_winner(fixture: Fixture) {
    let other = fixture.again().await;
    let (mut acks, mut reaps) = (0, 0);
    for round in 0..60 {
        let (owner, id) = fixture.enqueue_and_claim().await;
        fixture.expire_leases().await;
        let (ack, reap) = (fixture.room.outbox(), other.outbox());
        let ack = async move { ack.ack(owner, &[id]).await.unwrap().len() };
        let reap = async move { reap.reap().await.unwrap() };
        let (acked, reaped) = if round % 2 == 0 {
            let (ack, reap) = (tokio::spawn(ack), tokio::spawn(reap));
            (ack.await.unwrap(), reap.await.unwrap())
        } else {
            let (reap, ack) = (tokio::spawn(reap), tokio::spawn(ack));
            (ack.await.unwrap(), reap.await.unwrap())
        };

        let state = fixture.room.outbox().get(id).await.unwrap().unwrap().state;
        match (acked, reaped) {
            (1, 0) => {
                acks += 1;
                assert_eq!(state, State::Done, "round {round}");
            }
            (0, 1) => {
                reaps += 1;
                assert_eq!(state, State::Ready, "round {round}");
                let owner = OwnerToken::new();
                let claimed = fixture.room.outbox().claim(owner, LEASE, 1).await.unwrap();
                assert_eq!(
                    fixture
                        .room
                        .outbox()
                        .ack(owner, &[claimed[0].id])
                        .await
                        .unwrap(),
                    [id]
                );
            }
            both => panic!("round {round}: acked and reaped {both:?}"),
        }
    }
    assert_eq!(acks + reaps, 60);
    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_done").await
        ),
        (0, 60)
    );
}

testkit::mount!(
    a_reap_frees_what_has_expired,
    a_lease_that_has_not_expired_is_left_alone,
    a_reap_leaves_done_and_dead_alone,
    a_reap_may_be_repeated,
    two_reapers_share_the_work,
    a_reap_counts_no_attempt,
    a_reap_does_not_shorten_a_wait,
    an_ack_that_races_a_reap_has_one_winner;
    postgres: a_lease_that_ends_now_is_not_reaped,
);
