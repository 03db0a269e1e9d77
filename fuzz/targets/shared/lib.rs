//! What several targets need.

pub mod edits;
pub mod fixed;
