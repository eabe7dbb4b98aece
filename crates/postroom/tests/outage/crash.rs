//! A server of our own that crashes and comes back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postroom::{Error, Message, Options, OwnerToken, Postroom, State, WorkItemId};
use testkit::eventually;
use testkit::server::Durability;

use crate::every::{LEASE, Scene, operations};

/// No operation may take longer, whatever the server does.
const PATIENCE: Duration = Duration::from_secs(60);

/// What both kinds of servers can do.
trait Server {
    fn begin() -> Self;
    fn url(&self) -> &str;
    fn crash(&self);
    fn restart(&self);
}

macro_rules! server {
    ($database:ident) => {
        impl Server for testkit::$database::Server {
            fn begin() -> Self {
                Self::start(Durability::On).unwrap()
            }

            fn url(&self) -> &str {
                self.url()
            }

            fn crash(&self) {
                self.crash().unwrap();
            }

            fn restart(&self) {
                self.restart().unwrap();
            }
        }

        mod $database {
            use testkit::$database::Server;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn while_it_is_down_every_operation_says_so_and_afterwards_all_work() {
                super::while_it_is_down_every_operation_says_so_and_afterwards_all_work::<Server>()
                    .await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn what_was_answered_before_a_crash_is_true_after_it() {
                super::what_was_answered_before_a_crash_is_true_after_it::<Server>().await;
            }
        }
    };
}

server!(postgres);
server!(mysql);

async fn while_it_is_down_every_operation_says_so_and_afterwards_all_work<S: Server>() {
    let server = S::begin();
    let room = open(&server).await;
    let mut scenes = Vec::new();
    for operation in operations() {
        scenes.push((Scene::new(&room, operation.stage).await, operation));
    }
    server.crash();
    for (scene, operation) in &scenes {
        let error = patiently((operation.run)(scene.clone()))
            .await
            .expect_err(operation.name);
        assert!(error.is_transient(), "{}: {error}", operation.name);
    }
    let error = patiently(Options::new(server.url()).connect())
        .await
        .unwrap_err();
    assert!(error.is_transient(), "connect: {error}");

    server.restart();
    eventually(|| async { room.outbox().counts().await.ok() }).await;
    for (scene, operation) in scenes {
        patiently((operation.run)(scene))
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", operation.name));
    }
}

/// What the clients were told.
#[derive(Default)]
struct Told {
    enqueued: Mutex<HashSet<WorkItemId>>,
    acked: Mutex<HashSet<WorkItemId>>,
    errors: AtomicUsize,
    stop: AtomicBool,
}

/// Shows OBX-001, OBX-027, OBX-032.
async fn what_was_answered_before_a_crash_is_true_after_it<S: Server>() {
    let server = S::begin();
    let room = open(&server).await;
    let told = Arc::new(Told::default());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        clients.spawn(produce(room.clone(), Arc::clone(&told)));
        clients.spawn(consume(room.clone(), Arc::clone(&told)));
    }
    for _ in 0..2 {
        let before = told.acked.lock().unwrap().len();
        eventually(|| async { (told.acked.lock().unwrap().len() > before + 50).then_some(()) })
            .await;
        let errors = told.errors.load(Ordering::Relaxed);
        server.crash();
        eventually(|| async { (told.errors.load(Ordering::Relaxed) > errors + 8).then_some(()) })
            .await;
        server.restart();
    }
    let before = told.acked.lock().unwrap().len();
    eventually(|| async { (told.acked.lock().unwrap().len() > before + 50).then_some(()) }).await;
    told.stop.store(true, Ordering::Relaxed);
    clients.join_all().await;

    let outbox = room.outbox();
    let (enqueued, acked) = (
        told.enqueued.lock().unwrap().clone(),
        told.acked.lock().unwrap().clone(),
    );
    for id in &enqueued {
        let message = outbox.get(*id).await.unwrap();
        assert!(message.is_some(), "{id} was enqueued and is lost");
    }
    for id in &acked {
        let message = outbox.get(*id).await.unwrap().unwrap();
        assert_eq!(message.state, State::Done, "{id} was acked");
    }
    room.verify().await.unwrap();
}

async fn produce(room: Postroom, told: Arc<Told>) {
    while !told.stop.load(Ordering::Relaxed) {
        let id = WorkItemId::new();
        match patiently(room.outbox().enqueue(&Message::new("a", "b").id(id))).await {
            Ok(_) => drop(told.enqueued.lock().unwrap().insert(id)),
            Err(error) => pause_after(&told, &error).await,
        }
    }
}

async fn consume(room: Postroom, told: Arc<Told>) {
    let outbox = room.outbox();
    while !told.stop.load(Ordering::Relaxed) {
        let owner = OwnerToken::new();
        let claimed = match patiently(outbox.claim(owner, LEASE, 5)).await {
            Ok(claimed) => claimed,
            Err(error) => {
                pause_after(&told, &error).await;
                continue;
            }
        };
        let ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
        match patiently(outbox.ack(owner, &ids)).await {
            Ok(acked) => {
                assert_eq!(acked.len(), ids.len(), "a live lease was refused");
                told.acked.lock().unwrap().extend(acked);
            }
            Err(error) => pause_after(&told, &error).await,
        }
    }
}

async fn pause_after(told: &Told, error: &Error) {
    assert!(error.is_transient(), "{error}");
    told.errors.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work)
        .await
        .expect("it must not hang")
}

async fn open(server: &impl Server) -> Postroom {
    Options::new(server.url())
        .schema("outage")
        .connections(4)
        .deploy(true)
        .connect()
        .await
        .unwrap()
}
