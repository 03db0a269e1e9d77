//! Content ids.

use std::fmt;
use std::str::FromStr;

use cid::multibase::Base;
use multihash::Multihash;

use super::code;
use crate::hash::{Hash, shorten};
use crate::{Error, Result};

/// The multicodec of SHA-256.
const SHA2_256: u64 = 0x12;

/// Longer than any CID with a digest of up to 64 bytes in any of the three bases.
const MAX_TEXT_BYTES: usize = 256;

/// How a CID is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `Qm…`: dag-pb and SHA-256 only.
    V0,
    /// `bafy…`, `bafk…` and all else.
    V1,
}

/// What the bytes of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// Bytes without structure: a leaf of a file, or a small file.
    Raw,
    /// A node with links: a file of several blocks, or a directory.
    DagPb,
    /// Something else, by its multicodec number.
    Other(u64),
}

impl Codec {
    fn number(self) -> u64 {
        match self {
            Codec::Raw => 0x55,
            Codec::DagPb => 0x70,
            Codec::Other(number) => number,
        }
    }
}

/// A content id: version, codec and hash of a block.
///
/// It is read from base32 (`b…`), base58 (`Qm…`, `z…`) and hex (`f01…`), and only from the form that it is also
/// written in, so that one block has one name per base.
///
/// ```
/// use guild_protocol::content::{Cid, Codec};
/// let cid: Cid = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq".parse()?;
/// assert_eq!(cid.codec(), Codec::Raw);
/// assert_eq!(cid.hex()[..9], *"f01551220");
/// assert_eq!(cid.hex().parse::<Cid>()?, cid);
/// // An event on the chain carries the digest alone; the block is one of two.
/// let [node, raw] = Cid::candidates(cid.digest()?);
/// assert_eq!((node.codec(), raw), (Codec::DagPb, cid));
/// # Ok::<(), guild_protocol::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(cid::Cid);

impl Cid {
    /// The version 1 CID of a block with this SHA-256 digest.
    pub fn v1(codec: Codec, digest: Hash) -> Cid {
        Cid(cid::Cid::new_v1(codec.number(), multihash(digest)))
    }

    /// The version 0 CID, always of a dag-pb block, with this SHA-256 digest.
    pub fn v0(digest: Hash) -> Cid {
        let hash = multihash(digest);
        // Refused only for other hash functions or lengths.
        Cid(cid::Cid::new_v0(hash).unwrap_or(cid::Cid::new_v1(Codec::DagPb.number(), hash)))
    }

    /// The CID of a block, by hashing it.
    pub fn of(codec: Codec, block: &[u8]) -> Cid {
        Cid::v1(codec, Hash::of(block))
    }

    /// What a digest without a codec can mean: the dag-pb block or the raw block. A reader must try both.
    pub fn candidates(digest: Hash) -> [Cid; 2] {
        [Cid::v1(Codec::DagPb, digest), Cid::v1(Codec::Raw, digest)]
    }

    /// How it is written.
    pub fn version(&self) -> Version {
        match self.0.version() {
            cid::Version::V0 => Version::V0,
            cid::Version::V1 => Version::V1,
        }
    }

    /// What its block holds.
    pub fn codec(&self) -> Codec {
        match self.0.codec() {
            0x55 => Codec::Raw,
            0x70 => Codec::DagPb,
            number => Codec::Other(number),
        }
    }

    /// The SHA-256 digest of its block; other hash functions are refused.
    pub fn digest(&self) -> Result<Hash> {
        let hash = self.0.hash();
        let digest = <[u8; 32]>::try_from(hash.digest()).ok();
        match digest.filter(|_| hash.code() == SHA2_256) {
            Some(digest) => Ok(Hash::from_bytes(digest)),
            None => Err(Error::new(
                &code::UNSUPPORTED_HASH,
                format!(
                    "{self} uses hash function {:#x} with {} bytes, not SHA-256",
                    hash.code(),
                    hash.size()
                ),
            )),
        }
    }

    /// Checks that these are the bytes that the CID names.
    pub fn verify(&self, block: &[u8]) -> Result<()> {
        let found = Hash::of(block);
        if self.digest()? == found {
            return Ok(());
        }
        Err(Error::new(
            &code::CID_MISMATCH,
            format!("the block of {self} has the hash {}", found.hex()),
        ))
    }

    /// The same block named in version 1.
    #[must_use]
    pub fn to_v1(&self) -> Cid {
        Cid(cid::Cid::new_v1(self.0.codec(), *self.0.hash()))
    }

    /// The hex form of version 1: `f01701220…` or `f01551220…`, as gateways of the chain venue are asked.
    pub fn hex(&self) -> String {
        format!("f{}", crate::hash::to_hex(&self.to_v1().to_bytes()))
    }

    /// The base58 form: `Qm…` for version 0, `z…` for version 1.
    pub fn base58(&self) -> String {
        self.0.to_string_of_base(Base::Base58Btc).unwrap_or_else(|_| self.to_string())
    }

    /// The bytes, as they stand in the links of a node.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Reads exactly the bytes of one CID.
    pub fn from_bytes(bytes: &[u8]) -> Result<Cid> {
        let malformed = |why: &str| Error::new(&code::BAD_CID, why);
        let mut rest = bytes;
        let cid = cid::Cid::read_bytes(&mut rest).map_err(|e| match e {
            cid::Error::InvalidCidVersion | cid::Error::InvalidExplicitCidV0 => {
                malformed("it has an unknown version")
            }
            _ => malformed("it has no version, codec and hash, or ends too early"),
        })?;
        if !rest.is_empty() {
            return Err(malformed("bytes follow its end"));
        }
        // The reader below drops the bits of a number beyond 64.
        if cid.to_bytes() != bytes {
            return Err(malformed("it is not in its normal form"));
        }
        Ok(Cid(cid))
    }
}

fn multihash(digest: Hash) -> Multihash<64> {
    // Refused only above 64 bytes.
    Multihash::wrap(SHA2_256, digest.as_bytes()).unwrap_or_default()
}

impl FromStr for Cid {
    type Err = Error;
    fn from_str(text: &str) -> Result<Cid> {
        let malformed = |why: &str| {
            let message = format!("{:?} is not a CID: {why}", shorten(text));
            Error::new(&code::BAD_CID, message)
        };
        if text.len() > MAX_TEXT_BYTES {
            return Err(malformed("it is too long"));
        }
        let base = match text.as_bytes() {
            [b'Q', ..] | [b'z', ..] => Base::Base58Btc,
            [b'b', ..] => Base::Base32Lower,
            [b'f', ..] => Base::Base16Lower,
            _ => return Err(malformed("it does not begin as one in base32, base58 or hex does")),
        };
        let digits = if text.starts_with('Q') { Some(text) } else { text.get(1..) };
        let bytes = base.decode(digits.unwrap_or_default());
        let bytes = bytes.map_err(|_| malformed("it has digits of another base"))?;
        let cid = Cid::from_bytes(&bytes).map_err(|e| malformed(e.message()))?;
        // One name per base: no spare bits, and no version 0 behind a `z`, b or f.
        if cid.0.to_string_of_base(base).ok().as_deref() != Some(text) {
            return Err(malformed("it is not in its normal form"));
        }
        Ok(cid)
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl serde::Serialize for Cid {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Cid {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Cid, D::Error> {
        <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}
