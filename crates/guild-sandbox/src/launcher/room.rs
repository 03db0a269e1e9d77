//! What init does while the sandbox lives: starts commands, reaps, answers what filters ask, and does what the launcher
//! says.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::WaitOptions;

use super::keeper;
use super::tree;
use super::workload::Started;
use crate::error::{Error, Result, Step};
use crate::seccomp;
use crate::spec::Spec;
use crate::sys::{self, Cloned};
use crate::wire::{Channel, FromInit, FromKeeper, Received, ToInit, Weak};

/// A sandbox, seen by its init.
pub(super) struct Room<'a> {
    channel: &'a Channel,
    spec: Spec,
    weak: Weak,
    /// All processes, as `/proc` shows them.
    processes: OwnedFd,
    /// The program of its own, if it has one: its end is the end of everything.
    program: Option<u32>,
    commands: BTreeMap<u64, Kept>,
    /// Where filters ask, and for whom.
    listeners: BTreeMap<u64, (Owner, OwnedFd)>,
    next_listener: u64,
    /// How the program ended.
    ended: Option<FromInit>,
}

/// Whose filter it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Program,
    /// Of a command, which may have ended since, while something that it left has not.
    Command(u64),
}

/// A command that runs.
struct Kept {
    keeper: u32,
    keeper_pidfd: OwnedFd,
    channel: Channel,
    /// Its first process, once it is there.
    leader: Option<Leader>,
}

struct Leader {
    pid: u32,
    pidfd: OwnedFd,
}

/// What became ready.
#[derive(Debug, Clone, Copy)]
enum Ready {
    Signals,
    Launcher,
    Listener(u64),
    /// Nobody has this filter any more.
    Over(u64),
    Keeper(u64),
}

