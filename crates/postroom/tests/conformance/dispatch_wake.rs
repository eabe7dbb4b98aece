//! How a dispatcher that has nothing to do learns that there is something, and how often it looks by
//! itself.

use std::time::{Duration, Instant};

use postroom::{
    Delivery, Dispatcher, Inbound, JoinWait, Message, NewJoin, Outcome, Postroom, Queue, Running,
};
use testkit::{Backend, Fixture, eventually};
use tracing::Level;

use crate::dispatch_scene::{Counters, QUEUES, dispatcher, in_both_queues, on, on_one_thread, put};

/// So rarely does it look by itself that whatever is found was announced.
const HARDLY_EVER: Duration = Duration::from_secs(3600);

/// How long a dispatcher has to sleep between two looks before it counts as asleep: longer from one try to
/// the next, for a machine that was too busy.
const NAPS: [Duration; 4] = [
    Duration::from_millis(600),
    Duration::from_millis(1200),
    Duration::from_millis(2400),
    Duration::from_millis(4800),
];

/// A store with a thread of its own, where the looks of a dispatcher can be counted.
struct Place {
    fixture: Fixture,
    room: Postroom,
    counters: Counters,
}

/// Runs work in a store of its own: on SQLite, whoever listens hears of every commit there.
async fn alone<F: Future<Output = ()>>(
    backend: Backend,
    work: impl FnOnce(Place) -> F + Send + 'static,
) {
    let fixture = Fixture::new(backend).await;
    let behind = fixture.clone();
    on_one_thread(&fixture, move |room, counters| {
        work(Place {
            fixture: behind,
            room,
            counters,
        })
    })
    .await;
}

impl Place {
    /// How often a dispatcher has looked.
    fn looks(&self) -> u64 {
        let name = "postroom_operation_seconds";
        self.counters.of(name, "operation=turn")
    }

    /// Waits until a dispatcher that finds nothing has slept for so long between two looks. It sleeps longer
    /// every time, so the next look that nobody calls for is not before the time that this gives back.
    async fn asleep(&self, nap: Duration) -> Instant {
        let mut looks = self.looks();
        let mut since = Instant::now();
        let mut until = since;
        eventually(|| {
            let now = Instant::now();
            let seen = self.looks();
            if seen == looks {
                until = now;
                return std::future::ready(None);
            }
            // Two looks at once: somebody has called.
            let fell_asleep = (seen == looks + 1 && until - since >= nap).then_some(until + nap);
            (looks, since) = (seen, Instant::now());
            until = since;
            std::future::ready(fell_asleep)
        })
        .await
    }

    /// Whether what `act` lets happen is found before the dispatcher would have looked by itself.
    async fn is_woken(&self, running: &Running, nap: Duration, act: impl AsyncFnOnce()) -> bool {
        let done = running.report().done;
        let next_look = self.asleep(nap).await;
        act().await;
        handled(running, done + 1).await;
        Instant::now() < next_look
    }

    /// Whose doing wakes: this process's, and another's where one can listen for it.
    fn callers<'a>(&'a self, other: &'a Postroom) -> Vec<&'a Postroom> {
        match self.fixture.backend {
            Backend::MySql | Backend::SqlServer => vec![&self.room],
            Backend::Sqlite | Backend::Postgres => vec![&self.room, other],
        }
    }

    /// That is so, one time at least: the machine may be busy.
    async fn assert_wakes(&self, running: &Running, act: impl AsyncFn()) {
        for nap in NAPS {
            if self.is_woken(running, nap, &act).await {
                return;
            }
        }
        panic!("nobody was woken");
    }
}

fn sleepy(dispatcher: Dispatcher) -> Running {
    dispatcher.poll_interval(HARDLY_EVER).start().unwrap()
}

async fn handled(running: &Running, count: u64) {
    eventually(|| async { (running.report().done >= count).then_some(()) }).await;
}

