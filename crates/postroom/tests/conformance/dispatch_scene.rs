//! Both queues by one name, because a dispatcher does in one what it does in the other; and a way to run
//! a dispatcher on one thread, where everything that it logs and counts can be caught.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postroom::{
    Dispatcher, Inbound, InboxMessageId, InboxState, IntoHandler, Message, OwnerToken, Postroom,
    Progress, Queue, State, WorkItemId,
};
use testkit::{Fixture, eventually, micros};

use testkit::logs::{self, Logs};

pub(crate) const QUEUES: [Queue; 2] = [Queue::Outbox, Queue::Inbox];

/// The same in both queues, at the same time.
pub(crate) async fn in_both_queues(work: impl AsyncFn(Queue)) {
    tokio::join!(work(Queue::Outbox), work(Queue::Inbox));
}

/// Short enough that a test can wait for renewals, and so long that none is late when the machine stands
/// still for two seconds.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(3);

/// A message in one of the queues.
#[derive(Debug, Clone)]
pub(crate) enum Put {
    Outbox(WorkItemId),
    Inbox(InboxMessageId),
}

/// Puts a message into a queue.
pub(crate) async fn put(room: &Postroom, queue: Queue, topic: &str, payload: &str) -> Put {
    match queue {
        Queue::Outbox => {
            let message = Message::new(topic, payload);
            Put::Outbox(room.outbox().enqueue(&message).await.unwrap().work_item_id)
        }
        Queue::Inbox => {
            let id = InboxMessageId::new("tester", WorkItemId::new().to_string());
            let inbound = Inbound::new("tester", id.message_id.as_str(), topic, payload);
            room.inbox().enqueue(&inbound).await.unwrap();
            Put::Inbox(id)
        }
    }
}

impl Put {
    /// The state that it is in, and how far it has come.
    pub(crate) async fn look(&self, room: &Postroom) -> (State, Progress) {
        match self {
            Self::Outbox(id) => {
                let message = room.outbox().get(*id).await.unwrap().unwrap();
                (message.state, message.progress)
            }
            Self::Inbox(id) => {
                let message = room.inbox().get(id).await.unwrap().unwrap();
                let state = match message.state {
                    InboxState::Done => State::Done,
                    InboxState::Dead => State::Dead,
                    _ if message.progress.owner_token.is_some() => State::InFlight,
                    _ => State::Ready,
                };
                (state, message.progress)
            }
        }
    }

    pub(crate) async fn state(&self, room: &Postroom) -> State {
        self.look(room).await.0
    }

    /// The error that is stored with it.
    pub(crate) async fn error(&self, room: &Postroom) -> String {
        self.look(room).await.1.last_error.unwrap_or_default()
    }

    /// What a delivery of it calls itself.
    pub(crate) fn message_id(&self) -> String {
        match self {
            Self::Outbox(id) => id.to_string(),
            Self::Inbox(id) => id.to_string(),
        }
    }
}

/// Registers a handler for a topic of a queue.
pub(crate) fn on<Args>(
    dispatcher: Dispatcher,
    queue: Queue,
    topic: &str,
    handler: impl IntoHandler<Args>,
) -> Dispatcher {
    match queue {
        Queue::Outbox => dispatcher.on(topic, handler),
        Queue::Inbox => dispatcher.on_inbound(topic, handler),
    }
}

/// A dispatcher of this store with one handler.
pub(crate) fn dispatcher<Args>(
    room: &Postroom,
    queue: Queue,
    topic: &str,
    handler: impl IntoHandler<Args>,
) -> Dispatcher {
    on(room.dispatcher(), queue, topic, handler)
}

/// Takes every message that somebody holds away from them, as one does whose claim comes after the lease
/// has expired.
pub(crate) async fn steal(fixture: &Fixture, queue: Queue) -> OwnerToken {
    let thief = OwnerToken::new();
    let (owner, until) = (
        fixture.literal(thief),
        fixture.time(fixture.clock().await + 300_000_000),
    );
    let sql = format!(
        "UPDATE {{{}}} SET owner_token = {owner}, locked_until = {until} WHERE owner_token IS NOT NULL",
        queue.name()
    );
    fixture.sql(&sql).await;
    thief
}

/// Waits until all leases of messages that meet a condition in SQL, each a [`SHORT_LEASE`], were renewed for
/// twice their length: whoever holds them has held them for longer than a lease.
pub(crate) async fn outlive_leases(fixture: &Fixture, queue: Queue, condition: &str) {
    let (until, queue) = (fixture.micros("locked_until"), queue.name());
    let held = format!("FROM {{{queue}}} WHERE owner_token IS NOT NULL AND {condition}");
    let last = format!("SELECT coalesce(max({until}), 0) {held}");
    let first = format!("SELECT coalesce(min({until}), 0) {held}");
    let enough = fixture.number(&last).await + 2 * micros(SHORT_LEASE);
    eventually(|| async {
        // Every look is a connection of its own.
        tokio::time::sleep(Duration::from_millis(50)).await;
        (fixture.number(&first).await >= enough).then_some(())
    })
    .await;
}

/// Runs work on one thread, with the store opened there once more, and catches what is logged and counted.
/// The work may read the counters meanwhile.
pub(crate) async fn on_one_thread<T: Send + 'static, F: Future<Output = T>>(
    fixture: &Fixture,
    work: impl FnOnce(Postroom, Counters) -> F + Send + 'static,
) -> (T, Vec<logs::Line>, Counters) {
    let options = fixture.options();
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let caught: Logs = logs::catch();
        let counters = Counters::default();
        let result = metrics::with_local_recorder(&counters, || {
            runtime.block_on(async {
                let room = options.connect().await.unwrap();
                work(room, counters.clone()).await
            })
        });
        (result, caught.events(), counters)
    });
    thread.await.unwrap()
}

/// Adds up counters by name and labels, and counts what histograms were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Counters {
    /// The sum of a metric over all its labels that contain `label`.
    pub(crate) fn of(&self, name: &str, label: &str) -> u64 {
        let counters = self.0.lock().unwrap();
        let mine = counters
            .iter()
            .filter(|(key, _)| key.starts_with(&format!("{name} ")) && key.contains(label));
        mine.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    fn counter(&self, key: &Key) -> Arc<Tally> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        let count = Arc::clone(self.0.lock().unwrap().entry(name).or_default());
        Arc::new(Tally(count))
    }
}

struct Tally(Arc<AtomicU64>);

impl metrics::CounterFn for Tally {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

impl metrics::HistogramFn for Tally {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.counter(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.counter(key))
    }
}
