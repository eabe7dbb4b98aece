//! Handlers: which message reaches which one, what they are given, and what is refused.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use postroom::{
    Delivered, Delivery, Dispatcher, ErrorKind, Handler, HandlerError, Inbound, Json, Message,
    NoHandler, Outcome, Postroom, Queue, State, Tx, done,
};
use testkit::{Fixture, eventually};
use tokio::sync::{Barrier, Semaphore};

use crate::dispatch_scene::{
    QUEUES, SHORT_LEASE, dispatcher, in_both_queues, on, outlive_leases, put,
};

/// Notes which handler has seen which payload.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Book {
    fn note(&self, name: &'static str) -> impl Fn(Delivery) -> std::future::Ready<()> + use<> {
        let book = self.clone();
        move |delivery| {
            let line = (name, delivery.payload().to_owned());
            book.0.lock().unwrap().push(line);
            std::future::ready(())
        }
    }

    fn read(&self) -> Vec<(&'static str, String)> {
        let mut lines = self.0.lock().unwrap().clone();
        lines.sort();
        lines
    }
}

fn lines(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    expected
        .iter()
        .map(|(name, payload)| (*name, (*payload).to_owned()))
        .collect()
}

/// Shows OBX-054, IBX-073, OBX-010, C-44.
async fn a_message_reaches_the_handler_of_exactly_its_topic(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for topic in ["order", "Order", "order.created", "order ", "ordér"] {
            put(room, queue, topic, topic).await;
        }
        let book = Book::default();
        let dispatcher = dispatcher(room, queue, "order", book.note("lower"));
        let dispatcher = on(dispatcher, queue, "Order", book.note("upper"));
        let dispatcher = on(dispatcher, queue, "order ", book.note("blank"));
        let dispatcher = on(dispatcher, queue, "ordér", book.note("accent"));
        let dispatcher = on(dispatcher, queue, "order.created", book.note("longer"));

        let report = dispatcher.drain().await.unwrap();

        assert_eq!(report.done, 5, "{queue:?}");
        let expected = [
            ("accent", "ordér"),
            ("blank", "order "),
            ("longer", "order.created"),
            ("lower", "order"),
            ("upper", "Order"),
        ];
        assert_eq!(book.read(), lines(&expected), "{queue:?}");
    }
}

/// Shows OBX-054, IBX-073. A topic of one queue is no topic of the other.
async fn the_queues_have_handlers_of_their_own(fixture: Fixture) {
    let room = &fixture.room;
    put(room, Queue::Outbox, "a", "out").await;
    put(room, Queue::Inbox, "a", "in").await;
    let book = Book::default();

    let report = room
        .dispatcher()
        .on("a", book.note("outbox"))
        .on_inbound("a", book.note("inbox"))
        .drain()
        .await
        .unwrap();

    assert_eq!(report.done, 2);
    let expected = [("inbox", "in"), ("outbox", "out")];
    assert_eq!(book.read(), lines(&expected));
}

async fn a_queue_without_handlers_is_left_alone(fixture: Fixture) {
    let room = &fixture.room;
    let inbound = put(room, Queue::Inbox, "a", "").await;
    let report = room.dispatcher().on("a", |_: Delivery| async {});

    assert_eq!(report.drain().await.unwrap().handled(), 0);
    assert_eq!(inbound.look(room).await.1.delivery_count, 0);
}

async fn one_handler_may_take_all_other_topics(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for topic in ["known", "strange", "stranger"] {
            put(room, queue, topic, topic).await;
        }
        let book = Book::default();
        let dispatcher = dispatcher(room, queue, "known", book.note("known"));
        let dispatcher = match queue {
            Queue::Outbox => dispatcher.otherwise(book.note("other")),
            Queue::Inbox => dispatcher.otherwise_inbound(book.note("other")),
        };

        assert_eq!(dispatcher.drain().await.unwrap().done, 3, "{queue:?}");
        let expected = [
            ("known", "known"),
            ("other", "strange"),
            ("other", "stranger"),
        ];
        assert_eq!(book.read(), lines(&expected), "{queue:?}");
    }
}