/// Enqueued through the same store object, without any listening.
async fn an_enqueue_in_the_same_process_wakes(fixture: Fixture) {
    in_both_queues(async |queue| {
        alone(fixture.backend, move |place| async move {
            let room = &place.room;
            let dispatcher = dispatcher(room, queue, "a", |_: Delivery| async {});
            let running = sleepy(dispatcher.listen(false));
            let enqueue = async || drop(put(room, queue, "a", "").await);
            place.assert_wakes(&running, enqueue).await;
            running.stop().await;
        })
        .await;
    })
    .await;
}

/// Enqueued through another store object, as another process does. MySQL and SQL Server have nothing to tell it by.
async fn an_enqueue_elsewhere_wakes(fixture: Fixture) {
    in_both_queues(async |queue| {
        alone(fixture.backend, move |place| async move {
            let other = place.fixture.again().await;
            let running = sleepy(dispatcher(&place.room, queue, "a", |_: Delivery| async {}));
            let enqueue = async || drop(put(&other, queue, "a", "").await);
            place.assert_wakes(&running, enqueue).await;
            running.stop().await;
        })
        .await;
    })
    .await;
}

/// Written in a caller's transaction: found when that commits, through the same store and through another.
async fn the_commit_of_a_callers_transaction_wakes(fixture: Fixture) {
    in_both_queues(async |queue| {
        alone(fixture.backend, move |place| async move {
            let other = place.fixture.again().await;
            for room in place.callers(&other) {
                let running = sleepy(dispatcher(&place.room, queue, "a", |_: Delivery| async {}));
                let enqueue = async || enqueue_and_commit(&place, room, queue, &running).await;
                place.assert_wakes(&running, enqueue).await;
                running.stop().await;
            }
        })
        .await;
    })
    .await;
}

/// Enqueues in a transaction that commits a little later, and makes sure that nobody was too early.
async fn enqueue_and_commit(place: &Place, room: &Postroom, queue: Queue, running: &Running) {
    let before = (running.report().done, place.looks());
    let message = Message::new("a", "");
    let inbound = Inbound::new("tester", postroom::MessageId::new().to_string(), "a", "");
    let (outbox, inbox) = (room.outbox(), room.inbox());
    match place.fixture.backend {
        Backend::Sqlite => {
            let mut connection = place.fixture.sqlite();
            let mut tx = connection.transaction().unwrap();
            match queue {
                Queue::Outbox => {
                    postroom::tx::now(outbox.enqueue_in(&mut tx, &message)).unwrap();
                }
                Queue::Inbox => {
                    postroom::tx::now(inbox.enqueue_in(&mut tx, &inbound)).unwrap();
                }
            }
            // A look would wait for the commit: there is one writer.
            assert_eq!(running.report().done, before.0, "before the commit");
            tx.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = place.fixture.postgres().await;
            let mut tx = client.transaction().await.unwrap();
            match queue {
                Queue::Outbox => {
                    outbox.enqueue_in(&mut tx, &message).await.unwrap();
                }
                Queue::Inbox => {
                    inbox.enqueue_in(&mut tx, &inbound).await.unwrap();
                }
            }
            if std::ptr::eq(room, &raw const place.room) {
                // It was told that something will come, and has looked for it in vain.
                eventually(|| async { (place.looks() > before.1).then_some(()) }).await;
            }
            assert_eq!(running.report().done, before.0, "before the commit");
            tx.commit().await.unwrap();
        }
        Backend::MySql => {
            let mut client = place.fixture.mysql().await;
            let mut tx = testkit::mysql::begin(&mut client).await;
            match queue {
                Queue::Outbox => {
                    outbox.enqueue_in(&mut tx, &message).await.unwrap();
                }
                Queue::Inbox => {
                    inbox.enqueue_in(&mut tx, &inbound).await.unwrap();
                }
            }
            if std::ptr::eq(room, &raw const place.room) {
                // It was told that something will come, and has looked for it in vain.
                eventually(|| async { (place.looks() > before.1).then_some(()) }).await;
            }
            assert_eq!(running.report().done, before.0, "before the commit");
            tx.commit().await.unwrap();
        }
        Backend::SqlServer => {
            let mut tx = place.fixture.sqlserver().await;
            tx.begin_transaction().await.unwrap();
            match queue {
                Queue::Outbox => {
                    outbox.enqueue_in(&mut tx, &message).await.unwrap();
                }
                Queue::Inbox => {
                    inbox.enqueue_in(&mut tx, &inbound).await.unwrap();
                }
            }
            if std::ptr::eq(room, &raw const place.room) {
                // It was told that something will come, and has looked for it in vain.
                eventually(|| async { (place.looks() > before.1).then_some(()) }).await;
            }
            assert_eq!(running.report().done, before.0, "before the commit");
            tx.commit_transaction().await.unwrap();
        }
    }
}

