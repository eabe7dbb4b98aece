//! The inbox: inbound messages, taken in once per source and message id.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::id::{InboxMessageId, OwnerToken, WorkItemId};
use crate::inbound::{Accepted, Arrival, Inbound, InboxKeys, Sighting, check_id};
use crate::list::{DeadFilter, List};
use crate::message::{
    InboxCounts, InboxMessage, InboxState, Message, NAME_LIMIT, Receipt, check_name, headers_text,
    micros,
};
use crate::observe::TopicCounts;
use crate::outbox::{ack_and_enqueue, ack_in, four_counts};
use crate::sql::{Call, Dialect, Queue, Value};
use crate::store::{Abandon, CLEANUP_BATCH, Cutoff, Store, Target, positive, retention_micros};
use crate::tx::{Executor, run_in};

/// The inbox of a store. Cheap to clone.
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// use postroom::{Arrival, Inbound};
///
/// let inbound = Inbound::new("stripe", "evt_1", "payment.received", r#"{"amount":100}"#);
/// match room.inbox().enqueue(&inbound).await?.arrival {
///     Arrival::New => println!("queued"),
///     Arrival::AlreadyDone => println!("a duplicate, and it was handled long ago"),
///     other => println!("a duplicate: {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Inbox {
    pub(crate) store: Arc<Store>,
}

impl Inbox {
    /// Records that a message has arrived and says whether it was processed before. A message that was
    /// never seen is remembered as seen.
    ///
    /// # Errors
    /// When source or message id is empty, too long or holds a NUL.
    pub async fn already_processed(&self, id: &InboxMessageId) -> Result<bool, Error> {
        Ok(self.check(id, None).await?.already_processed)
    }

    /// As [`Inbox::already_processed`], comparing a hash of the content. The first hash is kept. A
    /// different one is not an error: it is returned, logged at WARN and counted. Use a cryptographic
    /// hash such as SHA-256.
    ///
    /// # Errors
    /// As [`Inbox::already_processed`].
    pub async fn already_processed_with_hash(
        &self,
        id: &InboxMessageId,
        hash: &[u8],
    ) -> Result<Sighting, Error> {
        self.check(id, Some(hash.to_vec())).await
    }

    async fn check(&self, id: &InboxMessageId, hash: Option<Vec<u8>>) -> Result<Sighting, Error> {
        check_id(id)?;
        let values = vec![
            id.source.as_str().into(),
            id.message_id.as_str().into(),
            Value::Bytes(hash),
        ];
        let answer = self
            .store
            .number(
                "already_processed",
                "inbox",
                self.store.catalog.already_processed.call(values).quick(),
            )
            .await?;
        let sighting = Sighting {
            already_processed: answer & 1 != 0,
            hash_differs: answer & 2 != 0,
        };
        tracing::debug!(
            store = %self.store.identifier,
            source = %id.source,
            message_id = %id.message_id,
            already_processed = sighting.already_processed,
            "checked for a duplicate"
        );
        if sighting.hash_differs {
            self.warn_hash(id);
        }
        Ok(sighting)
    }

    fn warn_hash(&self, id: &InboxMessageId) {
        tracing::warn!(
            store = %self.store.identifier,
            source = %id.source,
            message_id = %id.message_id,
            "the same message arrived with a different content hash"
        );
        metrics::counter!("postroom_inbox_hash_differs_total", "store" => self.store.identifier.clone()).increment(1);
    }

    /// Says that a message is being processed outside of the queue. Only a message that was seen, and no
    /// more, changes. Says whether it did.
    ///
    /// # Errors
    /// When source or message id is not valid.
    pub async fn mark_processing(&self, id: &InboxMessageId) -> Result<bool, Error> {
        self.mark("mark_processing", id, 1).await
    }

    /// Says that a message is done: every further arrival is a duplicate. A dead message may become done;
    /// any lease on it is void. Says whether something changed.
    ///
    /// # Errors
    /// When source or message id is not valid.
    pub async fn mark_processed(&self, id: &InboxMessageId) -> Result<bool, Error> {
        self.mark("mark_processed", id, 3).await
    }

    /// Says that a message is dead; any lease on it is void. A done message stays done. Says whether
    /// something changed.
    ///
    /// # Errors
    /// When source or message id is not valid.
    pub async fn mark_dead(&self, id: &InboxMessageId) -> Result<bool, Error> {
        self.mark("mark_dead", id, 4).await
    }

