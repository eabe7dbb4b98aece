//! Scheduled work: processing, cleanup, reaping and counting, by cron, over one store or many.
//!
//! ```no_run
//! # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
//! use std::time::Duration;
//! use postroom::Delivery;
//! use postroom::jobs::{Cleanup, Jobs};
//!
//! const DAY: Duration = Duration::from_secs(86_400);
//!
//! Jobs::new()
//!     .store(&room)
//!     .dispatcher(|room| room.dispatcher().on("order.created", |_: Delivery| async {}))
//!     .inbox_cleanup(Cleanup::older_than(30 * DAY).cron("0 30 3 * * ?"))
//!     .run_until(async { tokio::signal::ctrl_c().await.unwrap_or_default() })
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod cron;
mod plan;
mod run;
mod settings;

use std::future::Future;
use std::sync::Arc;

use croner::Cron;
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

pub use plan::{Cleanup, Job, Processing, Schedule};
pub use run::{JobReport, RunningJobs, StoreReport};
pub use settings::{JobSection, JobSettings, JobsSection, OutboxConfigurations, ProcessorSection};

use crate::dispatch::Dispatcher;
use crate::error::{Error, ErrorKind};
use crate::fleet::{Fleet, StoreKey};
use crate::room::Postroom;
use plan::{DAY, EVERY_MINUTE};

/// Where stores come from.
type Stores = Box<dyn Fn() -> Vec<Postroom> + Send + Sync>;

/// What makes a store's dispatcher.
type MakeDispatcher = dyn Fn(&Postroom) -> Dispatcher + Send + Sync;

/// How many stores a job works on at once.
const STORES_AT_ONCE: usize = 8;

/// The jobs of a process, each by its own schedule and over all stores. One that fails in a store goes on
/// in the others, and is tried again there at its next time. As many processes as you like may run the
/// same jobs on the same stores.
///
/// | Job | By default |
/// |---|---|
/// | processing | every 5 seconds, once a [dispatcher](Jobs::dispatcher) is given |
/// | outbox cleanup | at midnight, what was done more than 7 days ago |
/// | inbox cleanup | at midnight, what was done more than 30 days ago |
/// | join cleanup | at midnight, what was finished more than 30 days ago |
/// | reaping | every minute |
/// | counting | not at all |
#[must_use = "jobs do nothing until they are started"]
pub struct Jobs {
    rooms: Vec<Postroom>,
    sources: Vec<Stores>,
    dispatcher: Option<Box<MakeDispatcher>>,
    /// `None` until somebody asks for it: without a dispatcher that is no mistake.
    processing: Option<Processing>,
    outbox_cleanup: Cleanup,
    inbox_cleanup: Cleanup,
    join_cleanup: Cleanup,
    reaping: Schedule,
    counting: Schedule,
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            rooms: Vec::new(),
            sources: Vec::new(),
            dispatcher: None,
            processing: None,
            outbox_cleanup: Cleanup::older_than(7 * DAY),
            inbox_cleanup: Cleanup::older_than(30 * DAY),
            join_cleanup: Cleanup::older_than(30 * DAY),
            reaping: Schedule::cron(EVERY_MINUTE),
            counting: Schedule::cron(EVERY_MINUTE).enabled(false),
        }
    }
}

impl Jobs {
    /// The default jobs, for no store yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Jobs by the settings of a .NET service. Unless `Jobs:OutboxProcessor:Enabled` is false, a
    /// [dispatcher](Jobs::dispatcher) has to be given too.
    ///
    /// # Errors
    /// When a number of days, a batch or a chunk is 0, and when an expression is not one.
    pub fn from_settings(settings: &JobSettings) -> Result<Self, Error> {
        let jobs = Self::new();
        let join_cleanup = settings.join_cleanup(jobs.join_cleanup.clone());
        let jobs = jobs
            .processing(settings.processing()?)
            .outbox_cleanup(settings.outbox_cleanup()?)
            .inbox_cleanup(settings.inbox_cleanup()?)
            .join_cleanup(join_cleanup)
            .reaping(settings.reaping());
        jobs.schedules()?;
        Ok(jobs)
    }

    /// Works on this store too.
    pub fn store(mut self, room: &Postroom) -> Self {
        self.rooms.push(room.clone());
        self
    }

