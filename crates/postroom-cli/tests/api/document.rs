//! The OpenAPI document is one, wherever it is read.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn is_served_printed_and_committed_alike() {
    let committed = include_str!("../../../../docs/openapi.json");
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_postroom"))
        .arg("openapi")
        .output()
        .expect("the binary runs");
    let advice = "write it anew: cargo run -- openapi > docs/openapi.json";
    assert!(printed.stdout == committed.as_bytes(), "{advice}");
    let daemon = Daemon::new(QUIET).start().await;
    let served = daemon.get("/v1/openapi.json", &[]).await.expect(200);
    assert_eq!(served.header("content-type"), "application/json");
    assert!(served.body == committed, "{advice}");
}

#[test]
fn describes_every_operation() {
    let document: Value =
        serde_json::from_str(include_str!("../../../../docs/openapi.json")).expect("JSON");
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let place = format!("{method} {path}");
            let name = operation["operationId"].as_str().unwrap_or_default();
            assert!(
                !name.is_empty() && names.insert(name.to_owned()),
                "{place}: {name}"
            );
            assert!(operation["summary"].is_string(), "{place}");
            let responses = operation["responses"].as_object().expect("responses");
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{place}"
            );
            if path.starts_with("/v1") {
                for status in ["400", "401", "403", "413", "503"] {
                    assert!(responses.contains_key(status), "{place}: {status}");
                }
            }
        }
    }
    assert_eq!(
        document["components"]["securitySchemes"]["token"]["scheme"],
        "bearer"
    );
}
