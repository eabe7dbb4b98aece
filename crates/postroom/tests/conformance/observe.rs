//! What can be seen of a store: the trace that a message belongs to, how full the queues are, whether
//! the outbox is well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postroom::transport::{Endpoint, Envelope};
use postroom::{
    Abandon, ErrorKind, Health, HealthCheck, HealthStatus, Inbound, InboxMessageId, List, Message,
    NewJoin, Options, Origin, OwnerToken, Postroom, Propagator, QueueStats, State, Stats,
    TraceContext, Value, in_trace,
};
use testkit::postgres::{Durability, Server};
use testkit::{Backend, Fixture, LEASE, micros};

use testkit::logs;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const HOUR: Duration = Duration::from_secs(3600);

fn trace() -> TraceContext {
    TraceContext::parse(TRACE).unwrap()
}

#[test]
fn a_context_is_read_and_written_as_the_w3c_says() {
    let same = [
        TRACE,
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03",
        "00-00000000000000000000000000000001-0000000000000001-01",
        "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-01",
    ];
    for header in same {
        assert_eq!(TraceContext::parse(header).unwrap().to_string(), header);
        assert_eq!(header.parse(), TraceContext::parse(header));
    }
    let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
    for (header, flags) in [
        (format!("00-{ids}-ff"), "03"),
        (format!("00-{ids}-fe"), "02"),
        (format!("01-{ids}-01"), "01"),
        (format!("01-{ids}-03"), "01"),
        (format!("cc-{ids}-01-what-the-future-will-bring"), "01"),
        (format!("fe-{ids}-00-"), "00"),
    ] {
        let context = TraceContext::parse(&header).unwrap();
        assert_eq!(context.to_string(), format!("00-{ids}-{flags}"), "{header}");
    }
}

#[test]
fn what_is_no_context_is_refused() {
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    for wrong in [
        String::new(),
        "-".to_owned(),
        "---".to_owned(),
        trace.to_owned(),
        format!("00-{trace}-{span}"),
        format!("00-{trace}-{span}-"),
        format!("00-{trace}-{span}-1"),
        format!("00-{trace}-{span}-001"),
        format!("00-{trace}-{span}-0g"),
        format!("00-{trace}-{span}-+1"),
        format!("00-{trace}-{span}-01-"),
        format!("00-{trace}-{span}-01-more"),
        format!("00-{trace}-{span}-01 "),
        format!(" 00-{trace}-{span}-01"),
        format!("0-{trace}-{span}-01"),
        format!("000-{trace}-{span}-01"),
        format!("ff-{trace}-{span}-01"),
        format!("ff-{trace}-{span}-01-more"),
        format!("fF-{trace}-{span}-01"),
        format!("01-{trace}-{span}"),
        format!("01-{trace}-{span}-01.more"),
        format!("00-{}-{span}-01", trace.to_uppercase()),
        format!("00-{trace}-{}-01", span.to_uppercase()),
        format!("00-{}-{span}-01", "0".repeat(32)),
        format!("00-{trace}-{}-01", "0".repeat(16)),
        format!("00-{}-{span}-01", &trace[1..]),
        format!("00-{trace}0-{span}-01"),
        format!("00-{trace}-{}-01", &span[1..]),
        format!("00-{trace}-{span}0-01"),
        format!("00-{}é-{span}-01", &trace[2..]),
        format!("00_{trace}_{span}_01"),
    ] {
        let error = TraceContext::parse(&wrong).unwrap_err();
        assert_eq!(error.param(), Some("traceparent"), "{wrong}");
    }
}

#[test]
fn a_context_is_made_of_its_ids() {
    let context = TraceContext::from_ids([7; 16], [8; 8], true).unwrap();
    assert_eq!((context.trace_id(), context.span_id()), ([7; 16], [8; 8]));
    assert!(context.is_sampled());
    assert!(
        !TraceContext::from_ids([7; 16], [8; 8], false)
            .unwrap()
            .is_sampled()
    );
    let param =
        |trace_id, span_id| match TraceContext::from_ids(trace_id, span_id, true).unwrap_err() {
            error if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => error.param(),
            error => panic!("{error}"),
        };
    assert_eq!(param([0; 16], [8; 8]), Some("trace_id"));
    assert_eq!(param([7; 16], [0; 8]), Some("span_id"));
}

