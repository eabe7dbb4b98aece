//! Values that nobody may see: they come from the environment or from a file, and never show.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A secret, as `{ env = "NAME" }`, `{ file = "path" }`, or a plain string where it is none (a URL
/// without a password).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    Plain(String),
    Env { env: String },
    File { file: PathBuf },
}

impl Secret {
    pub(crate) fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for whoever has to use it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Source::deserialize(deserializer)? {
            Source::Plain(text) => Ok(Self(text)),
            Source::Env { env } => std::env::var(&env)
                .map(Self)
                .map_err(|_| D::Error::custom(format!("the variable {env} is not set"))),
            Source::File { file } => std::fs::read_to_string(&file)
                .map(|text| Self(text.trim_end().to_owned()))
                .map_err(|error| {
                    D::Error::custom(format!("{} cannot be read: {error}", file.display()))
                }),
        }
    }
}
