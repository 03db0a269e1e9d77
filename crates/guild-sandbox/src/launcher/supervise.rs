//! What the launcher does while the program runs: holds the clock and the limits, carries the output, hears its caller
//! and init, and says at the end how it went.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use super::commands::{Commands, Source, Wanted, socket, tell};
use super::relay::Relay;
use super::{Prepared, tree};
use crate::error::{Error, Result, Step};
use crate::host::Layer;
use crate::limits::{Limit, Limits};
use crate::mac::Mac;
use crate::outcome::{Class, Flag, LimitReport, Standing, Usage};
use crate::wire::{Channel, FromInit, FromLauncher, Order, ToInit, ToLauncher};

mod conclude;
mod start;

use start::{cgroup_layers, hear_start, hold_limits, not_taken, report, send_order};

/// How often the limits are looked at that nothing else watches.
const LOOK_EVERY_US: u64 = 20_000;
/// How many different attempts are told apart.
const MAX_FLAGS: usize = 64;

pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0) * 1_000_000 + ns.unwrap_or(0) / 1_000
}

/// Runs the program of an order until everything of it is gone.
pub(super) fn run(
    control: &Channel,
    prepared: Prepared,
    order: Order,
    tail: Vec<u8>,
    fds: Vec<OwnedFd>,
) -> Result<()> {
    let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(fds) else {
        return Err(Error::failed("hear the caller", "a descriptor is missing"));
    };
    let limits = order.spec.limits;
    let has_disk_limit = order.spec.binds.iter().all(|bind| !bind.writable);
    let mut held = hold_limits(&prepared, &limits)?;
    if !has_disk_limit {
        let by = "tmpfs, but not in the writable binds";
        held.insert(Limit::Disk, report(Standing::Weaker, by));
    }
    let mac = order.spec.mac.as_ref().map_or_else(Mac::default, |_| Mac::look());
    let mut layers = cgroup_layers(&prepared, &held);
    if order.spec.mac.is_some() {
        layers.insert(Layer::Mac, mac.found(order.spec.mac.as_deref()).standing);
    }
    let is_off = |layer: &&Layer| layers.get(*layer) == Some(&Standing::Absent);
    if let Some(layer) = order.spec.require.iter().find(is_off) {
        // The host had it when it was looked at.
        let why = "it could not be used this time".to_owned();
        return Err(Error::LayerMissing { layer: *layer, why });
    }
    let out = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe")?;
    let err = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe")?;
    let relays = [Relay::new(out.0, stdout)?, Relay::new(err.0, stderr)?];
    let streams = [stdin, out.1, err.1];
    send_order(&prepared, order, &tail, (&held, mac.module), streams)
        .map_err(|error| not_taken(&prepared, error))?;
    drop(tail);
    let (more, given) = hear_start(control, &prepared)?;
    let layers: BTreeMap<_, _> = layers.into_iter().chain(more).collect();
    let fds: Vec<_> = given.iter().map(AsFd::as_fd).collect();
    let keeps_apart = layers.get(&Layer::Landlock) == Some(&Standing::Enforced);
    control.send_all(&FromLauncher::Started { keeps_apart }, &[], &fds).step("tell the caller")?;
    drop(given);
    let mut watch = Watch::new(prepared, limits, held, layers, relays);
    watch.until_everything_is_gone(control)?;
    watch.conclude(control)
}

pub(super) fn wait(fds: &mut [PollFd<'_>], at_most_us: u64) -> Result<()> {
    let seconds = i64::try_from(at_most_us / 1_000_000).unwrap_or(i64::MAX);
    let ns = i64::try_from(at_most_us % 1_000_000 * 1_000).unwrap_or(0);
    match poll(fds, Some(&Timespec { tv_sec: seconds, tv_nsec: ns })) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno).step("wait"),
    }
}

/// What is known while the program runs.
struct Watch {
    prepared: Prepared,
    limits: Limits,
    held: BTreeMap<Limit, LimitReport>,
    layers: BTreeMap<Layer, Standing>,
    relays: [Relay; 2],
    commands: Commands,
    started_us: u64,
    frozen_since_us: Option<u64>,
    frozen_us: u64,
    /// Why it was ended, if it did not end by itself.
    stopped: Option<Class>,
    ended: Option<(Option<i32>, Option<i32>)>,
    flags: Vec<Flag>,
    usage: Usage,
}

