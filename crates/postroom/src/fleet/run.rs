//! A dispatcher over a fleet: a task for each store, which asks it when the gate says so. Stores share
//! nothing but the gate and the connections, so that none can hold up another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::gate::{Gate, Seat, Standing};
use super::key::StoreKey;
use super::roster::{Member, Roster};
use super::router::Fleet;
use crate::db::BoxFuture;
use crate::dispatch::{
    self, Crew, Dispatcher, Engine, Handlers, Pace, Report, Running, Settings, Turn, after_turn,
    helpers, stop_by,
};
use crate::error::Error;
use crate::sql::Queue;

/// How long others wait for a store that was slow or failed the last time.
const LITTLE_PATIENCE: Duration = Duration::from_millis(5);

/// How long results wait to be settled together with the next claim, and with each other.
const LINGER_FOR_CLAIM: Duration = Duration::from_millis(5);
const LINGER: Duration = Duration::from_millis(1);

/// How many stores are worked at once where no strategy decides.
const STORES_AT_ONCE: usize = 16;

/// Starts to work all stores.
pub(crate) fn start(fleet: &Fleet, dispatcher: &Dispatcher) -> Running {
    let crew = Arc::new(Crew::default());
    let stop = CancellationToken::new();
    let queues = dispatcher
        .queues()
        .map(|(queue, handlers)| (queue, handlers.clone(), fleet.gate()))
        .collect();
    let work = Arc::new(Work {
        queues,
        settings: Arc::new(dispatcher.settings.clone()),
        crew: Arc::clone(&crew),
        patience: fleet.inner.patience,
    });
    let supervision = tokio::spawn(supervise(fleet.clone(), work, stop.clone()));
    Running::fleet(crew, stop, supervision)
}

/// What is done in every store.
struct Work {
    queues: Vec<(Queue, Handlers, Arc<Gate>)>,
    settings: Arc<Settings>,
    crew: Arc<Crew>,
    /// How long others wait for a store that is being asked, or is to be asked again.
    patience: Duration,
}

