//! The first process of a sandbox: builds the root, starts the program, reaps orphans, answers what the filter asks.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, Gid, Uid};

use super::INSIDE_ID;
use super::room::Room;
use super::root::{Files, Root};
use super::workload::{Started, Workload};
use crate::cgroup;
use crate::error::{Error, Result, Step};
use crate::outcome::Standing;
use crate::spec::{Network, Profile, Spec};
use crate::sys;
use crate::wire::{Channel, FromInit, Received, ToInit, Weak};

/// Is init, and never returns: it must not come back into the launcher that it was cloned from.
pub(super) fn main(channel: &Channel, doors: &[File]) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| match run(channel, doors) {
        Ok(()) => 0,
        Err(error) => {
            // If the launcher is gone, so are we in a moment.
            let _ = channel.send(&FromInit::Failed(error));
            1
        }
    }));
    sys::end(ended.unwrap_or(2))
}

fn run(channel: &Channel, doors: &[File]) -> Result<()> {
    cgroup::walk_in(doors).step("enter the cgroups")?;
    sys::close_all_but(channel.as_fd()).step("close descriptors")?;
    let receive = || channel.receive::<ToInit>().step("hear the launcher");
    let Some(Received { message: ToInit::Placed { parts, opened }, fds, .. }) = receive()? else {
        return Ok(());
    };
    become_nobody()?;
    let root = Root::begin(&parts, opened.then_some(fds))?;
    // This may take long: the launcher waits ahead of the spec. Its end is our end.
    let received = channel.receive_begun::<ToInit>().step("hear the launcher")?;
    let Some(mut received) = received else { return Ok(()) };
    let ToInit::Run { order, opened, weak } = received.message else {
        return Err(Error::failed("hear the launcher", "it gave no order"));
    };
    let mut fds = received.fds.into_iter();
    let streams: Vec<OwnedFd> = fds.by_ref().take(3).collect();
    let spec = order.spec;
    let files = Files { sizes: &order.sizes, bytes: &mut received.tail };
    let inside = root.finish(&spec, files, opened.then(|| fds.collect()))?;
    let proxy = network(&spec)?;
    give_up_capabilities()?;
    let signals = sys::child_signals().step("watch children")?;
    let program = match spec.stay {
        true => None,
        false => Some(start(&spec, weak, streams)?),
    };
    let (notify, landlock) = match &program {
        Some(program) => (program.listener.is_some(), program.landlock),
        // Nobody has tried yet; the first command that has no listener will say so.
        None => (true, sys::landlock_version().is_ok()),
    };
    let fds: Vec<_> = [&inside.workspace]
        .into_iter()
        .map(AsFd::as_fd)
        .chain(proxy.iter().map(AsFd::as_fd))
        .collect();
    let notify = if notify { Standing::Enforced } else { Standing::Absent };
    let message = FromInit::Started { notify, landlock };
    channel.send_all(&message, &[], &fds).step("tell the launcher")?;
    drop((proxy, inside.workspace));
    Room::new(channel, spec, weak, inside.processes, program).watch(&signals)
}

/// Starts the program of its own.
fn start(spec: &Spec, weak: Weak, streams: Vec<OwnedFd>) -> Result<Started> {
    let workload = Workload::new(spec, weak)?;
    take_streams(&streams)?;
    drop(streams);
    let started = workload.start(spec.argv.first().map_or("", String::as_str))?;
    leave_streams()?;
    Ok(started)
}

/// Has the inside user, belongs to the launcher's life, and cannot be looked into by whoever has the same user.
fn become_nobody() -> Result<()> {
    let (user, group) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    rustix::thread::set_thread_res_gid(group, group, group).step("change the group")?;
    rustix::thread::set_thread_res_uid(user, user, user).step("change the user")?;
    // Changing the user would have cleared it. If the launcher died before this, its channel has ended.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .step("watch the launcher")?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide")?;
    // Only now, so that its root is the group that we were put into.
    sys::leave_cgroups().step("leave the host's cgroups")?;
    rustix::system::sethostname(b"sandbox").step("change the name of the host")
}

/// Whoever may open sockets has a loopback of its own; with a proxy, we listen there for it.
pub(super) fn network(spec: &Spec) -> Result<Option<TcpListener>> {
    if spec.profile != Profile::Hosted {
        return Ok(None);
    }
    let family = rustix::net::AddressFamily::INET;
    let socket = rustix::net::socket(family, rustix::net::SocketType::DGRAM, None);
    sys::loopback_up(socket.step("make a socket")?.as_fd()).step("switch on the loopback")?;
    match spec.network {
        Network::None => Ok(None),
        Network::Proxy { port } => {
            let listener = TcpListener::bind(("127.0.0.1", port));
            listener.map(Some).map_err(|e| Error::spec("network.port", e.to_string()))
        }
    }
}

fn give_up_capabilities() -> Result<()> {
    rustix::thread::clear_ambient_capability_set().step("give up capabilities")?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).step("give up capabilities")
}

/// What the program will have as its standard descriptors.
pub(super) fn take_streams(streams: &[OwnedFd]) -> Result<()> {
    let [stdin, stdout, stderr] = streams else {
        return Err(Error::failed("hear the launcher", "a descriptor is missing"));
    };
    rustix::stdio::dup2_stdin(stdin).step("take the input")?;
    rustix::stdio::dup2_stdout(stdout).step("take the output")?;
    rustix::stdio::dup2_stderr(stderr).step("take the output")
}

/// The program has them now: whoever reads them must see their end when the program ends.
pub(super) fn leave_streams() -> Result<()> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty()).step("open /dev/null")?;
    rustix::stdio::dup2_stdin(&null).step("leave the input")?;
    rustix::stdio::dup2_stdout(&null).step("leave the output")?;
    rustix::stdio::dup2_stderr(&null).step("leave the output")
}
