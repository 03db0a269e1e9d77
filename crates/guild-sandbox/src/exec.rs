//! Commands that come and go in a sandbox that runs.

use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Step};
use crate::outcome::{Class, Flag};
use crate::pipes::{Pipes, drain};
use crate::running::{Handle, tell};
use crate::spec::{check_words, inside};
use crate::wire::{Channel, FromCommand, ToCommand, ToLauncher};

/// A command for a sandbox that runs. It has the filter, the landlock domain and the limits of the sandbox's program.
///
/// ```
/// use guild_sandbox::Exec;
/// let exec = Exec { wall_ms: Some(5_000), ..Exec::new(["make", "test"]) };
/// assert!(exec.check().is_ok());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The program and its arguments. A name without `/` is looked for in its `PATH`.
    pub argv: Vec<String>,
    /// Variables on top of the spec's environment: the same name replaces.
    pub env: BTreeMap<String, String>,
    /// Where it starts; the spec's directory if not said.
    pub cwd: Option<String>,
    /// Time from its start to its end, on the sandbox's own clock, which stands still while it is frozen.
    pub wall_ms: Option<u64>,
    /// What it may print, on both streams together. It counts for the sandbox too.
    pub output_bytes: Option<u64>,
}

impl Exec {
    /// A command with the spec's environment and directory, and no limits but the sandbox's.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Exec {
        Exec {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: None,
            wall_ms: None,
            output_bytes: None,
        }
    }

    /// Whether all of it can be meant.
    pub fn check(&self) -> Result<()> {
        check_words(&self.argv, &self.env)?;
        if self.wall_ms == Some(0) {
            return Err(Error::spec("wall_ms", "0 is no time"));
        }
        self.cwd.as_ref().map_or(Ok(()), |cwd| inside("cwd", cwd))
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Why. If a limit of the whole sandbox ended it, that one.
    pub class: Class,
    /// Its exit code, if it exited by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// What it tried that nobody in a sandbox has any business with. The outcome of the sandbox has it too.
    pub flags: Vec<Flag>,
    /// From its start to its end, without the time that the sandbox was frozen.
    pub wall_us: u64,
}

impl Ended {
    /// Whether it exited with 0 and tried nothing.
    pub fn succeeded(&self) -> bool {
        self.class == Class::Exited && self.exit_code == Some(0)
    }
}

/// A command that runs, or has ended. Dropping it kills the command with everything that it has started, daemons too;
/// with an OCI runtime, those that have left their parents live until the sandbox ends.
///
/// When a command ends by itself, what it left in the background goes on; what that prints from then on is thrown away.
#[derive(Debug)]
pub struct Executing {
    /// What it reads. Dropping it is the end of its input.
    pub stdin: Option<PipeWriter>,
    /// What it prints.
    pub stdout: Option<PipeReader>,
    /// What it prints as errors.
    pub stderr: Option<PipeReader>,
    handle: ExecHandle,
}

/// What a command gave, if all of it was wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecCollected {
    /// How it ended.
    pub ended: Ended,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: Vec<u8>,
}

/// Tells a command, from any thread.
#[derive(Debug, Clone)]
pub struct ExecHandle(Arc<Channel>);

impl ExecHandle {
    /// Sends the command's first process a signal by its number. If it has ended, nothing happens.
    pub fn signal(&self, signal: i32) -> Result<()> {
        if !(1..=64).contains(&signal) {
            return Err(Error::spec("signal", format!("{signal} is no signal")));
        }
        tell(&self.0, &ToCommand::Signal(signal))
    }

    /// Kills it with everything that it has started. The class will be `stopped`.
    pub fn kill(&self) -> Result<()> {
        tell(&self.0, &ToCommand::Kill)
    }
}

impl Executing {
    /// Asks the launcher, and waits until the command runs.
    pub(crate) fn start(handle: &Handle, exec: &Exec) -> Result<Executing> {
        exec.check()?;
        let order = order(exec).step("write the order")?;
        let (Pipes { stdin, stdout, stderr }, theirs) = Pipes::new()?;
        let (here, there) = Channel::pair().step("make a channel")?;
        let [input, output, errors] = theirs.fds();
        let fds = [order.as_fd(), input, output, errors, there.as_fd()];
        let message = ToLauncher::Exec { wall_ms: exec.wall_ms, output_bytes: exec.output_bytes };
        handle.ask(&message, &fds)?;
        drop((theirs, there));
        let answer = here.receive::<FromCommand>().step("hear the launcher")?;
        match answer.map(|received| received.message) {
            Some(FromCommand::Started) => {}
            Some(FromCommand::Failed(error)) => return Err(error),
            Some(FromCommand::Ended(_)) | None => return Err(Error::Ended),
        }
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        Ok(Executing { stdin, stdout, stderr, handle: ExecHandle(Arc::new(here)) })
    }

    /// What controls it while somebody else waits.
    pub fn handle(&self) -> ExecHandle {
        self.handle.clone()
    }

    /// As [`ExecHandle::signal`].
    pub fn signal(&self, signal: i32) -> Result<()> {
        self.handle.signal(signal)
    }

    /// As [`ExecHandle::kill`].
    pub fn kill(&self) -> Result<()> {
        self.handle.kill()
    }

    /// Waits for the end. Pipes that were not taken are closed first, so the command cannot wait for us.
    pub fn wait(mut self) -> Result<Ended> {
        (self.stdin, self.stdout, self.stderr) = (None, None, None);
        self.ended()
    }

    /// Closes the input, waits for the end, and gives all that was printed. Give it a limit if the sandbox's is large.
    pub fn collect(mut self) -> Result<ExecCollected> {
        self.stdin = None;
        let (stdout, stderr) = drain(self.stdout.take(), self.stderr.take())?;
        Ok(ExecCollected { ended: self.ended()?, stdout, stderr })
    }

    fn ended(&self) -> Result<Ended> {
        loop {
            match self.handle.0.receive::<FromCommand>().step("hear the launcher")? {
                Some(received) => match received.message {
                    FromCommand::Started => {}
                    FromCommand::Failed(error) => return Err(error),
                    FromCommand::Ended(ended) => return Ok(*ended),
                },
                None => return Err(Error::Ended),
            }
        }
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        // Other handles may hold the channel open: it must be shut, not only dropped. If it has ended, nobody hears it.
        let _ = rustix::net::shutdown(&*self.handle.0, rustix::net::Shutdown::Both);
    }
}

/// What was asked for, in memory that nobody else sees: it may hold secrets, and be large.
fn order(exec: &Exec) -> io::Result<std::fs::File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("order", flags)?);
    let bytes = zeroize::Zeroizing::new(serde_json::to_vec(exec).map_err(io::Error::from)?);
    file.write_all(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let good = Exec::new(["true"]);
        assert_eq!(good.check(), Ok(()));
        let env = [("A=B".to_owned(), String::new())].into();
        let wrong = [
            (Exec::new(Vec::<String>::new()), "argv: there is no program"),
            (Exec::new(["a\0b"]), "argv: there is a zero byte"),
            (Exec { env, ..good.clone() }, "env: \"A=B\" is no name"),
            (Exec { cwd: Some("work".into()), ..good.clone() }, "cwd: \"work\" is not absolute"),
            (Exec { wall_ms: Some(0), ..good }, "wall_ms: 0 is no time"),
        ];
        for (exec, says) in wrong {
            let error = exec.check().unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }
}
