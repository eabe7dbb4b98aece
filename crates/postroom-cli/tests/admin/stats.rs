//! `postroom stats`.

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
