//! A look behind the store: its clock, its columns and indexes, and what happens when the database
//! refuses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mysql_async::prelude::Queryable;

use crate::{Backend, Fixture, sqlserver};

/// MySQL's clock, in microseconds since 1970.
pub(crate) const MYSQL_CLOCK: &str =
    "SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))";

impl Fixture {
    /// The database's clock.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn now(&self) -> SystemTime {
        let micros = self
            .number(match self.backend {
                Backend::Sqlite => {
                    "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000"
                }
                Backend::Postgres => {
                    "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
                }
                Backend::MySql => MYSQL_CLOCK,
                Backend::SqlServer => sqlserver::NOW,
            })
            .await;
        UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
    }

    /// Makes a time in every row of a table lie further in the past: a test need not wait.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn age(&self, table: &str, column: &str, by: Duration) {
        let micros = by.as_micros();
        self.sql(&match self.backend {
            Backend::Sqlite | Backend::MySql => {
                format!("UPDATE {{{table}}} SET {column} = {column} - {micros}")
            }
            Backend::Postgres => format!(
                "UPDATE {{{table}}} SET {column} = {column} - {micros} * interval '1 microsecond'"
            ),
            Backend::SqlServer => format!(
                "UPDATE {{{table}}} SET {column} = DATEADD(SECOND, -{}, {column})",
                by.as_secs()
            ),
        })
        .await;
    }

    /// Makes the database refuse every write of this kind (`INSERT`, `UPDATE` or `DELETE`) to a table.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn refuse(&self, operation: &str, table: &str) {
        let name = format!("refuse_{}", operation.to_lowercase());
        self.sql(&match self.backend {
            Backend::Sqlite => format!(
                "CREATE TRIGGER {name} BEFORE {operation} ON {{{table}}} \
                 BEGIN SELECT RAISE(ABORT, 'refused'); END"
            ),
            Backend::Postgres => format!(
                "CREATE FUNCTION {{{name}}}() RETURNS trigger LANGUAGE plpgsql \
                 AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
                 CREATE TRIGGER {name} BEFORE {operation} ON {{{table}}} \
                 FOR EACH ROW EXECUTE FUNCTION {{{name}}}()"
            ),
            Backend::MySql => format!(
                "CREATE TRIGGER {name} BEFORE {operation} ON {{{table}}} \
                 FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'"
            ),
            Backend::SqlServer => {
                sqlserver::refuse(self.schema.as_deref().unwrap_or_default(), operation, table)
            }
        })
        .await;
    }

    /// Undoes [`Fixture::refuse`].
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn allow(&self, operation: &str) {
        let name = format!("refuse_{}", operation.to_lowercase());
        self.sql(&match self.backend {
            Backend::Sqlite | Backend::MySql => format!("DROP TRIGGER {name}"),
            Backend::Postgres => format!("DROP FUNCTION {{{name}}}() CASCADE"),
            Backend::SqlServer => format!(
                "DROP TRIGGER [{}].[{name}]",
                self.schema.as_deref().unwrap_or_default()
            ),
        })
        .await;
    }

    /// The columns of a table, in order.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn columns(&self, table: &str) -> Vec<String> {
        self.texts(&match (self.backend, &self.schema) {
            (Backend::Sqlite, _) => format!("SELECT name FROM pragma_table_info('{table}') ORDER BY cid"),
            (Backend::SqlServer, Some(schema)) => sqlserver::columns(schema, table),
            (_, Some(schema)) => format!(
                "SELECT column_name::text FROM information_schema.columns \
                 WHERE table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position"
            ),
            (_, None) => format!(
                "SELECT column_name FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name = '{table}' ORDER BY ordinal_position"
            ),
        })
        .await
    }

    /// The indexes of a table, each as its columns: `a, b`.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn indexes(&self, table: &str) -> Vec<String> {
        self.texts(&match (self.backend, &self.schema) {
            (Backend::Sqlite, _) => format!(
                "SELECT (SELECT group_concat(name, ', ') FROM pragma_index_info(list.name)) \
                 FROM pragma_index_list('{table}') AS list"
            ),
            (Backend::SqlServer, Some(schema)) => sqlserver::indexes(schema, table),
            (_, Some(schema)) => format!(
                "SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) \
                 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indexrelid \
                 WHERE i.indrelid = '\"{schema}\".\"{table}\"'::regclass GROUP BY i.indexrelid"
            ),
            (_, None) => format!(
                "SELECT GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ') \
                 FROM information_schema.statistics \
                 WHERE table_schema = DATABASE() AND table_name = '{table}' GROUP BY index_name"
            ),
        })
        .await
    }

    /// The tables that a table's foreign keys refer to.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn references(&self, table: &str) -> Vec<String> {
        self.texts(&match (self.backend, &self.schema) {
            (Backend::Sqlite, _) => format!("SELECT \"table\" FROM pragma_foreign_key_list('{table}')"),
            (Backend::SqlServer, Some(schema)) => sqlserver::references(schema, table),
            (_, Some(schema)) => format!(
                "SELECT c.relname::text FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.confrelid \
                 WHERE k.contype = 'f' AND k.conrelid = '\"{schema}\".\"{table}\"'::regclass"
            ),
            (_, None) => format!(
                "SELECT referenced_table_name FROM information_schema.referential_constraints \
                 WHERE constraint_schema = DATABASE() AND table_name = '{table}'"
            ),
        })
        .await
    }

    /// The tables of the store, by name.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn tables(&self) -> Vec<String> {
        self.texts(&match (self.backend, &self.schema) {
            (Backend::Sqlite, _) => "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name".to_owned(),
            (Backend::SqlServer, Some(schema)) => sqlserver::tables(schema),
            (_, Some(schema)) => format!(
                "SELECT tablename::text FROM pg_tables WHERE schemaname = '{schema}' ORDER BY tablename"
            ),
            (_, None) => "SELECT table_name FROM information_schema.tables \
                 WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY table_name"
                .to_owned(),
        })
        .await
    }

    /// One column of text from SQL behind the store's back. `{name}` stands for a table.
    ///
    /// # Panics
    /// When the database refuses or a value is no text.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        let sql = self.fill(sql);
        match self.backend {
            Backend::Sqlite => {
                let connection = self.sqlite();
                let mut statement = connection.prepare(&sql).expect("sql");
                let rows = statement.query_map([], |row| row.get(0)).expect("sql");
                rows.collect::<Result<_, _>>().expect("text")
            }
            Backend::Postgres => {
                let rows = self.postgres().await.query(&sql, &[]).await.expect("sql");
                rows.iter().map(|row| row.get(0)).collect()
            }
            Backend::MySql => self.mysql().await.query(sql).await.expect("text"),
            Backend::SqlServer => sqlserver::texts(&self.url, &sql).await,
        }
    }
}
