//! The table of requirements: which tests show which, and how they went on each database.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::run::{Results, root};
use crate::servers::Database;

/// One line of docs/requirements.txt.
struct Requirement {
    scope: String,
    level: String,
    text: String,
    ids: Vec<String>,
}

/// A test that shows requirements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    target: String,
    /// The module of the file, empty for the target's root.
    module: String,
    name: String,
}

/// One requirement id with all that is known of it.
struct Entry {
    id: String,
    scope: String,
    level: String,
    text: String,
    tests: Vec<Shown>,
    /// SQLite, PostgreSQL, MariaDB, SQL Server.
    outcomes: [Outcome; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// No test on this database shows it.
    None,
    NotRun,
    Passed,
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::None => "–",
            Self::NotRun => "not run",
            Self::Passed => "passed",
            Self::Failed => "FAILED",
        }
    }
}

pub(crate) struct Table {
    entries: Vec<Entry>,
}

impl Table {
    pub(crate) fn build(results: &Results) -> Result<Self> {
        let shown = shown_by_tests()?;
        let of = |tests: &[Shown], database: Database| {
            let is_here = results.databases.contains(&database);
            outcome(results, tests, database.word(), is_here)
        };
        let mut entries = Vec::new();
        for requirement in requirements()? {
            for id in &requirement.ids {
                let tests = shown.get(id).cloned().unwrap_or_default();
                entries.push(Entry {
                    id: id.clone(),
                    scope: requirement.scope.clone(),
                    level: requirement.level.clone(),
                    text: requirement.text.clone(),
                    outcomes: [
                        outcome(results, &tests, "sqlite", true),
                        of(&tests, Database::Postgres),
                        of(&tests, Database::MySql),
                        of(&tests, Database::SqlServer),
                    ],
                    tests,
                });
            }
        }
        let known = |id: &String| entries.iter().any(|entry| entry.id == *id);
        if let Some(unknown) = shown.keys().find(|id| !known(id)) {
            bail!("a test shows `{unknown}`, which docs/requirements.txt does not know");
        }
        Ok(Self { entries })
    }

