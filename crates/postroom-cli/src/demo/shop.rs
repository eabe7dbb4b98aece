//! The demo's application: a shop with tables of orders, parcels and payments, and connections that
//! are its own.

use std::path::Path;

use anyhow::Context;
use postroom::{Message, Postroom, tx};

/// The shop's own connection to the database that the store is in.
pub(super) enum Shop {
    Sqlite {
        connection: rusqlite::Connection,
        prefix: String,
    },
    Postgres {
        client: Box<tokio_postgres::Client>,
        schema: String,
    },
}

/// What the customer's bank said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Payment {
    Accepted,
    Declined,
}

impl Shop {
    /// Opens a shop in an SQLite file.
    pub(super) fn sqlite(file: &Path, prefix: Option<&str>) -> anyhow::Result<Self> {
        let connection =
            rusqlite::Connection::open(file).context("the shop cannot open its file")?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        let prefix = prefix
            .map(|prefix| format!("{prefix}_"))
            .unwrap_or_default();
        connection.execute_batch(&format!(
            "CREATE TABLE \"{prefix}orders\" (id INTEGER PRIMARY KEY, item TEXT NOT NULL);
             CREATE TABLE \"{prefix}parcels\" (order_id INTEGER NOT NULL);
             CREATE TABLE \"{prefix}payments\" (order_id INTEGER NOT NULL)"
        ))?;
        Ok(Self::Sqlite { connection, prefix })
    }

    /// Opens a shop in a PostgreSQL schema that exists.
    pub(super) async fn postgres(url: &str, schema: &str) -> anyhow::Result<Self> {
        let client = crate::postgres::connect(url)
            .await
            .context("the shop cannot connect to PostgreSQL")?;
        client
            .batch_execute(&format!(
                "CREATE TABLE \"{schema}\".orders (id bigint PRIMARY KEY, item text NOT NULL);
                 CREATE TABLE \"{schema}\".parcels (order_id bigint NOT NULL);
                 CREATE TABLE \"{schema}\".payments (order_id bigint NOT NULL)"
            ))
            .await
            .context("the shop cannot create its tables")?;
        Ok(Self::Postgres {
            client: Box::new(client),
            schema: schema.to_owned(),
        })
    }

    /// Places an order: the row and its message in one transaction of the shop's own, which is rolled
    /// back when the bank declines.
    pub(super) async fn place(
        &mut self,
        room: &Postroom,
        id: i64,
        payment: Payment,
    ) -> anyhow::Result<()> {
        let item = ["lamp", "chair", "kettle", "clock"][usize::try_from(id)? % 4];
        let message = Message::new(
            "order.placed",
            format!(r#"{{"order":{id},"item":"{item}"}}"#),
        )
        .correlation(id);
        match self {
            Self::Sqlite { connection, prefix } => {
                let mut transaction = connection.transaction()?;
                transaction.execute(
                    &format!("INSERT INTO \"{prefix}orders\" (id, item) VALUES (?1, ?2)"),
                    rusqlite::params![id, item],
                )?;
                tx::now(room.outbox().enqueue_in(&mut transaction, &message))?;
                match payment {
                    Payment::Accepted => transaction.commit()?,
                    Payment::Declined => transaction.rollback()?,
                }
            }
            Self::Postgres { client, schema } => {
                let mut transaction = client.transaction().await?;
                transaction
                    .execute(
                        &format!("INSERT INTO \"{schema}\".orders (id, item) VALUES ($1, $2)"),
                        &[&id, &item],
                    )
                    .await?;
                room.outbox().enqueue_in(&mut transaction, &message).await?;
                match payment {
                    Payment::Accepted => transaction.commit().await?,
                    Payment::Declined => transaction.rollback().await?,
                }
            }
        }
        Ok(())
    }

    /// The ids of all orders, in order.
    pub(super) async fn orders(&self) -> anyhow::Result<Vec<i64>> {
        self.numbers("id", "orders").await
    }

    /// The orders that parcels were booked for, in order: one that was booked twice is there twice.
    pub(super) async fn parcels(&self) -> anyhow::Result<Vec<i64>> {
        self.numbers("order_id", "parcels").await
    }

    /// The orders whose payment was booked, in order: one that was booked twice is there twice.
    pub(super) async fn payments(&self) -> anyhow::Result<Vec<i64>> {
        self.numbers("order_id", "payments").await
    }

    /// The statement that books something for an order: in `parcels` or in `payments`.
    pub(super) fn book(&self, table: &str) -> String {
        match self {
            Self::Sqlite { prefix, .. } => {
                format!("INSERT INTO \"{prefix}{table}\" (order_id) VALUES (?1)")
            }
            Self::Postgres { schema, .. } => {
                format!("INSERT INTO \"{schema}\".{table} (order_id) VALUES ($1)")
            }
        }
    }

    async fn numbers(&self, column: &str, table: &str) -> anyhow::Result<Vec<i64>> {
        Ok(match self {
            Self::Sqlite { connection, prefix } => {
                let mut statement = connection.prepare(&format!(
                    "SELECT {column} FROM \"{prefix}{table}\" ORDER BY {column}"
                ))?;
                let numbers = statement.query_map([], |row| row.get(0))?;
                numbers.collect::<Result<_, _>>()?
            }
            Self::Postgres { client, schema } => {
                let sql = format!("SELECT {column} FROM \"{schema}\".{table} ORDER BY {column}");
                let rows = client.query(&sql, &[]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
        })
    }

    /// Drops the demo's schema, which nobody else uses. An SQLite file is left to its owner.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        if let Self::Postgres { client, schema } = self {
            client
                .batch_execute(&format!(
                    "SET client_min_messages = warning; DROP SCHEMA \"{schema}\" CASCADE"
                ))
                .await
                .with_context(|| format!("the demo's schema `{schema}` could not be dropped"))?;
        }
        Ok(())
    }
}
