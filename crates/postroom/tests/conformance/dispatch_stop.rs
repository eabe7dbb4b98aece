//! Stopping: claim nothing more, let what runs finish, hand back the rest as if it had never been claimed.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use postroom::{Delivery, Postroom, Queue, Report, Running, State, Tx, done};
use testkit::{Backend, Fixture, eventually};
use tokio::sync::{Notify, Semaphore};

use crate::dispatch_scene::{Put, QUEUES, SHORT_LEASE, dispatcher, outlive_leases, put};

async fn assert_untouched(room: &Postroom, message: &Put) {
    let (state, progress) = message.look(room).await;
    assert_eq!(state, State::Ready, "{message:?}");
    assert_eq!(progress.attempt_count, 0, "{message:?}");
    assert_eq!(progress.delivery_count, 0, "{message:?}");
    assert_eq!(progress.owner_token, None, "{message:?}");
    assert_eq!(progress.last_error, None, "{message:?}");
}

/// Tells it to stop: whatever comes after this finds it stopping.
async fn begin_to_stop(running: Running) -> Pin<Box<impl Future<Output = Report>>> {
    let mut stopping = Box::pin(running.stop());
    tokio::select! {
        biased;
        _ = &mut stopping => panic!("a handler is still at work"),
        () = std::future::ready(()) => {}
    }
    stopping
}

/// Two run, some wait behind them because those before were quick, some were never claimed.
async fn what_runs_is_finished_and_settled_and_the_rest_handed_back(fixture: Fixture) {
    const QUICK: usize = 20;
    let room = &fixture.room;
    for queue in QUEUES {
        let mut messages = Vec::new();
        for _ in 0..200 {
            messages.push(put(room, queue, "a", "").await);
        }
        let (began, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (count, hold) = (Arc::clone(&began), Arc::clone(&release));
        let running = dispatcher(room, queue, "a", move |_: Delivery| {
            let (count, hold) = (Arc::clone(&count), Arc::clone(&hold));
            async move {
                if count.fetch_add(1, Ordering::SeqCst) >= QUICK {
                    drop(hold.acquire().await);
                }
            }
        })
        .concurrency(2)
        .start()
        .unwrap();
        let both = QUICK + 2;
        eventually(|| async { (began.load(Ordering::SeqCst) == both).then_some(()) }).await;
        let stopping = begin_to_stop(running).await;
        // What comes now is for somebody else.
        messages.push(put(room, queue, "a", "").await);
        let held = format!(
            "SELECT count(*) FROM {{{}}} WHERE owner_token IS NOT NULL",
            queue.name()
        );
        eventually(|| async { (fixture.number(&held).await == 2).then_some(()) }).await;
        release.add_permits(100);
        let report = stopping.await;

        let all = u64::try_from(both).unwrap();
        assert_eq!((report.done, report.handled()), (all, all), "{queue:?}");
        assert_eq!(began.load(Ordering::SeqCst), both, "{queue:?}");
        let mut done = 0;
        for message in &messages {
            if message.state(room).await == State::Done {
                done += 1;
            } else {
                assert_untouched(room, message).await;
            }
        }
        assert_eq!(done, both, "{queue:?}");
        fixture
            .sql(&format!("DELETE FROM {{{}}}", queue.name()))
            .await;
    }
}

/// Handlers that do not end by the deadline are dropped, with their transactions.
async fn what_does_not_finish_in_time_is_cancelled_and_handed_back(fixture: Fixture) {
    let room = &fixture.room;
    fixture.sql("CREATE TABLE {ledger} (message TEXT)").await;
    let insert = fixture.fill("INSERT INTO {ledger} (message) VALUES ('x')");
    for queue in QUEUES {
        let mut messages = Vec::new();
        for _ in 0..5 {
            messages.push(put(room, queue, "a", "").await);
        }
        let began = Arc::new(Notify::new());
        let (begin, insert) = (Arc::clone(&began), insert.clone());
        let running = dispatcher(room, queue, "a", move |mut tx: Tx| {
            let (begin, insert) = (Arc::clone(&begin), insert.clone());
            async move {
                tx.execute(&insert, vec![]).await?;
                begin.notify_one();
                std::future::pending::<()>().await;
                done()
            }
        })
        .concurrency(2)
        .shutdown_deadline(Duration::from_millis(200))
        .start()
        .unwrap();
        began.notified().await;
        let stopping = Instant::now();

        let report = running.stop().await;

        assert!(stopping.elapsed() >= Duration::from_millis(200));
        assert_eq!(report.handled(), 0, "{queue:?}");
        assert!(report.released >= 2, "{queue:?}: {report:?}");
        // Handed back for sure, which a dispatcher that has to give up waiting does not do.
        for message in &messages {
            assert_untouched(room, message).await;
        }
        assert_eq!(fixture.rows("ledger").await, 0, "{queue:?}");
        fixture
            .sql(&format!("DELETE FROM {{{}}}", queue.name()))
            .await;
    }
}

/// While it stops, leases go on being renewed.
async fn a_handler_keeps_its_lease_while_the_dispatcher_stops(fixture: Fixture) {
    let room = &fixture.room;
    let message = put(room, Queue::Outbox, "a", "").await;
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, hold) = (Arc::clone(&began), Arc::clone(&release));
    let running = room
        .dispatcher()
        .on("a", move |_: Delivery| {
            let (begin, hold) = (Arc::clone(&begin), Arc::clone(&hold));
            async move {
                begin.notify_one();
                hold.notified().await;
            }
        })
        .lease(SHORT_LEASE)
        .start()
        .unwrap();
    began.notified().await;
    let stopping = begin_to_stop(running).await;
    outlive_leases(&fixture, Queue::Outbox, "true").await;
    release.notify_one();
    let report = stopping.await;
    assert_eq!((report.done, report.lost), (1, 0));
    assert_eq!(message.look(room).await.1.delivery_count, 1);
}

