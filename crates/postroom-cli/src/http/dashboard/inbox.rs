//! The inbox: what came in, and the page of one message.

use askama::Template;
use axum::response::Response;
use postroom::{InboxMessage, InboxMessageId, InboxState};

use super::dead::inbox_key;
use super::fault::Fault;
use super::form::Fields;
use super::frame::{Frame, Place, Visitor, html};
use super::lookup::{self, Filter};
use super::messages::{Choice, Shown, attachment};
use super::pager::Pager;
use super::shown::{Payload, Standing, When, encoded, grouped};
use super::timeline::{Event, timeline};
use crate::config::Role;

/// The states that can be chosen.
const STATES: [(&str, &str, InboxState); 4] = [
    ("seen", "Seen", InboxState::Seen),
    ("processing", "Processing", InboxState::Processing),
    ("done", "Done", InboxState::Done),
    ("dead", "Dead", InboxState::Dead),
];

#[derive(Template)]
#[template(path = "inbox.html")]
struct Inbox {
    frame: Frame,
    filter: Shown,
    states: Vec<Choice>,
    ages: Vec<Choice>,
    rows: Vec<Row>,
    pager: Pager,
    is_filtered: bool,
}

struct Row {
    address: String,
    source: String,
    id: String,
    topic: String,
    state: Standing,
    attempts: String,
    first_seen: When,
    last_seen: When,
    error: String,
}

/// The address of a message's page, without a store.
pub(super) fn address(id: &InboxMessageId) -> String {
    format!(
        "/inbox/message?source={}&id={}",
        encoded(&id.source),
        encoded(&id.message_id)
    )
}

/// GET /inbox
pub(super) async fn list(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    const NAMES: [&str; 5] = ["state", "topic", "source", "correlation", "age"];
    let room = visitor.room()?;
    let state = state(&fields)?;
    let page = lookup::inbox(&room, state, &Filter::read(&fields)?).await?;
    let states = STATES.iter().map(|(value, name, _)| (*value, *name));
    Ok(html(&Inbox {
        frame: visitor.frame("Inbox", Place::Inbox),
        filter: Shown::new(&fields),
        states: Choice::list(states, fields.filled("state")),
        ages: Choice::ages(&fields),
        rows: page
            .rows
            .into_iter()
            .map(|message| Row::new(message, &visitor))
            .collect(),
        pager: Pager::new(&visitor, &fields, "/inbox", &NAMES, page.next),
        is_filtered: fields.any(&NAMES),
    }))
}

fn state(fields: &Fields) -> Result<Option<InboxState>, Fault> {
    let Some(wanted) = fields.filled("state") else {
        return Ok(None);
    };
    STATES
        .iter()
        .find(|(name, _, _)| *name == wanted)
        .map(|(_, _, state)| Some(*state))
        .ok_or_else(|| {
            Fault::bad("An inbox message is seen, processing, done or dead: choose one of these.")
        })
}

impl Row {
    fn new(message: InboxMessage, visitor: &Visitor) -> Self {
        Self {
            address: visitor.at(&address(&message.id)),
            source: message.id.source,
            id: message.id.message_id,
            topic: message.topic.unwrap_or_default(),
            state: message.state.into(),
            attempts: grouped(message.progress.attempt_count),
            first_seen: message.first_seen.into(),
            last_seen: message.last_seen.into(),
            error: message.progress.last_error.unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "inbox_message.html")]
struct InboxPage {
    frame: Frame,
    message: InboxMessage,
    state: Standing,
    key: String,
    hash: String,
    history: Vec<Event>,
    /// `None` when the archive has let it go, or it was never enqueued.
    payload: Option<Payload>,
    /// `None` when they are hidden.
    headers: Option<Vec<(String, String)>>,
    download: String,
    may_revive: bool,
    may_purge: bool,
}

/// GET /inbox/message
pub(super) async fn page(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let message = find(&visitor, &fields).await?;
    let audit = visitor.room()?.audit().of(&message.id).await?;
    let visible = visitor.caller.sees_payloads;
    let state = Standing::from(message.state);
    let mut events = vec![Event::new(message.first_seen, "First seen", "ready")];
    if message.last_seen > message.first_seen {
        events.push(Event::new(message.last_seen, "Seen again", "quiet"));
    }
    let history = timeline(events, message.due_time, &message.progress, state, &audit);
    let is_dead = message.state == InboxState::Dead;
    let hash = message.hash.as_deref().unwrap_or_default();
    Ok(html(&InboxPage {
        frame: visitor.frame(message.id.to_string(), Place::Inbox),
        state,
        key: inbox_key(&message.id),
        hash: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        history,
        payload: message
            .payload
            .as_deref()
            .map(|payload| Payload::new(payload, visible)),
        headers: visible.then(|| message.headers.clone().into_iter().collect()),
        download: visitor.at(&address(&message.id).replacen("message", "payload", 1)),
        may_revive: is_dead && visitor.may(Role::Operator),
        may_purge: is_dead && visitor.may(Role::Admin),
        message,
    }))
}

/// GET /inbox/payload
pub(super) async fn download(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    visitor.must_see_payloads()?;
    let message = find(&visitor, &fields).await?;
    let payload = message.payload.ok_or_else(|| Fault::not_found("payload"))?;
    Ok(attachment("inbox-message", payload))
}

async fn find(visitor: &Visitor, fields: &Fields) -> Result<InboxMessage, Fault> {
    let part = |name| {
        fields
            .exact(name)
            .ok_or_else(|| Fault::not_found("message"))
    };
    let id = InboxMessageId::new(part("source")?, part("id")?);
    let message = visitor.room()?.inbox().get(&id).await?;
    message.ok_or_else(|| Fault::not_found("message"))
}
