//! What the inbox logs and counts, and what it never shows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postroom::{Abandon, Inbound, InboxMessageId, InboxState, List, OwnerToken};
use testkit::Fixture;
use tracing::Level;

use testkit::logs;

const LEASE: Duration = Duration::from_secs(30);
const CANARY: &str = "canary-7f3a";

/// Shows IBX-107.
async fn a_duplicate_check_is_logged_at_debug_with_its_answer(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    let logs = logs::catch();

    inbox.already_processed(&id).await.unwrap();
    inbox.mark_processed(&id).await.unwrap();
    inbox.already_processed(&id).await.unwrap();

    let lines = logs.at(Level::DEBUG, "checked for a duplicate");
    let answers: Vec<_> = lines
        .iter()
        .map(|line| line.field("already_processed"))
        .collect();
    assert_eq!(answers, ["false", "true"]);
    for line in &lines {
        assert_eq!(
            (line.field("source"), line.field("message_id")),
            ("stripe", "evt_1")
        );
    }
}

/// Shows IBX-108.
async fn an_enqueue_is_logged_at_info_with_topic_source_and_id(fixture: Fixture) {
    let logs = logs::catch();

    fixture
        .room
        .inbox()
        .enqueue(&Inbound::new("stripe", "evt_1", "payment.received", ""))
        .await
        .unwrap();

    let lines = logs.at(Level::INFO, "enqueued");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("topic"), "payment.received");
    assert_eq!(lines[0].field("source"), "stripe");
    assert_eq!(lines[0].field("message_id"), "evt_1");
}

/// Shows IBX-109.
async fn a_claim_is_logged_at_debug_with_its_count(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for id in ["1", "2"] {
        inbox
            .enqueue(&Inbound::new("stripe", id, "topic", ""))
            .await
            .unwrap();
    }
    let logs = logs::catch();

    inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();

    let lines = logs.at(Level::DEBUG, "claimed");
    let counts: Vec<_> = lines
        .iter()
        .map(|line| (line.field("queue"), line.field("count")))
        .collect();
    assert_eq!(counts, [("inbox", "2"), ("inbox", "0")]);
}

/// Shows IBX-112.
async fn a_reap_is_logged_at_info_with_its_count(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("stripe", "evt_1", "topic", ""))
        .await
        .unwrap();
    inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    fixture.expire_leases().await;
    let logs = logs::catch();

    inbox.reap().await.unwrap();

    let lines = logs.at(Level::INFO, "reaped expired leases");
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (lines[0].field("queue"), lines[0].field("count")),
        ("inbox", "1")
    );
}

/// Shows IBX-113.
async fn every_line_names_the_store(fixture: Fixture) {
    let logs = logs::catch();

    do_everything(&fixture).await;

    let events = logs.events();
    assert!(events.len() > 10);
    for line in events {
        assert_eq!(line.field("store"), fixture.room.identifier(), "{line:?}");
    }
}

/// Shows IBX-127.
async fn a_payload_shows_nowhere(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let logs = logs::catch();
    let mut shown = vec![format!(
        "{:?}",
        Inbound::new("stripe", "evt", "topic", CANARY)
    )];

    do_everything(&fixture).await;

    inbox
        .enqueue(&Inbound::new("stripe", "evt_2", "topic", CANARY))
        .await
        .unwrap();
    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
    assert_eq!(claimed[0].payload.as_deref(), Some(CANARY));
    shown.push(format!("{claimed:?} {claimed:#?}"));
    for wrong in [
        Inbound::new("stripe", "evt_3", "topic", format!("{CANARY}\0")),
        Inbound::new("stripe", "evt_3", "", CANARY),
        Inbound::new("stripe", "evt_3", "x".repeat(256), CANARY),
    ] {
        let error = inbox.enqueue(&wrong).await.unwrap_err();
        shown.push(format!("{error} {error:?}"));
    }
    fixture.refuse("INSERT", "inbox").await;
    let error = inbox
        .enqueue(&Inbound::new("stripe", "evt_4", "topic", CANARY))
        .await
        .unwrap_err();
    shown.push(format!("{error} {error:?}"));

    shown.push(logs.text());
    for text in shown {
        assert!(!text.contains(CANARY), "{text}");
    }
}

