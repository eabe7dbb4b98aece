//! Join counters under fifty workers.

use std::time::Duration;

use postroom::{JoinStatus, JoinWait, Message, MessageId, NewJoin, OwnerToken, StepStatus};
use testkit::Fixture;

const MEMBERS: usize = 500;
const WORKERS: usize = 50;

/// Shows JOIN-060, JOIN-061, JOIN-062, JOIN-023, JOIN-030, JOIN-031, JOIN-034, JOIN-080, C-31.
async fn counters_are_exact_with_500_members_and_50_workers(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let all = joins.start(&NewJoin::new(500)).await.unwrap();
    // More members than expected steps: the counters stop there.
    let capped = joins.start(&NewJoin::new(400)).await.unwrap();
    let wait = joins
        .enqueue_wait(&JoinWait::new(all, "next", "{}"))
        .await
        .unwrap();
    let owner = OwnerToken::new();
    assert_eq!(
        outbox
            .claim(owner, Duration::from_secs(60), 1)
            .await
            .unwrap()
            .len(),
        1,
        "the wait message"
    );

    let messages: Vec<Message> = (0..MEMBERS)
        .map(|number| {
            Message::new("step", number.to_string())
                .join(all)
                .join(capped)
        })
        .collect();
    let receipts = outbox.enqueue_many(&messages).await.unwrap();

    let mut workers = tokio::task::JoinSet::new();
    for number in 0..WORKERS {
        let room = fixture.room.clone();
        workers.spawn(async move {
            let (outbox, joins) = (room.outbox(), room.joins());
            let mut failed = 0;
            loop {
                let owner = OwnerToken::new();
                let claimed = outbox
                    .claim(owner, Duration::from_secs(60), 4)
                    .await
                    .unwrap();
                let Some(first) = claimed.first() else {
                    return failed;
                };
                // Reporting by hand what the ack reports too must count once.
                if number % 5 == 0 && !first.payload.ends_with('7') {
                    joins.report_completed(all, first.message_id).await.unwrap();
                }
                let (bad, good): (Vec<_>, Vec<_>) = claimed
                    .iter()
                    .partition(|message| message.payload.ends_with('7'));
                let ids = |messages: Vec<&postroom::OutboxMessage>| {
                    messages
                        .iter()
                        .map(|message| message.id)
                        .collect::<Vec<_>>()
                };
                failed += outbox
                    .fail(owner, &ids(bad), "step failed")
                    .await
                    .unwrap()
                    .len();
                outbox.ack(owner, &ids(good)).await.unwrap();
            }
        });
    }
    let failed: usize = workers.join_all().await.into_iter().sum();
    assert_eq!(failed, 50);

    let join = joins.get(all).await.unwrap().unwrap();
    assert_eq!((join.completed_steps, join.failed_steps), (450, 50));
    assert_eq!(join.status, JoinStatus::Failed);
    let join = joins.get(capped).await.unwrap().unwrap();
    assert_eq!(join.completed_steps + join.failed_steps, 400);
    for join in [all, capped] {
        let members = joins.members(join, None, 1000).await.unwrap();
        assert_eq!(members.len(), MEMBERS);
        assert!(
            members
                .iter()
                .all(|member| member.status != StepStatus::Pending)
        );
    }
    assert!(
        receipts
            .iter()
            .all(|receipt| receipt.message_id != MessageId::from_uuid(uuid::Uuid::nil()))
    );
    // Handed back after the join has finished, the wait message is ready at once.
    outbox
        .abandon(owner, &[wait.work_item_id], Default::default())
        .await
        .unwrap();
    let woken = outbox
        .claim(OwnerToken::new(), Duration::from_secs(60), 10)
        .await
        .unwrap();
    assert_eq!(
        woken.iter().map(|message| message.id).collect::<Vec<_>>(),
        [wait.work_item_id]
    );
}

/// Shows JOIN-061, JOIN-062, OBX-099, C-31.
async fn acks_of_the_same_two_joins_in_any_order_do_not_deadlock(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let first = joins.start(&NewJoin::new(200)).await.unwrap();
    let second = joins.start(&NewJoin::new(200)).await.unwrap();
    let messages: Vec<Message> = (0..200)
        .map(|number| {
            let message = Message::new("step", "");
            if number % 2 == 0 {
                message.join(first).join(second)
            } else {
                message.join(second).join(first)
            }
        })
        .collect();
    outbox.enqueue_many(&messages).await.unwrap();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let outbox = outbox.clone();
        workers.spawn(async move {
            let owner = OwnerToken::new();
            let claimed = outbox
                .claim(owner, Duration::from_secs(60), 10)
                .await
                .unwrap();
            let mut ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
            ids.reverse();
            assert_eq!(outbox.ack(owner, &ids).await.unwrap().len(), ids.len());
            ids.len()
        });
    }
    assert_eq!(workers.join_all().await.into_iter().sum::<usize>(), 200);
    for join in [first, second] {
        let join = joins.get(join).await.unwrap().unwrap();
        assert_eq!(
            (join.completed_steps, join.status),
            (200, JoinStatus::Completed)
        );
    }
}

testkit::mount!(
    counters_are_exact_with_500_members_and_50_workers,
    acks_of_the_same_two_joins_in_any_order_do_not_deadlock,
);
