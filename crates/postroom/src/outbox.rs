//! The outbox: messages that leave with your transaction, and the queue they are worked off from.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::error::{Error, ErrorKind};
use crate::id::{MessageId, OwnerToken, WorkItemId};
use crate::join::NO_JOIN;
use crate::list::{DeadFilter, List};
use crate::message::{Counts, Message, OutboxMessage, Receipt, check_time, headers_text, micros};
use crate::observe::{TopicCounts, TraceContext};
use crate::once::{Once, enqueue_once, forget_keys};
use crate::sql::{Call, Queue, Statement, Value};
use crate::store::{
    Abandon, CLEANUP_BATCH, Cutoff, Store, Target, duration_micros, retention_micros,
};
use crate::tx::{Executor, run_in};

/// The outbox of a store. Cheap to clone.
///
/// ```no_run
/// # async fn example(room: postroom::Postroom) -> Result<(), postroom::Error> {
/// use std::time::Duration;
/// use postroom::{Message, OwnerToken};
///
/// let outbox = room.outbox();
/// outbox.enqueue(&Message::new("order.created", "{}")).await?;
///
/// let owner = OwnerToken::new();
/// for message in outbox.claim(owner, Duration::from_secs(30), 50).await? {
///     println!("{} {}", message.topic, message.payload);
///     outbox.ack(owner, &[message.id]).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Outbox {
    pub(crate) store: Arc<Store>,
}

impl Outbox {
    /// Enqueues one message in a transaction of its own. When this returns, the message is committed.
    ///
    /// # Errors
    /// When the message is not valid (nothing was written), when it names a join that does not exist
    /// (nothing was written), and when the database fails.
    pub async fn enqueue(&self, message: &Message) -> Result<Receipt, Error> {
        let enqueue = Enqueue::one(&self.store, message)?;
        self.store.run("enqueue", "outbox", enqueue.calls).await?;
        self.store.added(Queue::Outbox);
        self.log_enqueued(std::slice::from_ref(message));
        Ok(enqueue.receipts[0])
    }

    /// Enqueues a message once per key, in a transaction of its own: for callers who repeat a request
    /// because they do not know whether it has arrived. The same key again gives the first receipt, be its
    /// message unfinished, done or dead. Of many callers at once, exactly one enqueues.
    ///
    /// A key is kept as long as done messages are: [`Outbox::cleanup`] forgets those that are older, unless
    /// their message is unfinished or dead.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// # use postroom::{Message, Once, Postroom};
    /// # let room = Postroom::connect("sqlite::memory:").await?;
    /// # room.deploy().await?;
    /// let message = Message::new("order.created", "7");
    /// let first = room.outbox().enqueue_once("order-7", &message).await?;
    /// let second = room.outbox().enqueue_once("order-7", &message).await?;
    /// assert!(matches!(first, Once::New(_)));
    /// assert_eq!(second, Once::Again(first.receipt()));
    /// # Ok::<(), postroom::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidArgument` when the key is empty or longer than 255 characters; `Conflict`, both with the
    /// parameter `idempotency_key`, when the key stands for another message: another topic, payload,
    /// header, correlation id, due time or join. Otherwise as [`Outbox::enqueue`]. Nothing was written
    /// then.
    pub async fn enqueue_once(&self, key: &str, message: &Message) -> Result<Once, Error> {
        enqueue_once(&self.store, key, message).await
    }

