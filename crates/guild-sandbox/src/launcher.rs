//! The process that holds one sandbox: the program itself, executed again as the nursery, and split off from that.
//!
//! A program that starts sandboxes must do this first of all, before it makes threads or reads its arguments:
//!
//! ```no_run
//! # use std::process::ExitCode;
//! fn main() -> ExitCode {
//!     if guild_sandbox::launcher::is_asked_for() {
//!         return guild_sandbox::launcher::main();
//!     }
//!     // …
//! #   ExitCode::SUCCESS
//! }
//! ```

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use crate::cgroup::Group;
use crate::error::{Error, Result, Step};
use crate::spec::WRITABLE;
use crate::sys::{self, Cloned, Reaped};
use crate::wire::{Channel, FromLauncher, FromNursery, Preparation, ToInit, ToLauncher, ToNursery};

mod commands;
mod init;
mod keeper;
mod oci;
mod relay;
mod room;
mod root;
mod supervise;
mod tree;
mod workload;

/// The first argument of a launcher.
pub const WORD: &str = "__sandbox";

/// The user and group that programs have inside.
const INSIDE_ID: u32 = 1_000;
/// As root, every sandbox has a user of the host that is nobody else's: this one, plus the launcher's process number.
/// Two callers in different process namespaces of one host may have the same.
const HOST_IDS: u32 = 1_900_000_000;

/// Whether this process is to be a launcher.
pub fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == WORD)
}

/// Is the nursery, until its caller is gone, and each of the launchers that are split off from it, until its sandbox
/// is. Must be called by the only thread of the process.
pub fn main() -> ExitCode {
    match take_control().and_then(nurse) {
        Ok(Some(launcher)) => launch(&launcher),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

/// Is one launcher.
fn launch(control: &Channel) -> ExitCode {
    match hold(control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Whoever asked may be gone.
            let _ = control.send(&FromLauncher::Failed(error));
            ExitCode::from(3)
        }
    }
}

/// Leaves the caller's terminal, and keeps nothing of what it had open but the channel.
fn take_control() -> io::Result<Channel> {
    sys::close_inherited()?;
    let control = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // It may lead a group already, and then it stays in it.
    let _ = rustix::process::setsid();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok(Channel::from(control))
}

/// Splits off a launcher for every channel that comes. Returns in each of them, with its channel, and in the nursery
/// with none, once the caller and all launchers are gone. The control is given up: launchers have none of it.
fn nurse(control: Channel) -> io::Result<Option<Channel>> {
    sys::ignore_children();
    while let Some(received) = control.receive::<ToNursery>()? {
        let ToNursery::Launch = received.message;
        let Some(channel) = received.fds.into_iter().next().map(Channel::from) else {
            return Err(io::Error::other("a channel is missing"));
        };
        match sys::clone(0, None) {
            Ok(Cloned::Child) => {
                sys::heed_children();
                // A session of its own, as the nursery has.
                let _ = rustix::process::setsid();
                return Ok(Some(channel));
            }
            Ok(Cloned::Parent { pidfd, .. }) => {
                control.send_all(&FromNursery::Launched, &[], &[pidfd.as_fd()])?;
            }
            Err(error) => control.send(&FromNursery::Failed(error.to_string()))?,
        }
    }
    sys::wait_for_children();
    Ok(None)
}

fn hold(control: &Channel) -> Result<()> {
    let receive = || control.receive::<ToLauncher>().step("hear the caller");
    let Some(first) = receive()? else { return Ok(()) };
    let ToLauncher::Prepare(preparation) = first.message else {
        return Err(Error::failed("hear the caller", "it did not begin with the preparation"));
    };
    let prepared = Prepared::make(&preparation)?;
    // This may take long: the launcher waits ahead of the spec.
    let Some(second) = receive()? else { return Ok(()) };
    match second.message {
        ToLauncher::Run(order) => supervise::run(control, prepared, order, second.tail, second.fds),
        _ => Err(Error::failed("hear the caller", "it gave no order")),
    }
}

/// Cgroups, and an init in its namespaces that waits. Dropping it leaves nothing.
struct Prepared {
    group: Group,
    init: Init,
    cores_milli: u32,
}

/// The first process of a sandbox.
struct Init {
    pid: u32,
    pidfd: OwnedFd,
    channel: Channel,
    /// Its mounts: taking them apart takes long, and nobody has to wait for that.
    _mounts: Option<File>,
    /// What it and all its descendants used, once it is gone.
    reaped: Option<Reaped>,
}

impl Prepared {
    fn make(preparation: &Preparation) -> Result<Prepared> {
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            rustix::thread::set_thread_groups(&[]).step("leave the groups of root")?;
        }
        if let Some(runtime) = &preparation.runtime {
            return oci::prepare(preparation, runtime);
        }
        let parts = root::parts(&preparation.image)?;
        let trees = if is_root { root::open_parts(&parts)? } else { Vec::new() };
        let group = Group::make(&preparation.places);
        let (init, born_inside) = match Init::make(&group) {
            Ok(made) => made,
            Err(error) => {
                group.remove();
                return Err(error);
            }
        };
        // From here on dropping cleans up.
        let prepared = Prepared { group, init, cores_milli: preparation.cores_milli };
        map_users(prepared.init.pid, is_root)?;
        if !born_inside {
            prepared.group.add(prepared.init.pid).step("enter the cgroup")?;
        }
        let fds: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
        let placed: ToInit = ToInit::Placed { parts, opened: is_root };
        prepared.init.channel.send_all(&placed, &[], &fds).step("tell init")?;
        Ok(prepared)
    }
}

