//! Failures: what is tried again, when, how often, and what is stored of it.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::{
    Backoff, Delivery, Dispatcher, Failure, FailureClass, HandlerError, HoneyDrunk, Outcome,
    Postroom, Queue, RetryPolicy, State, Verdict, done,
};
use testkit::{Backend, Fixture, eventually};

use crate::dispatch_scene::{Put, QUEUES, dispatcher, put};

/// A dispatcher whose handler always fails like this.
fn failing(room: &Postroom, queue: Queue, error: &HandlerError) -> Dispatcher {
    let error = error.clone();
    dispatcher(room, queue, "a", move |_: Delivery| {
        let error = error.clone();
        async move { Err::<(), _>(error) }
    })
}

/// How long the message has to wait after its last attempt.
async fn pause(message: &Put, room: &Postroom) -> Duration {
    let (state, progress) = message.look(room).await;
    assert_eq!(state, State::Ready);
    let next = progress.next_attempt_at.unwrap();
    next.duration_since(progress.last_attempt_at.unwrap())
        .unwrap()
}

/// Shows OBX-056, IBX-075, C-50.
async fn a_failure_is_caught_and_the_message_tried_again(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let bad = put(room, queue, "a", "bad").await;
        let mut good = Vec::new();
        for _ in 0..5 {
            good.push(put(room, queue, "a", "good").await);
        }
        let mended = Arc::new(AtomicU32::new(0));
        let runs = Arc::clone(&mended);
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery| {
            let bad = delivery.payload() == "bad" && runs.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if bad {
                    Err(HandlerError::business("broken"))
                } else {
                    done()
                }
            }
        });

        let report = dispatcher.drain().await.unwrap();

        assert_eq!((report.done, report.retried), (5, 1), "{queue:?}");
        for message in &good {
            assert_eq!(message.state(room).await, State::Done, "{queue:?}");
        }
        // What has failed is neither done nor forgotten.
        let (state, progress) = bad.look(room).await;
        assert_eq!((state, progress.attempt_count), (State::Ready, 1));
        fixture.skip_backoff().await;
        assert_eq!(dispatcher.drain().await.unwrap().done, 1, "{queue:?}");
        assert_eq!(bad.state(room).await, State::Done, "{queue:?}");
    }
}

/// Shows OBX-061, OBX-062, IBX-080, IBX-081, C-09.
async fn the_pause_doubles_up_to_a_minute(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let dispatcher = failing(room, queue, &HandlerError::business("broken"));
        for seconds in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(dispatcher.drain().await.unwrap().retried, 1);
            let expected = Duration::from_secs(seconds);
            assert_eq!(pause(&message, room).await, expected, "{queue:?}");
            assert_eq!(
                dispatcher.drain().await.unwrap().handled(),
                0,
                "not before it is over"
            );
            fixture.skip_backoff().await;
        }
    }
}

/// Shows OBX-064, OBX-065, IBX-083, IBX-084, C-10, C-17, C-51.
async fn the_tenth_failure_is_the_last_and_the_message_is_kept_with_its_reason(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let dispatcher = failing(room, queue, &HandlerError::business("the bank said no"));
        for run in 1..=9 {
            assert_eq!(dispatcher.drain().await.unwrap().retried, 1, "run {run}");
            assert_eq!(message.state(room).await, State::Ready, "run {run}");
            fixture.skip_backoff().await;
        }
        assert_eq!(dispatcher.drain().await.unwrap().dead, 1);

        assert_eq!(message.state(room).await, State::Dead, "{queue:?}");
        assert_eq!(
            message.error(room).await,
            "[BUSINESS] Exceeded maximum retry attempts (10): the bank said no"
        );
        fixture.skip_backoff().await;
        assert_eq!(dispatcher.drain().await.unwrap().handled(), 0);
    }
}

/// Shows OBX-065, IBX-084, C-10.
async fn the_number_of_attempts_is_configurable(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for most in [1, 3] {
            let message = put(room, queue, "a", "").await;
            let dispatcher = failing(room, queue, &HandlerError::business("broken"))
                .retry(Backoff::default().max_attempts(most));
            let mut runs = 0;
            while message.state(room).await == State::Ready {
                runs += dispatcher.drain().await.unwrap().handled();
                fixture.skip_backoff().await;
            }
            assert_eq!(runs, u64::from(most), "{queue:?}");
            assert_eq!(message.state(room).await, State::Dead, "{queue:?}");
        }
    }
}