#[test]
fn a_root_is_a_trace_of_its_own_and_a_child_a_span_of_the_same() {
    let roots: BTreeSet<[u8; 16]> = (0..100)
        .map(|_| TraceContext::new_root().trace_id())
        .collect();
    assert_eq!(roots.len(), 100);
    let root = TraceContext::new_root();
    assert!(root.is_sampled());
    assert_eq!(TraceContext::parse(&root.to_string()), Ok(root));

    let child = root.child();
    assert_eq!(child.trace_id(), root.trace_id());
    assert_ne!(child.span_id(), root.span_id());
    assert_eq!(child.to_string()[52..], root.to_string()[52..], "the flags");
}

/// An extension: no requirement asks for it.
async fn every_way_into_the_outbox_carries_the_trace(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let join = fixture.room.joins().start(&NewJoin::new(9)).await.unwrap();
    let (owner, acked) = fixture.enqueue_and_claim().await;
    let message = |topic: &str| Message::new(topic, "x");

    in_trace(trace(), async {
        outbox.enqueue(&message("one")).await.unwrap();
        outbox
            .enqueue(&message("one step").join(join))
            .await
            .unwrap();
        outbox
            .enqueue_many(&[message("many"), message("many")])
            .await
            .unwrap();
        outbox
            .enqueue_many(&[message("many steps").join(join), message("many steps")])
            .await
            .unwrap();
        outbox
            .ack_and_enqueue(owner, acked, &[message("what follows").join(join)])
            .await
            .unwrap();
        enqueue_in_a_transaction(&fixture).await;
    })
    .await;

    let found = traces(&fixture).await;
    let expected = [
        "in a transaction",
        "many",
        "many in a transaction",
        "many steps",
        "one",
        "one step",
        "saved.by.a.transport",
        "what follows",
    ];
    assert_eq!(found.keys().collect::<Vec<_>>(), expected);
    for (topic, traces) in found {
        assert_eq!(traces, BTreeSet::from([Some(TRACE.to_owned())]), "{topic}");
    }
}

async fn enqueue_in_a_transaction(fixture: &Fixture) {
    let (outbox, transport) = (fixture.room.outbox(), fixture.room.transport_outbox());
    let one = Message::new("in a transaction", "x");
    let many = [(); 2].map(|()| Message::new("many in a transaction", "x"));
    let endpoint = Endpoint::new("orders", "saved.by.a.transport");
    let envelope = Envelope::new("1", "order", "x");
    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut tx = connection.transaction().unwrap();
            outbox.enqueue_in(&mut tx, &one).await.unwrap();
            outbox.enqueue_many_in(&mut tx, &many).await.unwrap();
            transport.save(&mut tx, &endpoint, &envelope).await.unwrap();
            tx.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut tx = client.transaction().await.unwrap();
            outbox.enqueue_in(&mut tx, &one).await.unwrap();
            outbox.enqueue_many_in(&mut tx, &many).await.unwrap();
            transport.save(&mut tx, &endpoint, &envelope).await.unwrap();
            tx.commit().await.unwrap();
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut tx = testkit::mysql::begin(&mut client).await;
            outbox.enqueue_in(&mut tx, &one).await.unwrap();
            outbox.enqueue_many_in(&mut tx, &many).await.unwrap();
            transport.save(&mut tx, &endpoint, &envelope).await.unwrap();
            tx.commit().await.unwrap();
        }
        Backend::SqlServer => {
            let mut tx = fixture.sqlserver().await;
            tx.begin_transaction().await.unwrap();
            outbox.enqueue_in(&mut tx, &one).await.unwrap();
            outbox.enqueue_many_in(&mut tx, &many).await.unwrap();
            transport.save(&mut tx, &endpoint, &envelope).await.unwrap();
            tx.commit_transaction().await.unwrap();
        }
    }
}

/// The traces of all messages that are ready, by topic.
async fn traces(fixture: &Fixture) -> BTreeMap<String, BTreeSet<Option<String>>> {
    let ready = List::new(State::Ready);
    let mut traces: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for message in fixture.room.outbox().list(&ready).await.unwrap() {
        let trace = message.headers.get("traceparent").cloned();
        traces.entry(message.topic).or_default().insert(trace);
    }
    traces
}

