//! Where the demo plays: a database of its own, or a schema in the one that was named.

use std::path::{Path, PathBuf};

use anyhow::bail;
use postroom::{Dialect, Options, Postroom, WorkItemId};
use tempfile::TempDir;

use super::shop::Shop;
use crate::config::{self, Config, Secret};
use crate::{secret, store};

/// Where the demo plays: a store, and a shop beside it.
pub(super) struct Stage {
    pub(super) room: Postroom,
    pub(super) shop: Shop,
    url: String,
    /// The schema (on SQLite: the prefix) that keeps the demo away from everything else.
    schema: Option<String>,
    /// The folder of a file that the demo has made for itself.
    folder: Option<TempDir>,
}

impl Stage {
    pub(super) async fn set(url: Option<&str>) -> anyhow::Result<Self> {
        let (url, schema, folder) = match url {
            None => {
                let folder = tempfile::Builder::new()
                    .prefix("postroom-demo-")
                    .tempdir()?;
                (
                    format!("sqlite:{}", folder.path().join("demo.db").display()),
                    None,
                    Some(folder),
                )
            }
            Some("sqlite::memory:") => {
                bail!("the demo's shop and its store need a file to meet in: --url sqlite:demo.db")
            }
            Some(url) => (url.to_owned(), Some(fresh_name()), None),
        };
        let mut options = Options::new(&url)
            .worker("demo")
            .connections(4)
            .deploy(true);
        if let Some(schema) = &schema {
            options = options.schema(schema);
        }
        let room = store::connect(options, &url).await?;
        let shop = match room.dialect() {
            Dialect::Postgres => {
                Shop::postgres(&url, schema.as_deref().unwrap_or_default()).await?
            }
            Dialect::MySql => Shop::mysql(&url, schema.as_deref().unwrap_or_default()).await?,
            Dialect::Sqlite => Shop::sqlite(&file_of(&url), schema.as_deref())?,
            _ => bail!("the demo's shop is on SQLite, PostgreSQL, MySQL or MariaDB"),
        };
        Ok(Self {
            room,
            shop,
            url,
            schema,
            folder,
        })
    }

    /// What a daemon on the demo's store is told.
    pub(super) fn config(&self) -> Config {
        Config {
            stores: vec![config::Store {
                name: "demo".to_owned(),
                url: Secret::new(&*self.url),
                schema: self.schema.clone(),
                deploy: Some(false),
                connections: None,
                prepared_statements: true,
            }],
            ..Config::default()
        }
    }

    /// Takes the demo's tables away, unless they are to be kept. Says how to look at what is left.
    pub(super) async fn clear(self, keep: bool) -> anyhow::Result<Option<String>> {
        let schema = self
            .schema
            .map(|schema| format!(" --schema {schema}"))
            .unwrap_or_default();
        let left_behind = format!("--url {}{schema}", secret::shown(&self.url));
        match (self.folder, self.room.dialect()) {
            (Some(folder), _) if keep => {
                let _ = folder.keep();
                Ok(Some(left_behind))
            }
            (Some(_), _) => Ok(None),
            (None, Dialect::Postgres | Dialect::MySql) if !keep => {
                self.shop.close().await?;
                Ok(None)
            }
            (None, _) => Ok(Some(left_behind)),
        }
    }
}

fn fresh_name() -> String {
    let id = WorkItemId::new().to_string();
    format!("demo_{}", id.rsplit('-').next().unwrap_or_default())
}

fn file_of(url: &str) -> PathBuf {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    Path::new(path.strip_prefix("//").unwrap_or(path)).to_owned()
}
