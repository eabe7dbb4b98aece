//! One queue of one store at work: what was claimed and waits, what runs, what is to be settled. The
//! loop of a dispatcher and the turns of a fleet both drive it.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::sync::Notify;

use super::delivery::{Delivered, Delivery};
use super::dispatcher::Settings;
use super::handler::Handlers;
use super::lease::{Lease, Leases};
use super::pace::Pace;
use super::run::{AbortOnDrop, Report};
use super::turn::{Claim, Claimed, Settlement, Settling};
use crate::db::Database;
use crate::error::Error;
use crate::id::OwnerToken;
use crate::room::Postroom;
use crate::sql::{Dialect, Place, Queue};

pub(crate) struct Engine {
    pub(crate) room: Postroom,
    pub(crate) queue: Queue,
    pub(super) handlers: Handlers,
    pub(crate) settings: Arc<Settings>,
    /// Connections that handlers cannot take away.
    db: Box<dyn Database>,
    pub(super) leases: Arc<Leases>,
    _keeping: AbortOnDrop,
    desk: Mutex<Desk>,
    /// There may be something for the next turn.
    pub(crate) changed: Notify,
    pub(crate) tally: Tally,
}

#[derive(Default)]
struct Desk {
    waiting: VecDeque<Work>,
    running: usize,
    /// Tasks that take from `waiting`.
    workers: usize,
    /// Messages that were asked for and are on their way.
    claiming: usize,
    /// Results that are on their way.
    settling: usize,
    /// A message has its last chance, and nothing is claimed beside it.
    last_chance: bool,
    /// That message, until all others that would be blamed with it are handed back.
    alone: Option<Work>,
    results: Vec<Finished>,
    first_result: Option<Instant>,
    /// How many results go into a turn: one at a time after the database has refused several.
    one_by_one: bool,
    handler_time: Average,
    turn_time: Average,
    stopping: bool,
}

/// A message that was claimed.
pub(super) struct Work {
    pub(super) delivery: Delivery,
    pub(super) lease: Lease,
    claimed: Instant,
    place: Option<Place>,
}

/// A message that was handled, and what is to become of it.
struct Finished {
    settling: Settling,
    lease: Lease,
    outcome: Handled,
    uncertain: bool,
}

/// What is still to be written of a message that was handled.
pub(super) struct Unsettled {
    settlement: Settlement,
    outcome: Handled,
    /// It was perhaps settled before, by a commit of which nobody knows the end. To find it gone then is
    /// no lost lease.
    uncertain: bool,
}

impl Unsettled {
    pub(super) fn new(settlement: Settlement, outcome: Handled) -> Self {
        Self {
            settlement,
            outcome,
            uncertain: false,
        }
    }

    pub(super) fn uncertain_if(mut self, uncertain: bool) -> Self {
        self.uncertain |= uncertain;
        self
    }
}

/// What became of a message, for reports and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handled {
    Done,
    Retried,
    NotReady,
    Dead,
    Released,
    Unhandled,
}

impl Handled {
    /// All of them, in order.
    const ALL: [Self; 6] = [
        Self::Done,
        Self::Retried,
        Self::NotReady,
        Self::Dead,
        Self::Released,
        Self::Unhandled,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retried => "retried",
            Self::NotReady => "not_ready",
            Self::Dead => "dead",
            Self::Released => "released",
            Self::Unhandled => "unhandled",
        }
    }
}

/// What a turn has brought.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Turn {
    pub(crate) asked: usize,
    pub(crate) claimed: usize,
}

/// How many turns may be under way at once: while one is on the wire, the other's messages are handled. On
/// PostgreSQL one more keeps the database busy while a commit waits for the disk. SQLite has one writer, which
/// a third would only wait for; the others are as they were measured.
fn turns(dialect: Dialect) -> usize {
    if dialect == Dialect::Postgres { 3 } else { 2 }
}

/// The longest that results wait for company while the queue is busy.
pub(super) const LINGER: Duration = Duration::from_millis(2);

