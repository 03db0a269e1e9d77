//! How a program is started: its limits are set, init gets its order, and says what the program has around it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};

use super::super::{Prepared, root};
use super::{now_us, wait};
use crate::error::{Error, Result, Step};
use crate::host::Layer;
use crate::limits::{Limit, Limits};
use crate::mac::Module;
use crate::outcome::{LimitReport, Standing};
use crate::wire::{Channel, FromInit, Order, Received, ToInit, Weak};

/// How long the root may take to be built.
const START_WITHIN_US: u64 = 30_000_000;

pub(super) fn report(standing: Standing, by: &str) -> LimitReport {
    LimitReport { standing, by: by.to_owned(), reached: false }
}

/// Sets what cgroups can hold, and says how the rest is held.
pub(super) fn hold_limits(
    prepared: &Prepared,
    limits: &Limits,
) -> Result<BTreeMap<Limit, LimitReport>> {
    let mut held = BTreeMap::from([
        (Limit::Memory, report(Standing::Weaker, "looked at now and then, and RLIMIT_DATA")),
        (Limit::Pids, report(Standing::Weaker, "RLIMIT_NPROC of the sandbox's own user")),
        (Limit::Cores, report(Standing::Weaker, "pinned to whole cores")),
        (Limit::Cpu, report(Standing::Weaker, "looked at now and then, and RLIMIT_CPU")),
        (Limit::Disk, report(Standing::Enforced, "tmpfs")),
        (Limit::Inodes, report(Standing::Enforced, "tmpfs")),
        (Limit::Wall, report(Standing::Enforced, "the launcher's clock")),
        (Limit::Output, report(Standing::Enforced, "counted by the launcher")),
        (Limit::Network, report(Standing::Enforced, "an empty network namespace")),
    ]);
    let by_cgroup = prepared.group.limit(limits, prepared.init.pid, prepared.cores_milli);
    held.extend(by_cgroup.step("set the limits of the cgroups")?);
    Ok(held)
}

/// Which of the layers that cgroups give are on.
pub(super) fn cgroup_layers(
    prepared: &Prepared,
    held: &BTreeMap<Limit, LimitReport>,
) -> BTreeMap<Layer, Standing> {
    let on = |on: bool| if on { Standing::Enforced } else { Standing::Absent };
    // A limit may be held without a cgroup: then it is no layer.
    let layer = |limit, controller| {
        let holds = held.get(&limit).is_some_and(|r| r.standing == Standing::Enforced);
        on(holds && prepared.group.has(controller))
    };
    BTreeMap::from([
        (Layer::CgroupMemory, layer(Limit::Memory, "memory")),
        (Layer::CgroupPids, layer(Limit::Pids, "pids")),
        (Layer::CgroupCpu, layer(Limit::Cores, "cpu")),
        (Layer::CgroupFreeze, on(prepared.group.can_freeze())),
        (Layer::Mac, Standing::Absent),
    ])
}

pub(super) fn send_order(
    prepared: &Prepared,
    order: Order,
    tail: &[u8],
    (held, mac): (&BTreeMap<Limit, LimitReport>, Option<Module>),
    streams: [OwnedFd; 3],
) -> Result<()> {
    let is_weak = |limit| held.get(&limit).is_none_or(|r| r.standing != Standing::Enforced);
    let cores = usize::try_from(order.spec.limits.cores_milli.div_ceil(1_000)).unwrap_or(1);
    let weak = Weak {
        memory: is_weak(Limit::Memory),
        pids: is_weak(Limit::Pids),
        cores: is_weak(Limit::Cores).then_some(cores),
        mac,
    };
    let opened = rustix::process::geteuid().is_root();
    let trees = if opened { root::open_binds(&order.spec.binds)? } else { Vec::new() };
    let fds: Vec<BorrowedFd<'_>> = streams.iter().chain(&trees).map(AsFd::as_fd).collect();
    let message = ToInit::Run { order, opened, weak };
    prepared.init.channel.send_all(&message, &[tail], &fds).step("tell init")
}

/// Waits until the program runs, and learns which layers it has. Gives what init hands out.
pub(super) fn hear_start(
    control: &Channel,
    prepared: &Prepared,
) -> Result<(BTreeMap<Layer, Standing>, Vec<OwnedFd>)> {
    let until = now_us() + START_WITHIN_US;
    loop {
        let channel = &prepared.init.channel;
        let mut fds =
            [PollFd::new(channel, PollFlags::IN), PollFd::new(control, PollFlags::empty())];
        wait(&mut fds, until.saturating_sub(now_us()))?;
        if fds[1].revents().contains(PollFlags::HUP) {
            return Err(Error::failed("start", "the caller is gone"));
        }
        if fds[0].revents().is_empty() {
            if now_us() < until {
                continue;
            }
            return Err(Error::failed("start", "the root could not be built in time"));
        }
        let received = channel.receive::<FromInit>().step("hear init")?;
        let gone =
            || too_large(prepared).unwrap_or_else(|| Error::failed("hear init", "it is gone"));
        let received = received.ok_or_else(gone)?;
        return match received.message {
            FromInit::Started { notify, landlock } => {
                let on = |on: bool| if on { Standing::Enforced } else { Standing::Absent };
                let layers = BTreeMap::from([
                    (Layer::UserNamespace, Standing::Enforced),
                    (Layer::Namespaces, Standing::Enforced),
                    (Layer::Seccomp, Standing::Enforced),
                    (Layer::SeccompNotify, notify),
                    (Layer::Landlock, on(landlock)),
                ]);
                Ok((layers, received.fds))
            }
            FromInit::Failed(error) => Err(error),
            _ => Err(Error::failed("hear init", "it did not begin with the start")),
        };
    }
}

/// Why init did not take its order: its own word, if it has said one.
pub(super) fn not_taken(prepared: &Prepared, error: Error) -> Error {
    prepared.init.kill();
    match prepared.init.channel.receive::<FromInit>() {
        Ok(Some(Received { message: FromInit::Failed(why), .. })) => why,
        _ => too_large(prepared).unwrap_or(error),
    }
}

/// Whether init was killed for want of memory before it started anything: only files need much of it then.
fn too_large(prepared: &Prepared) -> Option<Error> {
    prepared.group.memory_kills().filter(|kills| *kills > 0)?;
    Some(Error::limit("memory_hard_bytes", "the files do not fit"))
}
