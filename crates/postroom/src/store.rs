//! The work queue, written once for outbox and inbox and for every database: claim, settle, renew,
//! reap, list, replay. Each operation is one transaction, one span and one metric.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::Semaphore;
use tracing::Instrument;
use uuid::Uuid;

use crate::db::{Database, Output, Wakes};
use crate::error::{Error, ErrorKind, stored_error};
use crate::id::{JoinId, OwnerToken};
use crate::join::{Finished, JoinStatus, finished};
use crate::list::{DeadFilter, Matching};
use crate::observe::Propagator;
use crate::sql::{Call, Catalog, Dialect, Names, Queue, QueueSql, Row, Value};
use crate::wake::Wake;
use crate::watermark::{Watermark, next_attempts};

/// One store: one database, one schema.
pub(crate) struct Store {
    pub(crate) db: Box<dyn Database>,
    pub(crate) catalog: Catalog,
    pub(crate) names: Names,
    /// What logs and metrics call this store. No password, no query string.
    pub(crate) identifier: Arc<str>,
    pub(crate) worker: String,
    pub(crate) keep_done: bool,
    pub(crate) join_wait_topic: String,
    /// Who knows the trace of the running task, if somebody does.
    pub(crate) propagator: Option<Arc<dyn Propagator>>,
    pub(crate) outbox: QueueState,
    pub(crate) inbox: QueueState,
    /// How many handlers may have a transaction open at once.
    pub(crate) transactions: Semaphore,
}

/// What this process knows of one queue.
pub(crate) struct QueueState {
    watermark: Watermark,
    reaped: Mutex<Option<Instant>>,
    wake: Arc<Wake>,
    /// Where workers of other processes listen.
    channel: String,
}

impl QueueState {
    pub(crate) fn new(channel: String) -> Self {
        Self {
            watermark: Watermark::default(),
            reaped: Mutex::default(),
            wake: Arc::default(),
            channel,
        }
    }
}

/// The longest lease and delay.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The largest claim.
pub(crate) const LARGEST_BATCH: usize = 10_000;

/// The largest claim that is quick enough to run where its caller is.
pub(crate) const QUICK_BATCH: usize = 100;

/// How many rows one transaction of a cleanup deletes.
pub(crate) const CLEANUP_BATCH: i64 = 5_000;

impl Store {
    pub(crate) fn dialect(&self) -> Dialect {
        self.db.dialect()
    }

    pub(crate) fn queue(&self, queue: Queue) -> (&'static str, &QueueSql, &Watermark) {
        match queue {
            Queue::Outbox => ("outbox", &self.catalog.outbox, &self.outbox.watermark),
            Queue::Inbox => ("inbox", &self.catalog.inbox, &self.inbox.watermark),
        }
    }

    fn state(&self, queue: Queue) -> &QueueState {
        match queue {
            Queue::Outbox => &self.outbox,
            Queue::Inbox => &self.inbox,
        }
    }

    /// Where the dispatchers of this process sleep.
    pub(crate) fn wake(&self, queue: Queue) -> &Arc<Wake> {
        &self.state(queue).wake
    }

    /// What others announce, and whom it wakes.
    pub(crate) fn wakes(&self, queues: &[Queue]) -> Wakes {
        let states = queues.iter().map(|queue| self.state(*queue));
        states
            .map(|state| (state.channel.clone(), Arc::clone(&state.wake)))
            .collect()
    }

    /// Something was committed that a worker can take.
    pub(crate) fn added(&self, queue: Queue) {
        self.wake(queue).wake();
        self.announce(queue, None);
    }

    /// Something was written in a caller's transaction, and may be committed soon.
    pub(crate) fn promised(&self, queue: Queue, id: Uuid) {
        self.wake(queue).promise();
        self.announce(queue, Some(id));
    }

    fn announce(&self, queue: Queue, promised: Option<Uuid>) {
        let (_, sql, _) = self.queue(queue);
        let channel = &self.state(queue).channel;
        self.db
            .announce(queue, channel, sql.announce.as_ref(), promised);
    }

