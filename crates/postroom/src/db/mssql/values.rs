//! How our values travel: as parameters, and as the columns of a row.

use std::borrow::Cow;

use tiberius::error::Error as ClientError;
use tiberius::{ColumnData, ToSql};

use crate::sql::{Row, Value, as_json_with_hyphens};

/// The parameters of a statement.
pub(super) fn parameters(values: &[Value]) -> Vec<&dyn ToSql> {
    values.iter().map(|value| value as &dyn ToSql).collect()
}

/// Arrays travel as JSON. A parameter without a value has a type all the same.
impl ToSql for Value {
    fn to_sql(&self) -> ColumnData<'_> {
        match self {
            Self::Int(value) => ColumnData::I64(*value),
            Self::Text(value) => ColumnData::String(value.as_deref().map(Cow::Borrowed)),
            Self::Bytes(value) => ColumnData::Binary(value.as_deref().map(Cow::Borrowed)),
            Self::Uuid(value) => ColumnData::Guid(*value),
            Self::Ints(_) | Self::Texts(_) | Self::Uuids(_) => {
                ColumnData::String(as_json_with_hyphens(self).map(Cow::Owned))
            }
        }
    }
}

/// A row of ours: times are numbers already, so every column is a number, a text, bytes or an id.
pub(super) fn decode(row: tiberius::Row) -> Result<Row, ClientError> {
    let values = row.into_iter().map(column).collect::<Result<_, _>>()?;
    Ok(Row::new(values))
}

fn column(data: ColumnData<'static>) -> Result<Value, ClientError> {
    Ok(match data {
        ColumnData::I64(value) => Value::Int(value),
        ColumnData::I32(value) => Value::Int(value.map(i64::from)),
        ColumnData::I16(value) => Value::Int(value.map(i64::from)),
        ColumnData::U8(value) => Value::Int(value.map(i64::from)),
        ColumnData::Bit(value) => Value::Int(value.map(i64::from)),
        ColumnData::String(value) => Value::Text(value.map(Cow::into_owned)),
        ColumnData::Binary(value) => Value::Bytes(value.map(Cow::into_owned)),
        ColumnData::Guid(value) => Value::Uuid(value),
        _ => {
            return Err(ClientError::Conversion(
                "a column has a type that postroom does not return".into(),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn ids_in_an_array_are_written_as_sql_server_reads_them() {
        let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let ids = Value::Uuids(vec![id, id]);
        let ColumnData::String(Some(json)) = ids.to_sql() else {
            panic!("a text");
        };
        assert_eq!(
            json,
            r#"["00112233-4455-6677-8899-aabbccddeeff","00112233-4455-6677-8899-aabbccddeeff"]"#
        );
    }

    #[test]
    fn a_value_that_is_missing_keeps_its_type() {
        assert_eq!(Value::Int(None).to_sql(), ColumnData::I64(None));
        assert_eq!(Value::Text(None).to_sql(), ColumnData::String(None));
        assert_eq!(Value::Bytes(None).to_sql(), ColumnData::Binary(None));
        assert_eq!(Value::Uuid(None).to_sql(), ColumnData::Guid(None));
        let texts = Value::Texts(vec![Some("a\"b".to_owned()), None]);
        assert_eq!(
            texts.to_sql(),
            ColumnData::String(Some(r#"["a\"b",null]"#.into()))
        );
    }
}
