//! How messages lie on the disk, where that decides how fast the queue is: claims that touch no index,
//! claims that never scan the table, an archive by day, and commits that callers share.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use postroom::{Arrival, Inbound, List, Message, Options, OwnerToken, Postroom, State};
use testkit::{Fixture, eventually};

const LEASE: Duration = Duration::from_secs(3600);

async fn a_claim_of_fresh_messages_touches_no_index_of_postgres(fixture: Fixture) {
    let room = fixture.again().await;
    enqueue(&room, 500).await;
    assert_eq!(claim_all(&room, 50).await, 500);
    // A server process counts its work in when it ends.
    drop(room);
    let updates = eventually(|| async {
        let updates = statistic(&fixture, "n_tup_upd").await;
        (updates >= 500).then_some(updates)
    })
    .await;
    assert_eq!(updates, 500);
    assert_eq!(statistic(&fixture, "n_tup_hot_upd").await, 500);
}

/// Shows OBX-119.
async fn a_claim_never_scans_the_table_though_its_plan_was_made_while_it_was_empty(
    fixture: Fixture,
) {
    let room = one_connection(&fixture).await;
    for _ in 0..10 {
        assert_eq!(
            room.outbox()
                .claim(OwnerToken::new(), LEASE, 50)
                .await
                .unwrap()
                .len(),
            0
        );
    }
    enqueue(&room, 5_000).await;
    assert_eq!(claim_all(&room, 50).await, 5_000);
    drop(room);
    eventually(|| async { (statistic(&fixture, "idx_scan").await >= 100).then_some(()) }).await;
    let scans = statistic(&fixture, "seq_scan").await;
    assert!(scans < 5, "the table was scanned {scans} times");
}

/// Shows OBX-119.
async fn a_claim_reads_a_bounded_number_of_pages_of_a_table_never_analyzed(fixture: Fixture) {
    fixture
        .sql("ALTER TABLE {outbox} SET (autovacuum_enabled = off)")
        .await;
    let client = fixture.postgres().await;
    let claim = format!(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {}('{}', '1 hour', 10)",
        fixture.table("outbox_claim"),
        OwnerToken::new()
    );
    let pages = async || {
        let answer = client.simple_query(&claim).await.unwrap();
        let text = answer
            .iter()
            .find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            })
            .unwrap();
        let explained: serde_json::Value = serde_json::from_str(&text).unwrap();
        let plan = &explained[0]["Plan"];
        plan["Shared Hit Blocks"].as_u64().unwrap() + plan["Shared Read Blocks"].as_u64().unwrap()
    };
    for _ in 0..6 {
        pages().await;
    }
    enqueue(&fixture.room, 10_000).await;
    enqueue(&fixture.room, 10_000).await;
    let table = fixture
        .number("SELECT pg_relation_size('{outbox}') / 8192")
        .await;
    assert!(table > 500, "the table has only {table} pages");
    // A claim that has to plan anew, because others change the catalog meanwhile, reads that too.
    let mut reads = Vec::new();
    for _ in 0..10 {
        reads.push(pages().await);
    }
    reads.sort_unstable();
    let usual = reads[reads.len() / 2];
    assert!(usual < 200, "a claim of 10 reads {usual} of {table} pages");
}

async fn done_messages_go_to_the_partition_of_their_day(fixture: Fixture) {
    enqueue(&fixture.room, 20).await;
    let outbox = fixture.room.outbox();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 20).await.unwrap();
    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
    assert_eq!(outbox.ack(owner, &ids).await.unwrap().len(), 20);
    let in_days = fixture
        .number(
            "SELECT count(*) FROM {outbox_done} AS d JOIN pg_class AS c ON c.oid = d.tableoid \
             WHERE c.relname = 'outbox_done_' || to_char(d.processed_at AT TIME ZONE 'UTC', 'YYYYMMDD')",
        )
        .await;
    assert_eq!(in_days, 20);
    assert_eq!(
        fixture
            .number("SELECT count(*) FROM {outbox_done_rest}")
            .await,
        0
    );
}

