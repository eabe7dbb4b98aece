//! The daemon's HTTP side: the API for programs, the ingress for webhooks, the dashboard for people. Here
//! lives what they share: the routes, the state, who may do what, and how errors are told.

pub(crate) mod api;
mod auth;
mod dashboard;
mod hooks;
mod origin;
mod patience;
mod problem;
mod samples;
mod server;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::config::Config;
use crate::stores::Stores;
pub(crate) use auth::{Admin, Auth, Caller, Operator, Viewer};
pub(crate) use hooks::{check as check_webhooks, standard_webhooks_key};
pub(crate) use problem::Problem;
pub(crate) use samples::{EVERY, Sample, Samples};
pub(crate) use server::serve;

/// What every request can see.
pub(crate) struct Daemon {
    pub(crate) config: Config,
    pub(crate) stores: Stores,
    pub(crate) auth: Auth,
    /// How the queues have been doing, for the charts.
    pub(crate) samples: Samples,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) started: Instant,
    /// Messages of the API that are written together.
    pub(crate) gather: api::Gather,
}

/// The state of all routes.
pub(crate) type App = Arc<Daemon>;

/// Every route there is.
fn routes(app: App) -> Router {
    Router::new()
        .merge(api::routes())
        .merge(dashboard::routes(&app))
        .merge(hooks::routes(&app))
        .with_state(app)
}
