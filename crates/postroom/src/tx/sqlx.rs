//! What all databases of sqlx share: our error inside of theirs, and a transaction that is its connection.

use crate::error::Error;

/// It can be had back by a downcast of the box in [`sqlx::Error::Encode`].
impl From<Error> for sqlx::Error {
    fn from(error: Error) -> Self {
        Self::Encode(Box::new(error))
    }
}

macro_rules! transaction_of {
    ($database:ident) => {
        impl Executor for sqlx::Transaction<'_, sqlx::$database> {
            type Error = sqlx::Error;

            fn dialect(&self) -> Dialect {
                Dialect::$database
            }

            async fn execute(&mut self, statement: Statement) -> sqlx::Result<u64> {
                Executor::execute(&mut **self, statement).await
            }
        }
    };
}
pub(super) use transaction_of;
