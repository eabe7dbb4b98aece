//! The real binary, run as a user would run it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::Fixture;

/// What a run of the binary left.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The binary, with nothing of this machine's environment that would change what it does.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postroom"));
    command
        .args(arguments)
        .env_remove("POSTROOM_URL")
        .env_remove("POSTROOM_CONFIG")
        .env_remove("RUST_LOG")
        .env("USER", "ann")
        .stdin(Stdio::null());
    command
}

/// Runs a command that reads nothing.
pub(crate) fn postroom(arguments: &[&str]) -> Run {
    finish(&mut command(arguments))
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Run {
    Run::of(command.output().expect("the binary runs"))
}

/// Runs a command on a fixture's store.
pub(crate) fn on(fixture: &Fixture, arguments: &[&str]) -> Run {
    postroom(&at(fixture, arguments))
}

/// Runs a command on a fixture's store that reads this text.
pub(crate) fn feed(fixture: &Fixture, arguments: &[&str], stdin: &str) -> Run {
    fed(&mut command(&at(fixture, arguments)), stdin)
}

/// Runs a command that reads this text.
pub(crate) fn fed(command: &mut Command, stdin: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut input = child.stdin.take().expect("stdin");
    // A command that has seen enough closes its end.
    let _ = input.write_all(stdin.as_bytes());
    drop(input);
    Run::of(child.wait_with_output().expect("an end"))
}

/// The arguments with those that name a fixture's store.
pub(crate) fn at<'a>(fixture: &'a Fixture, arguments: &[&'a str]) -> Vec<&'a str> {
    let mut all = arguments.to_vec();
    all.extend(["--url", &fixture.url]);
    if let Some(schema) = &fixture.schema {
        all.extend(["--schema", schema]);
    }
    all
}

impl Run {
    fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().expect("an exit code"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    /// The one JSON document of a run that went well.
    pub(crate) fn json(self) -> Value {
        let out = self.ok();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    pub(crate) fn refused(self, reason: &str) {
        assert_eq!(self.code, 1, "{}{}", self.out, self.err);
        assert!(
            self.err.contains(reason),
            "expected {reason:?} in {:?}",
            self.err
        );
    }

    /// Clap did not understand it.
    pub(crate) fn misused(self, reason: &str) {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
        assert!(
            self.err.contains(reason),
            "expected {reason:?} in {:?}",
            self.err
        );
    }
}
