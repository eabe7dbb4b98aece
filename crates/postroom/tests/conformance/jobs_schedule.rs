//! When jobs run: cron expressions, the settings of .NET services, ticks, and the way to stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postroom::jobs::{Cleanup, Job, JobSettings, Jobs, Processing, Schedule};
use postroom::{Delivery, Dispatcher, ErrorKind, Inbound, Postroom};
use testkit::{Fixture, eventually};
use tokio::sync::Semaphore;

testkit::mount!(
    the_default_schedules_are_those_of_the_deep_dive,
    an_expression_that_is_none_is_refused_by_name,
    settings_are_read_as_they_are_written_there,
    what_is_missing_in_the_settings_has_its_default,
    days_are_days_whatever_their_sign,
    a_purge_by_hand_goes_by_the_cut_off_day,
    settings_of_zero_and_unknown_ones_are_refused,
    a_job_that_is_not_enabled_is_not_due,
    messages_are_processed_at_every_tick,
    cleanups_and_reaping_come_by_themselves,
    a_store_that_takes_long_is_left_alone_by_the_next_tick,
    a_broken_store_does_not_stop_the_ticks,
    jobs_stop_at_once_when_they_are_told_to,
    what_is_not_begun_is_handed_back_at_a_stop,
    two_processes_with_the_same_jobs_handle_each_message_once,
);

const DAY: Duration = Duration::from_secs(24 * 3600);
const TOPIC: &str = "order.created";
const EVERY_SECOND: &str = "* * * * * ?";

fn handled(room: &Postroom) -> Dispatcher {
    room.dispatcher().on(TOPIC, |_: Delivery| async {})
}

/// Jobs none of which is due.
fn quiet() -> Jobs {
    let never = Schedule::cron("0 0 0 1 1 ?").enabled(false);
    Jobs::new()
        .outbox_cleanup(Cleanup::older_than(7 * DAY).enabled(false))
        .inbox_cleanup(Cleanup::older_than(7 * DAY).enabled(false))
        .join_cleanup(Cleanup::older_than(7 * DAY).enabled(false))
        .reaping(never)
}

/// An inbox message that was done so long ago.
async fn done_before(fixture: &Fixture, id: &str, age: Duration) {
    let inbound = Inbound::new("stripe", id, TOPIC, "");
    fixture.room.inbox().enqueue(&inbound).await.unwrap();
    let dispatcher = fixture.room.dispatcher();
    let dispatcher = dispatcher.on_inbound(TOPIC, |_: Delivery| async {});
    assert_eq!(dispatcher.drain().await.unwrap().done, 1);
    fixture.age("inbox_seen", "last_seen", age).await;
    fixture.age("inbox_done", "processed_at", age).await;
}

/// Shows DEEP-04, DEEP-16, DEEP-18.
async fn the_default_schedules_are_those_of_the_deep_dive(_: Fixture) {
    let jobs = Jobs::new().dispatcher(handled);
    let expected = [
        (Job::Processing, "0/5 * * * * ?", true),
        (Job::OutboxCleanup, "0 0 0 * * ?", true),
        (Job::InboxCleanup, "0 0 0 * * ?", true),
        (Job::JoinCleanup, "0 0 0 * * ?", true),
        (Job::Reaping, "0 * * * * ?", true),
        (Job::Counting, "0 * * * * ?", false),
    ];
    for (job, expression, enabled) in expected {
        let schedule = jobs.schedule(job);
        assert_eq!(
            (schedule.expression(), schedule.is_enabled()),
            (expression, enabled),
            "{job}"
        );
    }
    let settings = JobSettings::default();
    assert_eq!(settings.jobs.retention_days, 7);
    assert_eq!(settings.jobs.outbox_processor.batch_size, 50);
    assert_eq!(settings.jobs.outbox_processor.chunk, 5);
    assert_eq!(settings.outbox_configurations.cut_off_day, -7);
    let from_settings = Jobs::from_settings(&settings).unwrap();
    for job in Job::ALL {
        assert_eq!(from_settings.schedule(job), jobs.schedule(job), "{job}");
    }
}

