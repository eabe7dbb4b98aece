//! Many stores as one: the list, the router, the dispatcher over all of them, and what its logs say.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::fleet::FleetBuilder;
use postroom::{
    Delivery, ErrorKind, Fleet, Inbound, JoinStatus, JoinWait, Message, NewJoin, Options,
};
use testkit::{Backend, Fixture, eventually};
use tracing::Level;

use testkit::logs::{Logs, catch};

testkit::mount!(
    a_fleet_without_stores_and_discovery_is_refused,
    a_join_is_worked_in_the_store_that_it_is_in,
    a_key_is_used_once,
    a_message_enqueued_in_this_process_is_handled_at_once,
    a_removed_key_and_an_unknown_one_are_not_found,
    a_router_finds_the_store_of_a_key,
    a_store_has_one_key,
    a_store_is_opened_once,
    a_uuid_is_the_same_key_in_every_form,
    each_store_has_its_own_messages,
    every_log_line_names_the_store,
    messages_of_other_processes_are_heard_of_when_asked_to,
    settings_that_are_wrong_are_refused,
    stopping_hands_back_what_was_not_begun,
);

/// So many stores, the fixture's first.
pub(crate) async fn stores(fixture: &Fixture, count: usize) -> Vec<Fixture> {
    let mut stores = vec![fixture.clone()];
    while stores.len() < count {
        stores.push(Fixture::new(fixture.backend).await);
    }
    stores
}

/// A fleet of these stores, with the keys `a`, `b`, `c` and so on.
pub(crate) fn fleet_of(stores: &[Fixture]) -> FleetBuilder {
    ('a'..)
        .zip(stores)
        .fold(Fleet::builder(), |fleet, (key, store)| {
            fleet.store(key.to_string(), store.options())
        })
}

/// Runs `work` on a thread of its own from beginning to end, and gives back what was logged there: handlers
/// and turns included.
pub(crate) async fn logged<T: Send + 'static>(
    work: impl AsyncFnOnce() -> T + Send + 'static,
) -> (T, Vec<testkit::logs::Line>) {
    tokio::task::spawn_blocking(move || {
        let logs: Logs = catch();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let value = runtime.block_on(work());
        (value, logs.events())
    })
    .await
    .unwrap()
}

/// Shows OBX-066, IBX-085.
async fn each_store_has_its_own_messages(fixture: Fixture) {
    let stores = stores(&fixture, 3).await;
    let fleet = fleet_of(&stores).open().await.unwrap();
    for key in ["a", "b", "b"] {
        let outbox = fleet.outbox(key).unwrap();
        outbox.enqueue(&Message::new("t", key)).await.unwrap();
    }
    fleet
        .inbox("c")
        .unwrap()
        .enqueue(&Inbound::new("s", "1", "t", "c"))
        .await
        .unwrap();
    assert_eq!(stores[0].room.outbox().counts().await.unwrap().ready, 1);
    assert_eq!(stores[1].room.outbox().counts().await.unwrap().ready, 2);
    assert_eq!(stores[2].room.outbox().counts().await.unwrap().ready, 0);

    let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let see = |seen: &Arc<Mutex<Vec<(String, String)>>>| {
        let seen = Arc::clone(seen);
        move |delivery: Delivery| {
            let key = delivery.room().key().unwrap().to_owned();
            let payload = delivery.payload().to_owned();
            seen.lock().unwrap().push((key, payload));
            async {}
        }
    };
    let report = fleet
        .dispatcher()
        .on("t", see(&seen))
        .on_inbound("t", see(&seen))
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 4);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let expected = ["a", "b", "b", "c"].map(|key| (key.to_owned(), key.to_owned()));
    assert_eq!(seen, expected);
    assert_eq!(stores[1].room.outbox().counts().await.unwrap().done, 2);
    assert_eq!(stores[2].room.inbox().counts().await.unwrap().done, 1);
}

/// Shows OBX-072, IBX-091, OBX-070, IBX-089.
async fn a_router_finds_the_store_of_a_key(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let fleet = fleet_of(&stores).open().await.unwrap();
    for (key, store) in ["a", "b"].into_iter().zip(&stores) {
        let room = fleet.room(key).unwrap();
        assert_eq!(room.identifier(), store.room.identifier());
        assert_eq!(fleet.identifier(key).unwrap(), store.room.identifier());
        assert_eq!(room.key(), Some(key));
    }
    assert_eq!(fleet.keys(), ["a".into(), "b".into()]);
    assert_ne!(fleet.identifier("a"), fleet.identifier("b"));
}

