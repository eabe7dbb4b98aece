//! From the name of an event's type back to the type.

use std::any::type_name;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};
use crate::events::{EVENT_TYPE, Json, OCCURRED_ON, Serializer};
use crate::message::{InboxMessage, NAME_LIMIT, OutboxMessage, check_name};

/// The types of events that a reader knows, by the names that writers gave them. `E` is what the reader
/// makes of them all: usually an enum with a variant for each.
///
/// ```
/// use postroom::events::{EventTypes, StoredEvent};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct OrderPlaced { order: i64 }
/// #[derive(Deserialize)]
/// struct OrderCancelled { order: i64, reason: String }
///
/// enum OrderEvent {
///     Placed(OrderPlaced),
///     Cancelled(OrderCancelled),
/// }
///
/// let types = EventTypes::new()
///     .register("orders.placed", OrderEvent::Placed)?
///     .register("orders.cancelled", OrderEvent::Cancelled)?;
///
/// # let headers = [("event-type".to_owned(), "orders.placed".to_owned())].into();
/// # let message = StoredEvent { headers: &headers, payload: r#"{"order":7}"# };
/// match types.decode(message)? { // an outbox or inbox message
///     OrderEvent::Placed(placed) => assert_eq!(placed.order, 7),
///     OrderEvent::Cancelled(cancelled) => println!("{}: {}", cancelled.order, cancelled.reason),
/// }
/// # Ok::<(), postroom::Error>(())
/// ```
pub struct EventTypes<E, S = Json> {
    serializer: S,
    types: BTreeMap<String, EventType<E, S>>,
}

struct EventType<E, S> {
    rust_name: &'static str,
    decode: Decode<E, S>,
}

/// What goes wrong is left out here: it may quote the payload.
type Decode<E, S> = Box<dyn Fn(&S, &str) -> Option<E> + Send + Sync>;

impl<E: 'static> EventTypes<E> {
    /// No types yet. Payloads are JSON.
    #[must_use]
    pub fn new() -> Self {
        Self::with_serializer(Json)
    }
}

impl<E: 'static> Default for EventTypes<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: 'static, S: Serializer + 'static> EventTypes<E, S> {
    /// The same, with payloads of another format: that of the writer.
    #[must_use]
    pub fn with_serializer(serializer: S) -> Self {
        Self {
            serializer,
            types: BTreeMap::new(),
        }
    }

    /// Reads events of the name `event_type` as `T`, and makes an `E` of each. Names are compared
    /// exactly.
    ///
    /// # Errors
    /// When the name is not valid, and when it is registered already.
    pub fn register<T: DeserializeOwned + 'static>(
        mut self,
        event_type: impl Into<String>,
        into_event: impl Fn(T) -> E + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let name = event_type.into();
        check_name("event_type", &name, NAME_LIMIT)?;
        if let Some(earlier) = self.types.get(&name) {
            return Err(
                ErrorKind::AlreadyExists { what: "event type" }.with(format!(
                    "`{name}` stands for `{}`, and cannot stand for `{}` too",
                    earlier.rust_name,
                    type_name::<T>()
                )),
            );
        }
        let decode: Decode<E, S> = Box::new(move |serializer, payload| {
            let value = serializer.deserialize(payload).ok()?;
            Some(into_event(value))
        });
        let rust_name = type_name::<T>();
        self.types.insert(name, EventType { rust_name, decode });
        Ok(self)
    }

    /// Reads the event in a message. An error is about this message alone: fail it, and go on with the
    /// others.
    ///
    /// # Errors
    /// `NotFound` when the name of its type is not registered; `InvalidArgument` when it has no such
    /// name, and when its payload cannot be read as the type. None of them shows the payload.
    pub fn decode<'a>(&self, event: impl Into<StoredEvent<'a>>) -> Result<E, Error> {
        let event = event.into();
        let name = event.event_type().ok_or_else(|| {
            ErrorKind::InvalidArgument { param: "message" }.with(format!(
                "it has no header `{EVENT_TYPE}`: a unit of work writes one"
            ))
        })?;
        let known = self.types.get(name).ok_or_else(|| {
            ErrorKind::NotFound { what: "event type" }.with(format!(
                "nothing is registered for `{name:.NAME_LIMIT$}`; `EventTypes::register` does that"
            ))
        })?;
        (known.decode)(&self.serializer, event.payload).ok_or_else(|| {
            ErrorKind::InvalidArgument { param: "payload" }.with(format!(
                "an event `{name}` cannot be read as `{}`",
                known.rust_name
            ))
        })
    }
}

impl<E, S> fmt::Debug for EventTypes<E, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.types.iter();
        f.debug_map()
            .entries(types.map(|(name, known)| (name, known.rust_name)))
            .finish()
    }
}

/// A message that holds an event: one of the outbox, one of the inbox, or whatever has headers and a
/// payload.
#[derive(Clone, Copy)]
pub struct StoredEvent<'a> {
    /// Small facts about it, the name of its type among them.
    pub headers: &'a BTreeMap<String, String>,
    /// The event as the writer's serializer wrote it.
    pub payload: &'a str,
}

impl<'a> StoredEvent<'a> {
    /// The name of its type; `None` when the message holds no event.
    #[must_use]
    pub fn event_type(&self) -> Option<&'a str> {
        self.headers.get(EVENT_TYPE).map(String::as_str)
    }

    /// When it happened, by the writer's clock and to the microsecond; `None` when it does not say.
    #[must_use]
    pub fn occurred_on(&self) -> Option<SystemTime> {
        let time: Timestamp = self.headers.get(OCCURRED_ON)?.parse().ok()?;
        Some(time.into())
    }
}

impl<'a> From<&'a OutboxMessage> for StoredEvent<'a> {
    fn from(message: &'a OutboxMessage) -> Self {
        Self {
            headers: &message.headers,
            payload: &message.payload,
        }
    }
}

/// An inbox message that was seen and not enqueued has no content yet: its payload reads as empty.
impl<'a> From<&'a InboxMessage> for StoredEvent<'a> {
    fn from(message: &'a InboxMessage) -> Self {
        Self {
            headers: &message.headers,
            payload: message.payload.as_deref().unwrap_or_default(),
        }
    }
}

/// The payload never shows.
impl fmt::Debug for StoredEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("event_type", &self.event_type())
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
