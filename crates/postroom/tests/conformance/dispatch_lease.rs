//! Leases: they renew by themselves whatever else is busy, and whoever loses one is stopped.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use postroom::{Delivery, HandlerError, OwnerToken, Postroom, Queue, Running, State, Tx, done};
use testkit::{Backend, Fixture, eventually};
use tokio::sync::{Notify, Semaphore};

use crate::dispatch_scene::{
    Put, QUEUES, SHORT_LEASE, dispatcher, in_both_queues, outlive_leases, put, steal,
};

/// Does nothing until it is released, and says whether it was dropped before that.
async fn dawdle(release: Arc<Semaphore>, cancelled: Arc<AtomicUsize>) {
    let mut here = Here(Some(cancelled));
    drop(release.acquire().await);
    here.0 = None;
}

struct Here(Option<Arc<AtomicUsize>>);

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(cancelled) = &self.0 {
            cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Every message was delivered once, and is done.
async fn assert_delivered_once(room: &Postroom, messages: &[Put]) {
    for message in messages {
        let (state, progress) = message.look(room).await;
        assert_eq!(state, State::Done);
        // The inbox forgets how often a done message was delivered.
        if matches!(message, Put::Outbox(_)) {
            assert_eq!(progress.delivery_count, 1, "{message:?}");
        }
    }
}

/// Somebody who would take any message whose lease has expired.
struct Vulture {
    room: Postroom,
    queue: Queue,
    /// The payloads of what it has taken.
    taken: Arc<Mutex<Vec<String>>>,
    running: Running,
}

impl Vulture {
    async fn arrive(fixture: &Fixture, queue: Queue) -> Self {
        let room = fixture.again().await;
        let taken: Arc<Mutex<Vec<String>>> = Arc::default();
        let takes = Arc::clone(&taken);
        let dispatcher = dispatcher(&room, queue, "a", move |delivery: Delivery| {
            takes.lock().unwrap().push(delivery.payload().to_owned());
            async {}
        });
        let interval = Duration::from_millis(20);
        let running = dispatcher.poll_interval(interval).start().unwrap();
        Self {
            room,
            queue,
            taken,
            running,
        }
    }

    /// Lets it find a message that nobody holds: by then it has looked at all the others too.
    async fn take_the_bait(&self) {
        put(&self.room, self.queue, "a", "bait").await;
        eventually(|| async { (!self.taken().is_empty()).then_some(()) }).await;
    }

    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }
}

async fn a_handler_may_take_longer_than_its_lease(fixture: Fixture) {
    let room = &fixture.room;
    in_both_queues(async |queue| {
        let mut messages = Vec::new();
        for _ in 0..4 {
            messages.push(put(room, queue, "a", "").await);
        }
        let (release, cancelled) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let (hold, count) = (Arc::clone(&release), Arc::clone(&cancelled));
        let running = dispatcher(room, queue, "a", move |_: Delivery| {
            dawdle(Arc::clone(&hold), Arc::clone(&count))
        })
        .lease(SHORT_LEASE)
        .concurrency(messages.len())
        .start()
        .unwrap();
        eventually(|| async { (running.running() == 4).then_some(()) }).await;
        let vulture = Vulture::arrive(&fixture, queue).await;
        outlive_leases(&fixture, queue, "true").await;
        vulture.take_the_bait().await;
        release.add_permits(100);
        eventually(|| async { (running.report().done == 4).then_some(()) }).await;
        assert_eq!(vulture.taken(), ["bait"], "{queue:?}");
        vulture.running.stop().await;
        let report = running.stop().await;
        assert_eq!((report.done, report.lost), (4, 0), "{queue:?}");
        assert_eq!(cancelled.load(Ordering::SeqCst), 0, "{queue:?}");
        assert_delivered_once(room, &messages).await;
    })
    .await;
}

