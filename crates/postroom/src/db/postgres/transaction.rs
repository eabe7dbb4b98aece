//! A transaction that a handler runs statement by statement.

use deadpool_postgres::Object;
use tokio::sync::OwnedSemaphorePermit;
use tokio_postgres::Client;

use super::errors::database_error;
use super::query;
use crate::db::{BoxFuture, Output, Transaction};
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Statement};

/// A connection with an open transaction. It returns to its pool only after a commit or a rollback
/// that the server has confirmed; in any other case it is closed, which rolls back.
pub(super) struct PostgresTransaction {
    connection: Option<Object>,
    prepare: bool,
    /// Its place among the transactions of a fleet.
    _place: Option<OwnedSemaphorePermit>,
}

impl PostgresTransaction {
    pub(super) async fn begin(
        connection: Object,
        place: Option<OwnedSemaphorePermit>,
        prepare: bool,
    ) -> Result<Self, Error> {
        let transaction = Self {
            connection: Some(connection),
            prepare,
            _place: place,
        };
        // Settling needs this level, whatever the server's default is.
        transaction
            .control("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await?;
        Ok(transaction)
    }

    fn connection(&self) -> Result<&Object, Error> {
        self.connection
            .as_ref()
            .ok_or_else(|| ErrorKind::Database.with("the transaction is over"))
    }

    async fn control(&self, sql: &str) -> Result<(), Error> {
        self.connection()?
            .batch_execute(sql)
            .await
            .map_err(|error| database_error(&error))
    }

    async fn end(mut self: Box<Self>, sql: &'static str) -> Result<(), Error> {
        self.control(sql).await?;
        drop(self.connection.take());
        Ok(())
    }
}

impl Transaction for PostgresTransaction {
    fn execute(&mut self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            query(
                self.connection()?,
                self.prepare,
                &statement.sql,
                &statement.values,
            )
            .await
            .map(|output| output.changed.iter().sum())
            .map_err(|error| database_error(&error))
        })
    }

    fn run(&mut self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            let mut output = Output::default();
            for call in calls {
                let one = query(
                    self.connection()?,
                    self.prepare,
                    &call.script.parts[0].sql,
                    &call.values,
                )
                .await
                .map_err(|error| database_error(&error))?;
                Call::check(call.needs, one.changed.iter().sum())?;
                output.append(one);
            }
            Ok(output)
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        // A transaction that an error has ended answers COMMIT with ROLLBACK, and no error. The ack
        // before the commit would have failed then, so that case never gets here.
        Box::pin(self.end("COMMIT"))
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.end("ROLLBACK").await;
        })
    }

    fn postgres(&mut self) -> Option<&mut Client> {
        self.connection
            .as_mut()
            .map(|connection| &mut ***connection)
    }
}

impl Drop for PostgresTransaction {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(Object::take(connection));
        }
    }
}
