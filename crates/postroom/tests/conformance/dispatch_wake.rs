//! How a dispatcher that has nothing to do learns that there is something, and how often it looks by
//! itself.

use std::time::{Duration, Instant};

use postroom::{
    Delivery, Dispatcher, Inbound, JoinWait, Message, NewJoin, Outcome, Postroom, Queue, Running,
};
use testkit::{Backend, Fixture, eventually};
use tracing::Level;

use crate::dispatch_scene::{QUEUES, dispatcher, on_one_thread, put};

/// So rarely does it look by itself that whatever is found was announced.
const HARDLY_EVER: Duration = Duration::from_secs(3600);

fn sleepy(dispatcher: Dispatcher) -> Running {
    dispatcher.poll_interval(HARDLY_EVER).start().unwrap()
}

/// An idle dispatcher looks 10, 20, 40 … milliseconds after its last look. After this the next one is more
/// than half a second away.
async fn asleep() {
    tokio::time::sleep(Duration::from_millis(700)).await;
}

/// Whether what `act` lets happen is found sooner than a look would find it, one time in three at least:
/// the machine may be busy. `act` is told how many messages were done before.
async fn assert_wakes(running: &Running, act: impl AsyncFn(u64)) {
    for _ in 0..3 {
        let before = running.report().done;
        act(before).await;
        let began = Instant::now();
        eventually(|| async { (running.report().done > before).then_some(()) }).await;
        if began.elapsed() < Duration::from_millis(300) {
            return;
        }
    }
    panic!("nobody was woken");
}

/// The same in both queues, at the same time.
async fn in_both_queues(work: impl AsyncFn(Queue)) {
    tokio::join!(work(Queue::Outbox), work(Queue::Inbox));
}

async fn handled(running: &Running, count: u64) {
    eventually(|| async { (running.report().done >= count).then_some(()) }).await;
}

/// Enqueued through the same store object, without any listening.
async fn an_enqueue_in_the_same_process_wakes(fixture: Fixture) {
    let room = &fixture.room;
    in_both_queues(async |queue| {
        let running = sleepy(dispatcher(room, queue, "a", |_: Delivery| async {}).listen(false));
        assert_wakes(&running, async |_| {
            asleep().await;
            put(room, queue, "a", "").await;
        })
        .await;
        running.stop().await;
    })
    .await;
}

/// Enqueued through another store object, as another process does.
async fn an_enqueue_elsewhere_wakes(fixture: Fixture) {
    let other = fixture.again().await;
    in_both_queues(async |queue| {
        let running = sleepy(dispatcher(&fixture.room, queue, "a", |_: Delivery| async {}));
        assert_wakes(&running, async |_| {
            asleep().await;
            put(&other, queue, "a", "").await;
        })
        .await;
        running.stop().await;
    })
    .await;
}

/// Written in a caller's transaction: found when that commits, through the same store and through another.
async fn the_commit_of_a_callers_transaction_wakes(fixture: Fixture) {
    let other = fixture.again().await;
    for room in [&fixture.room, &other] {
        in_both_queues(async |queue| {
            let running = sleepy(dispatcher(&fixture.room, queue, "a", |_: Delivery| async {}));
            assert_wakes(&running, async |before| {
                asleep().await;
                enqueue_and_commit(&fixture, room, queue, &running, before).await;
            })
            .await;
            running.stop().await;
        })
        .await;
    }
}