    async fn mark(
        &self,
        operation: &'static str,
        id: &InboxMessageId,
        state: i64,
    ) -> Result<bool, Error> {
        check_id(id)?;
        let values = vec![
            id.source.as_str().into(),
            id.message_id.as_str().into(),
            state.into(),
            self.store.worker.as_str().into(),
        ];
        let output = self
            .store
            .run(
                operation,
                "inbox",
                vec![self.store.catalog.inbox_mark.call(values).quick()],
            )
            .await?;
        let outcome = output
            .rows
            .into_iter()
            .next()
            .map(|mut row| row.int())
            .transpose()?
            .unwrap_or(0);
        if outcome == 0 {
            tracing::warn!(
                store = %self.store.identifier, source = %id.source, message_id = %id.message_id, operation,
                "unknown message: nothing was marked"
            );
        }
        Ok(outcome == 1)
    }

    /// Takes a message in, in a transaction of its own. However often the same (source, message id)
    /// arrives, it is processed once: see [`Arrival`].
    ///
    /// # Errors
    /// When the message is not valid; nothing was written then.
    pub async fn enqueue(&self, inbound: &Inbound) -> Result<Accepted, Error> {
        let (_, call) = self.enqueueing(inbound)?;
        let output = self.store.run("enqueue", "inbox", vec![call]).await?;
        self.store.added(Queue::Inbox);
        Ok(self.accepted(inbound, &output.changed))
    }

    /// Takes a message in, in the caller's transaction.
    ///
    /// # Errors
    /// When the message is not valid, when the transaction belongs to another kind of database, and when
    /// the client reports an error.
    pub async fn enqueue_in<E: Executor>(
        &self,
        tx: &mut E,
        inbound: &Inbound,
    ) -> Result<Accepted, E::Error> {
        let (id, call) = self.enqueueing(inbound)?;
        let changed = run_in(&*self.store.db, tx, vec![call]).await?;
        self.store.promised(Queue::Inbox, id.as_uuid());
        Ok(self.accepted(inbound, &changed))
    }

    fn enqueueing(&self, inbound: &Inbound) -> Result<(WorkItemId, Call), Error> {
        inbound.check()?;
        let id = WorkItemId::new();
        let call = self.store.catalog.inbox_enqueue.call(vec![
            id.as_uuid().into(),
            inbound.id.source.as_str().into(),
            inbound.id.message_id.as_str().into(),
            inbound.topic.as_str().into(),
            inbound.payload.as_str().into(),
            Value::Bytes(inbound.hash.clone()),
            inbound.due_at.map(micros).into(),
            inbound
                .correlation_id
                .clone()
                .filter(|id| !id.is_empty())
                .into(),
            headers_text(&inbound.headers, self.store.trace()).into(),
        ]);
        Ok((id, call.quick()))
    }

    /// The outcome is in the counts: see `inbox_enqueue.sql` of each dialect.
    fn accepted(&self, inbound: &Inbound, changed: &[u64]) -> Accepted {
        let (arrival, hash_differs) = match self.store.dialect() {
            Dialect::Postgres | Dialect::SqlServer => {
                let outcome = changed.first().copied().unwrap_or(0);
                let arrival = match outcome & !1 {
                    0 => Arrival::AlreadyDone,
                    2 => Arrival::New,
                    4 => Arrival::Replaced,
                    _ => Arrival::Dead,
                };
                (arrival, outcome & 1 != 0)
            }
            Dialect::Sqlite | Dialect::MySql => {
                let changed = &changed[changed.len().saturating_sub(6)..];
                let changed =
                    |statement: usize| changed.get(statement).is_some_and(|rows| *rows > 0);
                let arrival = match (changed(2), changed(3), changed(4)) {
                    (true, _, _) => Arrival::New,
                    (_, true, _) => Arrival::Replaced,
                    (_, _, true) => Arrival::Dead,
                    _ => Arrival::AlreadyDone,
                };
                (arrival, changed(1))
            }
        };
        tracing::info!(
            store = %self.store.identifier,
            topic = %inbound.topic.escape_debug(),
            source = %inbound.id.source.escape_debug(),
            message_id = %inbound.id.message_id.escape_debug(),
            ?arrival,
            "enqueued"
        );
        if hash_differs {
            self.warn_hash(&inbound.id);
        }
        metrics::counter!("postroom_enqueued_total", "store" => self.store.identifier.clone(), "queue" => "inbox")
            .increment(u64::from(arrival == Arrival::New));
        Accepted {
            arrival,
            hash_differs,
        }
    }

