//! SQLite on threads of our own: one that writes, one that reads.
//!
//! The writer takes everything that is waiting into one transaction (group commit): a hundred callers
//! pay for one fsync. Each call runs in a savepoint, so that one that fails undoes only itself, and
//! nobody gets an answer before the commit.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql};
use tokio::sync::oneshot;

use crate::db::{BoxFuture, Database, Output};
use crate::error::{Error, ErrorKind};
use crate::migrate::{FUNCTIONS_VERSION, Plan};
use crate::options::{Options, Synchronous};
use crate::sql::{Call, Dialect, Part, Row, Script, Value, as_json, statements};

/// A write-ahead-log bug before this version can corrupt a database that several processes use.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// How long a writer waits for the writers of other processes.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// How many callers share one commit at most.
const GROUP_LIMIT: usize = 1024;

pub(crate) struct Sqlite {
    writer: mpsc::Sender<Job>,
    /// A database in memory has only one connection.
    reader: Option<mpsc::Sender<Job>>,
}

enum Job {
    Run {
        calls: Vec<Call>,
        reply: oneshot::Sender<Result<Output, Error>>,
    },
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
}

impl Sqlite {
    /// Opens the file, creating it if need be, and starts the threads.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        if rusqlite::version_number() < OLDEST_LIBRARY {
            return Err(ErrorKind::Database.with(format!(
                "SQLite {} is too old: 3.51.3 or later is needed",
                rusqlite::version()
            )));
        }
        let path = Path::parse(&options.url)?;
        let writer = path.open(options, false)?;
        let reader = match path {
            Path::Memory => None,
            Path::File(_) => Some(spawn(
                "postroom-sqlite-read",
                path.open(options, true)?,
                read_loop,
            )?),
        };
        Ok(Self {
            writer: spawn("postroom-sqlite-write", writer, write_loop)?,
            reader,
        })
    }

    async fn send(&self, to: &mpsc::Sender<Job>, calls: Vec<Call>) -> Result<Output, Error> {
        let (reply, answer) = oneshot::channel();
        to.send(Job::Run { calls, reply }).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    async fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Alone(Box::new(move |connection| {
            let _ = reply.send(work(connection));
        }));
        self.writer.send(job).map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

fn stopped() -> Error {
    ErrorKind::Transient.with("the SQLite thread has stopped")
}

impl Database for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(self.send(&self.writer, calls))
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(self.send(self.reader.as_ref().unwrap_or(&self.writer), vec![call]))
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.alone(move |connection| {
            for part in scripts.iter().flat_map(|script| &script.parts) {
                connection
                    .prepare(&part.sql)
                    .map_err(|error| database_error(&error))?;
            }
            Ok(())
        }))
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.alone(move |connection| deploy(connection, &plan)))
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(
            self.alone(move |connection| match versions(connection, &plan) {
                Err(error) if error.kind() == ErrorKind::Schema => Ok(None),
                other => other.map(Some),
            }),
        )
    }
}

/// What a `sqlite:` URL names.
enum Path {
    File(PathBuf),
    Memory,
}

impl Path {
    fn parse(url: &str) -> Result<Self, Error> {
        let path = url.strip_prefix("sqlite:").unwrap_or(url);
        let path = path.strip_prefix("//").unwrap_or(path);
        match path {
            "" => Err(ErrorKind::InvalidArgument { param: "url" }
                .with("name a file, as in `sqlite:app.db`, or `sqlite::memory:`")),
            ":memory:" => Ok(Self::Memory),
            path => Ok(Self::File(PathBuf::from(path))),
        }
    }

    fn open(&self, options: &Options, read_only: bool) -> Result<Connection, Error> {
        let flags = if read_only {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match self {
            Self::File(path) => Connection::open_with_flags(path, flags),
            Self::Memory => Connection::open_in_memory(),
        }
        .map_err(|error| database_error(&error))?;
        configure(&connection, options, read_only).map_err(|error| database_error(&error))?;
        Ok(connection)
    }
}

fn configure(connection: &Connection, options: &Options, read_only: bool) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_for_other_writers))?;
    connection.set_prepared_statement_cache_capacity(256);
    if !read_only {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        let synchronous = match options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        // Rarer, longer checkpoints: the slowest claims become eight times faster.
        connection.pragma_update(None, "wal_autocheckpoint", 20_000)?;
        connection.pragma_update(None, "foreign_keys", true)?;
    }
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.execute_batch(include_str!("../sql/sqlite/connection.sql"))
}

/// SQLite's own handler sleeps longer and longer, so that whoever waited longest asks least often.
/// This one asks at a steady, short and uneven pace.
fn wait_for_other_writers(tries: i32) -> bool {
    let pace = Duration::from_micros(300 + u64::from(std::process::id() % 7) * 60);
    let waited = pace.saturating_mul(u32::try_from(tries).unwrap_or(0));
    thread::sleep(pace);
    waited < BUSY_LIMIT
}

