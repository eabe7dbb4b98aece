//! Reading `postroom.toml`.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

use super::Config;
use crate::age;

/// Where the file is looked for when nobody names one.
pub(crate) const FILE: &str = "postroom.toml";

/// Reads the file that was named, or the one in the working directory, or none.
pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<Config> {
    let path = match path {
        Some(path) => path,
        None if Path::new(FILE).exists() => Path::new(FILE),
        None => return Ok(Config::default()),
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    parse(&text).with_context(|| format!("{} is not right", path.display()))
}

pub(super) fn parse(text: &str) -> anyhow::Result<Config> {
    Ok(toml::from_str(text)?)
}

/// A time such as `500ms`, `30s`, `5m`, `24h` or `7d`.
pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    age::parse(&text).map_err(D::Error::custom)
}

pub(super) fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}
