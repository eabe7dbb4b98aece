//! Messages as the API shows them. What they carry is for callers with that right only.

use std::collections::BTreeMap;

use postroom::{InboxMessage, InboxState, OutboxMessage, Progress, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::value::{Hash, Time};
use crate::http::Caller;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    /// Where the next page begins; `null` when this is the last one.
    #[schema(required = true)]
    pub(super) next: Option<String>,
}

/// A message of the outbox.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Message {
    /// The work item.
    id: Uuid,
    /// The message, constant over retries and replays. It equals `id` unless the sender chose another.
    message_id: Uuid,
    #[schema(example = "order.created")]
    topic: String,
    state: StateName,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Time>,
    #[serde(flatten)]
    progress: ProgressShown,
    #[serde(flatten)]
    content: Content,
}

/// A message of the inbox.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InboxMessage)]
pub(super) struct InboxMessageShown {
    #[schema(example = "stripe")]
    source: String,
    #[schema(example = "evt_1")]
    message_id: String,
    /// The work item, once it was enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    work_item_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    state: InboxStateName,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    first_seen: Time,
    last_seen: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<Hash>,
    #[serde(flatten)]
    progress: ProgressShown,
    #[serde(flatten)]
    content: Content,
}

/// Attempts, lease and outcome.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Progress)]
pub(super) struct ProgressShown {
    /// How many times it was handed back, deferrals included.
    attempt_count: u32,
    /// How many of those were "not ready yet".
    deferral_count: u32,
    /// How many times it was claimed.
    delivery_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locked_until: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processed_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processed_by: Option<String>,
}

/// What a message carries, or that it may not be seen.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Content {
    /// Absent when the caller may not see payloads, or when it is not kept any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// Absent when the caller may not see payloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
    /// Whether payload and headers are left out because the caller may not see them.
    payload_hidden: bool,
}

/// Where a message of the outbox stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = State)]
pub(super) enum StateName {
    Ready,
    InFlight,
    Done,
    Dead,
}

/// Where a message of the inbox stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = InboxState)]
pub(super) enum InboxStateName {
    Seen,
    Processing,
    Done,
    Dead,
}

impl Message {
    pub(super) fn new(message: OutboxMessage, caller: &Caller) -> Self {
        Self {
            id: message.id.as_uuid(),
            message_id: message.message_id.as_uuid(),
            topic: message.topic,
            state: message.state.into(),
            correlation_id: message.correlation_id,
            created_at: Time(message.created_at),
            due_at: message.due_time.map(Time),
            progress: message.progress.into(),
            content: Content::new(Some(message.payload), message.headers, caller),
        }
    }
}

impl InboxMessageShown {
    pub(super) fn new(message: InboxMessage, caller: &Caller) -> Self {
        Self {
            source: message.id.source,
            message_id: message.id.message_id,
            work_item_id: message.work_item_id.map(Uuid::from),
            topic: message.topic,
            state: message.state.into(),
            correlation_id: message.correlation_id,
            first_seen: Time(message.first_seen),
            last_seen: Time(message.last_seen),
            due_at: message.due_time.map(Time),
            hash: message.hash.map(Hash),
            progress: message.progress.into(),
            content: Content::new(message.payload, message.headers, caller),
        }
    }
}

impl Content {
    fn new(payload: Option<String>, headers: BTreeMap<String, String>, caller: &Caller) -> Self {
        let visible = caller.sees_payloads;
        Self {
            payload: payload.filter(|_| visible),
            headers: visible.then_some(headers),
            payload_hidden: !visible,
        }
    }
}

impl From<Progress> for ProgressShown {
    fn from(progress: Progress) -> Self {
        Self {
            attempt_count: progress.attempt_count,
            deferral_count: progress.deferral_count,
            delivery_count: progress.delivery_count,
            next_attempt_at: progress.next_attempt_at.map(Time),
            locked_until: progress.locked_until.map(Time),
            last_attempt_at: progress.last_attempt_at.map(Time),
            last_error: progress.last_error,
            processed_at: progress.processed_at.map(Time),
            processed_by: progress.processed_by,
        }
    }
}

impl From<State> for StateName {
    fn from(state: State) -> Self {
        match state {
            State::Ready => Self::Ready,
            State::InFlight => Self::InFlight,
            State::Done => Self::Done,
            State::Dead => Self::Dead,
        }
    }
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Ready => Self::Ready,
            StateName::InFlight => Self::InFlight,
            StateName::Done => Self::Done,
            StateName::Dead => Self::Dead,
        }
    }
}

impl From<InboxState> for InboxStateName {
    fn from(state: InboxState) -> Self {
        match state {
            InboxState::Seen => Self::Seen,
            InboxState::Processing => Self::Processing,
            InboxState::Done => Self::Done,
            InboxState::Dead => Self::Dead,
        }
    }
}

impl From<InboxStateName> for InboxState {
    fn from(name: InboxStateName) -> Self {
        match name {
            InboxStateName::Seen => Self::Seen,
            InboxStateName::Processing => Self::Processing,
            InboxStateName::Done => Self::Done,
            InboxStateName::Dead => Self::Dead,
        }
    }
}
