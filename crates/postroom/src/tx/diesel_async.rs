//! diesel-async on PostgreSQL: `AsyncPgConnection`.

use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::sql::{Dialect, Statement};
use crate::tx::Executor;
use crate::tx::diesel::postgres::query;

impl Executor for AsyncPgConnection {
    type Error = diesel::result::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn execute(&mut self, statement: Statement) -> QueryResult<u64> {
        Ok(RunQueryDsl::execute(query(statement), self).await? as u64)
    }
}