/// Has a task for each store on the list. One that has left the list stops and finishes by itself.
async fn supervise(fleet: Fleet, work: Arc<Work>, stop: CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(work.settings.startup_delay) => {}
        () = stop.cancelled() => return,
    }
    let mut lists = fleet.inner.roster.subscribe();
    let mut at_work: HashMap<StoreKey, (Arc<Member>, CancellationToken)> = HashMap::new();
    let mut tasks = JoinSet::new();
    while !stop.is_cancelled() {
        let roster: Arc<Roster> = Arc::clone(&lists.borrow_and_update());
        at_work.retain(|key, (member, stop)| {
            let stays = roster.find(key).is_some_and(|now| Arc::ptr_eq(now, member));
            if !stays {
                stop.cancel();
            }
            stays
        });
        for member in roster.members() {
            at_work.entry(member.key.clone()).or_insert_with(|| {
                let stop = stop.child_token();
                tasks.spawn(tend(Arc::clone(member), Arc::clone(&work), stop.clone()));
                (Arc::clone(member), stop)
            });
        }
        tokio::select! {
            changed = lists.changed() => if changed.is_err() { break },
            Some(_) = tasks.join_next() => {}
            () = stop.cancelled() => {}
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Works one store until it is told to stop.
async fn tend(member: Arc<Member>, work: Arc<Work>, stop: CancellationToken) {
    let opening = open(&member, &work);
    let engines = tokio::select! {
        engines = opening => engines,
        () = stop.cancelled() => return,
    };
    let all: Vec<Arc<Engine>> = engines
        .iter()
        .map(|(engine, _)| Arc::clone(engine))
        .collect();
    let _helpers = helpers(&all);
    all.iter().for_each(|engine| work.crew.join(engine));
    join_all(engines.iter().map(|(engine, gate)| {
        let seat = gate.seat(&member.key, member.position);
        work_until(Arc::clone(engine), seat, work.patience, stop.clone())
    }))
    .await;
    all.iter().for_each(|engine| work.crew.leave(engine));
}

/// Opens a store, however long that takes, and makes an engine for each queue.
async fn open(member: &Arc<Member>, work: &Work) -> Vec<(Arc<Engine>, Arc<Gate>)> {
    let settings = &work.settings;
    let mut pace = Pace::new(settings.poll_interval, settings.error_delay);
    loop {
        let opened = member.ready().await.and_then(|room| {
            let queues = work.queues.iter();
            queues
                .map(|(queue, handlers, gate)| {
                    let engine = Engine::new(&room, *queue, handlers, settings)?;
                    Ok((engine, Arc::clone(gate)))
                })
                .collect::<Result<Vec<_>, Error>>()
        });
        match opened {
            Ok(engines) => return engines,
            Err(error) => {
                let pause = pace.failed();
                tracing::error!(store = member.identifier, key = %member.key, %error, ?pause, "a store could not be opened; trying again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// What a turn was for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To settle, which needs nobody's leave.
    Settle,
    /// To claim, when the store was called.
    Ask,
}

/// One queue of one store at work.
struct Worker {
    engine: Arc<Engine>,
    seat: Seat,
    /// How long others wait for this store.
    patience: Duration,
    standing: Standing,
    /// Until when others wait for this store while it is called or coming.
    until: Instant,
    /// A question that has no answer yet, since when.
    asked: Option<Instant>,
    /// The last answer was in time.
    trusted: bool,
    pace: Pace,
}

async fn work_until(engine: Arc<Engine>, seat: Seat, patience: Duration, stop: CancellationToken) {
    let mut sleeper = engine.room.store.wake(engine.queue).sleeper();
    let settings = &engine.settings;
    let mut worker = Worker {
        pace: Pace::new(settings.poll_interval, settings.error_delay),
        engine: Arc::clone(&engine),
        seat,
        patience,
        standing: Standing::Away,
        until: Instant::now(),
        asked: None,
        trusted: true,
    };
    let mut turns: FuturesUnordered<BoxFuture<'_, (Purpose, Result<Turn, Error>)>> =
        FuturesUnordered::new();
    let mut settling = false;
    while !stop.is_cancelled() {
        worker.stand();
        let settle_at = worker.settle_at().filter(|_| !settling);
        if settle_at.is_some_and(|time| time <= Instant::now()) {
            settling = true;
            turns.push(Box::pin(async { (Purpose::Settle, engine.turn(0).await) }));
            continue;
        }
        let next = worker.next_look().into_iter().chain(settle_at).min();
        tokio::select! {
            // In this order: a store that is told to stop asks nothing more, and what was called for is
            // looked for.
            biased;
            () = stop.cancelled() => {}
            reason = sleeper.woken() => worker.pace.woken(reason),
            () = worker.seat.called(), if worker.standing == Standing::Waiting => {
                let claim = worker.begin();
                let engine = &engine;
                turns.push(Box::pin(async move { (Purpose::Ask, engine.turn(claim).await) }));
            }
            Some((purpose, turned)) = turns.next() => match purpose {
                Purpose::Ask => worker.answered(turned),
                Purpose::Settle => {
                    settling = false;
                    after_turn(&engine, &mut worker.pace, turned);
                }
            },
            () = engine.changed.notified() => {}
            () = sleep_until(next) => {}
        }
    }
    let Worker { pace, seat, .. } = worker;
    drop(seat);
    stop_by(&engine, pace, turns.map(|(_, turned)| turned)).await;
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

impl Worker {
    /// Lines up when it is time, and gives way when others have waited long enough.
    fn stand(&mut self) {
        let ready = self.asked.is_none() && self.pace.is_due() && self.engine.claimable() > 0;
        let late = Instant::now() >= self.until;
        let standing = match self.standing {
            Standing::Away | Standing::Coming if ready => Standing::Waiting,
            Standing::Called if late => {
                self.trusted = false;
                Standing::Away
            }
            Standing::Coming if late => Standing::Away,
            Standing::Waiting if self.pace.is_failing() => Standing::Away,
            same => same,
        };
        if standing != self.standing {
            self.standing = standing;
            self.seat.stand(standing);
        }
    }

    /// It was called. Says how much to claim.
    fn begin(&mut self) -> usize {
        let now = Instant::now();
        let patience = if self.trusted {
            self.patience
        } else {
            self.patience.min(LITTLE_PATIENCE)
        };
        self.standing = Standing::Called;
        self.until = now + patience;
        self.asked = Some(now);
        self.pace.look_begun();
        self.engine.claimable().max(1)
    }

    /// Its question was answered. If it wants to be asked again, it lines up in the same moment, so that
    /// nobody gets in between by chance.
    fn answered(&mut self, turned: Result<Turn, Error>) {
        let claimed = turned.as_ref().map_or(0, |turn| turn.claimed);
        let now = Instant::now();
        let in_time = self
            .asked
            .take()
            .is_some_and(|asked| now - asked < self.patience);
        self.trusted = in_time && turned.is_ok();
        after_turn(&self.engine, &mut self.pace, turned);
        self.standing = if self.pace.is_due() && self.engine.claimable() > 0 {
            Standing::Waiting
        } else if claimed > 0 {
            self.until = now + self.patience;
            Standing::Coming
        } else {
            Standing::Away
        };
        self.seat.answered(claimed, self.standing);
    }

    /// When results are to be settled: with the next claim, if that comes soon.
    fn settle_at(&self) -> Option<Instant> {
        let linger = match self.standing {
            Standing::Waiting | Standing::Called => LINGER_FOR_CLAIM,
            Standing::Away | Standing::Coming => LINGER,
        };
        let time = self.engine.settle_at(linger)?;
        Some(if self.pace.is_failing() {
            time.max(self.pace.next())
        } else {
            time
        })
    }

    /// When to think again, if nothing happens before.
    fn next_look(&self) -> Option<Instant> {
        let full = self.engine.claimable() == 0;
        let due = (self.asked.is_none() && !full).then(|| self.pace.next());
        match self.standing {
            Standing::Away => due,
            Standing::Coming => Some(due.map_or(self.until, |due| due.min(self.until))),
            Standing::Called => Some(self.until),
            Standing::Waiting => None,
        }
    }
}

/// One batch from each queue of each store.
pub(crate) async fn once(fleet: &Fleet, dispatcher: &Dispatcher) -> Result<Report, Error> {
    in_each(fleet, dispatcher, |engines| {
        Box::pin(dispatch::once(engines))
    })
    .await
}

/// Batches from every store until none has anything ready, or it is told to stop.
pub(crate) async fn drain(
    fleet: &Fleet,
    dispatcher: &Dispatcher,
    stop: &CancellationToken,
) -> Result<Report, Error> {
    let mut total = Report::default();
    loop {
        let report = in_each(fleet, dispatcher, |engines| {
            let stop = stop.clone();
            Box::pin(async move { dispatch::drain(engines, &stop).await })
        })
        .await?;
        total += report;
        // What the handlers of one store have enqueued may be in another.
        if report == Report::default() || stop.is_cancelled() {
            return Ok(total);
        }
    }
}

/// Works every store, several at once. Those that fail are left out, unless all do.
async fn in_each(
    fleet: &Fleet,
    dispatcher: &Dispatcher,
    work: impl Fn(Vec<Arc<Engine>>) -> BoxFuture<'static, Result<Report, Error>>,
) -> Result<Report, Error> {
    let work = &work;
    let roster = fleet.roster();
    let worked: Vec<Result<Report, Error>> = stream::iter(roster.members().iter().cloned())
        .map(|member: Arc<Member>| async move {
            let worked = async { work(dispatcher.engines(&member.ready().await?)?).await };
            worked.await.inspect_err(|error| {
                tracing::error!(store = member.identifier, key = %member.key, %error, "a store could not be worked");
            })
        })
        .buffer_unordered(STORES_AT_ONCE)
        .collect()
        .await;
    if worked.iter().all(Result::is_err)
        && let Some(Err(error)) = worked.first()
    {
        return Err(error.clone());
    }
    let mut total = Report::default();
    worked
        .into_iter()
        .flatten()
        .for_each(|report| total += report);
    Ok(total)
}
