//! The caller's transaction: one short file per client library, each behind its feature. Here lives
//! what a client must be able to do, and nothing else.
//!
//! | Feature | Pass `&mut` of | Our errors arrive in |
//! |---|---|---|
//! | `sqlite` | `rusqlite::{Transaction, Savepoint, Connection}` | `rusqlite::Error::ToSqlConversionFailure` |
//! | `postgres` | `tokio_postgres::{Transaction, Client}`, `deadpool_postgres::Transaction` | [`Error`] itself |
//! | `mssql` | `tiberius::Client`, between its `begin_transaction` and `commit_transaction` | [`Error`] itself |
//! | `sqlx-postgres` | `sqlx::Transaction<'_, Postgres>`, `sqlx::PgConnection` | `sqlx::Error::Encode` |
//! | `mysql` | `mysql_async::{Transaction, Conn}` | `mysql_async::Error::Other` |
//! | `sqlx-mysql` | `sqlx::Transaction<'_, MySql>`, `sqlx::MySqlConnection` | `sqlx::Error::Encode` |
//! | `sqlx-sqlite` | `sqlx::Transaction<'_, Sqlite>`, `sqlx::SqliteConnection` | `sqlx::Error::Encode` |
//! | `diesel-postgres` | `diesel::PgConnection` | `diesel::result::Error::QueryBuilderError` |
//! | `diesel-sqlite` | `diesel::SqliteConnection` | `diesel::result::Error::QueryBuilderError` |
//! | `diesel-async-postgres` | `diesel_async::AsyncPgConnection` | `diesel::result::Error::QueryBuilderError` |
//! | `sea-orm` | `sea_orm::DatabaseTransaction` | `sea_orm::DbErr::TryIntoErr` |
//!
//! rusqlite and diesel are not async: see [`now`].

use std::future::Future;
use std::task::{Context, Poll, Waker};

use crate::db::Database;
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Dialect, Statement};

#[cfg(feature = "postgres")]
mod deadpool_postgres;
#[cfg(any(
    feature = "diesel-postgres",
    feature = "diesel-sqlite",
    feature = "diesel-async-postgres"
))]
mod diesel;
#[cfg(feature = "diesel-async-postgres")]
mod diesel_async;
#[cfg(feature = "diesel-postgres")]
mod diesel_postgres;
#[cfg(feature = "diesel-sqlite")]
mod diesel_sqlite;
#[cfg(feature = "mysql")]
mod mysql_async;
#[cfg(feature = "sqlite")]
mod rusqlite;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(any(
    feature = "sqlx-mysql",
    feature = "sqlx-postgres",
    feature = "sqlx-sqlite"
))]
mod sqlx;
#[cfg(feature = "sqlx-mysql")]
mod sqlx_mysql;
#[cfg(feature = "sqlx-postgres")]
mod sqlx_postgres;
#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite;
#[cfg(feature = "mssql")]
mod tiberius;
#[cfg(feature = "postgres")]
mod tokio_postgres;

/// Somebody else's transaction (or connection), as far as postroom needs it.
///
/// Implement it for a client library of your own: run one statement, say how many rows it changed. No
/// row is ever decoded. The number is what the server reports for the command, which for a `SELECT`
/// is the number of rows that it returned; on SQL Server that holds for the rows that a procedure returns too,
/// and MySQL's statements do not depend on it. A statement without values may be one that MySQL does not
/// prepare: send it as text there.
pub trait Executor {
    /// The client's own error, so that `?` works in the caller's code. It must be able to carry ours.
    type Error: From<Error>;

    /// Which database this is.
    fn dialect(&self) -> Dialect;

    /// Runs one statement and says how many rows it changed.
    fn execute(&mut self, statement: Statement) -> impl Future<Output = Result<u64, Self::Error>>;
}

/// Runs calls in the caller's transaction, all or none, and gives back what each statement changed.
pub(crate) async fn run_in<E: Executor>(
    db: &dyn Database,
    tx: &mut E,
    calls: Vec<Call>,
) -> Result<Vec<u64>, E::Error> {
    let dialect = db.dialect();
    if tx.dialect() != dialect {
        return Err(ErrorKind::InvalidArgument { param: "tx" }
            .with(format!(
                "the store is {}, the transaction is {}",
                dialect.name(),
                tx.dialect().name()
            ))
            .into());
    }
    if dialect == Dialect::MySql {
        let largest = calls.iter().map(Call::largest_statement).max();
        db.admit(largest.unwrap_or(0)).await?;
    }
    // A failed statement leaves nothing in a transaction of PostgreSQL or SQL Server, where it undoes all of
    // it. In any other it leaves what the statements before it have written, and the caller may commit all
    // the same.
    let several = calls.len() > 1 || calls.iter().any(|call| call.script.parts.len() > 1);
    if matches!(dialect, Dialect::Postgres | Dialect::SqlServer) || !several {
        return run_each(tx, calls).await;
    }
    tx.execute(control("SAVEPOINT postroom")).await?;
    match run_each(tx, calls).await {
        Ok(changed) => {
            tx.execute(control("RELEASE SAVEPOINT postroom")).await?;
            Ok(changed)
        }
        // The first error tells what happened. A savepoint that is gone by then went with all else:
        // SQLite undoes the whole transaction on some errors, such as a full disk, MySQL on a deadlock.
        Err(error) => {
            if tx
                .execute(control("ROLLBACK TO SAVEPOINT postroom"))
                .await
                .is_ok()
            {
                let _ = tx.execute(control("RELEASE SAVEPOINT postroom")).await;
            }
            Err(error)
        }
    }
}

async fn run_each<E: Executor>(tx: &mut E, calls: Vec<Call>) -> Result<Vec<u64>, E::Error> {
    let mut changed = Vec::new();
    for call in calls {
        let needs = call.needs;
        for (index, statement) in call.into_statements().into_iter().enumerate() {
            let rows = tx.execute(guarded(tx.dialect(), statement)).await?;
            if index == 0 {
                Call::check(needs, rows)?;
            }
            changed.push(rows);
        }
    }
    Ok(changed)
}

/// No client of SQL Server says whether a transaction is open, so there a statement asks before it runs, in the same
/// round trip.
fn guarded(dialect: Dialect, statement: Statement) -> Statement {
    if dialect != Dialect::SqlServer {
        return statement;
    }
    let guard = include_str!("../sql/mssql/in_transaction.sql");
    Statement {
        sql: format!("{guard}{}", statement.sql).into(),
        values: statement.values,
    }
}

fn control(sql: &str) -> Statement {
    Statement {
        sql: sql.into(),
        values: Vec::new(),
    }
}

/// Finishes a future that never waits, for code that is not async: operations in a transaction of
/// rusqlite or of diesel are such.
///
/// ```no_run
/// # fn example(room: postroom::Postroom, connection: &mut rusqlite::Connection) -> Result<(), rusqlite::Error> {
/// use postroom::{Message, tx};
///
/// let mut transaction = connection.transaction()?;
/// tx::now(room.outbox().enqueue_in(&mut transaction, &Message::new("order.created", "{}")))?;
/// transaction.commit()
/// # }
/// ```
///
/// # Panics
/// When the future has to wait, which means that its client is an async one.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("tx::now is for clients that are not async; use .await"),
    }
}
