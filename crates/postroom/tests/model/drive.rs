//! Runs each operation on the database and on the model, and compares them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use postroom::{
    Abandon, Error, ErrorKind, Inbound, InboxKeys, InboxMessage, InboxMessageId, JoinId,
    JoinStatus, JoinWait, List, Message, MessageId, NewJoin, OutboxMessage, OwnerToken, Postroom,
    Progress, State, StepStatus, Synchronous, WorkItemId,
};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use testkit::{Backend, Fixture};

use crate::model::{InboxItem, JoinItem, Lease, Model, OutboxItem, Place, Stage, Work};
use crate::op::{Age, Delay, Due, Handback, Id, Key, Keys, Mark, Member, New, Op, Owner};

type Outcome = Result<(), TestCaseError>;

/// Longer than any test runs.
const HOURS: Duration = Duration::from_secs(4 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Driver<'a> {
    fixture: &'a Fixture,
    room: Postroom,
    model: Model,
    tokens: Vec<OwnerToken>,
    strangers: [MessageId; 3],
    enqueued: usize,
}

impl<'a> Driver<'a> {
    pub(crate) async fn new(fixture: &'a Fixture) -> Self {
        // What a power cut would do is not the question here.
        let room = fixture
            .options()
            .synchronous(Synchronous::Normal)
            .connect()
            .await
            .unwrap();
        Self {
            fixture,
            room,
            model: Model::default(),
            tokens: vec![OwnerToken::new()],
            strangers: std::array::from_fn(|_| MessageId::new()),
            enqueued: 0,
        }
    }

