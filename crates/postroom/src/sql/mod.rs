//! What is said to a database: values, statements, and the .sql files of each dialect.
//! SQL text lives in `sqlite/`, `postgres/`, `mysql/` and `mssql/`, under the same file names; this module fills in the
//! table names once, when a store is opened. Nothing here talks to a database.

use std::sync::Arc;

use uuid::Uuid;

#[cfg(any(
    feature = "sqlite",
    feature = "mssql",
    feature = "sqlx-sqlite",
    feature = "diesel-sqlite",
    feature = "mysql",
    feature = "sea-orm"
))]
mod json;
mod names;
mod row;
mod script;

mod catalog;
mod mssql;
mod mysql;
mod postgres;
mod sqlite;

#[cfg(feature = "testing")]
pub(crate) use catalog::{By, render};
pub(crate) use catalog::{Catalog, Migration, QueueSql, migrations, operations};
pub use catalog::{Operation, OperationStatement, Queue};
#[cfg(any(
    feature = "sqlite",
    feature = "sqlx-sqlite",
    feature = "diesel-sqlite",
    feature = "mysql",
    feature = "sea-orm"
))]
pub(crate) use json::as_json;
#[cfg(feature = "mssql")]
pub(crate) use json::as_json_with_hyphens;
pub(crate) use names::{Identifier, Names};
pub(crate) use row::{Place, Row};
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) use script::statements;
pub(crate) use script::{Call, Part, Script};

/// A message that is committed so late, in microseconds, is found by the next claim, though that starts to look
/// where the last one ended.
pub(crate) const LATE_COMMITS: i64 = 100_000;

/// Which SQL a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite 3.51.3 or later.
    Sqlite,
    /// PostgreSQL 13 or later.
    Postgres,
    /// MySQL 8.0.21 or later, MariaDB 10.6 or later.
    MySql,
    /// SQL Server 2017 or later, and Azure SQL.
    SqlServer,
}

impl Dialect {
    /// Its name as in a connection URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::SqlServer => "sqlserver",
        }
    }
}

/// One SQL statement with its parameters, ready for any client library.
///
/// PostgreSQL statements number their parameters `$1`, SQLite's `?1`, SQL Server's `@P1`; all start at 1 and
/// leave no gap. MySQL's are `?`, one for each value.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The text.
    pub sql: Arc<str>,
    /// The parameters, in order.
    pub values: Vec<Value>,
}

/// A parameter, or a column of a row. Times are integers: microseconds since 1970, UTC.
///
/// SQLite and MySQL have no arrays and no UUIDs: there an array is JSON text (UUIDs and bytes as
/// lower-case hexadecimal), and a UUID is 16 bytes. SQL Server has no arrays either: there the JSON text
/// holds UUIDs with hyphens.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A 64-bit integer.
    Int(Option<i64>),
    /// Text.
    Text(Option<String>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
    /// A UUID.
    Uuid(Option<Uuid>),
    /// An array of integers.
    Ints(Vec<Option<i64>>),
    /// An array of texts.
    Texts(Vec<Option<String>>),
    /// An array of UUIDs.
    Uuids(Vec<Uuid>),
}

/// Values may be payloads: their content never shows.
impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => f.debug_tuple("Int").field(value).finish(),
            Self::Uuid(value) => f.debug_tuple("Uuid").field(value).finish(),
            Self::Text(value) => write!(f, "Text({} bytes)", value.as_ref().map_or(0, String::len)),
            Self::Bytes(value) => write!(f, "Bytes({} bytes)", value.as_ref().map_or(0, Vec::len)),
            Self::Ints(values) => write!(f, "Ints({})", values.len()),
            Self::Texts(values) => write!(f, "Texts({})", values.len()),
            Self::Uuids(values) => write!(f, "Uuids({})", values.len()),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(Some(value.into()))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(Some(value.into()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Self::Uuid(Some(value))
    }
}

impl From<Option<Uuid>> for Value {
    fn from(value: Option<Uuid>) -> Self {
        Self::Uuid(value)
    }
}

impl From<Vec<Uuid>> for Value {
    fn from(value: Vec<Uuid>) -> Self {
        Self::Uuids(value)
    }
}