/// Handlers hold the only connection of the pool in their transactions, and others wait for it.
async fn a_busy_pool_does_not_hold_up_renewals(fixture: Fixture) {
    let room = fixture.options().connections(1).connect().await.unwrap();
    let mut messages = Vec::new();
    for _ in 0..3 {
        messages.push(put(&room, Queue::Outbox, "a", "").await);
    }
    let release = Arc::new(Semaphore::new(0));
    let hold = Arc::clone(&release);
    let running = room
        .dispatcher()
        .on("a", move |_: Delivery, mut tx: Tx| {
            let hold = Arc::clone(&hold);
            async move {
                tx.execute("SELECT 1", vec![]).await?;
                drop(hold.acquire().await);
                tx.execute("SELECT 1", vec![]).await?;
                done()
            }
        })
        .lease(SHORT_LEASE)
        .concurrency(messages.len())
        .start()
        .unwrap();
    eventually(|| async { (running.running() == 3).then_some(()) }).await;
    let vulture = Vulture::arrive(&fixture, Queue::Outbox).await;
    outlive_leases(&fixture, Queue::Outbox, "true").await;
    vulture.take_the_bait().await;
    release.add_permits(100);
    eventually(|| async { (running.report().done == 3).then_some(()) }).await;
    assert_eq!(vulture.taken(), ["bait"]);
    vulture.running.stop().await;
    let report = running.stop().await;
    assert_eq!((report.done, report.lost), (3, 0));
    assert_delivered_once(&room, &messages).await;
}

/// Handlers block every thread of the runtime for longer than the lease.
async fn blocked_threads_do_not_hold_up_renewals(fixture: Fixture) {
    let mut messages = Vec::new();
    for _ in 0..2 {
        messages.push(put(&fixture.room, Queue::Outbox, "a", "").await);
    }
    let options = fixture.options();
    let began = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&began);
    // Nothing is ever sent: handlers wait until the other end is dropped.
    let (release, hold) = mpsc::channel::<()>();
    let hold = Arc::new(Mutex::new(hold));
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let room = options.connect().await.unwrap();
            let dispatcher = room.dispatcher().on("a", move |_: Delivery| {
                let (begun, hold) = (Arc::clone(&begun), Arc::clone(&hold));
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _ = hold.lock().unwrap().recv();
                }
            });
            dispatcher.lease(SHORT_LEASE).drain().await.unwrap()
        })
    });
    eventually(|| async { (began.load(Ordering::SeqCst) == 1).then_some(()) }).await;
    let vulture = Vulture::arrive(&fixture, Queue::Outbox).await;
    outlive_leases(&fixture, Queue::Outbox, "true").await;
    vulture.take_the_bait().await;
    drop(release);
    let report = tokio::task::spawn_blocking(|| blocked.join().unwrap());
    let report = report.await.unwrap();
    assert_eq!(vulture.taken(), ["bait"]);
    vulture.running.stop().await;
    assert_eq!((report.done, report.lost), (2, 0));
    assert_delivered_once(&fixture.room, &messages).await;
}

/// A handler acks early in a transaction of its own and takes its time to commit. The row is locked
/// meanwhile, and the leases of others must be renewed all the same.
async fn an_ack_that_is_not_committed_yet_does_not_hold_up_renewals(fixture: Fixture) {
    let room = &fixture.room;
    let mut messages = Vec::new();
    for topic in ["acks", "waits", "waits"] {
        messages.push(put(room, Queue::Outbox, topic, "").await);
    }
    let (release, cancelled) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let acked = Arc::new(Notify::new());
    let (hold, count) = (Arc::clone(&release), Arc::clone(&cancelled));
    let (late, counted) = (Arc::clone(&release), Arc::clone(&cancelled));
    let (own, tell) = (fixture.clone(), Arc::clone(&acked));
    let running = room
        .dispatcher()
        .on("waits", move |_: Delivery| {
            dawdle(Arc::clone(&hold), Arc::clone(&count))
        })
        .on("acks", move |delivery: Delivery| {
            let (late, counted) = (Arc::clone(&late), Arc::clone(&counted));
            let (own, tell) = (own.clone(), Arc::clone(&tell));
            async move {
                if own.backend == Backend::MySql {
                    let mut connection = own.mysql().await;
                    let mut transaction = testkit::mysql::begin(&mut connection).await;
                    delivery.ack_in(&mut transaction).await?;
                    tell.notify_one();
                    dawdle(late, counted).await;
                    transaction.commit().await?;
                    return done();
                }
                let mut client = own.postgres().await;
                let mut transaction = client.transaction().await?;
                delivery.ack_in(&mut transaction).await?;
                tell.notify_one();
                dawdle(late, counted).await;
                transaction.commit().await?;
                done()
            }
        })
        .lease(SHORT_LEASE)
        .start()
        .unwrap();
    acked.notified().await;
    eventually(|| async { (running.running() == 3).then_some(()) }).await;
    outlive_leases(&fixture, Queue::Outbox, "topic = 'waits'").await;
    release.add_permits(100);
    eventually(|| async { (running.report().done == 3).then_some(()) }).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.lost), (3, 0));
    assert_eq!(cancelled.load(Ordering::SeqCst), 0);
    assert_delivered_once(room, &messages).await;
}

