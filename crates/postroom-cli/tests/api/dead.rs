//! Dead letters over HTTP: listed, replayed, purged.

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
        let chosen =
            json!({"ids": [dead[0].to_string(), WorkItemId::new().to_string()], "dry_run": true});
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
