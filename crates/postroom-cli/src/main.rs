//! The binary `postroom`: its arguments, and which command each of them is.

mod age;
mod audit;
mod bench;
mod cleanup;
mod completions;
mod config;
mod dead;
mod demo;
mod discovery;
mod doctor;
mod enqueue;
mod http;
mod inbox;
mod join;
mod leftovers;
mod list;
mod out;
mod outbox;
mod position;
mod progress;
mod refused;
mod schema;
mod secret;
mod serve;
mod show;
mod stats;
mod store;
mod stores;
mod table;
mod targets;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Reliable messaging from the database you already have: outbox, inbox and joins.
#[derive(Parser)]
#[command(
    name = "postroom",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  postroom demo                                see it work, on a temporary file
  postroom serve                               run it: dispatch, HTTP API, dashboard
  postroom enqueue order.created '{\"id\":7}'    put a message into the outbox
  postroom stats --watch                       how many messages stand where
  postroom dead list                           what has failed for good, and why
  postroom dead replay --all                   try all of it again
  postroom doctor                              is anything wrong, and what to do about it
  postroom schema deploy --url sqlite:app.db   create or upgrade the tables

Commands find the store as `postroom serve` does: --url, or else what postroom.toml names, or else the \
variable POSTROOM_URL, or else the file postroom.db. A password is best kept in a variable: command lines \
can be read by others. No command ever prints one, nor what messages carry, unless asked by --show-payload.

Exit codes: 0 it is done; 1 it is not, and stderr says why and what to do (for `doctor`: something was \
found); 2 the command line was not understood. With --json, stdout holds one JSON document."
)]
struct Arguments {
    /// Write logs to stderr: off, error, warn, info, debug, or a filter such as `postroom=debug`.
    /// Without this, RUST_LOG decides; without that, `serve` writes warnings and other commands nothing
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Config(config::Arguments),
    Openapi(http::api::Arguments),
    Demo(demo::Arguments),
    Enqueue(enqueue::Arguments),
    List(list::Arguments),
    Show(show::Arguments),
    Dead(dead::Arguments),
    Inbox(inbox::Arguments),
    Join(join::Arguments),
    Stats(stats::Arguments),
    Doctor(doctor::Arguments),
    Cleanup(cleanup::Arguments),
    Schema(schema::Arguments),
    Bench(bench::Arguments),
    Completions(completions::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::command()
        .try_get_matches()
        .and_then(|matches| Arguments::from_arg_matches(&matches))
    {
        Ok(arguments) => arguments,
        Err(usage) => return tell_usage(&usage),
    };
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if let Some(advice) = advice(&error) {
                eprintln!("  try: {advice}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let is_daemon = matches!(arguments.command, Command::Serve(_));
    start_logs(arguments.log.as_deref(), is_daemon)?;
    // Whoever has installed another one first may keep it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads could be started")?;
    let ended = runtime.block_on(async {
        match arguments.command {
            Command::Serve(serve) => serve.run().await?,
            Command::Config(config) => config.run().await?,
            Command::Openapi(openapi) => openapi.run()?,
            Command::Demo(demo) => demo.run().await?,
            Command::Enqueue(enqueue) => enqueue.run().await?,
            Command::List(list) => list.run().await?,
            Command::Show(show) => show.run().await?,
            Command::Dead(dead) => dead.run().await?,
            Command::Inbox(inbox) => inbox.run().await?,
            Command::Join(join) => join.run().await?,
            Command::Stats(stats) => stats.run().await?,
            Command::Doctor(doctor) => return doctor.run().await,
            Command::Cleanup(cleanup) => cleanup.run().await?,
            Command::Schema(schema) => schema.run().await?,
            Command::Bench(bench) => bench.run().await?,
            Command::Completions(completions) => completions.run()?,
        }
        Ok(ExitCode::SUCCESS)
    });
    // A thread that writes to somebody who does not read would be waited for in vain.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Help and usage errors. A usage error quotes the argument at fault, which may be a URL.
fn tell_usage(usage: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    match usage.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        | ErrorKind::DisplayVersion => {
            let _ = usage.print();
        }
        _ => eprint!("{}", secret::without_urls(&usage.render().to_string())),
    }
    ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(1))
}

/// A daemon warns when nobody has said otherwise; a command has its exit code and its errors.
fn start_logs(filter: Option<&str>, is_daemon: bool) -> anyhow::Result<()> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter).with_context(|| {
            format!(
                "--log does not understand `{filter}`; use one of off, error, warn, info, debug"
            )
        })?,
        None => match std::env::var("RUST_LOG") {
            Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter)
                .with_context(|| format!("RUST_LOG does not understand `{filter}`"))?,
            _ if is_daemon => EnvFilter::new("warn"),
            _ => return Ok(()),
        },
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// Whoever reads our output may have seen enough, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    error
        .chain()
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(closed))
}

/// What to do about an error of the library.
fn advice(error: &anyhow::Error) -> Option<String> {
    let error = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<postroom::Error>())?;
    match (error.kind(), error.param()) {
        (_, Some("url")) => {
            Some(
                "--url sqlite:app.db, --url postgres://user@host/database, --url mysql://user@host/database, or \
                 --url sqlserver://user@host/database"
                    .to_owned(),
            )
        }
        (_, Some("idempotency_key")) => {
            Some("another --key, or the message that this one stands for".to_owned())
        }
        (
            _,
            Some(
                flag @ ("schema" | "outbox_table" | "inbox_table" | "join_table"
                | "join_member_table" | "limit" | "older_than" | "newer_than" | "source"),
            ),
        ) => Some(format!("another value for --{}", flag.replace('_', "-"))),
        (postroom::ErrorKind::Transient, _) => Some(
            "again later, and check that the database runs and that --url or POSTROOM_URL is right"
                .to_owned(),
        ),
        _ => None,
    }
}
