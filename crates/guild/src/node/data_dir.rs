//! One data directory belongs to one process at a time, and says where that process answers.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use guild_protocol::env::UnixMs;
use guild_protocol::json;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, InFile, Result, code};
use crate::input::{self, Existing, Input};
use crate::keystore::{OWNER_ONLY, make_private_directory};

const LOCK_FILE: &str = "node.lock";
const NODE_FILE: &str = "node.json";
const SCHEMA_VERSION: &str = "guild.node.v1";
const MAX_BYTES: usize = 64 * 1024;

/// The right to write in a data directory. The system takes it back when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Hold(
    #[expect(dead_code, reason = "the lock lives as long as the file is open")] File,
);

impl Hold {
    /// Takes the directory, making it if need be; refused, with the holder's address, if somebody has it.
    pub(crate) fn take(data_dir: &Path) -> Result<Hold> {
        make_private_directory(data_dir)?;
        let path = data_dir.join(LOCK_FILE);
        let opened =
            File::options().create(true).truncate(false).write(true).mode(OWNER_ONLY).open(&path);
        let file = opened.map_err(|e| Error::io(&path, &e))?;
        let mut tries = 0;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                // Perhaps somebody only asks whether it is taken, or is there for one write and has no address.
                Err(Errno::WOULDBLOCK) if tries < patience(data_dir) => pause(),
                Err(Errno::WOULDBLOCK) => return Err(taken(data_dir)),
                Err(error) => return Err(Error::io(&path, &error.into())),
            }
            tries += 1;
        }
        // Left by a holder that was killed. From here on it would lead others to nobody.
        NodeFile::remove(data_dir);
        Ok(Hold(file))
    }

    /// Whether another process holds the directory.
    pub(crate) fn is_taken(data_dir: &Path) -> bool {
        let Ok(file) = File::open(data_dir.join(LOCK_FILE)) else { return false };
        // Asking for a share keeps a node from starting for no longer than this line; `take` tries again.
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

#[expect(clippy::disallowed_methods, reason = "a few milliseconds, before there is a runtime")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(25));
}

/// How often to try again: a node stays, whoever has no address soon goes or soon has one.
fn patience(data_dir: &Path) -> u32 {
    if data_dir.join(NODE_FILE).exists() { 4 } else { 80 }
}

fn taken(data_dir: &Path) -> Error {
    let message = match NodeFile::read(data_dir) {
        Ok(node) => format!("a node runs here already, at {}", node.url),
        Err(_) => "another guild process is at work here".to_owned(),
    };
    Error::new(&code::NODE_RUNNING, message).in_file(data_dir)
}

/// How to reach the node that holds the directory. Readable by its owner only: the token lets one write.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    schema_version: String,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) pid: u32,
    pub(crate) started_ms: UnixMs,
}

impl std::fmt::Debug for NodeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token: what is shown for debugging ends up in logs.
        f.debug_struct("NodeFile").field("url", &self.url).finish_non_exhaustive()
    }
}

impl NodeFile {
    pub(crate) fn new(url: &str, token: &str, started_ms: UnixMs) -> NodeFile {
        NodeFile {
            schema_version: SCHEMA_VERSION.to_owned(),
            url: url.to_owned(),
            token: token.to_owned(),
            pid: std::process::id(),
            started_ms,
        }
    }

    pub(crate) fn write(&self, data_dir: &Path) -> Result<()> {
        let path = data_dir.join(NODE_FILE);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(&code::IO_FAILED, e.to_string()).in_file(&path))?;
        text.push(b'\n');
        input::write_whole(&path, &text, OWNER_ONLY, Existing::Replace)
    }

    pub(crate) fn remove(data_dir: &Path) {
        // A file left behind is harmless: without the lock it means nothing.
        let _ = std::fs::remove_file(data_dir.join(NODE_FILE));
    }

    fn read(data_dir: &Path) -> Result<NodeFile> {
        let path: PathBuf = data_dir.join(NODE_FILE);
        let text = Input::from(path.as_os_str().to_owned()).read(MAX_BYTES)?;
        let node: NodeFile = json::decode(&text).in_file(&path)?;
        if node.schema_version != SCHEMA_VERSION {
            let message = format!("its version is {:?}", node.schema_version);
            return Err(Error::new(&code::NODE_FILE_VERSION, message).in_file(&path));
        }
        Ok(node)
    }

    /// The node that runs on this directory now, if there is one.
    pub(crate) fn of_running(data_dir: &Path) -> Result<Option<NodeFile>> {
        if !Hold::is_taken(data_dir) {
            return Ok(None);
        }
        match NodeFile::read(data_dir) {
            Ok(node) => Ok(Some(node)),
            // It holds the directory but does not answer yet, or only writes one thing.
            Err(error) if error.code() == &code::IO_NOT_FOUND => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_directory_names_its_holder_and_a_dead_one_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let stale = NodeFile::new("http://127.0.0.1:1", "secret", 0);
        stale.write(dir.path()).unwrap();
        assert!(NodeFile::of_running(dir.path()).unwrap().is_none());
        let hold = Hold::take(dir.path()).unwrap();
        assert!(NodeFile::of_running(dir.path()).unwrap().is_none(), "it leads to nobody");
        let nameless = Hold::take(dir.path()).unwrap_err();
        assert_eq!(nameless.code(), &code::NODE_RUNNING);
        NodeFile::new("http://127.0.0.1:2", "secret", 0).write(dir.path()).unwrap();
        let named = Hold::take(dir.path()).unwrap_err();
        assert!(named.message().contains("http://127.0.0.1:2"), "{named:?}");
        let running = NodeFile::of_running(dir.path()).unwrap().unwrap();
        assert!(!format!("{running:?}").contains("secret"));
        drop(hold);
        Hold::take(dir.path()).unwrap();
    }

    #[test]
    fn whoever_asks_keeps_no_node_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        drop(Hold::take(dir.path()).unwrap());
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    Hold::is_taken(dir.path());
                    std::thread::yield_now();
                }
            });
            let taken: Vec<_> = (0..50).map(|_| Hold::take(dir.path()).is_ok()).collect();
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            assert!(taken.into_iter().all(|ok| ok));
        });
    }
}
