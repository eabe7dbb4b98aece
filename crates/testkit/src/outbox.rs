//! Short cuts for tests that put messages into the outbox and look at its rows.

use std::time::Duration;

use mysql_async::prelude::Queryable;
use postroom::{Message, OwnerToken, WorkItemId};
use uuid::Uuid;

use crate::look::MYSQL_CLOCK;
use crate::{Backend, Fixture, sqlserver};

/// Long enough that no lease of a test expires by accident.
pub const LEASE: Duration = Duration::from_secs(300);

impl Fixture {
    /// Enqueues so many messages, one after the other, and gives their ids, oldest first.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn enqueue(&self, count: usize) -> Vec<WorkItemId> {
        let mut ids = Vec::with_capacity(count);
        for number in 0..count {
            let message = Message::new("order.created", number.to_string());
            let receipt = self.room.outbox().enqueue(&message).await;
            ids.push(receipt.expect("enqueue").work_item_id);
        }
        ids
    }

    /// Claims up to so many messages for a fresh owner.
    ///
    /// # Panics
    /// When the store refuses.
    pub async fn claim(&self, batch: usize) -> (OwnerToken, Vec<WorkItemId>) {
        let owner = OwnerToken::new();
        let claimed = self.room.outbox().claim(owner, LEASE, batch).await;
        let ids = claimed
            .expect("claim")
            .iter()
            .map(|message| message.id)
            .collect();
        (owner, ids)
    }

    /// Enqueues one message and claims it.
    ///
    /// # Panics
    /// When the store refuses, or gives another message.
    pub async fn enqueue_and_claim(&self) -> (OwnerToken, WorkItemId) {
        let id = self.enqueue(1).await[0];
        let (owner, claimed) = self.claim(1).await;
        assert_eq!(claimed, [id]);
        (owner, id)
    }

    /// How many rows a table has.
    pub async fn rows(&self, table: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM {{{table}}}"))
            .await
    }

    /// How many live messages meet a condition in SQL.
    pub async fn live(&self, condition: &str) -> i64 {
        self.number(&format!(
            "SELECT count(*) FROM {{outbox}} WHERE {condition}"
        ))
        .await
    }

    /// An identifier as SQL must write it.
    #[must_use]
    pub fn literal(&self, id: impl Into<Uuid>) -> String {
        let id: Uuid = id.into();
        match self.backend {
            Backend::Sqlite | Backend::MySql => format!("x'{}'", id.simple()),
            Backend::Postgres => format!("'{id}'::uuid"),
            Backend::SqlServer => format!("'{id}'"),
        }
    }

    /// A time column as microseconds since 1970, in SQL.
    #[must_use]
    pub fn micros(&self, column: &str) -> String {
        match self.backend {
            Backend::Sqlite | Backend::MySql => column.to_owned(),
            Backend::Postgres => format!("CAST(extract(epoch FROM {column}) * 1000000 AS bigint)"),
            Backend::SqlServer => format!("DATEDIFF_BIG(MICROSECOND, '19700101', {column})"),
        }
    }

    /// So many microseconds since 1970 as a value of a time column, in SQL.
    #[must_use]
    pub fn time(&self, micros: i64) -> String {
        match self.backend {
            Backend::Sqlite | Backend::MySql => micros.to_string(),
            Backend::Postgres => {
                format!("('epoch'::timestamptz + {micros} * interval '1 microsecond')")
            }
            Backend::SqlServer => sqlserver::time(micros),
        }
    }

    /// The database's clock, in microseconds since 1970.
    pub async fn clock(&self) -> i64 {
        self.number(match self.backend {
            Backend::Sqlite => "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000",
            Backend::Postgres => {
                "SELECT CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
            }
            Backend::MySql => MYSQL_CLOCK,
            Backend::SqlServer => sqlserver::NOW,
        })
        .await
    }

    /// What a time column of a message holds, in microseconds since 1970. `table` is `outbox`,
    /// `outbox_done` or `outbox_dead`.
    pub async fn time_of(&self, table: &str, column: &str, id: WorkItemId) -> i64 {
        let (column, id) = (self.micros(column), self.literal(id));
        self.number(&format!("SELECT {column} FROM {{{table}}} WHERE id = {id}"))
            .await
    }

    /// Whether the database refuses a statement.
    pub async fn refuses(&self, sql: &str) -> bool {
        let sql = self.fill(sql);
        match self.backend {
            Backend::Sqlite => self.sqlite().execute_batch(&sql).is_err(),
            Backend::Postgres => self.postgres().await.batch_execute(&sql).await.is_err(),
            Backend::MySql => self.mysql().await.query_drop(sql).await.is_err(),
            Backend::SqlServer => sqlserver::run(&self.url, &sql).await.is_err(),
        }
    }

    /// How the database would run a query, when it prefers indexes.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn query_plan(&self, query: &str) -> String {
        let query = self.fill(query);
        match self.backend {
            Backend::Sqlite => {
                let connection = self.sqlite();
                let mut statement = connection
                    .prepare(&format!("EXPLAIN QUERY PLAN {query}"))
                    .expect("sql");
                let rows = statement
                    .query_map([], |row| row.get::<_, String>(3))
                    .expect("sql");
                rows.collect::<Result<Vec<_>, _>>()
                    .expect("text")
                    .join("\n")
            }
            Backend::Postgres => {
                let client = self.postgres().await;
                client
                    .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
                    .await
                    .expect("sql");
                let rows = client
                    .query(&format!("EXPLAIN {query}"), &[])
                    .await
                    .expect("sql");
                rows.iter()
                    .map(|row| row.get::<_, String>(0))
                    .collect::<Vec<_>>()
                    .join("\n")
            }
            Backend::MySql => {
                let mut connection = self.mysql().await;
                // The table: as JSON one server names only the sorts that there are, the other each that is not.
                let rows: Vec<mysql_async::Row> = connection
                    .query(format!("EXPLAIN FORMAT=TRADITIONAL {query}"))
                    .await
                    .expect("sql");
                let line = |row: &mysql_async::Row| {
                    ["table", "type", "key", "Extra"]
                        .map(|column| row.get::<Option<String>, _>(column).flatten())
                        .map(Option::unwrap_or_default)
                        .join(" | ")
                };
                rows.iter().map(line).collect::<Vec<_>>().join("\n")
            }
            Backend::SqlServer => sqlserver::plan(&self.url, &query).await,
        }
    }

    /// Moves the time at which settled messages were settled. `table` is `outbox_done` or
    /// `outbox_dead`.
    pub async fn settled_at(&self, table: &str, id: WorkItemId, micros: i64) {
        let (time, id) = (self.time(micros), self.literal(id));
        self.sql(&format!(
            "UPDATE {{{table}}} SET processed_at = {time} WHERE id = {id}"
        ))
        .await;
    }
}

/// Durations as the database counts them.
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
