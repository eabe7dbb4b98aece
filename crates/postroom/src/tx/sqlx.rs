//! What both databases of sqlx share: our error inside of theirs.

use crate::error::Error;

/// It can be had back by a downcast of the box in [`sqlx::Error::Encode`].
impl From<Error> for sqlx::Error {
    fn from(error: Error) -> Self {
        Self::Encode(Box::new(error))
    }
}
