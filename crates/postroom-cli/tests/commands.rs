//! The real binary, run as a user would run it.

use std::process::Command;
use std::time::Duration;

use postroom::{Inbound, Message, OwnerToken, Postroom, WorkItemId};
use testkit::{Backend, Fixture};

/// What a run of the binary left.
struct Run {
    code: i32,
    out: String,
    err: String,
}

fn postroom(arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_postroom"))
        .args(arguments)
        .env_remove("POSTROOM_URL")
        .env_remove("RUST_LOG")
        .output()
        .expect("the binary runs");
    Run {
        code: output.status.code().expect("an exit code"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Run {
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    fn refused(self, reason: &str) {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        assert!(
            self.err.contains(reason),
            "expected {reason:?} in {:?}",
            self.err
        );
    }
}

/// Runs a command on a fixture's store.
fn on(fixture: &Fixture, arguments: &[&str]) -> Run {
    let mut all = arguments.to_vec();
    all.extend(["--url", &fixture.url]);
    if let Some(schema) = &fixture.schema {
        all.extend(["--schema", schema]);
    }
    postroom(&all)
}

mod demo {
    use super::*;

    #[test]
    fn on_sqlite_needs_nothing_and_adds_up() {
        let out = postroom(&["demo"]).ok();
        assert!(out.contains("All 15 checks passed"), "{out}");
        assert!(out.contains("80 orders and 80 messages"), "{out}");
        assert!(
            out.contains("86 sent, 86 handled, 3 duplicates refused, 0 dead, 0 waiting, 0 lost."),
            "{out}"
        );
        let file = out
            .lines()
            .next()
            .and_then(|line| line.split_once("sqlite:"))
            .expect("its file")
            .1;
        assert!(
            !std::path::Path::new(file).exists(),
            "{file} is still there"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres_adds_up_and_leaves_nothing() {
        let fixture = Fixture::empty(Backend::Postgres).await;
        let out = postroom(&["demo", "--url", &fixture.url, "--orders", "20"]).ok();
        assert!(out.contains("All 15 checks passed"), "{out}");
        let left = fixture
            .number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'demo\\_%'")
            .await;
        assert_eq!(left, 0);
    }

    #[test]
    fn what_it_keeps_can_be_looked_at() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("kept.db").display());
        let out = postroom(&["demo", "--orders", "10", "--url", &url]).ok();
        let hint = out
            .lines()
            .find_map(|line| line.trim().strip_prefix("postroom outbox counts "))
            .expect("a hint");
        let mut arguments = vec!["outbox", "counts", "--json"];
        arguments.extend(hint.split(' '));
        assert_eq!(
            postroom(&arguments).ok().trim(),
            r#"{"dead":0,"done":13,"in_flight":0,"ready":0}"#
        );
    }
}

mod schema {
    use super::*;

    async fn printed_by_hand_passes_verify(fixture: Fixture) {
        let dialect = fixture.room.dialect().name();
        let mut arguments = vec!["schema", "print", "--dialect", dialect];
        if let Some(schema) = &fixture.schema {
            arguments.extend(["--schema", schema]);
        }
        let script = postroom(&arguments).ok();
        match fixture.backend {
            Backend::Sqlite => fixture.sqlite().execute_batch(&script).expect("the script"),
            Backend::Postgres => fixture
                .postgres()
                .await
                .batch_execute(&script)
                .await
                .expect("the script"),
        }
        assert!(
            on(&fixture, &["schema", "verify"])
                .ok()
                .contains("complete")
        );
        on(&fixture, &["schema", "deploy"]).ok();
    }

    async fn verify_on_an_empty_database_says_what_to_do(fixture: Fixture) {
        on(&fixture, &["schema", "verify"]).refused("run `deploy()` or `postroom schema deploy`");
        on(&fixture, &["outbox", "counts"]).refused("postroom schema deploy");
    }

    async fn deploy_twice_then_verify(fixture: Fixture) {
        on(&fixture, &["schema", "deploy"]).ok();
        on(&fixture, &["schema", "deploy"]).ok();
        on(&fixture, &["schema", "verify"]).ok();
    }

    #[test]
    fn bad_names_are_refused_by_their_parameter() {
        for parameter in [
            "schema",
            "outbox-table",
            "inbox-table",
            "join-table",
            "join-member-table",
        ] {
            let flag = format!("--{parameter}");
            let run = postroom(&[
                "schema",
                "print",
                "--dialect",
                "postgres",
                &flag,
                "a\"; drop table x",
            ]);
            assert!(run.out.is_empty());
            assert!(run.err.contains(&flag), "{}", run.err);
            run.refused(&parameter.replace('-', "_"));
        }
    }

    #[test]
    fn a_missing_file_is_not_created_by_looking() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("none.db");
        postroom(&[
            "schema",
            "verify",
            "--url",
            &format!("sqlite:{}", file.display()),
        ])
        .refused("schema deploy");
        assert!(!file.exists());
    }

    macro_rules! on_empty {
        ($($test:ident),+) => {
            mod sqlite {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() { super::$test(super::Fixture::empty(super::Backend::Sqlite).await).await; })+
            }
            mod postgres {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() { super::$test(super::Fixture::empty(super::Backend::Postgres).await).await; })+
            }
        };
    }
    on_empty!(
        printed_by_hand_passes_verify,
        verify_on_an_empty_database_says_what_to_do,
        deploy_twice_then_verify
    );
}