/// A chain of messages, each from the handler of the one before.
async fn what_a_handler_enqueues_is_handled_in_its_turn(fixture: Fixture) {
    let room = &fixture.room;
    let running = sleepy(room.dispatcher().on("a", |delivery: Delivery| async move {
        let left: u32 = delivery.payload().parse().unwrap();
        Outcome::enqueue((left > 0).then(|| Message::new("a", (left - 1).to_string())))
    }));
    put(room, Queue::Outbox, "a", "9").await;
    handled(&running, 10).await;
    running.stop().await;
}

/// Shows C-11. Nobody polls: a join that somebody completes by hand, here or elsewhere, lets go at once.
async fn the_end_of_a_join_wakes_who_waits_for_it(fixture: Fixture) {
    alone(fixture.backend, |place| async move {
        let other = place.fixture.again().await;
        for room in place.callers(&other) {
            let dispatcher = place.room.dispatcher();
            let running = sleepy(dispatcher.on("next", |_: Delivery| async {}));
            let joins = room.joins();
            let mut woken = false;
            for nap in NAPS {
                let join = joins.start(&NewJoin::new(1)).await.unwrap();
                let step = postroom::MessageId::new();
                joins.attach(join, step).await.unwrap();
                let wait = JoinWait::new(join, "next", "");
                let deferred = running.report().not_ready;
                joins.enqueue_wait(&wait).await.unwrap();
                eventually(|| async { (running.report().not_ready > deferred).then_some(()) })
                    .await;
                // It has looked, and its backoff is longer than this test has patience.
                let late = place.fixture.clock().await + 600_000_000;
                let late = place.fixture.time(late);
                let sql = format!("UPDATE {{outbox}} SET next_attempt_at = {late}");
                place.fixture.sql(&sql).await;
                let complete = async || joins.report_completed(join, step).await.map(drop).unwrap();
                woken = place.is_woken(&running, nap, complete).await;
                if woken {
                    break;
                }
            }
            assert!(woken, "nobody was woken");
            running.stop().await;
        }
    })
    .await;
}

/// A message that waits for a join is announced like any other.
async fn the_beginning_of_a_wait_wakes(fixture: Fixture) {
    alone(fixture.backend, |place| async move {
        let other = place.fixture.again().await;
        for room in place.callers(&other) {
            let dispatcher = place.room.dispatcher();
            let running = sleepy(dispatcher.on("next", |_: Delivery| async {}));
            let joins = room.joins();
            let join = joins.start(&NewJoin::new(1)).await.unwrap();
            assert!(joins.cancel(join).await.unwrap());
            let enqueue = async || {
                let wait = JoinWait::new(join, "next", "");
                joins.enqueue_wait(&wait).await.unwrap();
            };
            place.assert_wakes(&running, enqueue).await;
            running.stop().await;
        }
    })
    .await;
}

/// Nobody can listen: not wanted, or behind a pooler. Polling finds it.
async fn without_listening_messages_are_found_by_polling(fixture: Fixture) {
    let other = fixture.again().await;
    let pooled = fixture.options().prepared_statements(false).connect().await;
    let pooled = pooled.unwrap();
    for queue in QUEUES {
        let interval = Duration::from_millis(100);
        for dispatcher in [
            dispatcher(&fixture.room, queue, "a", |_: Delivery| async {}).listen(false),
            dispatcher(&pooled, queue, "a", |_: Delivery| async {}),
        ] {
            let running = dispatcher.poll_interval(interval).start().unwrap();
            put(&other, queue, "a", "").await;
            handled(&running, 1).await;
            running.stop().await;
        }
    }
}

