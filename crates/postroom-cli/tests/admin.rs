//! The admin commands, each with its flags, for people and for programs.

mod binary;

use std::time::Duration;

use binary::{at, feed, on, postroom};
use postroom::{
    Abandon, Inbound, InboxMessageId, JoinWait, List, Message, NewJoin, OwnerToken, Postroom,
    State, WorkItemId,
};
use serde_json::Value;
use testkit::{Backend, Fixture};

const LEASE: Duration = Duration::from_secs(30);

/// What no command may print unasked.
const PRIVATE: &str = "private-payload";

/// Enqueues messages and lets them fail for good.
async fn kill(room: &Postroom, topic: &str, count: usize) -> Vec<WorkItemId> {
    let outbox = room.outbox();
    let messages = vec![Message::new(topic, PRIVATE).header("secret-header", PRIVATE); count];
    outbox.enqueue_many(&messages).await.expect("enqueue");
    let owner = OwnerToken::new();
    let claimed = outbox.claim(owner, LEASE, count).await.expect("claim");
    let mut ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
    ids.sort();
    let failed = outbox.fail(owner, &ids, "no such street").await;
    assert_eq!(failed.expect("fail").len(), count);
    ids
}

async fn send(room: &Postroom, message: &Message) -> WorkItemId {
    let receipt = room.outbox().enqueue(message).await.expect("enqueue");
    receipt.work_item_id
}

/// Enqueues inbound messages and lets them fail for good.
async fn kill_inbound(room: &Postroom, messages: &[(&str, &str)]) {
    let inbox = room.inbox();
    for (source, id) in messages {
        let inbound = Inbound::new(*source, *id, "payment.received", PRIVATE);
        inbox.enqueue(&inbound).await.expect("enqueue");
    }
    let owner = OwnerToken::new();
    let claimed = inbox.claim(owner, LEASE, messages.len()).await;
    let ids: Vec<WorkItemId> = claimed
        .expect("claim")
        .iter()
        .filter_map(|message| message.work_item_id)
        .collect();
    assert_eq!(ids.len(), messages.len());
    let failed = inbox.fail(owner, &ids, "account closed").await;
    failed.expect("fail");
}

/// The ids of a page, as it shows them.
fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().expect("items");
    let id = |item: &Value| item["id"].as_str().expect("an id").to_owned();
    items.iter().map(id).collect()
}

async fn actions(room: &Postroom) -> Vec<(String, String, u64)> {
    let entries = room.audit().list(100, None).await.expect("audit");
    let told = entries
        .into_iter()
        .map(|entry| (entry.actor, entry.action, entry.count));
    told.collect()
}

mod enqueue {
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
        .refused("due_at");
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
}

mod list {
    use super::*;

    async fn newest_come_first_and_pages_follow(fixture: Fixture) {
        let mut sent = Vec::new();
        for number in 0..5 {
            let message = Message::new("t", PRIVATE).correlation(format!("c{number}"));
            sent.push(send(&fixture.room, &message).await.to_string());
        }
        sent.reverse();
        let first = on(&fixture, &["list", "--json", "--limit", "2"]).json();
        assert_eq!(ids(&first), sent[..2]);
        assert_eq!(first["next"], sent[1].as_str());
        let rest = on(&fixture, &["list", "--json", "--after", &sent[1]]).json();
        assert_eq!(ids(&rest), sent[2..]);
        assert_eq!(rest["next"], Value::Null);
        let one = on(&fixture, &["list", "--json", "--correlation", "c3"]).json();
        assert_eq!(ids(&one), [&*sent[1]]);
        let table = on(&fixture, &["list", "--limit", "2"]).ok();
        assert!(table.starts_with("id  "), "{table}");
        let more = format!("more may follow: --after {}", sent[1]);
        assert!(table.contains(&more), "{table}");
        assert!(!table.contains(PRIVATE), "{table}");
        on(&fixture, &["list", "--limit", "0"]).refused("--limit");
    }

