//! Diagnosis: each cause is made real, and named; a healthy store has none.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::{Cause, Diagnosis, Finding, Inbound, Message, Postroom, Severity};
use testkit::mysql::Server;
use testkit::server::Durability;
use testkit::{Backend, Fixture, eventually};

/// What other tests leave on the shared server is not this store's illness: sessions come and go there.
const PATIENT: Duration = Duration::from_secs(3600);

async fn causes(room: &Postroom, diagnosis: &Diagnosis) -> Vec<Cause> {
    let findings = room.diagnose_with(diagnosis).await.unwrap();
    findings.iter().map(|finding| finding.cause).collect()
}

async fn only(room: &Postroom, diagnosis: &Diagnosis) -> Finding {
    let findings = room.diagnose_with(diagnosis).await.unwrap();
    let [finding] = findings.as_slice() else {
        panic!("one finding, got {findings:?}");
    };
    finding.clone()
}

/// The finding whose summary has this in it.
async fn naming(room: &Postroom, name: &str, patience: Duration) -> Option<Finding> {
    let diagnosis = Diagnosis::default().patience(patience);
    let findings = room.diagnose_with(&diagnosis).await.unwrap();
    let mut findings = findings.into_iter();
    findings.find(|finding| finding.summary.contains(name))
}

/// An extension: no requirement asks for it.
async fn a_healthy_store_has_no_findings(fixture: Fixture) {
    let room = &fixture.room;
    let patient = Diagnosis::default().patience(PATIENT);
    assert_eq!(room.diagnose_with(&patient).await.unwrap(), []);
    fixture.enqueue(3).await;
    room.inbox()
        .enqueue(&Inbound::new("s", "1", "hook", ""))
        .await
        .unwrap();
    fixture.claim(1).await;
    assert_eq!(room.diagnose_with(&patient).await.unwrap(), []);
    let patient = patient.topics(["order.created", "hook"]);
    assert_eq!(room.diagnose_with(&patient).await.unwrap(), []);
}

/// An extension: no requirement asks for it.
async fn work_of_an_unknown_topic_is_named(fixture: Fixture) {
    let room = &fixture.room;
    fixture.enqueue(3).await;
    room.inbox()
        .enqueue(&Inbound::new("s", "1", "hook", ""))
        .await
        .unwrap();
    let patient = Diagnosis::default().patience(PATIENT);

    let finding = only(room, &patient.clone().topics(["hook"])).await;
    assert_eq!(finding.cause, Cause::UnhandledWork);
    assert_eq!(finding.severity, Severity::Warning);
    assert!(
        finding.summary.contains("3 messages")
            && finding.summary.contains("`order.created`")
            && finding.summary.contains("outbox"),
        "{}",
        finding.summary
    );
    let finding = only(room, &patient.topics(["order.created"])).await;
    assert!(
        finding.summary.contains("1 message of the topic `hook` is"),
        "{}",
        finding.summary
    );
}

/// A dispatcher without a handler hands a message back again and again.
///
/// An extension: no requirement asks for it.
async fn work_that_is_handed_back_for_want_of_a_handler_is_named(fixture: Fixture) {
    let room = &fixture.room;
    let (owner, id) = fixture.enqueue_and_claim().await;
    let later = postroom::Abandon::after(Duration::from_secs(60));
    room.outbox().abandon(owner, &[id], later).await.unwrap();

    let diagnosis = Diagnosis::default().patience(PATIENT).topics(["other"]);
    assert_eq!(only(room, &diagnosis).await.cause, Cause::UnhandledWork);
}

/// An extension: no requirement asks for it.
async fn work_that_nobody_has_ever_claimed_is_named(fixture: Fixture) {
    let room = &fixture.room;
    fixture.enqueue(2).await;
    let diagnosis = Diagnosis::default().patience(PATIENT);
    fixture.age("outbox", "next_attempt_at", 4 * PATIENT).await;
    assert_eq!(causes(room, &diagnosis).await, [], "not yet too long");

    fixture.age("outbox", "next_attempt_at", 2 * PATIENT).await;
    let finding = only(room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::UnhandledWork);
    assert_eq!(finding.severity, Severity::Critical);
    assert!(finding.summary.contains("6 hours"), "{}", finding.summary);

    fixture.claim(1).await;
    assert_eq!(
        causes(room, &diagnosis).await,
        [],
        "somebody is working this topic off"
    );
}

