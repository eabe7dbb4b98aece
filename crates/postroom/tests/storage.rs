//! How messages lie on the disk, where that decides how fast the queue is: claims that touch no index,
//! claims that never scan the table, an archive by day, and commits that callers share.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use postroom::{
    Abandon, Arrival, Delivery, ErrorKind, Inbound, InboxMessageId, List, Message, NewJoin,
    Options, OwnerToken, Postroom, State,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::mysql::Server;
use testkit::server::Durability;
use testkit::{Backend, Fixture, eventually};

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

/// Rows are found where the claim has left them.
async fn a_dispatcher_acks_without_a_look_into_the_index_of_postgres(fixture: Fixture) {
    const LOOKS: &str =
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelid = '{outbox_pkey}'::regclass";
    let room = fixture.again().await;
    enqueue(&room, 500).await;
    let report = room
        .dispatcher()
        .batch(100)
        .on("a", |_: Delivery| async {})
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 500);
    drop(room);
    eventually(|| async { (statistic(&fixture, "n_tup_del").await >= 500).then_some(()) }).await;
    assert_eq!(fixture.number(LOOKS).await, 0);
    assert_eq!(fixture.rows("outbox_done").await, 500);
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

/// To put a file into write-ahead mode is to write to it, and for that SQLite does not wait by itself.
async fn opening_a_file_of_sqlite_waits_for_its_writer(_: Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE a (b); BEGIN IMMEDIATE")
        .unwrap();

    let url = format!("sqlite:{}", path.display());
    let mut opening = tokio::spawn(async move { Postroom::connect(&url).await });
    let early = tokio::time::timeout(Duration::from_millis(200), &mut opening).await;
    assert!(early.is_err(), "it was opened, or given up: {early:?}");
    other.execute_batch("COMMIT").unwrap();
    let room = opening.await.unwrap().unwrap();
    room.deploy().await.unwrap();
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

    let picker = connection.id();
    let open = testkit::mysql::open_transactions(&mut connection).await;
    let pick = open.iter().find(|open| open.connection == picker).unwrap();
    assert_eq!(pick.row_locks, 2 * 3);
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

/// What an SQL text or a character set could stumble over.
fn any_text() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        "'",
        "''",
        "\"",
        "\\",
        "\\'",
        "\\\\'",
        "`",
        "?",
        "?1",
        ";\n",
        "--",
        "-- ",
        "#",
        "/*",
        "*/",
        "/*!",
        "%",
        "_utf8mb4",
        "{outbox}",
        "@postroom_chosen",
        "\u{1a}",
        "\u{1}",
        "\u{7f}",
        "\r\n",
        "\t",
        " ",
        "ä",
        "¿'",
        "縗",
        "表'",
        "\u{bf5c}",
        "é\u{301}",
        "\u{feff}",
        "\u{fffd}",
        "😀",
        "👩\u{200d}🚀",
        "\u{10ffff}",
        "\u{2028}",
        "NULL",
        "\\0",
        "\\N",
    ]);
    let piece = prop_oneof![
        4 => awkward.prop_map(str::to_owned),
        2 => any::<char>().prop_map(|char| char.to_string()),
        1 => "[a-z]{1,5}",
    ];
    prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat().replace('\0', "0"))
}

/// Whatever a text holds, it arrives as it was sent: by a prepared statement, written into a text of
/// statements, and in the caller's transaction.
async fn every_text_arrives_on_mysql_as_it_was_sent(_: Fixture) {
    let (_server, fixture) = on_an_unkind_server().await;
    let texts = (any_text(), any_text(), any_text(), 1_usize..1_000);
    let check = |(name, other, text, times): (String, String, String, usize)| {
        let long = text.repeat(times);
        tokio::runtime::Handle::current().block_on(async {
            outbox_keeps(&fixture, &name, &other, &long).await;
            inbox_keeps(&fixture, &name, &other, &long).await;
        });
        Ok(())
    };
    let config = Config {
        cases: 96,
        failure_persistence: None,
        ..Config::default()
    };
    tokio::task::block_in_place(|| TestRunner::new(config).run(&texts, check)).unwrap();
}

async fn outbox_keeps(fixture: &Fixture, name: &str, other: &str, text: &str) {
    let outbox = fixture.room.outbox();
    let message = Message::new(name, text)
        .correlation(other)
        .header(other, text);
    let mut ids = vec![outbox.enqueue(&message).await.unwrap().work_item_id];
    let many = [message.clone(), message.clone(), message.clone()];
    let receipts = outbox.enqueue_many(&many).await.unwrap();
    ids.extend(receipts.iter().map(|receipt| receipt.work_item_id));
    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let receipt = outbox.enqueue_in(&mut transaction, &message).await.unwrap();
    transaction.commit().await.unwrap();
    ids.push(receipt.work_item_id);

    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 5);
    for message in &claimed {
        assert_eq!((&*message.topic, &*message.payload), (name, text));
        assert_eq!(message.correlation_id.as_deref(), Some(other));
        assert_eq!(message.headers[other], text);
    }
    let topic = List::any().topic(name).correlation(other);
    assert_eq!(outbox.list(&topic).await.unwrap().len(), 5);

    let how = Abandon::after(Duration::from_secs(3600)).error(other);
    outbox.abandon(owner, &ids[..2], how).await.unwrap();
    outbox.fail(owner, &ids[2..], other).await.unwrap();
    for id in ids {
        let found = outbox.get(id).await.unwrap().unwrap();
        assert_eq!((&*found.topic, &*found.payload), (name, text));
        assert_eq!(found.progress.last_error.as_deref(), Some(other));
    }
    fixture
        .sql("DELETE FROM {outbox}; DELETE FROM {outbox_dead}")
        .await;
}

