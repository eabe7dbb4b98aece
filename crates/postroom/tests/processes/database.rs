//! A database that goes away under load.

use std::time::Duration;

use postroom::{Message, Options, WorkItemId};
use testkit::server::Durability;
use testkit::{Backend, Fixture};

use crate::worker::Scene;

mod postgres {
    use testkit::postgres::Server;

    use super::*;

    /// Shows DEEP-10, DEEP-19.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restarted_database_is_worked_on_as_before() {
        let server = Server::start(Durability::On).unwrap();
        let restart = || server.crash_and_restart().unwrap();
        works_on_as_before(Backend::Postgres, server.url(), restart).await;
    }
}

mod mysql {
    use testkit::mysql::Server;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restarted_database_is_worked_on_as_before() {
        let server = Server::start(Durability::On).unwrap();
        let restart = || server.crash_and_restart().unwrap();
        works_on_as_before(Backend::MySql, server.url(), restart).await;
    }
}

async fn works_on_as_before(backend: Backend, url: &str, restart: impl Fn()) {
    let room = Options::new(url)
        .schema("restarted")
        .deploy(true)
        .connect()
        .await
        .unwrap();
    let fixture = Fixture::at(backend, room, url, Some("restarted"));
    let scene = Scene::new(fixture).await;
    let mut workers = [scene.start(0), scene.start(1)];
    let mut enqueued = 0;
    for round in 0..3 {
        for _ in 0..150 {
            enqueue(&scene).await;
            enqueued += 1;
        }
        if round < 2 {
            restart();
        }
    }
    scene.wait_until_done(enqueued).await;
    scene.check_ledger(i64::try_from(enqueued).unwrap()).await;
    assert!(
        workers.iter_mut().all(|worker| !worker.has_ended()),
        "they recover by themselves"
    );
}

/// Enqueues one message for sure: the id that was chosen tells whether it is there already.
async fn enqueue(scene: &Scene) {
    let id = WorkItemId::new();
    let message = Message::new("work", "slowly").id(id);
    let outbox = scene.fixture.room.outbox();
    loop {
        match outbox.enqueue(&message).await {
            Ok(_) => return,
            Err(error) if error.is_transient() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // A commit whose answer was lost.
            Err(error) => {
                assert!(
                    matches!(error.kind(), postroom::ErrorKind::AlreadyExists { .. }),
                    "{error}"
                );
                return;
            }
        }
        if let Ok(Some(_)) = outbox.get(id).await {
            return;
        }
    }
}
