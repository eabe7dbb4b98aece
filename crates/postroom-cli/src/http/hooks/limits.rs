//! What a source may ask for: so many requests at once, so many a second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::config::Webhook;

/// As much of its rate as a source may use at once.
const BURST: Duration = Duration::from_secs(1);

/// The limits of one source.
pub(super) struct Limits {
    places: Semaphore,
    pace: Option<Pace>,
}

/// Why a request has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// Too many are under way.
    Crowded,
    /// Too many have come in the last second; the next may come after this long.
    TooFast(Duration),
}

impl Limits {
    pub(super) fn new(webhook: &Webhook) -> anyhow::Result<Self> {
        ensure!(
            (1..=Semaphore::MAX_PERMITS).contains(&webhook.concurrency),
            "`concurrency` must be 1 at least"
        );
        ensure!(webhook.rate != Some(0), "`rate` must be 1 at least");
        Ok(Self {
            places: Semaphore::new(webhook.concurrency),
            pace: webhook.rate.map(Pace::new),
        })
    }

    /// A place among the requests that are under way, until it is dropped.
    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, Full> {
        let place = self.places.try_acquire().map_err(|_| Full::Crowded)?;
        if let Some(pace) = &self.pace {
            pace.step(Instant::now()).map_err(Full::TooFast)?;
        }
        Ok(place)
    }
}

/// Spreads requests over time: each one takes its share of a second, and shares may be taken a second
/// ahead.
struct Pace {
    share: Duration,
    /// Until when shares have been taken.
    taken: Mutex<Option<Instant>>,
}

impl Pace {
    fn new(rate: u32) -> Self {
        Self {
            share: BURST / rate.max(1),
            taken: Mutex::new(None),
        }
    }

    fn step(&self, now: Instant) -> Result<(), Duration> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let from = taken.map_or(now, |taken| taken.max(now));
        let until = from + self.share;
        match until.duration_since(now).checked_sub(BURST) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                *taken = Some(until);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_as_many_as_the_rate_says() {
        for rate in [1, 3, 7, 1_000] {
            let pace = Pace::new(rate);
            let start = Instant::now();
            for _ in 0..rate {
                assert_eq!(pace.step(start), Ok(()));
            }
            let wait = pace.step(start).expect_err("one too many");
            assert!(wait <= BURST, "{wait:?}");
            // Whoever waits as told may go on, once.
            assert_eq!(pace.step(start + wait), Ok(()));
            assert!(pace.step(start + wait).is_err());
        }
    }

    #[test]
    fn a_pause_saves_up_one_second_and_no_more() {
        let pace = Pace::new(2);
        let start = Instant::now();
        assert_eq!(pace.step(start), Ok(()));
        let later = start + Duration::from_secs(3_600);
        assert_eq!(pace.step(later), Ok(()));
        assert_eq!(pace.step(later), Ok(()));
        assert!(pace.step(later).is_err());
    }
}
