//! The dispatcher of envelopes: publish, try again, give up.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postroom::transport::{
    DispatcherOptions, Endpoint, Envelope, OutboxDispatcher, OutboxState, Publisher,
    TransportMessage,
};
use postroom::{ErrorKind, HandlerError, Message, Postroom, WorkItemId};
use testkit::{Backend, Fixture, eventually, micros};
use tracing::Level;

use testkit::logs;

testkit::mount!(
    what_is_pending_is_published_by_hand,
    the_defaults_are_those_of_the_document,
    options_out_of_range_are_refused,
    a_failed_publish_is_tried_again_after_the_base_delay_and_then_twice_that,
    a_publish_that_keeps_failing_is_poisoned_with_its_cause,
    without_retries_the_first_failure_is_the_last,
    a_permanent_failure_is_not_tried_again,
    one_failing_message_does_not_stop_the_rest,
    the_loop_begins_after_its_startup_delay,
    the_loop_stops_at_once_when_it_is_told_to,
    the_loop_logs_a_failing_database_and_goes_on_when_it_is_back,
    a_message_tells_all_about_itself,
    every_state_has_its_number,
    a_message_needs_an_id_a_destination_and_an_envelope,
    a_batch_is_published_one_by_one_unless_a_broker_knows_better,
    transport_has_nothing_to_do_with_a_database,
    a_store_a_publisher_and_options_are_all_that_a_service_needs,
    two_dispatchers_publish_each_message_once,
);

const SECOND: Duration = Duration::from_secs(1);

/// A broker in memory: remembers what was published, and fails for the addresses that it is told to.
#[derive(Default)]
struct Broker {
    published: Mutex<Vec<(Envelope, Endpoint)>>,
    tries: Mutex<Vec<Instant>>,
    down: Mutex<Option<HandlerError>>,
}

impl Broker {
    fn down(error: HandlerError) -> Arc<Self> {
        Arc::new(Self {
            down: Mutex::new(Some(error)),
            ..Self::default()
        })
    }

    fn published(&self) -> Vec<String> {
        let published = self.published.lock().unwrap();
        published
            .iter()
            .map(|(envelope, _)| envelope.message_id.clone())
            .collect()
    }

    fn tries(&self) -> usize {
        self.tries.lock().unwrap().len()
    }
}

impl Publisher for Broker {
    async fn publish(
        &self,
        envelope: &Envelope,
        destination: &Endpoint,
    ) -> Result<(), HandlerError> {
        self.tries.lock().unwrap().push(Instant::now());
        if let Some(error) = self.down.lock().unwrap().clone() {
            return Err(error);
        }
        match destination.address.as_str() {
            "nowhere" => return Err(HandlerError::business("no route")),
            "panic" => panic!("the broker's client is broken"),
            _ => {}
        }
        let published = (envelope.clone(), destination.clone());
        self.published.lock().unwrap().push(published);
        Ok(())
    }
}

fn orders() -> Endpoint {
    Endpoint::new("orders", "orders.created")
}

/// Saves envelopes with these message ids, each in a transaction of the caller's.
async fn save(fixture: &Fixture, destination: &Endpoint, ids: &[&str]) -> Vec<String> {
    let outbox = fixture.room.transport_outbox();
    let mut saved = Vec::new();
    for id in ids {
        let envelope = Envelope::new(*id, "order", "x").header("Trace", "1");
        saved.push(match fixture.backend {
            Backend::Sqlite => {
                let mut connection = fixture.sqlite();
                let mut transaction = connection.transaction().unwrap();
                let id = outbox
                    .save(&mut transaction, destination, &envelope)
                    .await
                    .unwrap();
                transaction.commit().unwrap();
                id
            }
            Backend::Postgres => {
                let mut client = fixture.postgres().await;
                let mut transaction = client.transaction().await.unwrap();
                let id = outbox
                    .save(&mut transaction, destination, &envelope)
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
                id
            }
            Backend::MySql => {
                let mut client = fixture.mysql().await;
                let mut transaction = testkit::mysql::begin(&mut client).await;
                let id = outbox
                    .save(&mut transaction, destination, &envelope)
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
                id
            }
            Backend::SqlServer => {
                let mut transaction = fixture.sqlserver().await;
                transaction.begin_transaction().await.unwrap();
                let id = outbox
                    .save(&mut transaction, destination, &envelope)
                    .await
                    .unwrap();
                transaction.commit_transaction().await.unwrap();
                id
            }
        });
    }
    saved
}