    async fn states_topics_and_ages_pick_messages(fixture: Fixture) {
        let dead = kill(&fixture.room, "order.created", 1).await[0].to_string();
        let ready = send(&fixture.room, &Message::new("order.paid", PRIVATE)).await;
        let ready = ready.to_string();
        let listed = |arguments: &[&str]| {
            let mut all = vec!["list", "--json"];
            all.extend(arguments);
            ids(&on(&fixture, &all).json())
        };
        assert_eq!(listed(&[]), [&*ready, &*dead]);
        assert_eq!(listed(&["--state", "ready"]), [&*ready]);
        assert_eq!(listed(&["--state", "dead"]), [&*dead]);
        assert!(listed(&["--state", "in-flight"]).is_empty());
        assert!(listed(&["--state", "done"]).is_empty());
        assert_eq!(listed(&["--topic", "order.created"]), [&*dead]);
        assert!(listed(&["--older-than", "1h"]).is_empty());
        assert_eq!(listed(&["--newer-than", "1h"]).len(), 2);
        assert_eq!(
            on(&fixture, &["list", "--topic", "x"]).ok(),
            "no such messages\n"
        );
        on(&fixture, &["list", "--state", "lost"]).misused("in-flight");
    }

    async fn what_messages_carry_shows_only_when_asked(fixture: Fixture) {
        kill(&fixture.room, "t", 1).await;
        for command in [
            &["list"][..],
            &["list", "--json"],
            &["dead", "list", "--json"],
        ] {
            let out = on(&fixture, command).ok();
            assert!(!out.contains(PRIVATE), "{out}");
            assert!(out.contains("no such street"), "{out}");
        }
        let page = on(&fixture, &["list", "--json", "--show-payload"]).json();
        assert_eq!(page["items"][0]["payload"], PRIVATE);
        assert_eq!(page["items"][0]["headers"]["secret-header"], PRIVATE);
        on(&fixture, &["list", "--show-payload"]).misused("--json");
    }

    async fn stored_text_does_not_steer_the_terminal(fixture: Fixture) {
        let message = Message::new("a\u{1b}[31mb", "x").correlation("c\u{7}\u{202e}d");
        let id = send(&fixture.room, &message).await.to_string();
        for command in [&["list"][..], &["show", &id], &["stats"]] {
            let out = on(&fixture, command).ok();
            assert!(out.contains("a [31mb"), "{out}");
            assert!(!out.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{out:?}");
        }
    }

    testkit::mount!(
        newest_come_first_and_pages_follow,
        states_topics_and_ages_pick_messages,
        what_messages_carry_shows_only_when_asked,
        stored_text_does_not_steer_the_terminal,
    );
}

mod show {
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
        let later = Abandon::after(Duration::from_secs(600)).error("busy");
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
}

mod dead {
    use super::*;

    async fn messages_are_replayed_by_id_and_by_what_they_have_in_common(fixture: Fixture) {
        let room = &fixture.room;
        let orders = kill(room, "order.created", 3).await;
        kill(room, "order.paid", 2).await;
        let first = orders[0].to_string();
        let told = on(&fixture, &["dead", "replay", &first, "--dry-run"]).ok();
        assert_eq!(told, "1 message would be replayed\n");
        assert_eq!(
            on(&fixture, &["dead", "replay", &first]).ok(),
            "replayed 1 message\n"
        );
        let run = on(
            &fixture,
            &["dead", "replay", &first, &orders[1].to_string()],
        );
        assert_eq!(run.out, "replayed 1 message\n");
        run.refused("1 of 2 ids are not dead messages; `postroom dead list`");
        let told = on(&fixture, &["dead", "replay", "--older-than", "1h"]).ok();
        assert_eq!(told, "replayed 0 messages\n");
        let all = &["dead", "replay", "--all", "--dry-run", "--json"];
        let told = on(&fixture, all).json();
        assert_eq!(
            (&told["replayed"], &told["dry_run"]),
            (&3.into(), &true.into())
        );
        let topic = &["dead", "replay", "--topic", "order.paid", "--json"];
        assert_eq!(on(&fixture, topic).json()["replayed"], 2);
        let told = on(&fixture, &["dead", "replay", "--all"]).ok();
        assert_eq!(told, "replayed 1 message\n");
        let counts = room.outbox().counts().await.expect("counts");
        assert_eq!((counts.ready, counts.dead), (5, 0));
        let told = actions(room).await;
        let counts: Vec<u64> = told.iter().map(|(_, _, count)| *count).collect();
        assert_eq!(counts, [1, 2, 1, 1], "newest first, and none for dry runs");
        assert!(
            told.iter().all(|(actor, _, _)| actor == "cli:ann"),
            "{told:?}"
        );
    }

