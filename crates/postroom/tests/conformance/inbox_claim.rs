//! Claiming from the inbox.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use postroom::{
    Abandon, ErrorKind, Inbound, Inbox, InboxMessageId, InboxState, OwnerToken, WorkItemId,
};
use testkit::{Fixture, eventually};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

/// Shows IBX-030, IBX-034, IBX-035, IBX-036.
async fn a_claim_leases_messages_to_its_owner_and_returns_them(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1", "2", "3"]).await;
    let owner = OwnerToken::new();

    let before = fixture.now().await;
    let claimed = inbox.claim(owner, LEASE, 10).await.unwrap();
    let after = fixture.now().await;

    let ids: BTreeSet<_> = claimed.iter().map(|message| message.id.clone()).collect();
    assert_eq!(ids, BTreeSet::from([id("1"), id("2"), id("3")]));
    for message in claimed {
        assert_eq!(message.state, InboxState::Processing);
        assert_eq!(message.progress.owner_token, Some(owner));
        let locked_until = message.progress.locked_until.unwrap();
        assert!(before + LEASE <= locked_until && locked_until <= after + LEASE);
        let stored = inbox.get(&message.id).await.unwrap().unwrap();
        assert_eq!(
            stored, message,
            "what the claim returned is what the database has"
        );
    }
    let leased =
        "SELECT count(*) FROM {inbox} WHERE owner_token IS NOT NULL AND locked_until IS NOT NULL";
    assert_eq!(fixture.number(leased).await, 3);
}

/// Shows IBX-037.
async fn nothing_ready_is_an_empty_list(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
    enqueue(&inbox, &["1"]).await;
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 10)
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// Shows IBX-039.
async fn a_claim_never_takes_more_than_its_batch(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1", "2", "3", "4", "5"]).await;
    for (batch, expected) in [(1, 1), (3, 3), (3, 1), (3, 0)] {
        let claimed = inbox.claim(OwnerToken::new(), LEASE, batch).await.unwrap();
        assert_eq!(claimed.len(), expected);
    }
}

/// Shows IBX-031, IBX-038, IBX-047, IBX-064, C-36, C-37.
async fn only_messages_in_processing_with_content_are_claimed(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    for name in ["seen", "marked processing", "marked done", "marked dead"] {
        inbox.already_processed(&id(name)).await.unwrap();
    }
    inbox
        .mark_processing(&id("marked processing"))
        .await
        .unwrap();
    inbox.mark_processed(&id("marked done")).await.unwrap();
    inbox.mark_dead(&id("marked dead")).await.unwrap();
    enqueue(&inbox, &["acked", "failed"]).await;
    let owner = OwnerToken::new();
    assert_eq!(inbox.claim(owner, LEASE, 10).await.unwrap().len(), 2);
    inbox.ack(owner, &[id("acked")]).await.unwrap();
    inbox.fail(owner, &[id("failed")], "no").await.unwrap();
    enqueue(&inbox, &["queued"]).await;
    fixture.expire_leases().await;
    inbox.reap().await.unwrap();

    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();

    let ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
    assert_eq!(ids, [id("queued")]);
}

/// Shows IBX-032.
async fn messages_that_are_not_due_are_passed_over(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    let now = SystemTime::now();
    inbox
        .enqueue(&inbound("later").due_at(now + HOUR))
        .await
        .unwrap();
    inbox
        .enqueue(&inbound("past").due_at(now - HOUR))
        .await
        .unwrap();
    inbox.enqueue(&inbound("none")).await.unwrap();

    let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();

    let ids: BTreeSet<_> = claimed.into_iter().map(|message| message.id).collect();
    assert_eq!(ids, BTreeSet::from([id("none"), id("past")]));
}

