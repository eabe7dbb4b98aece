//! Eight processes deploy an empty database at once.

use testkit::{Backend, Fixture};

use crate::process::{Place, run_children};

const PROCESSES: usize = 8;

/// Shows OBX-108, OBX-110, IBX-114, IBX-116, JOIN-091.
async fn eight_processes_deploy_one_schema(backend: Backend) {
    let fixture = Fixture::empty(backend).await;
    let folder = tempfile::tempdir().unwrap();
    run_children(&fixture, "deploy", PROCESSES, folder.path()).await;

    fixture.room.verify().await.unwrap();
    let versions = fixture.number("SELECT count(*) FROM {outbox_schema}").await;
    let distinct = fixture
        .number("SELECT count(DISTINCT version) FROM {outbox_schema}")
        .await;
    assert_eq!(versions, distinct);
    let messages = fixture.room.outbox().counts().await.unwrap().ready;
    assert_eq!(messages, PROCESSES as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    eight_processes_deploy_one_schema(Backend::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    eight_processes_deploy_one_schema(Backend::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    eight_processes_deploy_one_schema(Backend::MySql).await;
}

pub(crate) async fn deploy(place: Place) {
    // Connecting is a part of it: on SQLite it creates the file and turns its log on.
    place.start_together().await;
    let room = place.connect().await;
    room.deploy().await.unwrap();
    room.verify().await.unwrap();
    room.outbox()
        .enqueue(&postroom::Message::new("deployed", ""))
        .await
        .unwrap();
    room.deploy().await.unwrap();
}
