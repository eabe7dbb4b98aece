//! Schema deployment. Every statement that makes a table commits, so there is no transaction around it: a
//! migration is noted before and after, and one that broke off half way is run again, past what it had made.

use mysql_async::prelude::FromRow;

use super::connect::Connection;
use super::errors::{database_error, exists_already};
use crate::db::{Applied, unless_missing};
use crate::error::{Error, ErrorKind};
use crate::migrate::{FUNCTIONS_VERSION, Plan};
use crate::sql::{Dialect, Value, as_json, statements};

/// The checksum of a migration that has begun.
const BEGUN: &str = "begun";

pub(super) async fn deploy(mut connection: Connection, plan: Plan) -> Result<(), Error> {
    let locked: Option<Option<i64>> = one(&mut connection, &plan.create_schema).await?;
    if locked.flatten() != Some(1) {
        return Err(ErrorKind::Transient.with("somebody else is deploying; try again"));
    }
    run(&mut connection, &plan.create_versions).await?;
    let recorded = recorded(&mut connection, &plan)
        .await
        .map_err(|error| database_error(&error))?;
    let begun: Vec<i64> = recorded
        .iter()
        .filter(|(_, checksum)| checksum == BEGUN)
        .map(|(version, _)| *version)
        .collect();
    let mut applied = finished(recorded);
    if views_are_lost(&mut connection, &plan).await? {
        applied.retain(|(version, _)| *version != FUNCTIONS_VERSION);
    }
    for (version, name, checksum, sql) in plan.missing(&applied)? {
        if version != FUNCTIONS_VERSION {
            record(&mut connection, &plan, version, name, BEGUN).await?;
        }
        for statement in statements(sql) {
            match connection.control(statement).await {
                Err(error) if begun.contains(&version) && exists_already(&error) => {}
                result => result.map_err(|error| database_error(&error))?,
            }
        }
        record(&mut connection, &plan, version, name, &checksum).await?;
        if version != FUNCTIONS_VERSION {
            tracing::info!(version, name, "applied schema migration");
        }
    }
    // The lock goes with the connection, which is closed here.
    Ok(())
}

/// What was applied to its end, `None` when there is no schema.
pub(super) async fn applied(
    connection: &mut Connection,
    plan: &Plan,
) -> Result<Option<Applied>, Error> {
    let recorded = recorded(connection, plan).await;
    unless_missing(
        recorded
            .map(finished)
            .map_err(|error| database_error(&error)),
    )
}

fn finished(recorded: Applied) -> Applied {
    let finished = recorded.into_iter();
    finished.filter(|(_, checksum)| checksum != BEGUN).collect()
}

async fn recorded(connection: &mut Connection, plan: &Plan) -> mysql_async::Result<Applied> {
    connection.rows(&plan.select_versions).await
}

async fn record(
    connection: &mut Connection,
    plan: &Plan,
    version: i64,
    name: &str,
    checksum: &str,
) -> Result<(), Error> {
    let record = plan.record_line(Dialect::MySql, version, name, checksum);
    run(connection, &record).await
}

async fn views_are_lost(connection: &mut Connection, plan: &Plan) -> Result<bool, Error> {
    let names = plan.replaceable().into_iter();
    let names = names.map(|name| Some(name.trim_matches('`').to_owned()));
    let names = as_json(&Value::Texts(names.collect())).unwrap_or_default();
    let lost =
        include_str!("../../sql/mysql/migrations/lost.sql").replace("?1", &format!("'{names}'"));
    let lost: Option<String> = one(connection, &lost).await?;
    Ok(lost.is_some())
}

async fn one<T: FromRow + Send + 'static>(
    connection: &mut Connection,
    sql: &str,
) -> Result<Option<T>, Error> {
    let rows = connection.rows(sql).await;
    let rows = rows.map_err(|error| database_error(&error))?;
    Ok(rows.into_iter().next())
}

async fn run(connection: &mut Connection, sql: &str) -> Result<(), Error> {
    let result = connection.control(sql).await;
    result.map_err(|error| database_error(&error))
}
