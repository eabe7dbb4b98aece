//! When a job is due: a cron expression, and the ticks that it makes of a clock.

use std::time::Duration;

use croner::Cron;
use croner::parser::CronParser;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The longest sleep: a clock may be set, and a machine suspended, at any time.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads an expression of five fields (minute, hour, day, month, weekday), six (a second before them) or
/// seven (a year behind them), or a nickname such as `@daily`.
///
/// One with a `?` is Quartz's: there `0/5` is "every 5 from 0 on", and Sunday is the weekday 1. Without a
/// `?`, Sunday is 0 or 7, as everywhere else.
pub(super) fn parse(expression: &str) -> Result<Cron, String> {
    let parser = CronParser::builder()
        .sloppy_ranges(true)
        .alternative_weekdays(expression.contains('?'))
        .build();
    parser.parse(expression).map_err(|error| error.to_string())
}

/// The first time after this one, in UTC. `None` when there is none.
pub(super) fn next_after(cron: &Cron, time: Timestamp) -> Option<Timestamp> {
    let next = cron.find_next_occurrence(&time.to_zoned(TimeZone::UTC), false);
    next.ok().map(|next| next.timestamp())
}

/// The ticks of an expression, one after the other. Those that nobody was there for are skipped.
pub(super) struct Ticks {
    cron: Cron,
    next: Option<Timestamp>,
    /// When the clock was last looked at.
    looked: Timestamp,
}

impl Ticks {
    /// The ticks after `now`.
    pub(super) fn new(cron: Cron, now: Timestamp) -> Self {
        Self {
            next: next_after(&cron, now),
            cron,
            looked: now,
        }
    }

    /// How long to sleep before it is worth looking at the clock again.
    pub(super) fn pause(&self, now: Timestamp) -> Duration {
        let pause = self.next.map(|next| next.duration_since(now));
        match pause.map(Duration::try_from) {
            Some(Ok(pause)) => pause.min(LONGEST_PAUSE),
            // It is over already.
            Some(Err(_)) => Duration::ZERO,
            None => LONGEST_PAUSE,
        }
    }

    /// Whether a tick has come since the last look.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let set_back = now < self.looked;
        self.looked = now;
        let due = !set_back && self.next.is_some_and(|next| next <= now);
        if due || set_back {
            self.next = next_after(&self.cron, now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn after(expression: &str, start: &str, count: usize) -> Vec<String> {
        let cron = parse(expression).expect("an expression");
        let mut now = time(start);
        (0..count)
            .map(|_| {
                now = next_after(&cron, now).expect("a next time");
                now.to_string()
            })
            .collect()
    }

    #[test]
    fn quartz_counts_from_the_number_before_the_slash() {
        assert_eq!(
            after("0/5 * * * * ?", "2026-02-28T23:59:52.3Z", 3),
            [
                "2026-02-28T23:59:55Z",
                "2026-03-01T00:00:00Z",
                "2026-03-01T00:00:05Z"
            ]
        );
        assert_eq!(
            after("0 20/15 * * * ?", "2026-01-01T00:00:00Z", 4),
            [
                "2026-01-01T00:20:00Z",
                "2026-01-01T00:35:00Z",
                "2026-01-01T00:50:00Z",
                "2026-01-01T01:20:00Z"
            ]
        );
    }

    #[test]
    fn midnight_is_by_utc() {
        assert_eq!(
            after("0 0 0 * * ?", "2026-03-28T00:00:00Z", 3),
            [
                "2026-03-29T00:00:00Z",
                "2026-03-30T00:00:00Z",
                "2026-03-31T00:00:00Z"
            ]
        );
    }

    #[test]
    fn five_fields_have_no_seconds() {
        assert_eq!(
            after("*/30 3 * * *", "2026-01-01T00:00:00Z", 3),
            [
                "2026-01-01T03:00:00Z",
                "2026-01-01T03:30:00Z",
                "2026-01-02T03:00:00Z"
            ]
        );
        assert_eq!(
            after("@daily", "2026-01-01T12:00:00Z", 1),
            ["2026-01-02T00:00:00Z"]
        );
    }

    #[test]
    fn quartz_begins_its_week_with_sunday_as_1() {
        // 2026-01-01 is a Thursday.
        let friday = ["2026-01-02T06:00:00Z"];
        assert_eq!(after("0 0 6 ? * 6", "2026-01-01T12:00:00Z", 1), friday);
        assert_eq!(after("0 0 6 ? * FRI", "2026-01-01T12:00:00Z", 1), friday);
        assert_eq!(after("0 0 6 * * 5", "2026-01-01T12:00:00Z", 1), friday);
        assert_eq!(after("0 0 6 * * FRI", "2026-01-01T12:00:00Z", 1), friday);
        assert_eq!(
            after("0 0 6 ? * 2-6", "2026-01-02T12:00:00Z", 1),
            ["2026-01-05T06:00:00Z"],
            "Monday to Friday"
        );
        let sunday = ["2026-01-04T06:00:00Z"];
        for expression in ["0 0 6 ? * 1", "0 0 6 ? * SUN", "0 0 6 * * 0", "0 0 6 * * 7"] {
            assert_eq!(after(expression, "2026-01-01T12:00:00Z", 1), sunday);
        }
    }

    #[test]
    fn nonsense_is_no_expression() {
        for nonsense in [
            "",
            "every day",
            "* * * *",
            "61 * * * * *",
            "*/0 * * * * *",
            "@sometimes",
            "0 0 0 * * ? 2026 1",
        ] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn what_never_comes_has_no_next_time() {
        let now = time("2026-01-01T00:00:00Z");
        for never in ["0 0 0 30 2 ?", "0 0 0 1 1 ? 2020"] {
            let cron = parse(never).expect("an expression");
            assert_eq!(next_after(&cron, now), None, "{never}");
        }
    }

    #[test]
    fn ticks_that_were_missed_are_skipped() {
        let start = time("2026-01-01T00:00:01Z");
        let mut ticks = Ticks::new(parse("0/5 * * * * ?").expect("an expression"), start);
        assert_eq!(ticks.pause(start), Duration::from_secs(4));
        assert!(!ticks.is_due(time("2026-01-01T00:00:04.9Z")));

        let late = time("2026-01-01T00:00:23Z");
        assert_eq!(ticks.pause(late), Duration::ZERO);
        assert!(ticks.is_due(late));
        assert!(!ticks.is_due(late), "once, not four times");
        assert_eq!(ticks.pause(late), Duration::from_secs(2));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_ticks() {
        let start = time("2026-01-01T12:00:00Z");
        let mut ticks = Ticks::new(parse("0/5 * * * * ?").expect("an expression"), start);
        let back = time("2026-01-01T11:00:01Z");
        assert!(!ticks.is_due(back));
        assert_eq!(ticks.pause(back), Duration::from_secs(4));
        assert!(ticks.is_due(time("2026-01-01T11:00:05Z")));
    }

    #[test]
    fn nobody_sleeps_past_a_clock_that_is_set_forward() {
        let start = time("2026-01-01T00:00:01Z");
        let mut ticks = Ticks::new(parse("0 0 0 * * ?").expect("an expression"), start);
        assert_eq!(ticks.pause(start), LONGEST_PAUSE);
        assert!(ticks.is_due(time("2026-01-02T00:00:00Z")));
    }
}
