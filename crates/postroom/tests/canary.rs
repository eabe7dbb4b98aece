//! Payloads show nowhere: not in logs, spans, metrics, stored errors or `Debug` output, whatever becomes
//! of the message. Handlers run on other threads, so what is caught here is caught for the whole process.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, Recorder};
use mysql_async::prelude::Queryable;
use postroom::{
    Backoff, Delivery, Dispatcher, Extract as _, Handler, HandlerError, Inbound, Json, Message,
    Outcome, OwnerToken, Queue, Report, done,
};
use testkit::{Backend, Fixture, LEASE};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

testkit::mount!(
    a_payload_shows_nowhere,
    a_payload_shows_nowhere_when_the_lease_is_lost,
);

/// What a handler does with its message is its topic.
const TOPICS: [&str; 13] = [
    "done",
    "done.and.enqueue",
    "not.ready",
    "retry",
    "business.error",
    "infrastructure.error",
    "permanent.error",
    "panic",
    "json",
    "transaction.then.error",
    "transaction.refused",
    "client.refused",
    "lease.lost",
];

/// Those of them that fail, and what is stored of the failure.
const FAILURES: [(&str, &str); 8] = [
    (
        "business.error",
        "[BUSINESS] Retry 1: cannot read [payload]",
    ),
    (
        "infrastructure.error",
        "[INFRA] Retry 1: cannot read [payload]",
    ),
    ("permanent.error", "[BUSINESS] cannot read [payload]"),
    (
        "panic",
        "[BUSINESS] Retry 1: the handler panicked: cannot read [payload]",
    ),
    ("json", "[BUSINESS] the payload is not the expected JSON"),
    (
        "transaction.then.error",
        "[BUSINESS] Retry 1: written, but [payload] is wrong",
    ),
    ("transaction.refused", "[BUSINESS] Retry 1: "),
    ("client.refused", "[BUSINESS] Retry 1: "),
];

/// Does what the topic says, and quotes the payload wherever it can.
#[derive(Clone)]
struct Indiscreet {
    fixture: Fixture,
}

impl Indiscreet {
    /// Statements that the database refuses because the payload is there already: PostgreSQL's detail
    /// quotes it.
    fn insert(&self) -> String {
        let value = match self.fixture.backend {
            Backend::Sqlite => "?1",
            Backend::Postgres => "$1",
            Backend::MySql => "?",
            Backend::SqlServer => "@P1",
        };
        self.fixture
            .fill(&format!("INSERT INTO {{ledger}} VALUES ({value})"))
    }

    async fn write(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        let values = vec![delivery.payload().into()];
        delivery
            .transaction()
            .execute(&self.insert(), values)
            .await?;
        Ok(())
    }

    async fn write_with_the_client(&self, delivery: &Delivery) -> Result<(), HandlerError> {
        let (insert, payload) = (self.insert(), delivery.payload().to_owned());
        let mut tx = delivery.transaction();
        match self.fixture.backend {
            Backend::Sqlite => {
                tx.sqlite(move |connection| connection.execute(&insert, [payload]))
                    .await?;
            }
            Backend::Postgres => {
                tx.postgres().await?.execute(&insert, &[&payload]).await?;
            }
            Backend::MySql => {
                tx.mysql().await?.exec_drop(&insert, (payload,)).await?;
            }
            Backend::SqlServer => {
                tx.execute(&insert, vec![payload.into()]).await?;
            }
        }
        Ok(())
    }

    /// Somebody else claims the message meanwhile, and is done with it.
    async fn lose_the_lease(&self, queue: Queue) {
        self.fixture.expire_leases().await;
        let (other, room) = (OwnerToken::new(), &self.fixture.room);
        match queue {
            Queue::Outbox => {
                let claimed = room.outbox().claim(other, LEASE, 1).await.unwrap();
                room.outbox().ack(other, &[claimed[0].id]).await.unwrap();
            }
            Queue::Inbox => {
                let claimed = room.inbox().claim(other, LEASE, 1).await.unwrap();
                let id = claimed[0].work_item_id.unwrap();
                room.inbox().ack(other, &[id]).await.unwrap();
            }
        }
    }
}

