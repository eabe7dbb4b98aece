//! Working a queue by hand: wait for messages, run a handler on one of them. Small enough for a loop
//! of your own in a few lines.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind};
use crate::id::{OwnerToken, WorkItemId};
use crate::inbox::Inbox;
use crate::message::{InboxMessage, OutboxMessage};
use crate::outbox::Outbox;
use crate::sql::Queue;
use crate::store::{Abandon, Store};

/// What became of a message after its handler ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// The handler succeeded, and the message is done.
    Done,
    /// The handler failed, and the message will be tried again after its backoff.
    Retried,
    /// The lease was lost while the handler ran: somebody else has the message, and nothing was
    /// changed.
    LeaseLost,
}

impl Outbox {
    /// As [`Outbox::claim`], but waits up to `patience` for a message to be ready. An idle queue is asked
    /// less and less often, down to twice a second, and its expired leases are reaped.
    ///
    /// # Errors
    /// As [`Outbox::claim`].
    pub async fn claim_waiting(
        &self,
        owner: OwnerToken,
        lease: Duration,
        batch: usize,
        patience: Duration,
    ) -> Result<Vec<OutboxMessage>, Error> {
        waiting(
            patience,
            || self.claim(owner, lease, batch),
            || self.store.reap_now_and_then(Queue::Outbox),
        )
        .await
    }

    /// Runs a handler on a message that `owner` has claimed: success acks it, an error hands it back with
    /// the default backoff and is logged and stored (keep payloads and secrets out of it).
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use std::time::Duration;
    /// # use postroom::{Handled, Message, OwnerToken, Postroom};
    /// # let room = Postroom::connect("sqlite::memory:").await?;
    /// # room.deploy().await?;
    /// # room.outbox().enqueue(&Message::new("order.created", "7")).await?;
    /// let outbox = room.outbox();
    /// let owner = OwnerToken::new();
    /// for message in outbox.claim(owner, Duration::from_secs(30), 50).await? {
    ///     let handled = outbox
    ///         .handle(owner, &message, async |message| {
    ///             println!("shipping {}", message.payload);
    ///             Ok::<(), std::io::Error>(())
    ///         })
    ///         .await?;
    ///     assert_eq!(handled, Handled::Done);
    /// }
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the database fails. The handler's own error is an outcome.
    pub async fn handle<E: Display>(
        &self,
        owner: OwnerToken,
        message: &OutboxMessage,
        handler: impl AsyncFnOnce(&OutboxMessage) -> Result<(), E>,
    ) -> Result<Handled, Error> {
        self.store
            .log_handling("outbox", &message.topic, &message.message_id);
        match handler(message).await {
            Ok(()) => Ok(Handled::done(self.ack(owner, &[message.id]).await?.len())),
            Err(error) => {
                let error = error.to_string();
                self.store
                    .log_failed("outbox", &message.topic, &message.message_id, &error);
                let released = self
                    .abandon(owner, &[message.id], Abandon::default().error(error))
                    .await?;
                Ok(Handled::retried(released.len()))
            }
        }
    }
}

impl Inbox {
    /// As [`Inbox::claim`], but waits up to `patience`: see [`Outbox::claim_waiting`].
    ///
    /// # Errors
    /// As [`Inbox::claim`].
    pub async fn claim_waiting(
        &self,
        owner: OwnerToken,
        lease: Duration,
        batch: usize,
        patience: Duration,
    ) -> Result<Vec<InboxMessage>, Error> {
        waiting(
            patience,
            || self.claim(owner, lease, batch),
            || self.store.reap_now_and_then(Queue::Inbox),
        )
        .await
    }

    /// Runs a handler on a message that `owner` has claimed: see [`Outbox::handle`].
    ///
    /// # Errors
    /// `InvalidArgument` when the message was never enqueued, and when the database fails.
    pub async fn handle<E: Display>(
        &self,
        owner: OwnerToken,
        message: &InboxMessage,
        handler: impl AsyncFnOnce(&InboxMessage) -> Result<(), E>,
    ) -> Result<Handled, Error> {
        let (Some(work_item), Some(topic)) = (message.work_item_id, &message.topic) else {
            return Err(
                ErrorKind::InvalidArgument { param: "message" }.with("it was never enqueued")
            );
        };
        let ids: &[WorkItemId] = &[work_item];
        self.store.log_handling("inbox", topic, &message.id);
        match handler(message).await {
            Ok(()) => Ok(Handled::done(self.ack(owner, ids).await?)),
            Err(error) => {
                let error = error.to_string();
                self.store.log_failed("inbox", topic, &message.id, &error);
                let released = self
                    .abandon(owner, ids, Abandon::default().error(error))
                    .await?;
                Ok(Handled::retried(released))
            }
        }
    }
}

impl Handled {
    fn done(changed: usize) -> Self {
        if changed > 0 {
            Self::Done
        } else {
            Self::LeaseLost
        }
    }

    fn retried(changed: usize) -> Self {
        if changed > 0 {
            Self::Retried
        } else {
            Self::LeaseLost
        }
    }
}

impl Store {
    pub(crate) fn log_handling(&self, queue: &'static str, topic: &str, message_id: &dyn Display) {
        tracing::info!(store = %self.identifier, queue, topic, %message_id, "handling");
    }

    pub(crate) fn log_failed(
        &self,
        queue: &'static str,
        topic: &str,
        message_id: &dyn Display,
        error: &str,
    ) {
        tracing::error!(store = %self.identifier, queue, topic, %message_id, error, "handler failed");
    }
}

/// The pauses of an idle queue: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Asks until there is something or patience is over, pausing twice as long each time. The first time
/// that there is nothing to do, expired leases of messages that are not due yet are freed.
async fn waiting<T, C, R>(
    patience: Duration,
    mut claim: impl FnMut() -> C,
    reap: impl FnOnce() -> R,
) -> Result<Vec<T>, Error>
where
    C: Future<Output = Result<Vec<T>, Error>>,
    R: Future<Output = Result<u64, Error>>,
{
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut reap = Some(reap);
    loop {
        let claimed = claim().await?;
        let left = patience.saturating_sub(started.elapsed());
        if !claimed.is_empty() || left.is_zero() {
            return Ok(claimed);
        }
        if let Some(reap) = reap.take() {
            reap().await?;
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
