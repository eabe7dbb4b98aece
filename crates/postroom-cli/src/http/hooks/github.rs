//! GitHub: `X-Hub-Signature-256: sha256=HEX` over the body, and nothing but the body. Its headers, the
//! delivery's id among them, can be changed by whoever sends a request again; so a message is known by its
//! body.

use axum::http::HeaderMap;

use super::signature::{self, Keys};
use super::verify::{Refusal, sha256};

const SIGNATURE: &str = "x-hub-signature-256";

/// The hash of the body, when the request is signed.
pub(super) fn verify(keys: &Keys, headers: &HeaderMap, body: &[u8]) -> Result<String, Refusal> {
    let tag = signature::only(headers, SIGNATURE)
        .and_then(|header| header.strip_prefix("sha256="))
        .and_then(signature::from_hexadecimal)
        .ok_or(Refusal::Unverified)?;
    if !keys.have_signed(&[body], &[tag]) {
        return Err(Refusal::Unverified);
    }
    Ok(signature::hexadecimal(&sha256(body)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hooks::verify::vectors::{headers, refused};

    // The example of GitHub's own documentation.
    const SECRET: &str = "It's a Secret to Everybody";
    const BODY: &[u8] = b"Hello, World!";
    const TAG: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    const HASH: &str = "dffd6021bb2bd5b0af676290809ec3a53191dd81c7f70a4b28688a362182986f";

    fn check(header: &str) -> Result<String, Refusal> {
        let keys = Keys::new(&["newest", SECRET]).expect("keys");
        verify(&keys, &headers(&[(SIGNATURE, header)]), BODY)
    }

    /// Shows X1, X2.
    #[test]
    fn the_vector_is_accepted_and_known_by_its_body() {
        assert_eq!(check(&format!("sha256={TAG}")), Ok(HASH.to_owned()));
    }

    #[test]
    fn anything_odd_is_refused() {
        for header in [
            String::new(),
            TAG.to_owned(),
            format!("sha1={TAG}"),
            format!("SHA256={TAG}"),
            format!("sha256={}", TAG.to_uppercase()),
            format!("sha256= {TAG}"),
            format!("sha256={TAG} "),
            format!("sha256={TAG},sha256={TAG}"),
            "sha256=".to_owned(),
        ] {
            assert_eq!(check(&header), Err(Refusal::Unverified), "{header}");
        }
        let keys = Keys::new(&[SECRET]).expect("keys");
        let header = format!("sha256={TAG}");
        let twice = headers(&[(SIGNATURE, &header), (SIGNATURE, &header)]);
        for headers in [twice, HeaderMap::new()] {
            assert_eq!(verify(&keys, &headers, BODY), Err(Refusal::Unverified));
        }
    }

    /// Shows X1: every bit counts, of the body and of the header.
    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = Keys::new(&[SECRET]).expect("keys");
        let header = format!("sha256={TAG}");
        refused(&[(SIGNATURE, &header)], BODY, |headers, body| {
            verify(&keys, headers, body).is_ok()
        });
    }
}
