//! tiberius on SQL Server: `Client`, with a transaction open on it. Its error type has no room for ours.

use futures_util::io::{AsyncRead, AsyncWrite};
use tiberius::Client;

use crate::db::mssql::{database_error, execute};
use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Executor for Client<S> {
    type Error = Error;

    fn dialect(&self) -> Dialect {
        Dialect::SqlServer
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, Error> {
        execute(self, &statement.sql, &statement.values)
            .await
            .map_err(|error| database_error(&error))
    }
}
