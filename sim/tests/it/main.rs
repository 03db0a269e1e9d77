//! One integration binary for the crate.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod audit_log;
mod ledger;

/// How long one simulation may take inside the tests: they share the time.
#[expect(clippy::disallowed_methods, reason = "the test runner sets the time box")]
fn seconds() -> u64 {
    std::env::var("GUILD_SIM_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8_u64)
        .div_ceil(2)
}