/// Shows IBX-033, C-21.
async fn a_leased_message_is_nobody_elses_until_the_lease_has_expired(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1"]).await;
    let first = OwnerToken::new();
    let lease = Duration::from_millis(700);
    let leased = inbox.claim(first, lease, 1).await.unwrap();
    let expires = leased[0].progress.locked_until.unwrap();

    let (inbox, fixture) = (&inbox, &fixture);
    let second = OwnerToken::new();
    let claimed = eventually(|| async move {
        let claimed = inbox.claim(second, LEASE, 10).await.unwrap();
        assert!(claimed.is_empty() || fixture.now().await > expires);
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;

    assert_eq!(claimed[0].progress.owner_token, Some(second));
    assert_eq!(claimed[0].progress.delivery_count, 2);
    assert_eq!(
        claimed[0].progress.attempt_count, 0,
        "nobody has tried and failed"
    );
}

/// Shows IBX-042.
async fn a_message_in_backoff_is_passed_over(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1", "2"]).await;
    let owner = OwnerToken::new();
    inbox.claim(owner, LEASE, 10).await.unwrap();
    inbox
        .abandon(owner, &[id("1")], Abandon::after(HOUR))
        .await
        .unwrap();
    inbox
        .abandon(owner, &[id("2")], Abandon::after(Duration::from_micros(1)))
        .await
        .unwrap();

    let inbox = &inbox;
    let claimed = eventually(|| async move {
        let claimed = inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap();
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].id, id("2"));
    assert_eq!(inbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap(), []);
}

/// Shows IBX-040, IBX-041.
async fn a_lease_or_batch_of_nothing_is_out_of_range(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1"]).await;
    for (lease, batch, param) in [
        (Duration::ZERO, 1, "lease"),
        (Duration::from_nanos(999), 1, "lease"),
        (Duration::MAX, 1, "lease"),
        (LEASE, 0, "batch"),
        (LEASE, usize::MAX, "batch"),
    ] {
        let error = inbox
            .claim(OwnerToken::new(), lease, batch)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param });
    }
    assert_eq!(
        inbox
            .claim(OwnerToken::new(), LEASE, 1)
            .await
            .unwrap()
            .len(),
        1,
        "nothing was leased"
    );
}

/// Shows IBX-043, IBX-130.
async fn the_empty_owner_token_is_refused_wherever_it_is_taken(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1"]).await;
    let nobody: OwnerToken = "00000000-0000-0000-0000-000000000000".parse().unwrap();
    let none: [WorkItemId; 0] = [];
    for error in [
        inbox.claim(nobody, LEASE, 1).await.unwrap_err(),
        inbox.ack(nobody, &[id("1")]).await.unwrap_err(),
        inbox.ack(nobody, &none).await.unwrap_err(),
        inbox
            .abandon(nobody, &[id("1")], Abandon::default())
            .await
            .unwrap_err(),
        inbox
            .abandon(nobody, &none, Abandon::default())
            .await
            .unwrap_err(),
        inbox.fail(nobody, &["1"], "no").await.unwrap_err(),
        inbox.fail(nobody, &none, "no").await.unwrap_err(),
        inbox.renew(nobody, &[id("1")], LEASE).await.unwrap_err(),
        inbox.renew(nobody, &none, LEASE).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param: "owner" });
    }
    let untouched = "SELECT count(*) FROM {inbox} WHERE owner_token IS NULL AND attempt_count = 0";
    assert_eq!(fixture.number(untouched).await, 1);
}