impl Engine {
    pub(crate) fn new(
        room: &Postroom,
        queue: Queue,
        handlers: &Handlers,
        settings: &Arc<Settings>,
    ) -> Result<Arc<Self>, Error> {
        let mut handlers = handlers.clone();
        if queue == Queue::Outbox {
            handlers.add_join_wait(&room.store.join_wait_topic);
        }
        handlers.measure(&room.store.identifier, queue);
        let (leases, keeping) = Leases::keep(Arc::clone(&room.store), queue, settings.lease)?;
        Ok(Arc::new(Self {
            db: room.store.db.apart(turns(room.dialect()))?,
            room: room.clone(),
            queue,
            handlers,
            settings: Arc::clone(settings),
            leases,
            _keeping: keeping,
            desk: Mutex::default(),
            changed: Notify::new(),
            tally: Tally::default(),
        }))
    }

    /// How many messages there is room for.
    fn capacity(&self, desk: &Desk) -> usize {
        if desk.stopping || desk.last_chance {
            return 0;
        }
        let (limit, batch) = (self.settings.concurrency, self.settings.batch);
        // Enough to keep handlers busy during two turns, and no more: what waits here is kept from others.
        let prefetch = match (desk.handler_time.seconds(), desk.turn_time.seconds()) {
            (Some(handler), Some(turn)) => whole(2.0 * turn / handler.max(1e-9) * as_f64(limit)),
            _ => 0,
        };
        let room = limit + prefetch.min(batch * 4);
        room.saturating_sub(desk.waiting.len() + desk.running + desk.claiming)
    }

    /// How many messages the next claim should take.
    pub(crate) fn claimable(&self) -> usize {
        self.capacity(&self.desk()).min(self.settings.batch)
    }

    /// When results should be settled that wait for company no longer than `linger`; `None` when there are
    /// none.
    pub(crate) fn settle_at(&self, linger: Duration) -> Option<Instant> {
        let desk = self.desk();
        let first = desk.first_result?;
        let full = desk.results.len() >= self.settings.batch;
        Some(if full { first } else { first + linger })
    }

    /// Whether a turn is worth while, and how many messages it should claim.
    pub(super) fn wants_turn(&self, under_way: usize, pace: &Pace) -> Option<usize> {
        let (looking, busy) = (pace.is_due(), pace.is_busy());
        let desk = self.desk();
        let batch = self.settings.batch;
        let results = desk.results.len();
        let claim = self.capacity(&desk).min(batch);
        if under_way >= turns(self.room.dialect()) || (results == 0 && (claim == 0 || !looking)) {
            return None;
        }
        let full = results >= self.enough_results() || (looking && claim == batch);
        let all_in = desk.waiting.is_empty() && desk.running == 0 && desk.claiming == 0;
        let waited = desk
            .first_result
            .is_some_and(|first| first.elapsed() >= LINGER);
        let worth_while = if under_way > 0 {
            full && busy
        } else if pace.is_gathering() {
            claim == 0 && results >= self.enough_results()
        } else {
            // Without results there is no company to wait for: what is free must not stay so.
            !busy || full || all_in || waited || results == 0
        };
        worth_while.then_some(claim)
    }

    /// Whether one more message could be claimed.
    pub(super) fn has_room(&self) -> bool {
        self.capacity(&self.desk()) > 0
    }

    /// How many results are worth a turn of their own.
    fn enough_results(&self) -> usize {
        let settings = &self.settings;
        settings.chunk.unwrap_or(settings.batch.div_ceil(2))
    }

    /// Settles what has gathered and claims up to `claim` messages, which start to be handled. What lies
    /// before those that were claimed last is looked at now and then only.
    pub(crate) async fn turn(self: &Arc<Self>, claim: usize) -> Result<Turn, Error> {
        self.take_turn(claim, false).await
    }

    /// The same, but if it claims less than it was asked for, there was no more.
    pub(crate) async fn thorough_turn(self: &Arc<Self>, claim: usize) -> Result<Turn, Error> {
        self.take_turn(claim, true).await
    }

