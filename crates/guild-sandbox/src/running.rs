//! A program that runs in a sandbox, seen from outside.

use std::io::{self, PipeReader, PipeWriter};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::Serialize;

use crate::error::{Error, Result, Step};
use crate::exec::{Exec, Executing};
use crate::limits::Limits;
use crate::nursery::{Born, Nursery};
use crate::outcome::Outcome;
use crate::pipes::{Pipes, drain};
use crate::spec::{Profile, Spec};
use crate::wire::{Channel, FromLauncher, Received, ToLauncher};
use crate::workspace::Workspace;

/// A program that runs, or has ended, or a sandbox that stays. Dropping it kills everything in the sandbox.
///
/// The pipes are plain blocking ones; each can be taken out once and turned into an asynchronous one. A sandbox that
/// stays has none: its commands have theirs.
#[derive(Debug)]
pub struct Running {
    /// What the program reads. Dropping it is the end of its input.
    pub stdin: Option<PipeWriter>,
    /// What it prints. Dropping it discards what it prints from then on; that still counts. It ends with the program,
    /// also if that closes it earlier.
    pub stdout: Option<PipeReader>,
    /// What it prints as errors.
    pub stderr: Option<PipeReader>,
    /// With [`crate::Network::Proxy`]: the socket that listens inside. Whoever accepts on it talks to the program.
    pub proxy: Option<TcpListener>,
    profile: Profile,
    limits: Limits,
    workspace: Workspace,
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

/// Freezes, thaws, tells and kills, and runs commands, from any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    channel: Arc<Channel>,
    profile: Profile,
}

impl Running {
    pub(crate) fn new(
        launcher: Launcher,
        pipes: Option<Pipes>,
        workspace: Workspace,
        proxy: Option<TcpListener>,
        spec: &Spec,
    ) -> Running {
        let (stdin, stdout, stderr) = match pipes {
            Some(Pipes { stdin, stdout, stderr }) => (Some(stdin), Some(stdout), Some(stderr)),
            None => (None, None, None),
        };
        let (profile, limits) = (spec.profile, spec.limits);
        Running { stdin, stdout, stderr, proxy, profile, limits, workspace, launcher }
    }

    /// Its files in `/workspace`, seen from outside. They can be read, also when everything in it is dead, as long as
    /// this or a clone of it lives.
    pub fn workspace(&self) -> Workspace {
        self.workspace.clone()
    }

    /// Whether no command can look into another: what is told to one stays with it.
    pub(crate) fn keeps_apart(&self) -> bool {
        self.launcher.keeps_apart
    }

    /// What it was started with.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// What controls it while somebody else waits.
    pub fn handle(&self) -> Handle {
        Handle { channel: self.launcher.channel.clone(), profile: self.profile }
    }

    /// Waits for the end. Pipes that were not taken are closed first, so the program cannot wait for us.
    pub fn wait(mut self) -> Result<Outcome> {
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
        self.launcher.outcome()
    }

    /// Closes the input, waits for the end, and gives all that was printed. The output limit bounds it.
    pub fn collect(mut self) -> Result<Collected> {
        self.stdin = None;
        let (stdout, stderr) = drain(self.stdout.take(), self.stderr.take())?;
        Ok(Collected { outcome: self.launcher.outcome()?, stdout, stderr })
    }
}

impl Handle {
    /// Stops everything where it is. The wall clock stands still meanwhile.
    pub fn freeze(&self) -> Result<()> {
        tell(&self.channel, &ToLauncher::<Spec>::Freeze)
    }

    /// Lets everything go on.
    pub fn thaw(&self) -> Result<()> {
        tell(&self.channel, &ToLauncher::<Spec>::Thaw)
    }

    /// Kills everything at once. The class will be `stopped`.
    pub fn kill(&self) -> Result<()> {
        tell(&self.channel, &ToLauncher::<Spec>::Kill)
    }