/// Shows IBX-030, IBX-103, IBX-105, IBX-106.
async fn many_workers_share_the_messages_and_never_one_of_them(fixture: Fixture) {
    let rooms = [
        fixture.room.clone(),
        fixture.again().await,
        fixture.again().await,
    ];
    for number in 0..300 {
        rooms[0]
            .inbox()
            .enqueue(&inbound(&number.to_string()))
            .await
            .unwrap();
    }
    let workers: Vec<_> = (0..9)
        .map(|worker| {
            let inbox = rooms[worker % 3].inbox();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let claimed = inbox.claim(OwnerToken::new(), LEASE, 7).await.unwrap();
                    if claimed.is_empty() {
                        return mine;
                    }
                    assert!(claimed.len() <= 7);
                    mine.extend(claimed.into_iter().map(|message| message.id.message_id));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for worker in workers {
        all.extend(worker.await.unwrap());
    }
    assert_eq!(all.len(), 300);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 300);
    let claimed_once = "SELECT count(*) FROM {inbox} WHERE delivery_count = 1";
    assert_eq!(fixture.number(claimed_once).await, 300);
}

/// Shows IBX-106.
async fn an_expired_message_goes_to_one_of_many(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1"]).await;
    for round in 0..10 {
        let claims: Vec<_> = (0..8)
            .map(|_| {
                let inbox = inbox.clone();
                tokio::spawn(async move {
                    inbox
                        .claim(OwnerToken::new(), LEASE, 1)
                        .await
                        .unwrap()
                        .len()
                })
            })
            .collect();
        let mut takers = 0;
        for claim in claims {
            takers += claim.await.unwrap();
        }
        assert_eq!(takers, 1, "round {round}");
        fixture.expire_leases().await;
    }
}

/// Shows IBX-119, IBX-120.
async fn the_recommended_leases_and_batches_work(fixture: Fixture) {
    let inbox = fixture.room.inbox();
    enqueue(&inbox, &["1"]).await;
    for seconds in [10, 30, 300] {
        for batch in [1, 50, 100] {
            let lease = Duration::from_secs(seconds);
            let before = fixture.now().await;
            let claimed = inbox.claim(OwnerToken::new(), lease, batch).await.unwrap();
            assert!(claimed[0].progress.locked_until.unwrap() >= before + lease);
            fixture.expire_leases().await;
        }
    }
}

/// How fast they pass is measured by `cargo xtask bench`, against the database's own limit.
///
/// Shows IBX-121.
async fn thousands_of_messages_pass_through_one_inbox(fixture: Fixture) {
    const MESSAGES: usize = 2_000;
    let inbox = fixture.room.inbox();
    let mut enqueues = tokio::task::JoinSet::new();
    for task in 0..8 {
        let inbox = inbox.clone();
        enqueues.spawn(async move {
            for number in 0..MESSAGES / 8 {
                inbox
                    .enqueue(&inbound(&format!("{task} {number}")))
                    .await
                    .unwrap();
            }
        });
    }
    enqueues.join_all().await;

    let mut drained = 0;
    while drained < MESSAGES {
        let owner = OwnerToken::new();
        let claimed = inbox.claim(owner, LEASE, 100).await.unwrap();
        assert!(!claimed.is_empty(), "{drained} of {MESSAGES} were drained");
        let ids: Vec<_> = claimed
            .iter()
            .filter_map(|message| message.work_item_id)
            .collect();
        drained += inbox.ack(owner, &ids).await.unwrap();
    }
    assert_eq!(inbox.counts().await.unwrap().done, 2_000);
}

fn id(message_id: &str) -> InboxMessageId {
    InboxMessageId::new("stripe", message_id)
}

fn inbound(message_id: &str) -> Inbound {
    Inbound::new("stripe", message_id, "topic", "payload")
}

async fn enqueue(inbox: &Inbox, message_ids: &[&str]) {
    for message_id in message_ids {
        inbox.enqueue(&inbound(message_id)).await.unwrap();
    }
}

testkit::mount!(
    a_claim_leases_messages_to_its_owner_and_returns_them,
    nothing_ready_is_an_empty_list,
    a_claim_never_takes_more_than_its_batch,
    only_messages_in_processing_with_content_are_claimed,
    messages_that_are_not_due_are_passed_over,
    a_leased_message_is_nobody_elses_until_the_lease_has_expired,
    a_message_in_backoff_is_passed_over,
    a_lease_or_batch_of_nothing_is_out_of_range,
    the_empty_owner_token_is_refused_wherever_it_is_taken,
    many_workers_share_the_messages_and_never_one_of_them,
    an_expired_message_goes_to_one_of_many,
    the_recommended_leases_and_batches_work,
    thousands_of_messages_pass_through_one_inbox,
);