impl Handler for Indiscreet {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        let payload = delivery.payload();
        let quotation = format!("cannot read {payload}");
        tracing::info!(
            topic = delivery.topic(),
            ?delivery,
            message = ?delivery.message(),
            transaction = ?delivery.transaction(),
            "seen by a handler"
        );
        match delivery.topic() {
            "done.and.enqueue" => {
                let outcome = Outcome::enqueue([Message::new("done", payload)]);
                tracing::info!(?outcome, "answered");
                return Ok(outcome);
            }
            "not.ready" => return Ok(Outcome::NotReady(None)),
            "retry" => return Ok(Outcome::Retry(None)),
            "business.error" => return Err(HandlerError::business(quotation)),
            "infrastructure.error" => return Err(HandlerError::infrastructure(quotation)),
            "permanent.error" => return Err(HandlerError::permanent(quotation)),
            "panic" => panic!("{quotation}"),
            "json" => {
                let Json(_number): Json<u64> = Json::extract(&delivery)?;
            }
            "transaction.then.error" => {
                self.write(&delivery).await?;
                let error = format!("written, but {payload} is wrong");
                return Err(HandlerError::business(error));
            }
            "transaction.refused" => {
                self.write(&delivery).await?;
                self.write(&delivery).await?;
            }
            "client.refused" => {
                self.write_with_the_client(&delivery).await?;
                self.write_with_the_client(&delivery).await?;
            }
            "lease.lost" => self.lose_the_lease(delivery.queue()).await,
            _ => {}
        }
        done()
    }
}

/// A store, and the secret in the payloads of its messages.
struct Cage {
    fixture: Fixture,
    canary: String,
}

impl Cage {
    async fn new(fixture: Fixture) -> Self {
        LazyLock::force(&CAUGHT);
        fixture
            .sql("CREATE TABLE {ledger} (entry varchar(500) PRIMARY KEY)")
            .await;
        // Random letters that no id, time or word can be taken for, not even in part.
        let random = uuid::Uuid::new_v4().into_bytes();
        let letters = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let canary = letters.map(|half| char::from(b'g' + half)).collect();
        Self { fixture, canary }
    }

    /// Sends a message, and gives back its id as logs name it.
    async fn send(&self, queue: Queue, topic: &str) -> String {
        let room = &self.fixture.room;
        let payload = format!(r#""{}""#, self.canary);
        match queue {
            Queue::Outbox => {
                let message = Message::new(topic, payload);
                let receipt = room.outbox().enqueue(&message).await.unwrap();
                receipt.message_id.to_string()
            }
            Queue::Inbox => {
                let inbound = Inbound::new("bank", topic, topic, payload);
                room.inbox().enqueue(&inbound).await.unwrap();
                format!("bank/{topic}")
            }
        }
    }

    fn dispatcher(&self) -> Dispatcher {
        let handler = Indiscreet {
            fixture: self.fixture.clone(),
        };
        TOPICS
            .into_iter()
            .fold(self.fixture.room.dispatcher(), |dispatcher, topic| {
                dispatcher
                    .on::<()>(topic, handler.clone())
                    .on_inbound::<()>(topic, handler.clone())
            })
    }

    /// Every error that is stored, in whichever table.
    async fn stored_errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        for table in self.fixture.tables().await {
            if self
                .fixture
                .columns(&table)
                .await
                .contains(&"last_error".to_owned())
            {
                let sql =
                    format!("SELECT last_error FROM {{{table}}} WHERE last_error IS NOT NULL");
                errors.extend(self.fixture.texts(&sql).await);
            }
        }
        errors
    }

    /// The events that name this store.
    fn events(&self, level: Level, message: &str) -> Vec<Line> {
        let store = self.fixture.room.identifier();
        let mut lines = CAUGHT.lines.lock().unwrap().clone();
        lines.retain(|line| {
            line.level == level && line.field("message") == message && line.field("store") == store
        });
        lines
    }

