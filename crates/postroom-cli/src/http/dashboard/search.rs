//! The search field: an id leads to its message or join, everything else is a correlation id.

use axum::response::{IntoResponse, Redirect, Response};
use postroom::{JoinId, WorkItemId};
use uuid::Uuid;

use super::fault::Fault;
use super::form::Fields;
use super::frame::Visitor;
use super::shown::encoded;

/// GET /search
pub(super) async fn go(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let wanted = fields.filled("q").unwrap_or_default();
    let path = match Uuid::parse_str(wanted) {
        Ok(id) => place_of(&visitor, id).await?,
        Err(_) => None,
    };
    let path = path.unwrap_or_else(|| match wanted {
        "" => "/messages".to_owned(),
        wanted => format!("/messages?correlation={}", encoded(wanted)),
    });
    Ok(Redirect::to(&visitor.at(&path)).into_response())
}

async fn place_of(visitor: &Visitor, id: Uuid) -> Result<Option<String>, Fault> {
    let room = visitor.room()?;
    if room.outbox().get(WorkItemId::from(id)).await?.is_some() {
        return Ok(Some(format!("/messages/{id}")));
    }
    if room.joins().get(JoinId::from(id)).await?.is_some() {
        return Ok(Some(format!("/joins/{id}")));
    }
    Ok(None)
}
