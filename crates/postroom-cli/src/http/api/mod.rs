//! The API for programs, under /v1: JSON in, JSON out, errors as problem+json. Reading needs the role
//! viewer, acting on messages operator, deleting admin.

#![allow(
    unused_qualifications,
    reason = "what utoipa's macros write for `params` has more of them than needed"
)]

mod audit;
mod cursor;
mod dead;
mod document;
mod gather;
mod inbox;
mod joins;
mod messages;
mod read;
mod shown;
mod stores;
mod value;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{any, get, post};
use postroom::Postroom;
use serde::Deserialize;
use utoipa::IntoParams;
use value::Name;

pub(crate) use document::Arguments;
pub(crate) use gather::Gather;

use super::{App, Problem};

const TAG_MESSAGES: &str = "messages";
const TAG_DEAD: &str = "dead letters";
const TAG_INBOX: &str = "inbox";
const TAG_JOINS: &str = "joins";
const TAG_STORES: &str = "stores";

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route(
            "/v1/messages",
            get(messages::search).post(messages::enqueue),
        )
        .route("/v1/messages/batch", post(messages::enqueue_batch))
        .route("/v1/messages/{id}", get(messages::show))
        .route("/v1/dead", get(dead::list))
        .route("/v1/dead/replay", post(dead::replay))
        .route("/v1/dead/purge", post(dead::purge))
        .route("/v1/audit", get(audit::list))
        .route("/v1/inbox", get(inbox::list).post(inbox::enqueue))
        .route("/v1/inbox/check", post(inbox::check))
        .route("/v1/inbox/revive", post(inbox::revive))
        .route("/v1/inbox/{source}/{message_id}", get(inbox::show))
        .route("/v1/joins", get(joins::list).post(joins::start))
        .route("/v1/joins/{id}", get(joins::show))
        .route("/v1/joins/{id}/members", post(joins::attach))
        .route("/v1/joins/{id}/cancel", post(joins::cancel))
        .route("/v1/stats", get(stores::stats))
        .route("/v1/topics", get(stores::topics))
        .route("/v1/stores", get(stores::list))
        .route("/v1/health", get(stores::health))
        .route("/v1/openapi.json", get(document::serve))
        .route("/healthz", get(stores::alive))
        .route("/readyz", get(stores::ready))
        .route("/metrics", get(stores::metrics))
        .method_not_allowed_fallback(wrong_method)
        .route("/v1", any(nothing_here))
        .route("/v1/", any(nothing_here))
        .route("/v1/{*rest}", any(nothing_here))
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not take this method; the header Allow names those that it takes",
    )
}

async fn nothing_here() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this path; /v1/openapi.json has all of them",
    )
}

/// Which store a request is about.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Store {
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

impl Store {
    fn room(&self, app: &App) -> Result<Postroom, Problem> {
        room(app, self.store.as_ref())
    }

    /// What an address needs to lead to the same store.
    fn suffix(&self) -> String {
        match &self.store {
            None => String::new(),
            Some(Name(name)) => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                format!("?{}", query.append_pair("store", name).finish())
            }
        }
    }
}

/// The store of this name; the first one when none is given.
fn room(app: &App, name: Option<&Name>) -> Result<Postroom, Problem> {
    app.stores.room(name.map(|name| name.0.as_str()))
}