fn dispatcher(room: &Postroom, broker: &Arc<Broker>) -> OutboxDispatcher<Arc<Broker>> {
    OutboxDispatcher::new(room.transport_outbox(), Arc::clone(broker))
}

async fn look(fixture: &Fixture, id: &str) -> TransportMessage {
    let message = fixture.room.transport_outbox().get(id).await;
    message.unwrap().unwrap()
}

/// Shows HDT-08, HDT-13.
async fn what_is_pending_is_published_by_hand(fixture: Fixture) {
    let ids = save(&fixture, &orders(), &["m-1", "m-2", "m-3"]).await;
    let broker = Arc::new(Broker::default());
    let dispatcher = dispatcher(&fixture.room, &broker);

    assert_eq!(dispatcher.dispatch_pending(2).await.unwrap().done, 2);
    assert_eq!(broker.published(), ["m-1", "m-2"], "the oldest first");
    let (envelope, destination) = broker.published.lock().unwrap()[0].clone();
    assert_eq!(
        (envelope, destination),
        (
            Envelope::new("m-1", "order", "x").header("Trace", "1"),
            orders()
        )
    );
    assert_eq!(look(&fixture, &ids[1]).await.state, OutboxState::Dispatched);
    assert_eq!(look(&fixture, &ids[2]).await.state, OutboxState::Pending);

    assert_eq!(dispatcher.dispatch_pending(100).await.unwrap().done, 1);
    assert_eq!(dispatcher.dispatch_pending(100).await.unwrap().handled(), 0);
    assert_eq!(
        dispatcher.dispatch_pending(0).await.unwrap_err().kind(),
        ErrorKind::OutOfRange { param: "batch" }
    );
    assert_eq!(broker.tries(), 3);
}

/// Shows HDT-11.
async fn the_defaults_are_those_of_the_document(_: Fixture) {
    assert_eq!(
        DispatcherOptions::default(),
        DispatcherOptions {
            poll_interval: 5 * SECOND,
            batch_size: 100,
            max_retry_attempts: 5,
            base_retry_delay: SECOND,
            max_retry_delay: 300 * SECOND,
            startup_delay: Duration::ZERO,
            error_delay: 30 * SECOND,
        }
    );
}

/// Shows HDT-11, C-53.
async fn options_out_of_range_are_refused(fixture: Fixture) {
    save(&fixture, &orders(), &["m-1"]).await;
    let broker = Arc::new(Broker::default());
    let default = DispatcherOptions::default;
    let years = 400 * 86_400 * SECOND;
    let zero = Duration::ZERO;
    let wrong = [
        (
            "batch_size",
            DispatcherOptions {
                batch_size: 0,
                ..default()
            },
        ),
        (
            "batch_size",
            DispatcherOptions {
                batch_size: 10_001,
                ..default()
            },
        ),
        (
            "poll_interval",
            DispatcherOptions {
                poll_interval: zero,
                ..default()
            },
        ),
        (
            "error_delay",
            DispatcherOptions {
                error_delay: zero,
                ..default()
            },
        ),
        (
            "base_retry_delay",
            DispatcherOptions {
                base_retry_delay: zero,
                ..default()
            },
        ),
        (
            "base_retry_delay",
            DispatcherOptions {
                base_retry_delay: 301 * SECOND,
                ..default()
            },
        ),
        (
            "max_retry_delay",
            DispatcherOptions {
                max_retry_delay: zero,
                ..default()
            },
        ),
        (
            "max_retry_delay",
            DispatcherOptions {
                max_retry_delay: years,
                ..default()
            },
        ),
        (
            "startup_delay",
            DispatcherOptions {
                startup_delay: years,
                ..default()
            },
        ),
    ];
    for (param, options) in wrong {
        let dispatcher = dispatcher(&fixture.room, &broker).options(options);
        let refused = ErrorKind::OutOfRange { param };
        assert_eq!(dispatcher.start().unwrap_err().kind(), refused);
        let by_hand = dispatcher.dispatch_pending(10).await;
        assert_eq!(by_hand.unwrap_err().kind(), refused);
        let until = dispatcher.run_until(async {}).await;
        assert_eq!(until.unwrap_err().kind(), refused);
    }
    assert_eq!(broker.tries(), 0);
}

