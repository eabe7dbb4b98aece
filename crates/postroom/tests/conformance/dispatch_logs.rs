//! What a dispatcher logs and counts: levels, fields, and always the store.

use std::time::Duration;

use postroom::{
    Backoff, Delivery, HandlerError, JoinWait, Message, NewJoin, Outcome, OwnerToken, Postroom,
    Queue, done,
};
use testkit::{Fixture, LEASE, eventually};
use tracing::Level;

use crate::dispatch_scene::{Counters, QUEUES, dispatcher, on_one_thread, put};
use testkit::logs::Line;

/// The lines at a level whose message is `message`, all of which name the store and the queue.
fn lines_at<'a>(
    lines: &'a [Line],
    level: Level,
    message: &str,
    room: &Postroom,
    queue: Queue,
) -> Vec<&'a Line> {
    let found: Vec<_> = lines
        .iter()
        .filter(|line| line.level == level && line.message == message)
        .collect();
    for line in &found {
        assert_eq!(line.field("store"), room.identifier(), "{line:?}");
        assert_eq!(line.field("queue"), queue.name(), "{line:?}");
    }
    found
}

/// Shows OBX-103, OBX-104, OBX-107, IBX-109, IBX-110, IBX-113.
async fn claims_are_logged_at_debug_and_handlers_at_info(fixture: Fixture) {
    for queue in QUEUES {
        let message = put(&fixture.room, queue, "order.created", "").await;
        let (_, lines, _) = on_one_thread(&fixture, move |room, _| async move {
            let dispatcher = dispatcher(&room, queue, "order.created", |_: Delivery| async {});
            dispatcher.drain().await.unwrap();
        })
        .await;
        let at = |level, text| lines_at(&lines, level, text, &fixture.room, queue);
        let claims = at(Level::DEBUG, "claimed");
        let counts: Vec<_> = claims.iter().map(|line| line.field("count")).collect();
        assert_eq!(counts[..2], ["1", "0"], "{queue:?}");
        let handling = at(Level::INFO, "handling");
        assert_eq!(handling.len(), 1, "{queue:?}");
        assert_eq!(handling[0].field("topic"), "order.created");
        assert_eq!(handling[0].field("message_id"), message.message_id());
        let settled = at(Level::DEBUG, "settled");
        assert_eq!(settled[0].field("operation"), "ack", "{queue:?}");
    }
}

/// Shows OBX-105, OBX-107, IBX-111, IBX-113, C-57. Errors, panics and giving up: at ERROR, with topic and id.
async fn failures_are_logged_at_error(fixture: Fixture) {
    for queue in QUEUES {
        for how in ["error", "panic", "timeout"] {
            let message = put(&fixture.room, queue, "order.created", "").await;
            let (_, lines, counters) = on_one_thread(&fixture, move |room, _| async move {
                let dispatcher = dispatcher(
                    &room,
                    queue,
                    "order.created",
                    move |_: Delivery| async move {
                        match how {
                            "error" => Err::<(), _>(HandlerError::business("the bank said no")),
                            "panic" => panic!("the bank said no"),
                            _ => std::future::pending().await,
                        }
                    },
                )
                .handler_timeout(Duration::from_millis(50));
                let dispatcher = dispatcher.retry(Backoff::default().max_attempts(2));
                dispatcher.drain().await.map(drop).unwrap();
            })
            .await;
            let failed = lines_at(&lines, Level::ERROR, "handler failed", &fixture.room, queue);
            assert_eq!(failed.len(), 1, "{queue:?} {how}");
            assert_eq!(failed[0].field("topic"), "order.created");
            assert_eq!(failed[0].field("message_id"), message.message_id());
            let error = failed[0].field("error");
            let expected = match how {
                "timeout" => "the handler took longer than",
                _ => "the bank said no",
            };
            assert!(error.contains(expected), "{error}");
            assert_eq!(
                counters.of("postroom_handler_panics_total", queue.name()),
                u64::from(how == "panic")
            );
        }
    }
}

/// Shows OBX-055, OBX-107, IBX-074, IBX-113, C-45.
async fn a_message_without_a_handler_is_logged_at_warn(fixture: Fixture) {
    use postroom::NoHandler::{Abandon, Ack, Fail};
    for queue in QUEUES {
        for policy in [Abandon, Ack, Fail] {
            let message = put(&fixture.room, queue, "nobody", "").await;
            let (_, lines, _) = on_one_thread(&fixture, move |room, _| async move {
                let dispatcher = dispatcher(&room, queue, "a", |_: Delivery| async {});
                dispatcher.no_handler(policy).drain().await.unwrap();
            })
            .await;
            let text = "no handler for the topic";
            let warned = lines_at(&lines, Level::WARN, text, &fixture.room, queue);
            assert_eq!(warned.len(), 1, "{queue:?} {policy:?}");
            assert_eq!(warned[0].field("topic"), "nobody");
            assert_eq!(warned[0].field("message_id"), message.message_id());
        }
    }
}

/// Shows C-57. It is no error that a message is not ready.
async fn not_ready_is_logged_at_debug(fixture: Fixture) {
    for queue in QUEUES {
        let message = put(&fixture.room, queue, "a", "").await;
        let (_, lines, _) = on_one_thread(&fixture, move |room, _| async move {
            let dispatcher = dispatcher(&room, queue, "a", |_: Delivery| async {
                Outcome::NotReady(None)
            });
            dispatcher.drain().await.unwrap();
        })
        .await;
        let said = lines_at(&lines, Level::DEBUG, "not ready", &fixture.room, queue);
        assert_eq!(said.len(), 1, "{queue:?}");
        assert_eq!(said[0].field("message_id"), message.message_id());
        assert!(lines.iter().all(|line| line.level > Level::WARN));
    }
}

