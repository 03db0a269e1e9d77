//! Blocks one after the other in a file: CAR, version 1.
//!
//! ```
//! use guild_protocol::content::{Cid, Codec, car};
//! let cid = Cid::of(Codec::Raw, b"hello");
//! let mut file = car::header(&cid);
//! file.extend(car::section(&cid, 5));
//! file.extend(b"hello");
//! assert_eq!(file[1..7], *b"\xa2eroot");
//! assert_eq!(file.len(), 1 + 58 + 1 + 36 + 5);
//! ```

use super::Cid;
use super::wire::{byte_count, put_varint};

/// What a file with this root begins with.
pub fn header(root: &Cid) -> Vec<u8> {
    let cid = root.to_bytes();
    // The CBOR of {"roots": [root], "version": 1}. A CID has the tag 42 and a zero before its bytes.
    let mut message = b"\xa2\x65roots\x81\xd8\x2a\x58".to_vec();
    let length = byte_count(&cid).saturating_add(1);
    // With SHA-256, which is all that is kept, a CID has 34 or 36 bytes.
    message.push(u8::try_from(length).unwrap_or(u8::MAX));
    message.push(0);
    message.extend_from_slice(&cid);
    message.extend_from_slice(b"\x67version\x01");
    let mut file = Vec::new();
    put_varint(&mut file, byte_count(&message));
    file.extend_from_slice(&message);
    file
}

/// What stands before the bytes of a block of this length.
pub fn section(cid: &Cid, block_bytes: u64) -> Vec<u8> {
    let cid = cid.to_bytes();
    let mut section = Vec::new();
    put_varint(&mut section, byte_count(&cid).saturating_add(block_bytes));
    section.extend_from_slice(&cid);
    section
}