    async fn a_purge_wants_to_be_sure(fixture: Fixture) {
        let room = &fixture.room;
        let dead = kill(room, "t", 3).await;
        let first = dead[0].to_string();
        on(&fixture, &["dead", "purge", &first]).refused("--yes");
        on(&fixture, &["dead", "purge", "--all"]).refused("--yes");
        feed(&fixture, &["dead", "purge", "--all"], "y\n").refused("--yes");
        assert_eq!(room.outbox().counts().await.expect("counts").dead, 3);
        let told = on(&fixture, &["dead", "purge", "--all", "--dry-run"]).ok();
        assert_eq!(told, "3 messages would be purged\n");
        let told = on(&fixture, &["dead", "purge", &first, "--yes", "--json"]).json();
        assert_eq!(
            (&told["purged"], &told["dry_run"]),
            (&1.into(), &false.into())
        );
        let old = &["dead", "purge", "--older-than", "1d", "--yes"];
        assert_eq!(on(&fixture, old).ok(), "purged 0 messages\n");
        let topic = &[
            "dead",
            "purge",
            "--topic",
            "t",
            "--older-than",
            "0s",
            "--yes",
        ];
        assert_eq!(on(&fixture, topic).ok(), "purged 2 messages\n");
        assert_eq!(on(&fixture, &["dead", "list"]).ok(), "no dead messages\n");
        on(&fixture, &["dead", "purge", &first, "--yes"]).refused("1 of 1 ids are not dead");
        assert_eq!(actions(room).await.len(), 2);
    }

    /// `script` lends the command a terminal.
    #[cfg(target_os = "linux")]
    async fn at_a_terminal_it_asks(fixture: Fixture) {
        kill(&fixture.room, "t", 2).await;
        let purge = |answer: &str| {
            let mut line = env!("CARGO_BIN_EXE_postroom").to_owned();
            for argument in at(&fixture, &["dead", "purge", "--all"]) {
                line += &format!(" '{argument}'");
            }
            let mut script = std::process::Command::new("script");
            script.args(["-qec", &line, "/dev/null"]);
            binary::fed(&mut script, answer)
        };
        let run = purge("n\n");
        assert!(
            run.out.contains("Delete 2 dead messages for good? [y/N]"),
            "{}",
            run.out
        );
        assert!(run.out.contains("nothing was deleted"), "{}", run.out);
        assert_eq!(run.code, 1);
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").dead,
            2
        );
        let run = purge("y\n");
        assert!(run.out.contains("purged 2 messages"), "{}", run.out);
        assert_eq!(run.code, 0);
    }

    #[cfg(target_os = "linux")]
    mod terminal {
        use super::at_a_terminal_it_asks;

        testkit::mount!(at_a_terminal_it_asks);
    }

    #[test]
    fn it_has_to_be_said_which() {
        postroom(&["dead", "purge"]).misused("--older-than");
        postroom(&["dead", "replay"]).misused("--all");
        postroom(&["dead", "purge", "--older-than", "soon"]).misused("such as 90s, 15m, 36h or 7d");
        postroom(&["dead", "purge", "--all", "--topic", "t"]).misused("cannot be used with");
        let id = WorkItemId::new().to_string();
        postroom(&["dead", "purge", &id, "--all"]).misused("cannot be used with");
    }

    testkit::mount!(
        messages_are_replayed_by_id_and_by_what_they_have_in_common,
        a_purge_wants_to_be_sure,
    );
}

mod inbox {
    use super::*;

    const DEAD: &[(&str, &str)] = &[
        ("bank", "p1"),
        ("bank", "p2"),
        ("post", "p1"),
        ("post", "p3"),
    ];