/// An extension: no requirement asks for it.
async fn statements_for_other_clients_carry_the_trace(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let message = Message::new("a", "x");
    let (_, statements) = in_trace(trace(), async { outbox.statements(&message).unwrap() }).await;
    let headers = statements
        .iter()
        .flat_map(|statement| &statement.values)
        .find_map(|value| match value {
            Value::Text(Some(text)) if text.contains("traceparent") => Some(text.as_str()),
            _ => None,
        });
    assert_eq!(headers, Some(&*format!(r#"{{"traceparent":"{TRACE}"}}"#)));
}

/// An extension: no requirement asks for it.
async fn both_ways_into_the_inbox_carry_the_trace(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let inbound = |id: &str| Inbound::new("stripe", id, "payment.received", "x");
    in_trace(trace(), async {
        inbox.enqueue(&inbound("alone")).await.unwrap();
        match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut tx = connection.transaction().unwrap();
                inbox.enqueue_in(&mut tx, &inbound("in")).await.unwrap();
                tx.commit().unwrap();
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut tx = client.transaction().await.unwrap();
                inbox.enqueue_in(&mut tx, &inbound("in")).await.unwrap();
                tx.commit().await.unwrap();
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut tx = testkit::mysql::begin(&mut client).await;
                inbox.enqueue_in(&mut tx, &inbound("in")).await.unwrap();
                tx.commit().await.unwrap();
            }
            Backend::SqlServer => {
                let mut tx = fixture.sqlserver().await;
                tx.begin_transaction().await.unwrap();
                inbox.enqueue_in(&mut tx, &inbound("in")).await.unwrap();
                tx.commit_transaction().await.unwrap();
            }
        }
    })
    .await;

    for id in ["alone", "in"] {
        let stored = inbox.get_bare(id).await.unwrap();
        assert_eq!(stored.headers["traceparent"], TRACE, "{id}");
    }
}

/// An extension: no requirement asks for it.
async fn a_header_of_the_callers_own_wins(fixture: Fixture) {
    let (outbox, inbox) = (fixture.room.outbox(), fixture.room.inbox());
    let own = "00-00000000000000000000000000000001-0000000000000001-00";
    let message = Message::new("own", "x").header("traceparent", own);
    let shouted = Message::new("shouted", "x").header("Traceparent", own);
    let inbound = Inbound::new("stripe", "1", "own", "x").header("traceparent", own);
    let ids = in_trace(trace(), async {
        inbox.enqueue(&inbound).await.unwrap();
        let first = outbox.enqueue(&message).await.unwrap();
        let others = outbox.enqueue_many(&[message, shouted]).await.unwrap();
        [first, others[0], others[1]].map(|receipt| receipt.work_item_id)
    })
    .await;

    for (id, name) in ids
        .into_iter()
        .zip(["traceparent", "traceparent", "Traceparent"])
    {
        let stored = outbox.get(id).await.unwrap().unwrap();
        assert_eq!(stored.headers, headers(&[(name, own)]));
    }
    let stored = inbox.get_bare("1").await.unwrap();
    assert_eq!(stored.headers, headers(&[("traceparent", own)]));
}

/// An extension: no requirement asks for it.
async fn other_headers_are_passed_on_as_they_are(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let given = [("content-type", "text/plain"), ("tracestate", "vendor=1")];
    let message = Message::new("a", "x")
        .header(given[0].0, given[0].1)
        .header(given[1].0, given[1].1);
    let traced = in_trace(trace(), outbox.enqueue(&message)).await.unwrap();
    let untraced = outbox.enqueue(&message).await.unwrap();

    let stored = outbox.get(traced.work_item_id).await.unwrap().unwrap();
    assert_eq!(
        stored.headers,
        headers(&[given[0], ("traceparent", TRACE), given[1]])
    );
    let stored = outbox.get(untraced.work_item_id).await.unwrap().unwrap();
    assert_eq!(stored.headers, headers(&given));
}

fn headers(headers: &[(&str, &str)]) -> BTreeMap<String, String> {
    headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Nothing is stored for messages that belong to no trace.
async fn outside_of_a_trace_nothing_is_carried(fixture: Fixture) {
    let (outbox, inbox) = (fixture.room.outbox(), fixture.room.inbox());
    assert_eq!(TraceContext::current(), None);
    in_trace(trace(), async {
        assert_eq!(TraceContext::current(), Some(trace()));
        // A task of its own is out of the trace.
        let outside = tokio::spawn(async move {
            let message = Message::new("a", "x");
            outbox.enqueue(&message).await.unwrap();
            outbox.enqueue_many(&[message]).await.unwrap();
        });
        outside.await.unwrap();
    })
    .await;
    let inbound = Inbound::new("stripe", "1", "a", "x");
    inbox.enqueue(&inbound).await.unwrap();

    assert_eq!(fixture.live("headers IS NULL").await, 2);
    let without = "SELECT count(*) FROM {inbox} WHERE headers IS NULL";
    assert_eq!(fixture.number(without).await, 1);
}

/// Sees a span that the test has chosen.
struct Sees(Arc<Mutex<Option<TraceContext>>>);

impl Propagator for Sees {
    fn current(&self) -> Option<TraceContext> {
        *self.0.lock().unwrap()
    }

    fn adopt(&self, _: &tracing::Span, _: Origin) {}
}

/// An extension: no requirement asks for it.
async fn a_propagator_is_asked_outside_of_a_trace_of_the_callers(fixture: Fixture) {
    let seen = Arc::new(Mutex::new(None));
    let options = fixture.options().propagator(Sees(Arc::clone(&seen)));
    let room = options.connect().await.unwrap();
    let (outbox, inbox) = (room.outbox(), room.inbox());
    let message = |topic: &str| Message::new(topic, "x");
    let span = TraceContext::new_root();

    outbox.enqueue(&message("no span")).await.unwrap();
    *seen.lock().unwrap() = Some(span);
    outbox.enqueue(&message("span")).await.unwrap();
    outbox.enqueue_many(&[message("span")]).await.unwrap();
    in_trace(trace(), outbox.enqueue(&message("caller")))
        .await
        .unwrap();
    let inbound = Inbound::new("stripe", "1", "span", "x");
    inbox.enqueue(&inbound).await.unwrap();

    let only = |trace: Option<String>| BTreeSet::from([trace]);
    assert_eq!(
        traces(&fixture).await,
        BTreeMap::from([
            ("caller".to_owned(), only(Some(TRACE.to_owned()))),
            ("no span".to_owned(), only(None)),
            ("span".to_owned(), only(Some(span.to_string()))),
        ])
    );
    let stored = inbox.get_bare("1").await.unwrap();
    assert_eq!(stored.headers["traceparent"], span.to_string());
}

/// Shows DEEP-19.
async fn an_unfinished_message_counts_where_it_stands(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    assert_eq!(fixture.room.stats().await.unwrap(), Stats::default());

    some_of_everything(&fixture).await;

    let stats = fixture.room.stats().await.unwrap();
    assert_counts(&stats.outbox, [5, 4, 6, 3, 2]);
    assert_eq!(stats.inbox, QueueStats::default());
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.in_flight, counts.dead, counts.done), (4, 2, 1));
    assert_eq!(counts.ready, 5 + 6 + 3);
}

