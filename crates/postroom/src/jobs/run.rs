//! Jobs at work: one run in one store, and the loop that starts runs when they are due.

use std::collections::HashMap;
use std::sync::Arc;

use croner::Cron;
use jiff::Timestamp;
use metrics::{counter, gauge};
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinError, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::cron::Ticks;
use super::plan::{Job, Processing};
use super::{Jobs, STORES_AT_ONCE};
use crate::error::Error;
use crate::room::Postroom;
use crate::store::Store;

/// How a job went, store by store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobReport {
    /// Which job.
    pub job: Job,
    /// Each store, in the order in which they were named.
    pub stores: Vec<StoreReport>,
}

/// How a job went in one store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// The store's [identifier](Postroom::identifier).
    pub store: String,
    /// How many messages were handled, deleted or counted, joins deleted, or leases freed.
    pub result: Result<u64, Error>,
}

impl JobReport {
    /// The sum over the stores where it went well.
    #[must_use]
    pub fn count(&self) -> u64 {
        let counts = self
            .stores
            .iter()
            .filter_map(|one| one.result.as_ref().ok());
        counts.sum()
    }

    /// The stores where it failed, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &Error)> {
        let stores = self.stores.iter();
        stores.filter_map(|one| Some((one.store.as_str(), one.result.as_ref().err()?)))
    }
}

/// Jobs that run in the background. Dropping it stops them too, without waiting for the end.
#[must_use = "jobs stop when this is dropped"]
#[derive(Debug)]
pub struct RunningJobs {
    stop: CancellationToken,
    loops: Vec<JoinHandle<()>>,
}

impl RunningJobs {
    /// Starts nothing more, and waits for what runs. A cleanup ends after its current batch at the latest;
    /// a dispatcher ends as [`Running::stop`](crate::Running::stop) does.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for running in self.loops.drain(..) {
            // A loop that panicked has nothing left to wait for.
            let _ = running.await;
        }
    }
}

impl Drop for RunningJobs {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts a loop for each job.
pub(super) fn start(jobs: Arc<Jobs>, schedules: Vec<(Job, Cron)>) -> RunningJobs {
    let stop = CancellationToken::new();
    let now = Timestamp::now();
    let loops = schedules
        .into_iter()
        .map(|(job, cron)| {
            let timetable = Timetable {
                jobs: Arc::clone(&jobs),
                job,
                stop: stop.clone(),
                slots: Arc::new(Semaphore::new(STORES_AT_ONCE)),
                runs: JoinSet::new(),
                busy: HashMap::new(),
            };
            tokio::spawn(timetable.work(Ticks::new(cron, now)))
        })
        .collect();
    RunningJobs { stop, loops }
}

/// One job's loop. Each store has its own run, so that one which takes long, or hangs, is left alone by
/// the next tick and does not hold up the others.
struct Timetable {
    jobs: Arc<Jobs>,
    job: Job,
    stop: CancellationToken,
    slots: Arc<Semaphore>,
    runs: JoinSet<()>,
    busy: HashMap<Id, Postroom>,
}

impl Timetable {
    async fn work(mut self, mut ticks: Ticks) {
        let stop = self.stop.clone();
        while !stop.is_cancelled() {
            let pause = ticks.pause(Timestamp::now());
            tokio::select! {
                () = stop.cancelled() => {}
                Some(ended) = self.runs.join_next_with_id() => self.ended(ended),
                () = tokio::time::sleep(pause) => {
                    if ticks.is_due(Timestamp::now()) {
                        self.tick();
                    }
                }
            }
        }
        while let Some(ended) = self.runs.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Starts the job in every store where it does not run already.
    fn tick(&mut self) {
        for room in self.jobs.rooms() {
            let is_busy = |other: &Postroom| Arc::ptr_eq(&other.store, &room.store);
            if self.busy.values().any(is_busy) {
                tracing::debug!(job = %self.job, store = %room.identifier(), "still running; this tick is skipped");
                continue;
            }
            let (jobs, job, stop) = (Arc::clone(&self.jobs), self.job, self.stop.clone());
            let (slots, worked) = (Arc::clone(&self.slots), room.clone());
            let run = self.runs.spawn(async move {
                let slot = tokio::select! {
                    slot = slots.acquire() => slot,
                    () = stop.cancelled() => return,
                };
                jobs.run(job, worked, &stop).await;
                drop(slot);
            });
            self.busy.insert(run.id(), room);
        }
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, panicked) = match ended {
            Ok((id, ())) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let room = self.busy.remove(&id);
        if let Some(room) = room.filter(|_| panicked) {
            tracing::error!(job = %self.job, store = %room.identifier(), "the job panicked");
            count(self.job, &room.store, true);
        }
    }
}

impl Jobs {
    /// One run in one store. A failure is logged, counted and reported; it is nobody else's.
    pub(super) async fn run(
        &self,
        job: Job,
        room: Postroom,
        stop: &CancellationToken,
    ) -> StoreReport {
        let store = room.identifier();
        let result = match job {
            // It has messages in its hands: told to stop, it ends by itself and in good order.
            Job::Processing => self.process(&room, stop).await,
            // Dropped between two statements, or in the middle of one, these leave a whole transaction
            // behind or none.
            _ => tokio::select! {
                biased;
                result = self.tidy(job, &room) => result,
                () = stop.cancelled() => Ok(0),
            },
        };
        match &result {
            Ok(count) => tracing::debug!(%job, store, count, "job done"),
            Err(error) => {
                tracing::error!(%job, store, %error, "job failed; tried again at its next time")
            }
        }
        count(job, &room.store, result.is_err());
        StoreReport {
            store: store.to_owned(),
            result,
        }
    }