/// Shows OBX-057.
async fn an_outbox_handler_gets_the_whole_message_and_a_token(fixture: Fixture) {
    let room = &fixture.room;
    let before = fixture.now().await;
    let due = before - Duration::from_secs(60);
    let message = Message::new("a", "payload")
        .correlation("request-1")
        .header("tenant", "7")
        .due_at(due);
    let receipt = room.outbox().enqueue(&message).await.unwrap();
    let given = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&given);
    let dispatcher = room.dispatcher().on("a", move |delivery: Delivery| {
        *slot.lock().unwrap() = Some(delivery);
        async {}
    });

    dispatcher.drain().await.unwrap();

    let delivery = given.lock().unwrap().take().unwrap();
    assert_eq!(delivery.queue(), Queue::Outbox);
    assert_eq!((delivery.topic(), delivery.payload()), ("a", "payload"));
    assert_eq!(delivery.header("tenant"), Some("7"));
    assert_eq!(delivery.correlation_id(), Some("request-1"));
    assert_eq!(delivery.work_item_id(), receipt.work_item_id);
    assert_eq!(delivery.message_id(), receipt.message_id.to_string());
    assert_eq!((delivery.attempt(), delivery.is_cancelled()), (1, false));
    assert_eq!(delivery.room().identifier(), room.identifier());
    let Delivered::Outbox(message) = delivery.message() else {
        panic!("{delivery:?}")
    };
    assert_eq!(message.state, State::InFlight);
    assert_eq!(message.progress.owner_token, Some(delivery.owner()));
    assert_eq!(message.progress.delivery_count, 1);
    assert!(message.created_at >= before - Duration::from_millis(5));
    assert!(
        message
            .due_time
            .unwrap()
            .duration_since(due)
            .unwrap_or_default()
            < Duration::from_millis(1)
    );
    assert!(
        delivery.age() < Duration::from_secs(30),
        "{:?}",
        delivery.age()
    );
    assert!(!format!("{delivery:?}").contains("payload\""));
}

/// Shows IBX-076.
async fn an_inbox_handler_gets_the_whole_message_and_a_token(fixture: Fixture) {
    let room = &fixture.room;
    let inbound = Inbound::new("bank", "payment-1", "a", "payload")
        .hash(*b"hash")
        .correlation("request-1")
        .header("tenant", "7");
    room.inbox().enqueue(&inbound).await.unwrap();
    let given = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&given);
    let dispatcher = room
        .dispatcher()
        .on_inbound("a", move |delivery: Delivery| {
            *slot.lock().unwrap() = Some(delivery);
            async {}
        });

    dispatcher.drain().await.unwrap();

    let delivery = given.lock().unwrap().take().unwrap();
    assert_eq!(delivery.queue(), Queue::Inbox);
    assert_eq!((delivery.topic(), delivery.payload()), ("a", "payload"));
    assert_eq!(delivery.message_id(), "bank/payment-1");
    assert_eq!(delivery.headers().len(), 1);
    assert_eq!(delivery.correlation_id(), Some("request-1"));
    assert_eq!((delivery.attempt(), delivery.is_cancelled()), (1, false));
    let Delivered::Inbox(message) = delivery.message() else {
        panic!("{delivery:?}")
    };
    assert_eq!(message.hash.as_deref(), Some(b"hash".as_slice()));
    assert_eq!(message.work_item_id, Some(delivery.work_item_id()));
    assert!(message.first_seen <= SystemTime::now() + Duration::from_secs(5));
}

struct Named;

impl Handler for Named {
    async fn handle(&self, delivery: Delivery) -> Result<Outcome, HandlerError> {
        assert_eq!(delivery.topic(), "named");
        Ok(Outcome::Done)
    }
}

#[derive(serde::Deserialize)]
struct Order {
    id: u64,
}

