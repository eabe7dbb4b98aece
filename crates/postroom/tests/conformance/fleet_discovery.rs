//! Stores that are looked for: added, removed, kept, changed, and what happens when looking fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::fleet::{Discovery, DiscoveryError, FleetBuilder, StoreKey};
use postroom::{Delivery, ErrorKind, Fleet, Message, Options};
use testkit::{Backend, Fixture, eventually};
use tokio::sync::Semaphore;
use tracing::Level;

use crate::fleet::{connections, logged, marked, stores};

testkit::mount!(
    a_changed_store_is_opened_anew,
    a_failed_discovery_keeps_the_old_list,
    a_fleet_may_start_without_any_store,
    a_new_store_is_added_and_worked,
    a_panic_of_the_discovery_is_a_failure,
    a_removed_store_may_finish_what_it_works_on,
    a_store_that_cannot_be_is_left_out,
    an_unchanged_store_is_kept_as_it_is,
    fixed_stores_stay_whatever_is_found,
    secrets_of_a_discovery_are_not_logged,
    stores_are_looked_for_again_and_again,
);

/// A list that tests change.
#[derive(Clone, Default)]
struct Tenants {
    list: Arc<Mutex<Vec<(StoreKey, Options)>>>,
    broken: Arc<AtomicBool>,
    looks: Arc<AtomicUsize>,
}

impl Tenants {
    fn set(&self, list: impl IntoIterator<Item = (&'static str, Options)>) {
        *self.list.lock().unwrap() = list
            .into_iter()
            .map(|(key, options)| (key.into(), options))
            .collect();
    }

    fn fleet(&self) -> FleetBuilder {
        Fleet::builder().discover(self.clone())
    }
}

impl Discovery for Tenants {
    async fn discover(&self) -> Result<Vec<(StoreKey, Options)>, DiscoveryError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.broken.load(Ordering::SeqCst) {
            return Err("no way to postgres://root:hunter2@tenants/all".into());
        }
        Ok(self.list.lock().unwrap().clone())
    }
}

fn keys(fleet: &Fleet) -> Vec<String> {
    fleet.keys().iter().map(ToString::to_string).collect()
}

async fn enqueue(fleet: &Fleet, key: &str) {
    let outbox = fleet.outbox(key).unwrap();
    outbox.enqueue(&Message::new("t", "")).await.unwrap();
}

/// Shows OBX-075, OBX-076, IBX-093, IBX-094.
async fn stores_are_looked_for_again_and_again(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let tenants = Tenants::default();
    tenants.set([("a", stores[0].options())]);
    let every = Duration::from_millis(20);
    let fleet = tenants.fleet().every(every).open().await.unwrap();
    assert_eq!(keys(&fleet), ["a"]);
    tenants.set([("b", stores[1].options())]);
    eventually(|| async { (keys(&fleet) == ["b"]).then_some(()) }).await;
    let looks = || tenants.looks.load(Ordering::SeqCst);
    let before = looks();
    eventually(|| async { (looks() > before + 2).then_some(()) }).await;

    // Until the last clone of the fleet is gone: nobody is left then who could look.
    drop(fleet);
    eventually(|| async { (Arc::strong_count(&tenants.looks) == 1).then_some(()) }).await;
    assert!(format!("{:?}", Fleet::builder()).contains("every: 300s"));
}

/// Shows OBX-077, IBX-095.
async fn a_new_store_is_added_and_worked(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let tenants = Tenants::default();
    tenants.set([("a", stores[0].options())]);
    let fleet = tenants.fleet().open().await.unwrap();
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    enqueue(&fleet, "a").await;
    eventually(|| async { (running.report().done == 1).then_some(()) }).await;

    tenants.set([("a", stores[0].options()), ("b", stores[1].options())]);
    let changes = fleet.refresh().await.unwrap();
    assert_eq!(changes.added, ["b".into()]);
    assert_eq!((changes.kept, changes.removed.len()), (1, 0));
    enqueue(&fleet, "b").await;
    eventually(|| async { (running.report().done == 2).then_some(()) }).await;
    running.stop().await;
}

