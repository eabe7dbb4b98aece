//! What each job does: processing, cleanup, reaping and counting, in one store and in many, by hand.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postroom::jobs::{Cleanup, Job, JobSettings, Jobs, Processing};
use postroom::{
    Backoff, Delivery, Dispatcher, ErrorKind, HandlerError, Inbound, JoinStatus, Message, NewJoin,
    OwnerToken, Postroom, State, done,
};
use testkit::{Fixture, LEASE, eventually};
use tokio::sync::Semaphore;
use tracing::Level;

use testkit::logs;

testkit::mount!(
    processing_goes_on_until_nothing_is_ready,
    results_are_written_down_chunk_by_chunk,
    what_is_processed_leaves_the_outbox,
    what_could_not_be_written_down_stays_for_the_next_run,
    a_message_that_keeps_failing_is_dead_and_not_deleted,
    an_outage_loses_nothing,
    old_done_messages_are_deleted_and_nothing_else,
    each_queue_has_a_retention_of_its_own,
    the_default_retentions_are_a_week_and_a_month,
    a_cleanup_of_more_than_one_batch_finishes_the_job,
    a_cleanup_leaves_no_join_waiting_for_a_deleted_message,
    expired_leases_are_reaped_in_both_queues,
    a_broken_store_does_not_stop_the_rest,
    failures_are_logged_and_counted_by_job_and_store,
    the_size_of_the_queues_is_a_metric,
    many_may_do_the_same_job_at_once,
    stores_are_asked_for_each_time_and_worked_once,
    batch_chunk_and_retention_are_positive,
    a_job_needs_what_it_works_with,
);

const DAY: Duration = Duration::from_secs(24 * 3600);
const TOPIC: &str = "order.created";

fn handled(room: &Postroom) -> Dispatcher {
    room.dispatcher().on(TOPIC, |_: Delivery| async {})
}

/// Puts so many messages into the outbox and acks them.
async fn done_in_outbox(fixture: &Fixture, count: usize) {
    fixture.enqueue(count).await;
    let (owner, ids) = fixture.claim(count).await;
    let acked = fixture.room.outbox().ack(owner, &ids).await.unwrap();
    assert_eq!(acked.len(), count);
}

/// Puts a message into the inbox and acks it.
async fn done_in_inbox(fixture: &Fixture, id: &str) {
    let inbox = fixture.room.inbox();
    let inbound = Inbound::new("stripe", id, TOPIC, "");
    inbox.enqueue(&inbound).await.unwrap();
    let dispatcher = fixture.room.dispatcher();
    let dispatcher = dispatcher.on_inbound(TOPIC, |_: Delivery| async {});
    assert_eq!(dispatcher.drain().await.unwrap().done, 1);
}

/// Lets time pass for everything that is finished.
async fn age(fixture: &Fixture, by: Duration) {
    fixture.age("outbox_done", "processed_at", by).await;
    fixture.age("outbox_dead", "processed_at", by).await;
    fixture.age("inbox_done", "processed_at", by).await;
    fixture.age("inbox_seen", "last_seen", by).await;
    fixture.age("outbox_join", "last_updated_at", by).await;
}

/// What one run of a job counts, when no store fails.
async fn run(jobs: &Jobs, job: Job) -> u64 {
    let report = jobs.run_once(job).await.unwrap();
    assert_eq!(report.failures().collect::<Vec<_>>(), []);
    report.count()
}

/// Shows DEEP-04, DEEP-05.
async fn processing_goes_on_until_nothing_is_ready(fixture: Fixture) {
    fixture.enqueue(120).await;
    let jobs = Jobs::new().store(&fixture.room).dispatcher(handled);
    let logs = logs::catch();

    assert_eq!(run(&jobs, Job::Processing).await, 120);

    let lines = logs.at(Level::DEBUG, "claimed");
    let claims: Vec<&str> = lines.iter().map(|line| line.field("count")).collect();
    assert_eq!(claims[..3], ["50", "50", "20"], "at most a batch of 50");
    assert!(claims[3..].iter().all(|count| *count == "0"));
    assert_eq!(fixture.rows("outbox").await, 0);
    assert_eq!(run(&jobs, Job::Processing).await, 0);
}

