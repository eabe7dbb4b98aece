//! The demo's application: a shop with tables of orders, parcels and payments, and connections that
//! are its own.

use std::path::Path;

use anyhow::Context;
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use postroom::{Message, Postroom, client, tx};

use crate::leftovers;

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
    MySql {
        connection: mysql_async::Conn,
        prefix: String,
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
        let client = client::postgres(url)
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

    /// Opens a shop in a MySQL database, under a prefix of its own.
    pub(super) async fn mysql(url: &str, prefix: &str) -> anyhow::Result<Self> {
        let mut connection = client::mysql(url)
            .await
            .context("the shop cannot connect to MySQL")?;
        for table in [
            "orders` (id BIGINT PRIMARY KEY, item VARCHAR(100) NOT NULL)",
            "parcels` (order_id BIGINT NOT NULL)",
            "payments` (order_id BIGINT NOT NULL)",
        ] {
            connection
                .query_drop(format!("CREATE TABLE `{prefix}_{table}"))
                .await
                .context("the shop cannot create its tables")?;
        }
        Ok(Self::MySql {
            connection,
            prefix: prefix.to_owned(),
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
        let orders = self.table("orders");
        match self {
            Self::Sqlite { connection, .. } => {
                let mut transaction = connection.transaction()?;
                transaction.execute(
                    &format!("INSERT INTO {orders} (id, item) VALUES (?1, ?2)"),
                    rusqlite::params![id, item],
                )?;
                tx::now(room.outbox().enqueue_in(&mut transaction, &message))?;
                match payment {
                    Payment::Accepted => transaction.commit()?,
                    Payment::Declined => transaction.rollback()?,
                }
            }
            Self::MySql { connection, .. } => {
                let mut transaction = connection.start_transaction(TxOpts::default()).await?;
                transaction
                    .exec_drop(
                        format!("INSERT INTO {orders} (id, item) VALUES (?, ?)"),
                        (id, item),
                    )
                    .await?;
                room.outbox().enqueue_in(&mut transaction, &message).await?;
                match payment {
                    Payment::Accepted => transaction.commit().await?,
                    Payment::Declined => transaction.rollback().await?,
                }
            }
            Self::Postgres { client, .. } => {
                let mut transaction = client.transaction().await?;
                transaction
                    .execute(
                        &format!("INSERT INTO {orders} (id, item) VALUES ($1, $2)"),
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
    pub(super) async fn orders(&mut self) -> anyhow::Result<Vec<i64>> {
        self.numbers("id", "orders").await
    }

    /// The orders that parcels were booked for, in order: one that was booked twice is there twice.
    pub(super) async fn parcels(&mut self) -> anyhow::Result<Vec<i64>> {
        self.numbers("order_id", "parcels").await
    }

    /// The orders whose payment was booked, in order: one that was booked twice is there twice.
    pub(super) async fn payments(&mut self) -> anyhow::Result<Vec<i64>> {
        self.numbers("order_id", "payments").await
    }

    /// The statement that books something for an order: in `parcels` or in `payments`.
    pub(super) fn book(&self, table: &str) -> String {
        let first = match self {
            Self::Sqlite { .. } => "?1",
            Self::Postgres { .. } => "$1",
            Self::MySql { .. } => "?",
        };
        let table = self.table(table);
        format!("INSERT INTO {table} (order_id) VALUES ({first})")
    }

    /// A table of the shop's, as SQL has its name.
    fn table(&self, name: &str) -> String {
        match self {
            Self::Sqlite { prefix, .. } => format!("\"{prefix}{name}\""),
            Self::Postgres { schema, .. } => format!("\"{schema}\".{name}"),
            Self::MySql { prefix, .. } => format!("`{prefix}_{name}`"),
        }
    }

    async fn numbers(&mut self, column: &str, table: &str) -> anyhow::Result<Vec<i64>> {
        let table = self.table(table);
        let sql = format!("SELECT {column} FROM {table} ORDER BY {column}");
        Ok(match self {
            Self::Sqlite { connection, .. } => {
                let mut statement = connection.prepare(&sql)?;
                let numbers = statement.query_map([], |row| row.get(0))?;
                numbers.collect::<Result<_, _>>()?
            }
            Self::Postgres { client, .. } => {
                let rows = client.query(&sql, &[]).await?;
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::MySql { connection, .. } => connection.query(sql).await?,
        })
    }

    /// Drops what nobody else uses: the demo's schema, or the tables under its prefix. An SQLite file is left
    /// to its owner.
    pub(super) async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite { .. } => Ok(()),
            Self::Postgres { client, schema } => leftovers::drop_schema(&client, &schema).await,
            Self::MySql {
                mut connection,
                prefix,
            } => leftovers::drop_tables(&mut connection, &prefix).await,
        }
    }
}
