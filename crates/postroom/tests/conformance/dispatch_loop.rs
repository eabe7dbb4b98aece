//! The loop: claim, handle, settle, at once and in batches.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use postroom::{Delivery, HandlerError, Message, Outcome, Queue, State, Tx, done};
use testkit::{Fixture, eventually};
use tokio::sync::{Notify, watch};

use crate::dispatch_scene::{QUEUES, dispatcher, on_one_thread, put};

/// Outbox and inbox in one dispatcher, both busy at the same time: no handler ends before both have begun.
async fn both_queues_are_worked_at_once(fixture: Fixture) {
    let room = &fixture.room;
    for _ in 0..20 {
        put(room, Queue::Outbox, "a", "").await;
        put(room, Queue::Inbox, "a", "").await;
    }
    let seen = watch::Sender::new(Vec::<Queue>::new());
    let begun = seen.clone();
    let note = move |delivery: Delivery| {
        let (queue, mut looks) = (delivery.queue(), begun.subscribe());
        begun.send_modify(|seen| seen.push(queue));
        async move {
            let both = |seen: &Vec<Queue>| QUEUES.iter().all(|queue| seen.contains(queue));
            drop(looks.wait_for(both).await);
        }
    };
    let running = room
        .dispatcher()
        .on("a", note.clone())
        .on_inbound("a", note)
        .concurrency(2)
        .start()
        .unwrap();
    eventually(|| async { (running.report().done == 40).then_some(()) }).await;
    assert_eq!(running.stop().await.done, 40);
    let seen = seen.borrow().clone();
    let first: BTreeSet<&str> = seen[..3].iter().map(|queue| queue.name()).collect();
    assert_eq!(first.len(), 2, "neither waits for the other: {seen:?}");
}

/// Shows OBX-118, DEEP-19. Many messages, few round trips: results gather, and a claim goes along.
async fn results_are_settled_in_batches_together_with_claims(fixture: Fixture) {
    const MESSAGES: u64 = 500;
    for queue in QUEUES {
        let (_, _, counters) = on_one_thread(&fixture, move |room, _| async move {
            for _ in 0..MESSAGES {
                put(&room, queue, "a", "").await;
            }
            let running = dispatcher(&room, queue, "a", |_: Delivery| async {})
                .start()
                .unwrap();
            eventually(|| async { (running.report().done == MESSAGES).then_some(()) }).await;
            running.stop().await;
        })
        .await;
        let turns = counters.of("postroom_operation_seconds", "operation=turn");
        let claimed = counters.of("postroom_claimed_total", queue.name());
        assert_eq!(claimed, MESSAGES, "{queue:?}");
        assert!(
            turns > 0 && turns < MESSAGES / 4,
            "{queue:?}: {turns} turns"
        );
        assert_eq!(
            counters.of("postroom_operation_seconds", "operation=ack"),
            0
        );
    }
}

/// One handler hangs; a hundred messages pass it by.
async fn a_slow_handler_holds_up_nobody_else(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let slow = put(room, queue, "a", "slow").await;
        for _ in 0..100 {
            put(room, queue, "a", "").await;
        }
        let release = Arc::new(Notify::new());
        let hold = Arc::clone(&release);
        let running = dispatcher(room, queue, "a", move |delivery: Delivery| {
            let hold = Arc::clone(&hold);
            async move {
                if delivery.payload() == "slow" {
                    hold.notified().await;
                }
            }
        })
        .concurrency(4)
        .batch(8)
        .start()
        .unwrap();
        eventually(|| async { (running.report().done == 100).then_some(()) }).await;
        assert_eq!(slow.state(room).await, State::InFlight, "{queue:?}");
        release.notify_one();
        eventually(|| async { (running.report().done == 101).then_some(()) }).await;
        running.stop().await;
    }
}

/// The same for handlers whose ack goes with their own transaction: nothing is left to settle in a turn.
async fn a_slow_handler_holds_up_no_transactional_one(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        put(room, queue, "a", "slow").await;
        for _ in 0..40 {
            put(room, queue, "a", "").await;
        }
        let release = Arc::new(Notify::new());
        let hold = Arc::clone(&release);
        let running = dispatcher(room, queue, "a", move |delivery: Delivery, mut tx: Tx| {
            let hold = Arc::clone(&hold);
            async move {
                if delivery.payload() == "slow" {
                    hold.notified().await;
                }
                tx.execute("SELECT 1", vec![]).await?;
                done()
            }
        })
        .concurrency(4)
        .start()
        .unwrap();
        eventually(|| async { (running.report().done == 40).then_some(()) }).await;
        release.notify_one();
        eventually(|| async { (running.report().done == 41).then_some(()) }).await;
        running.stop().await;
    }
}

