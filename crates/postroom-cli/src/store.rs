//! Which store a command is about, and how it is opened.

use std::path::Path;

use anyhow::{Context, bail};
use clap::Args;
use postroom::{Options, Postroom};

use crate::secret;

/// Where everything is when nobody says otherwise.
pub(crate) const DEFAULT_URL: &str = "sqlite:postroom.db";

/// The arguments that name a store.
#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// The database: sqlite:FILE or postgres://USER@HOST/DATABASE [default: sqlite:postroom.db]
    #[arg(
        long,
        global = true,
        env = "POSTROOM_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    url: Option<String>,

    #[command(flatten)]
    names: Names,

    /// Do without prepared statements: for pgbouncer and other poolers that give out a connection per
    /// transaction
    #[arg(long, global = true)]
    no_prepared_statements: bool,
}

/// What the tables are called.
#[derive(Args)]
pub(crate) struct Names {
    /// The schema of the tables [default: infra]; on SQLite a prefix of their names [default: none]
    #[arg(long, global = true, value_name = "NAME")]
    schema: Option<String>,

    /// The outbox table [default: outbox]
    #[arg(long, global = true, value_name = "NAME")]
    outbox_table: Option<String>,

    /// The inbox table [default: inbox]
    #[arg(long, global = true, value_name = "NAME")]
    inbox_table: Option<String>,

    /// The join table [default: outbox_join]
    #[arg(long, global = true, value_name = "NAME")]
    join_table: Option<String>,

    /// The table of the members of joins [default: outbox_join_member]
    #[arg(long, global = true, value_name = "NAME")]
    join_member_table: Option<String>,
}

impl StoreArguments {
    /// The URL that was given, or the default one.
    pub(crate) fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(DEFAULT_URL)
    }

    /// Options for another URL with the same names.
    pub(crate) fn options_for(&self, url: &str) -> Options {
        let mut options = Options::new(url).worker("postroom-cli").connections(4);
        let names = &self.names;
        if let Some(name) = &names.schema {
            options = options.schema(name);
        }
        if let Some(name) = &names.outbox_table {
            options = options.outbox_table(name);
        }
        if let Some(name) = &names.inbox_table {
            options = options.inbox_table(name);
        }
        if let Some(name) = &names.join_table {
            options = options.join_table(name);
        }
        if let Some(name) = &names.join_member_table {
            options = options.join_member_table(name);
        }
        options.prepared_statements(!self.no_prepared_statements)
    }

    /// Opens the store. An SQLite file that does not exist is an error: a command that only looks
    /// should not leave an empty file behind.
    pub(crate) async fn open(&self) -> anyhow::Result<Postroom> {
        if let Some(path) = sqlite_file(self.url())
            && !Path::new(path).exists()
        {
            bail!(
                "there is no file `{path}`; name another one with --url, or create it with `postroom schema deploy`"
            );
        }
        self.create().await
    }

    /// Opens the store, creating an SQLite file if need be.
    pub(crate) async fn create(&self) -> anyhow::Result<Postroom> {
        connect(self.options_for(self.url()), self.url()).await
    }
}

/// Connects, and says to what when that fails.
pub(crate) async fn connect(options: Options, url: &str) -> anyhow::Result<Postroom> {
    options
        .connect()
        .await
        .with_context(|| format!("cannot open {}", secret::shown(url)))
}

fn sqlite_file(url: &str) -> Option<&str> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!path.is_empty() && path != ":memory:").then_some(path)
}
