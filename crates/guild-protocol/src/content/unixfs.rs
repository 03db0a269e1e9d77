//! The UnixFS message inside a dag-pb node: what sort of node it is, and its share of the content.

use super::code;
use super::wire::{self, Fields, Parsed};
use crate::{Error, Result};

/// What sort of node it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A leaf, in an older way to write files.
    Raw,
    /// A directory; its entries are the links.
    Directory,
    /// A file or a part of one.
    File,
    /// A symbolic link; the data is its target.
    Symlink,
}

impl Kind {
    fn number(self) -> u64 {
        match self {
            Kind::Raw => 0,
            Kind::Directory => 1,
            Kind::File => 2,
            Kind::Symlink => 4,
        }
    }

    fn from_number(number: u64) -> Result<Kind> {
        let what = match number {
            0 => return Ok(Kind::Raw),
            1 => return Ok(Kind::Directory),
            2 => return Ok(Kind::File),
            4 => return Ok(Kind::Symlink),
            3 => "a metadata node".to_owned(),
            5 => "a shard of a large directory".to_owned(),
            _ => format!("a UnixFS node of kind {number}"),
        };
        Err(Error::new(&code::UNSUPPORTED_UNIXFS, format!("{what} is not read")))
    }
}

/// When the file was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mtime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And so many nanoseconds.
    pub nanoseconds: Option<u32>,
}

/// The message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data<'a> {
    /// What sort of node it is.
    pub kind: Kind,
    /// The content that stands in this node itself.
    pub data: Option<&'a [u8]>,
    /// The bytes of content in this node and below.
    pub content_bytes: Option<u64>,
    /// The bytes of content below each link.
    pub child_bytes: Vec<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// When it was last changed.
    pub mtime: Option<Mtime>,
}

impl<'a> Data<'a> {
    /// A node of this kind with nothing in it.
    pub fn new(kind: Kind) -> Data<'a> {
        Data { kind, data: None, content_bytes: None, child_bytes: vec![], mode: None, mtime: None }
    }

    /// Reads the message. Every field must stand in the order of its number, as all known writers do it.
    pub fn decode(message: &'a [u8]) -> Result<Data<'a>> {
        let mut fields = Fields::of(message);
        // The kind comes first: the fields of kinds that are not read need no reading.
        let kind = match fields.next().map_err(malformed)? {
            Some((1, value)) => Kind::from_number(value.number().map_err(malformed)?)?,
            _ => return Err(malformed("the UnixFS message does not begin with its kind")),
        };
        let mut data = Data::new(kind);
        data.read_rest(fields).map_err(malformed)?;
        Ok(data)
    }

    fn read_rest(&mut self, mut fields: Fields<'a>) -> Parsed<()> {
        let mut last = 1;
        while let Some((field, value)) = fields.next()? {
            if field < last || (field == last && field != 4) {
                return Err("the fields of the UnixFS message are repeated or out of order");
            }
            last = field;
            match field {
                2 => self.data = Some(value.bytes()?),
                3 => self.content_bytes = Some(value.number()?),
                4 => self.child_bytes.push(value.number()?),
                7 => {
                    let mode = u32::try_from(value.number()?);
                    self.mode = Some(mode.map_err(|_| "the mode does not fit into 32 bits")?);
                }
                8 => self.mtime = Some(Mtime::decode(value.bytes()?)?),
                _ => return Err("the UnixFS message has an unknown field"),
            }
        }
        Ok(())
    }

    /// The bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        wire::put_number(&mut out, 1, self.kind.number());
        if let Some(data) = self.data {
            wire::put_bytes(&mut out, 2, data);
        }
        if let Some(content_bytes) = self.content_bytes {
            wire::put_number(&mut out, 3, content_bytes);
        }
        for bytes in &self.child_bytes {
            wire::put_number(&mut out, 4, *bytes);
        }
        if let Some(mode) = self.mode {
            wire::put_number(&mut out, 7, u64::from(mode));
        }
        if let Some(mtime) = self.mtime {
            wire::put_bytes(&mut out, 8, &mtime.encode());
        }
        out
    }
}

impl Mtime {
    fn decode(message: &[u8]) -> Parsed<Mtime> {
        let mut fields = Fields::of(message);
        let seconds = match fields.next()? {
            Some((1, value)) => value.number()?.cast_signed(),
            _ => return Err("the time of change does not begin with its seconds"),
        };
        let nanoseconds = match fields.next()? {
            None => None,
            Some((2, wire::Value::Fixed32(nanoseconds))) => Some(nanoseconds),
            Some(_) => return Err("the time of change has an unknown field"),
        };
        match fields.next()? {
            None => Ok(Mtime { seconds, nanoseconds }),
            Some(_) => Err("the time of change has an unknown field"),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        wire::put_number(&mut out, 1, self.seconds.cast_unsigned());
        if let Some(nanoseconds) = self.nanoseconds {
            wire::put_fixed32(&mut out, 2, nanoseconds);
        }
        out
    }
}

pub(super) fn malformed(why: &'static str) -> Error {
    Error::new(&code::BAD_UNIXFS, why)
}