    async fn take_turn(self: &Arc<Self>, claim: usize, everywhere: bool) -> Result<Turn, Error> {
        let began = Instant::now();
        let (claim, finished) = {
            let mut desk = self.desk();
            let claim = if desk.last_chance { 0 } else { claim };
            desk.claiming += claim;
            let finished = desk.take_results();
            desk.settling += finished.len();
            (claim, finished)
        };
        let settling_now = finished.len();
        let settling: Vec<&Settling> = finished.iter().map(|one| &one.settling).collect();
        let owner = OwnerToken::new();
        let wanted = (claim > 0).then_some(Claim {
            owner,
            lease: self.settings.lease,
            batch: claim,
            everywhere,
        });
        let store = &self.room.store;
        let turned = store
            .turn(&*self.db, self.queue, &settling, wanted)
            .await
            .and_then(|turned| Ok((turned.settled, self.read(turned.claimed)?)));
        self.desk().settling -= settling_now;
        match turned {
            Ok((settled, messages)) => {
                self.close(&finished, &settled);
                let claimed = messages.len();
                self.accept(owner, began, claim, messages);
                self.start_alone();
                Ok(Turn {
                    asked: claim,
                    claimed,
                })
            }
            Err(error) => {
                {
                    let mut desk = self.desk();
                    desk.claiming -= claim;
                    desk.put_back(finished, &error);
                }
                self.start_alone();
                Err(error)
            }
        }
    }

    fn read(&self, claimed: Vec<Claimed>) -> Result<Vec<(Delivered, Option<Place>)>, Error> {
        let mut messages = claimed
            .into_iter()
            .map(|one| Ok((Delivered::read(self.queue, one.row)?, one.place)))
            .collect::<Result<Vec<_>, Error>>()?;
        messages.sort_by_key(|(message, _)| message.order());
        Ok(messages)
    }

    /// What was settled is closed. What was not, though it was asked for, is somebody else's by now.
    fn close(&self, finished: &[Finished], settled: &[uuid::Uuid]) {
        let all = settled.len() == finished.len();
        let known: HashSet<_> = if all {
            HashSet::new()
        } else {
            settled.iter().collect()
        };
        let mut counts = [0; Handled::ALL.len()];
        for one in finished {
            let id = one.settling.id;
            if all || known.contains(&id) {
                one.lease.closed(true);
                counts[one.outcome as usize] += 1;
            } else {
                let news = one.lease.closed(false);
                if one.uncertain {
                    // It may be the first try that has settled it.
                    continue;
                }
                if news {
                    tracing::warn!(store = %self.room.identifier(), queue = self.queue.name(), work_item_id = %id, "lease lost before the message could be settled");
                }
                self.lost(news);
            }
        }
        for (outcome, count) in Handled::ALL.into_iter().zip(counts) {
            if count > 0 {
                self.count(outcome, count);
            }
        }
    }

    /// Counts what was really written.
    pub(super) fn count(&self, outcome: Handled, count: u64) {
        self.tally.counts[outcome as usize].fetch_add(count, Ordering::Relaxed);
        counter!("postroom_handled_total", "store" => self.room.store.identifier.clone(), "queue" => self.queue.name(), "outcome" => outcome.name())
            .increment(count);
    }