async fn handlers_come_in_many_forms(fixture: Fixture) {
    let room = &fixture.room;
    let topics = [
        "named", "nothing", "result", "json", "all", "outcome", "any",
    ];
    for topic in topics {
        put(room, Queue::Outbox, topic, r#"{"id":7}"#).await;
    }
    let sum = Arc::new(AtomicUsize::new(0));
    let (one, all) = (Arc::clone(&sum), Arc::clone(&sum));

    let report = room
        .dispatcher()
        .on("named", Named)
        .on("nothing", |_: Delivery| async {})
        .on("result", |_: Delivery| async { Ok::<(), HandlerError>(()) })
        .on("json", move |order: Json<Order>| {
            one.fetch_add(usize::try_from(order.id).unwrap(), Ordering::SeqCst);
            async { done() }
        })
        .on(
            "all",
            move |order: Json<Order>, tx: Tx, delivery: Delivery| {
                assert_eq!(delivery.topic(), "all");
                all.fetch_add(usize::try_from(order.id).unwrap(), Ordering::SeqCst);
                drop(tx);
                async {}
            },
        )
        .on("outcome", |_: Delivery| async { Outcome::Done })
        .on("any", |_: Delivery| async {
            // Any error type will do.
            "7".parse::<u64>().map(drop)
        })
        .drain()
        .await
        .unwrap();

    assert_eq!(report.done, topics.len() as u64);
    assert_eq!(sum.load(Ordering::SeqCst), 14);
}

/// Shows OBX-055, IBX-074, C-45.
async fn a_message_without_a_handler_is_handed_back_for_a_minute(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "nobody", "").await;
        let dispatcher = dispatcher(room, queue, "a", |_: Delivery| async {});

        for round in 1..=12 {
            let report = dispatcher.drain().await.unwrap();

            assert_eq!((report.unhandled, report.handled()), (1, 0), "{queue:?}");
            let (state, progress) = message.look(room).await;
            assert_eq!(state, State::Ready, "{queue:?}");
            assert_eq!(progress.attempt_count, round, "counted");
            assert_eq!(progress.deferral_count, round, "and yet not used up");
            let pause = progress.next_attempt_at.unwrap();
            let pause = pause.duration_since(progress.last_attempt_at.unwrap());
            assert_eq!(pause.unwrap(), Duration::from_secs(60), "{queue:?}");
            let error = progress.last_error.unwrap();
            assert!(error.contains("no handler") && error.contains("`nobody`"));
            fixture.skip_backoff().await;
        }
    }
}

/// Shows C-45.
async fn a_message_without_a_handler_is_dead_or_done_if_that_is_the_policy(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        for (policy, state) in [
            (NoHandler::Fail, State::Dead),
            (NoHandler::Ack, State::Done),
        ] {
            let message = put(room, queue, "nobody", "").await;
            let dispatcher = dispatcher(room, queue, "a", |_: Delivery| async {});
            dispatcher.no_handler(policy).drain().await.unwrap();

            assert_eq!(message.state(room).await, state, "{queue:?} {policy:?}");
        }
    }
}

struct First;
struct Second;

impl Handler for First {
    async fn handle(&self, _: Delivery) -> Result<Outcome, HandlerError> {
        done()
    }
}

impl Handler for Second {
    async fn handle(&self, _: Delivery) -> Result<Outcome, HandlerError> {
        done()
    }
}

/// Shows C-46.
async fn two_handlers_for_a_topic_are_refused_by_name(fixture: Fixture) {
    let room = &fixture.room;
    let twice: [Dispatcher; 4] = [
        room.dispatcher().on("a", First).on("a", Second),
        room.dispatcher()
            .on_inbound("a", First)
            .on_inbound("a", Second),
        room.dispatcher().otherwise(First).otherwise(Second),
        room.dispatcher()
            .otherwise_inbound(First)
            .otherwise_inbound(Second),
    ];
    for (index, dispatcher) in twice.into_iter().enumerate() {
        let error = dispatcher.drain().await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("First") && text.contains("Second"), "{text}");
        let param = if index < 2 { "topic" } else { "otherwise" };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument { param });
        assert!(dispatcher.start().is_err(), "and it does not start");
    }
    // The same topic in the other queue, or in another case, is another topic.
    let fine = room
        .dispatcher()
        .on("a", First)
        .on("A", Second)
        .on_inbound("a", Second);
    fine.drain().await.unwrap();
}

