//! Where the tree is, what cargo says about it, and how programs are started in it.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::Result;

/// A checkout of the tree.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) metadata: Metadata,
}

/// The part of `cargo metadata` that is used here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) target_directory: PathBuf,
}

/// A crate of the workspace.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) targets: Vec<Target>,
}

/// A direct dependency of a crate.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal one, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// Set for a crate of this tree.
    pub(crate) path: Option<PathBuf>,
}

/// What is built from a crate.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    /// The tree that this program was built from.
    pub(crate) fn find() -> Result<Workspace> {
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest_dir).parent().ok_or("xtask has no parent directory")?;
        Workspace::at(root)
    }

    /// The tree in this directory.
    pub(crate) fn at(root: &Path) -> Result<Workspace> {
        let root =
            root.canonicalize().map_err(|e| format!("{} cannot be opened: {e}", root.display()))?;
        let mut command = program(&root, "cargo");
        command.args(["metadata", "--format-version", "1", "--no-deps"]);
        let json = output(&mut command)?;
        let metadata = serde_json::from_str(&json)
            .map_err(|e| format!("cargo metadata gave something unexpected: {e}"))?;
        Ok(Workspace { root, metadata })
    }

    /// A path below the root.
    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    /// A path below the build directory.
    pub(crate) fn target(&self, below: impl AsRef<Path>) -> PathBuf {
        self.metadata.target_directory.join(below)
    }

    /// A program that will start in the root.
    pub(crate) fn program(&self, name: impl AsRef<OsStr>) -> Command {
        program(&self.root, name)
    }

    /// Runs cargo here, its output visible.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Result {
        let mut command = self.program("cargo");
        command.args(arguments);
        run(&mut command)
    }
}

/// A program without standard input, and without what `cargo run` told us about ourselves.
fn program(directory: &Path, name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(directory).stdin(Stdio::null());
    for (key, _) in std::env::vars_os() {
        let about_us = key.to_str().is_some_and(|key| {
            ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|p| key.starts_with(p))
        });
        if about_us {
            command.env_remove(key);
        }
    }
    if !std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
        command.env("NO_COLOR", "1");
    }
    command
}

/// Runs a program with its output visible; a failure names the whole command.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|e| format!("{} did not start: {e}", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", shown(command))) }
}

/// Runs a program and takes what it writes to standard output. Its errors stay visible.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("{} did not start: {e}", shown(command)))?;
    if !output.status.success() {
        return Err(format!("{} failed: {}", shown(command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{} did not write text", shown(command)))
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_arguments() {
        let error = run(Command::new("false").arg("x")).unwrap_err();
        assert!(error.starts_with("false x failed: "), "{error}");
        let error = output(&mut Command::new("no-such-program")).unwrap_err();
        assert!(error.starts_with("no-such-program did not start: "), "{error}");
    }

    #[test]
    fn programs_have_no_standard_input() {
        let tree = Workspace::find().unwrap();
        assert_eq!(output(&mut tree.program("cat")).unwrap(), "");
    }
}
