//! The file `postroom.toml`: what the daemon works on, where messages go, who may do what. Everything has
//! a default, so that no file at all is a configuration too.

mod check;
mod example;
mod keys;
mod load;
mod problems;
mod rules;
mod secret;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use postroom::{Backoff, Dispatcher, HoneyDrunk};
use serde::Deserialize;

pub(crate) use check::Arguments;
pub(crate) use keys::nearest;
pub(crate) use load::{load, load_stores};
pub(crate) use secret::Secret;
pub(crate) use values::LONGEST_SOURCE;

/// All of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) auth: Auth,
    /// The stores to work on; without any, an SQLite file in the working directory.
    #[serde(rename = "store")]
    pub(crate) stores: Vec<Store>,
    #[serde(rename = "module")]
    pub(crate) modules: Vec<Module>,
    pub(crate) discovery: Option<Discovery>,
    pub(crate) dispatch: Dispatch,
    pub(crate) retry: Retry,
    pub(crate) jobs: Jobs,
    #[serde(rename = "target")]
    pub(crate) targets: Vec<Target>,
    #[serde(rename = "webhook")]
    pub(crate) webhooks: Vec<Webhook>,
}

/// Where the daemon listens, and what a request may cost.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) bind: SocketAddr,
    /// Connections at once; more have to wait.
    pub(crate) connections: usize,
    /// Bytes of a request's body.
    pub(crate) body_limit: usize,
    /// Bytes of a request's headers.
    pub(crate) header_limit: usize,
    /// How long a sender may take for headers, and again for the body.
    #[serde(deserialize_with = "load::duration")]
    pub(crate) read_timeout: Duration,
}

/// Who may do what. Without tokens only this machine may connect, and may do everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Auth {
    #[serde(rename = "token")]
    pub(crate) tokens: Vec<Token>,
    /// Without tokens: whether payloads may be seen.
    pub(crate) local_payloads: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// Who holds it, for the audit trail.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Whether the holder may see payloads and headers.
    #[serde(default)]
    pub(crate) payloads: bool,
    pub(crate) secret: Secret,
}

/// What a caller may do: look, act on messages, act on everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Viewer,
    Operator,
    Admin,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    pub(crate) name: String,
    pub(crate) url: Secret,
    pub(crate) schema: Option<String>,
    /// Create or upgrade the tables at start; by default on SQLite only.
    pub(crate) deploy: Option<bool>,
    pub(crate) connections: Option<usize>,
    #[serde(default = "yes")]
    pub(crate) prepared_statements: bool,
}

/// A part of the application with tables of its own in a store's database.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Module {
    pub(crate) name: String,
    /// The store whose database it lives in; the first one by default.
    pub(crate) store: Option<String>,
    pub(crate) schema: String,
}

/// More stores, found again and again: in a file with `[[store]]` tables, or by a query on the first store
/// that answers with a name and a URL, and perhaps a schema.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Discovery {
    pub(crate) file: Option<PathBuf>,
    pub(crate) query: Option<String>,
    #[serde(default = "five_minutes", deserialize_with = "load::duration")]
    pub(crate) every: Duration,
}

/// How the dispatcher works; see the library's `Dispatcher`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Dispatch {
    /// Off: this process only serves, others dispatch.
    pub(crate) enabled: bool,
    pub(crate) concurrency: usize,
    pub(crate) batch: usize,
    #[serde(deserialize_with = "load::duration")]
    pub(crate) lease: Duration,
    #[serde(deserialize_with = "load::duration")]
    pub(crate) poll_interval: Duration,
    #[serde(deserialize_with = "load::duration")]
    pub(crate) shutdown_deadline: Duration,
    pub(crate) max_deliveries: Option<u32>,
    /// Wake up by LISTEN on PostgreSQL; not behind a transaction pooler.
    pub(crate) listen: bool,
}

/// Whether and when a failed message is tried again.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Retry {
    pub(crate) policy: Policy,
    /// Failures of the business kind before a message is dead: 10, and HoneyDrunk's 6.
    pub(crate) attempts: Option<u32>,
    /// Backoff only: for how long failures of infrastructure are tried again, 24 hours by default.
    #[serde(deserialize_with = "load::optional_duration")]
    pub(crate) infrastructure: Option<Duration>,
    /// HoneyDrunk only: the delay of the first retry, a second by default. It doubles from there.
    #[serde(deserialize_with = "load::optional_duration")]
    pub(crate) first_delay: Option<Duration>,
    /// HoneyDrunk only: no delay is longer, 5 minutes by default.
    #[serde(deserialize_with = "load::optional_duration")]
    pub(crate) longest_delay: Option<Duration>,
}

/// The library's policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    #[default]
    Backoff,
    HoneyDrunk,
}

