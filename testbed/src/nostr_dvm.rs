//! A provider of another make: `nostr-dvm`, in Python.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::{Process, said};

/// What it needs, each in its exact version.
pub const REQUIREMENTS: &str = include_str!("../nostr-dvm.txt");
/// Where it is, below the build directory.
pub const DIRECTORY: &str = "nostr-dvm";

/// A provider that does benchmarks, or embeddings.
#[derive(Debug)]
pub struct NostrDvm {
    directory: TempDir,
    _process: Process,
}

impl NostrDvm {
    /// Starts one at a relay. It answers requests of this kind with this program, its settings filled in.
    pub fn start(relay: &str, solution: &Path, kind: u16) -> Result<NostrDvm, String> {
        NostrDvm::doing(relay, &solution.display().to_string(), kind)
    }

    /// Starts one at a relay that makes embeddings for whoever asks by this kind.
    pub fn embedding(relay: &str, kind: u16) -> Result<NostrDvm, String> {
        NostrDvm::doing(relay, "oa.embedding.v1", kind)
    }

    fn doing(relay: &str, work: &str, kind: u16) -> Result<NostrDvm, String> {
        let directory = tempfile::Builder::new().prefix("guild-dvm-").tempdir().map_err(said)?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/provider.py");
        let place = directory.path();
        let arguments = [
            format!("HOME={}", place.display()),
            program()?.display().to_string(),
            script.display().to_string(),
            relay.to_owned(),
            place.display().to_string(),
            work.to_owned(),
            kind.to_string(),
        ];
        let mut process =
            Process::start_as_self(Path::new("/usr/bin/env"), &arguments, "KILL", place)?;
        process.wait_until(|| place.join("key").is_file())?;
        Ok(NostrDvm { directory, _process: process })
    }

    /// Its public key, in hex digits.
    pub fn public_key(&self) -> Result<String, String> {
        std::fs::read_to_string(self.directory.path().join("key")).map_err(said)
    }

    /// What it has printed, for whoever wonders.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("server.log")).unwrap_or_default()
    }
}

/// Where `cargo xtask test` and `cargo xtask services` install it: in the build directory, in which this program is.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(said)?;
    let found =
        own.ancestors().map(|up| up.join(DIRECTORY).join("bin/python3")).find(|p| p.is_file());
    found.ok_or_else(|| {
        "nostr-dvm is missing; install with: cargo xtask services -- true".to_owned()
    })
}