async fn an_expression_that_is_none_is_refused_by_name(fixture: Fixture) {
    let bad = || Schedule::cron("every day");
    let cleanup = |expression: &str| Cleanup::older_than(DAY).cron(expression);
    let jobs = || quiet().store(&fixture.room);
    let wrong = [
        ("reaping.cron", "every day", jobs().reaping(bad())),
        (
            "counting.cron",
            "every day",
            jobs().counting(bad().enabled(false)),
        ),
        (
            "inbox_cleanup.cron",
            "61 * * * * ?",
            jobs().inbox_cleanup(cleanup("61 * * * * ?")),
        ),
        (
            "outbox_cleanup.cron",
            "0 0 0 30 2 ?",
            jobs().outbox_cleanup(cleanup("0 0 0 30 2 ?")),
        ),
        ("join_cleanup.cron", "", jobs().join_cleanup(cleanup(""))),
        (
            "processing.cron",
            "* * * *",
            jobs()
                .dispatcher(handled)
                .processing(Processing::default().cron("* * * *")),
        ),
    ];
    for (param, expression, jobs) in wrong {
        let error = jobs.start().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
        let text = error.to_string();
        assert!(text.contains(&format!("`{expression}`")), "{text}");
        let (job, _) = param.split_once('.').unwrap();
        assert!(text.contains(&format!("schedule for {job}:")), "{text}");
    }
}

/// Shows DEEP-18.
async fn settings_are_read_as_they_are_written_there(fixture: Fixture) {
    let settings = JobSettings::from_json(
        r#"{
            "Jobs": {
                "RetentionDays": 14,
                "InboxCleanup": { "CronExpression": "0 30 3 * * ?", "Enabled": false },
                "OutboxProcessor": {
                    "CronExpression": "0/10 * * * * ?",
                    "BatchSize": 3,
                    "Chunk": 2,
                    "Enabled": true
                },
                "Reaping": { "Enabled": false }
            },
            "OutboxConfigurations": { "CutOffDay": -3 }
        }"#,
    )
    .unwrap();
    let jobs = Jobs::from_settings(&settings).unwrap();
    let jobs = jobs.store(&fixture.room).dispatcher(handled);
    let inbox_cleanup = Schedule::cron("0 30 3 * * ?").enabled(false);
    assert_eq!(jobs.schedule(Job::InboxCleanup), inbox_cleanup);
    let processing = Schedule::cron("0/10 * * * * ?");
    assert_eq!(jobs.schedule(Job::Processing), processing);
    assert!(!jobs.schedule(Job::Reaping).is_enabled());

    done_before(&fixture, "15 days", DAY).await;
    done_before(&fixture, "14 days", DAY + 13 * DAY).await;
    done_before(&fixture, "0 days", Duration::ZERO).await;
    let report = jobs.run_once(Job::InboxCleanup).await.unwrap();
    assert_eq!(report.count(), 2, "older than 14 days");

    fixture.enqueue(7).await;
    let logs = testkit::logs::catch();
    let report = jobs.run_once(Job::Processing).await.unwrap();
    assert_eq!(report.count(), 7);
    let claims = logs.at(tracing::Level::DEBUG, "claimed");
    assert_eq!(claims[0].field("count"), "3");

    fixture.age("outbox_done", "processed_at", 4 * DAY).await;
    let report = jobs.run_once(Job::OutboxCleanup).await.unwrap();
    assert_eq!(report.count(), 7, "older than the cut-off");
}

/// Shows DEEP-18, C-53.
async fn what_is_missing_in_the_settings_has_its_default(_: Fixture) {
    for text in [
        "{}",
        r#"{ "Jobs": {} }"#,
        r#"{ "Jobs": { "InboxCleanup": {}, "OutboxProcessor": {} }, "OutboxConfigurations": {} }"#,
    ] {
        let settings = JobSettings::from_json(text).unwrap();
        assert_eq!(settings, JobSettings::default(), "{text}");
    }
}

