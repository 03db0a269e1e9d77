//! The backend that lets an OCI runtime make the sandbox: runc, or gVisor's runsc with a kernel of its own.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::Sandbox;
use crate::error::{Error, Result, Step};
use crate::host::{Found, Host, Layer};
use crate::limits::{Limit, Limits};
use crate::ns::{Ns, Options};
use crate::outcome::{Class, Outcome, Standing};
use crate::running::{Collected, Running};
use crate::spec::{Defaults, Network, Spec};

pub(crate) mod bundle;

/// How an OCI runtime is used.
#[derive(Debug, Clone)]
pub struct OciOptions {
    /// The program that calls [`crate::launcher::main`] when its first argument is [`crate::launcher::WORD`]: usually
    /// the running one.
    pub program: PathBuf,
    /// The runtime.
    pub runtime: PathBuf,
    /// How gVisor catches system calls, as in `ptrace`; what it takes by itself if there is none.
    pub platform: Option<String>,
    /// How long the runtime may take until a program runs. Then it is killed, with all that it started.
    pub timeout_ms: u64,
    /// What is added to every spec.
    pub defaults: Defaults,
}

impl OciOptions {
    /// Ten seconds for a start, and nothing added to specs.
    pub fn new(program: impl Into<PathBuf>, runtime: impl Into<PathBuf>) -> OciOptions {
        OciOptions {
            program: program.into(),
            runtime: runtime.into(),
            platform: None,
            timeout_ms: 10_000,
            defaults: Defaults::default(),
        }
    }
}

/// A runtime, as the launcher needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Runtime {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) platform: Option<String>,
    pub(crate) timeout_ms: u64,
    /// Whether it can hand out the listener of a filter.
    pub(crate) asks: bool,
}

/// The two kinds of runtimes that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Programs run on the host's kernel: runc, and those that take the same words.
    Shared,
    /// Programs run on a kernel of their own, which is a program of the host: runsc.
    Own,
}

impl Runtime {
    /// As people call it.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) fn error(&self, why: impl ToString) -> Error {
        Error::Runtime { runtime: self.name(), why: why.to_string() }
    }
}

/// The version of a runtime, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(pub String);

/// An OCI runtime of this host, tried and found to hold the limits.
#[derive(Debug)]
pub struct Oci {
    ns: Ns,
    kind: Kind,
    version: Version,
}

/// Without these nothing runs, whatever the spec requires.
const INDISPENSABLE: [Layer; 3] = [Layer::Namespaces, Layer::CgroupMemory, Layer::CgroupPids];
/// A start may not take longer than the launcher waits.
const MAX_TIMEOUT_MS: u64 = 20_000;
/// What a runtime needs itself, in the group of the program, until that runs.
const MIN_PIDS: u32 = 16;
/// The same if the sandbox stays: what waits in it, and what starts a command.
const MIN_STAY_PIDS: u32 = 32;

impl Oci {
    /// Asks the runtime for its version and runs small programs with it. Refuses if a limit or a layer that the
    /// runtime was told does not hold.
    pub fn new(options: OciOptions) -> Result<Oci> {
        let OciOptions { program, runtime, platform, timeout_ms, defaults } = options;
        if !(1..=MAX_TIMEOUT_MS).contains(&timeout_ms) {
            let why = format!("{timeout_ms} is not between 1 and {MAX_TIMEOUT_MS}");
            return Err(Error::spec("timeout_ms", why));
        }
        if !rustix::process::geteuid().is_root() {
            let why =
                "only root can be sure that an OCI runtime does not ignore it; use the backend ns";
            return Err(Error::LayerMissing { layer: Layer::CgroupMemory, why: why.to_owned() });
        }
        let version = Version::of(&runtime, timeout_ms)?;
        let kind = version.kind();
        let asks = kind == Kind::Shared;
        let mut runtime = Runtime { path: runtime, kind, platform, timeout_ms, asks };
        let mut host = Host::probe();
        host.places = host.places.for_a_runtime();
        host.places.sweep();
        host.require(&INDISPENSABLE.into())?;
        // What is tried needs the host's programs, whatever image specs will see.
        let trial = |runtime: &Runtime| {
            Ns::with_runtime(Options::new(program.clone()), host.clone(), runtime.clone())
                .and_then(|trial| try_out(&trial, kind))
        };
        let mut shown = trial(&runtime);
        if asks && matches!(shown, Err(Error::Runtime { .. })) {
            // An older one knows nothing of listeners. If that is not what is wrong, it fails again.
            runtime.asks = false;
            shown = trial(&runtime);
        }
        host.learn(&shown?);
        let options = Options { defaults, ..Options::new(program) };
        Ok(Oci { ns: Ns::with_runtime(options, host, runtime)?, kind, version })
    }

