//! Stripe: `Stripe-Signature: t=TIME,v1=HEX` over `TIME.BODY`. An event's id is in the body, so the
//! signature covers it.

use axum::http::HeaderMap;
use serde::Deserialize;

use super::signature::{self, Keys};
use super::verify::Refusal;

const SIGNATURE: &str = "stripe-signature";

/// The id of the event, when the request is signed.
pub(super) fn verify(
    keys: &Keys,
    headers: &HeaderMap,
    body: &[u8],
    now: i64,
) -> Result<String, Refusal> {
    let header = signature::only(headers, SIGNATURE).ok_or(Refusal::Unverified)?;
    let (time, tags) = read(header).ok_or(Refusal::Unverified)?;
    let signed = keys.have_signed(&[time.as_bytes(), b".", body], &tags);
    if !signed || !signature::is_about(now, time) {
        return Err(Refusal::Unverified);
    }
    let event: Event = serde_json::from_slice(body)
        .map_err(|_| Refusal::Unusable("the body is not an event: an object with an `id`"))?;
    Ok(event.id)
}

#[derive(Deserialize)]
struct Event {
    id: String,
}

/// The time, which must be there once, and the signatures of the only scheme that is safe; others may be
/// there and are not looked at.
fn read(header: &str) -> Option<(&str, Vec<signature::Tag>)> {
    let (mut time, mut tags) = (None, Vec::new());
    for part in header.split(',') {
        match part.split_once('=')? {
            ("t", value) if time.is_none() => time = Some(value),
            ("t", _) => return None,
            ("v1", value) => tags.push(signature::from_hexadecimal(value)?),
            _ => {}
        }
    }
    Some((time?, tags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hooks::verify::vectors::{headers, refused};

    const NOW: i64 = 1_700_000_000;
    const SECRET: &str = "whsec_postroomStripeVector";
    const OLDER: &str = "whsec_postroomOlder";
    const BODY: &str =
        r#"{"id":"evt_1PostroomVector","object":"event","type":"charge.succeeded","amount":4200}"#;
    // By another implementation of HMAC, over `1700000000.` and the body.
    const TAG: &str = "eb8454aa528090d6230bef41a5d90a81105ff90c86b1b38d209dde924e575640";
    const OLDER_TAG: &str = "ab844cee39db65518e821ce40b52dd6795fed82c7645da552b2443dd63445f12";

    fn check(header: &str, now: i64) -> Result<String, Refusal> {
        let keys = Keys::new(&[SECRET]).expect("keys");
        verify(
            &keys,
            &headers(&[(SIGNATURE, header)]),
            BODY.as_bytes(),
            now,
        )
    }

    /// Shows X1.
    #[test]
    fn the_vector_is_accepted_and_known_by_its_events_id() {
        let header = format!("t={NOW},v1={TAG}");
        assert_eq!(check(&header, NOW), Ok("evt_1PostroomVector".to_owned()));
    }

    #[test]
    fn other_schemes_and_more_signatures_may_be_there() {
        for header in [
            format!("t={NOW},v0={OLDER_TAG},v1={TAG}"),
            format!("v1={OLDER_TAG},v1={TAG},t={NOW}"),
            format!("t={NOW},v1={TAG},v2=anything,other="),
        ] {
            assert!(check(&header, NOW).is_ok(), "{header}");
        }
    }

    #[test]
    fn either_secret_of_a_rotation_will_do() {
        let both = Keys::new(&["whsec_newest", OLDER, SECRET]).expect("keys");
        for tag in [TAG, OLDER_TAG] {
            let headers = headers(&[(SIGNATURE, &format!("t={NOW},v1={tag}"))]);
            assert!(verify(&both, &headers, BODY.as_bytes(), NOW).is_ok());
        }
    }

    #[test]
    fn anything_odd_is_refused() {
        for header in [
            String::new(),
            format!("t={NOW}"),
            format!("v1={TAG}"),
            format!("t={NOW},v0={TAG}"),
            format!("t={NOW},v2={TAG}"),
            format!("t={NOW},V1={TAG}"),
            format!("t={NOW},v1={}", TAG.to_uppercase()),
            format!("t={NOW},t={NOW},v1={TAG}"),
            format!("t={NOW},v1={TAG},t=1"),
            format!("t=,v1={TAG}"),
            format!("t= {NOW},v1={TAG}"),
            format!("t=+{NOW},v1={TAG}"),
            format!("t={NOW}, v1={TAG}"),
            format!("t={NOW};v1={TAG}"),
            format!("t={NOW},v1={TAG},"),
            format!("t={NOW},v1={TAG},v1=00"),
            format!("t={NOW},v1={OLDER_TAG}"),
        ] {
            assert_eq!(check(&header, NOW), Err(Refusal::Unverified), "{header}");
        }
        let header = format!("t={NOW},v1={TAG}");
        let keys = Keys::new(&[SECRET]).expect("keys");
        let twice = headers(&[(SIGNATURE, &header), (SIGNATURE, &header)]);
        for headers in [twice, HeaderMap::new()] {
            let answer = verify(&keys, &headers, BODY.as_bytes(), NOW);
            assert_eq!(answer, Err(Refusal::Unverified));
        }
    }

    #[test]
    fn stale_and_future_times_are_refused() {
        let header = format!("t={NOW},v1={TAG}");
        for (offset, fine) in [(-301, false), (-299, true), (299, true), (301, false)] {
            assert_eq!(check(&header, NOW + offset).is_ok(), fine, "{offset}");
        }
    }

    /// Shows X1: every bit counts, of the body and of the header.
    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = Keys::new(&[SECRET]).expect("keys");
        let header = format!("t={NOW},v1={TAG}");
        refused(&[(SIGNATURE, &header)], BODY.as_bytes(), |headers, body| {
            verify(&keys, headers, body, NOW).is_ok()
        });
    }

    #[test]
    fn a_signed_body_without_an_id_cannot_be_used() {
        let keys = Keys::new(&[SECRET]).expect("keys");
        // Each with its signature, by another implementation.
        for (body, tag) in [
            (
                "[]",
                "4e9cca9f63d189b24271a6fcac48b93f60266869ce6dd458aa19146545049fc9",
            ),
            (
                "{}",
                "cdfd35ba30fde2a93bc5de7e987bbe6738aab4e655f9c93300e4ff6869678fe6",
            ),
            (
                r#"{"id":7}"#,
                "3aaae09a6a1b1f2237816ded876c6497d1d61485cb66262c39128c57cf31fac5",
            ),
            (
                r#"{"id":"a","id":"b"}"#,
                "da1e1f6be0b8074f923ce490de1d8abd9fbe74434f1ee22221bef452ad4b20b9",
            ),
            (
                "not json",
                "36ec3e16b949ca26b79ed909b86566e384d477e5db5c9b1ec3aa7a7d0c673139",
            ),
        ] {
            let headers = headers(&[(SIGNATURE, &format!("t={NOW},v1={tag}"))]);
            let answer = verify(&keys, &headers, body.as_bytes(), NOW);
            assert!(matches!(answer, Err(Refusal::Unusable(_))), "{body}");
        }
    }
}
