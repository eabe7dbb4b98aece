//! What the pages ask of a store.

use std::time::Duration;

use postroom::{
    AuditEntry, Error, InboxMessage, InboxState, Join, JoinId, List, OutboxMessage, Postroom, State,
};

use super::fault::Fault;
use super::form::Fields;
use super::frame::Visitor;
use crate::age;
use crate::position::Position;

/// Rows of a page.
pub(super) const ROWS: u32 = 50;

/// Some rows, and where the next page begins.
pub(super) struct Page<T, C = Position> {
    pub(super) rows: Vec<T>,
    pub(super) next: Option<C>,
}

/// What a visitor wants to see.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) topic: Option<String>,
    pub(super) correlation: Option<String>,
    pub(super) source: Option<String>,
    pub(super) age: Option<Age>,
    pub(super) after: Option<Position>,
}

/// By when a message was enqueued.
#[derive(Debug, Clone, Copy)]
pub(super) enum Age {
    Newer(Duration),
    Older(Duration),
}

impl Filter {
    pub(super) fn read(fields: &Fields) -> Result<Self, Fault> {
        let text = |name| fields.filled(name).map(str::to_owned);
        let after = match fields.filled("after") {
            None => None,
            Some(after) => Some(after.parse().map_err(|_| Fault::not_found("page"))?),
        };
        Ok(Self {
            topic: text("topic"),
            correlation: text("correlation"),
            source: text("source"),
            age: fields.filled("age").map(Age::read).transpose()?,
            after,
        })
    }
}

impl Age {
    fn read(text: &str) -> Result<Self, Fault> {
        let (side, length) = text.split_once(':').unwrap_or_default();
        let length = age::parse(length);
        match (side, length) {
            ("newer", Ok(length)) => Ok(Self::Newer(length)),
            ("older", Ok(length)) => Ok(Self::Older(length)),
            _ => Err(Fault::bad("An age looks like newer:1h or older:7d.")),
        }
    }
}

/// Messages of the outbox, the newest first.
pub(super) async fn messages(
    room: &Postroom,
    state: Option<State>,
    filter: &Filter,
) -> Result<Page<OutboxMessage>, Fault> {
    let mut list = filter.list(state);
    match &filter.after {
        None => {}
        Some(Position::Item(id)) => list = list.after(*id),
        Some(Position::Arrival { .. }) => return Err(Fault::not_found("page")),
    }
    let rows = room.outbox().list(&list).await?;
    Ok(Page::new(rows, |message| Position::Item(message.id)))
}

/// Messages of the inbox, the newest first.
pub(super) async fn inbox(
    room: &Postroom,
    state: Option<InboxState>,
    filter: &Filter,
) -> Result<Page<InboxMessage>, Error> {
    let mut list = filter.list(state);
    if let Some(source) = &filter.source {
        list = list.source(source);
    }
    if let Some(after) = filter.after.clone() {
        list = after.list(list);
    }
    let rows = room.inbox().list(&list).await?;
    Ok(Page::new(rows, Position::of))
}

impl Filter {
    /// One row more than a page has, to know whether there is another one.
    fn list<S>(&self, state: Option<S>) -> List<S> {
        let mut list = state.map_or_else(List::any, List::new);
        if let Some(topic) = &self.topic {
            list = list.topic(topic);
        }
        if let Some(correlation) = &self.correlation {
            list = list.correlation(correlation);
        }
        list = match self.age {
            None => list,
            Some(Age::Newer(age)) => list.newer_than(age),
            Some(Age::Older(age)) => list.older_than(age),
        };
        list.newest_first().limit(ROWS + 1)
    }
}

impl<T, C> Page<T, C> {
    /// Rows of which there may be one too many, and what a page after one of them is asked for by.
    fn new(mut rows: Vec<T>, cursor: impl Fn(&T) -> C) -> Self {
        let limit = usize::try_from(ROWS).unwrap_or(usize::MAX);
        let is_last = rows.len() <= limit;
        rows.truncate(limit);
        let next = if is_last {
            None
        } else {
            rows.last().map(cursor)
        };
        Self { rows, next }
    }
}

/// Joins: those of one grouping key, oldest first, or all of them, newest first.
pub(super) async fn joins(
    room: &Postroom,
    key: Option<&str>,
    after: Option<JoinId>,
) -> Result<Page<Join, JoinId>, Error> {
    let joins = match key {
        Some(key) => room.joins().list(key, after, ROWS + 1).await?,
        None => room.joins().recent(after, ROWS + 1).await?,
    };
    Ok(Page::new(joins, |join| join.id))
}

/// What was done by hand, the latest first.
pub(super) async fn audit(
    room: &Postroom,
    after: Option<i64>,
) -> Result<Page<AuditEntry, i64>, Error> {
    let entries = room.audit().list(ROWS + 1, after).await?;
    Ok(Page::new(entries, |entry| entry.id))
}

/// Writes down that the visitor has done something to these, and to how many messages in all.
pub(super) async fn record(
    visitor: &Visitor,
    action: &str,
    subject: &str,
    count: u64,
) -> Result<(), Fault> {
    let entry = AuditEntry::new(&visitor.caller.name, action, subject).count(count);
    Ok(visitor.room()?.audit().record(&entry).await?)
}
