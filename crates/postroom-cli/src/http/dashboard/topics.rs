//! The topics that have something to do, or dead messages.

use askama::Template;
use axum::response::Response;

use super::fault::Fault;
use super::frame::{Frame, Place, Visitor, html};
use super::shown::{encoded, grouped, span};

#[derive(Template)]
#[template(path = "topics.html")]
struct Topics {
    frame: Frame,
    rows: Vec<Row>,
}

struct Row {
    topic: String,
    queue: &'static str,
    address: String,
    dead_address: String,
    ready: String,
    in_flight: String,
    waiting: String,
    dead: String,
    is_dying: bool,
    oldest: String,
}

/// GET /topics
pub(super) async fn page(visitor: Visitor) -> Result<Response, Fault> {
    let room = visitor.room()?;
    let mut rows = Vec::new();
    for (queue, list, topics) in [
        ("outbox", "/messages", room.outbox().topics().await?),
        ("inbox", "/inbox", room.inbox().topics().await?),
    ] {
        rows.extend(topics.into_iter().map(|counts| {
            let topic = encoded(&counts.topic);
            Row {
                queue,
                address: visitor.at(&format!("{list}?topic={topic}")),
                dead_address: visitor.at(&format!("/dead?queue={queue}&topic={topic}")),
                ready: grouped(counts.ready),
                in_flight: grouped(counts.in_flight),
                waiting: grouped(counts.waiting),
                dead: grouped(counts.dead),
                is_dying: counts.dead > 0,
                oldest: counts.oldest_ready.map_or("–".to_owned(), span),
                topic: counts.topic,
            }
        }));
    }
    Ok(html(&Topics {
        frame: visitor.frame("Topics", Place::Topics),
        rows,
    }))
}