/// Whose fault a failure is makes no difference.
///
/// Shows HDT-13.
async fn a_failed_publish_is_tried_again_after_the_base_delay_and_then_twice_that(
    fixture: Fixture,
) {
    let id = save(&fixture, &orders(), &["m-1"]).await.remove(0);
    let broker = Broker::down(HandlerError::business("no route"));
    let dispatcher = dispatcher(&fixture.room, &broker).options(DispatcherOptions {
        max_retry_attempts: 4,
        max_retry_delay: 3 * SECOND,
        ..DispatcherOptions::default()
    });
    for (attempts, delay) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        if attempts == 2 {
            let away = HandlerError::infrastructure("connection refused");
            *broker.down.lock().unwrap() = Some(away);
        }
        let before = fixture.clock().await;
        assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().retried, 1);

        let message = look(&fixture, &id).await;
        assert_eq!(
            (message.state, message.attempts),
            (OutboxState::Failed, attempts)
        );
        let work_item: WorkItemId = id.parse().unwrap();
        let tried = fixture
            .time_of("outbox", "last_attempt_at", work_item)
            .await;
        let next = fixture
            .time_of("outbox", "next_attempt_at", work_item)
            .await;
        assert!((before..=fixture.clock().await).contains(&tried));
        assert_eq!(next - tried, micros(delay * SECOND));
        fixture.skip_backoff().await;
    }
    assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().dead, 1);
    assert_eq!(broker.tries(), 5);
}

/// Shows HDT-13, C-10, C-17.
async fn a_publish_that_keeps_failing_is_poisoned_with_its_cause(fixture: Fixture) {
    let id = save(&fixture, &orders(), &["m-1"]).await.remove(0);
    let broker = Broker::down(HandlerError::infrastructure("connection refused"));
    let dispatcher = dispatcher(&fixture.room, &broker);
    for _ in 0..5 {
        assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().retried, 1);
        let early = dispatcher.dispatch_pending(10).await.unwrap();
        assert_eq!(early.handled(), 0, "not before its time");
        fixture.skip_backoff().await;
    }
    assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().dead, 1);

    assert_eq!(broker.tries(), 6, "once, and five retries");
    let message = look(&fixture, &id).await;
    assert_eq!(message.state, OutboxState::Poisoned);
    assert_eq!(message.attempts, 5, "what it was loaded with");
    assert!(message.processed_at.is_some());
    assert_eq!(
        message.error_message.as_deref(),
        Some("[INFRA] Exceeded maximum retry attempts (5): connection refused")
    );
    fixture.skip_backoff().await;
    assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().handled(), 0);
}

/// Shows HDT-13, C-10.
async fn without_retries_the_first_failure_is_the_last(fixture: Fixture) {
    let id = save(&fixture, &orders(), &["m-1"]).await.remove(0);
    let broker = Broker::down(HandlerError::business("no route"));
    let dispatcher = dispatcher(&fixture.room, &broker).options(DispatcherOptions {
        max_retry_attempts: 0,
        ..DispatcherOptions::default()
    });
    assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().dead, 1);
    let message = look(&fixture, &id).await;
    assert_eq!(
        (message.state, message.attempts),
        (OutboxState::Poisoned, 0)
    );
    let error = message.error_message.unwrap();
    assert!(error.contains("Exceeded maximum retry attempts (0)"));
    assert!(error.ends_with("no route"));
}

