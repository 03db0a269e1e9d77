//! A program that runs in a sandbox, seen from outside.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, Result, Step};
use crate::nursery::{Born, Nursery};
use crate::outcome::Outcome;
use crate::wire::{Channel, FromLauncher, ToLauncher};

/// A program that runs, or has ended. Dropping it kills the program and everything that it started.
///
/// The pipes are plain blocking ones; each can be taken out once and turned into an asynchronous one.
#[derive(Debug)]
pub struct Running {
    /// What the program reads. Dropping it is the end of its input.
    pub stdin: Option<PipeWriter>,
    /// What it prints. Dropping it discards what it prints from then on; that still counts.
    pub stdout: Option<PipeReader>,
    /// What it prints as errors.
    pub stderr: Option<PipeReader>,
    /// With [`crate::Network::Proxy`]: the socket that listens inside. Whoever accepts on it talks to the program.
    pub proxy: Option<TcpListener>,
    launcher: Launcher,
}

/// What a run gave, if all of it was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// How it ended.
    pub outcome: Outcome,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

/// Freezes, thaws, tells and kills, from any thread.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Channel>);

impl Running {
    pub(crate) fn new(
        launcher: Launcher,
        stdin: PipeWriter,
        stdout: PipeReader,
        stderr: PipeReader,
        proxy: Option<TcpListener>,
    ) -> Running {
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        Running { stdin, stdout, stderr, proxy, launcher }
    }

    /// What controls it while somebody else waits.
    pub fn handle(&self) -> Handle {
        Handle(self.launcher.channel.clone())
    }

    /// Waits for the end. Pipes that were not taken are closed first, so the program cannot wait for us.
    pub fn wait(mut self) -> Result<Outcome> {
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
        self.launcher.outcome()
    }

    /// Closes the input, waits for the end, and gives all that was printed. The output limit bounds it.
    pub fn collect(mut self) -> Result<Collected> {
        self.stdin = None;
        let (out, err) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            let other = scope.spawn(move || drain(err));
            (drain(out), other.join().unwrap_or_else(|_| Err(io::Error::other("a panic"))))
        });
        let (stdout, stderr) = (stdout.step("read the output")?, stderr.step("read the output")?);
        Ok(Collected { outcome: self.launcher.outcome()?, stdout, stderr })
    }
}

fn drain(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Handle {
    /// Stops everything where it is. The wall clock stands still meanwhile.
    pub fn freeze(&self) -> Result<()> {
        self.tell(&ToLauncher::Freeze)
    }

    /// Lets everything go on.
    pub fn thaw(&self) -> Result<()> {
        self.tell(&ToLauncher::Thaw)
    }

    /// Kills everything at once. The class will be `stopped`.
    pub fn kill(&self) -> Result<()> {
        self.tell(&ToLauncher::Kill)
    }

    /// Sends the program a signal by its number.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::spec("signal", format!("{signal} is no signal")));
        }
        self.tell(&ToLauncher::Signal(signal))
    }

    fn tell(&self, message: &ToLauncher) -> Result<()> {
        match self.0.send(message) {
            // It has ended by itself: there is nobody left to tell.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.step("tell the launcher"),
        }
    }
}

/// The process that holds a sandbox, or is ready to.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) channel: Arc<Channel>,
    pidfd: OwnedFd,
    /// Whether it has said its last word, and goes by itself.
    leaves: bool,
    /// Its parent, which waits for it.
    _nursery: Arc<Nursery>,
}

impl Launcher {
    pub(crate) fn new(nursery: &Arc<Nursery>) -> Result<Launcher> {
        let Born { channel, pidfd } = nursery.launch()?;
        let channel = Arc::new(channel);
        Ok(Launcher { channel, pidfd, leaves: false, _nursery: nursery.clone() })
    }

    /// Whether it is still there.
    pub(crate) fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Waits for the last word of the launcher, and for its end.
    fn outcome(&mut self) -> Result<Outcome> {
        let said = loop {
            match self.channel.receive::<FromLauncher>().step("hear the launcher")? {
                Some(received) => match received.message {
                    FromLauncher::Started => {}
                    FromLauncher::Ended(outcome) => break Ok(*outcome),
                    FromLauncher::Failed(error) => break Err(error),
                },
                None => break Err(Error::failed("hear the launcher", "it is gone")),
            }
        };
        // Nothing of the sandbox is left but the launcher.
        self.leaves = said.is_ok();
        said
    }
}

impl Drop for Launcher {
    /// Closes the channel, which makes the launcher clean up, and waits for that.
    fn drop(&mut self) {
        if self.leaves {
            return;
        }
        // Other handles may hold the channel open: it must be shut, not only dropped.
        let _ = rustix::net::shutdown(&*self.channel, rustix::net::Shutdown::Both);
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
    }
}
