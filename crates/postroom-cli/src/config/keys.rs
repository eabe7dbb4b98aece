//! Every key of `postroom.toml`, in one place: what it is called, what it may hold, whether it must be
//! there. What is checked, what is suggested to whoever mistypes one, and what the example has to show all
//! come from here.

use std::time::Duration;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) required: bool,
}

/// What a key may hold.
#[derive(Debug)]
pub(super) enum Kind {
    /// One table: `[server]`.
    Table(&'static [Key]),
    /// Any number of tables: `[[store]]`.
    Tables(&'static [Key]),
    /// A name of something: of a store, a topic, who holds a token.
    Name,
    /// Names, one at least.
    Names,
    /// A part of an address, `/hooks/{source}`.
    Source,
    /// A name in SQL.
    Identifier,
    /// Any text but the empty one.
    Text,
    /// A program and its arguments.
    Argv,
    /// A path of a file.
    Path,
    Switch,
    Number {
        least: u64,
        most: u64,
    },
    Duration {
        may_be_zero: bool,
        most: Duration,
    },
    /// An IP address and a port.
    SocketAddress,
    Cron,
    OneOf(&'static [&'static str]),
    /// `{ env = "NAME" }` or `{ file = "path" }`.
    Secret,
    /// Some of them, one at least.
    Secrets,
    /// Some of them, as Standard Webhooks has them: `whsec_` and base64.
    SigningSecrets,
    /// A database: a secret, or plain text when it holds no password.
    StoreUrl,
    /// An HTTP endpoint: plain text, or a secret.
    EndpointUrl,
    /// The name of an HTTP header.
    HeaderName,
    /// HTTP headers and their values, which may be secrets.
    Headers,
}

const MANY: u64 = 1_000_000;

/// The longest lease, delay and pause.
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);

/// The longest time for which something is kept.
const CENTURY: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// The whole file.
pub(super) const FILE: &[Key] = &[
    key("server", Kind::Table(SERVER)),
    key("auth", Kind::Table(AUTH)),
    key("store", Kind::Tables(STORE)),
    key("module", Kind::Tables(MODULE)),
    key("discovery", Kind::Table(DISCOVERY)),
    key("dispatch", Kind::Table(DISPATCH)),
    key("retry", Kind::Table(RETRY)),
    key("jobs", Kind::Table(JOBS)),
    key("target", Kind::Tables(TARGET)),
    key("webhook", Kind::Tables(WEBHOOK)),
];

/// A file of stores, for `[discovery]`.
pub(super) const STORES: &[Key] = &[key("store", Kind::Tables(STORE))];

const SERVER: &[Key] = &[
    key("bind", Kind::SocketAddress),
    key("connections", number(1, MANY)),
    key("body_limit", number(1, 32 << 20)),
    key("header_limit", number(8 << 10, 1 << 20)),
    key("read_timeout", longer_than_zero(YEAR)),
];

const AUTH: &[Key] = &[
    key("token", Kind::Tables(TOKEN)),
    key("local_payloads", Kind::Switch),
];

const TOKEN: &[Key] = &[
    required("name", Kind::Name),
    required("role", Kind::OneOf(&["viewer", "operator", "admin"])),
    key("payloads", Kind::Switch),
    required("secret", Kind::Secret),
];

const STORE: &[Key] = &[
    required("name", Kind::Name),
    required("url", Kind::StoreUrl),
    key("schema", Kind::Identifier),
    key("deploy", Kind::Switch),
    key("connections", number(1, 1_000)),
    key("prepared_statements", Kind::Switch),
];

const MODULE: &[Key] = &[
    required("name", Kind::Name),
    key("store", Kind::Name),
    required("schema", Kind::Identifier),
];

const DISCOVERY: &[Key] = &[
    key("file", Kind::Path),
    key("query", Kind::Text),
    key("every", longer_than_zero(YEAR)),
];

const DISPATCH: &[Key] = &[
    key("enabled", Kind::Switch),
    key("concurrency", number(1, 10_000)),
    key("batch", number(1, 10_000)),
    key("lease", longer_than_zero(YEAR)),
    key("poll_interval", longer_than_zero(YEAR)),
    key("shutdown_deadline", zero_or_longer(YEAR)),
    key("max_deliveries", number(1, MANY)),
    key("listen", Kind::Switch),
];

const RETRY: &[Key] = &[
    key("policy", Kind::OneOf(&["backoff", "honeydrunk"])),
    key("attempts", number(1, MANY)),
    key("infrastructure", zero_or_longer(YEAR)),
    key("first_delay", longer_than_zero(YEAR)),
    key("longest_delay", longer_than_zero(YEAR)),
];

const JOBS: &[Key] = &[
    key("outbox_cleanup", Kind::Table(JOB)),
    key("inbox_cleanup", Kind::Table(JOB)),
    key("join_cleanup", Kind::Table(JOB)),
    key("reaping", Kind::Table(JOB)),
];

const JOB: &[Key] = &[
    key("enabled", Kind::Switch),
    key("cron", Kind::Cron),
    key("keep", longer_than_zero(CENTURY)),
];

const TARGET: &[Key] = &[
    required("topics", Kind::Names),
    key("queue", Kind::OneOf(&["outbox", "inbox"])),
    key("http", Kind::Table(HTTP)),
    key("command", Kind::Table(COMMAND)),
    key("stdout", Kind::Switch),
];

const HTTP: &[Key] = &[
    required("url", Kind::EndpointUrl),
    key("secrets", Kind::SigningSecrets),
    key("timeout", longer_than_zero(YEAR)),
    key("allow_private", Kind::Switch),
    key("allow_http", Kind::Switch),
    key("headers", Kind::Headers),
];

const COMMAND: &[Key] = &[
    required("argv", Kind::Argv),
    key("timeout", longer_than_zero(YEAR)),
];

const WEBHOOK: &[Key] = &[
    required("source", Kind::Source),
    required(
        "scheme",
        Kind::OneOf(&["stripe", "github", "standard", "hmac"]),
    ),
    required("secrets", Kind::Secrets),
    key("topic", Kind::Name),
    key("store", Kind::Name),
    key("header", Kind::HeaderName),
    key("concurrency", number(1, MANY)),
    key("rate", number(1, MANY)),
];

const fn key(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        kind,
        required: false,
    }
}

const fn required(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        kind,
        required: true,
    }
}

const fn number(least: u64, most: u64) -> Kind {
    Kind::Number { least, most }
}

const fn longer_than_zero(most: Duration) -> Kind {
    Kind::Duration {
        may_be_zero: false,
        most,
    }
}

const fn zero_or_longer(most: Duration) -> Kind {
    Kind::Duration {
        may_be_zero: true,
        most,
    }
}

/// The known name that is most like this one, if any is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Somebody who writes `stores` or `timeouts` should find `store` and `timeout`, and nobody who writes
    // `colour` should be asked about `cron`.
    const LIKE: f64 = 0.7;
    let name = name.to_ascii_lowercase().replace('-', "_");
    known
        .map(|known| (strsim::jaro_winkler(&name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_the_one_that_was_meant() {
        let of = |name: &str, keys: &'static [Key]| nearest(name, keys.iter().map(|key| key.name));
        assert_eq!(of("servr", FILE), Some("server"));
        assert_eq!(of("stores", FILE), Some("store"));
        assert_eq!(of("Webhooks", FILE), Some("webhook"));
        assert_eq!(of("poll-interval", DISPATCH), Some("poll_interval"));
        assert_eq!(of("colour", FILE), None);
    }
}
