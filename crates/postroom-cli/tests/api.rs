//! The HTTP API of the real daemon: every endpoint on both databases, every endpoint for every role, and
//! what must be refused.

mod daemon;

use std::collections::BTreeSet;
use std::time::Duration;

use daemon::{Answer, Daemon, Start};
use postroom::{Inbound, InboxMessageId, List, Message, OwnerToken, State, WorkItemId};
use serde_json::{Value, json};
use testkit::{Backend, Fixture};

/// Nothing is dispatched unless a test says so: what it enqueues stays where it is.
const QUIET: &str = "[dispatch]\nenabled = false\n";

/// The tokens of every role; `seer` is a viewer who may see payloads.
const TOKENS: &str = r#"
[[auth.token]]
name = "vera"
role = "viewer"
secret = "viewer-secret"

[[auth.token]]
name = "olaf"
role = "operator"
secret = "operator-secret"

[[auth.token]]
name = "anna"
role = "admin"
secret = "admin-secret"

[[auth.token]]
name = "seer"
role = "viewer"
payloads = true
secret = "seer-secret"
"#;

const VIEWER: (&str, &str) = ("authorization", "Bearer viewer-secret");
const OPERATOR: (&str, &str) = ("authorization", "Bearer operator-secret");
const ADMIN: (&str, &str) = ("authorization", "Bearer admin-secret");
const SEER: (&str, &str) = ("authorization", "Bearer seer-secret");
const JSON: (&str, &str) = ("content-type", "application/json");

/// A daemon on the fixture's store that dispatches nothing and shows payloads.
fn quiet(fixture: &Fixture) -> Start {
    Daemon::on(fixture, QUIET).argument("--show-payloads")
}

/// The same with tokens.
fn guarded(fixture: &Fixture) -> Start {
    Daemon::on(fixture, &format!("{QUIET}{TOKENS}"))
}

async fn post(daemon: &Daemon, path: &str, body: &Value) -> Answer {
    daemon.post(path, &[JSON], body.to_string()).await
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    daemon.get(path, &[]).await.expect(200).json()
}

async fn enqueue(daemon: &Daemon, body: &Value) -> String {
    let answer = post(daemon, "/v1/messages", body).await.expect(201).json();
    answer["id"].as_str().expect("an id").to_owned()
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    items
        .iter()
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect()
}

/// An error must be problem+json, with all that belongs to it.
#[track_caller]
fn problem(answer: &Answer, status: u16) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    let problem = answer.json();
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem["type"], "about:blank");
    for name in ["title", "detail"] {
        let text = problem[name].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "{name}: {problem}");
    }
    problem
}

/// Puts dead messages of a topic into the store, behind the daemon's back.
async fn kill(fixture: &Fixture, topic: &str, count: usize) -> Vec<WorkItemId> {
    let outbox = fixture.room.outbox();
    let messages: Vec<Message> = (0..count).map(|_| Message::new(topic, "{}")).collect();
    let enqueued = outbox.enqueue_many(&messages).await.expect("enqueue");
    let wanted: Vec<WorkItemId> = enqueued
        .iter()
        .map(|receipt| receipt.work_item_id)
        .collect();
    let owner = OwnerToken::new();
    let claimed = outbox
        .claim(owner, testkit::LEASE, 10_000)
        .await
        .expect("claim");
    let (dying, others): (Vec<_>, Vec<_>) = claimed
        .into_iter()
        .map(|message| message.id)
        .partition(|id| wanted.contains(id));
    outbox.release(owner, &others).await.expect("release");
    outbox.fail(owner, &dying, "poison").await.expect("fail");
    assert_eq!(dying.len(), count);
    wanted
}

mod messages {
    use super::*;

    testkit::mount!(
        are_enqueued_shown_and_found,
        come_in_batches_or_not_at_all,
        with_one_key_are_enqueued_once,
        with_one_key_fifty_times_at_once_are_enqueued_once,
        wait_for_their_time,
        of_a_search_are_walked_exactly_once_while_more_come,
        keep_json_as_it_was_sent,
        that_are_wrong_spoil_none_that_come_with_them,
    );

    async fn that_are_wrong_spoil_none_that_come_with_them(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let requests = (0..90).map(|number| {
            let payload = if number % 3 == 0 { "\0" } else { "fine" };
            let body = json!({"topic": "crowd", "payload": payload}).to_string();
            daemon.post("/v1/messages", &[JSON], body)
        });
        let answers = futures_util::future::join_all(requests).await;
        let mut receipts = BTreeSet::new();
        for (number, answer) in answers.into_iter().enumerate() {
            if number % 3 == 0 {
                assert_eq!(problem(&answer, 400)["param"], "payload");
            } else {
                receipts.insert(answer.expect(201).body);
            }
        }
        assert_eq!(receipts.len(), 60);
        let found = get(&daemon, "/v1/messages?topic=crowd&limit=1000").await;
        assert_eq!(ids(&found).len(), 60);
    }

    async fn are_enqueued_shown_and_found(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let body = json!({
            "topic": "order.created", "payload": "seven", "correlation_id": "req-1",
            "headers": {"kind": "test"},
        });
        let answer = post(&daemon, "/v1/messages", &body).await.expect(201);
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(answer.header("location"), format!("/v1/messages/{id}"));

        let message = get(&daemon, answer.header("location")).await;
        assert_eq!(message["id"], id.as_str());
        assert_eq!(message["topic"], "order.created");
        assert_eq!(message["state"], "ready");
        assert_eq!(message["payload"], "seven");
        assert_eq!(message["headers"]["kind"], "test");
        assert_eq!(message["correlation_id"], "req-1");
        assert_eq!(message["payload_hidden"], false);
        assert_eq!(message["attempt_count"], 0);

        enqueue(&daemon, &json!({"topic": "other", "payload": 1})).await;
        for (query, found) in [
            ("", 2),
            ("?state=ready", 2),
            ("?state=in_flight", 0),
            ("?state=done", 0),
            ("?topic=order.created", 1),
            ("?topic=none", 0),
            ("?correlation_id=req-1", 1),
            ("?correlation_id=req-2", 0),
            ("?newer_than=1h", 2),
            ("?older_than=1h", 0),
            ("?older_than=0s&newer_than=1d&state=ready&topic=other", 1),
            ("?limit=1", 1),
            ("?store=main", 2),
        ] {
            let page = get(&daemon, &format!("/v1/messages{query}")).await;
            assert_eq!(ids(&page).len(), found, "{query}: {page}");
        }
        let oldest = ids(&get(&daemon, "/v1/messages?order=oldest").await);
        let mut newest = ids(&get(&daemon, "/v1/messages?order=newest").await);
        newest.reverse();
        assert_eq!(oldest, newest);
        assert_eq!(oldest[0], id);
        let unknown = daemon
            .get("/v1/messages/01929f3a-5c6e-7a31-9d0b-3f1f2f6f7a10", &[])
            .await;
        problem(&unknown, 404);
    }

