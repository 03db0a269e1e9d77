//! What buyers and providers owe each other: orders and jobs, verdicts, settlement.
//!
//! | module | what it settles |
//! |---|---|

mod error;

pub use error::{Error, Result, code};