/// Enqueues in a transaction that commits a little later, and makes sure that nobody was too early.
async fn enqueue_and_commit(
    fixture: &Fixture,
    room: &Postroom,
    queue: Queue,
    running: &Running,
    before: u64,
) {
    let message = Message::new("a", "");
    let inbound = Inbound::new("tester", postroom::MessageId::new().to_string(), "a", "");
    let (outbox, inbox) = (room.outbox(), room.inbox());
    match fixture.backend {
        Backend::Sqlite => {
            let mut connection = fixture.sqlite();
            let mut tx = connection.transaction().unwrap();
            match queue {
                Queue::Outbox => {
                    postroom::tx::now(outbox.enqueue_in(&mut tx, &message)).unwrap();
                }
                Queue::Inbox => {
                    postroom::tx::now(inbox.enqueue_in(&mut tx, &inbound)).unwrap();
                }
            }
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(running.report().done, before, "before the commit");
            tx.commit().unwrap();
        }
        Backend::Postgres => {
            let mut client = fixture.postgres().await;
            let mut tx = client.transaction().await.unwrap();
            match queue {
                Queue::Outbox => {
                    outbox.enqueue_in(&mut tx, &message).await.unwrap();
                }
                Queue::Inbox => {
                    inbox.enqueue_in(&mut tx, &inbound).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(running.report().done, before, "before the commit");
            tx.commit().await.unwrap();
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
    let other = fixture.again().await;
    for room in [&fixture.room, &other] {
        let dispatcher = fixture.room.dispatcher();
        let running = sleepy(dispatcher.on("next", |_: Delivery| async {}));
        let joins = room.joins();
        assert_wakes(&running, async |_| {
            let join = joins.start(&NewJoin::new(1)).await.unwrap();
            let step = postroom::MessageId::new();
            joins.attach(join, step).await.unwrap();
            let wait = JoinWait::new(join, "next", "");
            let deferred = running.report().not_ready;
            joins.enqueue_wait(&wait).await.unwrap();
            eventually(|| async { (running.report().not_ready > deferred).then_some(()) }).await;
            // It has looked, and its backoff is longer than this test has patience.
            let late = fixture.time(fixture.clock().await + 600_000_000);
            let sql = format!("UPDATE {{outbox}} SET next_attempt_at = {late}");
            fixture.sql(&sql).await;
            asleep().await;
            joins.report_completed(join, step).await.unwrap();
        })
        .await;
        running.stop().await;
    }
}

/// A message that waits for a join is announced like any other.
async fn the_beginning_of_a_wait_wakes(fixture: Fixture) {
    let other = fixture.again().await;
    for room in [&fixture.room, &other] {
        let dispatcher = fixture.room.dispatcher();
        let running = sleepy(dispatcher.on("next", |_: Delivery| async {}));
        let joins = room.joins();
        assert_wakes(&running, async |_| {
            let join = joins.start(&NewJoin::new(1)).await.unwrap();
            assert!(joins.cancel(join).await.unwrap());
            asleep().await;
            let wait = JoinWait::new(join, "next", "");
            joins.enqueue_wait(&wait).await.unwrap();
        })
        .await;
        running.stop().await;
    }
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

/// The same, with an interval that nobody waits for: so listening, where it is on, was what found it.
async fn without_listening_nothing_is_found_before_the_next_poll(fixture: Fixture) {
    let other = fixture.again().await;
    let dispatcher = fixture.room.dispatcher().on("a", |_: Delivery| async {});
    let running = sleepy(dispatcher.listen(false));
    asleep().await;
    put(&other, Queue::Outbox, "a", "").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(running.report().done, 0, "the control of these tests");
    fixture
        .room
        .outbox()
        .enqueue(&Message::new("a", ""))
        .await
        .unwrap();
    handled(&running, 2).await;
    running.stop().await;
}

/// Shows OBX-122, IBX-125. An idle queue is asked less and less often.
async fn an_idle_queue_is_asked_less_and_less_often(fixture: Fixture) {
    in_both_queues(async |queue| {
        let (_, lines, _) = on_one_thread(&fixture, move |room| async move {
            let dispatcher = dispatcher(&room, queue, "a", |_: Delivery| async {});
            let running = dispatcher
                .poll_interval(Duration::from_millis(320))
                .start()
                .unwrap();
            tokio::time::sleep(Duration::from_millis(1000)).await;
            running.stop().await;
        })
        .await;
        let claims = lines
            .iter()
            .filter(|line| line.message == "claimed")
            .count();
        // 10, 20, 40, 80, 160, 320, 320 milliseconds.
        assert!((4..=10).contains(&claims), "{queue:?}: {claims} claims");
    })
    .await;
}

/// Shows HDT-12, DEEP-19. The database refuses: the pauses grow, and when it is back all is done, without
/// anybody's help.
async fn failures_are_logged_and_pause_longer_and_longer_until_all_is_well(fixture: Fixture) {
    let room = &fixture.room;
    fixture.refuse("UPDATE", "outbox").await;
    put(room, Queue::Outbox, "a", "").await;
    let behind = fixture.clone();
    let (elapsed, lines, counters) = on_one_thread(&fixture, move |room| async move {
        let running = room
            .dispatcher()
            .on("a", |_: Delivery| async {})
            .error_delay(Duration::from_millis(800))
            .start()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(1600)).await;
        behind.allow("UPDATE").await;
        let began = Instant::now();
        eventually(|| async { (running.report().done == 1).then_some(()) }).await;
        running.stop().await;
        began.elapsed()
    })
    .await;
    let failures: Vec<_> = lines
        .iter()
        .filter(|line| line.level == Level::ERROR && line.message.contains("could not be worked"))
        .collect();
    // At 0, 100, 300, 700 and 1500 milliseconds.
    assert!((3..=5).contains(&failures.len()), "{}", failures.len());
    for failure in &failures {
        assert_eq!(failure.field("store"), fixture.room.identifier());
        assert_eq!(failure.field("queue"), "outbox");
    }
    assert_eq!(
        counters.of("postroom_polls_failed_total", "queue=outbox"),
        failures.len() as u64
    );
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
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
    let stopped = tokio::time::timeout(Duration::from_secs(5), running.stop()).await;
    assert_eq!(stopped.expect("at once").handled(), 0);
}

testkit::mount!(
    an_enqueue_in_the_same_process_wakes,
    an_enqueue_elsewhere_wakes,
    the_commit_of_a_callers_transaction_wakes,
    what_a_handler_enqueues_is_handled_in_its_turn,
    the_end_of_a_join_wakes_who_waits_for_it,
    the_beginning_of_a_wait_wakes,
    without_listening_messages_are_found_by_polling,
    without_listening_nothing_is_found_before_the_next_poll,
    an_idle_queue_is_asked_less_and_less_often,
    failures_are_logged_and_pause_longer_and_longer_until_all_is_well,
    the_first_look_may_be_delayed,
);
