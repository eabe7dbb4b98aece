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
use crate::sql::{Call, Statement};

/// A connection with an open transaction. It returns to its pool only after a commit or a rollback
/// that the server has confirmed; in any other case it is closed, which rolls back.
pub(super) struct SqlServerTransaction {
    connection: Option<Object<Connector>>,
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
        self.connection
            .as_mut()
            .ok_or_else(|| ErrorKind::Database.with("the transaction is over"))
    }

    async fn control<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, ClientError>,
    ) -> Result<T, Error> {
        self.connection()?
            .lend(work)
            .await
            .map_err(|error| database_error(&error))
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
                let one = self
                    .connection()?
                    .query(&call.script.parts[0].sql, &call.values)
                    .await
                    .map_err(|error| database_error(&error))?;
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
            drop(self.connection.take());
            Ok(())
        })
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let undone = self.control(async |client| client.rollback_transaction().await);
            if undone.await.is_ok() {
                drop(self.connection.take());
            }
        })
    }

    fn sql_server(&mut self) -> Option<&mut Client> {
        self.connection
            .as_mut()
            .map(|connection| connection.client())
    }
}

impl Drop for SqlServerTransaction {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}
