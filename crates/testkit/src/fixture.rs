//! A fresh, deployed store for one test, and a way to look behind it.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use postroom::{Options, Postroom, Synchronous};
use tempfile::TempDir;

use crate::{mysql, postgres, sqlserver};

/// A database that tests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// An SQLite file.
    Sqlite,
    /// A schema of its own in a private PostgreSQL.
    Postgres,
    /// A database of its own in a private MariaDB.
    MySql,
    /// A schema of its own on the SQL Server that [`sqlserver::URL_VARIABLE`] names.
    SqlServer,
}

/// A store that nobody else uses.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The opened store.
    pub room: Postroom,
    /// Which database it is on.
    pub backend: Backend,
    /// Its URL.
    pub url: String,
    /// Its schema; `None` on SQLite and MySQL.
    pub schema: Option<String>,
    _folder: Option<Arc<TempDir>>,
}

impl Fixture {
    /// Opens and deploys a fresh store.
    ///
    /// # Panics
    /// When that fails.
    pub async fn new(backend: Backend) -> Self {
        let fixture = Self::empty(backend).await;
        fixture.room.deploy().await.expect("deploy");
        if let (Backend::SqlServer, Some(schema)) = (backend, &fixture.schema) {
            sqlserver::make_views(&fixture.url, schema).await;
        }
        fixture
    }

    /// A fresh store on SQL Server, `None` when no server is named: then the test is not run, and it says so.
    ///
    /// # Panics
    /// When there is one and it does not work.
    pub async fn on_sqlserver() -> Option<Self> {
        if sqlserver::url().is_none() {
            eprintln!("NOT RUN: {} names no SQL Server", sqlserver::URL_VARIABLE);
            return None;
        }
        Some(Self::new(Backend::SqlServer).await)
    }

    /// Opens a fresh store that has no schema yet.
    ///
    /// # Panics
    /// When that fails.
    pub async fn empty(backend: Backend) -> Self {
        let (url, schema, folder) = match backend {
            Backend::Sqlite => {
                let folder = tempfile::Builder::new()
                    .prefix("postroom-")
                    .tempdir()
                    .expect("a temporary folder");
                (
                    format!("sqlite:{}", folder.path().join("test.db").display()),
                    None,
                    Some(Arc::new(folder)),
                )
            }
            Backend::Postgres => {
                let schema = format!("t_{}", uuid::Uuid::now_v7().simple());
                (postgres::shared_url().to_owned(), Some(schema), None)
            }
            Backend::MySql => {
                let url = mysql::fresh_database(mysql::shared_url()).await;
                (url, None, None)
            }
            Backend::SqlServer => {
                let schema = format!("t_{}", uuid::Uuid::now_v7().simple());
                let url = sqlserver::url().expect("a SQL Server");
                (url, Some(schema), None)
            }
        };
        let room = options(&url, schema.as_deref())
            .connect()
            .await
            .expect("connect");
        Self {
            room,
            backend,
            url,
            schema,
            _folder: folder,
        }
    }

    /// A store that the test has opened by itself.
    #[must_use]
    pub fn at(backend: Backend, room: Postroom, url: &str, schema: Option<&str>) -> Self {
        Self {
            room,
            backend,
            url: url.to_owned(),
            schema: schema.map(str::to_owned),
            _folder: None,
        }
    }

    /// Options for this store, to open it once more or otherwise.
    #[must_use]
    pub fn options(&self) -> Options {
        options(&self.url, self.schema.as_deref())
    }

    /// The same store, opened again with connections of its own.
    ///
    /// # Panics
    /// When that fails.
    pub async fn again(&self) -> Postroom {
        self.options().connect().await.expect("connect")
    }

    /// A table's name as SQL must write it.
    #[must_use]
    pub fn table(&self, name: &str) -> String {
        match (self.backend, &self.schema) {
            (Backend::SqlServer, Some(schema)) => sqlserver::table(schema, name),
            (Backend::MySql, Some(schema)) => format!("`{schema}_{name}`"),
            (Backend::MySql, None) => format!("`{name}`"),
            (_, Some(schema)) => format!("\"{schema}\".\"{name}\""),
            (_, None) => format!("\"{name}\""),
        }
    }

