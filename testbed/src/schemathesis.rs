//! Schemathesis: calls to an API, made up from its own description.

use std::path::PathBuf;

use crate::process::said;

/// What it needs, each in its exact version.
pub const REQUIREMENTS: &str = include_str!("../schemathesis.txt");
/// Where it is, below the build directory.
pub const DIRECTORY: &str = "schemathesis";

/// Where `cargo xtask test` and `cargo xtask services` install it: in the build directory, in which this program is.
pub fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(said)?;
    let found = own.ancestors().map(|up| up.join(DIRECTORY).join("bin/st")).find(|p| p.is_file());
    found.ok_or_else(|| {
        "schemathesis is missing; install with: cargo xtask services -- true".to_owned()
    })
}