/// Shows C-49.
async fn days_are_days_whatever_their_sign(fixture: Fixture) {
    for days in [7, -7] {
        let text = format!(r#"{{ "Jobs": {{ "RetentionDays": {days} }} }}"#);
        let settings = JobSettings::from_json(&text).unwrap();
        let jobs = Jobs::from_settings(&settings).unwrap();
        let jobs = jobs.store(&fixture.room).dispatcher(handled);
        done_before(&fixture, "young", Duration::ZERO).await;
        let report = jobs.run_once(Job::InboxCleanup).await.unwrap();
        assert_eq!(report.count(), 0, "{days}: what is young stays");
        let inbox = fixture.room.inbox();
        assert_eq!(inbox.counts().await.unwrap().done, 1);
        fixture.age("inbox_seen", "last_seen", 8 * DAY).await;
        let report = jobs.run_once(Job::InboxCleanup).await.unwrap();
        assert_eq!(report.count(), 1, "{days}: what is old goes");
    }
}

/// Shows DEEP-17, C-49.
async fn a_purge_by_hand_goes_by_the_cut_off_day(fixture: Fixture) {
    let settings = JobSettings::default();
    assert_eq!(settings.outbox_configurations.cut_off_day, -7);
    let cut_off = settings.cut_off().unwrap();
    assert_eq!(cut_off, 7 * DAY);

    done_before(&fixture, "old", 8 * DAY).await;
    done_before(&fixture, "young", Duration::ZERO).await;
    let inbox = fixture.room.inbox();
    assert_eq!(inbox.cleanup(cut_off).await.unwrap(), 1);
    assert_eq!(inbox.counts().await.unwrap().done, 1);
}

/// Shows DEEP-18, C-49, C-53.
async fn settings_of_zero_and_unknown_ones_are_refused(_: Fixture) {
    let out_of_range = [
        ("Jobs:RetentionDays", r#"{"Jobs": {"RetentionDays": 0}}"#),
        (
            "Jobs:RetentionDays",
            r#"{"Jobs": {"RetentionDays": -9223372036854775808}}"#,
        ),
        (
            "OutboxConfigurations:CutOffDay",
            r#"{"OutboxConfigurations": {"CutOffDay": 0}}"#,
        ),
        (
            "Jobs:OutboxProcessor:BatchSize",
            r#"{"Jobs": {"OutboxProcessor": {"BatchSize": 0}}}"#,
        ),
        (
            "Jobs:OutboxProcessor:Chunk",
            r#"{"Jobs": {"OutboxProcessor": {"Chunk": 0}}}"#,
        ),
    ];
    for (param, text) in out_of_range {
        let settings = JobSettings::from_json(text).unwrap();
        let error = Jobs::from_settings(&settings).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::OutOfRange { param });
    }
    let no_schedule = r#"{"Jobs": {"InboxCleanup": {"CronExpression": "daily"}}}"#;
    let settings = JobSettings::from_json(no_schedule).unwrap();
    let error = Jobs::from_settings(&settings).err().unwrap();
    assert_eq!(error.param(), Some("inbox_cleanup.cron"));

    for (unknown, text) in [
        ("RetentionDay", r#"{"Jobs": {"RetentionDay": 7}}"#),
        ("Job", r#"{"Job": {}}"#),
        ("Chunks", r#"{"Jobs": {"OutboxProcessor": {"Chunks": 5}}}"#),
        ("Cron", r#"{"Jobs": {"InboxCleanup": {"Cron": "@daily"}}}"#),
        ("Days", r#"{"OutboxConfigurations": {"Days": 7}}"#),
    ] {
        let error = JobSettings::from_json(text).unwrap_err();
        assert_eq!(error.param(), Some("settings"));
        let text = error.to_string();
        assert!(
            text.contains(&format!("unknown field `{unknown}`")),
            "{text}"
        );
    }
    let negative = r#"{"Jobs": {"OutboxProcessor": {"BatchSize": -1}}}"#;
    assert!(JobSettings::from_json(negative).is_err());
}

/// What is disabled has not run by the time that something else, due just as often, has run often.
///
/// Shows DEEP-18.
async fn a_job_that_is_not_enabled_is_not_due(fixture: Fixture) {
    fixture.enqueue(1).await;
    done_before(&fixture, "old", 8 * DAY).await;
    let settings = JobSettings::from_json(
        r#"{ "Jobs": {
            "OutboxProcessor": { "CronExpression": "* * * * * ?", "Enabled": false },
            "InboxCleanup": { "CronExpression": "* * * * * ?", "Enabled": false },
            "Reaping": { "CronExpression": "* * * * * ?" }
        } }"#,
    )
    .unwrap();
    let ticks = Arc::new(AtomicUsize::new(0));
    let (counted, room) = (Arc::clone(&ticks), fixture.room.clone());
    let running = Jobs::from_settings(&settings)
        .unwrap()
        .dispatcher(handled)
        .stores(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            vec![room.clone()]
        })
        .start()
        .unwrap();
    eventually(async || (ticks.load(Ordering::SeqCst) >= 4).then_some(())).await;
    running.stop().await;
    assert_eq!(fixture.rows("outbox").await, 1);
    assert_eq!(fixture.room.inbox().counts().await.unwrap().done, 1);
}

/// Shows DEEP-04.
async fn messages_are_processed_at_every_tick(fixture: Fixture) {
    let processing = Processing::default().cron(EVERY_SECOND);
    let jobs = quiet()
        .store(&fixture.room)
        .dispatcher(handled)
        .processing(processing);
    jobs.run_until(async {
        for round in 1..=2 {
            fixture.enqueue(60).await;
            let processed =
                async || (fixture.rows("outbox_done").await == 60 * round).then_some(());
            eventually(processed).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(fixture.rows("outbox").await, 0);
}

/// Shows DEEP-16.
async fn cleanups_and_reaping_come_by_themselves(fixture: Fixture) {
    done_before(&fixture, "old", 8 * DAY).await;
    fixture.enqueue(1).await;
    fixture.claim(1).await;
    fixture.expire_leases().await;
    let running = quiet()
        .store(&fixture.room)
        .inbox_cleanup(Cleanup::older_than(7 * DAY).cron(EVERY_SECOND))
        .reaping(Schedule::cron(EVERY_SECOND))
        .start()
        .unwrap();
    eventually(async || (fixture.rows("inbox_seen").await == 0).then_some(())).await;
    let reaped = async || (fixture.live("owner_token IS NOT NULL").await == 0).then_some(());
    eventually(reaped).await;
    running.stop().await;
}

/// While one store's handler hangs, the other store is processed at every tick; the first is not started
/// a second time, and goes on when its handler has ended.
async fn a_store_that_takes_long_is_left_alone_by_the_next_tick(fixture: Fixture) {
    let other = Fixture::new(fixture.backend).await;
    let gate = Arc::new(Semaphore::new(0));
    let runs: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let (held, counted) = (Arc::clone(&gate), Arc::clone(&runs));
    let slow = fixture.room.identifier().to_owned();
    fixture.enqueue(1).await;
    let running = quiet()
        .store(&fixture.room)
        .store(&other.room)
        .processing(Processing::default().cron(EVERY_SECOND))
        .dispatcher(move |room| {
            let store = room.identifier().to_owned();
            let is_slow = store == slow;
            *counted.lock().unwrap().entry(store).or_default() += 1;
            let gate = Arc::clone(&held);
            room.dispatcher().on(TOPIC, move |_: Delivery| {
                let gate = Arc::clone(&gate);
                async move {
                    if is_slow {
                        gate.acquire().await.unwrap().forget();
                    }
                }
            })
        })
        .start()
        .unwrap();
    let runs_of = |fixture: &Fixture| {
        let runs = runs.lock().unwrap();
        runs.get(fixture.room.identifier()).copied().unwrap_or(0)
    };
    eventually(async || (runs_of(&other) >= 4).then_some(())).await;
    assert_eq!(runs_of(&fixture), 1);

    gate.add_permits(1);
    eventually(async || (runs_of(&fixture) >= 2).then_some(())).await;
    assert_eq!(fixture.rows("outbox_done").await, 1);
    running.stop().await;
}

/// Shows DEEP-19.
async fn a_broken_store_does_not_stop_the_ticks(fixture: Fixture) {
    let broken = Fixture::empty(fixture.backend).await;
    let running = quiet()
        .store(&broken.room)
        .store(&fixture.room)
        .dispatcher(handled)
        .processing(Processing::default().cron(EVERY_SECOND))
        .start()
        .unwrap();
    for round in 1..=2 {
        fixture.enqueue(1).await;
        let processed = async || (fixture.rows("outbox_done").await == round).then_some(());
        eventually(processed).await;
    }
    broken.room.deploy().await.unwrap();
    broken.enqueue(1).await;
    eventually(async || (broken.rows("outbox_done").await == 1).then_some(())).await;
    running.stop().await;
}

async fn jobs_stop_at_once_when_they_are_told_to(fixture: Fixture) {
    let jobs = || Jobs::new().store(&fixture.room).dispatcher(handled);
    let told = Instant::now();
    jobs().start().unwrap().stop().await;
    jobs().run_until(async {}).await.unwrap();
    assert!(told.elapsed() < Duration::from_secs(10));
}

/// Of ten claimed messages one hangs in its handler. At the deadline it is cancelled, and all ten are
/// ready for others.
async fn what_is_not_begun_is_handed_back_at_a_stop(fixture: Fixture) {
    fixture.enqueue(10).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&begun);
    let running = quiet()
        .store(&fixture.room)
        .processing(Processing::default().cron(EVERY_SECOND))
        .dispatcher(move |room| {
            let begun = Arc::clone(&counted);
            room.dispatcher()
                .concurrency(1)
                .shutdown_deadline(Duration::from_millis(200))
                .on(TOPIC, move |_: Delivery| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>()
                })
        })
        .start()
        .unwrap();
    eventually(async || (begun.load(Ordering::SeqCst) == 1).then_some(())).await;
    running.stop().await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    let counts = fixture.room.outbox().counts().await.unwrap();
    assert_eq!((counts.ready, counts.in_flight), (10, 0));
    assert_eq!(fixture.live("attempt_count > 0").await, 0);
}

/// Shows DEEP-19, DEEP-05.
async fn two_processes_with_the_same_jobs_handle_each_message_once(fixture: Fixture) {
    let handled = Arc::new(AtomicUsize::new(0));
    let start = |room: &Postroom| {
        let handled = Arc::clone(&handled);
        quiet()
            .store(room)
            .reaping(Schedule::cron(EVERY_SECOND))
            .outbox_cleanup(Cleanup::older_than(DAY).cron(EVERY_SECOND))
            .processing(Processing::default().cron(EVERY_SECOND))
            .dispatcher(move |room| {
                let handled = Arc::clone(&handled);
                room.dispatcher().on(TOPIC, move |_: Delivery| {
                    handled.fetch_add(1, Ordering::SeqCst);
                    async {}
                })
            })
            .start()
            .unwrap()
    };
    let other = fixture.again().await;
    let (one, two) = (start(&fixture.room), start(&other));
    fixture.enqueue(200).await;
    eventually(async || (fixture.rows("outbox").await == 0).then_some(())).await;
    one.stop().await;
    two.stop().await;
    assert_eq!(handled.load(Ordering::SeqCst), 200);
    assert_eq!(fixture.rows("outbox_done").await, 200);
}
