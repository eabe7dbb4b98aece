//! Ages: how a person writes `7d`, and how long ago something was.

use std::time::{Duration, SystemTime};

/// The units, the longer name before the one that it ends with.
const UNITS: [(&str, Duration); 5] = [
    ("ms", Duration::from_millis(1)),
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(3_600)),
    ("d", Duration::from_secs(86_400)),
];

/// Parses `500ms`, `90s`, `15m`, `36h` or `7d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str =
        "expected a number and a unit (ms, s, m, h or d), such as 90s, 15m, 36h or 7d";
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .ok_or(EXPECTED)?;
    // A number may begin with a plus sign for Rust, but not for us.
    if !number.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(EXPECTED.to_owned());
    }
    let number: u64 = number.parse().map_err(|_| EXPECTED)?;
    let unit = u64::try_from(unit.as_millis()).map_err(|_| EXPECTED)?;
    number
        .checked_mul(unit)
        .map(Duration::from_millis)
        .ok_or_else(|| "that is too long".to_owned())
}

/// A duration as [`parse`] reads it, in the largest unit that loses nothing.
pub(crate) fn written(duration: Duration) -> String {
    let millis = duration.as_millis();
    let (name, unit) = UNITS
        .iter()
        .rev()
        .map(|(name, unit)| (name, unit.as_millis()))
        .find(|(_, unit)| millis >= *unit && millis.is_multiple_of(*unit))
        .unwrap_or((&"s", 1_000));
    format!("{}{name}", millis / unit)
}

/// How long ago, in the largest unit that fits.
pub(crate) fn since(time: SystemTime) -> String {
    format!("{} ago", span(time.elapsed().unwrap_or_default()))
}

/// In how long, in the largest unit that fits; `None` when it is over.
pub(crate) fn until(time: SystemTime) -> Option<String> {
    let left = time.duration_since(SystemTime::now()).ok()?;
    // Half a second is not `in 0s`.
    Some(format!("in {}", span(left + Duration::from_millis(999))))
}

/// A duration in the largest unit that fits.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Parses RFC 3339, such as `2030-01-31T12:00:00Z`.
pub(crate) fn parse_stamp(text: &str) -> Result<SystemTime, String> {
    text.parse::<jiff::Timestamp>()
        .map(SystemTime::from)
        .map_err(|_| {
            format!(
                "expected a time as RFC 3339 has it, such as 2030-01-31T12:00:00Z, not after {:.0}",
                jiff::Timestamp::MAX
            )
        })
}

/// When a delay is over. It is a time that can be written down, as [`parse_stamp`] reads it.
pub(crate) fn from_now(delay: Duration) -> Result<SystemTime, String> {
    SystemTime::now()
        .checked_add(delay)
        .filter(|time| jiff::Timestamp::try_from(*time).is_ok())
        .ok_or_else(|| {
            format!(
                "expected a delay that is over before {:.0}",
                jiff::Timestamp::MAX
            )
        })
}

/// A time for machines: RFC 3339, UTC.
pub(crate) fn stamp(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map(|time| time.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_numbers_with_a_unit() {
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in [
            "",
            "7",
            "d",
            "ms",
            "-1d",
            "+1d",
            "1.5h",
            "7 d",
            "1w",
            "7é",
            "99999999999999999999d",
            "9999999999999999999d",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for text in ["0s", "500ms", "90s", "15m", "36h", "7d"] {
            assert_eq!(written(parse(text).expect("a duration")), text);
        }
        assert_eq!(written(Duration::from_secs(3_600)), "1h");
    }

    #[test]
    fn spans_are_told_in_the_largest_unit_that_fits() {
        let seconds = Duration::from_secs;
        assert_eq!(span(seconds(59)), "59s");
        assert_eq!(span(seconds(3_599)), "59m");
        assert_eq!(span(seconds(86_399)), "23h");
        assert_eq!(span(seconds(200_000)), "2d");
        assert_eq!(until(SystemTime::now() - seconds(1)), None);
    }

    #[test]
    fn times_need_an_offset() {
        assert!(parse_stamp("2030-01-31T12:00:00Z").is_ok());
        assert!(parse_stamp("2030-01-31T12:00:00").is_err());
        assert!(parse_stamp("tomorrow").is_err());
    }
}
