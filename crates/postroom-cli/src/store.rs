//! Which store a command is about, and how it is opened.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use postroom::{Options, Postroom};

use crate::config::{self, Config};
use crate::secret;

/// Where everything is when nobody says otherwise.
pub(crate) const DEFAULT_URL: &str = "sqlite:postroom.db";

/// The arguments that name a store.
#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// The database: sqlite:FILE, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE or
    /// sqlserver://USER@HOST/DATABASE [env: POSTROOM_URL] [default: what postroom.toml names, or else sqlite:postroom.db]
    // The variables are read by hand: clap would take them for arguments that exclude each other.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with_all = ["config", "store_name"]
    )]
    url: Option<String>,

    /// Take the store from this configuration file [env: POSTROOM_CONFIG] [default: postroom.toml, if
    /// there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Which store or module of the configuration, when it names several
    #[arg(id = "store_name", long = "store", global = true, value_name = "NAME")]
    name: Option<String>,

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

/// A store that was named and is not open yet.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) options: Options,
}

impl StoreArguments {
    /// The store that the arguments name: by its URL, or by its name in a configuration. Without
    /// either it is the one that `postroom serve` would work on.
    pub(crate) fn place(&self) -> anyhow::Result<Place> {
        if let Some(url) = &self.url {
            return Ok(self.at(url));
        }
        let config = self.configuration()?;
        if let Some(options) = self.configured(&config)? {
            return Ok(options);
        }
        let url = variable("POSTROOM_URL");
        Ok(self.at(url.as_deref().unwrap_or(DEFAULT_URL)))
    }

    /// The configuration that was named, or the one in the working directory, or an empty one.
    pub(crate) fn configuration(&self) -> anyhow::Result<Config> {
        if self.url.is_some() {
            return Ok(Config::default());
        }
        let file = self
            .config
            .clone()
            .or_else(|| variable("POSTROOM_CONFIG").map(PathBuf::from));
        config::load(file.as_deref())
    }

    /// A store at this URL with the names that were given.
    pub(crate) fn at(&self, url: &str) -> Place {
        let options = Options::new(url).prepared_statements(!self.no_prepared_statements);
        self.named(url, options)
    }

    fn configured(&self, config: &Config) -> anyhow::Result<Option<Place>> {
        let stores = &config.stores;
        let named = |name: &str| stores.iter().find(|store| store.name == name);
        let (store, schema) = match &self.name {
            None if stores.is_empty() => return Ok(None),
            None => match (stores.as_slice(), config.modules.is_empty()) {
                ([only], true) => (only, None),
                _ => bail!(
                    "the configuration names several stores; pick one of {} with --store",
                    known(config)
                ),
            },
            Some(name) => {
                let module = config.modules.iter().find(|module| module.name == *name);
                let of_module = module.and_then(|module| {
                    let of = module.store.as_deref();
                    let store = of.map_or_else(|| stores.first(), named)?;
                    Some((store, Some(module.schema.as_str())))
                });
                let found = named(name).map(|store| (store, None)).or(of_module);
                found.with_context(|| match known(config) {
                    names if names.is_empty() => format!(
                        "no configuration names a store `{name}`; name the file with --config"
                    ),
                    names => format!("there is no store `{name}`; the configuration names {names}"),
                })?
            }
        };
        let url = store.url.reveal();
        let mut options = store.options().deploy(false);
        if let Some(schema) = schema {
            options = options.schema(schema);
        }
        if self.no_prepared_statements {
            options = options.prepared_statements(false);
        }
        Ok(Some(self.named(url, options)))
    }

    fn named(&self, url: &str, options: Options) -> Place {
        let mut options = options.worker("postroom-cli").connections(4);
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
        Place {
            url: url.to_owned(),
            options,
        }
    }

    /// Opens the store. An SQLite file that does not exist is an error: a command that only looks
    /// should not leave an empty file behind.
    pub(crate) async fn open(&self) -> anyhow::Result<Postroom> {
        self.place()?.open().await
    }
}

impl Place {
    /// As [`StoreArguments::open`].
    pub(crate) async fn open(self) -> anyhow::Result<Postroom> {
        if let Some(path) = sqlite_file(&self.url)
            && matches!(Path::new(path).try_exists(), Ok(false))
        {
            bail!(
                "there is no file `{path}`; name another one with --url, or create it with `postroom schema deploy`"
            );
        }
        self.create().await
    }

    /// Opens the store, creating an SQLite file if need be.
    pub(crate) async fn create(self) -> anyhow::Result<Postroom> {
        connect(self.options, &self.url).await
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The names that --store understands.
fn known(config: &Config) -> String {
    let stores = config.stores.iter().map(|store| store.name.as_str());
    let modules = config.modules.iter().map(|module| module.name.as_str());
    stores.chain(modules).collect::<Vec<_>>().join(", ")
}

/// Connects, and says to what when that fails.
pub(crate) async fn connect(options: Options, url: &str) -> anyhow::Result<Postroom> {
    options
        .connect()
        .await
        .with_context(|| format!("cannot open {}", secret::shown(url)))
}

/// The file of an SQLite URL.
pub(crate) fn sqlite_file(url: &str) -> Option<&str> {
    let path = url.strip_prefix("sqlite:")?;
    let path = path.strip_prefix("//").unwrap_or(path);
    (!path.is_empty() && path != ":memory:").then_some(path)
}
