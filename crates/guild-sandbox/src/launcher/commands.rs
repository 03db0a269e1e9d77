//! The commands of a sandbox, seen by its launcher: their clocks, limits, output and callers.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;

use super::relay::Relay;
use super::supervise::add_flag;
use crate::error::{Error, Result, Step};
use crate::exec::Ended;
use crate::outcome::{Class, Flag};
use crate::wire::{Channel, FromCommand, ToCommand, ToInit};

/// How many commands may run at once.
const MAX_COMMANDS: usize = 64;
/// How long a command may take to start: what is in the sandbox may stop it.
const START_WITHIN_US: u64 = 30_000_000;
/// How many streams are read that commands have left to what they started. Whoever writes to more than these has nobody
/// who reads.
const MAX_LEFT: usize = 256;

/// All commands.
#[derive(Default)]
pub(super) struct Commands {
    next: u64,
    running: BTreeMap<u64, Command>,
    /// Streams of commands that have ended: what was printed before goes out, what comes later is thrown away.
    left: Vec<Relay>,
}

/// A command that runs, or is about to.
struct Command {
    /// `None` once its caller is gone.
    caller: Option<Channel>,
    relays: [Relay; 2],
    started_us: u64,
    wall_us: Option<u64>,
    output_bytes: u64,
    printed_bytes: u64,
    /// Why it was ended, if it did not end by itself.
    stopped: Option<Class>,
    /// Whether init has been told so.
    is_told: bool,
    /// Whether its caller has heard that it runs.
    is_started: bool,
    /// Whether it did not start in time.
    is_late: bool,
    flags: Vec<Flag>,
}

/// What of the commands became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Caller(u64),
    Stream(u64, usize),
    Left(usize),
}

/// What a caller wants.
pub(super) struct Wanted {
    pub(super) wall_ms: Option<u64>,
    pub(super) output_bytes: Option<u64>,
}

impl Commands {
    /// Tells init to start a command. Whatever is wrong is told to its caller; none of it ends the sandbox.
    pub(super) fn begin(
        &mut self,
        init: &Channel,
        wanted: &Wanted,
        fds: Vec<OwnedFd>,
        now_us: u64,
        frozen: bool,
    ) -> Result<()> {
        let Ok([order, stdin, stdout, stderr, caller]) = <[OwnedFd; 5]>::try_from(fds) else {
            // We had no room for all of them. The last one is the caller's, which hears of an end.
            return Ok(());
        };
        let caller = Channel::from(caller);
        let started = match (frozen, self.running.len() >= MAX_COMMANDS) {
            (true, _) => Err(Error::Busy { why: "it is frozen".to_owned() }),
            (_, true) => Err(Error::Busy { why: format!("{MAX_COMMANDS} commands run") }),
            (false, false) => self.order(init, [order, stdin, stdout, stderr]),
        };
        match started {
            Ok((id, relays)) => {
                let command = Command {
                    caller: Some(caller),
                    relays,
                    started_us: now_us,
                    wall_us: wanted.wall_ms.map(|ms| ms.saturating_mul(1_000)),
                    output_bytes: wanted.output_bytes.unwrap_or(u64::MAX),
                    printed_bytes: 0,
                    stopped: None,
                    is_told: false,
                    is_started: false,
                    is_late: false,
                    flags: Vec::new(),
                };
                self.running.insert(id, command);
            }
            Err(error) => say(Some(&caller), &FromCommand::Failed(error)),
        }
        Ok(())
    }

