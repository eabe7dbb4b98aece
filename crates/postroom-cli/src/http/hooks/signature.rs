//! HMAC-SHA256, and how signatures and times are written. There is one way to write each; everything else
//! is refused, so that no two texts mean the same signature.

use axum::http::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use uuid::Uuid;

/// Seconds that a signed time may be behind or ahead of ours.
const TOLERANCE: u64 = 300;

/// What HMAC-SHA256 gives.
pub(super) type Tag = [u8; 32];

/// The secrets of a source, ready to compute with. Any of them may sign.
pub(super) struct Keys(Vec<Hmac<Sha256>>);

impl Keys {
    /// # Errors
    /// When there is none, or an empty one: anybody could sign with that.
    pub(super) fn new<S: AsRef<[u8]>>(secrets: &[S]) -> anyhow::Result<Self> {
        anyhow::ensure!(
            !secrets.is_empty(),
            "`secrets` must name one secret at least"
        );
        let keys = secrets.iter().map(|secret| {
            let secret = secret.as_ref();
            anyhow::ensure!(!secret.is_empty(), "a secret is empty");
            Ok(Hmac::new_from_slice(secret)?)
        });
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// A key that nobody has.
    pub(super) fn of_nobody() -> Self {
        let secret = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes);
        Self(Hmac::new_from_slice(&secret.concat()).into_iter().collect())
    }

    /// Whether one of the tags is that of the text, which is given in parts, by one of the keys. Every
    /// tag is compared with every key's, whole, whatever the first ones say.
    pub(super) fn have_signed(&self, text: &[&[u8]], tags: &[Tag]) -> bool {
        let mut found = Choice::from(0);
        for key in &self.0 {
            let mut mac = key.clone();
            for part in text {
                mac.update(part);
            }
            let expected = mac.finalize().into_bytes();
            for tag in tags {
                found |= expected.as_slice().ct_eq(tag);
            }
        }
        found.into()
    }
}

/// A tag in lower-case hexadecimal.
pub(super) fn from_hexadecimal(text: &str) -> Option<Tag> {
    let mut tag = Tag::default();
    if text.len() != 2 * tag.len() {
        return None;
    }
    for (byte, digits) in tag.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = digits else { return None };
        *byte = nibble(high)? << 4 | nibble(low)?;
    }
    Some(tag)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// Bytes in lower-case hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tag in base64, padded, with no bit left over.
pub(super) fn from_base64(text: &str) -> Option<Tag> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// The value of a header that is there once, as text.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

/// Whether a time, in seconds since 1970 and in digits only, is about now.
pub(super) fn is_about(now: i64, time: &str) -> bool {
    // Twelve digits last for thirty thousand years.
    let digits = (1..=12).contains(&time.len()) && time.bytes().all(|byte| byte.is_ascii_digit());
    digits
        && time
            .parse::<i64>()
            .is_ok_and(|time| now.abs_diff(time) <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_has_one_way_to_be_written() {
        let text = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let tag = from_hexadecimal(text).expect("a tag");
        assert_eq!((tag[0], tag[3], tag[31]), (0x75, 0xea, 0x17));
        for wrong in [
            "",
            &text[..62],
            &text[..63],
            &format!("{text}00"),
            &text.to_uppercase(),
            &text.replace('e', "E"),
            &text.replace('e', "g"),
            &text.replacen("75", "+7", 1),
            &text.replacen("75", " 7", 1),
            &text.replacen("75", "é", 1),
        ] {
            assert_eq!(from_hexadecimal(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn base64_has_one_way_to_be_written() {
        let text = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert!(from_base64(text).is_some());
        for wrong in [
            "",
            "=",
            &text[..43],
            &format!("{text}="),
            &format!(" {text}"),
            &format!("{text}\n"),
            &text.replace("OE=", "OF="),
            &text.replace('+', "-"),
            &text.replace('/', "_"),
            "AAAA",
        ] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_digits_and_about_now() {
        let now = 1_700_000_000;
        for fine in ["1700000000", "1699999701", "1699999700", "1700000300"] {
            assert!(is_about(now, fine), "{fine}");
        }
        for wrong in [
            "",
            "0",
            "1699999699",
            "1700000301",
            "+1700000000",
            "-1700000000",
            " 1700000000",
            "1700000000 ",
            "1700000000.0",
            "17e8",
            "1700000000000",
            "0x6553f100",
            "999999999999",
            "99999999999999999999999",
            "１７０００００００",
        ] {
            assert!(!is_about(now, wrong), "{wrong}");
        }
        assert!(!is_about(0, "1700000000"), "a clock that stands still");
    }

    #[test]
    fn a_key_must_be_there_and_not_empty() {
        assert!(Keys::new::<&str>(&[]).is_err());
        assert!(Keys::new(&["a", ""]).is_err());
        assert!(Keys::new(&["a"]).is_ok());
    }

    #[test]
    fn any_key_and_any_tag_will_do() {
        let text: [&[u8]; 2] = [b"Hello, ", b"World!"];
        let github = "It's a Secret to Everybody";
        let right = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let right = from_hexadecimal(right).expect("a tag");
        let wrong = [7; 32];
        for (secrets, tags, expected) in [
            (&[github][..], &[right][..], true),
            (&["other", github], &[wrong, right], true),
            (&[github, "other"], &[right, wrong], true),
            (&["other"], &[right], false),
            (&[github], &[wrong], false),
            (&[github], &[], false),
        ] {
            let keys = Keys::new(secrets).expect("keys");
            assert_eq!(keys.have_signed(&text, tags), expected);
        }
    }
}
