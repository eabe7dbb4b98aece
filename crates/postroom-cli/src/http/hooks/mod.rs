//! Webhooks come in here: verified, kept, and only then acknowledged.

use axum::Router;

use super::App;

pub(super) fn routes(_app: &App) -> Router<App> {
    Router::new()
}
