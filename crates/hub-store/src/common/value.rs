//! Values of SQL parameters: the same for both databases, except that ids are bytes in `SQLite` and text in PostgreSQL.

use std::borrow::Cow;

use bytes::BytesMut;
use linchpin_hub_core::digest::Digest;
use linchpin_hub_core::id::{ApprovalId, CallId, ServerId, TenantId};
use rusqlite::types::{ToSqlOutput, ValueRef};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Value of an SQL parameter.
#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    /// Id: 16 bytes in `SQLite`, text in PostgreSQL.
    Id([u8; 16]),
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::Boolean(value)
    }
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Integer(value)
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Value::Real(value)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text.into())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(text.into())
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Value::Bytes(bytes)
    }
}

impl<'a> From<&'a Digest> for Value<'a> {
    fn from(digest: &'a Digest) -> Self {
        Value::Bytes(digest.bytes())
    }
}

macro_rules! ids {
    ($($id:ty),*) => { $(
        impl From<$id> for Value<'_> {
            fn from(id: $id) -> Self {
                Value::Id(id.to_u128().to_be_bytes())
            }
        }
    )* };
}

ids!(TenantId, CallId, ApprovalId, ServerId);

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Boolean(value) => ValueRef::Integer(i64::from(*value)),
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
            Value::Id(id) => ValueRef::Blob(id),
        }))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Boolean(value) => value.to_sql(ty, out),
            Value::Integer(value) => value.to_sql(ty, out),
            Value::Real(value) => value.to_sql(ty, out),
            Value::Text(text) => text.to_sql(ty, out),
            Value::Bytes(bytes) => bytes.to_sql(ty, out),
            Value::Id(id) => CallId::from_u128(u128::from_be_bytes(*id)).to_string().to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
