//! What comes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postroom::{InboxState, OwnerToken};
use testkit::{Fixture, LEASE};

use crate::daemon::Daemon;
use crate::sender::*;

testkit::mount!(
    a_thousand_times_at_once_is_one_message,
    headers_that_are_not_signed_make_no_second_message,
    another_body_under_the_same_id_is_a_conflict,
    of_two_bodies_at_once_the_accepted_one_is_kept,
    what_was_handled_or_has_failed_does_not_come_back,
);

/// Sends each of these hooks, over 64 connections, and gives the statuses in their order.
async fn send_all(daemon: &Arc<Daemon>, hooks: Vec<Hook>) -> Vec<u16> {
    let next = Arc::new(AtomicUsize::new(0));
    let hooks = Arc::new(hooks);
    let senders: Vec<_> = (0..64)
        .map(|_| {
            let (daemon, hooks, next) = (Arc::clone(daemon), Arc::clone(&hooks), Arc::clone(&next));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                loop {
                    let which = next.fetch_add(1, Ordering::Relaxed);
                    let Some(hook) = hooks.get(which) else {
                        return answers;
                    };
                    answers.push((which, hook.send(&daemon).await.status));
                }
            })
        })
        .collect();
    let mut answers = Vec::new();
    for sender in senders {
        answers.extend(sender.await.expect("a sender"));
    }
    answers.sort_unstable();
    answers.into_iter().map(|(_, status)| status).collect()
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|there| **there == status).count()
}

/// Shows X2, X3: one row, one 202, and everybody else is told of a duplicate.
async fn a_thousand_times_at_once_is_one_message(fixture: Fixture) {
    let daemon = Arc::new(daemon(&fixture).start().await);
    for hook in [
        Hook::stripe(STRIPE, now(), r#"{"id":"evt_1"}"#),
        Hook::github(GITHUB, b"{}"),
    ] {
        let statuses = send_all(&daemon, vec![hook; 1_000]).await;
        assert_eq!(count(&statuses, 202), 1);
        assert_eq!(count(&statuses, 200), 999);
    }
    assert_eq!(fixture.rows("inbox").await, 2);
    assert_eq!(fixture.rows("inbox_seen").await, 2);
}

/// Shows X2.
async fn headers_that_are_not_signed_make_no_second_message(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let push = Hook::github(GITHUB, b"{}");
    push.send(&daemon).await.expect(202);
    let replayed = push
        .header("x-github-delivery", "a-new-delivery")
        .header("x-github-event", "release")
        .header("content-type", "text/plain");
    let answer = replayed.send(&daemon).await.expect(200);
    assert_eq!(answer.body, r#"{"duplicate":true}"#);
    let message = kept(&fixture, "github", &body_key(b"{}")).await;
    let headers = message.expect("the message").headers;
    assert_eq!(headers["x-github-event"], "push");
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(fixture.rows("inbox").await, 1);

    let order = Hook::standard(STANDARD_WEBHOOKS, "msg_1", now(), "{}");
    order.send(&daemon).await.expect(202);
    let renamed = order.clone().header("webhook-id", "msg_2");
    renamed.send(&daemon).await.expect(401);
    let later = order
        .clone()
        .header("webhook-timestamp", &(now() + 1).to_string());
    later.send(&daemon).await.expect(401);
    order
        .header("x-request-id", "another")
        .send(&daemon)
        .await
        .expect(200);
    assert_eq!(fixture.rows("inbox").await, 2);
}

async fn another_body_under_the_same_id_is_a_conflict(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let first = r#"{"id":"evt_1","amount":100}"#;
    let second = r#"{"id":"evt_1","amount":999}"#;
    let send = async |body| Hook::stripe(STRIPE, now(), body).send(&daemon).await;
    send(first).await.expect(202);
    let answer = send(second).await.expect(409);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    send(first).await.expect(200);
    let message = kept(&fixture, "stripe", "evt_1").await.expect("it");
    assert_eq!(message.payload.as_deref(), Some(first));
    assert_eq!(fixture.rows("inbox").await, 1);

    let send = async |body| {
        Hook::standard(STANDARD_WEBHOOKS, "evt_1", now(), body)
            .send(&daemon)
            .await
    };
    send(first).await.expect(202);
    send(second).await.expect(409);
    assert_eq!(fixture.rows("inbox").await, 2);
}

async fn of_two_bodies_at_once_the_accepted_one_is_kept(fixture: Fixture) {
    let daemon = Arc::new(daemon(&fixture).start().await);
    for round in 0..10 {
        let id = format!("evt_{round}");
        let bodies: Vec<_> = (0..64)
            .map(|sender| format!(r#"{{"id":"{id}","sender":{sender}}}"#))
            .collect();
        let hooks = bodies
            .iter()
            .map(|body| Hook::stripe(STRIPE, now(), body))
            .collect();
        let statuses = send_all(&daemon, hooks).await;
        assert_eq!(count(&statuses, 202), 1);
        assert_eq!(count(&statuses, 409), 63);
        let accepted = statuses.iter().position(|status| *status == 202);
        let accepted = &bodies[accepted.expect("the accepted one")];
        let message = kept(&fixture, "stripe", &id).await.expect("it");
        assert_eq!(message.payload.as_ref(), Some(accepted));
    }
}

async fn what_was_handled_or_has_failed_does_not_come_back(fixture: Fixture) {
    let daemon = daemon(&fixture).start().await;
    let inbox = fixture.room.inbox();
    let owner = OwnerToken::new();
    let handled = Hook::stripe(STRIPE, now(), r#"{"id":"handled"}"#);
    handled.send(&daemon).await.expect(202);
    let claimed = inbox.claim(owner, LEASE, 10).await.expect("a claim");
    inbox.ack(owner, &claimed[0].id).await.expect("an ack");
    let failed = Hook::stripe(STRIPE, now(), r#"{"id":"failed"}"#);
    failed.send(&daemon).await.expect(202);
    let claimed = inbox.claim(owner, LEASE, 10).await.expect("a claim");
    inbox
        .fail(owner, &claimed[0].id, "it cannot be")
        .await
        .expect("a fail");

    for (hook, id, state) in [
        (handled, "handled", InboxState::Done),
        (failed, "failed", InboxState::Dead),
    ] {
        hook.send(&daemon).await.expect(200);
        let changed = format!(r#"{{"id":"{id}","more":1}}"#);
        let changed = Hook::stripe(STRIPE, now(), &changed);
        changed.send(&daemon).await.expect(409);
        let message = kept(&fixture, "stripe", id).await.expect("it");
        assert_eq!(message.state, state, "{id}");
    }
    assert_eq!(fixture.rows("inbox").await, 0);
}
