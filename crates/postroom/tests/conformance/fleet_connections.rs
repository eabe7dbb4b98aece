//! The connections that all PostgreSQL stores of a fleet share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postroom::{Delivery, Fleet, Message, Options, Tx, done};
use testkit::{Backend, Fixture, eventually};

use crate::fleet::{connections, marked};

/// So many stores in schemas of their own, all marked by one application name.
fn builder(fixture: &Fixture, stores: usize) -> (String, postroom::fleet::FleetBuilder) {
    let (name, _) = marked(fixture);
    let mut builder = Fleet::builder();
    for store in 0..stores {
        let options = Options::new(format!("{}?application_name={name}", fixture.url))
            .schema(&format!("{}_{store}", fixture.schema.as_deref().unwrap()))
            .deploy(true);
        builder = builder.store(format!("tenant-{store}"), options);
    }
    (name, builder)
}

/// Watches how many connections there are at most. One that is leaving may be seen for a moment longer, so
/// a number counts when it is seen twice.
struct Watch {
    most: tokio::task::JoinHandle<i64>,
    over: Arc<AtomicBool>,
}

impl Watch {
    fn start(fixture: &Fixture, name: String) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (until, fixture) = (Arc::clone(&over), fixture.clone());
        let most = tokio::spawn(async move {
            let (mut most, mut last) = (0, 0);
            while !until.load(Ordering::SeqCst) {
                let now = connections(&fixture, &name).await;
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
    let (name, builder) = builder(&fixture, 40);
    let watch = Watch::start(&fixture, name);
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
    let (name, builder) = builder(&fixture, 12);
    let watch = Watch::start(&fixture, name);
    let fleet = builder.connections(4).open().await.unwrap();
    for store in 0..12 {
        let outbox = fleet.outbox(format!("tenant-{store}")).unwrap();
        let messages: Vec<Message> = (0..4).map(|_| Message::new("t", "")).collect();
        outbox.enqueue_many(&messages).await.unwrap();
    }
    let running = fleet
        .dispatcher()
        .on("t", |delivery: Delivery, mut tx: Tx| async move {
            tx.execute("SELECT pg_sleep(0.02)", vec![]).await?;
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
    let (_, builder) = builder(&fixture, 3);
    let fleet = builder.connections(4).open().await.unwrap();
    let client = fixture.postgres().await;
    let lock = format!(
        "BEGIN; LOCK TABLE \"{0}_1\".outbox, \"{0}_1\".inbox IN ACCESS EXCLUSIVE MODE",
        fixture.schema.as_deref().unwrap()
    );
    client.batch_execute(&lock).await.unwrap();
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
    client.batch_execute("ROLLBACK").await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    running.stop().await;
}

mod postgres {
    use super::{Backend, Fixture};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn forty_stores_are_drained_with_eight_connections() {
        let fixture = Fixture::new(Backend::Postgres).await;
        super::forty_stores_are_drained_with_eight_connections(fixture).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn handlers_with_transactions_do_not_wait_for_each_other() {
        let fixture = Fixture::new(Backend::Postgres).await;
        super::handlers_with_transactions_do_not_wait_for_each_other(fixture).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hanging_store_does_not_take_all_connections() {
        let fixture = Fixture::new(Backend::Postgres).await;
        super::a_hanging_store_does_not_take_all_connections(fixture).await;
    }
}
