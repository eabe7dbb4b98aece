//! The outbox seen by a transport: save an envelope with its destination, load what is pending, mark
//! what became of it.
//!
//! The states are named as transports name them: pending, processing, dispatched, failed (will be
//! retried) and poisoned. Beneath, it is the same queue: loading is a claim, so two dispatchers never
//! get the same message, and a mark counts only while its lease is held.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, ErrorKind};
use crate::id::{OwnerToken, WorkItemId};
use crate::message::{Message, NAME_LIMIT, OutboxMessage, State, check_name};
use crate::outbox::Outbox;
use crate::room::Postroom;
use crate::store::Abandon;
use crate::transport::{Endpoint, Envelope};
use crate::tx::Executor;

const DESTINATION: &str = "postroom-destination";
const MESSAGE_ID: &str = "postroom-message-id";
const MESSAGE_TYPE: &str = "postroom-message-type";
const ENCODING: &str = "postroom-content-encoding";

/// The outbox of a store as transports see it. Clones share what they have loaded.
#[derive(Clone)]
pub struct TransportOutbox {
    outbox: Outbox,
    lease: Duration,
    /// Who holds what was loaded, and since when. An id that is not here is unknown.
    held: Arc<Mutex<HashMap<WorkItemId, (OwnerToken, Instant)>>>,
}

impl TransportOutbox {
    pub(crate) fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            lease: Duration::from_secs(30),
            held: Arc::default(),
        }
    }

    /// How long a loaded message is ours, 30 seconds by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Saves an envelope in the caller's transaction, which is not committed here.
    ///
    /// # Errors
    /// When destination or envelope is not valid, and when the client reports an error.
    pub async fn save<E: Executor>(
        &self,
        tx: &mut E,
        destination: &Endpoint,
        envelope: &Envelope,
    ) -> Result<String, E::Error> {
        let receipt = self
            .outbox
            .enqueue_in(tx, &to_message(destination, envelope)?)
            .await?;
        Ok(receipt.work_item_id.to_string())
    }

    /// Saves envelopes in the caller's transaction: all of them or none.
    ///
    /// # Errors
    /// As [`TransportOutbox::save`].
    pub async fn save_batch<E: Executor>(
        &self,
        tx: &mut E,
        envelopes: &[(Endpoint, Envelope)],
    ) -> Result<Vec<String>, E::Error> {
        let messages = envelopes
            .iter()
            .map(|(to, envelope)| to_message(to, envelope))
            .collect::<Result<Vec<_>, _>>()?;
        let receipts = self.outbox.enqueue_many_in(tx, &messages).await?;
        Ok(receipts
            .into_iter()
            .map(|receipt| receipt.work_item_id.to_string())
            .collect())
    }

    /// Leases up to `batch` messages that are ready for dispatch (new ones, and failed ones whose time
    /// has come), oldest first. 100 is a usual batch.
    ///
    /// # Errors
    /// When `batch` is zero or beyond its limit.
    pub async fn load_pending(&self, batch: usize) -> Result<Vec<TransportMessage>, Error> {
        let owner = OwnerToken::new();
        let mut messages = self.outbox.claim(owner, self.lease, batch).await?;
        messages.sort_by_key(|message| (message.created_at, message.id));
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody marked for so long has long been loaded by another.
        let now = Instant::now();
        held.retain(|_, (_, loaded)| now.duration_since(*loaded) < self.lease * 10);
        held.extend(messages.iter().map(|message| (message.id, (owner, now))));
        drop(held);
        let messages = messages.into_iter();
        Ok(messages
            .map(|message| TransportMessage::from_outbox(message, Some(owner)))
            .collect())
    }

    /// Says that a message was published. An unknown id changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_dispatched(&self, message: impl Into<Loaded<'_>>) -> Result<(), Error> {
        let Some((id, owner)) = self.held(message.into()) else {
            return Ok(());
        };
        self.outbox.ack(owner, &[id]).await?;
        self.release(id, owner);
        Ok(())
    }

    /// Says that a message could not be published, and when to try again: after `retry_after`, by the
    /// database's clock, or at once. An unknown id changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_failed(
        &self,
        message: impl Into<Loaded<'_>>,
        error: &str,
        retry_after: Option<Duration>,
    ) -> Result<(), Error> {
        let Some((id, owner)) = self.held(message.into()) else {
            return Ok(());
        };
        let how = Abandon::after(retry_after.unwrap_or_default()).error(error);
        self.outbox.abandon(owner, &[id], how).await?;
        self.release(id, owner);
        Ok(())
    }

    /// Gives a message up. An unknown id changes nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_poisoned(
        &self,
        message: impl Into<Loaded<'_>>,
        error: &str,
    ) -> Result<(), Error> {
        let Some((id, owner)) = self.held(message.into()) else {
            return Ok(());
        };
        self.outbox.fail(owner, &[id], error).await?;
        self.release(id, owner);
        Ok(())
    }

    /// Deletes dispatched messages that were processed before `older_than`, and says how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn cleanup_dispatched(&self, older_than: SystemTime) -> Result<u64, Error> {
        self.outbox.cleanup_before(older_than).await
    }

    /// One message, in whatever state it is.
    ///
    /// # Errors
    /// When the id is not one of ours, and when the database fails.
    pub async fn get(&self, id: &str) -> Result<Option<TransportMessage>, Error> {
        Ok(self
            .outbox
            .get(id.parse()?)
            .await?
            .map(|message| TransportMessage::from_outbox(message, None)))
    }

    /// The store behind it.
    pub(super) fn room(&self) -> Postroom {
        Postroom {
            store: Arc::clone(&self.outbox.store),
            key: None,
        }
    }

    pub(super) fn lease_time(&self) -> Duration {
        self.lease
    }

    fn held(&self, message: Loaded<'_>) -> Option<(WorkItemId, OwnerToken)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            Loaded::Message(message) => Some((message.id.parse().ok()?, message.owner?)),
            Loaded::Id(id) => {
                let id: WorkItemId = id.parse().ok()?;
                held.get(&id).map(|(owner, _)| (id, *owner))
            }
        }
    }

    /// Somebody else may have loaded it meanwhile: his entry stays.
    fn release(&self, id: WorkItemId, owner: OwnerToken) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.get(&id).is_some_and(|(holder, _)| *holder == owner) {
            held.remove(&id);
        }
    }
}

