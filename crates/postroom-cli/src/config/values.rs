//! Whether a value is what its key may hold. Every value is looked at, so that everything that is wrong is
//! told at once; what serde reads afterwards is known to be right.

use std::net::SocketAddr;
use std::ops::Range;

use axum::http::{HeaderName, HeaderValue};
use futures_util::FutureExt;
use postroom::jobs::{Job, Jobs, Schedule};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{Key, Kind, nearest};
use super::problems::Problems;
use super::secret::{Secret, Source};
use crate::age;
use crate::targets::SigningKey;

/// A value, and where in the file it is.
pub(super) type Node<'i> = Spanned<DeValue<'i>>;

/// The longest name of a store or a topic, in characters.
const LONGEST_NAME: usize = 255;

/// The longest name of a webhook's source.
pub(crate) const LONGEST_SOURCE: usize = 64;

const EXPECTED_SECRET: &str = r#"expected { env = "NAME" } or { file = "path" }"#;

/// Checks a table: its keys, and the value of each.
pub(super) fn table(
    table: &DeTable<'_>,
    place: &Range<usize>,
    keys: &[Key],
    path: &str,
    problems: &mut Problems<'_>,
) {
    for (name, node) in table {
        let within = joined(path, name.get_ref());
        match keys.iter().find(|key| key.name == name.get_ref()) {
            Some(key) => value(node, &name.span(), &key.kind, &within, problems),
            None => {
                let known = || keys.iter().map(|key| key.name);
                let advice = match nearest(name.get_ref(), known()) {
                    Some(nearest) => format!("did you mean `{}`?", joined(path, nearest)),
                    None => format!("expected one of {}", known().collect::<Vec<_>>().join(", ")),
                };
                problems.unknown(&within, &name.span(), advice);
            }
        }
    }
    for key in keys.iter().filter(|key| key.required) {
        if !table.keys().any(|name| name.get_ref() == key.name) {
            problems.add(&joined(path, key.name), place, "is missing; add it");
        }
    }
}

fn value(
    node: &Node<'_>,
    name: &Range<usize>,
    kind: &Kind,
    path: &str,
    problems: &mut Problems<'_>,
) {
    match kind {
        Kind::Table(keys) => match node.get_ref().as_table() {
            Some(inner) => table(inner, name, keys, path, problems),
            None => problems.add(path, name, format!("expected a table, [{path}]")),
        },
        Kind::Tables(keys) => {
            for (index, element) in elements(node, path, name, problems).enumerate() {
                let path = format!("{path}[{index}]");
                match element.get_ref().as_table() {
                    Some(inner) => table(inner, &element.span(), keys, &path, problems),
                    None => problems.add(&path, &element.span(), "expected a table"),
                }
            }
        }
        Kind::Headers => match node.get_ref().as_table() {
            Some(inner) => headers(inner, path, problems),
            None => problems.add(path, name, r#"expected a table, { "x-name" = "value" }"#),
        },
        Kind::Names | Kind::Argv | Kind::Secrets | Kind::SigningSecrets => {
            many(node, name, kind, path, problems);
        }
        single => {
            if let Err(says) = one(node.get_ref(), single) {
                problems.add(path, &node.span(), says);
            }
        }
    }
}

/// An array whose elements are values.
fn many(
    node: &Node<'_>,
    name: &Range<usize>,
    kind: &Kind,
    path: &str,
    problems: &mut Problems<'_>,
) {
    let mut count = 0;
    for (index, element) in elements(node, path, name, problems).enumerate() {
        count = index + 1;
        let checked = match kind {
            Kind::Names => one(element.get_ref(), &Kind::Name),
            // Only the program has to have a name.
            Kind::Argv if index > 0 => text(element.get_ref()).and_then(without_nul),
            Kind::Argv => one(element.get_ref(), &Kind::Text),
            Kind::SigningSecrets => secret(element.get_ref())
                .and_then(|secret| SigningKey::parse(secret.reveal()).map(drop)),
            _ => one(element.get_ref(), &Kind::Secret),
        };
        if let Err(says) = checked {
            problems.add(&format!("{path}[{index}]"), &element.span(), says);
        }
    }
    // A target without secrets signs nothing, which is a choice.
    if count == 0 && node.get_ref().is_array() && !matches!(kind, Kind::SigningSecrets) {
        problems.add(path, name, "is empty; expected one at least");
    }
}

fn one(value: &DeValue<'_>, kind: &Kind) -> Result<(), String> {
    match kind {
        Kind::Name => text(value).and_then(name),
        Kind::Source => text(value).and_then(source),
        Kind::Identifier => text(value).and_then(identifier),
        Kind::Text | Kind::Path => match text(value)? {
            "" => Err("must not be empty".to_owned()),
            text => without_nul(text),
        },
        Kind::Switch => match value.as_bool() {
            Some(_) => Ok(()),
            None => Err("expected true or false, without quotes".to_owned()),
        },
        Kind::Number { least, most } => number(value, *least, *most),
        Kind::Duration { may_be_zero, most } => match duration(value)? {
            zero if zero.is_zero() && !may_be_zero => Err("must be longer than zero".to_owned()),
            long if long > *most => Err(format!("is too long; at most {}", age::written(*most))),
            _ => Ok(()),
        },
        Kind::SocketAddress => match text(value)?.parse::<SocketAddr>() {
            Ok(_) => Ok(()),
            Err(_) => Err(
                "expected an IP address and a port from 0 to 65535, such as 127.0.0.1:8025"
                    .to_owned(),
            ),
        },
        Kind::Cron => text(value).and_then(cron),
        Kind::OneOf(choices) => one_of(value, choices),
        Kind::Secret => secret(value).map(drop),
        Kind::StoreUrl => store_url(value),
        Kind::EndpointUrl => plain_or_secret(value).map(drop),
        Kind::HeaderName => match text(value)?.parse::<HeaderName>() {
            Ok(_) => Ok(()),
            Err(_) => Err("expected the name of an HTTP header, such as x-signature".to_owned()),
        },
        // They have been taken apart by the caller.
        Kind::Table(_)
        | Kind::Tables(_)
        | Kind::Names
        | Kind::Argv
        | Kind::Secrets
        | Kind::SigningSecrets
        | Kind::Headers => Ok(()),
    }
}

/// The elements of an array; anything else is told as a problem and has none.
fn elements<'n, 'i>(
    node: &'n Node<'i>,
    path: &str,
    name: &Range<usize>,
    problems: &mut Problems<'_>,
) -> impl Iterator<Item = &'n Node<'i>> + use<'n, 'i> {
    let array = node.get_ref().as_array();
    if array.is_none() {
        let says = if node.get_ref().is_table() {
            format!("expected [[{path}]], with two brackets")
        } else {
            "expected an array, in brackets".to_owned()
        };
        problems.add(path, name, says);
    }
    array.into_iter().flat_map(|array| array.iter())
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, String> {
    value.as_str().ok_or_else(|| {
        format!(
            "expected text in quotes, got {} {}",
            article(value),
            value.type_str()
        )
    })
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value.type_str().chars().next() {
        Some('a' | 'i') => "an",
        _ => "a",
    }
}

fn without_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        return Err("must not hold a NUL".to_owned());
    }
    Ok(())
}