mod outbox {
    use super::*;

    async fn dead_messages_are_listed_replayed_and_purged(fixture: Fixture) {
        let ids = kill(&fixture.room, 3).await;
        let first = ids[0].to_string();

        let table = on(&fixture, &["outbox", "dead"]).ok();
        assert!(
            table.contains(&first) && table.contains("no such street"),
            "{table}"
        );
        assert!(!table.contains("private"), "payloads do not show unasked");
        let json = on(
            &fixture,
            &["outbox", "dead", "--json", "--show-payload", "--limit", "1"],
        )
        .ok();
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(
            (&json[0]["id"], &json[0]["payload"]),
            (&first.as_str().into(), &"private".into())
        );
        assert_eq!(json.as_array().map(Vec::len), Some(1));

        assert_eq!(
            on(&fixture, &["outbox", "replay", &first]).ok(),
            "replayed 1 message\n"
        );
        on(&fixture, &["outbox", "replay", &first]).refused("1 of 1 ids are not dead");
        assert_eq!(
            on(
                &fixture,
                &["outbox", "purge", "--older-than", "1d", "--json"]
            )
            .ok(),
            "{\"purged\":0}\n"
        );
        assert_eq!(
            on(&fixture, &["outbox", "purge", &ids[1].to_string()]).ok(),
            "purged 1 message\n"
        );
        assert_eq!(
            on(&fixture, &["outbox", "replay", "--older-than", "1h"]).ok(),
            "replayed 0 messages\n"
        );
        assert_eq!(
            on(&fixture, &["outbox", "replay", "--older-than", "0s"]).ok(),
            "replayed 1 message\n"
        );
        let counts = on(&fixture, &["outbox", "counts"]).ok();
        assert_eq!(
            counts,
            "state      messages\nready      2\nin flight  0\ndone       0\ndead       0\n"
        );
    }

    async fn cleanup_and_reap_say_how_many(fixture: Fixture) {
        let owner = OwnerToken::new();
        fixture
            .room
            .outbox()
            .enqueue(&Message::new("order.created", "{}"))
            .await
            .expect("enqueue");
        let claimed = fixture
            .room
            .outbox()
            .claim(owner, Duration::from_secs(30), 1)
            .await
            .expect("claim");
        fixture
            .room
            .outbox()
            .ack(owner, &[claimed[0].id])
            .await
            .expect("ack");
        assert_eq!(
            on(&fixture, &["outbox", "cleanup", "--older-than", "1d"]).ok(),
            "deleted 0 messages\n"
        );
        assert_eq!(
            on(&fixture, &["outbox", "reap", "--json"]).ok(),
            "{\"reaped\":0}\n"
        );
        on(&fixture, &["outbox", "cleanup", "--older-than", "0s"]).refused("older_than");
    }

    async fn kill(room: &Postroom, count: usize) -> Vec<WorkItemId> {
        let messages = vec![Message::new("order.created", "private"); count];
        room.outbox()
            .enqueue_many(&messages)
            .await
            .expect("enqueue");
        let owner = OwnerToken::new();
        let claimed = room
            .outbox()
            .claim(owner, Duration::from_secs(30), count)
            .await
            .expect("claim");
        let mut ids: Vec<WorkItemId> = claimed.iter().map(|message| message.id).collect();
        ids.sort();
        room.outbox()
            .fail(owner, &ids, "no such street")
            .await
            .expect("fail");
        ids
    }

