//! Several modules in one process, each with a store of its own.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::message::{NAME_LIMIT, check_name};
use crate::room::Postroom;
use crate::sql::Dialect;

/// The modules of a process by name. Each has its own tables: its own database, or its own schema in a
/// database that several share (on SQLite a schema is a prefix of the table names).
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use postroom::Options;
/// use postroom::events::{Modules, UnitOfWork};
///
/// let room = async |schema| Options::new("sqlite::memory:").schema(schema).deploy(true).connect().await;
/// let modules = Modules::new()
///     .module("orders", room("orders").await?)?
///     .module("billing", room("billing").await?)?;
///
/// let work = UnitOfWork::new(modules.room("billing")?);
/// # drop(work);
/// # Ok::<(), postroom::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Modules(BTreeMap<String, Postroom>);

impl Modules {
    /// No modules yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module. Names are compared exactly.
    ///
    /// # Errors
    /// When the name is not valid, when there is such a module already, and when another module has the
    /// same store: then each would work off the other's messages. Stores are the same when their
    /// [identifiers](Postroom::identifier) are.
    pub fn module(mut self, name: impl Into<String>, room: Postroom) -> Result<Self, Error> {
        let name = name.into();
        check_name("name", &name, NAME_LIMIT)?;
        if let Some(earlier) = self.0.get(&name) {
            return Err(ErrorKind::AlreadyExists { what: "module" }.with(format!(
                "`{name}` has the store {}, and cannot have {} too",
                earlier.identifier(),
                room.identifier()
            )));
        }
        if let Some((other, _)) = self.iter().find(|(_, other)| same_store(other, &room)) {
            return Err(ErrorKind::AlreadyExists { what: "store" }.with(format!(
                "`{other}` and `{name}` would share {}; give each a schema of its own",
                room.identifier()
            )));
        }
        self.0.insert(name, room);
        Ok(self)
    }

    /// The store of a module.
    ///
    /// # Errors
    /// `NotFound` when there is no such module.
    pub fn room(&self, name: &str) -> Result<&Postroom, Error> {
        self.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.iter().map(|(name, _)| name).collect();
            ErrorKind::NotFound { what: "module" }
                .with(format!("there is no `{name:.NAME_LIMIT$}` among {names:?}"))
        })
    }

    /// All modules with their stores, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Postroom)> {
        self.0.iter().map(|(name, room)| (name.as_str(), room))
    }
}

/// On SQLite and MySQL a schema is a part of table names, and those know no upper and lower case, or may not;
/// on SQL Server names commonly do not either.
fn same_store(one: &Postroom, other: &Postroom) -> bool {
    let key = |room: &Postroom| {
        let store = room.outbox().store;
        let schema = store.names.schema();
        match (room.dialect(), room.identifier().strip_suffix(schema)) {
            (Dialect::Sqlite | Dialect::MySql | Dialect::SqlServer, Some(place)) => {
                format!("{place}{}", schema.to_ascii_lowercase())
            }
            _ => room.identifier().to_owned(),
        }
    };
    key(one) == key(other)
}
