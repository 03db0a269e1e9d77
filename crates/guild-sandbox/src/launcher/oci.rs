//! The first process of a sandbox that an OCI runtime makes.
//!
//! It is what init is elsewhere, and the launcher cannot tell the difference: pid 1 of new namespaces, which it fills
//! with everything that the runtime is given and leaves behind, so that all of that ends with it. The program is its
//! child, because the runtime goes as soon as the program runs. It is root of the host, but the program sees nothing of
//! it: the program has users of its own, and a `/proc` that shows nobody else's processes.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

use super::root::{self, Files, Root};
use super::supervise::{now_us, wait};
use super::{HOST_IDS, INSIDE_ID, Init, Prepared, init, workload};

use crate::cgroup::Group;
use crate::cgroup::runtime::Held;
use crate::error::{Error, Result, Step};
use crate::host::Layer;
use crate::mac::Module;
use crate::oci::bundle::{Bundle, Ids};
use crate::oci::{Kind, Runtime};
use crate::outcome::Standing;
use crate::spec::Spec;
use crate::sys::{self, Cloned};
use crate::wire::{Channel, FromInit, Preparation, Received, ToInit, Weak};

mod asks;
mod room;

use asks::Asks;
use room::Room;

/// Users of the host for the root of a sandbox, as [`HOST_IDS`] are for programs.
const HOST_ROOT_IDS: u32 = 1_800_000_000;
/// Threads of a second kernel, and the processes that it lets programs run in.
const OWN_KERNEL_PIDS: u32 = 512;
/// The name of the one container of a runtime that serves only one sandbox.
const NAME: &str = "box";
const UNDO_WITHIN_US: u64 = 5_000_000;
/// Directories of every host that a runtime needs nothing from: one of them is covered by the sandbox's own.
const SITES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// As [`Prepared::make`], for a runtime.
pub(super) fn prepare(preparation: &Preparation, runtime: &Runtime) -> Result<Prepared> {
    let parts = root::parts(&preparation.image)?;
    let trees = root::open_parts(&parts)?;
    let own_pids = if runtime.kind == Kind::Own { OWN_KERNEL_PIDS } else { 0 };
    let group = Group::of_a_runtime(&preparation.places, Held { own_pids });
    let launcher = std::process::id();
    let (here, there) = Channel::pair().step("make a channel")?;
    let namespaces = libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match sys::clone(namespaces, None).step("make the namespaces")? {
        Cloned::Child => {
            let cores_milli = preparation.cores_milli;
            First { runtime: runtime.clone(), group, launcher, cores_milli }.main(&there)
        }
        Cloned::Parent { pid, pidfd } => {
            let init = Init { pid, pidfd, channel: here, _mounts: None, reaped: None };
            let prepared = Prepared { group, init, cores_milli: preparation.cores_milli };
            let fds: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
            let placed: ToInit = ToInit::Placed { parts, opened: true };
            prepared.init.channel.send_all(&placed, &[], &fds).step("tell init")?;
            Ok(prepared)
        }
    }
}

/// What the first process knows.
struct First {
    runtime: Runtime,
    group: Group,
    /// Its number on the host, which makes the users of this sandbox its own.
    launcher: u32,
    cores_milli: u32,
}

