//! Counters of a store that are read in no time: their differences make rates.

use crate::error::{Error, ErrorKind};
use crate::room::Postroom;

impl Postroom {
    /// How many messages this store has ever seen, cheaply: fine every second.
    ///
    /// The numbers are for rates, not for accounts: take the difference of two readings and divide it by
    /// the time between them. A number that has become smaller has started again: count that difference as
    /// nothing. They do start again
    /// - on PostgreSQL when the server's statistics are reset, as they are by a crash. They come from there,
    ///   up to some seconds late, and count what was rolled back too;
    /// - on SQLite when a cleanup, purge or replay has emptied the archive or the dead messages. There, done
    ///   stays zero if the store keeps no done messages ([`Options::keep_done`](crate::Options::keep_done));
    /// - on SQL Server, in part, when dead messages are replayed or purged: what is neither unfinished nor dead
    ///   counts as done.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn totals(&self) -> Result<Totals, Error> {
        let call = self.store.catalog.totals.call(Vec::new());
        let mut rows = self.store.read("totals", "store", call).await?;
        let mut row = rows
            .pop()
            .ok_or_else(|| ErrorKind::Schema.with("a count returned no row"))?;
        Ok(Totals {
            enqueued: row.count()?,
            done: row.count()?,
            died: row.count()?,
            received: row.count()?,
        })
    }
}

/// Counters of a store; see [`Postroom::totals`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Messages put into the outbox; a replay counts as one.
    pub enqueued: u64,
    /// Messages that were done, of the outbox and the inbox.
    pub done: u64,
    /// Messages that failed for good, of the outbox and the inbox.
    pub died: u64,
    /// Messages put into the inbox; a revival counts as one, a duplicate does not.
    pub received: u64,
}