/// An extension: a publisher that knows better need not be asked six times.
async fn a_permanent_failure_is_not_tried_again(fixture: Fixture) {
    let id = save(&fixture, &orders(), &["m-1"]).await.remove(0);
    let broker = Broker::down(HandlerError::permanent("too large for this broker"));
    let dispatcher = dispatcher(&fixture.room, &broker);
    assert_eq!(dispatcher.dispatch_pending(10).await.unwrap().dead, 1);
    let error = look(&fixture, &id).await.error_message;
    assert_eq!(
        error.as_deref(),
        Some("[BUSINESS] too large for this broker")
    );
}

/// Shows HDT-14.
async fn one_failing_message_does_not_stop_the_rest(fixture: Fixture) {
    let mut ids = save(&fixture, &orders(), &["m-1"]).await;
    ids.extend(save(&fixture, &Endpoint::new("none", "nowhere"), &["m-2"]).await);
    ids.extend(save(&fixture, &Endpoint::new("none", "panic"), &["m-3"]).await);
    ids.extend(save(&fixture, &orders(), &["m-4"]).await);
    let broker = Arc::new(Broker::default());

    let dispatcher = dispatcher(&fixture.room, &broker);
    let report = dispatcher.dispatch_pending(100).await.unwrap();

    assert_eq!((report.done, report.retried, report.panics), (2, 2, 1));
    assert_eq!(broker.published(), ["m-1", "m-4"]);
    let mut states = Vec::new();
    for id in &ids {
        states.push(look(&fixture, id).await.state);
    }
    use OutboxState::{Dispatched, Failed};
    assert_eq!(states, [Dispatched, Failed, Failed, Dispatched]);
}

/// Shows HDT-12.
async fn the_loop_begins_after_its_startup_delay(fixture: Fixture) {
    save(&fixture, &orders(), &["m-1"]).await;
    let broker = Arc::new(Broker::default());
    let delay = Duration::from_millis(400);
    let dispatcher = dispatcher(&fixture.room, &broker).options(DispatcherOptions {
        startup_delay: delay,
        ..DispatcherOptions::default()
    });
    let started = Instant::now();
    let running = dispatcher.start().unwrap();
    eventually(async || (broker.published().len() == 1).then_some(())).await;
    let first = broker.tries.lock().unwrap()[0];
    assert!(first.duration_since(started) >= delay);

    save(&fixture, &orders(), &["m-2"]).await;
    eventually(async || (broker.published().len() == 2).then_some(())).await;
    assert_eq!(running.stop().await.done, 2);
}

/// Shows HDT-12.
async fn the_loop_stops_at_once_when_it_is_told_to(fixture: Fixture) {
    let broker = Arc::new(Broker::default());
    let hour = 3600 * SECOND;
    for (startup_delay, poll_interval) in [(hour, SECOND), (Duration::ZERO, hour)] {
        let dispatcher = dispatcher(&fixture.room, &broker).options(DispatcherOptions {
            startup_delay,
            poll_interval,
            ..DispatcherOptions::default()
        });
        let running = dispatcher.start().unwrap();
        let told = Instant::now();
        running.stop().await;
        assert!(told.elapsed() < 10 * SECOND, "it took {:?}", told.elapsed());
    }
}

