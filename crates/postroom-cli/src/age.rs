//! Ages: how a person writes `7d`, and how long ago something was.

use std::time::{Duration, SystemTime};

/// Parses `90s`, `15m`, `36h` or `7d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "expected a number and a unit, such as 90s, 15m, 36h or 7d";
    let unit = text.chars().next_back().ok_or(EXPECTED)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(EXPECTED.to_owned()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| EXPECTED)?;
    number
        .checked_mul(seconds)
        .map(Duration::from_secs)
        .ok_or_else(|| "that is too long".to_owned())
}

/// How long ago, in the largest unit that fits.
pub(crate) fn since(time: SystemTime) -> String {
    let seconds = time.elapsed().unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
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
        assert_eq!(parse("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for wrong in [
            "",
            "7",
            "d",
            "-1d",
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
}
