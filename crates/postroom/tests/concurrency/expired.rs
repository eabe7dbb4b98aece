//! An expired lease, and two who want it at the same moment.

use std::time::Duration;

use postroom::{Inbound, Message, OwnerToken};
use testkit::Fixture;

const LEASE: Duration = Duration::from_secs(3600);

/// Shows OBX-019, OBX-101, C-21, C-18.
async fn goes_to_one_of_two_that_claim_at_once(fixture: Fixture) {
    let others = [fixture.again().await, fixture.again().await];
    let outbox = fixture.room.outbox();
    let id = outbox
        .enqueue(&Message::new("a", "b"))
        .await
        .unwrap()
        .work_item_id;
    let mut stale = OwnerToken::new();
    assert_eq!(outbox.claim(stale, LEASE, 1).await.unwrap().len(), 1);
    for round in 0..30 {
        fixture.expire_leases().await;
        let owners = [OwnerToken::new(), OwnerToken::new()];
        let doors = [others[0].outbox(), others[1].outbox()];
        let (left, right) = tokio::join!(
            doors[0].claim(owners[0], LEASE, 1),
            doors[1].claim(owners[1], LEASE, 1)
        );
        let winners = [left.unwrap().len(), right.unwrap().len()];
        assert_eq!(winners[0] + winners[1], 1, "round {round}");
        assert!(
            outbox.ack(stale, &[id]).await.unwrap().is_empty(),
            "round {round}: a stale ack was taken"
        );
        assert!(
            outbox.fail(stale, &[id], "stale").await.unwrap().is_empty(),
            "round {round}"
        );
        assert!(
            outbox.renew(stale, &[id], LEASE).await.unwrap().is_empty(),
            "round {round}"
        );
        stale = owners[usize::from(winners[1] == 1)];
    }
    assert_eq!(outbox.ack(stale, &[id]).await.unwrap(), [id]);
}

/// Shows IBX-036, IBX-106.
async fn inbox_message_goes_to_one_of_two(fixture: Fixture) {
    let others = [fixture.again().await, fixture.again().await];
    let inbox = fixture.room.inbox();
    inbox
        .enqueue(&Inbound::new("source", "1", "a", "b"))
        .await
        .unwrap();
    let mut stale = OwnerToken::new();
    assert_eq!(inbox.claim(stale, LEASE, 1).await.unwrap().len(), 1);
    for round in 0..30 {
        fixture.expire_leases().await;
        let owners = [OwnerToken::new(), OwnerToken::new()];
        let doors = [others[0].inbox(), others[1].inbox()];
        let (left, right) = tokio::join!(
            doors[0].claim(owners[0], LEASE, 1),
            doors[1].claim(owners[1], LEASE, 1)
        );
        let winners = [left.unwrap().len(), right.unwrap().len()];
        assert_eq!(winners[0] + winners[1], 1, "round {round}");
        assert_eq!(
            inbox.ack(stale, &["1"]).await.unwrap(),
            0,
            "round {round}: a stale ack was taken"
        );
        stale = owners[usize::from(winners[1] == 1)];
    }
    assert_eq!(inbox.ack(stale, &["1"]).await.unwrap(), 1);
}

testkit::mount!(
    goes_to_one_of_two_that_claim_at_once,
    inbox_message_goes_to_one_of_two
);
