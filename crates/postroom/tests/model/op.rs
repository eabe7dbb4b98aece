//! The operations. An index is taken modulo what exists when the step runs, so that a sequence stays
//! meaningful while it is being shrunk. Indexes below 128 are taken among the messages that the
//! operation is most likely to change.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Enqueue(New),
    EnqueueMany(Vec<New>),
    /// The same work item id once more, while the first is unfinished.
    EnqueueAgain(u8),
    Claim(Owner, u8),
    Ack(Owner, Vec<u8>),
    Abandon(Owner, Vec<u8>, Handback),
    Fail(Owner, Vec<u8>, bool),
    Renew(Owner, Vec<u8>),
    Release(Owner, Vec<u8>),
    Reap,
    Replay(Vec<u8>),
    Purge(Vec<u8>),
    PurgeOld(Age),
    Cleanup(Age),
    CleanupBatch(u8),

    Check(Key, Option<u8>),
    Receive(Key, Inbound),
    Mark(Key, Mark),
    InboxClaim(Owner, u8),
    InboxAck(Owner, Keys),
    InboxAbandon(Owner, Keys, Handback),
    InboxFail(Owner, Keys, bool),
    InboxRenew(Owner, Keys),
    InboxRelease(Owner, Keys),
    InboxReap,
    Revive(Keys),
    InboxPurge(Keys),
    InboxPurgeOld(Age),
    InboxCleanup,
    GetBare(u8),

    Start(u8),
    Attach(u8, Member),
    Report(u8, Member, bool),
    Reconcile(u8),
    Cancel(u8),
    Wait(u8),
    JoinCleanup,

    /// Every lease expires.
    Expire,
    /// Every backoff and due time is over.
    Pass,
    /// What is settled was settled ten days ago.
    Age,
}

#[derive(Debug, Clone)]
pub(crate) struct New {
    pub(crate) due: Due,
    pub(crate) correlation: Option<bool>,
    pub(crate) message_id: Id,
    /// Which joins it is a step of; beyond the last one means an unknown join.
    pub(crate) joins: Vec<u8>,
}

/// Which message id an enqueued message has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Id {
    SameAsWorkItem,
    Chosen,
    /// One that was attached to a join before anybody enqueued it.
    Stranger(u8),
}

#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    pub(crate) hash: Option<u8>,
    pub(crate) due: Due,
    pub(crate) payload: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    No,
    Past,
    Future,
}

/// Whose token is used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    /// Whoever holds the first message that is named.
    Holder,
    /// A token that was used before.
    Known(u8),
    Fresh,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handback {
    pub(crate) delay: Delay,
    pub(crate) error: bool,
    pub(crate) deferred: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delay {
    Backoff,
    Long,
    Zero,
    /// A microsecond, because the inbox refuses zero.
    Tiny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Only what is older than a day.
    Day,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) source: u8,
    pub(crate) id: u8,
}

#[derive(Debug, Clone)]
pub(crate) enum Keys {
    WorkItems(Vec<Key>),
    Typed(Vec<Key>),
    Bare(Vec<u8>),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    Processing,
    Processed,
    Dead,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Member {
    Message(u8),
    /// A message id that the outbox does not know.
    Stranger(u8),
}

/// A third of the sequences is about everything, a third about the inbox, a third about the outbox and
/// joins: the fewer things there are, the more happens to each.
pub(crate) fn sequences() -> impl Strategy<Value = Vec<Op>> {
    let mixed = prop_oneof![5 => outbox(), 5 => inbox(), 4 => joins(), 2 => time()];
    let inbound = prop_oneof![6 => inbox(), 1 => time()];
    let outbound = prop_oneof![6 => outbox(), 5 => joins(), 1 => time()];
    prop_oneof![
        prop::collection::vec(mixed, 1..=100),
        prop::collection::vec(inbound, 1..=100),
        prop::collection::vec(outbound, 1..=100),
    ]
}

fn outbox() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => new().prop_map(Op::Enqueue),
        3 => prop::collection::vec(new(), 0..4).prop_map(Op::EnqueueMany),
        1 => any::<u8>().prop_map(Op::EnqueueAgain),
        6 => (owner(), 1..6_u8).prop_map(|(owner, batch)| Op::Claim(owner, batch)),
        4 => (owner(), some()).prop_map(|(owner, ids)| Op::Ack(owner, ids)),
        4 => (owner(), some(), handback()).prop_map(|(owner, ids, how)| Op::Abandon(owner, ids, how)),
        3 => (owner(), some(), any::<bool>()).prop_map(|(owner, ids, error)| Op::Fail(owner, ids, error)),
        1 => (owner(), some()).prop_map(|(owner, ids)| Op::Renew(owner, ids)),
        1 => (owner(), some()).prop_map(|(owner, ids)| Op::Release(owner, ids)),
        1 => Just(Op::Reap),
        2 => some().prop_map(Op::Replay),
        1 => some().prop_map(Op::Purge),
        1 => age().prop_map(Op::PurgeOld),
        1 => age().prop_map(Op::Cleanup),
        1 => (1..3_u8).prop_map(Op::CleanupBatch),
    ]
}