/// Ids grow with time, and the archive's index knows roughly where they are.
async fn the_newest_of_a_large_archive_are_listed_without_reading_all_of_it(fixture: Fixture) {
    const DAYS: i64 = 10;
    fixture
        .sql(&format!(
            "INSERT INTO {{outbox_done}} (id, message_id, created_at, processed_at, attempt_count, deferral_count, \
             delivery_count, topic, payload) \
             SELECT id, id, at, at, 0, 0, 1, 'a', repeat('x', 200) FROM ( \
             SELECT at, encode(overlay(uuid_send(gen_random_uuid()) PLACING \
             substring(int8send((extract(epoch FROM at) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 'hex')::uuid AS id \
             FROM (SELECT now() - n * interval '{DAYS} days' / 100000 AS at FROM generate_series(100000, 1, -1) AS n) \
             AS times) AS messages; \
             SELECT {{outbox_maintain}}()"
        ))
        .await;
    let table = fixture
        .number("SELECT sum(pg_relation_size(relid))::bigint / 8192 FROM pg_partition_tree('{outbox_done}') WHERE isleaf")
        .await;
    assert!(table > 3_000, "the archive has only {table} pages");
    let read = async || {
        let schema = fixture.schema.as_deref().unwrap();
        fixture
            .number(&format!(
                "SELECT sum(heap_blks_read + heap_blks_hit)::bigint FROM pg_statio_user_tables \
                 WHERE schemaname = '{schema}' AND relname LIKE 'outbox\\_done%'"
            ))
            .await
    };
    let before = eventually(|| async {
        let blocks = read().await;
        (blocks >= table).then_some(blocks)
    })
    .await;

    let room = one_connection(&fixture).await;
    for _ in 0..10 {
        let newest = List::any().newest_first().limit(50);
        let page = room.outbox().list(&newest).await.unwrap();
        assert_eq!(page.len(), 50);
        let next = room.outbox().list(&newest.after(page[49].id)).await;
        assert_eq!(next.unwrap().len(), 50);
    }
    // A server process counts its work in when it ends.
    drop(room);
    let after = eventually(|| async {
        let blocks = read().await;
        (blocks > before).then_some(blocks)
    })
    .await;
    let pages = (after - before) / 20;
    assert!(
        pages < table / 10,
        "a page of the list reads {pages} of {table} pages"
    );
}

