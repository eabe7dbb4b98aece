//! Whether the outbox is well, for a health endpoint: does the store answer, and does work pile up?

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::observe::stats::QueueStats;
use crate::room::Postroom;
use crate::sql::Queue;

/// A store that takes longer to answer is not well.
const PATIENCE: Duration = Duration::from_secs(5);

impl Postroom {
    /// Whether the outbox is well: unhealthy when 10,000 messages or more are pending or the store does
    /// not answer, and with a warning from 1,000 on. See [`Postroom::health_with`] for other thresholds.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::Postroom;
    /// # let room = Postroom::connect("sqlite::memory:").await?;
    /// # room.deploy().await?;
    /// let health = room.health().await;
    /// assert!(health.is_healthy());
    /// assert_eq!(health.metadata()["PendingCount"], 0);
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn health(&self) -> Health {
        self.health_with(HealthCheck::default()).await
    }

    /// Whether the outbox is well, by thresholds of the caller. It never fails: a store that does is
    /// unhealthy, and so is one that has not answered after five seconds.
    pub async fn health_with(&self, check: HealthCheck) -> Health {
        let asked = QueueStats::of(&self.store, Queue::Outbox);
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(stats)) => check.found(pending(&stats)),
            Ok(Err(error)) => check.failed(error.to_string()),
            Err(_) => check.failed(format!(
                "the store has not answered after {} seconds",
                PATIENCE.as_secs()
            )),
        }
    }
}

/// Everything that should be done by now. What was scheduled for later is no backlog; what waits after
/// a failed attempt is, or an outage of a broker would look like an empty queue.
fn pending(stats: &QueueStats) -> u64 {
    stats.ready + stats.in_flight + stats.retrying
}

/// From how many pending messages on the outbox is not well.
///
/// ```
/// use postroom::HealthCheck;
///
/// let check = HealthCheck::thresholds(100, 500)?;
/// # async fn example(room: postroom::Postroom, check: HealthCheck) {
/// let health = room.health_with(check).await;
/// # }
/// # Ok::<(), postroom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthCheck {
    warning: u64,
    critical: u64,
}

/// A warning from 1,000 pending messages on, unhealthy from 10,000 on.
impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            warning: 1_000,
            critical: 10_000,
        }
    }
}

impl HealthCheck {
    /// A warning from `warning` pending messages on, unhealthy from `critical` on.
    ///
    /// # Errors
    /// `OutOfRange` when `warning` is zero or not below `critical`.
    pub fn thresholds(warning: u64, critical: u64) -> Result<Self, Error> {
        let out_of_range = |expected| {
            Err(ErrorKind::OutOfRange { param: "warning" }.with(format!("expected {expected}")))
        };
        if warning == 0 {
            return out_of_range("at least 1: an empty outbox is no reason to warn");
        }
        if warning >= critical {
            return out_of_range("less than `critical`");
        }
        Ok(Self { warning, critical })
    }

    fn found(self, pending: u64) -> Health {
        let reached =
            |threshold| format!("{pending} messages are pending, the threshold is {threshold}");
        let mut health = self.health(Some(pending));
        if pending >= self.critical {
            health.status = HealthStatus::Unhealthy;
            health.cause = Some(reached(self.critical));
        } else if pending >= self.warning {
            health.warning = Some(reached(self.warning));
        }
        health
    }

    fn failed(self, cause: String) -> Health {
        Health {
            status: HealthStatus::Unhealthy,
            cause: Some(cause),
            ..self.health(None)
        }
    }

    /// Nothing is wrong so far.
    fn health(self, pending: Option<u64>) -> Health {
        Health {
            name: "Transport.Outbox",
            status: HealthStatus::Healthy,
            warning: None,
            pending,
            warning_threshold: self.warning,
            critical_threshold: self.critical,
            cause: None,
        }
    }
}

/// What a health check has found. It serializes as it is, for an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// What was looked at: `Transport.Outbox`.
    pub name: &'static str,
    /// Whether it is well.
    pub status: HealthStatus,
    /// Healthy, but not for long: why.
    pub warning: Option<String>,
    /// How many messages should be done by now and are not: ready, in flight, or waiting after a failed
    /// attempt. `None` when the store did not say.
    pub pending: Option<u64>,
    /// From how many pending messages on there is a warning.
    pub warning_threshold: u64,
    /// From how many pending messages on it is unhealthy.
    pub critical_threshold: u64,
    /// Why it is unhealthy. It holds no payload and no secret.
    pub cause: Option<String>,
}

/// Whether something is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum HealthStatus {
    /// It works, though perhaps with a warning.
    Healthy,
    /// It does not work, or not fast enough.
    Unhealthy,
}

impl Health {
    /// Whether it is well.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.status == HealthStatus::Healthy
    }

    /// The numbers behind the judgement, by the names `PendingCount`, `WarningThreshold` and
    /// `CriticalThreshold`. The first is missing when the store did not say.
    #[must_use]
    pub fn metadata(&self) -> BTreeMap<&'static str, u64> {
        let thresholds = [
            ("WarningThreshold", self.warning_threshold),
            ("CriticalThreshold", self.critical_threshold),
        ];
        let pending = self.pending.map(|pending| ("PendingCount", pending));
        thresholds.into_iter().chain(pending).collect()
    }
}
