//! Where a list of the inbox goes on, as a text that can be given to a command or put into an address.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postroom::{InboxMessage, InboxMessageId, InboxState, List, WorkItemId};

/// The last message of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    Item(WorkItemId),
    /// It was never enqueued, and so has no work item.
    Arrival {
        first_seen: SystemTime,
        id: InboxMessageId,
    },
}

impl Position {
    pub(crate) fn of(message: &InboxMessage) -> Self {
        match message.work_item_id {
            Some(id) => Self::Item(id),
            None => Self::Arrival {
                first_seen: message.first_seen,
                id: message.id.clone(),
            },
        }
    }

    /// What of a list comes after it.
    pub(crate) fn list(self, list: List<InboxState>) -> List<InboxState> {
        match self {
            Self::Item(id) => list.after(id),
            Self::Arrival { first_seen, id } => list.after_arrival(first_seen, id),
        }
    }
}

/// The work item; or microseconds, source and message id with a colon between them, both escaped as in a
/// form.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(id) => id.fmt(f),
            Self::Arrival { first_seen, id } => {
                let since = first_seen.duration_since(UNIX_EPOCH).unwrap_or_default();
                let [source, message_id] = [&id.source, &id.message_id].map(|name| {
                    form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>()
                });
                write!(f, "{}:{source}:{message_id}", since.as_micros())
            }
        }
    }
}

impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':');
        let arrival = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(item), None, ..) => item.parse().ok().map(Self::Item),
            (Some(micros), Some(source), Some(message_id), None) => {
                arrival(micros, source, message_id)
            }
            _ => None,
        };
        arrival.ok_or("expected what the last page ended with")
    }
}

fn arrival(micros: &str, source: &str, message_id: &str) -> Option<Position> {
    /// The last second of the year 9999.
    const LATEST: u64 = 253_402_300_799_000_000;
    let micros = micros.parse().ok().filter(|micros| *micros <= LATEST)?;
    Some(Position::Arrival {
        first_seen: UNIX_EPOCH.checked_add(Duration::from_micros(micros))?,
        id: InboxMessageId::new(name(source)?, name(message_id)?),
    })
}

/// The one name that was escaped to this text.
fn name(text: &str) -> Option<String> {
    const LONGEST: usize = 255;
    let mut pairs = form_urlencoded::parse(text.as_bytes());
    let (name, value) = pairs.next()?;
    let fits = (1..=LONGEST).contains(&name.chars().count()) && !name.contains('\0');
    (fits && value.is_empty() && pairs.next().is_none()).then(|| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_key_comes_back_as_it_was() {
        for (source, message_id) in [
            ("stripe", "evt_1"),
            ("a:b", "c=d&e%3A +"),
            ("ä", "\u{1f4ee}\n"),
        ] {
            let position = Position::Arrival {
                first_seen: UNIX_EPOCH + Duration::from_micros(1_763_312_345_678_901),
                id: InboxMessageId::new(source, message_id),
            };
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        let item = Position::Item(WorkItemId::new());
        assert_eq!(item.to_string().parse(), Ok(item));
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            "evt_1",
            "1:stripe",
            "1:stripe:",
            "1::evt_1",
            "-1:stripe:evt_1",
            "x:stripe:evt_1",
            "9999999999999999999:stripe:evt_1",
            "1:stripe:evt_1:2",
            "1:stripe=2:evt_1",
            "1:stripe&a:evt_1",
            "1:%00:evt_1",
            "1:stripe:a%00",
            "9223372036854775807:stripe:evt_1",
            &format!("1:stripe:{}", "x".repeat(256)),
        ] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