    /// The version of the runtime.
    pub fn version(&self) -> &Version {
        &self.version
    }
}

impl Sandbox for Oci {
    fn host(&self) -> &Host {
        self.ns.host()
    }

    fn start(&self, spec: &Spec) -> Result<Running> {
        let least = if spec.stay { MIN_STAY_PIDS } else { MIN_PIDS };
        if spec.limits.pids < least {
            let why = format!("an OCI runtime needs at least {least} for itself at times");
            return Err(Error::limit("pids", why));
        }
        if self.kind == Kind::Own && spec.stay {
            return Err(Error::spec("stay", "a kernel of its own ends with its program"));
        }
        if self.kind == Kind::Own && spec.network != Network::None {
            let why = "a kernel of its own has a loopback that nobody else can listen on";
            return Err(Error::spec("network", why));
        }
        self.ns.start(spec)
    }
}

impl Host {
    /// What a run has shown.
    fn learn(&mut self, outcome: &Outcome) {
        for (layer, standing) in &outcome.layers {
            let before = self.standing(*layer);
            let found = match standing {
                Standing::Enforced if *layer == Layer::CgroupFreeze => {
                    "the runtime's cgroup".to_owned()
                }
                Standing::Enforced if before == Standing::Enforced => continue,
                Standing::Enforced => "by the runtime".to_owned(),
                Standing::Weaker => "not for all calls with an OCI runtime".to_owned(),
                Standing::Absent => "not with an OCI runtime".to_owned(),
            };
            self.layers.insert(*layer, Found { standing: *standing, found });
        }
    }
}

impl Version {
    /// Asks a runtime, which is killed with all that it started if it does not answer in time.
    pub fn of(runtime: &Path, timeout_ms: u64) -> Result<Version> {
        version(runtime, timeout_ms)
    }

    fn kind(&self) -> Kind {
        if self.0.starts_with("runsc ") { Kind::Own } else { Kind::Shared }
    }
}

/// Asks a runtime what it is.
fn version(runtime: &Path, timeout_ms: u64) -> Result<Version> {
    let error = |why: String| Error::Runtime { runtime: runtime.display().to_string(), why };
    let mut child = Command::new(runtime)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| error(e.to_string()))?;
    let ended = ends_within(&child, timeout_ms);
    // Whatever it started must not stay, nor hold the pipe.
    kill_group(&child);
    let status = child.wait().step("wait for the runtime")?;
    if !ended? {
        return Err(error(format!("--version gave no answer within {timeout_ms} ms")));
    }
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(4_096).read_to_end(&mut said).step("read the version")?;
    }
    let said = String::from_utf8_lossy(&said).lines().next().unwrap_or_default().trim().to_owned();
    if !status.success() || !said.contains("version") {
        return Err(error("it does not say its version, so it is no OCI runtime".to_owned()));
    }
    Ok(Version(said))
}

fn ends_within(child: &Child, timeout_ms: u64) -> Result<bool> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::failed("watch the runtime", "it has no number"))?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).step("watch the runtime")?;
    let seconds = i64::try_from(timeout_ms / 1_000).unwrap_or(i64::MAX);
    let ns = i64::try_from(timeout_ms % 1_000 * 1_000_000).unwrap_or(0);
    let most = Timespec { tv_sec: seconds, tv_nsec: ns };
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&most))).step("wait")?;
    Ok(ready > 0)
}