/// A batch of 12 in chunks of 5, one handler at a time, the twelfth of which does not end.
///
/// Shows DEEP-06.
async fn results_are_written_down_chunk_by_chunk(fixture: Fixture) {
    fixture.enqueue(12).await;
    let gate = Arc::new(Semaphore::new(0));
    let (handled, held) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&gate));
    let jobs = Jobs::new()
        .store(&fixture.room)
        .processing(Processing::default().batch(12).chunk(5))
        .dispatcher(move |room| {
            let (handled, gate) = (Arc::clone(&handled), Arc::clone(&held));
            room.dispatcher()
                .concurrency(1)
                .on(TOPIC, move |_: Delivery| {
                    let (handled, gate) = (Arc::clone(&handled), Arc::clone(&gate));
                    async move {
                        // The sixth and the twelfth are held.
                        if [5, 11].contains(&handled.fetch_add(1, Ordering::SeqCst)) {
                            gate.acquire().await.unwrap().forget();
                        }
                    }
                })
        });
    let run = tokio::spawn(async move { jobs.run_once(Job::Processing).await });

    eventually(async || (fixture.rows("outbox_done").await >= 5).then_some(())).await;
    gate.add_permits(1);
    eventually(async || (fixture.rows("outbox_done").await >= 10).then_some(())).await;
    assert!(fixture.rows("outbox").await >= 1, "the twelfth is held");
    gate.add_permits(1);
    assert_eq!(run.await.unwrap().unwrap().count(), 12);
    assert_eq!(fixture.rows("outbox_done").await, 12);
}

/// Shows DEEP-07, C-51.
async fn what_is_processed_leaves_the_outbox(fixture: Fixture) {
    let jobs = Jobs::new().store(&fixture.room).dispatcher(handled);
    fixture.enqueue(3).await;
    assert_eq!(run(&jobs, Job::Processing).await, 3);
    assert_eq!(fixture.rows("outbox").await, 0);
    assert_eq!(fixture.rows("outbox_done").await, 3, "kept for a while");

    let forgetful = fixture.options().keep_done(false).connect().await.unwrap();
    let jobs = Jobs::new().store(&forgetful).dispatcher(handled);
    fixture.enqueue(4).await;
    assert_eq!(run(&jobs, Job::Processing).await, 4);
    assert_eq!(fixture.rows("outbox").await, 0);
    assert_eq!(fixture.rows("outbox_done").await, 3, "or not at all");
}

/// Shows DEEP-10.
async fn what_could_not_be_written_down_stays_for_the_next_run(fixture: Fixture) {
    fixture.enqueue(7).await;
    let jobs = Jobs::new().store(&fixture.room).dispatcher(handled);
    fixture.refuse("DELETE", "outbox").await;

    let report = jobs.run_once(Job::Processing).await.unwrap();
    let (store, error) = report.failures().next().unwrap();
    assert_eq!(store, fixture.room.identifier());
    assert_eq!(error.kind(), ErrorKind::Database);
    assert_eq!(fixture.rows("outbox").await, 7);
    assert_eq!(fixture.rows("outbox_done").await, 0, "rolled back");

    fixture.allow("DELETE").await;
    fixture.expire_leases().await;
    assert_eq!(run(&jobs, Job::Processing).await, 7);
    assert_eq!(fixture.rows("outbox_done").await, 7);
}

/// Shows C-51.
async fn a_message_that_keeps_failing_is_dead_and_not_deleted(fixture: Fixture) {
    fixture.enqueue(1).await;
    let jobs = Jobs::new().store(&fixture.room).dispatcher(|room| {
        room.dispatcher()
            .retry(Backoff::default().max_attempts(3))
            .on(TOPIC, |_: Delivery| async {
                Err::<(), _>(HandlerError::business("no such customer"))
            })
    });
    for _ in 0..3 {
        assert_eq!(run(&jobs, Job::Processing).await, 1);
        fixture.skip_backoff().await;
    }
    age(&fixture, 400 * DAY).await;
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 0);

    let list = postroom::List::new(State::Dead);
    let dead = fixture.room.outbox().list(&list).await.unwrap();
    assert_eq!(dead.len(), 1);
    let reason = dead[0].progress.last_error.as_deref().unwrap();
    assert_eq!(
        reason,
        "[BUSINESS] Exceeded maximum retry attempts (3): no such customer"
    );
}

