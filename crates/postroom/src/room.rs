//! A room: one opened store, and the doors to it.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::db::Database;
use crate::error::{Error, ErrorKind};
use crate::fleet::StoreKey;
use crate::inbox::Inbox;
use crate::join::Joins;
use crate::migrate::Plan;
use crate::options::Options;
use crate::outbox::Outbox;
use crate::sql::{Catalog, Dialect, Operation, Script, Value, operations};
use crate::store::{QueueState, Store};
use crate::transport::TransportOutbox;

/// An opened store: one database, one schema. Cheap to clone; clones share connections.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use postroom::{Message, Postroom};
///
/// let room = Postroom::connect("sqlite::memory:").await?;
/// room.deploy().await?;
/// room.outbox().enqueue(&Message::new("order.created", r#"{"id":7}"#)).await?;
/// assert_eq!(room.outbox().counts().await?.ready, 1);
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Postroom {
    pub(crate) store: Arc<Store>,
    pub(crate) key: Option<StoreKey>,
}

impl Postroom {
    /// Opens a store with default options: `sqlite:path/to/file.db`, `sqlite::memory:`,
    /// `postgres://user@host/database`, `mysql://user@host/database` or `sqlserver://user@host/database`. The
    /// schema must exist: see [`Postroom::deploy`].
    ///
    /// # Errors
    /// When the URL is not understood and when the database cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Options::new(url).connect().await
    }

    pub(crate) async fn open(options: Options) -> Result<Self, Error> {
        let deploy = options.deploy;
        let room = Self::open_unconnected(options, None)?;
        room.store
            .db
            .read(Script::parse(room.dialect(), "SELECT 1").call(Vec::new()))
            .await?;
        if deploy {
            room.deploy().await?;
        }
        Ok(room)
    }

    /// Opens a store whose server may be away: the first connection is made when one is needed. An SQLite
    /// file is opened at once.
    pub(crate) fn open_unconnected(options: Options, key: Option<StoreKey>) -> Result<Self, Error> {
        options.check()?;
        options.names.check_for(dialect_of(&options.url)?)?;
        let db = open_database(&options)?;
        Self::on(db, options, key)
    }

    /// A store on a database that is open.
    pub(crate) fn on(
        db: Box<dyn Database>,
        options: Options,
        key: Option<StoreKey>,
    ) -> Result<Self, Error> {
        let identifier = options.store_identifier()?;
        let transactions = match db.dialect() {
            // There is one writer, and renewals must get their turn between two transactions.
            Dialect::Sqlite => 1,
            // The other half of the connections is for what handlers do beside their transaction.
            Dialect::Postgres | Dialect::MySql | Dialect::SqlServer => {
                (options.connections / 2).max(1)
            }
        };
        Ok(Self {
            key,
            store: Arc::new(Store {
                catalog: Catalog::new(db.dialect(), &options.names),
                db,
                identifier: identifier.into(),
                outbox: QueueState::new(options.names.channel(&options.names.outbox)),
                inbox: QueueState::new(options.names.channel(&options.names.inbox)),
                names: options.names,
                worker: options.worker,
                keep_done: options.keep_done,
                join_wait_topic: options.join_wait_topic,
                transactions: Semaphore::new(transactions),
                propagator: options.propagator,
            }),
        })
    }

    /// The outbox: messages that leave with your transaction.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        Outbox {
            store: Arc::clone(&self.store),
        }
    }

    /// The inbox: inbound messages, taken in once.
    #[must_use]
    pub fn inbox(&self) -> Inbox {
        Inbox {
            store: Arc::clone(&self.store),
        }
    }

    /// Joins: waiting for a group of messages.
    #[must_use]
    pub fn joins(&self) -> Joins {
        Joins {
            store: Arc::clone(&self.store),
        }
    }

    /// The outbox as a store of transport envelopes with destinations.
    #[must_use]
    pub fn transport_outbox(&self) -> TransportOutbox {
        TransportOutbox::new(self.outbox())
    }

    /// Creates the schema, or brings an older one up to date. Doing it again, or in many processes at
    /// once, is fine. Nothing is ever dropped.
    ///
    /// # Errors
    /// When the schema is newer than this library, when a migration was changed after it was applied,
    /// and when the database refuses.
    pub async fn deploy(&self) -> Result<(), Error> {
        let plan = self.plan()?;
        self.store.db.deploy(plan.clone()).await?;
        self.check_relations(&plan).await
    }

    /// Checks that the schema is there, complete, and this library's.
    ///
    /// # Errors
    /// `Schema`, with what is wrong and what to do.
    pub async fn verify(&self) -> Result<(), Error> {
        let plan = self.plan()?;
        let applied = self.store.db.applied(plan.clone()).await?;
        plan.verify(applied.as_deref())?;
        self.check_relations(&plan).await?;
        // The record may be right and the tables wrong, if somebody changed them by hand: a statement
        // that can be prepared has all that it needs.
        self.store.db.prepare(self.store.catalog.scripts()).await
    }

    /// What was deployed and is gone was removed by hand, and is not put back by guessing.
    async fn check_relations(&self, plan: &Plan) -> Result<(), Error> {
        let dialect = self.dialect();
        let missing = Script::parse(
            dialect,
            match dialect {
                Dialect::Postgres => include_str!("sql/postgres/migrations/missing.sql"),
                Dialect::Sqlite => include_str!("sql/sqlite/migrations/missing.sql"),
                Dialect::MySql => include_str!("sql/mysql/migrations/missing.sql"),
                Dialect::SqlServer => include_str!("sql/mssql/migrations/missing.sql"),
            },
        );
        let mut relations = plan.relations(dialect, &self.store.names);
        relations.extend(plan.columns(dialect));
        let values = vec![Value::Texts(relations.into_iter().map(Some).collect())];
        let output = self.store.db.read(missing.call(values)).await?;
        match output.rows.into_iter().next() {
            None => Ok(()),
            Some(mut row) => Err(ErrorKind::Schema.with(format!(
                "{} was removed by hand, and deploy does not repair tables; restore it as `postroom schema print` shows it",
                row.text()?
            ))),
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        Plan::new(self.dialect(), &self.store.names)
    }

    /// Which SQL the store speaks.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.store.dialect()
    }

    /// What logs and metrics call this store: the same for the same database and schema, and without
    /// any secret.
    #[must_use]
    pub fn identifier(&self) -> &str {
        &self.store.identifier
    }

    /// The key of the store in its [fleet](crate::Fleet): which tenant a delivery belongs to, for one.
    /// `None` when it was opened by itself.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_ref().map(StoreKey::as_str)
    }
}

