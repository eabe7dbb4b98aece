//! The demo, the schema, the guides, and what no command may show.

mod binary;

use binary::{finish, on, postroom};
use testkit::{Backend, Fixture};

mod demo {
    use super::*;

    #[test]
    fn on_sqlite_needs_nothing_and_adds_up() {
        let out = postroom(&["demo"]).ok();
        assert!(out.contains("All 12 checks passed"), "{out}");
        assert!(out.contains("80 orders and 80 messages"), "{out}");
        assert!(
            out.contains(
                "185 sent, 184 handled, 60 duplicates refused, 1 dead, 0 waiting, 0 lost."
            ),
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
        assert!(out.contains("All 12 checks passed"), "{out}");
        let left = fixture
            .number("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'demo\\_%'")
            .await;
        assert_eq!(left, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_mysql_adds_up_and_leaves_nothing() {
        let fixture = Fixture::empty(Backend::MySql).await;
        let out = postroom(&["demo", "--url", &fixture.url, "--orders", "20"]).ok();
        assert!(out.contains("All 12 checks passed"), "{out}");
        let left = fixture
            .number(
                "SELECT count(*) FROM information_schema.tables WHERE table_schema = database()",
            )
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
            .find_map(|line| line.trim().strip_prefix("postroom stats "))
            .expect("a hint");
        let mut arguments = vec!["stats", "--json"];
        arguments.extend(hint.split(' '));
        let stats = postroom(&arguments).json();
        assert_eq!(
            (&stats["outbox"]["done"], &stats["outbox"]["ready"]),
            (&32.into(), &0.into())
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
        fixture.sql_as_is(&script).await;
        assert!(
            on(&fixture, &["schema", "verify"])
                .ok()
                .contains("complete")
        );
        on(&fixture, &["schema", "deploy"]).ok();
    }

    async fn verify_on_an_empty_database_says_what_to_do(fixture: Fixture) {
        on(&fixture, &["schema", "verify"]).refused("run `deploy()` or `postroom schema deploy`");
        on(&fixture, &["stats"]).refused("postroom schema deploy");
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
            &["stats"],
            &["list", "--json"],
            &["dead", "list"],
            &["inbox", "list", "--json"],
            &["doctor"],
            &["bench", "--messages", "100"],
            &["cleanup", "--older-than", "1d"],
            &["stats", "--help"],
        ];
        for url in [&good, &unreachable, &in_query, &malformed, &unknown] {
            for command in commands {
                let mut arguments = vec!["--log", "trace"];
                arguments.extend(*command);
                arguments.extend(["--schema", schema, "--url", url]);
                silent(&arguments);
            }
            silent(&["--log", "trace", "demo", "--orders", "10", "--url", url]);
            silent(&["stats", url]);
            silent(&["dead", "replay", url]);
            for command in [&["stats", "--help"][..], &["doctor"], &["stats"]] {
                let run = finish(binary::command(command).env("POSTROOM_URL", url));
                assert!(!run.out.contains(PASSWORD) && !run.err.contains(PASSWORD));
            }
        }
        assert_eq!(
            postroom(&["stats", "--url", &good, "--schema", schema]).code,
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
