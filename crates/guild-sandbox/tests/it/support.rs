//! What the tests share: a sandbox, and a look at what is left when it is gone.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, RwLock};

use guild_sandbox::{Collected, Limits, Ns, Options, Sandbox, Spec};

/// The launcher of the tests.
pub(crate) const LAUNCHER: &str = env!("CARGO_BIN_EXE_sandbox-launcher");

/// The launcher beside the tests, where they have been copied for another user.
pub(crate) fn launcher() -> PathBuf {
    let beside = std::env::current_exe().unwrap().with_file_name("sandbox-launcher");
    if beside.is_file() { beside } else { PathBuf::from(LAUNCHER) }
}

/// A sandbox with everything that this host has.
pub(crate) fn sandbox() -> &'static Ns {
    static SANDBOX: OnceLock<Ns> = OnceLock::new();
    SANDBOX.get_or_init(|| Ns::new(Options::new(launcher())).unwrap())
}

/// The same without cgroups, as an ordinary user has it.
pub(crate) fn sandbox_without_cgroups() -> Ns {
    Ns::new(Options { cgroups: false, ..Options::new(launcher()) }).unwrap()
}

/// Small limits: tests are short.
pub(crate) fn limits() -> Limits {
    Limits {
        cpu_soft_ms: 400,
        cpu_hard_ms: 1_000,
        memory_soft_bytes: 64 << 20,
        memory_hard_bytes: 128 << 20,
        pids: 20,
        disk_bytes: 16 << 20,
        inodes: 2_000,
        wall_ms: 120_000,
        output_bytes: 1 << 20,
        ..Limits::judge()
    }
}

/// A Python program with small limits.
pub(crate) fn python(code: &str) -> Spec {
    Spec::new(["python3", "-I", "-S", "/judge/main.py"], limits()).file("/judge/main.py", code)
}

/// A shell script with small limits.
pub(crate) fn shell(code: &str) -> Spec {
    Spec::new(["sh", "-c", code], limits())
}

/// Runs it to its end.
pub(crate) fn run(sandbox: &Ns, spec: &Spec) -> Collected {
    sandbox.start(spec).unwrap().collect().unwrap()
}

/// What it printed, both streams, for messages and comparisons.
pub(crate) fn printed(collected: &Collected) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&collected.stdout), text(&collected.stderr))
}

/// What sandboxes whose launcher is gone have left: cgroups, processes (known by their users), mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    cgroups: BTreeSet<String>,
    users: BTreeSet<u32>,
    mounts: Vec<String>,
}

/// Whoever leaves something on purpose keeps this to write, so that nobody else looks meanwhile.
pub(crate) static LOOK: RwLock<()> = RwLock::new(());

impl Traces {
    pub(crate) fn now() -> Traces {
        let _nobody_leaves_anything = LOOK.read();
        Traces::seen()
    }

    /// As [`Traces::now`], for whoever holds the lock.
    pub(crate) fn seen() -> Traces {
        Traces { cgroups: cgroups(), users: users(), mounts: mounts() }
    }

    pub(crate) fn is_none(&self) -> bool {
        *self == Traces::default()
    }

    pub(crate) fn assert_none(&self) {
        assert!(self.is_none(), "something is left: {self:?}");
    }
}

/// Roots are built below `/sys`, in namespaces of their own.
fn mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = |line: &str| line.split(' ').nth(4).unwrap_or_default().to_owned();
    let ours = |line: &&str| {
        let point = point(line);
        line.contains(" - tmpfs ") && (point == "/sys" || point.starts_with("/sys/tmp"))
    };
    mounts.lines().filter(ours).map(str::to_owned).collect()
}

/// The groups of launchers that are gone: their names say whose they were.
fn cgroups() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(owner) = name.strip_prefix("guild-sandbox-") {
                let pid = owner.split('-').next().unwrap_or_default();
                if !lives(pid) {
                    found.insert(entry.path().display().to_string());
                }
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// Whether a process is there and more than a name that nobody has waited for.
fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

/// The users of processes that belong to sandboxes whose launcher is gone.
fn users() -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(user) = user(&entry.path()) else { continue };
        let Some(launcher) = user.checked_sub(1_900_000_000) else { continue };
        // The launcher goes last: whoever is there after it is left.
        if !lives(&launcher.to_string()) && self::user(&entry.path()) == Some(user) {
            found.insert(user);
        }
    }
    found
}

/// The real user of a process that is not dead.
fn user(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let user = line.split_whitespace().next()?.parse().ok()?;
    (!status.contains("State:\tZ")).then_some(user)
}
