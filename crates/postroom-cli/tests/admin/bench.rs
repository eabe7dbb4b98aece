//! `postroom bench`.

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
        Backend::Postgres => {
            fixture
                .number(
                    "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'postroom\\_bench\\_%'",
                )
                .await
        }
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