/// Shows OBX-057, IBX-076, C-18. Somebody else has the message: the handler is dropped, its token told,
/// and the thief's lease is untouched.
async fn a_handler_whose_lease_is_lost_is_cancelled(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let cancelled = Arc::new(AtomicUsize::new(0));
        let told = Arc::new(Notify::new());
        let began = Arc::new(Notify::new());
        let (count, tell, begin) = (cancelled.clone(), told.clone(), began.clone());
        let running = dispatcher(room, queue, "a", move |delivery: Delivery| {
            let (count, tell, begin) = (count.clone(), tell.clone(), begin.clone());
            async move {
                let outside = delivery.clone();
                tokio::spawn(async move {
                    outside.cancelled().await;
                    tell.notify_one();
                });
                let _here = Here(Some(count));
                begin.notify_one();
                std::future::pending::<()>().await;
            }
        })
        .lease(SHORT_LEASE)
        .poll_interval(Duration::from_secs(3600))
        .listen(false)
        .start()
        .unwrap();
        began.notified().await;
        let thief = steal(&fixture, queue).await;

        told.notified().await;
        eventually(|| async { (cancelled.load(Ordering::SeqCst) == 1).then_some(()) }).await;
        eventually(|| async { (running.report().lost == 1).then_some(()) }).await;
        let report = running.stop().await;

        assert_eq!((report.lost, report.handled(), report.released), (1, 0, 0));
        let (state, progress) = message.look(room).await;
        assert_eq!(state, State::InFlight, "{queue:?}");
        assert_eq!(progress.owner_token, Some(thief), "{queue:?}");
        assert_eq!(progress.attempt_count, 0, "{queue:?}");
    }
}

/// Shows C-18, C-19. The handler ends after its message was claimed again: its late ack is refused, by the
/// token of the batch, in the same process too.
async fn a_late_ack_is_refused(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let robbed = fixture.clone();
        let stolen: Arc<Mutex<Option<OwnerToken>>> = Arc::default();
        let slot = Arc::clone(&stolen);
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery| {
            let (robbed, slot) = (robbed.clone(), Arc::clone(&slot));
            async move {
                let thief = steal(&robbed, queue).await;
                *slot.lock().unwrap() = Some(thief);
            }
        });

        let report = dispatcher.run_once().await.unwrap();

        let thief = stolen.lock().unwrap().unwrap();
        assert_eq!((report.done, report.lost), (0, 1), "{queue:?}");
        let (state, progress) = message.look(room).await;
        assert_eq!(state, State::InFlight, "{queue:?}");
        assert_eq!(progress.owner_token, Some(thief), "{queue:?}");
    }
}

/// Shows C-18. Nobody else has claimed it: the token is still its owner's, and the ack is taken.
async fn an_ack_after_the_lease_is_taken_when_nobody_else_came(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let late = fixture.clone();
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery| {
            let late = late.clone();
            async move { late.expire_leases().await }
        });
        let report = dispatcher.run_once().await.unwrap();
        assert_eq!((report.done, report.lost), (1, 0), "{queue:?}");
        assert_eq!(message.state(room).await, State::Done, "{queue:?}");
    }
}

