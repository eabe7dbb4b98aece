//! `postroom schema`: print, deploy and verify the tables.

use std::io::Write;

use clap::{Args, Subcommand, ValueEnum};
use postroom::{Operation, Options};
use serde_json::json;

use crate::store::StoreArguments;
use crate::{out, progress};

/// Print, create, upgrade or check the tables
#[derive(Args)]
#[command(after_help = "\
Examples:
  postroom schema print --dialect sqlite > schema.sql
  postroom schema print --dialect postgres --schema messaging | psql -1 -v ON_ERROR_STOP=1 app
  postroom schema print --dialect sqlserver > schema.sql && sqlcmd -I -b -d app -i schema.sql
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
Examples:
  postroom schema print --dialect sqlite > schema.sql
  postroom schema print --dialect postgres --schema messaging | psql -1 -v ON_ERROR_STOP=1 app
  postroom schema print --dialect sqlserver > schema.sql && sqlcmd -I -b -d app -i schema.sql

The script is for an empty database. Run it in your own migration, then `postroom schema verify` \
passes: it records its versions just as `deploy` does.")]
    Print {
        /// Which SQL to print [default: what --url speaks]
        #[arg(long, value_enum)]
        dialect: Option<Dialect>,
    },

    /// Print the statements of every operation, for workers in other languages. No database is asked
    #[command(after_help = "\
Examples:
  postroom schema statements --dialect sqlite
  postroom schema statements --dialect postgres --schema messaging

Each operation is one transaction. On PostgreSQL and SQL Server it is one call of a function or procedure; on SQLite \
(use BEGIN IMMEDIATE) and MySQL (use READ COMMITTED) it may be several statements. The parameters of an operation are numbered through all of \
its statements; the line above a statement says which of them are its ?1, ?2 and so on.")]
    Statements {
        /// Which SQL to print [default: what --url speaks]
        #[arg(long, value_enum)]
        dialect: Option<Dialect>,
    },

    /// Create the schema, or bring an older one up to date
    #[command(after_help = "\
Examples:
  postroom schema deploy --url sqlite:app.db
  postroom schema deploy --config postroom.toml --store shop

Doing it again changes nothing, many may do it at once, and nothing is ever dropped. It needs the right \
to create tables; everyday work does not.")]
    Deploy {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },

    /// Check that the schema is there, complete, and this version's. Exit code 1 when it is not
    #[command(after_help = "\
Examples:
  postroom schema verify --url postgres://app@localhost/shop && echo ready
  postroom schema verify --json

Exit code 0 when everything is as it should be, 1 when something is missing, older, newer, or changed by \
hand; then stderr says what, and what to do.")]
    Verify {
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Dialect {
    Mysql,
    Postgres,
    Sqlite,
    #[value(name = "sqlserver", alias = "mssql")]
    SqlServer,
}

impl Arguments {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Print { dialect } => {
                let script = options(dialect, &self.store)?.schema_sql()?;
                std::io::stdout().write_all(script.as_bytes())?;
            }
            Command::Statements { dialect } => {
                let operations = options(dialect, &self.store)?.operations()?;
                print_operations(&operations)?;
            }
            Command::Deploy { json } => {
                let room = self.store.place()?.create().await?;
                let spinner = progress::spinner("deploying");
                let deployed = room.deploy().await;
                spinner.finish_and_clear();
                deployed?;
                if json {
                    out::json(&json!({ "store": room.identifier(), "deployed": true }))?;
                } else {
                    out::line(format_args!("deployed {}", room.identifier()))?;
                }
            }
            Command::Verify { json } => {
                let room = self.store.open().await?;
                room.verify().await?;
                if json {
                    out::json(&json!({ "store": room.identifier(), "complete": true }))?;
                } else {
                    out::line(format_args!(
                        "the schema of {} is complete",
                        room.identifier()
                    ))?;
                }
            }
        }
        Ok(())
    }
}

/// Options of the right kind; nobody connects with them.
fn options(dialect: Option<Dialect>, store: &StoreArguments) -> anyhow::Result<Options> {
    Ok(match dialect {
        Some(Dialect::Mysql) => store.at("mysql:").options,
        Some(Dialect::Postgres) => store.at("postgres:").options,
        Some(Dialect::Sqlite) => store.at("sqlite:").options,
        Some(Dialect::SqlServer) => store.at("sqlserver:").options,
        None => store.place()?.options,
    })
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
