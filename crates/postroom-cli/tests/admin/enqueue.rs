//! `postroom enqueue`.

use super::*;

async fn a_message_is_stored_with_all_that_was_given(fixture: Fixture) {
    let room = &fixture.room;
    let join = room.joins().start(&NewJoin::new(1)).await.expect("start");
    let told = on(
        &fixture,
        &[
            "enqueue",
            "order.created",
            "{\"id\":7}",
            "--correlation",
            "req-42",
            "--header",
            "content-type=application/json",
            "--header",
            "note=a=b",
            "--due-in",
            "1h",
            "--join",
            &join.to_string(),
            "--json",
        ],
    )
    .json();
    assert_eq!(told["new"], true);
    let id: WorkItemId = told["id"].as_str().expect("an id").parse().expect("a UUID");
    let message = room.outbox().get(id).await.expect("get").expect("it");
    assert_eq!(message.payload, "{\"id\":7}");
    assert_eq!(message.correlation_id.as_deref(), Some("req-42"));
    assert_eq!(message.headers["note"], "a=b");
    let due = message.due_time.expect("a due time");
    let ahead = due.duration_since(message.created_at).expect("later");
    assert!(ahead > Duration::from_secs(3_000) && ahead < Duration::from_secs(4_000));
    let members = room.joins().members(join, None, 10).await.expect("members");
    assert_eq!(members.len(), 1);
}

async fn a_payload_comes_from_an_argument_a_file_or_stdin(fixture: Fixture) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("payload.json");
    std::fs::write(&file, "from a file").expect("write");
    let file = file.display().to_string();
    let told = on(&fixture, &["enqueue", "t", "from an argument"]).ok();
    assert!(told.starts_with("enqueued "), "{told}");
    on(&fixture, &["enqueue", "t", "--file", &file]).ok();
    feed(&fixture, &["enqueue", "t", "-"], "from stdin\n").ok();
    let messages = fixture.room.outbox().list(&List::new(State::Ready)).await;
    let payloads: Vec<String> = messages
        .expect("list")
        .into_iter()
        .map(|message| message.payload)
        .collect();
    assert_eq!(
        payloads,
        ["from an argument", "from a file", "from stdin\n"]
    );
    on(&fixture, &["enqueue", "t"]).misused("<PAYLOAD>");
    on(&fixture, &["enqueue", "t", "x", "--file", &file]).misused("cannot be used with");
    on(&fixture, &["enqueue", "t", "--file", "no-such-file"]).refused("cannot be read");
    on(&fixture, &["enqueue", "t", "x", "--header", "x"]).misused("NAME=VALUE");
    on(&fixture, &["enqueue", "t", "x", "--due-at", "noon"]).misused("2030-01-31T12:00:00Z");
    on(&fixture, &["enqueue", "", "x"]).refused("topic");
    let nobody = WorkItemId::new().to_string();
    on(&fixture, &["enqueue", "t", "x", "--join", &nobody]).refused("join");
}

async fn a_key_makes_it_happen_once(fixture: Fixture) {
    let first = on(&fixture, &["enqueue", "t", "x", "--key", "k", "--json"]).json();
    let again = on(&fixture, &["enqueue", "t", "x", "--key", "k", "--json"]).json();
    assert_eq!(
        (&first["new"], &again["new"]),
        (&true.into(), &false.into())
    );
    assert_eq!(first["id"], again["id"]);
    let told = on(&fixture, &["enqueue", "t", "x", "--key", "k"]).ok();
    assert!(told.starts_with("enqueued before"), "{told}");
    on(&fixture, &["enqueue", "t", "other", "--key", "k"]).refused("another message");
    assert_eq!(
        fixture.room.outbox().counts().await.expect("counts").ready,
        1
    );
}

async fn a_due_time_holds_a_message_back(fixture: Fixture) {
    on(
        &fixture,
        &["enqueue", "t", "x", "--due-at", "2100-01-31T12:00:00Z"],
    )
    .ok();
    let stats = fixture.room.stats().await.expect("stats");
    assert_eq!((stats.outbox.ready, stats.outbox.scheduled), (0, 1));
    on(
        &fixture,
        &[
            "enqueue",
            "t",
            "x",
            "--due-in",
            "1h",
            "--due-at",
            "2100-01-31T12:00:00Z",
        ],
    )
    .misused("cannot be used with");
    on(
        &fixture,
        &["enqueue", "t", "-7", "--due-in", "99999999999d"],
    )
    .refused("--due-in");
}

