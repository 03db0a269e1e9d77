//! Foreign clients in JavaScript: the scripts of `testbed/javascript/`, run by node.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::process::said;

/// One installation at a time in this process; npm itself copes with others.
static INSTALLING: Mutex<()> = Mutex::new(());

/// Runs a script to its end; what it printed.
pub fn run(script: &str, arguments: &[&str]) -> Result<String, String> {
    let directory = installed()?;
    let mut node = Command::new("node");
    let output = node.arg(directory.join(script)).args(arguments).output().map_err(said)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() {
        return Ok(text(output.stdout));
    }
    Err(format!("{script}: {}\n{}{}", output.status, text(output.stdout), text(output.stderr)))
}

/// Where the scripts stand, with their packages. The versions are exact, so what is there is right unless the list is
/// newer.
pub fn installed() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("javascript");
    let _alone = INSTALLING.lock();
    let changed = |path: &str| directory.join(path).metadata().and_then(|m| m.modified()).ok();
    let done = changed("node_modules/.package-lock.json");
    if done.is_some() && done >= changed("package.json") {
        return Ok(directory);
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]);
    let output = npm.current_dir(&directory).output().map_err(|e| format!("npm: {e}"))?;
    if output.status.success() {
        return Ok(directory);
    }
    Err(format!("npm install failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}