/// Shows HDT-12.
async fn the_loop_logs_a_failing_database_and_goes_on_when_it_is_back(fixture: Fixture) {
    save(&fixture, &orders(), &["m-1"]).await;
    fixture.refuse("UPDATE", "outbox").await;
    // What is logged is caught on one thread only, so all of the loop has to be on it.
    let on_one_thread = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let work = async move {
        let logs = logs::catch();
        let broker = Arc::new(Broker::default());
        let room = fixture.again().await;
        let dispatcher = dispatcher(&room, &broker).options(DispatcherOptions {
            error_delay: Duration::from_millis(200),
            ..DispatcherOptions::default()
        });
        let running = dispatcher.start().unwrap();
        let message = "the queue could not be worked; trying again";
        let lines = eventually(async || {
            Some(logs.at(Level::ERROR, message)).filter(|lines| lines.len() >= 3)
        })
        .await;
        assert_eq!(lines[2].field("store"), room.identifier());
        assert_eq!(lines[2].field("pause"), "200ms", "never longer");
        assert_eq!(broker.tries(), 0);

        fixture.allow("UPDATE").await;
        eventually(async || (broker.published() == ["m-1"]).then_some(())).await;
        running.stop().await;
    };
    tokio::task::spawn_blocking(move || on_one_thread.block_on(work))
        .await
        .unwrap();
}

/// Shows HDT-09.
async fn a_message_tells_all_about_itself(fixture: Fixture) {
    let before = fixture.now().await;
    let id = save(&fixture, &orders(), &["m-1"]).await.remove(0);
    let message = look(&fixture, &id).await;
    assert_eq!(
        (&message.id, &message.destination, message.state),
        (&id, &orders(), OutboxState::Pending)
    );
    assert_eq!(message.envelope.message_id, "m-1");
    assert!((before..=fixture.now().await).contains(&message.created_at));
    assert_eq!(
        (message.attempts, message.processed_at, message.scheduled_at),
        (0, None, None)
    );
    assert_eq!(message.error_message, None);

    let broker = Broker::down(HandlerError::business("no route"));
    let dispatcher = dispatcher(&fixture.room, &broker);
    assert_eq!(dispatcher.dispatch_pending(1).await.unwrap().retried, 1);
    let after = look(&fixture, &id).await;
    assert_eq!((after.state, after.attempts), (OutboxState::Failed, 1));
    assert_eq!(after.created_at, message.created_at);
    let processed = after.processed_at.unwrap();
    assert_eq!(after.scheduled_at, Some(processed + SECOND));
    assert_eq!(
        after.error_message.as_deref(),
        Some("[BUSINESS] Retry 1: no route")
    );
}

/// Shows HDT-10.
async fn every_state_has_its_number(fixture: Fixture) {
    let mut ids = Vec::new();
    for (address, batch) in [("orders", 1), ("nowhere", 1), ("nowhere", 1), ("orders", 0)] {
        ids.extend(save(&fixture, &Endpoint::new("e", address), &["m"]).await);
        let attempts = if ids.len() == 3 { 0 } else { 5 };
        if batch > 0 {
            let dispatcher = dispatcher(&fixture.room, &Arc::default());
            let dispatcher = dispatcher.options(DispatcherOptions {
                max_retry_attempts: attempts,
                base_retry_delay: 60 * SECOND,
                ..DispatcherOptions::default()
            });
            dispatcher.dispatch_pending(batch).await.unwrap();
        }
    }
    let (dispatched, failed, poisoned, waiting) = (&ids[0], &ids[1], &ids[2], &ids[3]);
    let number = async |id: &str| look(&fixture, id).await.state.number();
    assert_eq!(number(waiting).await, 0, "pending");
    fixture
        .room
        .transport_outbox()
        .load_pending(1)
        .await
        .unwrap();
    assert_eq!(number(waiting).await, 1, "processing");
    assert_eq!(number(dispatched).await, 2, "dispatched");
    assert_eq!(number(failed).await, 3, "failed");
    assert_eq!(number(poisoned).await, 4, "poisoned");

    for (number, state) in (0_u8..).zip(OutboxState::ALL) {
        assert_eq!(OutboxState::try_from(number).unwrap(), state);
    }
    assert_eq!(
        OutboxState::try_from(5).unwrap_err().kind(),
        ErrorKind::OutOfRange { param: "state" }
    );
}