async fn many_come_as_lines_of_json(fixture: Fixture) {
    let mut lines: String = (0..1_201)
        .map(|number| format!("{{\"topic\":\"t\",\"payload\":{{\"n\":{number}}}}}\n"))
        .collect();
    lines += "\n{\"payload\":\"plain\",\"correlation_id\":\"c\",\"headers\":{\"a\":\"b\"},\"delay\":\"1h\"}\n";
    lines += "{\"payload\":\"once\",\"idempotency_key\":\"k\"}\n{\"payload\":\"once\",\"idempotency_key\":\"k\"}\n";
    let told = feed(
        &fixture,
        &["enqueue", "standard", "--json-lines", "--json"],
        &lines,
    )
    .json();
    assert_eq!(
        (&told["enqueued"], &told["enqueued_before"]),
        (&1_203.into(), &1.into())
    );
    let list = List::any().correlation("c");
    let messages = fixture.room.outbox().list(&list).await.expect("list");
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].topic, "standard");
    assert_eq!(messages[0].payload, "plain");
    let list = List::any().topic("t").limit(1);
    let messages = fixture.room.outbox().list(&list).await.expect("list");
    assert_eq!(messages[0].payload, "{\"n\":0}");
}

async fn a_bad_line_is_named_and_nothing_after_it_is_sent(fixture: Fixture) {
    let good = "{\"topic\":\"t\",\"payload\":\"1\"}\n";
    let long = "x".repeat(300);
    let cases = [
        (
            format!("{{\"topic\":\"{long}\",\"payload\":\"\"}}"),
            "topic",
        ),
        (format!("{{\"payload\":\"{PRIVATE}\"}}"), "no topic"),
        (
            format!("{{\"{PRIVATE}\":1}}"),
            "expected an object with payload",
        ),
        (
            format!("{{\"payload\":1,\"corelation_id\":\"{PRIVATE}\"}}"),
            "did you mean `correlation_id`?",
        ),
        (
            format!("{{\"payload\":1,\"headers\":\"{PRIVATE}\"}}"),
            "headers: expected a map",
        ),
        (
            format!("{{\"payload\":1,\"headers\":{{\"{PRIVATE}\":1}}}}"),
            "headers: expected a string",
        ),
        (
            format!("{{\"topic\":\"t\",\"payload\":1,\"message_id\":\"{PRIVATE}\"}}"),
            "message_id: expected a UUID",
        ),
        (
            format!("{{\"topic\":\"t\",\"payload\":\"{PRIVATE}\",\"idempotency_key\":\"\"}}"),
            "idempotency_key",
        ),
        (
            format!(
                "{{\"topic\":\"t\",\"payload\":1,\"join_id\":\"{}\"}}",
                JoinId::new()
            ),
            "join not found",
        ),
        (format!("{{\"topic\":\"{PRIVATE}\"}}"), "payload: missing"),
        (format!("[\"{PRIVATE}\"]"), "expected one JSON object"),
        (
            "{\"topic\":\"t\",\"payload\":1,\"delay\":\"99999999d\"}".to_owned(),
            "delay: expected a delay that is over before 9999",
        ),
        (
            format!("{{\"payload\":\"{PRIVATE}"),
            "expected one JSON object",
        ),
        (
            "{\"topic\":\"t\",\"payload\":1,\"delay\":\"soon\"}".to_owned(),
            "delay: expected",
        ),
    ];
    for (count, (bad, reason)) in (1..).zip(cases) {
        let lines = format!("{good}\n{bad}\n{good}{good}");
        let run = feed(&fixture, &["enqueue", "--json-lines"], &lines);
        assert_eq!(run.out, "enqueued 1 message\n");
        assert!(run.err.contains("line 3 is not right"), "{}", run.err);
        assert!(!run.err.contains(PRIVATE), "{}", run.err);
        run.refused(reason);
        let counts = fixture.room.outbox().counts().await.expect("counts");
        assert_eq!(counts.ready, count);
    }
    on(&fixture, &["enqueue", "t", "--json-lines", "--key", "k"]).misused("--key");
}

testkit::mount!(
    a_message_is_stored_with_all_that_was_given,
    a_payload_comes_from_an_argument_a_file_or_stdin,
    a_key_makes_it_happen_once,
    a_due_time_holds_a_message_back,
    many_come_as_lines_of_json,
    a_bad_line_is_named_and_nothing_after_it_is_sent,
);