/// Which loaded message a mark is about.
#[derive(Debug, Clone, Copy)]
pub enum Loaded<'a> {
    /// The message as it was loaded: whoever loaded it before, or after, is not meant.
    Message(&'a TransportMessage),
    /// Whoever loaded the message with this id last, here.
    Id(&'a str),
}

impl<'a> From<&'a TransportMessage> for Loaded<'a> {
    fn from(message: &'a TransportMessage) -> Self {
        Self::Message(message)
    }
}

impl<'a> From<&'a str> for Loaded<'a> {
    fn from(id: &'a str) -> Self {
        Self::Id(id)
    }
}

impl<'a> From<&'a String> for Loaded<'a> {
    fn from(id: &'a String) -> Self {
        Self::Id(id)
    }
}

/// A message of the outbox as transports see it: a copy, so whatever is done to it, the outbox stays as
/// it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportMessage {
    /// The work item id, as text.
    pub id: String,
    /// Where it goes.
    pub destination: Endpoint,
    /// What is sent.
    pub envelope: Envelope,
    /// Where it stands.
    pub state: OutboxState,
    /// How often publishing has failed.
    pub attempts: u32,
    /// When it was saved.
    pub created_at: SystemTime,
    /// When it was last dispatched, failed or poisoned.
    pub processed_at: Option<SystemTime>,
    /// When it is tried next: its due time, or after a failure the time of the retry.
    pub scheduled_at: Option<SystemTime>,
    /// What went wrong last.
    pub error_message: Option<String>,
    /// Under which token it was loaded, if it was.
    owner: Option<OwnerToken>,
}

/// Where a message stands, in a transport's words. The numbers are those of other languages.
///
/// ```
/// use postroom::transport::OutboxState;
///
/// assert_eq!(OutboxState::Failed.number(), 3);
/// assert_eq!(OutboxState::try_from(4)?, OutboxState::Poisoned);
/// # Ok::<(), postroom::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutboxState {
    /// Waiting to be dispatched.
    Pending = 0,
    /// Loaded by a dispatcher.
    Processing = 1,
    /// Published.
    Dispatched = 2,
    /// Not published, will be tried again.
    Failed = 3,
    /// Given up.
    Poisoned = 4,
}

