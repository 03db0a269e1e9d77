//! What the first process does while a sandbox of a runtime lives: what init does elsewhere, by calls of the runtime
//! that nobody waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Child;

use rustix::event::{PollFd, PollFlags};
use rustix::process::WaitOptions;

use super::super::root::Root;
use super::super::supervise::{now_us, wait};
use super::super::{keeper, room, tree};
use super::{Asks, Calls, Kind, NAME, Program, check_program, told};
use crate::error::{Error, Result, Step};
use crate::oci::bundle::Bundle;
use crate::seccomp;
use crate::spec::Spec;
use crate::sys;
use crate::wire::{Channel, FromInit, Received, ToInit};

/// A sandbox, seen by its first process.
pub(super) struct Room<'a> {
    channel: &'a Channel,
    calls: &'a Calls<'a>,
    bundle: &'a Bundle<'a>,
    root: Root,
    program: Program,
    commands: BTreeMap<u64, Command>,
    asks: Option<Asks>,
    /// Where filters ask, and for which command, if it is not the program.
    listeners: Vec<(Option<u64>, OwnedFd)>,
    /// Whoever ended before anybody knew that it is a command.
    early: BTreeMap<u32, How>,
}

/// An exit code, or a signal.
type How = (Option<i32>, Option<i32>);

enum Command {
    /// The runtime is at it.
    Starting {
        call: Child,
        until_us: u64,
    },
    Running {
        pid: u32,
    },
}

