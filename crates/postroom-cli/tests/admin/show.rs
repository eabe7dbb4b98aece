//! `postroom show`.

use super::*;

fn next(fixture: &Fixture, id: WorkItemId) -> String {
    let shown = on(fixture, &["show", &id.to_string(), "--json"]).json();
    shown["next"].as_str().expect("next").to_owned()
}

async fn what_happens_next_is_told_in_every_state(fixture: Fixture) {
    let room = &fixture.room;
    let outbox = room.outbox();
    let id = send(room, &Message::new("t", PRIVATE)).await;
    assert_eq!(
        next(&fixture, id),
        "the next worker that handles `t` gets it"
    );
    let owner = OwnerToken::new();
    outbox.claim(owner, LEASE, 1).await.expect("claim");
    let told = next(&fixture, id);
    assert!(
        told.starts_with("a worker has it; if that dies, others get it in "),
        "{told}"
    );
    fixture.expire_leases().await;
    let told = next(&fixture, id);
    assert!(told.contains("its lease has expired"), "{told}");
    let later = Abandon::after(Duration::from_secs(600))
        .error("busy")
        .deferred();
    outbox.abandon(owner, &[id], later).await.expect("abandon");
    let told = next(&fixture, id);
    assert!(told.starts_with("will be tried again in "), "{told}");
    fixture.skip_backoff().await;
    outbox.claim(owner, LEASE, 1).await.expect("claim");
    outbox.ack(owner, &[id]).await.expect("ack");
    assert_eq!(next(&fixture, id), "nothing: it is done");
    let dead = kill(room, "t", 1).await[0];
    let told = next(&fixture, dead);
    assert!(told.starts_with("nothing: it is dead since 2"), "{told}");
    let advice = format!("replay with: postroom dead replay {dead}");
    assert!(told.ends_with(&advice), "{told}");
    let due = std::time::SystemTime::now() + Duration::from_secs(600);
    let scheduled = send(room, &Message::new("t", "x").due_at(due)).await;
    let told = next(&fixture, scheduled);
    assert!(told.starts_with("will be due in "), "{told}");
}

async fn a_wait_is_told_by_its_join(fixture: Fixture) {
    let joins = fixture.room.joins();
    let join = joins.start(&NewJoin::new(2)).await.expect("start");
    let wait = JoinWait::new(join, "next", PRIVATE);
    let id = joins.enqueue_wait(&wait).await.expect("wait").work_item_id;
    let told = next(&fixture, id);
    assert_eq!(
        told,
        format!("waits for a join: 0 of 2 steps completed; see: postroom join show {join}")
    );
}

async fn payload_and_headers_show_only_when_asked(fixture: Fixture) {
    let id = kill(&fixture.room, "t", 1).await[0].to_string();
    let out = on(&fixture, &["show", &id]).ok();
    assert!(
        out.contains("last error") && out.contains("no such street"),
        "{out}"
    );
    assert!(
        !out.contains(PRIVATE) && !out.contains("secret-header"),
        "{out}"
    );
    let out = on(&fixture, &["show", &id, "--json"]).ok();
    assert!(
        !out.contains(PRIVATE) && !out.contains("secret-header"),
        "{out}"
    );
    let out = on(&fixture, &["show", &id, "--show-payload"]).ok();
    assert!(out.contains("secret-header: private-payload"), "{out}");
    let shown = on(&fixture, &["show", &id, "--show-payload", "--json"]).json();
    assert_eq!(
        (&shown["payload"], &shown["state"]),
        (&PRIVATE.into(), &"dead".into())
    );
}

async fn what_was_done_by_hand_is_a_part_of_it(fixture: Fixture) {
    let id = kill(&fixture.room, "t", 1).await[0].to_string();
    on(&fixture, &["dead", "replay", &id]).ok();
    let shown = on(&fixture, &["show", &id, "--json"]).json();
    assert_eq!(shown["audit"][0]["actor"], "cli:ann");
    let out = on(&fixture, &["show", &id]).ok();
    assert!(out.contains("cli:ann") && out.contains("replay"), "{out}");
}

async fn a_message_that_is_not_there_is_an_error(fixture: Fixture) {
    let nobody = WorkItemId::new().to_string();
    on(&fixture, &["show", &nobody]).refused("postroom list");
    on(&fixture, &["show", "x"]).misused("expected a UUID");
}

testkit::mount!(
    what_happens_next_is_told_in_every_state,
    a_wait_is_told_by_its_join,
    payload_and_headers_show_only_when_asked,
    what_was_done_by_hand_is_a_part_of_it,
    a_message_that_is_not_there_is_an_error,
);
