//! The loop over an engine: turns, wake-ups, pauses, and the way to stop.

use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use metrics::counter;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, LINGER, Turn};
use super::pace::Pace;
use crate::error::Error;
use crate::observe::QueueStats;
use crate::sql::Queue;

/// How long what was cancelled at the deadline has to end and be settled.
const GRACE: Duration = Duration::from_secs(5);

/// How often a queue's depth is measured.
const MEASURE: Duration = Duration::from_secs(15);

/// A dispatcher has just been started: what waits for it comes before what looks at all of the queue.
const SETTLED_IN: Duration = Duration::from_secs(5);

/// How often waiting messages are looked over.
const UPKEEP: Duration = Duration::from_millis(250);

/// What became of messages, by what was really written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Handled, and done.
    pub done: u64,
    /// Handed back for another attempt.
    pub retried: u64,
    /// Handed back because they were not ready.
    pub not_ready: u64,
    /// Given up.
    pub dead: u64,
    /// Handed back unhandled, with no attempt spent.
    pub released: u64,
    /// Handed back because nobody handles their topic.
    pub unhandled: u64,
    /// Not settled, because the lease was lost meanwhile.
    pub lost: u64,
    /// How many handlers panicked; their messages are among the retried and the dead.
    pub panics: u64,
}

impl Report {
    /// How many messages were given to a handler and settled.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.done + self.retried + self.not_ready + self.dead
    }
}

impl AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.retried += other.retried;
        self.not_ready += other.not_ready;
        self.dead += other.dead;
        self.released += other.released;
        self.unhandled += other.unhandled;
        self.lost += other.lost;
        self.panics += other.panics;
    }
}

/// A dispatcher at work. Dropping it stops it too, without waiting for the end.
#[must_use = "a dispatcher stops when this is dropped"]
pub struct Running {
    crew: Arc<Crew>,
    stop: CancellationToken,
    loops: Vec<JoinHandle<()>>,
    _helpers: Vec<AbortOnDrop>,
}

impl Running {
    /// Claims nothing more, lets handlers finish until the deadline, settles what has finished, and hands
    /// back the rest without spending an attempt. Says what became of all messages since the start.
    pub async fn stop(mut self) -> Report {
        self.stop.cancel();
        for running in self.loops.drain(..) {
            // A loop that panicked has nothing left to wait for.
            let _ = running.await;
        }
        self.report()
    }

