//! What an error text quotes of a payload is cut out before it is logged or stored.

use std::collections::HashMap;

/// A run of this many bytes that the error shares with the payload is a quotation.
const RUN: usize = 12;

/// No more of an error is logged or stored.
const LONGEST: usize = 4096;

/// How much of a payload is compared, from its beginning.
const COMPARED: usize = 16 * 1024 * 1024;

/// The mark that takes a quotation's place.
const MARK: &str = "[payload]";

/// The text without what it quotes of the payload: the whole of a short one, runs of a long one.
pub(super) fn without_payload(text: &str, payload: &str) -> String {
    let text = &text[..floor(text, text.len().min(LONGEST))];
    if text.is_empty() || payload.len() < 4 {
        return text.to_owned();
    }
    if payload.len() < RUN {
        return text.replace(payload, MARK);
    }
    let mut clean = String::new();
    let mut end = 0;
    for start in quoted(text.as_bytes(), payload.as_bytes()) {
        let (start, stop) = (floor(text, start), ceiling(text, start + RUN));
        if start > end || (end == 0 && clean.is_empty()) {
            clean.push_str(&text[end..start]);
            clean.push_str(MARK);
        }
        end = end.max(stop);
    }
    clean.push_str(&text[end..]);
    clean
}

/// Where in the text a run begins that the payload has too, in order.
fn quoted(text: &[u8], payload: &[u8]) -> Vec<usize> {
    let mut runs: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (start, run) in text.windows(RUN).enumerate() {
        runs.entry(run).or_default().push(start);
    }
    let compared = &payload[..payload.len().min(COMPARED)];
    let mut starts: Vec<usize> = compared
        .windows(RUN)
        .filter_map(|run| runs.remove(run))
        .flatten()
        .collect();
    starts.sort_unstable();
    starts
}

fn floor(text: &str, index: usize) -> usize {
    (0..=index)
        .rev()
        .find(|&index| text.is_char_boundary(index))
        .unwrap_or(0)
}

fn ceiling(text: &str, index: usize) -> usize {
    (index..=text.len())
        .find(|&index| text.is_char_boundary(index))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::without_payload;

    const PAYLOAD: &str = r#"{"card":"4242-4242-4242-4242","name":"Ada Lovelace of London"}"#;

    #[test]
    fn a_quoted_payload_is_cut_out() {
        let text = format!("cannot read {PAYLOAD} at all");
        assert_eq!(
            without_payload(&text, PAYLOAD),
            "cannot read [payload] at all"
        );
    }

    #[test]
    fn a_quoted_part_is_cut_out() {
        assert_eq!(
            without_payload("no card 4242-4242-4242-4242 known", PAYLOAD),
            "no card [payload] known"
        );
        assert_eq!(without_payload("4242-4242-4242-4242", PAYLOAD), "[payload]");
    }

    #[test]
    fn two_quotations_are_two_marks() {
        assert_eq!(
            without_payload("4242-4242-4242-4242 and Ada Lovelace of London!", PAYLOAD),
            "[payload] and [payload]!"
        );
    }

    #[test]
    fn a_short_payload_is_cut_out_whole() {
        assert_eq!(
            without_payload("bad SECRET here", "SECRET"),
            "bad [payload] here"
        );
    }

    #[test]
    fn a_quotation_of_a_quotation_is_cut_out() {
        let text = format!("cannot read {PAYLOAD:?}");
        let clean = without_payload(&text, PAYLOAD);
        assert!(!clean.contains("Ada") && !clean.contains("4242"), "{clean}");
    }

    #[test]
    fn the_end_of_a_large_payload_is_cut_out_too() {
        let payload = "x".repeat(1_000_000) + "the secret of the end";
        let clean = without_payload("not the secret of the end!", &payload);
        assert_eq!(clean, "not [payload]!");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert!(without_payload(&"é".repeat(100_000), "something else").len() <= 4096);
    }

    #[test]
    fn other_texts_stay() {
        assert_eq!(
            without_payload("connection refused", PAYLOAD),
            "connection refused"
        );
        assert_eq!(without_payload("7 is odd", "7"), "7 is odd");
    }

    #[test]
    fn characters_stay_whole() {
        let payload = "ééééééééééééééééé";
        assert_eq!(
            without_payload("x éééééééééééé y", payload),
            "x [payload] y"
        );
    }
}