impl<'a> Room<'a> {
    pub(super) fn new(
        channel: &'a Channel,
        calls: &'a Calls<'a>,
        bundle: &'a Bundle<'a>,
        root: Root,
        asks: Option<Asks>,
        program: Program,
    ) -> Result<Room<'a>> {
        let (commands, early, listeners) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let pid = program.pid;
        let mut room =
            Room { channel, calls, bundle, root, program, commands, asks, listeners, early };
        room.add_listener(None, pid)?;
        Ok(room)
    }

    /// Takes the listener that the runtime handed out for this process. Without one nobody would be answered.
    fn add_listener(&mut self, command: Option<u64>, pid: u32) -> Result<()> {
        if let Some(asks) = &mut self.asks {
            let listener = asks.take(pid).step("take the listener of the filter")?;
            let missing = || self.calls.runtime.error("it handed out no listener of the filter");
            self.listeners.push((command, listener.ok_or_else(missing)?));
        }
        Ok(())
    }

    /// Until the program ends, or the launcher. Whatever else there is then ends with us.
    pub(super) fn watch(mut self) -> Result<()> {
        loop {
            // First of all: it may have ended while the runtime was still waited for.
            if let Some((exit_code, signal)) = self.reap()? {
                return self.tell(&FromInit::Ended { exit_code, signal });
            }
            let left_us = self.give_up();
            let mut fds = vec![
                PollFd::new(self.calls.signals, PollFlags::IN),
                PollFd::new(self.channel, PollFlags::IN),
            ];
            fds.extend(self.listeners.iter().map(|(_, fd)| PollFd::new(fd, PollFlags::IN)));
            wait(&mut fds, left_us)?;
            let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
            self.calls.forget_signals();
            self.listen(ready.get(2..).unwrap_or_default())?;
            let spoken = ready.get(1).is_some_and(|flags| !flags.is_empty());
            if spoken && !self.obey()? {
                return Ok(());
            }
        }
    }

    /// Answers filters that ask, and forgets those that nobody has any more.
    fn listen(&mut self, ready: &[PollFlags]) -> Result<()> {
        for (at, _) in ready.iter().enumerate().filter(|(_, flags)| flags.contains(PollFlags::IN)) {
            self.answer(at)?;
        }
        let mut flags = ready.iter();
        self.listeners.retain(|_| {
            flags.next().is_none_or(|flags| flags.is_empty() || flags.contains(PollFlags::IN))
        });
        Ok(())
    }

    /// Names a call that a filter asks about, then refuses it or ends whoever made it.
    fn answer(&self, at: usize) -> Result<()> {
        let Some((command, listener)) = self.listeners.get(at) else { return Ok(()) };
        // Its thread may be gone since.
        let Ok(asked) = sys::next_asked(listener.as_fd()) else { return Ok(()) };
        let (call, detail, fatal) = seccomp::judge(self.bundle.spec.profile, &asked);
        self.tell(&FromInit::Tried { command: *command, call, detail, fatal })?;
        match (fatal, command) {
            (false, _) => {
                let _ = sys::refuse(listener.as_fd(), asked.id, libc::EPERM);
            }
            (true, None) => sys::signal_all(libc::SIGKILL),
            (true, Some(command)) => {
                // What a command has left is alone.
                sys::signal(asked.pid, libc::SIGKILL);
                self.end(*command);
            }
        }
        Ok(())
    }

    fn tell(&self, message: &FromInit) -> Result<()> {
        self.channel.send(message).step("tell the launcher")
    }

    /// Waits for everybody who has ended; says how if the program is one of them.
    fn reap(&mut self) -> Result<Option<How>> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0);
                    let how = (status.exit_status(), status.terminating_signal());
                    if pid == self.program.pid {
                        let own = self.program.kind == Kind::Own;
                        return Ok(Some(if own { told(how.0, how.1) } else { how }));
                    }
                    self.ended(pid, how)?;
                }
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).step("wait for the program"),
            }
        }
    }

    /// A command has ended, or the call that starts one, or nobody of interest.
    fn ended(&mut self, pid: u32, how: How) -> Result<()> {
        let is = |command: &Command| match command {
            Command::Starting { call, .. } => call.id() == pid,
            Command::Running { pid: running } => *running == pid,
        };
        let found = self.commands.iter().find(|(_, command)| is(command)).map(|(id, _)| *id);
        match found.and_then(|id| Some((id, self.commands.remove(&id)?))) {
            Some((id, Command::Running { .. })) => self.over(id, how),
            Some((id, Command::Starting { .. })) => self.started(id, how),
            None => {
                if self.is_starting() {
                    self.early.insert(pid, how);
                }
                Ok(())
            }
        }
    }

    fn is_starting(&self) -> bool {
        self.commands.values().any(|command| matches!(command, Command::Starting { .. }))
    }

    fn over(&self, command: u64, (exit_code, signal): How) -> Result<()> {
        self.tell(&FromInit::CommandEnded { command, exit_code, signal })
    }

    /// The runtime has started a command, or has failed.
    fn started(&mut self, command: u64, how: How) -> Result<()> {
        let (order, pid_file) = self.files(command);
        let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        let pid: Option<u32> = pid;
        // They are the sandbox's own, and nobody reads them again.
        let _ = (fs::remove_file(order), fs::remove_file(pid_file));
        let Some(pid) = pid.filter(|_| how.0 == Some(0)) else {
            let error = self.calls.runtime.error(self.calls.said(&["exec"]));
            self.put_down(pid);
            return self.tell(&FromInit::CommandFailed { command, error });
        };
        if let Err(error) = self.add_listener(Some(command), pid) {
            self.put_down(Some(pid));
            return self.tell(&FromInit::CommandFailed { command, error });
        }
        // What the sandbox said about it holds for all.
        self.tell(&FromInit::CommandStarted { command, notify: self.asks.is_some() })?;
        let early = self.ended_early(pid);
        match early {
            Some(how) => self.over(command, how),
            None => {
                self.commands.insert(command, Command::Running { pid });
                Ok(())
            }
        }
    }

    /// How a process ended that nobody knew yet.
    fn ended_early(&mut self, pid: u32) -> Option<How> {
        // Numbers come again: whoever is there now has not ended.
        let early =
            self.early.remove(&pid).filter(|_| !Path::new(&format!("/proc/{pid}")).exists());
        if !self.is_starting() {
            self.early.clear();
        }
        early
    }

    /// Ends what the runtime has started all the same, though it was ended itself or failed: nobody would ever end it,
    /// or answer its filter.
    fn put_down(&mut self, pid: Option<u32>) {
        let is_starting = self.is_starting();
        let mut started: BTreeSet<u32> = pid.into_iter().collect();
        if let Some(asks) = &mut self.asks {
            pid.into_iter().for_each(|pid| drop(asks.take(pid)));
            // The runtime may have had no time to say which one it is; while others start it may be one of theirs.
            started.extend(if is_starting { Vec::new() } else { asks.forget() });
        }
        for pid in started {
            if self.ended_early(pid).is_none() {
                self.kill(pid);
            }
        }
        if !is_starting {
            self.early.clear();
        }
    }

    /// Kills a process with everything that can be found below it.
    fn kill(&self, pid: u32) {
        sys::signal(pid, libc::SIGSTOP);
        tree::kill_below(self.root.processes(), pid);
        sys::signal(pid, libc::SIGKILL);
    }

    fn files(&self, command: u64) -> (String, String) {
        let site = self.calls.site;
        (site.at(&format!("process-{command}")), site.at(&format!("pid-{command}")))
    }

    /// Ends calls of the runtime that take too long, and says how long the next one has.
    fn give_up(&self) -> u64 {
        let now_us = now_us();
        let mut next_us = u64::MAX;
        for command in self.commands.values() {
            if let Command::Starting { call, until_us } = command {
                match until_us.saturating_sub(now_us) {
                    // Its end is heard as that of any other.
                    0 => sys::signal(call.id(), libc::SIGKILL),
                    left_us => next_us = next_us.min(left_us),
                }
            }
        }
        next_us
    }

    /// Does what the launcher says; false if it is gone.
    fn obey(&mut self) -> Result<bool> {
        let received = self.channel.receive::<ToInit>().step("hear the launcher")?;
        let Some(Received { message, fds, .. }) = received else { return Ok(false) };
        match message {
            ToInit::Signal { signal, all } => self.signal(signal, all),
            ToInit::Exec { command } => match self.begin(command, fds) {
                Ok(call) => drop(self.commands.insert(command, call)),
                Err(error) => self.tell(&FromInit::CommandFailed { command, error })?,
            },
            ToInit::SignalCommand { command, signal } => {
                if let Some(Command::Running { pid }) = self.commands.get(&command) {
                    sys::signal(*pid, signal);
                }
            }
            ToInit::EndCommand { command } => self.end(command),
            ToInit::Socket => room::socket(fds),
            ToInit::Placed { .. } | ToInit::Run { .. } => {}
        }
        Ok(true)
    }

    fn signal(&self, signal: i32, all: bool) {
        match (self.program.kind, all) {
            (Kind::Shared, true) => sys::signal_all(signal),
            (Kind::Shared, false) if self.program.stays => {}
            (Kind::Shared, false) => sys::signal(self.program.pid, signal),
            // It may have ended meanwhile, and a signal may be lost. Whoever is started for this is reaped with
            // everybody else.
            (Kind::Own, _) => {
                drop(self.calls.spawn(&["kill", NAME, &signal.to_string()], Vec::new()));
            }
        }
    }

    /// Lets the runtime start a command.
    fn begin(&self, command: u64, fds: Vec<OwnedFd>) -> Result<Command> {
        if self.program.kind == Kind::Own {
            let why = "a kernel of its own runs no commands beside the program";
            return Err(self.calls.runtime.error(why));
        }
        let mut fds = fds.into_iter();
        let order = fds.next().ok_or_else(|| Error::failed("hear the launcher", "no order"))?;
        let exec = keeper::read(&order)?;
        let spec = self.bundle.spec;
        let mut env = spec.env.clone();
        env.extend(exec.env);
        let cwd = exec.cwd.unwrap_or_else(|| spec.cwd.clone());
        let files = Vec::new();
        let spec = Spec { argv: exec.argv, env, cwd, files, stay: false, ..spec.clone() };
        check_program(&self.root, &spec)?;
        let (order, pid_file) = self.files(command);
        fs::write(&order, self.bundle.process(&spec).to_string()).step("write the order")?;
        let words = ["exec", "--detach", "--process", &order, "--pid-file", &pid_file, NAME];
        let call = self.calls.spawn(&words, fds.collect()).inspect_err(|_| {
            // It may hold secrets.
            let _ = fs::remove_file(&order);
        })?;
        Ok(Command::Starting { call, until_us: self.calls.deadline_us() })
    }

    /// Kills a command with everything that can be found below it. What has left its parents is not found.
    fn end(&self, command: u64) {
        match self.commands.get(&command) {
            Some(Command::Running { pid }) => self.kill(*pid),
            Some(Command::Starting { call, .. }) => sys::signal(call.id(), libc::SIGKILL),
            None => {}
        }
    }
}
