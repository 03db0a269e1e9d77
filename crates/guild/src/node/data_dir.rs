//! One data directory belongs to one process at a time, and says where that process answers.

use std::fs::File;
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
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|e| Error::io(&path, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Hold(file)),
            Err(Errno::WOULDBLOCK) => Err(taken(data_dir)),
            Err(error) => Err(Error::io(&path, &error.into())),
        }
    }

    /// Whether another process holds the directory.
    pub(crate) fn is_taken(data_dir: &Path) -> bool {
        let Ok(file) = File::open(data_dir.join(LOCK_FILE)) else { return false };
        // Asking for a share never keeps a node from starting for longer than this line.
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

fn taken(data_dir: &Path) -> Error {
    let message = match NodeFile::read(data_dir) {
        Ok(node) => format!("a node runs here already, at {}", node.url),
        Err(_) => "another guild process is at work here".to_owned(),
    };
    Error::new(&code::NODE_RUNNING, message).in_file(data_dir)
}

/// How to reach the node that holds the directory. Readable by its owner only: the token lets one write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeFile {
    schema_version: String,
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) pid: u32,
    pub(crate) started_ms: UnixMs,
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
