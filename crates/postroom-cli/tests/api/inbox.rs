//! Inbound messages over HTTP: checked, taken in, revived.

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
    for number in 0..15 {
        let id = InboxMessageId::new("walk", format!("seen: {number}"));
        inbox.already_processed(&id).await.expect("a check");
    }
    for (order, state, count) in [
        ("oldest", "", 60),
        ("newest", "", 60),
        ("oldest", "&state=seen", 15),
        ("newest", "&state=seen", 15),
        ("newest", "&state=processing", 45),
    ] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/inbox?source=walk&limit=10&order={order}{state}{cursor}");
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
        assert_eq!(
            (seen.len(), distinct.len()),
            (count, count),
            "{order}{state}"
        );
    }
}