    /// Enqueues any number of messages in one transaction: all of them or none.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`]. Every message is checked before the first is written.
    pub async fn enqueue_many(&self, messages: &[Message]) -> Result<Vec<Receipt>, Error> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let enqueue = Enqueue::many(&self.store, messages)?;
        self.store.run("enqueue", "outbox", enqueue.calls).await?;
        self.store.added(Queue::Outbox);
        self.log_enqueued(messages);
        Ok(enqueue.receipts)
    }

    /// Enqueues a message in the caller's transaction, which is neither committed nor rolled back here.
    /// Other workers see the message once the caller commits.
    ///
    /// # Errors
    /// When the message is not valid, when it names a join that does not exist, when the transaction
    /// belongs to another kind of database, and when the client reports an error.
    pub async fn enqueue_in<E: Executor>(
        &self,
        tx: &mut E,
        message: &Message,
    ) -> Result<Receipt, E::Error> {
        let enqueue = Enqueue::one(&self.store, message)?;
        run_in(&*self.store.db, tx, enqueue.calls).await?;
        self.store
            .promised(Queue::Outbox, enqueue.receipts[0].work_item_id.as_uuid());
        self.log_enqueued(std::slice::from_ref(message));
        Ok(enqueue.receipts[0])
    }

    /// Enqueues any number of messages in the caller's transaction.
    ///
    /// # Errors
    /// As [`Outbox::enqueue_in`].
    pub async fn enqueue_many_in<E: Executor>(
        &self,
        tx: &mut E,
        messages: &[Message],
    ) -> Result<Vec<Receipt>, E::Error> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let enqueue = Enqueue::many(&self.store, messages)?;
        run_in(&*self.store.db, tx, enqueue.calls).await?;
        self.store
            .promised(Queue::Outbox, enqueue.receipts[0].work_item_id.as_uuid());
        self.log_enqueued(messages);
        Ok(enqueue.receipts)
    }

    /// The statements that enqueue a message, for a client library that postroom does not know. Run
    /// them in order in your transaction.
    ///
    /// # Errors
    /// When the message is not valid.
    pub fn statements(&self, message: &Message) -> Result<(Receipt, Vec<Statement>), Error> {
        let enqueue = Enqueue::one(&self.store, message)?;
        Ok((
            enqueue.receipts[0],
            enqueue
                .calls
                .into_iter()
                .flat_map(Call::into_statements)
                .collect(),
        ))
    }

    fn log_enqueued(&self, messages: &[Message]) {
        log_enqueued(&self.store, messages);
    }

    /// Leases up to `batch` ready messages to `owner` for the time of `lease`, oldest first, and gives
    /// them back whole. Nobody else gets them until the lease has expired. No message is ready: the
    /// list is empty.
    ///
    /// Use a fresh token for each claim. 10 to 300 seconds and 1 to 100 messages suit most work.
    ///
    /// # Errors
    /// When `owner` is the empty token, or `lease` or `batch` is zero or beyond its limit.
    pub async fn claim(
        &self,
        owner: OwnerToken,
        lease: Duration,
        batch: usize,
    ) -> Result<Vec<OutboxMessage>, Error> {
        let rows = self.store.claim(Queue::Outbox, owner, lease, batch).await?;
        let mut messages = rows
            .into_iter()
            .map(OutboxMessage::claimed)
            .collect::<Result<Vec<_>, _>>()?;
        messages.sort_by_key(|message| {
            (
                message.progress.next_attempt_at,
                message.created_at,
                message.id,
            )
        });
        Ok(messages)
    }

    /// Marks messages as done, and counts them as completed steps of their joins in the same
    /// transaction. Gives back the ids that really changed: those that `owner` still held.
    ///
    /// # Errors
    /// When `owner` is the empty token.
    pub async fn ack(
        &self,
        owner: OwnerToken,
        ids: &[WorkItemId],
    ) -> Result<Vec<WorkItemId>, Error> {
        Ok(work_items(self.store.ack(&self.target(ids), owner).await?))
    }

    /// Acks a message and enqueues what follows from it, in one transaction: all of it, or nothing when
    /// the lease was lost.
    ///
    /// # Errors
    /// `LeaseLost` when `owner` no longer holds the message; otherwise as [`Outbox::enqueue`].
    pub async fn ack_and_enqueue(
        &self,
        owner: OwnerToken,
        id: WorkItemId,
        messages: &[Message],
    ) -> Result<Vec<Receipt>, Error> {
        ack_and_enqueue(&self.store, Queue::Outbox, owner, id, messages).await
    }

    /// As [`Outbox::ack`] of one message, in the caller's transaction: the handler's own writes and the ack
    /// commit together, or neither does. On PostgreSQL the transaction must be READ COMMITTED, its default.
    ///
    /// # Errors
    /// `LeaseLost` when `owner` no longer holds the message: roll back then, somebody else has it.
    pub async fn ack_in<E: Executor>(
        &self,
        tx: &mut E,
        owner: OwnerToken,
        id: WorkItemId,
    ) -> Result<(), E::Error> {
        ack_in(&self.store, Queue::Outbox, tx, owner, id).await
    }

    /// Hands back what `owner` holds among `ids` as if it had never been claimed: ready at once, with no
    /// attempt spent. For a worker that stops. Gives back what really changed.
    ///
    /// # Errors
    /// When `owner` is the empty token and when the database fails.
    pub async fn release(
        &self,
        owner: OwnerToken,
        ids: &[WorkItemId],
    ) -> Result<Vec<WorkItemId>, Error> {
        Ok(work_items(
            self.store.release(&self.target(ids), owner).await?,
        ))
    }

    /// Hands messages back for a later attempt. Gives back the ids that really changed.
    ///
    /// # Errors
    /// When `owner` is the empty token or the delay is beyond its limit.
    pub async fn abandon(
        &self,
        owner: OwnerToken,
        ids: &[WorkItemId],
        how: Abandon,
    ) -> Result<Vec<WorkItemId>, Error> {
        Ok(work_items(
            self.store.abandon(&self.target(ids), owner, &how).await?,
        ))
    }

    /// Marks messages as dead, and counts them as failed steps of their joins in the same transaction.
    /// They stay until somebody replays or purges them. Gives back the ids that really changed.
    ///
    /// # Errors
    /// When `owner` is the empty token.
    pub async fn fail(
        &self,
        owner: OwnerToken,
        ids: &[WorkItemId],
        error: &str,
    ) -> Result<Vec<WorkItemId>, Error> {
        Ok(work_items(
            self.store.fail(&self.target(ids), owner, error).await?,
        ))
    }

    /// Extends leases that `owner` still holds. An id that does not come back has lost its lease: stop
    /// working on it.
    ///
    /// # Errors
    /// When `owner` is the empty token or `lease` is zero or beyond its limit.
    pub async fn renew(
        &self,
        owner: OwnerToken,
        ids: &[WorkItemId],
        lease: Duration,
    ) -> Result<Vec<WorkItemId>, Error> {
        Ok(work_items(
            self.store.renew(&self.target(ids), owner, lease).await?,
        ))
    }

    /// Frees every expired lease and says how many. A claim takes expired leases by itself; this keeps
    /// the table and the numbers tidy.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reap(&self) -> Result<u64, Error> {
        self.store.reap(Queue::Outbox).await
    }

    /// One message, in whatever state it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>, Error> {
        let call = self
            .store
            .catalog
            .outbox
            .get
            .call(vec![id.as_uuid().into()]);
        let rows = self.store.read("get", "outbox", call).await?;
        rows.into_iter()
            .next()
            .map(OutboxMessage::shown)
            .transpose()
    }

    /// Messages, by id, which is about the order in which they were enqueued. To page on, give the last id
    /// as `after`.
    ///
    /// # Errors
    /// `OutOfRange` when `limit` is zero or beyond 10,000 or an age is beyond a hundred years,
    /// `InvalidArgument` when a text can be no topic or correlation id; nothing was read then.
    pub async fn list(&self, list: &List) -> Result<Vec<OutboxMessage>, Error> {
        let rows = list.listing().rows(&self.store).await?;
        rows.into_iter().map(OutboxMessage::shown).collect()
    }

    /// How many messages a list is about, whatever its limit and where it starts. It counts rows: with done
    /// messages among them, on a large archive, that takes a while.
    ///
    /// # Errors
    /// As [`Outbox::list`].
    pub async fn count(&self, list: &List) -> Result<u64, Error> {
        list.listing().count(&self.store).await
    }

    /// How many unfinished and dead messages each topic has, by topic. It looks at every one of them, and
    /// never at the archive.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn topics(&self) -> Result<Vec<TopicCounts>, Error> {
        TopicCounts::of(&self.store, Queue::Outbox).await
    }

    /// How many messages are in each state. It counts rows: on a large archive that takes a while.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn counts(&self) -> Result<Counts, Error> {
        let call = self.store.catalog.outbox.count.call(Vec::new());
        let [ready, in_flight, done, dead] =
            four_counts(self.store.read("count", "outbox", call).await?)?;
        Ok(Counts {
            ready,
            in_flight,
            done,
            dead,
        })
    }

    /// Makes dead messages ready again, with a fresh budget of attempts. Gives back the ids that were
    /// dead.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replay(&self, ids: &[WorkItemId]) -> Result<Vec<WorkItemId>, Error> {
        let replayed = self.store.replay(&self.target(ids)).await?;
        self.store.added(Queue::Outbox);
        Ok(work_items(replayed))
    }

    /// Deletes dead messages for good and says how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purge(&self, ids: &[WorkItemId]) -> Result<u64, Error> {
        self.store.purge(&self.target(ids)).await
    }

    /// How many dead messages match: what [`Outbox::replay_matching`] or [`Outbox::purge_matching`] would
    /// change.
    ///
    /// # Errors
    /// `InvalidArgument` or `OutOfRange`, naming the part of the filter that cannot be right.
    pub async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, Error> {
        filter.count(&self.store, Queue::Outbox).await
    }

    /// Makes every dead message that matches ready again, in batches, and says how many. One that dies
    /// again meanwhile stays dead.
    ///
    /// # Errors
    /// As [`Outbox::count_dead`].
    pub async fn replay_matching(&self, filter: &DeadFilter) -> Result<u64, Error> {
        self.store.replay_matching(Queue::Outbox, filter).await
    }

    /// Deletes every dead message that matches for good, in batches, and says how many.
    ///
    /// # Errors
    /// As [`Outbox::count_dead`].
    pub async fn purge_matching(&self, filter: &DeadFilter) -> Result<u64, Error> {
        self.store.purge_matching(Queue::Outbox, filter).await
    }

    /// Deletes all messages that have been dead for longer than `older_than`; zero means all.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn purge_older_than(&self, older_than: Duration) -> Result<u64, Error> {
        duration_micros("older_than", older_than)?;
        self.store.purge_older_than(Queue::Outbox, older_than).await
    }

    /// Deletes messages that have been done for longer than `older_than`, in batches, oldest first, and
    /// says how many. Unfinished and dead messages stay. Keys of [`Outbox::enqueue_once`] that are older go
    /// too. A week is a good start.
    ///
    /// # Errors
    /// When `older_than` is zero.
    pub async fn cleanup(&self, older_than: Duration) -> Result<u64, Error> {
        let age = retention_micros("older_than", older_than)?;
        self.clean_up(Cutoff::OlderThan(age)).await
    }

    /// As [`Outbox::cleanup`], for messages that were done before a point in time.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn cleanup_before(&self, before: SystemTime) -> Result<u64, Error> {
        self.clean_up(Cutoff::Before(check_time("before", before)?))
            .await
    }

    async fn clean_up(&self, cutoff: Cutoff) -> Result<u64, Error> {
        let deleted = self.store.cleanup(Queue::Outbox, cutoff).await?;
        let forget = || forget_keys(&self.store, cutoff, CLEANUP_BATCH);
        self.store.in_batches(forget).await?;
        Ok(deleted)
    }

    /// One batch of a cleanup, in one transaction; `0` when nothing is left. For callers who pace the
    /// work themselves. When no done message is left to delete, keys are, and count too.
    ///
    /// # Errors
    /// When `older_than` or `batch` is zero.
    pub async fn cleanup_batch(&self, older_than: Duration, batch: u32) -> Result<u64, Error> {
        let cutoff = Cutoff::OlderThan(retention_micros("older_than", older_than)?);
        if batch == 0 {
            return Err(ErrorKind::OutOfRange { param: "batch" }.with("must be at least 1"));
        }
        let deleted = self
            .store
            .cleanup_batch(Queue::Outbox, cutoff, batch.into())
            .await?;
        if deleted > 0 {
            return Ok(deleted);
        }
        forget_keys(&self.store, cutoff, batch.into()).await
    }

    fn target(&self, ids: &[WorkItemId]) -> Target<'_> {
        let ids = Value::Uuids(ids.iter().map(|id| id.as_uuid()).collect());
        Target {
            name: "outbox",
            sql: &self.store.catalog.outbox,
            ids,
        }
    }
}

