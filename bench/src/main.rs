//! Measures the library against the raw-SQL floor: the same statements, on the same server, in the
//! same run, by a client that does nothing else. Machines are noisy, so both take turns, and what
//! counts is the ratio.

mod cases;
mod classic_floor;
mod contender;
mod daemon;
mod latency;
mod mysql_floor;
mod postgres_floor;
mod report;
mod sqlite_floor;

use anyhow::Context;
use clap::Parser;

/// Measures postroom against the raw-SQL floor.
#[derive(Debug, Parser)]
#[command(
    after_help = "Ratios below their target are marked; with --check they make the run fail."
)]
struct Arguments {
    /// Only this database.
    #[arg(long, value_enum)]
    backend: Option<cases::Backend>,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// How often each side runs each case; the median of the ratios counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Messages per run, as a percentage of the usual number.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Fail when a ratio is below its target.
    #[arg(long)]
    check: bool,
    /// Where the JSON goes; the table goes to standard output.
    #[arg(long, default_value = "target/bench.json")]
    json: std::path::PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(folder) = arguments.json.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("creating {}", folder.display()))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let results = runtime.block_on(cases::run(&cases::Plan {
        backend: arguments.backend,
        filter: arguments.case,
        rounds: arguments.rounds.max(1),
        size: arguments.size.max(1),
    }))?;
    print!("{}", report::table(&results));
    std::fs::write(&arguments.json, serde_json::to_string_pretty(&results)?)?;
    println!("\nwritten to {}", arguments.json.display());
    let missed = results.iter().filter(|result| !result.reached()).count();
    if arguments.check && missed > 0 {
        anyhow::bail!("{missed} ratios are below their target");
    }
    Ok(())
}
