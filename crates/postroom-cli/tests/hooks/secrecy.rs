//! What must show nowhere.

use testkit::{Backend, Fixture};

use crate::sender::*;

const CANARY: &str = "canary-4f1d9a";

/// Shows X6: whatever becomes of a webhook, its body, its signature and the secrets are in no log, no
/// answer and nothing that was printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_signatures_and_secrets_are_in_no_log() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let start = daemon(&fixture).argument("--log").argument("debug");
    let mut daemon = start.start().await;
    let event = format!(r#"{{"id":"evt_1","card":"{CANARY}"}}"#);
    let changed = format!(r#"{{"id":"evt_1","card":"{CANARY}2"}}"#);
    let nameless = format!(r#"{{"card":"{CANARY}"}}"#);
    let hooks = [
        (202, Hook::stripe(STRIPE, now(), &event)),
        (200, Hook::stripe(STRIPE, now(), &event)),
        (409, Hook::stripe(STRIPE, now(), &changed)),
        (422, Hook::stripe(STRIPE, now(), &nameless)),
        (401, Hook::stripe("another secret", now(), &event)),
        (202, Hook::github(GITHUB, event.as_bytes())),
        (202, Hook::plain(PLAIN, event.as_bytes())),
        (
            202,
            Hook::standard(STANDARD_WEBHOOKS, "msg_1", now(), &event),
        ),
    ];
    let mut hidden = vec![CANARY.to_owned()];
    for secret in [STRIPE, STRIPE_OLDER, GITHUB, STANDARD_WEBHOOKS, PLAIN] {
        hidden.push(secret.to_owned());
    }
    let mut said = String::new();
    for (status, hook) in &hooks {
        let answer = hook.send(&daemon).await.expect(*status);
        said += &answer.body;
        let signature = hook
            .headers
            .iter()
            .find(|(name, _)| name.contains("signature"));
        hidden.push(signature.expect("a signature").1.clone());
    }
    fixture.refuse("INSERT", "inbox").await;
    let refused = format!(r#"{{"id":"evt_2","card":"{CANARY}"}}"#);
    let refused = Hook::stripe(STRIPE, now(), &refused);
    said += &refused.send(&daemon).await.expect(503).body;
    assert!(daemon.stop().success());
    let logs = daemon.stderr();
    for outcome in [
        "accepted",
        "duplicate",
        "conflict",
        "unusable",
        "unverified",
        "unavailable",
    ] {
        assert!(logs.contains(outcome), "{outcome} is not in the logs");
    }
    said += &logs;
    said += &daemon.stdout();
    for hidden in hidden {
        assert!(!said.contains(&hidden), "{hidden} shows");
    }
}

/// Shows X6: what is counted is named by the configuration and by us, never by a sender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_are_counted_by_source() {
    let fixture = Fixture::new(Backend::Sqlite).await;
    let daemon = daemon(&fixture).start().await;
    let hook = Hook::github(GITHUB, b"{}");
    hook.send(&daemon).await.expect(202);
    for _ in 0..2 {
        hook.send(&daemon).await.expect(200);
    }
    let forged = hook.clone().header("x-hub-signature-256", "sha256=00");
    forged.send(&daemon).await.expect(401);
    let mut nobody = hook;
    nobody.path = format!("/hooks/{CANARY}");
    nobody.send(&daemon).await.expect(404);
    let metrics = daemon.get("/metrics", &[]).await.expect(200).body;
    for (source, outcome, count) in [
        ("github", "accepted", 1),
        ("github", "duplicate", 2),
        ("github", "unverified", 1),
        ("unknown", "unknown", 1),
    ] {
        let line = format!(
            "postroom_webhooks_total{{source=\"{source}\",outcome=\"{outcome}\"}} {count}\n"
        );
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    assert!(!metrics.contains(CANARY), "{metrics}");
}
