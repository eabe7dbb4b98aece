//! Messages: what a caller enqueues, and what the queues give back.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::id::{InboxMessageId, JoinId, MessageId, OwnerToken, WorkItemId};
use crate::observe::TraceContext;
use crate::observe::trace::Headers;
use crate::sql::Row;

/// Topics, sources, message ids, correlation ids and grouping keys have at most this many characters.
pub(crate) const NAME_LIMIT: usize = 255;

/// A message on its way into the outbox. Nothing is checked until it is enqueued; then everything is,
/// before anything is written.
///
/// ```
/// use postroom::Message;
///
/// let message = Message::new("order.created", r#"{"id":7}"#)
///     .correlation("req-42")
///     .header("content-type", "application/json");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) due_at: Option<SystemTime>,
    pub(crate) id: Option<WorkItemId>,
    pub(crate) message_id: Option<MessageId>,
    pub(crate) joins: Vec<JoinId>,
}

impl Message {
    /// A message for the handlers of `topic`. The payload is any text, the empty one too.
    pub fn new(topic: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            payload: payload.into(),
            headers: BTreeMap::new(),
            correlation_id: None,
            due_at: None,
            id: None,
            message_id: None,
            joins: Vec::new(),
        }
    }

    /// A message whose payload is `value` as JSON.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn json(topic: impl Into<String>, value: &impl Serialize) -> Result<Self, Error> {
        let payload = serde_json::to_string(value).map_err(|_| {
            ErrorKind::InvalidArgument { param: "payload" }
                .with("the value cannot be written as JSON")
        })?;
        Ok(Self::new(topic, payload))
    }

    /// Ties messages together, or to a request. An empty one counts as none.
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation_id = Some(id.to_string());
        self
    }

    /// Holds the message back until the database's clock has passed `time`. A time in the past means
    /// now.
    #[must_use]
    pub fn due_at(mut self, time: SystemTime) -> Self {
        self.due_at = Some(time);
        self
    }

    /// Adds a header: something small about the message that is not its content.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Chooses the work item id. Enqueueing the same id twice is refused while the first is unfinished,
    /// so a caller who does not know whether an enqueue was committed can try again.
    #[must_use]
    pub fn id(mut self, id: WorkItemId) -> Self {
        self.id = Some(id);
        self
    }

    /// Chooses the message id; by default it is the work item id.
    #[must_use]
    pub fn message_id(mut self, id: MessageId) -> Self {
        self.message_id = Some(id);
        self
    }

    /// Makes the message a step of a join, in the same transaction. May be called for several joins.
    #[must_use]
    pub fn join(mut self, join: JoinId) -> Self {
        self.joins.push(join);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name("topic", &self.topic, NAME_LIMIT)?;
        check_text("payload", &self.payload)?;
        check_optional_name("correlation_id", self.correlation_id.as_deref())?;
        check_headers(&self.headers)?;
        if let Some(id) = self.id {
            id.checked("id")?;
        }
        if let Some(id) = self.message_id {
            id.checked("message_id")?;
        }
        for join in &self.joins {
            join.checked("join")?;
        }
        check_due(self.due_at)
    }
}

/// The payload never shows.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("correlation_id", &self.correlation_id)
            .field("due_at", &self.due_at)
            .finish_non_exhaustive()
    }
}

/// What an enqueue gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The row in the work queue.
    pub work_item_id: WorkItemId,
    /// The message, for joins and for idempotent handlers.
    pub message_id: MessageId,
}

/// Where an outbox message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Waiting: for its due time, for its next attempt, or just for a worker.
    Ready,
    /// Leased by a worker, by the database's clock.
    InFlight,
    /// Acked.
    Done,
    /// Failed for good, until an operator replays or purges it.
    Dead,
}

impl State {
    fn from_code(code: i64) -> Self {
        match code {
            1 => Self::InFlight,
            2 => Self::Done,
            3 => Self::Dead,
            _ => Self::Ready,
        }
    }
}

/// How many outbox messages stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// See [`State::Ready`].
    pub ready: u64,
    /// See [`State::InFlight`].
    pub in_flight: u64,
    /// Done and still in the archive.
    pub done: u64,
    /// See [`State::Dead`].
    pub dead: u64,
}

/// What the two queues keep about a work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many times it was abandoned, deferrals included.
    pub attempt_count: u32,
    /// How many of those were "not ready yet", which uses up no attempt.
    pub deferral_count: u32,
    /// How many times it was claimed.
    pub delivery_count: u32,
    /// When it is claimable next; `None` once it is done or dead.
    pub next_attempt_at: Option<SystemTime>,
    /// Until when it is leased.
    pub locked_until: Option<SystemTime>,
    /// Who leased it.
    pub owner_token: Option<OwnerToken>,
    /// When it was last abandoned.
    pub last_attempt_at: Option<SystemTime>,
    /// What went wrong last: at most 2 KiB.
    pub last_error: Option<String>,
    /// When it was acked or failed.
    pub processed_at: Option<SystemTime>,
    /// By which worker.
    pub processed_by: Option<String>,
}