/// The directories that the runtime is given.
struct Site(&'static str);

impl Site {
    /// One that hides nothing that the runtime needs.
    fn choose(runtime: &Path) -> Result<Site> {
        let free = |site: &&str| Path::new(site).is_dir() && !runtime.starts_with(site);
        let site = SITES.into_iter().find(free);
        site.map(Site).ok_or_else(|| Error::failed("find a place for the root", SITES.join(", ")))
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

impl First {
    /// Never returns: it must not come back into the launcher that it was cloned from.
    fn main(self, channel: &Channel) -> ! {
        let ended = catch_unwind(AssertUnwindSafe(|| match self.run(channel) {
            Ok(()) => 0,
            Err(error) => {
                // If the launcher is gone, so are we in a moment.
                let _ = channel.send(&FromInit::Failed(error));
                1
            }
        }));
        sys::end(ended.unwrap_or(2))
    }

    fn run(&self, channel: &Channel) -> Result<()> {
        sys::close_all_but(channel.as_fd()).step("close descriptors")?;
        // If the launcher died before this, its channel has ended.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .step("watch the launcher")?;
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).step("hide")?;
        rustix::system::sethostname(b"sandbox").step("change the name of the host")?;
        let site = self.take_site()?;
        let receive = || channel.receive::<ToInit>().step("hear the launcher");
        let Some(Received { message: ToInit::Placed { parts, .. }, fds, .. }) = receive()? else {
            return Ok(());
        };
        let ids = self.ids();
        let owner = ids.outside.map_or(ids.inside, |(program, _)| program);
        sys::act_as((owner, owner)).step("act as the program's user")?;
        let root = Root::for_a_runtime(site.at("root"), owner, &parts, fds)?;
        // This may take long: the launcher waits ahead of the spec. Its end is our end.
        let received = channel.receive_begun::<ToInit>().step("hear the launcher")?;
        let Some(mut received) = received else { return Ok(()) };
        let ToInit::Run { order, weak, .. } = received.message else {
            return Err(Error::failed("hear the launcher", "it gave no order"));
        };
        let mut fds = received.fds.into_iter();
        let streams: Vec<OwnedFd> = fds.by_ref().take(3).collect();
        let spec = order.spec;
        let files = Files { sizes: &order.sizes, bytes: &mut received.tail };
        let shows_processes = self.runtime.kind == Kind::Shared;
        let workspace = root.finish_for_a_runtime(&spec, files, fds.collect(), shows_processes)?;
        check_program(&root, &spec)?;
        sys::act_as((0, 0)).step("act as root")?;
        let proxy = init::network(&spec)?;
        let rlimits = workload::limits(&spec, Weak::default());
        let (place, path) = (site.at("root"), self.group.path_for_a_runtime()?);
        let socket = site.at("asks");
        let asks = self.runtime.asks.then(|| Asks::listen(&socket)).transpose()?;
        let mut bundle = self.bundle(&spec, (&place, &path), &rlimits, weak.mac);
        bundle.listener = asks.is_some().then_some(socket.as_str());
        let text = bundle.config().to_string();
        fs::write(site.at("bundle/config.json"), text).step("write the bundle")?;
        let signals = sys::child_signals().step("watch children")?;
        let calls = Calls::new(&self.runtime, &site, &signals);
        let program = self.start(&calls, &spec, streams).inspect_err(|_| calls.undo())?;
        // Calls in no list and of foreign architectures kill all the same, and have no name then.
        let notify = if asks.is_some() { Standing::Weaker } else { Standing::Absent };
        let room = Room::new(channel, &calls, &bundle, root, asks, program)?;
        let message = FromInit::Started { notify, landlock: false };
        let fds: Vec<_> =
            [workspace.as_fd()].into_iter().chain(proxy.iter().map(AsFd::as_fd)).collect();
        channel.send_all(&message, &[], &fds).step("tell the launcher")?;
        drop((proxy, workspace));
        room.watch()
    }

    /// Mounts of its own: processes as they are numbered here, and a place for everything that the runtime writes.
    fn take_site(&self) -> Result<Site> {
        root::leave_mounts()?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", "/proc", "proc", flags, c"").step("mount /proc")?;
        let site = Site::choose(&self.runtime.path)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("tmpfs", site.0, "tmpfs", flags, c"mode=0755,size=64m").step("mount the site")?;
        for name in ["root", "bundle", "state"] {
            fs::create_dir(site.at(name)).step("make the site")?;
        }
        Ok(site)
    }

    fn ids(&self) -> Ids {
        let outside = match self.runtime.kind {
            Kind::Shared => Some((
                HOST_IDS.saturating_add(self.launcher),
                HOST_ROOT_IDS.saturating_add(self.launcher),
            )),
            Kind::Own => None,
        };
        Ids { inside: INSIDE_ID, outside }
    }

    fn bundle<'a>(
        &self,
        spec: &'a Spec,
        (root, cgroups_path): (&'a str, &'a str),
        rlimits: &'a [(Resource, Rlimit)],
        mac: Option<Module>,
    ) -> Bundle<'a> {
        let resources = self.group.resources(&spec.limits, self.cores_milli);
        let (kind, ids) = (self.runtime.kind, self.ids());
        Bundle { spec, kind, root, ids, cgroups_path, resources, rlimits, mac, listener: None }
    }

    /// Lets the runtime make the container, looks whether its limits are there, and only then lets it run.
    fn start(&self, calls: &Calls<'_>, spec: &Spec, streams: Vec<OwnedFd>) -> Result<Program> {
        let (bundle, pid_file) = (calls.site.at("bundle"), calls.site.at("pid"));
        let words = ["create", "--bundle", &bundle, "--pid-file", &pid_file, NAME];
        calls.call(&words, streams)?;
        let pid = fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok());
        let pid: u32 = pid.ok_or_else(|| self.runtime.error("it made no process"))?;
        self.group.check(&spec.limits, self.cores_milli, pid)?;
        check_namespace(Layer::UserNamespace, "user", pid)?;
        check_namespace(Layer::Namespaces, "mnt", pid)?;
        if !spec.stay {
            calls.call(&["start", NAME], Vec::new())?;
        }
        Ok(Program { pid, kind: self.runtime.kind, stays: spec.stay })
    }
}