async fn callers_of_sqlite_that_wait_together_share_a_commit(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let other = fixture.sqlite();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = commits(&fixture);

    // A first poll hands the message to the writer, which waits for the lock.
    let message = Message::new("a", "b");
    let mut enqueues: Vec<Pin<Box<_>>> = (0..64)
        .map(|_| Box::pin(outbox.enqueue(&message)))
        .collect();
    for enqueue in &mut enqueues {
        assert!(
            enqueue
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
    }
    other.execute_batch("ROLLBACK").unwrap();
    for enqueue in enqueues {
        enqueue.await.unwrap();
    }
    let commits = commits(&fixture) - before;
    assert!(
        (1..=4).contains(&commits),
        "64 enqueues took {commits} commits"
    );
    assert_eq!(outbox.counts().await.unwrap().ready, 64);
}

/// How many commits the write-ahead log holds: frames that say how large the database is afterwards and
/// carry the log's present salt.
fn commits(fixture: &Fixture) -> usize {
    let path = fixture.url.strip_prefix("sqlite:").unwrap();
    let log = std::fs::read(format!("{path}-wal")).unwrap();
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let page = usize::try_from(number(&log[8..12])).unwrap();
    let salt = &log[16..24];
    log[32..]
        .chunks_exact(24 + page)
        .take_while(|frame| &frame[8..16] == salt)
        .filter(|frame| number(&frame[4..8]) != 0)
        .count()
}

async fn enqueue(room: &Postroom, count: usize) {
    let messages: Vec<Message> = (0..count)
        .map(|number| Message::new("a", number.to_string()))
        .collect();
    room.outbox().enqueue_many(&messages).await.unwrap();
}

async fn claim_all(room: &Postroom, batch: usize) -> usize {
    let mut total = 0;
    loop {
        match room
            .outbox()
            .claim(OwnerToken::new(), LEASE, batch)
            .await
            .unwrap()
            .len()
        {
            0 => return total,
            claimed => total += claimed,
        }
    }
}

async fn one_connection(fixture: &Fixture) -> Postroom {
    let schema = fixture.schema.as_deref().unwrap();
    Options::new(fixture.url.as_str())
        .schema(schema)
        .connections(1)
        .connect()
        .await
        .unwrap()
}

async fn statistic(fixture: &Fixture, column: &str) -> i64 {
    let schema = fixture.schema.as_deref().unwrap();
    fixture
        .number(&format!(
            "SELECT {column} FROM pg_stat_user_tables WHERE schemaname = '{schema}' AND relname = 'outbox'"
        ))
        .await
}

/// The statement of a claim that picks and locks, for three messages.
fn pick_three(fixture: &Fixture) -> String {
    let operations = fixture.options().operations().unwrap();
    let claim = operations
        .iter()
        .find(|operation| operation.name == "outbox claim")
        .unwrap();
    let pick = &claim.statements[0];
    assert_eq!(pick.parameters, [5, 4, 3], "everywhere, from, batch");
    let pick = pick.sql.replacen('?', "1", 1).replacen('?', "NULL", 1);
    pick.replacen('?', "3", 1)
        .replace(" INTO @postroom_chosen", "")
}

/// An entry of the ready index and a row for each message: nothing beside them is locked, and others get the
/// rest at once.
async fn a_claim_of_mysql_locks_what_it_takes_and_nothing_else(fixture: Fixture) {
    let ids = fixture.enqueue(10).await;
    let mut connection = fixture.mysql().await;
    connection
        .query_drop("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION")
        .await
        .unwrap();
    connection.query_drop(pick_three(&fixture)).await.unwrap();

    let locked = format!(
        "SELECT trx_rows_locked FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = {}",
        connection.id()
    );
    assert_eq!(fixture.number(&locked).await, 2 * 3);
    assert_eq!(fixture.claim(10).await.1, ids[3..]);

    connection.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(fixture.claim(10).await.1, ids[..3]);
}

async fn a_claim_of_mysql_walks_the_ready_index_without_a_sort(fixture: Fixture) {
    for messages in [0, 50] {
        fixture.enqueue(messages).await;
        let plan = fixture.query_plan(&pick_three(&fixture)).await;
        assert!(plan.contains("outbox_ready"), "{plan}");
        assert!(!plan.contains("filesort"), "{plan}");
    }
}

async fn names_of_mysql_differ_by_case_and_by_trailing_spaces(fixture: Fixture) {
    let (outbox, inbox) = (fixture.room.outbox(), fixture.room.inbox());
    let names = ["name", "Name", "name ", "name  ", "näme", "nàme"];
    for name in names {
        let arrival = inbox.enqueue(&Inbound::new(name, name, name, "")).await;
        assert_eq!(arrival.unwrap().arrival, Arrival::New, "{name:?}");
        outbox.enqueue(&Message::new(name, "")).await.unwrap();
    }
    for name in names {
        let topic = List::new(State::Ready).topic(name);
        assert_eq!(outbox.count(&topic).await.unwrap(), 1, "{name:?}");
        assert_eq!(inbox.get_bare(name).await.unwrap().id.source, name);
    }
}

/// Times are the database's, in UTC, whatever a session thinks of time zones.
async fn the_time_zone_of_mysql_does_not_matter(fixture: Fixture) {
    let mut connection = fixture.mysql().await;
    connection
        .query_drop("SET SESSION time_zone = '+09:00'")
        .await
        .unwrap();
    let before = fixture.clock().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let outbox = fixture.room.outbox();
    let receipt = outbox
        .enqueue_in(&mut transaction, &Message::new("a", ""))
        .await
        .unwrap();
    transaction.commit().await.unwrap();

    let id = receipt.work_item_id;
    let created = fixture.time_of("outbox", "created_at", id).await;
    assert!((before..=fixture.clock().await).contains(&created));
    assert_eq!(fixture.claim(1).await.1, [id], "due at once");
}

/// Every statement that makes a table commits there. What was begun is noted, and goes on where it was.
async fn a_deployment_on_mysql_that_broke_off_is_run_again(fixture: Fixture) {
    fixture
        .sql(
            "UPDATE {outbox_schema} SET checksum = 'begun' WHERE version IN (4, 5); \
             DROP TABLE {outbox_audit}; ALTER TABLE {inbox_dead} DROP COLUMN headers",
        )
        .await;
    let error = fixture.room.verify().await.unwrap_err();
    assert!(error.to_string().contains("migration 4"), "{error}");

    fixture.room.deploy().await.unwrap();
    fixture.room.verify().await.unwrap();
}

testkit::mount!(
    sqlite: callers_of_sqlite_that_wait_together_share_a_commit;
    postgres: a_claim_of_fresh_messages_touches_no_index_of_postgres,
    a_claim_never_scans_the_table_though_its_plan_was_made_while_it_was_empty,
    a_claim_reads_a_bounded_number_of_pages_of_a_table_never_analyzed,
    done_messages_go_to_the_partition_of_their_day,
    the_newest_of_a_large_archive_are_listed_without_reading_all_of_it;
    mysql: a_claim_of_mysql_locks_what_it_takes_and_nothing_else,
    a_claim_of_mysql_walks_the_ready_index_without_a_sort,
    names_of_mysql_differ_by_case_and_by_trailing_spaces,
    the_time_zone_of_mysql_does_not_matter,
    a_deployment_on_mysql_that_broke_off_is_run_again,
);