    fn order(&mut self, init: &Channel, fds: [OwnedFd; 4]) -> Result<(u64, [Relay; 2])> {
        let [order, stdin, stdout, stderr] = fds;
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe");
        let (out, err) = (pipe()?, pipe()?);
        let relays = [Relay::new(out.0, stdout)?, Relay::new(err.0, stderr)?];
        let id = self.next;
        let message: ToInit = ToInit::Exec { command: id };
        let fds = [order.as_fd(), stdin.as_fd(), out.1.as_fd(), err.1.as_fd()];
        init.send_now(&message, &fds).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => {
                Error::Busy { why: "init does not listen".to_owned() }
            }
            std::io::ErrorKind::BrokenPipe => Error::Ended,
            _ => Error::failed("tell init", error),
        })?;
        self.next += 1;
        Ok((id, relays))
    }

    /// What to wait for.
    pub(super) fn sources(&self) -> Vec<(Source, BorrowedFd<'_>, PollFlags)> {
        let mut sources = Vec::new();
        for (id, command) in &self.running {
            if let Some(caller) = &command.caller {
                sources.push((Source::Caller(*id), caller.as_fd(), PollFlags::IN));
            }
            for (at, relay) in command.relays.iter().enumerate() {
                // One that is being ended may print for a while yet, and must not use up what others may print.
                let waits = match command.stopped {
                    None => relay.waits_for(),
                    Some(_) => relay.waits_for_room(),
                };
                sources.extend(waits.map(|(fd, flags)| (Source::Stream(*id, at), fd, flags)));
            }
        }
        for (at, relay) in self.left.iter().enumerate() {
            let waits = relay.waits_for();
            sources.extend(waits.map(|(fd, flags)| (Source::Left(at), fd, flags)));
        }
        sources
    }

    /// Moves what can be moved of a stream, at most `left` bytes more. Says how much came.
    pub(super) fn carry(&mut self, init: &Channel, source: Source, left: u64) -> Result<u64> {
        match source {
            Source::Caller(_) => Ok(0),
            Source::Left(at) => Ok(self.left.get_mut(at).map_or(0, |relay| relay.step(0))),
            Source::Stream(id, at) => {
                let Some(command) = self.running.get_mut(&id) else { return Ok(0) };
                if command.stopped.is_some() {
                    command.relays.get_mut(at).into_iter().for_each(Relay::push);
                    return Ok(0);
                }
                let own = command.output_bytes.saturating_sub(command.printed_bytes);
                let came = command.relays.get_mut(at).map_or(0, |relay| relay.step(left.min(own)));
                command.printed_bytes = command.printed_bytes.saturating_add(came);
                if command.printed_bytes > command.output_bytes {
                    self.stop(init, id, Class::OutputLimit)?;
                }
                Ok(came)
            }
        }
    }

    /// Does what a caller says. A caller that is gone wants its command no more.
    pub(super) fn obey(&mut self, init: &Channel, id: u64) -> Result<()> {
        let Some(command) = self.running.get_mut(&id) else { return Ok(()) };
        let Some(caller) = &command.caller else { return Ok(()) };
        match caller.receive::<ToCommand>().ok().flatten().map(|received| received.message) {
            Some(ToCommand::Signal(signal)) => {
                tell(init, &ToInit::SignalCommand { command: id, signal }).map(drop)
            }
            Some(ToCommand::Kill) => self.stop(init, id, Class::Stopped),
            None => {
                command.caller = None;
                self.stop(init, id, Class::Stopped)
            }
        }
    }

    /// Ends a command. Only the first reason counts.
    fn stop(&mut self, init: &Channel, id: u64, class: Class) -> Result<()> {
        let Some(command) = self.running.get_mut(&id) else { return Ok(()) };
        if command.stopped.is_some() {
            return Ok(());
        }
        command.stopped = Some(class);
        command.end(init, id)
    }

    /// Ends those whose time is over, and says how long the next one has.
    pub(super) fn check_wall(&mut self, init: &Channel, now_us: u64) -> Result<u64> {
        let mut over = Vec::new();
        let mut next_us = u64::MAX;
        for (id, command) in self.running.iter().filter(|(_, command)| command.stopped.is_none()) {
            let start_us = if command.is_started { u64::MAX } else { START_WITHIN_US };
            let wall_us = command.wall_us.unwrap_or(u64::MAX).min(start_us);
            match wall_us.saturating_sub(now_us.saturating_sub(command.started_us)) {
                0 => over.push((*id, wall_us == START_WITHIN_US)),
                left => next_us = next_us.min(left),
            }
        }
        for (id, is_late) in over {
            self.stop(init, id, Class::WallLimit)?;
            self.running.get_mut(&id).into_iter().for_each(|command| command.is_late = is_late);
        }
        // Also those that init had no ear for.
        let is_stopped = |(_, command): &(&u64, &mut Command)| command.stopped.is_some();
        for (id, command) in self.running.iter_mut().filter(is_stopped) {
            command.end(init, *id)?;
        }
        Ok(next_us)
    }

    pub(super) fn started(&mut self, id: u64) {
        if let Some(command) = self.running.get_mut(&id) {
            command.is_started = true;
            say(command.caller.as_ref(), &FromCommand::Started);
        }
    }

    /// It could not be started; or we ended it so early that nobody heard of its start. Says how much came.
    pub(super) fn failed(&mut self, id: u64, error: Error, left: u64, now_us: u64) -> u64 {
        let is_ended = |command: &Command| command.stopped.is_some() && !command.is_late;
        if self.running.get(&id).is_some_and(is_ended) {
            self.started(id);
            return self.ended(id, (None, Some(libc::SIGKILL)), left, now_us);
        }
        if let Some(command) = self.running.remove(&id) {
            say(command.caller.as_ref(), &FromCommand::Failed(error));
        }
        0
    }

    pub(super) fn flag(&mut self, id: u64, flag: Flag) {
        if let Some(command) = self.running.get_mut(&id) {
            add_flag(&mut command.flags, flag);
        }
    }

    /// A command has ended: takes what it printed, and tells its caller. Says how much came.
    pub(super) fn ended(
        &mut self,
        id: u64,
        how: (Option<i32>, Option<i32>),
        left: u64,
        now_us: u64,
    ) -> u64 {
        let Some(mut command) = self.running.remove(&id) else { return 0 };
        let mut came = 0u64;
        for relay in &mut command.relays {
            let own = command.output_bytes.saturating_sub(command.printed_bytes);
            let more = relay.finish(left.saturating_sub(came).min(own));
            command.printed_bytes = command.printed_bytes.saturating_add(more);
            came = came.saturating_add(more);
        }
        if command.printed_bytes > command.output_bytes {
            command.stopped = command.stopped.or(Some(Class::OutputLimit));
        }
        self.leave(command, how, now_us);
        came
    }

    /// The sandbox has ended, and everybody in it. Says how much came.
    pub(super) fn all_ended(&mut self, class: Class, mut left: u64, now_us: u64) -> u64 {
        let mut all = 0u64;
        while let Some(id) = self.running.keys().next().copied() {
            if let Some(command) = self.running.get_mut(&id) {
                command.stopped = command.stopped.or(Some(class));
            }
            let came = self.ended(id, (None, Some(libc::SIGKILL)), left, now_us);
            left = left.saturating_sub(came);
            all = all.saturating_add(came);
        }
        all
    }

    /// What has been printed and not been read.
    pub(super) fn into_relays(self) -> Vec<Relay> {
        self.left
    }

    fn leave(&mut self, command: Command, how: (Option<i32>, Option<i32>), now_us: u64) {
        let (exit_code, signal) = how;
        let class = match (command.flags.is_empty(), command.stopped, exit_code) {
            (false, _, _) => Class::SecurityViolation,
            (true, Some(class), _) => class,
            (true, None, Some(_)) => Class::Exited,
            (true, None, None) => Class::Signaled,
        };
        let wall_us = now_us.saturating_sub(command.started_us);
        let ended = Ended { class, exit_code, signal, flags: command.flags, wall_us };
        say(command.caller.as_ref(), &FromCommand::Ended(Box::new(ended)));
        keep(&mut self.left, command.relays, MAX_LEFT);
    }
}

