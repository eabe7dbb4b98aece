//! diesel on PostgreSQL: `PgConnection`. Not async: see [`now`](crate::tx::now).

use std::future::ready;

use diesel::{PgConnection, QueryResult, RunQueryDsl};

use crate::sql::{Dialect, Statement};
use crate::tx::Executor;
use crate::tx::diesel::postgres::query;

impl Executor for PgConnection {
    type Error = diesel::result::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn execute(&mut self, statement: Statement) -> impl Future<Output = QueryResult<u64>> {
        ready(RunQueryDsl::execute(query(statement), self).map(|changed| changed as u64))
    }
}
