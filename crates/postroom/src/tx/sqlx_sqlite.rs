//! sqlx on SQLite: `Transaction<'_, Sqlite>` and `SqliteConnection`.

use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::sql::{Dialect, Statement, Value, as_json};
use crate::tx::Executor;
use crate::tx::sqlx::transaction_of;

transaction_of!(Sqlite);

impl Executor for SqliteConnection {
    type Error = sqlx::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn execute(&mut self, statement: Statement) -> sqlx::Result<u64> {
        let query = sqlx::query(AssertSqlSafe(statement.sql));
        let query = statement
            .values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Int(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
                Value::Uuid(value) => query.bind(value),
                Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => query.bind(as_json(&value)),
            });
        Ok(query.execute(self).await?.rows_affected())
    }
}