    /// Fails on a requirement of the core that no test shows, or whose test failed.
    pub(crate) fn check(&self) -> Result<()> {
        let core = || self.entries.iter().filter(|entry| entry.scope == "core");
        let ids = |entries: Vec<&Entry>| {
            entries
                .iter()
                .map(|entry| entry.id.clone())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let gaps: Vec<&Entry> = core().filter(|entry| entry.tests.is_empty()).collect();
        if !gaps.is_empty() {
            bail!("no test shows {}", ids(gaps));
        }
        let silent: Vec<&Entry> = core()
            .filter(|entry| !entry.outcomes.contains(&Outcome::Passed))
            .collect();
        if !silent.is_empty() {
            bail!("no test that ran shows {}", ids(silent));
        }
        let failed: Vec<&Entry> = core().filter(|entry| entry.has_failed()).collect();
        if !failed.is_empty() {
            bail!("tests failed for {}", ids(failed));
        }
        Ok(())
    }

    /// For the terminal.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            let _ = writeln!(
                text,
                "{:<9} sqlite {:<8} postgres {:<8} mysql {:<8} sqlserver {:<8} {}",
                entry.id,
                entry.outcomes[0].word(),
                entry.outcomes[1].word(),
                entry.outcomes[2].word(),
                entry.outcomes[3].word(),
                entry.text
            );
            for test in &entry.tests {
                let _ = writeln!(text, "            {}", test.path());
            }
        }
        text
    }

    /// For docs/CONFORMANCE.md.
    fn markdown(&self) -> String {
        let mut text = String::from(
            "# Conformance\n\nEach requirement, the tests that show it, and how they went. Made by \
             `cargo xtask spec --write` from a real run; the test run fails when it is out of date.\n\n\
             Levels: M must, S should, y may, i informative. “not run” means that the database was not there; \
             “–” that the requirement does not depend on the database or is shown on another one. \
             Requirements without a test are not built yet.\n\n\
             | id | level | requirement | tests | SQLite | PostgreSQL | MariaDB | SQL Server |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for entry in &self.entries {
            let tests: Vec<String> = entry
                .tests
                .iter()
                .map(|test| format!("`{}`", test.path()))
                .collect();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                entry.id,
                entry.level,
                entry.text.replace('|', "\\|"),
                tests.join("<br>"),
                entry.outcomes[0].word(),
                entry.outcomes[1].word(),
                entry.outcomes[2].word(),
                entry.outcomes[3].word()
            );
        }
        text
    }

    pub(crate) fn summary(&self) -> String {
        let count = |scope: &str, shown: bool| {
            self.entries
                .iter()
                .filter(|entry| entry.scope == scope && entry.tests.is_empty() != shown)
                .count()
        };
        format!(
            "requirements: {} of the core shown by tests, {} missing; {} later ones shown, {} to come",
            count("core", true),
            count("core", false),
            count("later", true),
            count("later", false)
        )
    }

    /// Writes docs/CONFORMANCE.md, unless a test failed.
    pub(crate) fn commit(&self) -> Result<()> {
        let failed: Vec<&str> = self
            .entries
            .iter()
            .filter(|entry| entry.has_failed())
            .map(|entry| entry.id.as_str())
            .collect();
        if !failed.is_empty() {
            bail!(
                "docs/CONFORMANCE.md is not written: tests failed for {}",
                failed.join(", ")
            );
        }
        std::fs::write(committed(), self.markdown()).context("writing docs/CONFORMANCE.md")
    }

    /// The committed table must be what this run shows, unless a database was missing, or SQL Server was there:
    /// the table is made where it is not.
    pub(crate) fn compare_with_committed(&self) -> Result<()> {
        let missing = self.entries.iter().any(|entry| {
            let [.., postgres, mysql, sqlserver] = entry.outcomes;
            [postgres, mysql].contains(&Outcome::NotRun)
                || [Outcome::Passed, Outcome::Failed].contains(&sqlserver)
        });
        let committed = std::fs::read_to_string(committed()).unwrap_or_default();
        if !missing && committed != self.markdown() {
            bail!(
                "docs/CONFORMANCE.md is out of date: run `cargo xtask spec --last --write` and commit it"
            );
        }
        Ok(())
    }
}

impl Entry {
    fn has_failed(&self) -> bool {
        self.outcomes.contains(&Outcome::Failed)
    }
}

fn committed() -> std::path::PathBuf {
    root().join("docs/CONFORMANCE.md")
}

impl Shown {
    fn path(&self) -> String {
        let parts = [
            self.target.as_str(),
            self.module.as_str(),
            self.name.as_str(),
        ];
        parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("::")
    }

    /// Whether a test of the run is this one, on whatever database.
    fn is(&self, target: &str, test: &str) -> bool {
        let last = test.rsplit("::").next() == Some(self.name.as_str());
        let module = self.module.is_empty() || test.starts_with(&format!("{}::", self.module));
        self.target == target && last && module
    }
}

/// How the tests of one requirement went on one database, which shows in their module.
fn outcome(results: &Results, tests: &[Shown], database: &str, is_here: bool) -> Outcome {
    let mut outcome = Outcome::None;
    for test in tests {
        let runs = results.tests.iter().filter(|((target, name), _)| {
            let module = name.rsplit_once("::").map_or("", |(module, _)| module);
            test.is(target, name) && module.contains(database)
        });
        for (_, passed) in runs {
            outcome = match (outcome, passed) {
                (Outcome::Failed, _) | (_, false) => Outcome::Failed,
                _ => Outcome::Passed,
            };
        }
    }
    if outcome == Outcome::None && !is_here && !tests.is_empty() {
        Outcome::NotRun
    } else {
        outcome
    }
}

fn requirements() -> Result<Vec<Requirement>> {
    let text = std::fs::read_to_string(root().join("docs/requirements.txt"))
        .context("docs/requirements.txt")?;
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| match line.split(" | ").collect::<Vec<_>>()[..] {
            [_, scope, level, text, ids] => Ok(Requirement {
                scope: scope.to_owned(),
                level: level.to_owned(),
                text: text.to_owned(),
                ids: ids.split(' ').map(str::to_owned).collect(),
            }),
            _ => bail!("not a requirement: {line}"),
        })
        .collect()
}