    /// Works on these stores too. They are asked for at each tick, so they may come and go.
    pub fn stores(mut self, source: impl Fn() -> Vec<Postroom> + Send + Sync + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Works on every store of a fleet, as the fleet is at each tick.
    pub fn fleet(self, fleet: &Fleet) -> Self {
        let fleet = fleet.clone();
        self.stores(move || {
            let keys = fleet.keys().into_iter();
            let room = |key: StoreKey| {
                let room = fleet.room(&key);
                room.inspect_err(|error| {
                    tracing::error!(%key, %error, "a store could not be opened; its jobs are left out");
                })
                .ok()
            };
            keys.filter_map(room).collect()
        })
    }

    /// What the messages of a store are processed with. Its handlers and settings are the dispatcher's
    /// own; batch and chunk are those of [`Processing`].
    pub fn dispatcher(
        mut self,
        dispatcher: impl Fn(&Postroom) -> Dispatcher + Send + Sync + 'static,
    ) -> Self {
        self.dispatcher = Some(Box::new(dispatcher));
        self
    }

    /// When and how messages are processed.
    pub fn processing(mut self, processing: Processing) -> Self {
        self.processing = Some(processing);
        self
    }

    /// How long the outbox keeps what is done, and when it is cleaned.
    pub fn outbox_cleanup(mut self, cleanup: Cleanup) -> Self {
        self.outbox_cleanup = cleanup;
        self
    }

    /// How long the inbox remembers what is done, and when it is cleaned. A duplicate that comes later
    /// than that is taken for new.
    pub fn inbox_cleanup(mut self, cleanup: Cleanup) -> Self {
        self.inbox_cleanup = cleanup;
        self
    }

    /// How long finished joins are kept, and when they are cleaned.
    pub fn join_cleanup(mut self, cleanup: Cleanup) -> Self {
        self.join_cleanup = cleanup;
        self
    }

    /// When expired leases are freed. Claims take them anyway: this keeps numbers tidy.
    pub fn reaping(mut self, schedule: Schedule) -> Self {
        self.reaping = schedule;
        self
    }

    /// When messages are counted for the metric `postroom_messages`. It looks at every row, the archive
    /// included: fine every minute, not every second.
    pub fn counting(mut self, schedule: Schedule) -> Self {
        self.counting = schedule;
        self
    }

    /// When a job is due, and whether at all.
    #[must_use]
    pub fn schedule(&self, job: Job) -> Schedule {
        match job {
            Job::Processing => match &self.processing {
                Some(processing) => processing.schedule.clone(),
                None => Processing::default()
                    .schedule
                    .enabled(self.dispatcher.is_some()),
            },
            Job::OutboxCleanup => self.outbox_cleanup.schedule.clone(),
            Job::InboxCleanup => self.inbox_cleanup.schedule.clone(),
            Job::JoinCleanup => self.join_cleanup.schedule.clone(),
            Job::Reaping => self.reaping.clone(),
            Job::Counting => self.counting.clone(),
        }
    }

    /// Runs one job now, in all stores, whether or not it is enabled, and says how it went in each.
    ///
    /// # Errors
    /// When a setting is not valid. A store that fails is no error here: the report tells.
    pub async fn run_once(&self, job: Job) -> Result<JobReport, Error> {
        self.check()?;
        if job == Job::Processing {
            self.processor()?;
        }
        let stop = CancellationToken::new();
        let stores = stream::iter(self.rooms())
            .map(|room| self.run(job, room, &stop))
            .buffered(STORES_AT_ONCE)
            .collect()
            .await;
        Ok(JobReport { job, stores })
    }

    /// Runs until `stop` comes back, then stops as [`RunningJobs::stop`] does.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let running = self.start()?;
        stop.await;
        running.stop().await;
        Ok(())
    }

    /// Starts the enabled jobs in the background. The first time of each is its next one, not now.
    ///
    /// # Errors
    /// When a setting is not valid, a dispatcher for [`Processing`] is missing, or no store was given.
    pub fn start(self) -> Result<RunningJobs, Error> {
        self.check()?;
        let schedules = self.schedules()?;
        Ok(run::start(Arc::new(self), schedules))
    }

    fn check(&self) -> Result<(), Error> {
        if self.rooms.is_empty() && self.sources.is_empty() {
            return Err(ErrorKind::InvalidArgument { param: "stores" }
                .with("there are none; name one with `store`, or many with `stores`"));
        }
        if let Some(processing) = &self.processing {
            processing.check("processing.batch", "processing.chunk")?;
            if processing.schedule.is_enabled() {
                self.processor()?;
            }
        }
        self.outbox_cleanup.check("outbox_cleanup.retention")?;
        self.inbox_cleanup.check("inbox_cleanup.retention")?;
        self.join_cleanup.check("join_cleanup.retention")?;
        self.schedules().map(drop)
    }

    /// The enabled jobs and when each is due. Expressions of the others are read too: a mistake should
    /// not wait until somebody enables it.
    fn schedules(&self) -> Result<Vec<(Job, Cron)>, Error> {
        let mut enabled = Vec::new();
        for job in Job::ALL {
            let schedule = self.schedule(job);
            let cron = schedule.read(job)?;
            if schedule.is_enabled() {
                enabled.push((job, cron));
            }
        }
        Ok(enabled)
    }

    fn processor(&self) -> Result<&MakeDispatcher, Error> {
        self.dispatcher.as_deref().ok_or_else(|| {
            ErrorKind::InvalidArgument {
                param: "dispatcher",
            }
            .with("there is none to process with; give one with `Jobs::dispatcher`, or disable processing")
        })
    }

    /// Every store, once.
    fn rooms(&self) -> Vec<Postroom> {
        let mut rooms = self.rooms.clone();
        rooms.extend(self.sources.iter().flat_map(|source| source()));
        let mut seen = std::collections::HashSet::new();
        rooms.retain(|room| seen.insert(Arc::as_ptr(&room.store)));
        rooms
    }
}