    async fn come_in_batches_or_not_at_all(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let some: Vec<Value> = (0..1000)
            .map(|number| json!({"topic": "many", "payload": number}))
            .collect();
        let answer = post(&daemon, "/v1/messages/batch", &json!({"messages": some})).await;
        let receipts = answer.expect(201).json();
        let receipts = receipts["messages"].as_array().expect("receipts").clone();
        assert_eq!(receipts.len(), 1000);
        let last = receipts[999]["id"].as_str().expect("an id");
        let last = get(&daemon, &format!("/v1/messages/{last}")).await;
        assert_eq!(
            last["payload"], "999",
            "receipts come in the order of the messages"
        );

        // The last one names a join that is not there: none is enqueued.
        let join = "01929f3a-5c6e-7a31-9d0b-3f1f2f6f7a10";
        let bad = json!({"messages": [
            {"topic": "none", "payload": 1}, {"topic": "none", "payload": 2, "join_id": join},
        ]});
        let refused = problem(&post(&daemon, "/v1/messages/batch", &bad).await, 422);
        assert_eq!(refused["param"], "join_id");
        let found = get(&daemon, "/v1/messages?topic=none").await;
        assert!(ids(&found).is_empty(), "{found}");

        for (messages, param) in [
            (json!([]), "messages"),
            (
                json!([{"topic": "a", "payload": 1, "idempotency_key": "k"}]),
                "messages[0].idempotency_key",
            ),
            (
                json!(vec![json!({"topic": "a", "payload": 1}); 1001]),
                "messages",
            ),
        ] {
            let answer = post(
                &daemon,
                "/v1/messages/batch",
                &json!({"messages": messages}),
            )
            .await;
            assert_eq!(problem(&answer, 400)["param"], param);
        }
        let body = json!({"messages": [{"topic": "a", "payload": 1}]}).to_string();
        let keyed = [JSON, ("idempotency-key", "k")];
        let answer = daemon.post("/v1/messages/batch", &keyed, body).await;
        assert_eq!(problem(&answer, 400)["param"], "Idempotency-Key");
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").ready,
            1000
        );
    }

    async fn with_one_key_are_enqueued_once(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let headers = [JSON, ("idempotency-key", "order-7")];
        let body = json!({"topic": "once", "payload": {"id": 7}}).to_string();
        let first = daemon
            .post("/v1/messages", &headers, body.clone())
            .await
            .expect(201);
        let again = daemon
            .post("/v1/messages", &headers, body)
            .await
            .expect(200);
        assert_eq!(first.json(), again.json());
        assert_eq!(first.header("location"), again.header("location"));

        let other = json!({"topic": "once", "payload": {"id": 8}}).to_string();
        let refused = problem(&daemon.post("/v1/messages", &headers, other).await, 422);
        assert_eq!(refused["param"], "Idempotency-Key");
        let delayed = json!({"topic": "once", "payload": 1, "delay": "5s"}).to_string();
        let refused = problem(&daemon.post("/v1/messages", &headers, delayed).await, 422);
        assert_eq!(refused["param"], "delay");
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").ready,
            1
        );
    }

    async fn with_one_key_fifty_times_at_once_are_enqueued_once(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let headers = [JSON, ("idempotency-key", "at once")];
        let body = json!({"topic": "once", "payload": "same"}).to_string();
        let requests = (0..50).map(|_| daemon.post("/v1/messages", &headers, body.clone()));
        let answers = futures_util::future::join_all(requests).await;
        let receipts: BTreeSet<String> = answers.iter().map(|answer| answer.body.clone()).collect();
        assert_eq!(receipts.len(), 1, "{receipts:?}");
        let new = answers.iter().filter(|answer| answer.status == 201).count();
        let again = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!((new, again), (1, 49));
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").ready,
            1
        );
    }

    async fn wait_for_their_time(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let due = json!({"topic": "later", "payload": "", "due_at": "2100-01-01T00:00:00Z"});
        let id = enqueue(&daemon, &due).await;
        let message = get(&daemon, &format!("/v1/messages/{id}")).await;
        assert_eq!(message["due_at"], "2100-01-01T00:00:00Z");
        let id = enqueue(
            &daemon,
            &json!({"topic": "later", "payload": "", "delay": "1h"}),
        )
        .await;
        let message = get(&daemon, &format!("/v1/messages/{id}")).await;
        assert!(
            message["due_at"].as_str() > message["created_at"].as_str(),
            "{message}"
        );
        let stats = get(&daemon, "/v1/stats").await;
        assert_eq!(stats["outbox"]["scheduled"], 2, "{stats}");
        let both =
            json!({"topic": "a", "payload": 1, "delay": "1s", "due_at": "2100-01-01T00:00:00Z"});
        assert_eq!(
            problem(&post(&daemon, "/v1/messages", &both).await, 422)["param"],
            "delay"
        );
    }

    async fn of_a_search_are_walked_exactly_once_while_more_come(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let outbox = fixture.room.outbox();
        let messages: Vec<Message> = (0..205).map(|_| Message::new("walk", "")).collect();
        let before = outbox.enqueue_many(&messages).await.expect("enqueue");
        kill(&fixture, "walk", 20).await;
        for order in ["oldest", "newest"] {
            let mut seen = Vec::new();
            let mut cursor = String::new();
            loop {
                let path = format!("/v1/messages?topic=walk&limit=20&order={order}{cursor}");
                let page = get(&daemon, &path).await;
                assert!(ids(&page).len() <= 20);
                seen.extend(ids(&page));
                outbox
                    .enqueue(&Message::new("walk", ""))
                    .await
                    .expect("enqueue");
                match page["next"].as_str() {
                    None => break,
                    Some(next) => cursor = format!("&cursor={next}"),
                }
                assert!(seen.len() < 1000, "the walk does not end");
            }
            let distinct: BTreeSet<&String> = seen.iter().collect();
            assert_eq!(
                distinct.len(),
                seen.len(),
                "{order}: a message was met twice"
            );
            for receipt in &before {
                let id = receipt.work_item_id.to_string();
                assert!(distinct.contains(&id), "{order}: {id} was never met");
            }
        }
        let page = get(&daemon, "/v1/messages?limit=1").await;
        let next = page["next"].as_str().expect("more");
        for path in [
            format!("/v1/messages?order=newest&cursor={next}"),
            format!("/v1/dead?cursor={next}"),
            format!("/v1/inbox?cursor={next}"),
            format!("/v1/audit?cursor={next}"),
            format!("/v1/joins?grouping_key=a&cursor={next}"),
        ] {
            let refused = problem(&daemon.get(&path, &[]).await, 422);
            assert_eq!(refused["param"], "cursor", "{path}");
        }
    }

    async fn keep_json_as_it_was_sent(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        for (sent, kept) in [
            (
                r#"{ "z": 1.50, "a": [1e400, {"ü": "\u00e9 "}] }"#,
                r#"{"z":1.50,"a":[1e400,{"ü":"\u00e9 "}]}"#,
            ),
            (r#""text with \"quotes\"""#, r#"text with "quotes""#),
            ("null", "null"),
            ("[]", "[]"),
            ("\"\"", ""),
        ] {
            let body = format!(r#"{{"topic":"json","payload":{sent}}}"#);
            let answer = daemon
                .post("/v1/messages", &[JSON], body)
                .await
                .expect(201)
                .json();
            let id = answer["id"].as_str().expect("an id");
            assert_eq!(
                get(&daemon, &format!("/v1/messages/{id}")).await["payload"],
                kept
            );
        }
    }
}

mod dead {
    use super::*;

    testkit::mount!(
        letters_are_listed_replayed_and_purged,
        letters_are_chosen_by_age_and_topic,
        letters_are_not_touched_by_a_dry_run,
        letters_are_chosen_one_way_or_the_other,
    );

    async fn letters_are_listed_replayed_and_purged(fixture: Fixture) {
        let daemon = guarded(&fixture).start().await;
        let dead = kill(&fixture, "sad", 3).await;
        let page = daemon.get("/v1/dead", &[VIEWER]).await.expect(200).json();
        assert_eq!(ids(&page).len(), 3);
        assert_eq!(page["items"][0]["last_error"], "poison");
        assert_eq!(page["items"][0]["state"], "dead");

        let body = json!({"ids": [dead[0].to_string(), WorkItemId::new().to_string()]}).to_string();
        let answer = daemon
            .post("/v1/dead/replay", &[OPERATOR, JSON], body.clone())
            .await;
        let touched = answer.expect(200).json();
        assert_eq!(
            touched,
            json!({"dry_run": false, "count": 1, "ids": [dead[0].to_string()]})
        );
        // It is not dead any more.
        let answer = daemon
            .post("/v1/dead/replay", &[OPERATOR, JSON], body)
            .await;
        assert_eq!(answer.expect(200).json()["count"], 0);

        let body = json!({"ids": [dead[1].to_string()]}).to_string();
        let answer = daemon.post("/v1/dead/purge", &[ADMIN, JSON], body).await;
        assert_eq!(
            answer.expect(200).json(),
            json!({"dry_run": false, "count": 1})
        );
        let counts = fixture.room.outbox().counts().await.expect("counts");
        assert_eq!((counts.ready, counts.dead), (1, 1));

        let trail = daemon.get("/v1/audit", &[VIEWER]).await.expect(200).json();
        let said: Vec<(&str, &str, &str, u64)> = trail["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|entry| {
                let text = |name: &str| entry[name].as_str().expect("text");
                (
                    text("actor"),
                    text("action"),
                    text("subject"),
                    entry["count"].as_u64().expect("a count"),
                )
            })
            .collect();
        let purged = dead[1].to_string();
        assert_eq!(
            said,
            [
                ("anna", "dead.purge", purged.as_str(), 1),
                ("olaf", "dead.replay", "2 ids", 0),
                ("olaf", "dead.replay", "2 ids", 1),
            ]
        );
        let first = daemon
            .get("/v1/audit?limit=2", &[VIEWER])
            .await
            .expect(200)
            .json();
        let next = first["next"].as_str().expect("more");
        let rest = daemon
            .get(&format!("/v1/audit?limit=2&cursor={next}"), &[VIEWER])
            .await;
        assert_eq!(rest.expect(200).json()["items"][0], trail["items"][2]);
        // Several that were all replayed are named one by one: each has it in its history.
        let more = kill(&fixture, "sad", 2).await;
        let names: Vec<String> = more.iter().map(ToString::to_string).collect();
        let body = json!({ "ids": names }).to_string();
        let answer = daemon.post("/v1/dead/replay", &[OPERATOR, JSON], body);
        assert_eq!(answer.await.expect(200).json()["count"], 2);
        for name in &names {
            let history = fixture.room.audit().of(name).await.expect("a history");
            assert_eq!(history.len(), 1, "{name}");
        }
    }

    async fn letters_are_chosen_by_age_and_topic(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        kill(&fixture, "old", 5).await;
        fixture
            .age("outbox_dead", "processed_at", Duration::from_secs(7_200))
            .await;
        kill(&fixture, "new", 4).await;
        for (body, count) in [
            (json!({"older_than": "1h", "topic": "new"}), 0),
            (json!({"older_than": "1h", "topic": "old"}), 5),
            (json!({"older_than": "1h"}), 0),
            (json!({"older_than": "0s"}), 4),
        ] {
            let mut dry = body.clone();
            dry["dry_run"] = true.into();
            let foreseen = post(&daemon, "/v1/dead/replay", &dry)
                .await
                .expect(200)
                .json();
            assert_eq!(foreseen["count"], count, "{body}");
            let done = post(&daemon, "/v1/dead/replay", &body)
                .await
                .expect(200)
                .json();
            assert_eq!(done, json!({"dry_run": false, "count": count}), "{body}");
        }
        kill(&fixture, "old", 2).await;
        kill(&fixture, "new", 2).await;
        let body = json!({"older_than": "0s", "topic": "new"});
        let purged = post(&daemon, "/v1/dead/purge", &body)
            .await
            .expect(200)
            .json();
        assert_eq!(purged["count"], 2);
        assert_eq!(ids(&get(&daemon, "/v1/dead?topic=new").await).len(), 0);
        assert_eq!(ids(&get(&daemon, "/v1/dead?topic=old").await).len(), 2);
        let trail = get(&daemon, "/v1/audit").await;
        assert_eq!(trail["items"][0]["actor"], "local");
        assert_eq!(trail["items"][0]["subject"], "topic=new older_than=0s");
    }

    async fn letters_are_not_touched_by_a_dry_run(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let dead = kill(&fixture, "sad", 3).await;
        let before = fixture
            .room
            .outbox()
            .list(&List::new(State::Dead))
            .await
            .expect("list");
        for path in ["/v1/dead/replay", "/v1/dead/purge"] {
            let chosen = json!({"ids": [dead[0].to_string(), WorkItemId::new().to_string()], "dry_run": true});
            let foreseen = post(&daemon, path, &chosen).await.expect(200).json();
            assert_eq!(
                foreseen,
                json!({"dry_run": true, "count": 1, "ids": [dead[0].to_string()]})
            );
            let chosen = json!({"older_than": "0s", "dry_run": true});
            let foreseen = post(&daemon, path, &chosen).await.expect(200).json();
            assert_eq!(foreseen, json!({"dry_run": true, "count": 3}));
        }
        let after = fixture
            .room
            .outbox()
            .list(&List::new(State::Dead))
            .await
            .expect("list");
        assert_eq!(before, after);
        assert_eq!(get(&daemon, "/v1/audit").await["items"], json!([]));
    }

    async fn letters_are_chosen_one_way_or_the_other(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let id = WorkItemId::new().to_string();
        for (body, status, param) in [
            (json!({}), 422, "ids"),
            (json!({"topic": "a"}), 422, "ids"),
            (json!({"ids": [id], "older_than": "0s"}), 422, "older_than"),
            (json!({"ids": [id], "topic": "a"}), 422, "topic"),
            (json!({"ids": []}), 400, "ids"),
            (json!({"ids": vec![id.clone(); 1001]}), 400, "ids"),
            (json!({"ids": ["7"]}), 400, "ids[0]"),
            (json!({"older_than": 5}), 400, "older_than"),
            (json!({"older_than": "soon"}), 400, "older_than"),
            (json!({"older_than": "0s", "topic": ""}), 400, "topic"),
            (json!({"older_than": "0s", "dry-run": true}), 400, "dry-run"),
            (
                json!({"older_than": "0s", "dry_run": "yes"}),
                400,
                "dry_run",
            ),
        ] {
            for path in ["/v1/dead/replay", "/v1/dead/purge"] {
                let refused = problem(&post(&daemon, path, &body).await, status);
                assert_eq!(refused["param"], param, "{body}");
            }
        }
    }
}

