//! Rows as a database gives them back.

use uuid::Uuid;

use super::Value;
#[cfg(feature = "postgres")]
use crate::db::postgres;
use crate::error::{Error, ErrorKind};

/// One row: its columns are taken in the order in which the statement names them.
#[derive(Debug)]
pub(crate) struct Row {
    columns: Columns,
    next: usize,
}

#[derive(Debug)]
enum Columns {
    Values(Vec<Value>),
    /// Columns are read as they are asked for: a claim brings thousands of rows.
    #[cfg(feature = "postgres")]
    Postgres(tokio_postgres::Row),
}

impl Row {
    #[allow(dead_code, reason = "rows of PostgreSQL are left as they are")]
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self {
            columns: Columns::Values(values),
            next: 0,
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn of_postgres(row: tokio_postgres::Row) -> Self {
        Self {
            columns: Columns::Postgres(row),
            next: 0,
        }
    }

    /// A column further on, without taking it.
    pub(crate) fn peek_int(&self, column: usize) -> Option<i64> {
        let column = self.next + column;
        match &self.columns {
            Columns::Values(values) => match values.get(column)? {
                Value::Int(value) => *value,
                _ => None,
            },
            #[cfg(feature = "postgres")]
            Columns::Postgres(row) => postgres::int(row, column).ok()?,
        }
    }

    /// Where the row lies, in two columns further on. Only PostgreSQL tells that.
    pub(crate) fn peek_place(&self, column: usize) -> Option<Place> {
        match &self.columns {
            Columns::Values(_) => None,
            #[cfg(feature = "postgres")]
            Columns::Postgres(row) => postgres::row_place(row, self.next + column).ok()?,
        }
    }

    pub(crate) fn skip(&mut self, columns: usize) {
        self.next += columns;
    }

    pub(crate) fn int(&mut self) -> Result<i64, Error> {
        self.optional_int()?.ok_or_else(unexpected)
    }

    pub(crate) fn optional_int(&mut self) -> Result<Option<i64>, Error> {
        #[cfg(feature = "postgres")]
        if let Some((row, column)) = self.postgres() {
            return postgres::int(row, column).map_err(|_| unexpected());
        }
        match self.take() {
            Some(Value::Int(value)) => Ok(value),
            other => null(other),
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
        #[cfg(feature = "postgres")]
        if let Some((row, column)) = self.postgres() {
            return row.try_get(column).map_err(|_| unexpected());
        }
        match self.take() {
            Some(Value::Text(value)) => Ok(value),
            // MySQL keeps names as bytes, so that it compares them exactly.
            Some(Value::Bytes(Some(bytes))) => {
                String::from_utf8(bytes).map(Some).map_err(|_| unexpected())
            }
            other => null(other),
        }
    }

    pub(crate) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Error> {
        #[cfg(feature = "postgres")]
        if let Some((row, column)) = self.postgres() {
            return row.try_get(column).map_err(|_| unexpected());
        }
        match self.take() {
            Some(Value::Bytes(value)) => Ok(value),
            other => null(other),
        }
    }

    pub(crate) fn uuid(&mut self) -> Result<Uuid, Error> {
        self.optional_uuid()?.ok_or_else(unexpected)
    }

    pub(crate) fn optional_uuid(&mut self) -> Result<Option<Uuid>, Error> {
        #[cfg(feature = "postgres")]
        if let Some((row, column)) = self.postgres() {
            return row.try_get(column).map_err(|_| unexpected());
        }
        match self.take() {
            Some(Value::Uuid(value)) => Ok(value),
            Some(Value::Bytes(Some(bytes))) => {
                Uuid::from_slice(&bytes).map(Some).map_err(|_| unexpected())
            }
            other => null(other),
        }
    }

    /// One identifier or several: PostgreSQL gives an array where others give rows.
    pub(crate) fn uuids(&mut self) -> Result<Vec<Uuid>, Error> {
        #[cfg(feature = "postgres")]
        if let Columns::Postgres(row) = &self.columns
            && postgres::is_array(row, self.next)
        {
            let ids: Option<Vec<Uuid>> = row.try_get(self.next).map_err(|_| unexpected())?;
            self.next += 1;
            return Ok(ids.unwrap_or_default());
        }
        Ok(self.optional_uuid()?.into_iter().collect())
    }

    /// The next column, where the driver has left it.
    #[cfg(feature = "postgres")]
    fn postgres(&mut self) -> Option<(&tokio_postgres::Row, usize)> {
        let Columns::Postgres(row) = &self.columns else {
            return None;
        };
        self.next += 1;
        Some((row, self.next - 1))
    }

    fn take(&mut self) -> Option<Value> {
        let value = match &mut self.columns {
            Columns::Values(values) => values.get_mut(self.next)?,
            #[cfg(feature = "postgres")]
            Columns::Postgres(_) => return None,
        };
        self.next += 1;
        Some(std::mem::replace(value, Value::Int(None)))
    }
}

/// Where PostgreSQL has put a row: the page, the number there, and which write of the table that was. What lies
/// there by that write is the row, and has not been changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) page: u32,
    pub(crate) number: u16,
    pub(crate) version: i64,
}

/// Nothing but NULL fits.
fn null<T>(value: Option<Value>) -> Result<Option<T>, Error> {
    match value {
        Some(value) if value.is_null() => Ok(None),
        _ => Err(unexpected()),
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
