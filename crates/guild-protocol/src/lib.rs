//! The bytes that others can check. Pure: no clock, no randomness, no disk, no network, no runtime.
//!
//! | module | what it settles |
//! |---|---|
//! | [`json`], [`hash`] | canonical JSON (RFC 8785) and `sha256:` hashes |
//! | [`id`], [`amount`], [`identity`] | typed ids, money, keys |
//! | [`evm`] | EVM addresses and the messages that wallets sign |
//! | [`bolt11`] | Lightning invoices |
//! | [`timestamp`], [`wire`] | moments as text; the fields of every type on the wire |
//! | [`content`] | CIDs, the UnixFS importer, the reader of its blocks |
//! | [`nostr`](mod@nostr) | events, jobs and announcements on Nostr |
//! | [`schema`], [`blueprint`] | job schemas and job hashes; success criteria and their measurement |
//! | [`receipt`], [`replay`] | signed proof of a payment, and the trajectory it names |
//! | [`verification`], [`tamper`] | what a verifier says of them, and which field was changed |
//! | [`env`](mod@env) | what is passed into every component: clock, randomness, signer, shutdown |
//! | [`error`], [`problems`] | codes and kinds shared by all crates; all problems of an input |
// Whoever pays or checks money by these bytes must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic)]

pub mod amount;
pub mod blueprint;
pub mod bolt11;
pub mod content;
pub mod env;
pub mod error;
pub mod evm;
pub mod hash;
pub mod id;
pub mod identity;
pub mod json;
pub mod nostr;
pub mod problems;
pub mod receipt;
pub mod replay;
pub mod schema;
pub mod tamper;
pub mod timestamp;
pub mod verification;
pub mod wire;

pub use error::{Error, Result};

/// Every error code of this crate, in the order of the documentation.
pub fn codes() -> impl Iterator<Item = &'static error::Code> {
    [
        amount::code::ALL,
        blueprint::code::ALL,
        bolt11::code::ALL,
        content::code::ALL,
        evm::code::ALL,
        hash::code::ALL,
        id::code::ALL,
        identity::code::ALL,
        identity::nip49::code::ALL,
        json::code::ALL,
        nostr::announcement::code::ALL,
        nostr::code::ALL,
        nostr::dispute::code::ALL,
        nostr::file_metadata::code::ALL,
        nostr::gift::code::ALL,
        nostr::heartbeat::code::ALL,
        nostr::job::code::ALL,
        nostr::nip44::code::ALL,
        nostr::receipt_notice::code::ALL,
        nostr::review::code::ALL,
        receipt::code::ALL,
        replay::code::ALL,
        schema::code::ALL,
        timestamp::code::ALL,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Every type on the wire that is described as data, in the order of its name.
/// `vectors/wire_versions.json` holds their fingerprints.
pub fn wire_types() -> impl Iterator<Item = &'static wire::Type> {
    [&receipt::WIRE].into_iter().chain(&replay::WIRE)
}