impl OutboxState {
    /// All of them, by number.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Processing,
        Self::Dispatched,
        Self::Failed,
        Self::Poisoned,
    ];

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u8> for OutboxState {
    type Error = Error;

    fn try_from(number: u8) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|state| state.number() == number);
        known.ok_or_else(|| {
            ErrorKind::OutOfRange { param: "state" }.with(format!("expected 0 to 4, got {number}"))
        })
    }
}

impl TransportMessage {
    /// A pending message that no store has seen, for code that takes messages and wants to be tried out.
    /// What is not given here is what nothing has happened to yet; it was saved in 1970.
    pub fn new(id: impl Into<String>, destination: Endpoint, envelope: Envelope) -> Self {
        Self {
            id: id.into(),
            destination,
            envelope,
            state: OutboxState::Pending,
            attempts: 0,
            created_at: SystemTime::UNIX_EPOCH,
            processed_at: None,
            scheduled_at: None,
            error_message: None,
            owner: None,
        }
    }

    pub(super) fn from_outbox(message: OutboxMessage, owner: Option<OwnerToken>) -> Self {
        let state = match message.state {
            State::Ready if message.progress.attempt_count > 0 => OutboxState::Failed,
            State::Ready => OutboxState::Pending,
            State::InFlight => OutboxState::Processing,
            State::Done => OutboxState::Dispatched,
            State::Dead => OutboxState::Poisoned,
        };
        let attempts = message.progress.attempt_count;
        let scheduled_at = if attempts > 0 {
            message.progress.next_attempt_at
        } else {
            message.due_time
        };
        Self {
            id: message.id.to_string(),
            state,
            attempts,
            created_at: message.created_at,
            processed_at: message
                .progress
                .processed_at
                .or(message.progress.last_attempt_at),
            scheduled_at,
            error_message: message.progress.last_error.clone(),
            destination: Endpoint {
                name: message
                    .headers
                    .get(DESTINATION)
                    .cloned()
                    .unwrap_or_else(|| message.topic.clone()),
                address: message.topic.clone(),
            },
            envelope: to_envelope(message),
            owner,
        }
    }
}

/// The bytes as they are when they are text, else as base64.
fn to_message(destination: &Endpoint, envelope: &Envelope) -> Result<Message, Error> {
    check_name("destination", &destination.address, NAME_LIMIT)?;
    check_name("message_id", &envelope.message_id, NAME_LIMIT)?;
    check_name("message_type", &envelope.message_type, NAME_LIMIT)?;
    if let Some(name) = envelope
        .headers
        .keys()
        .find(|name| name.starts_with("postroom-"))
    {
        return Err(ErrorKind::InvalidArgument { param: "headers" }
            .with(format!("`{name}` is a name of ours")));
    }
    let text = std::str::from_utf8(&envelope.payload)
        .ok()
        .filter(|text| !text.contains('\0'));
    let payload = text.map_or_else(|| STANDARD.encode(&envelope.payload), str::to_owned);
    let mut message = Message::new(&destination.address, payload)
        .header(DESTINATION, &destination.name)
        .header(MESSAGE_ID, &envelope.message_id)
        .header(MESSAGE_TYPE, &envelope.message_type);
    if text.is_none() {
        message = message.header(ENCODING, "base64");
    }
    message.headers.extend(envelope.headers.clone());
    Ok(message)
}

/// What does not decode was written by somebody else: it is handed on as it is, because one message
/// must not keep a batch from being loaded.
fn to_envelope(message: OutboxMessage) -> Envelope {
    let mut headers: BTreeMap<String, String> = message.headers;
    headers.remove(DESTINATION);
    let message_id = headers
        .remove(MESSAGE_ID)
        .unwrap_or_else(|| message.message_id.to_string());
    let message_type = headers
        .remove(MESSAGE_TYPE)
        .unwrap_or_else(|| message.topic.clone());
    let payload = match headers.remove(ENCODING).as_deref() {
        Some("base64") => STANDARD
            .decode(&message.payload)
            .unwrap_or_else(|_| message.payload.into_bytes()),
        _ => message.payload.into_bytes(),
    };
    Envelope {
        message_id,
        message_type,
        payload,
        headers,
    }
}