fn kill_group(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Nobody may be left in it.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

/// More than the limit of the trial, and what a program is told to take.
const TRIAL_BYTES: u64 = 64 << 20;
const TRIAL_PIDS: u32 = 32;

/// Runs programs that show whether the limits and the layers hold, not only whether somebody says so.
fn try_out(trial: &Ns, kind: Kind) -> Result<Outcome> {
    let limits = Limits {
        memory_soft_bytes: TRIAL_BYTES,
        memory_hard_bytes: TRIAL_BYTES,
        pids: TRIAL_PIDS,
        disk_bytes: 1 << 20,
        wall_ms: MAX_TIMEOUT_MS,
        output_bytes: 1 << 20,
        ..Limits::judge()
    };
    let run = |argv: &[&str]| {
        trial.start(&Spec::new(argv.iter().copied(), limits)).and_then(Running::collect)
    };
    let shown = run(&["cat", "/proc/self/status"])?;
    check_status(&shown, kind)?;
    let greedy = run(&["dd", "if=/dev/zero", "of=/dev/null", "bs=128M", "count=1"])?;
    if greedy.outcome.class != Class::MemoryLimit {
        let why = "a program took more with this runtime than it was allowed".to_owned();
        return Err(Error::LayerMissing { layer: Layer::CgroupMemory, why });
    }
    let enforced =
        |limit| shown.outcome.limits.get(&limit).map(|r| r.standing) == Some(Standing::Enforced);
    let bomb = "i=0; while [ $i -lt 64 ]; do sleep 20 & i=$((i+1)); done; echo all";
    if enforced(Limit::Pids) && run(&["sh", "-c", bomb])?.stdout == b"all\n" {
        let why = "a program made more processes with this runtime than it was allowed".to_owned();
        return Err(Error::LayerMissing { layer: Layer::CgroupPids, why });
    }
    Ok(shown.outcome)
}

/// What a program sees about itself.
fn check_status(shown: &Collected, kind: Kind) -> Result<()> {
    let text = String::from_utf8_lossy(&shown.stdout);
    if !shown.outcome.succeeded() {
        let said = String::from_utf8_lossy(&shown.stderr);
        let why = format!("a program ended as {:?}: {}", shown.outcome.class, said.trim());
        return Err(Error::failed("try the runtime", why));
    }
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let missing = |layer, why: &str| Err(Error::LayerMissing { layer, why: why.to_owned() });
    if field("Seccomp") != Some("2") {
        return missing(Layer::Seccomp, "the runtime did not install the filter");
    }
    let powerless = ["CapPrm", "CapEff", "CapBnd"]
        .iter()
        .all(|name| field(name).is_some_and(|set| set.bytes().all(|digit| digit == b'0')));
    // The second kernel does not tell, and gives no privileges to files anyway.
    let no_more = field("NoNewPrivs").map_or(kind == Kind::Own, |value| value == "1");
    if !powerless || !no_more {
        return missing(Layer::UserNamespace, "the runtime left privileges to the program");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Usage;

    fn shown(status: &str) -> Collected {
        let outcome = Outcome {
            class: Class::Exited,
            exit_code: Some(0),
            signal: None,
            flags: Vec::new(),
            usage: Usage::default(),
            limits: [].into(),
            layers: [].into(),
        };
        Collected { outcome, stdout: status.as_bytes().to_vec(), stderr: Vec::new() }
    }

    #[test]
    fn what_a_program_sees_about_itself_is_believed_only_whole() {
        let good = "Name:\tcat\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        assert_eq!(check_status(&shown(good), Kind::Shared), Ok(()));
        let planted = [
            ("Seccomp:\t2", "Seccomp:\t0", Layer::Seccomp),
            ("Seccomp:\t2\n", "", Layer::Seccomp),
            ("CapEff:\t0000", "CapEff:\t0100", Layer::UserNamespace),
            ("CapBnd:\t0000\n", "", Layer::UserNamespace),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", Layer::UserNamespace),
            ("NoNewPrivs:\t1\n", "", Layer::UserNamespace),
        ];
        for (good_part, bad_part, layer) in planted {
            let error = check_status(&shown(&good.replace(good_part, bad_part)), Kind::Shared);
            assert!(
                matches!(error, Err(Error::LayerMissing { layer: l, .. }) if l == layer),
                "{bad_part:?}: {error:?}"
            );
        }
        let silent = good.replace("NoNewPrivs:\t1\n", "");
        assert_eq!(check_status(&shown(&silent), Kind::Own), Ok(()));
    }

    #[test]
    fn runtimes_are_told_apart_by_what_they_say() {
        assert_eq!(Version("runsc version release-2024".to_owned()).kind(), Kind::Own);
        assert_eq!(Version("runc version 1.1.5".to_owned()).kind(), Kind::Shared);
        assert_eq!(Version("crun version 1.8".to_owned()).kind(), Kind::Shared);
    }
}