/// Messages that were checked, and the calls that write them.
pub(crate) struct Enqueue {
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) calls: Vec<Call>,
}

impl Enqueue {
    fn one(store: &Store, message: &Message) -> Result<Self, Error> {
        message.check()?;
        if !message.joins.is_empty() {
            return Ok(Self::write(store, std::slice::from_ref(message)));
        }
        let receipt = receipt(message);
        let trace = store.trace();
        Ok(Self {
            receipts: vec![receipt],
            calls: vec![single(store, message, receipt, trace)],
        })
    }

    pub(crate) fn many(store: &Store, messages: &[Message]) -> Result<Self, Error> {
        messages.iter().try_for_each(Message::check)?;
        Ok(Self::write(store, messages))
    }

    /// One statement for all on PostgreSQL; on SQLite the lease is checked first, and a transaction that
    /// has lost it stops there.
    pub(crate) fn after_ack(
        store: &Store,
        queue: Queue,
        owner: OwnerToken,
        id: WorkItemId,
        messages: &[Message],
    ) -> Self {
        let (owner, id) = (owner.as_uuid(), id.as_uuid());
        let (_, sql, _) = store.queue(queue);
        let ack = store.ack_values(owner, vec![id].into());
        if let Some(script) = &sql.ack_and_enqueue {
            let receipts: Vec<Receipt> = messages.iter().map(receipt).collect();
            let mut values = ack;
            let trace = store.trace();
            values.extend(columns(messages, &receipts, trace));
            values.extend(membership_columns(memberships(messages, &receipts)));
            return Self {
                receipts,
                calls: vec![script.call(values).needs(ErrorKind::LeaseLost)],
            };
        }
        let mut enqueue = Self::write(store, messages);
        enqueue
            .calls
            .splice(0..0, fenced_ack(store, queue, owner, id));
        enqueue
    }

