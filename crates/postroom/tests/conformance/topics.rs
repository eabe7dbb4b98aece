//! Numbers per topic, and counters whose differences make rates.

use std::time::Duration;

use postroom::{Inbound, InboxMessageId, Message, OwnerToken, Totals};
use testkit::{Fixture, LEASE, eventually};

const HOUR: Duration = Duration::from_secs(3600);

/// An extension: no requirement asks for it.
async fn every_topic_tells_where_its_messages_stand(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    assert!(outbox.topics().await.unwrap().is_empty());
    for _ in 0..4 {
        outbox.enqueue(&Message::new("orders", "")).await.unwrap();
    }
    let (owner, ids) = fixture.claim(4).await;
    outbox.ack(owner, &ids[..1]).await.unwrap();
    outbox.fail(owner, &ids[1..2], "no").await.unwrap();
    outbox.release(owner, &ids[2..3]).await.unwrap();
    outbox
        .enqueue(&Message::new("later", "").due_at(std::time::SystemTime::now() + HOUR))
        .await
        .unwrap();
    fixture.age("outbox", "next_attempt_at", HOUR / 2).await;

    let topics = outbox.topics().await.unwrap();
    assert_eq!(topics.len(), 2);
    let (later, orders) = (&topics[0], &topics[1]);
    assert_eq!(
        (later.topic.as_str(), later.waiting, later.ready),
        ("later", 1, 0)
    );
    assert_eq!(later.oldest_ready, None);
    assert_eq!(orders.topic, "orders");
    assert_eq!(
        (orders.ready, orders.in_flight, orders.waiting, orders.dead),
        (1, 1, 0, 1)
    );
    assert!(orders.oldest_ready.unwrap() >= HOUR / 2);
    assert!(orders.oldest_ready.unwrap() < HOUR);
}

/// An extension: no requirement asks for it.
async fn a_topic_with_only_dead_messages_is_named(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("s", "1", "hook", ""))
        .await
        .unwrap();
    inbox
        .mark_dead(&InboxMessageId::new("s", "1"))
        .await
        .unwrap();
    // This one was never enqueued: it has no topic.
    let unknown = InboxMessageId::new("s", "2");
    inbox.already_processed(&unknown).await.unwrap();
    inbox.mark_dead(&unknown).await.unwrap();

    let topics = inbox.topics().await.unwrap();
    assert_eq!(topics.len(), 1);
    assert_eq!((topics[0].topic.as_str(), topics[0].dead), ("hook", 1));
    assert!(fixture.room.outbox().topics().await.unwrap().is_empty());
}

/// An extension: no requirement asks for it.
async fn totals_grow_with_what_happens(fixture: Fixture) {
    let room = &fixture.room;
    assert_eq!(room.totals().await.unwrap(), Totals::default());
    let (outbox, inbox) = (room.outbox(), room.inbox());
    fixture.enqueue(5).await;
    let (owner, ids) = fixture.claim(4).await;
    outbox.ack(owner, &ids[..3]).await.unwrap();
    outbox.fail(owner, &ids[3..], "no").await.unwrap();
    for id in ["1", "2", "1"] {
        inbox
            .enqueue(&Inbound::new("s", id, "hook", ""))
            .await
            .unwrap();
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, 1).await.unwrap();
    inbox
        .ack(owner, &[claimed[0].work_item_id.unwrap()])
        .await
        .unwrap();

    // PostgreSQL tells its statistics a little later.
    let expected = (5, 4, 1, 2);
    eventually(async || {
        let totals = room.totals().await.unwrap();
        let found = (totals.enqueued, totals.done, totals.died, totals.received);
        (found == expected).then_some(())
    })
    .await;
}

testkit::mount!(
    every_topic_tells_where_its_messages_stand,
    a_topic_with_only_dead_messages_is_named,
    totals_grow_with_what_happens,
);
