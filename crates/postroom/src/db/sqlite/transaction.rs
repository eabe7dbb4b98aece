//! A transaction that a handler runs statement by statement. SQLite has one writer at a time, so it
//! takes the writing connection for itself: every other write of this store waits until it is over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::statements::{database_error, execute_one, run_calls};
use super::writer::{Writer, execute};
use super::{Job, stopped};
use crate::db::{BoxFuture, Output, Transaction};
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Statement};

/// Something to do on the connection.
pub(crate) type Work = Box<dyn FnOnce(&Connection) + Send>;

/// The writing thread works for nobody else until this is dropped.
pub(super) struct SqliteTransaction {
    work: mpsc::Sender<Work>,
}

impl SqliteTransaction {
    pub(super) async fn begin(writer: &Writer) -> Result<Self, Error> {
        let (work, works) = mpsc::channel();
        let (begun, answer) = oneshot::channel();
        writer.send(Job::Alone(Box::new(move |connection| {
            let result = execute(connection, "BEGIN IMMEDIATE");
            let open = result.is_ok();
            if begun.send(result).is_ok() && open {
                hold(connection, &works);
            }
            if !connection.is_autocommit() {
                let _ = connection.execute_batch("ROLLBACK");
            }
        })))?;
        answer.await.map_err(|_| stopped())??;
        Ok(Self { work })
    }

    async fn on_connection<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(move |connection| {
            // SQLite undoes a whole transaction when the disk is full. To go on would be to write
            // outside of it.
            let result = if connection.is_autocommit() {
                Err(undone())
            } else {
                work(connection)
            };
            let _ = reply.send(result);
        }))?;
        answer.await.map_err(|_| over())?
    }

    fn send(&self, work: Work) -> Result<(), Error> {
        self.work.send(work).map_err(|_| over())
    }
}

/// Works until nobody can ask for more. Somebody else's work may panic: the thread must go on.
fn hold(connection: &Connection, works: &mpsc::Receiver<Work>) {
    while let Ok(work) = works.recv() {
        if catch_unwind(AssertUnwindSafe(|| work(connection))).is_err() {
            tracing::warn!("a closure that was given the connection panicked");
        }
    }
}

fn undone() -> Error {
    ErrorKind::Transient.with("SQLite has undone the transaction")
}

fn over() -> Error {
    ErrorKind::Database.with("the transaction is over, or its last step panicked")
}

impl Transaction for SqliteTransaction {
    fn execute(&mut self, statement: Statement) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.on_connection(move |connection| {
            execute_one(connection, &statement).map_err(|error| database_error(&error))
        }))
    }

    fn run(&mut self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>> {
        Box::pin(self.on_connection(move |connection| run_calls(connection, &calls)))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.on_connection(|connection| execute(connection, "COMMIT"))
                .await
        })
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Its end is the rollback.
        Box::pin(async move { drop(self) })
    }

    fn sqlite(&mut self, work: Work) -> Option<BoxFuture<'_, Result<(), Error>>> {
        Some(Box::pin(async move {
            self.on_connection(move |connection| {
                work(connection);
                Ok(())
            })
            .await
        }))
    }
}