/// Shows DEEP-19.
async fn an_outage_loses_nothing(fixture: Fixture) {
    fixture.enqueue(20).await;
    let up = Arc::new(AtomicBool::new(false));
    let broker = Arc::clone(&up);
    let jobs = Jobs::new().store(&fixture.room).dispatcher(move |room| {
        let broker = Arc::clone(&broker);
        room.dispatcher().on(TOPIC, move |_: Delivery| {
            let up = broker.load(Ordering::SeqCst);
            async move {
                if up {
                    done()
                } else {
                    Err(HandlerError::infrastructure("the broker is down"))
                }
            }
        })
    });
    for _ in 0..15 {
        assert_eq!(run(&jobs, Job::Processing).await, 20);
        fixture.skip_backoff().await;
    }
    assert_eq!(fixture.rows("outbox").await, 20, "all of them are kept");

    up.store(true, Ordering::SeqCst);
    assert_eq!(run(&jobs, Job::Processing).await, 20);
    assert_eq!(fixture.rows("outbox_done").await, 20);
}

/// Shows DEEP-16, C-47.
async fn old_done_messages_are_deleted_and_nothing_else(fixture: Fixture) {
    done_in_outbox(&fixture, 2).await;
    done_in_inbox(&fixture, "1").await;
    let dead = fixture.enqueue(1).await;
    let (owner, _) = fixture.claim(1).await;
    let outbox = fixture.room.outbox();
    outbox.fail(owner, &dead, "broken").await.unwrap();
    let joins = fixture.room.joins();
    let pending = joins.start(&NewJoin::new(1)).await.unwrap();
    let finished = joins.start(&NewJoin::new(1)).await.unwrap();
    joins.cancel(finished).await.unwrap();
    age(&fixture, 40 * DAY).await;
    done_in_outbox(&fixture, 1).await;
    done_in_inbox(&fixture, "2").await;
    fixture.enqueue(1).await;
    fixture.age("outbox", "created_at", 40 * DAY).await;

    let jobs = Jobs::new().store(&fixture.room);
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 2);
    assert_eq!(run(&jobs, Job::InboxCleanup).await, 1);
    assert_eq!(run(&jobs, Job::JoinCleanup).await, 1);

    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.ready, counts.done, counts.dead), (1, 1, 1));
    assert_eq!(fixture.room.inbox().counts().await.unwrap().done, 1);
    let left = joins.get(pending).await.unwrap().unwrap();
    assert_eq!(left.status, JoinStatus::Pending);
    assert_eq!(joins.get(finished).await.unwrap(), None);
}

/// Shows C-47.
async fn each_queue_has_a_retention_of_its_own(fixture: Fixture) {
    done_in_outbox(&fixture, 1).await;
    done_in_inbox(&fixture, "1").await;
    age(&fixture, 10 * DAY).await;
    let jobs = Jobs::new()
        .store(&fixture.room)
        .outbox_cleanup(Cleanup::older_than(9 * DAY))
        .inbox_cleanup(Cleanup::older_than(11 * DAY));
    assert_eq!(run(&jobs, Job::InboxCleanup).await, 0);
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 1);
    assert_eq!(fixture.room.inbox().counts().await.unwrap().done, 1);
}

