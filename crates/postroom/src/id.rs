//! Identifiers: one type for each thing that has one, so that they cannot be mixed up.

use std::fmt;

use uuid::Uuid;

use crate::error::{Error, ErrorKind};

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Makes a new one: a version 7 UUID, which sorts by the time it was made.
            #[must_use]
            #[allow(clippy::new_without_default, reason = "a default identifier would be the empty one")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// Wraps a UUID that came from elsewhere.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }

            /// The same, refused when it is the empty (nil) UUID.
            pub(crate) fn checked(self, param: &'static str) -> Result<Uuid, Error> {
                if self.0.is_nil() {
                    return Err(ErrorKind::InvalidArgument { param }.with("must not be the empty identifier"));
                }
                Ok(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl From<$name> for Uuid {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| ErrorKind::InvalidArgument { param: "id" }.with("expected a UUID"))
            }
        }
    };
}

uuid_id! {
    /// One row of a work queue. Claim, ack, abandon and fail speak of work items.
    WorkItemId
}

uuid_id! {
    /// One outbox message, whatever happens to its work item. Joins and idempotent handlers speak of
    /// messages. It equals the work item id unless the caller chose another.
    MessageId
}

uuid_id! {
    /// One join: a group of messages that something waits for.
    JoinId
}

uuid_id! {
    /// Who holds a lease. Only the holder of the token can settle what it claimed. Make a fresh one
    /// for every batch: then a task that wakes up late cannot settle what was claimed after it.
    OwnerToken
}

/// One inbound message: the id that its sender gave it, and the sender. Both compare exactly: case
/// and trailing spaces matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InboxMessageId {
    /// Where the message came from, such as `stripe`.
    pub source: String,
    /// The sender's own id of it.
    pub message_id: String,
}

impl InboxMessageId {
    /// An inbound message's identifier.
    ///
    /// ```
    /// let id = postroom::InboxMessageId::new("stripe", "evt_1");
    /// assert_eq!(id.to_string(), "stripe/evt_1");
    /// ```
    pub fn new(source: impl Into<String>, message_id: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            message_id: message_id.into(),
        }
    }
}

impl fmt::Display for InboxMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.message_id)
    }
}
