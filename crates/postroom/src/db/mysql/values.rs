//! How our values travel: as parameters, as parts of a text, and as the columns of a row.

use std::fmt::Write as _;

use mysql_async::Value as Raw;
use mysql_async::consts::ColumnType;

use crate::error::{Error, ErrorKind};
use crate::sql::{Row, Value, as_json};

/// The number that MySQL gives to bytes among its character sets.
const BINARY: u16 = 63;

/// A value as a parameter of a prepared statement.
pub(crate) fn encoded(value: &Value) -> Raw {
    match value {
        Value::Int(None) | Value::Text(None) | Value::Bytes(None) | Value::Uuid(None) => Raw::NULL,
        Value::Int(Some(value)) => Raw::Int(*value),
        Value::Text(Some(value)) => Raw::Bytes(value.as_bytes().to_vec()),
        Value::Bytes(Some(value)) => Raw::Bytes(value.clone()),
        Value::Uuid(Some(value)) => Raw::Bytes(value.as_bytes().to_vec()),
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => {
            Raw::Bytes(as_json(value).unwrap_or_default().into_bytes())
        }
    }
}

/// Writes a value as SQL has it, whatever the session thinks of backslashes and of character sets: a text
/// says what it is, and one that holds a backslash goes as hexadecimal digits.
pub(super) fn literal(text: &mut String, value: &Value) {
    match value {
        Value::Int(None) | Value::Text(None) | Value::Bytes(None) | Value::Uuid(None) => {
            text.push_str("NULL");
        }
        Value::Int(Some(value)) => {
            let _ = write!(text, "{value}");
        }
        Value::Bytes(Some(bytes)) => hexadecimal(text, bytes),
        Value::Uuid(Some(uuid)) => hexadecimal(text, uuid.as_bytes()),
        Value::Text(Some(content)) => text_literal(text, content),
        Value::Ints(_) | Value::Texts(_) | Value::Uuids(_) => {
            text_literal(text, &as_json(value).unwrap_or_default());
        }
    }
}

fn text_literal(text: &mut String, content: &str) {
    text.push_str("_utf8mb4 ");
    if content.contains('\\') {
        hexadecimal(text, content.as_bytes());
    } else {
        quoted(text, content);
    }
}

/// Writes a text in quotes. It must hold no backslash.
pub(super) fn quoted(text: &mut String, content: &str) {
    text.push('\'');
    for (index, piece) in content.split('\'').enumerate() {
        if index > 0 {
            text.push_str("''");
        }
        text.push_str(piece);
    }
    text.push('\'');
}

fn hexadecimal(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push('\'');
}

pub(super) fn decode(mut row: mysql_async::Row) -> Result<Row, Error> {
    let columns = row.columns();
    let mut values = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        values.push(match row.take(index).unwrap_or(Raw::NULL) {
            Raw::NULL => Value::Int(None),
            Raw::Int(value) => Value::Int(Some(value)),
            Raw::UInt(value) => Value::Int(Some(i64::try_from(value).map_err(|_| unexpected())?)),
            // In answers to a text numbers come as text, and sums always do.
            Raw::Bytes(bytes) if is_number(column.column_type()) => {
                let number = std::str::from_utf8(&bytes).ok();
                let number = number.and_then(|number| number.parse().ok());
                Value::Int(Some(number.ok_or_else(unexpected)?))
            }
            Raw::Bytes(bytes) if column.character_set() == BINARY => Value::Bytes(Some(bytes)),
            Raw::Bytes(bytes) => {
                Value::Text(Some(String::from_utf8(bytes).map_err(|_| unexpected())?))
            }
            _ => return Err(unexpected()),
        });
    }
    Ok(Row::new(values))
}

fn is_number(kind: ColumnType) -> bool {
    use ColumnType::{
        MYSQL_TYPE_INT24, MYSQL_TYPE_LONG, MYSQL_TYPE_LONGLONG, MYSQL_TYPE_NEWDECIMAL,
        MYSQL_TYPE_SHORT, MYSQL_TYPE_TINY,
    };
    matches!(
        kind,
        MYSQL_TYPE_INT24
            | MYSQL_TYPE_LONG
            | MYSQL_TYPE_LONGLONG
            | MYSQL_TYPE_NEWDECIMAL
            | MYSQL_TYPE_SHORT
            | MYSQL_TYPE_TINY
    )
}

fn unexpected() -> Error {
    ErrorKind::Database.with("the server sent a value of an unexpected type")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: impl Into<Value>) -> String {
        let mut text = String::new();
        literal(&mut text, &value.into());
        text
    }

    #[test]
    fn no_text_can_end_its_quotes() {
        assert_eq!(written("plain \"text\""), "_utf8mb4 'plain \"text\"'");
        assert_eq!(written("'"), "_utf8mb4 ''''");
        assert_eq!(written("it's"), "_utf8mb4 'it''s'");
        assert_eq!(written("\\'"), "_utf8mb4 x'5c27'");
        assert_eq!(written(vec![0_u8, 255]), "x'00ff'");
        assert_eq!(written(Some(-7_i64)), "-7");
        assert_eq!(written(None::<String>), "NULL");
    }
}
