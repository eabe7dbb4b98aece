//! Signing in with a token, and out.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::fault::Fault;
use super::form::{Fields, Sent};
use super::frame::{Frame, Place, html};
use crate::http::App;
use crate::http::auth::COOKIE;

/// How long a wrong token takes, whatever is wrong with it.
const DELAY: Duration = Duration::from_millis(400);

#[derive(Template)]
#[template(path = "login.html")]
struct SignIn {
    frame: Frame,
    next: String,
    is_wrong: bool,
}

/// GET /login
pub(super) async fn form(State(app): State<App>, headers: HeaderMap, fields: Fields) -> Response {
    let next = next(&fields);
    if app.auth.caller(&headers).is_some() {
        return Redirect::to(&next).into_response();
    }
    html(&SignIn::new(&app, next, false))
}

/// POST /login
pub(super) async fn sign_in(
    State(app): State<App>,
    headers: HeaderMap,
    Sent(fields): Sent,
) -> Result<Response, Fault> {
    let next = next(&fields);
    let Some(caller) = app.auth.token(fields.filled("token").unwrap_or_default()) else {
        tokio::time::sleep(DELAY).await;
        let page = SignIn::new(&app, next, true);
        return Ok((StatusCode::FORBIDDEN, html(&page)).into_response());
    };
    let secret = app.auth.open_session(caller);
    let mut response = Redirect::to(&next).into_response();
    set_cookie(&mut response, &headers, &secret, "");
    Ok(response)
}

/// POST /logout
pub(super) async fn sign_out(State(app): State<App>, headers: HeaderMap) -> Response {
    app.auth.close_session(&headers);
    let mut response = Redirect::to("/login").into_response();
    set_cookie(&mut response, &headers, "", "; Max-Age=0");
    response
}

impl SignIn {
    fn new(app: &App, next: String, is_wrong: bool) -> Self {
        Self {
            frame: Frame::new(app, None, None, "Sign in", Place::Nowhere),
            next,
            is_wrong,
        }
    }
}

fn set_cookie(response: &mut Response, headers: &HeaderMap, secret: &str, end: &str) {
    let secure = if came_by_https(headers) {
        "; Secure"
    } else {
        ""
    };
    let cookie = format!("{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// The daemon speaks plain HTTP; a proxy in front of it may not.
fn came_by_https(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    text("x-forwarded-proto").is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
        || text("origin").is_some_and(|origin| origin.starts_with("https://"))
}

/// Where to go afterwards: a page of ours, never another site.
fn next(fields: &Fields) -> String {
    let wanted = fields.filled("next").unwrap_or("/");
    let ours = wanted.starts_with('/')
        && !wanted.starts_with("//")
        && wanted
            .chars()
            .all(|letter| !letter.is_control() && letter != '\\');
    if ours { wanted } else { "/" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_another_site() {
        for (wanted, place) in [
            ("/dead?queue=inbox", "/dead?queue=inbox"),
            ("//evil.example", "/"),
            ("https://evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/\tx", "/"),
            ("javascript:alert(1)", "/"),
            ("", "/"),
        ] {
            let encoded = super::super::shown::encoded(wanted);
            let uri = format!("/login?next={encoded}").parse().expect("a URI");
            assert_eq!(next(&Fields::of_query(&uri)), place, "{wanted}");
        }
    }

    #[test]
    fn https_is_told_by_a_proxy_or_by_the_browser() {
        let headers = |name, value| HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        assert!(came_by_https(&headers(header::ORIGIN, "https://a.example")));
        assert!(!came_by_https(&headers(header::ORIGIN, "http://a.example")));
        let name = header::HeaderName::from_static("x-forwarded-proto");
        assert!(came_by_https(&headers(name, "https")));
    }
}
