//! Messages of the outbox: enqueue them, find them.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{FromRequestParts, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroom::{ErrorKind, JoinId, List, MessageId, Once, Receipt, State, WorkItemId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::cursor::{Cursor, Of, Order, page};
use super::read::{Body, Id, Query};
use super::shown::{Message, Page, StateName};
use super::value::{Age, Headers, Limit, Name, Payload, Reference, Time};
use super::{Store, TAG_MESSAGES, room};
use crate::age;
use crate::http::{App, Operator, Problem, Viewer};

/// Messages in one batch at most.
const BATCH: usize = 1_000;

/// A message to enqueue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"topic": "order.created", "payload": {"id": 7}, "correlation_id": "req-42"}))]
pub(super) struct NewMessage {
    /// Which handlers it is for.
    topic: Name,
    payload: Payload,
    /// Ties messages together, or to a request.
    #[schema(max_length = 255, pattern = "^[^\\u0000]*$")]
    correlation_id: Option<String>,
    /// Small facts about the message that are not its content.
    headers: Option<Headers>,
    /// Holds the message back until the database's clock has passed this time.
    due_at: Option<Time>,
    /// The same as a delay from now on, by the daemon's clock. Not together with `due_at`.
    delay: Option<Age>,
    /// Chooses the message id.
    message_id: Option<Reference>,
    /// Makes the message a step of this join, in the same transaction.
    join_id: Option<Reference>,
}

impl NewMessage {
    fn read(self) -> Result<postroom::Message, Problem> {
        let mut message = postroom::Message::new(self.topic.0, self.payload.0);
        if let Some(id) = self.correlation_id {
            message = message.correlation(id);
        }
        for (name, value) in self.headers.unwrap_or_default().0 {
            message = message.header(name, value);
        }
        if let Some(due) = due(self.due_at, self.delay)? {
            message = message.due_at(due);
        }
        if let Some(Reference(id)) = self.message_id {
            message = message.message_id(MessageId::from_uuid(id));
        }
        if let Some(Reference(id)) = self.join_id {
            message = message.join(JoinId::from_uuid(id));
        }
        Ok(message)
    }
}

/// When a message is due: at a time, or after a delay.
pub(super) fn due(at: Option<Time>, delay: Option<Age>) -> Result<Option<SystemTime>, Problem> {
    match (at, delay) {
        (Some(_), Some(_)) => Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "give `due_at` or `delay`, not both",
        )
        .param("delay")),
        (Some(Time(at)), None) => Ok(Some(at)),
        (None, Some(Age(delay))) => match age::from_now(delay) {
            Ok(time) => Ok(Some(time)),
            Err(detail) => Err(Problem::bad("delay", detail)),
        },
        (None, None) => Ok(None),
    }
}

/// Many messages to enqueue.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    #[schema(min_items = 1, max_items = 1000)]
    messages: Vec<NewMessage>,
}

/// What an enqueue gives back.
#[derive(Serialize, ToSchema)]
pub(super) struct Enqueued {
    /// The work item: what to look it up by.
    id: Uuid,
    /// The message, for joins and for idempotent handlers.
    message_id: Uuid,
}

impl From<Receipt> for Enqueued {
    fn from(receipt: Receipt) -> Self {
        Self {
            id: receipt.work_item_id.into(),
            message_id: receipt.message_id.into(),
        }
    }
}

/// What a batch gives back, in the order of its messages.
#[derive(Serialize, ToSchema)]
pub(super) struct EnqueuedBatch {
    messages: Vec<Enqueued>,
}

/// Enqueue a message
///
/// When this answers, the message is committed. With an `Idempotency-Key`, sending the same request again
/// answers 200 with the first receipt, and enqueues nothing.
#[utoipa::path(
    post, path = "/v1/messages", tag = TAG_MESSAGES, operation_id = "enqueueMessage",
    params(Store, KeyHeader),
    request_body = NewMessage,
    responses(
        (status = 201, description = "It is enqueued", body = Enqueued, headers(("Location" = String, description = "Where the message is"))),
        (status = 200, description = "It was enqueued before, under the same key", body = Enqueued, headers(("Location" = String, description = "Where the message is"))),
    )
)]
pub(super) async fn enqueue(
    _: Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    IdempotencyKey(key): IdempotencyKey,
    Body(message): Body<NewMessage>,
) -> Result<Response, Problem> {
    let room = store.room(&app)?;
    if key.is_some() && message.delay.is_some() {
        return Err(Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a delay is another time in every request: with an Idempotency-Key give `due_at`",
        )
        .param("delay"));
    }
    let is_step = message.join_id.is_some();
    let message = message.read()?;
    let enqueued = match key {
        Some(key) => room.outbox().enqueue_once(&key, &message).await,
        None if is_step => room.outbox().enqueue(&message).await.map(Once::New),
        None => Ok(Once::New(app.gather.enqueue(&room, message).await?)),
    };
    let (status, receipt) = match enqueued.map_err(about_enqueue)? {
        Once::New(receipt) => (StatusCode::CREATED, receipt),
        Once::Again(receipt) => (StatusCode::OK, receipt),
    };
    let place = format!("/v1/messages/{}{}", receipt.work_item_id, store.suffix());
    Ok((
        status,
        [(header::LOCATION, place)],
        Json(Enqueued::from(receipt)),
    )
        .into_response())
}

