//! The settings of the deep dive's .NET services, read as they are written there.

use std::time::Duration;

use serde::Deserialize;

use super::plan::{Cleanup, DAILY, DAY, EVERY_FIVE_SECONDS, EVERY_MINUTE, Processing, Schedule};
use crate::error::{Error, ErrorKind};

/// Settings by the names that Quartz jobs in .NET services have for them. What is missing has its
/// default; what is not known is refused.
///
/// ```
/// use postroom::jobs::{JobSettings, Jobs};
///
/// let settings = JobSettings::from_json(r#"{
///     "Jobs": {
///         "RetentionDays": 7,
///         "InboxCleanup": { "CronExpression": "0 0 0 * * ?", "Enabled": true },
///         "OutboxProcessor": { "CronExpression": "0/5 * * * * ?", "BatchSize": 50, "Chunk": 5 }
///     },
///     "OutboxConfigurations": { "CutOffDay": -7 }
/// }"#)?;
/// assert_eq!(settings.jobs.outbox_processor, JobSettings::default().jobs.outbox_processor);
/// let jobs = Jobs::from_settings(&settings)?;
/// # drop(jobs);
/// # Ok::<(), postroom::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct JobSettings {
    /// `Jobs`.
    pub jobs: JobsSection,
    /// `OutboxConfigurations`.
    pub outbox_configurations: OutboxConfigurations,
}

/// The section `Jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct JobsSection {
    /// How many days the inbox remembers what is done. The sign does not matter: −7 is 7 days too.
    pub retention_days: i64,
    /// When the inbox is cleaned.
    pub inbox_cleanup: JobSection,
    /// When the outbox is worked, and how.
    pub outbox_processor: ProcessorSection,
    /// When the outbox is cleaned. The deep dive has none, because it deletes at once.
    pub outbox_cleanup: JobSection,
    /// When finished joins are cleaned.
    pub join_cleanup: JobSection,
    /// When expired leases are freed.
    pub reaping: JobSection,
}

/// A job's section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct JobSection {
    /// When it is due; `None` is the job's default.
    pub cron_expression: Option<String>,
    /// Whether it is due at all.
    pub enabled: bool,
}

/// The section `Jobs:OutboxProcessor`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ProcessorSection {
    /// When it is due.
    pub cron_expression: String,
    /// How many messages one claim takes at most.
    pub batch_size: usize,
    /// How many results are written down together.
    pub chunk: usize,
    /// Whether it is due at all.
    pub enabled: bool,
}

/// The section `OutboxConfigurations`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct OutboxConfigurations {
    /// How many days back a purge by hand leaves alone, and how long the outbox keeps what is done. The
    /// sign does not matter.
    pub cut_off_day: i64,
}

impl Default for JobsSection {
    fn default() -> Self {
        Self {
            retention_days: 7,
            inbox_cleanup: JobSection::default(),
            outbox_processor: ProcessorSection::default(),
            outbox_cleanup: JobSection::default(),
            join_cleanup: JobSection::default(),
            reaping: JobSection::default(),
        }
    }
}

impl Default for JobSection {
    fn default() -> Self {
        Self {
            cron_expression: None,
            enabled: true,
        }
    }
}

impl Default for ProcessorSection {
    fn default() -> Self {
        Self {
            cron_expression: EVERY_FIVE_SECONDS.to_owned(),
            batch_size: 50,
            chunk: 5,
            enabled: true,
        }
    }
}

impl Default for OutboxConfigurations {
    fn default() -> Self {
        Self { cut_off_day: -7 }
    }
}

impl JobSettings {
    /// Reads settings: an object with the sections `Jobs` and `OutboxConfigurations`, and no others.
    ///
    /// # Errors
    /// When it is not JSON, when a setting is not known, and when one is not what it should be.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        serde_json::from_str(text).map_err(|error| {
            ErrorKind::InvalidArgument { param: "settings" }.with(error.to_string())
        })
    }

    /// `OutboxConfigurations:CutOffDay` as an age, for a purge by hand:
    /// `room.inbox().cleanup(settings.cut_off()?)`.
    ///
    /// # Errors
    /// When it is 0.
    pub fn cut_off(&self) -> Result<Duration, Error> {
        let days = self.outbox_configurations.cut_off_day;
        age("OutboxConfigurations:CutOffDay", days)
    }

    pub(super) fn inbox_cleanup(&self) -> Result<Cleanup, Error> {
        let retention = age("Jobs:RetentionDays", self.jobs.retention_days)?;
        let schedule = self.jobs.inbox_cleanup.schedule(DAILY);
        Ok(Cleanup {
            retention,
            schedule,
        })
    }

    pub(super) fn outbox_cleanup(&self) -> Result<Cleanup, Error> {
        Ok(Cleanup {
            retention: self.cut_off()?,
            schedule: self.jobs.outbox_cleanup.schedule(DAILY),
        })
    }

    pub(super) fn join_cleanup(&self, default: Cleanup) -> Cleanup {
        Cleanup {
            schedule: self.jobs.join_cleanup.schedule(DAILY),
            ..default
        }
    }

    pub(super) fn reaping(&self) -> Schedule {
        self.jobs.reaping.schedule(EVERY_MINUTE)
    }

    pub(super) fn processing(&self) -> Result<Processing, Error> {
        let section = &self.jobs.outbox_processor;
        let processing = Processing::default()
            .cron(&section.cron_expression)
            .enabled(section.enabled)
            .batch(section.batch_size)
            .chunk(section.chunk);
        processing.check(
            "Jobs:OutboxProcessor:BatchSize",
            "Jobs:OutboxProcessor:Chunk",
        )?;
        Ok(processing)
    }
}

impl JobSection {
    fn schedule(&self, default: &str) -> Schedule {
        Schedule::cron(self.cron_expression.as_deref().unwrap_or(default)).enabled(self.enabled)
    }
}

/// Days as an age. They are written as 7 in one place and as −7 in the other, and mean the same.
fn age(param: &'static str, days: i64) -> Result<Duration, Error> {
    let seconds = days.unsigned_abs().checked_mul(DAY.as_secs());
    let retention = seconds.map_or(Duration::MAX, Duration::from_secs);
    Cleanup::older_than(retention).check(param)?;
    Ok(retention)
}
