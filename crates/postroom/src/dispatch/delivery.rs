//! A message in a handler's hands.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Mutex;

use super::lease::Lease;
use super::transaction::{Slot, Tx};
use crate::error::Error;
use crate::id::{OwnerToken, WorkItemId};
use crate::message::{InboxMessage, OutboxMessage, Progress};
use crate::outbox::ack_in;
use crate::room::Postroom;
use crate::sql::{Queue, Row};
use crate::tx::Executor;

/// A message that was claimed for a handler: all of it, the store that it came from, and whether it is
/// still the handler's. Cheap to clone.
#[derive(Clone)]
pub struct Delivery {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) message: Delivered,
    pub(super) room: Postroom,
    pub(super) owner: OwnerToken,
    pub(super) transaction: Mutex<Slot>,
    held: Lease,
    /// When the transaction began.
    pub(super) begun: OnceLock<Instant>,
    /// The handler has acked in a transaction of its own.
    acked: AtomicBool,
    /// When it was claimed, by this process's clock.
    claimed: Instant,
    lease: Duration,
}

/// The message itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// From the outbox.
    Outbox(OutboxMessage),
    /// From the inbox.
    Inbox(InboxMessage),
}

impl Delivered {
    pub(super) fn read(queue: Queue, row: Row) -> Result<Self, Error> {
        Ok(match queue {
            Queue::Outbox => Self::Outbox(OutboxMessage::claimed(row)?),
            Queue::Inbox => Self::Inbox(InboxMessage::claimed(row)?),
        })
    }

    pub(super) fn work_item_id(&self) -> WorkItemId {
        match self {
            Self::Outbox(message) => message.id,
            Self::Inbox(message) => message
                .work_item_id
                .unwrap_or(WorkItemId::from_uuid(uuid::Uuid::nil())),
        }
    }

    /// Oldest first: what a batch is sorted by.
    pub(super) fn order(&self) -> (Option<SystemTime>, SystemTime, WorkItemId) {
        let created = match self {
            Self::Outbox(message) => message.created_at,
            Self::Inbox(message) => message.first_seen,
        };
        (
            self.progress().next_attempt_at,
            created,
            self.work_item_id(),
        )
    }

    fn progress(&self) -> &Progress {
        match self {
            Self::Outbox(message) => &message.progress,
            Self::Inbox(message) => &message.progress,
        }
    }
}

