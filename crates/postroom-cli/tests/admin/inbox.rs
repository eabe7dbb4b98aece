//! `postroom inbox`.

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

async fn arrivals_that_were_never_enqueued_are_paged_through(fixture: Fixture) {
    let ids = ["evt 1", "evt:2", "évt%3"];
    for id in ids {
        let id = InboxMessageId::new("bank", id);
        let check = fixture.room.inbox().already_processed(&id).await;
        assert!(!check.expect("a check"));
    }
    let mut met = Vec::new();
    let mut after: Vec<String> = Vec::new();
    loop {
        let mut all = vec!["inbox", "list", "--json", "--limit", "1"];
        all.extend(after.iter().map(String::as_str));
        let page = on(&fixture, &all).json();
        for item in page["items"].as_array().expect("items") {
            met.push(item["message_id"].as_str().expect("an id").to_owned());
        }
        match page["next"].as_str() {
            None => break,
            Some(next) => after = vec!["--after".to_owned(), next.to_owned()],
        }
        assert!(met.len() < 10, "the walk does not end");
    }
    met.sort();
    assert_eq!(met, ids);
    on(&fixture, &["inbox", "list", "--after", "evt_1"]).misused("--after");
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
    arrivals_that_were_never_enqueued_are_paged_through,
    dead_messages_are_revived,
    dead_messages_are_purged,
);