impl Retry {
    /// Lets a dispatcher try again as configured.
    pub(crate) fn install(&self, dispatcher: Dispatcher) -> Dispatcher {
        match self.policy {
            Policy::Backoff => {
                let mut policy = Backoff::default();
                if let Some(attempts) = self.attempts {
                    policy = policy.max_attempts(attempts);
                }
                if let Some(budget) = self.infrastructure {
                    policy = policy.infrastructure_budget(budget);
                }
                dispatcher.retry(policy)
            }
            Policy::HoneyDrunk => {
                let default = HoneyDrunk::default();
                let retries = self.attempts.map(|attempts| attempts.saturating_sub(1));
                dispatcher.retry(HoneyDrunk {
                    max_retry_attempts: retries.unwrap_or(default.max_retry_attempts),
                    base_retry_delay: self.first_delay.unwrap_or(default.base_retry_delay),
                    max_retry_delay: self.longest_delay.unwrap_or(default.max_retry_delay),
                })
            }
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Jobs {
    pub(crate) outbox_cleanup: Job,
    pub(crate) inbox_cleanup: Job,
    pub(crate) join_cleanup: Job,
    pub(crate) reaping: Job,
}

/// How long what is done is kept when nobody says.
pub(crate) const KEEP_OUTBOX: Duration = Duration::from_secs(7 * 86_400);
pub(crate) const KEEP_INBOX: Duration = Duration::from_secs(30 * 86_400);
pub(crate) const KEEP_JOINS: Duration = Duration::from_secs(30 * 86_400);

/// What differs from the library's defaults.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) enabled: Option<bool>,
    pub(crate) cron: Option<String>,
    #[serde(deserialize_with = "load::optional_duration")]
    pub(crate) keep: Option<Duration>,
}

/// Where the messages of some topics go. Exactly one of `http`, `command` and `stdout`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// Exact topics; `*` stands for every topic that no other target names.
    pub(crate) topics: Vec<String>,
    #[serde(default)]
    pub(crate) queue: Queue,
    pub(crate) http: Option<HttpTarget>,
    pub(crate) command: Option<CommandTarget>,
    #[serde(default)]
    pub(crate) stdout: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Queue {
    #[default]
    Outbox,
    Inbox,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpTarget {
    /// It may be a secret as a whole: the addresses of some services are.
    pub(crate) url: Secret,
    /// Signs each request in the Standard Webhooks way; the first secret is the current one.
    #[serde(default)]
    pub(crate) secrets: Vec<Secret>,
    #[serde(default = "fifteen_seconds", deserialize_with = "load::duration")]
    pub(crate) timeout: Duration,
    /// Private, loopback and link-local addresses are refused unless this is on.
    #[serde(default)]
    pub(crate) allow_private: bool,
    /// Plain http is refused unless this is on.
    #[serde(default)]
    pub(crate) allow_http: bool,
    /// Sent with every request.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Secret>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandTarget {
    /// The program and its arguments. No shell is involved.
    pub(crate) argv: Vec<String>,
    #[serde(default = "fifteen_seconds", deserialize_with = "load::duration")]
    pub(crate) timeout: Duration,
}

/// A sender of webhooks: what it posts to /hooks/{source} goes into the inbox.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    pub(crate) source: String,
    pub(crate) scheme: Scheme,
    /// All of them are tried, so that they can be rotated.
    pub(crate) secrets: Vec<Secret>,
    /// The topic in the inbox; the source's name by default.
    pub(crate) topic: Option<String>,
    /// The store whose inbox takes them; the first one by default.
    pub(crate) store: Option<String>,
    /// Plain HMAC only: the header that carries the signature.
    pub(crate) header: Option<String>,
    /// Requests of this source at once.
    #[serde(default = "sixty_four")]
    pub(crate) concurrency: usize,
    /// Requests of this source per second; no limit by default.
    pub(crate) rate: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    Stripe,
    Github,
    Standard,
    Hmac,
}

impl Target {
    /// Every message of the outbox is printed.
    pub(crate) fn everything_to_stdout() -> Self {
        Self {
            topics: vec!["*".to_owned()],
            queue: Queue::Outbox,
            http: None,
            command: None,
            stdout: true,
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8025)),
            connections: 4_096,
            body_limit: 1 << 20,
            header_limit: 16 << 10,
            read_timeout: Duration::from_secs(10),
        }
    }
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            enabled: true,
            concurrency: 32,
            batch: 50,
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(500),
            shutdown_deadline: Duration::from_secs(30),
            max_deliveries: None,
            listen: true,
        }
    }
}

fn yes() -> bool {
    true
}

fn five_minutes() -> Duration {
    Duration::from_secs(300)
}

fn fifteen_seconds() -> Duration {
    Duration::from_secs(15)
}

fn sixty_four() -> usize {
    64
}
