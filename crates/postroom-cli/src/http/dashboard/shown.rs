//! How numbers, times, states and payloads look to a person.

use std::time::{Duration, SystemTime};

use askama::Template;
use askama::filters::HtmlSafe;
use postroom::{InboxState, JoinStatus, State, StepStatus};

use crate::age;

/// Payloads are shown up to here; the rest is in the download.
const PAYLOAD_SHOWN: usize = 64 * 1_024;

/// A time: how far away it is, with the exact one behind it.
#[derive(Template, Clone)]
#[template(
    source = r#"<time datetime="{{ exact }}" title="{{ exact }}">{{ distance }}</time>"#,
    ext = "html"
)]
pub(super) struct When {
    exact: String,
    distance: String,
}

impl HtmlSafe for When {}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        Self {
            exact: age::stamp(time),
            distance: distance(time, SystemTime::now()),
        }
    }
}

fn distance(time: SystemTime, now: SystemTime) -> String {
    const MOMENT: Duration = Duration::from_secs(1);
    match now.duration_since(time) {
        Ok(past) if past < MOMENT => "just now".to_owned(),
        Ok(past) => format!("{} ago", span(past)),
        Err(ahead) if ahead.duration() < MOMENT => "now".to_owned(),
        Err(ahead) => format!("in {}", span(ahead.duration())),
    }
}

/// A length of time in its largest unit.
pub(super) fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 if length.is_zero() => "0 s".to_owned(),
        0 => format!("{} ms", length.as_millis()),
        1..10 => format!("{:.1} s", length.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", grouped(seconds / 86_400)),
    }
}

/// A number with separators between thousands.
pub(super) fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 message`, `2,000 messages`.
pub(super) fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {one}{ending}", grouped(number))
}

/// Where something stands, as a word with a colour.
#[derive(Template, Clone, Copy, PartialEq, Eq)]
#[template(
    source = r#"<span class="badge {{ kind }}">{{ word }}</span>"#,
    ext = "html"
)]
pub(super) struct Standing {
    pub(super) word: &'static str,
    kind: &'static str,
}

impl HtmlSafe for Standing {}

impl Standing {
    pub(super) const WELL: Self = Self::of("well", "good");
    pub(super) const STRAINED: Self = Self::of("strained", "warm");
    pub(super) const UNWELL: Self = Self::of("unwell", "bad");

    const fn of(word: &'static str, kind: &'static str) -> Self {
        Self { word, kind }
    }
}

impl From<State> for Standing {
    fn from(state: State) -> Self {
        match state {
            State::Ready => Self::of("ready", "ready"),
            State::InFlight => Self::of("in flight", "busy"),
            State::Done => Self::of("done", "good"),
            State::Dead => Self::of("dead", "bad"),
        }
    }
}

impl From<InboxState> for Standing {
    fn from(state: InboxState) -> Self {
        match state {
            InboxState::Seen => Self::of("seen", "quiet"),
            InboxState::Processing => Self::of("processing", "busy"),
            InboxState::Done => Self::of("done", "good"),
            InboxState::Dead => Self::of("dead", "bad"),
        }
    }
}

impl From<JoinStatus> for Standing {
    fn from(status: JoinStatus) -> Self {
        match status {
            JoinStatus::Pending => Self::of("pending", "ready"),
            JoinStatus::Completed => Self::of("completed", "good"),
            JoinStatus::Failed => Self::of("failed", "bad"),
            JoinStatus::Cancelled => Self::of("cancelled", "quiet"),
        }
    }
}

impl From<StepStatus> for Standing {
    fn from(status: StepStatus) -> Self {
        match status {
            StepStatus::Pending => Self::of("pending", "ready"),
            StepStatus::Completed => Self::of("completed", "good"),
            StepStatus::Failed => Self::of("failed", "bad"),
        }
    }
}

/// A payload as a visitor may see it.
pub(super) struct Payload {
    pub(super) bytes: String,
    /// `None` when it is hidden.
    pub(super) text: Option<String>,
    pub(super) is_cut: bool,
    pub(super) is_json: bool,
}

impl Payload {
    pub(super) fn new(payload: &str, visible: bool) -> Self {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(payload).is_ok();
        let shown = &payload[..payload.floor_char_boundary(PAYLOAD_SHOWN)];
        let is_cut = shown.len() < payload.len();
        let text = match (visible, is_json && !is_cut) {
            (false, _) => None,
            (true, true) => Some(indented(payload)),
            (true, false) => Some(shown.to_owned()),
        };
        let length = u64::try_from(payload.len()).unwrap_or(u64::MAX);
        Self {
            bytes: counted(length, "byte"),
            text,
            is_cut,
            is_json,
        }
    }
}

/// JSON over several lines. It goes by the text, so that numbers, order and doubled names stay as they
/// are, which parsing would not promise.
fn indented(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let mut depth: usize = 0;
    let mut letters = json.chars().peekable();
    let line = |text: &mut String, depth: usize| {
        text.push('\n');
        text.push_str(&"  ".repeat(depth.min(40)));
    };
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                text.push('"');
                while let Some(letter) = letters.next() {
                    text.push(letter);
                    match letter {
                        '\\' => text.extend(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                while letters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                text.push(letter);
                match letters.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        line(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(letter);
            }
            ',' => {
                text.push(',');
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            _ if letter.is_ascii_whitespace() => {}
            _ => text.push(letter),
        }
    }
    text
}

/// Text for the query of an address.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        for (number, text) in [
            (0_u64, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345, "12,345"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(2_000, "message"), "2,000 messages");
    }

    #[test]
    fn times_are_told_by_their_distance() {
        let now = SystemTime::now();
        let ago = |seconds| distance(now - Duration::from_secs(seconds), now);
        assert_eq!(ago(0), "just now");
        assert_eq!(ago(5), "5.0 s ago");
        assert_eq!(ago(59), "59 s ago");
        assert_eq!(ago(3_599), "59 min ago");
        assert_eq!(ago(86_400), "24 h ago");
        assert_eq!(ago(172_800), "2 days ago");
        assert_eq!(distance(now + Duration::from_secs(120), now), "in 2 min");
    }

    #[test]
    fn json_is_indented_and_otherwise_left_as_it_is() {
        assert_eq!(
            indented(r#"{"a" :[1,2.50,{}],"b":"x, {\"y\"}: z\\","a":1e400}"#),
            "{\n  \"a\": [\n    1,\n    2.50,\n    {}\n  ],\n  \"b\": \"x, {\\\"y\\\"}: z\\\\\",\n  \"a\": 1e400\n}"
        );
        assert_eq!(indented("[ ]"), "[]");
        assert_eq!(indented("7"), "7");
    }

    #[test]
    fn payloads_are_hidden_and_long_ones_cut_between_letters() {
        assert!(Payload::new("secret", false).text.is_none());
        let long = "é".repeat(PAYLOAD_SHOWN);
        let payload = Payload::new(&long, true);
        assert!(payload.is_cut);
        assert_eq!(payload.text.map(|text| text.len()), Some(PAYLOAD_SHOWN));
        assert_eq!(payload.bytes, "131,072 bytes");
    }

    #[test]
    fn what_goes_into_an_address_stays_one_value() {
        assert_eq!(encoded("a b&c=d#é"), "a%20b%26c%3Dd%23%C3%A9");
    }
}
