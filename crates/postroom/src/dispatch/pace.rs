//! When to look for messages: at once while there are plenty, less and less often while there are none,
//! and after a failure when the database has had time to come back.

use std::time::{Duration, Instant};

use super::engine::Turn;
use crate::wake::Reason;

/// The first pause of an idle queue.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// A message that is promised is looked for sooner.
const PROMISE_PAUSE: Duration = Duration::from_millis(1);

/// How long to wait for more after a look that has found some: longer, the more it has found. Up to
/// [`FEW`] that is a moment which nobody notices; in a flood it is long enough to leave the database to
/// those who write.
const GATHER_PER_MESSAGE: Duration = Duration::from_micros(250);
const FEW: u32 = 50;
const GATHER_FEW: Duration = Duration::from_millis(5);
const GATHER_PER_MORE: Duration = Duration::from_micros(100);
const GATHER: Duration = Duration::from_millis(30);

/// The first pause after a failure.
const FIRST_FAILURE_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Pace {
    /// The longest pause of an idle queue.
    poll_interval: Duration,
    /// The longest pause after failures.
    error_delay: Duration,
    next_look: Instant,
    pause: Duration,
    /// The last look has found as much as it asked for.
    busy: bool,
    /// A look has just found some messages: more have come in a moment.
    gathering_until: Option<Instant>,
    /// Somebody called while a look was under way, which may have missed what they called for.
    called: bool,
    failures: u32,
    failing_until: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(poll_interval: Duration, error_delay: Duration) -> Self {
        Self {
            poll_interval,
            error_delay,
            next_look: Instant::now(),
            pause: FIRST_PAUSE.min(poll_interval),
            busy: false,
            gathering_until: None,
            called: false,
            failures: 0,
            failing_until: None,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Whether it is time to look.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.next_look && !self.is_failing()
    }

    /// Whether the last failure was so recent that nothing should be tried.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing_until.is_some_and(|time| Instant::now() < time)
    }

    /// Whether it is better to wait a little for more than to take turns for a few messages each.
    pub(super) fn is_gathering(&self) -> bool {
        self.gathering_until
            .is_some_and(|time| Instant::now() < time)
    }

    /// When to look next.
    pub(crate) fn next(&self) -> Instant {
        self.not_before(self.next_look)
    }

    /// This time, or a later one when gathering or the pause after a failure is over.
    pub(super) fn not_before(&self, time: Instant) -> Instant {
        let waits = [self.failing_until, self.gathering_until];
        waits.into_iter().flatten().fold(time, Instant::max)
    }

    /// A look has begun: no other until it is back, unless there is plenty.
    pub(crate) fn look_begun(&mut self) {
        self.called = false;
        if !self.busy {
            self.next_look = Instant::now() + self.poll_interval;
        }
    }

    pub(crate) fn turned(&mut self, turn: Turn) {
        self.failures = 0;
        self.failing_until = None;
        if turn.asked == 0 {
            return;
        }
        let now = Instant::now();
        self.busy = turn.claimed == turn.asked;
        let claimed = u32::try_from(turn.claimed).unwrap_or(u32::MAX);
        self.gathering_until = (!self.busy).then(|| now + gather(claimed));
        if self.busy || std::mem::take(&mut self.called) {
            self.next_look = now;
            self.pause = FIRST_PAUSE.min(self.poll_interval);
            return;
        }
        if turn.claimed > 0 {
            self.pause = FIRST_PAUSE.min(self.poll_interval);
        }
        self.next_look = now + self.pause;
        if turn.claimed == 0 {
            self.pause = (self.pause * 2).min(self.poll_interval);
        }
    }

    /// Says how long nothing will be tried.
    pub(crate) fn failed(&mut self) -> Duration {
        let pause = FIRST_FAILURE_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(self.error_delay);
        self.failures += 1;
        self.busy = false;
        self.failing_until = Some(Instant::now() + pause);
        self.next_look = Instant::now();
        pause
    }

    pub(crate) fn woken(&mut self, reason: Reason) {
        let now = Instant::now();
        self.called = true;
        self.next_look = now;
        let pause = if reason.promised {
            PROMISE_PAUSE
        } else {
            FIRST_PAUSE
        };
        self.pause = pause.min(self.poll_interval);
    }
}

/// How long to wait for more after a look that has found so many.
fn gather(claimed: u32) -> Duration {
    let few = GATHER_PER_MESSAGE.saturating_mul(claimed).min(GATHER_FEW);
    let more = GATHER_PER_MORE.saturating_mul(claimed.saturating_sub(FEW));
    few.saturating_add(more).min(GATHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Turn = Turn {
        asked: 10,
        claimed: 0,
    };

    fn pace() -> Pace {
        Pace::new(Duration::from_millis(500), Duration::from_secs(10))
    }

    #[test]
    fn an_idle_queue_is_asked_less_and_less_often() {
        let mut pace = pace();
        let pauses: Vec<u128> = (0..8)
            .map(|_| {
                let now = Instant::now();
                pace.turned(EMPTY);
                (pace.next() - now).as_millis()
            })
            .collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert!(pauses[0] < 50 && pauses[7] >= 500, "{pauses:?}");
    }

    #[test]
    fn a_full_batch_is_followed_by_another_look_at_once() {
        let mut pace = pace();
        pace.turned(EMPTY);
        pace.turned(Turn {
            asked: 10,
            claimed: 10,
        });
        assert!(pace.is_due() && pace.is_busy());
    }

    #[test]
    fn a_few_wait_for_a_moment_and_a_flood_gathers() {
        let waits: Vec<Duration> = (0..1_000).map(gather).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits[0], Duration::ZERO);
        assert_eq!(waits[50], GATHER_FEW);
        assert_eq!(waits[999], GATHER);
    }

    #[test]
    fn failures_pause_longer_and_longer_and_a_success_ends_them() {
        let mut pace = pace();
        assert_eq!(pace.failed(), Duration::from_millis(100));
        assert_eq!(pace.failed(), Duration::from_millis(200));
        for _ in 0..20 {
            pace.failed();
        }
        assert_eq!(pace.failed(), Duration::from_secs(10));
        assert!(!pace.is_due());
        pace.turned(EMPTY);
        assert!(!pace.is_failing());
        assert_eq!(pace.failed(), Duration::from_millis(100));
    }

    #[test]
    fn waking_is_to_look_at_once() {
        let mut pace = pace();
        for _ in 0..8 {
            pace.turned(EMPTY);
        }
        assert!(!pace.is_due());
        pace.woken(Reason::default());
        assert!(pace.is_due());
    }
}
