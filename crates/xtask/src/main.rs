//! What a developer types: `cargo xtask test`, `cargo xtask spec`, `cargo xtask bench`.

mod conformance;
mod run;
mod schemathesis;
mod servers;

use std::process::Command;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

/// What a developer of postroom types.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Runs all tests against real databases: private ones that it starts and stops. Missing servers
    /// are installed where that is possible (Debian, as root); else their tests are left out, and it
    /// says so; with CI=true it fails instead.
    Test {
        /// Passed on to `cargo test`, such as a name to run only some tests.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Sends the daemon thousands of requests made from its OpenAPI document, and checks the answers.
    /// Needs schemathesis, or python3 and pip to install it under target/; without, it says so; with
    /// CI=true it fails instead.
    Api,
    /// Runs the tests that show requirements, and prints the table: id, text, tests, and per database
    /// passed or not run. Fails when a requirement has no test.
    Spec {
        /// Use the results of the last `cargo xtask test` instead of running the tests.
        #[arg(long)]
        last: bool,
        /// Write the table to docs/CONFORMANCE.md.
        #[arg(long)]
        write: bool,
    },
    /// Measures the library against the raw-SQL floor, in a release build. `-- --help` shows more.
    Bench {
        /// Passed on to the benchmark.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Task::Test { rest } => test(&rest),
        Task::Api => api(),
        Task::Spec { last, write } => spec(last, write),
        Task::Bench { rest } => bench(&rest),
    }
}

fn test(rest: &[String]) -> Result<()> {
    let results = run::tests(&["--workspace", "--all-features"], rest)?;
    results.save()?;
    if rest.is_empty() {
        let table = conformance::Table::build(&results)?;
        table.check()?;
        table.compare_with_committed()?;
        println!("{}", table.summary());
        api()?;
    }
    results.verdict()
}

fn api() -> Result<()> {
    let checked = schemathesis::check()?;
    if !checked && std::env::var("CI").is_ok_and(|value| value == "true") {
        bail!("schemathesis could not be installed: with CI=true it must run");
    }
    Ok(())
}

fn spec(last: bool, write: bool) -> Result<()> {
    let results = if last {
        run::Results::load()?
    } else {
        let results = run::tests(&["--package", "postroom", "--all-features", "--tests"], &[])?;
        results.save()?;
        results
    };
    let table = conformance::Table::build(&results)?;
    print!("{}", table.text());
    if write {
        table.commit()?;
    }
    println!("{}", table.summary());
    table.check()
}

fn bench(rest: &[String]) -> Result<()> {
    for database in servers::Database::ALL {
        database.is_here_or_installed();
    }
    // The guard has no daemon in it.
    if !rest.iter().any(|argument| argument == "--guard") {
        let status = Command::new(run::cargo())
            .args(["build", "--release", "--package", "postroom-cli"])
            .status()?;
        if !status.success() {
            bail!("the daemon could not be built");
        }
    }
    let status = Command::new(run::cargo())
        .args(["run", "--release", "--package", "bench", "--"])
        .args(rest)
        .status()?;
    if !status.success() {
        bail!("the benchmark failed");
    }
    Ok(())
}
