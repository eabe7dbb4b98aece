//! The stores that the daemon works on, by name.

use anyhow::Context;
use axum::http::StatusCode;
use postroom::fleet::Fleet;
use postroom::{Dispatcher, Options, Postroom};

use crate::config::{self, Config};
use crate::discovery::Found;
use crate::http::Problem;
use crate::{secret, store};

/// The name of the store when no configuration names any.
pub(crate) const ONLY: &str = "main";

/// One store, or a fleet.
#[derive(Clone)]
pub(crate) enum Stores {
    One { name: String, room: Postroom },
    Many(Fleet),
}

impl Stores {
    /// Opens what the configuration names, or else the store at this URL.
    pub(crate) async fn open(config: &Config, url: &str) -> anyhow::Result<Self> {
        let mut stores = config.stores.clone();
        if stores.is_empty() {
            stores.push(config::Store::at(ONLY, url));
        }
        if let [only] = stores.as_slice()
            && config.modules.is_empty()
            && config.discovery.is_none()
        {
            let url = only.url.reveal();
            let room = store::connect(only.options(), url).await?;
            return Ok(Self::One {
                name: only.name.clone(),
                room,
            });
        }
        let mut fleet = Fleet::builder();
        for store in &stores {
            fleet = fleet.store(store.name.clone(), store.options());
        }
        for module in &config.modules {
            let of = match &module.store {
                None => stores.first(),
                Some(name) => stores.iter().find(|store| store.name == *name),
            };
            let of = of.with_context(|| {
                format!(
                    "the module `{}` names a store that is not there",
                    module.name
                )
            })?;
            fleet = fleet.store(module.name.clone(), of.options().schema(&module.schema));
        }
        if let (Some(discovery), Some(first)) = (&config.discovery, stores.first()) {
            fleet = fleet
                .every(discovery.every)
                .discover(Found::new(discovery, first)?);
        }
        Ok(Self::Many(fleet.open().await?))
    }

    /// The names of all of them.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::One { name, .. } => vec![name.clone()],
            Self::Many(fleet) => fleet.keys().iter().map(ToString::to_string).collect(),
        }
    }

    /// The store of this name; the first one when none is given.
    pub(crate) fn room(&self, name: Option<&str>) -> Result<Postroom, Problem> {
        let unknown =
            || Problem::new(StatusCode::NOT_FOUND, "there is no such store").param("store");
        match (self, name) {
            (Self::One { room, .. }, None) => Ok(room.clone()),
            (Self::One { name: only, room }, Some(name)) if only == name => Ok(room.clone()),
            (Self::One { .. }, Some(_)) => Err(unknown()),
            (Self::Many(fleet), name) => {
                let keys = fleet.keys();
                let key = match name {
                    None => keys.first(),
                    Some(name) => keys.iter().find(|key| key.as_str() == name),
                };
                Ok(fleet.room(key.ok_or_else(unknown)?)?)
            }
        }
    }

    pub(crate) fn dispatcher(&self) -> Dispatcher {
        match self {
            Self::One { room, .. } => room.dispatcher(),
            Self::Many(fleet) => fleet.dispatcher(),
        }
    }
}

impl config::Store {
    pub(crate) fn at(name: &str, url: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: config::Secret::new(url),
            schema: None,
            deploy: None,
            connections: None,
            prepared_statements: true,
        }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(self.url.reveal())
            .deploy(self.deploys())
            .prepared_statements(self.prepared_statements);
        if let Some(schema) = &self.schema {
            options = options.schema(schema);
        }
        if let Some(connections) = self.connections {
            options = options.connections(connections);
        }
        options
    }

    /// Whether its tables are created or upgraded when it is opened.
    pub(crate) fn deploys(&self) -> bool {
        let embedded = self.url.reveal().starts_with("sqlite:");
        self.deploy.unwrap_or(embedded)
    }

    /// Where it is, as it may be shown.
    pub(crate) fn shown(&self) -> String {
        secret::shown(self.url.reveal())
    }
}
