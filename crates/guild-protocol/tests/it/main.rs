//! One integration binary for the crate.

mod json;
mod receipt;
mod replay;
mod wire;