/// Shows C-53.
async fn settings_that_cannot_work_are_refused_by_name(fixture: Fixture) {
    let room = &fixture.room;
    let fresh = || room.dispatcher().on("a", First);
    let zero = Duration::ZERO;
    let wrong: [(&str, Dispatcher); 12] = [
        ("handlers", room.dispatcher()),
        ("topic", fresh().on("", Second)),
        ("topic", fresh().on_inbound("x".repeat(256), Second)),
        ("concurrency", fresh().concurrency(0)),
        ("concurrency", fresh().concurrency(10_001)),
        ("batch", fresh().batch(0)),
        ("batch", fresh().batch(10_001)),
        ("lease", fresh().lease(zero)),
        ("poll_interval", fresh().poll_interval(zero)),
        ("error_delay", fresh().error_delay(zero)),
        ("handler_timeout", fresh().handler_timeout(zero)),
        ("max_deliveries", fresh().max_deliveries(0)),
    ];
    for (param, dispatcher) in wrong {
        let error = dispatcher.run_once().await.unwrap_err();
        let found = error.param().unwrap_or("none");
        assert!(found == param, "{error}");
        assert!(dispatcher.start().is_err(), "{param}");
    }
}

/// Who is being handled, and how often that was twice at once.
#[derive(Clone)]
struct Watch {
    release: Arc<Semaphore>,
    now: Arc<Mutex<HashSet<String>>>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    twice: Arc<AtomicUsize>,
}

impl Watch {
    fn new() -> Self {
        Self {
            release: Arc::new(Semaphore::new(0)),
            now: Arc::default(),
            calls: Arc::default(),
            twice: Arc::default(),
        }
    }

    /// A handler that ends when it is released.
    fn handler(
        &self,
    ) -> impl Fn(Delivery) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static
    {
        let watch = self.clone();
        move |delivery| {
            let watch = watch.clone();
            Box::pin(async move {
                let id = delivery.message_id();
                *watch.calls.lock().unwrap().entry(id.clone()).or_default() += 1;
                if !watch.now.lock().unwrap().insert(id.clone()) {
                    watch.twice.fetch_add(1, Ordering::SeqCst);
                }
                let _here = Here(Arc::clone(&watch.now), id);
                drop(watch.release.acquire().await);
            })
        }
    }
}

/// A handler at work: it may end by being dropped.
struct Here(Arc<Mutex<HashSet<String>>>, String);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

/// Shows OBX-059, IBX-078. Handlers take longer than a lease, and three dispatchers want every message.
async fn a_message_is_never_handled_twice_at_once(fixture: Fixture) {
    in_both_queues(async |queue| {
        for number in 0..20 {
            put(&fixture.room, queue, "a", &number.to_string()).await;
        }
        let watch = Watch::new();
        let mut running = Vec::new();
        for _ in 0..3 {
            let room: Postroom = fixture.again().await;
            let dispatcher = dispatcher(&room, queue, "a", watch.handler());
            let dispatcher = dispatcher.lease(SHORT_LEASE).concurrency(8);
            running.push(dispatcher.start().unwrap());
        }
        eventually(|| async { (watch.now.lock().unwrap().len() == 20).then_some(()) }).await;
        outlive_leases(&fixture, queue, "true").await;
        watch.release.add_permits(100);
        eventually(|| async {
            let done: u64 = running.iter().map(|one| one.report().done).sum();
            (done == 20).then_some(())
        })
        .await;
        for one in running {
            one.stop().await;
        }
        assert_eq!(watch.twice.load(Ordering::SeqCst), 0, "{queue:?}");
        assert_eq!(watch.calls.lock().unwrap().len(), 20, "{queue:?}");
    })
    .await;
}