/// Shows C-19.
async fn every_batch_has_a_token_of_its_own(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let tokens: Arc<Mutex<Vec<OwnerToken>>> = Arc::default();
        let seen = Arc::clone(&tokens);
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery| {
            seen.lock().unwrap().push(delivery.owner());
            async {}
        });
        for _ in 0..3 {
            put(room, queue, "a", "").await;
            put(room, queue, "a", "").await;
            assert_eq!(dispatcher.run_once().await.unwrap().done, 2);
        }
        let tokens = tokens.lock().unwrap().clone();
        let different: HashSet<_> = tokens.iter().copied().collect();
        assert_eq!((tokens.len(), different.len()), (6, 3), "{queue:?}");
        for pair in tokens.chunks(2) {
            assert_eq!(pair[0], pair[1], "one batch");
        }
    }
}

/// Messages were fetched ahead while handlers were quick; then one hangs. What waits behind it goes to
/// somebody who is free.
async fn what_waits_for_a_handler_that_hangs_goes_to_others(fixture: Fixture) {
    let room = &fixture.room;
    for _ in 0..300 {
        put(room, Queue::Outbox, "a", "quick").await;
    }
    let release = Arc::new(Notify::new());
    let (hold, quick) = (Arc::clone(&release), Arc::new(AtomicUsize::new(0)));
    let done_quickly = Arc::clone(&quick);
    let running = room
        .dispatcher()
        .on("a", move |_: Delivery| {
            let (hold, quick) = (Arc::clone(&hold), Arc::clone(&quick));
            async move {
                // Long enough to be far ahead: the next one hangs.
                if quick.fetch_add(1, Ordering::SeqCst) >= 100 {
                    hold.notified().await;
                }
            }
        })
        .concurrency(1)
        .lease(SHORT_LEASE)
        .start()
        .unwrap();
    eventually(|| async { (done_quickly.load(Ordering::SeqCst) > 100).then_some(()) }).await;

    let helper = Vulture::arrive(&fixture, Queue::Outbox).await;
    eventually(|| async {
        let done = room.outbox().counts().await.unwrap().done;
        (done == 299).then_some(())
    })
    .await;
    assert!(!helper.taken().is_empty());
    assert_eq!(running.running(), 1, "it still hangs");
    release.notify_one();
    let report = running.stop().await;
    let helped = helper.running.stop().await;
    assert_eq!(report.done + helped.done, 300);
    assert_eq!((report.lost, report.retried), (0, 0));
}

/// Shows C-22. A worker dies again and again with a message in its hands: after so many deliveries it
/// is given up unhandled.
async fn a_message_that_never_gets_an_outcome_is_given_up(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        for _ in 0..3 {
            // A worker that claims it and is never heard of again.
            let (owner, lease) = (OwnerToken::new(), Duration::from_secs(300));
            match queue {
                Queue::Outbox => drop(room.outbox().claim(owner, lease, 1).await.unwrap()),
                Queue::Inbox => drop(room.inbox().claim(owner, lease, 1).await.unwrap()),
            }
            fixture.expire_leases().await;
        }
        let runs = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&runs);
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery| {
            count.fetch_add(1, Ordering::SeqCst);
            async {}
        });

        let report = dispatcher.max_deliveries(3).drain().await.unwrap();

        assert_eq!((report.dead, report.done), (1, 0), "{queue:?}");
        assert_eq!(runs.load(Ordering::SeqCst), 0, "{queue:?}");
        let error = message.error(room).await;
        assert!(error.contains("Delivered 3 times"), "{error}");
    }
}

/// Shows C-22. Attempts that had an outcome do not count, and without a limit nothing is given up.
async fn deliveries_with_an_outcome_do_not_count(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let failing = dispatcher(room, queue, "a", |_: Delivery| async {
            Err::<(), _>(HandlerError::infrastructure("away"))
        })
        .max_deliveries(2);
        for round in 0..6 {
            assert_eq!(failing.drain().await.unwrap().retried, 1, "round {round}");
            fixture.skip_backoff().await;
        }
        let (_, progress) = message.look(room).await;
        assert_eq!((progress.delivery_count, progress.attempt_count), (6, 6));
        let fine = dispatcher(room, queue, "a", |_: Delivery| async {}).max_deliveries(2);
        assert_eq!(fine.drain().await.unwrap().done, 1);
    }
}