/// Notes what it was asked, and lets every message be tried again at odd times, three times.
#[derive(Clone, Default)]
struct Odd(Arc<Mutex<Vec<Asked>>>);

/// Class, attempts, retry count and topic.
type Asked = (FailureClass, u32, u32, String);

const ODD: Duration = Duration::from_millis(12_345);

impl RetryPolicy for Odd {
    fn decide(&self, failure: &Failure<'_>) -> Verdict {
        let topic = failure.topic.to_owned();
        let seen = (failure.class, failure.attempts, failure.retry_count, topic);
        self.0.lock().unwrap().push(seen);
        if failure.retry_count < 3 {
            Verdict::Retry(Some(ODD))
        } else {
            Verdict::Fail("enough".to_owned())
        }
    }
}

/// Shows OBX-063, IBX-082, C-08, DEEP-20.
async fn a_policy_of_ones_own_decides(fixture: Fixture) {
    use FailureClass::{Business, Infrastructure};
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let policy = Odd::default();
        let asked = Arc::clone(&policy.0);
        let run = AtomicU32::new(0);
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery| {
            // The second failure is infrastructure's.
            let error = match run.fetch_add(1, Ordering::SeqCst) {
                1 => HandlerError::infrastructure("away"),
                _ => HandlerError::business("broken"),
            };
            async { Err::<(), _>(error) }
        })
        .retry(policy);
        for _ in 0..3 {
            assert_eq!(dispatcher.drain().await.unwrap().retried, 1);
            assert_eq!(pause(&message, room).await, ODD, "{queue:?}");
            fixture.skip_backoff().await;
        }
        assert_eq!(dispatcher.drain().await.unwrap().dead, 1);

        assert_eq!(message.error(room).await, "[BUSINESS] enough: broken");
        let asked: Vec<_> = asked.lock().unwrap().iter().cloned().collect();
        let expected = [
            (Business, 1, 0),
            (Infrastructure, 2, 1),
            (Business, 2, 2),
            (Business, 3, 3),
        ];
        let expected = expected.map(|(class, runs, retries)| (class, runs, retries, "a".into()));
        assert_eq!(asked, expected, "{queue:?}");
    }
}

/// Shows C-10. One run and five retries; base, twice base, four times base.
async fn honeydrunk_counts_retries_after_the_first_run(fixture: Fixture) {
    let room = &fixture.room;
    let message = put(room, Queue::Outbox, "a", "").await;
    let dispatcher = failing(room, Queue::Outbox, &HandlerError::business("broken"))
        .retry(HoneyDrunk::default());
    for seconds in [1, 2, 4, 8, 16] {
        assert_eq!(dispatcher.drain().await.unwrap().retried, 1);
        assert_eq!(pause(&message, room).await, Duration::from_secs(seconds));
        fixture.skip_backoff().await;
    }
    assert_eq!(dispatcher.drain().await.unwrap().dead, 1);
    assert_eq!(
        message.error(room).await,
        "[BUSINESS] Exceeded maximum retry attempts (5): broken"
    );
}

/// Shows C-08. The handler says when, the policy whether.
async fn a_handler_may_say_when_to_try_again(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let hour = Duration::from_secs(3600);
        let message = put(room, queue, "a", "").await;
        let error = HandlerError::business("closed").retry_after(hour);
        let dispatcher = failing(room, queue, &error).retry(Backoff::default().max_attempts(2));
        dispatcher.drain().await.unwrap();
        assert_eq!(pause(&message, room).await, hour, "{queue:?}");
        fixture.skip_backoff().await;
        assert_eq!(dispatcher.drain().await.unwrap().dead, 1, "{queue:?}");
    }
}

async fn asking_for_a_retry_counts_as_an_attempt(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let after = Duration::from_secs(77);
        let dispatcher = dispatcher(room, queue, "a", move |_: Delivery| async move {
            Outcome::Retry(Some(after))
        })
        .retry(Backoff::default().max_attempts(2));
        assert_eq!(dispatcher.drain().await.unwrap().retried, 1);
        assert_eq!(pause(&message, room).await, after, "{queue:?}");
        assert_eq!(message.look(room).await.1.deferral_count, 0);
        fixture.skip_backoff().await;
        assert_eq!(dispatcher.drain().await.unwrap().dead, 1, "{queue:?}");
    }
}

