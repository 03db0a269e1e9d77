//! Our few kinds of values in PostgreSQL's many.

use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::db::{Column, Columns, Val};
use crate::{Error, Result};

type Unfit = Box<dyn std::error::Error + Sync + Send>;

impl ToSql for Val<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Unfit> {
        match *self {
            Val::Null => Ok(IsNull::Yes),
            Val::Int(int) if *ty == Type::INT4 => i32::try_from(int)?.to_sql(ty, out),
            Val::Int(int) if i64::accepts(ty) => int.to_sql(ty, out),
            Val::Text(text) if <&str>::accepts(ty) => text.to_sql(ty, out),
            Val::Bytes(bytes) if <&[u8]>::accepts(ty) => bytes.to_sql(ty, out),
            Val::Int(_) => Err(format!("an integer was given for {ty}").into()),
            Val::Text(_) => Err(format!("a text was given for {ty}").into()),
            Val::Bytes(_) => Err(format!("bytes were given for {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        // Which value fits which type is decided above, where the value is known.
        true
    }

    to_sql_checked!();
}

impl ToSql for Column<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Unfit> {
        match *self {
            Column::Ints(column) if *ty == Type::INT8_ARRAY => column.to_sql(ty, out),
            Column::OptInts(column) if *ty == Type::INT8_ARRAY => column.to_sql(ty, out),
            Column::Texts(column) if *ty == Type::TEXT_ARRAY => column.to_sql(ty, out),
            Column::OptTexts(column) if *ty == Type::TEXT_ARRAY => column.to_sql(ty, out),
            _ => Err(format!("a column was given for {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl Columns for tokio_postgres::Row {
    fn val(&self, i: usize) -> Result<Val<'_>> {
        let wrong = || Error::Decode(format!("column {i} is neither an integer, a text nor bytes"));
        let column = self.columns().get(i).ok_or_else(wrong)?;
        let int = |value: Option<i64>| value.map_or(Val::Null, Val::Int);
        match *column.type_() {
            Type::INT8 => self.try_get(i).map(int).map_err(|_| wrong()),
            Type::INT4 => {
                self.try_get(i).map(|v: Option<i32>| int(v.map(i64::from))).map_err(|_| wrong())
            }
            Type::BOOL => {
                self.try_get(i).map(|v: Option<bool>| int(v.map(i64::from))).map_err(|_| wrong())
            }
            Type::TEXT | Type::VARCHAR | Type::NAME => self
                .try_get(i)
                .map(|v: Option<&str>| v.map_or(Val::Null, Val::Text))
                .map_err(|_| wrong()),
            Type::BYTEA => self
                .try_get(i)
                .map(|v: Option<&[u8]>| v.map_or(Val::Null, Val::Bytes))
                .map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}