    async fn process(&self, room: &Postroom, stop: &CancellationToken) -> Result<u64, Error> {
        let default = Processing::default();
        let processing = self.processing.as_ref().unwrap_or(&default);
        let dispatcher = self.processor()?(room)
            .batch(processing.batch)
            .chunk(processing.chunk);
        Ok(dispatcher.drain_until(stop).await?.handled())
    }

    async fn tidy(&self, job: Job, room: &Postroom) -> Result<u64, Error> {
        let (outbox, inbox) = (room.outbox(), room.inbox());
        match job {
            Job::Processing => Ok(0),
            Job::OutboxCleanup => outbox.cleanup(self.outbox_cleanup.retention).await,
            Job::InboxCleanup => inbox.cleanup(self.inbox_cleanup.retention).await,
            Job::JoinCleanup => room.joins().cleanup(self.join_cleanup.retention).await,
            Job::Reaping => {
                let (first, second) = (outbox.reap().await, inbox.reap().await);
                Ok(first? + second?)
            }
            Job::Counting => count_messages(room).await,
        }
    }
}

fn count(job: Job, store: &Store, failed: bool) {
    let store = &store.identifier;
    counter!("postroom_job_runs_total", "job" => job.name(), "store" => store.clone()).increment(1);
    if failed {
        counter!("postroom_job_failures_total", "job" => job.name(), "store" => store.clone())
            .increment(1);
    }
}

/// How many messages there are, by queue and state, as a metric.
async fn count_messages(room: &Postroom) -> Result<u64, Error> {
    let (outbox, inbox) = (room.outbox().counts().await?, room.inbox().counts().await?);
    let counts = [
        ("outbox", "ready", outbox.ready),
        ("outbox", "in_flight", outbox.in_flight),
        ("outbox", "done", outbox.done),
        ("outbox", "dead", outbox.dead),
        ("inbox", "seen", inbox.seen),
        ("inbox", "processing", inbox.processing),
        ("inbox", "done", inbox.done),
        ("inbox", "dead", inbox.dead),
    ];
    for (queue, state, count) in counts {
        let store = room.store.identifier.clone();
        // A gauge is a floating-point number; beyond four thousand million it says just that.
        let value = u32::try_from(count).map_or(f64::from(u32::MAX), f64::from);
        gauge!("postroom_messages", "store" => store, "queue" => queue, "state" => state)
            .set(value);
    }
    Ok(counts.iter().map(|(_, _, count)| count).sum())
}
