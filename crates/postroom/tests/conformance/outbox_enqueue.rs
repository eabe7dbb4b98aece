//! Enqueueing into the outbox.

use std::time::Duration;

use postroom::{Message, OwnerToken};
use testkit::Fixture;

/// Shows OBX-001, OBX-002, OBX-014.
async fn enqueue_alone_commits_and_can_be_claimed(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    let receipt = outbox.enqueue(&Message::new("a", "b")).await.unwrap();

    let owner = OwnerToken::new();
    let claimed = fixture
        .again()
        .await
        .outbox()
        .claim(owner, Duration::from_secs(30), 10)
        .await
        .unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, receipt.work_item_id);
    let acked = outbox.ack(owner, &[claimed[0].id]).await.unwrap();
    assert_eq!(acked, [receipt.work_item_id]);
    assert!(
        outbox
            .get(receipt.work_item_id)
            .await
            .unwrap()
            .unwrap()
            .is_processed()
    );
}

testkit::mount!(enqueue_alone_commits_and_can_be_claimed);
