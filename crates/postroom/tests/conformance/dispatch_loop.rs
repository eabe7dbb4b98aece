//! The loop: claim, route by exact topic, handle, settle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postroom::{Delivery, Inbound, Message, Tx, done};
use testkit::{Fixture, eventually};

testkit::mount!(
    a_message_reaches_the_handler_of_its_topic,
    a_running_dispatcher_is_woken_by_an_enqueue,
    a_transaction_commits_with_the_ack,
);

/// Shows OBX-054, IBX-073.
async fn a_message_reaches_the_handler_of_its_topic(fixture: Fixture) {
    let room = &fixture.room;
    room.outbox()
        .enqueue(&Message::new("a", "1"))
        .await
        .unwrap();
    room.inbox()
        .enqueue(&Inbound::new("s", "1", "a", "2"))
        .await
        .unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let (out, inb) = (Arc::clone(&seen), Arc::clone(&seen));
    let report = room
        .dispatcher()
        .on("a", move |delivery: Delivery| {
            out.fetch_add(delivery.payload().parse().unwrap(), Ordering::SeqCst);
            async {}
        })
        .on_inbound("a", move |delivery: Delivery| {
            inb.fetch_add(delivery.payload().parse().unwrap(), Ordering::SeqCst);
            async {}
        })
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 2);
    assert_eq!(seen.load(Ordering::SeqCst), 3);
    assert_eq!(room.outbox().counts().await.unwrap().done, 1);
    assert_eq!(room.inbox().counts().await.unwrap().done, 1);
}

/// Shows OBX-054.
async fn a_running_dispatcher_is_woken_by_an_enqueue(fixture: Fixture) {
    let room = &fixture.room;
    let running = room
        .dispatcher()
        .poll_interval(Duration::from_secs(3600))
        .on("a", |_: Delivery| async {})
        .start()
        .unwrap();
    let other = fixture.again().await;
    for round in 0..20 {
        other
            .outbox()
            .enqueue(&Message::new("a", "1"))
            .await
            .unwrap();
        eventually(|| async { (running.report().done == round + 1).then_some(()) }).await;
    }
    let report = running.stop().await;
    assert_eq!(report.done, 20);
}

async fn a_transaction_commits_with_the_ack(fixture: Fixture) {
    let room = &fixture.room;
    fixture.sql("CREATE TABLE {ledger} (message TEXT)").await;
    room.outbox()
        .enqueue(&Message::new("a", "1"))
        .await
        .unwrap();
    let insert = fixture.fill("INSERT INTO {ledger} (message) VALUES ('x')");
    let report = room
        .dispatcher()
        .on("a", move |_: Delivery, mut tx: Tx| {
            let insert = insert.clone();
            async move {
                tx.execute(&insert, vec![]).await?;
                done()
            }
        })
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 1);
    assert_eq!(fixture.number("SELECT count(*) FROM {ledger}").await, 1);
}
