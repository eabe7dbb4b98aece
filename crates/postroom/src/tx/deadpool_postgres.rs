//! deadpool-postgres: `Transaction`, which remembers prepared statements.

use deadpool_postgres::Transaction;
use tokio_postgres::types::ToSql;

use crate::db::postgres::database_error;
use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

impl Executor for Transaction<'_> {
    type Error = Error;

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        let values: Vec<&(dyn ToSql + Sync)> =
            statement.values.iter().map(|value| value as _).collect();
        let run = async {
            let prepared = self.prepare_cached(&statement.sql).await?;
            (**self).execute(&prepared, &values).await
        };
        run.await.map_err(|error| database_error(&error))
    }
}