    /// The sum of what a metric of this store has counted, or its number of observations.
    fn measured(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let store = self.fixture.room.identifier();
        let mut wanted = labels.to_vec();
        wanted.push(("store", store));
        let metrics = CAUGHT.metrics.lock().unwrap();
        let matching = metrics.iter().filter(|((metric, found), _)| {
            let has =
                |(key, value): &(&str, &str)| found.get(*key).is_some_and(|found| found == value);
            metric == name && wanted.iter().all(has)
        });
        matching.map(|(_, count)| count).sum()
    }

    async fn assert_secret(&self, reports: &[Report]) {
        let payloads = self
            .fixture
            .texts("SELECT payload FROM {outbox} UNION ALL SELECT payload FROM {outbox_done}")
            .await;
        assert!(self.is_told_by(&payloads.concat()), "the search finds it");
        // Copies, so that one test's failure does not poison the others.
        let lines = CAUGHT.lines.lock().unwrap().clone();
        for line in lines {
            assert!(!self.is_told_by(&format!("{line:?}")), "{line:?}");
        }
        let metrics = CAUGHT.metrics.lock().unwrap().clone();
        for metric in metrics.keys() {
            assert!(!self.is_told_by(&format!("{metric:?}")), "{metric:?}");
        }
        for error in self.stored_errors().await {
            assert!(!self.is_told_by(&error), "{error}");
        }
        for report in reports {
            assert!(!self.is_told_by(&format!("{report:?}")), "{report:?}");
        }
    }

    /// Whether a text quotes the canary, or a part of it that is long enough to be recognised.
    fn is_told_by(&self, text: &str) -> bool {
        let canary = self.canary.as_bytes();
        canary
            .windows(12)
            .any(|part| text.contains(std::str::from_utf8(part).unwrap()))
    }
}

/// Shows C-58, OBX-125, IBX-127, OBX-105, IBX-110.
async fn a_payload_shows_nowhere(fixture: Fixture) {
    let cage = Cage::new(fixture).await;
    let mut ids = BTreeMap::new();
    for topic in TOPICS {
        if topic != "lease.lost" {
            let outbox = cage.send(Queue::Outbox, topic).await;
            ids.insert(topic, [outbox, cage.send(Queue::Inbox, topic).await]);
        }
    }
    let unhandled = [
        cage.send(Queue::Outbox, "nobody").await,
        cage.send(Queue::Inbox, "nobody").await,
    ];
    cage.send(Queue::Outbox, "join.wait").await;

    let first = cage.dispatcher().drain().await.unwrap();
    let stored = cage.stored_errors().await;
    cage.fixture.skip_backoff().await;
    let strict = cage.dispatcher().retry(Backoff::default().max_attempts(2));
    let second = strict.drain().await.unwrap();
    let exhausted = cage.stored_errors().await;

    cage.assert_secret(&[first, second]).await;
    // None of that would mean much if nothing had been told.
    for (topic, error) in FAILURES {
        let like = |stored: &&String| stored.starts_with(error);
        assert!(
            stored.iter().filter(like).count() >= 2,
            "{topic}: {stored:#?}"
        );
        for id in &ids[topic] {
            let failures = cage.events(Level::ERROR, "handler failed");
            let told = failures
                .iter()
                .any(|line| line.field("topic") == topic && line.field("message_id") == id);
            assert!(told, "{topic} {id}: {failures:#?}");
        }
    }
    assert!(stored.iter().any(|error| error.contains("not a join wait")));
    let warnings = cage.events(Level::WARN, "no handler for the topic");
    for id in &unhandled {
        assert!(
            warnings
                .iter()
                .any(|line| line.field("topic") == "nobody" && line.field("message_id") == id)
        );
    }
    assert!(
        exhausted
            .iter()
            .any(|error| error.contains("[payload]") && !error.contains("Retry")),
        "{exhausted:#?}"
    );
    assert!(second.dead > 0, "{second:?}");

    for queue in ["outbox", "inbox"] {
        let of_queue = ("queue", queue);
        for outcome in ["done", "retried", "not_ready", "dead", "unhandled"] {
            let count = cage.measured("postroom_handled_total", &[of_queue, ("outcome", outcome)]);
            assert!(count > 0, "{queue} {outcome}");
        }
        for (topic, _) in FAILURES {
            let count = cage.measured("postroom_handler_seconds", &[of_queue, ("topic", topic)]);
            assert!(count > 0, "{queue} {topic}");
        }
        for class in ["business", "infrastructure"] {
            let count = cage.measured("postroom_retries_total", &[of_queue, ("class", class)]);
            assert!(count > 0, "{queue} {class}");
        }
        assert_eq!(
            cage.measured("postroom_handler_panics_total", &[of_queue]),
            2
        );
        for operation in ["ack", "abandon", "fail"] {
            let settled = [of_queue, ("operation", operation)];
            assert!(
                cage.measured("postroom_settled_total", &settled) > 0,
                "{queue} {operation}"
            );
        }
        assert!(cage.measured("postroom_claimed_total", &[of_queue]) > 12);
    }
}