/// Shows DEEP-16, DEEP-18, C-47.
async fn the_default_retentions_are_a_week_and_a_month(fixture: Fixture) {
    let jobs = Jobs::new().store(&fixture.room);
    let hour = Duration::from_secs(3600);
    done_in_outbox(&fixture, 1).await;
    done_in_inbox(&fixture, "1").await;
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    joins.cancel(join).await.unwrap();

    age(&fixture, 7 * DAY - hour).await;
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 0);
    // The deep dive's own settings remember arrivals for a week; by default it is a month.
    let settings = r#"{"Jobs": {"OutboxProcessor": {"Enabled": false}}}"#;
    let deep_dive = Jobs::from_settings(&JobSettings::from_json(settings).unwrap()).unwrap();
    let deep_dive = deep_dive.store(&fixture.room);
    done_in_inbox(&fixture, "2").await;
    assert_eq!(run(&deep_dive, Job::InboxCleanup).await, 0);
    age(&fixture, 2 * hour).await;
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 1);
    assert_eq!(run(&jobs, Job::InboxCleanup).await, 0);
    assert_eq!(run(&deep_dive, Job::InboxCleanup).await, 1);

    age(&fixture, 23 * DAY - 2 * hour).await;
    assert_eq!(run(&jobs, Job::JoinCleanup).await, 0);
    age(&fixture, 2 * hour).await;
    assert_eq!(run(&jobs, Job::JoinCleanup).await, 1);
    assert_eq!(run(&jobs, Job::InboxCleanup).await, 0);
    age(&fixture, 7 * DAY).await;
    assert_eq!(run(&jobs, Job::InboxCleanup).await, 1);
}

/// Shows C-48.
async fn a_cleanup_of_more_than_one_batch_finishes_the_job(fixture: Fixture) {
    const MANY: usize = 5_100;
    let messages = vec![Message::new(TOPIC, ""); MANY];
    let outbox = fixture.room.outbox();
    outbox.enqueue_many(&messages).await.unwrap();
    let (owner, ids) = fixture.claim(MANY).await;
    outbox.ack(owner, &ids).await.unwrap();
    age(&fixture, 8 * DAY).await;

    let jobs = Jobs::new().store(&fixture.room);
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, MANY as u64);
    assert_eq!(fixture.rows("outbox_done").await, 0);
}

/// Shows C-47.
async fn a_cleanup_leaves_no_join_waiting_for_a_deleted_message(fixture: Fixture) {
    done_in_outbox(&fixture, 1).await;
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.unwrap();
    let list = postroom::List::new(State::Done);
    let message = fixture.room.outbox().list(&list).await.unwrap().remove(0);
    joins.attach(join, message.message_id).await.unwrap();
    age(&fixture, 8 * DAY).await;

    let jobs = Jobs::new().store(&fixture.room);
    assert_eq!(run(&jobs, Job::OutboxCleanup).await, 1);
    let join = joins.get(join).await.unwrap().unwrap();
    assert_eq!(
        (join.status, join.completed_steps),
        (JoinStatus::Completed, 1)
    );
}

async fn expired_leases_are_reaped_in_both_queues(fixture: Fixture) {
    fixture.enqueue(2).await;
    fixture.claim(2).await;
    let inbox = fixture.room.inbox();
    let inbound = Inbound::new("stripe", "1", TOPIC, "");
    inbox.enqueue(&inbound).await.unwrap();
    inbox.claim(OwnerToken::new(), LEASE, 1).await.unwrap();
    let jobs = Jobs::new().store(&fixture.room);

    assert_eq!(
        run(&jobs, Job::Reaping).await,
        0,
        "leases that are held stay"
    );
    fixture.expire_leases().await;
    assert_eq!(run(&jobs, Job::Reaping).await, 3);
    assert_eq!(fixture.live("owner_token IS NOT NULL").await, 0);
}

/// One store has no tables, and is named first: each job fails there and works in the others.
///
/// Shows DEEP-19.
async fn a_broken_store_does_not_stop_the_rest(fixture: Fixture) {
    let broken = Fixture::empty(fixture.backend).await;
    let other = Fixture::new(fixture.backend).await;
    let jobs = Jobs::new()
        .store(&broken.room)
        .store(&fixture.room)
        .store(&other.room)
        .dispatcher(handled);
    for fixture in [&fixture, &other] {
        done_in_outbox(fixture, 1).await;
        done_in_inbox(fixture, "1").await;
        let joins = fixture.room.joins();
        let join = joins.start(&NewJoin::new(1)).await.unwrap();
        joins.cancel(join).await.unwrap();
        age(fixture, 40 * DAY).await;
        fixture.enqueue(1).await;
        fixture.claim(1).await;
        fixture.expire_leases().await;
    }
    for job in [
        Job::OutboxCleanup,
        Job::InboxCleanup,
        Job::JoinCleanup,
        Job::Reaping,
        Job::Processing,
    ] {
        let report = jobs.run_once(job).await.unwrap();
        let stores: Vec<_> = report.stores.iter().map(|one| one.store.as_str()).collect();
        let named = [&broken, &fixture, &other].map(|one| one.room.identifier());
        assert_eq!(stores, named, "{job}");
        assert!(report.stores[0].result.is_err(), "{job}");
        assert_eq!(report.stores[1].result, Ok(1), "{job}");
        assert_eq!(report.stores[2].result, Ok(1), "{job}");
        assert_eq!(report.count(), 2);
    }
}