async fn inbox_keeps(fixture: &Fixture, name: &str, other: &str, text: &str) {
    let inbox = fixture.room.inbox();
    let inbound = Inbound::new(name, other, name, text)
        .correlation(other)
        .header(other, text)
        .hash(other.as_bytes());
    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let accepted = inbox.enqueue_in(&mut transaction, &inbound).await;
    assert_eq!(accepted.unwrap().arrival, Arrival::New);
    transaction.commit().await.unwrap();
    let accepted = inbox.enqueue(&inbound).await.unwrap();
    assert_ne!(accepted.arrival, Arrival::New, "the same names");
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 10).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let id = InboxMessageId::new(name, other);
    assert_eq!(claimed[0].id, id);
    assert_eq!(claimed[0].topic.as_deref(), Some(name));
    assert_eq!(claimed[0].payload.as_deref(), Some(text));
    assert_eq!(claimed[0].headers[other], text);
    assert_eq!(
        inbox.fail(owner, &id, other).await.unwrap(),
        1,
        "by its key"
    );
    let dead = inbox.get(&id).await.unwrap().unwrap();
    assert_eq!(dead.payload.as_deref(), Some(text));
    assert_eq!(dead.progress.last_error.as_deref(), Some(other));
    assert_eq!(inbox.purge(&id).await.unwrap(), 1);
}

/// A caller who has enqueued a step and not committed yet keeps nobody from counting another.
async fn an_open_transaction_that_adds_a_step_on_mysql_does_not_hold_up_its_join(fixture: Fixture) {
    let room = &fixture.room;
    let join = room.joins().start(&NewJoin::new(3)).await.unwrap();
    let step = || Message::new("a", "").join(join);
    room.outbox().enqueue(&step()).await.unwrap();
    room.outbox().enqueue(&step()).await.unwrap();
    let (owner, ids) = fixture.claim(2).await;

    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let outbox = room.outbox();
    outbox.enqueue_in(&mut transaction, &step()).await.unwrap();

    let settled = async {
        assert_eq!(outbox.ack(owner, &ids[..1]).await.unwrap(), ids[..1]);
        assert_eq!(outbox.fail(owner, &ids[1..], "").await.unwrap(), ids[1..]);
        assert_eq!(room.joins().reconcile(join).await.unwrap(), 0);
    };
    let in_time = tokio::time::timeout(Duration::from_secs(8), settled);
    in_time.await.expect("nobody waits");

    transaction.commit().await.unwrap();
    let (owner, last) = fixture.claim(1).await;
    outbox.ack(owner, &last).await.unwrap();
    let join = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!((join.completed_steps, join.failed_steps), (2, 1));
}

/// A join that somebody is adding a step to is not cleaned away under him, and not waited for.
async fn a_cleanup_of_joins_on_mysql_passes_over_one_that_gets_a_step(fixture: Fixture) {
    let room = &fixture.room;
    let mut joins = Vec::new();
    for _ in 0..2 {
        let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
        assert!(room.joins().cancel(join).await.unwrap());
        joins.push(join);
    }
    fixture
        .age("outbox_join", "last_updated_at", LEASE * 2)
        .await;
    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let step = Message::new("a", "").join(joins[0]);
    let outbox = room.outbox();
    outbox.enqueue_in(&mut transaction, &step).await.unwrap();

    assert_eq!(room.joins().cleanup(LEASE).await.unwrap(), 1);
    transaction.commit().await.unwrap();
    assert!(room.joins().get(joins[0]).await.unwrap().is_some());
    assert_eq!(room.joins().cleanup(LEASE).await.unwrap(), 1);
    assert_eq!(fixture.rows("outbox_join_member").await, 0);
    assert_eq!(fixture.rows("outbox_join_key").await, 0);
}

/// The server leaves out tables of an outer join that it does not need, and their locks with them: then a
/// message that is acked meanwhile would be done twice.
async fn a_mark_on_mysql_waits_for_whoever_has_the_message(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let inbound = Inbound::new("s", "m", "t", "");
    inbox.enqueue(&inbound).await.unwrap();
    let owner = OwnerToken::new();
    let work_item = inbox.claim(owner, LEASE, 1).await.unwrap()[0].work_item_id;
    let id = InboxMessageId::new("s", "m");

    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let ack = inbox.ack_in(&mut transaction, owner, work_item.unwrap());
    ack.await.unwrap();
    let commit = async {
        fixture.somebody_waits_on_mysql().await;
        transaction.commit().await.unwrap();
    };
    let (moved, ()) = tokio::join!(inbox.mark_processed(&id), commit);

    assert!(!moved.unwrap(), "it was done before");
    assert_eq!(fixture.rows("inbox_done").await, 1);
}

