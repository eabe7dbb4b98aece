//! Traces go on through the queue: a first attempt is a child of what the producer did, a retry links to
//! it, and what a handler enqueues belongs to its trace.

use std::sync::{Arc, Mutex};

use postroom::{
    Delivery, HandlerError, Inbound, List, Message, Origin, Outcome, Propagator, State,
    TraceContext, done, in_trace,
};
use testkit::Fixture;

testkit::mount!(
    a_first_attempt_is_a_child_of_the_producers_span,
    a_retry_links_to_the_producers_span,
    what_a_handler_enqueues_belongs_to_its_trace,
    a_message_without_a_trace_is_handled_without_one,
    a_broken_traceparent_is_no_failure,
);

const PRODUCER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Remembers what the dispatcher says of its spans.
#[derive(Clone, Default)]
struct Bridge(Arc<Mutex<Vec<Origin>>>);

impl Bridge {
    fn origins(&self) -> Vec<Origin> {
        self.0.lock().unwrap().clone()
    }
}

impl Propagator for Bridge {
    fn current(&self) -> Option<TraceContext> {
        None
    }

    fn adopt(&self, _: &tracing::Span, origin: Origin) {
        self.0.lock().unwrap().push(origin);
    }
}

fn producer() -> TraceContext {
    TraceContext::parse(PRODUCER).unwrap()
}

async fn a_first_attempt_is_a_child_of_the_producers_span(fixture: Fixture) {
    let bridge = Bridge::default();
    let room = fixture
        .options()
        .propagator(bridge.clone())
        .connect()
        .await
        .unwrap();
    in_trace(producer(), room.outbox().enqueue(&Message::new("a", "")))
        .await
        .unwrap();
    in_trace(
        producer(),
        room.inbox().enqueue(&Inbound::new("s", "1", "a", "")),
    )
    .await
    .unwrap();
    let report = room
        .dispatcher()
        .on("a", |_: Delivery| async {})
        .on_inbound("a", |_: Delivery| async {})
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 2);
    assert_eq!(bridge.origins(), [Origin::ChildOf(producer()); 2]);
}

async fn a_retry_links_to_the_producers_span(fixture: Fixture) {
    let bridge = Bridge::default();
    let room = fixture
        .options()
        .propagator(bridge.clone())
        .connect()
        .await
        .unwrap();
    in_trace(producer(), room.outbox().enqueue(&Message::new("a", "")))
        .await
        .unwrap();
    let traces = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&traces);
    let dispatcher = room.dispatcher().on("a", move |delivery: Delivery| {
        seen.lock().unwrap().push(TraceContext::current());
        async move {
            match delivery.attempt() {
                1 => Err(HandlerError::business("not the first time")),
                _ => done(),
            }
        }
    });
    dispatcher.drain().await.unwrap();
    fixture.skip_backoff().await;
    dispatcher.drain().await.unwrap();
    assert_eq!(
        bridge.origins(),
        [Origin::ChildOf(producer()), Origin::LinkedTo(producer())]
    );
    let traces: Vec<_> = traces
        .lock()
        .unwrap()
        .iter()
        .map(|trace| trace.unwrap().trace_id())
        .collect();
    assert_eq!(traces[0], producer().trace_id());
    assert_ne!(traces[1], producer().trace_id(), "a trace of its own");
}

async fn what_a_handler_enqueues_belongs_to_its_trace(fixture: Fixture) {
    let room = &fixture.room;
    in_trace(producer(), room.outbox().enqueue(&Message::new("a", "")))
        .await
        .unwrap();
    room.dispatcher()
        .on("a", |delivery: Delivery| async move {
            delivery
                .room()
                .outbox()
                .enqueue(&Message::new("b", ""))
                .await?;
            Ok::<_, HandlerError>(Outcome::enqueue([Message::new("c", "")]))
        })
        .no_handler(postroom::NoHandler::Ack)
        .batch(1)
        .run_once()
        .await
        .unwrap();
    let followers = room.outbox().list(&List::new(State::Ready)).await.unwrap();
    let topics: Vec<_> = followers
        .iter()
        .map(|message| message.topic.as_str())
        .collect();
    assert_eq!(topics, ["b", "c"]);
    for follower in &followers {
        let context = TraceContext::parse(&follower.headers["traceparent"]).unwrap();
        assert_eq!(context.trace_id(), producer().trace_id());
        assert_ne!(
            context.span_id(),
            producer().span_id(),
            "of the handler, not of the producer"
        );
    }
}

async fn a_message_without_a_trace_is_handled_without_one(fixture: Fixture) {
    let room = &fixture.room;
    room.outbox().enqueue(&Message::new("a", "")).await.unwrap();
    let report = room
        .dispatcher()
        .on("a", |delivery: Delivery| async move {
            assert_eq!(TraceContext::current(), None);
            assert!(delivery.headers().is_empty());
        })
        .drain()
        .await
        .unwrap();
    assert_eq!((report.done, report.panics), (1, 0));
}

async fn a_broken_traceparent_is_no_failure(fixture: Fixture) {
    let room = &fixture.room;
    let message = Message::new("a", "").header("traceparent", "00-nonsense");
    room.outbox().enqueue(&message).await.unwrap();
    let report = room
        .dispatcher()
        .on("a", |_: Delivery| async {})
        .drain()
        .await
        .unwrap();
    assert_eq!(report.done, 1);
}