/// A message of the outbox as the database has it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxMessage {
    /// The work item: what to ack, abandon or fail.
    pub id: WorkItemId,
    /// The message, constant over retries and replays.
    pub message_id: MessageId,
    /// Which handler it is for; compared exactly.
    pub topic: String,
    /// The content.
    pub payload: String,
    /// Small facts about it.
    pub headers: BTreeMap<String, String>,
    /// What ties it to others.
    pub correlation_id: Option<String>,
    /// When it was enqueued, by the database's clock.
    pub created_at: SystemTime,
    /// The due time that the caller gave.
    pub due_time: Option<SystemTime>,
    /// Where it stands.
    pub state: State,
    /// Attempts, lease and outcome.
    pub progress: Progress,
}

impl OutboxMessage {
    /// Whether it was acked.
    #[must_use]
    pub fn is_processed(&self) -> bool {
        self.state == State::Done
    }

    /// Reads the columns `{returned}`: a message that was just claimed.
    pub(crate) fn claimed(mut row: Row) -> Result<Self, Error> {
        Self::read(&mut row)
    }

    /// Reads the columns `{shown}`: a message in any state.
    pub(crate) fn shown(mut row: Row) -> Result<Self, Error> {
        let mut message = Self::read(&mut row)?;
        message.progress.processed_at = row.optional_int()?.map(time);
        message.progress.processed_by = row.optional_text()?;
        message.state = State::from_code(row.int()?);
        Ok(message)
    }

    fn read(row: &mut Row) -> Result<Self, Error> {
        Ok(Self {
            id: row.uuid()?.into(),
            message_id: row.uuid()?.into(),
            topic: row.text()?,
            payload: row.text()?,
            headers: headers_from(row.optional_text()?),
            correlation_id: row.optional_text()?,
            created_at: time(row.int()?),
            due_time: row.optional_int()?.map(time),
            state: State::InFlight,
            progress: progress(row)?,
        })
    }
}

impl std::fmt::Debug for OutboxMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxMessage")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("correlation_id", &self.correlation_id)
            .field("state", &self.state)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

/// Where an inbox message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InboxState {
    /// Its arrival was recorded; it was not enqueued.
    Seen,
    /// Enqueued or being processed.
    Processing,
    /// Processed: every further arrival is a duplicate.
    Done,
    /// Failed for good, until it is revived or purged.
    Dead,
}

impl InboxState {
    fn from_code(code: i64) -> Self {
        match code {
            2 => Self::Done,
            3 => Self::Dead,
            4 => Self::Seen,
            _ => Self::Processing,
        }
    }
}

/// How many inbox messages stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InboxCounts {
    /// See [`InboxState::Seen`].
    pub seen: u64,
    /// See [`InboxState::Processing`].
    pub processing: u64,
    /// See [`InboxState::Done`].
    pub done: u64,
    /// See [`InboxState::Dead`].
    pub dead: u64,
}

/// A message of the inbox as the database has it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxMessage {
    /// The work item, once it was enqueued.
    pub work_item_id: Option<WorkItemId>,
    /// Source and message id: what makes it itself.
    pub id: InboxMessageId,
    /// Which handler it is for; `None` until it is enqueued.
    pub topic: Option<String>,
    /// The content; `None` until it is enqueued, and again when the archive has let it go.
    pub payload: Option<String>,
    /// Small facts about it.
    pub headers: BTreeMap<String, String>,
    /// What ties it to others.
    pub correlation_id: Option<String>,
    /// A hash of its content, as the caller gave it.
    pub hash: Option<Vec<u8>>,
    /// When it first arrived, by the database's clock.
    pub first_seen: SystemTime,
    /// When it last arrived.
    pub last_seen: SystemTime,
    /// The due time that the caller gave.
    pub due_time: Option<SystemTime>,
    /// Where it stands.
    pub state: InboxState,
    /// Attempts, lease and outcome.
    pub progress: Progress,
}

impl InboxMessage {
    pub(crate) fn claimed(mut row: Row) -> Result<Self, Error> {
        Self::read(&mut row)
    }

    pub(crate) fn shown(mut row: Row) -> Result<Self, Error> {
        let mut message = Self::read(&mut row)?;
        message.progress.processed_at = row.optional_int()?.map(time);
        message.progress.processed_by = row.optional_text()?;
        message.state = InboxState::from_code(row.int()?);
        Ok(message)
    }