/// Shows DEEP-19.
async fn failures_are_logged_and_counted_by_job_and_store(fixture: Fixture) {
    let broken = Fixture::empty(fixture.backend).await;
    let jobs = Jobs::new().store(&broken.room).store(&fixture.room);
    let (logs, numbers) = (logs::catch(), Numbers::default());
    let guard = metrics::set_default_local_recorder(&numbers);

    jobs.run_once(Job::InboxCleanup).await.unwrap();
    jobs.run_once(Job::InboxCleanup).await.unwrap();
    drop(guard);

    let lines = logs.at(Level::ERROR, "job failed; tried again at its next time");
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].field("job"), "inbox_cleanup");
    assert_eq!(lines[0].field("store"), broken.room.identifier());
    assert!(!lines[0].field("error").is_empty());

    let of = |name: &str, fixture: &Fixture| {
        let store = fixture.room.identifier();
        numbers.of(&format!("{name} job=inbox_cleanup store={store}"))
    };
    assert_eq!(of("postroom_job_runs_total", &broken), 2);
    assert_eq!(of("postroom_job_runs_total", &fixture), 2);
    assert_eq!(of("postroom_job_failures_total", &broken), 2);
    assert_eq!(of("postroom_job_failures_total", &fixture), 0);
}

/// Shows DEEP-19.
async fn the_size_of_the_queues_is_a_metric(fixture: Fixture) {
    done_in_outbox(&fixture, 2).await;
    fixture.enqueue(3).await;
    fixture.claim(1).await;
    let inbound = Inbound::new("stripe", "1", TOPIC, "");
    fixture.room.inbox().enqueue(&inbound).await.unwrap();
    let jobs = Jobs::new().store(&fixture.room);
    let numbers = Numbers::default();
    let guard = metrics::set_default_local_recorder(&numbers);

    assert_eq!(run(&jobs, Job::Counting).await, 6);
    drop(guard);

    let store = fixture.room.identifier();
    let of = |queue: &str, state: &str| {
        let name = format!("postroom_messages store={store} queue={queue} state={state}");
        f64::from_bits(numbers.of(&name))
    };
    assert_eq!(of("outbox", "ready"), 2.0);
    assert_eq!(of("outbox", "in_flight"), 1.0);
    assert_eq!(of("outbox", "done"), 2.0);
    assert_eq!(of("outbox", "dead"), 0.0);
    assert_eq!(of("inbox", "processing"), 1.0);
}

/// Two processes with the same jobs share the work: no message is handled twice, none deleted twice.
///
/// Shows DEEP-05, DEEP-19.
async fn many_may_do_the_same_job_at_once(fixture: Fixture) {
    done_in_outbox(&fixture, 100).await;
    age(&fixture, 8 * DAY).await;
    fixture.enqueue(300).await;
    let handled = Arc::new(AtomicUsize::new(0));
    let jobs = |room: &Postroom| {
        let handled = Arc::clone(&handled);
        Jobs::new().store(room).dispatcher(move |room| {
            let handled = Arc::clone(&handled);
            room.dispatcher().on(TOPIC, move |_: Delivery| {
                handled.fetch_add(1, Ordering::SeqCst);
                async {}
            })
        })
    };
    let (one, two) = (jobs(&fixture.room), jobs(&fixture.again().await));
    let (first, second) =
        tokio::join!(run(&one, Job::OutboxCleanup), run(&two, Job::OutboxCleanup));
    assert_eq!(first + second, 100);
    assert_eq!(fixture.rows("outbox_done").await, 0);
    let (first, second) = tokio::join!(run(&one, Job::Processing), run(&two, Job::Processing));
    assert_eq!(first + second, 300);
    assert_eq!(handled.load(Ordering::SeqCst), 300);
    assert_eq!(fixture.rows("outbox_done").await, 300);
}