    /// What became of messages so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.crew.report()
    }

    /// How many handlers run now.
    #[must_use]
    pub fn running(&self) -> usize {
        let shift = self.crew.shift();
        shift.engines.iter().map(|engine| engine.running()).sum()
    }

    /// A fleet at work: `supervision` ends soon after `stop` is cancelled.
    pub(crate) fn fleet(
        crew: Arc<Crew>,
        stop: CancellationToken,
        supervision: JoinHandle<()>,
    ) -> Self {
        Self {
            crew,
            stop,
            loops: vec![supervision],
            _helpers: Vec::new(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

/// The engines at work. In a fleet they come and go.
#[derive(Default)]
pub(crate) struct Crew(Mutex<Shift>);

#[derive(Default)]
struct Shift {
    engines: Vec<Arc<Engine>>,
    /// What became of the messages of engines that have left.
    left: Report,
}

impl Crew {
    pub(crate) fn join(&self, engine: &Arc<Engine>) {
        self.shift().engines.push(Arc::clone(engine));
    }

    pub(crate) fn leave(&self, engine: &Arc<Engine>) {
        let mut shift = self.shift();
        shift.engines.retain(|other| !Arc::ptr_eq(other, engine));
        shift.left += engine.tally.report();
    }

    fn report(&self) -> Report {
        let shift = self.shift();
        let mut report = shift.left;
        for engine in &shift.engines {
            report += engine.tally.report();
        }
        report
    }

    fn shift(&self) -> MutexGuard<'_, Shift> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that ends with its owner.
pub(crate) struct AbortOnDrop(AbortHandle);

impl From<JoinHandle<()>> for AbortOnDrop {
    fn from(task: JoinHandle<()>) -> Self {
        Self(task.abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a loop for each engine of a store.
pub(super) fn start(engines: Vec<Arc<Engine>>) -> Running {
    let stop = CancellationToken::new();
    let loops = engines
        .iter()
        .map(|engine| tokio::spawn(work_until(Arc::clone(engine), stop.clone())))
        .collect();
    let crew = Arc::new(Crew::default());
    engines.iter().for_each(|engine| crew.join(engine));
    Running {
        _helpers: helpers(&engines),
        crew,
        stop,
        loops,
    }
}

/// What goes on beside the loops of a store: somebody listens, and somebody looks after each queue.
pub(crate) fn helpers(engines: &[Arc<Engine>]) -> Vec<AbortOnDrop> {
    let upkeep = engines
        .iter()
        .map(|engine| tokio::spawn(upkeep(Arc::clone(engine))));
    let mut helpers: Vec<AbortOnDrop> = upkeep.map(AbortOnDrop::from).collect();
    if let Some(first) = engines.first().filter(|engine| engine.settings.listen) {
        let store = &first.room.store;
        let queues: Vec<Queue> = engines.iter().map(|engine| engine.queue).collect();
        let listening = store.db.listen(store.wakes(&queues));
        helpers.extend(listening.map(|listening| AbortOnDrop::from(tokio::spawn(listening))));
    }
    helpers
}

/// What has to be done now and then.
async fn upkeep(engine: Arc<Engine>) {
    let settled_in = Instant::now() + SETTLED_IN;
    let mut measure_at = settled_in;
    loop {
        tokio::time::sleep(UPKEEP).await;
        engine.release_stale();
        let started = Instant::now();
        if started < settled_in {
            continue;
        }
        if started >= measure_at {
            if let Err(error) = QueueStats::measure(&engine.room.store, engine.queue).await {
                tracing::debug!(store = %engine.room.identifier(), %error, "the queue could not be measured");
            }
            // Counting a long queue takes its time: never more than a hundredth of it.
            measure_at = started + MEASURE.max(started.elapsed() * 100);
        }
        if let Err(error) = engine.room.store.reap_now_and_then(engine.queue).await {
            tracing::debug!(store = %engine.room.identifier(), %error, "expired leases could not be reaped");
        }
    }
}

/// Works one queue until it is told to stop, then ends in good order.
async fn work_until(engine: Arc<Engine>, stop: CancellationToken) {
    let settings = Arc::clone(&engine.settings);
    tokio::select! {
        () = tokio::time::sleep(settings.startup_delay) => {}
        () = stop.cancelled() => return,
    }
    let mut pace = Pace::new(settings.poll_interval, settings.error_delay);
    let mut sleeper = engine.room.store.wake(engine.queue).sleeper();
    let mut turns = FuturesUnordered::new();
    while !stop.is_cancelled() {
        while !pace.is_failing()
            && let Some(claim) = engine.wants_turn(turns.len(), &pace)
        {
            if claim > 0 {
                pace.look_begun();
            }
            turns.push(engine.turn(claim));
        }
        // Without room there is nothing to look for until a handler has finished, however late it is.
        let look = engine.has_room().then(|| pace.next());
        let settle = engine.settle_at(LINGER).map(|time| pace.not_before(time));
        let next = look.into_iter().chain(settle).min();
        let pause =
            async { tokio::time::sleep_until(next.unwrap_or_else(Instant::now).into()).await };
        tokio::select! {
            Some(turned) = turns.next() => after_turn(&engine, &mut pace, turned),
            () = engine.changed.notified() => {}
            reason = sleeper.woken() => pace.woken(reason),
            () = pause, if turns.is_empty() && next.is_some() => {}
            () = stop.cancelled() => {}
        }
    }
    stop_by(&engine, pace, turns).await;
}

/// Ends in good order: claims nothing more, waits for the turns that are under way, and finishes.
pub(crate) async fn stop_by(
    engine: &Arc<Engine>,
    mut pace: Pace,
    mut turns: impl Stream<Item = Result<Turn, Error>> + Unpin,
) {
    engine.stop();
    let finishing = async {
        while let Some(turned) = turns.next().await {
            after_turn(engine, &mut pace, turned);
        }
        finish(engine, &mut pace).await;
    };
    in_time(engine, finishing).await;
}

/// Whatever holds it up, a handler or a database that does not answer, the end comes in time.
async fn in_time(engine: &Engine, finishing: impl Future<Output = ()>) {
    tokio::select! {
        () = finishing => {}
        () = run_out_of_time(engine) => {}
    }
}

pub(crate) fn after_turn(engine: &Engine, pace: &mut Pace, turned: Result<Turn, Error>) {
    match turned {
        Ok(turn) => pace.turned(turn),
        Err(error) => {
            let pause = pace.failed();
            tracing::error!(store = %engine.room.identifier(), queue = engine.queue.name(), %error, pause = ?pause, "the queue could not be worked; trying again");
            counter!("postroom_polls_failed_total", "store" => engine.room.store.identifier.clone(), "queue" => engine.queue.name())
                .increment(1);
        }
    }
}

/// Lets handlers end, and settles everything.
async fn finish(engine: &Arc<Engine>, pace: &mut Pace) {
    while !engine.is_idle() {
        if engine.unsettled() > 0 && !pace.is_failing() {
            let turned = engine.turn(0).await;
            after_turn(engine, pace, turned);
            continue;
        }
        tokio::select! {
            () = engine.changed.notified() => {}
            () = tokio::time::sleep_until(pace.next().into()), if pace.is_failing() => {}
        }
    }
}

/// Cancels handlers when the deadline is over, and comes back when what is left has had time to be settled.
async fn run_out_of_time(engine: &Engine) {
    tokio::time::sleep(engine.settings.shutdown_deadline).await;
    tracing::warn!(store = %engine.room.identifier(), queue = engine.queue.name(), running = engine.running(), "the deadline is over; handlers are cancelled and their messages handed back");
    engine.leases.cancel_all();
    tokio::time::sleep(GRACE).await;
    engine.leases.let_go();
    tracing::error!(store = %engine.room.identifier(), queue = engine.queue.name(), running = engine.running(), unsettled = engine.unsettled(), "stopped without settling everything; leases will expire and the messages be delivered again");
}

/// One batch from each queue: claimed, handled, settled.
pub(crate) async fn once(engines: Vec<Arc<Engine>>) -> Result<Report, Error> {
    let mut report = Report::default();
    for engine in engines {
        engine.thorough_turn(engine.settings.batch).await?;
        settle_all(&engine).await?;
        report += engine.tally.report();
    }
    Ok(report)
}

/// Batches until no queue has anything ready, or it is told to stop.
pub(crate) async fn drain(
    engines: Vec<Arc<Engine>>,
    stop: &CancellationToken,
) -> Result<Report, Error> {
    loop {
        let mut handled = 0;
        for engine in &engines {
            handled += drain_one(engine, stop).await?;
        }
        // What one queue's handlers have enqueued may be in the other.
        if handled == 0 || stop.is_cancelled() {
            break;
        }
    }
    let mut report = Report::default();
    for engine in &engines {
        report += engine.tally.report();
    }
    Ok(report)
}

/// Batches until a claim finds nothing, or it is told to stop. Says how many messages there were.
async fn drain_one(engine: &Arc<Engine>, stop: &CancellationToken) -> Result<usize, Error> {
    let mut total = 0;
    while !stop.is_cancelled() {
        let turn = engine.thorough_turn(engine.settings.batch).await?;
        total += turn.claimed;
        if turn.asked > 0 && turn.claimed == 0 {
            settle_all(engine).await?;
            return Ok(total);
        }
        handle_all(engine, stop).await;
    }
    engine.stop();
    let settings = &engine.settings;
    let mut pace = Pace::new(settings.poll_interval, settings.error_delay);
    in_time(engine, finish(engine, &mut pace)).await;
    Ok(total)
}

/// Waits for the handlers of a batch, and writes results down whenever a chunk of them has gathered.
async fn handle_all(engine: &Arc<Engine>, stop: &CancellationToken) {
    let mut failing = false;
    while !engine.is_handled() && !stop.is_cancelled() {
        tokio::select! {
            () = engine.changed.notified() => {}
            () = stop.cancelled() => return,
        }
        let chunk = engine.settings.chunk.unwrap_or(usize::MAX);
        // A failure is told by the turn after the batch, which tries it once more: handlers that run would
        // outlive an end here.
        if engine.unsettled() >= chunk && !failing {
            failing = engine.turn(0).await.is_err();
        }
    }
}

async fn settle_all(engine: &Arc<Engine>) -> Result<(), Error> {
    while !engine.is_idle() {
        if engine.unsettled() > 0 {
            engine.turn(0).await?;
        } else {
            engine.changed.notified().await;
        }
    }
    Ok(())
}