/// Messages of the outbox in every state, each in another number: 5 ready, 4 in flight, 6 scheduled, 3
/// retrying, 2 dead, 1 done.
async fn some_of_everything(fixture: &Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(12).await;
    let (owner, ids) = fixture.claim(12).await;
    let abandon = async |ids: &[_], how: Abandon| {
        let abandoned = outbox.abandon(owner, ids, how).await.unwrap();
        assert_eq!(abandoned.len(), ids.len());
    };
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..3], "no").await.unwrap();
    abandon(&ids[3..5], Abandon::after(HOUR).error("no")).await;
    // The other side is away: that uses up no attempt, and yet it has failed.
    abandon(&ids[5..6], Abandon::after(HOUR).error("away").deferred()).await;
    // It only waits: nothing has failed.
    abandon(&ids[6..7], Abandon::after(HOUR).deferred()).await;
    // Its next attempt is due already.
    abandon(&ids[7..8], Abandon::after(Duration::ZERO)).await;
    fixture.enqueue(4).await;
    let later = Message::new("later", "x").due_at(fixture.now().await + HOUR);
    outbox.enqueue_many(&vec![later; 5]).await.unwrap();
}

/// Ready, in flight, scheduled, retrying, dead.
fn assert_counts(stats: &QueueStats, expected: [u64; 5]) {
    let found = [
        stats.ready,
        stats.in_flight,
        stats.scheduled,
        stats.retrying,
        stats.dead,
    ];
    assert_eq!(found, expected, "{stats:?}");
}