    /// Leases up to `batch` ready messages to `owner` and gives them back whole: see
    /// [`Outbox::claim`](crate::Outbox::claim).
    ///
    /// # Errors
    /// When `owner` is the empty token, or `lease` or `batch` is zero or beyond its limit.
    pub async fn claim(
        &self,
        owner: OwnerToken,
        lease: Duration,
        batch: usize,
    ) -> Result<Vec<InboxMessage>, Error> {
        let rows = self.store.claim(Queue::Inbox, owner, lease, batch).await?;
        let mut messages = rows
            .into_iter()
            .map(InboxMessage::claimed)
            .collect::<Result<Vec<_>, _>>()?;
        messages.sort_by_key(|message| {
            (
                message.progress.next_attempt_at,
                message.first_seen,
                message.work_item_id,
            )
        });
        Ok(messages)
    }

    /// Marks messages as done. Says how many really changed: those that `owner` still held. Messages are
    /// named by work item, by source and message id, or by the bare message id, which means every
    /// message with that id that `owner` holds.
    ///
    /// # Errors
    /// When `owner` is the empty token.
    pub async fn ack<'a>(
        &self,
        owner: OwnerToken,
        keys: impl Into<InboxKeys<'a>>,
    ) -> Result<usize, Error> {
        Ok(self
            .store
            .ack(&self.target(keys.into()), owner)
            .await?
            .len())
    }

    /// Hands messages back for a later attempt. Says how many really changed.
    ///
    /// # Errors
    /// When `owner` is the empty token, or a delay is given that is zero or beyond its limit.
    pub async fn abandon<'a>(
        &self,
        owner: OwnerToken,
        keys: impl Into<InboxKeys<'a>>,
        how: Abandon,
    ) -> Result<usize, Error> {
        if let Some(delay) = how.delay {
            positive(
                "delay",
                i64::try_from(delay.as_micros()).unwrap_or(i64::MAX),
            )?;
        }
        Ok(self
            .store
            .abandon(&self.target(keys.into()), owner, &how)
            .await?
            .len())
    }

    /// Marks messages as dead. Says how many really changed.
    ///
    /// # Errors
    /// When `owner` is the empty token.
    pub async fn fail<'a>(
        &self,
        owner: OwnerToken,
        keys: impl Into<InboxKeys<'a>>,
        error: &str,
    ) -> Result<usize, Error> {
        Ok(self
            .store
            .fail(&self.target(keys.into()), owner, error)
            .await?
            .len())
    }

    /// Acks one message and enqueues others to the outbox in one transaction, or does neither.
    ///
    /// # Errors
    /// `LeaseLost` when `owner` no longer holds the message, and when a message is not valid; nothing was
    /// written then.
    pub async fn ack_and_enqueue(
        &self,
        owner: OwnerToken,
        id: WorkItemId,
        messages: &[Message],
    ) -> Result<Vec<Receipt>, Error> {
        ack_and_enqueue(&self.store, Queue::Inbox, owner, id, messages).await
    }

    /// Acks one message in the caller's transaction: see [`Outbox::ack_in`](crate::Outbox::ack_in).
    ///
    /// # Errors
    /// `LeaseLost` when `owner` no longer holds the message: roll back then, somebody else has it.
    pub async fn ack_in<E: Executor>(
        &self,
        tx: &mut E,
        owner: OwnerToken,
        id: WorkItemId,
    ) -> Result<(), E::Error> {
        ack_in(&self.store, Queue::Inbox, tx, owner, id).await
    }

    /// Hands back what `owner` holds as if it had never been claimed: ready at once, with no attempt spent.
    /// For a worker that stops. Says how many changed.
    ///
    /// # Errors
    /// When `owner` is the empty token and when the database fails.
    pub async fn release<'a>(
        &self,
        owner: OwnerToken,
        keys: impl Into<InboxKeys<'a>>,
    ) -> Result<usize, Error> {
        Ok(self
            .store
            .release(&self.target(keys.into()), owner)
            .await?
            .len())
    }

    /// Extends leases that `owner` still holds. Says how many it does.
    ///
    /// # Errors
    /// When `owner` is the empty token or `lease` is zero or beyond its limit.
    pub async fn renew<'a>(
        &self,
        owner: OwnerToken,
        keys: impl Into<InboxKeys<'a>>,
        lease: Duration,
    ) -> Result<usize, Error> {
        Ok(self
            .store
            .renew(&self.target(keys.into()), owner, lease)
            .await?
            .len())
    }

    /// Frees every expired lease and says how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reap(&self) -> Result<u64, Error> {
        self.store.reap(Queue::Inbox).await
    }

    /// One message.
    ///
    /// # Errors
    /// When source or message id is not valid.
    pub async fn get(&self, id: &InboxMessageId) -> Result<Option<InboxMessage>, Error> {
        check_id(id)?;
        Ok(self.find(&id.message_id, Some(&id.source)).await?.pop())
    }

    /// One message by its id alone.
    ///
    /// # Errors
    /// `NotFound` when no source has sent it, `Ambiguous` when more than one has.
    pub async fn get_bare(&self, message_id: &str) -> Result<InboxMessage, Error> {
        check_name("message_id", message_id, NAME_LIMIT)?;
        let mut found = self.find(message_id, None).await?;
        match (found.pop(), found.pop()) {
            (Some(message), None) => Ok(message),
            (Some(_), Some(_)) => Err(ErrorKind::Ambiguous {
                param: "message_id",
            }
            .with("more than one source has sent this id; name the source too")),
            (None, _) => Err(ErrorKind::NotFound {
                what: "inbox message",
            }
            .with("no source has sent this id")),
        }
    }

    async fn find(
        &self,
        message_id: &str,
        source: Option<&str>,
    ) -> Result<Vec<InboxMessage>, Error> {
        let source = source.map(str::to_owned);
        let call = self
            .store
            .catalog
            .inbox_get
            .call(vec![message_id.into(), source.into()]);
        let rows = self.store.read("get", "inbox", call).await?;
        rows.into_iter().map(InboxMessage::shown).collect()
    }

    /// Messages, by work item: see [`Outbox::list`](crate::Outbox::list). Messages that were never enqueued,
    /// only seen or marked, have no work item to page by: they come before all others, on the first page,
    /// and with [`List::newest_first`] after all others, on the last, as far as they fit.
    ///
    /// # Errors
    /// As [`Outbox::list`](crate::Outbox::list), and when a text can be no source.
    pub async fn list(&self, list: &List<InboxState>) -> Result<Vec<InboxMessage>, Error> {
        let rows = list.listing().rows(&self.store).await?;
        rows.into_iter().map(InboxMessage::shown).collect()
    }

    /// How many messages a list is about, whatever its limit and where it starts: see
    /// [`Outbox::count`](crate::Outbox::count).
    ///
    /// # Errors
    /// As [`Inbox::list`].
    pub async fn count(&self, list: &List<InboxState>) -> Result<u64, Error> {
        list.listing().count(&self.store).await
    }

    /// How many unfinished and dead messages each topic has, by topic. Messages that were never enqueued
    /// have none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn topics(&self) -> Result<Vec<TopicCounts>, Error> {
        TopicCounts::of(&self.store, Queue::Inbox).await
    }

    /// How many messages are in each state.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn counts(&self) -> Result<InboxCounts, Error> {
        let call = self.store.catalog.inbox.count.call(Vec::new());
        let [seen, processing, done, dead] =
            four_counts(self.store.read("count", "inbox", call).await?)?;
        Ok(InboxCounts {
            seen,
            processing,
            done,
            dead,
        })
    }

    /// Makes dead messages ready again, with a fresh budget of attempts. One that was marked dead before
    /// it was enqueued is only seen again. Says how many were dead.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revive<'a>(&self, keys: impl Into<InboxKeys<'a>>) -> Result<usize, Error> {
        let revived = self.store.replay(&self.target(keys.into())).await?;
        self.store.added(Queue::Inbox);
        Ok(revived.len())
    }

    /// Deletes dead messages and forgets that they were ever seen. Says how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purge<'a>(&self, keys: impl Into<InboxKeys<'a>>) -> Result<u64, Error> {
        self.store.purge(&self.target(keys.into())).await
    }

    /// How many dead messages match: what [`Inbox::revive_matching`] or [`Inbox::purge_matching`] would
    /// change.
    ///
    /// # Errors
    /// `InvalidArgument` or `OutOfRange`, naming the part of the filter that cannot be right.
    pub async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        filter.count(&self.store, Queue::Inbox).await
    }

    /// Revives every dead message that matches, in batches, and says how many. One that dies again
    /// meanwhile stays dead.
    ///
    /// # Errors
    /// As [`Inbox::count_dead`].
    pub async fn revive_matching(&self, filter: &DeadFilter) -> Result<u64, Error> {
        self.store.replay_matching(Queue::Inbox, filter).await
    }

    /// Deletes every dead message that matches and forgets that it was ever seen, in batches. Says how
    /// many.
    ///
    /// # Errors
    /// As [`Inbox::count_dead`].
    pub async fn purge_matching(&self, filter: &DeadFilter) -> Result<u64, Error> {
        self.store.purge_matching(Queue::Inbox, filter).await
    }

    /// Deletes all messages that have been dead for longer than `older_than`; zero means all.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purge_older_than(&self, older_than: Duration) -> Result<u64, Error> {
        self.store.purge_older_than(Queue::Inbox, older_than).await
    }

    /// Forgets messages that are done and were last seen longer than `older_than` ago, in batches, and
    /// says how many. After that, the same message counts as new. Seen, processing and dead messages
    /// stay. 30 days is a good start.
    ///
    /// # Errors
    /// When `older_than` is zero.
    pub async fn cleanup(&self, older_than: Duration) -> Result<u64, Error> {
        let age = retention_micros("older_than", older_than)?;
        self.store
            .cleanup(Queue::Inbox, Cutoff::OlderThan(age))
            .await?;
        self.store
            .in_batches(|| self.forget(age, CLEANUP_BATCH))
            .await
    }

    /// One batch of a cleanup, in one transaction; `0` when nothing is left.
    ///
    /// # Errors
    /// When `older_than` or `batch` is zero.
    pub async fn cleanup_batch(&self, older_than: Duration, batch: u32) -> Result<u64, Error> {
        let age = retention_micros("older_than", older_than)?;
        if batch == 0 {
            return Err(ErrorKind::OutOfRange { param: "batch" }.with("must be at least 1"));
        }
        self.forget(age, batch.into()).await
    }

    async fn forget(&self, age: i64, batch: i64) -> Result<u64, Error> {
        let call = self
            .store
            .catalog
            .inbox_forget
            .call(vec![age.into(), batch.into()]);
        self.store.number("cleanup", "inbox", call).await
    }

    fn target(&self, keys: InboxKeys<'_>) -> Target<'_> {
        let catalog = &self.store.catalog;
        match keys {
            InboxKeys::WorkItems(ids) => Target {
                name: "inbox",
                sql: &catalog.inbox,
                ids: Value::Uuids(ids.iter().map(|id| id.as_uuid()).collect()),
            },
            InboxKeys::Typed(ids) => {
                let keys = ids
                    .iter()
                    .map(|id| (Some(id.source.as_str()), id.message_id.as_str()));
                Target {
                    name: "inbox",
                    sql: &catalog.inbox_by_key,
                    ids: keys_json(keys),
                }
            }
            InboxKeys::Bare(ids) => {
                let keys = ids.iter().map(|id| (None, *id));
                Target {
                    name: "inbox",
                    sql: &catalog.inbox_by_key,
                    ids: keys_json(keys),
                }
            }
        }
    }
}

/// A JSON array of [source or null, message id]; nothing when there are no keys. A key with a NUL
/// matches no message.
fn keys_json<'a>(keys: impl Iterator<Item = (Option<&'a str>, &'a str)>) -> Value {
    let keys: Vec<_> = keys
        .filter(|(source, id)| !id.contains('\0') && !source.is_some_and(|s| s.contains('\0')))
        .collect();
    if keys.is_empty() {
        Value::Text(None)
    } else {
        Value::Text(serde_json::to_string(&keys).ok())
    }
}