/// Shows IBX-008, C-40, C-42.
async fn a_different_hash_is_warned_about_returned_and_counted(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let id = InboxMessageId::new("stripe", "evt_1");
    let inbound = Inbound::new("stripe", "evt_1", "topic", "");
    let logs = logs::catch();
    let counters = Counters::default();
    let guard = metrics::set_default_local_recorder(&counters);

    assert!(
        !inbox
            .already_processed_with_hash(&id, b"one")
            .await
            .unwrap()
            .hash_differs
    );
    assert!(
        !inbox
            .enqueue(&inbound.clone().hash(*b"one"))
            .await
            .unwrap()
            .hash_differs
    );
    assert_eq!(counters.of("postroom_inbox_hash_differs_total"), 0);
    assert!(
        inbox
            .already_processed_with_hash(&id, b"two")
            .await
            .unwrap()
            .hash_differs
    );
    assert!(
        inbox
            .enqueue(&inbound.clone().hash(*b"two"))
            .await
            .unwrap()
            .hash_differs
    );
    inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    assert!(
        inbox
            .enqueue(&inbound.hash(*b"six"))
            .await
            .unwrap()
            .hash_differs,
        "under a lease too"
    );
    drop(guard);

    assert_eq!(counters.of("postroom_inbox_hash_differs_total"), 3);
    let warnings: Vec<_> = logs
        .events()
        .into_iter()
        .filter(|line| line.level == Level::WARN)
        .collect();
    assert_eq!(warnings.len(), 3);
    for line in warnings {
        assert_eq!(
            (line.field("source"), line.field("message_id")),
            ("stripe", "evt_1")
        );
    }
}

/// Shows C-37.
async fn a_mark_on_an_unknown_message_is_warned_about(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let logs = logs::catch();

    let id = InboxMessageId::new("stripe", "evt_1");
    inbox.mark_processing(&id).await.unwrap();
    inbox.mark_processed(&id).await.unwrap();
    inbox.mark_dead(&id).await.unwrap();

    let warnings: Vec<_> = logs
        .events()
        .into_iter()
        .filter(|line| line.level == Level::WARN)
        .collect();
    let operations: Vec<_> = warnings
        .iter()
        .map(|line| line.field("operation"))
        .collect();
    assert_eq!(
        operations,
        ["mark_processing", "mark_processed", "mark_dead"]
    );
}

/// An extension: no requirement asks for it.
async fn what_happens_is_counted_by_store_and_queue(fixture: Fixture) {
    let counters = Counters::default();
    let guard = metrics::set_default_local_recorder(&counters);

    do_everything(&fixture).await;

    drop(guard);
    assert_eq!(
        counters.of("postroom_enqueued_total"),
        1,
        "the same message again is no new one"
    );
    assert_eq!(counters.of("postroom_claimed_total"), 4);
    assert_eq!(counters.of("postroom_reaped_total"), 1);
    for labels in counters.0.lock().unwrap().keys() {
        assert!(labels.contains(fixture.room.identifier()), "{labels}");
    }
}

/// Runs every operation on one message whose payload is the canary.
async fn do_everything(fixture: &Fixture) {
    let inbox = fixture.room.inbox();
    let inbound = Inbound::new("stripe", "evt_1", "topic", CANARY);
    let id = InboxMessageId::new("stripe", "evt_1");
    let this = std::slice::from_ref(&id);
    inbox
        .already_processed_with_hash(&id, b"one")
        .await
        .unwrap();
    inbox.enqueue(&inbound.clone().hash(*b"two")).await.unwrap();
    inbox.enqueue(&inbound).await.unwrap();
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    inbox.renew(owner, this, LEASE).await.unwrap();
    inbox
        .abandon(owner, this, Abandon::default().error("not now"))
        .await
        .unwrap();
    fixture.skip_backoff().await;
    inbox.claim(owner, LEASE, 10).await.unwrap();
    fixture.expire_leases().await;
    inbox.reap().await.unwrap();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    inbox.fail(owner, this, "broken").await.unwrap();
    inbox
        .mark_dead(&InboxMessageId::new("stripe", "unknown"))
        .await
        .unwrap();
    inbox.enqueue(&inbound).await.unwrap();
    inbox.get(&id).await.unwrap();
    inbox.get_bare("evt_1").await.unwrap();
    inbox.list(&List::new(InboxState::Dead)).await.unwrap();
    inbox.counts().await.unwrap();
    inbox.revive(this).await.unwrap();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    inbox.ack(owner, this).await.unwrap();
    inbox.enqueue(&inbound).await.unwrap();
    inbox.cleanup(Duration::from_secs(3600)).await.unwrap();
    inbox.purge_older_than(Duration::ZERO).await.unwrap();
}

/// Counts counters, by name and labels.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Counters {
    /// The sum of all counters with this name.
    fn of(&self, name: &str) -> u64 {
        let counters = self.0.lock().unwrap();
        let named = counters
            .iter()
            .filter(|(key, _)| key.starts_with(&format!("{name} ")));
        named
            .map(|(_, counter)| counter.load(Ordering::SeqCst))
            .sum()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{} {}", key.name(), labels.join(" "));
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

testkit::mount!(
    a_duplicate_check_is_logged_at_debug_with_its_answer,
    an_enqueue_is_logged_at_info_with_topic_source_and_id,
    a_claim_is_logged_at_debug_with_its_count,
    a_reap_is_logged_at_info_with_its_count,
    every_line_names_the_store,
    a_payload_shows_nowhere,
    a_different_hash_is_warned_about_returned_and_counted,
    a_mark_on_an_unknown_message_is_warned_about,
    what_happens_is_counted_by_store_and_queue,
);