/// Shows DEEP-19.
async fn the_inbox_is_counted_apart(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let enqueue = async |id: &str, later: bool| {
        let inbound = Inbound::new("stripe", id, "a", "x");
        let inbound = if later {
            inbound.due_at(fixture.now().await + HOUR)
        } else {
            inbound
        };
        inbox.enqueue(&inbound).await.unwrap();
    };
    for id in ["1", "2", "3", "4", "5", "6", "7"] {
        enqueue(id, false).await;
    }
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    inbox.ack(owner, &["1"]).await.unwrap();
    inbox.fail(owner, &["2"], "no").await.unwrap();
    let after = Abandon::after(HOUR);
    inbox.abandon(owner, &["3", "4"], after).await.unwrap();
    for (id, later) in [("8", true), ("9", true), ("10", true), ("11", false)] {
        enqueue(id, later).await;
    }
    // What was only seen is in no queue.
    let seen = InboxMessageId::new("stripe", "seen");
    inbox.already_processed(&seen).await.unwrap();

    let stats = fixture.room.stats().await.unwrap();
    assert_counts(&stats.inbox, [1, 3, 3, 2, 1]);
    assert_eq!(stats.outbox, QueueStats::default());
}

/// A lease that has expired is as good as none, whether it was reaped or not.
async fn a_message_whose_lease_has_expired_is_ready(fixture: Fixture) {
    fixture.enqueue(2).await;
    fixture.claim(2).await;
    let counts = async || fixture.room.stats().await.unwrap().outbox;
    assert_counts(&counts().await, [0, 2, 0, 0, 0]);
    fixture.expire_leases().await;
    assert_counts(&counts().await, [2, 0, 0, 0, 0]);
    fixture.room.outbox().reap().await.unwrap();
    assert_counts(&counts().await, [2, 0, 0, 0, 0]);
    if fixture.backend == Backend::Sqlite {
        // A lease that begins in the future was taken before the clock was set back.
        fixture.claim(2).await;
        let begin = "UPDATE {outbox} SET locked_from = locked_until";
        fixture.sql(begin).await;
        assert_counts(&counts().await, [2, 0, 0, 0, 0]);
    }
}

/// By the database's clock, since it was due.
async fn the_oldest_ready_message_says_how_long_it_has_waited(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let oldest = async || {
        let oldest = fixture.room.stats().await.unwrap().outbox.oldest_ready;
        oldest.map(micros)
    };
    let later = Message::new("later", "x").due_at(fixture.now().await + HOUR * 10);
    outbox.enqueue(&later).await.unwrap();
    assert_eq!(oldest().await, None, "it is not due");

    let ids = fixture.enqueue(2).await;
    for (id, age) in ids.iter().zip([HOUR * 2, HOUR]) {
        let since = fixture.time_of("outbox", "next_attempt_at", *id).await - micros(age);
        let (since, id) = (fixture.time(since), fixture.literal(*id));
        fixture
            .sql(&format!(
                "UPDATE {{outbox}} SET next_attempt_at = {since} WHERE id = {id}"
            ))
            .await;
    }
    for id in ids {
        let since = fixture.time_of("outbox", "next_attempt_at", id).await;
        let before = fixture.clock().await - since;
        let waited = oldest().await.unwrap();
        let after = fixture.clock().await - since;
        assert!(
            (before..=after).contains(&waited),
            "{before} ≤ {waited} ≤ {after}"
        );
        assert_eq!(fixture.claim(1).await.1, [id]);
    }
    assert_eq!(oldest().await, None, "both are leased");
}

/// No matter how large the archive is: it is not even there.
async fn stats_do_not_look_at_the_archive(fixture: Fixture) {
    some_of_everything(&fixture).await;
    let cascade = match fixture.backend {
        Backend::Sqlite | Backend::MySql => "",
        Backend::Postgres => "CASCADE",
        Backend::SqlServer => "",
    };
    for archive in ["outbox_done", "inbox_done"] {
        fixture
            .sql(&format!("DROP TABLE {{{archive}}} {cascade}"))
            .await;
    }
    let stats = fixture.room.stats().await.unwrap();
    assert_counts(&stats.outbox, [5, 4, 6, 3, 2]);
}