    pub(crate) async fn step(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Enqueue(new) => self.enqueue(std::slice::from_ref(new), false).await,
            Op::EnqueueMany(many) => self.enqueue(many, true).await,
            Op::EnqueueAgain(index) => self.enqueue_again(*index).await,
            Op::Claim(owner, batch) => self.claim(*owner, (*batch).into()).await,
            Op::Ack(owner, ids) => {
                let (owner, ids) = self.named(*owner, ids);
                let answer = self.room.outbox().ack(owner, &ids).await;
                same_ids(answer, self.model.ack(owner, &ids))
            }
            Op::Fail(owner, ids, error) => {
                let (owner, ids) = self.named(*owner, ids);
                let answer = self
                    .room
                    .outbox()
                    .fail(owner, &ids, if *error { "failed" } else { "" })
                    .await;
                same_ids(answer, self.model.fail(owner, &ids, *error))
            }
            Op::Abandon(owner, ids, how) => self.abandon(*owner, ids, *how).await,
            Op::Renew(owner, ids) => {
                let (owner, ids) = self.named(*owner, ids);
                same_ids(
                    self.room.outbox().renew(owner, &ids, HOURS).await,
                    self.model.renew(owner, &ids),
                )
            }
            Op::Release(owner, ids) => {
                let (owner, ids) = self.named(*owner, ids);
                same_ids(
                    self.room.outbox().release(owner, &ids).await,
                    self.model.release(owner, &ids),
                )
            }
            Op::Reap => same(self.room.outbox().reap().await, self.model.reap()),
            Op::Replay(ids) => {
                let ids = self.dead(ids);
                same_ids(
                    self.room.outbox().replay(&ids).await,
                    self.model.replay(&ids),
                )
            }
            Op::Purge(ids) => {
                let ids = self.dead(ids);
                same(
                    self.room.outbox().purge(&ids).await,
                    self.model.purge(|item| ids.contains(&item.id)),
                )
            }
            Op::PurgeOld(age) => {
                let answer = self.room.outbox().purge_older_than(older_than(*age)).await;
                same(
                    answer,
                    self.model.purge(|item| item.aged || *age == Age::All),
                )
            }
            Op::Cleanup(Age::Day) => same(
                self.room.outbox().cleanup(DAY).await,
                self.model.cleanup(usize::MAX, |item| item.aged),
            ),
            Op::Cleanup(Age::All) => {
                let answer = self
                    .room
                    .outbox()
                    .cleanup_before(SystemTime::now() + 3 * DAY)
                    .await;
                same(answer, self.model.cleanup(usize::MAX, |_| true))
            }
            Op::CleanupBatch(batch) => self.cleanup_batch(*batch).await,
            Op::Check(key, hash) => self.check(*key, *hash).await,
            Op::Receive(key, inbound) => self.receive(*key, inbound).await,
            Op::Mark(key, mark) => self.mark(*key, *mark).await,
            Op::InboxClaim(owner, batch) => self.inbox_claim(*owner, (*batch).into()).await,
            Op::InboxAck(owner, keys) => {
                let (owner, keys) = self.inbox_named(*owner, keys);
                let answer = self
                    .room
                    .inbox()
                    .ack(owner, keys.borrow(&keys.bare()))
                    .await;
                same(answer, self.model.inbox_ack(owner, &keys.reached))
            }
            Op::InboxFail(owner, keys, error) => {
                let (owner, keys) = self.inbox_named(*owner, keys);
                let text = if *error { "failed" } else { "" };
                let answer = self
                    .room
                    .inbox()
                    .fail(owner, keys.borrow(&keys.bare()), text)
                    .await;
                same(answer, self.model.inbox_fail(owner, &keys.reached, *error))
            }
            Op::InboxAbandon(owner, keys, how) => self.inbox_abandon(*owner, keys, *how).await,
            Op::InboxRenew(owner, keys) => {
                let (owner, keys) = self.inbox_named(*owner, keys);
                let answer = self
                    .room
                    .inbox()
                    .renew(owner, keys.borrow(&keys.bare()), HOURS)
                    .await;
                same(answer, self.model.inbox_renew(owner, &keys.reached))
            }
            Op::InboxRelease(owner, keys) => {
                let (owner, keys) = self.inbox_named(*owner, keys);
                let answer = self
                    .room
                    .inbox()
                    .release(owner, keys.borrow(&keys.bare()))
                    .await;
                same(answer, self.model.inbox_release(owner, &keys.reached))
            }
            Op::InboxReap => same(self.room.inbox().reap().await, self.model.inbox_reap()),
            Op::Revive(keys) => {
                let keys = self.keys(keys);
                let answer = self.room.inbox().revive(keys.borrow(&keys.bare())).await;
                same(answer, self.model.revive(&keys.reached))
            }
            Op::InboxPurge(keys) => {
                let keys = self.keys(keys);
                let answer = self.room.inbox().purge(keys.borrow(&keys.bare())).await;
                same(
                    answer,
                    self.model.inbox_purge(|key, _| keys.reached.contains(key)),
                )
            }
            Op::InboxPurgeOld(age) => {
                let answer = self.room.inbox().purge_older_than(older_than(*age)).await;
                same(
                    answer,
                    self.model
                        .inbox_purge(|_, item| item.aged || *age == Age::All),
                )
            }
            Op::InboxCleanup => same(
                self.room.inbox().cleanup(DAY).await,
                self.model.inbox_cleanup(),
            ),
            Op::GetBare(id) => self.get_bare(*id).await,
            Op::Start(expected) => self.start(*expected).await,
            Op::Attach(join, member) => self.attach(*join, *member).await,
            Op::Report(join, member, failed) => self.report(*join, *member, *failed).await,
            Op::Reconcile(join) => match self.join(*join) {
                Ok(index) => {
                    let answer = self
                        .room
                        .joins()
                        .reconcile(self.model.joins[index].id)
                        .await;
                    same(answer, self.model.reconcile(index))
                }
                Err(unknown) => not_found(self.room.joins().reconcile(unknown).await),
            },
            Op::Cancel(join) => match self.join(*join) {
                Ok(index) => {
                    let answer = self.room.joins().cancel(self.model.joins[index].id).await;
                    same(answer, self.model.cancel(index))
                }
                Err(unknown) => not_found(self.room.joins().cancel(unknown).await),
            },
            Op::Wait(join) => self.wait(*join).await,
            Op::JoinCleanup => same(
                self.room.joins().cleanup(DAY).await,
                self.model.cleanup_joins(),
            ),
            Op::Expire => {
                self.fixture.expire_leases().await;
                self.model.expire();
                Ok(())
            }
            Op::Pass => {
                self.pass().await;
                Ok(())
            }
            Op::Age => {
                self.age().await;
                Ok(())
            }
        }
    }
}

