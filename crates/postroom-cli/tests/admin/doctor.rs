//! `postroom doctor`.

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

async fn an_index_that_was_removed_is_named(fixture: Fixture) {
    send(&fixture.room, &Message::new("order.lost", PRIVATE)).await;
    fixture
        .sql(match fixture.backend {
            Backend::MySql => "DROP INDEX outbox_ready ON {outbox}",
            _ => "DROP INDEX {outbox_ready}",
        })
        .await;
    let run = on(&fixture, &["doctor", "--topics", "order.paid", "--json"]);
    assert_eq!(run.code, 1, "{}", run.err);
    let report: Value = serde_json::from_str(&run.out).expect("JSON");
    let causes: Vec<&str> = report["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|finding| finding["cause"].as_str())
        .collect();
    assert!(causes.contains(&"missing_index"), "{causes:?}");
    assert!(!causes.contains(&"schema"), "{causes:?}");
    assert!(causes.contains(&"unhandled_work"), "{causes:?}");
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
    an_index_that_was_removed_is_named,
    a_missing_schema_and_a_dead_server_are_found,
);