/// The process that the runtime made: the program, or the kernel of its own that ends as the program does. If the
/// sandbox stays, it is the process that waits for ever to become a program.
struct Program {
    pid: u32,
    kind: Kind,
    stays: bool,
}

/// How a program ended, as its kernel tells it: a signal is 128 and its number. Only that of the filter is taken for
/// one, since a program may exit with such a number by itself.
fn told(exit_code: Option<i32>, signal: Option<i32>) -> (Option<i32>, Option<i32>) {
    match exit_code {
        Some(code) if code == 128 + libc::SIGSYS => (None, Some(libc::SIGSYS)),
        _ => (exit_code, signal),
    }
}

/// Refuses if the process that the runtime made has no namespace of its own.
fn check_namespace(layer: Layer, kind: &str, pid: u32) -> Result<()> {
    let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}"));
    match (of(&pid.to_string()), of("self")) {
        (Ok(theirs), Ok(ours)) if theirs != ours => Ok(()),
        _ => {
            let why = format!("the runtime gave the program no {kind} namespace of its own");
            Err(Error::LayerMissing { layer, why })
        }
    }
}

/// Refuses what the runtime would only refuse after the start, with words of its own.
fn check_program(root: &Root, spec: &Spec) -> Result<()> {
    if spec.stay {
        return Ok(());
    }
    let find = |at: &str, flags| root.find(at.trim_start_matches('/'), flags);
    find(&spec.cwd, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(|errno| Error::spec("cwd", io::Error::from(errno).to_string()))?;
    let mut last = Errno::NOENT;
    for candidate in workload::candidates(spec) {
        let candidate = match candidate.starts_with('/') {
            true => candidate,
            false => format!("{}/{candidate}", spec.cwd),
        };
        match find(&candidate, OFlags::PATH).and_then(rustix::fs::fstat) {
            Ok(stat)
                if stat.st_mode & 0o111 != 0 && FileType::from_raw_mode(stat.st_mode).is_file() =>
            {
                return Ok(());
            }
            Ok(_) => last = Errno::ACCESS,
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => last = errno,
        }
    }
    let program = spec.argv.first().cloned().unwrap_or_default();
    Err(Error::NotStarted { program, why: io::Error::from(last).to_string() })
}

/// Calls of the runtime, which end in time or everything does.
struct Calls<'a> {
    runtime: &'a Runtime,
    site: &'a Site,
    signals: &'a OwnedFd,
    until_us: u64,
}

