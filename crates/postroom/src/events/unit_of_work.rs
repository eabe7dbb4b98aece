//! The unit of work: the events of some aggregates become outbox rows of one module, in the
//! transaction that saves the aggregates.

use std::collections::HashSet;
use std::fmt;

use jiff::Timestamp;

use crate::error::{Error, ErrorKind};
use crate::events::{
    Aggregate, DomainEvent, EVENT_TYPE, Events, Json, OCCURRED_ON, Recorded, Serializer,
};
use crate::id::WorkItemId;
use crate::message::{Message, NAME_LIMIT, Receipt, check_name, check_time};
use crate::outbox::Outbox;
use crate::room::Postroom;
use crate::tx::Executor;

/// Collects the events of aggregates, of any types, and writes the externalized ones into the outbox of
/// one module. It borrows the aggregates, so write their own rows before.
///
/// ```no_run
/// # use postroom::Postroom;
/// # use postroom::events::{Aggregate, UnitOfWork};
/// # async fn example<O: Aggregate, S: Aggregate>(
/// #     room: Postroom, client: &mut tokio_postgres::Client, mut order: O, mut stock: S,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.transaction().await?;
/// // … the rows of the order and of the stock, then:
/// let saved = UnitOfWork::new(&room)
///     .collect(&mut order)
///     .collect(&mut stock)
///     .save_in(&mut transaction)
///     .await?;
/// transaction.commit().await?;
/// saved.committed();
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is written before `save_in`"]
pub struct UnitOfWork<'a, S = Json> {
    outbox: Outbox,
    serializer: S,
    correlation_id: Option<String>,
    /// Of all that was collected, or what is wrong with the first that cannot be written.
    messages: Result<Vec<Message>, Error>,
    releases: Vec<Release<'a>>,
}

/// Takes the events out of one aggregate.
type Release<'a> = Box<dyn FnOnce() + Send + 'a>;

impl UnitOfWork<'_> {
    /// A unit of work of the module that `room` is the store of. Payloads are JSON.
    pub fn new(room: &Postroom) -> Self {
        Self::with_serializer(room, Json)
    }
}

impl<'a, S: Serializer> UnitOfWork<'a, S> {
    /// The same, with payloads of another format.
    pub fn with_serializer(room: &Postroom, serializer: S) -> Self {
        Self {
            outbox: room.outbox(),
            serializer,
            correlation_id: None,
            messages: Ok(Vec::new()),
            releases: Vec::new(),
        }
    }

    /// Ties all messages of this unit of work together, or to a request.
    pub fn correlation(mut self, id: impl ToString) -> Self {
        self.correlation_id = Some(id.to_string());
        self
    }

    /// Adds what happened to an aggregate. Its events stay where they are until [`Saved::committed`].
    pub fn collect<A: Aggregate>(self, aggregate: &'a mut A) -> Self
    where
        A::Event: 'a,
    {
        self.collect_with(aggregate, drop)
    }

    /// As [`UnitOfWork::collect`]; those events that are not externalized are given to `listener`, once
    /// the commit is confirmed. To act on them before it, in the transaction, look through
    /// [`Aggregate::events`] first.
    pub fn collect_with<A: Aggregate>(
        mut self,
        aggregate: &'a mut A,
        mut listener: impl FnMut(Recorded<A::Event>) + Send + 'a,
    ) -> Self
    where
        A::Event: 'a,
    {
        let events = aggregate.events();
        if let Ok(messages) = &mut self.messages {
            match externalized(events, &self.serializer) {
                Ok(more) => messages.extend(more),
                Err(error) => self.messages = Err(error),
            }
        }
        self.releases.push(Box::new(move || {
            for recorded in events.0.drain(..) {
                if !recorded.event.is_externalized() {
                    listener(recorded);
                }
            }
        }));
        self
    }

    /// Writes the externalized events into the outbox in the caller's transaction, in the order in which
    /// they were collected: all of them or none. The transaction is neither committed nor rolled back
    /// here, so the aggregates keep their events: tell [`Saved`] about the commit.
    ///
    /// After a rollback, collect and save again: the events have kept their ids. When the connection
    /// broke during the commit, do the same: if it did commit, the ids are refused, unless their messages
    /// are done meanwhile; then they come once more, with the same ids.
    ///
    /// # Errors
    /// When an event is not valid (nothing was written), when the transaction belongs to another kind of
    /// database, and when the client reports an error. The aggregates keep their events.
    pub async fn save_in<X: Executor>(self, tx: &mut X) -> Result<Saved<'a>, X::Error> {
        let mut messages = self.messages?;
        check_ids(&messages)?;
        for message in &mut messages {
            message.correlation_id.clone_from(&self.correlation_id);
        }
        let receipts = self.outbox.enqueue_many_in(tx, &messages).await?;
        Ok(Saved {
            receipts,
            releases: self.releases,
        })
    }
}