mod inbox {
    use super::*;

    testkit::mount!(
        messages_are_checked_taken_in_and_shown,
        messages_are_revived,
        messages_are_walked_exactly_once,
    );

    async fn messages_are_checked_taken_in_and_shown(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let key = json!({"source": "stripe", "message_id": "evt/1 ü", "hash": "00ff"});
        let checked = post(&daemon, "/v1/inbox/check", &key)
            .await
            .expect(200)
            .json();
        assert_eq!(
            checked,
            json!({"already_processed": false, "hash_differs": false})
        );

        let body = json!({
            "source": "stripe", "message_id": "evt/1 ü", "topic": "paid", "payload": {"amount": 100},
            "hash": "00ff", "headers": {"a": "b"}, "correlation_id": "c",
        });
        let answer = post(&daemon, "/v1/inbox", &body).await.expect(201);
        assert_eq!(
            answer.json(),
            json!({"arrival": "new", "hash_differs": false})
        );
        assert_eq!(
            answer.header("location"),
            "/v1/inbox/stripe/evt%2F1%20%C3%BC"
        );
        let message = get(&daemon, answer.header("location")).await;
        assert_eq!(message["message_id"], "evt/1 ü");
        assert_eq!(message["state"], "processing");
        assert_eq!(message["payload"], r#"{"amount":100}"#);
        assert_eq!(message["hash"], "00ff");
        assert_eq!(message["headers"]["a"], "b");

        let mut other = body.clone();
        other["hash"] = "01".into();
        let answer = post(&daemon, "/v1/inbox", &other).await.expect(200);
        assert_eq!(
            answer.json(),
            json!({"arrival": "replaced", "hash_differs": true})
        );

        let id = InboxMessageId::new("stripe", "evt/1 ü");
        fixture
            .room
            .inbox()
            .mark_processed(&id)
            .await
            .expect("mark");
        let checked = post(&daemon, "/v1/inbox/check", &key)
            .await
            .expect(200)
            .json();
        assert_eq!(checked["already_processed"], true);
        let answer = post(&daemon, "/v1/inbox", &body).await.expect(200);
        assert_eq!(answer.json()["arrival"], "already_done");
        problem(&daemon.get("/v1/inbox/stripe/evt_2", &[]).await, 404);
        let done = get(&daemon, "/v1/inbox?state=done&source=stripe").await;
        assert_eq!(done["items"].as_array().map(Vec::len), Some(1), "{done}");
        let none = get(&daemon, "/v1/inbox?source=github").await;
        assert_eq!(none["items"], json!([]));
    }

    async fn messages_are_revived(fixture: Fixture) {
        let daemon = guarded(&fixture).start().await;
        let inbox = fixture.room.inbox();
        for (source, id) in [("a", "1"), ("a", "2"), ("b", "3")] {
            inbox
                .enqueue(&Inbound::new(source, id, "t", "{}"))
                .await
                .expect("enqueue");
            inbox
                .mark_dead(&InboxMessageId::new(source, id))
                .await
                .expect("mark");
        }
        let revive = async |body: Value| {
            let answer = daemon
                .post("/v1/inbox/revive", &[OPERATOR, JSON], body.to_string())
                .await;
            answer.expect(200).json()
        };
        let one = json!({"messages": [{"source": "a", "message_id": "1"}, {"source": "x", "message_id": "1"}]});
        let mut dry = one.clone();
        dry["dry_run"] = true.into();
        assert_eq!(revive(dry).await, json!({"dry_run": true, "count": 1}));
        assert_eq!(inbox.counts().await.expect("counts").dead, 3);
        assert_eq!(revive(one).await, json!({"dry_run": false, "count": 1}));
        let dry = json!({"older_than": "0s", "source": "b", "dry_run": true});
        assert_eq!(revive(dry).await["count"], 1);
        assert_eq!(inbox.counts().await.expect("counts").dead, 2);
        assert_eq!(
            revive(json!({"older_than": "0s", "source": "b"})).await["count"],
            1
        );
        assert_eq!(revive(json!({"older_than": "0s"})).await["count"], 1);
        let counts = inbox.counts().await.expect("counts");
        assert_eq!((counts.dead, counts.processing), (0, 3));
        let trail = daemon.get("/v1/audit", &[VIEWER]).await.expect(200).json();
        assert_eq!(trail["items"].as_array().map(Vec::len), Some(3));
        assert_eq!(trail["items"][1]["action"], "inbox.revive");
        assert_eq!(trail["items"][1]["subject"], "source=b older_than=0s");
        assert_eq!(trail["items"][1]["actor"], "olaf");
    }

    async fn messages_are_walked_exactly_once(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let inbox = fixture.room.inbox();
        for number in 0..45 {
            let inbound = Inbound::new("walk", number.to_string(), "t", "{}");
            inbox.enqueue(&inbound).await.expect("enqueue");
        }
        for order in ["oldest", "newest"] {
            let mut seen = Vec::new();
            let mut cursor = String::new();
            loop {
                let path = format!("/v1/inbox?source=walk&limit=10&order={order}{cursor}");
                let page = get(&daemon, &path).await;
                for item in page["items"].as_array().expect("items") {
                    seen.push(item["message_id"].as_str().expect("an id").to_owned());
                }
                match page["next"].as_str() {
                    None => break,
                    Some(next) => cursor = format!("&cursor={next}"),
                }
                assert!(seen.len() < 100, "the walk does not end");
            }
            let distinct: BTreeSet<&String> = seen.iter().collect();
            assert_eq!((seen.len(), distinct.len()), (45, 45), "{order}");
        }
    }
}

mod joins {
    use super::*;

