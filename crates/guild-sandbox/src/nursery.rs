//! The process that launchers come from.
//!
//! To execute a program as large as a whole node takes longer than to make a sandbox: there are tens of thousands of
//! addresses to be set. So it is executed once, and every launcher is split off from that process, which has one
//! thread, does nothing else, and never sees a spec. It ends with the last of those who may still need it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result, Step};
use crate::launcher::WORD;
use crate::wire::{Channel, FromNursery, ToNursery};

/// Where launchers are made. It is started with the first of them, and again if something has killed it.
#[derive(Debug)]
pub(crate) struct Nursery {
    program: PathBuf,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    /// `None` only while it is dropped.
    channel: Option<Channel>,
    child: Child,
}

/// A launcher as it is born: our end of its channel, and itself.
pub(crate) struct Born {
    pub(crate) channel: Channel,
    pub(crate) pidfd: OwnedFd,
}

impl Nursery {
    pub(crate) fn new(program: PathBuf) -> Nursery {
        Nursery { program, process: Mutex::default() }
    }

    /// A new launcher.
    pub(crate) fn launch(&self) -> Result<Born> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = &*process
            && let Ok(born) = there.launch()
        {
            return born;
        }
        // What may have been born of the old one has an end of a channel whose other end is gone, and goes too.
        *process = None;
        let process = process.insert(Process::start(&self.program)?);
        process.launch().step("hear the nursery")?
    }
}

impl Process {
    fn start(program: &PathBuf) -> Result<Process> {
        let (here, there) = Channel::pair().step("make a channel")?;
        let child = Command::new(program)
            .arg(WORD)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(there)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn();
        let child = child.step(&format!("start {}", program.display()))?;
        Ok(Process { channel: Some(here), child })
    }

    /// The outer error means that the process is gone, or makes no sense.
    fn launch(&self) -> io::Result<Result<Born>> {
        let gone = || io::Error::other("it is gone");
        let nursery = self.channel.as_ref().ok_or_else(gone)?;
        let (here, there) = Channel::pair()?;
        nursery.send_all(&ToNursery::Launch, &[], &[there.as_fd()])?;
        drop(there);
        let received = nursery.receive::<FromNursery>()?.ok_or_else(gone)?;
        match (received.message, received.fds.into_iter().next()) {
            (FromNursery::Launched, Some(pidfd)) => Ok(Ok(Born { channel: here, pidfd })),
            (FromNursery::Launched, None) => Err(io::Error::other("it sent no launcher")),
            (FromNursery::Failed(why), _) => Ok(Err(Error::failed("make a launcher", why))),
        }
    }
}

impl Drop for Process {
    /// It ends when its channel is closed and its last launcher is gone.
    fn drop(&mut self) {
        self.channel = None;
        let _ = self.child.wait();
    }
}