    fn read(row: &mut Row) -> Result<Self, Error> {
        let work_item_id = row.optional_uuid()?.map(WorkItemId::from);
        let id = InboxMessageId {
            source: row.text()?,
            message_id: row.text()?,
        };
        let topic = row.optional_text()?;
        let payload = row.optional_text()?;
        let headers = headers_from(row.optional_text()?);
        let correlation_id = row.optional_text()?;
        let created_at = row.int()?;
        let due_time = row.optional_int()?.map(time);
        let progress = progress(row)?;
        let hash = row.optional_bytes()?;
        Ok(Self {
            work_item_id,
            id,
            topic,
            payload,
            headers,
            correlation_id,
            hash,
            // A message whose arrival was forgotten by retention still says when it was enqueued.
            first_seen: time(row.optional_int()?.unwrap_or(created_at)),
            last_seen: time(row.optional_int()?.unwrap_or(created_at)),
            due_time,
            state: InboxState::Processing,
            progress,
        })
    }
}

impl std::fmt::Debug for InboxMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxMessage")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.as_ref().map(String::len))
            .field("state", &self.state)
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

/// `next_attempt_at` to `last_error`, as they stand in `{returned}`.
fn progress(row: &mut Row) -> Result<Progress, Error> {
    let next_attempt_at = row.optional_int()?.map(time);
    let locked_until = row.optional_int()?.map(time);
    let owner_token = row.optional_uuid()?.map(OwnerToken::from);
    Ok(Progress {
        next_attempt_at,
        locked_until,
        owner_token,
        attempt_count: row.small()?,
        deferral_count: row.small()?,
        delivery_count: row.small()?,
        last_attempt_at: row.optional_int()?.map(time),
        last_error: row.optional_text()?,
        processed_at: None,
        processed_by: None,
    })
}

/// The database's microseconds as a time.
pub(crate) fn time(micros: i64) -> SystemTime {
    let distance = Duration::from_micros(micros.unsigned_abs());
    if micros >= 0 {
        UNIX_EPOCH + distance
    } else {
        UNIX_EPOCH - distance
    }
}

/// A time as the database's microseconds.
pub(crate) fn micros(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros)
        }
    }
}

/// Headers as they are stored, with the trace that the message is enqueued in: a JSON object, or
/// nothing.
pub(crate) fn headers_text(
    headers: &BTreeMap<String, String>,
    trace: Option<TraceContext>,
) -> Option<String> {
    let headers = Headers::new(headers, trace);
    if headers.is_empty() {
        None
    } else {
        serde_json::to_string(&headers).ok()
    }
}

/// Headers that somebody else wrote may be anything; what is no object of texts is no header.
fn headers_from(text: Option<String>) -> BTreeMap<String, String> {
    text.and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

/// A name must not be empty, too long, or hold a NUL.
pub(crate) fn check_name(param: &'static str, name: &str, limit: usize) -> Result<(), Error> {
    if name.is_empty() {
        return Err(ErrorKind::InvalidArgument { param }.with("must not be empty"));
    }
    check_length(param, name, limit)?;
    check_text(param, name)
}

/// An optional name: the empty one counts as none.
pub(crate) fn check_optional_name(param: &'static str, name: Option<&str>) -> Result<(), Error> {
    let name = name.unwrap_or_default();
    check_length(param, name, NAME_LIMIT)?;
    check_text(param, name)
}

fn check_length(param: &'static str, name: &str, limit: usize) -> Result<(), Error> {
    if name.len() > limit {
        let characters = name.chars().count();
        if characters > limit {
            return Err(ErrorKind::InvalidArgument { param }.with(format!(
                "has {characters} characters, at most {limit} are allowed"
            )));
        }
    }
    Ok(())
}

/// PostgreSQL cannot hold NUL in text, so nobody may.
pub(crate) fn check_text(param: &'static str, text: &str) -> Result<(), Error> {
    if text.as_bytes().contains(&0) {
        return Err(ErrorKind::InvalidArgument { param }.with("must not contain a NUL character"));
    }
    Ok(())
}

pub(crate) fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), Error> {
    headers.iter().try_for_each(|(name, value)| {
        check_name("headers", name, NAME_LIMIT)?;
        check_text("headers", value)
    })
}

/// Both databases can hold any time from the year 1 to the year 9999.
pub(crate) fn check_due(due: Option<SystemTime>) -> Result<(), Error> {
    due.map_or(Ok(()), |due| check_time("due_at", due).map(drop))
}

/// A time as the database's microseconds, when it can hold it.
pub(crate) fn check_time(param: &'static str, time: SystemTime) -> Result<i64, Error> {
    check_micros(param, micros(time))
}

/// Whether a database can hold this time, in microseconds since 1970.
pub(crate) fn check_micros(param: &'static str, micros: i64) -> Result<i64, Error> {
    const EARLIEST: i64 = -62_135_596_800_000_000;
    const LATEST: i64 = 253_402_300_799_000_000;
    if !(EARLIEST..=LATEST).contains(&micros) {
        return Err(ErrorKind::OutOfRange { param }.with("must lie between the years 1 and 9999"));
    }
    Ok(micros)
}
