//! Stores that are down or slow, and the others, which must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use postroom::fleet::{Asked, Candidate, DrainFirst, RoundRobin, Strategy};
use postroom::{Delivery, Fleet, Message, Options, Running};
use testkit::{Backend, Fixture, eventually};

use crate::fleet::{fleet_of, stores};

testkit::mount!(
    sqlite:
    a_hundred_stores_of_which_one_is_down_are_worked,
    a_slow_store_does_not_hold_up_a_stop,
    a_slow_store_does_not_hold_up_the_others,
    a_store_that_comes_back_is_worked,
    a_store_that_is_down_does_not_hold_up_the_others,
    run_once_and_drain_leave_out_what_is_down;
    postgres:
    a_slow_store_does_not_hold_up_a_stop,
    a_slow_store_does_not_hold_up_the_others,
    a_store_that_is_down_does_not_hold_up_the_others,
    run_once_and_drain_leave_out_what_is_down;
    mysql:
    a_slow_store_does_not_hold_up_a_stop,
    a_slow_store_does_not_hold_up_the_others,
    a_store_that_is_down_does_not_hold_up_the_others,
    run_once_and_drain_leave_out_what_is_down,
);

/// Others never wait for longer: far less than any timeout of a database.
const SOON: Duration = Duration::from_secs(8);

/// A store that cannot be reached, of the same kind.
fn down(fixture: &Fixture) -> Options {
    match fixture.backend {
        Backend::Sqlite => Options::new(format!("{}.folder/missing.db", fixture.url)),
        Backend::Postgres => Options::new("postgres://nobody@127.0.0.1:1/nothing"),
        Backend::MySql => Options::new("mysql://nobody@127.0.0.1:1/nothing"),
        Backend::SqlServer => Options::new("sqlserver://nobody:secret@127.0.0.1:1/nothing"),
    }
}

/// Enqueues and waits until it was handled, again and again.
async fn works(fleet: &Fleet, running: &Running, key: &str, times: u64) {
    for _ in 0..times {
        let done = running.report().done;
        let outbox = fleet.outbox(key).unwrap();
        outbox.enqueue(&Message::new("t", "")).await.unwrap();
        eventually(|| async { (running.report().done > done).then_some(()) }).await;
    }
}

async fn a_store_that_is_down_does_not_hold_up_the_others(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let fleet = Fleet::builder()
        .store("down", down(&fixture))
        .store("a", stores[0].options())
        .store("b", stores[1].options())
        .open()
        .await
        .unwrap();
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    let began = Instant::now();
    for _ in 0..10 {
        works(&fleet, &running, "a", 1).await;
        works(&fleet, &running, "b", 1).await;
    }
    assert!(began.elapsed() < SOON);
    assert_eq!(running.stop().await.done, 20);
}

/// Its folder is not there at first.
async fn a_store_that_comes_back_is_worked(fixture: Fixture) {
    let fleet = fleet_of(&stores(&fixture, 1).await)
        .store("down", down(&fixture).deploy(true))
        .open()
        .await
        .unwrap();
    let running = fleet
        .dispatcher()
        .error_delay(Duration::from_millis(200))
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    works(&fleet, &running, "a", 3).await;
    assert!(fleet.room("down").is_err());
    let folder = fixture.url.strip_prefix("sqlite:").unwrap();
    std::fs::create_dir(format!("{folder}.folder")).unwrap();
    let enqueued = eventually(|| async {
        let outbox = fleet.outbox("down").ok()?;
        outbox.enqueue(&Message::new("t", "")).await.ok()
    });
    enqueued.await;
    eventually(|| async { (running.report().done == 4).then_some(()) }).await;
    running.stop().await;
}

/// Holds a lock that claims of a store wait for, until it is dropped.
enum Lock {
    Sqlite(rusqlite::Connection),
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
    SqlServer(Box<testkit::sqlserver::Client>),
}

impl Lock {
    async fn hold(store: &Fixture) -> Self {
        match store.backend {
            Backend::Sqlite => {
                let connection = store.sqlite();
                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                Self::Sqlite(connection)
            }
            Backend::Postgres => {
                let client = store.postgres().await;
                let lock = store.fill("BEGIN; LOCK TABLE {outbox} IN ACCESS EXCLUSIVE MODE");
                client.batch_execute(&lock).await.unwrap();
                Self::Postgres(client)
            }
            Backend::MySql => {
                let mut connection = store.mysql().await;
                let lock = store.fill("LOCK TABLES {outbox} WRITE");
                connection.query_drop(lock).await.unwrap();
                Self::MySql(Box::new(connection))
            }
            Backend::SqlServer => Self::SqlServer(Box::new(store.sqlserver_holding_outbox().await)),
        }
    }