/// Shows DEEP-19.
async fn stats_are_set_as_gauges(fixture: Fixture) {
    let gauges = Gauges::default();
    let guard = metrics::set_default_local_recorder(&gauges);
    some_of_everything(&fixture).await;
    let minute = Duration::from_secs(60);
    fixture.age("outbox", "next_attempt_at", minute).await;
    let stats = fixture.room.stats().await.unwrap();

    let depth = |queue: &str, state: &str| {
        gauges.of(
            "postroom_queue_depth",
            &[
                ("queue", queue),
                ("state", state),
                ("store", fixture.room.identifier()),
            ],
        )
    };
    let of = |name: &str, queue: &str| {
        gauges.of(
            name,
            &[("queue", queue), ("store", fixture.room.identifier())],
        )
    };
    for (state, expected) in [
        ("ready", 5.0),
        ("in_flight", 4.0),
        ("scheduled", 6.0),
        ("retrying", 3.0),
    ] {
        assert_eq!(depth("outbox", state), Some(expected), "{state}");
        assert_eq!(depth("inbox", state), Some(0.0), "{state}");
    }
    assert_eq!(of("postroom_dead", "outbox"), Some(2.0));
    assert_eq!(of("postroom_dead", "inbox"), Some(0.0));
    let oldest = stats.outbox.oldest_ready.unwrap();
    assert!(oldest >= minute, "{oldest:?}");
    let seconds = "postroom_oldest_ready_seconds";
    assert_eq!(of(seconds, "outbox"), Some(oldest.as_secs_f64()));
    assert_eq!(of(seconds, "inbox"), Some(0.0));

    // What is gone goes from the gauges too.
    fixture.sql("DELETE FROM {outbox}").await;
    fixture.room.stats().await.unwrap();
    drop(guard);
    assert_eq!(depth("outbox", "ready"), Some(0.0));
    assert_eq!(of(seconds, "outbox"), Some(0.0));
    assert_eq!(of("postroom_dead", "outbox"), Some(2.0));
}