    /// Sends the program a signal by its number.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::spec("signal", format!("{signal} is no signal")));
        }
        tell(&self.channel, &ToLauncher::<Spec>::Signal(signal))
    }

    /// Starts a command beside whatever runs, and waits until it runs. Up to 64 may run at once, from any thread; an
    /// error means that it did not start. Each has a process of ours beside it, which counts as one of the sandbox's.
    ///
    /// ```no_run
    /// # fn main() -> guild_sandbox::Result<()> {
    /// use guild_sandbox::{Exec, Limits, Ns, Options, Sandbox, Spec};
    /// let running = Ns::new(Options::new("/proc/self/exe"))?.start(&Spec::stay(Limits::job()))?;
    /// let make = running.handle().exec(&Exec::new(["make", "test"]))?.collect()?;
    /// let report = running.workspace().read("report.txt", 1 << 20)?;
    /// # Ok(()) }
    /// ```
    pub fn exec(&self, exec: &Exec) -> Result<Executing> {
        Executing::start(self, exec)
    }

    /// A connection to a port of the sandbox's own loopback. Only the profile `hosted` has one.
    pub fn connect(&self, port: u16) -> Result<TcpStream> {
        if self.profile != Profile::Hosted {
            return Err(Error::spec("profile", "only the profile hosted may open sockets"));
        }
        let (here, there) = Channel::pair().step("make a channel")?;
        self.ask(&ToLauncher::Socket, &[there.as_fd()])?;
        drop(there);
        let answer = here.receive::<Option<Error>>().step("hear the launcher")?;
        let Received { message, fds, .. } = answer.ok_or(Error::Ended)?;
        message.map_or(Ok(()), Err)?;
        dial(fds.into_iter().next().ok_or(Error::Ended)?, port)
    }

    /// Gives a sandbox that runs other limits, where cgroups hold them; nobody in it is killed for that. Refused where
    /// they do not, and if it uses more memory than it would have.
    pub fn resize(&self, cores_milli: u32, memory_bytes: u64) -> Result<()> {
        Limits { cores_milli, ..Limits::hosted(cores_milli, memory_bytes, 1 << 20) }.check()?;
        let (here, there) = Channel::pair().step("make a channel")?;
        self.ask(&ToLauncher::Resize { cores_milli, memory_bytes }, &[there.as_fd()])?;
        drop(there);
        let answer = here.receive::<Option<Error>>().step("hear the launcher")?;
        answer.ok_or(Error::Ended)?.message.map_or(Ok(()), Err)
    }

    /// Sends something that is answered over a channel of its own.
    pub(crate) fn ask(&self, message: &ToLauncher, fds: &[BorrowedFd<'_>]) -> Result<()> {
        match self.channel.send_all(message, &[], fds) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::Ended),
            sent => sent.step("tell the launcher"),
        }
    }
}

/// Sends something that is not answered.
pub(crate) fn tell(channel: &Channel, message: &impl Serialize) -> Result<()> {
    match channel.send(message) {
        // It has ended by itself: there is nobody left to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        sent => sent.step("tell the launcher"),
    }
}

/// How long a listener may let a connection wait.
const CONNECT_WITHIN_S: i64 = 5;

/// Connects a socket that was made inside, and that stays in that network whoever holds it.
fn dial(socket: OwnedFd, port: u16) -> Result<TcpStream> {
    let refused = |error: io::Error| Error::Refused { port, why: error.to_string() };
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(true).step("set the flags of a socket")?;
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    match rustix::net::connect(&stream, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let mut fds = [PollFd::new(&stream, PollFlags::OUT)];
            let within = Timespec { tv_sec: CONNECT_WITHIN_S, tv_nsec: 0 };
            let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&within)));
            if ready.step("wait for a connection")? == 0 {
                return Err(refused(io::ErrorKind::TimedOut.into()));
            }
            if let Some(error) = stream.take_error().step("wait for a connection")? {
                return Err(refused(error));
            }
        }
        Err(errno) => return Err(refused(errno.into())),
    }
    stream.set_nonblocking(false).step("set the flags of a socket")?;
    Ok(stream)
}

/// The process that holds a sandbox, or is ready to.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) channel: Arc<Channel>,
    pidfd: OwnedFd,
    /// Whether it has said its last word, and goes by itself.
    leaves: bool,
    /// Whether no command of its sandbox can look into another.
    pub(crate) keeps_apart: bool,
    /// Its parent, which waits for it.
    _nursery: Arc<Nursery>,
}

impl Launcher {
    pub(crate) fn new(nursery: &Arc<Nursery>) -> Result<Launcher> {
        let Born { channel, pidfd } = nursery.launch()?;
        let channel = Arc::new(channel);
        let (leaves, keeps_apart) = (false, false);
        Ok(Launcher { channel, pidfd, leaves, keeps_apart, _nursery: nursery.clone() })
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
                    FromLauncher::Started { .. } => {}
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