    /// A message is not settled because its lease was lost, which is news unless whoever renews it has
    /// noticed before.
    pub(super) fn lost(&self, news: bool) {
        if news {
            self.leases.count_lost(1);
        }
        self.tally.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// New messages: handlers start on as many as may run.
    fn accept(
        self: &Arc<Self>,
        owner: OwnerToken,
        began: Instant,
        asked: usize,
        messages: Vec<(Delivered, Option<Place>)>,
    ) {
        let ids: Vec<_> = messages
            .iter()
            .map(|(message, _)| message.work_item_id().as_uuid())
            .collect();
        let leases = if ids.is_empty() {
            Vec::new()
        } else {
            self.leases.add(owner, ids.into_iter(), began)
        };
        let works = messages
            .into_iter()
            .zip(leases)
            .map(|((message, place), lease)| Work {
                delivery: Delivery::new(
                    message,
                    self.room.clone(),
                    owner,
                    lease.clone(),
                    began,
                    self.settings.lease,
                ),
                lease,
                claimed: began,
                place,
            });
        let workers = {
            let mut desk = self.desk();
            desk.claiming -= asked;
            desk.turn_time.add(began.elapsed());
            for work in works {
                if !self.is_last_chance(&work.delivery) {
                    desk.waiting.push_back(work);
                } else if std::mem::replace(&mut desk.last_chance, true) {
                    desk.release(work);
                } else {
                    desk.alone = Some(work);
                }
            }
            if desk.stopping {
                desk.release_waiting();
            }
            let free = self.settings.concurrency.saturating_sub(desk.workers);
            let workers = free.min(desk.waiting.len());
            desk.workers += workers;
            workers
        };
        for _ in 0..workers {
            let engine = Arc::clone(self);
            tokio::spawn(async move {
                while let Some(work) = engine.next() {
                    engine.work(work).await;
                }
            });
        }
    }

    /// Whether the process has died with this message so often that one more time is the last. Then it
    /// runs alone among its like: if it is what kills the process, no other is blamed for that.
    fn is_last_chance(&self, delivery: &Delivery) -> bool {
        let deliveries = delivery.without_outcome();
        deliveries > 1 && Some(deliveries) == self.settings.max_deliveries
    }

    /// Starts on a message with its last chance as soon as all the others are handed back for sure.
    fn start_alone(self: &Arc<Self>) {
        let mut desk = self.desk();
        if !desk.results.is_empty() || desk.settling > 0 || desk.claiming > 0 {
            return;
        }
        if let Some(work) = desk.alone.take() {
            desk.running += 1;
            let engine = Arc::clone(self);
            tokio::spawn(async move { engine.work(work).await });
        }
    }

    fn next(&self) -> Option<Work> {
        let mut desk = self.desk();
        match desk.waiting.pop_front() {
            Some(work) => {
                desk.running += 1;
                Some(work)
            }
            None => {
                desk.workers -= 1;
                None
            }
        }
    }

    /// A handler has finished.
    pub(super) fn finished(&self, work: &Work, started: Instant, unsettled: Option<Unsettled>) {
        let mut desk = self.desk();
        desk.running -= 1;
        if self.is_last_chance(&work.delivery) {
            desk.last_chance = false;
        }
        desk.handler_time.add(started.elapsed());
        if let Some(Unsettled {
            settlement,
            outcome,
            uncertain,
        }) = unsettled
        {
            desk.results.push(Finished {
                settling: Settling {
                    id: work.delivery.work_item_id().as_uuid(),
                    owner: work.delivery.owner(),
                    place: work.place,
                    settlement,
                },
                lease: work.lease.clone(),
                outcome,
                uncertain,
            });
            desk.first_result.get_or_insert_with(Instant::now);
        }
        let results = desk.results.len();
        let enough = self.enough_results();
        let idle = desk.waiting.is_empty() && desk.running == 0;
        drop(desk);
        if results <= 1 || results == enough || idle {
            self.changed.notify_one();
        }
    }

    /// Hands back what has waited for a handler for a third of its lease: others may be free.
    pub(super) fn release_stale(&self) {
        let mut desk = self.desk();
        let limit = self.settings.lease / 3;
        let mut released = false;
        while desk
            .waiting
            .front()
            .is_some_and(|work| work.claimed.elapsed() >= limit)
        {
            if let Some(work) = desk.waiting.pop_front() {
                desk.release(work);
                released = true;
            }
        }
        if released {
            // Handlers are slower than they were: without this, the turn that hands these back would claim
            // them again.
            desk.handler_time.at_least(limit);
        }
        drop(desk);
        if released {
            self.changed.notify_one();
        }
    }

    /// Claims nothing more, and hands back what no handler has begun.
    pub(crate) fn stop(&self) {
        let mut desk = self.desk();
        desk.stopping = true;
        desk.release_waiting();
        drop(desk);
        self.changed.notify_one();
    }

    /// Whether nothing is claimed, running or to be settled.
    pub(super) fn is_idle(&self) -> bool {
        let desk = self.desk();
        desk.waiting.is_empty()
            && desk.alone.is_none()
            && desk.running == 0
            && desk.claiming == 0
            && desk.settling == 0
            && desk.results.is_empty()
    }

    /// Whether every claimed message was handled, though perhaps not settled.
    pub(super) fn is_handled(&self) -> bool {
        let desk = self.desk();
        desk.waiting.is_empty() && desk.running == 0
    }

    pub(super) fn running(&self) -> usize {
        self.desk().running
    }

    pub(super) fn unsettled(&self) -> usize {
        self.desk().results.len()
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn take_results(&mut self) -> Vec<Finished> {
        let mut finished: Vec<Finished> = if self.one_by_one {
            self.results.drain(..self.results.len().min(1)).collect()
        } else {
            std::mem::take(&mut self.results)
        };
        if self.results.is_empty() {
            self.first_result = None;
            self.one_by_one = false;
        }
        for one in &mut finished {
            one.lease.settling();
            let place = &mut one.settling.place;
            *place = place.filter(|_| one.lease.is_as_claimed());
        }
        finished
    }

    /// A turn has failed: its results are tried again. What the database refuses even alone is given up:
    /// its lease will expire, and it is delivered again.
    fn put_back(&mut self, finished: Vec<Finished>, error: &Error) {
        let refused = error.is_about_values();
        if refused && finished.len() == 1 {
            tracing::error!(work_item_id = %finished[0].settling.id, %error, "a result could not be stored; the message will be delivered again");
            finished[0].lease.closed(false);
            return;
        }
        self.one_by_one |= refused;
        for mut one in finished {
            one.lease.held();
            one.uncertain = true;
            one.settling.place = None;
            self.results.push(one);
        }
        if !self.results.is_empty() {
            self.first_result.get_or_insert_with(Instant::now);
        }
    }

    fn release_waiting(&mut self) {
        while let Some(work) = self.waiting.pop_front().or_else(|| self.alone.take()) {
            self.release(work);
        }
    }

    fn release(&mut self, work: Work) {
        self.results.push(Finished {
            settling: Settling {
                id: work.delivery.work_item_id().as_uuid(),
                owner: work.delivery.owner(),
                place: work.place,
                settlement: Settlement::Release,
            },
            lease: work.lease,
            outcome: Handled::Released,
            uncertain: false,
        });
        self.first_result.get_or_insert_with(Instant::now);
    }
}

/// A moving average of durations.
#[derive(Debug, Clone, Copy, Default)]
struct Average(Option<f64>);

impl Average {
    fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.0 = Some(
            self.0
                .map_or(seconds, |average| average * 0.9 + seconds * 0.1),
        );
    }

    fn at_least(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        self.0 = Some(self.0.map_or(seconds, |average| average.max(seconds)));
    }

    fn seconds(self) -> Option<f64> {
        self.0
    }
}

/// What became of the messages so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: [AtomicU64; Handled::ALL.len()],
    lost: AtomicU64,
    pub(super) panics: AtomicU64,
}

impl Tally {
    pub(crate) fn report(&self) -> Report {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let count = |outcome: Handled| read(&self.counts[outcome as usize]);
        Report {
            done: count(Handled::Done),
            retried: count(Handled::Retried),
            not_ready: count(Handled::NotReady),
            dead: count(Handled::Dead),
            released: count(Handled::Released),
            unhandled: count(Handled::Unhandled),
            lost: read(&self.lost),
            panics: read(&self.panics),
        }
    }
}

/// A count as a number to reckon with.
fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// The whole number below, at most a million.
fn whole(value: f64) -> usize {
    Duration::try_from_secs_f64(value.clamp(0.0, 1e6)).map_or(0, |duration| {
        usize::try_from(duration.as_secs()).unwrap_or(usize::MAX)
    })
}
