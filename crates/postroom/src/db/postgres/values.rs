//! How our values travel: as parameters, and as the columns of a row.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use uuid::Uuid;

use crate::sql::{Row, Value};

pub(super) fn decode(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let mut values = Vec::with_capacity(row.len());
    for index in 0..row.len() {
        values.push(row.try_get::<_, Column>(index)?.0);
    }
    Ok(Row::new(values))
}

/// A column of any type that our statements return.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::UUID => Value::Uuid(Some(Uuid::from_slice(raw)?)),
            Type::INT8 => Value::Int(Some(i64::from_be_bytes(raw.try_into()?))),
            Type::INT4 => Value::Int(Some(i32::from_be_bytes(raw.try_into()?).into())),
            Type::INT2 => Value::Int(Some(i16::from_be_bytes(raw.try_into()?).into())),
            Type::BOOL => Value::Int(Some(bool::from_sql(ty, raw)?.into())),
            Type::TIMESTAMPTZ => Value::Int(Some(micros(raw)?)),
            Type::BYTEA => Value::Bytes(Some(raw.to_vec())),
            Type::UUID_ARRAY => Value::Uuids(Vec::from_sql(ty, raw)?),
            _ => Value::Text(Some(String::from_sql(ty, raw)?)),
        }))
    }

    fn from_sql_null(ty: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::UUID_ARRAY => Value::Uuids(Vec::new()),
            _ => Value::Int(None),
        }))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A timestamp as microseconds since 1970; PostgreSQL counts from 2000.
fn micros(raw: &[u8]) -> Result<i64, std::array::TryFromSliceError> {
    const EPOCH_DIFFERENCE: i64 = 946_684_800_000_000;
    Ok(i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_DIFFERENCE))
}

impl ToSql for Value {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Int(value) => value.to_sql(ty, out),
            Self::Text(value) => value.to_sql(ty, out),
            Self::Bytes(value) => value.to_sql(ty, out),
            Self::Uuid(value) => value.to_sql(ty, out),
            Self::Ints(values) => values.to_sql(ty, out),
            Self::Texts(values) => values.to_sql(ty, out),
            Self::Uuids(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        <i64 as ToSql>::accepts(ty)
            || <String as ToSql>::accepts(ty)
            || <Vec<u8> as ToSql>::accepts(ty)
            || <Uuid as ToSql>::accepts(ty)
            || <Vec<i64> as ToSql>::accepts(ty)
            || <Vec<String> as ToSql>::accepts(ty)
            || <Vec<Uuid> as ToSql>::accepts(ty)
    }

    tokio_postgres::types::to_sql_checked!();
}

pub(super) fn type_of(value: &Value) -> Type {
    match value {
        Value::Int(_) => Type::INT8,
        Value::Text(_) => Type::TEXT,
        Value::Bytes(_) => Type::BYTEA,
        Value::Uuid(_) => Type::UUID,
        Value::Ints(_) => Type::INT8_ARRAY,
        Value::Texts(_) => Type::TEXT_ARRAY,
        Value::Uuids(_) => Type::UUID_ARRAY,
    }
}