    async fn messages_are_listed_and_shown(fixture: Fixture) {
        let room = &fixture.room;
        kill_inbound(room, DEAD).await;
        let inbound = Inbound::new("bank", "p9", "t", PRIVATE)
            .correlation("c")
            .hash([0xab, 0x01]);
        room.inbox().enqueue(&inbound).await.expect("enqueue");
        let listed = |arguments: &[&str]| {
            let mut all = vec!["inbox", "list", "--json"];
            all.extend(arguments);
            let page = on(&fixture, &all).json();
            let items = page["items"].as_array().expect("items").clone();
            let id = |item: Value| item["message_id"].as_str().expect("an id").to_owned();
            items.into_iter().map(id).collect::<Vec<_>>()
        };
        assert_eq!(listed(&[]).len(), 5);
        assert_eq!(listed(&["--limit", "1"]), ["p9"], "newest first");
        assert_eq!(listed(&["--state", "dead"]).len(), 4);
        assert_eq!(listed(&["--state", "processing"]), ["p9"]);
        assert_eq!(listed(&["--state", "dead", "--source", "post"]).len(), 2);
        assert_eq!(listed(&["--correlation", "c"]), ["p9"]);
        assert!(listed(&["--state", "done"]).is_empty());
        assert!(listed(&["--state", "seen"]).is_empty());
        let table = on(&fixture, &["inbox", "list", "--state", "dead"]).ok();
        assert!(
            table.contains("bank") && table.contains("account closed"),
            "{table}"
        );
        assert!(!table.contains(PRIVATE), "{table}");
        let shown = on(&fixture, &["inbox", "show", "bank", "p9", "--json"]).json();
        assert_eq!(shown["hash"], "ab01");
        assert_eq!(shown["next"], "the next worker that handles `t` gets it");
        assert_eq!(shown["payload"], Value::Null);
        let out = on(&fixture, &["inbox", "show", "bank", "p1"]).ok();
        assert!(
            out.contains("postroom inbox revive --source bank p1"),
            "{out}"
        );
        assert!(!out.contains(PRIVATE), "{out}");
        let out = on(&fixture, &["inbox", "show", "bank", "p1", "--show-payload"]).ok();
        assert!(out.contains(PRIVATE), "{out}");
        on(&fixture, &["inbox", "show", "bank", "p7"]).refused("postroom inbox list");
    }

    async fn dead_messages_are_revived(fixture: Fixture) {
        let room = &fixture.room;
        kill_inbound(room, DEAD).await;
        let revive = |arguments: &[&str]| {
            let mut all = vec!["inbox", "revive"];
            all.extend(arguments);
            on(&fixture, &all)
        };
        let told = revive(&["--source", "bank", "p1", "--dry-run"]).ok();
        assert_eq!(told, "1 message would be revived\n");
        assert_eq!(
            revive(&["--source", "bank", "p1"]).ok(),
            "revived 1 message\n"
        );
        revive(&["--source", "bank", "p1"]).refused("none of these is a dead message");
        revive(&["p9", "--dry-run"]).refused("none of these is a dead message");
        revive(&["p1", "--dry-run"]).refused("name the source too");
        assert_eq!(revive(&["p1"]).ok(), "revived 1 message\n", "the other p1");
        assert_eq!(revive(&["--older-than", "1h"]).ok(), "revived 0 messages\n");
        assert_eq!(revive(&["--source", "post", "--json"]).json()["revived"], 1);
        let told = revive(&["--topic", "payment.received", "--dry-run", "--json"]).json();
        assert_eq!(
            (&told["revived"], &told["dry_run"]),
            (&1.into(), &true.into())
        );
        assert_eq!(revive(&["--all"]).ok(), "revived 1 message\n");
        let counts = room.inbox().counts().await.expect("counts");
        assert_eq!((counts.processing, counts.dead), (4, 0));
        assert_eq!(actions(room).await.len(), 4);
        let shown = on(&fixture, &["inbox", "show", "bank", "p1", "--json"]).json();
        assert_eq!(shown["audit"][0]["actor"], "cli:ann");
        revive(&[]).misused("--older-than");
    }

    async fn dead_messages_are_purged(fixture: Fixture) {
        let room = &fixture.room;
        kill_inbound(room, DEAD).await;
        let purge = |arguments: &[&str]| {
            let mut all = vec!["inbox", "purge"];
            all.extend(arguments);
            on(&fixture, &all)
        };
        purge(&["--all"]).refused("--yes");
        assert_eq!(
            purge(&["--all", "--dry-run"]).ok(),
            "4 messages would be purged\n"
        );
        assert_eq!(
            purge(&["--source", "bank", "p1", "--yes"]).ok(),
            "purged 1 message\n"
        );
        let old = purge(&["--older-than", "1d", "--yes", "--json"]).json();
        assert_eq!(old["purged"], 0);
        assert_eq!(
            purge(&["--older-than", "0s", "--yes"]).ok(),
            "purged 3 messages\n"
        );
        let forgotten = room.inbox().get(&InboxMessageId::new("bank", "p1")).await;
        assert!(forgotten.expect("get").is_none());
        assert_eq!(actions(room).await.len(), 2);
    }

