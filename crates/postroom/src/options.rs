//! How a store is opened: where it is, what its tables are called, how it behaves.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};
use crate::observe::Propagator;
use crate::room::dialect_of;
use crate::sql::{Identifier, Names};
use crate::{Postroom, message};

/// Everything that can be chosen about a store. Defaults are safe; [`Options::connect`] checks them
/// all and names the one that is wrong.
///
/// ```no_run
/// # async fn example() -> Result<(), postroom::Error> {
/// use postroom::Options;
///
/// let room = Options::new("postgres://localhost/shop")
///     .schema("messaging")
///     .worker("checkout-1")
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) url: String,
    pub(crate) names: Names,
    pub(crate) worker: String,
    pub(crate) connections: usize,
    pub(crate) prepared_statements: bool,
    pub(crate) synchronous: Synchronous,
    pub(crate) keep_done: bool,
    pub(crate) deploy: bool,
    pub(crate) join_wait_topic: String,
    /// Connections that the stores of a fleet share.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
    pub(crate) budget: Option<Arc<crate::db::Budget>>,
    pub(crate) propagator: Option<Arc<dyn Propagator>>,
    wrong: Option<Error>,
}

/// When SQLite tells the disk to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// At every commit: what was acknowledged survives a power cut. The default.
    #[default]
    Full,
    /// At checkpoints only: faster, and a power cut loses the last commits.
    Normal,
}

impl Options {
    /// Starts from the defaults. The URL is `sqlite:path/to/file.db`, `sqlite::memory:`,
    /// `postgres://user@host/database`, `mysql://user@host/database`, also for MariaDB, or
    /// `sqlserver://user@host/database`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        Self {
            names: Names::of(dialect_of(&url).ok()),
            url,
            worker: default_worker(),
            connections: 16,
            prepared_statements: true,
            synchronous: Synchronous::Full,
            keep_done: true,
            deploy: false,
            join_wait_topic: "join.wait".to_owned(),
            #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
            budget: None,
            propagator: None,
            wrong: None,
        }
    }

    /// The schema that holds the tables, `infra` by default. SQLite has no schemas, and on MySQL that is only
    /// another word for a database: there the name becomes a prefix of the table names (none by default),
    /// so that several modules can share a file or a database.
    #[must_use]
    pub fn schema(mut self, name: &str) -> Self {
        self.names.schema = self.identifier("schema", name);
        self
    }

    /// The outbox table, `outbox` by default (on SQL Server `Outbox`). Its archive, dead table and functions take their names
    /// from it.
    #[must_use]
    pub fn outbox_table(mut self, name: &str) -> Self {
        if let Some(name) = self.identifier("outbox_table", name) {
            self.names.outbox = name;
        }
        self
    }

    /// The inbox table, `inbox` by default (on SQL Server `Inbox`).
    #[must_use]
    pub fn inbox_table(mut self, name: &str) -> Self {
        if let Some(name) = self.identifier("inbox_table", name) {
            self.names.inbox = name;
        }
        self
    }

    /// The join table, `outbox_join` by default (on SQL Server `OutboxJoin`).
    #[must_use]
    pub fn join_table(mut self, name: &str) -> Self {
        if let Some(name) = self.identifier("join_table", name) {
            self.names.join = name;
        }
        self
    }

    /// The join member table, `outbox_join_member` by default (on SQL Server `OutboxJoinMember`).
    #[must_use]
    pub fn join_member_table(mut self, name: &str) -> Self {
        if let Some(name) = self.identifier("join_member_table", name) {
            self.names.join_member = name;
        }
        self
    }

    /// Who does the work: recorded with every message that is acked or failed, at most 100
    /// characters. The default is the process id.
    #[must_use]
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = worker.into();
        self
    }

    /// How many connections the store may open at most, 16 by default. SQLite always uses two.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Turn this off behind a pooler that gives out a connection per transaction, such as pgbouncer.
    #[must_use]
    pub fn prepared_statements(mut self, on: bool) -> Self {
        self.prepared_statements = on;
        self
    }

    /// When SQLite tells the disk to write.
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Whether acked messages stay in the archive until [`Outbox::cleanup`](crate::Outbox::cleanup)
    /// removes them (the default), or are deleted by the ack.
    #[must_use]
    pub fn keep_done(mut self, keep: bool) -> Self {
        self.keep_done = keep;
        self
    }

    /// Whether connecting creates or upgrades the schema. Off by default: then the schema must exist
    /// and nothing is ever created.
    #[must_use]
    pub fn deploy(mut self, on: bool) -> Self {
        self.deploy = on;
        self
    }

    /// What is comfortable on a developer's machine: the schema is deployed on connect.
    #[must_use]
    pub fn dev_profile(self) -> Self {
        self.deploy(true)
    }

    /// The topic of messages that wait for a join, `join.wait` by default.
    #[must_use]
    pub fn join_wait_topic(mut self, topic: impl Into<String>) -> Self {
        self.join_wait_topic = topic.into();
        self
    }

    /// A bridge to a tracing system, none by default. Without one, messages carry the trace of
    /// [`in_trace`](crate::in_trace).
    #[must_use]
    pub fn propagator(mut self, propagator: impl Propagator + 'static) -> Self {
        self.propagator = Some(Arc::new(propagator));
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// When an option is wrong, and when the database cannot be reached.
    pub async fn connect(self) -> Result<Postroom, Error> {
        Postroom::open(self).await
    }

    /// Whether both describe the same store, reached and used in the same way.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let Self {
            url,
            names,
            worker,
            connections,
            prepared_statements,
            synchronous,
            keep_done,
            deploy,
            join_wait_topic,
            #[cfg(any(feature = "postgres", feature = "mysql", feature = "mssql"))]
                budget: _,
            propagator,
            wrong,
        } = self;
        let same_propagator = match (propagator, &other.propagator) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        *url == other.url
            && *names == other.names
            && *worker == other.worker
            && *connections == other.connections
            && *prepared_statements == other.prepared_statements
            && *synchronous == other.synchronous
            && *keep_done == other.keep_done
            && *deploy == other.deploy
            && *join_wait_topic == other.join_wait_topic
            && same_propagator
            && *wrong == other.wrong
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(error) = &self.wrong {
            return Err(error.clone());
        }
        self.names.check()?;
        if self.connections == 0 || self.connections > 1000 {
            return Err(ErrorKind::OutOfRange {
                param: "connections",
            }
            .with("expected 1 to 1000"));
        }
        message::check_name("worker", &self.worker, 100)?;
        message::check_name(
            "join_wait_topic",
            &self.join_wait_topic,
            message::NAME_LIMIT,
        )
    }

    /// The first wrong name is remembered, so that the builder can go on and `connect` can tell.
    fn identifier(&mut self, param: &'static str, name: &str) -> Option<Identifier> {
        match Identifier::parse(param, name) {
            Ok(identifier) => Some(identifier),
            Err(error) => {
                self.wrong.get_or_insert(error);
                None
            }
        }
    }
}

/// The URL may hold a password: it never shows.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("names", &self.names)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

fn default_worker() -> String {
    format!("pid-{}", std::process::id())
}
