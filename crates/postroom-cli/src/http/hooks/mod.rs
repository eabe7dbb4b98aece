//! Webhooks come in here: verified, kept, and only then acknowledged.
//!
//! The way of a request: its source is found, its signature is checked on the raw bytes ([`verify`]), the
//! source's limits are asked ([`limits`]), the inbox takes it ([`keep`]), and when that has committed the
//! sender hears of it. Nothing of a request is parsed before its signature is right.

mod github;
mod keep;
mod limits;
mod plain;
mod signature;
mod source;
mod standard;
mod stripe;
mod verify;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Serialize;

use self::keep::Kept;
use self::limits::Full;
use self::signature::hexadecimal;
use self::source::{Source, Sources};
pub(crate) use self::standard::key as standard_webhooks_key;
use self::verify::Refusal;
use super::{App, Problem};
use crate::config::Webhook;

/// When to come again after the store could not take a message.
const STORE_PAUSE: Duration = Duration::from_secs(5);

/// When to come again after too many requests at once.
const CROWD_PAUSE: Duration = Duration::from_secs(1);

/// Says what is wrong with the webhooks of a configuration: a name twice, a secret that is none.
pub(crate) fn check(webhooks: &[Webhook]) -> anyhow::Result<()> {
    Sources::new(webhooks).map(drop)
}

pub(super) fn routes(app: &App) -> Router<App> {
    let sources = Sources::new(&app.config.webhooks).unwrap_or_else(|error| {
        // The daemon has checked before; whoever has not serves no webhooks rather than unsafe ones.
        tracing::error!(error = format!("{error:#}"), "no webhooks are taken");
        Sources::none()
    });
    Router::new()
        .route("/hooks/{source}", post(receive).fallback(not_allowed))
        // The server has limited the body already, by the configuration.
        .layer(DefaultBodyLimit::disable())
        .layer(Extension(Arc::new(sources)))
}

async fn not_allowed() -> Response {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "webhooks are posted: use POST",
    );
    with(
        problem.into_response(),
        header::ALLOW,
        HeaderValue::from_static("POST"),
    )
}

async fn receive(
    State(app): State<App>,
    Extension(sources): Extension<Arc<Sources>>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(source) = name.ok().and_then(|Path(name)| sources.find(&name)) else {
        sources.work_for_nothing(&body);
        // The name is anybody's to choose: it goes into no label and no log.
        count("unknown", "unknown");
        return Problem::not_found("source of webhooks").into_response();
    };
    let outcome = take(&app, &sources, source, &headers, &body).await;
    count(source.name(), outcome.name());
    outcome.into_response()
}

/// What becomes of a request to a source that is known.
async fn take(
    app: &App,
    sources: &Sources,
    source: &Source,
    headers: &HeaderMap,
    body: &[u8],
) -> Outcome {
    let name = source.name();
    let key = match source.verify(headers, body, unix_now()) {
        Ok(key) => key,
        Err(Refusal::Unverified) => {
            tracing::info!(source = name, outcome = "unverified", "a webhook");
            return Outcome::Unverified;
        }
        Err(Refusal::Unusable(reason)) => {
            tracing::warn!(source = name, outcome = "unusable", reason, "a webhook");
            return Outcome::Unusable(reason);
        }
    };
    // Only now: whoever cannot sign cannot use up a sender's share either.
    let _place = match source.limits().enter() {
        Ok(place) => place,
        Err(full) => {
            let outcome = Outcome::from(full);
            tracing::warn!(source = name, outcome = outcome.name(), "a webhook");
            return outcome;
        }
    };
    let arrival = source.arrival(key, headers, body);
    let shown = hexadecimal(&arrival.fingerprint()[..8]);
    let inbox = match app.stores.room(source.store()) {
        Ok(room) => room.inbox(),
        Err(problem) => {
            let error = problem.detail();
            tracing::error!(source = name, outcome = "unavailable", error, "a webhook");
            return Outcome::Unavailable;
        }
    };
    let outcome = match sources.keep(&inbox, &arrival).await {
        Ok(Kept::New) => Outcome::Accepted,
        Ok(Kept::Before) => Outcome::Duplicate,
        Ok(Kept::Otherwise) => Outcome::Conflict,
        Err(error) if error.param() == Some("message_id") => {
            Outcome::Unusable("its id is empty, longer than 255 characters, or holds a NUL")
        }
        Err(error) => {
            tracing::error!(source = name, outcome = "unavailable", key = shown, %error, "a webhook");
            return Outcome::Unavailable;
        }
    };
    match outcome {
        Outcome::Conflict => tracing::warn!(
            source = name,
            outcome = "conflict",
            key = shown,
            "a webhook came before with another body, which is kept"
        ),
        _ => tracing::info!(
            source = name,
            outcome = outcome.name(),
            key = shown,
            "a webhook"
        ),
    }
    outcome
}

