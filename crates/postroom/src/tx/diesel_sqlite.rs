//! diesel on SQLite: `SqliteConnection`. Not async: see [`now`](crate::tx::now).

use std::future::ready;

use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::{QueryResult, RunQueryDsl, SqliteConnection};

use crate::sql::{Dialect, Statement, Value, as_json};
use crate::tx::Executor;

impl Executor for SqliteConnection {
    type Error = diesel::result::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute(&mut self, statement: Statement) -> impl Future<Output = QueryResult<u64>> {
        let query = diesel::sql_query(&*statement.sql).into_boxed();
        let query = statement
            .values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Int(value) => query.bind::<Nullable<BigInt>, _>(value),
                Value::Text(value) => query.bind::<Nullable<Text>, _>(value),
                Value::Bytes(value) => query.bind::<Nullable<Binary>, _>(value),
                Value::Uuid(value) => {
                    query.bind::<Nullable<Binary>, _>(value.map(|uuid| uuid.as_bytes().to_vec()))
                }
                Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => {
                    query.bind::<Nullable<Text>, _>(as_json(&value))
                }
            });
        ready(RunQueryDsl::execute(query, self).map(|changed| changed as u64))
    }
}
