//! Where a request comes from: other sites may change nothing, whatever a browser lets them send.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};

use super::{Auth, Problem};

/// Refuses what another site has made a browser send. Without tokens, also what was sent to a name that
/// is not this machine's: somebody may have made a name of theirs point here.
pub(super) fn check(auth: &Auth, request: &Parts) -> Result<(), Problem> {
    if !auth.is_required() && !is_loopback(host(&request.headers)) {
        return Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "without tokens the daemon answers to localhost only; configure [[auth.token]]",
        ));
    }
    let harmless = matches!(request.method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !harmless && is_cross_site(&request.headers) {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "this request comes from another site",
        ));
    }
    Ok(())
}

fn host(headers: &HeaderMap) -> &str {
    headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default()
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let sent_elsewhere = text(SITE).is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let other_origin = text(header::ORIGIN).is_some_and(|origin| {
        let place = origin.split_once("://").map(|(_, place)| place);
        place != Some(host(headers))
    });
    sent_elsewhere || other_origin
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// What keeps a browser from doing more with our pages than showing them.
pub(super) fn secure(headers: &mut HeaderMap) {
    const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
    const HEADERS: [(HeaderName, HeaderValue); 5] = [
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
            ),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        // With `no-referrer` browsers would send `Origin: null` with our own forms.
        (header::REFERRER_POLICY, SAME_ORIGIN),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            SAME_ORIGIN,
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            SAME_ORIGIN,
        ),
    ];
    headers.reserve(HEADERS.len() + 1);
    headers.extend(HEADERS);
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn other_sites_are_told_by_either_header() {
        for (fine, pairs) in [
            (true, &[("host", "localhost:8025")][..]),
            (
                true,
                &[
                    ("host", "localhost:8025"),
                    ("origin", "http://localhost:8025"),
                ],
            ),
            (true, &[("host", "a"), ("sec-fetch-site", "same-origin")]),
            (true, &[("host", "a"), ("sec-fetch-site", "none")]),
            (false, &[("host", "a"), ("sec-fetch-site", "cross-site")]),
            (false, &[("host", "a"), ("sec-fetch-site", "same-site")]),
            (
                false,
                &[
                    ("host", "localhost:8025"),
                    ("origin", "http://localhost:9000"),
                ],
            ),
            (false, &[("host", "a"), ("origin", "null")]),
            (
                false,
                &[("host", "a"), ("origin", "https://a.evil.example")],
            ),
        ] {
            assert_eq!(!is_cross_site(&headers(pairs)), fine, "{pairs:?}");
        }
    }

    #[test]
    fn names_of_this_machine() {
        for name in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8025",
            "[::1]:8025",
            "127.9.9.9",
        ] {
            assert!(is_loopback(name), "{name}");
        }
        for name in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:8025",
            "[::2]:1",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }
}
