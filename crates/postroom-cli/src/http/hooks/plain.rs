//! Plain HMAC: a header of the source's own carries the signature of the body, in hexadecimal, perhaps
//! after `sha256=`, or in base64. Only the body is signed, so a message is known by its body.

use axum::http::{HeaderMap, HeaderName};

use super::signature::{self, Keys};
use super::verify::{Refusal, sha256};

/// The hash of the body, when the request is signed.
pub(super) fn verify(
    keys: &Keys,
    header: &HeaderName,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<String, Refusal> {
    let text = signature::only(headers, header.as_str()).ok_or(Refusal::Unverified)?;
    // Their lengths differ, so no text can be read in two ways.
    let tag = signature::from_hexadecimal(text.strip_prefix("sha256=").unwrap_or(text))
        .or_else(|| signature::from_base64(text))
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

    const SECRET: &str = "a plain key";
    const BODY: &[u8] = b"any bytes \xff\0 at all";
    const NAME: &str = "x-acme-signature";
    // By another implementation of HMAC and SHA-256.
    const TAG: &str = "df46a2e422ae768da47e92e7797cfa5b5ec8bd99fdb800ae5000dfbba7561b08";
    const BASE64: &str = "30ai5CKudo2kfpLneXz6W17IvZn9uACuUADfu6dWGwg=";
    const HASH: &str = "fee03575b73cea4defb3a2d57311228b166a1b17f267ce580c99515550706a08";

    fn check(header: &str) -> Result<String, Refusal> {
        let keys = Keys::new(&[SECRET]).expect("keys");
        let name = HeaderName::from_static(NAME);
        verify(&keys, &name, &headers(&[(NAME, header)]), BODY)
    }

    /// Shows X1, X2.
    #[test]
    fn each_way_to_write_the_vector_is_accepted_and_known_by_its_body() {
        for header in [TAG, &format!("sha256={TAG}"), BASE64] {
            assert_eq!(check(header), Ok(HASH.to_owned()), "{header}");
        }
    }

    #[test]
    fn anything_odd_is_refused() {
        for header in [
            "",
            &TAG.to_uppercase(),
            &TAG[1..],
            &format!("sha256={BASE64}"),
            &format!("sha512={TAG}"),
            &format!("sha256=sha256={TAG}"),
            BASE64.trim_end_matches('='),
            &format!("{TAG},{TAG}"),
        ] {
            assert_eq!(check(header), Err(Refusal::Unverified), "{header}");
        }
        let keys = Keys::new(&[SECRET]).expect("keys");
        let name = HeaderName::from_static(NAME);
        let twice = headers(&[(NAME, TAG), (NAME, TAG)]);
        for headers in [twice, HeaderMap::new()] {
            let answer = verify(&keys, &name, &headers, BODY);
            assert_eq!(answer, Err(Refusal::Unverified));
        }
    }

    /// Shows X1: every bit counts, of the body and of the header.
    #[test]
    fn every_flipped_bit_is_refused() {
        let keys = Keys::new(&[SECRET]).expect("keys");
        let name = HeaderName::from_static(NAME);
        for header in [TAG, &format!("sha256={TAG}"), BASE64] {
            refused(&[(NAME, header)], BODY, |headers, body| {
                verify(&keys, &name, headers, body).is_ok()
            });
        }
    }
}
