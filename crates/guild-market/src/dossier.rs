//! What can be checked of one piece of work by somebody who has nothing but files.
//!
//! A dossier is a folder: the signed events, verdicts, receipts, replays, the commit of the ledger in which was paid,
//! what was committed to and revealed, and what was said of it in public, tied together by [`MANIFEST`]. [`gather`]
//! reads it from the rows of the node that bought; [`check`] looks at it with no row, key or network. The form is
//! described in `docs/formats/dossier.md`.
//!
//! The manifest is signed by nobody and proves nothing. Whatever it says is looked for in what somebody has signed: the
//! request, results and reviews as events, and the receipt, which names the hashes of job, verdict and replay and a
//! head of the ledger. Nothing in `check` uses the code that decides delegations, settles orders or writes replays: a
//! bug there must not hide here. The forms alone are shared, and the judge, where it is asked to judge again.

use guild_protocol::hash::{Hash, to_hex};
use guild_protocol::id::ReceiptId;
use guild_protocol::nostr::EventId;

mod check;
pub mod code;
mod folder;
mod gather;
mod manifest;
mod report;

pub use check::{Options, check};
pub use folder::{Folder, Found};
pub use gather::{About, Gathered, gather};
pub use manifest::{Council, Manifest, Revealed, Work};
pub use report::{Check, Counted, Problem, Report};

/// The file that names all others.
pub const MANIFEST: &str = "evidence.json";
/// The version of the manifest.
pub const SCHEMA_VERSION: &str = "guild.dossier.v1";
/// The manifest is never longer than this,
pub const MANIFEST_MAX_BYTES: usize = 1_024 * 1_024;
/// another file never longer than this,
pub const FILE_MAX_BYTES: usize = 16 * 1_024 * 1_024;
/// all of them together never longer than this,
pub const TOTAL_MAX_BYTES: usize = 64 * 1_024 * 1_024;
/// and never more than so many.
pub const FILES_MAX: usize = 1_000;

/// The directories that a dossier has files in.
pub const DIRECTORIES: [&str; 8] =
    ["events", "inputs", "outputs", "verdicts", "receipts", "replays", "slices", "suites"];

/// Where an event lies.
pub fn event_at(id: &EventId) -> String {
    format!("events/{id}.json")
}

/// Where the input of a request lies, if the request does not carry it in the open.
pub fn input_at(request: &EventId) -> String {
    format!("inputs/{request}.json")
}

/// Where the text of a result lies, if the result does not carry it in the open.
pub fn output_at(request: &EventId) -> String {
    format!("outputs/{request}.txt")
}

/// Where the document of a verdict lies.
pub fn verdict_at(hash: &Hash) -> String {
    format!("verdicts/{}.json", to_hex(hash.as_bytes()))
}

/// Where a receipt lies.
pub fn receipt_at(id: &ReceiptId) -> String {
    format!("receipts/{id}.json")
}

/// Where the replay of a request lies.
pub fn replay_at(request: &EventId) -> String {
    format!("replays/{request}.jsonl")
}

/// Where the commit of the ledger lies in which a request was paid.
pub fn slice_at(request: &EventId) -> String {
    format!("slices/{request}.jsonl")
}

/// Where the tests lie that were committed to.
pub fn suite_at(hash: &Hash) -> String {
    format!("suites/{}.json", to_hex(hash.as_bytes()))
}
