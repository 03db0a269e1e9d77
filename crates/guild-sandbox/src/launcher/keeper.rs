//! A command's keeper: the process between init and a command's first process.
//!
//! It takes in whoever the command's processes leave behind, so that as long as the command runs, everything that it
//! has started is below its keeper and can be found. And whatever happens while the command is being started happens to
//! the keeper alone: init never stands still.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::WaitOptions;

use super::init::{leave_streams, take_streams};
use super::workload::Workload;
use crate::error::{Error, Result, Step};
use crate::exec::Exec;
use crate::spec::Spec;
use crate::sys;
use crate::wire::{Channel, FromKeeper, Weak};

/// What an order may weigh: as much as words may, and their names and quotes.
const MAX_ORDER_BYTES: u64 = 64 << 20;
/// How much of a program's name is worth repeating.
const MAX_NAME_BYTES: usize = 256;

/// Is a keeper, and never returns: it must not come back into the init that it was cloned from.
pub(super) fn main(channel: &Channel, spec: &Spec, weak: Weak, fds: Vec<OwnedFd>) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(|| match run(channel, spec, weak, fds) {
        Ok(()) => 0,
        Err(error) => {
            // If init is gone, so are we in a moment.
            let _ = channel.send(&FromKeeper::Failed(short(error)));
            1
        }
    }));
    sys::end(ended.unwrap_or(2))
}

fn run(channel: &Channel, spec: &Spec, weak: Weak, fds: Vec<OwnedFd>) -> Result<()> {
    let [order, streams @ ..] = fds.as_slice() else {
        return Err(Error::failed("hear the launcher", "a descriptor is missing"));
    };
    let exec = read(order)?;
    take_streams(streams)?;
    // Those that are dropped here belong to init, in whose place this process was; it never drops them.
    std::mem::forget(fds);
    sys::close_all_but(channel.as_fd()).step("close descriptors")?;
    sys::adopt_orphans().step("take orphans in")?;
    let mut env = spec.env.clone();
    env.extend(exec.env);
    let cwd = exec.cwd.unwrap_or_else(|| spec.cwd.clone());
    let spec = Spec { argv: exec.argv, env, cwd, files: Vec::new(), ..spec.clone() };
    let program = spec.argv.first().map_or("", String::as_str);
    let started = Workload::new(&spec, weak)?.start(program)?;
    leave_streams()?;
    let notify = started.listener.is_some();
    let fds: Vec<_> =
        [&started.pidfd].into_iter().chain(&started.listener).map(AsFd::as_fd).collect();
    let leader = started.pid;
    let message = FromKeeper::Started { pid: leader, notify };
    channel.send_all(&message, &[], &fds).step("tell init")?;
    drop(started);
    loop {
        let waited = rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::empty()));
        let Some((pid, status)) = waited.step("wait for the command")? else { continue };
        if u32::try_from(pid.as_raw_nonzero().get()) == Ok(leader) {
            let (exit_code, signal) = (status.exit_status(), status.terminating_signal());
            return channel.send(&FromKeeper::Ended { exit_code, signal }).step("tell init");
        }
    }
}

pub(super) fn read(order: &OwnedFd) -> Result<Exec> {
    let mut file = File::from(order.try_clone().step("read the order")?);
    file.seek(SeekFrom::Start(0)).step("read the order")?;
    let mut bytes = Vec::new();
    file.take(MAX_ORDER_BYTES).read_to_end(&mut bytes).step("read the order")?;
    serde_json::from_slice(&bytes).map_err(|error| Error::failed("read the order", error))
}

/// What it says goes through channels whose frames must be short.
fn short(error: Error) -> Error {
    match error {
        Error::NotStarted { program, why } => {
            let program = program.chars().take(MAX_NAME_BYTES).collect();
            Error::NotStarted { program, why }
        }
        other => other,
    }
}
