//! sqlx on MySQL: `Transaction<'_, MySql>` and `MySqlConnection`.

use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::sql::{Dialect, Statement, Value, as_json};
use crate::tx::Executor;
use crate::tx::sqlx::transaction_of;

transaction_of!(MySql);

impl Executor for MySqlConnection {
    type Error = sqlx::Error;

    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn execute(&mut self, statement: Statement) -> sqlx::Result<u64> {
        // Some statements cannot be prepared, SAVEPOINT among them. None of them has values.
        if statement.values.is_empty() {
            let text = sqlx::raw_sql(AssertSqlSafe(statement.sql));
            return Ok(text.execute(self).await?.rows_affected());
        }
        let query = sqlx::query(AssertSqlSafe(statement.sql));
        let query = statement
            .values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Int(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
                Value::Bytes(value) => query.bind(value),
                Value::Uuid(value) => query.bind(value.map(|uuid| uuid.as_bytes().to_vec())),
                Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => query.bind(as_json(&value)),
            });
        Ok(query.execute(self).await?.rows_affected())
    }
}