/// Shows C-11.
async fn not_ready_uses_up_no_attempt(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let dispatcher = dispatcher(room, queue, "a", |_: Delivery| async {
            Outcome::NotReady(Some(Duration::from_secs(5)))
        })
        .retry(Backoff::default().max_attempts(1));
        for round in 1..=12 {
            let report = dispatcher.drain().await.unwrap();
            assert_eq!((report.not_ready, report.dead), (1, 0), "{queue:?}");
            assert_eq!(pause(&message, room).await, Duration::from_secs(5));
            let (_, progress) = message.look(room).await;
            assert_eq!(progress.attempt_count, round);
            assert_eq!(progress.deferral_count, round);
            assert_eq!(progress.last_error, None, "nothing went wrong");
            fixture.skip_backoff().await;
        }
    }
}

/// Shows C-52, DEEP-08, DEEP-09, DEEP-19. A broker that is away costs time, not attempts.
async fn infrastructure_has_a_day_and_uses_up_no_attempts(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let (name, born) = match queue {
            Queue::Outbox => ("outbox", "created_at"),
            Queue::Inbox => ("inbox_seen", "first_seen"),
        };
        let message = put(room, queue, "a", "").await;
        let away = failing(room, queue, &HandlerError::infrastructure("broker away"));
        for round in 1..=15 {
            assert_eq!(away.drain().await.unwrap().retried, 1, "{queue:?} {round}");
            assert_eq!(
                message.error(room).await,
                format!("[INFRA] Retry {round}: broker away")
            );
            fixture.skip_backoff().await;
        }
        // None of the ten attempts is used up: the first failure of the other class is the first.
        let broken = failing(room, queue, &HandlerError::business("broken"));
        for _ in 0..9 {
            assert_eq!(broken.drain().await.unwrap().retried, 1, "{queue:?}");
            fixture.skip_backoff().await;
        }
        // A quarter of an hour before the end of the day it is still tried, and not after it.
        fixture
            .age(name, born, Duration::from_secs(24 * 3600 - 900))
            .await;
        assert_eq!(away.drain().await.unwrap().retried, 1, "{queue:?}");
        fixture.skip_backoff().await;
        fixture.age(name, born, Duration::from_secs(900)).await;
        assert_eq!(away.drain().await.unwrap().dead, 1, "{queue:?}");
        assert_eq!(
            message.error(room).await,
            "[INFRA] Infrastructure was away for longer than 86400 s: broker away"
        );
        assert_eq!(message.state(room).await, State::Dead, "kept, not deleted");
    }
}

/// Shows C-52, DEEP-08. What failed before does not matter: the present error is classed.
async fn the_present_failure_decides_the_budget(fixture: Fixture) {
    let room = &fixture.room;
    let message = put(room, Queue::Outbox, "a", "").await;
    let policy = || Backoff::default().max_attempts(1);
    let away = failing(
        room,
        Queue::Outbox,
        &HandlerError::infrastructure("broker away"),
    );
    assert_eq!(away.retry(policy()).drain().await.unwrap().retried, 1);
    fixture.skip_backoff().await;
    let broken = failing(room, Queue::Outbox, &HandlerError::business("broken"));
    assert_eq!(broken.retry(policy()).drain().await.unwrap().dead, 1);
    assert_eq!(
        message.error(room).await,
        "[BUSINESS] Exceeded maximum retry attempts (1): broken"
    );
}

#[derive(Debug)]
struct Wrapped(io::Error);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the order could not be sent")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Shows C-52, DEEP-08. By type and cause, never by words; a class that is given wins, business over
/// infrastructure too; what is not known is business.
async fn errors_are_classed_by_what_they_are(fixture: Fixture) {
    let room = &fixture.room;
    let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
    let closed = client_error(&fixture).await;
    let cases: [(HandlerError, &str); 7] = [
        (reset().into(), "[INFRA]"),
        (Wrapped(reset()).into(), "[INFRA]"),
        (closed, "[INFRA]"),
        (io::Error::other("connection reset").into(), "[BUSINESS]"),
        (
            Wrapped(io::Error::from(io::ErrorKind::InvalidData)).into(),
            "[BUSINESS]",
        ),
        (HandlerError::business(Wrapped(reset())), "[BUSINESS]"),
        (HandlerError::permanent(Wrapped(reset())), "[BUSINESS]"),
    ];
    for (error, mark) in cases {
        let message = put(room, Queue::Outbox, "a", "").await;
        failing(room, Queue::Outbox, &error).drain().await.unwrap();
        let stored = message.error(room).await;
        assert!(stored.starts_with(mark), "{error:?}: {stored}");
        assert!(stored.contains(&error.to_string()), "{error:?}: {stored}");
    }
}

