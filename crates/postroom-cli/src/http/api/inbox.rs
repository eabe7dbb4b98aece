//! The inbox: was a message seen before, take it in, look at it, revive it.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroom::{Arrival, DeadFilter, Inbound, Inbox, InboxMessageId, InboxState, List};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::cursor::{InboxCursor, Order, page};
use super::dead::{AT_ONCE, to_the_end};
use super::messages::due;
use super::read::{Body, Key, Query};
use super::shown::{InboxMessageShown, InboxStateName, Page};
use super::value::{Age, Hash, Headers, Limit, Name, Payload, Time};
use super::{Store, TAG_INBOX, audit, room};
use crate::http::{App, Operator, Problem, Viewer};
use crate::position::Position;

/// What makes an inbound message itself: who sent it, and the id that they gave it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Sender {
    source: Name,
    message_id: Name,
}

impl From<Sender> for InboxMessageId {
    fn from(sender: Sender) -> Self {
        Self::new(sender.source.0, sender.message_id.0)
    }
}

/// A message that has arrived.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"source": "stripe", "message_id": "evt_1"}))]
pub(super) struct Arrived {
    source: Name,
    message_id: Name,
    hash: Option<Hash>,
}

/// What an arrival was found to be.
#[derive(Serialize, ToSchema)]
pub(super) struct Checked {
    /// It was processed before.
    already_processed: bool,
    /// It came with another hash before.
    hash_differs: bool,
}

/// Check whether a message was processed
///
/// Also records that it has arrived.
#[utoipa::path(
    post, path = "/v1/inbox/check", tag = TAG_INBOX, operation_id = "checkInbox",
    params(Store),
    request_body = Arrived,
    responses((status = 200, description = "What the message was found to be", body = Checked))
)]
pub(super) async fn check(
    _: Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(arrived): Body<Arrived>,
) -> Result<Json<Checked>, Problem> {
    let inbox = store.room(&app)?.inbox();
    let id = InboxMessageId::new(arrived.source.0, arrived.message_id.0);
    Ok(Json(match arrived.hash {
        None => Checked {
            already_processed: inbox.already_processed(&id).await?,
            hash_differs: false,
        },
        Some(Hash(hash)) => {
            let sighting = inbox.already_processed_with_hash(&id, &hash).await?;
            Checked {
                already_processed: sighting.already_processed,
                hash_differs: sighting.hash_differs,
            }
        }
    }))
}

/// A message to take in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"source": "stripe", "message_id": "evt_1", "topic": "payment.received", "payload": {"amount": 100}}))]
pub(super) struct NewInbound {
    /// Who sent it.
    source: Name,
    /// The sender's own id of it.
    message_id: Name,
    /// Which handlers it is for.
    topic: Name,
    payload: Payload,
    hash: Option<Hash>,
    /// Ties messages together.
    #[schema(max_length = 255, pattern = "^[^\\u0000]*$")]
    correlation_id: Option<String>,
    /// Small facts about the message that are not its content.
    headers: Option<Headers>,
    /// Holds the message back until the database's clock has passed this time.
    due_at: Option<Time>,
    /// The same as a delay from now on, by the daemon's clock. Not together with `due_at`.
    delay: Option<Age>,
}

impl NewInbound {
    fn read(self) -> Result<Inbound, Problem> {
        let mut inbound = Inbound::new(
            self.source.0,
            self.message_id.0,
            self.topic.0,
            self.payload.0,
        );
        if let Some(Hash(hash)) = self.hash {
            inbound = inbound.hash(hash);
        }
        if let Some(id) = self.correlation_id {
            inbound = inbound.correlation(id);
        }
        for (name, value) in self.headers.unwrap_or_default().0 {
            inbound = inbound.header(name, value);
        }
        if let Some(due) = due(self.due_at, self.delay)? {
            inbound = inbound.due_at(due);
        }
        Ok(inbound)
    }
}

/// What taking a message in did.
#[derive(Serialize, ToSchema)]
pub(super) struct TakenIn {
    arrival: ArrivalName,
    /// It came with another hash before.
    hash_differs: bool,
}

/// What the message was before.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Arrival)]
enum ArrivalName {
    /// Unknown, or only seen: it is queued now.
    New,
    /// Queued or being processed: its content is replaced.
    Replaced,
    /// Dead: its content is replaced, and it stays dead until it is revived.
    Dead,
    /// Done: nothing has changed.
    AlreadyDone,
}

