//! Workers that stand still for longer than their lease.

use testkit::{Fixture, eventually};

use crate::worker::{Scene, report};

testkit::mount!(
    a_frozen_worker_wakes_up_too_late_to_do_anything,
    a_handler_that_hangs_holds_up_nobody_and_is_tried_again,
    leases_that_expire_while_handlers_run_change_no_effect,
);

/// Shows OBX-059, OBX-101, C-18, C-19.
async fn a_frozen_worker_wakes_up_too_late_to_do_anything(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    scene.enqueue("stall before writing", 1).await;
    let frozen = scene.start(0);
    scene.wait_for("began-0").await;
    frozen.signal("-STOP");
    let _other = scene.start(1);
    scene.wait_until_done(1).await;
    std::fs::write(scene.file("go"), "").unwrap();
    frozen.signal("-CONT");
    scene.wait_for("late-0").await;
    let late = std::fs::read_to_string(scene.file("late-0")).unwrap();
    assert_eq!(late, "0 false", "messages acked, effect written");
    scene.check_ledger(1).await;
    let by_other = "SELECT count(*) FROM {ledger} WHERE worker = '1'";
    assert_eq!(scene.fixture.number(by_other).await, 1);
    frozen.signal("-TERM");
    assert!(frozen.end().await.success());
    let [done, _, lost] = report(&scene.file("report-0"));
    assert_eq!((done, lost), (0, 1), "done and lost");
}

/// Shows C-52.
async fn a_handler_that_hangs_holds_up_nobody_and_is_tried_again(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    scene.enqueue("hang", 1).await;
    scene.enqueue("plain", 300).await;
    let _worker = scene.start(0);
    scene.wait_for("began-0").await;
    scene.wait_until_done(300).await;
    let in_flight =
        "SELECT count(*) FROM {outbox} WHERE payload = 'hang' AND owner_token IS NOT NULL";
    assert_eq!(
        scene.fixture.number(in_flight).await,
        1,
        "it hangs, its lease is kept, and the others are done"
    );
    let retried = "SELECT count(*) FROM {outbox} WHERE payload = 'hang' AND attempt_count = 1 \
                   AND last_error LIKE '[INFRA] Retry 1: the handler took longer%'";
    eventually(|| async { (scene.fixture.number(retried).await == 1).then_some(()) }).await;
    scene.fixture.skip_backoff().await;
    scene.wait_until_done(301).await;
    scene.check_ledger(301).await;
}

/// Shows OBX-058, OBX-100, C-18.
async fn leases_that_expire_while_handlers_run_change_no_effect(fixture: Fixture) {
    let scene = Scene::new(fixture).await;
    scene.enqueue("wait for go", 200).await;
    let workers = [scene.start(0), scene.start(1)];
    // Somebody turns the clock of the leases, until what runs is claimed by others while it runs.
    let claimed_again = "SELECT count(*) FROM {outbox} WHERE delivery_count = 2";
    eventually(|| async {
        scene.fixture.expire_leases_of("delivery_count = 1").await;
        (scene.fixture.number(claimed_again).await > 0).then_some(())
    })
    .await;
    std::fs::write(scene.file("go"), "").unwrap();
    scene.wait_until_done(200).await;
    for worker in &workers {
        worker.signal("-TERM");
    }
    let [zero, one] = workers;
    assert!(zero.end().await.success() && one.end().await.success());
    let lost = report(&scene.file("report-0"))[2] + report(&scene.file("report-1"))[2];
    assert!(lost > 0, "no lease was lost");
    scene.check_ledger(200).await;
}