impl<'a> Calls<'a> {
    fn new(runtime: &'a Runtime, site: &'a Site, signals: &'a OwnedFd) -> Calls<'a> {
        let mut calls = Calls { runtime, site, signals, until_us: 0 };
        calls.until_us = calls.deadline_us();
        calls
    }

    /// Until when something may take that begins now.
    fn deadline_us(&self) -> u64 {
        now_us().saturating_add(self.runtime.timeout_ms.saturating_mul(1_000))
    }

    fn spawn(&self, words: &[&str], streams: Vec<OwnedFd>) -> Result<Child> {
        let Runtime { path, kind, platform, .. } = self.runtime;
        let mut command = Command::new(path);
        command.args(["--root", &self.site.at("state"), "--log", &self.site.at("log")]);
        command.args(["--log-format", "json"]);
        if *kind == Kind::Own {
            command.args(["--network=none", "--oci-seccomp"]);
        }
        if let Some(platform) = platform {
            command.arg(format!("--platform={platform}"));
        }
        command.args(words).env_clear().current_dir("/");
        // Runtimes that are scripts look for programs.
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok([stdin, stdout, stderr]) = <[OwnedFd; 3]>::try_from(streams) {
            command.stdin(stdin).stdout(stdout).stderr(stderr);
        }
        command.spawn().map_err(|error| self.runtime.error(error))
    }

    /// Until it has ended well.
    fn call(&self, words: &[&str], streams: Vec<OwnedFd>) -> Result<()> {
        let mut child = self.spawn(words, streams)?;
        loop {
            if let Some(status) = child.try_wait().step("wait for the runtime")? {
                return if status.success() {
                    Ok(())
                } else {
                    Err(self.runtime.error(self.said(words)))
                };
            }
            let left_us = self.until_us.saturating_sub(now_us());
            if left_us == 0 {
                let step = words.first().copied().unwrap_or_default().to_owned();
                let (runtime, timeout_ms) = (self.runtime.name(), self.runtime.timeout_ms);
                return Err(Error::RuntimeHangs { runtime, step, timeout_ms });
            }
            wait(&mut [PollFd::new(self.signals, PollFlags::IN)], left_us)?;
            self.forget_signals();
        }
    }

    /// Lets a runtime that did not do as it was told take back what it did elsewhere. What it did here goes with us.
    fn undo(&self) {
        let until_us = now_us().saturating_add(UNDO_WITHIN_US);
        let has_made = Path::new(&self.site.at("pid")).exists();
        if has_made {
            // What brought us here is told, not this.
            let _ = Calls { until_us, ..*self }.call(&["delete", "--force", NAME], Vec::new());
        }
    }

    /// Whatever it says is only that somebody has ended.
    fn forget_signals(&self) {
        let _ = rustix::io::read(self.signals, &mut [0u8; 1_024]);
    }

    /// The last words of the runtime.
    fn said(&self, words: &[&str]) -> String {
        let log = fs::read_to_string(self.site.at("log")).unwrap_or_default();
        let message = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line.get("msg")?.as_str()?.trim().chars().take(400).collect::<String>())
        };
        let last = log.lines().rev().find_map(message);
        let word = words.first().copied().unwrap_or_default();
        last.unwrap_or_else(|| format!("{word} failed and said nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_hides_nothing_that_the_runtime_needs() {
        assert_eq!(Site::choose(Path::new("/usr/bin/runc")).unwrap().0, "/mnt");
        assert_ne!(Site::choose(Path::new("/mnt/tools/runc")).unwrap().0, "/mnt");
    }

    #[test]
    fn a_second_kernel_s_word_is_read() {
        assert_eq!(told(Some(7), None), (Some(7), None));
        assert_eq!(told(Some(137), None), (Some(137), None));
        assert_eq!(told(Some(159), None), (None, Some(31)));
        assert_eq!(told(None, Some(9)), (None, Some(9)));
    }
}
