//! One integration binary for the crate.

mod json;