impl Prepared {
    /// Kills whoever is left, and removes the cgroups.
    fn leave(&mut self) {
        self.init.kill();
        if self.init.reaped.is_none() {
            // In version 1 the frozen do not die, and would be waited for for ever.
            let _ = self.group.freeze(false);
        }
        self.init.reap();
        self.group.remove();
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Init {
    /// The first process of new namespaces, if possible already in its cgroup of version 2.
    fn make(group: &Group) -> Result<(Init, bool)> {
        let (here, there) = Channel::pair().step("make a channel")?;
        let doors = group.doors().step("open the cgroups")?;
        let namespaces = libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS;
        let place = group.unified().and_then(|path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).ok()
        });
        let mut born_inside = place.is_some();
        let mut cloned = sys::clone(namespaces, place.as_ref().map(AsFd::as_fd));
        if cloned.is_err() && born_inside {
            born_inside = false;
            cloned = sys::clone(namespaces, None);
        }
        match cloned.step("make the namespaces")? {
            Cloned::Child => init::main(&there, &doors),
            Cloned::Parent { pid, pidfd } => {
                let mounts = File::open(format!("/proc/{pid}/ns/mnt")).ok();
                let init = Init { pid, pidfd, channel: here, _mounts: mounts, reaped: None };
                Ok((init, born_inside))
            }
        }
    }

    /// Kills everything: the namespace does not outlive its first process.
    fn kill(&self) {
        // It may be gone already.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits until it is gone, and says what all of it used.
    fn reap(&mut self) -> Reaped {
        *self.reaped.get_or_insert_with(|| sys::reap(self.pid).unwrap_or_default())
    }
}

fn map_users(pid: u32, is_root: bool) -> Result<()> {
    let (user, group) = match is_root {
        true => {
            let own = HOST_IDS.saturating_add(std::process::id());
            (own, own)
        }
        false => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
    };
    let write = |file: &str, text: String| {
        fs::write(format!("/proc/{pid}/{file}"), text).step(&format!("write {file}"))
    };
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{INSIDE_ID} {group} 1"))?;
    write("uid_map", format!("{INSIDE_ID} {user} 1"))
}
