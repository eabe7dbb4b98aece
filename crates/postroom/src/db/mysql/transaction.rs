//! A transaction that a handler runs statement by statement.

use mysql_async::Conn;
use mysql_async::consts::StatusFlags;
use tokio::sync::OwnedSemaphorePermit;

use super::connect::Connection;
use super::errors::{Failure, database_error};
use super::packet;
use crate::db::{BoxFuture, Output, Transaction};
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Statement};

/// A connection with an open transaction. It returns to its pool only after a commit or a rollback that the
/// server has confirmed; in any other case it is closed, which rolls back.
pub(super) struct MySqlTransaction {
    /// `None` once it is over, or once the server or a handler has ended it: another statement would then
    /// be a transaction of its own.
    connection: Option<Connection>,
    /// Somebody else has had the connection in his hands: it is not used again.
    was_lent: bool,
    /// Its place among the transactions of a fleet.
    _place: Option<OwnedSemaphorePermit>,
}

impl MySqlTransaction {
    pub(super) async fn begin(
        mut connection: Connection,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Self, Error> {
        connection
            .control("START TRANSACTION")
            .await
            .map_err(|error| database_error(&error))?;
        Ok(Self {
            connection: Some(connection),
            was_lent: false,
            _place: place,
        })
    }

    async fn connection(&mut self) -> Result<&mut Connection, Error> {
        if let Some(connection) = &mut self.connection
            && !is_open(connection).await
        {
            self.connection = None;
        }
        self.connection.as_mut().ok_or_else(|| {
            ErrorKind::Transient.with("the transaction is over, or the server has undone it")
        })
    }

    fn failed(&mut self, failure: Failure) -> Error {
        if failure.is_fatal() {
            self.connection = None;
        }
        failure.into_error()
    }

    async fn end(mut self: Box<Self>, sql: &'static str) -> Result<(), Error> {
        let result = self.connection().await?.control(sql).await;
        result.map_err(|error| database_error(&error))?;
        if let Some(connection) = self.connection.take().filter(|_| !self.was_lent) {
            connection.give_back();
        }
        Ok(())
    }
}

/// Whether the transaction is still there. Every answer says so, unless it is an error: that may have undone
/// the statement or everything, and somebody else may have seen it and gone on.
async fn is_open(connection: &mut Connection) -> bool {
    let last_answer = |connection: &mut Connection| {
        let ok = connection.conn().ok()?.last_ok_packet()?;
        Some(ok.status_flags())
    };
    let mut status = last_answer(connection);
    if status.is_none() && connection.control("DO 0").await.is_ok() {
        status = last_answer(connection);
    }
    status.is_some_and(|status| status.contains(StatusFlags::SERVER_STATUS_IN_TRANS))
}

impl Transaction for MySqlTransaction {
    fn execute(&mut self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            let connection = self.connection().await?;
            let changed = packet::changed(connection, &statement.sql, &statement.values).await;
            changed.map_err(|failure| self.failed(failure))
        })
    }

    fn run(&mut self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(async move {
            let output = packet::in_transaction(self.connection().await?, &calls).await;
            output.map_err(|failure| self.failed(failure))
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(self.end("COMMIT"))
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.end("ROLLBACK").await;
        })
    }

    fn mysql(&mut self) -> Option<&mut Conn> {
        self.was_lent = true;
        self.connection.as_mut()?.conn().ok()
    }
}