/// The outbox.
impl Driver<'_> {
    async fn enqueue(&mut self, many: &[New], as_many: bool) -> Outcome {
        let mut messages = Vec::new();
        let mut items: Vec<(OutboxItem, Vec<usize>)> = Vec::new();
        let mut known = true;
        for new in many {
            let taken = |id: MessageId| {
                self.model
                    .messages
                    .iter()
                    .chain(items.iter().map(|(item, _)| item))
                    .any(|item| item.message_id == id)
            };
            let id = WorkItemId::new();
            let message_id = match new.message_id {
                Id::SameAsWorkItem => MessageId::from_uuid(id.as_uuid()),
                Id::Chosen => MessageId::new(),
                Id::Stranger(index) => {
                    let stranger = self.strangers[usize::from(index) % self.strangers.len()];
                    if taken(stranger) {
                        MessageId::new()
                    } else {
                        stranger
                    }
                }
            };
            self.enqueued += 1;
            let (topic, payload) = (
                format!("topic.{}", self.enqueued % 3),
                format!("payload {}", self.enqueued),
            );
            let mut message = Message::new(topic.as_str(), payload.as_str())
                .id(id)
                .message_id(message_id);
            if let Some(due) = due_at(new.due) {
                message = message.due_at(due);
            }
            if let Some(something) = new.correlation {
                message = message.correlation(if something { "request" } else { "" });
            }
            let mut joins = Vec::new();
            for &index in &new.joins {
                match self.join(index) {
                    Ok(join) => {
                        message = message.join(self.model.joins[join].id);
                        joins.push(join);
                    }
                    Err(unknown) => {
                        message = message.join(unknown);
                        known = false;
                    }
                }
            }
            messages.push(message);
            let correlation_id = (new.correlation == Some(true)).then(|| "request".to_owned());
            items.push((
                item(id, message_id, topic, payload, correlation_id, new.due),
                joins,
            ));
        }
        let answer = if as_many {
            self.room.outbox().enqueue_many(&messages).await
        } else {
            self.room
                .outbox()
                .enqueue(&messages[0])
                .await
                .map(|receipt| vec![receipt])
        };
        if !known {
            return not_found(answer);
        }
        let receipts: Vec<_> = ok(answer)?
            .iter()
            .map(|receipt| (receipt.work_item_id, receipt.message_id))
            .collect();
        let expected: Vec<_> = items
            .iter()
            .map(|(item, _)| (item.id, item.message_id))
            .collect();
        prop_assert_eq!(receipts, expected);
        items
            .into_iter()
            .for_each(|(item, joins)| self.model.enqueue(item, &joins));
        Ok(())
    }

    async fn enqueue_again(&mut self, index: u8) -> Outcome {
        let live: Vec<_> = self
            .model
            .messages
            .iter()
            .filter(|item| item.place == Place::Live)
            .collect();
        let Some(item) = live.get(usize::from(index) % live.len().max(1)) else {
            return Ok(());
        };
        let answer = self
            .room
            .outbox()
            .enqueue(&Message::new("again", "again").id(item.id))
            .await;
        fails(answer, ErrorKind::AlreadyExists { what: "work item" })
    }

    async fn claim(&mut self, owner: Owner, batch: usize) -> Outcome {
        let owner = self.owner(owner, None);
        let ready = self.model.ready();
        let claimed = ok(self.room.outbox().claim(owner, HOURS, batch).await)?;
        let ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
        prop_assert_eq!(
            ids.len(),
            ready.len().min(batch),
            "claimed {:?} of {:?}",
            ids,
            ready
        );
        prop_assert!(
            ids.iter().all(|id| ready.contains(id)),
            "claimed {:?} of {:?}",
            ids,
            ready
        );
        prop_assert_eq!(
            ids.iter().collect::<BTreeSet<_>>().len(),
            ids.len(),
            "claimed twice in one batch"
        );
        self.model.claim(owner, &ids);
        for message in &claimed {
            let item = self
                .model
                .messages
                .iter()
                .find(|item| item.id == message.id)
                .unwrap();
            same_message(message, item)?;
        }
        Ok(())
    }

    async fn abandon(&mut self, owner: Owner, ids: &[u8], how: Handback) -> Outcome {
        let (owner, ids) = self.named(owner, ids);
        let answer = ok(self.room.outbox().abandon(owner, &ids, abandon(how)).await)?;
        same_ids(Ok(answer.clone()), self.model.abandon(owner, &ids, how))?;
        for id in &answer {
            let message = ok(self.room.outbox().get(*id).await)?.unwrap();
            let item = self
                .model
                .messages
                .iter()
                .find(|item| item.id == *id)
                .unwrap();
            // A message that waits for a finished join is woken instead.
            if item.waits_for.is_none() || item.work.backoff {
                check_delay(&message.progress, &item.work, how.delay)?;
            }
        }
        self.settle_clock("outbox", &answer, how.delay, |id| {
            self.model
                .messages
                .iter()
                .any(|item| item.id == id && item.work.backoff)
        })
        .await;
        Ok(())
    }

    async fn cleanup_batch(&mut self, batch: u8) -> Outcome {
        let removed = ok(self.room.outbox().cleanup_batch(DAY, batch.into()).await)?;
        let mut gone = Vec::new();
        for item in self
            .model
            .messages
            .iter()
            .filter(|item| item.place == Place::Done && item.aged)
        {
            if ok(self.room.outbox().get(item.id).await)?.is_none() {
                gone.push(item.id);
            }
        }
        let old = self
            .model
            .messages
            .iter()
            .filter(|item| item.place == Place::Done && item.aged)
            .count();
        prop_assert_eq!(removed, old.min(batch.into()) as u64);
        same(
            Ok(removed),
            self.model
                .cleanup(batch.into(), |item| gone.contains(&item.id)),
        )
    }

    /// Messages by index: below 128 among those that `likely` says, else among all. The last index of
    /// all is an id that nobody ever enqueued.
    fn ids(&self, indexes: &[u8], likely: impl Fn(&OutboxItem) -> bool) -> Vec<WorkItemId> {
        let all: Vec<WorkItemId> = self.model.messages.iter().map(|item| item.id).collect();
        let likely: Vec<WorkItemId> = self
            .model
            .messages
            .iter()
            .filter(|item| likely(item))
            .map(|item| item.id)
            .collect();
        let pick = |index: u8| match usize::from(index) {
            index if index < 128 && !likely.is_empty() => likely[index % likely.len()],
            index => all
                .get(index % (all.len() + 1))
                .copied()
                .unwrap_or_else(WorkItemId::new),
        };
        indexes.iter().map(|&index| pick(index)).collect()
    }

    fn dead(&self, indexes: &[u8]) -> Vec<WorkItemId> {
        self.ids(indexes, |item| item.place == Place::Dead)
    }

    fn named(&mut self, owner: Owner, indexes: &[u8]) -> (OwnerToken, Vec<WorkItemId>) {
        let ids = self.ids(indexes, |item| item.work.owner.is_some());
        let holder = |id: &WorkItemId| {
            self.model
                .messages
                .iter()
                .find(|item| item.id == *id)?
                .work
                .owner
        };
        let holder = ids.iter().find_map(holder);
        (self.owner(owner, holder), ids)
    }

    fn owner(&mut self, owner: Owner, holder: Option<OwnerToken>) -> OwnerToken {
        let known = |index: usize| self.tokens[index % self.tokens.len()];
        let token = match owner {
            Owner::Holder => holder.unwrap_or_else(|| known(0)),
            Owner::Known(index) => known(index.into()),
            Owner::Fresh => OwnerToken::new(),
        };
        if !self.tokens.contains(&token) {
            self.tokens.push(token);
        }
        token
    }
}

