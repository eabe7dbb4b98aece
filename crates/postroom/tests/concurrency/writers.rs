//! Several processes write one SQLite file as fast as they can.

use std::time::Duration;

use postroom::{Message, OwnerToken, Postroom};
use testkit::{Backend, Fixture};

use crate::process::{Place, run_children};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const MESSAGES: usize = 40;
const TOTAL: usize = PROCESSES * TASKS * MESSAGES;

/// Shows OBX-100.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_share_a_file_and_all_get_their_turn() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    run_children(&fixture, "write", PROCESSES, folder.path()).await;

    let mut acked = 0;
    for number in 0..PROCESSES {
        let text = std::fs::read_to_string(folder.path().join(format!("acked-{number}"))).unwrap();
        acked += text.parse::<usize>().unwrap();
    }
    assert_eq!(acked, TOTAL, "acks over all processes");
    assert_eq!(
        fixture
            .number("SELECT count(DISTINCT payload) FROM {outbox_done}")
            .await,
        i64::try_from(TOTAL).unwrap()
    );
    assert_eq!(
        fixture.number("SELECT count(*) FROM {outbox_done}").await,
        i64::try_from(TOTAL).unwrap()
    );
    assert_eq!(fixture.number("SELECT count(*) FROM {outbox}").await, 0);
    let intact: String = fixture
        .sqlite()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(intact, "ok");
}

pub(crate) async fn write(place: Place) {
    let room = place.connect().await;
    place.start_together().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(writer(room.clone(), format!("{}.{task}", place.number)));
    }
    let acked: usize = tasks.join_all().await.into_iter().sum();
    assert!(acked > 0, "this process never got anything");
    std::fs::write(
        place.folder.join(format!("acked-{}", place.number)),
        acked.to_string(),
    )
    .unwrap();
}

async fn writer(room: Postroom, name: String) -> usize {
    let outbox = room.outbox();
    let mut acked = 0;
    for number in 0..MESSAGES {
        outbox
            .enqueue(&Message::new("write", format!("{name}.{number}")))
            .await
            .unwrap();
        acked += take(&room, 1).await;
    }
    while outbox.counts().await.unwrap().done < TOTAL as u64 {
        let taken = take(&room, 10).await;
        acked += taken;
        if taken == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    acked
}

async fn take(room: &Postroom, batch: usize) -> usize {
    let owner = OwnerToken::new();
    let claimed = room
        .outbox()
        .claim(owner, Duration::from_secs(60), batch)
        .await
        .unwrap();
    let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
    room.outbox().ack(owner, &ids).await.unwrap().len()
}