/// Whoever frees leases does not wait for a message that somebody is just settling.
async fn a_reap_on_mysql_passes_over_what_somebody_holds(fixture: Fixture) {
    let ids = fixture.enqueue(3).await;
    let (owner, _) = fixture.claim(3).await;
    fixture.expire_leases().await;
    let mut connection = fixture.mysql().await;
    let mut transaction = testkit::mysql::begin(&mut connection).await;
    let outbox = fixture.room.outbox();
    let ack = outbox.ack_in(&mut transaction, owner, ids[1]);
    ack.await.unwrap();

    let reap = tokio::time::timeout(Duration::from_secs(8), outbox.reap());
    assert_eq!(reap.await.expect("nobody waits").unwrap(), 2);
    transaction.commit().await.unwrap();
    assert_eq!(outbox.counts().await.unwrap().done, 1);
    assert_eq!(fixture.claim(3).await.1, [ids[0], ids[2]]);
}

/// The server's limit is known before anything is sent, whichever way it would go, and the store is as good as
/// before. What fits comes back, though a row is more than its payload.
async fn a_payload_beyond_the_packets_of_mysql_is_refused_by_name(_: Fixture) {
    let (_server, fixture) = on_an_unkind_server().await;
    let limit = usize::try_from(fixture.number("SELECT @@max_allowed_packet").await).unwrap();
    // One connection has to serve for all of it.
    let room = fixture.options().connections(1).connect().await.unwrap();
    let outbox = room.outbox();
    let beyond = Message::new("a", "x".repeat(limit));
    let doubled = Message::new("a", "\\".repeat(limit / 2));
    let small = Message::new("a", "small");
    let inbound = Inbound::new("s", "m", "t", "x".repeat(limit));
    let errors = [
        outbox.enqueue(&beyond).await.unwrap_err(),
        outbox
            .enqueue_many(&[small.clone(), beyond])
            .await
            .unwrap_err(),
        outbox
            .enqueue_many(&[small.clone(), doubled])
            .await
            .unwrap_err(),
        room.inbox().enqueue(&inbound).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(
            error.kind(),
            ErrorKind::InvalidArgument { param: "payload" }
        );
    }
    assert_eq!(outbox.counts().await.unwrap().ready, 0);
    assert_eq!(fixture.rows("inbox_seen").await, 0);

    let largest = Message::new("a", "x".repeat(limit - 3_000)).header("h", "y".repeat(500));
    outbox.enqueue(&largest).await.unwrap();
    outbox.enqueue_many(&[small, largest]).await.unwrap();
    let claimed = outbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    let lengths: Vec<usize> = claimed
        .iter()
        .map(|message| message.payload.len())
        .collect();
    assert_eq!(lengths, [limit - 3_000, 5, limit - 3_000]);
}

/// A store on a server of its own, whose settings are as far from ours as they may be.
async fn on_an_unkind_server() -> (Server, Fixture) {
    let options = [
        "--sql-mode=NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PAD_CHAR_TO_FULL_LENGTH",
        "--character-set-server=latin1",
        "--skip-character-set-client-handshake",
        "--transaction-isolation=SERIALIZABLE",
        "--max-allowed-packet=4M",
    ];
    let start = move || Server::start_with(Durability::Off, &options);
    let server = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let url = testkit::mysql::fresh_database(server.url()).await;
    let room = Options::new(&url).deploy(true).connect().await.unwrap();
    (server, Fixture::at(Backend::MySql, room, &url, None))
}

testkit::mount!(
    sqlite: callers_of_sqlite_that_wait_together_share_a_commit,
    opening_a_file_of_sqlite_waits_for_its_writer;
    postgres: a_claim_of_fresh_messages_touches_no_index_of_postgres,
    a_claim_never_scans_the_table_though_its_plan_was_made_while_it_was_empty,
    a_claim_reads_a_bounded_number_of_pages_of_a_table_never_analyzed,
    a_dispatcher_acks_without_a_look_into_the_index_of_postgres,
    done_messages_go_to_the_partition_of_their_day,
    the_newest_of_a_large_archive_are_listed_without_reading_all_of_it;
    mysql: a_claim_of_mysql_locks_what_it_takes_and_nothing_else,
    a_claim_of_mysql_walks_the_ready_index_without_a_sort,
    names_of_mysql_differ_by_case_and_by_trailing_spaces,
    the_time_zone_of_mysql_does_not_matter,
    a_deployment_on_mysql_that_broke_off_is_run_again,
    every_text_arrives_on_mysql_as_it_was_sent,
    an_open_transaction_that_adds_a_step_on_mysql_does_not_hold_up_its_join,
    a_cleanup_of_joins_on_mysql_passes_over_one_that_gets_a_step,
    a_mark_on_mysql_waits_for_whoever_has_the_message,
    a_reap_on_mysql_passes_over_what_somebody_holds,
    a_payload_beyond_the_packets_of_mysql_is_refused_by_name,
);
