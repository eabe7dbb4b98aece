//! `postroom list`.

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