async fn a_stop_in_the_middle_of_much_work_leaves_nothing_in_flight(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for _ in 0..300 {
            put(room, queue, "a", "").await;
        }
        for done_at_least in [20, 60, 120] {
            let running = dispatcher(room, queue, "a", |_: Delivery| async {
                tokio::time::sleep(Duration::from_millis(1)).await;
            })
            .concurrency(4)
            .start()
            .unwrap();
            let done = async || match queue {
                Queue::Outbox => room.outbox().counts().await.unwrap().done,
                Queue::Inbox => room.inbox().counts().await.unwrap().done,
            };
            eventually(|| async { (done().await >= done_at_least).then_some(()) }).await;
            let report = running.stop().await;
            assert_eq!((report.lost, report.retried), (0, 0), "{queue:?}");
            let held = format!(
                "SELECT count(*) FROM {{{}}} WHERE owner_token IS NOT NULL OR delivery_count <> 0",
                queue.name()
            );
            assert_eq!(fixture.number(&held).await, 0, "{queue:?}");
        }
    }
}

/// Nobody waits for the end, and yet it comes: another one works what comes later.
async fn dropping_it_stops_it_too(fixture: Fixture) {
    let room = &fixture.room;
    let other = fixture.again().await;
    for queue in QUEUES {
        let first = put(room, queue, "a", "").await;
        let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (begin, hold) = (Arc::clone(&began), Arc::clone(&release));
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let running = dispatcher(room, queue, "a", move |_: Delivery| {
            let (begin, hold) = (Arc::clone(&begin), Arc::clone(&hold));
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                begin.notify_one();
                hold.notified().await;
            }
        })
        .start()
        .unwrap();
        began.notified().await;
        drop(running);
        release.notify_one();
        eventually(|| async { (first.state(room).await == State::Done).then_some(()) }).await;
        let dispatcher = dispatcher(&other, queue, "a", |_: Delivery| async {});
        let successor = dispatcher.start().unwrap();
        for done in 1..=20 {
            // The first would hear of it at once, and the other only from the database.
            put(room, queue, "a", "").await;
            eventually(|| async { (successor.report().done == done).then_some(()) }).await;
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{queue:?}");
        successor.stop().await;
    }
}

async fn run_until_ends_when_it_is_told(fixture: Fixture) {
    let room = &fixture.room;
    put(room, Queue::Outbox, "a", "").await;
    put(room, Queue::Inbox, "a", "").await;
    let handled = Arc::new(Semaphore::new(0));
    let (out, inb) = (Arc::clone(&handled), Arc::clone(&handled));
    let report = room
        .dispatcher()
        .on("a", move |_: Delivery| {
            out.add_permits(1);
            async {}
        })
        .on_inbound("a", move |_: Delivery| {
            inb.add_permits(1);
            async {}
        })
        .run_until(async { drop(handled.acquire_many(2).await) })
        .await
        .unwrap();
    assert_eq!(report.done, 2);
}

/// The database does not answer: stopping still comes to an end.
async fn a_database_that_hangs_does_not_hold_up_the_end_for_ever(fixture: Fixture) {
    let room = fixture.again().await;
    put(&room, Queue::Outbox, "a", "").await;
    let (began, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, hold) = (Arc::clone(&began), Arc::clone(&release));
    let running = room
        .dispatcher()
        .on("a", move |_: Delivery| {
            let (begin, hold) = (Arc::clone(&begin), Arc::clone(&hold));
            async move {
                begin.notify_one();
                hold.notified().await;
            }
        })
        .shutdown_deadline(Duration::from_millis(100))
        .start()
        .unwrap();
    began.notified().await;
    // Somebody locks everything, and the result cannot be written.
    let (sqlite, postgres, mut mysql, _sqlserver);
    match fixture.backend {
        Backend::Sqlite => {
            sqlite = fixture.sqlite();
            sqlite.execute_batch("BEGIN EXCLUSIVE").unwrap();
        }
        Backend::Postgres => {
            postgres = fixture.postgres().await;
            let lock = fixture.fill("BEGIN; LOCK TABLE {outbox}");
            postgres.batch_execute(&lock).await.unwrap();
        }
        Backend::MySql => {
            mysql = fixture.mysql().await;
            let lock = fixture.fill("LOCK TABLES {outbox} WRITE");
            mysql.query_drop(lock).await.unwrap();
        }
        Backend::SqlServer => _sqlserver = fixture.sqlserver_holding_outbox().await,
    }
    release.notify_one();
    eventually(|| async { (running.running() == 0).then_some(()) }).await;
    // The lock is there to stay, and SQLite waits for it for 30 seconds.
    let stopped = tokio::time::timeout(Duration::from_secs(25), running.stop()).await;
    let report = stopped.expect("it comes to an end");
    assert_eq!(report.done, 0, "and claims nothing that is not so");
}

testkit::mount!(
    what_runs_is_finished_and_settled_and_the_rest_handed_back,
    what_does_not_finish_in_time_is_cancelled_and_handed_back,
    a_handler_keeps_its_lease_while_the_dispatcher_stops,
    a_stop_in_the_middle_of_much_work_leaves_nothing_in_flight,
    dropping_it_stops_it_too,
    run_until_ends_when_it_is_told,
    a_database_that_hangs_does_not_hold_up_the_end_for_ever,
);
