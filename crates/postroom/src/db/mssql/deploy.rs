//! Schema deployment: one transaction under a lock, on a connection of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use tiberius::error::Error as ClientError;

use super::connect::Connection;
use super::errors::database_error;
use super::place::Place;
use crate::db::{Applied, unless_missing};
use crate::error::{Error, ErrorKind};
use crate::migrate::{FUNCTIONS_VERSION, Plan};
use crate::sql::{Row, Script, Value};

/// A connection of its own: whatever becomes of this future, what was not committed goes with it.
pub(super) async fn deploy(place: &Place, plan: &Plan) -> Result<(), Error> {
    let failed = |error: ClientError| database_error(&error);
    let mut connection = Connection::open(place, true).await.map_err(failed)?;
    connection
        .batch("BEGIN TRANSACTION")
        .await
        .map_err(failed)?;
    let lock = include_str!("../../sql/mssql/migrations/lock.sql");
    let table = names(&plan.select_versions).concat();
    connection
        .query(lock, &[format!("postroom {table}").into()])
        .await
        .map_err(failed)?;
    let start = format!("{}{}", plan.create_schema, plan.create_versions);
    for batch in batches(&start) {
        connection.batch(batch).await.map_err(failed)?;
    }
    let mut applied = versions(&mut connection, plan).await?;
    if !lost(&mut connection, plan.replaceable()).await?.is_empty() {
        applied.retain(|(version, _)| *version != FUNCTIONS_VERSION);
    }
    for (version, name, checksum, sql) in plan.missing(&applied)? {
        for batch in batches(sql) {
            connection.batch(batch).await.map_err(failed)?;
        }
        for batch in batches(&plan.record_version) {
            let values = [version.into(), name.into(), checksum.as_str().into()];
            connection.query(batch, &values).await.map_err(failed)?;
        }
        if version != FUNCTIONS_VERSION {
            tracing::info!(version, name, "applied schema migration");
        }
    }
    connection.batch("COMMIT TRANSACTION").await.map_err(failed)
}

/// The versions that were applied, `None` when there is no schema.
pub(super) async fn applied(
    connection: &mut Connection,
    plan: &Plan,
) -> Result<Option<Applied>, Error> {
    unless_missing(versions(connection, plan).await)
}

async fn versions(connection: &mut Connection, plan: &Plan) -> Result<Applied, Error> {
    let output = connection
        .query(&plan.select_versions, &[])
        .await
        .map_err(|error| database_error(&error))?;
    let read = |mut row: Row| Ok((row.int()?, row.text()?));
    output.rows.into_iter().map(read).collect()
}

/// Fails when a table or procedure that the scripts name is not there. Columns are looked for with the tables.
pub(super) async fn check_names(
    connection: &mut Connection,
    scripts: &[Arc<Script>],
) -> Result<(), Error> {
    let texts = scripts.iter().flat_map(|script| &script.parts);
    let names: BTreeSet<&str> = texts.flat_map(|part| names(&part.sql)).collect();
    match lost(connection, names.into_iter().collect()).await?.first() {
        None => Ok(()),
        Some(name) => Err(ErrorKind::Schema.with(format!(
            "{name} is missing; run `deploy()` or `postroom schema deploy`"
        ))),
    }
}

async fn lost(connection: &mut Connection, names: Vec<&str>) -> Result<Vec<String>, Error> {
    let names = names.into_iter().map(|name| Some(name.to_owned()));
    let output = connection
        .query(
            include_str!("../../sql/mssql/migrations/lost.sql"),
            &[Value::Texts(names.collect())],
        )
        .await
        .map_err(|error| database_error(&error))?;
    let rows = output.rows.into_iter();
    rows.map(|mut row| row.text()).collect()
}

/// What is sent at once: a procedure must be alone in its batch.
fn batches(script: &str) -> impl Iterator<Item = &str> {
    script
        .split("\nGO\n")
        .map(|batch| batch.trim().trim_end_matches("\nGO"))
        .filter(|batch| !batch.is_empty() && *batch != "GO")
}

/// The names of two parts in a statement of ours: `[schema].[name]`.
fn names(sql: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (middle, _) in sql.match_indices("].[") {
        let start = sql[..middle].rfind('[');
        let end = sql[middle + 3..].find(']').map(|end| middle + 3 + end + 1);
        if let (Some(start), Some(end)) = (start, end) {
            names.push(&sql[start..end]);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_sent_batch_by_batch() {
        let script = "SET A ON;\nGO\n-- b\nALTER PROCEDURE b AS\nRETURN 0;\nGO\n";
        let batches: Vec<&str> = batches(script).collect();
        assert_eq!(
            batches,
            ["SET A ON;", "-- b\nALTER PROCEDURE b AS\nRETURN 0;"]
        );
    }

    #[test]
    fn names_of_two_parts_are_found() {
        let sql = "EXEC [infra].[Outbox_Ack] @P1; SELECT [value] FROM [infra].[Outbox] AS q WITH (INDEX ([IX]))";
        assert_eq!(names(sql), ["[infra].[Outbox_Ack]", "[infra].[Outbox]"]);
    }
}
