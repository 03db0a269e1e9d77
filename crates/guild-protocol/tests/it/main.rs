//! One integration binary for the crate.

mod content;
mod json;