/// The inbox.
impl Driver<'_> {
    async fn check(&mut self, key: Key, hash: Option<u8>) -> Outcome {
        let inbox = self.room.inbox();
        let hash = hash.map(|hash| vec![hash]);
        let answer = match &hash {
            None => (ok(inbox.already_processed(&id(key)).await)?, false),
            Some(hash) => {
                let sighting = ok(inbox.already_processed_with_hash(&id(key), hash).await)?;
                (sighting.already_processed, sighting.hash_differs)
            }
        };
        same(Ok(answer), self.model.check(key, hash))
    }

    async fn receive(&mut self, key: Key, inbound: &crate::op::Inbound) -> Outcome {
        let content = format!("content {}", inbound.payload);
        let InboxMessageId { source, message_id } = id(key);
        let mut message = Inbound::new(source, message_id, content.as_str(), content.as_str());
        let hash = inbound.hash.map(|hash| vec![hash]);
        if let Some(hash) = &hash {
            message = message.hash(hash.clone());
        }
        if let Some(due) = due_at(inbound.due) {
            message = message.due_at(due);
        }
        let accepted = ok(self.room.inbox().enqueue(&message).await)?;
        let expected = self.model.receive(key, hash, inbound.due, content);
        prop_assert_eq!((accepted.arrival, accepted.hash_differs), expected);
        self.learn(key).await
    }

    async fn mark(&mut self, key: Key, mark: Mark) -> Outcome {
        let inbox = self.room.inbox();
        let answer = match mark {
            Mark::Processing => inbox.mark_processing(&id(key)).await,
            Mark::Processed => inbox.mark_processed(&id(key)).await,
            Mark::Dead => inbox.mark_dead(&id(key)).await,
        };
        same(answer, self.model.mark(key, mark))?;
        self.learn(key).await
    }

    /// Takes over the work item id that the database has made up.
    async fn learn(&mut self, key: Key) -> Outcome {
        let Some(item) = self.model.inbox.get_mut(&key) else {
            return Ok(());
        };
        if item.work_item.is_none() && matches!(item.stage, Stage::Live | Stage::Dead) {
            item.work_item =
                ok(self.room.inbox().get(&id(key)).await)?.and_then(|message| message.work_item_id);
            prop_assert!(item.work_item.is_some());
        }
        Ok(())
    }

    async fn inbox_claim(&mut self, owner: Owner, batch: usize) -> Outcome {
        let owner = self.owner(owner, None);
        let ready = self.model.inbox_ready();
        let claimed = ok(self.room.inbox().claim(owner, HOURS, batch).await)?;
        let keys: Vec<Key> = claimed.iter().map(|message| key_of(&message.id)).collect();
        prop_assert_eq!(
            keys.len(),
            ready.len().min(batch),
            "claimed {:?} of {:?}",
            keys,
            ready
        );
        prop_assert!(
            keys.iter().all(|key| ready.contains(key)),
            "claimed {:?} of {:?}",
            keys,
            ready
        );
        prop_assert_eq!(
            keys.iter().collect::<BTreeSet<_>>().len(),
            keys.len(),
            "claimed twice in one batch"
        );
        self.model.inbox_claim(owner, &keys);
        for (message, key) in claimed.iter().zip(&keys) {
            same_inbox_message(message, &self.model.inbox[key])?;
        }
        Ok(())
    }

    async fn inbox_abandon(&mut self, owner: Owner, keys: &Keys, how: Handback) -> Outcome {
        let (owner, keys) = self.inbox_named(owner, keys);
        let answer = self
            .room
            .inbox()
            .abandon(owner, keys.borrow(&keys.bare()), abandon(how))
            .await;
        if how.delay == Delay::Zero {
            return fails(answer, ErrorKind::OutOfRange { param: "delay" });
        }
        let before = self.model.inbox.clone();
        same(answer, self.model.inbox_abandon(owner, &keys.reached, how))?;
        let mut changed = Vec::new();
        for (key, item) in &self.model.inbox {
            if before[key].work.attempts != item.work.attempts {
                let message = ok(self.room.inbox().get(&id(*key)).await)?.unwrap();
                check_delay(&message.progress, &item.work, how.delay)?;
                if let (Some(due), Some(next)) =
                    (message.due_time, message.progress.next_attempt_at)
                {
                    prop_assert!(next >= due, "{:?} is ready before it is due", key);
                }
                changed.push(item.work_item.unwrap());
            }
        }
        self.settle_clock("inbox", &changed, how.delay, |_| {
            matches!(how.delay, Delay::Backoff | Delay::Long)
        })
        .await;
        Ok(())
    }

    async fn get_bare(&mut self, bare: u8) -> Outcome {
        let found: Vec<_> = self
            .model
            .inbox
            .iter()
            .filter(|(key, _)| key.id == bare)
            .collect();
        let answer = self.room.inbox().get_bare(&format!("m{bare}")).await;
        match found.as_slice() {
            [] => fails(
                answer,
                ErrorKind::NotFound {
                    what: "inbox message",
                },
            ),
            [(_, item)] => same_inbox_message(&ok(answer)?, item),
            _ => fails(
                answer,
                ErrorKind::Ambiguous {
                    param: "message_id",
                },
            ),
        }
    }

    fn inbox_named(&mut self, owner: Owner, keys: &Keys) -> (OwnerToken, Named) {
        let named = self.keys(keys);
        let holder = named
            .reached
            .iter()
            .find_map(|key| self.model.inbox.get(key)?.work.owner);
        (self.owner(owner, holder), named)
    }

    fn keys(&self, keys: &Keys) -> Named {
        let work_item = |key: &Key| self.model.inbox.get(key).and_then(|item| item.work_item);
        match keys {
            Keys::WorkItems(keys) => Named {
                work_items: Some(
                    keys.iter()
                        .map(|key| work_item(key).unwrap_or_else(WorkItemId::new))
                        .collect(),
                ),
                typed: None,
                texts: Vec::new(),
                reached: keys.clone(),
            },
            Keys::Typed(keys) => Named {
                work_items: None,
                typed: Some(keys.iter().map(|key| id(*key)).collect()),
                texts: Vec::new(),
                reached: keys.clone(),
            },
            Keys::Bare(ids) => Named {
                work_items: None,
                typed: None,
                texts: ids.iter().map(|id| format!("m{id}")).collect(),
                reached: ids
                    .iter()
                    .flat_map(|&id| (0..2).map(move |source| Key { source, id }))
                    .collect(),
            },
        }
    }
}