    /// Runs SQL behind the store's back. `{name}` stands for a table.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn sql(&self, sql: &str) {
        self.sql_as_is(&self.fill(sql)).await;
    }

    /// Runs a script behind the store's back, just as it is.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn sql_as_is(&self, sql: &str) {
        match self.backend {
            Backend::Sqlite => self.sqlite().execute_batch(sql).expect("sql"),
            Backend::Postgres => self.postgres().await.batch_execute(sql).await.expect("sql"),
            Backend::MySql => self.mysql().await.query_drop(sql).await.expect("sql"),
            Backend::SqlServer => sqlserver::run(&self.url, sql).await.expect("sql"),
        }
    }

    /// One number from SQL behind the store's back. `{name}` stands for a table.
    ///
    /// # Panics
    /// When the database refuses or the answer is no 64-bit integer.
    pub async fn number(&self, sql: &str) -> i64 {
        let sql = self.fill(sql);
        match self.backend {
            Backend::Sqlite => self
                .sqlite()
                .query_row(&sql, [], |row| row.get(0))
                .expect("a number"),
            Backend::Postgres => self
                .postgres()
                .await
                .query_one(&sql, &[])
                .await
                .expect("a number")
                .get(0),
            Backend::MySql => {
                let number = self.mysql().await.query_first(sql).await;
                number.expect("a number").expect("a row")
            }
            Backend::SqlServer => sqlserver::number(&self.url, &sql).await,
        }
    }

    /// Makes every lease expire: a test need not wait for one.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn expire_leases(&self) {
        self.expire_leases_of("1 = 1").await;
    }

    /// The same for messages that this SQL condition picks.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn expire_leases_of(&self, condition: &str) {
        let expired = match self.backend {
            Backend::Sqlite => "locked_until = 1, locked_from = 0",
            Backend::Postgres => "locked_until = 'epoch'",
            Backend::MySql => "locked_until = 1",
            Backend::SqlServer => "locked_until = '19700101'",
        };
        for queue in ["outbox", "inbox"] {
            self.sql(&format!(
                "UPDATE {{{queue}}} SET {expired} WHERE locked_until IS NOT NULL AND {condition}"
            ))
            .await;
        }
    }

    /// Lets time pass for everything that waits: backoffs and due times are over.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn skip_backoff(&self) {
        for queue in ["outbox", "inbox"] {
            self.sql(&format!(
                "UPDATE {{{queue}}} SET next_attempt_at = created_at"
            ))
            .await;
        }
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When this is not SQLite.
    #[must_use]
    pub fn sqlite(&self) -> rusqlite::Connection {
        let path = self.url.strip_prefix("sqlite:").expect("an SQLite store");
        let connection = rusqlite::Connection::open(path).expect("open");
        connection
            .busy_timeout(Duration::from_secs(30))
            .expect("busy timeout");
        connection
            .pragma_update(None, "synchronous", "NORMAL")
            .expect("synchronous");
        connection
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When PostgreSQL cannot be reached.
    pub async fn postgres(&self) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&self.url, tokio_postgres::NoTls)
            .await
            .expect("connect");
        tokio::spawn(connection);
        client
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When MySQL cannot be reached.
    pub async fn mysql(&self) -> mysql_async::Conn {
        mysql_async::Conn::from_url(&self.url)
            .await
            .expect("connect")
    }

    /// Waits until a transaction in this database waits for a lock of another.
    ///
    /// # Panics
    /// When none does within 30 seconds.
    pub async fn somebody_waits_on_mysql(&self) {
        eventually(|| async {
            let open = mysql::open_transactions(&mut self.mysql().await).await;
            open.iter().any(|open| open.waits).then_some(())
        })
        .await;
    }

    /// A connection of the test's own.
    ///
    /// # Panics
    /// When SQL Server cannot be reached.
    pub async fn sqlserver(&self) -> sqlserver::Client {
        sqlserver::client(&self.url).await
    }

    /// A connection to SQL Server in a transaction that holds the outbox, until it is ended or dropped: nobody
    /// else reads or writes there.
    ///
    /// # Panics
    /// When the database refuses.
    pub async fn sqlserver_holding_outbox(&self) -> sqlserver::Client {
        let mut client = self.sqlserver().await;
        client.begin_transaction().await.expect("begin");
        let lock = self.fill("SELECT COUNT(*) FROM {outbox} WITH (TABLOCKX, HOLDLOCK)");
        let locked = client.simple_query(lock).await.expect("lock");
        locked.into_results().await.expect("lock");
        client
    }

    /// SQL with the names of this store's tables.
    #[must_use]
    pub fn fill(&self, sql: &str) -> String {
        let mut filled = String::new();
        let mut rest = sql;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("a closing brace");
            filled.push_str(before);
            filled.push_str(&self.table(name));
            rest = after;
        }
        filled.push_str(rest);
        match self.backend {
            Backend::MySql => filled.replace(" AS bigint)", " AS SIGNED)"),
            _ => filled,
        }
    }
}

fn options(url: &str, schema: Option<&str>) -> Options {
    // Nobody pulls the plug on a test, and a commit must not wait for a disk that others keep busy: while
    // one does, no lease is renewed.
    let options = Options::new(url)
        .worker("tester")
        .connections(8)
        .synchronous(Synchronous::Normal);
    match schema {
        Some(schema) => options.schema(schema),
        None => options,
    }
}

/// Waits until `condition` gives something, for at most 30 seconds.
///
/// # Panics
/// When it does not.
pub async fn eventually<T, F: Future<Output = Option<T>>>(mut condition: impl FnMut() -> F) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the condition did not come true in 30 seconds"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
