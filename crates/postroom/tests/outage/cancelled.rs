//! Callers that stop waiting: every operation is dropped at its first poll, its second, and so on until
//! it gets to its end.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use postroom::{Message, StepStatus};
use testkit::{Backend, Fixture, eventually};

use crate::every::{Scene, operations};

/// Shows OBX-097, IBX-102, JOIN-024.
async fn a_dropped_operation_is_wholly_done_or_not_at_all(fixture: Fixture) {
    for operation in operations() {
        for polls in 1.. {
            let scene = Scene::new(&fixture.room, operation.stage).await;
            let ended = drop_after(polls, (operation.run)(scene.clone())).await;
            settles_whole(&scene, operation.name, polls).await;
            works(&fixture).await;
            if let Some(result) = ended {
                result.unwrap_or_else(|error| panic!("{} failed: {error}", operation.name));
                break;
            }
            assert!(polls < 500, "{} does not come to an end", operation.name);
        }
    }
    no_transaction_is_left_open(&fixture).await;
}

testkit::mount!(a_dropped_operation_is_wholly_done_or_not_at_all);

/// Polls at most so often, whenever it is woken, then drops.
async fn drop_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    std::future::poll_fn(|context| {
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled >= polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The three messages are all in the same state, and the join agrees with its members. What was dropped
/// may still be under way in the database, so this may take a moment.
async fn settles_whole(scene: &Scene, name: &str, polls: u32) {
    let mut last = String::new();
    let whole = async {
        loop {
            let mut states = Vec::new();
            for id in &scene.ids {
                let message = scene.room.outbox().get(*id).await.unwrap();
                states.push(message.map(|message| {
                    let progress = message.progress;
                    (
                        message.state,
                        progress.owner_token,
                        progress.attempt_count,
                        progress.delivery_count,
                    )
                }));
            }
            let join = scene.room.joins().get(scene.join).await.unwrap().unwrap();
            let members = scene
                .room
                .joins()
                .members(scene.join, None, 100)
                .await
                .unwrap();
            let count = |status| {
                members
                    .iter()
                    .filter(|member| member.status == status)
                    .count()
            };
            let counted = (count(StepStatus::Completed), count(StepStatus::Failed));
            let uniform = states.windows(2).all(|pair| pair[0] == pair[1]);
            let steps = (join.completed_steps as usize, join.failed_steps as usize);
            let attached = members.len()
                == if states[0].is_some() {
                    3
                } else {
                    members.len()
                };
            if uniform && attached && counted == steps {
                return;
            }
            last = format!("{states:?} {steps:?} {members:?}");
        }
    };
    let limit = std::time::Duration::from_secs(10);
    if tokio::time::timeout(limit, whole).await.is_err() {
        panic!("{name} dropped at poll {polls} was left half done: {last}");
    }
}

/// More calls at once than there are connections all succeed.
async fn works(fixture: &Fixture) {
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..12 {
        let outbox = fixture.room.outbox();
        calls.spawn(async move {
            if number == 0 {
                outbox.enqueue(&Message::new("works", "")).await.map(drop)
            } else {
                outbox.get(postroom::WorkItemId::new()).await.map(drop)
            }
        });
    }
    for result in calls.join_all().await {
        result.unwrap();
    }
}

async fn no_transaction_is_left_open(fixture: &Fixture) {
    eventually(|| async { (open_transactions(fixture).await == 0).then_some(()) }).await;
}

async fn open_transactions(fixture: &Fixture) -> i64 {
    match (fixture.backend, &fixture.schema) {
        (Backend::Postgres, Some(schema)) => {
            let idle = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE '%{schema}%'"
            );
            fixture.number(&idle).await
        }
        (Backend::MySql, _) => {
            let mut connection = fixture.mysql().await;
            let open = testkit::mysql::open_transactions(&mut connection).await;
            i64::try_from(open.len()).unwrap()
        }
        _ => 0,
    }
}