/// Take a message in
///
/// However often the same source and message id arrive, the message is processed once.
#[utoipa::path(
    post, path = "/v1/inbox", tag = TAG_INBOX, operation_id = "enqueueInbox",
    params(Store),
    request_body = NewInbound,
    responses(
        (status = 201, description = "It is queued", body = TakenIn, headers(("Location" = String, description = "Where the message is"))),
        (status = 200, description = "It was known before", body = TakenIn, headers(("Location" = String, description = "Where the message is"))),
    )
)]
pub(super) async fn enqueue(
    _: Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(inbound): Body<NewInbound>,
) -> Result<Response, Problem> {
    let inbox = store.room(&app)?.inbox();
    let place = place(&inbound.source.0, &inbound.message_id.0, &store);
    let accepted = inbox.enqueue(&inbound.read()?).await?;
    let (status, arrival) = match accepted.arrival {
        Arrival::New => (StatusCode::CREATED, ArrivalName::New),
        Arrival::Replaced => (StatusCode::OK, ArrivalName::Replaced),
        Arrival::Dead => (StatusCode::OK, ArrivalName::Dead),
        Arrival::AlreadyDone => (StatusCode::OK, ArrivalName::AlreadyDone),
    };
    let taken_in = TakenIn {
        arrival,
        hash_differs: accepted.hash_differs,
    };
    Ok((status, [(header::LOCATION, place)], Json(taken_in)).into_response())
}

fn place(source: &str, message_id: &str, store: &Store) -> String {
    let [source, message_id] = [source, message_id].map(segment);
    format!("/v1/inbox/{source}/{message_id}{}", store.suffix())
}

/// A name as a part of a path.
fn segment(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// What to look for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// Only messages in this state.
    #[param(inline)]
    state: Option<InboxStateName>,
    /// Only messages from this source.
    #[param(inline)]
    source: Option<Name>,
    /// Only messages of this topic.
    #[param(inline)]
    topic: Option<Name>,
    /// Only messages with this correlation id.
    #[param(inline)]
    correlation_id: Option<Name>,
    /// Only messages that were enqueued longer ago than this.
    #[param(inline)]
    older_than: Option<Age>,
    /// Only messages that were enqueued within this time.
    #[param(inline)]
    newer_than: Option<Age>,
    /// Which come first.
    #[param(inline)]
    order: Option<Order>,
    #[param(inline)]
    limit: Option<Limit>,
    #[param(inline)]
    cursor: Option<InboxCursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

impl Search {
    fn list(&self, limit: u32) -> Result<List<InboxState>, Problem> {
        let mut list = match self.state {
            Some(state) => List::new(state.into()),
            None => List::any(),
        };
        if let Some(source) = &self.source {
            list = list.source(&source.0);
        }
        if let Some(topic) = &self.topic {
            list = list.topic(&topic.0);
        }
        if let Some(id) = &self.correlation_id {
            list = list.correlation(&id.0);
        }
        if let Some(Age(age)) = self.older_than {
            list = list.older_than(age);
        }
        if let Some(Age(age)) = self.newer_than {
            list = list.newer_than(age);
        }
        let order = self.order.unwrap_or_default();
        if order == Order::Newest {
            list = list.newest_first();
        }
        if let Some(cursor) = &self.cursor {
            list = cursor.read(order)?.list(list);
        }
        Ok(list.limit(limit + 1))
    }
}

/// Find messages of the inbox
#[utoipa::path(
    get, path = "/v1/inbox", tag = TAG_INBOX, operation_id = "listInbox",
    params(Search),
    responses((status = 200, description = "A page of messages", body = Page<InboxMessageShown>))
)]
pub(super) async fn list(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Query(search): Query<Search>,
) -> Result<Json<Page<InboxMessageShown>>, Problem> {
    let Limit(limit) = search.limit.unwrap_or(Limit::DEFAULT);
    let list = search.list(limit)?;
    let room = room(&app, search.store.as_ref())?;
    let order = search.order.unwrap_or_default();
    let (found, next) = page(room.inbox().list(&list).await?, limit, |last| {
        InboxCursor::after(order, &Position::of(last))
    });
    let items = found
        .into_iter()
        .map(|message| InboxMessageShown::new(message, &caller))
        .collect();
    Ok(Json(Page { items, next }))
}

/// Look at a message of the inbox
#[utoipa::path(
    get, path = "/v1/inbox/{source}/{message_id}", tag = TAG_INBOX, operation_id = "getInbox",
    params(
        ("source" = String, Path, description = "Who sent it"),
        ("message_id" = String, Path, description = "The sender's own id of it"),
        Store,
    ),
    responses((status = 200, description = "The message", body = InboxMessageShown))
)]
pub(super) async fn show(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Key(source, message_id): Key,
    Query(store): Query<Store>,
) -> Result<Json<InboxMessageShown>, Problem> {
    let inbox = store.room(&app)?.inbox();
    let message = inbox.get(&InboxMessageId::new(source, message_id)).await?;
    let message = message.ok_or_else(|| Problem::not_found("message"))?;
    Ok(Json(InboxMessageShown::new(message, &caller)))
}

