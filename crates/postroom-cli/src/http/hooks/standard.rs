//! Standard Webhooks: `webhook-signature: v1,BASE64`, several of them with spaces between, over
//! `ID.TIME.BODY`, where id and time are the headers `webhook-id` and `webhook-timestamp`.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::signature::{self, Keys};
use super::verify::Refusal;
use crate::config::Secret;

pub(super) const ID: &str = "webhook-id";
pub(super) const TIME: &str = "webhook-timestamp";
const SIGNATURE: &str = "webhook-signature";

/// Secrets are written `whsec_` and base64.
pub(super) fn keys(secrets: &[Secret]) -> anyhow::Result<Keys> {
    let keys: Result<Vec<_>, _> = secrets.iter().map(key).collect();
    Keys::new(&keys.map_err(anyhow::Error::msg)?)
}

/// The bytes that a secret stands for.
pub(crate) fn key(secret: &Secret) -> Result<Vec<u8>, &'static str> {
    let text = secret.reveal();
    STANDARD
        .decode(text.strip_prefix("whsec_").unwrap_or(text))
        .ok()
        .filter(|key| !key.is_empty())
        .ok_or("a secret of Standard Webhooks is `whsec_` and base64")
}

/// The id of the message, when the request is signed.
pub(super) fn verify(
    keys: &Keys,
    headers: &HeaderMap,
    body: &[u8],
    now: i64,
) -> Result<String, Refusal> {
    let only = |name| signature::only(headers, name).ok_or(Refusal::Unverified);
    let (id, time) = (only(ID)?, only(TIME)?);
    let tags = read(only(SIGNATURE)?).ok_or(Refusal::Unverified)?;
    let signed = keys.have_signed(&[id.as_bytes(), b".", time.as_bytes(), b".", body], &tags);
    // With a full stop in the id, the same signed text could be cut into other parts.
    if !signed || id.is_empty() || id.contains('.') || !signature::is_about(now, time) {
        return Err(Refusal::Unverified);
    }
    Ok(id.to_owned())
}

/// The signatures of version 1; those of other versions may be there and are not looked at.
fn read(header: &str) -> Option<Vec<signature::Tag>> {
    let mut tags = Vec::new();
    for part in header.split(' ') {
        if let ("v1", tag) = part.split_once(',')? {
            tags.push(signature::from_base64(tag)?);
        }
    }
    Some(tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hooks::verify::vectors::{headers, refused};

    // The example of the specification's reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const NOW: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const TAG: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const OTHER: &str = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";

    fn vector_keys() -> Keys {
        keys(&[Secret::new("whsec_AAAA"), Secret::new(SECRET)]).expect("keys")
    }

    fn check(id: &str, time: &str, tag: &str, now: i64) -> Result<String, Refusal> {
        let headers = headers(&[(ID, id), (TIME, time), (SIGNATURE, tag)]);
        verify(&vector_keys(), &headers, BODY, now)
    }

    /// Shows X1, X2.
    #[test]
    fn the_vector_is_accepted_and_known_by_its_id() {
        let answer = check(MESSAGE, "1614265330", TAG, NOW);
        assert_eq!(answer, Ok(MESSAGE.to_owned()));
    }

    #[test]
    fn other_versions_and_more_signatures_may_be_there() {
        for tags in [
            format!("{OTHER} {TAG}"),
            format!("{TAG} {OTHER}"),
            format!("v1a,anything {TAG} v2,"),
        ] {
            assert!(check(MESSAGE, "1614265330", &tags, NOW).is_ok(), "{tags}");
        }
    }

    #[test]
    fn anything_odd_is_refused() {
        let bare = TAG.trim_start_matches("v1,");
        for tags in [
            String::new(),
            bare.to_owned(),
            OTHER.to_owned(),
            format!("v0,{bare}"),
            format!("v1a,{bare}"),
            format!("V1,{bare}"),
            format!("v1={bare}"),
            format!("v1, {bare}"),
            format!("{TAG},{TAG}"),
            format!("{TAG} "),
            format!("{TAG}  {TAG}"),
            format!("{TAG} v1,AAAA"),
            TAG.trim_end_matches('=').to_owned(),
        ] {
            let answer = check(MESSAGE, "1614265330", &tags, NOW);
            assert_eq!(answer, Err(Refusal::Unverified), "{tags}");
        }
        for time in ["", "0", "+1614265330", "1614265330.0", "1614265331", "soon"] {
            let answer = check(MESSAGE, time, TAG, NOW);
            assert_eq!(answer, Err(Refusal::Unverified), "{time}");
        }
        let whole = [(ID, MESSAGE), (TIME, "1614265330"), (SIGNATURE, TAG)];
        for which in 0..whole.len() {
            let (mut missing, mut twice) = (whole.to_vec(), whole.to_vec());
            missing.remove(which);
            twice.push(whole[which]);
            for pairs in [missing, twice] {
                let answer = verify(&vector_keys(), &headers(&pairs), BODY, NOW);
                assert_eq!(answer, Err(Refusal::Unverified), "{pairs:?}");
            }
        }
    }

    /// The text `msg_1.1614265330.1614265330.5` may be cut in two ways; the id that is kept must be the
    /// sender's.
    #[test]
    fn an_id_with_a_full_stop_is_refused() {
        let body: &[u8] = b"1614265330.5";
        let tag = "v1,wq6ODA/w05Gm8w6+OhrxzKm79QeKoMXN4THYPBuygkk=";
        for (id, body, fine) in [
            ("msg_1", body, true),
            ("msg_1.1614265330", &body[11..], false),
        ] {
            let headers = headers(&[(ID, id), (TIME, "1614265330"), (SIGNATURE, tag)]);
            let answer = verify(&vector_keys(), &headers, body, NOW);
            assert_eq!(answer.is_ok(), fine, "{id}");
        }
    }

    #[test]
    fn stale_and_future_times_are_refused() {
        for (offset, fine) in [(-301, false), (-299, true), (299, true), (301, false)] {
            let answer = check(MESSAGE, "1614265330", TAG, NOW + offset);
            assert_eq!(answer.is_ok(), fine, "{offset}");
        }
    }

    /// Shows X1: every bit counts, of the body, the id, the time and the signature.
    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = vector_keys();
        let whole = [(ID, MESSAGE), (TIME, "1614265330"), (SIGNATURE, TAG)];
        refused(&whole, BODY, |headers, body| {
            verify(&keys, headers, body, NOW).is_ok()
        });
    }

    #[test]
    fn a_secret_that_is_no_base64_is_told_and_not_shown() {
        for secret in ["whsec_", "", "whsec_not base64", "whsec_MfKQ9r8GKYq"] {
            let error = keys(&[Secret::new(secret)]).err().expect("an error");
            assert!(secret.len() < 7 || !format!("{error:#}").contains(&secret[6..]));
        }
    }
}
