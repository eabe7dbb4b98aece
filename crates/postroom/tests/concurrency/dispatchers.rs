//! Several dispatchers on one store, settling mixed batches of messages that share joins.

use std::time::Duration;

use postroom::{
    Delivery, HandlerError, JoinStatus, JoinWait, Message, NewJoin, Outcome, Running, done,
};
use testkit::{Fixture, eventually};

const JOINS: usize = 30;
const STEPS: usize = 20;

testkit::mount!(joins_are_exact_under_mixed_settling);

/// Steps of two joins each, some of them failing for good and some of them twice, wait messages that are
/// abandoned while others complete their joins: what a settling of many kinds at once could deadlock on
/// or count wrongly.
///
/// Shows JOIN-060, JOIN-061, JOIN-031, C-31, C-32, DEEP-19.
async fn joins_are_exact_under_mixed_settling(fixture: Fixture) {
    let joins = fixture.room.joins();
    let mut ids = Vec::new();
    for _ in 0..JOINS {
        let join = joins
            .start(&NewJoin::new(i32::try_from(2 * STEPS).unwrap()))
            .await
            .unwrap();
        let wait = JoinWait::new(join, "continued", join.to_string());
        let wait = wait.on_fail("failed", join.to_string());
        joins.enqueue_wait(&wait).await.unwrap();
        ids.push(join);
    }
    let messages: Vec<Message> = (0..JOINS * STEPS)
        .map(|number| {
            let (one, next) = (number % JOINS, (number + 1) % JOINS);
            let kind = match number % JOINS {
                // Only the first join, and the one before it, have steps that fail.
                0 if number == 0 => "dead",
                _ if number % 7 == 3 => "retry",
                _ => "good",
            };
            Message::new("step", kind).join(ids[one]).join(ids[next])
        })
        .collect();
    for chunk in messages.chunks(50) {
        fixture.room.outbox().enqueue_many(chunk).await.unwrap();
    }
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(start(&fixture).await);
    }
    let done = eventually(|| async {
        let counts = fixture.room.outbox().counts().await.unwrap();
        (counts.ready + counts.in_flight == 0).then_some(counts)
    })
    .await;
    for running in running {
        assert_eq!(running.stop().await.lost, 0);
    }
    // Steps, waits, and one continuation for each wait.
    let all = u64::try_from(JOINS * STEPS + 2 * JOINS).unwrap();
    assert_eq!((done.done, done.dead), (all - 1, 1));
    for (number, id) in ids.iter().enumerate() {
        let join = joins.get(*id).await.unwrap().unwrap();
        let failed = u32::from(number < 2);
        let steps = u32::try_from(2 * STEPS).unwrap();
        assert_eq!(
            (join.completed_steps, join.failed_steps),
            (steps - failed, failed),
            "join {number}"
        );
        let status = if failed > 0 {
            JoinStatus::Failed
        } else {
            JoinStatus::Completed
        };
        assert_eq!(join.status, status, "join {number}");
    }
    let continued = "SELECT count(*) FROM {outbox_done} WHERE topic = 'continued'";
    let failed = "SELECT count(*) FROM {outbox_done} WHERE topic = 'failed'";
    assert_eq!(
        fixture.number(continued).await,
        i64::try_from(JOINS - 2).unwrap()
    );
    assert_eq!(fixture.number(failed).await, 2);
}

/// A dispatcher with connections of its own.
async fn start(fixture: &Fixture) -> Running {
    fixture
        .again()
        .await
        .dispatcher()
        .on("step", |delivery: Delivery| async move {
            let handed_back = delivery.progress().attempt_count;
            match (delivery.payload(), handed_back) {
                ("dead", _) => Err(HandlerError::permanent("no use")),
                ("retry", 0) => Ok(Outcome::Retry(Some(Duration::from_millis(5)))),
                ("retry", 1) => Ok(Outcome::NotReady(Some(Duration::from_millis(5)))),
                _ => done(),
            }
        })
        .on("continued", |_: Delivery| async {})
        .on("failed", |_: Delivery| async {})
        .batch(20)
        .start()
        .unwrap()
}
