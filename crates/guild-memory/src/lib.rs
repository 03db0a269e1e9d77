//! Embeddings, and later what is remembered by them.
//!
//! | module | what it settles |
//! |---|---|
//! | [`embed`] | a text as a vector: the same bits on all hardware |
#![deny(clippy::indexing_slicing, clippy::panic)]

pub mod embed;

pub use guild_protocol::{Error, Result};