/// Shows OBX-073, IBX-092.
async fn a_removed_key_and_an_unknown_one_are_not_found(fixture: Fixture) {
    let fleet = fleet_of(&stores(&fixture, 1).await).open().await.unwrap();
    let not_found = ErrorKind::NotFound { what: "store" };
    for key in ["b", "A", "a "] {
        let error = fleet.outbox(key).err().unwrap();
        assert_eq!(error.kind(), not_found);
        assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        assert_eq!(fleet.inbox(key).err().unwrap().kind(), not_found);
        assert_eq!(fleet.room(key).err().unwrap().kind(), not_found);
    }
    assert_eq!(fleet.room("").err().unwrap().param(), Some("key"));
}

/// Shows OBX-074.
async fn a_uuid_is_the_same_key_in_every_form(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let id = uuid::Uuid::now_v7();
    let fleet = Fleet::builder()
        .store(id, stores[0].options())
        .store(id.simple().to_string(), stores[1].options())
        .open()
        .await
        .unwrap();
    let first = stores[0].room.identifier();
    assert_eq!(fleet.room(id).unwrap().identifier(), first);
    let text = id.to_string();
    assert_eq!(fleet.room(&text).unwrap().identifier(), first);
    let text = text.to_uppercase();
    assert_eq!(fleet.room(text).unwrap().identifier(), first);
    // A text that merely looks like one is a key of its own.
    let text = id.simple().to_string();
    let second = stores[1].room.identifier();
    assert_eq!(fleet.room(text).unwrap().identifier(), second);
}

/// Shows OBX-121, IBX-123.
async fn a_store_is_opened_once(fixture: Fixture) {
    let (name, options) = marked(&fixture).await;
    let fleet = Fleet::builder().store("a", options).open().await.unwrap();
    match fixture.backend {
        // Another instance would be another database in memory.
        Backend::Sqlite => {
            fleet.room("a").unwrap().deploy().await.unwrap();
            let outbox = fleet.outbox("a").unwrap();
            outbox.enqueue(&Message::new("t", "")).await.unwrap();
            assert_eq!(fleet.outbox("a").unwrap().counts().await.unwrap().ready, 1);
        }
        Backend::Postgres | Backend::MySql => {
            for _ in 0..10 {
                fleet.outbox("a").unwrap().counts().await.unwrap();
                fleet.inbox("a").unwrap().counts().await.unwrap();
            }
            // One that was used for the deployment may be seen for a moment longer.
            let one = || async { (connections(&fixture, &name).await == 1).then_some(()) };
            eventually(one).await;
        }
        Backend::SqlServer => {
            for _ in 0..10 {
                fleet.outbox("a").unwrap().counts().await.unwrap();
                fleet.inbox("a").unwrap().counts().await.unwrap();
            }
        }
    }
}

/// A store whose connections can be told from others: in memory on SQLite, by the application's name on
/// PostgreSQL, by a database of its own on MySQL. And what they are told by.
pub(crate) async fn marked(fixture: &Fixture) -> (String, Options) {
    let name = format!("fleet-{}", uuid::Uuid::now_v7().simple());
    match fixture.backend {
        Backend::Sqlite => (name, Options::new("sqlite::memory:")),
        Backend::Postgres => {
            let url = format!("{}?application_name={name}", fixture.url);
            let schema = fixture.schema.as_deref().unwrap();
            (name, Options::new(url).schema(schema))
        }
        Backend::MySql => {
            let url = testkit::mysql::fresh_database(&fixture.url).await;
            let (_, database) = url.rsplit_once('/').unwrap();
            (database.to_owned(), Options::new(&url).deploy(true))
        }
        Backend::SqlServer => (name, fixture.options()),
    }
}

