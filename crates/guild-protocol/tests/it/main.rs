//! One integration binary for the crate.

mod blueprint;
mod json;
mod schema;
