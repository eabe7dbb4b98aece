//! Measures postroom against the raw-SQL floor and against other queues. Machines are noisy: whatever is
//! compared takes turns in one run, and what counts is the ratio.

mod contender;
mod goals;
mod peers;
mod plot;
mod process;
mod protocol;
mod report;
mod side;
mod workloads;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

/// Measures postroom against the raw-SQL floor and against other queues.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "It starts servers of its own and stops them. Examples:\n  \
                  cargo xtask bench                          quick, without peers: some minutes\n  \
                  cargo xtask bench --full --write           everything, into docs/BENCHMARKS.md: an hour\n  \
                  cargo xtask bench --backend postgres --case drain --peers"
)]
struct Arguments {
    #[command(subcommand)]
    side: Option<Command>,
    /// Only this database.
    #[arg(long, value_enum)]
    backend: Option<workloads::Backend>,
    /// Only workloads whose name contains this, and those that they take turns with.
    #[arg(long, default_value = "")]
    case: String,
    /// How often each contender does each workload; medians count. [default: 3, with --full 5]
    #[arg(long)]
    rounds: Option<usize>,
    /// Everything, at full size, with peers.
    #[arg(long)]
    full: bool,
    /// With peers: they are installed from their registries under target/ for the first time.
    #[arg(long)]
    peers: bool,
    /// Fail when a goal is missed.
    #[arg(long)]
    check: bool,
    /// Only what is stable on any machine; fail when a ratio falls far below its goal.
    #[arg(long)]
    guard: bool,
    /// Put the figures into docs/: the table of BENCHMARKS.md, its picture, the JSON.
    #[arg(long)]
    write: bool,
    /// Where the JSON goes; the table goes to standard output.
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A contender, as the benchmark starts it.
    #[command(hide = true)]
    Side(side::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    match arguments.side {
        Some(Command::Side(side)) => runtime.block_on(side::run(side)),
        None => runtime.block_on(measure(&arguments)),
    }
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let target = arguments.json.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
    let rounds = arguments
        .rounds
        .unwrap_or(if arguments.full { 5 } else { 3 });
    let plan = workloads::Plan {
        backend: arguments.backend,
        filter: arguments.case.clone(),
        rounds: rounds.max(1),
        full: arguments.full,
        peers: arguments.peers || arguments.full,
        guard: arguments.guard,
        target: std::path::absolute("target")?,
    };
    let report = run(&plan).await?;
    std::fs::write(&arguments.json, serde_json::to_string_pretty(&report)?)?;
    println!("\nwritten to {}", arguments.json.display());
    if arguments.write {
        write(&report)?;
    }
    let missed = report
        .goals
        .iter()
        .filter(|goal| !goal.is_reached())
        .count();
    if arguments.check && missed > 0 {
        bail!("{missed} goals are missed");
    }
    if arguments.guard {
        guard(&plan, &report).await?;
    }
    Ok(())
}

/// Measures everything in the plan and prints it.
async fn run(plan: &workloads::Plan) -> Result<report::Report> {
    let (rows, versions) = workloads::run(plan).await?;
    let report = report::Report {
        versions,
        cores: std::thread::available_parallelism()?.get(),
        rounds: plan.rounds,
        full: plan.full,
        goals: goals::reached(&rows),
        rows,
    };
    print!("{}", report.text());
    for row in &report.rows {
        if let Some(why) = &row.not_run {
            println!("not run: {}: {}: {why}", row.workload, row.contender);
        }
    }
    Ok(report)
}

/// Fails when a ratio is far below its goal, and still is when everything is measured once more: machines
/// have bad minutes.
async fn guard(plan: &workloads::Plan, report: &report::Report) -> Result<()> {
    let fallen_once = fallen(report);
    if fallen_once.is_empty() {
        return Ok(());
    }
    println!("\nfar below: {}; once more", fallen_once.join("; "));
    let mut fallen_again = fallen(&run(plan).await?);
    fallen_again.retain(|goal| fallen_once.contains(goal));
    ensure!(
        fallen_again.is_empty(),
        "far below their goals, twice: {}",
        fallen_again.join("; ")
    );
    Ok(())
}

/// What lies below its guard.
fn fallen(report: &report::Report) -> Vec<String> {
    let fallen = report
        .goals
        .iter()
        .filter(|goal| goal.guard.is_some_and(|guard| goal.measured < guard));
    fallen
        .map(|goal| format!("{}: {}", goal.backend.name(), goal.what))
        .collect()
}

/// Puts the figures where readers find them.
fn write(report: &report::Report) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = docs.join("BENCHMARKS.md");
    let text = std::fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("a place for the figures")?;
    let (_, after) = rest.split_once(END).context("an end of the figures")?;
    let figures = report.markdown();
    std::fs::write(&page, format!("{before}{BEGIN}\n{figures}{END}{after}"))?;
    std::fs::write(docs.join("benchmarks.svg"), plot::svg(&report.rows))?;
    std::fs::write(
        docs.join("benchmarks.json"),
        serde_json::to_string_pretty(report)?,
    )?;
    println!("written to docs/BENCHMARKS.md");
    Ok(())
}

const BEGIN: &str = "<!-- figures: written by `cargo xtask bench --full --write` -->";
const END: &str = "<!-- end of figures -->";
