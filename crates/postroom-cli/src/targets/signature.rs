//! Signatures as <https://www.standardwebhooks.com> has them: a receiver can tell who sent a message, when,
//! and that nobody has changed it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a secret begins with.
const PREFIX: &str = "whsec_";

/// The shortest key, in bytes: what is shorter can be guessed.
const SHORTEST: usize = 16;

/// A key that signs. It never shows.
#[derive(Clone)]
pub(crate) struct SigningKey(Hmac<Sha256>);

impl SigningKey {
    /// Reads `whsec_` and base64. The error does not quote the secret.
    pub(crate) fn parse(secret: &str) -> Result<Self, String> {
        let key = secret
            .strip_prefix(PREFIX)
            .and_then(|encoded| STANDARD.decode(encoded).ok())
            .filter(|key| key.len() >= SHORTEST)
            .ok_or_else(|| {
                format!(
                    "the secret is not {PREFIX} and the base64 of {SHORTEST} bytes or more, as Standard Webhooks has it"
                )
            })?;
        let mac = Hmac::new_from_slice(&key).map_err(|_| "the secret is no key".to_owned())?;
        Ok(Self(mac))
    }

    /// The signature of one request: over its id, its time and its body.
    pub(super) fn sign(&self, id: &str, timestamp: &str, body: &str) -> String {
        let mut mac = self.0.clone();
        for part in [id, ".", timestamp, ".", body] {
            mac.update(part.as_bytes());
        }
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_the_example_of_the_specification() {
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a key");
        assert_eq!(
            key.sign(
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                "1614265330",
                r#"{"test": 2432232314}"#
            ),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_secret_that_is_none_is_refused_and_not_quoted() {
        for wrong in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_c2hvcnQ=",
            "whsec_not base64",
        ] {
            let error = SigningKey::parse(wrong).err().expect("an error");
            assert!(
                !error.contains("MfKQ") && !error.contains("c2hvcnQ"),
                "{error}"
            );
        }
    }
}