/// How many connections the server has that are marked so.
pub(crate) async fn connections(fixture: &Fixture, mark: &str) -> i64 {
    let (table, column) = match fixture.backend {
        Backend::MySql => ("information_schema.processlist", "db"),
        _ => ("pg_stat_activity", "application_name"),
    };
    let count = format!("SELECT count(*) FROM {table} WHERE {column} = '{mark}'");
    fixture.number(&count).await
}

/// A key that is there already is refused, and named.
async fn a_key_is_used_once(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let id = uuid::Uuid::now_v7();
    let error = Fleet::builder()
        .store(id, stores[0].options())
        .store(id.to_string().to_uppercase(), stores[1].options())
        .open()
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists { what: "key" });
    assert!(error.to_string().contains(&id.to_string()), "{error}");
}

/// Two keys for the same tables are refused, with both named: each would work off the other's messages, and
/// logs could not tell them apart.
///
/// Shows OBX-070, IBX-089.
async fn a_store_has_one_key(fixture: Fixture) {
    let error = Fleet::builder()
        .store("one", fixture.options())
        .store("two", fixture.options().worker("other"))
        .open()
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists { what: "store" });
    assert!(error.to_string().contains("`one` and `two`"), "{error}");
    let other = fixture.options().schema("other");
    let fleet = Fleet::builder()
        .store("one", fixture.options())
        .store("two", other);
    fleet.open().await.unwrap();
}

async fn a_fleet_without_stores_and_discovery_is_refused(_: Fixture) {
    let error = Fleet::builder().open().await.err().unwrap();
    assert_eq!(error.param(), Some("stores"));
}

async fn settings_that_are_wrong_are_refused(fixture: Fixture) {
    let one = || Fleet::builder().store("a", fixture.options());
    let wrong = [
        (one().every(Duration::ZERO), "every"),
        (one().connections(3), "connections"),
        (one().connections(10_001), "connections"),
        (one().at_once(0), "at_once"),
        (one().patience(Duration::ZERO), "patience"),
        (one().store("", fixture.options().schema("other")), "key"),
        (one().store("b", fixture.options().schema("1")), "schema"),
        (one().store("b", Options::new("mysql:x")), "url"),
        (
            one().store("b", Options::new("postgres://u:p@h:x/d")),
            "url",
        ),
    ];
    for (builder, param) in wrong {
        let error = builder.open().await.err().unwrap();
        assert_eq!(error.param(), Some(param), "{error}");
    }
    let fleet = one().open().await.unwrap();
    let handled = |_: Delivery| async {};
    let dispatcher = || fleet.dispatcher().on("t", handled);
    let error = dispatcher().concurrency(0).start().err().unwrap();
    assert_eq!(error.param(), Some("concurrency"));
    let error = dispatcher().batch(0).drain().await.err().unwrap();
    assert_eq!(error.param(), Some("batch"));
    let error = fleet.dispatcher().run_once().await.err().unwrap();
    assert_eq!(error.param(), Some("handlers"));
}

/// No poll would find it: the enqueue wakes the dispatcher.
async fn a_message_enqueued_in_this_process_is_handled_at_once(fixture: Fixture) {
    let stores = stores(&fixture, 3).await;
    let fleet = fleet_of(&stores).open().await.unwrap();
    let running = fleet
        .dispatcher()
        .poll_interval(Duration::from_secs(3600))
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    for (round, key) in ["a", "b", "c", "b", "a"].into_iter().enumerate() {
        let outbox = fleet.outbox(key).unwrap();
        outbox.enqueue(&Message::new("t", "")).await.unwrap();
        let done = u64::try_from(round).unwrap() + 1;
        eventually(|| async { (running.report().done == done).then_some(()) }).await;
    }
    assert_eq!(running.stop().await.done, 5);
}

/// No poll would find it, and the other room stands for another process.
async fn messages_of_other_processes_are_heard_of_when_asked_to(fixture: Fixture) {
    let stores = stores(&fixture, 3).await;
    let fleet = fleet_of(&stores).at_once(2).open().await.unwrap();
    let running = fleet
        .dispatcher()
        .poll_interval(Duration::from_secs(3600))
        .listen(true)
        .on("order.created", |_: Delivery| async {})
        .start()
        .unwrap();
    for (round, store) in stores.iter().chain(&stores).enumerate() {
        store.enqueue(1).await;
        let done = u64::try_from(round).unwrap() + 1;
        eventually(|| async { (running.report().done == done).then_some(()) }).await;
    }
    running.stop().await;
}

