//! What a store of a fleet is called.

use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Error;
use crate::message::{NAME_LIMIT, check_name};

/// The key of a store: a tenant's name or id. Keys are compared exactly, but a UUID is the same key as a
/// [`Uuid`] and as text with hyphens, in upper or lower case.
///
/// ```
/// use postroom::fleet::StoreKey;
///
/// let id = uuid::uuid!("0f8fad5b-d9cb-469f-a165-70867728950e");
/// assert_eq!(StoreKey::from(id), StoreKey::from("0F8FAD5B-D9CB-469F-A165-70867728950E"));
/// assert_ne!(StoreKey::from("acme"), StoreKey::from("Acme"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey(Arc<str>);

impl StoreKey {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check_name("key", &self.0, NAME_LIMIT)
    }
}

/// How long a UUID with hyphens is. Other ways to write one are just texts.
const HYPHENATED: usize = 36;

impl From<&str> for StoreKey {
    fn from(text: &str) -> Self {
        match Uuid::try_parse(text) {
            Ok(id) if text.len() == HYPHENATED => id.into(),
            _ => Self(text.into()),
        }
    }
}

impl From<String> for StoreKey {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for StoreKey {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<Uuid> for StoreKey {
    fn from(id: Uuid) -> Self {
        Self(id.hyphenated().to_string().into())
    }
}

impl From<&StoreKey> for StoreKey {
    fn from(key: &StoreKey) -> Self {
        key.clone()
    }
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