fn spawn(
    name: &str,
    connection: Connection,
    work: fn(Connection, &mpsc::Receiver<Job>),
) -> Result<mpsc::Sender<Job>, Error> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(connection, &receiver))
        .map_err(|_| ErrorKind::Database.with("no thread could be started for SQLite"))?;
    Ok(sender)
}

fn read_loop(mut connection: Connection, jobs: &mpsc::Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Alone(work) => work(&mut connection),
            Job::Run { calls, reply } => {
                let result = connection
                    .unchecked_transaction()
                    .map_err(|error| database_error(&error))
                    .and_then(|_snapshot| run_calls(&connection, &calls));
                let _ = reply.send(result);
            }
        }
    }
}

fn write_loop(mut connection: Connection, jobs: &mpsc::Receiver<Job>) {
    let mut others = OtherWriters::default();
    let mut held: Option<Job> = None;
    while let Some(job) = held.take().or_else(|| jobs.recv().ok()) {
        match job {
            Job::Alone(work) => work(&mut connection),
            Job::Run { calls, reply } => {
                held = commit_group(&mut connection, calls, reply, jobs);
                others.give_way(&connection);
            }
        }
    }
}

/// Runs the first job and all that are waiting behind it in one transaction, then answers them all.
/// Gives back a job that needs the connection for itself.
fn commit_group(
    connection: &mut Connection,
    calls: Vec<Call>,
    reply: oneshot::Sender<Result<Output, Error>>,
    jobs: &mpsc::Receiver<Job>,
) -> Option<Job> {
    if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
        let _ = reply.send(Err(database_error(&error)));
        return None;
    }
    let mut answers = vec![(run_in_savepoint(connection, &calls), reply)];
    let mut alone = None;
    // SQLite may undo the whole transaction in the middle, when the disk is full or fails. To go on would
    // be to write outside of it.
    while answers.len() < GROUP_LIMIT && !connection.is_autocommit() {
        match jobs.try_recv() {
            Ok(Job::Run { calls, reply }) => {
                answers.push((run_in_savepoint(connection, &calls), reply))
            }
            Ok(job @ Job::Alone(_)) => {
                alone = Some(job);
                break;
            }
            Err(_) => break,
        }
    }
    let committed = if connection.is_autocommit() {
        let error = answers
            .last()
            .and_then(|(answer, _)| answer.as_ref().err().cloned());
        Err(error.unwrap_or_else(|| ErrorKind::Transient.with("SQLite has undone the transaction")))
    } else {
        connection.execute_batch("COMMIT").map_err(|error| {
            let _ = connection.execute_batch("ROLLBACK");
            database_error(&error)
        })
    };
    for (answer, reply) in answers {
        let _ = reply.send(match &committed {
            Ok(()) => answer,
            Err(error) => Err(error.clone()),
        });
    }
    alone
}

fn run_in_savepoint(connection: &Connection, calls: &[Call]) -> Result<Output, Error> {
    let savepoint = |text: &str| connection.prepare_cached(text)?.execute([]).map(drop);
    savepoint("SAVEPOINT call").map_err(|error| database_error(&error))?;
    let result = run_calls(connection, calls);
    if connection.is_autocommit() {
        return result;
    }
    if result.is_err() {
        savepoint("ROLLBACK TO call").map_err(|error| database_error(&error))?;
    }
    savepoint("RELEASE call").map_err(|error| database_error(&error))?;
    result
}

fn run_calls(connection: &Connection, calls: &[Call]) -> Result<Output, Error> {
    let mut output = Output::default();
    for call in calls {
        let mut changed = true;
        for (index, part) in call.script.parts.iter().enumerate() {
            if part.if_changed && !changed {
                continue;
            }
            let before = connection.total_changes();
            run_part(connection, part, &call.values, &mut output.rows)
                .map_err(|error| database_error(&error))?;
            let now_changed = connection.total_changes() - before;
            output.changed.push(now_changed);
            if index == 0 {
                Call::check(call.needs, now_changed)?;
            }
            if !part.if_changed {
                changed = now_changed > 0;
            }
        }
    }
    Ok(output)
}

