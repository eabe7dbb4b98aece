//! What the requirements say, in memory. Nothing here knows of tables or SQL.

use std::collections::BTreeMap;

use postroom::{
    Arrival, Attached, Counts, InboxCounts, InboxState, JoinId, JoinStatus, MessageId, OwnerToken,
    Reported, State, StepStatus, WorkItemId,
};

use crate::op::{Delay, Due, Handback, Key, Mark};

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) messages: Vec<OutboxItem>,
    pub(crate) inbox: BTreeMap<Key, InboxItem>,
    pub(crate) joins: Vec<JoinItem>,
}

/// What both queues know about a unit of work.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) lease: Lease,
    pub(crate) owner: Option<OwnerToken>,
    /// It waits after an abandon.
    pub(crate) backoff: bool,
    pub(crate) due: Due,
    pub(crate) attempts: u32,
    pub(crate) deferrals: u32,
    pub(crate) deliveries: u32,
    pub(crate) error: Option<String>,
    pub(crate) abandoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    Free,
    Held,
    Expired,
}

impl Work {
    pub(crate) fn new(due: Due) -> Self {
        Self {
            lease: Lease::Free,
            owner: None,
            backoff: false,
            due,
            attempts: 0,
            deferrals: 0,
            deliveries: 0,
            error: None,
            abandoned: false,
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.backoff || self.due == Due::Future
    }

    fn is_ready(&self) -> bool {
        self.lease != Lease::Held && !self.waits()
    }

    fn claim(&mut self, owner: OwnerToken) {
        self.lease = Lease::Held;
        self.owner = Some(owner);
        self.deliveries += 1;
    }

    /// An expired lease that nobody has reaped or taken over still answers to its token.
    fn is_owned_by(&self, owner: OwnerToken) -> bool {
        self.owner == Some(owner)
    }

    fn release(&mut self) {
        self.lease = Lease::Free;
        self.owner = None;
    }

    /// As if it had never been claimed.
    fn hand_back(&mut self) {
        self.release();
        self.deliveries -= 1;
    }

    fn abandon(&mut self, how: Handback, ready_at_once: bool) {
        self.release();
        self.attempts += 1;
        self.deferrals += u32::from(how.deferred);
        self.abandoned = true;
        if how.error {
            self.error = Some("abandoned".to_owned());
        }
        self.backoff = !ready_at_once && matches!(how.delay, Delay::Backoff | Delay::Long);
    }

    fn fail(&mut self, error: bool) {
        self.release();
        if error {
            self.error = Some("failed".to_owned());
        }
    }

    fn fresh_budget(&mut self) {
        self.attempts = 0;
        self.deferrals = 0;
        self.deliveries = 0;
        self.backoff = false;
    }

    fn pass(&mut self) {
        self.backoff = false;
        if self.due == Due::Future {
            self.due = Due::Past;
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct OutboxItem {
    pub(crate) id: WorkItemId,
    pub(crate) message_id: MessageId,
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) correlation_id: Option<String>,
    pub(crate) place: Place,
    pub(crate) work: Work,
    /// Settled, and long ago.
    pub(crate) aged: bool,
    /// The join that it waits for.
    pub(crate) waits_for: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Live,
    Done,
    Dead,
    Gone,
}

impl OutboxItem {
    pub(crate) fn state(&self) -> Option<State> {
        match self.place {
            Place::Live if self.work.lease == Lease::Held => Some(State::InFlight),
            Place::Live => Some(State::Ready),
            Place::Done => Some(State::Done),
            Place::Dead => Some(State::Dead),
            Place::Gone => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct InboxItem {
    pub(crate) stage: Stage,
    /// Learned from the database when it was made.
    pub(crate) work_item: Option<WorkItemId>,
    /// Topic and payload. `None` until it is enqueued.
    pub(crate) content: Option<String>,
    pub(crate) hash: Option<Vec<u8>>,
    pub(crate) work: Work,
    /// It was last seen long ago.
    pub(crate) seen_long_ago: bool,
    /// It was settled long ago.
    pub(crate) aged: bool,
    /// It is done or dead and the archive still has it.
    pub(crate) archived: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Seen,
    /// Marked as being processed, without ever having been enqueued.
    Marked,
    Live,
    Done,
    Dead,
}

impl InboxItem {
    fn seen(hash: Option<Vec<u8>>) -> Self {
        Self {
            stage: Stage::Seen,
            work_item: None,
            content: None,
            hash,
            work: Work::new(Due::No),
            seen_long_ago: false,
            aged: false,
            archived: false,
        }
    }

    pub(crate) fn state(&self) -> InboxState {
        match self.stage {
            Stage::Seen => InboxState::Seen,
            Stage::Marked | Stage::Live => InboxState::Processing,
            Stage::Done => InboxState::Done,
            Stage::Dead => InboxState::Dead,
        }
    }

    fn settle(&mut self, stage: Stage) {
        self.stage = stage;
        self.work.release();
        self.work.backoff = false;
        self.aged = false;
    }

    /// What an archive that has let it go cannot tell any more.
    fn forget_content(&mut self) {
        self.archived = false;
        self.content = None;
        self.work = Work::new(Due::No);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct JoinItem {
    pub(crate) id: JoinId,
    pub(crate) expected: u32,
    pub(crate) completed: u32,
    pub(crate) failed: u32,
    pub(crate) status: JoinStatus,
    pub(crate) members: BTreeMap<MessageId, StepStatus>,
    pub(crate) aged: bool,
    pub(crate) gone: bool,
}

impl JoinItem {
    /// A member's first terminal status wins; the counters move while steps are missing.
    fn count(&mut self, message: MessageId, step: StepStatus) -> bool {
        match self.members.get_mut(&message) {
            Some(status) if *status == StepStatus::Pending => *status = step,
            _ => return false,
        }
        if self.status == JoinStatus::Pending {
            match step {
                StepStatus::Completed => self.completed += 1,
                _ => self.failed += 1,
            }
            if self.completed + self.failed == self.expected {
                self.status = if self.failed > 0 {
                    JoinStatus::Failed
                } else {
                    JoinStatus::Completed
                };
            }
        }
        true
    }
}

/// The outbox.
impl Model {
    pub(crate) fn enqueue(&mut self, item: OutboxItem, joins: &[usize]) {
        for &join in joins {
            self.joins[join]
                .members
                .entry(item.message_id)
                .or_insert(StepStatus::Pending);
        }
        self.messages.push(item);
    }

    pub(crate) fn ready(&self) -> Vec<WorkItemId> {
        let live = self
            .messages
            .iter()
            .filter(|item| item.place == Place::Live);
        live.filter(|item| item.work.is_ready())
            .map(|item| item.id)
            .collect()
    }

    pub(crate) fn claim(&mut self, owner: OwnerToken, ids: &[WorkItemId]) {
        for item in self
            .messages
            .iter_mut()
            .filter(|item| ids.contains(&item.id))
        {
            item.work.claim(owner);
        }
    }

    /// Which of `ids` the owner can still settle, each once.
    fn owned(&self, owner: OwnerToken, ids: &[WorkItemId]) -> Vec<usize> {
        let owned = |item: &OutboxItem| {
            item.place == Place::Live && item.work.is_owned_by(owner) && ids.contains(&item.id)
        };
        (0..self.messages.len())
            .filter(|&index| owned(&self.messages[index]))
            .collect()
    }

    fn ids(&self, indexes: &[usize]) -> Vec<WorkItemId> {
        indexes
            .iter()
            .map(|&index| self.messages[index].id)
            .collect()
    }

    pub(crate) fn ack(&mut self, owner: OwnerToken, ids: &[WorkItemId]) -> Vec<WorkItemId> {
        let owned = self.owned(owner, ids);
        for &index in &owned {
            let item = &mut self.messages[index];
            item.place = Place::Done;
            item.aged = false;
            item.work.release();
            self.count_everywhere(index, StepStatus::Completed);
        }
        self.ids(&owned)
    }

    pub(crate) fn fail(
        &mut self,
        owner: OwnerToken,
        ids: &[WorkItemId],
        error: bool,
    ) -> Vec<WorkItemId> {
        let owned = self.owned(owner, ids);
        for &index in &owned {
            let item = &mut self.messages[index];
            item.place = Place::Dead;
            item.aged = false;
            item.work.fail(error);
            self.count_everywhere(index, StepStatus::Failed);
        }
        self.ids(&owned)
    }

    pub(crate) fn abandon(
        &mut self,
        owner: OwnerToken,
        ids: &[WorkItemId],
        how: Handback,
    ) -> Vec<WorkItemId> {
        let owned = self.owned(owner, ids);
        for &index in &owned {
            let at_once = self.messages[index]
                .waits_for
                .is_some_and(|join| self.has_finished(join));
            self.messages[index].work.abandon(how, at_once);
        }
        self.ids(&owned)
    }

    pub(crate) fn renew(&self, owner: OwnerToken, ids: &[WorkItemId]) -> Vec<WorkItemId> {
        let mut owned = self.owned(owner, ids);
        owned.retain(|&index| self.messages[index].work.lease == Lease::Held);
        self.ids(&owned)
    }

    pub(crate) fn release(&mut self, owner: OwnerToken, ids: &[WorkItemId]) -> Vec<WorkItemId> {
        let owned = self.owned(owner, ids);
        for &index in &owned {
            self.messages[index].work.hand_back();
        }
        self.ids(&owned)
    }

    pub(crate) fn reap(&mut self) -> u64 {
        reap(
            self.messages
                .iter_mut()
                .filter(|item| item.place == Place::Live)
                .map(|item| &mut item.work),
        )
    }

    pub(crate) fn replay(&mut self, ids: &[WorkItemId]) -> Vec<WorkItemId> {
        let mut replayed = Vec::new();
        for item in self
            .messages
            .iter_mut()
            .filter(|item| item.place == Place::Dead && ids.contains(&item.id))
        {
            item.place = Place::Live;
            item.work.fresh_budget();
            replayed.push(item.id);
        }
        replayed
    }

    /// Dead messages go; what still waits for one of them counts it as failed.
    pub(crate) fn purge(&mut self, doomed: impl Fn(&OutboxItem) -> bool) -> u64 {
        self.remove(Place::Dead, StepStatus::Failed, usize::MAX, doomed)
    }

    /// Done messages go; what still waits for one of them counts it as completed.
    pub(crate) fn cleanup(&mut self, limit: usize, doomed: impl Fn(&OutboxItem) -> bool) -> u64 {
        self.remove(Place::Done, StepStatus::Completed, limit, doomed)
    }

    fn remove(
        &mut self,
        place: Place,
        step: StepStatus,
        limit: usize,
        doomed: impl Fn(&OutboxItem) -> bool,
    ) -> u64 {
        let mut removed = 0;
        for index in 0..self.messages.len() {
            if removed < limit
                && self.messages[index].place == place
                && doomed(&self.messages[index])
            {
                self.messages[index].place = Place::Gone;
                self.count_everywhere(index, step);
                removed += 1;
            }
        }
        removed as u64
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |state| {
            self.messages
                .iter()
                .filter(|item| item.state() == Some(state))
                .count() as u64
        };
        Counts {
            ready: count(State::Ready),
            in_flight: count(State::InFlight),
            done: count(State::Done),
            dead: count(State::Dead),
        }
    }
}

/// Joins.
impl Model {
    fn has_finished(&self, join: usize) -> bool {
        !self.joins[join].gone && self.joins[join].status != JoinStatus::Pending
    }

    fn count_everywhere(&mut self, message: usize, step: StepStatus) {
        let message = self.messages[message].message_id;
        for join in 0..self.joins.len() {
            self.count(join, message, step);
        }
    }

    fn count(&mut self, join: usize, message: MessageId, step: StepStatus) -> bool {
        let pending = self.joins[join].status == JoinStatus::Pending;
        let counted = !self.joins[join].gone && self.joins[join].count(message, step);
        if pending && self.joins[join].status != JoinStatus::Pending {
            self.wake(join);
        }
        counted
    }

    fn wake(&mut self, join: usize) {
        for item in self
            .messages
            .iter_mut()
            .filter(|item| item.waits_for == Some(join))
        {
            item.work.backoff = false;
        }
    }

    pub(crate) fn attach(&mut self, join: usize, message: MessageId) -> Attached {
        self.joins[join]
            .members
            .entry(message)
            .or_insert(StepStatus::Pending);
        match self.place_of(message) {
            Place::Live => Attached::Pending,
            Place::Done => Attached::MessageAlreadyDone,
            Place::Dead => Attached::MessageAlreadyFailed,
            Place::Gone => Attached::UnknownMessage,
        }
    }

    fn place_of(&self, message: MessageId) -> Place {
        let place = |item: &&OutboxItem| item.message_id == message && item.place != Place::Gone;
        self.messages
            .iter()
            .find(place)
            .map_or(Place::Gone, |item| item.place)
    }

    pub(crate) fn report(&mut self, join: usize, message: MessageId, step: StepStatus) -> Reported {
        match self.joins[join].members.get(&message) {
            None => Reported::NotAMember,
            Some(&status) if status == step => Reported::AlreadyReported,
            Some(StepStatus::Pending) => {
                self.count(join, message, step);
                Reported::Counted
            }
            Some(_) => Reported::OtherStatus,
        }
    }

    pub(crate) fn reconcile(&mut self, join: usize) -> u64 {
        let members: Vec<MessageId> = self.joins[join].members.keys().copied().collect();
        let mut counted = 0;
        for (place, step) in [
            (Place::Done, StepStatus::Completed),
            (Place::Dead, StepStatus::Failed),
        ] {
            for &message in &members {
                if self.place_of(message) == place && self.count(join, message, step) {
                    counted += 1;
                }
            }
        }
        counted
    }

    pub(crate) fn cancel(&mut self, join: usize) -> bool {
        if self.joins[join].status != JoinStatus::Pending {
            return false;
        }
        self.joins[join].status = JoinStatus::Cancelled;
        self.wake(join);
        true
    }

    /// A join that a live message waits for stays.
    pub(crate) fn cleanup_joins(&mut self) -> u64 {
        let live = self
            .messages
            .iter()
            .filter(|item| item.place == Place::Live);
        let waited_for: Vec<usize> = live.filter_map(|item| item.waits_for).collect();
        let mut removed = 0;
        for (index, join) in self.joins.iter_mut().enumerate() {
            if join.aged && !join.gone && !waited_for.contains(&index) {
                join.gone = true;
                join.members.clear();
                removed += 1;
            }
        }
        removed
    }
}

/// The inbox.
impl Model {
    /// Whether it was processed before, and whether the hash differs from the first one.
    pub(crate) fn check(&mut self, key: Key, hash: Option<Vec<u8>>) -> (bool, bool) {
        let item = self
            .inbox
            .entry(key)
            .or_insert_with(|| InboxItem::seen(hash.clone()));
        item.seen_long_ago = false;
        if item.hash.is_none() {
            item.hash.clone_from(&hash);
        }
        (
            item.stage == Stage::Done,
            hash.is_some() && item.hash != hash,
        )
    }

    pub(crate) fn receive(
        &mut self,
        key: Key,
        hash: Option<Vec<u8>>,
        due: Due,
        content: String,
    ) -> (Arrival, bool) {
        let item = self
            .inbox
            .entry(key)
            .or_insert_with(|| InboxItem::seen(hash.clone()));
        item.seen_long_ago = false;
        let differs = hash.is_some() && item.hash.is_some() && item.hash != hash;
        let arrival = match item.stage {
            Stage::Seen | Stage::Marked => Arrival::New,
            Stage::Live => Arrival::Replaced,
            Stage::Dead => Arrival::Dead,
            Stage::Done => Arrival::AlreadyDone,
        };
        if arrival == Arrival::New {
            item.stage = Stage::Live;
            item.work = Work::new(due);
        }
        if arrival != Arrival::AlreadyDone {
            item.hash = hash;
            item.content = Some(content);
            item.work.due = due;
        }
        (arrival, differs)
    }

    pub(crate) fn mark(&mut self, key: Key, mark: Mark) -> bool {
        let Some(item) = self.inbox.get_mut(&key) else {
            return false;
        };
        let queued = matches!(item.stage, Stage::Live | Stage::Dead);
        match (mark, item.stage) {
            (_, Stage::Done) | (Mark::Dead, Stage::Dead) => false,
            (Mark::Processing, Stage::Seen) => {
                item.stage = Stage::Marked;
                true
            }
            (Mark::Processing, _) => false,
            (Mark::Processed, _) => {
                item.settle(Stage::Done);
                item.archived = queued;
                true
            }
            (Mark::Dead, _) => {
                item.settle(Stage::Dead);
                item.archived = true;
                true
            }
        }
    }

    pub(crate) fn inbox_ready(&self) -> Vec<Key> {
        let live = self
            .inbox
            .iter()
            .filter(|(_, item)| item.stage == Stage::Live);
        live.filter(|(_, item)| item.work.is_ready())
            .map(|(key, _)| *key)
            .collect()
    }

    pub(crate) fn inbox_claim(&mut self, owner: OwnerToken, keys: &[Key]) {
        for key in keys {
            self.inbox.get_mut(key).unwrap().work.claim(owner);
        }
    }

    fn inbox_owned(&mut self, owner: OwnerToken, keys: &[Key]) -> Vec<&mut InboxItem> {
        let owned = self.inbox.iter_mut().filter(|(key, item)| {
            item.stage == Stage::Live && item.work.is_owned_by(owner) && keys.contains(key)
        });
        owned.map(|(_, item)| item).collect()
    }

    pub(crate) fn inbox_ack(&mut self, owner: OwnerToken, keys: &[Key]) -> usize {
        self.inbox_settle(owner, keys, |item| item.settle(Stage::Done))
    }

    pub(crate) fn inbox_fail(&mut self, owner: OwnerToken, keys: &[Key], error: bool) -> usize {
        self.inbox_settle(owner, keys, |item| {
            item.work.fail(error);
            item.settle(Stage::Dead);
        })
    }

    fn inbox_settle(
        &mut self,
        owner: OwnerToken,
        keys: &[Key],
        settle: impl Fn(&mut InboxItem),
    ) -> usize {
        let owned = self.inbox_owned(owner, keys);
        let count = owned.len();
        for item in owned {
            settle(item);
            item.archived = true;
        }
        count
    }

    pub(crate) fn inbox_abandon(
        &mut self,
        owner: OwnerToken,
        keys: &[Key],
        how: Handback,
    ) -> usize {
        let owned = self.inbox_owned(owner, keys);
        let count = owned.len();
        owned
            .into_iter()
            .for_each(|item| item.work.abandon(how, false));
        count
    }

    pub(crate) fn inbox_renew(&mut self, owner: OwnerToken, keys: &[Key]) -> usize {
        self.inbox_owned(owner, keys)
            .iter()
            .filter(|item| item.work.lease == Lease::Held)
            .count()
    }

    pub(crate) fn inbox_release(&mut self, owner: OwnerToken, keys: &[Key]) -> usize {
        let owned = self.inbox_owned(owner, keys);
        let count = owned.len();
        owned.into_iter().for_each(|item| item.work.hand_back());
        count
    }

    pub(crate) fn inbox_reap(&mut self) -> u64 {
        reap(
            self.inbox
                .values_mut()
                .filter(|item| item.stage == Stage::Live)
                .map(|item| &mut item.work),
        )
    }

    pub(crate) fn revive(&mut self, keys: &[Key]) -> usize {
        let dead = self
            .inbox
            .iter_mut()
            .filter(|(key, item)| item.stage == Stage::Dead && keys.contains(key));
        let mut revived = 0;
        for (_, item) in dead {
            item.archived = false;
            item.work.fresh_budget();
            if item.content.is_some() {
                item.stage = Stage::Live;
            } else {
                item.stage = Stage::Seen;
                item.work_item = None;
            }
            revived += 1;
        }
        revived
    }

    pub(crate) fn inbox_purge(&mut self, doomed: impl Fn(&Key, &InboxItem) -> bool) -> u64 {
        let before = self.inbox.len();
        self.inbox
            .retain(|key, item| item.stage != Stage::Dead || !doomed(key, item));
        (before - self.inbox.len()) as u64
    }

    pub(crate) fn inbox_cleanup(&mut self) -> u64 {
        let before = self.inbox.len();
        for item in self
            .inbox
            .values_mut()
            .filter(|item| item.stage == Stage::Done && item.aged)
        {
            item.forget_content();
        }
        self.inbox
            .retain(|_, item| item.stage != Stage::Done || !item.seen_long_ago);
        (before - self.inbox.len()) as u64
    }

    pub(crate) fn inbox_counts(&self) -> InboxCounts {
        let count = |state| {
            self.inbox
                .values()
                .filter(|item| item.state() == state)
                .count() as u64
        };
        InboxCounts {
            seen: count(InboxState::Seen),
            processing: count(InboxState::Processing),
            done: count(InboxState::Done),
            dead: count(InboxState::Dead),
        }
    }
}

/// Time.
impl Model {
    pub(crate) fn expire(&mut self) {
        let outbox = self.messages.iter_mut().map(|item| &mut item.work);
        for work in outbox.chain(self.inbox.values_mut().map(|item| &mut item.work)) {
            if work.lease == Lease::Held {
                work.lease = Lease::Expired;
            }
        }
    }

    pub(crate) fn pass(&mut self) {
        self.messages.iter_mut().for_each(|item| item.work.pass());
        self.inbox.values_mut().for_each(|item| item.work.pass());
    }

    pub(crate) fn age(&mut self) {
        for item in self
            .messages
            .iter_mut()
            .filter(|item| item.place != Place::Live)
        {
            item.aged = true;
        }
        for item in self.inbox.values_mut() {
            item.seen_long_ago = true;
            item.aged = matches!(item.stage, Stage::Done | Stage::Dead);
        }
        for join in self
            .joins
            .iter_mut()
            .filter(|join| join.status != JoinStatus::Pending)
        {
            join.aged = true;
        }
    }
}

fn reap<'a>(works: impl Iterator<Item = &'a mut Work>) -> u64 {
    let mut reaped = 0;
    for work in works.filter(|work| work.lease == Lease::Expired) {
        work.release();
        reaped += 1;
    }
    reaped
}