    testkit::mount!(
        messages_are_listed_and_shown,
        dead_messages_are_revived,
        dead_messages_are_purged,
    );
}

mod join {
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
}

mod stats {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    async fn messages_are_counted_by_state_and_topic(fixture: Fixture) {
        let room = &fixture.room;
        kill(room, "order.created", 2).await;
        send(room, &Message::new("order.paid", PRIVATE)).await;
        kill_inbound(room, &[("bank", "p1")]).await;
        let stats = on(&fixture, &["stats", "--json"]).json();
        let outbox = &stats["outbox"];
        assert_eq!(
            (&outbox["ready"], &outbox["dead"], &outbox["done"]),
            (&1.into(), &2.into(), &0.into())
        );
        assert!(outbox["oldest_ready_seconds"].is_number(), "{outbox}");
        assert_eq!(outbox["topics"][0]["topic"], "order.created");
        assert_eq!(outbox["topics"][0]["dead"], 2);
        assert_eq!(outbox["topics"][1]["ready"], 1);
        assert_eq!(stats["inbox"]["dead"], 1);
        assert_eq!(stats["inbox"]["seen"], 0);
        let quick = on(&fixture, &["stats", "--json", "--quick"]).json();
        assert_eq!(quick["outbox"]["done"], Value::Null);
        let out = on(&fixture, &["stats"]).ok();
        let line = out
            .lines()
            .find(|line| line.starts_with("dead"))
            .expect("a line");
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>(),
            ["dead", "2", "1"]
        );
        assert!(
            out.contains("order.paid") && out.contains("payment.received"),
            "{out}"
        );
    }

    async fn watching_counts_again(fixture: Fixture) {
        let mut watch = binary::command(&at(&fixture, &["stats", "--watch", "1s", "--json"]))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(watch.stdout.take().expect("stdout")).lines();
        let mut ready = || {
            let line = lines.next().expect("a line").expect("text");
            let stats: Value = serde_json::from_str(&line).expect("JSON");
            stats["outbox"]["ready"].as_u64().expect("a number")
        };
        assert_eq!(ready(), 0);
        send(&fixture.room, &Message::new("t", "x")).await;
        while ready() == 0 {}
        watch.kill().expect("kill");
        watch.wait().expect("an end");
    }

    testkit::mount!(
        messages_are_counted_by_state_and_topic,
        watching_counts_again
    );
}

mod cleanup {
    use super::*;

    async fn what_was_done_long_ago_is_deleted(fixture: Fixture) {
        let room = &fixture.room;
        let owner = OwnerToken::new();
        for _ in 0..3 {
            send(room, &Message::new("t", "x")).await;
        }
        let claimed = room.outbox().claim(owner, LEASE, 3).await.expect("claim");
        let ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
        room.outbox().ack(owner, &ids).await.expect("ack");
        let done = InboxMessageId::new("bank", "p1");
        room.inbox().already_processed(&done).await.expect("seen");
        room.inbox().mark_processed(&done).await.expect("done");
        let join = room.joins().start(&NewJoin::new(1)).await.expect("start");
        room.joins().cancel(join).await.expect("cancel");
        let out = on(&fixture, &["cleanup", "--older-than", "1d"]).ok();
        assert_eq!(
            out,
            "outbox: deleted 0 messages\ninbox: deleted 0 messages\njoins: deleted 0 joins\n"
        );
        age(&fixture).await;
        let out = on(
            &fixture,
            &["cleanup", "--older-than", "1d", "--outbox", "--json"],
        )
        .json();
        assert_eq!(out, serde_json::json!({"deleted": {"outbox": 3}}));
        let out = on(&fixture, &["cleanup", "--older-than", "1d", "--json"]).json();
        assert_eq!(
            out,
            serde_json::json!({"deleted": {"outbox": 0, "inbox": 1, "joins": 1}})
        );
        assert_eq!(
            actions(room).await.len(),
            3,
            "one for each that deleted something"
        );
        on(&fixture, &["cleanup", "--older-than", "0s"]).refused("--older-than");
        on(&fixture, &["cleanup"]).misused("--older-than");
    }

