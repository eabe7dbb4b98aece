//! A look at SQL Server behind a store's back. No server can be started here: it is the one that a variable
//! names, and each test has a schema of its own there.
//!
//! Tests speak of tables and columns as the other databases call them. Views in a second schema show the
//! store in these words; they are simple enough to be written through.

use tiberius::{ColumnData, Config, Row};
use tokio::net::TcpStream;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt as _};

/// Where a test run says that a SQL Server is: `sqlserver://USER:PASSWORD@HOST:PORT/DATABASE?…`, as a store
/// takes it.
pub const URL_VARIABLE: &str = "POSTROOM_TEST_MSSQL_URL";

/// The clock, as a query.
pub(crate) const NOW: &str = "SELECT DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())";

/// tiberius' client, on a socket of tokio's.
pub type Client = tiberius::Client<Compat<TcpStream>>;

/// The server that is named, if one is.
#[must_use]
pub fn url() -> Option<String> {
    std::env::var(URL_VARIABLE)
        .ok()
        .filter(|url| !url.is_empty())
}

/// A connection of the test's own.
///
/// # Panics
/// When the server cannot be reached.
pub async fn client(url: &str) -> Client {
    let config = config(url);
    let socket = TcpStream::connect(config.get_addr())
        .await
        .expect("connect");
    socket.set_nodelay(true).expect("no delay");
    Client::connect(config, socket.compat_write())
        .await
        .expect("login")
}

/// The parts of a URL that tests use. Whoever names a server for tests is trusted to know it.
fn config(url: &str) -> Config {
    let (_, rest) = url.split_once("://").expect("a URL");
    let rest = rest.split('?').next().unwrap_or(rest);
    let (user, place) = rest.rsplit_once('@').expect("a user");
    let (user, password) = user.split_once(':').expect("a password");
    let (address, database) = place.split_once('/').expect("a database");
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "1433"));
    let mut config = Config::new();
    config.host(host);
    config.port(port.parse().expect("a port"));
    config.database(database);
    config.authentication(tiberius::AuthMethod::sql_server(user, password));
    config.trust_cert();
    if url.ends_with("?encrypt=off") {
        config.encryption(tiberius::EncryptionLevel::NotSupported);
    }
    config
}

async fn query(url: &str, sql: &str) -> Result<Vec<Row>, String> {
    let mut client = client(url).await;
    let answer = client
        .simple_query(sql)
        .await
        .map_err(|error| error.to_string())?;
    let results = answer
        .into_results()
        .await
        .map_err(|error| error.to_string())?;
    Ok(results.into_iter().flatten().collect())
}

/// Runs a script, batch by batch.
pub(crate) async fn run(url: &str, sql: &str) -> Result<(), String> {
    for batch in sql.split("\nGO\n") {
        query(url, batch.trim_end_matches("\nGO")).await?;
    }
    Ok(())
}

pub(crate) async fn number(url: &str, sql: &str) -> i64 {
    let rows = query(url, sql).await.expect("a number");
    let row = rows.into_iter().next().expect("a row");
    match row.into_iter().next() {
        Some(ColumnData::I64(Some(value))) => value,
        Some(ColumnData::I32(Some(value))) => value.into(),
        Some(ColumnData::I16(Some(value))) => value.into(),
        Some(ColumnData::U8(Some(value))) => value.into(),
        Some(ColumnData::Bit(Some(value))) => value.into(),
        other => panic!("not a number: {other:?}"),
    }
}

pub(crate) async fn texts(url: &str, sql: &str) -> Vec<String> {
    let rows = query(url, sql).await.expect("sql").into_iter();
    rows.map(|row| row.get::<&str, _>(0).expect("a text").to_owned())
        .collect()
}

/// How the server would run a query.
pub(crate) async fn plan(url: &str, sql: &str) -> String {
    let mut client = client(url).await;
    for batch in ["SET SHOWPLAN_TEXT ON", sql] {
        let answer = client.simple_query(batch).await.expect("sql");
        let results = answer.into_results().await.expect("sql");
        if batch == sql {
            let rows = results.iter().flatten();
            let lines: Vec<&str> = rows.filter_map(|row| row.get(0)).collect();
            return lines.join("\n");
        }
    }
    String::new()
}

