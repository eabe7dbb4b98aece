//! Requests that are refused, by name.

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
        ("/v1/inbox?cursor=AwExOiUwMDpt", 400, "cursor"),
        (
            "/v1/inbox?cursor=AwE5MjIzMzcyMDM2ODU0Nzc1ODA3OnM6bQ",
            422,
            "cursor",
        ),
        ("/v1/messages?topic=", 400, "topic"),
        ("/v1/messages?topic=%00", 400, "topic"),
        ("/v1/messages?store=none", 404, "store"),
        ("/v1/messages/7", 400, "id"),
        ("/v1/messages/%ff", 400, "id"),
        ("/v1/joins/7", 400, "id"),
        ("/v1/dead?older=1h", 400, "older"),
        ("/v1/inbox?state=ready", 400, "state"),
        ("/v1/inbox/a/%00", 400, "message_id"),
        ("/v1/inbox/a/%ff", 400, "message_id"),
        ("/v1/inbox/%ff/a", 400, "source"),
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
        (r#"{"topic":"a","payload":1,"delay":"99999999d"}"#, "delay"),
        (
            r#"{"topic":"a","payload":1,"due_at":"9999-12-31T23:59:59Z"}"#,
            "due_at",
        ),
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