    testkit::mount!(
        dead_messages_are_listed_replayed_and_purged,
        cleanup_and_reap_say_how_many
    );
}

mod inbox {
    use super::*;

    async fn dead_messages_are_listed_revived_and_purged(fixture: Fixture) {
        let inbox = fixture.room.inbox();
        for (source, id) in [("bank", "p1"), ("bank", "p2"), ("post", "p1")] {
            inbox
                .enqueue(&Inbound::new(source, id, "payment.received", "private"))
                .await
                .expect("enqueue");
        }
        let owner = OwnerToken::new();
        let claimed = inbox
            .claim(owner, Duration::from_secs(30), 3)
            .await
            .expect("claim");
        let ids: Vec<WorkItemId> = claimed
            .iter()
            .filter_map(|message| message.work_item_id)
            .collect();
        inbox
            .fail(owner, &ids, "account closed")
            .await
            .expect("fail");

        let table = on(&fixture, &["inbox", "dead"]).ok();
        assert!(
            table.contains("bank")
                && table.contains("account closed")
                && !table.contains("private"),
            "{table}"
        );
        assert_eq!(
            on(&fixture, &["inbox", "revive", "--source", "bank", "p1"]).ok(),
            "revived 1 message\n"
        );
        on(&fixture, &["inbox", "revive", "p9"]).refused("none of these is a dead message");
        assert_eq!(
            on(&fixture, &["inbox", "purge", "p1"]).ok(),
            "purged 1 message\n",
            "post's p1"
        );
        assert_eq!(
            on(&fixture, &["inbox", "purge", "--older-than", "0s"]).ok(),
            "purged 1 message\n"
        );
        let counts = on(&fixture, &["inbox", "counts", "--json"]).ok();
        assert_eq!(
            counts.trim(),
            r#"{"dead":0,"done":0,"processing":1,"seen":0}"#
        );
        assert_eq!(
            on(&fixture, &["inbox", "cleanup", "--older-than", "30d"]).ok(),
            "forgotten 0 messages\n"
        );
    }

    testkit::mount!(dead_messages_are_listed_revived_and_purged);
}

mod guides {
    use super::*;

    /// The SQL in a guide, in its order.
    fn sql_of(guide: &str) -> Vec<String> {
        let blocks = guide.split("```sql\n").skip(1);
        blocks
            .map(|block| block.split("```").next().unwrap_or_default().to_owned())
            .collect()
    }

    /// The guide speaks of the default schema, so it gets a database of its own. Roles belong to the
    /// whole server, so everything is rolled back.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sql_for_postgres_runs_as_written() {
        let fixture = Fixture::empty(Backend::Postgres).await;
        let database = format!("guide_{}", fixture.schema.as_deref().expect("a schema"));
        fixture.sql(&format!("CREATE DATABASE {database}")).await;
        let server = fixture
            .url
            .strip_suffix("/postgres")
            .expect("the database postgres");
        let url = format!("{server}/{database}");
        postroom(&["schema", "deploy", "--url", &url]).ok();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .expect("connect");
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.expect("begin");
        let blocks = sql_of(include_str!("../../../docs/postgres.md"));
        assert!(blocks.len() >= 7, "{}", blocks.len());
        for block in blocks {
            client
                .batch_execute(&block)
                .await
                .unwrap_or_else(|error| panic!("{error}: {block}"));
        }
        client
            .batch_execute(
                "SET LOCAL ROLE shop_producer; SELECT infra.outbox_enqueue('order.created', '{}')",
            )
            .await
            .expect("a producer enqueues");
        let claim = "SELECT infra.outbox_claim('6e1f9a52-3c1f-4a55-9d0c-1f1a4c6c9d01', interval '1 second', 1)";
        client
            .batch_execute("SAVEPOINT refused")
            .await
            .expect("savepoint");
        client
            .batch_execute(claim)
            .await
            .expect_err("a producer does not claim");
        client
            .batch_execute("ROLLBACK TO refused; SET LOCAL ROLE shop_worker")
            .await
            .expect("set role");
        client.batch_execute(claim).await.expect("a worker claims");
        client
            .batch_execute("SELECT infra.outbox_cleanup(now(), 10), infra.inbox_maintain()")
            .await
            .expect("cleanup");
        client.batch_execute("ROLLBACK").await.expect("rollback");
        drop(client);
        fixture
            .sql(&format!("DROP DATABASE {database} WITH (FORCE)"))
            .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sql_for_sqlite_runs_as_written() {
        let fixture = Fixture::new(Backend::Sqlite).await;
        let connection = fixture.sqlite();
        for block in sql_of(include_str!("../../../docs/sqlite.md")) {
            connection
                .execute_batch(&block)
                .unwrap_or_else(|error| panic!("{error}: {block}"));
        }
        assert_eq!(
            fixture.room.outbox().counts().await.expect("counts").ready,
            1
        );
        let statements = on(&fixture, &["schema", "statements"]).ok();
        for statement in statements
            .split(";\n")
            .filter(|text| !text.trim().is_empty())
        {
            connection
                .prepare(statement)
                .unwrap_or_else(|error| panic!("{error}: {statement}"));
        }
        assert!(statements.contains("-- outbox claim") && statements.contains("-- inbox reap"));
    }
}

