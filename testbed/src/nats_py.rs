//! The Python client of NATS: tools of another make.

use std::path::PathBuf;

use crate::process::said;

/// What is needed, each in its exact version.
pub const REQUIREMENTS: &str = include_str!("../nats-py.txt");
/// Where it is, below the build directory.
pub const DIRECTORY: &str = "nats-py";

/// Where `cargo xtask test` and `cargo xtask services` install it: in the build directory, in which this program is.
pub fn directory() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(said)?;
    let found = own.ancestors().map(|up| up.join(DIRECTORY)).find(|p| p.join("nats").is_dir());
    found.ok_or_else(|| "nats-py is missing; install with: cargo xtask services -- true".to_owned())
}