/// Shows OBX-106, IBX-112, OBX-053, IBX-072. A running dispatcher reaps by itself.
async fn expired_leases_are_reaped_and_that_is_logged_at_info(fixture: Fixture) {
    for queue in QUEUES {
        let behind = fixture.clone();
        let (_, lines, counters) = on_one_thread(&fixture, move |room, counters| async move {
            put(&room, queue, "a", "").await;
            let owner = OwnerToken::new();
            match queue {
                Queue::Outbox => drop(room.outbox().claim(owner, LEASE, 1).await.unwrap()),
                Queue::Inbox => drop(room.inbox().claim(owner, LEASE, 1).await.unwrap()),
            }
            // Its worker has died, and it is not due: no claim frees it.
            behind.expire_leases().await;
            let late = behind.time(behind.clock().await + 600_000_000);
            let table = queue.name();
            behind
                .sql(&format!("UPDATE {{{table}}} SET next_attempt_at = {late}"))
                .await;
            let dispatcher = dispatcher(&room, queue, "a", |_: Delivery| async {});
            let running = dispatcher.start().unwrap();
            let reaps = || counters.of("postroom_operation_seconds", "operation=reap");
            eventually(|| async { (reaps() > 0).then_some(()) }).await;
            running.stop().await;
            let held = format!("SELECT count(*) FROM {{{table}}} WHERE owner_token IS NOT NULL");
            assert_eq!(behind.number(&held).await, 0, "{queue:?}");
        })
        .await;
        let text = "reaped expired leases";
        let reaped = lines_at(&lines, Level::INFO, text, &fixture.room, queue);
        assert_eq!(reaped.len(), 1, "{queue:?}");
        assert_eq!(reaped[0].field("count"), "1");
        assert_eq!(
            counters.of("postroom_operation_seconds", "operation=reap"),
            1
        );
    }
}

/// Shows JOIN-072, JOIN-073, C-57.
async fn joins_are_logged_when_they_finish_and_waits_when_they_are_decided(fixture: Fixture) {
    let room = &fixture.room;
    let join = room.joins().start(&NewJoin::new(1)).await.unwrap();
    let wait = JoinWait::new(join, "next", "");
    let wait = room.joins().enqueue_wait(&wait).await.unwrap();
    let (_, lines, counters) = on_one_thread(&fixture, move |room, _| async move {
        let dispatcher = room
            .dispatcher()
            .on("step", |_: Delivery| async {})
            .on("next", |_: Delivery| async {});
        dispatcher.drain().await.unwrap();
        let step = Message::new("step", "").join(join);
        room.outbox().enqueue(&step).await.unwrap();
        dispatcher.drain().await.unwrap();
    })
    .await;
    let finished: Vec<_> = lines
        .iter()
        .filter(|line| line.level == Level::INFO && line.message == "join finished")
        .collect();
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].field("join_id"), join.to_string());
    assert_eq!(finished[0].field("store"), room.identifier());
    let decisions: Vec<_> = lines
        .iter()
        .filter(|line| line.level == Level::DEBUG && line.message == "handled a join wait")
        .map(|line| {
            assert_eq!(line.field("message_id"), wait.message_id.to_string());
            line.field("decision")
        })
        .collect();
    assert_eq!(decisions, ["not ready", "continued"]);
    assert_eq!(counters.of("postroom_joins_finished_total", ""), 1);
}

/// Shows DEEP-19. What was claimed, settled, retried, and how long handlers took, by store and queue.
async fn what_happens_is_counted(fixture: Fixture) {
    for queue in QUEUES {
        let (_, _, counters): (_, _, Counters) =
            on_one_thread(&fixture, move |room, _| async move {
                for payload in ["", "", "business", "infrastructure", "permanent"] {
                    put(&room, queue, "a", payload).await;
                }
                let dispatcher = dispatcher(&room, queue, "a", |delivery: Delivery| async move {
                    match delivery.payload() {
                        "business" => Err(HandlerError::business("no")),
                        "infrastructure" => Err(HandlerError::infrastructure("no")),
                        "permanent" => Err(HandlerError::permanent("no")),
                        _ => done(),
                    }
                });
                dispatcher.drain().await.unwrap();
            })
            .await;
        let store = format!("store={}", fixture.room.identifier());
        let of = |name, label: &str| {
            assert_eq!(
                counters.of(name, label),
                counters.of(name, &store),
                "{name}"
            );
            counters.of(name, label)
        };
        assert_eq!(of("postroom_claimed_total", queue.name()), 5);
        assert_eq!(of("postroom_settled_total", queue.name()), 5);
        assert_eq!(of("postroom_retries_total", queue.name()), 2);
        assert_eq!(of("postroom_handler_seconds", "topic=a"), 5);
        for (name, label, count) in [
            ("postroom_settled_total", "operation=ack", 2),
            ("postroom_settled_total", "operation=abandon", 2),
            ("postroom_settled_total", "operation=fail", 1),
            ("postroom_retries_total", "class=business", 1),
            ("postroom_retries_total", "class=infrastructure", 1),
        ] {
            assert_eq!(counters.of(name, label), count, "{queue:?} {name} {label}");
        }
    }
}

testkit::mount!(
    claims_are_logged_at_debug_and_handlers_at_info,
    failures_are_logged_at_error,
    a_message_without_a_handler_is_logged_at_warn,
    not_ready_is_logged_at_debug,
    expired_leases_are_reaped_and_that_is_logged_at_info,
    joins_are_logged_when_they_finish_and_waits_when_they_are_decided,
    what_happens_is_counted,
);
