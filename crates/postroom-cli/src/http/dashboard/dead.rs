//! Dead letters: choose some, be asked, and replay or purge them. Those of the inbox are revived.

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};
use postroom::{InboxMessageId, WorkItemId};

use super::fault::Fault;
use super::form::{Fields, Sent};
use super::frame::{Frame, Place, Visitor, html};
use super::lookup::{self, Filter};
use super::messages::{Choice, Shown};
use super::pager::Pager;
use super::shown::{When, counted, grouped};
use crate::config::Role;
use crate::position::Position;

/// So many can be acted on at once.
const AT_ONCE: usize = 5_000;

/// Up to so many are named one by one in the audit trail.
const NAMED: usize = 1_000;

/// So many go into one statement.
const BATCH: usize = 500;

/// Which queue's dead messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    Outbox,
    Inbox,
}

impl Queue {
    fn read(fields: &Fields) -> Self {
        match fields.filled("queue") {
            Some("inbox") => Self::Inbox,
            _ => Self::Outbox,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
        }
    }

    /// What the audit trail calls it.
    fn again_action(self) -> &'static str {
        match self {
            Self::Outbox => "dead.replay",
            Self::Inbox => "inbox.revive",
        }
    }

    fn purge_action(self) -> &'static str {
        match self {
            Self::Outbox => "dead.purge",
            Self::Inbox => "inbox.purge",
        }
    }

    /// What making its messages ready again is called.
    fn again(self) -> &'static str {
        match self {
            Self::Outbox => "Replay",
            Self::Inbox => "Revive",
        }
    }
}

/// What names a dead message in a form: the work item, or the source and its id as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Keys {
    Outbox(Vec<WorkItemId>),
    Inbox(Vec<InboxMessageId>),
}

impl Keys {
    fn read(queue: Queue, fields: &Fields) -> Result<Self, Fault> {
        let unknown = || Fault::bad("A message was named in a way that nobody understands.");
        let keys = fields.all("key");
        match queue {
            Queue::Outbox => keys
                .map(|key| key.parse().map_err(|_| unknown()))
                .collect::<Result<_, _>>()
                .map(Self::Outbox),
            Queue::Inbox => keys
                .map(|key| match serde_json::from_str(key) {
                    Ok((source, id)) => Ok(named(source, id)),
                    Err(_) => Err(unknown()),
                })
                .collect::<Result<_, _>>()
                .map(Self::Inbox),
        }
    }

    fn texts(&self) -> Vec<String> {
        match self {
            Self::Outbox(ids) => ids.iter().map(ToString::to_string).collect(),
            Self::Inbox(ids) => ids.iter().map(inbox_key).collect(),
        }
    }

