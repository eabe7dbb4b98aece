//! What an error text quotes of a payload is cut out before it is logged or stored.

use std::collections::HashSet;

/// A run of this many bytes that the error shares with the payload is a quotation.
const RUN: usize = 16;

/// How much of a payload is compared, from its beginning.
const COMPARED: usize = 256 * 1024;

/// The mark that takes a quotation's place.
const MARK: &str = "[payload]";

/// The text without what it quotes of the payload: the whole of a short one, runs of a long one.
pub(super) fn without_payload(text: &str, payload: &str) -> String {
    if text.is_empty() || payload.len() < 4 {
        return text.to_owned();
    }
    if payload.len() < RUN {
        return text.replace(payload, MARK);
    }
    let payload = &payload.as_bytes()[..payload.len().min(COMPARED)];
    let runs: HashSet<&[u8]> = payload.windows(RUN).collect();
    let quoted = text
        .as_bytes()
        .windows(RUN)
        .enumerate()
        .filter(|(_, run)| runs.contains(run))
        .map(|(start, _)| start..start + RUN);
    let mut clean = String::new();
    let mut end = 0;
    for run in quoted {
        let (start, stop) = (floor(text, run.start), ceiling(text, run.end));
        if start > end || (end == 0 && start == 0 && clean.is_empty()) {
            clean.push_str(&text[end..start]);
            clean.push_str(MARK);
        }
        end = end.max(stop);
    }
    clean.push_str(&text[end..]);
    clean
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
