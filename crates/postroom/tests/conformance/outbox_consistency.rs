//! Many workers at once: one transaction per call, one holder per message, no deadlock that a caller
//! has to care about.

use std::collections::{HashMap, HashSet};
use std::task::Poll;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::{Abandon, JoinStatus, Message, NewJoin, OwnerToken, WorkItemId};
use testkit::{Backend, Fixture, LEASE, eventually};

/// Six workers with connections of their own drain one queue; some of them hand messages back. No two
/// hold the same message at the same time, and every message is done once.
///
/// Shows OBX-017, OBX-098, OBX-100, OBX-101.
async fn many_workers_share_a_queue(fixture: Fixture) {
    let ids: HashSet<_> = {
        let messages = vec![Message::new("a", "b"); 300];
        fixture
            .room
            .outbox()
            .enqueue_many(&messages)
            .await
            .unwrap()
            .iter()
            .map(|receipt| receipt.work_item_id)
            .collect()
    };
    let mut workers = Vec::new();
    for worker in 0..6 {
        let outbox = fixture.again().await.outbox();
        workers.push(tokio::spawn(async move {
            let (mut acked, mut abandoned) = (Vec::new(), 0);
            loop {
                let owner = OwnerToken::new();
                let claimed = outbox.claim(owner, LEASE, 7).await.unwrap();
                if claimed.is_empty() {
                    return (acked, abandoned);
                }
                for message in claimed {
                    if worker % 2 == 0 && message.progress.attempt_count == 0 {
                        let how = Abandon::after(Duration::ZERO);
                        assert_eq!(
                            outbox.abandon(owner, &[message.id], how).await.unwrap(),
                            [message.id]
                        );
                        abandoned += 1;
                    } else {
                        assert_eq!(
                            outbox.ack(owner, &[message.id]).await.unwrap(),
                            [message.id]
                        );
                        acked.push(message.id);
                    }
                }
            }
        }));
    }
    let (mut acked, mut abandoned) = (Vec::new(), 0);
    for worker in workers {
        let (ids, count) = worker.await.unwrap();
        acked.extend(ids);
        abandoned += count;
    }

    assert_eq!(acked.len(), 300);
    assert_eq!(acked.into_iter().collect::<HashSet<_>>(), ids);
    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_done").await
        ),
        (0, 300)
    );
    let attempts = "SELECT CAST(sum(attempt_count) AS bigint) FROM {outbox_done}";
    assert_eq!(fixture.number(attempts).await, abandoned);
    let deliveries = "SELECT CAST(sum(delivery_count) AS bigint) FROM {outbox_done}";
    assert_eq!(fixture.number(deliveries).await, 300 + abandoned);
}

/// Many workers ask at the same moment for few messages.
///
/// Shows OBX-100, OBX-101.
async fn a_message_is_claimed_by_one_of_many(fixture: Fixture) {
    let mut rooms = Vec::new();
    for _ in 0..6 {
        rooms.push(fixture.again().await);
    }
    for round in 0..20 {
        let ids = fixture.enqueue(2).await;
        let claims: Vec<_> = rooms
            .iter()
            .map(|room| {
                let outbox = room.outbox();
                tokio::spawn(
                    async move { outbox.claim(OwnerToken::new(), LEASE, 2).await.unwrap() },
                )
            })
            .collect();
        let mut holders: HashMap<WorkItemId, usize> = HashMap::new();
        for claim in claims {
            for message in claim.await.unwrap() {
                *holders.entry(message.id).or_default() += 1;
            }
        }
        assert_eq!(
            holders,
            ids.into_iter().map(|id| (id, 1)).collect(),
            "round {round}"
        );
    }
}