    /// One statement for all on PostgreSQL, one after the other in one transaction on SQLite.
    fn write(store: &Store, messages: &[Message]) -> Self {
        let receipts: Vec<Receipt> = messages.iter().map(receipt).collect();
        let catalog = &store.catalog;
        let memberships = memberships(messages, &receipts);
        let trace = store.trace();
        let calls = match (
            &catalog.enqueue_many,
            &catalog.enqueue_joined,
            &catalog.enqueue_member,
        ) {
            (Some(many), _, _) if memberships.is_empty() => {
                vec![many.call(columns(messages, &receipts, trace))]
            }
            (_, Some(joined), _) => {
                let mut values = columns(messages, &receipts, trace);
                values.extend(membership_columns(memberships));
                vec![joined.call(values)]
            }
            (_, _, member) => {
                let rows = messages
                    .iter()
                    .zip(&receipts)
                    .map(|(message, receipt)| single(store, message, *receipt, trace));
                let mut seen = std::collections::HashSet::new();
                let members = memberships
                    .into_iter()
                    .filter(|pair| seen.insert(*pair))
                    .flat_map(|(message, join)| {
                        member.as_ref().map(|script| {
                            script
                                .call(vec![message.into(), join.into()])
                                .needs(NO_JOIN)
                        })
                    });
                rows.chain(members).collect()
            }
        };
        Self { receipts, calls }
    }
}