impl std::fmt::Debug for Postroom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Postroom")
            .field(&self.store.identifier)
            .finish()
    }
}

impl Options {
    /// The whole schema as one SQL script, for people who run their own migrations. The URL is not
    /// connected to; only its kind matters.
    ///
    /// ```
    /// let script = postroom::Options::new("postgres:").schema("messaging").schema_sql()?;
    /// assert!(script.contains(r#"CREATE TABLE "messaging"."outbox""#));
    /// # Ok::<(), postroom::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a name is not valid or the URL is not understood.
    pub fn schema_sql(&self) -> Result<String, Error> {
        self.check()?;
        let dialect = dialect_of(&self.url)?;
        Ok(Plan::new(dialect, &self.names)?.script(dialect))
    }

    /// The statements of the work queues, for people who claim and settle from another language. The
    /// URL is not connected to; only its kind matters.
    ///
    /// # Errors
    /// When a name is not valid or the URL is not understood.
    pub fn operations(&self) -> Result<Vec<Operation>, Error> {
        self.check()?;
        Ok(operations(dialect_of(&self.url)?, &self.names))
    }

    /// Which database the URL means.
    ///
    /// # Errors
    /// When the URL is not understood.
    pub fn dialect(&self) -> Result<Dialect, Error> {
        dialect_of(&self.url)
    }

    /// The same text for two stores that would share their tables. Nothing is connected to, so this is also
    /// a way to hear early what is wrong.
    ///
    /// ```
    /// use postroom::Options;
    ///
    /// let (one, other) = (Options::new("sqlite:app.db"), Options::new("sqlite:./app.db"));
    /// assert_eq!(one.identity().unwrap(), other.identity().unwrap());
    /// assert_ne!(one.identity().unwrap(), other.schema("billing").identity().unwrap());
    /// assert!(Options::new("mysql://localhost/").identity().is_err());
    /// ```
    ///
    /// # Errors
    /// When the URL is not understood, or a name is not one that the database takes.
    pub fn identity(&self) -> Result<String, Error> {
        self.check()?;
        self.names.check_for(dialect_of(&self.url)?)?;
        self.store_identity()
    }

