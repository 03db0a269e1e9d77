//! One integration binary for the crate.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod audit_log;