/// What became of a request.
enum Outcome {
    /// New, and committed.
    Accepted,
    /// It has come before; nothing has changed.
    Duplicate,
    /// It has come before with another body; nothing has changed.
    Conflict,
    Unverified,
    Unusable(&'static str),
    TooMany(Duration),
    Busy,
    Unavailable,
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Conflict => "conflict",
            Self::Unverified => "unverified",
            Self::Unusable(_) => "unusable",
            Self::TooMany(_) => "too_many",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }
}

impl From<Full> for Outcome {
    fn from(full: Full) -> Self {
        match full {
            Full::Crowded => Self::Busy,
            Full::TooFast(pause) => Self::TooMany(pause),
        }
    }
}

/// What the sender of an accepted webhook is told.
#[derive(Serialize)]
struct Receipt {
    duplicate: bool,
}

impl IntoResponse for Outcome {
    fn into_response(self) -> Response {
        match self {
            Self::Accepted => {
                (StatusCode::ACCEPTED, Json(Receipt { duplicate: false })).into_response()
            }
            Self::Duplicate => (StatusCode::OK, Json(Receipt { duplicate: true })).into_response(),
            Self::Conflict => Problem::new(
                StatusCode::CONFLICT,
                "this id came before with another body; the first one is kept",
            )
            .into_response(),
            Self::Unverified => with(
                Problem::new(
                    StatusCode::UNAUTHORIZED,
                    "the request is not signed as this source signs",
                )
                .into_response(),
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Signature realm=\"webhooks\""),
            ),
            Self::Unusable(reason) => {
                Problem::new(StatusCode::UNPROCESSABLE_ENTITY, reason).into_response()
            }
            Self::TooMany(pause) => later(
                pause,
                StatusCode::TOO_MANY_REQUESTS,
                "more requests per second than this source may send",
            ),
            Self::Busy => later(
                CROWD_PAUSE,
                StatusCode::SERVICE_UNAVAILABLE,
                "too many requests of this source at once",
            ),
            Self::Unavailable => later(
                STORE_PAUSE,
                StatusCode::SERVICE_UNAVAILABLE,
                "the message could not be kept: send it again",
            ),
        }
    }
}

fn later(pause: Duration, status: StatusCode, detail: &str) -> Response {
    let seconds = pause.as_millis().div_ceil(1_000).max(1).to_string();
    let response = Problem::new(status, detail).into_response();
    match HeaderValue::from_str(&seconds) {
        Ok(seconds) => with(response, header::RETRY_AFTER, seconds),
        Err(_) => response,
    }
}

fn with(mut response: Response, name: header::HeaderName, value: HeaderValue) -> Response {
    response.headers_mut().insert(name, value);
    response
}

fn count(source: &str, outcome: &'static str) {
    metrics::counter!(
        "postroom_webhooks_total",
        "source" => source.to_owned(),
        "outcome" => outcome
    )
    .increment(1);
}

/// This machine's clock, in seconds: signatures are made by senders, who know no database's time.
fn unix_now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or_default()
}
