//! mysql_async: `Transaction` and `Conn`.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Transaction};

use crate::db::mysql::encoded;
use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

impl Executor for Transaction<'_> {
    type Error = mysql_async::Error;

    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn execute(&mut self, statement: Statement) -> mysql_async::Result<u64> {
        run(self, statement).await?;
        Ok(self.affected_rows())
    }
}

impl Executor for Conn {
    type Error = mysql_async::Error;

    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn execute(&mut self, statement: Statement) -> mysql_async::Result<u64> {
        run(self, statement).await?;
        Ok(self.affected_rows())
    }
}

/// Some statements cannot be prepared, SAVEPOINT among them. None of them has values.
async fn run(client: &mut impl Queryable, statement: Statement) -> mysql_async::Result<()> {
    if statement.values.is_empty() {
        return client.query_drop(&*statement.sql).await;
    }
    let values = statement.values.iter().map(encoded).collect();
    client
        .exec_drop(&*statement.sql, Params::Positional(values))
        .await
}

/// It can be had back by a downcast of the box in [`mysql_async::Error::Other`].
impl From<Error> for mysql_async::Error {
    fn from(error: Error) -> Self {
        Self::Other(Box::new(error))
    }
}
