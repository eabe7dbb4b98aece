//! Whether and when a failed message is tried again.

use std::time::Duration;

use super::outcome::FailureClass;

/// Decides what becomes of a message whose handler failed.
///
/// ```
/// use std::time::Duration;
/// use postroom::{Failure, RetryPolicy, Verdict};
///
/// /// Three times, a second apart.
/// struct Stubborn;
///
/// impl RetryPolicy for Stubborn {
///     fn decide(&self, failure: &Failure<'_>) -> Verdict {
///         if failure.attempts < 3 {
///             Verdict::Retry(Some(Duration::from_secs(1)))
///         } else {
///             Verdict::Fail("three times is enough".to_owned())
///         }
///     }
/// }
/// ```
pub trait RetryPolicy: Send + Sync + 'static {
    /// What to do after this failure.
    fn decide(&self, failure: &Failure<'_>) -> Verdict;

    /// Whether failures of infrastructure use up attempts, as they do not by default.
    fn counts_infrastructure(&self) -> bool {
        false
    }
}

/// A handler's failure, as a policy sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure<'a> {
    /// Whose fault it was.
    pub class: FailureClass,
    /// How many runs have failed now, this one included. Those that were "not ready" are not counted, nor
    /// those that failed for want of infrastructure, unless the policy counts them.
    pub attempts: u32,
    /// How many times the message was handed back before, for whatever reason.
    pub retry_count: u32,
    /// How old the message is, by the database's clock: since it was enqueued, or due if that was later.
    pub age: Duration,
    /// Its topic.
    pub topic: &'a str,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Ready again after this time, or after the default backoff, min(2^retry count, 60) seconds.
    Retry(Option<Duration>),
    /// Dead, for this reason; the last error is stored behind it.
    Fail(String),
}

/// The default policy: exponential backoff, a number of attempts for business failures, a time for
/// infrastructure, no second chance for permanent ones.
///
/// ```
/// use std::time::Duration;
/// use postroom::Backoff;
///
/// let patient = Backoff::default().max_attempts(20).infrastructure_budget(Duration::from_secs(3 * 86_400));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    max_attempts: u32,
    infrastructure_budget: Duration,
}

impl Default for Backoff {
    /// 10 attempts, 24 hours.
    fn default() -> Self {
        Self {
            max_attempts: 10,
            infrastructure_budget: Duration::from_secs(24 * 3600),
        }
    }
}

impl Backoff {
    /// The run that fails as the n-th is the last. 0 counts as 1: a message is tried once at least.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts.max(1);
        self
    }

    /// How long a message is tried while infrastructure is away, from when it was enqueued or due.
    #[must_use]
    pub fn infrastructure_budget(mut self, budget: Duration) -> Self {
        self.infrastructure_budget = budget;
        self
    }
}

impl RetryPolicy for Backoff {
    fn decide(&self, failure: &Failure<'_>) -> Verdict {
        match failure.class {
            FailureClass::Permanent => Verdict::Fail(String::new()),
            FailureClass::Infrastructure if failure.age < self.infrastructure_budget => {
                Verdict::Retry(None)
            }
            FailureClass::Infrastructure => Verdict::Fail(format!(
                "Infrastructure was away for longer than {} s",
                self.infrastructure_budget.as_secs()
            )),
            FailureClass::Business if failure.attempts < self.max_attempts => Verdict::Retry(None),
            FailureClass::Business => Verdict::Fail(exceeded(self.max_attempts)),
        }
    }
}

/// HoneyDrunk's rule: `max_retry_attempts` retries after the first run, after base · 2^retries but never
/// more than a maximum; then dead. It makes no difference between business and infrastructure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoneyDrunk {
    /// Retries after the first run: 5.
    pub max_retry_attempts: u32,
    /// The delay of the first retry: 1 second.
    pub base_retry_delay: Duration,
    /// No delay is longer: 5 minutes.
    pub max_retry_delay: Duration,
}

impl Default for HoneyDrunk {
    fn default() -> Self {
        Self {
            max_retry_attempts: 5,
            base_retry_delay: Duration::from_secs(1),
            max_retry_delay: Duration::from_secs(300),
        }
    }
}

impl RetryPolicy for HoneyDrunk {
    fn decide(&self, failure: &Failure<'_>) -> Verdict {
        if failure.class == FailureClass::Permanent {
            return Verdict::Fail(String::new());
        }
        let retries = failure.attempts.saturating_sub(1);
        if retries >= self.max_retry_attempts {
            return Verdict::Fail(exceeded(self.max_retry_attempts));
        }
        let factor = 1_u32.checked_shl(retries).unwrap_or(u32::MAX);
        let delay = self.base_retry_delay.saturating_mul(factor);
        Verdict::Retry(Some(delay.min(self.max_retry_delay)))
    }

    fn counts_infrastructure(&self) -> bool {
        true
    }
}

fn exceeded(attempts: u32) -> String {
    format!("Exceeded maximum retry attempts ({attempts})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(class: FailureClass, retry_count: u32) -> Failure<'static> {
        Failure {
            class,
            attempts: retry_count + 1,
            retry_count,
            age: Duration::from_secs(60),
            topic: "topic",
        }
    }

    #[test]
    fn the_tenth_failure_is_the_last() {
        let policy = Backoff::default();
        let ninth = policy.decide(&failure(FailureClass::Business, 8));
        assert_eq!(ninth, Verdict::Retry(None));
        let tenth = policy.decide(&failure(FailureClass::Business, 9));
        assert!(matches!(tenth, Verdict::Fail(_)));
    }

    #[test]
    fn infrastructure_has_time_and_not_a_number() {
        let policy = Backoff::default();
        let mut failure = failure(FailureClass::Infrastructure, 5_000);
        assert_eq!(policy.decide(&failure), Verdict::Retry(None));
        failure.age = Duration::from_secs(24 * 3600);
        assert!(matches!(policy.decide(&failure), Verdict::Fail(_)));
    }

    #[test]
    fn honeydrunk_doubles_from_its_base_and_stops_at_its_maximum() {
        let policy = HoneyDrunk {
            max_retry_attempts: 100,
            ..HoneyDrunk::default()
        };
        for (retries, seconds) in [(0, 1), (1, 2), (4, 16), (8, 256), (9, 300), (64, 300)] {
            assert_eq!(
                policy.decide(&failure(FailureClass::Business, retries)),
                Verdict::Retry(Some(Duration::from_secs(seconds))),
                "after {retries} retries"
            );
        }
    }

    #[test]
    fn honeydrunk_fails_the_sixth_run() {
        let policy = HoneyDrunk::default();
        assert!(matches!(
            policy.decide(&failure(FailureClass::Business, 4)),
            Verdict::Retry(_)
        ));
        assert_eq!(
            policy.decide(&failure(FailureClass::Infrastructure, 5)),
            Verdict::Fail("Exceeded maximum retry attempts (5)".to_owned())
        );
    }
}