/// A claim takes less than there is room for: the rest is claimed at once, not when a handler ends.
async fn all_handlers_are_kept_busy(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for _ in 0..9 {
            put(room, queue, "a", "").await;
        }
        let release = Arc::new(tokio::sync::Semaphore::new(0));
        let hold = Arc::clone(&release);
        let running = dispatcher(room, queue, "a", move |_: Delivery| {
            let hold = Arc::clone(&hold);
            async move { drop(hold.acquire().await) }
        })
        .concurrency(7)
        .batch(3)
        .start()
        .unwrap();
        eventually(|| async { (running.running() == 7).then_some(()) }).await;
        release.add_permits(100);
        eventually(|| async { (running.report().done == 9).then_some(()) }).await;
        running.stop().await;
    }
}

/// Shows HDT-14. One batch, and no more.
async fn run_once_handles_one_batch(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for number in 0..7 {
            put(room, queue, "a", &number.to_string()).await;
        }
        let order: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&order);
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery| {
            seen.lock().unwrap().push(delivery.payload().to_owned());
            async move {
                if delivery.payload() == "1" {
                    return Err(HandlerError::business("one of many"));
                }
                done()
            }
        })
        .batch(4)
        .concurrency(1);
        let report = dispatcher.run_once().await.unwrap();
        assert_eq!((report.done, report.retried), (3, 1), "{queue:?}");
        assert_eq!(*order.lock().unwrap(), ["0", "1", "2", "3"], "oldest first");
        assert_eq!(dispatcher.run_once().await.unwrap().done, 3, "{queue:?}");
        assert_eq!(dispatcher.run_once().await.unwrap().handled(), 0);
    }
}

/// What handlers enqueue, in either queue, is drained too.
async fn drain_handles_what_follows(fixture: Fixture) {
    let room = &fixture.room;
    put(room, Queue::Outbox, "countdown", "5").await;
    let dispatcher = room
        .dispatcher()
        .on("countdown", |delivery: Delivery| async move {
            let left: u32 = delivery.payload().parse()?;
            if left == 0 {
                let inbound = postroom::Inbound::new("countdown", "1", "liftoff", "");
                delivery.room().inbox().enqueue(&inbound).await?;
                return done();
            }
            let next = Message::new("countdown", (left - 1).to_string());
            Ok(Outcome::enqueue([next]))
        })
        .on_inbound("liftoff", |_: Delivery| async {
            Outcome::enqueue([Message::new("countdown", "0")])
        });
    // The second liftoff is the same inbound message, and done before.
    assert_eq!(dispatcher.drain().await.unwrap().done, 6 + 1 + 1);
    assert_eq!(room.outbox().counts().await.unwrap().done, 7);
}

/// Three dispatchers on one store object, and two more on another.
async fn several_dispatchers_share_a_store(fixture: Fixture) {
    for queue in QUEUES {
        for _ in 0..60 {
            put(&fixture.room, queue, "a", "").await;
        }
        let other = fixture.again().await;
        let runs = Arc::new(AtomicUsize::new(0));
        let rooms = [&fixture.room, &fixture.room, &fixture.room, &other, &other];
        let running: Vec<_> = rooms
            .into_iter()
            .map(|room| {
                let runs = Arc::clone(&runs);
                dispatcher(room, queue, "a", move |_: Delivery| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    async {}
                })
                .batch(3)
                .start()
                .unwrap()
            })
            .collect();
        eventually(|| async {
            let done: u64 = running.iter().map(|one| one.report().done).sum();
            (done == 60).then_some(())
        })
        .await;
        for one in running {
            assert_eq!(one.stop().await.lost, 0, "{queue:?}");
        }
        assert_eq!(runs.load(Ordering::SeqCst), 60, "each once");
    }
}

testkit::mount!(
    both_queues_are_worked_at_once,
    results_are_settled_in_batches_together_with_claims,
    a_slow_handler_holds_up_nobody_else,
    a_slow_handler_holds_up_no_transactional_one,
    all_handlers_are_kept_busy,
    run_once_handles_one_batch,
    drain_handles_what_follows,
    several_dispatchers_share_a_store,
);