/// The error of a client library whose database is away, or busy.
async fn client_error(fixture: &Fixture) -> HandlerError {
    match fixture.backend {
        Backend::Sqlite => {
            let (one, other) = (fixture.sqlite(), fixture.sqlite());
            other.busy_timeout(Duration::ZERO).unwrap();
            one.execute_batch("BEGIN IMMEDIATE").unwrap();
            other.execute_batch("BEGIN IMMEDIATE").unwrap_err().into()
        }
        Backend::Postgres => {
            let client = fixture.postgres().await;
            let victim = fixture.postgres().await;
            let row = victim.query_one("SELECT pg_backend_pid()", &[]).await;
            let pid: i32 = row.unwrap().get(0);
            client
                .execute("SELECT pg_terminate_backend($1)", &[&pid])
                .await
                .unwrap();
            let error =
                eventually(|| async { victim.query_one("SELECT 1", &[]).await.err() }).await;
            error.into()
        }
        Backend::MySql => {
            let mut victim = fixture.mysql().await;
            let kill = format!("KILL {}", victim.id());
            fixture.sql(&kill).await;
            victim.query_drop("SELECT 1").await.unwrap_err().into()
        }
        Backend::SqlServer => {
            let refused = tokio::net::TcpStream::connect(("127.0.0.1", 1)).await;
            tiberius::error::Error::from(refused.unwrap_err()).into()
        }
    }
}

/// Shows DEEP-09, C-51.
async fn a_permanent_failure_is_the_last_at_once(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let dispatcher = failing(room, queue, &HandlerError::permanent("no such order"));
        assert_eq!(dispatcher.drain().await.unwrap().dead, 1);
        assert_eq!(message.error(room).await, "[BUSINESS] no such order");
        assert_eq!(message.state(room).await, State::Dead, "{queue:?}");
    }
}

/// Shows C-58. The text says where it went wrong, not what was there.
async fn a_payload_that_cannot_be_read_is_a_permanent_failure(fixture: Fixture) {
    let room = &fixture.room;
    let message = put(room, Queue::Outbox, "a", r#"{"id":"canary"}"#).await;
    let dispatcher = room.dispatcher().on("a", |_: postroom::Json<u64>| async {});
    assert_eq!(dispatcher.drain().await.unwrap().dead, 1);
    let error = message.error(room).await;
    assert!(
        error.starts_with("[BUSINESS] the payload is not the expected JSON"),
        "{error}"
    );
    assert!(
        error.contains("line 1") && !error.contains("canary"),
        "{error}"
    );
}

/// Shows OBX-056, IBX-075.
async fn a_panic_is_contained_and_counted(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "bang!").await;
        put(room, queue, "a", "").await;
        let dispatcher = dispatcher(room, queue, "a", |delivery: Delivery| async move {
            assert_ne!(delivery.payload(), "bang!", "out of");
        });

        let report = dispatcher.drain().await.unwrap();

        let seen = (report.done, report.retried, report.panics);
        assert_eq!(seen, (1, 1, 1), "{queue:?}");
        let error = message.error(room).await;
        assert!(
            error.starts_with("[BUSINESS] Retry 1: the handler panicked: "),
            "{error}"
        );
        assert!(error.contains("out of"), "{error}");
    }
}

/// A closure may panic before there is a future, and a value when it is dropped.
async fn a_panic_outside_of_the_future_is_contained_too(fixture: Fixture) {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("dropped");
            }
        }
    }
    let room = &fixture.room;
    for topic in ["before", "drop", "fine"] {
        put(room, Queue::Outbox, topic, "").await;
    }
    let dispatcher = room
        .dispatcher()
        .handler_timeout(Duration::from_millis(100))
        .on("before", |delivery: Delivery| {
            assert!(delivery.topic().is_empty(), "no future");
            async {}
        })
        .on("drop", |_: Delivery| async {
            let _bomb = Bomb;
            std::future::pending::<()>().await;
        })
        .on("fine", |_: Delivery| async {});

    let report = tokio::time::timeout(Duration::from_secs(20), dispatcher.drain()).await;

    let report = report.expect("no worker is lost").unwrap();
    assert_eq!((report.done, report.retried, report.panics), (1, 2, 2));
}