/// Events that were written in a transaction whose end is not known yet. When it is dropped without
/// [`Saved::committed`], the aggregates keep their events, and the next unit of work writes them again:
/// twice with the same id rather than never.
#[must_use = "call `committed` after the commit, or the aggregates keep their events"]
pub struct Saved<'a> {
    receipts: Vec<Receipt>,
    releases: Vec<Release<'a>>,
}

impl Saved<'_> {
    /// The rows that were written, one for each externalized event.
    #[must_use]
    pub fn receipts(&self) -> &[Receipt] {
        &self.receipts
    }

    /// The transaction is committed: the aggregates let their events go, and listeners hear of those that
    /// stayed inside.
    pub fn committed(self) -> Vec<Receipt> {
        for release in self.releases {
            release();
        }
        self.receipts
    }

    /// The transaction is rolled back: the aggregates keep their events for a retry, as they do when this
    /// is dropped.
    pub fn rolled_back(self) {}
}

impl fmt::Debug for Saved<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saved")
            .field("receipts", &self.receipts)
            .finish_non_exhaustive()
    }
}

fn externalized<E: DomainEvent>(
    events: &Events<E>,
    serializer: &impl Serializer,
) -> Result<Vec<Message>, Error> {
    events
        .iter()
        .filter(|recorded| recorded.event.is_externalized())
        .map(|recorded| message(recorded, serializer))
        .collect()
}

/// The row takes the id of its event, so that the same event is not there twice while it is unfinished.
fn message<E: DomainEvent>(
    recorded: &Recorded<E>,
    serializer: &impl Serializer,
) -> Result<Message, Error> {
    let event = &recorded.event;
    let event_type = event.event_type();
    check_name("event_type", event_type, NAME_LIMIT)?;
    let occurred_on = Timestamp::from_microsecond(check_time("occurred_at", recorded.occurred_at)?)
        .map_err(|_| {
            ErrorKind::OutOfRange {
                param: "occurred_at",
            }
            .with("must lie between the years 1 and 9999")
        })?;
    let payload = serializer.serialize(event).map_err(|_| {
        ErrorKind::InvalidArgument { param: "event" }
            .with(format!("an event `{event_type}` cannot be serialized"))
    })?;
    Ok(Message::new(event.topic(), payload)
        .id(WorkItemId::from_uuid(recorded.id.as_uuid()))
        .header(EVENT_TYPE, event_type)
        .header(OCCURRED_ON, occurred_on.to_string()))
}

fn check_ids(messages: &[Message]) -> Result<(), Error> {
    let mut seen = HashSet::new();
    match messages
        .iter()
        .filter_map(|message| message.id)
        .find(|id| !seen.insert(*id))
    {
        None => Ok(()),
        Some(id) => Err(
            ErrorKind::InvalidArgument { param: "event_id" }.with(format!(
                "two events have the id {id}; was a copy of an aggregate collected too?"
            )),
        ),
    }
}