impl Command {
    /// Tells init to end it, once.
    fn end(&mut self, init: &Channel, id: u64) -> Result<()> {
        if !self.is_told {
            self.is_told = tell(init, &ToInit::EndCommand { command: id })?;
        }
        Ok(())
    }
}

/// Keeps streams that are of use. If there are too many the oldest go, but none with something to be read.
fn keep(left: &mut Vec<Relay>, relays: [Relay; 2], most: usize) {
    left.extend(relays);
    left.retain(|relay| relay.waits_for().is_some());
    let mut too_many = left.len().saturating_sub(most);
    left.retain(|relay| {
        let goes = too_many > 0 && !relay.has_pending();
        too_many -= usize::from(goes);
        !goes
    });
}

/// Tells the caller of a command. It may be gone, and it is never waited for.
fn say(caller: Option<&Channel>, message: &FromCommand) {
    if let Some(caller) = caller {
        let _ = caller.send_now(message, &[]);
    }
}

/// Asks init for a socket, which goes to the caller by itself, if it can.
pub(super) fn socket(init: &Channel, fds: Vec<OwnedFd>, frozen: bool) {
    let message: ToInit = ToInit::Socket;
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let why = match frozen {
        true => "it is frozen",
        false if init.send_now(&message, &borrowed).is_ok() => return,
        false => "init does not listen",
    };
    if let Some(caller) = fds.into_iter().next().map(Channel::from) {
        let busy = Some(Error::Busy { why: why.to_owned() });
        let _ = caller.send_now(&busy, &[]);
    }
}

/// Tells init, which may be gone; false if it is frozen, or busy, and has not read what it was told before.
pub(super) fn tell(init: &Channel, message: &ToInit) -> Result<bool> {
    match init.send_now(message, &[]) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(true),
        sent => sent.step("tell init").map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};

    use super::*;

    /// A stream that a daemon still has, of which this much has been printed and cannot be handed over.
    fn stream(bytes: usize) -> (Relay, PipeWriter, PipeReader) {
        let ((from, mut daemon), (reader, to)) = (pipe().unwrap(), pipe().unwrap());
        let mut relay = Relay::new(from.into(), to.into()).unwrap();
        // As if it could not be made larger.
        for _ in 0..bytes.div_ceil(60_000) {
            daemon.write_all(&[b'x'; 60_000]).unwrap();
            relay.step(u64::MAX);
        }
        (relay, daemon, reader)
    }

    #[test]
    fn what_is_not_read_yet_is_never_thrown_away() {
        let ((full, _daemon, mut reader), mut left) = (stream(120_000), Vec::new());
        assert!(full.has_pending());
        let (quiet, _quiet_daemon, _quiet_reader) = stream(0);
        keep(&mut left, [full, quiet], 8);
        let mut daemons = Vec::new();
        for _ in 0..4 {
            let (one, two) = (stream(0), stream(0));
            keep(&mut left, [one.0, two.0], 8);
            daemons.push((one.1, one.2, two.1, two.2));
        }
        assert_eq!(left.len(), 8);
        assert!(left.first().is_some_and(Relay::has_pending));
        let mut all = vec![0; 120_000];
        let reading = std::thread::spawn(move || reader.read_exact(&mut all).map(|()| all));
        while !reading.is_finished() {
            left[0].step(0);
        }
        assert!(reading.join().unwrap().is_ok());
    }
}
