//! rusqlite: `Transaction`, `Savepoint` and `Connection`. Not async: see [`now`](crate::tx::now).

use std::future::ready;
use std::ops::Deref;

use rusqlite::Connection;

use crate::db::sqlite::execute_one;
use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

macro_rules! executor {
    ($client:ty) => {
        impl Executor for $client {
            type Error = rusqlite::Error;

            fn dialect(&self) -> Dialect {
                Dialect::Sqlite
            }

            fn execute(
                &mut self,
                statement: Statement,
            ) -> impl Future<Output = rusqlite::Result<u64>> {
                ready(execute_one(Deref::deref(&&*self), &statement))
            }
        }
    };
}

executor!(Connection);
executor!(rusqlite::Transaction<'_>);
executor!(rusqlite::Savepoint<'_>);

impl From<Error> for rusqlite::Error {
    fn from(error: Error) -> Self {
        Self::ToSqlConversionFailure(Box::new(error))
    }
}