/// An extension: no requirement asks for it.
async fn leases_that_nobody_has_taken_over_are_named(fixture: Fixture) {
    let room = &fixture.room;
    fixture.enqueue(2).await;
    fixture.claim(2).await;
    let patient = Diagnosis::default().patience(PATIENT);
    assert_eq!(causes(room, &patient).await, []);

    fixture.expire_leases().await;
    let finding = only(room, &patient).await;
    assert_eq!(finding.cause, Cause::ExpiredLeases);
    assert!(
        finding.summary.contains("2 messages of the outbox are"),
        "{}",
        finding.summary
    );
    room.outbox().reap().await.unwrap();
    assert_eq!(causes(room, &patient).await, []);
}

/// An extension: no requirement asks for it.
async fn an_index_that_was_dropped_is_named(fixture: Fixture) {
    let drop = match fixture.backend {
        Backend::MySql => "DROP INDEX outbox_ready ON {outbox}",
        _ => "DROP INDEX {outbox_ready}",
    };
    fixture.sql(drop).await;

    let diagnosis = Diagnosis::default().patience(PATIENT);
    let finding = only(&fixture.room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::MissingIndex);
    assert_eq!(finding.severity, Severity::Critical);
    assert!(
        finding.summary.contains("outbox_ready") && finding.summary.contains("missing"),
        "{}",
        finding.summary
    );
}

/// An extension: no requirement asks for it.
async fn a_schema_that_is_not_there_is_named(fixture: Fixture) {
    let empty = Fixture::empty(fixture.backend).await;
    let finding = only(&empty.room, &Diagnosis::default()).await;
    assert_eq!(
        (finding.cause, finding.severity),
        (Cause::Schema, Severity::Critical)
    );
    assert!(
        finding.summary.contains("nothing is deployed"),
        "{}",
        finding.summary
    );

    fixture
        .sql("ALTER TABLE {inbox_dead} RENAME TO inbox_gone")
        .await;
    let findings = fixture.room.diagnose(&[]).await.unwrap();
    assert!(
        findings
            .iter()
            .any(|finding| finding.cause == Cause::Schema
                && finding.summary.contains("inbox_dead")),
        "{findings:?}"
    );
}

/// An extension: no requirement asks for it.
async fn a_file_that_is_mostly_free_space_is_named(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let big = vec![Message::new("big", "x".repeat(20_000)); 200];
    outbox.enqueue_many(&big).await.unwrap();
    let diagnosis = Diagnosis::default().growth(2 * 1024 * 1024);
    fixture.sql("PRAGMA wal_checkpoint(TRUNCATE)").await;
    assert_eq!(causes(&fixture.room, &diagnosis).await, []);

    fixture.sql("DELETE FROM {outbox}").await;
    fixture.sql("PRAGMA wal_checkpoint(TRUNCATE)").await;
    let finding = only(&fixture.room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::GrowingTable);
    assert!(
        finding.summary.contains("free space"),
        "{}",
        finding.summary
    );
    assert_eq!(
        fixture.room.diagnose(&[]).await.unwrap(),
        [],
        "a little is no trouble"
    );
}

/// An extension: no requirement asks for it.
async fn a_log_that_a_reader_keeps_from_being_emptied_is_named(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let reader = fixture.sqlite();
    reader.execute_batch("BEGIN").unwrap();
    let _: i64 = reader
        .query_row("SELECT count(*) FROM outbox", [], |row| row.get(0))
        .unwrap();
    let big = vec![Message::new("big", "x".repeat(20_000)); 200];
    outbox.enqueue_many(&big).await.unwrap();

    let diagnosis = Diagnosis::default().growth(2 * 1024 * 1024);
    let finding = only(&fixture.room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::GrowingTable);
    assert!(
        finding.summary.contains("write-ahead log"),
        "{}",
        finding.summary
    );
}

