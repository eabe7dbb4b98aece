//! How many messages each topic has: unfinished and dead ones, never the archive.

use std::time::Duration;

use crate::error::Error;
use crate::sql::{Queue, Row};
use crate::store::Store;

/// How many messages of a topic stand where, in one queue. See
/// [`Outbox::topics`](crate::Outbox::topics).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicCounts {
    /// The topic.
    pub topic: String,
    /// Due, and nobody holds them.
    pub ready: u64,
    /// Leased by a worker.
    pub in_flight: u64,
    /// Not due yet: scheduled, or waiting for their next attempt.
    pub waiting: u64,
    /// Failed for good, until an operator acts.
    pub dead: u64,
    /// How long the oldest of the ready ones has been due.
    pub oldest_ready: Option<Duration>,
}

impl TopicCounts {
    pub(crate) async fn of(store: &Store, queue: Queue) -> Result<Vec<Self>, Error> {
        let (name, sql, _) = store.queue(queue);
        let call = sql.topics.call(Vec::new());
        let rows = store.read("topics", name, call).await?;
        rows.into_iter().map(Self::read).collect()
    }

    /// Reads the columns of `topics.sql`.
    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            topic: row.text()?,
            ready: row.count()?,
            in_flight: row.count()?,
            waiting: row.count()?,
            dead: row.count()?,
            oldest_ready: row
                .optional_int()?
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        })
    }
}
