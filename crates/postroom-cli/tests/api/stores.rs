//! Stores over HTTP: how they are, and which of them is meant.

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
