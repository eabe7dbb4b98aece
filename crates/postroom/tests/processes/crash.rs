//! Workers that die in the middle of a handler.

use testkit::{Fixture, eventually};

use crate::worker::{MAX_DELIVERIES, Scene};

testkit::mount!(
    a_worker_killed_in_the_middle_of_a_handler_is_replaced,
    a_message_that_kills_its_workers_is_given_up_and_no_other,
);

/// Shows OBX-058, OBX-049, C-01, C-21, HDT-23.
async fn a_worker_killed_in_the_middle_of_a_handler_is_replaced(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    scene.enqueue("stall after writing", 1).await;
    scene.enqueue("plain", 50).await;
    let killed = scene.start(0);
    scene.wait_for("began-0").await;
    killed.signal("-KILL");
    killed.end().await;
    let _other = scene.start(1);
    scene.wait_until_done(51).await;
    scene.check_ledger(51).await;
    let twice = "SELECT count(*) FROM {outbox_done} WHERE payload LIKE 'stall%' \
                 AND delivery_count = 2 AND attempt_count = 0 AND processed_by = 'worker-1'";
    assert_eq!(
        scene.fixture.number(twice).await,
        1,
        "delivered twice, done by the other"
    );
}

/// Shows C-22.
async fn a_message_that_kills_its_workers_is_given_up_and_no_other(fixture: Fixture) {
    const GOOD: usize = 2_000;
    let scene = Scene::new(fixture).await;
    scene.enqueue("plain", GOOD / 2).await;
    scene.enqueue("abort", 1).await;
    scene.enqueue("plain", GOOD / 2).await;
    // A supervisor that starts a worker again whenever it dies.
    let mut crashes = 0;
    let mut worker = scene.start(0);
    eventually(|| {
        if worker.has_ended() {
            crashes += 1;
            worker = scene.start(0);
        }
        async {
            let counts = scene.fixture.room.outbox().counts().await.unwrap();
            (counts.ready + counts.in_flight == 0).then_some(())
        }
    })
    .await;
    assert_eq!(crashes, MAX_DELIVERIES, "one for each delivery");
    scene.check_ledger(i64::try_from(GOOD).unwrap()).await;
    let dead = "SELECT count(*) FROM {outbox_dead} WHERE payload = 'abort' \
                AND last_error LIKE '[BUSINESS]%Delivered 3 times without an outcome%'";
    assert_eq!(scene.fixture.number(dead).await, 1);
}
