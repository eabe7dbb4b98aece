//! Arrays as JSON text, for databases that have none.

use uuid::Uuid;

use crate::sql::Value;

/// The JSON form of an array value, `None` for a value that is no array. UUIDs are plain digits.
#[cfg(any(
    feature = "sqlite",
    feature = "mysql",
    feature = "sqlx-sqlite",
    feature = "diesel-sqlite",
    feature = "sea-orm"
))]
pub(crate) fn as_json(value: &Value) -> Option<String> {
    array(value, |uuid, json| {
        json.push_str(uuid.simple().encode_lower(&mut Uuid::encode_buffer()));
    })
}

/// The same, with UUIDs as SQL Server reads them.
#[cfg(feature = "mssql")]
pub(crate) fn as_json_with_hyphens(value: &Value) -> Option<String> {
    array(value, |uuid, json| {
        json.push_str(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    })
}

fn array(value: &Value, write: impl Fn(&Uuid, &mut String)) -> Option<String> {
    match value {
        Value::Ints(values) => serde_json::to_string(values).ok(),
        Value::Texts(values) => serde_json::to_string(values).ok(),
        Value::Uuids(values) => {
            let mut json = String::with_capacity(values.len() * 39 + 2);
            json.push('[');
            for (index, uuid) in values.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                json.push('"');
                write(uuid, &mut json);
                json.push('"');
            }
            json.push(']');
            Some(json)
        }
        Value::Int(_) | Value::Text(_) | Value::Bytes(_) | Value::Uuid(_) => None,
    }
}