/// Requirement id to tests, from the doc comments of all tests.
fn shown_by_tests() -> Result<BTreeMap<String, Vec<Shown>>> {
    let mut shown: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for package in ["crates/postroom", "crates/postroom-cli"] {
        let folder = root().join(package).join("tests");
        if folder.exists() {
            collect(&folder, &folder, &mut shown)?;
        }
    }
    shown.values_mut().for_each(|tests| tests.sort());
    Ok(shown)
}

fn collect(tests: &Path, folder: &Path, shown: &mut BTreeMap<String, Vec<Shown>>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(tests, &path, shown)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(tests)?.with_extension("");
            let parts: Vec<_> = relative
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            let (target, module) = match parts.as_slice() {
                [target] => (target.clone(), String::new()),
                [target, main] if main == "main" => (target.clone(), String::new()),
                [target, modules @ ..] => (target.clone(), modules.join("::")),
                [] => continue,
            };
            for (id, name) in claims(&std::fs::read_to_string(&path)?) {
                let test = Shown {
                    target: target.clone(),
                    module: module.clone(),
                    name,
                };
                shown.entry(id).or_default().push(test);
            }
        }
    }
    Ok(())
}

/// The ids in `/// Shows …` lines, each with the function that follows.
fn claims(source: &str) -> Vec<(String, String)> {
    let mut claims = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    let mut showing = false;
    for line in source.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            showing = showing || comment.trim_start().starts_with("Shows ");
            if showing {
                let words = comment
                    .split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
                pending.extend(words.filter(|word| is_id(word)).map(str::to_owned));
                showing = !comment.trim_end().ends_with('.');
            }
            continue;
        }
        showing = false;
        if let Some(name) = function_name(line) {
            claims.extend(pending.drain(..).map(|id| (id, name.clone())));
        }
    }
    claims
}

fn is_id(word: &str) -> bool {
    word.split_once('-').is_some_and(|(kind, number)| {
        ["OBX", "IBX", "JOIN", "HDT", "DEEP", "C"].contains(&kind)
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn function_name(line: &str) -> Option<String> {
    let rest = line.split_once("fn ")?;
    let before_is_plain = [
        "",
        "async ",
        "pub ",
        "pub(crate) ",
        "pub async ",
        "pub(crate) async ",
    ]
    .contains(&rest.0);
    let name: String = rest
        .1
        .chars()
        .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
        .collect();
    (before_is_plain && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_from_doc_comments() {
        let source = "/// It works.\n/// Shows OBX-001, C-18,\n/// JOIN-002.\n/// Not OBX-999.\n#[test]\nasync fn it_works() {}\nfn other() {}";
        let claims = claims(source);
        let ids: Vec<&str> = claims.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["OBX-001", "C-18", "JOIN-002"]);
        assert!(claims.iter().all(|(_, name)| name == "it_works"));
    }

    #[test]
    fn the_database_is_told_by_the_module_not_by_the_tests_name() {
        let name = "like_postgres";
        let mut results = Results::default();
        results.tests.insert(
            ("conformance".to_owned(), format!("claim::sqlite::{name}")),
            true,
        );
        let tests = [Shown {
            target: "conformance".to_owned(),
            module: "claim".to_owned(),
            name: name.to_owned(),
        }];
        assert_eq!(outcome(&results, &tests, "sqlite", true), Outcome::Passed);
        assert_eq!(outcome(&results, &tests, "postgres", true), Outcome::None);
    }

    #[test]
    fn a_table_with_a_failure_is_not_written() {
        let table = Table {
            entries: vec![Entry {
                id: "OBX-001".to_owned(),
                scope: "core".to_owned(),
                level: "M".to_owned(),
                text: String::new(),
                tests: Vec::new(),
                outcomes: [
                    Outcome::Passed,
                    Outcome::Failed,
                    Outcome::None,
                    Outcome::NotRun,
                ],
            }],
        };
        let error = table.commit().expect_err("refused").to_string();
        assert!(error.contains("OBX-001"), "{error}");
    }
}
