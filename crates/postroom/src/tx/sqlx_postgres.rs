//! sqlx on PostgreSQL: `Transaction<'_, Postgres>` and `PgConnection`.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::sql::{Dialect, Statement, Value};
use crate::tx::Executor;
use crate::tx::sqlx::transaction_of;

transaction_of!(Postgres);

impl Executor for PgConnection {
    type Error = sqlx::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
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
                Value::Ints(values) => query.bind(values),
                Value::Texts(values) => query.bind(values),
                Value::Uuids(values) => query.bind(values),
            });
        Ok(query.execute(self).await?.rows_affected())
    }
}