impl Delivery {
    pub(super) fn new(
        message: Delivered,
        room: Postroom,
        owner: OwnerToken,
        held: Lease,
        claimed: Instant,
        lease: Duration,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                message,
                room,
                owner,
                transaction: Mutex::default(),
                held,
                begun: OnceLock::new(),
                acked: AtomicBool::new(false),
                claimed,
                lease,
            }),
        }
    }

    /// The whole message.
    #[must_use]
    pub fn message(&self) -> &Delivered {
        &self.inner.message
    }

    /// Which queue it came from.
    #[must_use]
    pub fn queue(&self) -> Queue {
        match &self.inner.message {
            Delivered::Outbox(_) => Queue::Outbox,
            Delivered::Inbox(_) => Queue::Inbox,
        }
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        match &self.inner.message {
            Delivered::Outbox(message) => &message.topic,
            Delivered::Inbox(message) => message.topic.as_deref().unwrap_or_default(),
        }
    }

    /// Its content.
    #[must_use]
    pub fn payload(&self) -> &str {
        match &self.inner.message {
            Delivered::Outbox(message) => &message.payload,
            Delivered::Inbox(message) => message.payload.as_deref().unwrap_or_default(),
        }
    }

    /// Small facts about it.
    #[must_use]
    pub fn headers(&self) -> &BTreeMap<String, String> {
        match &self.inner.message {
            Delivered::Outbox(message) => &message.headers,
            Delivered::Inbox(message) => &message.headers,
        }
    }

    /// One of its headers.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).map(String::as_str)
    }

    /// What ties it to others.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        match &self.inner.message {
            Delivered::Outbox(message) => message.correlation_id.as_deref(),
            Delivered::Inbox(message) => message.correlation_id.as_deref(),
        }
    }

    /// What makes it itself, over all retries: the key for an idempotent handler. For an inbox message
    /// that is `source/id`.
    #[must_use]
    pub fn message_id(&self) -> String {
        self.key().to_string()
    }

    /// [`Delivery::message_id`], for logs, without making a text of it first.
    pub(super) fn key(&self) -> &dyn Display {
        match &self.inner.message {
            Delivered::Outbox(message) => &message.message_id,
            Delivered::Inbox(message) => &message.id,
        }
    }

    /// The row in the work queue.
    #[must_use]
    pub fn work_item_id(&self) -> WorkItemId {
        self.inner.message.work_item_id()
    }

    /// The token under which it was claimed.
    #[must_use]
    pub fn owner(&self) -> OwnerToken {
        self.inner.owner
    }

    /// Which attempt this is: 1 the first time. Runs that were "not ready", or failed for want of
    /// infrastructure, do not count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        let progress = self.progress();
        progress
            .attempt_count
            .saturating_sub(progress.deferral_count)
            + 1
    }

    /// Attempts, deliveries and the last error, as they were when it was claimed.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        self.inner.message.progress()
    }

    /// How many times it was delivered, this time included, without an outcome.
    pub(super) fn without_outcome(&self) -> u32 {
        let progress = self.progress();
        progress
            .delivery_count
            .saturating_sub(progress.attempt_count)
    }

    /// The store that it was claimed from: its outbox, its inbox, its joins.
    #[must_use]
    pub fn room(&self) -> &Postroom {
        &self.inner.room
    }

    /// A transaction of that store. It begins with its first statement, and is committed together with the
    /// ack when the handler has succeeded; if the lease was lost by then, all of it is rolled back.
    #[must_use]
    pub fn transaction(&self) -> Tx {
        Tx::new(self.clone())
    }

    /// Acks the message in a transaction of yours, with any client library that [`tx`](crate::tx) knows:
    /// your writes and the ack commit together. Then commit, and answer [`Outcome::Done`](crate::Outcome).
    ///
    /// # Errors
    /// `LeaseLost` when the message is no longer yours: roll back and give up.
    pub async fn ack_in<E: Executor>(&self, tx: &mut E) -> Result<(), E::Error> {
        let store = &self.inner.room.store;
        // The caller's transaction locks the row until it ends: a renewal would wait for that, and all
        // other renewals behind it.
        self.inner.held.settling();
        ack_in(store, self.queue(), tx, self.owner(), self.work_item_id())
            .await
            .inspect_err(|_| self.inner.held.held())?;
        self.inner.acked.store(true, Ordering::Release);
        Ok(())
    }

    /// How long the handler's transaction is open, if it is.
    pub(super) fn transaction_age(&self) -> Option<Duration> {
        self.inner.begun.get().map(Instant::elapsed)
    }

    pub(super) fn acked_elsewhere(&self) -> bool {
        self.inner.acked.load(Ordering::Acquire)
    }

    /// Whether the handler should stop: its lease was lost, or the dispatcher's time to stop has run out.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.inner.held.is_cancelled()
    }

    /// Comes back when the handler should stop. The handler's future is dropped then, so only work that it
    /// has started elsewhere needs this.
    pub async fn cancelled(&self) {
        self.inner.held.cancelled().await;
    }

    /// How old the message is by the database's clock: since it was enqueued, or due if that was later.
    #[must_use]
    pub fn age(&self) -> Duration {
        let (created, due) = match &self.inner.message {
            Delivered::Outbox(message) => (message.created_at, message.due_time),
            Delivered::Inbox(message) => (message.first_seen, message.due_time),
        };
        let since = due.map_or(created, |due| due.max(created));
        // The lease's end and length tell what the database's clock said at the claim.
        let claimed = self
            .progress()
            .locked_until
            .and_then(|until| until.checked_sub(self.inner.lease));
        let before = claimed
            .and_then(|claimed| claimed.duration_since(since).ok())
            .unwrap_or_default();
        before + self.inner.claimed.elapsed()
    }
}

/// The payload never shows.
impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.message.fmt(f)
    }
}
