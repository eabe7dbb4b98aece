//! The binary `postroom`: its arguments, and which command each of them is.

mod age;
mod config;
mod demo;
mod http;
mod inbox;
mod outbox;
mod progress;
mod schema;
mod secret;
mod serve;
mod store;
mod stores;
mod table;
mod targets;

use std::io::IsTerminal;
use std::process::ExitCode;

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
  postroom schema deploy --url sqlite:app.db   create or upgrade the tables
  postroom schema print --dialect postgres     the SQL, for your own migrations
  postroom outbox counts --url postgres://app@localhost/shop
  postroom outbox dead --json                  what has failed for good, and why
  postroom outbox replay --older-than 0s       try all of it again

Most commands take the database from --url or from the variable POSTROOM_URL. A password is best kept \
in that variable: command lines can be read by others. No command ever prints one."
)]
struct Arguments {
    /// Write logs to stderr: off, error, warn, info, debug, or a filter such as `postroom=debug`.
    /// Without this, RUST_LOG decides; without that, there are none
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Config(config::Arguments),
    Demo(demo::Arguments),
    Schema(schema::Arguments),
    Outbox(outbox::Arguments),
    Inbox(inbox::Arguments),
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
        Ok(()) => ExitCode::SUCCESS,
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

fn run(arguments: Arguments) -> anyhow::Result<()> {
    start_logs(arguments.log.as_deref())?;
    // Whoever has installed another one first may keep it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("no threads could be started")?;
    runtime.block_on(async {
        match arguments.command {
            Command::Serve(serve) => serve.run().await,
            Command::Config(config) => config.run().await,
            Command::Demo(demo) => demo.run().await,
            Command::Schema(schema) => schema.run().await,
            Command::Outbox(outbox) => outbox.run().await,
            Command::Inbox(inbox) => inbox.run().await,
        }
    })
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

fn start_logs(filter: Option<&str>) -> anyhow::Result<()> {
    let filter = match filter {
        Some(filter) => EnvFilter::try_new(filter).with_context(|| {
            format!(
                "--log does not understand `{filter}`; use one of off, error, warn, info, debug"
            )
        })?,
        None => match std::env::var("RUST_LOG") {
            Ok(filter) if !filter.is_empty() => EnvFilter::try_new(&filter)
                .with_context(|| format!("RUST_LOG does not understand `{filter}`"))?,
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
            Some("--url sqlite:app.db, or --url postgres://user@host/database".to_owned())
        }
        (_, Some(param)) => Some(format!("another value for --{}", param.replace('_', "-"))),
        (postroom::ErrorKind::Transient, _) => Some(
            "again later, and check that the database runs and that --url or POSTROOM_URL is right"
                .to_owned(),
        ),
        _ => None,
    }
}