    /// Makes everything two days older.
    async fn age(fixture: &Fixture) {
        let earlier = |column: &str| match fixture.backend {
            Backend::Sqlite | Backend::MySql => format!("{column} = {column} - 172800000000"),
            Backend::Postgres => format!("{column} = {column} - interval '2 days'"),
            Backend::SqlServer => format!("{column} = DATEADD(DAY, -2, {column})"),
        };
        for (table, column) in [
            ("outbox_done", "processed_at"),
            ("inbox_seen", "last_seen"),
            ("outbox_join", "last_updated_at"),
        ] {
            fixture
                .sql(&format!("UPDATE {{{table}}} SET {}", earlier(column)))
                .await;
        }
    }

    testkit::mount!(what_was_done_long_ago_is_deleted);
}

mod bench {
    use super::*;

    const KEYS: [&str; 5] = [
        "enqueue_1_task_per_second",
        "enqueue_16_tasks_per_second",
        "drain_per_second",
        "latency_p50_ms",
        "latency_p99_ms",
    ];

    /// What one leaves behind must not be taken for the other's: one at a time.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    async fn it_measures_and_leaves_nothing(fixture: Fixture) {
        let _turn = TURN.lock().await;
        let before = traces(&fixture).await;
        let measured = on(&fixture, &["bench", "--messages", "100", "--json"]).json();
        for key in KEYS {
            assert!(
                measured[key].as_f64().is_some_and(|number| number > 0.0),
                "{key}"
            );
        }
        let out = on(
            &fixture,
            &["bench", "--messages", "100", "--payload-bytes", "0"],
        )
        .ok();
        assert!(out.contains("drain by a dispatcher"), "{out}");
        assert_eq!(traces(&fixture).await, before);
        let counts = fixture.room.outbox().counts().await.expect("counts");
        assert_eq!(
            (counts.ready, counts.done),
            (0, 0),
            "its tables are its own"
        );
        on(&fixture, &["bench", "--messages", "1"]).misused("100");
    }

    #[test]
    fn databases_that_it_cannot_clean_up_are_refused() {
        let url = "sqlserver://nobody@127.0.0.1:1/a";
        postroom(&["bench", "--url", url])
            .refused("the bench runs on SQLite, PostgreSQL, MySQL and MariaDB");
    }

    #[cfg(unix)]
    async fn an_interrupt_leaves_nothing(fixture: Fixture) {
        let _turn = TURN.lock().await;
        let before = traces(&fixture).await;
        let arguments = ["bench", "--messages", "1000000"];
        let child = binary::command(&at(&fixture, &arguments))
            .spawn()
            .expect("the binary runs");
        testkit::eventually(|| async { (traces(&fixture).await > before).then_some(()) }).await;
        let pid = child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        assert!(sent.expect("kill").success());
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(traces(&fixture).await, before);
    }

    /// How many schemas, or tables, or files and folders, there are.
    async fn traces(fixture: &Fixture) -> i64 {
        match fixture.backend {
            Backend::Postgres => fixture
                .number(
                    "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'postroom\\_bench\\_%'",
                )
                .await,
            Backend::MySql => {
                fixture
                    .number(
                        "SELECT count(*) FROM information_schema.tables
                     WHERE table_schema = database() AND table_name LIKE 'postroom\\_bench\\_%'",
                    )
                    .await
            }
            Backend::Sqlite | Backend::SqlServer => {
                let file = fixture.url.strip_prefix("sqlite:").expect("a file");
                let folder = std::path::Path::new(file).parent().expect("a folder");
                let is_trace = |entry: &std::fs::DirEntry| {
                    entry
                        .file_name()
                        .to_string_lossy()
                        .contains("postroom-bench")
                };
                let entries = std::fs::read_dir(folder).expect("a folder");
                let count = entries.flatten().filter(is_trace).count();
                i64::try_from(count).expect("a number")
            }
        }
    }

    #[cfg(unix)]
    testkit::mount!(
        sqlite: it_measures_and_leaves_nothing, an_interrupt_leaves_nothing;
        postgres: it_measures_and_leaves_nothing, an_interrupt_leaves_nothing;
        mysql: it_measures_and_leaves_nothing, an_interrupt_leaves_nothing
    );
    #[cfg(not(unix))]
    testkit::mount!(
        sqlite: it_measures_and_leaves_nothing;
        postgres: it_measures_and_leaves_nothing;
        mysql: it_measures_and_leaves_nothing
    );
}

