//! Domain events: aggregates record what happened, a unit of work writes it into the outbox in the
//! transaction that saves the aggregates.
//!
//! ```
//! # use std::time::Duration;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! use postroom::events::{Aggregate, DomainEvent, EventTypes, Events, UnitOfWork};
//! use postroom::{Options, OwnerToken, tx};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderPlaced {
//!     order: i64,
//! }
//!
//! impl DomainEvent for OrderPlaced {
//!     fn event_type(&self) -> &'static str {
//!         "orders.placed"
//!     }
//! }
//!
//! struct Order {
//!     id: i64,
//!     events: Events<OrderPlaced>,
//! }
//!
//! impl Order {
//!     fn place(id: i64) -> Self {
//!         let mut events = Events::new();
//!         events.record(OrderPlaced { order: id });
//!         Self { id, events }
//!     }
//! }
//!
//! impl Aggregate for Order {
//!     type Event = OrderPlaced;
//!
//!     fn events(&mut self) -> &mut Events<OrderPlaced> {
//!         &mut self.events
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("shop.db");
//! # let room = Options::new(format!("sqlite:{}", file.display())).deploy(true).connect().await?;
//! # let mut connection = rusqlite::Connection::open(&file)?;
//! # connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
//! let mut order = Order::place(7);
//!
//! let mut transaction = connection.transaction()?;
//! transaction.execute("INSERT INTO orders (id) VALUES (?1)", [order.id])?;
//! let saved = tx::now(UnitOfWork::new(&room).collect(&mut order).save_in(&mut transaction))?;
//! transaction.commit()?;
//! saved.committed(); // only now does the aggregate let its events go
//!
//! let types = EventTypes::new().register("orders.placed", |event: OrderPlaced| event)?;
//! for message in room.outbox().claim(OwnerToken::new(), Duration::from_secs(30), 50).await? {
//!     assert_eq!(types.decode(&message)?.order, 7);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod event_types;
mod modules;
mod serializer;
mod unit_of_work;

use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use crate::id::MessageId;

pub use event_types::{EventTypes, StoredEvent};
pub use modules::Modules;
pub use serializer::{Json, Serializer};
pub use unit_of_work::{Saved, UnitOfWork};

/// The header that holds the name of the event's type.
pub const EVENT_TYPE: &str = "event-type";

/// The header that holds the time at which the event happened, as RFC 3339 in UTC.
pub const OCCURRED_ON: &str = "occurred-on";

/// Something that happened to an aggregate. What it serializes to is the payload of its message.
pub trait DomainEvent: Serialize + Send {
    /// The stable name by which the type is found again, such as `orders.placed`: 1 to 255 characters.
    /// It outlives renamed Rust types, so it is chosen, never derived.
    fn event_type(&self) -> &'static str;

    /// The topic of the message; by default the name of the type.
    fn topic(&self) -> &str {
        self.event_type()
    }

    /// Whether others are told. An event that is not externalized stays inside the process: it leaves
    /// no row.
    fn is_externalized(&self) -> bool {
        true
    }

    /// The id that the event has already; by default it gets one when it is recorded. A version 7 UUID
    /// suits best: finding a message in the archive is quick when ids grow with time.
    fn event_id(&self) -> Option<MessageId> {
        None
    }

    /// When it happened, if not when it is recorded. For the record only: due times, leases, retries and
    /// retention go by the database's clock.
    fn occurred_at(&self) -> Option<SystemTime> {
        None
    }
}

/// Whatever records domain events while it is changed, and is saved as a whole.
pub trait Aggregate {
    /// What can happen to it; an enum, when that is more than one thing.
    type Event: DomainEvent;

    /// What has happened to it and is not saved yet.
    fn events(&mut self) -> &mut Events<Self::Event>;
}

/// What has happened to an aggregate and is not saved yet. A field of the aggregate.
///
/// Events leave it once: when a [`UnitOfWork`] has written them and the commit is confirmed by
/// [`Saved::committed`]. Until then they stay, and keep their ids.
#[derive(Clone, PartialEq, Eq)]
pub struct Events<E>(Vec<Recorded<E>>);

impl<E: DomainEvent> Events<E> {
    /// Records that something has happened, now unless the event knows better, and gives the id that it
    /// is known by from here on.
    pub fn record(&mut self, event: E) -> MessageId {
        let id = event.event_id().unwrap_or_else(MessageId::new);
        let occurred_at = event.occurred_at().unwrap_or_else(SystemTime::now);
        self.0.push(Recorded {
            id,
            occurred_at,
            event,
        });
        id
    }
}

impl<E> Events<E> {
    /// Nothing has happened yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// What was recorded, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Recorded<E>> {
        self.0.iter()
    }

    /// How many are recorded and not saved yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing to save.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, E> IntoIterator for &'a Events<E> {
    type Item = &'a Recorded<E>;
    type IntoIter = std::slice::Iter<'a, Recorded<E>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The content of events never shows.
impl<E> fmt::Debug for Events<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// An event with the id and the time that it got when it was recorded.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded<E> {
    /// The id of the event. It becomes the id of the outbox row and of the message.
    pub id: MessageId,
    /// When it happened.
    pub occurred_at: SystemTime,
    /// What happened.
    pub event: E,
}

/// The content of the event never shows.
impl<E> fmt::Debug for Recorded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded")
            .field("id", &self.id)
            .field("occurred_at", &self.occurred_at)
            .finish_non_exhaustive()
    }
}
