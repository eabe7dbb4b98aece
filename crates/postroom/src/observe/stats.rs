//! How full the queues are: numbers that cost one look at the unfinished messages, never at the
//! archive.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;

use crate::error::{Error, ErrorKind};
use crate::room::Postroom;
use crate::sql::{Queue, Row};
use crate::store::Store;

impl Postroom {
    /// How many unfinished and dead messages there are and where they stand, by the database's clock.
    /// It looks at every one of them: fine every few seconds. The gauges `postroom_queue_depth`,
    /// `postroom_dead` and `postroom_oldest_ready_seconds` are set to what it finds.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::{Message, Postroom};
    /// # let room = Postroom::connect("sqlite::memory:").await?;
    /// # room.deploy().await?;
    /// room.outbox().enqueue(&Message::new("order.created", "7")).await?;
    ///
    /// let stats = room.stats().await?;
    /// assert_eq!((stats.outbox.ready, stats.outbox.dead), (1, 0));
    /// println!("the oldest has waited for {:?}", stats.outbox.oldest_ready);
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the database fails.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let stats = Stats::of(&self.store).await?;
        stats.record(&self.store.identifier);
        Ok(stats)
    }
}

/// How full the queues of a store are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Messages on their way out.
    pub outbox: QueueStats,
    /// Messages that came in. One that was only seen or marked, and never enqueued, is in no queue.
    pub inbox: QueueStats,
}

/// How full a queue is. An unfinished message is in exactly one of the first four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueStats {
    /// Due, and nobody holds them: retries whose time has come, and those whose lease has expired, too.
    pub ready: u64,
    /// Leased by a worker.
    pub in_flight: u64,
    /// Not due yet: their due time has not come, or they only wait (for a join, say).
    pub scheduled: u64,
    /// Not due yet after a failed attempt.
    pub retrying: u64,
    /// Failed for good, until an operator acts.
    pub dead: u64,
    /// How long the oldest of the ready messages has been due.
    pub oldest_ready: Option<Duration>,
}

impl Stats {
    /// Asks the database, and tells nobody else.
    pub(crate) async fn of(store: &Store) -> Result<Self, Error> {
        Ok(Self {
            outbox: QueueStats::of(store, Queue::Outbox).await?,
            inbox: QueueStats::of(store, Queue::Inbox).await?,
        })
    }

    /// Sets the gauges of a store.
    pub(crate) fn record(&self, store: &Arc<str>) {
        self.outbox.record(store, "outbox");
        self.inbox.record(store, "inbox");
    }
}

impl QueueStats {
    pub(crate) async fn of(store: &Store, queue: Queue) -> Result<Self, Error> {
        let (name, sql, _) = store.queue(queue);
        let mut rows = store
            .read("stats", name, sql.stats.call(Vec::new()))
            .await?;
        rows.pop()
            .ok_or_else(|| ErrorKind::Schema.with("a count returned no row"))
            .and_then(Self::read)
    }

    /// Sets the gauges of one queue to what it holds now.
    pub(crate) async fn measure(store: &Store, queue: Queue) -> Result<(), Error> {
        let stats = Self::of(store, queue).await?;
        stats.record(&store.identifier, queue.name());
        Ok(())
    }

    /// Reads the columns of `stats.sql`.
    fn read(mut row: Row) -> Result<Self, Error> {
        Ok(Self {
            ready: row.count()?,
            in_flight: row.count()?,
            scheduled: row.count()?,
            retrying: row.count()?,
            dead: row.count()?,
            oldest_ready: row
                .optional_int()?
                .map(|micros| Duration::from_micros(micros.unsigned_abs())),
        })
    }

    fn record(&self, store: &Arc<str>, queue: &'static str) {
        let depths = [
            ("ready", self.ready),
            ("in_flight", self.in_flight),
            ("scheduled", self.scheduled),
            ("retrying", self.retrying),
        ];
        for (state, depth) in depths {
            gauge!("postroom_queue_depth", "store" => Arc::clone(store), "queue" => queue, "state" => state)
                .set(depth as f64);
        }
        gauge!("postroom_dead", "store" => Arc::clone(store), "queue" => queue)
            .set(self.dead as f64);
        gauge!("postroom_oldest_ready_seconds", "store" => Arc::clone(store), "queue" => queue)
            .set(self.oldest_ready.unwrap_or_default());
    }
}