    /// What logs and metrics call the store, before it is opened.
    pub(crate) fn store_identifier(&self) -> Result<String, Error> {
        match dialect_of(&self.url)? {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                let place = crate::db::postgres::place_of(&self.url)?;
                Ok(format!("{place}#{}", self.names.schema()))
            }
            #[cfg(feature = "mysql")]
            Dialect::MySql => Ok(self.with_schema(crate::db::mysql::place_of(&self.url)?)),
            #[cfg(feature = "mssql")]
            Dialect::SqlServer => {
                let place = crate::db::mssql::place_of(&self.url)?;
                Ok(format!("{place}#{}", self.names.schema()))
            }
            Dialect::Sqlite => {
                #[cfg(feature = "sqlite")]
                crate::db::sqlite::check_url(&self.url)?;
                Ok(self.with_schema(self.url.clone()))
            }
            // The URL may hold a password.
            #[allow(unreachable_patterns, reason = "every dialect may be switched off")]
            dialect => Err(not_built(dialect)),
        }
    }

    /// A place, and where in it a schema is a part of table names: that schema.
    fn with_schema(&self, place: String) -> String {
        match self.names.schema {
            Some(_) => format!("{place}#{}", self.names.schema()),
            None => place,
        }
    }

    /// The same for two stores that would share tables. Where a schema is a part of table names, those know
    /// no upper and lower case, or may not; on SQL Server names commonly do not either. A file may be
    /// written in several ways.
    pub(crate) fn store_identity(&self) -> Result<String, Error> {
        let identifier = self.store_identifier()?;
        Ok(match dialect_of(&self.url)? {
            Dialect::Sqlite => {
                let path = self.url.strip_prefix("sqlite:").unwrap_or(&self.url);
                let path = path.strip_prefix("//").unwrap_or(path);
                let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
                without_case(self.with_schema(format!("sqlite:{}", path.display())))
            }
            Dialect::MySql if self.names.schema.is_some() => without_case(identifier),
            Dialect::SqlServer => identifier.to_ascii_lowercase(),
            Dialect::MySql | Dialect::Postgres => identifier,
        })
    }
}

/// A place and a schema, which knows no upper and lower case.
fn without_case(identifier: String) -> String {
    match identifier.rsplit_once('#') {
        Some((place, schema)) => format!("{place}#{}", schema.to_ascii_lowercase()),
        None => identifier,
    }
}

pub(crate) fn dialect_of(url: &str) -> Result<Dialect, Error> {
    match url.split(':').next() {
        Some("sqlite") => Ok(Dialect::Sqlite),
        Some("postgres" | "postgresql") => Ok(Dialect::Postgres),
        Some("mysql" | "mariadb") => Ok(Dialect::MySql),
        Some("sqlserver" | "mssql") => Ok(Dialect::SqlServer),
        _ => Err(ErrorKind::InvalidArgument { param: "url" }.with(
            "expected `sqlite:FILE`, `sqlite::memory:`, `postgres://USER@HOST/DATABASE`, \
             `mysql://USER@HOST/DATABASE` or `sqlserver://USER@HOST/DATABASE`",
        )),
    }
}

fn open_database(options: &Options) -> Result<Box<dyn Database>, Error> {
    match dialect_of(&options.url)? {
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => Ok(Box::new(crate::db::sqlite::Sqlite::open(options)?)),
        #[cfg(feature = "postgres")]
        Dialect::Postgres => Ok(Box::new(crate::db::postgres::Postgres::open(options)?)),
        #[cfg(feature = "mysql")]
        Dialect::MySql => Ok(Box::new(crate::db::mysql::MySql::open(options)?)),
        #[cfg(feature = "mssql")]
        Dialect::SqlServer => Ok(Box::new(crate::db::mssql::SqlServer::open(options)?)),
        #[allow(unreachable_patterns, reason = "every dialect may be switched off")]
        dialect => Err(not_built(dialect)),
    }
}

#[allow(dead_code, reason = "every dialect may be switched on")]
fn not_built(dialect: Dialect) -> Error {
    let feature = match dialect {
        Dialect::SqlServer => "mssql",
        other => other.name(),
    };
    ErrorKind::InvalidArgument { param: "url" }.with(format!(
        "postroom was built without the feature `{feature}`"
    ))
}