/// Shows OBX-078, IBX-096.
async fn a_removed_store_may_finish_what_it_works_on(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let tenants = Tenants::default();
    tenants.set([("a", stores[0].options()), ("b", stores[1].options())]);
    let fleet = tenants.fleet().open().await.unwrap();
    let may_end = Arc::new(Semaphore::new(0));
    let waiting = Arc::clone(&may_end);
    let running = fleet
        .dispatcher()
        .on("slow", move |_: Delivery| {
            let waiting = Arc::clone(&waiting);
            async move { waiting.acquire().await.unwrap().forget() }
        })
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    let outbox = fleet.outbox("a").unwrap();
    outbox.enqueue(&Message::new("slow", "")).await.unwrap();
    eventually(|| async { (running.running() == 1).then_some(()) }).await;

    tenants.set([("b", stores[1].options())]);
    assert_eq!(fleet.refresh().await.unwrap().removed, ["a".into()]);
    let error = fleet.room("a").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound { what: "store" });
    may_end.add_permits(1);
    eventually(|| async { (running.report().done == 1).then_some(()) }).await;
    assert_eq!(outbox.counts().await.unwrap().done, 1);

    // Nobody claims there any more, while the other store is worked.
    outbox.enqueue(&Message::new("t", "")).await.unwrap();
    for done in 2..10 {
        enqueue(&fleet, "b").await;
        eventually(|| async { (running.report().done == done).then_some(()) }).await;
    }
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.ready, counts.done), (1, 1));
    assert_eq!(running.stop().await.done, 9);
}

/// Shows OBX-079, IBX-097.
async fn an_unchanged_store_is_kept_as_it_is(fixture: Fixture) {
    let (name, options) = marked(&fixture).await;
    let tenants = Tenants::default();
    tenants.set([("a", options.clone())]);
    let fleet = tenants.fleet().open().await.unwrap();
    fleet.room("a").unwrap().deploy().await.unwrap();
    enqueue(&fleet, "a").await;
    for _ in 0..5 {
        tenants.set([("a", options.clone())]);
        let changes = fleet.refresh().await.unwrap();
        assert_eq!(changes.kept, 1);
        assert!(changes.added.is_empty() && changes.changed.is_empty());
        // On SQLite another instance would be another database in memory, and empty.
        assert_eq!(fleet.outbox("a").unwrap().counts().await.unwrap().ready, 1);
    }
    if fixture.backend == Backend::Postgres {
        // The connection of the first call, and perhaps that of its announcement.
        assert!(connections(&fixture, &name).await <= 2);
    }
}

/// Shows OBX-079, IBX-097.
async fn a_changed_store_is_opened_anew(fixture: Fixture) {
    let tenants = Tenants::default();
    tenants.set([("a", fixture.options().worker("first"))]);
    let fleet = tenants.fleet().open().await.unwrap();
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    enqueue(&fleet, "a").await;
    eventually(|| async { (running.report().done == 1).then_some(()) }).await;

    tenants.set([("a", fixture.options().worker("second"))]);
    let changes = fleet.refresh().await.unwrap();
    assert_eq!(changes.changed, ["a".into()]);
    eventually(|| async {
        enqueue(&fleet, "a").await;
        let workers = "SELECT DISTINCT processed_by FROM {outbox_done} ORDER BY 1";
        (fixture.texts(workers).await == ["first", "second"]).then_some(())
    })
    .await;
    running.stop().await;
}

/// Shows OBX-078, IBX-096.
async fn a_failed_discovery_keeps_the_old_list(fixture: Fixture) {
    let tenants = Tenants::default();
    tenants.set([("a", fixture.options())]);
    let fleet = tenants.fleet().open().await.unwrap();
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    tenants.broken.store(true, Ordering::SeqCst);
    assert!(fleet.refresh().await.unwrap_err().is_transient());
    assert_eq!(keys(&fleet), ["a"]);
    enqueue(&fleet, "a").await;
    eventually(|| async { (running.report().done == 1).then_some(()) }).await;
    running.stop().await;
}

