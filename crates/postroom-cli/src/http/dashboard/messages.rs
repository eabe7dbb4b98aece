//! The messages of the outbox: the list with its filters, and the page of one.

use askama::Template;
use axum::extract::Path;
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use postroom::{OutboxMessage, State, WorkItemId};

use super::fault::Fault;
use super::form::Fields;
use super::frame::{Frame, Place, Visitor, html};
use super::lookup::{self, Filter};
use super::pager::Pager;
use super::shown::{Payload, Standing, When, grouped};
use super::timeline::{Event, timeline};
use crate::config::Role;

/// The states that can be chosen, by the names in addresses.
pub(super) const STATES: [(&str, &str, State); 4] = [
    ("ready", "Ready", State::Ready),
    ("in-flight", "In flight", State::InFlight),
    ("done", "Done", State::Done),
    ("dead", "Dead", State::Dead),
];

/// The ages that can be chosen.
const AGES: [(&str, &str); 6] = [
    ("newer:15m", "in the last 15 min"),
    ("newer:1h", "in the last hour"),
    ("newer:24h", "in the last day"),
    ("older:1h", "more than an hour ago"),
    ("older:24h", "more than a day ago"),
    ("older:7d", "more than a week ago"),
];

#[derive(Template)]
#[template(path = "messages.html")]
struct Messages {
    frame: Frame,
    filter: Shown,
    states: Vec<Choice>,
    ages: Vec<Choice>,
    rows: Vec<Row>,
    pager: Pager,
    is_filtered: bool,
}

/// What a filter was given, to show it again.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) topic: String,
    pub(super) correlation: String,
    pub(super) source: String,
}

impl Shown {
    pub(super) fn new(fields: &Fields) -> Self {
        let text = |name| fields.filled(name).unwrap_or_default().to_owned();
        Self {
            topic: text("topic"),
            correlation: text("correlation"),
            source: text("source"),
        }
    }
}

/// An entry of a list to choose from.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) name: String,
    pub(super) is_chosen: bool,
}

impl Choice {
    /// The entries, and what was chosen if it is none of them.
    pub(super) fn list<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
        chosen: Option<&str>,
    ) -> Vec<Self> {
        let mut choices: Vec<_> = entries
            .into_iter()
            .map(|(value, name)| Self {
                value: value.to_owned(),
                name: name.to_owned(),
                is_chosen: chosen == Some(value),
            })
            .collect();
        if let Some(chosen) = chosen
            && !choices.iter().any(|choice| choice.is_chosen)
        {
            choices.push(Self {
                value: chosen.to_owned(),
                name: chosen.to_owned(),
                is_chosen: true,
            });
        }
        choices
    }

    pub(super) fn ages(fields: &Fields) -> Vec<Self> {
        Self::list(AGES, fields.filled("age"))
    }
}

struct Row {
    address: String,
    id: String,
    topic: String,
    correlation: String,
    state: Standing,
    attempts: String,
    created: When,
    error: String,
}

/// GET /messages
pub(super) async fn list(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let room = visitor.room()?;
    let state = state(&fields)?;
    let filter = Filter::read(&fields)?;
    let page = lookup::messages(&room, state, &filter).await?;
    let states = STATES.iter().map(|(value, name, _)| (*value, *name));
    let names = ["state", "topic", "correlation", "age"];
    let pager = Pager::new(&visitor, &fields, "/messages", &names, page.next);
    html_of(Messages {
        frame: visitor.frame("Messages", Place::Messages),
        filter: Shown::new(&fields),
        states: Choice::list(states, fields.filled("state")),
        ages: Choice::ages(&fields),
        rows: page
            .rows
            .iter()
            .map(|message| Row::new(message, &visitor))
            .collect(),
        pager,
        is_filtered: fields.any(&names),
    })
}

fn html_of(page: impl Template) -> Result<Response, Fault> {
    Ok(html(&page))
}

fn state(fields: &Fields) -> Result<Option<State>, Fault> {
    let Some(wanted) = fields.filled("state") else {
        return Ok(None);
    };
    STATES
        .iter()
        .find(|(name, _, _)| *name == wanted)
        .map(|(_, _, state)| Some(*state))
        .ok_or_else(|| {
            Fault::bad("A message is ready, in-flight, done or dead: choose one of these states.")
        })
}

impl Row {
    fn new(message: &OutboxMessage, visitor: &Visitor) -> Self {
        Self {
            address: visitor.at(&format!("/messages/{}", message.id)),
            id: message.id.to_string(),
            topic: message.topic.clone(),
            correlation: message.correlation_id.clone().unwrap_or_default(),
            state: message.state.into(),
            attempts: grouped(message.progress.attempt_count),
            created: message.created_at.into(),
            error: message.progress.last_error.clone().unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage {
    frame: Frame,
    message: OutboxMessage,
    state: Standing,
    created: When,
    next_attempt: Option<When>,
    history: Vec<Event>,
    payload: Payload,
    /// `None` when they are hidden.
    headers: Option<Vec<(String, String)>>,
    download: String,
    may_replay: bool,
    may_purge: bool,
}

/// GET /messages/{id}
pub(super) async fn page(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Fault> {
    let room = visitor.room()?;
    let message = find(&visitor, &id).await?;
    let audit = room.audit().of(&message.id).await?;
    let visible = visitor.caller.sees_payloads;
    let state = Standing::from(message.state);
    let enqueued = Event::new(message.created_at, "Enqueued", "ready");
    let history = timeline(
        vec![enqueued],
        message.due_time,
        &message.progress,
        state,
        &audit,
    );
    let is_dead = message.state == State::Dead;
    html_of(MessagePage {
        frame: visitor.frame(format!("Message {}", message.id), Place::Messages),
        state,
        created: message.created_at.into(),
        next_attempt: message.progress.next_attempt_at.map(When::from),
        history,
        payload: Payload::new(&message.payload, visible),
        headers: visible.then(|| message.headers.clone().into_iter().collect()),
        download: visitor.at(&format!("/messages/{}/payload", message.id)),
        may_replay: is_dead && visitor.may(Role::Operator),
        may_purge: is_dead && visitor.may(Role::Admin),
        message,
    })
}

/// GET /messages/{id}/payload
pub(super) async fn download(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Fault> {
    visitor.must_see_payloads()?;
    let message = find(&visitor, &id).await?;
    Ok(attachment(&message.id.to_string(), message.payload))
}

async fn find(visitor: &Visitor, id: &str) -> Result<OutboxMessage, Fault> {
    let id: WorkItemId = id.parse().map_err(|_| Fault::not_found("message"))?;
    let message = visitor.room()?.outbox().get(id).await?;
    message.ok_or_else(|| Fault::not_found("message"))
}

/// A payload to be saved, and never to be shown by the browser as what it may be.
pub(super) fn attachment(stem: &str, payload: String) -> Response {
    let headers: [(HeaderName, String); 2] = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{stem}.txt\""),
        ),
    ];
    (headers, payload).into_response()
}