/// Shows OBX-060, IBX-079. Each handler waits until all are there.
async fn different_messages_are_handled_at_once(fixture: Fixture) {
    for queue in QUEUES {
        for _ in 0..8 {
            put(&fixture.room, queue, "a", "").await;
        }
        let barrier = Arc::new(Barrier::new(8));
        let dispatcher = dispatcher(&fixture.room, queue, "a", move |_: Delivery| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
            }
        });
        let all = tokio::time::timeout(Duration::from_secs(20), dispatcher.drain());
        assert_eq!(all.await.expect("all at once").unwrap().done, 8);
    }
}

/// One handler after the other is released: the next begins, and never one more.
async fn no_more_handlers_run_at_once_than_allowed(fixture: Fixture) {
    for queue in QUEUES {
        for _ in 0..30 {
            put(&fixture.room, queue, "a", "").await;
        }
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (began, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let peak = Arc::clone(&most);
        let (count, hold) = (Arc::clone(&began), Arc::clone(&release));
        let dispatcher = dispatcher(&fixture.room, queue, "a", move |_: Delivery| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let (count, hold) = (Arc::clone(&count), Arc::clone(&hold));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                hold.acquire().await.unwrap().forget();
                now.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let running = dispatcher.concurrency(3).start().unwrap();
        for released in 0..30 {
            let begun = 30.min(released + 3);
            eventually(|| async { (began.load(Ordering::SeqCst) == begun).then_some(()) }).await;
            release.add_permits(1);
        }
        eventually(|| async { (running.report().done == 30).then_some(()) }).await;
        running.stop().await;
        assert_eq!(peak.load(Ordering::SeqCst), 3, "{queue:?}");
    }
}

/// Shows OBX-058, IBX-077, C-01. The worker has shipped and then loses its lease: the message comes once
/// more, under the same id, by which a handler can tell.
async fn a_message_may_come_more_than_once_and_is_known_by_its_id(fixture: Fixture) {
    let room = &fixture.room;
    for queue in QUEUES {
        let message = put(room, queue, "a", "").await;
        let shipped: Arc<Mutex<Vec<String>>> = Arc::default();
        let ids = Arc::clone(&shipped);
        let dispatcher = dispatcher(room, queue, "a", move |delivery: Delivery| {
            ids.lock().unwrap().push(delivery.message_id());
            let first = ids.lock().unwrap().len() == 1;
            async move {
                if first {
                    // It hangs until it is cancelled.
                    std::future::pending::<()>().await;
                }
            }
        });
        let running = dispatcher.lease(SHORT_LEASE).start().unwrap();
        eventually(|| async { (shipped.lock().unwrap().len() == 1).then_some(()) }).await;
        fixture.expire_leases().await;
        eventually(|| async { (message.state(room).await == State::Done).then_some(()) }).await;
        running.stop().await;

        let id = message.message_id();
        assert_eq!(*shipped.lock().unwrap(), [id.clone(), id], "{queue:?}");
        let (_, progress) = message.look(room).await;
        if queue == Queue::Outbox {
            assert_eq!((progress.attempt_count, progress.delivery_count), (0, 2));
        }
    }
}

testkit::mount!(
    a_message_reaches_the_handler_of_exactly_its_topic,
    the_queues_have_handlers_of_their_own,
    a_queue_without_handlers_is_left_alone,
    one_handler_may_take_all_other_topics,
    an_outbox_handler_gets_the_whole_message_and_a_token,
    an_inbox_handler_gets_the_whole_message_and_a_token,
    handlers_come_in_many_forms,
    a_message_without_a_handler_is_handed_back_for_a_minute,
    a_message_without_a_handler_is_dead_or_done_if_that_is_the_policy,
    two_handlers_for_a_topic_are_refused_by_name,
    settings_that_cannot_work_are_refused_by_name,
    a_message_is_never_handled_twice_at_once,
    different_messages_are_handled_at_once,
    no_more_handlers_run_at_once_than_allowed,
    a_message_may_come_more_than_once_and_is_known_by_its_id,
);