    /// Leases up to `batch` ready messages to `owner`, oldest first.
    pub(crate) async fn claim(
        &self,
        queue: Queue,
        owner: OwnerToken,
        lease: Duration,
        batch: usize,
    ) -> Result<Vec<Row>, Error> {
        let owner = owner.checked("owner")?;
        let lease = lease_micros(lease)?;
        if batch == 0 || batch > LARGEST_BATCH {
            return Err(ErrorKind::OutOfRange { param: "batch" }
                .with(format!("expected 1 to {LARGEST_BATCH}, got {batch}")));
        }
        let (name, sql, watermark) = self.queue(queue);
        let from = watermark.from();
        let started = Instant::now();
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let call = sql.claim.call(vec![
            owner.into(),
            lease.into(),
            limit.into(),
            from.into(),
            1.into(),
        ]);
        let call = if batch <= QUICK_BATCH {
            call.quick()
        } else {
            call
        };
        let rows = self
            .observed("claim", name, self.db.run(vec![call]))
            .await?
            .rows;
        watermark.claimed(
            from,
            started.elapsed(),
            rows.len() == batch,
            &next_attempts(queue, rows.iter()),
        );
        tracing::debug!(store = %self.identifier, queue = name, count = rows.len(), "claimed");
        counter!("postroom_claimed_total", "store" => self.identifier.clone(), "queue" => name)
            .increment(rows.len() as u64);
        Ok(rows)
    }

    /// Moves what `owner` holds among `ids` to done. Gives back what really changed.
    pub(crate) async fn ack(
        &self,
        target: &Target<'_>,
        owner: OwnerToken,
    ) -> Result<Vec<Uuid>, Error> {
        let owner = owner.checked("owner")?;
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        let call = target.sql.ack.call(self.ack_values(owner, ids)).quick();
        self.settle("ack", target, vec![call]).await
    }

    pub(crate) fn ack_values(&self, owner: Uuid, ids: Value) -> Vec<Value> {
        vec![
            owner.into(),
            ids,
            self.worker.as_str().into(),
            i64::from(self.keep_done).into(),
        ]
    }

    /// Moves what `owner` holds among `ids` to dead, with one error for all.
    pub(crate) async fn fail(
        &self,
        target: &Target<'_>,
        owner: OwnerToken,
        error: &str,
    ) -> Result<Vec<Uuid>, Error> {
        let owner = owner.checked("owner")?;
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        let errors = Value::Texts(vec![stored_error(error)]);
        let call = target
            .sql
            .fail
            .call(vec![owner.into(), ids, errors, self.worker.as_str().into()])
            .quick();
        self.settle("fail", target, vec![call]).await
    }

    /// Hands what `owner` holds among `ids` back for a later attempt.
    pub(crate) async fn abandon(
        &self,
        target: &Target<'_>,
        owner: OwnerToken,
        how: &Abandon,
    ) -> Result<Vec<Uuid>, Error> {
        let owner = owner.checked("owner")?;
        let delay = how
            .delay
            .map(|delay| duration_micros("delay", delay))
            .transpose()?;
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        let values = vec![
            owner.into(),
            ids,
            Value::Ints(vec![delay]),
            Value::Texts(vec![how.error.as_deref().and_then(stored_error)]),
            Value::Ints(vec![Some(i64::from(how.deferred))]),
        ];
        self.settle(
            "abandon",
            target,
            vec![target.sql.abandon.call(values).quick()],
        )
        .await
    }

    /// Extends the leases that `owner` still holds among `ids`; the others are lost.
    pub(crate) async fn renew(
        &self,
        target: &Target<'_>,
        owner: OwnerToken,
        lease: Duration,
    ) -> Result<Vec<Uuid>, Error> {
        let owner = owner.checked("owner")?;
        let lease = lease_micros(lease)?;
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        let call = target
            .sql
            .renew
            .call(vec![owner.into(), ids, lease.into()])
            .quick();
        self.settle("renew", target, vec![call]).await
    }

