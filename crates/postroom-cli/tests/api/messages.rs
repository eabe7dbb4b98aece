//! Messages of the outbox over HTTP: enqueued, looked at, searched for.

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
    let both = json!({"topic": "a", "payload": 1, "delay": "1s", "due_at": "2100-01-01T00:00:00Z"});
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
