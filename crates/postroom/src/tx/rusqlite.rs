//! rusqlite: `Transaction`, `Savepoint` and `Connection`. Not async: see [`now`](crate::tx::now).

use std::future::ready;
use std::ops::Deref;

use rusqlite::{Connection, params_from_iter};

use crate::error::Error;
use crate::sql::{Dialect, Statement};
use crate::tx::Executor;

fn execute(connection: &Connection, statement: &Statement) -> rusqlite::Result<u64> {
    let changed = connection
        .prepare_cached(&statement.sql)?
        .execute(params_from_iter(&statement.values))?;
    Ok(changed as u64)
}

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
                ready(execute(Deref::deref(&&*self), &statement))
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
