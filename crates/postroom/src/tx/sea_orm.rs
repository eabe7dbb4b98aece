//! SeaORM: `DatabaseTransaction`, on PostgreSQL, SQLite or MySQL as its connection is.

use std::sync::Arc;

use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, sea_query};

use crate::error::{Error, ErrorKind};
use crate::sql::{Dialect, Statement, Value, as_json};
use crate::tx::Executor;

impl Executor for DatabaseTransaction {
    type Error = DbErr;

    /// Any other database is refused by its first statement.
    fn dialect(&self) -> Dialect {
        match self.get_database_backend() {
            DbBackend::Sqlite => Dialect::Sqlite,
            DbBackend::MySql => Dialect::MySql,
            _ => Dialect::Postgres,
        }
    }

    async fn execute(&mut self, statement: Statement) -> Result<u64, DbErr> {
        let backend = self.get_database_backend();
        let encode = match backend {
            DbBackend::Postgres => postgres_value,
            DbBackend::Sqlite | DbBackend::MySql => value_of_bytes,
            _ => {
                return Err(ErrorKind::InvalidArgument { param: "tx" }
                    .with("neither PostgreSQL nor SQLite nor MySQL")
                    .into());
            }
        };
        // Some statements cannot be prepared on MySQL, SAVEPOINT among them. None of them has values.
        if statement.values.is_empty() {
            return Ok(self
                .execute_unprepared(&statement.sql)
                .await?
                .rows_affected());
        }
        let values = statement.values.into_iter().map(encode);
        let statement = sea_orm::Statement::from_sql_and_values(backend, &*statement.sql, values);
        Ok(self.execute_raw(statement).await?.rows_affected())
    }
}

fn postgres_value(value: Value) -> sea_query::Value {
    match value {
        Value::Int(value) => value.into(),
        Value::Text(value) => value.into(),
        Value::Bytes(value) => value.into(),
        Value::Uuid(value) => value.into(),
        Value::Ints(values) => array(values, |value| value.to_string()),
        Value::Texts(values) => array(values, |text| {
            format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
        }),
        Value::Uuids(values) => array(values.into_iter().map(Some), |uuid| uuid.to_string()),
    }
}

/// An array as PostgreSQL writes it in text, which our statements cast back: SeaORM's own arrays panic
/// on a NULL among their elements.
fn array<T>(
    values: impl IntoIterator<Item = Option<T>>,
    element: impl Fn(T) -> String,
) -> sea_query::Value {
    let elements: Vec<String> = values
        .into_iter()
        .map(|value| value.map_or_else(|| "NULL".to_owned(), &element))
        .collect();
    format!("{{{}}}", elements.join(",")).into()
}

/// Where there are no UUIDs and no arrays.
fn value_of_bytes(value: Value) -> sea_query::Value {
    match value {
        Value::Int(value) => value.into(),
        Value::Text(value) => value.into(),
        Value::Bytes(value) => value.into(),
        Value::Uuid(value) => value.map(|uuid| uuid.as_bytes().to_vec()).into(),
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => as_json(&value).into(),
    }
}

/// It can be had back by a downcast of the `source` in [`DbErr::TryIntoErr`].
impl From<Error> for DbErr {
    fn from(error: Error) -> Self {
        Self::TryIntoErr {
            from: "postroom operation",
            into: "statement",
            source: Arc::new(error),
        }
    }
}
