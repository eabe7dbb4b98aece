//! `postroom schema`: print, deploy and verify the tables.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use postroom::Operation;

use crate::progress;
use crate::store::StoreArguments;

/// Print, create, upgrade or check the tables
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom schema print --dialect sqlite > schema.sql
  postroom schema print --dialect postgres --schema messaging | psql -1 -v ON_ERROR_STOP=1 app
  postroom schema deploy --url postgres://owner@localhost/shop
  postroom schema verify && echo ready")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    store: StoreArguments,
}

#[derive(Subcommand)]
enum Command {
    /// Print the whole schema as one SQL script. No database is asked
    #[command(after_help = "\
The script is for an empty database. Run it in your own migration, then `postroom schema verify` \
passes: it records its versions just as `deploy` does.")]
    Print {
        /// Which SQL to print [default: what --url speaks]
        #[arg(long, value_enum)]
        dialect: Option<Dialect>,
    },

    /// Print the statements of every operation, for workers in other languages. No database is asked
    #[command(after_help = "\
Each operation is one transaction. On PostgreSQL it is one call of a function; on SQLite it may be \
several statements (use BEGIN IMMEDIATE). The parameters of an operation are numbered through all of \
its statements; the line above a statement says which of them are its ?1, ?2 and so on.")]
    Statements {
        /// Which SQL to print [default: what --url speaks]
        #[arg(long, value_enum)]
        dialect: Option<Dialect>,
    },

    /// Create the schema, or bring an older one up to date
    #[command(after_help = "\
Doing it again changes nothing, many may do it at once, and nothing is ever dropped. It needs the right \
to create tables; everyday work does not.")]
    Deploy,

    /// Check that the schema is there, complete, and this version's. Exit code 1 when it is not
    Verify,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dialect {
    Postgres,
    Sqlite,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Print { dialect } => {
                let script = self
                    .store
                    .options_for(kind(dialect, &self.store))
                    .schema_sql()?;
                std::io::stdout().write_all(script.as_bytes())?;
            }
            Command::Statements { dialect } => {
                let operations = self
                    .store
                    .options_for(kind(dialect, &self.store))
                    .operations()?;
                print_operations(&operations)?;
            }
            Command::Deploy => {
                let room = self.store.create().await?;
                let spinner = progress::spinner("deploying");
                let deployed = room.deploy().await;
                spinner.finish_and_clear();
                deployed?;
                println!("deployed {}", room.identifier());
            }
            Command::Verify => {
                let room = self.store.open().await?;
                room.verify().await?;
                println!("the schema of {} is complete", room.identifier());
            }
        }
        Ok(())
    }
}

/// A URL of the right kind; nobody connects to it.
fn kind(dialect: Option<Dialect>, store: &StoreArguments) -> &str {
    match dialect {
        Some(Dialect::Postgres) => "postgres:",
        Some(Dialect::Sqlite) => "sqlite:",
        None => store.url(),
    }
}

fn print_operations(operations: &[Operation]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for operation in operations {
        writeln!(out, "-- {}", operation.name)?;
        for statement in &operation.statements {
            if !statement.parameters.is_empty() {
                let parameters: Vec<String> = statement
                    .parameters
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                writeln!(out, "-- parameters: {}", parameters.join(", "))?;
            }
            if statement.if_changed {
                writeln!(
                    out,
                    "-- only if the last statement without this remark changed a row"
                )?;
            }
            writeln!(out, "{};", statement.sql)?;
        }
        writeln!(out)?;
    }
    Ok(())
}
