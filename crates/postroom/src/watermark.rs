//! Where in a queue the next claim starts to look.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sql::{LATE_COMMITS, Queue, Row};

/// Where the next claim may start to look. Under a long-running snapshot the index keeps an entry for
/// every message that was ever handled, and with many leases it holds entries that cannot be claimed;
/// starting at what was claimed last steps over all of them. Messages that commit late or whose lease
/// expires lie below, so everything is looked at again after a while that depends on what that costs.
#[derive(Default)]
pub(crate) struct Watermark(Mutex<Option<Mark>>);

struct Mark {
    /// The highest next_attempt_at claimed so far.
    highest: i64,
    /// The last claim got all that it asked for, so that there is more above.
    plenty: bool,
    rescan_at: Instant,
    /// Where the mark was when everything was last looked at.
    rescanned: i64,
}

impl Watermark {
    /// Transactions may commit late, so the end of the queue is always looked at: the claim itself sees to
    /// that. When there was no more, the next look comes later, and goes back as far. In a long queue that
    /// would be to walk over thousands of messages that were claimed already.
    ///
    /// When it is time to look at everything again, one claim does that, and those beside it go on where they are.
    pub(crate) fn from(&self) -> Option<i64> {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = mark.as_mut()?;
        let now = Instant::now();
        if now >= mark.rescan_at {
            mark.rescan_at = now + RESCAN_LATEST;
            mark.rescanned = mark.highest;
            return None;
        }
        Some(mark.highest - if mark.plenty { 0 } else { LATE_COMMITS })
    }

    /// A claim is done that started at `from`. One that filled its batch above the mark has not looked
    /// below it; any other has looked at everything, and only one that filled its batch shows that
    /// there is enough to do further on.
    pub(crate) fn claimed(
        &self,
        from: Option<i64>,
        cost: Duration,
        filled: bool,
        next_attempts: &[i64],
    ) {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(latest) = next_attempts.iter().copied().max().filter(|_| filled) else {
            *mark = None;
            return;
        };
        if from.is_some_and(|from| next_attempts.iter().all(|next| *next >= from)) {
            if let Some(mark) = mark.as_mut() {
                mark.highest = mark.highest.max(latest);
                mark.plenty = true;
            }
            return;
        }
        *mark = Mark::rescanned(mark.take(), Some(latest), true, cost);
    }

    /// A dispatcher has looked from `from` on, and nowhere else. However little it has found, it looks at
    /// everything again only when it is time for that: a few messages at a time must not cost a walk over
    /// all that were handled before.
    pub(crate) fn looked(
        &self,
        from: Option<i64>,
        cost: Duration,
        filled: bool,
        next_attempts: &[i64],
    ) {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let latest = next_attempts.iter().copied().max();
        match (from, mark.as_mut()) {
            (Some(_), Some(mark)) => {
                mark.highest = latest.map_or(mark.highest, |latest| mark.highest.max(latest));
                mark.plenty = filled;
            }
            (Some(_), None) => {}
            (None, _) => *mark = Mark::rescanned(mark.take(), latest, filled, cost),
        }
    }

    pub(crate) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Mark {
    /// Everything was looked at, for `cost`, and what was found ends with `latest`. That is done again after a pause
    /// that costs a fiftieth, or at once if all of a full batch lay below the mark: there may be more of the kind.
    fn rescanned(
        before: Option<Self>,
        latest: Option<i64>,
        filled: bool,
        cost: Duration,
    ) -> Option<Self> {
        let more_below = before
            .as_ref()
            .is_some_and(|mark| filled && latest < Some(mark.rescanned));
        let pause = if more_below {
            Duration::ZERO
        } else {
            (cost * 50).clamp(RESCAN_EARLIEST, RESCAN_LATEST)
        };
        let highest = before.map(|mark| mark.highest).max(latest)?;
        Some(Self {
            highest,
            plenty: filled,
            rescan_at: Instant::now() + pause,
            rescanned: highest,
        })
    }
}

const RESCAN_EARLIEST: Duration = Duration::from_millis(50);
const RESCAN_LATEST: Duration = Duration::from_secs(2);

/// The next_attempt_at of claimed rows: the ninth column of the outbox, the tenth of the inbox, which
/// has two columns for its message id.
pub(crate) fn next_attempts<'a>(queue: Queue, rows: impl Iterator<Item = &'a Row>) -> Vec<i64> {
    let column = match queue {
        Queue::Outbox => 8,
        Queue::Inbox => 9,
    };
    rows.filter_map(|row| row.peek_int(column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(100);

    #[test]
    fn the_next_look_starts_at_the_last_one_and_goes_back_when_there_was_no_more() {
        let mark = Watermark::default();
        assert_eq!(mark.from(), None);
        mark.looked(None, COST, true, &[7_000_000, 9_000_000, 8_000_000]);
        assert_eq!(mark.from(), Some(9_000_000));
        mark.looked(Some(9_000_000), COST, false, &[9_500_000]);
        assert_eq!(mark.from(), Some(9_500_000 - LATE_COMMITS));
        mark.looked(mark.from(), COST, false, &[]);
        assert_eq!(mark.from(), Some(9_500_000 - LATE_COMMITS));
        mark.looked(mark.from(), COST, true, &[9_400_000]);
        assert_eq!(mark.from(), Some(9_500_000));
        mark.claimed(mark.from(), COST, false, &[]);
        assert_eq!(mark.from(), None, "everything was looked at");
    }

    /// A mark whose time has come to look at everything.
    fn due(highest: i64) -> Watermark {
        Watermark(Mutex::new(Some(Mark {
            highest,
            plenty: true,
            rescan_at: Instant::now(),
            rescanned: 0,
        })))
    }

    #[test]
    fn one_claim_looks_at_everything_and_those_beside_it_do_not() {
        let mark = due(9_000_000);
        assert_eq!(mark.from(), None);
        assert_eq!(mark.from(), Some(9_000_000));
        mark.looked(Some(9_000_000), COST, true, &[9_800_000]);
        mark.looked(None, COST, true, &[9_400_000]);
        assert_eq!(mark.from(), Some(9_800_000));
    }

    #[test]
    fn a_full_batch_from_below_the_mark_is_followed_by_another_look_there() {
        let mark = due(9_000_000);
        assert_eq!(mark.from(), None);
        mark.looked(None, COST, true, &[3_000_000, 4_000_000]);
        assert_eq!(mark.from(), None);
        mark.looked(None, COST, false, &[5_000_000]);
        assert_eq!(mark.from(), Some(9_000_000 - LATE_COMMITS));
    }
}