/// Shows C-58, OBX-125, IBX-127.
async fn a_payload_shows_nowhere_when_the_lease_is_lost(fixture: Fixture) {
    let cage = Cage::new(fixture).await;
    let mut reports = Vec::new();
    for queue in [Queue::Outbox, Queue::Inbox] {
        cage.send(queue, "lease.lost").await;
        let report = cage.dispatcher().run_once().await.unwrap();
        assert_eq!((report.lost, report.done), (1, 0), "{queue:?}");
        let name = [("queue", queue.name())];
        assert_eq!(cage.measured("postroom_lease_losses_total", &name), 1);
        reports.push(report);
    }
    cage.assert_secret(&reports).await;
    let warnings = cage.events(
        Level::WARN,
        "lease lost before the message could be settled",
    );
    assert_eq!(warnings.len(), 2);
}

/// All that was logged and measured since the beginning.
static CAUGHT: LazyLock<Caught> = LazyLock::new(|| {
    let caught = Caught::default();
    tracing::subscriber::set_global_default(caught.clone()).unwrap();
    metrics::set_global_recorder(caught.clone()).unwrap();
    caught
});

#[derive(Clone, Default)]
struct Caught {
    lines: Arc<Mutex<Vec<Line>>>,
    metrics: Arc<Mutex<BTreeMap<Metric, u64>>>,
}

/// A metric's name and labels.
type Metric = (String, BTreeMap<String, String>);

/// An event, a span, or what a span was told later.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Line {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

impl Caught {
    fn line(&self, level: Level, Fields(fields): Fields) {
        self.lines.lock().unwrap().push(Line { level, fields });
    }

    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels = key
            .labels()
            .map(|label| (label.key().to_owned(), label.value().to_owned()));
        let metric = (key.name().to_owned(), labels.collect());
        let mut metrics = self.metrics.lock().unwrap();
        metrics.entry(metric.clone()).or_default();
        Arc::new(Cell {
            metric,
            metrics: Arc::clone(&self.metrics),
        })
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Caught {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.line(*span.metadata().level(), fields);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.line(Level::TRACE, fields);
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.line(*event.metadata().level(), fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Counts for one metric: what a counter adds up, how often a gauge or a histogram was told something.
struct Cell {
    metric: Metric,
    metrics: Arc<Mutex<BTreeMap<Metric, u64>>>,
}

impl Cell {
    fn add(&self, count: u64) {
        if let Some(total) = self.metrics.lock().unwrap().get_mut(&self.metric) {
            *total += count;
        }
    }
}

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.add(value);
    }

    fn absolute(&self, _: u64) {
        self.add(1);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        self.add(1);
    }

    fn decrement(&self, _: f64) {
        self.add(1);
    }

    fn set(&self, _: f64) {
        self.add(1);
    }
}

impl HistogramFn for Cell {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl Recorder for Caught {
    fn describe_counter(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn describe_gauge(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn describe_histogram(
        &self,
        _: metrics::KeyName,
        _: Option<metrics::Unit>,
        _: metrics::SharedString,
    ) {
    }

    fn register_counter(&self, key: &Key, _: &metrics::Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}