/// Acks one message and enqueues others in one transaction, or does neither.
pub(crate) async fn ack_and_enqueue(
    store: &Store,
    queue: Queue,
    owner: OwnerToken,
    id: WorkItemId,
    messages: &[Message],
) -> Result<Vec<Receipt>, Error> {
    owner.checked("owner")?;
    messages.iter().try_for_each(Message::check)?;
    let enqueue = Enqueue::after_ack(store, queue, owner, id, messages);
    let (name, sql, _) = store.queue(queue);
    let target = Target {
        name,
        sql,
        ids: vec![id.as_uuid()].into(),
    };
    let acked = store.settle("ack", &target, enqueue.calls).await?;
    if acked.is_empty() {
        return Err(ErrorKind::LeaseLost.with("nothing was written"));
    }
    if !messages.is_empty() {
        store.added(Queue::Outbox);
        log_enqueued(store, messages);
    }
    Ok(enqueue.receipts)
}

/// Acks one message in the caller's transaction, or fails there.
pub(crate) async fn ack_in<E: Executor>(
    store: &Store,
    queue: Queue,
    tx: &mut E,
    owner: OwnerToken,
    id: WorkItemId,
) -> Result<(), E::Error> {
    let calls = fenced_ack(store, queue, owner.checked("owner")?, id.as_uuid());
    run_in(&*store.db, tx, calls).await?;
    Ok(())
}

