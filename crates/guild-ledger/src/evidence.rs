//! The black-box checker of a history of money: it reads what was exported and trusts nothing else.
//!
//! A [`Checker`] takes `ledger.jsonl` line by line and says what in it could not have happened in an honest ledger.
//! [`Calls`], [`Receipts`], [`Keys`] and [`Events`] are what else may lie beside it; they are read first and handed
//! over. A [`Slice`] is one commit alone. [`compare`] looks at the evidence of several nodes together. The files are
//! described in `docs/formats/evidence.md`.
//!
//! Nothing here uses [`Book`](crate::book::Book) or any other code that decides transfers: a bug there must not hide
//! here. The rules are written a second time, as plainly as they can be.
//!
//! ```
//! use guild_ledger::evidence::Checker;
//! let mut checker = Checker::new();
//! checker.line(b"{\"record\":\"export\",\"schema_version\":\"guild.ledger_export.v1\"}\n");
//! let report = checker.finish();
//! assert_eq!(report.problems[0].code.name, "evidence.cut");
//! ```

mod between;
mod calls;
mod checker;
pub mod code;
mod dealings;
mod events;
mod finding;
mod keys;
mod money;
mod receipts;
mod record;
mod slice;

pub use between::{Between, Together, compare};
pub use calls::Calls;
pub use checker::Checker;
pub use dealings::Dealings;
pub use events::Events;
pub use finding::{Part, Place, Problem, Report};
pub use keys::Keys;
pub use receipts::Receipts;
pub use slice::{Moved, Slice};

/// The version of the export that is read.
pub const SCHEMA_VERSION: &str = "guild.ledger_export.v1";

/// A line is never longer than this, its line feed included.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// How many problems are kept; the others are only counted.
pub const MAX_PROBLEMS: usize = 100;