/// Inbox messages as a call names them, and the keys that this reaches.
struct Named {
    work_items: Option<Vec<WorkItemId>>,
    typed: Option<Vec<InboxMessageId>>,
    texts: Vec<String>,
    reached: Vec<Key>,
}

impl Named {
    fn bare(&self) -> Vec<&str> {
        self.texts.iter().map(String::as_str).collect()
    }

    fn borrow<'b>(&'b self, bare: &'b [&'b str]) -> InboxKeys<'b> {
        match (&self.work_items, &self.typed) {
            (Some(ids), _) => InboxKeys::WorkItems(ids),
            (_, Some(ids)) => InboxKeys::Typed(ids),
            _ => InboxKeys::Bare(bare),
        }
    }
}

/// Joins.
impl Driver<'_> {
    async fn start(&mut self, expected: u8) -> Outcome {
        let id = ok(self
            .room
            .joins()
            .start(&NewJoin::new(expected.into()).grouping_key("group"))
            .await)?;
        self.model.joins.push(JoinItem {
            id,
            expected: expected.into(),
            completed: 0,
            failed: 0,
            status: JoinStatus::Pending,
            members: Default::default(),
            aged: false,
            gone: false,
        });
        Ok(())
    }

    /// A join that exists, or an id that none has.
    fn join(&self, index: u8) -> Result<usize, JoinId> {
        let index = usize::from(index) % (self.model.joins.len() + 1);
        match self.model.joins.get(index) {
            Some(join) if !join.gone => Ok(index),
            Some(join) => Err(join.id),
            None => Err(JoinId::new()),
        }
    }

    fn member(&self, member: Member) -> MessageId {
        let (index, message) = match member {
            Member::Message(index) => (
                index,
                self.ids(&[index], |item| item.place != Place::Live).pop(),
            ),
            Member::Stranger(index) => (index, None),
        };
        let known = self
            .model
            .messages
            .iter()
            .find(|item| Some(item.id) == message);
        known.map_or(self.strangers[usize::from(index) % 3], |item| {
            item.message_id
        })
    }

    async fn attach(&mut self, join: u8, member: Member) -> Outcome {
        let message = self.member(member);
        match self.join(join) {
            Ok(index) => {
                let answer = self
                    .room
                    .joins()
                    .attach(self.model.joins[index].id, message)
                    .await;
                same(answer, self.model.attach(index, message))
            }
            Err(unknown) => not_found(self.room.joins().attach(unknown, message).await),
        }
    }

    async fn report(&mut self, join: u8, member: Member, failed: bool) -> Outcome {
        let message = self.member(member);
        let (id, index) = match self.join(join) {
            Ok(index) => (self.model.joins[index].id, Some(index)),
            Err(unknown) => (unknown, None),
        };
        let joins = self.room.joins();
        let answer = if failed {
            joins.report_failed(id, message).await
        } else {
            joins.report_completed(id, message).await
        };
        let step = if failed {
            StepStatus::Failed
        } else {
            StepStatus::Completed
        };
        match index {
            Some(index) => same(answer, self.model.report(index, message, step)),
            None => not_found(answer),
        }
    }

    async fn wait(&mut self, join: u8) -> Outcome {
        match self.join(join) {
            Ok(index) => {
                let wait = JoinWait::new(self.model.joins[index].id, "next", "{}");
                let receipt = ok(self.room.joins().enqueue_wait(&wait).await)?;
                let payload = serde_json::to_string(&wait).unwrap();
                let topic = "join.wait".to_owned();
                let mut item = item(
                    receipt.work_item_id,
                    receipt.message_id,
                    topic,
                    payload,
                    None,
                    Due::No,
                );
                item.waits_for = Some(index);
                self.model.enqueue(item, &[]);
                Ok(())
            }
            Err(unknown) => not_found(
                self.room
                    .joins()
                    .enqueue_wait(&JoinWait::new(unknown, "next", "{}"))
                    .await,
            ),
        }
    }
}

