//! Workers in several processes on one outbox, with short leases, stalls, handbacks and a reaper.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use postroom::{Abandon, Message, OutboxMessage, OwnerToken, Postroom};
use testkit::Fixture;

use crate::history::{self, Event, How, Recorder, Summary};
use crate::process::{Dice, Place, run_children};

const PROCESSES: usize = 2;
const TASKS: usize = 8;
const MESSAGES: usize = 20;
const TOTAL: u64 = (PROCESSES * TASKS * MESSAGES) as u64;

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(60);

/// Shows OBX-098, OBX-100, OBX-101, OBX-017, OBX-019, OBX-030, OBX-032, C-18, C-21.
async fn no_message_has_two_owners_and_each_is_acked_once(fixture: Fixture) {
    let folder = tempfile::tempdir().unwrap();
    run_children(&fixture, "work", PROCESSES, folder.path()).await;

    let history = history::read(folder.path());
    assert_eq!(history.len() as u64, TOTAL, "messages in the history");
    let mut summary = Summary::default();
    for (message, events) in &history {
        history::check(*message, events, &mut summary);
    }
    assert!(
        summary.takeovers > 0,
        "no lease was ever taken over: {summary:?}"
    );
    assert!(
        summary.refused > 0,
        "no late settlement was ever refused: {summary:?}"
    );

    let counts = fixture.room.outbox().counts().await.unwrap();
    assert_eq!(
        (counts.ready, counts.in_flight, counts.done, counts.dead),
        (0, 0, TOTAL, 0)
    );
}

testkit::mount!(no_message_has_two_owners_and_each_is_acked_once);

/// One process.
pub(crate) async fn work(place: Place) {
    let room = place.connect().await;
    let recorder = Arc::new(Recorder::new(&place.folder, place.number));
    place.start_together().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let dice = Dice::new(place.number * TASKS + task);
        tasks.spawn(worker(room.clone(), Arc::clone(&recorder), dice));
    }
    tasks.spawn(reaper(room));
    tasks.join_all().await;
}

async fn worker(room: Postroom, recorder: Arc<Recorder>, mut dice: Dice) {
    let outbox = room.outbox();
    let mut left = MESSAGES;
    loop {
        if left > 0 {
            left -= 1;
            let receipt = outbox
                .enqueue(&Message::new("work", "payload"))
                .await
                .unwrap();
            recorder.record(&Event::Enqueued {
                message: receipt.work_item_id.as_uuid(),
            });
        }
        let owner = OwnerToken::new();
        let lease = if dice.below(3) == 0 { SHORT } else { LONG };
        let batch = 1 + usize::try_from(dice.below(4)).unwrap();
        let claimed = outbox.claim(owner, lease, batch).await.unwrap();
        for message in &claimed {
            assert_eq!(message.progress.owner_token, Some(owner));
            let until = message.progress.locked_until.unwrap();
            recorder.claimed(message.id.as_uuid(), owner.as_uuid(), until, lease);
        }
        for message in &claimed {
            handle(&room, &recorder, &mut dice, owner, lease, message).await;
        }
        if claimed.is_empty() && left == 0 {
            if outbox.counts().await.unwrap().done == TOTAL {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn handle(
    room: &Postroom,
    recorder: &Recorder,
    dice: &mut Dice,
    owner: OwnerToken,
    lease: Duration,
    message: &OutboxMessage,
) {
    let outbox = room.outbox();
    let ids = [message.id];
    if lease == SHORT && dice.below(3) == 0 {
        // A stalled worker: it comes back when its lease is long over.
        let over = message.progress.locked_until.unwrap() + Duration::from_millis(50);
        tokio::time::sleep(over.duration_since(SystemTime::now()).unwrap_or_default()).await;
    } else if dice.below(5) == 0 && !outbox.renew(owner, &ids, LONG).await.unwrap().is_empty() {
        let renewed = outbox.get(message.id).await.unwrap().unwrap();
        assert_eq!(renewed.progress.owner_token, Some(owner));
        let until = history::micros(renewed.progress.locked_until.unwrap());
        recorder.record(&Event::Renewed {
            message: message.id.as_uuid(),
            owner: owner.as_uuid(),
            until,
        });
    }
    let (how, changed) = if dice.below(5) == 0 {
        let later = Abandon::after(Duration::from_millis(dice.below(10)));
        (
            How::Abandoned,
            outbox.abandon(owner, &ids, later).await.unwrap(),
        )
    } else {
        (How::Acked, outbox.ack(owner, &ids).await.unwrap())
    };
    assert!(changed.is_empty() || changed == ids);
    recorder.record(&Event::Settled {
        message: message.id.as_uuid(),
        owner: owner.as_uuid(),
        how,
        changed: !changed.is_empty(),
    });
}

async fn reaper(room: Postroom) {
    let outbox = room.outbox();
    while outbox.counts().await.unwrap().done < TOTAL {
        outbox.reap().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
