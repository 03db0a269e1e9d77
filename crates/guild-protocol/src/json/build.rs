//! A [`Doc`] from any value that serialises, with the refusals of the strict reader.

use std::borrow::Cow;
use std::fmt;

use serde::ser::{self, Serialize, Serializer};

use super::{Doc, MAX_SAFE_INTEGER, code, parse};
use crate::Error;

pub(super) struct Builder;

/// Our error behind serde's trait.
#[derive(Debug)]
pub(super) struct Refused(pub(super) Error);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refused {}

impl ser::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Refused {
        Refused(Error::new(&code::SHAPE, message.to_string()))
    }
}

type Built = Result<Doc<'static>, Refused>;

fn integer(number: impl Into<i128>) -> Built {
    let number = number.into();
    if number.unsigned_abs() > u128::from(MAX_SAFE_INTEGER) {
        let message = format!("{number} is beyond ±(2^53−1)");
        return Err(Refused(Error::new(&code::INTEGER_RANGE, message)));
    }
    Ok(Doc::Number(Cow::Owned(number.to_string())))
}

fn tagged(variant: &'static str, doc: Doc<'static>) -> Doc<'static> {
    Doc::Object(vec![(Cow::Borrowed(variant), doc)])
}

macro_rules! integers {
    ($($method:ident: $type:ty),+) => {$(
        fn $method(self, number: $type) -> Built {
            integer(number)
        }
    )+};
}

impl Serializer for Builder {
    type Ok = Doc<'static>;
    type Error = Refused;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Members;
    type SerializeStruct = Members;
    type SerializeStructVariant = Members;

    integers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);

    fn serialize_bool(self, value: bool) -> Built {
        Ok(Doc::Bool(value))
    }

    fn serialize_f32(self, number: f32) -> Built {
        self.serialize_f64(f64::from(number))
    }

    fn serialize_f64(self, number: f64) -> Built {
        if !number.is_finite() {
            return Err(Refused(Error::new(&code::NOT_FINITE, format!("{number} is not finite"))));
        }
        // An exponent marks it as a double, so that 1e20 is not taken for an integer out of range.
        Ok(Doc::Number(Cow::Owned(format!("{number:e}"))))
    }

    fn serialize_char(self, value: char) -> Built {
        Ok(Doc::Text(Cow::Owned(value.to_string())))
    }

    fn serialize_str(self, value: &str) -> Built {
        Ok(Doc::Text(Cow::Owned(value.to_owned())))
    }

    fn serialize_bytes(self, value: &[u8]) -> Built {
        value.iter().map(|b| integer(*b)).collect::<Result<_, _>>().map(Doc::Array)
    }

    fn serialize_none(self) -> Built {
        Ok(Doc::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Built {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Built {
        Ok(Doc::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Built {
        Ok(Doc::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Built {
        Ok(Doc::Text(Cow::Borrowed(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Built {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Built {
        Ok(tagged(variant, value.serialize(self)?))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, Refused> {
        Ok(Items::default())
    }

    fn serialize_tuple(self, _: usize) -> Result<Items, Refused> {
        Ok(Items::default())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items, Refused> {
        Ok(Items::default())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items, Refused> {
        Ok(Items { variant: Some(variant), items: Vec::new() })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Members, Refused> {
        Ok(Members::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Members, Refused> {
        Ok(Members::default())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Members, Refused> {
        Ok(Members { variant: Some(variant), ..Members::default() })
    }
}

/// An array being built.
#[derive(Default)]
pub(super) struct Items {
    variant: Option<&'static str>,
    items: Vec<Doc<'static>>,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        let place = self.items.len();
        let doc =
            value.serialize(Builder).map_err(|e| Refused(e.0.within(&format!("[{place}]"))))?;
        self.items.push(doc);
        Ok(())
    }

    fn build(self) -> Built {
        let array = Doc::Array(self.items);
        Ok(match self.variant {
            Some(variant) => tagged(variant, array),
            None => array,
        })
    }
}

macro_rules! items {
    ($($trait:ident $method:ident),+) => {$(
        impl ser::$trait for Items {
            type Ok = Doc<'static>;
            type Error = Refused;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
                self.push(value)
            }
            fn end(self) -> Built {
                self.build()
            }
        }
    )+};
}
items!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field);

/// An object being built.
#[derive(Default)]
pub(super) struct Members {
    variant: Option<&'static str>,
    members: Vec<(Cow<'static, str>, Doc<'static>)>,
    key: Option<Cow<'static, str>>,
}

impl Members {
    fn push<T: Serialize + ?Sized>(
        &mut self,
        key: Cow<'static, str>,
        value: &T,
    ) -> Result<(), Refused> {
        let doc = value.serialize(Builder).map_err(|e| Refused(e.0.within(&key)))?;
        self.members.push((key, doc));
        Ok(())
    }

    fn build(mut self) -> Built {
        parse::sort_members(&mut self.members).map_err(|key| {
            Refused(Error::new(&code::DUPLICATE_KEY, format!("the key {key:?} stands twice")))
        })?;
        let object = Doc::Object(self.members);
        Ok(match self.variant {
            Some(variant) => tagged(variant, object),
            None => object,
        })
    }
}

impl ser::SerializeMap for Members {
    type Ok = Doc<'static>;
    type Error = Refused;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refused> {
        self.key = Some(match key.serialize(Builder)? {
            Doc::Text(text) => text,
            Doc::Number(number) => number,
            Doc::Bool(value) => Cow::Owned(value.to_string()),
            _ => return Err(Refused(Error::new(&code::KEY_TYPE, "a map key must be a text"))),
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refused> {
        let key = self.key.take().unwrap_or_default();
        self.push(key, value)
    }

    fn end(self) -> Built {
        self.build()
    }
}

impl ser::SerializeStruct for Members {
    type Ok = Doc<'static>;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.push(Cow::Borrowed(key), value)
    }

    fn end(self) -> Built {
        self.build()
    }
}

impl ser::SerializeStructVariant for Members {
    type Ok = Doc<'static>;
    type Error = Refused;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.push(Cow::Borrowed(key), value)
    }

    fn end(self) -> Built {
        self.build()
    }
}