async fn stores_are_asked_for_each_time_and_worked_once(fixture: Fixture) {
    let other = Fixture::new(fixture.backend).await;
    let fleet = Arc::new(Mutex::new(vec![fixture.room.clone()]));
    let rooms = Arc::clone(&fleet);
    let jobs = Jobs::new()
        .store(&fixture.room)
        .stores(move || rooms.lock().unwrap().clone());
    let stores = async || {
        let report = jobs.run_once(Job::Reaping).await.unwrap();
        let stores = report.stores.into_iter();
        stores.map(|one| one.store).collect::<Vec<_>>()
    };
    let (this, that) = (fixture.room.identifier(), other.room.identifier());
    assert_eq!(stores().await, [this]);
    fleet.lock().unwrap().push(other.room.clone());
    assert_eq!(stores().await, [this, that]);
    fleet.lock().unwrap().clear();
    assert_eq!(stores().await, [this]);
}

/// Shows C-49, C-53.
async fn batch_chunk_and_retention_are_positive(fixture: Fixture) {
    let jobs = || Jobs::new().store(&fixture.room).dispatcher(handled);
    let none = || Cleanup::older_than(Duration::ZERO);
    let processing = Processing::default;
    let wrong = [
        ("outbox_cleanup.retention", jobs().outbox_cleanup(none())),
        ("inbox_cleanup.retention", jobs().inbox_cleanup(none())),
        ("join_cleanup.retention", jobs().join_cleanup(none())),
        (
            "inbox_cleanup.retention",
            jobs().inbox_cleanup(Cleanup::older_than(Duration::MAX)),
        ),
        (
            "inbox_cleanup.retention",
            jobs().inbox_cleanup(none().enabled(false)),
        ),
        ("processing.batch", jobs().processing(processing().batch(0))),
        ("processing.chunk", jobs().processing(processing().chunk(0))),
        (
            "processing.batch",
            jobs().processing(processing().batch(10_001)),
        ),
    ];
    done_in_outbox(&fixture, 1).await;
    for (param, jobs) in wrong {
        let refused = ErrorKind::OutOfRange { param };
        for job in Job::ALL {
            assert_eq!(jobs.run_once(job).await.unwrap_err().kind(), refused);
        }
        assert_eq!(jobs.start().unwrap_err().kind(), refused);
    }
    assert_eq!(fixture.rows("outbox_done").await, 1);
}

async fn a_job_needs_what_it_works_with(fixture: Fixture) {
    let nowhere = Jobs::new().run_once(Job::Reaping).await.unwrap_err();
    assert_eq!(nowhere.param(), Some("stores"));
    assert_eq!(Jobs::new().start().unwrap_err().param(), Some("stores"));

    let jobs = Jobs::new().store(&fixture.room);
    let nothing = jobs.run_once(Job::Processing).await.unwrap_err();
    assert_eq!(nothing.param(), Some("dispatcher"));
    assert_eq!(
        run(&jobs, Job::Reaping).await,
        0,
        "the others do not need it"
    );
    let jobs = jobs.processing(Processing::default());
    assert_eq!(jobs.start().unwrap_err().param(), Some("dispatcher"));
}

/// Counters, and gauges as bits, by name and labels.
#[derive(Default)]
struct Numbers(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Numbers {
    fn of(&self, name: &str) -> u64 {
        let numbers = self.0.lock().unwrap();
        let number = numbers.get(name);
        number.map_or(0, |number| number.load(Ordering::SeqCst))
    }

    fn register(&self, key: &Key) -> Arc<AtomicU64> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            name = format!("{name} {}={}", label.key(), label.value());
        }
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }
}

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
