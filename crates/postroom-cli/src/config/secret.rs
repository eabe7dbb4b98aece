//! Values that nobody may see: they come from the environment or from a file, and never show.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A secret, as `{ env = "NAME" }`, `{ file = "path" }`, or a plain string where it is none (a URL
/// without a password).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

/// Where a secret is.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Source {
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

impl Source {
    /// The secret, or why there is none and what to do. Neither file nor variable is ever quoted. An editor
    /// ends a file with a newline, and many a program a variable: it is not a part of the secret.
    pub(super) fn read(self) -> Result<Secret, String> {
        let (text, place) = match self {
            Self::Plain(text) => return Ok(Secret(text)),
            Self::Env { env } => match std::env::var(&env) {
                Ok(text) => (
                    text.trim_end_matches(['\r', '\n']).to_owned(),
                    format!("the variable {env}"),
                ),
                Err(std::env::VarError::NotPresent) => {
                    return Err(format!("the variable {env} is not set; set it"));
                }
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(format!("the variable {env} is not UTF-8"));
                }
            },
            Self::File { file } => match std::fs::read_to_string(&file) {
                Ok(text) => (
                    text.trim_end_matches(['\r', '\n']).to_owned(),
                    format!("the file {}", file.display()),
                ),
                Err(error) => {
                    return Err(format!(
                        "the file {} cannot be read: {error}",
                        file.display()
                    ));
                }
            },
        };
        if text.trim().is_empty() {
            return Err(format!("{place} is empty; put the secret into it"));
        }
        Ok(Secret(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Source::deserialize(deserializer)?
            .read()
            .map_err(D::Error::custom)
    }
}
