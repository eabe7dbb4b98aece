//! `postroom join`.

use super::*;

async fn a_join_says_why_it_waits(fixture: Fixture) {
    let room = &fixture.room;
    let joins = room.joins();
    let new = NewJoin::new(4).grouping_key("customer-7");
    let join = joins.start(&new).await.expect("start");
    let id = join.to_string();
    let dead = send(room, &Message::new("extract", PRIVATE).join(join)).await;
    let owner = OwnerToken::new();
    room.outbox().claim(owner, LEASE, 1).await.expect("claim");
    room.outbox()
        .fail(owner, &[dead], "no disk")
        .await
        .expect("fail");
    let ready = send(room, &Message::new("load", PRIVATE).join(join)).await;
    let shown = on(&fixture, &["join", "show", &id, "--json"]).json();
    assert_eq!(
        (
            &shown["status"],
            &shown["failed_steps"],
            &shown["expected_steps"]
        ),
        (&"pending".into(), &1.into(), &4.into())
    );
    assert_eq!(shown["members"].as_array().map(Vec::len), Some(2));
    let waiting = shown["waiting"].to_string();
    assert!(
        waiting.contains(&format!("message {ready} (load) is not done yet")),
        "{waiting}"
    );
    assert!(
        waiting.contains("2 of 4 steps have no message yet"),
        "{waiting}"
    );
    let out = on(&fixture, &["join", "show", &id]).ok();
    assert!(out.contains("0 of 4 steps completed, 1 failed"), "{out}");
    assert!(
        out.contains("Why it waits") && out.contains("no disk"),
        "{out}"
    );
    assert!(!out.contains(PRIVATE), "{out}");
    let page = on(&fixture, &["join", "list", "--key", "customer-7", "--json"]).json();
    assert_eq!(ids(&page), [&*id]);
    let out = on(&fixture, &["join", "list", "--key", "customer-7"]).ok();
    assert!(out.contains(&id), "{out}");
    let page = on(&fixture, &["join", "list", "--json"]).json();
    assert_eq!(ids(&page), [&*id]);
    let out = on(&fixture, &["join", "list", "--key", "nobody"]).ok();
    assert_eq!(out, "no such joins\n");
}

async fn a_join_is_cancelled_once(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(1)).await.expect("start");
    let id = join.to_string();
    let out = on(&fixture, &["join", "cancel", &id]).ok();
    assert_eq!(out, format!("cancelled join {id}\n"));
    let again = on(&fixture, &["join", "cancel", &id, "--json"]).json();
    assert_eq!(again["cancelled"], false);
    let shown = on(&fixture, &["join", "show", &id, "--json"]).json();
    assert_eq!(shown["status"], "cancelled");
    assert_eq!(shown["waiting"], serde_json::json!([]));
    let told = actions(&fixture.room).await;
    assert_eq!(told.len(), 1);
    let nobody = WorkItemId::new().to_string();
    on(&fixture, &["join", "cancel", &nobody]).refused("join not found");
    on(&fixture, &["join", "show", &nobody]).refused("there is no join");
}

testkit::mount!(a_join_says_why_it_waits, a_join_is_cancelled_once);
