//! How our values travel: as parameters, and as the columns of a row.

use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};
use tokio_postgres::{Error, Row};
use uuid::Uuid;

use crate::sql::{Place, Value};

/// A number: an integer of any width, a truth value, or a time in microseconds.
pub(crate) fn int(row: &Row, column: usize) -> Result<Option<i64>, Error> {
    Ok(row.try_get::<_, Option<Int>>(column)?.map(|int| int.0))
}

/// Whether the column holds identifiers, however many.
pub(crate) fn is_array(row: &Row, column: usize) -> bool {
    let column = row.columns().get(column);
    column.is_some_and(|column| *column.type_() == Type::UUID_ARRAY)
}

struct Int(i64);

impl<'a> FromSql<'a> for Int {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(match *ty {
            Type::TIMESTAMPTZ => micros(raw)?,
            Type::INT8 => i64::from_be_bytes(raw.try_into()?),
            Type::INT4 => i32::from_be_bytes(raw.try_into()?).into(),
            Type::INT2 => i16::from_be_bytes(raw.try_into()?).into(),
            _ => bool::from_sql(ty, raw)?.into(),
        }))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(
            *ty,
            Type::TIMESTAMPTZ | Type::INT8 | Type::INT4 | Type::INT2 | Type::BOOL
        )
    }
}

/// A place and, in the column after it, its version.
pub(crate) fn row_place(row: &Row, column: usize) -> Result<Option<Place>, Error> {
    let place: Option<Tid> = row.try_get(column)?;
    let version: Option<i64> = row.try_get(column + 1)?;
    Ok(place
        .zip(version)
        .map(|(Tid(page, number), version)| Place {
            page,
            number,
            version,
        }))
}

struct Tid(u32, u16);

impl<'a> FromSql<'a> for Tid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let (page, number) = raw.split_at_checked(4).ok_or("a place is cut off")?;
        let page = u32::from_be_bytes(page.try_into()?);
        Ok(Self(page, u16::from_be_bytes(number.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TID
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
