//! The stores of the daemon, and how each of them is.

use std::time::Duration;

use askama::Template;
use axum::response::Response;
use futures_util::future::join_all;
use postroom::{Dialect, QueueStats};

use super::frame::{Frame, Place, Visitor, html};
use super::overview::judged;
use super::shown::{Standing, encoded, grouped, span};
use crate::http::App;

/// How long a store may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Template)]
#[template(path = "stores.html")]
struct StoresPage {
    frame: Frame,
    stores: Vec<Card>,
}

struct Card {
    name: String,
    standing: Standing,
    cause: String,
    dialect: &'static str,
    identifier: String,
    queues: Vec<(&'static str, Numbers)>,
    messages: String,
    dead: String,
}

struct Numbers {
    ready: String,
    in_flight: String,
    waiting: String,
    dead: String,
    oldest: String,
}

/// GET /stores
pub(super) async fn page(visitor: Visitor) -> Response {
    let names = visitor.app.stores.names();
    let cards = names.into_iter().map(|name| card(&visitor.app, name));
    html(&StoresPage {
        stores: join_all(cards).await,
        frame: visitor.frame("Stores", Place::Stores),
    })
}

async fn card(app: &App, name: String) -> Card {
    let mut card = Card {
        standing: Standing::UNWELL,
        cause: String::new(),
        dialect: "",
        identifier: String::new(),
        queues: Vec::new(),
        messages: format!("/messages?store={}", encoded(&name)),
        dead: format!("/dead?store={}", encoded(&name)),
        name,
    };
    let room = match app.stores.room(Some(&card.name)) {
        Ok(room) => room,
        Err(problem) => {
            card.cause = problem.detail().to_owned();
            return card;
        }
    };
    card.dialect = match room.dialect() {
        Dialect::Sqlite => "SQLite",
        Dialect::Postgres => "PostgreSQL",
        Dialect::MySql => "MySQL",
        Dialect::SqlServer => "SQL Server",
        _ => "",
    };
    card.identifier = room.identifier().to_owned();
    (card.standing, card.cause) = judged(&room, PATIENCE).await;
    if let Ok(Ok(stats)) = tokio::time::timeout(PATIENCE, room.stats()).await {
        card.queues = vec![
            ("Outbox", Numbers::new(&stats.outbox)),
            ("Inbox", Numbers::new(&stats.inbox)),
        ];
    }
    card
}

impl Numbers {
    fn new(stats: &QueueStats) -> Self {
        Self {
            ready: grouped(stats.ready),
            in_flight: grouped(stats.in_flight),
            waiting: grouped(stats.scheduled + stats.retrying),
            dead: grouped(stats.dead),
            oldest: stats.oldest_ready.map_or("–".to_owned(), span),
        }
    }
}