/// A join counts in the database that it is in, and its continuation goes there too, whatever other stores
/// the fleet has.
///
/// Shows C-33.
async fn a_join_is_worked_in_the_store_that_it_is_in(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let fleet = fleet_of(&stores).open().await.unwrap();
    let room = fleet.room("b").unwrap();
    let join = room.joins().start(&NewJoin::new(2)).await.unwrap();
    let wait = JoinWait::new(join, "continued", "");
    room.joins().enqueue_wait(&wait).await.unwrap();
    for step in ["1", "2"] {
        let step = Message::new("step", step).join(join);
        room.outbox().enqueue(&step).await.unwrap();
    }
    let continued: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&continued);
    let running = fleet
        .dispatcher()
        .on("step", |_: Delivery| async {})
        .on("continued", move |delivery: Delivery| {
            let key = delivery.room().key().unwrap_or_default().to_owned();
            seen.lock().unwrap().push(key);
            async {}
        })
        .start()
        .unwrap();
    eventually(|| async { (!continued.lock().unwrap().is_empty()).then_some(()) }).await;
    running.stop().await;
    assert_eq!(*continued.lock().unwrap(), ["b"]);
    let found = room.joins().get(join).await.unwrap().unwrap();
    assert_eq!(found.status, JoinStatus::Completed);
    let elsewhere = fleet.room("a").unwrap();
    assert!(elsewhere.joins().get(join).await.unwrap().is_none());
    assert_eq!(elsewhere.outbox().counts().await.unwrap().done, 0);
}

/// Shows OBX-071, OBX-107, IBX-090, IBX-113.
async fn every_log_line_names_the_store(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let identifiers: Vec<String> = stores
        .iter()
        .map(|store| store.room.identifier().to_owned())
        .collect();
    let builder = fleet_of(&stores);
    let ((), lines) = logged(async || {
        let fleet = builder.open().await.unwrap();
        for key in ["a", "b"] {
            let room = fleet.room(key).unwrap();
            let message = Message::new("t", "");
            room.outbox().enqueue(&message).await.unwrap();
            let inbound = Inbound::new("s", "1", "t", "");
            room.inbox().enqueue(&inbound).await.unwrap();
        }
        let running = fleet
            .dispatcher()
            .on("t", |_: Delivery| async {
                Err::<(), _>(postroom::HandlerError::business("broken"))
            })
            .on_inbound("t", |_: Delivery| async {})
            .start()
            .unwrap();
        eventually(|| async {
            let report = running.report();
            (report.done == 2 && report.retried == 2).then_some(())
        })
        .await;
        running.stop().await;
    })
    .await;
    let of = |store: &str, message: &str, level: Level| {
        let lines = lines.iter().filter(|line| line.field("store") == store);
        let lines = lines.filter(|line| line.message == message && line.level == level);
        lines.count()
    };
    for identifier in &identifiers {
        assert!(of(identifier, "claimed", Level::DEBUG) >= 2, "{lines:?}");
        assert_eq!(of(identifier, "handling", Level::INFO), 2, "{lines:?}");
        assert_eq!(
            of(identifier, "handler failed", Level::ERROR),
            1,
            "{lines:?}"
        );
    }
    for line in &lines {
        let store = line.field("store");
        assert!(identifiers.iter().any(|one| one == store), "{line:?}");
    }
}

async fn stopping_hands_back_what_was_not_begun(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let fleet = fleet_of(&stores).open().await.unwrap();
    for key in ["a", "b"] {
        let outbox = fleet.outbox(key).unwrap();
        outbox.enqueue(&Message::new("t", "")).await.unwrap();
    }
    let running = fleet
        .dispatcher()
        .shutdown_deadline(Duration::from_millis(50))
        .on("t", |_: Delivery| std::future::pending::<()>())
        .start()
        .unwrap();
    eventually(|| async { (running.running() == 2).then_some(()) }).await;
    let report = running.stop().await;
    assert_eq!((report.released, report.done), (2, 0));
    for store in &stores {
        let counts = store.room.outbox().counts().await.unwrap();
        assert_eq!((counts.ready, counts.in_flight), (1, 0));
    }
}