/// A time, in SQL. A number that is added to a date has 31 bits.
pub(crate) fn time(micros: i64) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    let (days, seconds) = (seconds / 86_400, seconds % 86_400);
    format!(
        "DATEADD(MICROSECOND, {rest}, DATEADD(SECOND, {seconds}, DATEADD(DAY, {days}, CAST('19700101' AS datetime2(7)))))"
    )
}

/// What tests call a table: one of our views, or a table of their own.
pub(crate) fn table(schema: &str, name: &str) -> String {
    if VIEWS.contains(&format!("].[{name}] AS")) {
        format!("[{schema}_look].[{name}]")
    } else {
        format!("[{schema}].[{name}]")
    }
}

const VIEWS: &str = include_str!("sqlserver.sql");

/// Makes the views of one store.
pub(crate) async fn make_views(url: &str, schema: &str) {
    let views = VIEWS.replace("{schema}", schema);
    run(url, &views).await.expect("views");
}

/// The table behind a view, and the condition that its rows meet.
fn behind(table: &str) -> (&'static str, &'static str) {
    match table {
        "outbox" => ("Outbox", "Status < 2"),
        "outbox_done" => ("Outbox", "Status = 2"),
        "outbox_dead" => ("Outbox", "Status = 3"),
        "inbox" => ("Inbox", "Status = 'Processing'"),
        "inbox_seen" => ("Inbox", "Status = 'Seen'"),
        "inbox_done" => ("Inbox", "Status = 'Done'"),
        "inbox_dead" => ("Inbox", "Status = 'Dead'"),
        "outbox_join" => ("OutboxJoin", "1 = 1"),
        "outbox_join_member" => ("OutboxJoinMember", "1 = 1"),
        "outbox_join_wait" => ("OutboxJoinWait", "1 = 1"),
        "outbox_key" => ("OutboxKey", "1 = 1"),
        "outbox_audit" => ("OutboxAudit", "1 = 1"),
        other => panic!("no table {other}"),
    }
}

/// Makes the server refuse what would put a row into this table, change one in it, or take one out.
pub(crate) fn refuse(schema: &str, operation: &str, table: &str) -> String {
    let (behind, condition) = behind(table);
    let name = format!("refuse_{}", operation.to_lowercase());
    // A message that is done was updated, not inserted.
    let (event, rows) = match (
        operation,
        table.ends_with("_done") || table.ends_with("_dead"),
    ) {
        ("INSERT", true) => ("INSERT, UPDATE", "inserted"),
        ("DELETE", false) => ("DELETE, UPDATE", "deleted"),
        ("DELETE", true) => ("DELETE", "deleted"),
        _ => (operation, "inserted"),
    };
    format!(
        "CREATE TRIGGER [{schema}].[{name}] ON [{schema}].[{behind}] AFTER {event} AS \
         IF EXISTS (SELECT 1 FROM {rows} WHERE {condition}) THROW 50001, 'refused', 1"
    )
}

pub(crate) fn columns(schema: &str, table: &str) -> String {
    format!(
        "SELECT c.name FROM sys.columns AS c WHERE c.object_id = OBJECT_ID('[{schema}_look].[{table}]') ORDER BY c.column_id"
    )
}

pub(crate) fn indexes(schema: &str, table: &str) -> String {
    let (behind, _) = behind(table);
    format!(
        "SELECT STRING_AGG(c.name, ', ') WITHIN GROUP (ORDER BY k.key_ordinal) FROM sys.index_columns AS k \
         JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id \
         WHERE k.object_id = OBJECT_ID('[{schema}].[{behind}]') AND k.is_included_column = 0 GROUP BY k.index_id"
    )
}

pub(crate) fn references(schema: &str, table: &str) -> String {
    let (behind, _) = behind(table);
    format!(
        "SELECT CASE OBJECT_NAME(f.referenced_object_id) WHEN 'OutboxJoin' THEN 'outbox_join' \
         ELSE OBJECT_NAME(f.referenced_object_id) END FROM sys.foreign_keys AS f \
         WHERE f.parent_object_id = OBJECT_ID('[{schema}].[{behind}]')"
    )
}

pub(crate) fn tables(schema: &str) -> String {
    format!(
        "SELECT t.name FROM sys.tables AS t WHERE t.schema_id = SCHEMA_ID('{schema}') ORDER BY t.name"
    )
}