fn name(text: &str) -> Result<(), String> {
    match text.chars().count() {
        0 => Err("must not be empty".to_owned()),
        count if count > LONGEST_NAME => Err(format!(
            "has {count} characters, at most {LONGEST_NAME} are allowed"
        )),
        _ => without_nul(text),
    }
}

fn source(text: &str) -> Result<(), String> {
    let length = text.chars().count();
    if length > LONGEST_SOURCE {
        return Err(format!(
            "has {length} characters, at most {LONGEST_SOURCE} are allowed"
        ));
    }
    name(text)?;
    let fits = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    if !text.chars().all(fits) || text.starts_with('.') {
        return Err(
            "is a part of an address, /hooks/{source}: use letters, digits, hyphens, underscores and dots"
                .to_owned(),
        );
    }
    Ok(())
}

/// As the library has it: what is not such a name never comes near SQL.
pub(super) fn identifier(text: &str) -> Result<(), String> {
    let first = |character: char| character.is_ascii_alphabetic() || character == '_';
    let rest = |character: char| character.is_ascii_alphanumeric() || character == '_';
    if !text.starts_with(first) || !text.chars().all(rest) || text.len() > 48 {
        return Err(
            "expected a letter or an underscore, then letters, digits and underscores, 48 at most"
                .to_owned(),
        );
    }
    Ok(())
}

fn number(value: &DeValue<'_>, least: u64, most: u64) -> Result<(), String> {
    let expected = || format!("expected a whole number from {least} to {most}, without quotes");
    let integer = value.as_integer().ok_or_else(expected)?;
    match u64::from_str_radix(integer.as_str(), integer.radix()) {
        Ok(number) if (least..=most).contains(&number) => Ok(()),
        _ => Err(expected()),
    }
}

fn duration(value: &DeValue<'_>) -> Result<std::time::Duration, String> {
    let Some(text) = value.as_str() else {
        return Err(
            r#"expected a time in quotes, such as "500ms", "30s", "5m" or "7d""#.to_owned(),
        );
    };
    age::parse(text)
}

/// The library's own opinion, for which it needs a job, but no store.
fn cron(expression: &str) -> Result<(), String> {
    let jobs = Jobs::new()
        .stores(Vec::new)
        .reaping(Schedule::cron(expression));
    match jobs.run_once(Job::Reaping).now_or_never() {
        Some(Err(_)) => Err(format!(
            r#"`{}` is no schedule that ever comes true; expected five fields such as "30 3 * * *", six with a second before them, or "@daily""#,
            expression.escape_debug()
        )),
        _ => Ok(()),
    }
}

fn one_of(value: &DeValue<'_>, choices: &[&str]) -> Result<(), String> {
    let text = text(value)?;
    if choices.contains(&text) {
        return Ok(());
    }
    Err(match nearest(text, choices.iter().copied()) {
        Some(nearest) => format!(
            "expected one of {}; did you mean `{nearest}`?",
            choices.join(", ")
        ),
        None => format!("expected one of {}", choices.join(", ")),
    })
}