    /// What the audit trail calls them.
    fn subjects(&self) -> Vec<String> {
        match self {
            Self::Outbox(ids) => ids.iter().map(ToString::to_string).collect(),
            Self::Inbox(ids) => ids.iter().map(ToString::to_string).collect(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Outbox(ids) => ids.len(),
            Self::Inbox(ids) => ids.len(),
        }
    }
}

fn named(source: String, id: String) -> InboxMessageId {
    InboxMessageId::new(source, id)
}

/// How a form names an inbox message.
pub(super) fn inbox_key(id: &InboxMessageId) -> String {
    serde_json::json!([id.source, id.message_id]).to_string()
}

#[derive(Template)]
#[template(path = "dead.html")]
struct Dead {
    frame: Frame,
    queue: &'static str,
    again: &'static str,
    queues: Vec<Choice>,
    filter: Shown,
    rows: Vec<Row>,
    pager: Pager,
    is_filtered: bool,
    may_replay: bool,
    may_purge: bool,
}

struct Row {
    key: String,
    name: String,
    address: String,
    topic: String,
    correlation: String,
    attempts: String,
    died: Option<When>,
    error: String,
}

/// GET /dead
pub(super) async fn page(visitor: Visitor, fields: Fields) -> Result<Response, Fault> {
    let queue = Queue::read(&fields);
    let filter = Filter::read(&fields)?;
    let (rows, next) = rows(&visitor, queue, &filter).await?;
    let names = ["queue", "topic", "correlation"];
    let pager = Pager::new(&visitor, &fields, "/dead", &names, next);
    let count = fields.filled("count").and_then(|count| count.parse().ok());
    let did = match fields.filled("did") {
        Some("replay") => Some("replayed: ready again"),
        Some("revive") => Some("revived: to be processed again"),
        Some("purge") => Some("purged"),
        _ => None,
    };
    let notice = did
        .zip(count)
        .map(|(did, count)| format!("{} {did}.", counted(count, "message")));
    Ok(html(&Dead {
        frame: visitor.frame("Dead letters", Place::Dead).notice(notice),
        queue: queue.name(),
        again: queue.again(),
        queues: Choice::list(
            [("outbox", "Outbox"), ("inbox", "Inbox")],
            Some(queue.name()),
        ),
        filter: Shown::new(&fields),
        rows,
        pager,
        is_filtered: fields.any(&["topic", "correlation"]),
        may_replay: visitor.may(Role::Operator),
        may_purge: visitor.may(Role::Admin),
    }))
}

async fn rows(
    visitor: &Visitor,
    queue: Queue,
    filter: &Filter,
) -> Result<(Vec<Row>, Option<Position>), Fault> {
    let room = visitor.room()?;
    match queue {
        Queue::Outbox => {
            let page = lookup::messages(&room, Some(postroom::State::Dead), filter).await?;
            let rows = page.rows.into_iter().map(|message| Row {
                key: message.id.to_string(),
                name: message.id.to_string(),
                address: visitor.at(&format!("/messages/{}", message.id)),
                topic: message.topic,
                correlation: message.correlation_id.unwrap_or_default(),
                attempts: grouped(message.progress.attempt_count),
                died: message.progress.processed_at.map(When::from),
                error: message.progress.last_error.unwrap_or_default(),
            });
            Ok((rows.collect(), page.next))
        }
        Queue::Inbox => {
            let page = lookup::inbox(&room, Some(postroom::InboxState::Dead), filter).await?;
            let rows = page.rows.into_iter().map(|message| Row {
                key: inbox_key(&message.id),
                name: message.id.to_string(),
                address: visitor.at(&super::inbox::address(&message.id)),
                topic: message.topic.unwrap_or_default(),
                correlation: message.correlation_id.unwrap_or_default(),
                attempts: grouped(message.progress.attempt_count),
                died: message.progress.processed_at.map(When::from),
                error: message.progress.last_error.unwrap_or_default(),
            });
            Ok((rows.collect(), page.next))
        }
    }
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct Confirm {
    frame: Frame,
    queue: &'static str,
    verb: &'static str,
    /// How many, in words.
    number: String,
    is_purge: bool,
    /// There are more than can be done at once.
    is_cut: bool,
    shown: Vec<String>,
    more: String,
    keys: Vec<String>,
    action: String,
    back: String,
}

/// POST /dead/confirm: asks, and changes nothing.
pub(super) async fn confirm(visitor: Visitor, Sent(fields): Sent) -> Result<Response, Fault> {
    let queue = Queue::read(&fields);
    let is_purge = fields.filled("action") == Some("purge");
    visitor.must_be(if is_purge {
        Role::Admin
    } else {
        Role::Operator
    })?;
    let keys = if fields.filled("all").is_some() {
        matching(&visitor, queue, &fields).await?
    } else {
        Keys::read(queue, &fields)?
    };
    if keys.len() == 0 {
        return Err(Fault::bad("No message is selected."));
    }
    let is_cut = keys.len() > AT_ONCE;
    let mut keys = keys.texts();
    keys.truncate(AT_ONCE);
    let count = whole(keys.len());
    let shown: Vec<String> = keys.iter().take(10).cloned().collect();
    let (verb, path) = match is_purge {
        true => ("Purge", "/dead/purge"),
        false => (queue.again(), "/dead/replay"),
    };
    Ok(html(&Confirm {
        frame: visitor.frame(format!("{verb} dead letters"), Place::Dead),
        queue: queue.name(),
        verb,
        number: counted(count, "dead message"),
        is_purge,
        is_cut,
        more: match count.saturating_sub(whole(shown.len())) {
            0 => String::new(),
            more => format!("and {} more", grouped(more)),
        },
        shown,
        keys,
        action: visitor.at(path),
        back: visitor.at(&format!("/dead?queue={}", queue.name())),
    }))
}

/// All dead messages that a filter lets through, as far as they can be acted on at once, and one more to
/// tell that there are more. They are named one by one from here on, so that what dies between the
/// question and the answer is not touched.
async fn matching(visitor: &Visitor, queue: Queue, fields: &Fields) -> Result<Keys, Fault> {
    let room = visitor.room()?;
    let mut filter = Filter::read(fields)?;
    filter.after = None;
    let (mut outbox, mut inbox) = (Vec::new(), Vec::new());
    loop {
        let next = match queue {
            Queue::Outbox => {
                let page = lookup::messages(&room, Some(postroom::State::Dead), &filter).await?;
                outbox.extend(page.rows.iter().map(|message| message.id));
                page.next
            }
            Queue::Inbox => {
                let page = lookup::inbox(&room, Some(postroom::InboxState::Dead), &filter).await?;
                inbox.extend(page.rows.into_iter().map(|message| message.id));
                page.next
            }
        };
        if next.is_none() || outbox.len().max(inbox.len()) > AT_ONCE {
            break;
        }
        filter.after = next;
    }
    Ok(match queue {
        Queue::Outbox => Keys::Outbox(outbox),
        Queue::Inbox => Keys::Inbox(inbox),
    })
}

/// POST /dead/replay
pub(super) async fn replay(visitor: Visitor, Sent(fields): Sent) -> Result<Response, Fault> {
    visitor.must_be(Role::Operator)?;
    let queue = Queue::read(&fields);
    let room = visitor.room()?;
    let keys = Keys::read(queue, &fields)?;
    let mut count = 0;
    match &keys {
        Keys::Outbox(ids) => {
            for ids in ids.chunks(BATCH) {
                count += whole(room.outbox().replay(ids).await?.len());
            }
        }
        Keys::Inbox(ids) => {
            for ids in ids.chunks(BATCH) {
                count += whole(room.inbox().revive(ids).await?);
            }
        }
    }
    finish(&visitor, queue, queue.again_action(), &keys, count).await
}

/// POST /dead/purge
pub(super) async fn purge(visitor: Visitor, Sent(fields): Sent) -> Result<Response, Fault> {
    visitor.must_be(Role::Admin)?;
    let queue = Queue::read(&fields);
    let room = visitor.room()?;
    let keys = Keys::read(queue, &fields)?;
    let mut count = 0;
    match &keys {
        Keys::Outbox(ids) => {
            for ids in ids.chunks(BATCH) {
                count += room.outbox().purge(ids).await?;
            }
        }
        Keys::Inbox(ids) => {
            for ids in ids.chunks(BATCH) {
                count += room.inbox().purge(ids).await?;
            }
        }
    }
    finish(&visitor, queue, queue.purge_action(), &keys, count).await
}

/// Writes down who did it, and goes back to the list. A few messages are named one by one, so that each
/// has it in its history.
async fn finish(
    visitor: &Visitor,
    queue: Queue,
    action: &'static str,
    keys: &Keys,
    count: u64,
) -> Result<Response, Fault> {
    if keys.len() <= NAMED && count == whole(keys.len()) {
        for subject in keys.subjects() {
            lookup::record(visitor, action, &subject, 1).await?;
        }
    } else {
        lookup::record(visitor, action, queue.name(), count).await?;
    }
    let (_, done) = action.split_once('.').unwrap_or_default();
    let address = visitor.at(&format!(
        "/dead?queue={}&did={done}&count={count}",
        queue.name()
    ));
    Ok(Redirect::to(&address).into_response())
}

fn whole(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