/// A claim that has not committed keeps its messages from everybody; undone, it leaves no trace.
///
/// Shows OBX-017, OBX-098, OBX-101.
async fn a_claim_sees_nothing_that_is_not_committed(fixture: Fixture) {
    let id = fixture.enqueue(1).await[0];
    let outbox = fixture.room.outbox();
    let claim = async move { outbox.claim(OwnerToken::new(), LEASE, 10).await.unwrap() };
    let message = Message::new("uncommitted", "");
    let (_, statements) = fixture.room.outbox().statements(&message).unwrap();
    assert_eq!(statements.len(), 1);

    let claimed = match fixture.backend {
        // There is one writer: the claim waits for its end.
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut transaction = connection.transaction().unwrap();
            fixture
                .room
                .outbox()
                .enqueue_in(&mut transaction, &message)
                .await
                .unwrap();
            let claim = tokio::spawn(claim);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!claim.is_finished());
            transaction.rollback().unwrap();
            claim.await.unwrap()
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut transaction = client.transaction().await.unwrap();
            fixture
                .room
                .outbox()
                .enqueue_in(&mut transaction, &message)
                .await
                .unwrap();
            let taken = fixture.fill("SELECT FROM {outbox_claim}(gen_random_uuid(), '1 hour', 1)");
            assert_eq!(transaction.execute(&taken, &[]).await.unwrap(), 1);
            assert!(fixture.claim(10).await.1.is_empty());
            transaction.rollback().await.unwrap();
            claim.await
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            fixture
                .room
                .outbox()
                .enqueue_in(&mut transaction, &message)
                .await
                .unwrap();
            let taken = format!(
                "UPDATE {{outbox}} SET locked_until = 9000000000000000 WHERE id = {}",
                fixture.literal(id)
            );
            transaction.query_drop(fixture.fill(&taken)).await.unwrap();
            assert!(fixture.claim(10).await.1.is_empty());
            transaction.rollback().await.unwrap();
            claim.await
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver().await;
            transaction.begin_transaction().await.unwrap();
            let outbox = fixture.room.outbox();
            outbox.enqueue_in(&mut transaction, &message).await.unwrap();
            assert!(fixture.claim(10).await.1.is_empty());
            transaction.rollback_transaction().await.unwrap();
            claim.await
        }
    };

    assert_eq!(
        claimed.iter().map(|message| message.id).collect::<Vec<_>>(),
        [id]
    );
    assert_eq!(fixture.live("topic = 'uncommitted'").await, 0);
    assert_eq!(fixture.live("delivery_count = 1").await, 1);
}

/// Whatever a claim takes, it takes in one transaction, also when it has to look in two places.
///
/// Shows OBX-097.
async fn a_claim_is_one_transaction(fixture: Fixture) {
    let ids = fixture.enqueue(4).await;
    assert_eq!(fixture.claim(1).await.1, ids[..1]);
    let long_ago = fixture.time(fixture.clock().await - 60_000_000);
    fixture
        .sql(&format!(
            "UPDATE {{outbox}} SET next_attempt_at = {long_ago} WHERE id = {}",
            fixture.literal(ids[3])
        ))
        .await;

    let (owner, claimed) = fixture.claim(10).await;
    assert_eq!(
        claimed.iter().collect::<HashSet<_>>(),
        ids[1..].iter().collect()
    );
    let transactions = format!(
        "SELECT count(DISTINCT xmin::text) FROM {{outbox}} WHERE owner_token = {}",
        fixture.literal(owner)
    );
    assert_eq!(fixture.number(&transactions).await, 1);
}

/// A step fails half way: nothing of the call remains.
///
/// Shows OBX-097.
async fn a_call_that_fails_leaves_nothing_behind(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    fixture.enqueue(3).await;
    let (owner, ids) = fixture.claim(3).await;

    fixture.refuse("DELETE", "outbox").await;
    outbox.ack(owner, &ids).await.unwrap_err();
    outbox.fail(owner, &ids, "no").await.unwrap_err();
    fixture.allow("DELETE").await;
    assert_eq!(
        (
            fixture.rows("outbox_done").await,
            fixture.rows("outbox_dead").await
        ),
        (0, 0)
    );

    outbox.fail(owner, &ids, "no").await.unwrap();
    fixture.refuse("DELETE", "outbox_dead").await;
    outbox.replay(&ids).await.unwrap_err();
    outbox.purge(&ids).await.unwrap_err();
    fixture.allow("DELETE").await;
    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_dead").await
        ),
        (0, 3)
    );
    assert_eq!(outbox.replay(&ids).await.unwrap().len(), 3);
}

