//! What the jobs are, when each is due, and what it needs to know.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use jiff::Timestamp;

use super::cron;
use crate::error::{Error, ErrorKind};
use crate::store::LARGEST_BATCH;

/// A day, which is what retentions are counted in.
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

/// The longest retention, a hundred years.
const LONGEST_RETENTION: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// Every midnight, in UTC.
pub(super) const DAILY: &str = "0 0 0 * * ?";

/// Every minute.
pub(super) const EVERY_MINUTE: &str = "0 * * * * ?";

/// Every five seconds.
pub(super) const EVERY_FIVE_SECONDS: &str = "0/5 * * * * ?";

/// One kind of scheduled work.
///
/// ```
/// use postroom::jobs::Job;
///
/// assert_eq!(Job::InboxCleanup.to_string(), "inbox_cleanup");
/// assert_eq!("reaping".parse::<Job>()?, Job::Reaping);
/// # Ok::<(), postroom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Job {
    /// Handles what is ready until nothing is.
    Processing,
    /// Deletes old done messages of the outbox.
    OutboxCleanup,
    /// Deletes old done messages of the inbox, which forgets that they ever arrived.
    InboxCleanup,
    /// Deletes old finished joins.
    JoinCleanup,
    /// Frees expired leases of both queues.
    Reaping,
    /// Counts the messages of both queues for the metric `postroom_messages`.
    Counting,
}

impl Job {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Processing,
        Self::OutboxCleanup,
        Self::InboxCleanup,
        Self::JoinCleanup,
        Self::Reaping,
        Self::Counting,
    ];

    /// Its name in logs, metrics and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::OutboxCleanup => "outbox_cleanup",
            Self::InboxCleanup => "inbox_cleanup",
            Self::JoinCleanup => "join_cleanup",
            Self::Reaping => "reaping",
            Self::Counting => "counting",
        }
    }

    /// The parameter that a wrong expression is blamed on.
    fn cron_param(self) -> &'static str {
        match self {
            Self::Processing => "processing.cron",
            Self::OutboxCleanup => "outbox_cleanup.cron",
            Self::InboxCleanup => "inbox_cleanup.cron",
            Self::JoinCleanup => "join_cleanup.cron",
            Self::Reaping => "reaping.cron",
            Self::Counting => "counting.cron",
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Job {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|job| job.name() == name);
        known.ok_or_else(|| {
            ErrorKind::InvalidArgument { param: "job" }.with(format!(
                "expected one of {}",
                Self::ALL.map(Self::name).join(", ")
            ))
        })
    }
}

/// When a job is due, and whether at all.
///
/// A cron expression has five fields (minute, hour, day, month, weekday), six (a second before them) or
/// seven (a year behind them). One with a `?`, as Quartz writes them, counts weekdays from Sunday as 1;
/// any other from Sunday as 0. Times are UTC, by the clock of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    cron: String,
    enabled: bool,
}

impl Schedule {
    /// Due whenever the expression says.
    pub fn cron(expression: impl Into<String>) -> Self {
        Self {
            cron: expression.into(),
            enabled: true,
        }
    }

    /// Whether it is due at all; by hand it can be run in any case.
    #[must_use]
    pub fn enabled(mut self, on: bool) -> Self {
        self.enabled = on;
        self
    }

    /// The expression.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.cron
    }

    /// Whether it is due at all.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// The expression, read. One that never comes true is a mistake too.
    pub(super) fn read(&self, job: Job) -> Result<Cron, Error> {
        let wrong = |reason: &str| {
            let param = job.cron_param();
            ErrorKind::InvalidArgument { param }.with(format!(
                "`{}` is no schedule for {job}: {reason}",
                self.cron.escape_debug()
            ))
        };
        let cron = cron::parse(&self.cron).map_err(|reason| wrong(&reason))?;
        if cron::next_after(&cron, Timestamp::now()).is_none() {
            return Err(wrong("it never comes true"));
        }
        Ok(cron)
    }
}

/// A cleanup: how long to keep what is done, and when to delete what is older. What is old enough is
/// decided by the database's clock.
///
/// ```
/// use std::time::Duration;
/// use postroom::jobs::Cleanup;
///
/// let weekly = Cleanup::older_than(Duration::from_secs(30 * 86_400)).cron("0 30 3 ? * SUN");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleanup {
    pub(super) retention: Duration,
    pub(super) schedule: Schedule,
}

impl Cleanup {
    /// Deletes what has been done for longer than this, every midnight.
    #[must_use]
    pub fn older_than(retention: Duration) -> Self {
        Self {
            retention,
            schedule: Schedule::cron(DAILY),
        }
    }

    /// When it is due: see [`Schedule`].
    #[must_use]
    pub fn cron(mut self, expression: impl Into<String>) -> Self {
        self.schedule.cron = expression.into();
        self
    }

    /// Whether it is due at all.
    #[must_use]
    pub fn enabled(mut self, on: bool) -> Self {
        self.schedule.enabled = on;
        self
    }

    pub(super) fn check(&self, param: &'static str) -> Result<(), Error> {
        if self.retention.is_zero() || self.retention > LONGEST_RETENTION {
            return Err(ErrorKind::OutOfRange { param }.with(format!(
                "expected more than nothing and at most {} days",
                LONGEST_RETENTION.as_secs() / DAY.as_secs()
            )));
        }
        Ok(())
    }
}

/// How messages are processed: every five seconds, by claims of up to 50, whose results are written down
/// whenever 5 have gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processing {
    pub(super) schedule: Schedule,
    pub(super) batch: usize,
    pub(super) chunk: usize,
}

impl Default for Processing {
    fn default() -> Self {
        Self {
            schedule: Schedule::cron(EVERY_FIVE_SECONDS),
            batch: 50,
            chunk: 5,
        }
    }
}

impl Processing {
    /// When it is due: see [`Schedule`].
    #[must_use]
    pub fn cron(mut self, expression: impl Into<String>) -> Self {
        self.schedule.cron = expression.into();
        self
    }

    /// Whether it is due at all.
    #[must_use]
    pub fn enabled(mut self, on: bool) -> Self {
        self.schedule.enabled = on;
        self
    }

    /// How many messages one claim takes at most.
    #[must_use]
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// How many results are written down together: see [`Dispatcher::chunk`](crate::Dispatcher::chunk).
    #[must_use]
    pub fn chunk(mut self, results: usize) -> Self {
        self.chunk = results;
        self
    }

    pub(super) fn check(&self, batch: &'static str, chunk: &'static str) -> Result<(), Error> {
        for (param, value) in [(batch, self.batch), (chunk, self.chunk)] {
            if !(1..=LARGEST_BATCH).contains(&value) {
                return Err(ErrorKind::OutOfRange { param }
                    .with(format!("expected 1 to {LARGEST_BATCH}, got {value}")));
            }
        }
        Ok(())
    }
}
