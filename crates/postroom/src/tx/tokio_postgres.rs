//! tokio-postgres: `Transaction` and `Client`. Its error type cannot be made by others, so ours is used.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Transaction};

use crate::db::postgres::database_error;
use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

macro_rules! executor {
    ($client:ty) => {
        impl Executor for $client {
            type Error = Error;

            fn dialect(&self) -> Dialect {
                Dialect::Postgres
            }

            async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
                let values: Vec<&(dyn ToSql + Sync)> =
                    statement.values.iter().map(|value| value as _).collect();
                <$client>::execute(self, &*statement.sql, &values)
                    .await
                    .map_err(|error| database_error(&error))
            }
        }
    };
}

executor!(Transaction<'_>);
executor!(Client);
