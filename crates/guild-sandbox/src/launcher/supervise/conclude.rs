//! How it ends: everything is counted for the last time, nothing is left, and the caller hears how it went.

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;

use super::super::relay::Relay;
use super::{LOOK_EVERY_US, Watch, killed_by_filter, now_us, wait};
use crate::error::{Result, Step};
use crate::limits::Limit;
use crate::outcome::{Class, Outcome};
use crate::wire::{Channel, FromLauncher, ToLauncher};

impl Watch {
    /// Everything is gone: counts for the last time, leaves nothing, and says how it went.
    pub(super) fn conclude(mut self, control: &Channel) -> Result<()> {
        self.usage.wall_us = self.wall_us(now_us());
        while self.ended.is_none() {
            self.hear()?;
        }
        for at in 0..self.relays.len() {
            let left = self.left_bytes();
            let came = self.relays.get_mut(at).map_or(0, |relay| relay.drain(left));
            self.count(came);
        }
        let class = self.stopped.unwrap_or(Class::Stopped);
        let came = self.commands.all_ended(class, self.left_bytes(), self.usage.wall_us);
        self.count(came);
        let reaped = self.prepared.init.reap();
        self.look();
        let usage = &mut self.usage;
        if self.prepared.group.cpu_us().is_none() {
            usage.cpu_us = usage.cpu_us.max(reaped.cpu_us);
        }
        if self.prepared.group.memory_peak().is_none() {
            // A short life may not have been looked at.
            usage.memory_peak_bytes = usage.memory_peak_bytes.max(reaped.memory_bytes);
            usage.pids_peak = usage.pids_peak.max(1);
        }
        self.soft_limits();
        let outcome = self.outcome();
        let Watch { mut prepared, relays, commands, .. } = self;
        let mut relays: Vec<Relay> = relays.into_iter().chain(commands.into_relays()).collect();
        // Everybody is dead, and the cgroups go before anybody hears of the end. Only our hold on the mounts stays.
        prepared.leave();
        control.send(&FromLauncher::Ended(Box::new(outcome))).step("tell the caller")?;
        hear_no_more(control);
        hand_over(control, &mut relays)
    }

    fn soft_limits(&mut self) {
        if self.usage.cpu_us >= self.limits.cpu_soft_ms.saturating_mul(1_000) {
            self.reached(Limit::Cpu);
        }
        if self.usage.memory_peak_bytes >= self.limits.memory_soft_bytes {
            self.reached(Limit::Memory);
        }
        if self.prepared.group.pids_refused().is_some_and(|refused| refused > 0) {
            self.reached(Limit::Pids);
        }
    }

    fn outcome(&mut self) -> Outcome {
        let (exit_code, signal) = self.ended.unwrap_or_default();
        // Whoever is killed from outside leaves no word.
        let signal = signal.or(exit_code.is_none().then_some(Signal::KILL.as_raw()));
        if self.is_killed_by_filter(signal) {
            self.flag(killed_by_filter());
        }
        let class = match (self.flags.is_empty(), self.stopped, exit_code) {
            (false, _, _) => Class::SecurityViolation,
            (true, Some(class), _) => class,
            (true, None, Some(_)) => Class::Exited,
            (true, None, None) => Class::Signaled,
        };
        Outcome {
            class,
            exit_code,
            signal,
            flags: std::mem::take(&mut self.flags),
            usage: self.usage,
            limits: std::mem::take(&mut self.held),
            layers: std::mem::take(&mut self.layers),
        }
    }
}

/// Whoever asks for a command from now on learns that nobody hears it, and so does whoever has asked in vain.
fn hear_no_more(control: &Channel) {
    let _ = rustix::net::shutdown(control, rustix::net::Shutdown::Read);
    while let Ok(Some(_)) = control.receive::<ToLauncher>() {}
}

/// Gives away what has been printed and not yet been read, as long as anybody may read it.
fn hand_over(control: &Channel, relays: &mut [Relay]) -> Result<()> {
    loop {
        let waiting = relays.iter_mut().filter_map(|relay| (!relay.hand_over()).then_some(()));
        if waiting.count() == 0 {
            return Ok(());
        }
        let mut fds = vec![PollFd::new(control, PollFlags::empty())];
        // One that is empty and at its end would be ready at once, again and again.
        let full = relays.iter().filter(|relay| relay.has_pending());
        for (fd, flags) in full.filter_map(Relay::waits_for) {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        wait(&mut fds, LOOK_EVERY_US)?;
        if fds.first().is_some_and(|fd| fd.revents().contains(PollFlags::HUP)) {
            return Ok(());
        }
    }
}