/// Two transactions wait for each other. The database picks the ack as its victim; the ack is tried
/// again and the caller never knows.
///
/// Shows OBX-099.
async fn a_deadlock_is_survived(fixture: Fixture) {
    fixture.enqueue(2).await;
    let (owner, mut ids) = fixture.claim(2).await;
    ids.sort();
    let mut client = fixture.postgres().await;
    client
        .batch_execute("SET deadlock_timeout = '60s'")
        .await
        .unwrap();
    let transaction = client.transaction().await.unwrap();
    let lock = fixture.fill("SELECT 1 FROM {outbox} WHERE id = $1 FOR UPDATE");
    transaction
        .execute(&lock, &[&ids[1].as_uuid()])
        .await
        .unwrap();

    let (outbox, both) = (fixture.room.outbox(), ids.clone());
    let ack = tokio::spawn(async move { outbox.ack(owner, &both).await });
    let waiting = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
                   WHERE NOT l.granted AND a.query LIKE '%' || (SELECT '{outbox_ack}') || '%'";
    eventually(async || (fixture.number(waiting).await > 0).then_some(())).await;
    transaction
        .execute(&lock, &[&ids[0].as_uuid()])
        .await
        .unwrap();
    transaction.commit().await.unwrap();

    let mut acked = ack.await.unwrap().unwrap();
    acked.sort();
    assert_eq!(acked, ids);
}

/// Somebody else writes for a while: the call waits and then succeeds.
///
/// Shows OBX-099.
async fn a_busy_database_is_waited_for(fixture: Fixture) {
    let (owner, id) = fixture.enqueue_and_claim().await;
    let outbox = fixture.room.outbox();
    let ack = async move { outbox.ack(owner, &[id]).await };

    let acked = match fixture.backend {
        Backend::Sqlite => {
            let connection = fixture.sqlite();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            // Asked once, it has begun and cannot go on.
            let mut ack = Box::pin(ack);
            let begun = std::future::poll_fn(|context| Poll::Ready(ack.as_mut().poll(context)));
            assert!(begun.await.is_pending());
            connection.execute_batch("COMMIT").unwrap();
            ack.await
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let transaction = client.transaction().await.unwrap();
            let lock = fixture.fill("SELECT 1 FROM {outbox} FOR UPDATE");
            transaction.execute(&lock, &[]).await.unwrap();
            let ack = tokio::spawn(ack);
            let waiting = fixture.fill(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND query LIKE '%{outbox_ack}%'",
            );
            let waits = async || (fixture.number(&waiting).await > 0).then_some(());
            eventually(waits).await;
            assert!(!ack.is_finished());
            transaction.commit().await.unwrap();
            ack.await.unwrap()
        }
        Backend::MySql => {
            let mut client = fixture.mysql().await;
            let mut transaction = testkit::mysql::begin(&mut client).await;
            let lock = fixture.fill("SELECT 1 FROM {outbox} FOR UPDATE");
            transaction.query_drop(lock).await.unwrap();
            let ack = tokio::spawn(ack);
            fixture.somebody_waits_on_mysql().await;
            assert!(!ack.is_finished());
            transaction.commit().await.unwrap();
            ack.await.unwrap()
        }
        Backend::SqlServer => {
            let mut transaction = fixture.sqlserver_holding_outbox().await;
            let ack = tokio::spawn(ack);
            let waiting = "SELECT COUNT(*) FROM sys.dm_exec_requests WHERE wait_type LIKE 'LCK%'";
            let waits = async || (fixture.number(waiting).await > 0).then_some(());
            eventually(waits).await;
            assert!(!ack.is_finished());
            transaction.commit_transaction().await.unwrap();
            ack.await.unwrap()
        }
    };
    assert_eq!(acked.unwrap(), [id]);
}