/// Time.
impl Driver<'_> {
    /// Makes what an abandon has set independent of the clock: what waits waits for hours, and a
    /// microsecond is over.
    async fn settle_clock(
        &self,
        queue: &str,
        ids: &[WorkItemId],
        delay: Delay,
        waits: impl Fn(WorkItemId) -> bool,
    ) {
        let (waiting, ready): (Vec<WorkItemId>, Vec<WorkItemId>) =
            ids.iter().partition(|id| waits(**id));
        let far = match self.fixture.backend {
            Backend::Sqlite => "(unixepoch() + 14400) * 1000000",
            Backend::Postgres => "now() + interval '4 hours'",
            Backend::MySql => "(UNIX_TIMESTAMP() + 14400) * 1000000",
            Backend::SqlServer => "DATEADD(HOUR, 4, SYSUTCDATETIME())",
        };
        if !waiting.is_empty() {
            let backoff = if queue == "inbox" {
                format!(", backoff_until = {far}")
            } else {
                String::new()
            };
            let ids = self.literals(&waiting);
            self.fixture
                .sql(&format!(
                    "UPDATE {{{queue}}} SET next_attempt_at = {far}{backoff} WHERE id IN ({ids})"
                ))
                .await;
        }
        if delay == Delay::Tiny && !ready.is_empty() {
            let backoff = if queue == "inbox" {
                ", backoff_until = created_at"
            } else {
                ""
            };
            let ids = self.literals(&ready);
            self.fixture
                .sql(&format!(
                    "UPDATE {{{queue}}} SET next_attempt_at = CASE WHEN due_time > created_at THEN due_time \
                     ELSE created_at END{backoff} WHERE id IN ({ids})"
                ))
                .await;
        }
    }

    fn literals(&self, ids: &[WorkItemId]) -> String {
        let literal = |id: &WorkItemId| match self.fixture.backend {
            Backend::Sqlite | Backend::MySql => format!("x'{}'", id.as_uuid().simple()),
            Backend::Postgres => format!("'{id}'"),
            Backend::SqlServer => format!("'{id}'"),
        };
        ids.iter().map(literal).collect::<Vec<_>>().join(", ")
    }

    async fn pass(&mut self) {
        let past = "due_time = CASE WHEN due_time IS NULL THEN NULL ELSE created_at END";
        self.fixture
            .sql(&format!(
                "UPDATE {{outbox}} SET next_attempt_at = created_at, {past};
                 UPDATE {{inbox}} SET next_attempt_at = created_at, backoff_until = NULL, {past};
                 UPDATE {{outbox_dead}} SET {past};
                 UPDATE {{inbox_dead}} SET {past};"
            ))
            .await;
        self.model.pass();
    }

    async fn age(&mut self) {
        let old = match self.fixture.backend {
            Backend::Sqlite => "(unixepoch() - 864000) * 1000000",
            Backend::Postgres => "now() - interval '10 days'",
            Backend::MySql => "(UNIX_TIMESTAMP() - 864000) * 1000000",
            Backend::SqlServer => "DATEADD(DAY, -10, SYSUTCDATETIME())",
        };
        self.fixture
            .sql(&format!(
                "UPDATE {{outbox_done}} SET processed_at = {old};
                 UPDATE {{outbox_dead}} SET processed_at = {old};
                 UPDATE {{inbox_done}} SET processed_at = {old};
                 UPDATE {{inbox_dead}} SET processed_at = {old};
                 UPDATE {{inbox_seen}} SET last_seen = {old};
                 UPDATE {{outbox_join}} SET last_updated_at = {old} WHERE status <> 0;"
            ))
            .await;
        self.model.age();
    }
}

