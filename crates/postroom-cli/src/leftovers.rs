//! What the demo and the bench leave in a database, and how it goes away again: a schema, or where there
//! are none, the tables under a prefix. Both have names that nobody else has.

use anyhow::Context;
use mysql_async::prelude::Queryable;

/// Drops a PostgreSQL schema with all that is in it.
pub(crate) async fn drop_schema(
    client: &tokio_postgres::Client,
    schema: &str,
) -> anyhow::Result<()> {
    client
        .batch_execute(&format!(
            "SET client_min_messages = warning; DROP SCHEMA IF EXISTS \"{schema}\" CASCADE"
        ))
        .await
        .with_context(|| format!("the schema `{schema}` could not be dropped; drop it by hand"))
}

/// Drops the MySQL tables and views whose names begin with a prefix and an underscore.
pub(crate) async fn drop_tables(
    connection: &mut mysql_async::Conn,
    prefix: &str,
) -> anyhow::Result<()> {
    const FOUND: &str = "SELECT table_name, table_type FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND LEFT(table_name, CHAR_LENGTH(?) + 1) = CONCAT(?, '_')";
    let dropped = async {
        let tables: Vec<(String, String)> = connection.exec(FOUND, (prefix, prefix)).await?;
        connection.query_drop("SET foreign_key_checks = 0").await?;
        for (name, kind) in tables {
            let kind = if kind == "VIEW" { "VIEW" } else { "TABLE" };
            connection
                .query_drop(format!("DROP {kind} `{name}`"))
                .await?;
        }
        connection.query_drop("SET foreign_key_checks = 1").await
    };
    dropped
        .await
        .with_context(|| format!("the tables `{prefix}_…` could not be dropped; drop them by hand"))
}
