//! A daemon that is killed while webhooks come in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use testkit::{Fixture, eventually};

use crate::sender::*;

testkit::mount!(nothing_that_was_acknowledged_is_lost_by_kill_9);

/// Rounds until the kill has struck between a commit and its answer, at most.
const ROUNDS: usize = 60;

/// Shows X3. The daemon is killed in the middle of a stream of webhooks. Whatever was answered with 2xx is
/// in the inbox; whatever was not is sent again, as senders do; in the end everything is there once. Some
/// were there already although nobody had been told: those were killed between insert and reply, and the
/// test goes on until it has seen that.
async fn nothing_that_was_acknowledged_is_lost_by_kill_9(fixture: Fixture) {
    let (mut sent, mut unanswered, mut caught) = (0, 0, 0);
    for round in 0..ROUNDS {
        let answers = killed_midway(&fixture, round).await;
        let mut missing = Vec::new();
        for (key, acknowledged) in &answers {
            let there = kept(&fixture, "stripe", key).await.is_some();
            assert!(there || !acknowledged, "{key} was acknowledged and is lost");
            if !acknowledged {
                missing.push((key, there));
            }
        }
        sent += answers.len();
        unanswered += missing.len();
        caught += missing.iter().filter(|(_, there)| *there).count();

        let daemon = daemon(&fixture).start().await;
        for (key, there) in missing {
            let status = event(key).send(&daemon).await.status;
            // A server may commit what it had been given after its client was killed, and after our look.
            assert!(
                status == 200 || (status == 202 && !there),
                "{key}: {status}"
            );
        }
        if caught > 0 && round >= 4 {
            break;
        }
    }
    println!("{sent} sent, {unanswered} not answered, {caught} of them kept before the kill");
    assert!(caught > 0, "no kill struck between a commit and its answer");
    let sent = i64::try_from(sent).expect("a count");
    assert_eq!(fixture.rows("inbox").await, sent);
    assert_eq!(fixture.rows("inbox_seen").await, sent);
}

fn event(key: &str) -> Hook {
    Hook::stripe(STRIPE, now(), &format!(r#"{{"id":"{key}"}}"#))
}

/// Sends events from many senders until the daemon is killed; gives which of them were acknowledged.
async fn killed_midway(fixture: &Fixture, round: usize) -> BTreeMap<String, bool> {
    let mut daemon = daemon(fixture).start().await;
    let url = daemon.url("/hooks/stripe");
    let client = reqwest::Client::builder().no_proxy().build();
    let client = client.expect("a client");
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let killed = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..32)
        .map(|sender| {
            let (client, url) = (client.clone(), url.clone());
            let (acknowledged, killed) = (Arc::clone(&acknowledged), Arc::clone(&killed));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for number in 0.. {
                    if killed.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = format!("evt_{round}_{sender}_{number}");
                    let hook = event(&key);
                    let mut request = client.post(&url).body(hook.body);
                    for (name, value) in hook.headers {
                        request = request.header(name, value);
                    }
                    let answer = request.send().await;
                    let fine = answer.is_ok_and(|answer| answer.status().as_u16() == 202);
                    answers.push((key, fine));
                    if !fine {
                        break;
                    }
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                answers
            })
        })
        .collect();
    // In full swing, and then at a moment that differs from round to round.
    eventually(|| {
        let reached = acknowledged.load(Ordering::Relaxed) >= 64;
        async move { reached.then_some(()) }
    })
    .await;
    tokio::time::sleep(Duration::from_micros(700 * (round as u64 % 13))).await;
    daemon.kill();
    killed.store(true, Ordering::Relaxed);
    let mut answers = BTreeMap::new();
    for sender in senders {
        answers.extend(sender.await.expect("a sender"));
    }
    answers
}
