//! Limits and speed: how large, how long, how many, and what makes it fast.

use std::time::Duration;

use postroom::{Message, OwnerToken, WorkItemId};
use testkit::{Backend, Fixture, LEASE, micros};

/// Shows OBX-114.
async fn a_payload_may_be_large(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let payload = "0123456789abcdef".repeat(2 * 1024 * 1024);
    let receipt = outbox
        .enqueue(&Message::new("a", payload.as_str()))
        .await
        .unwrap();

    let size = "SELECT CAST(length(payload) AS bigint) FROM {outbox}";
    assert_eq!(fixture.number(size).await, 32 * 1024 * 1024);
    let claimed = outbox
        .claim(OwnerToken::new(), LEASE, 1)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(claimed.id, receipt.work_item_id);
    assert!(claimed.payload == payload);
    outbox
        .ack(claimed.progress.owner_token.unwrap(), &[claimed.id])
        .await
        .unwrap();
    assert!(outbox.get(claimed.id).await.unwrap().unwrap().payload == payload);
}

/// Shows OBX-116.
async fn leases_of_ten_to_three_hundred_seconds_are_kept(fixture: Fixture) {
    for seconds in [1, 10, 30, 300, 86_400] {
        let id = fixture.enqueue(1).await[0];
        let lease = Duration::from_secs(seconds);
        let before = fixture.clock().await;
        fixture
            .room
            .outbox()
            .claim(OwnerToken::new(), lease, 1)
            .await
            .unwrap();
        let after = fixture.clock().await;
        let until = fixture.time_of("outbox", "locked_until", id).await;
        assert!(
            (before..=after).contains(&(until - micros(lease))),
            "{seconds} s"
        );
    }
}

/// Shows OBX-117.
async fn batches_of_one_to_a_hundred_are_filled(fixture: Fixture) {
    fixture
        .room
        .outbox()
        .enqueue_many(&vec![Message::new("a", ""); 151])
        .await
        .unwrap();
    for batch in [1, 50, 100] {
        assert_eq!(fixture.claim(batch).await.1.len(), batch);
    }
    assert!(fixture.claim(1).await.1.is_empty());
}

/// Enqueue, claim and ack in batches: the best of three rounds passes two thousand messages a second,
/// on a debug build.
///
/// How fast they pass is measured by `cargo xtask bench`, against the database's own limit.
///
/// Shows OBX-118.
async fn thousands_of_messages_pass_through_one_outbox(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let messages = vec![Message::new("a", "0123456789".repeat(10)); 5_000];
    outbox.enqueue_many(&messages).await.unwrap();
    let mut acked = 0;
    while acked < messages.len() {
        let (owner, ids) = fixture.claim(100).await;
        assert!(!ids.is_empty(), "{acked} of {} were acked", messages.len());
        acked += outbox.ack(owner, &ids).await.unwrap().len();
    }
    assert_eq!(outbox.counts().await.unwrap().done, 5_000);
}

/// The live table holds unfinished messages only, so that its place says the status; the index is by
/// next attempt, which is the creation until something else is asked for. A claim reads nothing else.
///
/// Shows OBX-119.
async fn a_claim_is_served_by_an_index(fixture: Fixture) {
    assert!(
        fixture
            .indexes("outbox")
            .await
            .contains(&"next_attempt_at".to_owned())
    );
    let id = fixture.enqueue(1).await[0];
    assert_eq!(
        fixture.time_of("outbox", "next_attempt_at", id).await,
        fixture.time_of("outbox", "created_at", id).await
    );

    let plan = match fixture.backend {
        Backend::Sqlite => fixture
            .query_plan("SELECT seq FROM {outbox} WHERE next_attempt_at <= 9 ORDER BY next_attempt_at, seq LIMIT 5")
            .await,
        Backend::Postgres => fixture
            .query_plan("SELECT ctid FROM {outbox} WHERE next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 5")
            .await,
        Backend::MySql => fixture
            .query_plan("SELECT id FROM {outbox} FORCE INDEX ({outbox_ready}) WHERE next_attempt_at <= 9 ORDER BY next_attempt_at, id LIMIT 5 FOR UPDATE SKIP LOCKED")
            .await,
Backend::SqlServer => fixture
 .query_plan("SELECT TOP (5) id FROM {outbox} WHERE next_attempt_at <= SYSUTCDATETIME() ORDER BY next_attempt_at")
 .await,
    };
    assert!(plan.contains("outbox_ready"), "{plan}");
    assert!(
        !plan.to_lowercase().contains("sort") && !plan.contains("TEMP B-TREE"),
        "{plan}"
    );
}

/// However many messages are done, a claim looks at none of them.
///
/// Shows OBX-119.
async fn what_is_done_is_out_of_the_way(fixture: Fixture) {
    fixture
        .room
        .outbox()
        .enqueue_many(&vec![Message::new("a", ""); 500])
        .await
        .unwrap();
    let (owner, ids) = fixture.claim(500).await;
    fixture.room.outbox().ack(owner, &ids).await.unwrap();

    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_done").await
        ),
        (0, 500)
    );
}

/// Claim, ack, abandon and fail are functions in the database, one round trip each, and whoever
/// speaks SQL can call them.
///
/// Shows OBX-112, OBX-120, C-54.
async fn the_procedures_serve_any_client(fixture: Fixture) {
    let client = fixture.postgres().await;
    let run = async |sql: &str| client.query(&fixture.fill(sql), &[]).await.unwrap();
    for number in 0..4 {
        run(&format!("SELECT {{outbox_enqueue}}('a', '{number}')")).await;
    }

    let owner = OwnerToken::new().to_string();
    let claimed = run(&format!(
        "SELECT id FROM {{outbox_claim}}('{owner}', interval '30 seconds', 10)"
    ))
    .await;
    let ids: Vec<WorkItemId> = claimed
        .iter()
        .map(|row| WorkItemId::from_uuid(row.get(0)))
        .collect();
    assert_eq!(ids.len(), 4);
    let acked = run(&format!(
        "SELECT id FROM {{outbox_ack}}('{owner}', ARRAY['{}'::uuid], 'psql')",
        ids[0]
    ))
    .await;
    assert_eq!(acked.len(), 1);
    run(&format!(
        "SELECT {{outbox_abandon}}('{owner}', ARRAY['{}'::uuid], NULL, NULL, ARRAY[false])",
        ids[1]
    ))
    .await;
    run(&format!(
        "SELECT {{outbox_fail}}('{owner}', ARRAY['{}'::uuid], ARRAY['no'], 'psql')",
        ids[2]
    ))
    .await;
    fixture.expire_leases().await;
    assert_eq!(run("SELECT {outbox_reap}()").await[0].get::<_, i64>(0), 1);

    let counts = fixture.room.outbox().counts().await.unwrap();
    assert_eq!(
        (counts.ready, counts.in_flight, counts.done, counts.dead),
        (2, 0, 1, 1)
    );
    assert_eq!(
        fixture
            .live("attempt_count = 1 AND next_attempt_at = last_attempt_at + interval '2 seconds'")
            .await,
        1
    );
}

testkit::mount!(
    a_payload_may_be_large,
    leases_of_ten_to_three_hundred_seconds_are_kept,
    batches_of_one_to_a_hundred_are_filled,
    thousands_of_messages_pass_through_one_outbox,
    a_claim_is_served_by_an_index,
    what_is_done_is_out_of_the_way;
    postgres: the_procedures_serve_any_client,
);