/// Which dead messages: those named, or all that have been dead for some time (`0s` for all), perhaps of
/// one source or topic only.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"messages": [{"source": "stripe", "message_id": "evt_1"}]}))]
pub(super) struct InboxSelection {
    #[schema(min_items = 1, max_items = 1000)]
    messages: Option<Vec<Sender>>,
    older_than: Option<Age>,
    source: Option<Name>,
    topic: Option<Name>,
    /// Changes nothing, and says what would be changed.
    #[serde(default)]
    dry_run: bool,
}

/// What was revived, or would have been.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Revived {
    /// Whether this was only asked for, and nothing was changed.
    dry_run: bool,
    /// How many messages.
    count: u64,
}

enum Chosen {
    Keys(Vec<InboxMessageId>),
    Matching(DeadFilter, String),
}

impl InboxSelection {
    fn read(self) -> Result<(Chosen, bool), Problem> {
        let unprocessable =
            |text, param| Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text).param(param));
        let narrowed = self.source.is_some() || self.topic.is_some();
        let chosen = match (self.messages, self.older_than) {
            (Some(_), Some(_)) => {
                return unprocessable("give `messages` or `older_than`, not both", "older_than");
            }
            (Some(_), None) if narrowed => {
                return unprocessable("`source` and `topic` go with `older_than`", "messages");
            }
            (None, None) => {
                return unprocessable("give `messages`, or `older_than`: 0s means all", "messages");
            }
            (Some(keys), None) if keys.is_empty() || keys.len() > AT_ONCE => {
                let text = format!("expected 1 to {AT_ONCE} messages, got {}", keys.len());
                return Err(Problem::bad("messages", text));
            }
            (Some(keys), None) => {
                Chosen::Keys(keys.into_iter().map(InboxMessageId::from).collect())
            }
            (None, Some(Age(age))) => {
                let mut filter = DeadFilter::all().older_than(age);
                let mut subject = format!("older_than={}s", age.as_secs());
                if let Some(Name(topic)) = self.topic {
                    subject = format!("topic={topic} {subject}");
                    filter = filter.topic(topic);
                }
                if let Some(Name(source)) = self.source {
                    subject = format!("source={source} {subject}");
                    filter = filter.source(source);
                }
                Chosen::Matching(filter, subject)
            }
        };
        Ok((chosen, self.dry_run))
    }
}

impl Chosen {
    /// For the audit trail: what it was about, and how that was chosen.
    fn described(&self) -> (String, Option<String>) {
        match self {
            Self::Keys(keys) if keys.len() == 1 => (keys[0].to_string(), None),
            Self::Keys(keys) => {
                let all: Vec<String> = keys.iter().map(ToString::to_string).collect();
                (format!("{} messages", keys.len()), Some(all.join(" ")))
            }
            Self::Matching(_, subject) => (subject.clone(), None),
        }
    }
}

/// Revive dead messages of the inbox
///
/// Makes them ready again, with a fresh budget of attempts.
#[utoipa::path(
    post, path = "/v1/inbox/revive", tag = TAG_INBOX, operation_id = "reviveInbox",
    params(Store),
    request_body = InboxSelection,
    responses((status = 200, description = "What was revived, or would be", body = Revived))
)]
pub(super) async fn revive(
    Operator(caller): Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    Body(selection): Body<InboxSelection>,
) -> Result<Json<Revived>, Problem> {
    let (chosen, dry_run) = selection.read()?;
    let room = store.room(&app)?;
    let inbox = room.inbox();
    if dry_run {
        let count = foresee(&inbox, chosen).await?;
        return Ok(Json(Revived { dry_run, count }));
    }
    to_the_end(async move {
        let (subject, detail) = chosen.described();
        let count = revive_all(&inbox, chosen).await?;
        audit::record(&room, &caller, "inbox.revive", &subject, count, detail).await?;
        Ok(Json(Revived { dry_run, count }))
    })
    .await
}

async fn foresee(inbox: &Inbox, chosen: Chosen) -> Result<u64, Problem> {
    match chosen {
        Chosen::Keys(keys) => {
            let mut count = 0;
            for key in &keys {
                let message = inbox.get(key).await?;
                count +=
                    u64::from(message.is_some_and(|message| message.state == InboxState::Dead));
            }
            Ok(count)
        }
        Chosen::Matching(filter, _) => Ok(inbox.count_dead(&filter).await?),
    }
}

async fn revive_all(inbox: &Inbox, chosen: Chosen) -> Result<u64, Problem> {
    match chosen {
        Chosen::Keys(keys) => Ok(inbox.revive(&keys).await? as u64),
        Chosen::Matching(filter, _) => Ok(inbox.revive_matching(&filter).await?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_path_is_one_part_of_it() {
        let store = Store {
            store: Some(Name("a b".to_owned())),
        };
        assert_eq!(
            place("a/b c", "é+", &store),
            "/v1/inbox/a%2Fb%20c/%C3%A9%2B?store=a+b"
        );
    }
}
