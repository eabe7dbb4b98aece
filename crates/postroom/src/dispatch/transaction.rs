//! A transaction of the claiming store for a handler. Its writes, the ack, follow-up messages and join
//! counters commit together.

use std::sync::Arc;
use std::time::Instant;

use super::delivery::Delivery;
use crate::db::Transaction;
use crate::error::{Error, ErrorKind};
use crate::sql::{Dialect, Statement, Value};
use crate::store::Store;
use crate::tx::Executor;

/// A handler's transaction. Everything that takes a caller's transaction takes it too
/// (`room.outbox().enqueue_in(&mut tx, …)`); your own statements go through [`Tx::execute`],
/// [`Tx::postgres`], [`Tx::mysql`], [`Tx::sql_server`] or [`Tx::sqlite`].
///
/// It begins with the first statement, so that slow work before it holds no lock. Do not commit or roll
/// back yourself: success commits, anything else rolls back. SQLite has one writer at a time: between the
/// first statement and the handler's end nobody else writes to the store, so do slow things before it. A
/// transaction that lasts for half a lease there is rolled back, and the run has failed.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// # use postroom::{Delivery, Message, Postroom, Tx, done};
/// # let room = Postroom::connect("sqlite::memory:").await?;
/// # room.deploy().await?;
/// # room.outbox().enqueue(&Message::new("payment.received", "7")).await?;
/// let dispatcher = room.dispatcher().on("payment.received", |delivery: Delivery, mut tx: Tx| async move {
///     tx.execute("CREATE TABLE IF NOT EXISTS ledger (amount TEXT)", vec![]).await?;
///     tx.execute("INSERT INTO ledger VALUES (?1)", vec![delivery.payload().into()]).await?;
///     done() // the ledger and the ack are committed together
/// });
/// assert_eq!(dispatcher.drain().await?.done, 1);
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tx {
    delivery: Delivery,
}

/// Where a handler's transaction is kept, so that the dispatcher ends it whatever the handler does.
#[derive(Default)]
pub(super) enum Slot {
    #[default]
    NotBegun,
    Open(Open),
    Over,
}

/// A transaction, and its place among those that may be open at once.
pub(super) struct Open {
    pub(super) transaction: Box<dyn Transaction>,
    /// Given back when the transaction is over.
    _place: Place,
}

/// Counts as one open transaction of the store.
struct Place(Arc<Store>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.transactions.add_permits(1);
    }
}

impl Tx {
    pub(super) fn new(delivery: Delivery) -> Self {
        Self { delivery }
    }

    /// Runs one statement of yours and says how many rows it changed. Parameters are `$1` on PostgreSQL, `?1` on
    /// SQLite, `?` on MySQL and `@P1` on SQL Server.
    ///
    /// # Errors
    /// When the database refuses, and when the transaction is over.
    pub async fn execute(&mut self, sql: &str, values: Vec<Value>) -> Result<u64, Error> {
        let statement = Statement {
            sql: sql.into(),
            values,
        };
        Executor::execute(self, statement).await.map_err(yours)
    }