    /// Hands what `owner` holds among `ids` back as if it had never been claimed.
    pub(crate) async fn release(
        &self,
        target: &Target<'_>,
        owner: OwnerToken,
    ) -> Result<Vec<Uuid>, Error> {
        let owner = owner.checked("owner")?;
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        let call = target.sql.release.call(vec![owner.into(), ids]).quick();
        self.settle("release", target, vec![call]).await
    }

    /// Runs a settling transaction and takes its rows apart: ids that changed, joins that finished.
    pub(crate) async fn settle(
        &self,
        operation: &'static str,
        target: &Target<'_>,
        calls: Vec<Call>,
    ) -> Result<Vec<Uuid>, Error> {
        let output = self
            .observed(operation, target.name, self.db.run(calls))
            .await?;
        let ids = self.settled(output.rows)?;
        self.log_settled(operation, target.name, ids.len());
        Ok(ids)
    }

    /// What settling rows say: ids that changed, joins that finished.
    pub(crate) fn settled(&self, rows: Vec<Row>) -> Result<Vec<Uuid>, Error> {
        let mut ids = Vec::with_capacity(rows.len());
        for mut row in rows {
            let settled = row.uuids()?;
            if settled.is_empty() {
                self.log_finished_join(&mut row)?;
            }
            ids.extend(settled);
        }
        Ok(ids)
    }

    pub(crate) fn log_settled(&self, operation: &'static str, queue: &'static str, count: usize) {
        tracing::debug!(store = %self.identifier, queue, operation, count, "settled");
        counter!("postroom_settled_total", "store" => self.identifier.clone(), "queue" => queue, "operation" => operation)
            .increment(count as u64);
    }

    /// Reads `join_id, status, completed, failed, expected` and tells when the join has finished.
    pub(crate) fn log_finished_join(&self, row: &mut Row) -> Result<(), Error> {
        if let Some(join) = finished(row)? {
            self.join_finished(&join);
        }
        Ok(())
    }

    /// A join has finished: it is told, and its wait messages are ready.
    pub(crate) fn join_finished(&self, join: &Finished) {
        self.added(Queue::Outbox);
        tracing::info!(
            store = %self.identifier,
            join_id = %JoinId::from(join.id),
            status = ?join.status,
            completed = join.completed,
            failed = join.failed,
            expected = join.expected,
            "join finished"
        );
        let status = if join.status == JoinStatus::Failed {
            "failed"
        } else {
            "completed"
        };
        counter!("postroom_joins_finished_total", "store" => self.identifier.clone(), "status" => status).increment(1);
    }

    /// Frees every expired lease.
    pub(crate) async fn reap(&self, queue: Queue) -> Result<u64, Error> {
        let (name, sql, watermark) = self.queue(queue);
        let reaped = self.number("reap", name, sql.reap.call(Vec::new())).await?;
        watermark.forget();
        tracing::info!(store = %self.identifier, queue = name, count = reaped, "reaped expired leases");
        counter!("postroom_reaped_total", "store" => self.identifier.clone(), "queue" => name)
            .increment(reaped);
        Ok(reaped)
    }

