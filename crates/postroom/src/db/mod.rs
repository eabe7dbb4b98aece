//! Our own connections: one file per database. A [`Database`] runs calls in one transaction and gives
//! rows back; what the calls mean is not its business, and no SQL of the queues is written here.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::Error;
use crate::migrate::Plan;
use crate::sql::{Call, Dialect, Row, Script};

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "postgres")]
mod tls;

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a transaction gave back.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The rows of all statements, in order.
    pub(crate) rows: Vec<Row>,
    /// How many rows each statement changed, in order.
    pub(crate) changed: Vec<u64>,
}

/// Versions of the schema that were applied, with their checksums.
pub(crate) type Applied = Vec<(i64, String)>;

/// One database, with connections of our own.
pub(crate) trait Database: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs the calls in one transaction and commits it. A dropped future leaves the transaction
    /// either wholly done or wholly undone.
    fn run(&self, calls: Vec<Call>) -> BoxFuture<'_, Result<Output, Error>>;

    /// Runs one call that only reads.
    fn read(&self, call: Call) -> BoxFuture<'_, Result<Output, Error>>;

    /// Prepares the scripts without running them, which fails when something they name is missing.
    fn prepare(&self, scripts: Vec<Arc<Script>>) -> BoxFuture<'_, Result<(), Error>>;

    /// Brings the schema to the plan's version, whoever else is doing the same.
    fn deploy(&self, plan: Plan) -> BoxFuture<'_, Result<(), Error>>;

    /// The versions and checksums that were applied, `None` when there is no schema.
    fn applied(&self, plan: Plan) -> BoxFuture<'_, Result<Option<Applied>, Error>>;
}
