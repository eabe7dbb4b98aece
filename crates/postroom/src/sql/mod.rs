//! What is said to a database: values, statements, and the .sql files of each dialect.
//! SQL text lives in `sqlite/`, `postgres/`, `mysql/` and `mssql/`, under the same file names; this module fills in the
//! table names once, when a store is opened. Nothing here talks to a database.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, ErrorKind};

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
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(crate) use script::statements;
pub(crate) use script::{Call, Part, Script};

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

/// One row: its columns are taken in the order in which the statement names them.
#[derive(Debug)]
pub(crate) struct Row(pub(crate) std::vec::IntoIter<Value>);

impl Row {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    /// A column further on, without taking it.
    pub(crate) fn peek_int(&self, column: usize) -> Option<i64> {
        match self.0.as_slice().get(column) {
            Some(Value::Int(value)) => *value,
            _ => None,
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, Error> {
        self.optional_int()?.ok_or_else(unexpected)
    }

    pub(crate) fn optional_int(&mut self) -> Result<Option<i64>, Error> {
        match self.0.next() {
            Some(Value::Int(value)) => Ok(value),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn count(&mut self) -> Result<u64, Error> {
        u64::try_from(self.int()?).map_err(|_| unexpected())
    }

    pub(crate) fn small(&mut self) -> Result<u32, Error> {
        u32::try_from(self.int()?).map_err(|_| unexpected())
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        self.optional_text()?.ok_or_else(unexpected)
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, Error> {
        match self.0.next() {
            Some(Value::Text(value)) => Ok(value),
            // MySQL keeps names as bytes, so that it compares them exactly.
            Some(Value::Bytes(Some(bytes))) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unexpected())
            }
            Some(value) if value.is_null() => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.0.next() {
            Some(Value::Bytes(value)) => Ok(value),
            Some(value) if value.is_null() => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, Error> {
        self.optional_uuid()?.ok_or_else(unexpected)
    }

    /// One identifier or several: PostgreSQL gives an array where others give rows.
    pub(crate) fn uuids(&mut self) -> Result<Vec<Uuid>, Error> {
        if let Some(Value::Uuids(_)) = self.0.as_slice().first() {
            let Some(Value::Uuids(ids)) = self.0.next() else {
                return Err(unexpected());
            };
            return Ok(ids);
        }
        Ok(self.optional_uuid()?.into_iter().collect())
    }

    pub(crate) fn optional_uuid(&mut self) -> Result<Option<Uuid>, Error> {
        match self.0.next() {
            Some(Value::Uuid(value)) => Ok(value),
            Some(Value::Bytes(Some(bytes))) => {
                Uuid::from_slice(&bytes).map(Some).map_err(|_| unexpected())
            }
            Some(value) if value.is_null() => Ok(None),
            _ => Err(unexpected()),
        }
    }
}

impl Value {
    fn is_null(&self) -> bool {
        matches!(
            self,
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) | Self::Uuid(None)
        )
    }
}

/// A row that does not look as this library wrote it.
fn unexpected() -> Error {
    ErrorKind::Schema.with(
        "a column has an unexpected type; run `postroom schema verify` to find the difference",
    )
}
