//! The directory of a sandbox: what is needed to find its agent again.
//!
//! | file | written by | what |
//! |---|---|---|
//! | `order.json` | the node, before the agent is started | what was asked for |
//! | `ready.json` | the agent, whole | its address, its key, its process |
//! | `agent.json` | the node, when it has seen that | the same with the process's start |
//! | `log` | the agent | what it says |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use guild_protocol::identity::PublicKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::SandboxId;
use crate::machine::Order;

/// Nothing here is for anybody else.
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
const MAX_FILE_BYTES: u64 = 64 << 10;
/// A longer log is begun anew.
const MAX_LOG_BYTES: u64 = 1 << 20;
const TAIL_BYTES: u64 = 2_000;

/// The directory of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Place {
    directory: PathBuf,
}

/// What an agent says when it is ready.
#[derive(Debug, Deserialize)]
pub(super) struct Ready {
    pub(super) address: SocketAddr,
    pub(super) sandbox_id: String,
    pub(super) agent: PublicKey,
    pub(super) pid: i32,
}

/// An agent that was ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) address: SocketAddr,
    pub(super) agent: PublicKey,
    pub(super) process: Process,
}

impl Place {
    pub(super) fn of(root: &Path, sandbox_id: &SandboxId) -> Place {
        Place { directory: root.join(sandbox_id.as_str()) }
    }

    /// All sandboxes that have a directory.
    pub(super) fn all(root: &Path) -> io::Result<Vec<SandboxId>> {
        let entries = match fs::read_dir(root) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let id = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        Ok(entries.flatten().filter_map(|entry| id(&entry)).collect())
    }

    pub(super) fn ready_file(&self) -> PathBuf {
        self.directory.join("ready.json")
    }

    /// The order that stands here, if one does.
    pub(super) fn order(&self) -> io::Result<Option<Order>> {
        read(&self.directory.join("order.json"))
    }

    /// Makes the directory and writes the order.
    pub(super) fn begin(&self, order: &Order) -> io::Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(PRIVATE_DIRECTORY).create(&self.directory)?;
        self.write("order.json", order)
    }

    pub(super) fn ready(&self) -> io::Result<Option<Ready>> {
        read(&self.ready_file())
    }

    pub(super) fn known(&self) -> io::Result<Option<Known>> {
        read(&self.directory.join("agent.json"))
    }

    pub(super) fn keep_known(&self, known: &Known) -> io::Result<()> {
        self.write("agent.json", known)
    }

    /// Forgets an agent that is gone.
    pub(super) fn forget_agent(&self) -> io::Result<()> {
        for name in ["ready.json", "agent.json"] {
            absent_is_fine(fs::remove_file(self.directory.join(name)))?;
        }
        Ok(())
    }

    /// Where the agent writes what it says. It only ever adds, so that the file can be emptied.
    pub(super) fn log(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(PRIVATE_FILE).open(self.directory.join("log"))
    }

    /// Begins a log anew that has grown too long.
    pub(super) fn bound_log(&self) {
        let path = self.directory.join("log");
        let is_long = fs::metadata(&path).is_ok_and(|about| about.len() > MAX_LOG_BYTES);
        if is_long && let Ok(file) = OpenOptions::new().write(true).open(&path) {
            let _ = file.set_len(0);
        }
    }

    /// The end of the log, for a message.
    pub(super) fn log_tail(&self) -> String {
        let read = || {
            let mut file = File::open(self.directory.join("log"))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).trim().replace('\n', "; "))
        };
        read().unwrap_or_default()
    }

    /// Removes all of it.
    pub(super) fn remove(&self) -> io::Result<()> {
        absent_is_fine(fs::remove_dir_all(&self.directory))
    }

    /// Writes a file whole, on the disk before it has its name.
    fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        let (draft, path) = (self.directory.join(format!(".{name}")), self.directory.join(name));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
        let mut file = options.open(&draft)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        file.sync_all()?;
        fs::rename(draft, path)
    }
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What a file says; nothing if there is none, or if what stands in it makes no sense.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).ok())
}