/// Remembers what gauges were set to, by name and labels.
#[derive(Default)]
struct Gauges(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Gauges {
    fn of(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().copied().collect();
        let gauges = self.0.lock().unwrap();
        let gauge = gauges.get(&Self::key(name, &labels))?;
        Some(f64::from_bits(gauge.load(Ordering::SeqCst)))
    }

    fn key(name: &str, labels: &BTreeMap<&str, &str>) -> String {
        format!("{name} {labels:?}")
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let labels = key.labels().map(|label| (label.key(), label.value()));
        let name = Self::key(key.name(), &labels.collect());
        let mut gauges = self.0.lock().unwrap();
        let gauge = gauges.entry(name).or_default();
        Gauge::from_arc(Arc::clone(gauge))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Shows HDT-20.
async fn an_empty_outbox_is_healthy_by_the_default_thresholds(fixture: Fixture) {
    let health = fixture.room.health().await;
    assert_eq!(health.name, "Transport.Outbox");
    assert_eq!(health.status, HealthStatus::Healthy);
    assert_eq!((&health.warning, &health.cause), (&None, &None));
    assert_eq!(
        health.metadata(),
        BTreeMap::from([
            ("PendingCount", 0),
            ("WarningThreshold", 1_000),
            ("CriticalThreshold", 10_000),
        ])
    );
    let default = HealthCheck::default();
    assert_eq!(HealthCheck::thresholds(1_000, 10_000), Ok(default));
    assert_eq!(
        serde_json::to_value(&health).unwrap(),
        serde_json::json!({
            "name": "Transport.Outbox",
            "status": "Healthy",
            "warning": null,
            "pending": 0,
            "warning_threshold": 1_000,
            "critical_threshold": 10_000,
            "cause": null,
        })
    );
}

/// Shows HDT-20.
async fn from_a_threshold_on_there_is_a_warning_and_from_another_it_is_unhealthy(fixture: Fixture) {
    let check = HealthCheck::thresholds(2, 4).unwrap();
    for (pending, is_healthy, warns) in [
        (1, true, false),
        (2, true, true),
        (3, true, true),
        (4, false, false),
        (5, false, false),
    ] {
        fixture.enqueue(1).await;
        let health = fixture.room.health_with(check).await;
        assert_eq!(health.pending, Some(pending));
        assert_eq!(health.is_healthy(), is_healthy, "{health:?}");
        assert_eq!(health.warning.is_some(), warns, "{health:?}");
        assert_eq!(health.cause.is_some(), !is_healthy, "{health:?}");
        assert_eq!(
            health.metadata(),
            BTreeMap::from([
                ("PendingCount", pending),
                ("WarningThreshold", 2),
                ("CriticalThreshold", 4),
            ])
        );
        let said = health.warning.or(health.cause);
        if let Some(said) = said {
            assert!(said.contains(&pending.to_string()), "{said}");
        }
    }
}

/// What was scheduled for later is no backlog, what failed and waits for its retry is.
///
/// Shows HDT-20.
async fn pending_is_what_should_be_done_by_now(fixture: Fixture) {
    some_of_everything(&fixture).await;
    let inbound = Inbound::new("stripe", "1", "a", "x");
    fixture.room.inbox().enqueue(&inbound).await.unwrap();
    let health = fixture.room.health().await;
    assert_eq!(
        health.pending,
        Some(5 + 4 + 3),
        "ready, in flight, retrying"
    );
}

#[test]
fn a_warning_comes_before_the_worst() {
    for (warning, critical) in [(0, 1), (0, 0), (5, 5), (6, 5)] {
        let error = HealthCheck::thresholds(warning, critical).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param: "warning" });
    }
    HealthCheck::thresholds(1, 2).unwrap();
}

fn assert_unanswered(health: &Health, cause: &str) {
    assert_eq!(health.status, HealthStatus::Unhealthy);
    assert_eq!((health.pending, &health.warning), (None, &None));
    let found = health.cause.as_deref().unwrap_or_default();
    assert!(found.contains(cause), "{found}");
    assert_eq!(
        health.metadata(),
        BTreeMap::from([("WarningThreshold", 1_000), ("CriticalThreshold", 10_000)])
    );
}

/// Shows HDT-20.
async fn a_store_whose_tables_are_gone_is_unhealthy_with_the_cause(fixture: Fixture) {
    assert!(fixture.room.health().await.is_healthy());
    fixture
        .sql(match fixture.backend {
            Backend::Sqlite | Backend::MySql => "DROP TABLE {outbox}",
            Backend::Postgres => "DROP TABLE {outbox} CASCADE",
            Backend::SqlServer => "DROP TABLE {outbox}",
        })
        .await;
    let error = fixture.room.stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    assert_unanswered(&fixture.room.health().await, &error.to_string());
}

/// Shows HDT-20.
async fn a_server_that_is_gone_is_unhealthy_with_the_cause_and_without_its_password(_: Fixture) {
    let server = Server::start(Durability::On).unwrap();
    let url = server
        .url()
        .replace("postroom@", &format!("postroom:{CANARY}@"));
    let options = Options::new(url).schema("gone").deploy(true);
    let room = options.connect().await.unwrap();
    assert!(room.health().await.is_healthy());
    server.crash().unwrap();

    // The first call finds the broken connection, the second can make no other.
    for _ in 0..2 {
        let health = room.health().await;
        assert_unanswered(&health, "database unavailable");
        assert!(!shown(&health).contains(CANARY), "{health:?}");
    }
    server.restart().unwrap();
    testkit::eventually(|| async { room.health().await.is_healthy().then_some(()) }).await;
}

/// A health endpoint must answer before the one who asks gives up.
///
/// Shows HDT-20.
async fn a_store_that_does_not_answer_is_unhealthy(fixture: Fixture) {
    let mut client = fixture.postgres().await;
    let lock = client.transaction().await.unwrap();
    let table = fixture.fill("LOCK TABLE {outbox} IN ACCESS EXCLUSIVE MODE");
    lock.batch_execute(&table).await.unwrap();
    assert_unanswered(&fixture.room.health().await, "has not answered");
    lock.rollback().await.unwrap();
    assert!(fixture.room.health().await.is_healthy());
}

const CANARY: &str = "canary-2b91";

fn shown(health: &Health) -> String {
    format!("{health:?} {}", serde_json::to_string(health).unwrap())
}

/// Shows OBX-125, IBX-127.
async fn a_payload_shows_in_nothing_that_observes(fixture: Fixture) {
    // While there is one subscriber only, a span that another thread makes for the first time counts as
    // wanted by nobody.
    let _another = logs::catch();
    let logs = logs::catch();
    let room = room_with_canaries(&fixture).await;
    let stats = room.stats().await.unwrap();
    assert_eq!((stats.outbox.ready, stats.inbox.ready), (2, 1));
    let mut texts = vec![format!("{stats:?}")];
    for check in [
        HealthCheck::default(),
        HealthCheck::thresholds(1, 2).unwrap(),
    ] {
        texts.push(shown(&room.health_with(check).await));
        texts.push(format!("{check:?}"));
    }
    let cascade = match fixture.backend {
        Backend::Sqlite | Backend::MySql => "",
        Backend::Postgres => "CASCADE",
        Backend::SqlServer => "",
    };
    fixture
        .sql(&format!("DROP TABLE {{outbox}} {cascade}"))
        .await;
    texts.push(shown(&room.health().await));
    texts.push(logs.text());
    assert!(logs.text().contains(r#""operation": "stats""#), "the spans");
    for text in texts {
        assert!(!text.contains(CANARY), "{text}");
    }
}

/// Messages whose payload and headers are canaries, in a store with a propagator.
async fn room_with_canaries(fixture: &Fixture) -> Postroom {
    let seen = Arc::new(Mutex::new(Some(trace())));
    let options = fixture.options().propagator(Sees(seen));
    assert!(!format!("{options:?}").contains(CANARY));
    let room = options.connect().await.unwrap();
    let message = Message::new("a", CANARY).header("tracestate", CANARY);
    let malformed = message.clone().header("traceparent", CANARY);
    let outbox = room.outbox();
    outbox.enqueue(&message).await.unwrap();
    outbox.enqueue(&malformed).await.unwrap();
    let inbound = Inbound::new("stripe", "1", "a", CANARY);
    room.inbox().enqueue(&inbound).await.unwrap();
    let error = TraceContext::parse(CANARY).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY));
    room
}

/// The table of metrics in the guide is complete.
#[test]
fn every_metric_is_in_the_guide() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(folder.join("../../docs/observability.md")).unwrap();
    let mut names = BTreeSet::new();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(metrics_of(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(names.contains("postroom_queue_depth"), "{names:?}");
    assert!(names.contains("postroom_operation_seconds"), "{names:?}");
    for name in names {
        assert!(guide.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// The first text in quotes after every `counter!`, `gauge!` and `histogram!`.
fn metrics_of(source: &str) -> BTreeSet<String> {
    let macros = ["counter!(", "gauge!(", "histogram!("];
    let calls = macros.iter().flat_map(|name| source.split(name).skip(1));
    calls
        .filter_map(|call| call.split('"').nth(1))
        .map(str::to_owned)
        .collect()
}

testkit::mount!(
    every_way_into_the_outbox_carries_the_trace,
    statements_for_other_clients_carry_the_trace,
    both_ways_into_the_inbox_carry_the_trace,
    a_header_of_the_callers_own_wins,
    other_headers_are_passed_on_as_they_are,
    outside_of_a_trace_nothing_is_carried,
    a_propagator_is_asked_outside_of_a_trace_of_the_callers,
    an_unfinished_message_counts_where_it_stands,
    the_inbox_is_counted_apart,
    a_message_whose_lease_has_expired_is_ready,
    the_oldest_ready_message_says_how_long_it_has_waited,
    stats_do_not_look_at_the_archive,
    stats_are_set_as_gauges,
    an_empty_outbox_is_healthy_by_the_default_thresholds,
    from_a_threshold_on_there_is_a_warning_and_from_another_it_is_unhealthy,
    pending_is_what_should_be_done_by_now,
    a_store_whose_tables_are_gone_is_unhealthy_with_the_cause,
    a_payload_shows_in_nothing_that_observes;
    postgres:
    a_server_that_is_gone_is_unhealthy_with_the_cause_and_without_its_password,
    a_store_that_does_not_answer_is_unhealthy,
);
