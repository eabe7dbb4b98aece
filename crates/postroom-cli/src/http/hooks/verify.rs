//! Which scheme a source signs by.

use anyhow::{Context, ensure};
use axum::http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use super::signature::Keys;
use super::{github, plain, standard, stripe};
use crate::config::{Scheme, Webhook};

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not signed, or not rightly, or not now. Which of them is nobody's business.
    Unverified,
    /// It is signed, and yet there is nothing to know it by.
    Unusable(&'static str),
}

/// How the requests of a source are verified.
pub(super) enum Verifier {
    Stripe(Keys),
    Github(Keys),
    Standard(Keys),
    Plain { header: HeaderName, keys: Keys },
}

impl Verifier {
    pub(super) fn new(webhook: &Webhook) -> anyhow::Result<Self> {
        let plain = webhook.scheme == Scheme::Hmac;
        ensure!(
            plain == webhook.header.is_some(),
            "`header` names where a plain `hmac` signature is, and only that"
        );
        let texts: Vec<_> = webhook
            .secrets
            .iter()
            .map(|secret| secret.reveal())
            .collect();
        Ok(match webhook.scheme {
            Scheme::Stripe => Self::Stripe(Keys::new(&texts)?),
            Scheme::Github => Self::Github(Keys::new(&texts)?),
            Scheme::Standard => Self::Standard(standard::keys(&webhook.secrets)?),
            Scheme::Hmac => Self::Plain {
                header: webhook
                    .header
                    .as_deref()
                    .unwrap_or_default()
                    .parse()
                    .context("`header` is not the name of a header")?,
                keys: Keys::new(&texts)?,
            },
        })
    }