/// Workers ack and fail steps of the same joins in every order: no error, and the counters are exact.
///
/// Shows OBX-034, OBX-047, OBX-099, OBX-100.
async fn crossing_settlements_count_exactly(fixture: Fixture) {
    let (outbox, joins) = (fixture.room.outbox(), fixture.room.joins());
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(joins.start(&NewJoin::new(80)).await.unwrap());
    }
    let messages: Vec<_> = (0..80)
        .map(|number| {
            let rotated = all.iter().cycle().skip(number % 5).take(5);
            rotated.fold(Message::new("a", ""), |message, join| message.join(*join))
        })
        .collect();
    outbox.enqueue_many(&messages).await.unwrap();

    let mut workers = Vec::new();
    for worker in 0..4 {
        let outbox = fixture.again().await.outbox();
        workers.push(tokio::spawn(async move {
            let mut failed = 0;
            loop {
                let owner = OwnerToken::new();
                let ids: Vec<_> = outbox
                    .claim(owner, LEASE, 3)
                    .await
                    .unwrap()
                    .iter()
                    .map(|message| message.id)
                    .collect();
                match (ids.len(), worker) {
                    (0, _) => return failed,
                    (_, 0) => failed += outbox.fail(owner, &ids, "no").await.unwrap().len(),
                    _ => assert_eq!(outbox.ack(owner, &ids).await.unwrap().len(), ids.len()),
                }
            }
        }));
    }
    let mut failed = 0;
    for worker in workers {
        failed += worker.await.unwrap();
    }

    let failed = i32::try_from(failed).unwrap();
    let status = if failed > 0 {
        JoinStatus::Failed
    } else {
        JoinStatus::Completed
    };
    for join in all {
        let join = joins.get(join).await.unwrap().unwrap();
        let steps = (
            i64::from(join.completed_steps),
            i64::from(join.failed_steps),
            join.status,
        );
        assert_eq!(steps, (i64::from(80 - failed), i64::from(failed), status));
    }
}

/// A caller who gives up waiting loses nothing: the message is either untouched or leased whole.
///
/// Shows OBX-097.
async fn a_call_that_is_dropped_is_done_or_undone(fixture: Fixture) {
    let outbox = fixture.room.outbox();
    for _ in 0..20 {
        let id = fixture.enqueue(1).await[0];
        let owner = OwnerToken::new();
        let claiming = outbox.clone();
        let claim = tokio::spawn(async move { claiming.claim(owner, LEASE, 1).await.map(drop) });
        tokio::task::yield_now().await;
        claim.abort();
        let _ = claim.await;

        let half = "(owner_token IS NULL) <> (locked_until IS NULL)";
        assert_eq!(fixture.live(half).await, 0);
        let settled = eventually(async || {
            fixture.expire_leases().await;
            let (owner, claimed) = fixture.claim(1).await;
            (claimed == [id]).then_some(outbox.ack(owner, &claimed).await.unwrap())
        })
        .await;
        assert_eq!(settled, [id]);
    }
    assert_eq!(
        (
            fixture.rows("outbox").await,
            fixture.rows("outbox_done").await
        ),
        (0, 20)
    );
}

testkit::mount!(
    many_workers_share_a_queue,
    a_message_is_claimed_by_one_of_many,
    a_claim_sees_nothing_that_is_not_committed,
    a_call_that_fails_leaves_nothing_behind,
    a_busy_database_is_waited_for,
    crossing_settlements_count_exactly,
    a_call_that_is_dropped_is_done_or_undone;
    postgres:
    a_claim_is_one_transaction,
    a_deadlock_is_survived,
);
