//! What goes wrong, as a page that says what to do about it.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use postroom::ErrorKind;

use super::frame::{Frame, Place, html};
use super::shown::encoded;
use crate::http::{App, Problem};

/// Why a page cannot be shown, or a form not be obeyed.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Nobody has signed in. Afterwards the visitor comes back here.
    SignIn { wanted: String },
    /// Everything else.
    Told {
        status: StatusCode,
        what: String,
        advice: &'static str,
    },
}

impl Fault {
    pub(super) fn new(status: StatusCode, what: impl Into<String>, advice: &'static str) -> Self {
        Self::Told {
            status,
            what: what.into(),
            advice,
        }
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("There is no such {what}."),
            "It may have been cleaned up, or be in another store.",
        )
    }

    pub(super) fn forbidden(what: impl Into<String>) -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            what,
            "Sign in with a token that has this right, or ask whoever keeps postroom.toml.",
        )
    }

    pub(super) fn bad(what: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            what,
            "Go back, and change what was entered.",
        )
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let advice = match problem.status() {
            StatusCode::NOT_FOUND => "Choose another one.",
            StatusCode::SERVICE_UNAVAILABLE => UNREACHABLE,
            _ => "The log of the daemon may say more.",
        };
        Self::new(problem.status(), sentence(problem.detail()), advice)
    }
}

impl From<postroom::Error> for Fault {
    fn from(error: postroom::Error) -> Self {
        match error.kind() {
            ErrorKind::Transient => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                sentence(&error.to_string()),
                UNREACHABLE,
            ),
            ErrorKind::NotFound { what } => Self::not_found(what),
            ErrorKind::Schema => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                sentence(&error.to_string()),
                "Run `postroom schema verify`, and `postroom schema deploy` if the tables are old.",
            ),
            _ if error.param().is_some() => Self::bad(sentence(&error.to_string())),
            _ => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                sentence(&error.to_string()),
                "The log of the daemon may say more.",
            ),
        }
    }
}

const UNREACHABLE: &str =
    "Check that the database runs and can be reached. This page works again as soon as it answers.";

/// Upper case at the beginning, a full stop at the end.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    let text = first.unwrap_or_default() + letters.as_str();
    if text.ends_with(['.', '!', '?']) {
        text
    } else {
        text + "."
    }
}

impl IntoResponse for Fault {
    /// Only the status: [`as_pages`] knows who is visiting, and makes the page.
    fn into_response(self) -> Response {
        let status = match &self {
            Self::SignIn { .. } => StatusCode::UNAUTHORIZED,
            Self::Told { status, .. } => *status,
        };
        let mut response = status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A path that leads nowhere. Programs get an answer that they can read.
pub(super) async fn no_such_page(uri: Uri) -> Response {
    let program = ["/v1", "/hooks"].iter().any(|root| {
        uri.path()
            .strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    if program {
        return Problem::not_found("resource").into_response();
    }
    Fault::new(
        StatusCode::NOT_FOUND,
        "There is no such page.",
        "The menu leads to all there are.",
    )
    .into_response()
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage {
    frame: Frame,
    status: u16,
    what: String,
    advice: &'static str,
}

/// Makes pages of faults, and of what the framework refuses by itself.
pub(super) async fn as_pages(State(app): State<App>, request: Request, next: Next) -> Response {
    let headers = request.headers().clone();
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Fault>() {
        Some(Fault::SignIn { wanted }) => sign_in(&headers, &wanted),
        Some(Fault::Told {
            status,
            what,
            advice,
        }) => page(&app, &headers, status, what, advice),
        None if is_bare(&response) => {
            let status = response.status();
            let what = sentence(status.canonical_reason().unwrap_or("This cannot be done"));
            page(
                &app,
                &headers,
                status,
                what,
                "Go back, and try it another way.",
            )
        }
        None => response,
    }
}

/// An error without a page: a path or a form that the framework did not understand.
fn is_bare(response: &Response) -> bool {
    let kind = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    response.status().as_u16() >= 400 && (kind.is_empty() || kind.starts_with("text/plain"))
}

fn page(
    app: &App,
    headers: &HeaderMap,
    status: StatusCode,
    what: String,
    advice: &'static str,
) -> Response {
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::SERVICE_UNAVAILABLE => "Not available",
        StatusCode::BAD_REQUEST => "Not understood",
        _ => "Something went wrong",
    };
    let frame = Frame::new(
        app,
        app.auth.caller(headers).as_deref(),
        None,
        title,
        Place::Nowhere,
    );
    let page = FaultPage {
        frame,
        status: status.as_u16(),
        what,
        advice,
    };
    (status, html(&page)).into_response()
}

/// To the sign-in page. A part of a page cannot be replaced by it, so htmx is told to go there.
fn sign_in(headers: &HeaderMap, wanted: &str) -> Response {
    if !headers.contains_key("hx-request") {
        return Redirect::to(&format!("/login?next={}", encoded(wanted))).into_response();
    }
    let mut response = StatusCode::UNAUTHORIZED.into_response();
    response
        .headers_mut()
        .insert("hx-redirect", HeaderValue::from_static("/login"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_begin_and_end_like_sentences() {
        assert_eq!(sentence("the store is gone"), "The store is gone.");
        assert_eq!(sentence("What?"), "What?");
        assert_eq!(sentence(""), ".");
        assert_eq!(sentence("öl"), "Öl.");
    }
}
