//! Values from a [`Doc`]. Unlike the common readers, an array is never taken for an object: a type with named fields
//! has one written form only.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{CowStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::Doc;

/// What serde says of a shape that does not fit.
#[derive(Debug)]
pub(super) struct Misfit(pub(super) String);

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Misfit {
        Misfit(message.to_string())
    }
}

type Read<T> = Result<T, Misfit>;

/// Reads what the document holds.
pub(super) struct Reader<'de>(pub(super) Doc<'de>);

impl<'de> IntoDeserializer<'de, Misfit> for Reader<'de> {
    type Deserializer = Reader<'de>;
    fn into_deserializer(self) -> Reader<'de> {
        self
    }
}

fn number<'de, V: Visitor<'de>>(written: &str, visitor: V) -> Read<V::Value> {
    // `-0` is a double: no integer has a sign of its own at zero.
    if written != "-0" {
        if let Ok(number) = written.parse::<u64>() {
            return visitor.visit_u64(number);
        }
        if let Ok(number) = written.parse::<i64>() {
            return visitor.visit_i64(number);
        }
    }
    match written.parse::<f64>() {
        Ok(number) => visitor.visit_f64(number),
        Err(_) => Err(Misfit(format!("{written} is not a number"))),
    }
}

fn sequence<'de, V: Visitor<'de>>(items: Vec<Doc<'de>>, visitor: V) -> Read<V::Value> {
    let mut items = SeqDeserializer::new(items.into_iter().map(Reader));
    let value = visitor.visit_seq(&mut items)?;
    items.end()?;
    Ok(value)
}

fn map<'de, V: Visitor<'de>>(
    members: Vec<(Cow<'de, str>, Doc<'de>)>,
    visitor: V,
) -> Read<V::Value> {
    let mut members =
        MapDeserializer::new(members.into_iter().map(|(key, doc)| (key, Reader(doc))));
    let value = visitor.visit_map(&mut members)?;
    members.end()?;
    Ok(value)
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.0 {
            Doc::Null => visitor.visit_unit(),
            Doc::Bool(value) => visitor.visit_bool(value),
            Doc::Number(written) => number(&written, visitor),
            Doc::Text(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            Doc::Text(Cow::Owned(text)) => visitor.visit_string(text),
            Doc::Array(items) => sequence(items, visitor),
            Doc::Object(members) => map(members, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.0 {
            Doc::Null => visitor.visit_none(),
            doc => visitor.visit_some(Reader(doc)),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match self.0 {
            Doc::Array(_) => Err(de::Error::invalid_type(Unexpected::Seq, &visitor)),
            doc => Reader(doc).deserialize_any(visitor),
        }
    }

    /// Only variants without content: the formats have no others that are written with the variant as a key.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match self.0 {
            Doc::Text(text) => visitor.visit_enum(CowStrDeserializer::new(text)),
            doc => Reader(doc).deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}