fn inbox() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (key(), hash()).prop_map(|(key, hash)| Op::Check(key, hash)),
        6 => (key(), hash(), due(), 0..3_u8)
            .prop_map(|(key, hash, due, payload)| Op::Receive(key, Inbound { hash, due, payload })),
        3 => (key(), prop_oneof![Just(Mark::Processing), Just(Mark::Processed), Just(Mark::Dead)])
            .prop_map(|(key, mark)| Op::Mark(key, mark)),
        5 => (owner(), 1..4_u8).prop_map(|(owner, batch)| Op::InboxClaim(owner, batch)),
        3 => (owner(), keys()).prop_map(|(owner, keys)| Op::InboxAck(owner, keys)),
        4 => (owner(), keys(), handback()).prop_map(|(owner, keys, how)| Op::InboxAbandon(owner, keys, how)),
        3 => (owner(), keys(), any::<bool>()).prop_map(|(owner, keys, error)| Op::InboxFail(owner, keys, error)),
        1 => (owner(), keys()).prop_map(|(owner, keys)| Op::InboxRenew(owner, keys)),
        1 => (owner(), keys()).prop_map(|(owner, keys)| Op::InboxRelease(owner, keys)),
        1 => Just(Op::InboxReap),
        3 => keys().prop_map(Op::Revive),
        1 => keys().prop_map(Op::InboxPurge),
        1 => age().prop_map(Op::InboxPurgeOld),
        1 => Just(Op::InboxCleanup),
        1 => (0..3_u8).prop_map(Op::GetBare),
    ]
}

fn joins() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1..4_u8).prop_map(Op::Start),
        4 => (any::<u8>(), member()).prop_map(|(join, member)| Op::Attach(join, member)),
        3 => (any::<u8>(), member(), any::<bool>()).prop_map(|(join, member, failed)| Op::Report(join, member, failed)),
        2 => any::<u8>().prop_map(Op::Reconcile),
        1 => any::<u8>().prop_map(Op::Cancel),
        2 => any::<u8>().prop_map(Op::Wait),
        1 => Just(Op::JoinCleanup),
    ]
}

fn time() -> impl Strategy<Value = Op> {
    prop_oneof![3 => Just(Op::Expire), 4 => Just(Op::Pass), 1 => Just(Op::Age)]
}

fn new() -> impl Strategy<Value = New> {
    let id = prop_oneof![
        4 => Just(Id::SameAsWorkItem),
        2 => Just(Id::Chosen),
        2 => any::<u8>().prop_map(Id::Stranger),
    ];
    let joins = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(any::<u8>(), 1..4)];
    (due(), any::<Option<bool>>(), id, joins).prop_map(|(due, correlation, message_id, joins)| {
        New {
            due,
            correlation,
            message_id,
            joins,
        }
    })
}

fn due() -> impl Strategy<Value = Due> {
    prop_oneof![3 => Just(Due::No), 1 => Just(Due::Past), 2 => Just(Due::Future)]
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![6 => Just(Owner::Holder), 2 => any::<u8>().prop_map(Owner::Known), 1 => Just(Owner::Fresh)]
}

fn some() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..6)
}

fn handback() -> impl Strategy<Value = Handback> {
    let delay = prop_oneof![
        3 => Just(Delay::Backoff),
        1 => Just(Delay::Long),
        1 => Just(Delay::Zero),
        1 => Just(Delay::Tiny),
    ];
    (delay, any::<bool>(), any::<bool>()).prop_map(|(delay, error, deferred)| Handback {
        delay,
        error,
        deferred,
    })
}

fn age() -> impl Strategy<Value = Age> {
    prop_oneof![Just(Age::Day), Just(Age::All)]
}

fn key() -> impl Strategy<Value = Key> {
    (0..2_u8, 0..2_u8).prop_map(|(source, id)| Key { source, id })
}

fn keys() -> impl Strategy<Value = Keys> {
    prop_oneof![
        prop::collection::vec(key(), 0..5).prop_map(Keys::WorkItems),
        prop::collection::vec(key(), 0..5).prop_map(Keys::Typed),
        prop::collection::vec(0..2_u8, 0..4).prop_map(Keys::Bare),
    ]
}

fn hash() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![Just(None), (0..2_u8).prop_map(Some)]
}

fn member() -> impl Strategy<Value = Member> {
    prop_oneof![3 => any::<u8>().prop_map(Member::Message), 1 => any::<u8>().prop_map(Member::Stranger)]
}
