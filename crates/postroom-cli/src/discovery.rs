//! Stores that are found again and again: in a file, or by a query on the first store.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use mysql_async::prelude::Queryable;
use postroom::fleet::{Discovery, DiscoveryError, StoreKey};
use postroom::{Dialect, Options, client};
use rusqlite::OpenFlags;

use crate::config::{self, Secret, Store};
use crate::store::sqlite_file;

/// How long a query may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where stores are found.
pub(crate) enum Found {
    /// `[[store]]` tables, which are read again each time.
    File(PathBuf),
    /// A row for each store: its name, its URL, and perhaps its schema.
    Query { sql: String, url: Secret },
}

impl Found {
    pub(crate) fn new(discovery: &config::Discovery, first: &Store) -> anyhow::Result<Self> {
        match (&discovery.file, &discovery.query) {
            (Some(file), None) => Ok(Self::File(file.clone())),
            (None, Some(query)) => Ok(Self::Query {
                sql: query.clone(),
                url: first.url.clone(),
            }),
            _ => bail!("[discovery] needs a file or a query, and not both"),
        }
    }

    async fn stores(&self) -> anyhow::Result<Vec<Store>> {
        match self {
            Self::File(file) => {
                let file = file.clone();
                tokio::task::spawn_blocking(move || config::load_stores(&file)).await?
            }
            Self::Query { sql, url } => {
                let answer = tokio::time::timeout(PATIENCE, ask(sql, url)).await;
                answer.context("the query took too long")?
            }
        }
    }
}

impl Discovery for Found {
    async fn discover(&self) -> Result<Vec<(StoreKey, Options)>, DiscoveryError> {
        let stores = self.stores().await.map_err(|error| format!("{error:#}"))?;
        Ok(stores
            .iter()
            .map(|store| (StoreKey::from(&store.name), store.options()))
            .collect())
    }
}

async fn ask(sql: &str, url: &Secret) -> anyhow::Result<Vec<Store>> {
    if let Some(path) = sqlite_file(url.reveal()) {
        let (path, sql) = (path.to_owned(), sql.to_owned());
        return tokio::task::spawn_blocking(move || ask_sqlite(&path, &sql)).await?;
    }
    if url.reveal().starts_with("sqlite:") {
        bail!("a database in memory cannot be asked for stores; use a file");
    }
    match Options::new(url.reveal()).dialect()? {
        Dialect::Postgres => ask_postgres(url, sql).await,
        Dialect::MySql => ask_mysql(url, sql).await,
        _ => bail!("this database cannot be asked for stores; list them in a file"),
    }
}

fn ask_sqlite(path: &str, sql: &str) -> anyhow::Result<Vec<Store>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = rusqlite::Connection::open_with_flags(path, flags)
        .context("the database cannot be opened")?;
    connection.busy_timeout(Duration::from_secs(5))?;
    let mut statement = connection
        .prepare(sql)
        .context("the query is not understood")?;
    let column = |name: &str| statement.column_index(name).ok();
    let (name, url, schema) = (column("name"), column("url"), column("schema"));
    let (Some(name), Some(url)) = (name, url) else {
        bail!(COLUMNS);
    };
    let mut rows = statement.query([])?;
    let mut stores = Vec::new();
    while let Some(row) = rows.next().context("the query failed")? {
        let schema = match schema {
            Some(schema) => row.get(schema).context(TEXTS)?,
            None => None,
        };
        stores.push(store(
            row.get(name).context(TEXTS)?,
            row.get(url).context(TEXTS)?,
            schema,
        )?);
    }
    Ok(stores)
}

async fn ask_postgres(url: &Secret, sql: &str) -> anyhow::Result<Vec<Store>> {
    let mut client = client::postgres(url.reveal()).await?;
    let transaction = client.build_transaction().read_only(true).start().await?;
    // Without a prepared statement, so that a pooler does not mind.
    let rows = transaction
        .query_typed(sql, &[])
        .await
        .context("the query failed")?;
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let has = |name: &str| first.columns().iter().any(|column| column.name() == name);
    if !has("name") || !has("url") {
        bail!(COLUMNS);
    }
    let with_schema = has("schema");
    rows.iter()
        .map(|row| {
            let schema = if with_schema {
                row.try_get("schema").context(TEXTS)?
            } else {
                None
            };
            store(
                row.try_get("name").context(TEXTS)?,
                row.try_get("url").context(TEXTS)?,
                schema,
            )
        })
        .collect()
}

async fn ask_mysql(url: &Secret, sql: &str) -> anyhow::Result<Vec<Store>> {
    let mut connection = client::mysql(url.reveal()).await?;
    connection
        .query_drop("START TRANSACTION READ ONLY")
        .await
        .context("the query failed")?;
    let rows: Vec<mysql_async::Row> = connection.query(sql).await.context("the query failed")?;
    let Some(first) = rows.first() else {
        return Ok(Vec::new());
    };
    let columns = first.columns();
    let place = |name: &str| columns.iter().position(|column| column.name_str() == name);
    let (Some(name), Some(url)) = (place("name"), place("url")) else {
        bail!(COLUMNS);
    };
    let schema = place("schema");
    let text = |row: &mysql_async::Row, index: usize| -> anyhow::Result<Option<String>> {
        let value = row.get_opt(index).context(TEXTS)?;
        value.context(TEXTS)
    };
    rows.iter()
        .map(|row| {
            let schema = match schema {
                Some(index) => text(row, index)?,
                None => None,
            };
            store(text(row, name)?, text(row, url)?, schema)
        })
        .collect()
}

const COLUMNS: &str = "the query must answer with columns `name` and `url`, and may with `schema`";
const TEXTS: &str = "the columns `name`, `url` and `schema` must be text";

/// A store without a name or a URL is no store; one without a schema has the default.
fn store(
    name: Option<String>,
    url: Option<String>,
    schema: Option<String>,
) -> anyhow::Result<Store> {
    match (name, url) {
        (Some(name), Some(url)) if !name.is_empty() && !url.is_empty() => Ok(Store {
            schema: schema.filter(|schema| !schema.is_empty()),
            ..Store::at(&name, &url)
        }),
        (Some(name), _) if !name.is_empty() => bail!("the store `{name}` has no URL"),
        _ => bail!("a store has no name"),
    }
}
