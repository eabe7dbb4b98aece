//! Every program in `examples/`, run as a user would run it, and the size of the README's first.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

#[cfg(feature = "testing")]
use testkit::{Backend, Fixture};

/// What a program must have said, besides ending well.
const TELLING: &[(&str, &str)] = &[
    ("databases", "packed, invoiced, and then shipped"),
    (
        "domain_events",
        "the second delivery to billing is Replaced",
    ),
    ("fleet", "5 orders handled, every number as it should be."),
    ("handlers", "8 done, 3 retried, 3 dead."),
    ("join", "the join is Failed: 2 completed, 1 failed, of 3"),
    ("scheduled_cleanup", "Every number was as it should be."),
    (
        "transactional_handler",
        "40 runs wrote 20 rows for 20 messages; they add up to 210",
    ),
];

#[test]
fn every_example_ends_well_and_says_so() {
    let names: Vec<String> = sources()
        .iter()
        .map(|source| source.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for (name, _) in TELLING {
        assert!(names.iter().any(|known| known == name), "no {name}");
    }
    for name in names {
        let output = Command::new(program(&name))
            .output()
            .unwrap_or_else(|error| panic!("{name} does not run: {error}"));
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{name} failed:\n{out}{err}");
        let telling = TELLING.iter().find(|(known, _)| *known == name);
        match telling {
            Some((_, line)) => assert!(out.contains(line), "{name} did not say {line:?}:\n{out}"),
            None => assert!(!out.trim().is_empty(), "{name} said nothing"),
        }
    }
}

#[cfg(feature = "testing")]
#[tokio::test]
async fn one_program_runs_on_every_database() {
    for (backend, name) in [
        (Backend::Sqlite, "On sqlite:"),
        (Backend::Postgres, "On postgres:"),
        (Backend::MySql, "On mysql:"),
    ] {
        let fixture = Fixture::empty(backend).await;
        // What it has left behind does not bother it the second time.
        for _ in 0..2 {
            let output = Command::new(program("databases"))
                .arg(&fixture.url)
                .output()
                .unwrap();
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(out.contains(name), "{out}");
            assert!(out.contains("5 messages done, 0 dead"), "{out}");
        }
    }
}

#[test]
fn every_example_is_registered() {
    let manifest = include_str!("../Cargo.toml");
    for source in sources() {
        let path = format!(
            "../../examples/{}",
            source.file_name().unwrap().to_str().unwrap()
        );
        assert!(manifest.contains(&path), "{path} is not in Cargo.toml");
    }
}

/// The doctests run it as it stands: see `guides` in lib.rs.
#[test]
fn the_first_program_of_the_readme_is_short_and_checks_itself() {
    let readme = include_str!("../../../README.md");
    let (_, after) = readme.split_once("```rust").expect("a program");
    let (attributes, program) = after.split_once('\n').unwrap();
    let (program, _) = program.split_once("\n```").expect("its end");
    assert_eq!(attributes, "", "nothing keeps it from being run");
    let lines = program.lines().count();
    assert!(lines <= 30, "it has {lines} lines");
    for part in ["fn main()", ".dispatcher()", "assert_eq!"] {
        assert!(program.contains(part), "it has no {part}");
    }
    let hidden = program.lines().filter(|line| line.starts_with("# "));
    assert_eq!(hidden.count(), 0, "what you see is all there is");
}

fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    sources.sort();
    sources
}

/// Where cargo has put the program, built first if `cargo test` was asked for this test alone.
fn program(name: &str) -> PathBuf {
    BUILT.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let this = std::env::current_exe().unwrap();
    let profile = this.parent().unwrap().parent().unwrap();
    let folder = profile.join("examples");
    let modified = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    let is_fresh = sources().iter().all(|source| {
        let built = folder
            .join(source.file_stem().unwrap())
            .with_extension(std::env::consts::EXE_EXTENSION);
        modified(&built) > modified(source)
    });
    if !is_fresh {
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--package", "postroom", "--examples"])
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        // What cargo has told this test would make build scripts run again, now and the next time.
        for (name, _) in std::env::vars() {
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                build.env_remove(name);
            }
        }
        if cfg!(feature = "testing") {
            build.arg("--all-features");
        }
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(
            build.status().unwrap().success(),
            "the examples do not build"
        );
    }
    folder
});
