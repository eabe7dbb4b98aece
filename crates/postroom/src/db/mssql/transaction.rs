//! A transaction that a handler runs statement by statement.

use deadpool::managed::Object;
use tiberius::IsolationLevel;
use tiberius::error::Error as ClientError;
use tokio::sync::OwnedSemaphorePermit;

use super::connect::{Client, Connector};
use super::errors::database_error;
use super::execute;
use crate::db::{BoxFuture, Output, Transaction};
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Row, Statement};

const IS_OPEN: &str = include_str!("../../sql/mssql/transaction.sql");

/// A connection with an open transaction. It returns to its pool only after a commit or a rollback
/// that the server has confirmed; in any other case it is closed, which rolls back.
pub(super) struct SqlServerTransaction {
    connection: Option<Object<Connector>>,
    /// A statement has failed, or one may have that we did not see.
    in_doubt: bool,
    /// Somebody else has had the connection in his hands: it is not used again.
    was_lent: bool,
    /// Its place among the transactions of a fleet.
    _place: Option<OwnedSemaphorePermit>,
}

impl SqlServerTransaction {
    pub(super) async fn begin(
        connection: Object<Connector>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, Error> {
        let mut transaction = Self {
            connection: Some(connection),
            in_doubt: false,
            was_lent: false,
            _place: place,
        };
        transaction
            .control(async |client| {
                client
                    .begin_transaction_with_isolation(IsolationLevel::ReadCommitted)
                    .await
            })
            .await?;
        Ok(transaction)
    }

    fn connection(&mut self) -> Result<&mut Object<Connector>, Error> {
        self.connection.as_mut().ok_or_else(|| {
            ErrorKind::Transient.with("the transaction is over, or the server has undone it")
        })
    }

    /// The connection, if its transaction is still open. A deadlock undoes it, and so does an error in a
    /// procedure; the next statement would be a transaction of its own, and an ack would outlive what it is for.
    async fn open(&mut self) -> Result<&mut Object<Connector>, Error> {
        if self.in_doubt {
            let answer = self.connection()?.query(IS_OPEN, &[]).await;
            let output = answer.map_err(|error| database_error(&error))?;
            let is_open = |mut row: Row| row.int().is_ok_and(|count| count > 0);
            if !output.rows.into_iter().any(is_open) {
                self.close();
            }
            self.in_doubt = false;
        }
        self.connection()
    }

    /// Lets the connection go for good, which rolls back whatever is open on it.
    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }

    /// Returns the connection to its pool, unless it may be in another database by now, or hold locks.
    fn give_back(&mut self) {
        if !self.was_lent {
            drop(self.connection.take());
        }
    }

    fn failed(&mut self, error: &ClientError) -> Error {
        self.in_doubt = true;
        database_error(error)
    }

    async fn control<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, Error> {
        let result = self.open().await?.lend(work).await;
        result.map_err(|error| self.failed(&error))
    }
}

impl Transaction for SqlServerTransaction {
    fn execute(&mut self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            self.control(async |client| execute(client, &statement.sql, &statement.values).await)
                .await
        })
    }

    fn run(&mut self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            let mut output = Output::default();
            for call in calls {
                let connection = self.open().await?;
                let result = connection
                    .query(&call.script.parts[0].sql, &call.values)
                    .await;
                let one = result.map_err(|error| self.failed(&error))?;
                Call::check(call.needs, one.changed.iter().sum())?;
                output.append(one);
            }
            Ok(output)
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        // A transaction that an error has ended is not there any more: then the server refuses this.
        Box::pin(async move {
            self.control(async |client| client.commit_transaction().await)
                .await?;
            self.give_back();
            Ok(())
        })
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // A statement that nobody waits for any more may still be running: closing does not wait for it.
            if self.in_doubt {
                return;
            }
            let undone = self.control(async |client| client.rollback_transaction().await);
            if undone.await.is_ok() {
                self.give_back();
            }
        })
    }

    fn sql_server(&mut self) -> Option<&mut Client> {
        self.in_doubt = true;
        self.was_lent = true;
        self.connection
            .as_mut()
            .map(|connection| connection.client())
    }
}

impl Drop for SqlServerTransaction {
    fn drop(&mut self) {
        self.close();
    }
}
