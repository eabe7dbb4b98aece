//! Runs `cargo test` against a private server, shows its output, and keeps what it said of each test.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::servers::Database;

/// What a run said: per target and test, whether it passed.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) tests: BTreeMap<(String, String), bool>,
    /// The databases that were there, beside SQLite.
    pub(crate) databases: Vec<Database>,
    succeeded: bool,
}

/// Runs `cargo test` with these arguments.
pub(crate) fn tests(selection: &[&str], rest: &[String]) -> Result<Results> {
    let mut command = Command::new(cargo());
    command
        .arg("test")
        .args(selection)
        .arg("--no-fail-fast")
        .args(rest.iter().take_while(|word| *word != "--"));
    let mut filters: Vec<String> = rest
        .iter()
        .skip_while(|word| *word != "--")
        .skip(1)
        .cloned()
        .collect();
    let mut results = Results::default();
    let mut running = Vec::new();
    for database in Database::ALL {
        match database.start()? {
            Some((server, variable, url)) => {
                command.env(variable, url);
                running.push(server);
                results.databases.push(database);
            }
            None if database.can_be_installed()
                && std::env::var("CI").is_ok_and(|value| value == "true") =>
            {
                bail!(
                    "{} is not here and could not be installed: with CI=true its tests must run",
                    database.name()
                )
            }
            None => {
                eprintln!("\n{} is not here: its tests are NOT RUN\n", database.name());
                filters.extend(["--skip", database.word()].map(str::to_owned));
            }
        }
    }
    if !filters.is_empty() {
        command.arg("--").args(filters);
    }
    results.succeeded = follow(command, &mut results.tests)?;
    Ok(results)
}

/// Cargo says on standard error which target comes, and the target says on standard output how its
/// tests went. Both go through one pipe, in order.
fn follow(command: Command, tests: &mut BTreeMap<(String, String), bool>) -> Result<bool> {
    let (reader, writer) = std::io::pipe()?;
    let mut command = command;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .context("cargo test")?;
    // The command holds the other end of the pipe: without this the loop below would never end.
    drop(command);
    let mut target = String::new();
    for line in BufReader::new(reader).lines() {
        let line = line?;
        println!("{line}");
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            target = target_name(running);
        } else if line.trim_start().starts_with("Doc-tests ") {
            target = "doc".to_owned();
        } else if let Some((name, passed)) = outcome(&line) {
            tests.insert((target.clone(), name), passed);
        }
    }
    Ok(child.wait()?.success())
}

/// `tests/conformance/main.rs (target/debug/deps/conformance-25f1)` is `conformance`.
fn target_name(running: &str) -> String {
    let binary = running.rsplit(['/', '\\']).next().unwrap_or(running);
    binary
        .rsplit_once('-')
        .map_or(binary, |(name, _)| name)
        .to_owned()
}

/// `test a::b ... ok`
fn outcome(line: &str) -> Option<(String, bool)> {
    let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    match outcome.split_whitespace().next()? {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    }
}

impl Results {
    /// Whether all went well.
    pub(crate) fn verdict(&self) -> Result<()> {
        let failed: Vec<_> = self
            .tests
            .iter()
            .filter(|(_, passed)| !**passed)
            .map(|((_, name), _)| name)
            .collect();
        println!(
            "{} passed, {} failed",
            self.tests.len() - failed.len(),
            failed.len()
        );
        if !self.succeeded {
            bail!("tests failed: {failed:?}");
        }
        Ok(())
    }

    pub(crate) fn save(&self) -> Result<()> {
        let mut text = String::new();
        for database in &self.databases {
            text.push_str(&format!("here {}\n", database.word()));
        }
        for ((target, name), passed) in &self.tests {
            text.push_str(&format!(
                "{target} {} {name}\n",
                if *passed { "ok" } else { "FAILED" }
            ));
        }
        let path = saved();
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(path, text).context("writing the results")
    }

    pub(crate) fn load() -> Result<Self> {
        let text = std::fs::read_to_string(saved())
            .context("no results yet: run `cargo xtask test` first")?;
        let mut results = Self {
            succeeded: true,
            ..Self::default()
        };
        for line in text.lines() {
            if let Some(word) = line.strip_prefix("here ") {
                let known = Database::ALL.into_iter();
                results
                    .databases
                    .extend(known.filter(|database| database.word() == word));
            } else if let [target, outcome, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] {
                results
                    .tests
                    .insert((target.to_owned(), name.to_owned()), outcome == "ok");
            }
        }
        Ok(results)
    }
}

fn saved() -> PathBuf {
    root().join("target/xtask/results.txt")
}

/// The workspace.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cargo that runs us.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_runner() {
        assert_eq!(outcome("test a::b ... ok"), Some(("a::b".to_owned(), true)));
        assert_eq!(
            outcome("test a::b ... FAILED"),
            Some(("a::b".to_owned(), false))
        );
        assert_eq!(outcome("test a::b ... ignored"), None);
        assert_eq!(outcome("test result: ok. 1 passed"), None);
        assert_eq!(
            target_name("tests/conformance/main.rs (target/debug/deps/conformance-25f1)"),
            "conformance"
        );
    }
}