/// An extension: no requirement asks for it.
async fn an_index_that_was_not_built_to_its_end_is_named(fixture: Fixture) {
    fixture
        .sql(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{outbox_dead_time}'::regclass",
        )
        .await;

    let diagnosis = Diagnosis::default().patience(PATIENT);
    let finding = only(&fixture.room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::MissingIndex);
    assert!(finding.summary.contains("invalid"), "{}", finding.summary);
    assert!(finding.advice.contains("REINDEX"), "{}", finding.advice);
}

/// An extension: no requirement asks for it.
async fn a_session_that_holds_a_snapshot_is_named_without_its_query(fixture: Fixture) {
    let holder = fixture.postgres().await;
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'secret'")
        .await
        .unwrap();
    let pid: i32 = holder
        .query_one("SELECT pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let named = format!("session of process {pid} (idle in transaction)");
    let found = async |patience| naming(&fixture.room, &named, patience).await;

    let finding = eventually(|| found(Duration::from_millis(50))).await;
    assert_eq!(finding.cause, Cause::HeldSnapshot);
    assert!(
        finding.advice.contains(&pid.to_string()),
        "{}",
        finding.advice
    );
    assert!(!finding.summary.contains("secret"), "{}", finding.summary);
    assert_eq!(found(PATIENT).await, None, "not yet too long");
    holder.batch_execute("COMMIT").await.unwrap();
    assert_eq!(found(Duration::from_millis(50)).await, None);
}

/// An extension: no requirement asks for it.
async fn a_transaction_of_mysql_that_stays_open_is_named_without_its_query(fixture: Fixture) {
    let mut holder = fixture.mysql().await;
    let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT; SELECT 'secret'";
    holder.query_drop(begin).await.unwrap();
    let named = format!("session of process {} (sleep)", holder.id());
    let found = async |patience| {
        // The server gives the same answer again to whoever asks more often than every 0.1 seconds.
        tokio::time::sleep(Duration::from_millis(150)).await;
        naming(&fixture.room, &named, patience).await
    };

    let finding = eventually(|| found(Duration::from_millis(50))).await;
    assert_eq!(finding.cause, Cause::HeldSnapshot);
    let kill = format!("KILL {}", holder.id());
    assert!(finding.advice.contains(&kill), "{}", finding.advice);
    assert!(!finding.summary.contains("secret"), "{}", finding.summary);
    assert_eq!(found(PATIENT).await, None, "not yet too long");
    holder.query_drop("COMMIT").await.unwrap();
    let gone = async || {
        let held = found(Duration::from_millis(50)).await;
        held.is_none().then_some(())
    };
    eventually(gone).await;
}

/// A user who may not see what others do gets to know everything else. Its clock is made to differ when it
/// connects, which the server does to users without special rights only.
///
/// An extension: no requirement asks for it.
async fn a_clock_that_differs_is_named_to_a_user_of_few_rights(_: Fixture) {
    let options = ["--init-connect=SET timestamp = UNIX_TIMESTAMP() + 42"];
    let start = move || Server::start_with(Durability::Off, &options);
    let server = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
    let mut owner = mysql_async::Conn::from_url(server.url()).await.unwrap();
    owner
        .query_drop("CREATE USER shop@'%'; GRANT ALL ON postroom.* TO shop@'%'")
        .await
        .unwrap();
    let url = server.url().replace("//postroom@", "//shop@");
    let options = postroom::Options::new(&url).deploy(true);
    let room = options.connect().await.unwrap();

    owner
        .query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        .await
        .unwrap();
    let impatient = Diagnosis::default().patience(Duration::ZERO);
    let finding = only(&room, &impatient).await;
    assert_eq!(finding.cause, Cause::ClockDifference);
    assert!(
        finding.summary.contains("ahead") && finding.summary.contains("4"),
        "{}",
        finding.summary
    );
}

/// The database's clock is made to differ by a function of the same name that is found first.
///
/// An extension: no requirement asks for it.
async fn a_clock_that_differs_is_named(fixture: Fixture) {
    fixture
        .sql(
            "CREATE FUNCTION {clock_timestamp}() RETURNS timestamptz LANGUAGE sql \
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '42 seconds' $$",
        )
        .await;
    let schema = fixture.schema.clone().unwrap();
    let separator = if fixture.url.contains('?') { '&' } else { '?' };
    let url = format!(
        "{}{separator}options=-csearch_path%3D{schema}%2Cpg_catalog",
        fixture.url
    );
    let room = postroom::Options::new(&url)
        .schema(&schema)
        .connect()
        .await
        .unwrap();

    let diagnosis = Diagnosis::default().patience(PATIENT);
    let finding = only(&room, &diagnosis).await;
    assert_eq!(finding.cause, Cause::ClockDifference);
    assert!(
        finding.summary.contains("ahead") && finding.summary.contains("4"),
        "{}",
        finding.summary
    );
}

/// An extension: no requirement asks for it.
async fn a_table_that_no_vacuum_comes_to_is_named(fixture: Fixture) {
    fixture
        .sql(
            "ALTER TABLE {outbox} SET (autovacuum_enabled = off); \
             INSERT INTO {outbox} (id, message_id, topic, payload) \
             SELECT gen_random_uuid(), gen_random_uuid(), 'a', '' FROM generate_series(1, 25000); \
             DELETE FROM {outbox}",
        )
        .await;

    let diagnosis = Diagnosis::default().patience(PATIENT);
    let finding = eventually(async || {
        let findings = fixture.room.diagnose_with(&diagnosis).await.unwrap();
        findings.into_iter().next()
    })
    .await;
    assert_eq!(finding.cause, Cause::GrowingTable);
    assert!(
        finding.summary.contains("outbox has 25000 dead rows")
            && finding.summary.contains("no vacuum has ever come"),
        "{}",
        finding.summary
    );
}

testkit::mount!(
    sqlite: a_healthy_store_has_no_findings,
    work_of_an_unknown_topic_is_named,
    work_that_is_handed_back_for_want_of_a_handler_is_named,
    work_that_nobody_has_ever_claimed_is_named,
    leases_that_nobody_has_taken_over_are_named,
    an_index_that_was_dropped_is_named,
    a_schema_that_is_not_there_is_named,
    a_file_that_is_mostly_free_space_is_named,
    a_log_that_a_reader_keeps_from_being_emptied_is_named;
    postgres: a_healthy_store_has_no_findings,
    work_of_an_unknown_topic_is_named,
    work_that_is_handed_back_for_want_of_a_handler_is_named,
    work_that_nobody_has_ever_claimed_is_named,
    leases_that_nobody_has_taken_over_are_named,
    an_index_that_was_dropped_is_named,
    a_schema_that_is_not_there_is_named,
    an_index_that_was_not_built_to_its_end_is_named,
    a_session_that_holds_a_snapshot_is_named_without_its_query,
    a_clock_that_differs_is_named,
    a_table_that_no_vacuum_comes_to_is_named;
    mysql: a_healthy_store_has_no_findings,
    work_of_an_unknown_topic_is_named,
    work_that_is_handed_back_for_want_of_a_handler_is_named,
    work_that_nobody_has_ever_claimed_is_named,
    leases_that_nobody_has_taken_over_are_named,
    an_index_that_was_dropped_is_named,
    a_schema_that_is_not_there_is_named,
    a_transaction_of_mysql_that_stays_open_is_named_without_its_query,
    a_clock_that_differs_is_named_to_a_user_of_few_rights;
    sqlserver: work_of_an_unknown_topic_is_named,
    work_that_is_handed_back_for_want_of_a_handler_is_named,
    work_that_nobody_has_ever_claimed_is_named,
    leases_that_nobody_has_taken_over_are_named,
);
