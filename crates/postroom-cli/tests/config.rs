//! `postroom config`, and what the daemon refuses to start with.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

mod daemon;

/// A folder with a configuration in it.
struct Folder(TempDir);

/// What a run of the binary left.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Folder {
    fn with(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("postroom.toml"), config).expect("a file");
        Self(folder)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.0.path().join(name), text).expect("a file");
        self
    }

    fn check(&self, variables: &[(&str, &str)]) -> Run {
        run(self.0.path(), &["config", "check"], variables)
    }
}

fn run(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_postroom"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("POSTROOM_CONFIG")
        .env_remove("POSTROOM_URL")
        .env_remove("RUST_LOG")
        .envs(variables.iter().copied())
        .output()
        .expect("the binary runs");
    Run {
        code: output.status.code().expect("an exit code"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

impl Run {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn refused(self, reasons: &[&str]) -> String {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        for reason in reasons {
            assert!(
                self.err.contains(reason),
                "expected {reason:?} in {}",
                self.err
            );
        }
        self.err
    }
}

/// One configuration that is refused, and what is said of it.
#[track_caller]
fn refused(config: &str, reasons: &[&str]) -> String {
    Folder::with(config).check(&[]).refused(reasons)
}

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What the example and the guides ask of their environment.
const VARIABLES: &[(&str, &str)] = &[
    ("POSTROOM_ADMIN_TOKEN", "canary-admin"),
    ("POSTROOM_MONITORING_TOKEN", "canary-monitoring"),
    (
        "POSTROOM_DATABASE_URL",
        "postgres://app:canary-password@db.example/shop",
    ),
    ("ORDERS_SIGNING_SECRET", SIGNING),
    ("ORDERS_AUTHORIZATION", "Bearer canary-authorization"),
    ("STRIPE_SECRET", "canary-stripe"),
    ("STRIPE_OLD_SECRET", "canary-stripe-old"),
    ("ALARM_ADDRESS", "https://alarm.example/canary"),
];

mod example {
    use super::*;

    #[test]
    fn is_accepted_with_its_variables_and_shows_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let example = run(folder.path(), &["config", "example"], &[]).ok();
        let folder = Folder::with(&example);
        folder.file("parcels.secret", "canary-parcels\n");
        let out = folder.check(VARIABLES).ok();
        for part in [
            "postroom.toml is right",
            "listen on 127.0.0.1:8025",
            "main",
            "postgres://db.example/shop",
            "archive",
            "billing",
            "stores.toml, every 5m",
            "order.created",
            "https://shop.example/…",
            "the command print-invoice",
            "standard output",
            "/hooks/stripe",
            "monitoring",
            "viewer",
            "outbox_cleanup",
            "7d",
        ] {
            assert!(out.contains(part), "expected {part:?} in {out}");
        }
        let json = run(folder.0.path(), &["config", "check", "--json"], VARIABLES).ok();
        let plan: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(plan["valid"], true);
        assert_eq!(plan["targets"][0]["topic"], "order.created");
        assert_eq!(plan["tokens"][1]["role"], "viewer");
        for secret in ["canary", SIGNING] {
            assert!(!out.contains(secret) && !json.contains(secret));
        }
    }

    #[test]
    fn reports_every_variable_that_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let example = run(folder.path(), &["config", "example"], &[]).ok();
        let err = Folder::with(&example)
            .check(&[("STRIPE_SECRET", "  ")])
            .refused(&[
                "has 8 problems",
                "`store[0].url`",
                "the file parcels.secret cannot be read",
                "the variable STRIPE_SECRET is empty",
            ]);
        for (name, _) in VARIABLES
            .iter()
            .filter(|(name, _)| !["STRIPE_SECRET", "ALARM_ADDRESS"].contains(name))
        {
            assert!(
                err.contains(&format!("the variable {name} is not set")),
                "{err}"
            );
        }
    }
}

mod guides {
    use super::*;

    const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
    const TARGETS: &str = include_str!("../../../docs/targets.md");

    #[test]
    fn show_only_what_is_accepted() {
        let mut count = 0;
        for guide in [CONFIGURATION, TARGETS] {
            for block in guide.split("```toml\n").skip(1) {
                let (config, _) = block.split_once("```").expect("an end");
                Folder::with(config).check(VARIABLES).ok();
                count += 1;
            }
        }
        assert!(count >= 8, "{count} examples");
    }

    #[test]
    fn explain_every_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let example = run(folder.path(), &["config", "example"], &[]).ok();
        let keys = example.lines().filter_map(|line| {
            let (name, _) = line.trim_start_matches("# ").split_once(" = ")?;
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
                .then_some(name)
        });
        let missing: Vec<&str> = keys
            .filter(|key| !CONFIGURATION.contains(&format!("`{key}`")))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

mod check {
    use super::*;

    #[test]
    fn no_file_is_a_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = run(folder.path(), &["config", "check"], &[]).ok();
        assert!(out.contains("There is no postroom.toml, and none is needed"));
        assert!(out.contains("sqlite:postroom.db"));
        run(folder.path(), &["config", "check", "other.toml"], &[])
            .refused(&["other.toml cannot be read"]);
    }

    #[test]
    fn json_lists_problems_with_key_and_line() {
        let folder = Folder::with("[server]\nbind = \"nowhere\"\nbodylimit = 3\n");
        let checked = run(folder.0.path(), &["config", "check", "--json"], &[]);
        assert_eq!(checked.code, 1);
        let answer: serde_json::Value = serde_json::from_str(&checked.out).expect("JSON");
        assert_eq!(answer["valid"], false);
        assert_eq!(answer["problems"][0]["key"], "server.bind");
        assert_eq!(answer["problems"][0]["line"], 2);
        assert_eq!(answer["problems"][1]["key"], "server.bodylimit");
        assert_eq!(answer["problems"][1]["line"], 3);
    }

    #[test]
    fn help_has_examples() {
        let folder = tempfile::tempdir().expect("a folder");
        for arguments in [
            ["config", "--help"].as_slice(),
            &["config", "check", "--help"],
            &["config", "example", "--help"],
        ] {
            let out = run(folder.path(), arguments, &[]).ok();
            assert!(out.contains("Examples:\n  postroom config"), "{out}");
        }
    }

    /// Shows X7.
    #[test]
    fn an_address_that_others_can_reach_needs_tokens() {
        refused(
            "[server]\nbind = \"0.0.0.0:8025\"\n",
            &[
                "0.0.0.0:8025 can be reached from other machines",
                "[[auth.token]]",
            ],
        );
        let with = "[server]\nbind = \"[::]:80\"\n[[auth.token]]\nname = \"a\"\nrole = \"viewer\"\nsecret = { env = \"T\" }\n";
        Folder::with(with).check(&[("T", "secret")]).ok();
    }
}

mod keys {
    use super::*;

    #[test]
    fn the_nearest_right_key_is_named() {
        refused(
            "\n\n[servr]\nbind = \"127.0.0.1:1\"\n",
            &["unknown key `servr` in line 3; did you mean `server`?"],
        );
        refused(
            "[server]\nbnd = \"127.0.0.1:1\"\n",
            &["unknown key `server.bnd` in line 2; did you mean `server.bind`?"],
        );
        refused(
            "[[target]]\ntopics = [\"a\"]\nstdout = true\n[[target]]\ntopics = [\"b\"]\n[target.http]\nurl = \"https://a.example\"\ntimeuot = \"1s\"\n",
            &[
                "unknown key `target[1].http.timeuot` in line 8; did you mean `target[1].http.timeout`?",
            ],
        );
        refused(
            "[jobs.reaping]\nxyzzy = 1\n",
            &["unknown key `jobs.reaping.xyzzy` in line 2; expected one of enabled, cron, keep"],
        );
        refused(
            "[auth]\ntoken = [{ name = \"a\", roll = \"viewer\" }]\n",
            &[
                "unknown key `auth.token[0].roll` in line 2; did you mean `auth.token[0].role`?",
                "`auth.token[0].role` in line 2: is missing",
                "`auth.token[0].secret` in line 2: is missing",
            ],
        );
    }

    #[test]
    fn the_wrong_kind_of_table_is_told() {
        refused(
            "[store]\nname = \"a\"\n",
            &["`store` in line 1: expected [[store]], with two brackets"],
        );
        refused(
            "server = 3\n",
            &["`server` in line 1: expected a table, [server]"],
        );
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_in_order() {
        let err = refused(
            "[dispatch]\nlease = \"0s\"\nbatch = -1\n[servr]\n[retry]\nattempts = \"ten\"\n",
            &["postroom.toml has 4 problems"],
        );
        let places: Vec<usize> = [
            "dispatch.lease",
            "dispatch.batch",
            "servr",
            "retry.attempts",
        ]
        .iter()
        .map(|key| err.find(key).expect("a problem"))
        .collect();
        assert!(places.is_sorted(), "{err}");
    }

    #[test]
    fn what_is_not_toml_is_told_without_the_line_itself() {
        let err = refused(
            "[[auth.token]]\nname = \"a\"\nsecret = \"canary-secret\nrole = \"viewer\"\n",
            &["line 3 is not TOML"],
        );
        assert!(!err.contains("canary"), "{err}");
    }

    #[tokio::test]
    async fn the_daemon_says_the_same() {
        let err = daemon::Daemon::new("[servr]\n").refused().await;
        assert!(
            err.contains("unknown key `servr` in line 1; did you mean `server`?"),
            "{err}"
        );
    }
}

mod values {
    use super::*;

    #[test]
    fn that_are_wrong_are_refused_with_key_and_advice() {
        for (config, says) in [
            (
                "[server]\nbind = \"127.0.0.1:70000\"",
                "`server.bind` in line 2: expected an IP address and a port",
            ),
            (
                "[server]\nbind = \"localhost:80\"",
                "expected an IP address and a port",
            ),
            (
                "[server]\nconnections = 0",
                "expected a whole number from 1 to",
            ),
            (
                "[server]\nbody_limit = -5",
                "expected a whole number from 1 to",
            ),
            ("[server]\nbody_limit = 1.5", "expected a whole number"),
            ("[server]\nread_timeout = 10", "expected a time in quotes"),
            (
                "[server]\nread_timeout = \"0s\"",
                "must be longer than zero",
            ),
            (
                "[server]\nread_timeout = \"10 s\"",
                "expected a number and a unit (ms, s, m, h or d)",
            ),
            (
                "[discovery]\nfile = \"a\"\nevery = \"5 minutes\"",
                "`discovery.every` in line 3",
            ),
            (
                "[dispatch]\nenabled = \"yes\"",
                "expected true or false, without quotes",
            ),
            (
                "[dispatch]\nmax_deliveries = 0",
                "expected a whole number from 1 to",
            ),
            ("[retry]\npolicy = \"backof\"", "did you mean `backoff`?"),
            ("[retry]\nattempts = 0", "`retry.attempts`"),
            (
                "[retry]\nfirst_delay = \"1s\"",
                "means nothing to the policy backoff",
            ),
            (
                "[retry]\npolicy = \"honeydrunk\"\ninfrastructure = \"1h\"",
                "means nothing to the policy honeydrunk",
            ),
            (
                "[jobs.outbox_cleanup]\ncron = \"every day\"",
                "`jobs.outbox_cleanup.cron` in line 2: `every day` is no schedule",
            ),
            (
                "[jobs.reaping]\ncron = \"0 0 30 2 *\"",
                "is no schedule that ever comes true",
            ),
            (
                "[jobs.inbox_cleanup]\nkeep = \"0d\"",
                "`jobs.inbox_cleanup.keep` in line 2: must be longer than zero",
            ),
            ("[jobs.reaping]\nkeep = \"1d\"", "reaping deletes nothing"),
            (
                &format!(
                    "[[webhook]]\nsource = \"{}\"\nscheme = \"github\"\nsecrets = [{{ env = \"PATH\" }}]",
                    "x".repeat(65)
                ),
                "`webhook[0].source` in line 2: has 65 characters, at most 64 are allowed",
            ),
            (
                "[dispatch]\nlease = \"367d\"",
                "`dispatch.lease` in line 2: is too long; at most 366d",
            ),
            (
                "[jobs.outbox_cleanup]\nkeep = \"36501d\"",
                "`jobs.outbox_cleanup.keep` in line 2: is too long; at most 36500d",
            ),
            (
                "[[store]]\nname = \"\"\nurl = \"sqlite:a.db\"",
                "`store[0].name` in line 2: must not be empty",
            ),
            (
                "[[store]]\nname = \"a\"\nurl = \"oracle://h/d\"",
                "expected sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or \
                 sqlserver://USER@HOST/DATABASE",
            ),
            (
                "[[store]]\nname = \"a\"",
                "`store[0].url` in line 1: is missing",
            ),
            (
                "[[store]]\nname = \"a\"\nurl = \"sqlite:a.db\"\nschema = \"a-b; DROP\"",
                "expected a letter or an underscore",
            ),
            (
                "[[webhook]]\nsource = \"a/b\"\nscheme = \"stripe\"\nsecrets = []",
                "is a part of an address",
            ),
            (
                "[[webhook]]\nsource = \"a\"\nscheme = \"stripe\"\nsecrets = []",
                "`webhook[0].secrets` in line 4: is empty",
            ),
            (
                "[[webhook]]\nsource = \"a\"\nscheme = \"paypal\"\nsecrets = []",
                "expected one of stripe, github, standard, hmac",
            ),
            (
                "[[auth.token]]\nname = \"a\"\nrole = \"root\"\nsecret = { env = \"PATH\" }",
                "expected one of viewer, operator, admin",
            ),
            (
                "[[target]]\ntopics = []\nstdout = true",
                "`target[0].topics` in line 2: is empty",
            ),
            (
                "[[target]]\ntopics = \"a\"\nstdout = true",
                "expected an array, in brackets",
            ),
            (
                "[[target]]\ntopics = [\"a\"]\n[target.command]\nargv = []",
                "`target[0].command.argv` in line 4: is empty",
            ),
            (
                "[[target]]\ntopics = [\"a\"]\n[target.command]\nargv = \"rm -rf x\"",
                "expected an array, in brackets",
            ),
        ] {
            refused(config, &[says]);
        }
    }

    #[test]
    fn of_every_unit_are_understood() {
        Folder::with(
            "[dispatch]\npoll_interval = \"500ms\"\nlease = \"30s\"\n[retry]\ninfrastructure = \"24h\"\n[discovery]\nfile = \"s\"\nevery = \"5m\"\n[jobs.outbox_cleanup]\nkeep = \"7d\"\ncron = \"0 30 3 ? * SUN\"\n",
        )
        .check(&[])
        .ok();
    }
}

mod secrets {
    use super::*;

    #[test]
    fn do_not_belong_into_the_file() {
        for config in [
            "[[auth.token]]\nname = \"a\"\nrole = \"viewer\"\nsecret = \"canary\"",
            "[[webhook]]\nsource = \"a\"\nscheme = \"stripe\"\nsecrets = [\"canary\"]",
            "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nsecrets = [\"whsec_canary\"]",
            "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nheaders = { Authorization = \"canary\" }",
            "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nheaders = { X-Api-Key = \"canary\" }",
            "[[store]]\nname = \"a\"\nurl = \"postgres://u:canary@h/d\"",
            "[[store]]\nname = \"a\"\nurl = \"postgres://h/d?password=canary\"",
        ] {
            let err = refused(
                config,
                &["does not belong into this file", "{ env = \"NAME\" }"],
            );
            assert!(!err.contains("canary"), "{err}");
        }
    }

    #[test]
    fn have_one_place_each() {
        for place in [
            "{ env = \"\" }",
            "{ env = \"A\", file = \"b\" }",
            "{ vault = \"x\" }",
            "{}",
            "7",
        ] {
            let config =
                format!("[[auth.token]]\nname = \"a\"\nrole = \"viewer\"\nsecret = {place}");
            refused(
                &config,
                &["`auth.token[0].secret` in line 4: expected { env = \"NAME\" } or { file"],
            );
        }
    }

    #[test]
    fn of_standard_webhooks_are_base64() {
        let config = "[[webhook]]\nsource = \"a\"\nscheme = \"standard\"\nsecrets = [{ env = \"GOOD\" }, { env = \"KEY\" }]";
        let err = Folder::with(config)
            .check(&[("GOOD", SIGNING), ("KEY", "whsec_canary!")])
            .refused(&["`webhook[0].secrets[1]` in line 4: a secret of Standard Webhooks is"]);
        assert!(!err.contains("canary"), "{err}");
    }

    #[test]
    fn that_are_wrong_are_not_quoted() {
        let config = "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nsecrets = [{ env = \"KEY\" }]\n[[store]]\nname = \"a\"\nurl = { env = \"KEY\" }";
        let err = Folder::with(config)
            .check(&[("KEY", "canary-key")])
            .refused(&[
                "`target[0].http.secrets[0]` in line 5: the secret is not whsec_",
                "`store[0].url`",
            ]);
        assert!(!err.contains("canary"), "{err}");
    }

    #[test]
    fn of_tokens_fit_into_a_header() {
        let config = "[[auth.token]]\nname = \"a\"\nrole = \"viewer\"\nsecret = { env = \"T\" }\n";
        let folder = Folder::with(config);
        folder.check(&[("T", "token\n")]).ok();
        for wrong in ["to ken", "töken"] {
            let err = folder
                .check(&[("T", wrong)])
                .refused(&["`auth.token[0].secret` in line 4: must be letters"]);
            assert!(!err.contains(wrong), "{err}");
        }
    }

    #[test]
    fn of_two_tokens_are_two() {
        let config = "[[auth.token]]\nname = \"a\"\nrole = \"viewer\"\nsecret = { env = \"ONE\" }\n[[auth.token]]\nname = \"b\"\nrole = \"admin\"\nsecret = { env = \"TWO\" }";
        let folder = Folder::with(config);
        folder.check(&[("ONE", "x1"), ("TWO", "x2")]).ok();
        folder
            .check(&[("ONE", "canary"), ("TWO", "canary")])
            .refused(&["`auth.token[1].secret` in line 8: is the same as that of auth.token[0]"]);
    }

    #[test]
    fn may_be_in_a_file_with_a_newline() {
        let config = "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nsecrets = [{ file = \"key\" }]";
        let folder = Folder::with(config);
        folder
            .file("key", &format!("{SIGNING}\r\n"))
            .check(&[])
            .ok();
        folder
            .file("key", "\n")
            .check(&[])
            .refused(&["the file key is empty"]);
    }
}

mod rules {
    use super::*;

    const STORE: &str = "[[store]]\nname = \"a\"\nurl = \"sqlite:a.db\"\n";

    #[test]
    fn names_are_used_once() {
        refused(
            &STORE.repeat(2),
            &["`store[1].name` in line 5: `a` is the name of store[0] already"],
        );
        refused(
            &format!("{STORE}[[module]]\nname = \"a\"\nschema = \"m\"\n"),
            &["`module[0].name` in line 5: `a` is the name of store[0] already"],
        );
        let hook =
            "[[webhook]]\nsource = \"s\"\nscheme = \"github\"\nsecrets = [{ env = \"PATH\" }]\n";
        refused(
            &hook.repeat(2),
            &["`webhook[1].source` in line 6: `s` is the name of webhook[0] already"],
        );
        let token =
            "[[auth.token]]\nname = \"t\"\nrole = \"viewer\"\nsecret = { env = \"PATH\" }\n";
        refused(
            &token.repeat(2),
            &["`auth.token[1].name` in line 6: `t` is the name of auth.token[0] already"],
        );
    }

    #[test]
    fn two_stores_have_tables_of_their_own() {
        let other = "[[store]]\nname = \"b\"\nurl = { env = \"DATABASE\" }\n";
        let same = Folder::with(&format!("{STORE}{other}"));
        same.check(&[("DATABASE", "sqlite:a.db")])
            .refused(&["`store[1].url` in line 6: store[0] has the same tables"]);
        same.check(&[("DATABASE", "sqlite:b.db")]).ok();
        same.check(&[("DATABASE", "sqlite://./a.db")])
            .refused(&["`store[1].url` in line 6: store[0] has the same tables"]);
        let module = |name: &str, schema: &str| {
            format!("[[module]]\nname = \"{name}\"\nschema = \"{schema}\"\n")
        };
        refused(
            &format!(
                "{STORE}{}{}",
                module("m", "billing"),
                module("n", "Billing")
            ),
            &["`module[1].schema` in line 9: module[0] has the same tables"],
        );
        refused(
            &format!("{STORE}schema = \"billing\"\n{}", module("m", "billing")),
            &["`module[0].schema` in line 7: store[0] has the same tables"],
        );
        refused(
            &format!("{}{}", module("m", "a"), module("n", "a")),
            &["`module[1].schema` in line 6: module[0] has the same tables"],
        );
        Folder::with(&format!("{STORE}{other}schema = \"other\"\n"))
            .check(&[("DATABASE", "sqlite:a.db")])
            .ok();
    }

    #[test]
    fn what_a_database_would_refuse_is_told_before() {
        for (url, schema, key) in [
            ("sqlite:a.db?mode=ro", None, "url"),
            ("postgres://h/d?sslmode=bogus", None, "url"),
            ("postgres://h:99999/d", None, "url"),
            ("mysql://u@h/", None, "url"),
            ("mysql://u@h/d?bogus=1", None, "url"),
            ("mysql://u@h/d?sslmode=bogus", None, "url"),
            ("sqlite:a.db", Some("sqlite_x"), "schema"),
            ("sqlite:a.db", Some("sqlite"), "schema"),
            ("postgres://h/d", Some("pg_x"), "schema"),
        ] {
            let schema = schema.map_or_else(String::new, |name| format!("schema = \"{name}\"\n"));
            refused(
                &format!("[[store]]\nname = \"a\"\nurl = \"{url}\"\n{schema}"),
                &[&format!("`store[0].{key}` in line")],
            );
        }
    }

    #[test]
    fn a_target_goes_to_one_place() {
        refused(
            "[[target]]\ntopics = [\"a\"]\n",
            &["`target[0]` in line 1: has none of http, command, stdout"],
        );
        refused(
            "[[target]]\ntopics = [\"a\"]\nstdout = false\n",
            &["has none of"],
        );
        refused(
            "[[target]]\ntopics = [\"a\"]\nstdout = true\n[target.command]\nargv = [\"true\"]\n",
            &["has command and stdout; keep one of them"],
        );
    }

    #[test]
    fn a_topic_has_one_target_in_a_queue() {
        let target = |queue: &str, topic: &str| {
            format!("[[target]]\ntopics = [\"{topic}\"]\nqueue = \"{queue}\"\nstdout = true\n")
        };
        refused(
            &(target("outbox", "a") + &target("outbox", "a")),
            &["`target[1].topics` in line 6: `a` of the outbox goes to target[0] already"],
        );
        refused(
            &(target("inbox", "*") + &target("inbox", "*")),
            &["`*` of the inbox goes to target[0] already"],
        );
        refused(
            "[[target]]\ntopics = [\"a\", \"a\"]\nstdout = true\n",
            &["names `a` twice"],
        );
        Folder::with(&(target("inbox", "a") + &target("outbox", "a") + &target("outbox", "*")))
            .check(&[])
            .ok();
    }

    #[test]
    fn stores_that_are_named_are_there() {
        let hook = "[[webhook]]\nsource = \"s\"\nscheme = \"github\"\nsecrets = [{ env = \"PATH\" }]\nstore = \"b\"\n";
        refused(
            &format!("{STORE}{hook}"),
            &["`webhook[0].store` in line 8: there is no store `b`, only `a`; add it as [[store]]"],
        );
        refused(
            hook,
            &["there is no store `b`, only `main`; add it as [[store]]"],
        );
        Folder::with(&hook.replace("\"b\"", "\"main\""))
            .check(&[])
            .ok();
        refused(
            &format!("{STORE}[[module]]\nname = \"m\"\nstore = \"b\"\nschema = \"m\"\n"),
            &["`module[0].store` in line 6: there is no store `b`"],
        );
        // It may be found later.
        Folder::with(&format!("{STORE}{hook}[discovery]\nfile = \"f\"\n"))
            .check(&[])
            .ok();
    }

    #[test]
    fn hmac_needs_a_header_and_the_others_have_theirs() {
        let hook = |scheme: &str| {
            format!(
                "[[webhook]]\nsource = \"s\"\nscheme = \"{scheme}\"\nsecrets = [{{ env = \"PATH\" }}]\n"
            )
        };
        refused(
            &hook("hmac"),
            &["`webhook[0].header` in line 1: is missing; the scheme hmac needs"],
        );
        refused(
            &(hook("stripe") + "header = \"x-a\"\n"),
            &["the scheme stripe has a header of its own"],
        );
        refused(
            &(hook("hmac") + "header = \"x a\"\n"),
            &["expected the name of an HTTP header"],
        );
    }

    #[test]
    fn discovery_is_by_file_or_by_query() {
        refused(
            "[discovery]\n",
            &["`discovery` in line 1: has none of file, query"],
        );
        refused(
            "[discovery]\nfile = \"a\"\nquery = \"b\"\n",
            &["has file and query; keep one of them"],
        );
    }

    /// Shows X11.
    #[test]
    fn an_endpoint_that_is_private_or_plain_is_refused() {
        for (url, more, says) in [
            ("http://shop.example/", "", "allow_http"),
            ("https://127.0.0.1/", "", "allow_private"),
            ("https://2130706433/", "", "allow_private"),
            ("https://0177.0.0.1/", "", "allow_private"),
            ("https://[::ffff:10.0.0.1]/", "", "allow_private"),
            ("https://169.254.169.254/latest/", "", "allow_private"),
            ("http://127.0.0.1/", "allow_http = true", "allow_private"),
            ("https://u:canary@shop.example/", "", "password"),
            ("ftp://shop.example/", "", "expected https://"),
        ] {
            let config =
                format!("[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"{url}\"\n{more}\n");
            let err = refused(&config, &["`target[0].http.url` in line 4", says]);
            assert!(!err.contains("canary"), "{err}");
        }
        let config = "[[target]]\ntopics = [\"a\"]\n[target.http]\nurl = \"https://a.example\"\nheaders = { webhook-id = \"x\", Host = \"y\" }\n";
        refused(
            config,
            &[
                "`target[0].http.headers.Host`",
                "`target[0].http.headers.webhook-id`",
                "remove it",
            ],
        );
    }
}

mod discovery {
    use super::*;
    use daemon::Daemon;
    use testkit::{Fixture, eventually};

    /// The stores that the daemon had found when it started.
    fn stores(daemon: &Daemon) -> Vec<String> {
        let out = daemon.stdout();
        let names = out
            .lines()
            .filter_map(|line| line.trim().strip_prefix("store "));
        names.map(|name| name.trim().to_owned()).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_is_read_again_and_an_error_keeps_the_old_list() {
        let start = Daemon::new("[discovery]\nfile = \"stores.toml\"\nevery = \"50ms\"\n")
            .argument("--log")
            .argument("postroom=info");
        let file = start.folder().join("stores.toml");
        let write = |text: &str| std::fs::write(&file, text).expect("a file");
        write("[[store]]\nname = \"one\"\nurl = \"sqlite:one.db\"\n");
        let daemon = start.start().await;
        assert_eq!(stores(&daemon), ["main", "one"]);
        let says = |text: &'static str| {
            let daemon = &daemon;
            eventually(move || async move { daemon.stderr().contains(text).then_some(()) })
        };

        write("[[stor]]\n");
        says("unknown key `stor` in line 1").await;
        assert!(!daemon.stderr().contains("has left the fleet"));

        write("[[store]]\nname = \"two\"\nurl = \"sqlite:two.db\"\n");
        says("has left the fleet").await;
        // It is told before the newcomer is opened.
        let opened = daemon.folder().join("two.db");
        eventually(|| async { opened.exists().then_some(()) }).await;
    }

    /// A query on the fixture's own table of tenants.
    fn config(query: &str, fixture: &Fixture) -> String {
        let query = query.replace("{tenants}", &fixture.table("tenants"));
        format!("[discovery]\nquery = '''{query}'''\nevery = \"1h\"\n")
    }

    async fn a_query_finds_stores(fixture: Fixture) {
        let folder = tempfile::tempdir().expect("a folder");
        let found = folder.path().join("found.db");
        let tenants = fixture.table("tenants");
        fixture
            .sql_as_is(&format!("CREATE TABLE {tenants} (tenant TEXT, place TEXT)"))
            .await;
        fixture
            .sql_as_is(&format!(
                "INSERT INTO {tenants} VALUES ('acme', 'sqlite:{}')",
                found.display()
            ))
            .await;
        let schema = match fixture.backend {
            testkit::Backend::MySql => "`schema`",
            _ => "schema",
        };
        let query =
            format!("SELECT tenant AS name, place AS url, NULL AS {schema} FROM {{tenants}}");
        let daemon = Daemon::on(&fixture, &config(&query, &fixture))
            .start()
            .await;
        assert_eq!(stores(&daemon), ["main", "acme"]);
        assert!(found.exists());
    }

    async fn a_query_cannot_write(fixture: Fixture) {
        let tenants = fixture.table("tenants");
        fixture
            .sql_as_is(&format!("CREATE TABLE {tenants} (name TEXT, url TEXT)"))
            .await;
        let query = "INSERT INTO {tenants} VALUES ('a', 'sqlite:a.db') RETURNING name, url";
        let daemon = Daemon::on(&fixture, &config(query, &fixture))
            .argument("--log")
            .argument("postroom=info")
            .start()
            .await;
        assert_eq!(stores(&daemon), ["main"]);
        eventually(|| async {
            let refused = daemon.stderr().contains("could not be discovered");
            refused.then_some(())
        })
        .await;
        let rows = format!("SELECT count(*) FROM {tenants}");
        assert_eq!(fixture.number(&rows).await, 0);
    }

    testkit::mount!(
        sqlite: a_query_finds_stores, a_query_cannot_write;
        postgres: a_query_finds_stores, a_query_cannot_write;
        mysql: a_query_finds_stores, a_query_cannot_write
    );
}
