//! The connections that all stores of a fleet share, where they are on servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::fleet::FleetBuilder;
use postroom::{Delivery, Fleet, Message, Tx, done};
use testkit::{Backend, Fixture, eventually};

use crate::fleet::{connections, marked};

/// So many stores in schemas of their own, and the mark of all their connections.
async fn builder(fixture: &Fixture, stores: usize) -> (String, FleetBuilder) {
    let (mark, options) = marked(fixture).await;
    let mut builder = Fleet::builder();
    for store in 0..stores {
        let options = options.clone().schema(&schema(fixture, store)).deploy(true);
        builder = builder.store(format!("tenant-{store}"), options);
    }
    (mark, builder)
}

fn schema(fixture: &Fixture, store: usize) -> String {
    format!("{}_{store}", fixture.schema.as_deref().unwrap_or("tenant"))
}

/// Watches how many connections there are at most. One that is leaving may be seen for a moment longer, so
/// a number counts when it is seen twice.
struct Watch {
    most: tokio::task::JoinHandle<i64>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn start(fixture: &Fixture, mark: String) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (until, fixture) = (Arc::clone(&over), fixture.clone());
        let most = tokio::spawn(async move {
            let (mut most, mut last) = (0, 0);
            while !until.load(Ordering::SeqCst) {
                let now = connections(&fixture, &mark).await;
                most = most.max(now.min(last));
                last = now;
            }
            most
        });
        Self { most, over }
    }

    async fn most(self) -> i64 {
        self.over.store(true, Ordering::SeqCst);
        self.most.await.unwrap()
    }
}

async fn forty_stores_are_drained_with_eight_connections(fixture: Fixture) {
    let (mark, builder) = builder(&fixture, 40).await;
    let watch = Watch::start(&fixture, mark);
    let fleet = builder.connections(8).open().await.unwrap();
    for store in 0..40 {
        let outbox = fleet.outbox(format!("tenant-{store}")).unwrap();
        let messages: Vec<Message> = (0..20).map(|_| Message::new("t", "")).collect();
        outbox.enqueue_many(&messages).await.unwrap();
    }
    let running = fleet
        .dispatcher()
        .on("t", |delivery: Delivery| async move {
            // Handlers need connections too.
            delivery.room().outbox().counts().await?;
            done()
        })
        .start()
        .unwrap();
    eventually(|| async { (running.report().done == 800).then_some(()) }).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.retried, report.lost), (800, 0, 0));
    let most = watch.most().await;
    assert!((2..=8).contains(&most), "{most} connections");
}

/// A handler that holds a transaction and uses the store beside it needs two connections at once. If
/// transactions took all there are, every handler would wait for another.
async fn handlers_with_transactions_do_not_wait_for_each_other(fixture: Fixture) {
    let (mark, builder) = builder(&fixture, 12).await;
    let watch = Watch::start(&fixture, mark);
    let sleep = match fixture.backend {
        Backend::MySql => "DO SLEEP(0.02)",
        _ => "SELECT pg_sleep(0.02)",
    };
    let fleet = builder.connections(4).open().await.unwrap();
    for store in 0..12 {
        let outbox = fleet.outbox(format!("tenant-{store}")).unwrap();
        let messages: Vec<Message> = (0..4).map(|_| Message::new("t", "")).collect();
        outbox.enqueue_many(&messages).await.unwrap();
    }
    let running = fleet
        .dispatcher()
        .on("t", move |delivery: Delivery, mut tx: Tx| async move {
            tx.execute(sleep, vec![]).await?;
            let follow_up = Message::new("follow-up", "");
            delivery.room().outbox().enqueue(&follow_up).await?;
            done()
        })
        .on("follow-up", |_: Delivery| async {})
        .start()
        .unwrap();
    eventually(|| async { (running.report().done == 96).then_some(()) }).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.retried), (96, 0));
    let most = watch.most().await;
    assert!((2..=4).contains(&most), "{most} connections");
}

/// A database that hangs keeps half of the connections at most.
async fn a_hanging_store_does_not_take_all_connections(fixture: Fixture) {
    let (mark, builder) = builder(&fixture, 3).await;
    let fleet = builder.connections(4).open().await.unwrap();
    let lock = Lock::take(&fixture, &mark, &schema(&fixture, 1)).await;
    let running = fleet
        .dispatcher()
        .on("t", |_: Delivery| async {})
        .on_inbound("t", |_: Delivery| async {})
        .start()
        .unwrap();
    let hanging = fleet.outbox("tenant-1").unwrap();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let outbox = hanging.clone();
            tokio::spawn(async move { outbox.counts().await })
        })
        .collect();
    let worked = async {
        for round in 0..10 {
            for key in ["tenant-0", "tenant-2"] {
                let outbox = fleet.outbox(key).unwrap();
                outbox.enqueue(&Message::new("t", "")).await.unwrap();
            }
            let all = (round + 1) * 2;
            eventually(|| async { (running.report().done == all).then_some(()) }).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), worked)
        .await
        .unwrap();
    lock.release().await;
    for call in calls {
        call.await.unwrap().unwrap();
    }
    running.stop().await;
}

/// A connection that keeps everybody from the queues of one store.
enum Lock {
    Postgres(tokio_postgres::Client),
    MySql(mysql_async::Conn),
}

impl Lock {
    async fn take(fixture: &Fixture, database: &str, schema: &str) -> Self {
        if fixture.backend == Backend::MySql {
            let mut connection = fixture.mysql().await;
            let lock = format!(
                "LOCK TABLES {database}.{schema}_outbox WRITE, {database}.{schema}_inbox WRITE"
            );
            connection.query_drop(lock).await.unwrap();
            return Self::MySql(connection);
        }
        let client = fixture.postgres().await;
        let lock = format!(
            "BEGIN; LOCK TABLE \"{schema}\".outbox, \"{schema}\".inbox IN ACCESS EXCLUSIVE MODE"
        );
        client.batch_execute(&lock).await.unwrap();
        Self::Postgres(client)
    }

    async fn release(self) {
        match self {
            Self::Postgres(client) => client.batch_execute("ROLLBACK").await.unwrap(),
            Self::MySql(mut connection) => connection.query_drop("UNLOCK TABLES").await.unwrap(),
        }
    }
}

testkit::mount!(
    postgres: forty_stores_are_drained_with_eight_connections,
    handlers_with_transactions_do_not_wait_for_each_other,
    a_hanging_store_does_not_take_all_connections;
    mysql: forty_stores_are_drained_with_eight_connections,
    handlers_with_transactions_do_not_wait_for_each_other,
    a_hanging_store_does_not_take_all_connections,
);
