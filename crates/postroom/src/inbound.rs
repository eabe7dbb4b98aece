//! What comes into the inbox and what is said of it: inbound messages, the keys they are known by, and
//! what an arrival turned out to be.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::error::Error;
use crate::id::{InboxMessageId, WorkItemId};
use crate::message::{
    NAME_LIMIT, check_due, check_headers, check_name, check_optional_name, check_text,
};

/// Which inbox messages an operation is about.
#[derive(Debug, Clone, Copy)]
pub enum InboxKeys<'a> {
    /// By work item, as a claim gave them: the fastest.
    WorkItems(&'a [WorkItemId]),
    /// By source and message id.
    Typed(&'a [InboxMessageId]),
    /// By message id alone: every source's message with that id.
    Bare(&'a [&'a str]),
}

macro_rules! inbox_keys {
    ($variant:ident, $item:ty) => {
        impl<'a> From<&'a [$item]> for InboxKeys<'a> {
            fn from(keys: &'a [$item]) -> Self {
                Self::$variant(keys)
            }
        }

        impl<'a, const N: usize> From<&'a [$item; N]> for InboxKeys<'a> {
            fn from(keys: &'a [$item; N]) -> Self {
                Self::$variant(keys)
            }
        }

        impl<'a> From<&'a Vec<$item>> for InboxKeys<'a> {
            fn from(keys: &'a Vec<$item>) -> Self {
                Self::$variant(keys)
            }
        }
    };
}

impl<'a> From<&'a InboxMessageId> for InboxKeys<'a> {
    fn from(key: &'a InboxMessageId) -> Self {
        Self::Typed(std::slice::from_ref(key))
    }
}

inbox_keys!(WorkItems, WorkItemId);
inbox_keys!(Typed, InboxMessageId);
inbox_keys!(Bare, &'a str);

/// An inbound message on its way into the inbox.
#[derive(Clone, PartialEq, Eq)]
pub struct Inbound {
    pub(crate) id: InboxMessageId,
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) hash: Option<Vec<u8>>,
    pub(crate) due_at: Option<SystemTime>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Inbound {
    /// A message with the id that `source` gave it, for the handlers of `topic`.
    pub fn new(
        source: impl Into<String>,
        message_id: impl Into<String>,
        topic: impl Into<String>,
        payload: impl Into<String>,
    ) -> Self {
        Self {
            id: InboxMessageId::new(source, message_id),
            topic: topic.into(),
            payload: payload.into(),
            hash: None,
            due_at: None,
            correlation_id: None,
            headers: BTreeMap::new(),
        }
    }

    /// A hash of the content, to notice when the same id comes with other content. Use a cryptographic
    /// hash such as SHA-256.
    #[must_use]
    pub fn hash(mut self, hash: impl Into<Vec<u8>>) -> Self {
        self.hash = Some(hash.into());
        self
    }

    /// Holds the message back until the database's clock has passed `time`.
    #[must_use]
    pub fn due_at(mut self, time: SystemTime) -> Self {
        self.due_at = Some(time);
        self
    }

    /// Ties messages together. An empty one counts as none.
    #[must_use]
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation_id = Some(id.to_string());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_id(&self.id)?;
        check_name("topic", &self.topic, NAME_LIMIT)?;
        check_text("payload", &self.payload)?;
        check_optional_name("correlation_id", self.correlation_id.as_deref())?;
        check_headers(&self.headers)?;
        check_due(self.due_at)
    }
}

/// The payload never shows.
impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbound")
            .field("id", &self.id)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// What an arrival was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// It was processed before.
    pub already_processed: bool,
    /// It came with another content hash before.
    pub hash_differs: bool,
}

/// What an enqueue did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// What the message was before.
    pub arrival: Arrival,
    /// It came with another content hash before.
    pub hash_differs: bool,
}

/// What a message that is being enqueued was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Unknown, or only seen: it is queued now.
    New,
    /// Queued or being processed: topic, payload, hash and due time are replaced; lease, attempts and
    /// backoff stay.
    Replaced,
    /// Dead: topic, payload, hash and due time are replaced, and it stays dead until it is revived.
    Dead,
    /// Done: nothing has changed.
    AlreadyDone,
}

/// Source and message id must both be names.
pub(crate) fn check_id(id: &InboxMessageId) -> Result<(), Error> {
    check_name("source", &id.source, NAME_LIMIT)?;
    check_name("message_id", &id.message_id, NAME_LIMIT)
}