    /// Frees expired leases, unless this was done within the last minute: it looks at every live message.
    pub(crate) async fn reap_now_and_then(&self, queue: Queue) -> Result<u64, Error> {
        const PERIOD: Duration = Duration::from_secs(60);
        let due = {
            let mut last = self
                .state(queue)
                .reaped
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let due = last.is_none_or(|last| last.elapsed() >= PERIOD);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        if due { self.reap(queue).await } else { Ok(0) }
    }

    /// Makes dead messages ready again.
    pub(crate) async fn replay(&self, target: &Target<'_>) -> Result<Vec<Uuid>, Error> {
        let Some(ids) = target.ids() else {
            return Ok(Vec::new());
        };
        self.settle("replay", target, vec![target.sql.replay.call(vec![ids])])
            .await
    }

    /// Deletes dead messages by id.
    pub(crate) async fn purge(&self, target: &Target<'_>) -> Result<u64, Error> {
        let Some(ids) = target.ids() else {
            return Ok(0);
        };
        self.number(
            "purge",
            target.name,
            target.sql.purge.call(vec![ids, 0.into(), 0.into()]),
        )
        .await
    }

    /// Makes the dead messages that match ready again, batch by batch.
    pub(crate) async fn replay_matching(
        &self,
        queue: Queue,
        filter: &DeadFilter,
    ) -> Result<u64, Error> {
        let mut matching = Matching::now(filter, self, queue).await?;
        let mut total = 0;
        loop {
            let ids = matching.next(self).await?;
            if ids.is_empty() {
                return Ok(total);
            }
            total += self.replay(&self.items(queue, ids)).await?.len() as u64;
            self.added(queue);
        }
    }

    /// Deletes the dead messages that match, batch by batch.
    pub(crate) async fn purge_matching(
        &self,
        queue: Queue,
        filter: &DeadFilter,
    ) -> Result<u64, Error> {
        let mut matching = Matching::now(filter, self, queue).await?;
        let mut total = 0;
        loop {
            let ids = matching.next(self).await?;
            if ids.is_empty() {
                return Ok(total);
            }
            total += self.purge(&self.items(queue, ids)).await?;
        }
    }

    /// Work items of a queue.
    fn items(&self, queue: Queue, ids: Vec<Uuid>) -> Target<'_> {
        let (name, sql, _) = self.queue(queue);
        Target {
            name,
            sql,
            ids: ids.into(),
        }
    }

    /// The database's clock, in microseconds since 1970.
    pub(crate) async fn clock(&self) -> Result<i64, Error> {
        let mut rows = self
            .read("clock", "store", self.catalog.clock.call(Vec::new()))
            .await?;
        rows.pop()
            .ok_or_else(|| ErrorKind::Schema.with("the clock returned no row"))?
            .int()
    }

    /// Deletes dead messages that died longer than `age` ago, batch by batch.
    pub(crate) async fn purge_older_than(&self, queue: Queue, age: Duration) -> Result<u64, Error> {
        let age = duration_micros("older_than", age)?;
        let (name, sql, _) = self.queue(queue);
        self.in_batches(|| {
            let call = sql
                .purge
                .call(vec![Value::Text(None), age.into(), CLEANUP_BATCH.into()]);
            self.number("purge", name, call)
        })
        .await
    }

    /// Deletes done messages batch by batch, each batch a transaction.
    pub(crate) async fn cleanup(&self, queue: Queue, cutoff: Cutoff) -> Result<u64, Error> {
        let (name, sql, _) = self.queue(queue);
        self.observed(
            "maintain",
            name,
            self.db.run(vec![sql.maintain.call(Vec::new())]),
        )
        .await?;
        self.in_batches(|| self.cleanup_batch(queue, cutoff, CLEANUP_BATCH))
            .await
    }

    pub(crate) async fn cleanup_batch(
        &self,
        queue: Queue,
        cutoff: Cutoff,
        batch: i64,
    ) -> Result<u64, Error> {
        let (name, sql, _) = self.queue(queue);
        let (age, before) = cutoff.age_or_time();
        self.number(
            "cleanup",
            name,
            sql.cleanup
                .call(vec![age.into(), before.into(), batch.into()]),
        )
        .await
    }

    /// Repeats a batched operation until it has nothing left to do.
    pub(crate) async fn in_batches<F: Future<Output = Result<u64, Error>>>(
        &self,
        mut batch: impl FnMut() -> F,
    ) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            match batch().await? {
                0 => return Ok(total),
                count => total += count,
            }
        }
    }

    /// One call whose last row is a number.
    pub(crate) async fn number(
        &self,
        operation: &'static str,
        queue: &'static str,
        call: Call,
    ) -> Result<u64, Error> {
        let mut output = self
            .observed(operation, queue, self.db.run(vec![call]))
            .await?;
        output
            .rows
            .pop()
            .ok_or_else(|| ErrorKind::Schema.with("a statement returned no row"))?
            .count()
    }

    pub(crate) async fn read(
        &self,
        operation: &'static str,
        queue: &'static str,
        call: Call,
    ) -> Result<Vec<Row>, Error> {
        Ok(self
            .observed(operation, queue, self.db.read(call))
            .await?
            .rows)
    }

    pub(crate) async fn run(
        &self,
        operation: &'static str,
        queue: &'static str,
        calls: Vec<Call>,
    ) -> Result<Output, Error> {
        self.observed(operation, queue, self.db.run(calls)).await
    }

    /// The one place where operations are traced and timed.
    pub(crate) async fn observed<T>(
        &self,
        operation: &'static str,
        queue: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let span = tracing::debug_span!("postroom", operation, queue, store = %self.identifier);
        let started = Instant::now();
        let result = work.instrument(span).await;
        let outcome = if result.is_ok() { "ok" } else { "error" };
        histogram!(
            "postroom_operation_seconds",
            "store" => self.identifier.clone(), "queue" => queue, "operation" => operation, "outcome" => outcome
        )
        .record(started.elapsed());
        result
    }
}