    /// The client underneath, for queries of your own.
    ///
    /// ```no_run
    /// # async fn example(mut tx: postroom::Tx) -> Result<(), postroom::HandlerError> {
    /// let client = tx.postgres().await?;
    /// let row = client.query_one("SELECT balance FROM accounts WHERE id = $1", &[&7_i64]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store is not on PostgreSQL, when no connection can be had, and when the transaction is over.
    #[cfg(feature = "postgres")]
    pub async fn postgres(
        &mut self,
    ) -> Result<impl std::ops::Deref<Target = tokio_postgres::Client> + '_, Error> {
        let slot = self.open().await?;
        tokio::sync::MutexGuard::try_map(slot, |slot| match slot {
            Slot::Open(open) => open.transaction.postgres(),
            _ => None,
        })
        .map_err(|_| not_on("PostgreSQL"))
    }

    /// The connection underneath, for queries of your own. It is not used for anything else afterwards.
    /// A statement that makes or changes a table commits on MySQL, and what was done before it with it.
    ///
    /// ```no_run
    /// # async fn example(mut tx: postroom::Tx) -> Result<(), postroom::HandlerError> {
    /// use mysql_async::prelude::Queryable;
    ///
    /// let mut connection = tx.mysql().await?;
    /// let balance: Option<i64> = connection.query_first("SELECT balance FROM accounts WHERE id = 7").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store is not on MySQL, when no connection can be had, and when the transaction is over.
    #[cfg(feature = "mysql")]
    pub async fn mysql(
        &mut self,
    ) -> Result<impl std::ops::DerefMut<Target = mysql_async::Conn> + '_, Error> {
        let slot = self.open().await?;
        tokio::sync::MutexGuard::try_map(slot, |slot| match slot {
            Slot::Open(open) => open.transaction.mysql(),
            _ => None,
        })
        .map_err(|_| not_on("MySQL"))
    }

    /// The client underneath, for queries of your own.
    ///
    /// # Errors
    /// When the store is not on SQL Server, when no connection can be had, and when the transaction is over.
    #[cfg(feature = "mssql")]
    pub async fn sql_server(
        &mut self,
    ) -> Result<
        impl std::ops::DerefMut<
            Target = tiberius::Client<tokio_util::compat::Compat<tokio::net::TcpStream>>,
        > + '_,
        Error,
    > {
        let slot = self.open().await?;
        tokio::sync::MutexGuard::try_map(slot, |slot| match slot {
            Slot::Open(open) => open.transaction.sql_server(),
            _ => None,
        })
        .map_err(|_| not_on("SQL Server"))
    }

    /// Runs `work` on the connection underneath, away from the async threads.
    ///
    /// # Errors
    /// When the store is not on SQLite, when SQLite refuses, and when the transaction is over.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let work = Box::new(move |connection: &rusqlite::Connection| {
            let _ = reply.send(work(connection));
        });
        let mut slot = self.open().await?;
        let Slot::Open(open) = &mut *slot else {
            return Err(over());
        };
        open.transaction
            .sqlite(work)
            .ok_or_else(|| not_on("SQLite"))?
            .await?;
        answer
            .await
            .map_err(|_| over())?
            .map_err(|error| crate::db::sqlite::database_error(&error))
    }

    /// The slot with an open transaction in it.
    async fn open(&self) -> Result<tokio::sync::MutexGuard<'_, Slot>, Error> {
        let inner = &self.delivery.inner;
        let mut slot = inner.transaction.lock().await;
        if matches!(*slot, Slot::NotBegun) {
            let store = &inner.room.store;
            let place = store.transactions.acquire().await.map_err(|_| over())?;
            place.forget();
            let place = Place(Arc::clone(store));
            *slot = Slot::Open(Open {
                transaction: store.db.begin().await?,
                _place: place,
            });
            let _ = inner.begun.set(Instant::now());
        }
        match *slot {
            Slot::Open(_) => Ok(slot),
            _ => Err(over()),
        }
    }
}

/// An error of a statement that is not ours: what our own tables would mean by it does not apply.
fn yours(error: Error) -> Error {
    let text = match error.kind() {
        ErrorKind::AlreadyExists { .. } => "a unique constraint is violated",
        ErrorKind::NotFound { .. } => "a foreign key is violated",
        ErrorKind::Schema => "a table, column or function is missing",
        _ => return error,
    };
    let yours = ErrorKind::Database.with(text);
    match error.code() {
        Some(code) => yours.with_code(code),
        None => yours,
    }
}

fn over() -> Error {
    ErrorKind::Database.with("the handler's transaction is over")
}

fn not_on(database: &str) -> Error {
    ErrorKind::Database.with(format!("the store is not on {database}"))
}

impl Executor for Tx {
    type Error = Error;

    fn dialect(&self) -> Dialect {
        self.delivery.room().dialect()
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        match &mut *self.open().await? {
            Slot::Open(open) => open.transaction.execute(statement).await,
            _ => Err(over()),
        }
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tx").field(&self.delivery).finish()
    }
}