/// The control of these tests: it was listening, where it is on, that found what was enqueued elsewhere.
async fn without_listening_nothing_is_found_before_the_next_poll(fixture: Fixture) {
    in_both_queues(async |queue| {
        alone(fixture.backend, move |place| async move {
            let other = place.fixture.again().await;
            let dispatcher = dispatcher(&place.room, queue, "a", |_: Delivery| async {});
            let running = sleepy(dispatcher.listen(false));
            let mut woken = true;
            for nap in NAPS {
                let enqueue = async || drop(put(&other, queue, "a", "").await);
                woken = place.is_woken(&running, nap, enqueue).await;
                if !woken {
                    break;
                }
            }
            assert!(!woken, "nobody has called");
            running.stop().await;
        })
        .await;
    })
    .await;
}

/// A transaction may commit after messages that came later were claimed.
///
/// An extension: no requirement asks for it.
async fn what_lies_before_the_last_claim_is_found(fixture: Fixture) {
    for queue in QUEUES {
        let behind = fixture.clone();
        on_one_thread(&fixture, move |room, _| async move {
            put(&room, queue, "late", "").await;
            let table = queue.name();
            let when = |micros: i64| {
                let behind = &behind;
                async move {
                    let time = behind.time(behind.clock().await + micros);
                    let update = "SET next_attempt_at =";
                    behind
                        .sql(&format!(
                            "UPDATE {{{table}}} {update} {time} WHERE topic = 'late'"
                        ))
                        .await;
                }
            };
            when(600_000_000).await;
            for _ in 0..100 {
                put(&room, queue, "a", "").await;
            }
            let handled = |_: Delivery| async {};
            let few = room.dispatcher().batch(10).concurrency(10);
            let dispatcher = on(on(few, queue, "a", handled), queue, "late", handled);
            let running = dispatcher.start().unwrap();
            eventually(|| async { (running.report().done >= 20).then_some(()) }).await;
            when(-60_000_000).await;
            eventually(|| async { (running.report().done == 101).then_some(()) }).await;
            running.stop().await;
        })
        .await;
    }
}

/// Shows OBX-122, IBX-125. An idle queue is asked less and less often, and yet not too rarely.
async fn an_idle_queue_is_asked_less_and_less_often(fixture: Fixture) {
    in_both_queues(async |queue| {
        alone(fixture.backend, move |place| async move {
            let began = Instant::now();
            let dispatcher = dispatcher(&place.room, queue, "a", |_: Delivery| async {});
            let interval = Duration::from_millis(160);
            let dispatcher = dispatcher.listen(false).poll_interval(interval);
            let running = dispatcher.start().unwrap();
            // If pauses went on to grow, this would take more than a minute.
            eventually(|| async { (place.looks() >= 14).then_some(()) }).await;
            // 10, 20, 40, 80, and 160 milliseconds from then on.
            assert!(began.elapsed() >= Duration::from_millis(150) + interval * 9);
            running.stop().await;
        })
        .await;
    })
    .await;
}

/// Shows HDT-12, DEEP-19. The database refuses: the pauses grow, though not for ever, and when it is back
/// all is done, without anybody's help.
async fn failures_are_logged_and_pause_longer_and_longer_until_all_is_well(fixture: Fixture) {
    let room = &fixture.room;
    fixture.refuse("UPDATE", "outbox").await;
    put(room, Queue::Outbox, "a", "").await;
    let behind = fixture.clone();
    let (_, lines, counters) = on_one_thread(&fixture, move |room, counters| async move {
        let began = Instant::now();
        let delay = Duration::from_millis(300);
        let running = room
            .dispatcher()
            .on("a", |_: Delivery| async {})
            .error_delay(delay)
            .start()
            .unwrap();
        let failures = || counters.of("postroom_polls_failed_total", "queue=outbox");
        // If pauses went on to grow, this would take almost a minute.
        eventually(|| async { (failures() >= 10).then_some(()) }).await;
        // 100, 200, and 300 milliseconds from then on.
        assert!(began.elapsed() >= delay + delay * 7);
        behind.allow("UPDATE").await;
        eventually(|| async { (running.report().done == 1).then_some(()) }).await;
        running.stop().await;
    })
    .await;
    let failures: Vec<_> = lines
        .iter()
        .filter(|line| line.level == Level::ERROR && line.message.contains("could not be worked"))
        .collect();
    for failure in &failures {
        assert_eq!(failure.field("store"), fixture.room.identifier());
        assert_eq!(failure.field("queue"), "outbox");
    }
    assert!(failures.len() >= 10, "{}", failures.len());
    assert_eq!(
        counters.of("postroom_polls_failed_total", "queue=outbox"),
        failures.len() as u64
    );
}

