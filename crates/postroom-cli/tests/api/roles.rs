//! Every endpoint for every role, and payloads only for those with the right.

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
        serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("JSON");
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
