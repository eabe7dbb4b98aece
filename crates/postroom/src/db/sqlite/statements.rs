//! Runs the statements of a call on one connection, and says what SQLite's errors mean.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use crate::db::Output;
use crate::error::{Error, ErrorKind};
use crate::sql::{Call, Part, Row, Statement, Value, as_json};

/// Runs calls one after the other, in whatever transaction is open.
pub(super) fn run_calls(connection: &Connection, calls: &[Call]) -> Result<Output, Error> {
    let mut output = Output::default();
    for call in calls {
        let mut changed = true;
        for (index, part) in call.script.parts.iter().enumerate() {
            if part.if_changed && !changed {
                continue;
            }
            let before = connection.total_changes();
            run_part(connection, part, &call.values, &mut output.rows)
                .map_err(|error| database_error(&error))?;
            let now_changed = connection.total_changes() - before;
            output.changed.push(now_changed);
            if index == 0 {
                Call::check(call.needs, now_changed)?;
            }
            if !part.if_changed {
                changed = now_changed > 0;
            }
        }
        output.ends.push(output.rows.len());
    }
    Ok(output)
}

/// Runs one statement to its end, whatever rows it returns, and says how many it changed.
pub(crate) fn execute_one(connection: &Connection, statement: &Statement) -> rusqlite::Result<u64> {
    let before = connection.total_changes();
    let mut prepared = connection.prepare_cached(&statement.sql)?;
    let mut rows = prepared.query(params_from_iter(&statement.values))?;
    while rows.next()?.is_some() {}
    Ok(connection.total_changes() - before)
}

fn run_part(
    connection: &Connection,
    part: &Part,
    values: &[Value],
    rows: &mut Vec<Row>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(&part.sql)?;
    for (position, &index) in part.values.iter().enumerate() {
        statement.raw_bind_parameter(position + 1, &values[index])?;
    }
    let columns = statement.column_count();
    let mut cursor = statement.raw_query();
    while let Some(row) = cursor.next()? {
        let mut decoded = Vec::with_capacity(columns);
        for index in 0..columns {
            decoded.push(match row.get_ref(index)? {
                ValueRef::Null => Value::Int(None),
                ValueRef::Integer(value) => Value::Int(Some(value)),
                ValueRef::Text(text) => {
                    Value::Text(Some(String::from_utf8_lossy(text).into_owned()))
                }
                ValueRef::Blob(bytes) => Value::Bytes(Some(bytes.to_vec())),
                ValueRef::Real(_) => {
                    return Err(rusqlite::Error::InvalidColumnType(
                        index,
                        String::new(),
                        rusqlite::types::Type::Real,
                    ));
                }
            });
        }
        rows.push(Row::new(decoded));
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let text =
            |text: &'_ str| ToSqlOutput::Owned(rusqlite::types::Value::Text(text.to_owned()));
        Ok(match self {
            Self::Int(None) | Self::Text(None) | Self::Bytes(None) | Self::Uuid(None) => {
                ToSqlOutput::Borrowed(ValueRef::Null)
            }
            Self::Int(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Integer(*value)),
            Self::Text(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Self::Bytes(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            Self::Uuid(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Blob(value.as_bytes())),
            Self::Ints(_) | Self::Texts(_) | Self::Uuids(_) => {
                text(&as_json(self).unwrap_or_default())
            }
        })
    }
}

/// SQLite's messages name tables and columns, never values.
pub(crate) fn database_error(error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let (failure, message) = match error {
        rusqlite::Error::SqliteFailure(failure, message) => (failure, message.clone()),
        rusqlite::Error::SqlInputError { error, msg, .. } => (error, Some(msg.clone())),
        _ => {
            return ErrorKind::Database
                .with("the SQLite client could not encode or decode a value");
        }
    };
    let message = message.unwrap_or_else(|| failure.to_string());
    let error = match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OperationInterrupted => {
            ErrorKind::Transient.with(message)
        }
        ErrorCode::ConstraintViolation
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE =>
        {
            ErrorKind::AlreadyExists { what: "work item" }.with("this id was enqueued before")
        }
        ErrorCode::ConstraintViolation
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
        {
            ErrorKind::NotFound { what: "join" }.with("no join has this id")
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::DiskFull => {
            ErrorKind::Transient.with(message)
        }
        _ if message.starts_with("no such ") || message.contains(" has no column named ") => {
            ErrorKind::Schema.with(format!(
                "{message}; run `deploy()` or `postroom schema deploy`"
            ))
        }
        _ => ErrorKind::Database.with(message),
    };
    error.with_code(failure.extended_code.to_string())
}