impl<'a> Room<'a> {
    pub(super) fn new(
        channel: &'a Channel,
        spec: Spec,
        weak: Weak,
        processes: OwnedFd,
        program: Option<Started>,
    ) -> Room<'a> {
        let pid = program.as_ref().map(|program| program.pid);
        let (commands, listeners) = (BTreeMap::new(), BTreeMap::new());
        let mut room = Room {
            channel,
            spec,
            weak,
            processes,
            program: pid,
            commands,
            listeners,
            next_listener: 0,
            ended: None,
        };
        room.add_listener(Owner::Program, program.and_then(|program| program.listener));
        room
    }

    fn add_listener(&mut self, owner: Owner, listener: Option<OwnedFd>) {
        if let Some(listener) = listener {
            self.listeners.insert(self.next_listener, (owner, listener));
            self.next_listener += 1;
        }
    }

    /// Until the program ends, or the launcher. Whatever else there is then ends with us.
    pub(super) fn watch(mut self, signals: &OwnedFd) -> Result<()> {
        loop {
            for ready in self.wait(signals)? {
                match ready {
                    Ready::Signals => {
                        // What it says is only that there is something to reap.
                        let _ = rustix::io::read(signals, &mut [0u8; 1_024]);
                    }
                    Ready::Launcher => {
                        if !self.obey()? {
                            return Ok(());
                        }
                    }
                    Ready::Listener(at) => self.listen(at)?,
                    Ready::Over(at) => drop(self.listeners.remove(&at)),
                    Ready::Keeper(command) => self.hear(command)?,
                }
            }
            self.reap()?;
            if let Some(ended) = &self.ended {
                return self.tell(ended);
            }
        }
    }

    fn wait(&self, signals: &OwnedFd) -> Result<Vec<Ready>> {
        let mut what = vec![Ready::Signals, Ready::Launcher];
        let mut fds =
            vec![PollFd::new(signals, PollFlags::IN), PollFd::new(self.channel, PollFlags::IN)];
        for (at, (_, listener)) in &self.listeners {
            what.push(Ready::Listener(*at));
            fds.push(PollFd::new(listener, PollFlags::IN));
        }
        for (command, kept) in &self.commands {
            what.push(Ready::Keeper(*command));
            fds.push(PollFd::new(&kept.channel, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).step("wait"),
        }
        let ready = what.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready
            .map(|(what, fd)| match what {
                Ready::Listener(at) if !fd.revents().contains(PollFlags::IN) => Ready::Over(at),
                other => other,
            })
            .collect())
    }

    fn tell(&self, message: &FromInit) -> Result<()> {
        self.channel.send(message).step("tell the launcher")
    }

    /// Names a call that a filter asks about, then refuses it or ends whoever made it.
    fn listen(&mut self, at: u64) -> Result<()> {
        let Some((owner, listener)) = self.listeners.get(&at) else { return Ok(()) };
        // Its thread may be gone since.
        let Ok(asked) = sys::next_asked(listener.as_fd()) else { return Ok(()) };
        let (owner, (call, detail, fatal)) = (*owner, seccomp::judge(self.spec.profile, &asked));
        let command = match owner {
            Owner::Program => None,
            Owner::Command(command) => Some(command),
        };
        self.tell(&FromInit::Tried { command, call, detail, fatal })?;
        match (fatal, owner) {
            (false, _) => {
                let _ = sys::refuse(listener.as_fd(), asked.id, libc::EPERM);
            }
            (true, Owner::Program) => sys::signal_all(libc::SIGKILL),
            (true, Owner::Command(command)) => {
                // What a command has left is alone.
                sys::signal(asked.pid, libc::SIGKILL);
                return self.end(command);
            }
        }
        Ok(())
    }

    /// Does what the launcher says; false if it is gone.
    fn obey(&mut self) -> Result<bool> {
        let received = self.channel.receive::<ToInit>().step("hear the launcher")?;
        let Some(Received { message, fds, .. }) = received else { return Ok(false) };
        match message {
            ToInit::Signal { signal, all: true } => sys::signal_all(signal),
            ToInit::Signal { signal, all: false } => {
                self.program.into_iter().for_each(|program| sys::signal(program, signal));
            }
            ToInit::Exec { command } => self.begin(command, fds)?,
            ToInit::SignalCommand { command, signal } => {
                let leader = self.commands.get(&command).and_then(|kept| kept.leader.as_ref());
                leader.into_iter().for_each(|leader| sys::signal_by(leader.pidfd.as_fd(), signal));
            }
            ToInit::EndCommand { command } => self.end(command)?,
            ToInit::Socket => socket(fds),
            ToInit::Placed { .. } | ToInit::Run { .. } => {}
        }
        Ok(true)
    }

    /// Makes a keeper for a command.
    fn begin(&mut self, command: u64, fds: Vec<OwnedFd>) -> Result<()> {
        match self.keep(fds) {
            Ok(kept) => {
                self.commands.insert(command, kept);
                Ok(())
            }
            Err(error) => self.tell(&FromInit::CommandFailed { command, error }),
        }
    }

    fn keep(&self, fds: Vec<OwnedFd>) -> Result<Kept> {
        let (here, there) = Channel::pair().step("make a channel")?;
        match sys::clone(0, None).step("make a process")? {
            Cloned::Child => keeper::main(&there, &self.spec, self.weak, fds),
            Cloned::Parent { pid, pidfd } => {
                Ok(Kept { keeper: pid, keeper_pidfd: pidfd, channel: here, leader: None })
            }
        }
    }

    /// What a keeper says.
    fn hear(&mut self, command: u64) -> Result<()> {
        let Some(kept) = self.commands.get_mut(&command) else { return Ok(()) };
        // A keeper can be killed by what it keeps, in the middle of a word too.
        let Some(received) = kept.channel.receive::<FromKeeper>().ok().flatten() else {
            return self.lose(command);
        };
        let mut fds = received.fds.into_iter();
        match received.message {
            FromKeeper::Started { pid, notify } => {
                kept.leader = fds.next().map(|pidfd| Leader { pid, pidfd });
                self.add_listener(Owner::Command(command), fds.next());
                self.tell(&FromInit::CommandStarted { command, notify })
            }
            FromKeeper::Failed(error) => {
                self.commands.remove(&command);
                self.tell(&FromInit::CommandFailed { command, error })
            }
            FromKeeper::Ended { exit_code, signal } => {
                self.commands.remove(&command);
                self.tell(&FromInit::CommandEnded { command, exit_code, signal })
            }
        }
    }

    /// A keeper was killed, by us or by what it keeps: what is left of the command goes too.
    fn lose(&mut self, command: u64) -> Result<()> {
        let Some(kept) = self.commands.remove(&command) else { return Ok(()) };
        let Some(leader) = kept.leader else {
            let error = Error::failed("start the command", "its process was killed");
            return self.tell(&FromInit::CommandFailed { command, error });
        };
        if !has_ended(&leader.pidfd) {
            sys::signal_by(leader.pidfd.as_fd(), libc::SIGSTOP);
            let mut killed = tree::kill_below(&self.processes, leader.pid);
            sys::signal_by(leader.pidfd.as_fd(), libc::SIGKILL);
            killed.insert(leader.pid);
            self.await_end(&killed)?;
        }
        let (exit_code, signal) = (None, Some(libc::SIGKILL));
        self.tell(&FromInit::CommandEnded { command, exit_code, signal })
    }

    /// Kills a command with everything that it has started, and its keeper.
    fn end(&mut self, command: u64) -> Result<()> {
        let Some(kept) = self.commands.get(&command) else { return Ok(()) };
        // It stays until nobody is left whom it could have to take in.
        sys::signal_by(kept.keeper_pidfd.as_fd(), libc::SIGSTOP);
        let mut killed = tree::kill_below(&self.processes, kept.keeper);
        sys::signal_by(kept.keeper_pidfd.as_fd(), libc::SIGKILL);
        killed.insert(kept.keeper);
        self.await_end(&killed)
    }

    /// Waits a moment for those who were killed, so that there is room again when the command's end is told.
    fn await_end(&mut self, killed: &BTreeSet<u32>) -> Result<()> {
        for _ in 0..MAX_WAITS {
            self.reap()?;
            if !killed.iter().any(|pid| sys::is_there(*pid)) {
                break;
            }
            // Only time passes.
            let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
        }
        Ok(())
    }

    /// Waits for everybody who has ended; keeps it if the program is one of them.
    fn reap(&mut self) -> Result<()> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if u32::try_from(pid.as_raw_nonzero().get()).ok() == self.program {
                        let exit_code = status.exit_status();
                        let signal = status.terminating_signal();
                        self.ended = Some(FromInit::Ended { exit_code, signal });
                    }
                }
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).step("wait for the program"),
            }
        }
    }
}

/// How many milliseconds those who were killed may take to die: a moment, but where many want the processor.
const MAX_WAITS: usize = 5_000;

/// Hands out a socket of this network, not yet connected: whoever connects it waits, not we.
pub(super) fn socket(fds: Vec<OwnedFd>) {
    let Some(channel) = fds.into_iter().next().map(Channel::from) else { return };
    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
    let flags = rustix::net::SocketFlags::CLOEXEC;
    // Whoever asked may be gone.
    let _ = match rustix::net::socket_with(family, kind, flags, None).step("make a socket") {
        Ok(socket) => channel.send_all(&None::<Error>, &[], &[socket.as_fd()]),
        Err(error) => channel.send(&Some(error)),
    };
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)) != Ok(0)
}