/// Shows HDT-09.
async fn a_message_needs_an_id_a_destination_and_an_envelope(_: Fixture) {
    let envelope = Envelope::new("m-1", "order", "x");
    let message = TransportMessage::new("01ARZ3NDEKTSV4RRFFQ69G5FAV", orders(), envelope.clone());
    assert_eq!(message.id, "01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_eq!(
        (message.destination, message.envelope),
        (orders(), envelope)
    );
    assert_eq!((message.state, message.attempts), (OutboxState::Pending, 0));
    assert_eq!((message.processed_at, message.scheduled_at), (None, None));
    assert_eq!(message.error_message, None);
}

/// Shows HDT-15.
async fn a_batch_is_published_one_by_one_unless_a_broker_knows_better(_: Fixture) {
    let broker = Arc::new(Broker::default());
    let envelope = |id: &str| Envelope::new(id, "order", "x");
    let batch = [
        (envelope("m-1"), orders()),
        (envelope("m-2"), Endpoint::new("none", "nowhere")),
        (envelope("m-3"), orders()),
    ];
    let results = broker.publish_batch(&batch).await;
    assert_eq!(
        results,
        [Ok(()), Err(HandlerError::business("no route")), Ok(())]
    );
    assert_eq!(broker.published(), ["m-1", "m-3"]);

    struct Wholesale;
    impl Publisher for Wholesale {
        async fn publish(&self, _: &Envelope, _: &Endpoint) -> Result<(), HandlerError> {
            Err(HandlerError::business("not one by one"))
        }

        async fn publish_batch(
            &self,
            messages: &[(Envelope, Endpoint)],
        ) -> Vec<Result<(), HandlerError>> {
            vec![Ok(()); messages.len()]
        }
    }
    let results = Arc::new(Wholesale).publish_batch(&batch).await;
    assert_eq!(results, [Ok(()), Ok(()), Ok(())]);
}

/// Shows HDT-19.
async fn transport_has_nothing_to_do_with_a_database(_: Fixture) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/transport");
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    assert!(files.len() >= 5);
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for word in [
            "crate::db",
            "crate::sql",
            "rusqlite",
            "postgres",
            "sqlx",
            "SELECT",
        ] {
            assert!(!source.contains(word), "`{word}` in {}", file.display());
        }
    }
}

/// The business row and its envelope commit together; the service publishes it in the background.
///
/// Shows HDT-22.
async fn a_store_a_publisher_and_options_are_all_that_a_service_needs(fixture: Fixture) {
    let broker = Arc::new(Broker::default());
    let service = dispatcher(&fixture.room, &broker).options(DispatcherOptions {
        poll_interval: SECOND,
        ..DispatcherOptions::default()
    });
    let published = Arc::clone(&broker);
    let report = service
        .run_until(async {
            save(&fixture, &orders(), &["m-1"]).await;
            eventually(async || (published.published() == ["m-1"]).then_some(())).await;
        })
        .await
        .unwrap();
    assert_eq!(report.done, 1);
}

/// Shows HDT-13, C-15.
async fn two_dispatchers_publish_each_message_once(fixture: Fixture) {
    let messages: Vec<Message> = (0..200)
        .map(|number| Message::new("orders.created", number.to_string()))
        .collect();
    fixture.room.outbox().enqueue_many(&messages).await.unwrap();
    let (one, two) = (Arc::<Broker>::default(), Arc::<Broker>::default());
    let other = fixture.again().await;
    let first = dispatcher(&fixture.room, &one).concurrency(4).start();
    let second = dispatcher(&other, &two).concurrency(4).start();
    eventually(async || (one.tries() + two.tries() >= 200).then_some(())).await;
    let done = first.unwrap().stop().await.done + second.unwrap().stop().await.done;
    assert_eq!((done, one.tries() + two.tries()), (200, 200));
    assert_eq!(fixture.rows("outbox").await, 0);
}
