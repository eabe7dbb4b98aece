//! SQLite: one connection that writes (`writer.rs`) and one that reads, each with a thread of its own.
//! What runs on them is in `statements.rs`.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use crate::db::{BoxFuture, Database, Output, Transaction, Wakes, unless_missing};
use crate::error::{Error, ErrorKind};
use crate::migrate::{FUNCTIONS_VERSION, Plan};
use crate::options::{Options, Synchronous};
use crate::sql::{Call, Dialect, Script, statements as split};

mod statements;
mod transaction;
mod writer;

use statements::run_calls;
pub(crate) use statements::{database_error, execute_one};
use transaction::SqliteTransaction;
pub(crate) use transaction::Work;
use writer::{Writer, data_version};

/// A write-ahead-log bug before this version can corrupt a database that several processes use.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// How long a writer waits for the writers of other processes.
const BUSY_LIMIT: Duration = Duration::from_secs(30);

/// How often other processes' commits are looked for.
const LOOK_FOR_OTHERS: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(crate) struct Sqlite {
    writer: Arc<Writer>,
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
            Path::File(_) => {
                let connection = path.open(options, true)?;
                Some(start("postroom-sqlite-read", move |jobs| {
                    read_loop(connection, &jobs);
                })?)
            }
        };
        Ok(Self {
            writer: Arc::new(Writer::start(writer)?),
            reader,
        })
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
        Box::pin(self.writer.run(calls))
    }

    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            let calls = vec![call];
            let Some(reader) = &self.reader else {
                return self.writer.run(calls).await;
            };
            let (reply, answer) = oneshot::channel();
            let job = Job::Run { calls, reply };
            reader.send(job).map_err(|_| stopped())?;
            answer.await.map_err(|_| stopped())?
        })
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>> {
        Box::pin(async move {
            let transaction = SqliteTransaction::begin(&self.writer).await?;
            Ok(Box::new(transaction) as Box<dyn Transaction>)
        })
    }

    /// There is only one way to write, and it is a thread of its own already.
    fn apart(&self, _: usize) -> Result<Box<dyn Database>, Error> {
        Ok(Box::new(self.clone()))
    }

    /// Looks at SQLite's number that changes with every commit of another connection.
    fn listen(&self, wakes: Wakes) -> Option<BoxFuture<'static, ()>> {
        let reader = self.reader.clone()?;
        Some(Box::pin(async move {
            let mut known = None;
            while let Some(version) = version_seen_by(&reader).await {
                if known.replace(version).is_some_and(|known| known != version) {
                    wakes.iter().for_each(|(_, wake)| wake.wake());
                }
                tokio::time::sleep(LOOK_FOR_OTHERS).await;
            }
        }))
    }

    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.writer.alone(move |connection| {
            for part in scripts.iter().flat_map(|script| &script.parts) {
                connection
                    .prepare(&part.sql)
                    .map_err(|error| database_error(&error))?;
            }
            Ok(())
        }))
    }

    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(
            self.writer
                .alone(move |connection| deploy(connection, &plan)),
        )
    }

    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Vec<(i64, String)>>, Error>> {
        Box::pin(
            self.writer
                .alone(move |connection| unless_missing(versions(connection, &plan))),
        )
    }
}

async fn version_seen_by(reader: &mpsc::Sender<Job>) -> Option<i64> {
    let (reply, answer) = oneshot::channel();
    let look = Job::Alone(Box::new(move |connection| {
        let _ = reply.send(data_version(connection));
    }));
    reader.send(look).ok()?;
    answer.await.ok()
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
            path if path.contains('?') => Err(ErrorKind::InvalidArgument { param: "url" }
                .with("an SQLite URL takes no settings after a question mark; see `Options`")),
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
        .map_err(|error| cannot_open(&error))?;
        configure(&connection, options, read_only).map_err(|error| database_error(&error))?;
        Ok(connection)
    }
}

/// Whether a URL names a file, or memory.
pub(crate) fn check_url(url: &str) -> Result<(), Error> {
    Path::parse(url).map(drop)
}

/// A file that cannot be opened at all is a wrong URL rather than a passing trouble.
fn cannot_open(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen) => ErrorKind::InvalidArgument { param: "url" }
            .with("the file cannot be opened or created; does its folder exist, and may it be written to?"),
        _ => database_error(error),
    }
}

fn configure(connection: &Connection, options: &Options, read_only: bool) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_for_other_writers))?;
    connection.set_prepared_statement_cache_capacity(256);
    if !read_only {
        write_ahead(connection)?;
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
    connection.execute_batch(include_str!("../../sql/sqlite/connection.sql"))
}

/// Puts a file into write-ahead mode. When several do that to a new file at once, some are told at once that
/// it is locked, because here SQLite asks no busy handler.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && wait_for_other_writers(tries) =>
            {
                tries += 1;
            }
            result => return result,
        }
    }
}

/// SQLite's own handler sleeps longer and longer, so that whoever waited longest asks least often.
/// This one asks at a steady, short and uneven pace.
fn wait_for_other_writers(tries: i32) -> bool {
    thread_local! {
        static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if tries == 0 {
        SINCE.set(Some(Instant::now()));
    }
    thread::sleep(Duration::from_micros(
        300 + u64::from(std::process::id() % 7) * 60,
    ));
    SINCE.get().is_none_or(|since| since.elapsed() < BUSY_LIMIT)
}

/// Starts a thread that works off jobs until nobody can send any more.
fn start(
    name: &str,
    work: impl FnOnce(mpsc::Receiver<Job>) + Send + 'static,
) -> Result<mpsc::Sender<Job>, Error> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || work(receiver))
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
                give_back_pages(&connection);
            }
        }
    }
}

/// Lets go of the pages that a reader has cached. The connections of a process may share one cache (they
/// do in SQLite as it comes with rusqlite), and there a reader that has walked through a large table
/// would keep the writer from caching anything: it would read the same few pages for every row.
fn give_back_pages(connection: &Connection) {
    let _ = connection
        .prepare_cached("PRAGMA shrink_memory")
        .and_then(|mut statement| statement.query([])?.next().map(drop));
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
        for statement in split(sql) {
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