mod doctor {
    use super::*;

    async fn a_store_without_trouble_is_well(fixture: Fixture) {
        let report = on(&fixture, &["doctor", "--json"]).json();
        assert_eq!(report["fine"], true);
        let out = on(&fixture, &["doctor"]).ok();
        assert!(out.contains("ok        schema"), "{out}");
        assert!(out.ends_with("all is well\n"), "{out}");
    }

    async fn work_that_nobody_handles_is_found(fixture: Fixture) {
        send(&fixture.room, &Message::new("order.lost", PRIVATE)).await;
        on(&fixture, &["doctor", "--topics", "order.lost,order.paid"]).ok();
        let run = on(&fixture, &["doctor", "--topics", "order.paid"]);
        assert_eq!(run.code, 1);
        assert!(run.out.contains("order.lost"), "{}", run.out);
        let run = on(&fixture, &["doctor", "--topics", "order.paid", "--json"]);
        assert_eq!(run.code, 1);
        let report: Value = serde_json::from_str(&run.out).expect("JSON");
        assert_eq!(report["fine"], false);
        let finding = &report["findings"][0];
        for field in ["cause", "severity", "summary", "advice"] {
            assert!(
                finding[field].as_str().is_some_and(|text| !text.is_empty()),
                "{field}"
            );
        }
    }

    async fn a_missing_schema_and_a_dead_server_are_found(fixture: Fixture) {
        let mut arguments = vec!["doctor", "--json", "--url", &fixture.url];
        arguments.extend(["--schema", "nothing_here"]);
        let run = postroom(&arguments);
        assert_eq!(run.code, 1, "{}", run.err);
        let report: Value = serde_json::from_str(&run.out).expect("JSON");
        assert_eq!(report["findings"][0]["cause"], "schema");
        let run = postroom(&["doctor", "--url", "postgres://u@127.0.0.1:1/db"]);
        assert_eq!(run.code, 1);
        assert!(run.out.contains("critical  connection"), "{}", run.out);
    }

    testkit::mount!(
        a_store_without_trouble_is_well,
        work_that_nobody_handles_is_found,
        a_missing_schema_and_a_dead_server_are_found,
    );
}

mod configured {
    use super::*;

    /// A store is named by the configuration that the daemon reads.
    async fn a_store_is_named_by_a_configuration(fixture: Fixture) {
        send(&fixture.room, &Message::new("order.lost", "x")).await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("postroom.toml");
        let schema = fixture.schema.as_ref();
        let schema = schema.map_or(String::new(), |schema| format!("schema = \"{schema}\"\n"));
        let store = |name: &str| {
            format!(
                "[[store]]\nname = \"{name}\"\nurl = \"{}\"\n{schema}",
                fixture.url
            )
        };
        std::fs::write(&file, store("shop")).expect("write");
        let config = file.display().to_string();
        let stats = postroom(&["stats", "--json", "--config", &config]).json();
        assert_eq!(stats["outbox"]["ready"], 1);
        let found = binary::finish(
            binary::command(&["stats", "--json"])
                .current_dir(folder.path())
                .env("POSTROOM_URL", "sqlite:elsewhere.db"),
        );
        assert_eq!(
            found.json()["outbox"]["ready"],
            1,
            "as `postroom serve` would"
        );
        let both = ["stats", "--config", &config, "--url", "sqlite:x.db"];
        postroom(&both).misused("cannot be used with");
        postroom(&["stats", "--config", &config, "--store", "bank"]).refused("names shop");
        let module = "[[module]]\nname = \"billing\"\nschema = \"billing\"\n";
        std::fs::write(&file, store("shop") + &store("bank") + module).expect("write");
        postroom(&["stats", "--config", &config]).refused("shop, bank, billing");
        postroom(&["stats", "--config", &config, "--store", "bank"]).ok();
        postroom(&["stats", "--config", &config, "--store", "billing"])
            .refused("postroom schema deploy");
        postroom(&["stats", "--config", "no-such.toml"]).refused("no-such.toml");
    }