struct Panics;

impl RetryPolicy for Panics {
    fn decide(&self, _: &Failure<'_>) -> Verdict {
        panic!("no idea")
    }
}

async fn a_policy_that_panics_leaves_the_message_to_the_default_backoff(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let dispatcher = failing(room, queue, &HandlerError::business("broken")).retry(Panics);

        let report = tokio::time::timeout(Duration::from_secs(20), dispatcher.drain()).await;

        let report = report.expect("no worker is lost").unwrap();
        assert_eq!((report.retried, report.panics), (1, 1), "{queue:?}");
        assert_eq!(pause(&message, room).await, Duration::from_secs(2));
    }
}

/// A handler that hangs is cancelled, the others go on, and its message is tried again.
async fn a_handler_that_takes_too_long_is_cancelled_and_tried_again(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "hang").await;
        put(room, queue, "a", "").await;
        let dispatcher = dispatcher(room, queue, "a", |delivery: Delivery| async move {
            if delivery.payload() == "hang" {
                std::future::pending::<()>().await;
            }
        })
        .handler_timeout(Duration::from_millis(150));

        let report = dispatcher.drain().await.unwrap();

        assert_eq!((report.done, report.retried), (1, 1), "{queue:?}");
        assert_eq!(
            message.error(room).await,
            "[INFRA] Retry 1: the handler took longer than 0.15 s"
        );
    }
}

/// Shows C-58.
async fn a_stored_error_is_bounded(fixture: Fixture) {
    let room = &fixture.room;
    let message = put(room, Queue::Outbox, "a", "").await;
    let long = HandlerError::business("é".repeat(50_000) + "\0");
    failing(room, Queue::Outbox, &long).drain().await.unwrap();
    assert!(message.error(room).await.len() <= 2048);
}

/// Shows DEEP-10. The database refuses what a turn wants to write: nothing is lost or done by half, the
/// rest goes on, and what was refused is delivered again.
async fn a_turn_that_fails_loses_nothing(fixture: Fixture) {
    let room = &fixture.room;
    fixture.refuse("INSERT", "outbox_dead").await;
    let bad = put(room, Queue::Outbox, "a", "bad").await;
    let mut good = Vec::new();
    for _ in 0..10 {
        good.push(put(room, Queue::Outbox, "a", "good").await);
    }
    let running = room
        .dispatcher()
        .on("a", |delivery: Delivery| async move {
            if delivery.payload() == "bad" {
                return Err(HandlerError::permanent("bad"));
            }
            done()
        })
        .lease(Duration::from_millis(500))
        .error_delay(Duration::from_millis(100))
        .start()
        .unwrap();
    eventually(|| async {
        let mut done = 0;
        for message in &good {
            done += usize::from(message.state(room).await == State::Done);
        }
        (done == good.len()).then_some(())
    })
    .await;
    eventually(|| async { (bad.look(room).await.1.delivery_count >= 2).then_some(()) }).await;
    fixture.allow("INSERT").await;
    eventually(|| async { (bad.state(room).await == State::Dead).then_some(()) }).await;
    let report = running.stop().await;
    assert_eq!((report.done, report.dead), (10, 1));
}

testkit::mount!(
    a_failure_is_caught_and_the_message_tried_again,
    the_pause_doubles_up_to_a_minute,
    the_tenth_failure_is_the_last_and_the_message_is_kept_with_its_reason,
    the_number_of_attempts_is_configurable,
    a_policy_of_ones_own_decides,
    honeydrunk_counts_retries_after_the_first_run,
    a_handler_may_say_when_to_try_again,
    asking_for_a_retry_counts_as_an_attempt,
    not_ready_uses_up_no_attempt,
    infrastructure_has_a_day_and_uses_up_no_attempts,
    the_present_failure_decides_the_budget,
    errors_are_classed_by_what_they_are,
    a_permanent_failure_is_the_last_at_once,
    a_payload_that_cannot_be_read_is_a_permanent_failure,
    a_panic_is_contained_and_counted,
    a_panic_outside_of_the_future_is_contained_too,
    a_policy_that_panics_leaves_the_message_to_the_default_backoff,
    a_handler_that_takes_too_long_is_cancelled_and_tried_again,
    a_stored_error_is_bounded,
    a_turn_that_fails_loses_nothing,
);
