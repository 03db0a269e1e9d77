//! Python packages that a judge uses where they are: pytest, pytest-cov, pylint, bandit, mypy.

use std::path::PathBuf;

use crate::process::said;

/// What is needed, each in its exact version.
pub const REQUIREMENTS: &str = include_str!("../judge-tools.txt");
/// Where they are, below the build directory.
pub const DIRECTORY: &str = "judge-tools";

/// Where `cargo xtask test` and `cargo xtask services` install them: in the build directory, in which this program is.
pub fn directory() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(said)?;
    let found = own.ancestors().map(|up| up.join(DIRECTORY)).find(|p| p.join("pytest").is_dir());
    found.ok_or_else(|| {
        "the tools of judges are missing; install with: cargo xtask services -- true".to_owned()
    })
}