/// Which rows of which queue an operation is about.
pub(crate) struct Target<'a> {
    pub(crate) name: &'static str,
    pub(crate) sql: &'a QueueSql,
    pub(crate) ids: Value,
}

impl Target<'_> {
    /// The ids, `None` when there are none: then nothing has to be asked. One that was given twice counts
    /// once, and whoever wants the same rows locks them in the same order.
    fn ids(&self) -> Option<Value> {
        match &self.ids {
            Value::Uuids(ids) if ids.is_empty() => None,
            Value::Uuids(ids) => {
                let mut ids = ids.clone();
                ids.sort_unstable();
                ids.dedup();
                Some(Value::Uuids(ids))
            }
            Value::Text(None) => None,
            ids => Some(ids.clone()),
        }
    }
}

/// What is old enough to be deleted: by age, or by a point in time. Microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cutoff {
    OlderThan(i64),
    Before(i64),
}

impl Cutoff {
    /// The age, or the point in time: one of them.
    pub(crate) fn age_or_time(self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::OlderThan(age) => (Some(age), None),
            Self::Before(time) => (None, Some(time)),
        }
    }
}

/// How messages are handed back.
///
/// ```
/// use std::time::Duration;
/// use postroom::Abandon;
///
/// let how = Abandon::after(Duration::from_secs(5)).error("the bank is closed");
/// let backoff = Abandon::default(); // min(2^attempts, 60) seconds
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abandon {
    pub(crate) delay: Option<Duration>,
    pub(crate) error: Option<String>,
    pub(crate) deferred: bool,
}

impl Abandon {
    /// Ready again after exactly `delay`, by the database's clock.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self {
            delay: Some(delay),
            ..Self::default()
        }
    }

    /// Records what went wrong. It is cut to 2 KiB; keep payloads and secrets out of it.
    #[must_use]
    pub fn error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Says that nothing went wrong: the message was only not ready yet. It counts as an attempt, but
    /// uses up none of those that a retry policy allows.
    #[must_use]
    pub fn deferred(mut self) -> Self {
        self.deferred = true;
        self
    }
}

pub(crate) fn lease_micros(lease: Duration) -> Result<i64, Error> {
    duration_micros("lease", lease).and_then(|micros| positive("lease", micros))
}

/// A retention must be longer than nothing: zero would delete everything.
pub(crate) fn retention_micros(param: &'static str, retention: Duration) -> Result<i64, Error> {
    positive(param, duration_micros(param, retention)?)
}

pub(crate) fn positive(param: &'static str, micros: i64) -> Result<i64, Error> {
    if micros <= 0 {
        return Err(ErrorKind::OutOfRange { param }.with("must be longer than zero"));
    }
    Ok(micros)
}

pub(crate) fn duration_micros(param: &'static str, duration: Duration) -> Result<i64, Error> {
    let longest = if ["older_than", "newer_than"].contains(&param) {
        LONGEST * 100
    } else {
        LONGEST
    };
    i64::try_from(duration.as_micros())
        .ok()
        .filter(|_| duration <= longest)
        .ok_or_else(|| {
            ErrorKind::OutOfRange { param }.with(format!(
                "must be at most {} days",
                longest.as_secs() / 86_400
            ))
        })
}