/// The comparison.
impl Driver<'_> {
    pub(crate) async fn compare(&self) -> Outcome {
        let outbox = self.room.outbox();
        prop_assert_eq!(ok(outbox.counts().await)?, self.model.counts());
        for item in &self.model.messages {
            match (ok(outbox.get(item.id).await)?, item.place) {
                (None, Place::Gone) => {}
                (Some(message), place) if place != Place::Gone => same_message(&message, item)?,
                (found, place) => prop_assert!(false, "{:?} should be {:?}", found, place),
            }
        }
        for state in [State::Ready, State::InFlight, State::Done, State::Dead] {
            let listed = ok(outbox.list(&List::new(state).limit(1000)).await)?;
            let mut expected: Vec<WorkItemId> = self
                .model
                .messages
                .iter()
                .filter(|item| item.state() == Some(state))
                .map(|item| item.id)
                .collect();
            expected.sort();
            prop_assert_eq!(
                listed.iter().map(|message| message.id).collect::<Vec<_>>(),
                expected,
                "{:?}",
                state
            );
        }
        self.compare_inbox().await?;
        self.compare_joins().await
    }

    async fn compare_inbox(&self) -> Outcome {
        let inbox = self.room.inbox();
        prop_assert_eq!(ok(inbox.counts().await)?, self.model.inbox_counts());
        for key in (0..2).flat_map(|source| (0..2).map(move |id| Key { source, id })) {
            let found = ok(inbox.get(&id(key)).await)?;
            match (found, self.model.inbox.get(&key)) {
                (None, None) => {}
                (Some(message), Some(item)) => same_inbox_message(&message, item)?,
                (found, item) => prop_assert!(false, "{:?} should be {:?}", found, item),
            }
        }
        Ok(())
    }

    async fn compare_joins(&self) -> Outcome {
        let joins = self.room.joins();
        for item in &self.model.joins {
            let Some(join) = ok(joins.get(item.id).await)? else {
                prop_assert!(item.gone, "{:?} is missing", item);
                continue;
            };
            prop_assert!(!item.gone, "{:?} should be gone", join);
            prop_assert_eq!(
                (
                    join.expected_steps,
                    join.completed_steps,
                    join.failed_steps,
                    join.status
                ),
                (item.expected, item.completed, item.failed, item.status)
            );
            let members = ok(joins.members(item.id, None, 1000).await)?;
            let members: Vec<_> = members
                .iter()
                .map(|member| (member.message_id, member.status))
                .collect();
            let expected: Vec<_> = item
                .members
                .iter()
                .map(|(message, status)| (*message, *status))
                .collect();
            prop_assert_eq!(members, expected);
        }
        let listed = ok(joins.list("group", None, 1000).await)?.len();
        prop_assert_eq!(
            listed,
            self.model.joins.iter().filter(|join| !join.gone).count()
        );
        Ok(())
    }
}

fn same_message(message: &OutboxMessage, item: &OutboxItem) -> Outcome {
    prop_assert_eq!(Some(message.state), item.state());
    prop_assert_eq!((message.id, message.message_id), (item.id, item.message_id));
    prop_assert_eq!(
        (&message.topic, &message.payload),
        (&item.topic, &item.payload)
    );
    prop_assert_eq!(&message.correlation_id, &item.correlation_id);
    prop_assert_eq!(message.due_time.is_some(), item.work.due != Due::No);
    let settled = matches!(item.place, Place::Done | Place::Dead);
    same_progress(
        &message.progress,
        &item.work,
        item.place == Place::Live,
        settled,
    )
}

