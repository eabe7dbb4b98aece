//! Joins over HTTP: started, attached to, shown, cancelled.

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