/// What became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ready {
    Control,
    Init,
    Gone,
    Stream(usize),
    Command(Source),
}

impl Watch {
    fn new(
        prepared: Prepared,
        limits: Limits,
        held: BTreeMap<Limit, LimitReport>,
        layers: BTreeMap<Layer, Standing>,
        relays: [Relay; 2],
    ) -> Watch {
        Watch {
            prepared,
            limits,
            held,
            layers,
            relays,
            commands: Commands::default(),
            started_us: now_us(),
            frozen_since_us: None,
            frozen_us: 0,
            stopped: None,
            ended: None,
            flags: Vec::new(),
            usage: Usage::default(),
        }
    }

    fn until_everything_is_gone(&mut self, control: &Channel) -> Result<()> {
        let mut look_at_us = now_us() + LOOK_EVERY_US;
        loop {
            let now = now_us();
            self.check_wall(now);
            let wall_us = self.wall_us(now);
            let next_us = self.commands.check_wall(&self.prepared.init.channel, wall_us)?;
            let next_us = if self.frozen_since_us.is_some() { u64::MAX } else { next_us };
            if now >= look_at_us {
                self.look();
                look_at_us = now + LOOK_EVERY_US;
            }
            for ready in self
                .wait(control, look_at_us.saturating_sub(now).min(self.left_us(now)).min(next_us))?
            {
                match ready {
                    Ready::Control => self.obey(control)?,
                    Ready::Init => self.hear()?,
                    Ready::Gone => return Ok(()),
                    Ready::Stream(at) => self.carry(at),
                    Ready::Command(source) => self.serve(source)?,
                }
            }
        }
    }