fn same_inbox_message(message: &InboxMessage, item: &InboxItem) -> Outcome {
    prop_assert_eq!(message.state, item.state());
    prop_assert_eq!(message.work_item_id, item.work_item);
    prop_assert_eq!(
        (&message.topic, &message.payload),
        (&item.content, &item.content)
    );
    prop_assert_eq!(&message.hash, &item.hash);
    prop_assert_eq!(message.due_time.is_some(), item.work.due != Due::No);
    prop_assert!(message.last_seen >= message.first_seen || item.seen_long_ago);
    let settled = matches!(item.stage, Stage::Done | Stage::Dead) && item.archived;
    same_progress(
        &message.progress,
        &item.work,
        item.stage == Stage::Live,
        settled,
    )
}

fn same_progress(progress: &Progress, work: &Work, live: bool, settled: bool) -> Outcome {
    prop_assert_eq!(
        (
            progress.attempt_count,
            progress.deferral_count,
            progress.delivery_count
        ),
        (work.attempts, work.deferrals, work.deliveries),
        "attempts, deferrals, deliveries"
    );
    prop_assert_eq!(progress.owner_token, work.owner);
    prop_assert_eq!(progress.locked_until.is_some(), work.lease != Lease::Free);
    prop_assert_eq!(&progress.last_error, &work.error);
    prop_assert_eq!(progress.last_attempt_at.is_some(), work.abandoned);
    prop_assert_eq!(progress.processed_at.is_some(), settled);
    prop_assert_eq!(
        progress.processed_by.as_deref(),
        settled.then_some("tester")
    );
    let soon = SystemTime::now() + HOURS / 4;
    let waits = progress.next_attempt_at.map(|next| next > soon);
    prop_assert_eq!(
        waits,
        live.then(|| work.waits()),
        "whether it waits for a time"
    );
    Ok(())
}

/// The time from an abandon to the next attempt.
fn check_delay(progress: &Progress, work: &Work, delay: Delay) -> Outcome {
    if work.due == Due::Future {
        return Ok(());
    }
    let waits = progress
        .next_attempt_at
        .unwrap()
        .duration_since(progress.last_attempt_at.unwrap())
        .unwrap();
    let expected = match delay {
        Delay::Backoff => {
            Duration::from_secs(1 << work.attempts.min(10)).min(Duration::from_secs(60))
        }
        Delay::Long => HOURS,
        Delay::Zero => Duration::ZERO,
        Delay::Tiny => Duration::from_micros(1),
    };
    prop_assert_eq!(waits, expected);
    Ok(())
}

fn item(
    id: WorkItemId,
    message_id: MessageId,
    topic: String,
    payload: String,
    correlation_id: Option<String>,
    due: Due,
) -> OutboxItem {
    OutboxItem {
        id,
        message_id,
        topic,
        payload,
        correlation_id,
        place: Place::Live,
        work: Work::new(due),
        aged: false,
        waits_for: None,
    }
}

fn abandon(how: Handback) -> Abandon {
    let mut abandon = match how.delay {
        Delay::Backoff => Abandon::default(),
        Delay::Long => Abandon::after(HOURS),
        Delay::Zero => Abandon::after(Duration::ZERO),
        Delay::Tiny => Abandon::after(Duration::from_micros(1)),
    };
    if how.error {
        abandon = abandon.error("abandoned");
    }
    if how.deferred {
        abandon.deferred()
    } else {
        abandon
    }
}

fn due_at(due: Due) -> Option<SystemTime> {
    match due {
        Due::No => None,
        Due::Past => Some(SystemTime::now() - DAY),
        Due::Future => Some(SystemTime::now() + HOURS),
    }
}

fn older_than(age: Age) -> Duration {
    match age {
        Age::Day => DAY,
        Age::All => Duration::ZERO,
    }
}

fn id(key: Key) -> InboxMessageId {
    InboxMessageId::new(format!("s{}", key.source), format!("m{}", key.id))
}

fn key_of(id: &InboxMessageId) -> Key {
    Key {
        source: id.source[1..].parse().unwrap(),
        id: id.message_id[1..].parse().unwrap(),
    }
}

fn ok<T>(answer: Result<T, Error>) -> Result<T, TestCaseError> {
    answer.map_err(|error| TestCaseError::fail(format!("unexpected error: {error}")))
}

fn same<T: PartialEq + std::fmt::Debug>(answer: Result<T, Error>, expected: T) -> Outcome {
    prop_assert_eq!(ok(answer)?, expected);
    Ok(())
}

fn same_ids(answer: Result<Vec<WorkItemId>, Error>, mut expected: Vec<WorkItemId>) -> Outcome {
    let mut answer = ok(answer)?;
    answer.sort();
    expected.sort();
    prop_assert_eq!(answer, expected);
    Ok(())
}

fn not_found<T: std::fmt::Debug>(answer: Result<T, Error>) -> Outcome {
    fails(answer, ErrorKind::NotFound { what: "join" })
}

fn fails<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind) -> Outcome {
    match answer {
        Err(error) => prop_assert_eq!(error.kind(), kind),
        Ok(answer) => prop_assert!(false, "expected {:?}, got {:?}", kind, answer),
    }
    Ok(())
}