    async fn release(self) {
        match self {
            Self::Sqlite(connection) => connection.execute_batch("ROLLBACK").unwrap(),
            Self::Postgres(client) => client.batch_execute("ROLLBACK").await.unwrap(),
            Self::MySql(mut connection) => connection.query_drop("UNLOCK TABLES").await.unwrap(),
            Self::SqlServer(mut client) => client.rollback_transaction().await.unwrap(),
        }
    }
}

async fn a_slow_store_does_not_hold_up_the_others(fixture: Fixture) {
    for drain_first in [false, true] {
        let stores = stores(&fixture, 3).await;
        stores[1].enqueue(1).await;
        let lock = Lock::hold(&stores[1]).await;
        let builder = fleet_of(&stores);
        let builder = if drain_first {
            builder.strategy(DrainFirst)
        } else {
            builder.strategy(RoundRobin)
        };
        let fleet = builder.open().await.unwrap();
        let running = fleet
            .dispatcher()
            .on("t", |_: Delivery| async {})
            .on("order.created", |_: Delivery| async {})
            .start()
            .unwrap();
        let began = Instant::now();
        for _ in 0..10 {
            works(&fleet, &running, "a", 1).await;
            works(&fleet, &running, "c", 1).await;
        }
        assert!(began.elapsed() < SOON);
        assert_eq!(running.report().done, 20);
        lock.release().await;
        eventually(|| async { (running.report().done == 21).then_some(()) }).await;
        running.stop().await;
    }
}

/// Asks in turn, and counts how often the store `b` is.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>);

impl Strategy for Counting {
    fn next(&mut self, stores: &[Candidate<'_>], last: Option<&Asked>) -> Option<usize> {
        let next = RoundRobin.next(stores, last)?;
        if stores[next].key().as_str() == "b" {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        Some(next)
    }
}

async fn a_slow_store_does_not_hold_up_a_stop(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let lock = Lock::hold(&stores[1]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let strategy = Counting(Arc::clone(&asked));
    let fleet = fleet_of(&stores).strategy(strategy).open().await.unwrap();
    let running = fleet
        .dispatcher()
        .shutdown_deadline(Duration::from_millis(100))
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    eventually(|| async { (asked.load(Ordering::SeqCst) > 0).then_some(()) }).await;
    works(&fleet, &running, "a", 1).await;
    let began = Instant::now();
    assert_eq!(running.stop().await.done, 1);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    lock.release().await;
}

async fn run_once_and_drain_leave_out_what_is_down(fixture: Fixture) {
    let stores = stores(&fixture, 2).await;
    let fleet = fleet_of(&stores)
        .store("down", down(&fixture))
        .open()
        .await
        .unwrap();
    for store in &stores {
        store.enqueue(5).await;
    }
    let handled = |_: Delivery| async {};
    let dispatcher = |fleet: &Fleet| fleet.dispatcher().batch(2).on("order.created", handled);
    assert_eq!(dispatcher(&fleet).run_once().await.unwrap().done, 4);
    assert_eq!(dispatcher(&fleet).drain().await.unwrap().done, 6);

    let fleet = Fleet::builder().store("down", down(&fixture));
    let fleet = fleet.open().await.unwrap();
    assert!(dispatcher(&fleet).run_once().await.is_err());
    assert!(dispatcher(&fleet).drain().await.is_err());
}

async fn a_hundred_stores_of_which_one_is_down_are_worked(fixture: Fixture) {
    let folder = fixture.url.strip_suffix("test.db").unwrap();
    let mut builder = Fleet::builder().store("down", down(&fixture).deploy(true));
    for store in 0..99 {
        let options = Options::new(format!("{folder}{store}.db"))
            .synchronous(postroom::Synchronous::Normal)
            .deploy(true);
        builder = builder.store(format!("tenant-{store}"), options);
    }
    let fleet = builder.open().await.unwrap();
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .start()
        .unwrap();
    let began = Instant::now();
    for store in 0..99 {
        let outbox = fleet.outbox(format!("tenant-{store}")).unwrap();
        let messages = [Message::new("t", ""), Message::new("t", "")];
        outbox.enqueue_many(&messages).await.unwrap();
    }
    eventually(|| async { (running.report().done == 198).then_some(()) }).await;
    works(&fleet, &running, "tenant-50", 5).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(running.stop().await.done, 203);
}
