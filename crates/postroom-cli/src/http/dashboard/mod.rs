//! The dashboard: pages for people, rendered here, readable without JavaScript.
//!
//! Every page is an askama template, which escapes all that it is given; what changes something is a POST
//! form. Scripts and styles are files of our own under /assets/, so the content security policy forbids
//! everything else.

mod assets;
mod audit;
mod chart;
mod dead;
mod fault;
mod form;
mod frame;
mod inbox;
mod joins;
mod login;
mod lookup;
mod messages;
mod overview;
mod pager;
mod search;
mod shown;
mod stores;
mod timeline;
mod topics;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use super::App;

pub(super) fn routes(app: &App) -> Router<App> {
    Router::new()
        .route("/", get(overview::page))
        .route("/live", get(overview::live))
        .route("/topics", get(topics::page))
        .route("/messages", get(messages::list))
        .route("/messages/{id}", get(messages::page))
        .route("/messages/{id}/payload", get(messages::download))
        .route("/dead", get(dead::page))
        .route("/dead/confirm", post(dead::confirm))
        .route("/dead/replay", post(dead::replay))
        .route("/dead/purge", post(dead::purge))
        .route("/inbox", get(inbox::list))
        .route("/inbox/message", get(inbox::page))
        .route("/inbox/payload", get(inbox::download))
        .route("/joins", get(joins::list))
        .route("/joins/{id}", get(joins::page))
        .route("/joins/{id}/cancel", post(joins::cancel))
        .route("/stores", get(stores::page))
        .route("/audit", get(audit::page))
        .route("/search", get(search::go))
        .route("/login", get(login::form).post(login::sign_in))
        .route("/logout", post(login::sign_out))
        .route("/assets/{name}", get(assets::serve))
        .fallback(fault::no_such_page)
        .layer(from_fn_with_state(App::clone(app), fault::as_pages))
}