    testkit::mount!(
        are_started_attached_shown_and_cancelled,
        count_what_was_done_before
    );

    async fn are_started_attached_shown_and_cancelled(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let body = json!({"expected_steps": 3, "grouping_key": "customer-7", "metadata": "mine"});
        let answer = post(&daemon, "/v1/joins", &body).await.expect(201);
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(answer.header("location"), format!("/v1/joins/{id}"));
        assert_eq!(answer.json()["metadata"], "mine");

        let step = enqueue(
            &daemon,
            &json!({"topic": "step", "payload": 1, "join_id": id}),
        )
        .await;
        let late = enqueue(&daemon, &json!({"topic": "step", "payload": 2})).await;
        let path = format!("/v1/joins/{id}/members");
        let attached = post(&daemon, &path, &json!({"message_id": late}))
            .await
            .expect(200)
            .json();
        assert_eq!(attached["message"], "pending");
        let join = get(&daemon, &format!("/v1/joins/{id}")).await;
        assert_eq!(join["status"], "pending");
        assert_eq!(join["members"]["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(join["waiting"]["missing"], 3);
        assert_eq!(join["waiting"]["not_attached"], 1);
        assert_eq!(
            join["waiting"]["why"],
            "3 of 3 steps are missing; no message was attached yet for 1 of them"
        );
        let waited: BTreeSet<&str> = join["waiting"]["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .map(|message| message["message_id"].as_str().expect("an id"))
            .collect();
        assert_eq!(waited, BTreeSet::from([step.as_str(), late.as_str()]));
        let first = get(&daemon, &format!("/v1/joins/{id}?limit=1")).await;
        let next = first["members"]["next"].as_str().expect("more");
        let second = get(&daemon, &format!("/v1/joins/{id}?limit=1&cursor={next}")).await;
        assert_eq!(second["members"]["items"][0], join["members"]["items"][1]);

        post(&daemon, "/v1/joins", &body).await.expect(201);
        let page = get(&daemon, "/v1/joins?grouping_key=customer-7&limit=1").await;
        assert_eq!(ids(&page), [id.as_str()]);
        let next = page["next"].as_str().expect("more");
        let page = get(
            &daemon,
            &format!("/v1/joins?grouping_key=customer-7&cursor={next}"),
        )
        .await;
        assert_eq!(ids(&page).len(), 1);
        assert_eq!(page["next"], Value::Null);
        let newest = get(&daemon, "/v1/joins?limit=1").await;
        assert_ne!(ids(&newest), [id.as_str()], "newest first");
        let next = newest["next"].as_str().expect("more");
        let older = get(&daemon, &format!("/v1/joins?cursor={next}")).await;
        assert_eq!(ids(&older), [id.as_str()]);

        let path = format!("/v1/joins/{id}/cancel");
        let cancelled = daemon.post(&path, &[], "").await.expect(200).json();
        assert_eq!(
            (&cancelled["cancelled"], &cancelled["join"]["status"]),
            (&true.into(), &"cancelled".into())
        );
        let again = daemon.post(&path, &[], "").await.expect(200).json();
        assert_eq!(again["cancelled"], false);
        assert_eq!(
            get(&daemon, &format!("/v1/joins/{id}"))
                .await
                .get("waiting"),
            None
        );

        let nobody = WorkItemId::new();
        problem(&daemon.get(&format!("/v1/joins/{nobody}"), &[]).await, 404);
        problem(
            &daemon
                .post(&format!("/v1/joins/{nobody}/cancel"), &[], "")
                .await,
            404,
        );
        let answer = post(
            &daemon,
            &format!("/v1/joins/{nobody}/members"),
            &json!({"message_id": step}),
        )
        .await;
        problem(&answer, 404);
        for (body, param) in [
            (json!({"expected_steps": 0}), "expected_steps"),
            (json!({"expected_steps": "3"}), "expected_steps"),
            (json!({}), "expected_steps"),
            (
                json!({"expected_steps": 1, "grouping_key": "a\u{0}"}),
                "grouping_key",
            ),
        ] {
            assert_eq!(
                problem(&post(&daemon, "/v1/joins", &body).await, 400)["param"],
                param
            );
        }
        let refused = problem(&daemon.get("/v1/joins?grouping_key=", &[]).await, 400);
        assert_eq!(refused["param"], "grouping_key");
    }

    async fn count_what_was_done_before(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let answer = post(&daemon, "/v1/joins", &json!({"expected_steps": 1}))
            .await
            .expect(201);
        let id = answer.json()["id"].as_str().expect("an id").to_owned();
        let dead = kill(&fixture, "step", 1).await[0].to_string();
        let path = format!("/v1/joins/{id}/members");
        let attached = post(&daemon, &path, &json!({"message_id": dead}))
            .await
            .expect(200)
            .json();
        assert_eq!(attached["message"], "already_failed");
        assert_eq!(attached["join"]["status"], "failed");
    }
}

mod stores {
    use super::*;

    testkit::mount!(say_how_they_are, are_chosen_by_name);

    async fn say_how_they_are(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        enqueue(&daemon, &json!({"topic": "a", "payload": 1})).await;
        kill(&fixture, "b", 2).await;
        let stats = get(&daemon, "/v1/stats").await;
        assert_eq!(stats["outbox"]["ready"], 1, "{stats}");
        assert_eq!(stats["outbox"]["dead"], 2, "{stats}");
        assert_eq!(stats["inbox"]["ready"], 0, "{stats}");
        assert!(stats["totals"]["enqueued"].is_u64(), "{stats}");
        let topics = get(&daemon, "/v1/topics").await;
        assert_eq!(topics["outbox"][0]["topic"], "a", "{topics}");
        assert_eq!(topics["outbox"][0]["ready"], 1);
        assert_eq!(topics["outbox"][1]["dead"], 2);
        assert_eq!(topics["inbox"], json!([]));
        let health = get(&daemon, "/v1/health").await;
        assert_eq!(health["status"], "healthy");
        let stores = get(&daemon, "/v1/stores").await;
        assert_eq!(stores["items"][0]["name"], "main");
        let database = match fixture.backend {
            Backend::Sqlite => "sqlite",
            Backend::Postgres => "postgres",
            Backend::MySql => "mysql",
            Backend::SqlServer => "sqlserver",
        };
        assert_eq!(stores["items"][0]["database"], database);
        assert_eq!(daemon.get("/healthz", &[]).await.expect(200).body, "ok\n");
        assert_eq!(daemon.get("/readyz", &[]).await.expect(200).body, "ready\n");
        let metrics = daemon.get("/metrics", &[]).await.expect(200);
        assert!(metrics.header("content-type").starts_with("text/plain"));
        assert!(
            metrics.body.contains("postroom_enqueued_total"),
            "{}",
            metrics.body
        );
        assert!(metrics.body.contains("postroom_dead"), "{}", metrics.body);
    }

    async fn are_chosen_by_name(fixture: Fixture) {
        let other = Fixture::new(fixture.backend).await;
        let config = format!("{QUIET}{}", daemon::store("other", &other));
        let daemon = Daemon::new(&format!("{config}{}", daemon::store("main", &fixture)))
            .argument("--show-payloads")
            .start()
            .await;
        let body = json!({"topic": "a", "payload": "here"});
        let answer = post(&daemon, "/v1/messages?store=main", &body)
            .await
            .expect(201);
        let place = answer.header("location").to_owned();
        assert!(place.ends_with("?store=main"), "{place}");
        assert_eq!(get(&daemon, &place).await["payload"], "here");
        problem(
            &daemon.get(&place.replace("=main", "=other"), &[]).await,
            404,
        );
        assert_eq!(ids(&get(&daemon, "/v1/messages?store=main").await).len(), 1);
        assert_eq!(
            ids(&get(&daemon, "/v1/messages?store=other").await).len(),
            0
        );
        let stores = get(&daemon, "/v1/stores").await;
        assert_eq!(
            stores["items"].as_array().map(Vec::len),
            Some(2),
            "{stores}"
        );
        let refused = problem(&daemon.get("/v1/stats?store=none", &[]).await, 404);
        assert_eq!(refused["param"], "store");
    }
}

/// Every endpoint with the least role it needs, and a body that it takes.
const ENDPOINTS: &[(&str, &str, &str, (&str, &str))] = &[
    ("GET", "/v1/messages", "", VIEWER),
    ("GET", "/v1/messages/{message}", "", VIEWER),
    (
        "POST",
        "/v1/messages",
        r#"{"topic":"a","payload":1}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/messages/batch",
        r#"{"messages":[{"topic":"a","payload":1}]}"#,
        OPERATOR,
    ),
    ("GET", "/v1/dead", "", VIEWER),
    (
        "POST",
        "/v1/dead/replay",
        r#"{"older_than":"0s"}"#,
        OPERATOR,
    ),
    ("POST", "/v1/dead/purge", r#"{"older_than":"0s"}"#, ADMIN),
    ("GET", "/v1/audit", "", VIEWER),
    ("GET", "/v1/inbox", "", VIEWER),
    ("GET", "/v1/inbox/a/1", "", VIEWER),
    (
        "POST",
        "/v1/inbox",
        r#"{"source":"a","message_id":"2","topic":"t","payload":1}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/inbox/check",
        r#"{"source":"a","message_id":"3"}"#,
        OPERATOR,
    ),
    (
        "POST",
        "/v1/inbox/revive",
        r#"{"older_than":"0s"}"#,
        OPERATOR,
    ),
    ("GET", "/v1/joins?grouping_key=k", "", VIEWER),
    ("GET", "/v1/joins/{join}", "", VIEWER),
    ("POST", "/v1/joins", r#"{"expected_steps":1}"#, OPERATOR),
    (
        "POST",
        "/v1/joins/{join}/members",
        r#"{"message_id":"{message}"}"#,
        OPERATOR,
    ),
    ("POST", "/v1/joins/{join}/cancel", "", OPERATOR),
    ("GET", "/v1/stats", "", VIEWER),
    ("GET", "/v1/topics", "", VIEWER),
    ("GET", "/v1/stores", "", VIEWER),
    ("GET", "/v1/health", "", VIEWER),
    ("GET", "/v1/openapi.json", "", VIEWER),
    ("GET", "/metrics", "", VIEWER),
];

mod roles {
    use super::*;

    testkit::mount!(
        may_do_what_is_theirs_and_no_more,
        see_payloads_only_with_that_right,
    );

    /// Shows X8.
    async fn may_do_what_is_theirs_and_no_more(fixture: Fixture) {
        let daemon = guarded(&fixture).start().await;
        let message = fixture
            .room
            .outbox()
            .enqueue(&Message::new("a", ""))
            .await
            .expect("enqueue");
        let join = postroom::NewJoin::new(2).grouping_key("k");
        let join = fixture.room.joins().start(&join).await.expect("start");
        let inbound = Inbound::new("a", "1", "t", "");
        fixture
            .room
            .inbox()
            .enqueue(&inbound)
            .await
            .expect("enqueue");
        let fill = |text: &str| {
            text.replace("{message}", &message.message_id.to_string())
                .replace("{join}", &join.to_string())
        };
        let rank = |token: (&str, &str)| {
            [VIEWER, OPERATOR, ADMIN]
                .iter()
                .position(|known| *known == token)
        };
        for (method, path, body, least) in ENDPOINTS {
            let path = fill(path);
            let ask = async |headers: &[(&str, &str)]| {
                let mut headers = headers.to_vec();
                if !body.is_empty() {
                    headers.push(JSON);
                }
                daemon.send(method, &path, &headers, fill(body)).await
            };
            for strangers in [
                &[][..],
                &[("authorization", "Bearer nobody-secret")],
                &[("authorization", "Bearer ")],
                &[("authorization", "Basic viewer-secret")],
                &[("authorization", "viewer-secret")],
                &[("cookie", "postroom_session=viewer-secret")],
            ] {
                let answer = ask(strangers).await;
                problem(&answer, 401);
                assert_eq!(
                    answer.header("www-authenticate"),
                    "Bearer realm=\"postroom\"",
                    "{path}"
                );
            }
            for token in [VIEWER, OPERATOR, ADMIN] {
                let answer = ask(&[token]).await;
                if rank(token) < rank(*least) {
                    problem(&answer, 403);
                } else {
                    assert!(
                        (200..300).contains(&answer.status),
                        "{method} {path} {token:?}: {}",
                        answer.body
                    );
                }
            }
        }
        for open in ["/healthz", "/readyz"] {
            daemon.get(open, &[]).await.expect(200);
        }
    }

    /// The list above must not forget an endpoint.
    #[test]
    fn are_checked_for_every_endpoint() {
        let document: Value =
            serde_json::from_str(include_str!("../../../docs/openapi.json")).expect("JSON");
        let mut documented = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for method in item.as_object().expect("operations").keys() {
                documented.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let listed: BTreeSet<String> = ENDPOINTS
            .iter()
            .map(|(method, path, _, _)| {
                let path = path.split('?').next().unwrap_or(path);
                let path = path
                    .replace("{message}", "{id}")
                    .replace("{join}", "{id}")
                    .replace("/a/1", "/{source}/{message_id}");
                format!("{method} {path}")
            })
            .chain(["GET /healthz".to_owned(), "GET /readyz".to_owned()])
            .collect();
        assert_eq!(listed, documented);
    }

    /// Shows X6, X8.
    async fn see_payloads_only_with_that_right(fixture: Fixture) {
        const SECRET: &str = "canary-7c1f";
        let daemon = guarded(&fixture)
            .argument("--log")
            .argument("debug")
            .start()
            .await;
        let body = json!({"topic": "a", "payload": {"card": SECRET}, "headers": {"x": SECRET}});
        let answer = daemon
            .post("/v1/messages", &[OPERATOR, JSON], body.to_string())
            .await;
        let place = answer.expect(201).header("location").to_owned();
        let body = json!({"source": "a", "message_id": "1", "topic": "t", "payload": SECRET, "headers": {"x": SECRET}});
        daemon
            .post("/v1/inbox", &[OPERATOR, JSON], body.to_string())
            .await
            .expect(201);
        let body = json!({"expected_steps": 1, "grouping_key": "k", "metadata": SECRET});
        let answer = daemon
            .post("/v1/joins", &[OPERATOR, JSON], body.to_string())
            .await
            .expect(201);
        assert!(!answer.body.contains(SECRET), "{}", answer.body);
        let join = answer.header("location").to_owned();
        for path in [
            &place,
            "/v1/messages",
            "/v1/inbox",
            "/v1/inbox/a/1",
            "/v1/joins?grouping_key=k",
            &join,
        ] {
            for token in [VIEWER, OPERATOR, ADMIN] {
                let answer = daemon.get(path, &[token]).await.expect(200);
                assert!(!answer.body.contains(SECRET), "{path}: {}", answer.body);
                assert!(
                    answer.body.contains("\"payload_hidden\":true"),
                    "{path}: {}",
                    answer.body
                );
                assert!(
                    !answer.body.contains("\"headers\""),
                    "{path}: {}",
                    answer.body
                );
            }
            let answer = daemon.get(path, &[SEER]).await.expect(200);
            assert!(answer.body.contains(SECRET), "{path}: {}", answer.body);
            assert!(
                answer.body.contains("\"payload_hidden\":false"),
                "{path}: {}",
                answer.body
            );
        }
        // Neither do they show where something was wrong with them.
        let wrong = json!({"topic": "a", "payload": SECRET, "delay": SECRET, "due_at": SECRET});
        let answer = daemon
            .post("/v1/messages", &[OPERATOR, JSON], wrong.to_string())
            .await;
        problem(&answer, 400);
        assert!(!answer.body.contains(SECRET), "{}", answer.body);
        assert!(!daemon.stderr().contains(SECRET), "{}", daemon.stderr());
        assert!(
            !daemon.stderr().contains("operator-secret"),
            "{}",
            daemon.stderr()
        );
    }
}

mod requests {
    use super::*;

    testkit::mount!(
        that_are_not_right_are_refused_by_name,
        from_other_sites_change_nothing,
        to_other_names_are_refused,
    );

    async fn that_are_not_right_are_refused_by_name(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        for (path, status, param) in [
            ("/v1/messages?lmit=5", 400, "lmit"),
            ("/v1/messages?limit=0", 400, "limit"),
            ("/v1/messages?limit=1001", 400, "limit"),
            ("/v1/messages?limit=-1", 400, "limit"),
            ("/v1/messages?limit=ten", 400, "limit"),
            ("/v1/messages?limit=", 400, "limit"),
            ("/v1/messages?limit=1&limit=2", 400, "limit"),
            ("/v1/messages?state=sleeping", 400, "state"),
            ("/v1/messages?order=random", 400, "order"),
            ("/v1/messages?older_than=yesterday", 400, "older_than"),
            ("/v1/messages?newer_than=5", 400, "newer_than"),
            ("/v1/messages?cursor=nonsense", 400, "cursor"),
            ("/v1/messages?cursor=", 400, "cursor"),
            ("/v1/messages?topic=", 400, "topic"),
            ("/v1/messages?topic=%00", 400, "topic"),
            ("/v1/messages?store=none", 404, "store"),
            ("/v1/messages/7", 400, "id"),
            ("/v1/messages/%ff", 400, "id"),
            ("/v1/joins/7", 400, "id"),
            ("/v1/dead?older=1h", 400, "older"),
            ("/v1/inbox?state=ready", 400, "state"),
            ("/v1/inbox/a/%00", 400, "message_id"),
            ("/v1/audit?limit=5000", 400, "limit"),
            ("/v1/stats?a=1", 400, "a"),
            ("/v1/topics?a=1", 400, "a"),
            ("/v1/health?a=1", 400, "a"),
            ("/v1/stores?a=1", 400, "a"),
            ("/v1/openapi.json?a=1", 400, "a"),
        ] {
            let refused = problem(&daemon.get(path, &[]).await, status);
            assert_eq!(refused["param"], param, "{path}: {refused}");
        }
        for (body, param) in [
            (r#"{"topic":"a"}"#, "payload"),
            (r#"{"payload":1}"#, "topic"),
            (r#"{"topic":"","payload":1}"#, "topic"),
            (r#"{"topic":7,"payload":1}"#, "topic"),
            (r#"{"topic":null,"payload":1}"#, "topic"),
            (r#"{"topic":"a\u0000","payload":1}"#, "topic"),
            (r#"{"topic":"a","payload":"\u0000"}"#, "payload"),
            (r#"{"topic":"a","payload":1,"topics":1}"#, "topics"),
            (r#"{"topic":"a","payload":1,"headers":["a"]}"#, "headers"),
            (
                r#"{"topic":"a","payload":1,"headers":{"a":1}}"#,
                "headers.a",
            ),
            (r#"{"topic":"a","payload":1,"headers":{"":"1"}}"#, "headers"),
            (r#"{"topic":"a","payload":1,"due_at":"tomorrow"}"#, "due_at"),
            (r#"{"topic":"a","payload":1,"delay":"1"}"#, "delay"),
            (r#"{"topic":"a","payload":1,"delay":5}"#, "delay"),
            (
                r#"{"topic":"a","payload":1,"message_id":"7"}"#,
                "message_id",
            ),
            (r#"{"topic":"a","payload":1,"join_id":7}"#, "join_id"),
            (r#"{"topic":"a","payload":1,"topic":"b"}"#, "topic"),
        ] {
            let answer = daemon.post("/v1/messages", &[JSON], body).await;
            let refused = problem(&answer, 400);
            assert_eq!(refused["param"], param, "{body}: {refused}");
        }
        let long = format!(r#"{{"topic":"{}","payload":1}}"#, "a".repeat(256));
        assert_eq!(
            problem(&daemon.post("/v1/messages", &[JSON], long).await, 400)["param"],
            "topic"
        );
        for body in [
            "",
            "{",
            "[]",
            "7",
            "\"a\"",
            "{} {}",
            "{\"topic\":\"a\",\"payload\":1},",
            "\u{feff}{}",
        ] {
            problem(&daemon.post("/v1/messages", &[JSON], body).await, 400);
        }
        let invalid = b"{\"topic\":\"\xff\",\"payload\":1}".to_vec();
        problem(&daemon.post("/v1/messages", &[JSON], invalid).await, 400);
        let fine = r#"{"topic":"a","payload":1}"#;
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
            "application/json; charset=latin1",
        ] {
            problem(
                &daemon
                    .post("/v1/messages", &[("content-type", kind)], fine)
                    .await,
                415,
            );
        }
        problem(&daemon.post("/v1/messages", &[], fine).await, 415);
        for kind in ["application/json; charset=utf-8", "Application/JSON"] {
            daemon
                .post("/v1/messages", &[("content-type", kind)], fine)
                .await
                .expect(201);
        }
        for key in ["", &"k".repeat(256)] {
            let answer = daemon
                .post("/v1/messages", &[JSON, ("idempotency-key", key)], fine)
                .await;
            assert_eq!(problem(&answer, 400)["param"], "Idempotency-Key");
        }
        let twice = [JSON, ("idempotency-key", "a"), ("idempotency-key", "b")];
        problem(&daemon.post("/v1/messages", &twice, fine).await, 400);
        let large = format!(r#"{{"topic":"a","payload":"{}"}}"#, "a".repeat(1 << 20));
        problem(&daemon.post("/v1/messages", &[JSON], large).await, 413);
        for path in [
            "/v1",
            "/v1/",
            "/v1/nothing",
            "/v1/messages/a/b",
            "/v1/messages/",
        ] {
            problem(&daemon.get(path, &[]).await, 404);
        }
        for (method, path, allow) in [
            ("DELETE", "/v1/messages", "GET,HEAD,POST"),
            ("PUT", "/v1/messages/batch", "POST"),
            ("GET", "/v1/dead/purge", "POST"),
            ("POST", "/v1/stats", "GET,HEAD"),
            ("OPTIONS", "/v1/stats", "GET,HEAD"),
            ("POST", "/healthz", "GET,HEAD"),
            ("DELETE", "/metrics", "GET,HEAD"),
        ] {
            let answer = daemon.send(method, path, &[], "").await;
            problem(&answer, 405);
            assert_eq!(answer.header("allow"), allow, "{method} {path}");
        }
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").ready,
            2
        );
    }

    /// Shows X9.
    async fn from_other_sites_change_nothing(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        let dead = kill(&fixture, "a", 1).await[0].to_string();
        let host = daemon.address().to_string();
        let own = format!("http://{host}");
        for (method, path, body, _) in ENDPOINTS.iter().filter(|endpoint| endpoint.0 != "GET") {
            let path = path.replace("{join}", &dead);
            for header in [
                ("origin", "https://evil.example"),
                ("origin", "null"),
                ("origin", "http://localhost:1"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
            ] {
                let answer = daemon.send(method, &path, &[JSON, header], *body).await;
                problem(&answer, 403);
            }
        }
        let counts = fixture.room.outbox().counts().await.expect("counts");
        assert_eq!((counts.ready, counts.dead), (0, 1));
        let fine = r#"{"topic":"a","payload":1}"#;
        for header in [
            ("origin", own.as_str()),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            daemon
                .post("/v1/messages", &[JSON, header], fine)
                .await
                .expect(201);
        }
        // Looking is harmless: the browser keeps the answer from the other site.
        let looked = daemon
            .get("/v1/stats", &[("sec-fetch-site", "cross-site")])
            .await
            .expect(200);
        assert_eq!(looked.header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(looked.header("access-control-allow-origin"), "");
    }

    async fn to_other_names_are_refused(fixture: Fixture) {
        let daemon = quiet(&fixture).start().await;
        for name in [
            "evil.example",
            "evil.example:8025",
            "10.0.0.1",
            "localhost.evil.example",
        ] {
            for path in ["/v1/stats", "/v1/messages", "/healthz", "/metrics"] {
                problem(&daemon.get(path, &[("host", name)]).await, 421);
            }
        }
        daemon
            .get("/v1/stats", &[("host", "localhost:8025")])
            .await
            .expect(200);
        // With tokens, whoever knows one may use any name.
        let daemon = guarded(&fixture).start().await;
        daemon
            .get("/v1/stats", &[VIEWER, ("host", "postroom.example")])
            .await
            .expect(200);
    }
}

mod binding {
    use super::*;

    /// Shows X7.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn beyond_this_machine_needs_tokens() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            for config in ["", "[auth]\nlocal_payloads = true\n"] {
                let config = format!("[server]\nbind = \"{address}\"\n{config}{QUIET}");
                let said = Daemon::bound_by(&config).refused().await;
                assert!(
                    said.contains("no tokens are configured"),
                    "{address}: {said}"
                );
            }
            let said = Daemon::new(QUIET).bind(address).refused().await;
            assert!(
                said.contains("no tokens are configured"),
                "{address}: {said}"
            );
        }
        for address in ["127.0.0.1:0", "127.0.0.2:0"] {
            Daemon::new(QUIET).bind(address).start().await;
        }
        let daemon = Daemon::new(&format!("{QUIET}{TOKENS}"))
            .bind("0.0.0.0:0")
            .start()
            .await;
        assert!(
            daemon.stdout().contains("http://0.0.0.0:"),
            "{}",
            daemon.stdout()
        );
    }
}

mod document {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn is_served_printed_and_committed_alike() {
        let committed = include_str!("../../../docs/openapi.json");
        let printed = std::process::Command::new(env!("CARGO_BIN_EXE_postroom"))
            .arg("openapi")
            .output()
            .expect("the binary runs");
        let advice = "write it anew: cargo run -- openapi > docs/openapi.json";
        assert!(printed.stdout == committed.as_bytes(), "{advice}");
        let daemon = Daemon::new(QUIET).start().await;
        let served = daemon.get("/v1/openapi.json", &[]).await.expect(200);
        assert_eq!(served.header("content-type"), "application/json");
        assert!(served.body == committed, "{advice}");
    }

    #[test]
    fn describes_every_operation() {
        let document: Value =
            serde_json::from_str(include_str!("../../../docs/openapi.json")).expect("JSON");
        let mut names = BTreeSet::new();
        for (path, item) in document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                let place = format!("{method} {path}");
                let name = operation["operationId"].as_str().unwrap_or_default();
                assert!(
                    !name.is_empty() && names.insert(name.to_owned()),
                    "{place}: {name}"
                );
                assert!(operation["summary"].is_string(), "{place}");
                let responses = operation["responses"].as_object().expect("responses");
                assert!(
                    responses.keys().any(|status| status.starts_with('2')),
                    "{place}"
                );
                if path.starts_with("/v1") {
                    for status in ["400", "401", "403", "413", "503"] {
                        assert!(responses.contains_key(status), "{place}: {status}");
                    }
                }
            }
        }
        assert_eq!(
            document["components"]["securitySchemes"]["token"]["scheme"],
            "bearer"
        );
    }
}