mod help {
    use super::*;

    #[test]
    fn teaches_by_example() {
        for arguments in [
            vec!["--help"],
            vec!["demo", "--help"],
            vec!["schema", "--help"],
            vec!["outbox", "--help"],
        ] {
            assert!(
                postroom(&arguments).ok().contains("Examples:"),
                "{arguments:?}"
            );
        }
        let run = postroom(&["outbox", "purge"]);
        assert_eq!(run.code, 2);
        assert!(run.err.contains("--older-than"), "{}", run.err);
        let run = postroom(&["outbox", "purge", "--older-than", "soon"]);
        assert!(
            run.err.contains("such as 90s, 15m, 36h or 7d"),
            "{}",
            run.err
        );
    }
}

mod secrets {
    use super::*;

    const PASSWORD: &str = "s3cr3tw0rd";

    /// Neither success nor failure, neither logs nor usage errors show the password of a URL.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_output_holds_a_password() {
        let fixture = Fixture::empty(Backend::Postgres).await;
        let good = fixture
            .url
            .replace("postroom@", &format!("postroom:{PASSWORD}@"));
        let unreachable = format!("postgres://u:{PASSWORD}@127.0.0.1:1/db");
        let in_query = format!("postgres://127.0.0.1:1/db?password={PASSWORD}");
        let malformed = format!("postgres://u:{PASSWORD}@h:port/db");
        let unknown = format!("oracle://u:{PASSWORD}@h/db");
        let schema = fixture.schema.as_deref().expect("a schema");
        let commands: &[&[&str]] = &[
            &["schema", "verify"],
            &["schema", "deploy"],
            &["schema", "verify"],
            &["schema", "print"],
            &["outbox", "counts"],
            &["outbox", "dead"],
            &["inbox", "counts", "--json"],
            &["outbox", "--help"],
        ];
        for url in [&good, &unreachable, &in_query, &malformed, &unknown] {
            for command in commands {
                let mut arguments = vec!["--log", "trace"];
                arguments.extend(*command);
                arguments.extend(["--schema", schema, "--url", url]);
                silent(&arguments);
            }
            silent(&["--log", "trace", "demo", "--orders", "10", "--url", url]);
            silent(&["outbox", "counts", url]);
            silent(&["outbox", "replay", url]);
            let run = Command::new(env!("CARGO_BIN_EXE_postroom"))
                .args(["outbox", "--help"])
                .env("POSTROOM_URL", url)
                .output()
                .expect("the binary runs");
            assert!(!String::from_utf8_lossy(&run.stdout).contains(PASSWORD));
        }
        assert_eq!(
            postroom(&["outbox", "counts", "--url", &good, "--schema", schema]).code,
            0
        );
    }

    fn silent(arguments: &[&str]) {
        let run = postroom(arguments);
        assert!(
            !run.out.contains(PASSWORD) && !run.err.contains(PASSWORD),
            "{}{}",
            run.out,
            run.err
        );
    }
}
