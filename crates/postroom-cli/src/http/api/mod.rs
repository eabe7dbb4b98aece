//! The API for programs, under /v1.

use axum::Router;

use super::App;

pub(super) fn routes() -> Router<App> {
    Router::new()
}
