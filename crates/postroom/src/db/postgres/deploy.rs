//! Schema deployment: one transaction, on a connection of its own.

use deadpool_postgres::Object;
use tokio_postgres::types::Type;

use super::errors::database_error;
use crate::db::{Applied, unless_missing};
use crate::error::Error;
use crate::migrate::{FUNCTIONS_VERSION, Plan};

pub(super) async fn deploy(mut connection: Object, plan: &Plan) -> Result<(), Error> {
    let transaction = connection
        .transaction()
        .await
        .map_err(|error| database_error(&error))?;
    transaction
        .batch_execute(&format!("{}{}", plan.create_schema, plan.create_versions))
        .await
        .map_err(|error| database_error(&error))?;
    // Statements without a name: they work behind a pooler too.
    let rows = transaction
        .query_typed(&plan.select_versions, &[])
        .await
        .map_err(|error| database_error(&error))?;
    let mut applied: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let lost = include_str!("../../sql/postgres/migrations/lost.sql");
    let lost = transaction
        .query_typed(lost, &[(&plan.replaceable(), Type::TEXT_ARRAY)])
        .await
        .map_err(|error| database_error(&error))?;
    if !lost.is_empty() {
        applied.retain(|(version, _)| *version != FUNCTIONS_VERSION);
    }
    for (version, name, checksum, sql) in plan.missing(&applied)? {
        transaction
            .batch_execute(sql)
            .await
            .map_err(|error| database_error(&error))?;
        transaction
            .query_typed(
                &plan.record_version,
                &[
                    (&version, Type::INT8),
                    (&name, Type::TEXT),
                    (&checksum, Type::TEXT),
                ],
            )
            .await
            .map_err(|error| database_error(&error))?;
        if version != FUNCTIONS_VERSION {
            tracing::info!(version, name, "applied schema migration");
        }
    }
    transaction
        .commit()
        .await
        .map_err(|error| database_error(&error))
}

pub(super) async fn applied(connection: &Object, plan: &Plan) -> Result<Option<Applied>, Error> {
    let rows = connection.query_typed(&plan.select_versions, &[]).await;
    let applied = rows.map(|rows| rows.iter().map(|row| (row.get(0), row.get(1))).collect());
    unless_missing(applied.map_err(|error| database_error(&error)))
}
