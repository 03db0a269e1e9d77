//! Sandboxes that agents buy by the minute, where an unpaid minute never runs.
//!
//! | module | what it settles |
//! |---|---|
//! | [`machine`] | what sandboxes run on |
//! | [`user`] | who buys: a wallet or a Nostr key |
//!
//! Every change of state is one function that is called inside a transaction, together with its transfers: a crash
//! finds either all of it or nothing. The money is in micro-USD.
// Whoever computes with money must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::float_arithmetic)]

mod error;
pub mod machine;
pub mod user;

pub use error::{Error, Result, code};
pub use user::UserId;