    testkit::mount!(a_store_is_named_by_a_configuration);
}

mod completions {
    use super::*;

    #[test]
    fn every_shell_gets_a_script() {
        for (shell, sign) in [
            ("bash", "_postroom()"),
            ("zsh", "#compdef postroom"),
            ("fish", "complete -c postroom"),
            ("powershell", "Register-ArgumentCompleter"),
            ("elvish", "edit:completion:arg-completer[postroom]"),
        ] {
            let script = postroom(&["completions", shell]).ok();
            assert!(script.contains(sign), "{shell}");
            assert!(script.contains("doctor"), "{shell}");
        }
        postroom(&["completions", "cmd"]).misused("powershell");
    }

    #[test]
    fn bash_understands_its_script() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("postroom.bash");
        std::fs::write(&file, postroom(&["completions", "bash"]).ok()).expect("write");
        let checked = std::process::Command::new("bash")
            .arg("-n")
            .arg(&file)
            .output();
        let checked = checked.expect("bash runs");
        assert!(
            checked.status.success(),
            "{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }
}

mod help {
    use super::*;

    /// Every command that `help` lists, and the commands below it.
    #[test]
    fn every_command_teaches_by_example() {
        let mut seen = Vec::new();
        visit(&mut Vec::new(), &mut seen);
        for command in [
            "enqueue",
            "dead purge",
            "inbox revive",
            "join cancel",
            "doctor",
        ] {
            assert!(
                seen.iter().any(|seen| seen == command),
                "{command} in {seen:?}"
            );
        }
    }

    fn visit(path: &mut Vec<String>, seen: &mut Vec<String>) {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = postroom(&arguments).ok();
        assert!(help.contains("Examples:"), "{path:?}");
        seen.push(path.join(" "));
        let Some((_, commands)) = help.split_once("Commands:\n") else {
            return;
        };
        for line in commands.lines().take_while(|line| !line.is_empty()) {
            // A description may go on in the next line, further to the right.
            let name = line
                .strip_prefix("  ")
                .filter(|name| !name.starts_with(' '));
            let Some(name) = name.and_then(|name| name.split(' ').next()) else {
                continue;
            };
            // The daemon's configuration has its own tests.
            if name == "help" || name == "config" {
                continue;
            }
            path.push(name.to_owned());
            visit(path, seen);
            path.pop();
        }
    }

    /// Every example, of `--help` and of the guide, is understood as it stands. Adding `--help` keeps it
    /// from doing anything.
    #[test]
    fn every_example_is_understood() {
        let mut texts = vec![include_str!("../../../docs/commands.md").to_owned()];
        let mut seen = Vec::new();
        visit(&mut Vec::new(), &mut seen);
        for path in &seen {
            let mut arguments: Vec<&str> = path.split_whitespace().collect();
            arguments.push("--help");
            texts.push(postroom(&arguments).ok());
        }
        let mut tried = std::collections::BTreeSet::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let command = line.find("postroom ").filter(|start| {
                // A command stands at the start of its line, or after a pipe.
                let before = line[..*start].trim_end();
                before.is_empty() || before.ends_with('|')
            });
            let Some(start) = command else { continue };
            let mut words = words(&line[start..]);
            words.remove(0);
            words.push("--help".to_owned());
            if tried.insert(words.clone()) {
                let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
                let run = postroom(&arguments);
                assert_eq!(run.code, 0, "{line}: {}", run.err);
            }
        }
        assert!(tried.len() > 60, "{}", tried.len());
    }

    /// The words of an example up to its remark, pipe or redirection, quotes taken off.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let (mut quoted, mut spaces) = (false, 0);
        for character in line.chars() {
            match character {
                '\'' => quoted = !quoted,
                '|' | '<' | '>' | '&' | '#' if !quoted => break,
                ' ' if !quoted => {
                    spaces += 1;
                    if spaces == 2 {
                        break;
                    }
                    words.push(String::new());
                    continue;
                }
                _ => words.last_mut().expect("a word").push(character),
            }
            spaces = 0;
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn exit_codes_are_explained() {
        let help = postroom(&["--help"]).ok();
        assert!(help.contains("Exit codes: 0"), "{help}");
        assert!(postroom(&["doctor", "--help"]).ok().contains("Exit code 0"));
        postroom(&["nonsense"]).misused("nonsense");
    }
}
