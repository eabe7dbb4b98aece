//! The same inbound messages arrive in every process at once.

use std::sync::Arc;
use std::time::Duration;

use postroom::{Arrival, Inbound, InboxMessageId, OwnerToken, Postroom};
use testkit::Fixture;
use uuid::Uuid;

use crate::history::{self, Event, How, Recorder, Summary};
use crate::process::{Dice, Place, run_children};

const PROCESSES: usize = 2;
const TASKS: usize = 8;
const MESSAGES: u64 = 60;

/// Shows IBX-103, IBX-105, IBX-106, IBX-006, IBX-014.
async fn each_arrival_is_new_once_and_done_once(fixture: Fixture) {
    let folder = tempfile::tempdir().unwrap();
    run_children(&fixture, "receive", PROCESSES, folder.path()).await;

    let history = history::read(folder.path());
    assert_eq!(history.len() as u64, MESSAGES, "messages in the history");
    for (message, events) in &history {
        history::check(*message, events, &mut Summary::default());
    }
    let counts = fixture.room.inbox().counts().await.unwrap();
    assert_eq!(
        (counts.seen, counts.processing, counts.done, counts.dead),
        (0, 0, MESSAGES, 0)
    );
}

testkit::mount!(each_arrival_is_new_once_and_done_once);

pub(crate) async fn receive(place: Place) {
    let room = place.connect().await;
    let recorder = Arc::new(Recorder::new(&place.folder, place.number));
    place.start_together().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let dice = Dice::new(place.number * TASKS + task);
        tasks.spawn(receiver(room.clone(), Arc::clone(&recorder), dice));
    }
    tasks.join_all().await;
}

async fn receiver(room: Postroom, recorder: Arc<Recorder>, mut dice: Dice) {
    let inbox = room.inbox();
    let offset = dice.below(MESSAGES);
    for number in 0..MESSAGES {
        let number = (number + offset) % MESSAGES;
        let id = InboxMessageId::new("source", format!("message-{number}"));
        if dice.below(2) == 0 {
            inbox.already_processed(&id).await.unwrap();
        }
        let inbound = Inbound::new("source", id.message_id.as_str(), "work", "payload");
        if inbox.enqueue(&inbound).await.unwrap().arrival == Arrival::New {
            recorder.record(&Event::Enqueued {
                message: uuid_of(&id),
            });
        }
        if dice.below(3) == 0 {
            take_one(&room, &recorder).await;
        }
    }
    while inbox.counts().await.unwrap().processing > 0 {
        if !take_one(&room, &recorder).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn take_one(room: &Postroom, recorder: &Recorder) -> bool {
    let inbox = room.inbox();
    let owner = OwnerToken::new();
    let lease = Duration::from_secs(60);
    let claimed = inbox.claim(owner, lease, 3).await.unwrap();
    for message in &claimed {
        let name = uuid_of(&message.id);
        recorder.claimed(
            name,
            owner.as_uuid(),
            message.progress.locked_until.unwrap(),
            lease,
        );
        let changed = inbox
            .ack(owner, std::slice::from_ref(&message.id))
            .await
            .unwrap()
            == 1;
        recorder.record(&Event::Settled {
            message: name,
            owner: owner.as_uuid(),
            how: How::Acked,
            changed,
        });
    }
    !claimed.is_empty()
}

/// The history speaks of UUIDs.
fn uuid_of(id: &InboxMessageId) -> Uuid {
    let number: u128 = id
        .message_id
        .trim_start_matches("message-")
        .parse()
        .unwrap();
    Uuid::from_u128(number + 1)
}
