//! How the stores are doing: depths, topics, health, metrics.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use postroom::{Health, QueueStats, TopicCounts};
use serde::Serialize;
use utoipa::ToSchema;

use super::read::Query;
use super::{Store, TAG_STORES};
use crate::http::{App, Problem, Viewer};

/// How full the queues of a store are, and what has gone through them.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
pub(super) struct StatsShown {
    outbox: Depth,
    inbox: Depth,
    totals: Totals,
}

/// How full a queue is. An unfinished message is in exactly one of the first four numbers.
#[derive(Serialize, ToSchema)]
struct Depth {
    /// Due, and nobody holds them.
    ready: u64,
    /// Leased by a worker.
    in_flight: u64,
    /// Not due yet.
    scheduled: u64,
    /// Not due yet after a failed attempt.
    retrying: u64,
    /// Failed for good.
    dead: u64,
    /// How long the oldest ready message has been due, in seconds.
    #[schema(required = true)]
    oldest_ready_seconds: Option<f64>,
}

impl From<QueueStats> for Depth {
    fn from(stats: QueueStats) -> Self {
        Self {
            ready: stats.ready,
            in_flight: stats.in_flight,
            scheduled: stats.scheduled,
            retrying: stats.retrying,
            dead: stats.dead,
            oldest_ready_seconds: stats.oldest_ready.map(|age| age.as_secs_f64()),
        }
    }
}

/// Counters that only grow: the difference of two looks is a rate.
#[derive(Serialize, ToSchema)]
struct Totals {
    enqueued: u64,
    done: u64,
    died: u64,
    received: u64,
}

/// How full the queues are
#[utoipa::path(
    get, path = "/v1/stats", tag = TAG_STORES, operation_id = "getStats",
    params(Store),
    responses((status = 200, description = "The numbers of a store", body = StatsShown))
)]
pub(super) async fn stats(
    _: Viewer,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
) -> Result<Json<StatsShown>, Problem> {
    let room = store.room(&app)?;
    let (stats, totals) = (room.stats().await?, room.totals().await?);
    Ok(Json(StatsShown {
        outbox: stats.outbox.into(),
        inbox: stats.inbox.into(),
        totals: Totals {
            enqueued: totals.enqueued,
            done: totals.done,
            died: totals.died,
            received: totals.received,
        },
    }))
}

/// The topics of both queues that have unfinished or dead messages.
#[derive(Serialize, ToSchema)]
pub(super) struct Topics {
    outbox: Vec<Topic>,
    inbox: Vec<Topic>,
}

/// How many messages of a topic stand where.
#[derive(Serialize, ToSchema)]
struct Topic {
    #[schema(example = "order.created")]
    topic: String,
    ready: u64,
    in_flight: u64,
    waiting: u64,
    dead: u64,
    /// How long the oldest ready message has been due, in seconds.
    #[schema(required = true)]
    oldest_ready_seconds: Option<f64>,
}

impl From<TopicCounts> for Topic {
    fn from(counts: TopicCounts) -> Self {
        Self {
            topic: counts.topic,
            ready: counts.ready,
            in_flight: counts.in_flight,
            waiting: counts.waiting,
            dead: counts.dead,
            oldest_ready_seconds: counts.oldest_ready.map(|age| age.as_secs_f64()),
        }
    }
}

/// Which topics have messages
#[utoipa::path(
    get, path = "/v1/topics", tag = TAG_STORES, operation_id = "listTopics",
    params(Store),
    responses((status = 200, description = "The topics of a store", body = Topics))
)]
pub(super) async fn topics(
    _: Viewer,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
) -> Result<Json<Topics>, Problem> {
    let room = store.room(&app)?;
    let shown = |topics: Vec<TopicCounts>| topics.into_iter().map(Topic::from).collect();
    Ok(Json(Topics {
        outbox: shown(room.outbox().topics().await?),
        inbox: shown(room.inbox().topics().await?),
    }))
}