/// Enqueue many messages
///
/// All of them in one transaction, or none. An idempotency key is for single messages only.
#[utoipa::path(
    post, path = "/v1/messages/batch", tag = TAG_MESSAGES, operation_id = "enqueueBatch",
    params(Store),
    request_body = Batch,
    responses((status = 201, description = "They are enqueued", body = EnqueuedBatch))
)]
pub(super) async fn enqueue_batch(
    _: Operator,
    Shared(app): Shared<App>,
    Query(store): Query<Store>,
    IdempotencyKey(key): IdempotencyKey,
    Body(batch): Body<Batch>,
) -> Result<Response, Problem> {
    if key.is_some() {
        return Err(Problem::bad(
            "Idempotency-Key",
            "a batch takes no idempotency key; send single messages",
        ));
    }
    let count = batch.messages.len();
    if !(1..=BATCH).contains(&count) {
        return Err(Problem::bad(
            "messages",
            format!("expected 1 to {BATCH} messages, got {count}"),
        ));
    }
    let messages = batch.messages.into_iter().map(NewMessage::read);
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let outbox = store.room(&app)?.outbox();
    let receipts = outbox
        .enqueue_many(&messages)
        .await
        .map_err(about_enqueue)?;
    let messages = receipts.into_iter().map(Enqueued::from).collect();
    Ok((StatusCode::CREATED, Json(EnqueuedBatch { messages })).into_response())
}

/// How the header of an idempotency key is described.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "it only describes the header")]
struct KeyHeader {
    /// A name for this request: sent again under the same key, it enqueues nothing.
    #[param(inline, rename = "Idempotency-Key", required = false)]
    key: Name,
}

/// What names a request, so that it can be sent again.
pub(super) struct IdempotencyKey(Option<String>);

impl FromRequestParts<App> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        const NAME: HeaderName = HeaderName::from_static("idempotency-key");
        let mut keys = parts.headers.get_all(NAME).iter();
        let Some(key) = keys.next() else {
            return Ok(Self(None));
        };
        std::str::from_utf8(key.as_bytes())
            .ok()
            .filter(|key| keys.next().is_none() && (1..=255).contains(&key.chars().count()))
            .map(|key| Self(Some(key.to_owned())))
            .ok_or_else(|| {
                Problem::bad(
                    "Idempotency-Key",
                    "expected one text of 1 to 255 characters",
                )
            })
    }
}

/// What the library calls otherwise than the API, and what depends on more than one request.
fn about_enqueue(error: postroom::Error) -> Problem {
    let unprocessable =
        |param| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).param(param);
    match error.kind() {
        ErrorKind::NotFound { what: "join" } => unprocessable("join_id"),
        ErrorKind::Conflict {
            param: "idempotency_key",
        } => unprocessable("Idempotency-Key"),
        _ => error.into(),
    }
}

/// What to look for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// Only messages in this state.
    #[param(inline)]
    state: Option<StateName>,
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
    cursor: Option<Cursor>,
    /// The store; the first one by default.
    #[param(inline)]
    store: Option<Name>,
}

impl Search {
    fn list(&self, limit: u32) -> Result<List<State>, Problem> {
        let mut list = match self.state {
            Some(state) => List::new(state.into()),
            None => List::any(),
        };
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
            list = list.after(WorkItemId::from_uuid(cursor.read(Of::Messages, order)?));
        }
        // One more than fits tells whether there is another page.
        Ok(list.limit(limit + 1))
    }
}

/// Find messages
#[utoipa::path(
    get, path = "/v1/messages", tag = TAG_MESSAGES, operation_id = "listMessages",
    params(Search),
    responses((status = 200, description = "A page of messages", body = Page<Message>))
)]
pub(super) async fn search(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Query(search): Query<Search>,
) -> Result<Json<Page<Message>>, Problem> {
    let Limit(limit) = search.limit.unwrap_or(Limit::DEFAULT);
    let list = search.list(limit)?;
    let room = room(&app, search.store.as_ref())?;
    let order = search.order.unwrap_or_default();
    let (found, next) = page(room.outbox().list(&list).await?, limit, |last| {
        Cursor::after(Of::Messages, order, last.id.into())
    });
    let items = found
        .into_iter()
        .map(|message| Message::new(message, &caller))
        .collect();
    Ok(Json(Page { items, next }))
}

/// Look at a message
#[utoipa::path(
    get, path = "/v1/messages/{id}", tag = TAG_MESSAGES, operation_id = "getMessage",
    params(("id" = Uuid, Path, description = "The work item, as an enqueue or a list gave it"), Store),
    responses((status = 200, description = "The message", body = Message))
)]
pub(super) async fn show(
    Viewer(caller): Viewer,
    Shared(app): Shared<App>,
    Id(id): Id,
    Query(store): Query<Store>,
) -> Result<Json<Message>, Problem> {
    let room = store.room(&app)?;
    let message = room.outbox().get(WorkItemId::from_uuid(id)).await?;
    let message = message.ok_or_else(|| Problem::not_found("message"))?;
    Ok(Json(Message::new(message, &caller)))
}
