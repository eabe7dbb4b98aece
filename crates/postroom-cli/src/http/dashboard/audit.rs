//! Who did what by hand.

use askama::Template;
use axum::response::Response;

use super::fault::Fault;
use super::form::Fields;
use super::frame::{Frame, Place, Visitor, html};
use super::lookup;
use super::pager::Pager;
use super::shown::{When, grouped};

#[derive(Template)]
#[template(path = "audit.html")]
struct Audit {
    frame: Frame,
    rows: Vec<Row>,
    pager: Pager,
}

struct Row {
    at: When,
    actor: String,
    action: String,
    subject: String,
    count: String,
    detail: String,
}

/// GET /audit
pub(super) async fn page(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let after = match fields.filled("after") {
        None => None,
        Some(after) => Some(after.parse().map_err(|_| Fault::not_found("page"))?),
    };
    let page = lookup::audit(&visitor.room()?, after).await?;
    let rows = page.rows.into_iter().map(|entry| Row {
        at: entry.at.into(),
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        count: grouped(entry.count),
        detail: entry.detail.unwrap_or_default(),
    });
    Ok(html(&Audit {
        frame: visitor.frame("Audit", Place::Audit),
        rows: rows.collect(),
        pager: Pager::new(&visitor, &fields, "/audit", &[], page.next),
    }))
}
