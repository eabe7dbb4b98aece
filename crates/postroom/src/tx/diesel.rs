//! What diesel and diesel-async share: our error inside of theirs, and a statement as their query.

use crate::error::Error;

/// It can be had back by a downcast of the box in
/// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError).
impl From<Error> for diesel::result::Error {
    fn from(error: Error) -> Self {
        Self::QueryBuilderError(Box::new(error))
    }
}

#[cfg(any(feature = "diesel-postgres", feature = "diesel-async-postgres"))]
pub(super) mod postgres {
    use diesel::pg::Pg;
    use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
    use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Uuid};

    use crate::sql::{Statement, Value};

    pub(in crate::tx) fn query(statement: Statement) -> BoxedSqlQuery<'static, Pg, SqlQuery> {
        let query = diesel::sql_query(&*statement.sql).into_boxed();
        statement
            .values
            .into_iter()
            .fold(query, |query, value| match value {
                Value::Int(value) => query.bind::<Nullable<BigInt>, _>(value),
                Value::Text(value) => query.bind::<Nullable<Text>, _>(value),
                Value::Bytes(value) => query.bind::<Nullable<Binary>, _>(value),
                Value::Uuid(value) => query.bind::<Nullable<Uuid>, _>(value),
                Value::Ints(values) => query.bind::<Array<Nullable<BigInt>>, _>(values),
                Value::Texts(values) => query.bind::<Array<Nullable<Text>>, _>(values),
                Value::Uuids(values) => query.bind::<Array<Uuid>, _>(values),
            })
    }
}