/// Shows C-22. Ten messages were in flight at every crash, and one of them is to blame. Each gets its last
/// chance alone, so nine are done.
async fn the_last_chance_of_a_message_is_alone_among_its_like(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let mut messages = Vec::new();
        for _ in 0..10 {
            messages.push(put(room, queue, "a", "").await);
        }
        for _ in 0..2 {
            let (owner, lease) = (OwnerToken::new(), Duration::from_secs(300));
            let claimed = match queue {
                Queue::Outbox => room.outbox().claim(owner, lease, 10).await.unwrap().len(),
                Queue::Inbox => room.inbox().claim(owner, lease, 10).await.unwrap().len(),
            };
            assert_eq!(claimed, 10);
            fixture.expire_leases().await;
        }
        // A new one is no suspect, and need not wait.
        messages.push(put(room, queue, "a", "").await);
        let table = match queue {
            Queue::Outbox => "outbox",
            Queue::Inbox => "inbox",
        };
        let look = fixture.clone();
        let blamed: Arc<Mutex<Vec<i64>>> = Arc::default();
        let seen = Arc::clone(&blamed);
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery| {
            let (look, seen) = (look.clone(), Arc::clone(&seen));
            async move {
                if delivery.progress().delivery_count == 3 {
                    // What would be blamed if the process died now.
                    let sql = format!("SELECT count(*) FROM {{{table}}} WHERE delivery_count >= 3");
                    let blamed = look.number(&sql).await;
                    seen.lock().unwrap().push(blamed);
                }
            }
        })
        .max_deliveries(3);

        if queue == Queue::Outbox {
            assert_eq!(dispatcher.drain().await.unwrap().done, 11);
        } else {
            let running = dispatcher.start().unwrap();
            eventually(|| async { (running.report().done == 11).then_some(()) }).await;
            running.stop().await;
        }

        assert_eq!(*blamed.lock().unwrap(), [1; 10], "{queue:?}");
        for message in &messages {
            assert_eq!(message.state(room).await, State::Done, "{queue:?}");
        }
    }
}

testkit::mount!(
    sqlite:
    a_handler_may_take_longer_than_its_lease,
    blocked_threads_do_not_hold_up_renewals,
    a_handler_whose_lease_is_lost_is_cancelled,
    a_late_ack_is_refused,
    an_ack_after_the_lease_is_taken_when_nobody_else_came,
    every_batch_has_a_token_of_its_own,
    what_waits_for_a_handler_that_hangs_goes_to_others,
    a_message_that_never_gets_an_outcome_is_given_up,
    deliveries_with_an_outcome_do_not_count,
    the_last_chance_of_a_message_is_alone_among_its_like;
    postgres:
    a_handler_may_take_longer_than_its_lease,
    a_busy_pool_does_not_hold_up_renewals,
    blocked_threads_do_not_hold_up_renewals,
    an_ack_that_is_not_committed_yet_does_not_hold_up_renewals,
    a_handler_whose_lease_is_lost_is_cancelled,
    a_late_ack_is_refused,
    an_ack_after_the_lease_is_taken_when_nobody_else_came,
    every_batch_has_a_token_of_its_own,
    what_waits_for_a_handler_that_hangs_goes_to_others,
    a_message_that_never_gets_an_outcome_is_given_up,
    deliveries_with_an_outcome_do_not_count,
    the_last_chance_of_a_message_is_alone_among_its_like;
    mysql:
    a_handler_may_take_longer_than_its_lease,
    a_busy_pool_does_not_hold_up_renewals,
    blocked_threads_do_not_hold_up_renewals,
    an_ack_that_is_not_committed_yet_does_not_hold_up_renewals,
    a_handler_whose_lease_is_lost_is_cancelled,
    a_late_ack_is_refused,
    an_ack_after_the_lease_is_taken_when_nobody_else_came,
    every_batch_has_a_token_of_its_own,
    what_waits_for_a_handler_that_hangs_goes_to_others,
    a_message_that_never_gets_an_outcome_is_given_up,
    deliveries_with_an_outcome_do_not_count,
    the_last_chance_of_a_message_is_alone_among_its_like,
);