/// Shows OBX-075, OBX-077, IBX-093, IBX-095.
async fn a_fleet_may_start_without_any_store(fixture: Fixture) {
    for broken in [false, true] {
        let tenants = Tenants::default();
        tenants.broken.store(broken, Ordering::SeqCst);
        let fleet = tenants.fleet().open().await.unwrap();
        assert_eq!(keys(&fleet), [] as [&str; 0]);
        let dispatcher = || fleet.dispatcher().on("t", |_: Delivery| async {});
        assert_eq!(dispatcher().run_once().await.unwrap().done, 0);
        let running = dispatcher().start().unwrap();

        tenants.broken.store(false, Ordering::SeqCst);
        tenants.set([("a", fixture.options())]);
        if broken {
            // After a failure it is tried again soon, not in five minutes.
            eventually(|| async { (keys(&fleet) == ["a"]).then_some(()) }).await;
        } else {
            fleet.refresh().await.unwrap();
        }
        enqueue(&fleet, "a").await;
        eventually(|| async { (running.report().done == 1).then_some(()) }).await;
        running.stop().await;
    }
}

async fn a_panic_of_the_discovery_is_a_failure(_: Fixture) {
    async fn broken() -> Result<Vec<(StoreKey, Options)>, DiscoveryError> {
        panic!("a discovery that panics")
    }
    let fleet = Fleet::builder().discover(broken).open().await.unwrap();
    let error = fleet.refresh().await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

async fn a_store_that_cannot_be_is_left_out(fixture: Fixture) {
    let tenants = Tenants::default();
    tenants.set([
        ("a", fixture.options()),
        ("a", fixture.options().schema("twice")),
        ("", fixture.options().schema("nameless")),
        ("same", fixture.options()),
        ("wrong", Options::new("mysql://x")),
    ]);
    let builder = tenants.fleet();
    let (changes, lines) = logged(async || {
        let fleet = builder.open().await.unwrap();
        assert_eq!(keys(&fleet), ["a"]);
        fleet.refresh().await.unwrap()
    })
    .await;
    let skipped: Vec<&str> = changes.skipped.iter().map(StoreKey::as_str).collect();
    assert_eq!(skipped, ["a", "", "same", "wrong"]);
    let errors = lines.iter().filter(|line| line.level == Level::ERROR);
    assert_eq!(errors.count(), 8, "two looks, four stores");
}

async fn fixed_stores_stay_whatever_is_found(fixture: Fixture) {
    let stores = stores(&fixture, 3).await;
    let tenants = Tenants::default();
    tenants.set([("b", stores[1].options())]);
    let fleet = tenants
        .fleet()
        .store("a", stores[0].options())
        .open()
        .await
        .unwrap();
    assert_eq!(keys(&fleet), ["a", "b"]);
    tenants.set([("c", stores[2].options()), ("a", stores[1].options())]);
    fleet.refresh().await.unwrap();
    assert_eq!(keys(&fleet), ["a", "c"]);
    assert_eq!(fleet.identifier("a").unwrap(), stores[0].room.identifier());
}

async fn secrets_of_a_discovery_are_not_logged(fixture: Fixture) {
    let tenants = Tenants::default();
    let hidden = Options::new("postgres://u:hunter2@127.0.0.1:1/d?password=hunter2");
    tenants.set([("a", fixture.options()), ("b", hidden)]);
    let builder = tenants.fleet();
    let (error, lines) = logged(async move || {
        let fleet = builder.open().await.unwrap();
        tenants.broken.store(true, Ordering::SeqCst);
        let error = fleet.refresh().await.unwrap_err();
        format!("{error} {error:?} {fleet:?}")
    })
    .await;
    assert!(lines.iter().any(|line| line.level == Level::ERROR));
    let text = format!("{lines:?} {error}");
    assert!(!text.contains("hunter2"), "{text}");
}
