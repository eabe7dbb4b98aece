//! `postroom dead`.

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
