//! Arrays as JSON text, for databases that have none.

use crate::sql::Value;

/// The JSON form of an array value, `None` for a value that is no array.
pub(crate) fn as_json(value: &Value) -> Option<String> {
    match value {
        Value::Ints(values) => serde_json::to_string(values).ok(),
        Value::Texts(values) => serde_json::to_string(values).ok(),
        Value::Uuids(values) => {
            let mut json = String::with_capacity(values.len() * 35 + 2);
            json.push('[');
            for (index, uuid) in values.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                json.push('"');
                json.push_str(uuid.simple().encode_lower(&mut uuid::Uuid::encode_buffer()));
                json.push('"');
            }
            json.push(']');
            Some(json)
        }
        Value::Int(_) | Value::Text(_) | Value::Bytes(_) | Value::Uuid(_) => None,
    }
}
