//! Workers that are told to stop, and one that waits for a join.

use postroom::{JoinWait, MessageId, NewJoin};
use testkit::{Fixture, eventually};

use crate::worker::{Scene, leased, report};

testkit::mount!(
    sigterm_under_load_leaves_nothing_half_done,
    a_waiting_join_outlives_thirty_polls,
);

/// How many of a worker's handlers may run at once.
const HANDLERS: i64 = 32;

async fn sigterm_under_load_leaves_nothing_half_done(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    scene.enqueue("slowly", 3_000).await;
    let worker = scene.start(0);
    scene.wait_until_done(100).await;
    // More than handlers can be at work on: some wait for one.
    eventually(|| async { (leased(&scene.fixture).await > HANDLERS).then_some(()) }).await;
    worker.signal("-TERM");
    assert!(worker.end().await.success());
    let [done, released, lost] = report(&scene.file("report-0"));
    assert!(done < 3_000, "it was stopped before the end");
    assert!(released > 0, "some were claimed and not begun");
    assert_eq!(lost, 0);
    assert_eq!(leased(&scene.fixture).await, 0, "in flight");
    let spent = "SELECT count(*) FROM {outbox} WHERE attempt_count > 0 OR delivery_count > 0";
    assert_eq!(scene.fixture.number(spent).await, 0, "attempts spent");
    scene.check_ledger(i64::try_from(done).unwrap()).await;
}

/// Shows C-11, JOIN-053.
async fn a_waiting_join_outlives_thirty_polls(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    let joins = scene.fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let step = MessageId::new();
    joins.attach(join, step).await.unwrap();
    joins
        .enqueue_wait(&JoinWait::new(join, "continued", "{}"))
        .await
        .unwrap();
    let worker = scene.start(0);
    for poll in 1..=30 {
        let polled = "SELECT CAST(max(attempt_count) AS bigint) FROM {outbox}";
        eventually(|| async { (scene.fixture.number(polled).await >= poll).then_some(()) }).await;
        scene.fixture.skip_backoff().await;
    }
    joins.report_completed(join, step).await.unwrap();
    scene.wait_until_done(2).await;
    let continued = "SELECT count(*) FROM {outbox_done} WHERE topic = 'continued'";
    assert_eq!(scene.fixture.number(continued).await, 1);
    let polls = "SELECT count(*) FROM {outbox_done} WHERE topic = 'join.wait' AND attempt_count >= 30 \
                 AND attempt_count = deferral_count";
    assert_eq!(
        scene.fixture.number(polls).await,
        1,
        "no attempt was used up"
    );
    worker.signal("-TERM");
    assert!(worker.end().await.success());
}