    /// What the message is known by: something that the signature covers.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: i64,
    ) -> Result<String, Refusal> {
        match self {
            Self::Stripe(keys) => stripe::verify(keys, headers, body, now),
            Self::Github(keys) => github::verify(keys, headers, body),
            Self::Standard(keys) => standard::verify(keys, headers, body, now),
            Self::Plain { header, keys } => plain::verify(keys, header, headers, body),
        }
    }

    /// The scheme's own headers that are kept with a message; never the signature.
    pub(super) fn kept_headers(&self) -> &'static [&'static str] {
        match self {
            Self::Stripe(_) | Self::Plain { .. } => &[],
            Self::Github(_) => &["x-github-event", "x-github-delivery"],
            Self::Standard(_) => &[standard::ID, standard::TIME],
        }
    }
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// What the vectors of the schemes share.
#[cfg(test)]
pub(super) mod vectors {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    pub(in crate::http::hooks) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.append(HeaderName::from_static(name), value);
        }
        headers
    }

    /// Flips each bit of the body and of each header, one at a time, and wants every one refused. What is
    /// no header value any more never gets here; HTTP itself refuses it.
    pub(in crate::http::hooks) fn refused(
        pairs: &[(&'static str, &str)],
        body: &[u8],
        accepts: impl Fn(&HeaderMap, &[u8]) -> bool,
    ) {
        let whole = headers(pairs);
        assert!(accepts(&whole, body), "the vector itself");
        for bit in 0..body.len() * 8 {
            let mut flipped = body.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!accepts(&whole, &flipped), "bit {bit} of the body");
        }
        let mut tried = 0;
        for (name, value) in pairs {
            for bit in 0..value.len() * 8 {
                let mut flipped = value.as_bytes().to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let Ok(flipped) = HeaderValue::from_bytes(&flipped) else {
                    continue;
                };
                let mut headers = whole.clone();
                headers.insert(HeaderName::from_static(name), flipped);
                assert!(!accepts(&headers, body), "bit {bit} of {name}");
                tried += 1;
            }
        }
        assert!(tried > pairs.len() * 8, "headers were flipped");
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::config::Secret;

    const NOW: i64 = 1_614_265_330;

    fn webhook(scheme: Scheme, secret: &str) -> Webhook {
        Webhook {
            source: "acme".to_owned(),
            scheme,
            secrets: vec![Secret::new(secret)],
            topic: None,
            store: None,
            header: (scheme == Scheme::Hmac).then(|| "x-acme-signature".to_owned()),
            concurrency: 64,
            rate: None,
        }
    }

    fn verifiers() -> Vec<Verifier> {
        [
            webhook(Scheme::Stripe, "whsec_a"),
            webhook(Scheme::Github, "b"),
            webhook(Scheme::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
            webhook(Scheme::Hmac, "c"),
        ]
        .iter()
        .map(|webhook| Verifier::new(webhook).expect("a verifier"))
        .collect()
    }

    #[test]
    fn what_cannot_verify_is_refused_at_the_start() {
        let mut no_secret = webhook(Scheme::Github, "b");
        no_secret.secrets.clear();
        let mut no_header = webhook(Scheme::Hmac, "b");
        no_header.header = None;
        let mut bad_header = webhook(Scheme::Hmac, "b");
        bad_header.header = Some("no header".to_owned());
        let mut needless_header = webhook(Scheme::Stripe, "b");
        needless_header.header = Some("x-acme-signature".to_owned());
        for wrong in [
            no_secret,
            no_header,
            bad_header,
            needless_header,
            webhook(Scheme::Stripe, ""),
            webhook(Scheme::Github, ""),
            webhook(Scheme::Hmac, ""),
            webhook(Scheme::Standard, "whsec_"),
            webhook(Scheme::Standard, "whsec_?"),
        ] {
            assert!(Verifier::new(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_signature_is_never_kept() {
        for verifier in verifiers() {
            let kept = verifier.kept_headers();
            assert!(!kept.iter().any(|name| name.contains("signature")));
        }
    }

    /// Texts that look like signatures, and texts that look like nothing.
    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..200),
            "(t=[0-9]{0,12},?)?(v[01]=[0-9a-f]{60,66},?){0,3}".prop_map(String::into_bytes),
            "(v[12]a?,[A-Za-z0-9+/]{40,44}={0,2} ?){0,3}".prop_map(String::into_bytes),
            "(sha256=)?[0-9a-f]{64}".prop_map(String::into_bytes),
            Just(NOW.to_string().into_bytes()),
            Just(format!("t={NOW},v1={}", "0".repeat(64)).into_bytes()),
        ]
    }

    proptest! {
        /// Shows X1: without the secret nothing is accepted, and nothing makes it panic.
        #[test]
        fn no_made_up_header_is_accepted(
            values in proptest::collection::vec(value(), 4),
            body in proptest::collection::vec(any::<u8>(), 0..100),
            now in prop_oneof![Just(NOW), any::<i64>()],
        ) {
            let names = ["stripe-signature", "x-hub-signature-256", "webhook-signature", "x-acme-signature"];
            let mut headers = HeaderMap::new();
            let mut add = |name: &'static str, value: &[u8]| {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(name, value);
                }
            };
            for (name, value) in names.into_iter().zip(&values) {
                add(name, value);
            }
            add("webhook-id", &values[0]);
            add("webhook-timestamp", NOW.to_string().as_bytes());
            for verifier in verifiers() {
                prop_assert_eq!(verifier.verify(&headers, &body, now), Err(Refusal::Unverified));
            }
        }

        /// Shows X1: whatever is done to the headers of a signed request, it is refused, unless they still
        /// say the same.
        #[test]
        fn no_mutation_of_signed_headers_is_accepted(
            which in 0..3_usize,
            at in 0..60_usize,
            cut in 0..4_usize,
            with in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut values = [
                b"msg_p5jXN8AQM9LWM0D4loKWxJek".to_vec(),
                b"1614265330".to_vec(),
                b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_vec(),
            ];
            let right = values.clone();
            let value = &mut values[which];
            let from = at.min(value.len());
            let to = (from + cut).min(value.len());
            value.splice(from..to, with);
            let mut headers = HeaderMap::new();
            for (name, value) in ["webhook-id", "webhook-timestamp", "webhook-signature"].into_iter().zip(&values) {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    headers.append(name, value);
                }
            }
            let standard = Verifier::new(&webhook(Scheme::Standard, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
                .expect("a verifier");
            let accepted = standard.verify(&headers, br#"{"test": 2432232314}"#, NOW).is_ok();
            prop_assert_eq!(accepted, values == right);
        }
    }
}