/// All stores.
#[derive(Serialize, ToSchema)]
pub(super) struct StoreList {
    items: Vec<StoreShown>,
}

/// A store that the daemon works on.
#[derive(Serialize, ToSchema)]
#[schema(as = Store)]
struct StoreShown {
    #[schema(example = "main")]
    name: String,
    /// Absent when the store cannot be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "sqlite")]
    database: Option<&'static str>,
    health: HealthShown,
}

/// Whether a store is well: does it answer, and does work pile up?
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(super) struct HealthShown {
    status: StatusName,
    /// Well, but not for long: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// Why it is not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// Messages that should be done by now and are not. Absent when the store does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<u64>,
    warning_threshold: u64,
    critical_threshold: u64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = HealthStatus)]
enum StatusName {
    Healthy,
    Unhealthy,
}

impl From<Health> for HealthShown {
    fn from(health: Health) -> Self {
        Self {
            status: if health.is_healthy() {
                StatusName::Healthy
            } else {
                StatusName::Unhealthy
            },
            warning: health.warning,
            cause: health.cause,
            pending: health.pending,
            warning_threshold: health.warning_threshold,
            critical_threshold: health.critical_threshold,
        }
    }
}

/// List the stores
#[utoipa::path(
    get, path = "/v1/stores", tag = TAG_STORES, operation_id = "listStores",
    responses((status = 200, description = "Every store, and whether it is well", body = StoreList))
)]
pub(super) async fn list(
    _: Viewer,
    Shared(app): Shared<App>,
    Query(Nothing {}): Query<Nothing>,
) -> Json<StoreList> {
    let app = &app;
    let shown = app.stores.names().into_iter().map(|name| async move {
        match app.stores.room(Some(&name)) {
            Ok(room) => StoreShown {
                name,
                database: Some(room.dialect().name()),
                health: room.health().await.into(),
            },
            Err(problem) => StoreShown {
                name,
                database: None,
                health: HealthShown {
                    status: StatusName::Unhealthy,
                    warning: None,
                    cause: Some(problem.detail().to_owned()),
                    pending: None,
                    warning_threshold: 0,
                    critical_threshold: 0,
                },
            },
        }
    });
    Json(StoreList {
        items: join_all(shown).await,
    })
}

/// A query string with nothing in it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Whether a store is well
///
/// Answers 200 either way; `/readyz` is for load balancers.
#[utoipa::path(
    get, path = "/v1/health", tag = TAG_STORES, operation_id = "getHealth",
    params(Store),
    responses((status = 200, description = "How the store is", body = HealthShown))
)]
pub(super) async fn health(
    _: Viewer,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
) -> Result<Json<HealthShown>, Problem> {
    Ok(Json(store.room(&app)?.health().await.into()))
}

/// Whether the daemon runs
///
/// Needs no token.
#[utoipa::path(
    get, path = "/healthz", tag = TAG_STORES, operation_id = "isAlive", security(()),
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"))
)]
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Whether every store answers
///
/// Needs no token, and says no more than that.
#[utoipa::path(
    get, path = "/readyz", tag = TAG_STORES, operation_id = "isReady", security(()),
    responses((status = 200, description = "They do", body = String, content_type = "text/plain"))
)]
pub(super) async fn ready(Shared(app): Shared<App>) -> Result<&'static str, Problem> {
    let app = &app;
    let answers = app.stores.names().into_iter().map(|name| async move {
        match app.stores.room(Some(&name)) {
            // Work that piles up is no reason to send callers elsewhere.
            Ok(room) => room.health().await.pending.is_some(),
            Err(_) => false,
        }
    });
    match join_all(answers).await.contains(&false) {
        false => Ok("ready\n"),
        true => Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "a store does not answer",
        )),
    }
}

/// Metrics for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = TAG_STORES, operation_id = "getMetrics",
    responses((status = 200, description = "Prometheus text format", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(_: Viewer, Shared(app): Shared<App>) -> Response {
    const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, KIND)], app.metrics.render()).into_response()
}