/// An ack that is an error when the lease was lost. On PostgreSQL the ack returns a row if it changed
/// something; on SQLite a statement before it makes sure of the lease.
fn fenced_ack(store: &Store, queue: Queue, owner: Uuid, id: Uuid) -> Vec<Call> {
    let (_, sql, _) = store.queue(queue);
    let ack = sql.ack.call(store.ack_values(owner, vec![id].into()));
    match &sql.held {
        None => vec![ack.needs(ErrorKind::LeaseLost)],
        Some(held) => vec![
            held.call(vec![owner.into(), id.into()])
                .needs(ErrorKind::LeaseLost),
            ack,
        ],
    }
}

pub(crate) fn log_enqueued(store: &Store, messages: &[Message]) {
    for message in messages {
        tracing::info!(
            store = %store.identifier,
            topic = %message.topic.escape_debug(),
            correlation_id = message.correlation_id.as_deref().filter(|id| !id.is_empty()),
            "enqueued"
        );
    }
    metrics::counter!("postroom_enqueued_total", "store" => store.identifier.clone(), "queue" => "outbox")
        .increment(messages.len() as u64);
}

pub(crate) fn receipt(message: &Message) -> Receipt {
    let work_item_id = message.id.unwrap_or_else(WorkItemId::new);
    let message_id = message
        .message_id
        .unwrap_or_else(|| MessageId::from_uuid(work_item_id.as_uuid()));
    Receipt {
        work_item_id,
        message_id,
    }
}

fn single(store: &Store, message: &Message, receipt: Receipt, trace: Option<TraceContext>) -> Call {
    store
        .catalog
        .enqueue
        .call(vec![
            receipt.work_item_id.as_uuid().into(),
            receipt.message_id.as_uuid().into(),
            message.topic.as_str().into(),
            message.payload.as_str().into(),
            headers_text(&message.headers, trace).into(),
            correlation(message).into(),
            message.due_at.map(micros).into(),
        ])
        .quick()
}

/// Which message is a step of which join.
fn memberships(messages: &[Message], receipts: &[Receipt]) -> Vec<(Uuid, Uuid)> {
    let pairs = messages.iter().zip(receipts);
    pairs
        .flat_map(|(message, receipt)| {
            message
                .joins
                .iter()
                .map(|join| (receipt.message_id.as_uuid(), join.as_uuid()))
        })
        .collect()
}

fn membership_columns(memberships: Vec<(Uuid, Uuid)>) -> [Value; 2] {
    let (members, joins): (Vec<Uuid>, Vec<Uuid>) = memberships.into_iter().unzip();
    [members.into(), joins.into()]
}

fn columns(messages: &[Message], receipts: &[Receipt], trace: Option<TraceContext>) -> Vec<Value> {
    vec![
        Value::Uuids(
            receipts
                .iter()
                .map(|receipt| receipt.work_item_id.as_uuid())
                .collect(),
        ),
        Value::Uuids(
            receipts
                .iter()
                .map(|receipt| receipt.message_id.as_uuid())
                .collect(),
        ),
        Value::Texts(
            messages
                .iter()
                .map(|message| Some(message.topic.clone()))
                .collect(),
        ),
        Value::Texts(
            messages
                .iter()
                .map(|message| Some(message.payload.clone()))
                .collect(),
        ),
        Value::Texts(
            messages
                .iter()
                .map(|message| headers_text(&message.headers, trace))
                .collect(),
        ),
        Value::Texts(messages.iter().map(correlation).collect()),
        Value::Ints(
            messages
                .iter()
                .map(|message| message.due_at.map(micros))
                .collect(),
        ),
    ]
}

/// An empty correlation id counts as none.
pub(crate) fn correlation(message: &Message) -> Option<String> {
    message.correlation_id.clone().filter(|id| !id.is_empty())
}

fn work_items(ids: Vec<Uuid>) -> Vec<WorkItemId> {
    ids.into_iter().map(WorkItemId::from).collect()
}

pub(crate) fn four_counts(mut rows: Vec<crate::sql::Row>) -> Result<[u64; 4], Error> {
    let mut row = rows
        .pop()
        .ok_or_else(|| ErrorKind::Schema.with("a count returned no row"))?;
    Ok([row.count()?, row.count()?, row.count()?, row.count()?])
}