fn run_part(
    connection: &Connection,
    part: &Part,
    values: &[Value],
    rows: &mut Vec<Row>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&part.sql)?;
    for (position, &index) in part.values.iter().enumerate() {
        statement.raw_bind_parameter(position + 1, &values[index])?;
    }
    let columns = statement.column_count();
    let mut cursor = statement.raw_query();
    while let Some(row) = cursor.next()? {
        let mut decoded = Vec::with_capacity(columns);
        for index in 0..columns {
            decoded.push(match row.get_ref(index)? {
                ValueRef::Null => Value::Int(None),
                ValueRef::Integer(value) => Value::Int(Some(value)),
                ValueRef::Text(text) => {
                    Value::Text(Some(String::from_utf8_lossy(text).into_owned()))
                }
                ValueRef::Blob(bytes) => Value::Bytes(Some(bytes.to_vec())),
                ValueRef::Real(_) => {
                    return Err(rusqlite::Error::InvalidColumnType(
                        index,
                        String::new(),
                        rusqlite::types::Type::Real,
                    ));
                }
            });
        }
        rows.push(Row::new(decoded));
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text =
            |text: &'_ str| ToSqlOutput::Owned(rusqlite::types::Value::Text(text.to_owned()));
        Ok(match self {
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) | Self::Uuid(None) => {
                ToSqlOutput::Borrowed(ValueRef::Null)
            }
            Self::Int(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Self::Text(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Self::Bytes(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            Self::Uuid(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Blob(value.as_bytes())),
            Self::Ints(_) | Self::Texts(_) | Self::Uuids(_) => {
                text(&as_json(self).unwrap_or_default())
            }
        })
    }
}

/// Whether other processes write to the file too. SQLite gives the lock to whoever asks at the right
/// moment; a writer that never pauses would keep it from all others.
#[derive(Default)]
struct OtherWriters {
    version: i64,
    last_seen: Option<Instant>,
}

impl OtherWriters {
    fn give_way(&mut self, connection: &Connection) {
        let version = connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
            .unwrap_or(self.version);
        if version != self.version {
            self.version = version;
            self.last_seen = Some(Instant::now());
        }
        if self
            .last_seen
            .is_some_and(|seen| seen.elapsed() < Duration::from_secs(1))
        {
            thread::sleep(Duration::from_micros(500));
        }
    }
}

fn deploy(connection: &mut Connection, plan: &Plan) -> Result<(), Error> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(|error| database_error(&error))?;
    transaction
        .execute_batch(&plan.create_versions)
        .map_err(|error| database_error(&error))?;
    let mut applied = versions(&transaction, plan)?;
    for view in plan.replaceable() {
        let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND name = ?1";
        let found = transaction
            .prepare_cached(exists)
            .and_then(|mut statement| statement.exists([view.trim_matches('"')]));
        if !found.map_err(|error| database_error(&error))? {
            applied.retain(|(version, _)| *version != FUNCTIONS_VERSION);
        }
    }
    for (version, name, checksum, sql) in plan.missing(&applied)? {
        for statement in statements(sql) {
            transaction
                .execute_batch(statement)
                .map_err(|error| database_error(&error))?;
        }
        transaction
            .execute(
                &plan.record_version,
                rusqlite::params![version, name, checksum],
            )
            .map_err(|error| database_error(&error))?;
        tracing::info!(version, name, "applied schema migration");
    }
    transaction.commit().map_err(|error| database_error(&error))
}

fn versions(connection: &Connection, plan: &Plan) -> Result<Vec<(i64, String)>, Error> {
    let query = || -> rusqlite::Result<Vec<(i64, String)>> {
        let mut statement = connection.prepare(&plan.select_versions)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    query().map_err(|error| database_error(&error))
}

/// SQLite's messages name tables and columns, never values.
pub(crate) fn database_error(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let (failure, message) = match error {
        rusqlite::Error::SqliteFailure(failure, message) => (failure, message.clone()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (error, Some(msg.clone())),
        _ => {
            return ErrorKind::Database
                .with("the SQLite client could not encode or decode a value");
        }
    };
    let message = message.unwrap_or_else(|| failure.to_string());
    let error = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OperationInterrupted => {
            ErrorKind::Transient.with(message)
        }
        ErrorCode::ConstraintViolation
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE =>
        {
            ErrorKind::AlreadyExists { what: "work item" }.with("this id was enqueued before")
        }
        ErrorCode::ConstraintViolation
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
        {
            ErrorKind::NotFound { what: "join" }.with("no join has this id")
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::DiskFull => {
            ErrorKind::Transient.with(message)
        }
        _ if message.starts_with("no such ") || message.contains(" has no column named ") => {
            ErrorKind::Schema.with(format!(
                "{message}; run `deploy()` or `postroom schema deploy`"
            ))
        }
        _ => ErrorKind::Database.with(message),
    };
    error.with_code(failure.extended_code.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synchronous(options: &Options) -> i64 {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let connection = Path::File(folder.path().join("test.db"))
            .open(options, false)
            .expect("open");
        connection
            .query_row("PRAGMA synchronous", [], |row| row.get(0))
            .expect("a number")
    }

    #[test]
    fn every_commit_reaches_the_disk_unless_told_otherwise() {
        assert_eq!(synchronous(&Options::new("sqlite:test.db")), 2, "FULL");
        assert_eq!(
            synchronous(&Options::new("sqlite:test.db").synchronous(Synchronous::Normal)),
            1,
            "NORMAL"
        );
    }
}