/// Where a secret is, if it is in the right form.
fn place_of(value: &DeValue<'_>) -> Result<Source, String> {
    if let Some(text) = value.as_str() {
        return Ok(Source::Plain(text.to_owned()));
    }
    let table = value.as_table().ok_or(EXPECTED_SECRET)?;
    let mut entries = table.iter();
    let (Some((name, place)), None) = (entries.next(), entries.next()) else {
        return Err(EXPECTED_SECRET.to_owned());
    };
    let place = place.get_ref().as_str().unwrap_or_default().to_owned();
    if place.is_empty() || place.contains(['\0', '=']) && name.get_ref() == "env" {
        return Err(EXPECTED_SECRET.to_owned());
    }
    match &**name.get_ref() {
        "env" => Ok(Source::Env { env: place }),
        "file" => Ok(Source::File { file: place.into() }),
        _ => Err(EXPECTED_SECRET.to_owned()),
    }
}

pub(super) fn secret(value: &DeValue<'_>) -> Result<Secret, String> {
    match place_of(value)? {
        Source::Plain(_) => Err(format!(
            "a secret does not belong into this file, which others may read; {EXPECTED_SECRET}"
        )),
        source => source.read(),
    }
}

pub(super) fn plain_or_secret(value: &DeValue<'_>) -> Result<Secret, String> {
    match place_of(value)? {
        Source::Plain(text) if text.is_empty() => Err("must not be empty".to_owned()),
        source => source.read(),
    }
}

pub(super) fn store_url(value: &DeValue<'_>) -> Result<(), String> {
    let source = place_of(value)?;
    let plain = matches!(source, Source::Plain(_));
    let url = source.read()?;
    let url = url.reveal();
    if ![
        "sqlite:",
        "postgres:",
        "postgresql:",
        "mysql:",
        "mariadb:",
        "sqlserver:",
        "mssql:",
    ]
    .iter()
    .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
    {
        return Err(
            "expected sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or \
             sqlserver://USER@HOST/DATABASE"
                .to_owned(),
        );
    }
    if plain && holds_password(url) {
        return Err(format!(
            "holds a password, which does not belong into this file; {EXPECTED_SECRET} for the whole URL"
        ));
    }
    Ok(())
}

/// Whether a database URL may hold a password. In doubt it does.
fn holds_password(url: &str) -> bool {
    if url.starts_with("sqlite:") {
        return false;
    }
    let parsed = url.parse::<tokio_postgres::Config>();
    let (_, rest) = url.split_once(':').unwrap_or_default();
    // A password may hold an `@` of its own, and whatever stands before the last one may be it.
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    user.contains(':')
        || rest.to_ascii_lowercase().contains("password")
        || parsed.is_ok_and(|config| config.get_password().is_some())
}

/// Headers that requests have anyway, and that only we may set.
const OURS: [&str; 7] = [
    "connection",
    "content-length",
    "host",
    "te",
    "traceparent",
    "transfer-encoding",
    "upgrade",
];

fn headers(table: &DeTable<'_>, path: &str, problems: &mut Problems<'_>) {
    for (name, node) in table {
        let path = joined(path, name.get_ref());
        if let Err(says) = header(name.get_ref(), node.get_ref()) {
            problems.add(&path, &name.span(), says);
        }
    }
}

fn header(name: &str, value: &DeValue<'_>) -> Result<(), String> {
    let name = name
        .parse::<HeaderName>()
        .map_err(|_| "is not the name of an HTTP header".to_owned())?;
    let name = name.as_str();
    if OURS.contains(&name) || name.starts_with("webhook-") || name.starts_with("postroom-") {
        return Err("is set for every request already; remove it".to_owned());
    }
    let telling = ["auth", "cookie", "key", "token", "secret", "password"];
    let value = if telling.iter().any(|part| name.contains(part)) {
        secret(value)?
    } else {
        plain_or_secret(value)?
    };
    match HeaderValue::from_str(value.reveal()) {
        Ok(_) => Ok(()),
        Err(_) => Err("the value cannot be sent in a header; use visible ASCII".to_owned()),
    }
}

pub(super) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_password_is_told_from_one_without() {
        for without in [
            "sqlite:app.db",
            "sqlite:a:b@c.db",
            "postgres://app@db.example:5433/shop",
            "postgres://db.example/shop?sslmode=verify-full",
            "postgresql:///shop?host=/run/postgresql",
        ] {
            assert!(!holds_password(without), "{without}");
        }
        for with in [
            "postgres://app:secret@db.example/shop",
            "postgres://app:se@cret@db.example/shop",
            "postgres://app:se/cret@db.example/shop",
            "postgres://db.example/shop?user=app&password=secret",
            "postgres://db.example/shop?user=app&PASSWORD=secret",
            "postgres://db.example/shop?user=app&p%61ssword=secret",
        ] {
            assert!(holds_password(with), "{with}");
        }
    }
}
