//! Our own connections: one file or folder per database. A [`Database`] runs calls in one transaction
//! and gives rows back; what the calls mean is not its business, and no SQL of the queues is written
//! here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::migrate::Plan;
use crate::sql::{Call, Dialect, Queue, Row, Script, Statement};
use crate::wake::Wake;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
mod budget;
#[cfg(feature = "mssql")]
pub(crate) mod mssql;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
mod pool;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
mod tls;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
mod url;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
pub(crate) use budget::{Budget, FAREWELL, Idle};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
pub(crate) use tls::TlsSettings;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a transaction gave back.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The rows of all statements, in order.
    pub(crate) rows: Vec<Row>,
    /// How many rows each statement changed, in order.
    pub(crate) changed: Vec<u64>,
    /// Where in `rows` each call ends.
    pub(crate) ends: Vec<usize>,
}

#[cfg(any(feature = "postgres", feature = "mssql"))]
impl Output {
    /// Adds what the next call gave back.
    pub(crate) fn append(&mut self, next: Self) {
        self.rows.extend(next.rows);
        self.changed.extend(next.changed);
        self.ends.push(self.rows.len());
    }
}

/// Versions of the schema that were applied, with their checksums.
pub(crate) type Applied = Vec<(i64, String)>;

/// What was applied, `None` when there is no schema.
pub(crate) fn unless_missing(applied: Result<Applied, Error>) -> Result<Option<Applied>, Error> {
    match applied {
        Err(error) if error.kind() == ErrorKind::Schema => Ok(None),
        other => other.map(Some),
    }
}

/// What wakes whom: the name of a channel, and who sleeps there.
pub(crate) type Wakes = Vec<(String, Arc<Wake>)>;

/// One database, with connections of our own.
pub(crate) trait Database: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs the calls in one transaction and commits it. A dropped future leaves the transaction
    /// either wholly done or wholly undone.
    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>>;

    /// Runs one call that only reads.
    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>>;

    /// Refuses a statement of so many bytes, to be run on a connection of the caller's, when the server would not
    /// take it. The server is only asked when it did not take so much before.
    fn admit(&self, bytes: usize) -> BoxFuture<'_, Result<(), Error>> {
        let _ = bytes;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Begins a transaction that is run statement by statement.
    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>, Error>>;

    /// The same database by a way of its own, which no other caller can crowd. It belongs to the
    /// runtime in which it is first used.
    fn apart(&self, connections: usize) -> Result<Box<dyn Database>, Error>;

    /// Tells workers of other processes that a queue has something to do, now or as soon as the
    /// transaction that wrote the row `promised` has committed. It may fail silently. Where there is nothing to
    /// tell them by, they look for themselves.
    fn announce(
        &self,
        queue: Queue,
        channel: &str,
        script: Option<&Arc<Script>>,
        promised: Option<Uuid>,
    ) {
        let _ = (queue, channel, script, promised);
    }

    /// Wakes when other processes announce something, until it is dropped. `None` where one cannot
    /// listen: workers find by polling what others have enqueued.
    fn listen(&self, wakes: Wakes) -> Option<BoxFuture<'static, ()>> {
        drop(wakes);
        None
    }

    /// Prepares the scripts without running them, which fails when something they name is missing.
    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>>;

    /// Brings the schema to the plan's version, whoever else is doing the same.
    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>>;

    /// The versions and checksums that were applied, `None` when there is no schema.
    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Applied>, Error>>;
}

/// A transaction of our own that is run statement by statement. Dropping it rolls it back.
pub(crate) trait Transaction: Send {
    /// Runs one statement and says how many rows it changed.
    fn execute(&mut self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>>;

    /// Runs calls as [`Database::run`] does, without a commit.
    fn run(&mut self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>>;

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>>;

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// The client underneath, when this is PostgreSQL.
    #[cfg(feature = "postgres")]
    fn postgres(&mut self) -> Option<&mut tokio_postgres::Client> {
        None
    }

    /// The connection underneath, when this is MySQL.
    #[cfg(feature = "mysql")]
    fn mysql(&mut self) -> Option<&mut mysql_async::Conn> {
        None
    }

    /// The client underneath, when this is SQL Server.
    #[cfg(feature = "mssql")]
    fn sql_server(&mut self) -> Option<&mut mssql::Client> {
        None
    }

    /// Runs `work` on the connection underneath; `None` when this is not SQLite.
    #[cfg(feature = "sqlite")]
    fn sqlite(&mut self, work: sqlite::Work) -> Option<BoxFuture<'_, Result<(), Error>>> {
        drop(work);
        None
    }
}