/// Shows HDT-12.
async fn the_first_look_may_be_delayed(fixture: Fixture) {
    let room = &fixture.room;
    put(room, Queue::Outbox, "a", "").await;
    let began = Instant::now();
    let delay = Duration::from_millis(300);
    let running = room
        .dispatcher()
        .on("a", |_: Delivery| async {})
        .startup_delay(delay)
        .start()
        .unwrap();
    handled(&running, 1).await;
    assert!(began.elapsed() >= delay);
    running.stop().await;
    // And it can be stopped before it has looked.
    let dispatcher = room.dispatcher().on("a", |_: Delivery| async {});
    let running = dispatcher.startup_delay(HARDLY_EVER).start().unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(30), running.stop()).await;
    assert_eq!(stopped.expect("without waiting for it").handled(), 0);
}

testkit::mount!(
    sqlite:
    an_enqueue_in_the_same_process_wakes,
    an_enqueue_elsewhere_wakes,
    the_commit_of_a_callers_transaction_wakes,
    what_a_handler_enqueues_is_handled_in_its_turn,
    the_end_of_a_join_wakes_who_waits_for_it,
    the_beginning_of_a_wait_wakes,
    without_listening_messages_are_found_by_polling,
    without_listening_nothing_is_found_before_the_next_poll,
    what_lies_before_the_last_claim_is_found,
    an_idle_queue_is_asked_less_and_less_often,
    failures_are_logged_and_pause_longer_and_longer_until_all_is_well,
    the_first_look_may_be_delayed;
    postgres:
    an_enqueue_in_the_same_process_wakes,
    an_enqueue_elsewhere_wakes,
    the_commit_of_a_callers_transaction_wakes,
    what_a_handler_enqueues_is_handled_in_its_turn,
    the_end_of_a_join_wakes_who_waits_for_it,
    the_beginning_of_a_wait_wakes,
    without_listening_messages_are_found_by_polling,
    without_listening_nothing_is_found_before_the_next_poll,
    what_lies_before_the_last_claim_is_found,
    an_idle_queue_is_asked_less_and_less_often,
    failures_are_logged_and_pause_longer_and_longer_until_all_is_well,
    the_first_look_may_be_delayed;
    mysql:
    an_enqueue_in_the_same_process_wakes,
    the_commit_of_a_callers_transaction_wakes,
    what_a_handler_enqueues_is_handled_in_its_turn,
    the_end_of_a_join_wakes_who_waits_for_it,
    the_beginning_of_a_wait_wakes,
    without_listening_messages_are_found_by_polling,
    without_listening_nothing_is_found_before_the_next_poll,
    what_lies_before_the_last_claim_is_found,
    an_idle_queue_is_asked_less_and_less_often,
    failures_are_logged_and_pause_longer_and_longer_until_all_is_well,
    the_first_look_may_be_delayed;
    sqlserver:
    an_enqueue_in_the_same_process_wakes,
    the_commit_of_a_callers_transaction_wakes,
    what_a_handler_enqueues_is_handled_in_its_turn,
    the_end_of_a_join_wakes_who_waits_for_it,
    the_beginning_of_a_wait_wakes,
    without_listening_messages_are_found_by_polling,
    without_listening_nothing_is_found_before_the_next_poll,
    what_lies_before_the_last_claim_is_found,
    an_idle_queue_is_asked_less_and_less_often,
    failures_are_logged_and_pause_longer_and_longer_until_all_is_well,
    the_first_look_may_be_delayed,
);
