//! The audit trail: who did what, when, to what.

use axum::Json;
use axum::extract::State as Shared;
use postroom::{AuditEntry, Postroom};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::cursor::{Cursor, Of, Order};
use super::read::Query;
use super::shown::Page;
use super::value::{Limit, Name, Time};
use super::{TAG_STORES, room};
use crate::http::{App, Caller, Problem, Viewer};

/// Writes down what a caller did.
pub(super) async fn record(
    room: &Postroom,
    caller: &Caller,
    action: &str,
    subject: &str,
    count: u64,
    detail: Option<String>,
) -> Result<(), Problem> {
    let mut entry = AuditEntry::new(&caller.name, action, subject).count(count);
    if let Some(detail) = detail {
        entry = entry.detail(detail);
    }
    Ok(room.audit().record(&entry).await?)
}

/// Something that was done.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(super) struct Entry {
    at: Time,
    /// Who did it: the name of a token, or `local`.
    #[schema(example = "anna")]
    actor: String,
    #[schema(example = "replay")]
    action: String,
    /// To what.
    subject: String,
    /// How many messages it changed.
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Which entries to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    #[param(inline)]
    limit: Option<Limit>,
    #[param(inline)]
    cursor: Option<Cursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

/// What was done by whom
#[utoipa::path(
    get, path = "/v1/audit", tag = TAG_STORES, operation_id = "listAudit",
    params(Search),
    responses((status = 200, description = "A page of the trail, newest first", body = Page<Entry>))
)]
pub(super) async fn list(
    _: Viewer,
    Shared(app): Shared<App>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Entry>>, Problem> {
    let Limit(limit) = search.limit.unwrap_or(Limit::DEFAULT);
    let room = room(&app, search.store.as_ref())?;
    let after = search
        .cursor
        .map(|cursor| cursor.read_number(Of::Audit, Order::Newest))
        .transpose()?;
    let found = room.audit().list(limit, after).await?;
    // The library gives no more than a page at once: a full one may be the last.
    let full = u32::try_from(found.len()).is_ok_and(|found| found == limit);
    let next = found
        .last()
        .filter(|_| full)
        .map(|last| Cursor::after_number(Of::Audit, Order::Newest, last.id));
    let items = found.into_iter().map(|entry| Entry {
        at: Time(entry.at),
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        count: entry.count,
        detail: entry.detail,
    });
    Ok(Json(Page {
        items: items.collect(),
        next,
    }))
}