    fn wait(&self, control: &Channel, at_most_us: u64) -> Result<Vec<Ready>> {
        let init = &self.prepared.init;
        let mut what = vec![Ready::Control, Ready::Gone];
        let mut fds =
            vec![PollFd::new(control, PollFlags::IN), PollFd::new(&init.pidfd, PollFlags::IN)];
        if self.ended.is_none() {
            what.push(Ready::Init);
            fds.push(PollFd::new(&init.channel, PollFlags::IN));
        }
        for (at, relay) in self.relays.iter().enumerate() {
            if let Some((fd, flags)) = relay.waits_for() {
                what.push(Ready::Stream(at));
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
        }
        for (source, fd, flags) in self.commands.sources() {
            what.push(Ready::Command(source));
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        wait(&mut fds, at_most_us)?;
        let ready = what.into_iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        let mut ready: Vec<Ready> = ready.map(|(what, _)| what).collect();
        // The last of all: what init said before it ended must be heard.
        ready.sort_by_key(|ready| *ready == Ready::Gone);
        Ok(ready)
    }

    /// Time until the wall clock ends it; none while it is frozen.
    fn left_us(&self, now: u64) -> u64 {
        let wall_us = self.limits.wall_ms.saturating_mul(1_000);
        match self.frozen_since_us {
            Some(_) => u64::MAX,
            None => wall_us.saturating_sub(self.wall_us(now)),
        }
    }

    fn wall_us(&self, now: u64) -> u64 {
        let frozen = self.frozen_since_us.map_or(0, |since| now.saturating_sub(since));
        now.saturating_sub(self.started_us).saturating_sub(self.frozen_us + frozen)
    }

    fn check_wall(&mut self, now: u64) {
        if self.left_us(now) == 0 {
            self.reached(Limit::Wall);
            self.stop(Class::WallLimit);
        }
    }

    /// Ends it. Only the first reason counts.
    fn stop(&mut self, class: Class) {
        if self.stopped.is_none() {
            self.stopped = Some(class);
            // In version 1 the frozen do not die.
            let _ = self.prepared.group.freeze(false);
            self.prepared.init.kill();
        }
    }

    fn reached(&mut self, limit: Limit) {
        if let Some(report) = self.held.get_mut(&limit) {
            report.reached = true;
        }
    }

    /// Looks at what the whole tree uses.
    fn look(&mut self) {
        let group = &self.prepared.group;
        let (cpu, peak, kills) = (group.cpu_us(), group.memory_peak(), group.memory_kills());
        let pids = group.pids_peak();
        let walked = match (cpu, peak, pids) {
            (Some(_), Some(_), Some(_)) => tree::Tree::default(),
            _ => tree::look(self.prepared.init.pid),
        };
        let usage = &mut self.usage;
        usage.cpu_us = usage.cpu_us.max(cpu.unwrap_or(walked.cpu_us));
        let memory = peak.unwrap_or(walked.memory_bytes);
        usage.memory_peak_bytes = usage.memory_peak_bytes.max(memory);
        usage.pids_peak = usage.pids_peak.max(pids.unwrap_or(walked.pids));
        let too_much = peak.is_none() && memory > self.limits.memory_hard_bytes;
        if kills.is_some_and(|kills| kills > 0) || too_much {
            self.reached(Limit::Memory);
            self.stop(Class::MemoryLimit);
        }
        if self.usage.cpu_us >= self.limits.cpu_hard_ms.saturating_mul(1_000) {
            self.reached(Limit::Cpu);
            self.stop(Class::CpuLimit);
        }
    }

    /// What may still be printed.
    fn left_bytes(&self) -> u64 {
        self.limits.output_bytes.saturating_sub(self.usage.output_bytes)
    }

    /// What became ready of a command.
    fn serve(&mut self, source: Source) -> Result<()> {
        let (init, left) = (&self.prepared.init.channel, self.left_bytes());
        if let Source::Caller(command) = source {
            return self.commands.obey(init, command);
        }
        let came = self.commands.carry(init, source, left)?;
        self.count(came);
        Ok(())
    }

    fn carry(&mut self, at: usize) {
        let left = self.left_bytes();
        let came = self.relays.get_mut(at).map_or(0, |relay| relay.step(left));
        self.count(came);
    }

    fn count(&mut self, came: u64) {
        self.usage.output_bytes = self.usage.output_bytes.saturating_add(came);
        if self.usage.output_bytes > self.limits.output_bytes {
            self.reached(Limit::Output);
            self.stop(Class::OutputLimit);
        }
    }

    /// Does what the caller says. A caller that is gone wants nothing any more.
    fn obey(&mut self, control: &Channel) -> Result<()> {
        let Some(received) = control.receive::<ToLauncher>().step("hear the caller")? else {
            return Err(Error::failed("hear the caller", "it is gone"));
        };
        match received.message {
            // Whoever dies must not be frozen before it is dead.
            ToLauncher::Freeze if self.frozen_since_us.is_none() && self.stopped.is_none() => {
                self.freeze(true)?;
                self.frozen_since_us = Some(now_us());
            }
            ToLauncher::Thaw => {
                if let Some(since) = self.frozen_since_us.take() {
                    self.frozen_us += now_us().saturating_sub(since);
                    self.freeze(false)?;
                }
            }
            ToLauncher::Kill => self.stop(Class::Stopped),
            ToLauncher::Signal(signal) => self.tell_init(signal, false)?,
            ToLauncher::Exec { wall_ms, output_bytes } => {
                let wanted = Wanted { wall_ms, output_bytes };
                let (now_us, frozen) = (self.wall_us(now_us()), self.frozen_since_us.is_some());
                let init = &self.prepared.init.channel;
                self.commands.begin(init, &wanted, received.fds, now_us, frozen)?;
            }
            ToLauncher::Socket => {
                let frozen = self.frozen_since_us.is_some();
                socket(&self.prepared.init.channel, received.fds, frozen);
            }
            ToLauncher::Resize { cores_milli, memory_bytes } => {
                let refused = self.resize(cores_milli, memory_bytes).err();
                if let Some(caller) = received.fds.into_iter().next().map(Channel::from) {
                    // Whoever does not listen any more need not know.
                    let _ = caller.send_now(&refused, &[]);
                }
            }
            ToLauncher::Freeze | ToLauncher::Prepare(_) | ToLauncher::Run(_) => {}
        }
        Ok(())
    }

    /// Other limits for everybody who runs. Memory first: if that is refused, nothing has changed.
    fn resize(&mut self, cores_milli: u32, memory_bytes: u64) -> Result<()> {
        let group = &self.prepared.group;
        let missing = |layer: Layer, controller: &str| {
            let why = format!("there is no cgroup of {controller} to set");
            Err(Error::LayerMissing { layer, why })
        };
        if !group.can_resize("memory") {
            return missing(Layer::CgroupMemory, "memory");
        }
        let needs_cpu = cores_milli < self.prepared.cores_milli;
        if needs_cpu && !group.can_resize("cpu") {
            return missing(Layer::CgroupCpu, "cpu");
        }
        if !group.resize_memory(memory_bytes).step("set the limit of memory")? {
            let why = "it uses more than that";
            return Err(Error::limit("memory_hard_bytes", why));
        }
        let pid = self.prepared.init.pid;
        let cores = group.resize_cores(cores_milli, pid, needs_cpu).step("set the limit of cores");
        if !matches!(cores, Ok(true)) {
            let before = self.limits.memory_hard_bytes;
            group.resize_memory(before).step("set the limit of memory")?;
            cores?;
            return missing(Layer::CgroupCpu, "cpu");
        }
        self.limits.cores_milli = cores_milli;
        (self.limits.memory_soft_bytes, self.limits.memory_hard_bytes) =
            (memory_bytes, memory_bytes);
        Ok(())
    }

    fn freeze(&mut self, frozen: bool) -> Result<()> {
        if self.prepared.group.freeze(frozen).step("freeze the cgroup")? {
            return Ok(());
        }
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        self.tell_init(signal.as_raw(), true)
    }

    fn tell_init(&self, signal: i32, all: bool) -> Result<()> {
        // One that init has no ear for is lost, as signals are that have come already.
        tell(&self.prepared.init.channel, &ToInit::Signal { signal, all }).map(drop)
    }

    /// What init says.
    fn hear(&mut self) -> Result<()> {
        let received = self.prepared.init.channel.receive::<FromInit>().step("hear init")?;
        match received.map(|received| received.message) {
            Some(FromInit::Tried { command, call, detail, fatal }) => {
                let flag = Flag { call, detail, count: 1, fatal };
                command.into_iter().for_each(|id| self.commands.flag(id, flag.clone()));
                self.flag(flag);
            }
            Some(FromInit::CommandStarted { command, notify }) => {
                if !notify {
                    self.layers.insert(Layer::SeccompNotify, Standing::Absent);
                }
                self.commands.started(command);
            }
            Some(FromInit::CommandFailed { command, error }) => {
                let (left, now_us) = (self.left_bytes(), self.wall_us(now_us()));
                let came = self.commands.failed(command, error, left, now_us);
                self.count(came);
            }
            Some(FromInit::CommandEnded { command, exit_code, signal }) => {
                self.command_ended(command, exit_code, signal);
            }
            Some(FromInit::Ended { exit_code, signal }) => self.ended = Some((exit_code, signal)),
            Some(FromInit::Failed(error)) => return Err(error),
            Some(FromInit::Started { .. }) => {}
            None => self.ended = self.ended.or(Some((None, None))),
        }
        Ok(())
    }

    fn command_ended(&mut self, command: u64, exit_code: Option<i32>, signal: Option<i32>) {
        if self.is_killed_by_filter(signal) {
            self.commands.flag(command, killed_by_filter());
            self.flag(killed_by_filter());
        }
        let (left, now_us) = (self.left_bytes(), self.wall_us(now_us()));
        let came = self.commands.ended(command, (exit_code, signal), left, now_us);
        self.count(came);
    }

    /// Without anybody to ask, the kernel kills, and leaves only this signal.
    fn is_killed_by_filter(&self, signal: Option<i32>) -> bool {
        let asks = self.layers.get(&Layer::SeccompNotify) == Some(&Standing::Enforced);
        !asks && signal == Some(Signal::SYS.as_raw())
    }

    fn flag(&mut self, flag: Flag) {
        if flag.call == "socket" || flag.call == "connect" {
            self.reached(Limit::Network);
        }
        add_flag(&mut self.flags, flag);
    }
}

fn killed_by_filter() -> Flag {
    let (call, detail) = ("unknown".to_owned(), "killed by the filter".to_owned());
    Flag { call, detail, count: 1, fatal: true }
}

/// Counts an attempt with those that are the same.
pub(super) fn add_flag(flags: &mut Vec<Flag>, new: Flag) {
    let same = |flag: &&mut Flag| flag.call == new.call && flag.detail == new.detail;
    if let Some(flag) = flags.iter_mut().find(same) {
        flag.count = flag.count.saturating_add(new.count);
        flag.fatal |= new.fatal;
    } else if flags.len() < MAX_FLAGS {
        flags.push(new);
    }
}
