//! Reading `postroom.toml`: first every key and value is looked at, then serde makes a `Config` of it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use toml::de::DeTable;

use super::keys::{self, Key};
use super::problems::{Problem, Problems, Refused};
use super::{Config, Store, rules, values};
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
    read(path, parse)
}

/// Reads a file that has `[[store]]` tables and nothing else.
pub(crate) fn load_stores(path: &Path) -> anyhow::Result<Vec<Store>> {
    read(path, parse_stores)
}

fn read<T>(path: &Path, parse: fn(&str) -> Result<T, Vec<Problem>>) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    parse(&text).map_err(|problems| {
        let file = path.display().to_string();
        Refused { file, problems }.into()
    })
}

pub(super) fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    checked(text, keys::FILE, rules::check)
}

fn parse_stores(text: &str) -> Result<Vec<Store>, Vec<Problem>> {
    #[derive(Deserialize)]
    struct Stores {
        #[serde(default)]
        store: Vec<Store>,
    }
    let stores: Stores = checked(text, keys::STORES, rules::check_stores)?;
    Ok(stores.store)
}

fn checked<T: DeserializeOwned>(
    text: &str,
    keys: &[Key],
    rules: fn(&DeTable<'_>, &mut Problems<'_>),
) -> Result<T, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    // A parser's error has a picture of the line, and the line may hold a secret: only its words are told.
    for error in &errors {
        problems.syntax(&error.span().unwrap_or_default(), error.message());
    }
    if problems.is_empty() {
        values::table(
            document.get_ref(),
            &document.span(),
            keys,
            "",
            &mut problems,
        );
        rules(document.get_ref(), &mut problems);
    }
    if problems.is_empty() {
        match toml::from_str(text) {
            Ok(read) => return Ok(read),
            Err(error) => problems.syntax(&error.span().unwrap_or_default(), error.message()),
        }
    }
    Err(problems.into_sorted())
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
