//! What sandboxes leave behind, looked for at one caller: what others of this machine do is none of a test's business.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use guild_sandbox::launcher::WORD;

use super::support::{launcher, sleep_ms};

/// What the sandboxes of a caller have left whose launcher is gone: cgroups, processes, mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    cgroups: BTreeSet<String>,
    /// Those that are the first of a sandbox: nobody in it outlives them.
    processes: BTreeSet<String>,
    mounts: Vec<String>,
}

impl Traces {
    /// Of this run of the tests.
    pub(crate) fn now() -> Traces {
        Traces::of(std::process::id(), &launcher())
    }

    fn of(caller: u32, launcher: &Path) -> Traces {
        let proc = Path::new("/proc");
        Traces {
            cgroups: cgroups(Path::new("/sys/fs/cgroup"), proc, caller),
            processes: processes(proc, launcher),
            mounts: mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap()),
        }
    }

    fn is_none(&self) -> bool {
        *self == Traces::default()
    }

    pub(crate) fn assert_none(&self) {
        assert!(self.is_none(), "something is left: {self:?}");
    }
}

/// Waits until nothing is left; a launcher whose caller is gone needs a moment.
pub(crate) fn assert_nothing_is_left() {
    wait_for_none(|| Some(Traces::now()).filter(|traces| !traces.is_none()));
}

/// Looks until nothing is seen any more. Who has been killed needs time to die, on a busy machine some seconds.
fn wait_for_none<T: std::fmt::Debug>(look: impl Fn() -> Option<T>) {
    let mut seen = None;
    for _ in 0..1_200 {
        seen = look();
        if seen.is_none() {
            return;
        }
        sleep_ms(25);
    }
    panic!("something is left: {seen:?}");
}

/// Roots are built below `/sys`, in namespaces of their own.
fn mounts(mountinfo: &str) -> Vec<String> {
    let point = |line: &str| line.split(' ').nth(4).unwrap_or_default().to_owned();
    let ours = |line: &&str| {
        let point = point(line);
        line.contains(" - tmpfs ") && (point == "/sys" || point.starts_with("/sys/tmp"))
    };
    mountinfo.lines().filter(ours).map(str::to_owned).collect()
}

/// The groups of launchers that are gone: their names say who they were, and for whom they worked.
fn cgroups(top: &Path, proc: &Path, caller: u32) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(owner) = name.strip_prefix("guild-sandbox-") {
                let parts: Vec<&str> = owner.split('-').collect();
                let is_of_caller = parts.get(2).is_some_and(|number| *number == caller.to_string());
                if is_of_caller && !is_alive(proc, parts[0]) {
                    found.insert(entry.path().display().to_string());
                }
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    found
}

/// The value of a line of a process's status.
fn status(proc: &Path, pid: &str, name: &str) -> Option<String> {
    let status = fs::read_to_string(proc.join(pid).join("status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// Whether a process is there and more than a name that nobody has waited for.
fn is_alive(proc: &Path, pid: &str) -> bool {
    status(proc, pid, "State").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

/// The words that a process was started with.
fn words(proc: &Path, pid: &str) -> Vec<String> {
    let bytes = fs::read(proc.join(pid).join("cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn pids(proc: &Path) -> Vec<String> {
    let entries = fs::read_dir(proc).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<u32>().is_ok()).collect()
}

/// The first processes of sandboxes whose launcher, made from this program, is gone. It goes last.
fn processes(proc: &Path, launcher: &Path) -> BTreeSet<String> {
    let program = fs::canonicalize(launcher).unwrap_or(launcher.to_owned());
    let is_ours = |pid: &str| {
        let words = words(proc, pid);
        let [first, second] = words.as_slice() else { return false };
        [launcher, &program].contains(&Path::new(first)) && second == WORD
    };
    let is_first = |pid: &str| {
        let numbers = status(proc, pid, "NSpid").unwrap_or_default();
        let numbers: Vec<&str> = numbers.split_whitespace().collect();
        numbers.len() > 1 && numbers.last() == Some(&"1")
    };
    let is_left = |pid: &String| {
        let parent = || status(proc, pid, "PPid").is_some_and(|parent| is_ours(&parent));
        // Whoever has gone since, together with its launcher, has not been left.
        is_ours(pid) && is_first(pid) && !parent() && is_alive(proc, pid)
    };
    pids(proc).into_iter().filter(is_left).collect()
}

/// The children of all threads of a process.
pub(crate) fn children(pid: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let children = threads.filter_map(|thread| of(thread).ok()).collect::<String>();
    children.split_whitespace().map(str::to_owned).collect()
}

/// Another process that has sandboxes, which sleep. Its programs have names of their own, by which all of its processes
/// are known.
pub(crate) struct Caller {
    place: tempfile::TempDir,
    process: Child,
}

impl Caller {
    /// Starts it, and waits until it has so many sandboxes; more are on their way then.
    pub(crate) fn with(count: u32, runtime: Option<&Path>) -> Caller {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("caller");
        // Not every user may link to a program of another. A copy is made by another process: a file that this one has
        // open for writing, or a child forked meanwhile by another test, cannot be run.
        if fs::hard_link(launcher(), &program).is_err() {
            assert!(Command::new("cp").arg(launcher()).arg(&program).status().unwrap().success());
        }
        let mut command = Command::new(&program);
        command.args(["hold", &count.to_string()]);
        if let Some(runtime) = runtime {
            let link = place.path().join("runtime");
            symlink(runtime, &link).unwrap();
            command.arg(link);
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 6];
        std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut line).unwrap();
        assert_eq!(&line, b"ready\n");
        let caller = Caller { place, process };
        assert!(caller.running().len() > 1, "nothing of it can be seen");
        caller
    }

    /// Whoever runs one of its programs.
    fn running(&self) -> Vec<String> {
        let place = self.place.path().display().to_string();
        let proc = Path::new("/proc");
        let words = pids(proc).into_iter().map(|pid| words(proc, &pid).join(" "));
        words.filter(|words| words.contains(&place)).collect()
    }

    /// Kills it with `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The same, after all its nurseries and launchers. Says how many launchers there were.
    pub(crate) fn kill_with_launchers(&mut self) -> usize {
        let nurseries = children(&self.process.id().to_string());
        let launchers: Vec<String> = nurseries.iter().flat_map(|pid| children(pid)).collect();
        for pid in nurseries.iter().chain(&launchers) {
            // Some may have gone by themselves.
            let _ = Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status().unwrap();
        }
        self.kill();
        launchers.len()
    }

    /// Waits until all its processes are gone, and looks whether anything else is left. Meanwhile something is done.
    pub(crate) fn assert_nothing_is_left(&self, meanwhile: impl Fn()) {
        let program: PathBuf = self.place.path().join("caller");
        wait_for_none(|| {
            let running = self.running();
            meanwhile();
            let traces = Traces::of(self.process.id(), &program);
            (!running.is_empty() || !traces.is_none()).then_some((running, traces))
        });
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It has been killed already, unless a test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn what_is_left_is_seen_and_what_belongs_to_others_is_not() {
    let top = tempfile::tempdir().unwrap();
    let (proc, groups) = (top.path().join("proc"), top.path().join("cgroup"));
    let process = |pid: u32, parent: u32, state: &str, inside: &str, words: &str| {
        let place = proc.join(pid.to_string());
        fs::create_dir_all(&place).unwrap();
        let status = format!("Name:\tx\nState:\t{state}\nPPid:\t{parent}\nNSpid:\t{pid}{inside}\n");
        fs::write(place.join("status"), status).unwrap();
        fs::write(place.join("cmdline"), words).unwrap();
    };
    let ours = "/here/launcher\0__sandbox\0";
    process(10, 1, "S (sleeping)", "", ours);
    process(11, 10, "S (sleeping)", "\t1", ours);
    process(12, 1, "S (sleeping)", "\t1", ours);
    process(13, 1, "Z (zombie)", "\t1", ours);
    process(14, 11, "S (sleeping)", "\t2", ours);
    process(15, 1, "S (sleeping)", "\t1", "/there/launcher\0__sandbox\0");
    process(16, 1, "S (sleeping)", "\t1", "sh\0");
    assert_eq!(processes(&proc, Path::new("/here/launcher")), ["12".to_owned()].into());
    for name in ["10-5-7", "13-5-7", "99-5-7", "99-5-8", "99-5"] {
        fs::create_dir_all(groups.join("memory").join(format!("guild-sandbox-{name}"))).unwrap();
    }
    let seen = cgroups(&groups, &proc, 7);
    let names: Vec<&str> = seen.iter().map(|path| path.rsplit_once('/').unwrap().1).collect();
    assert_eq!(names, ["guild-sandbox-13-5-7", "guild-sandbox-99-5-7"]);
    let mountinfo =
        "30 23 0:26 / /sys rw - sysfs sysfs rw\n31 30 0:27 / /sys rw - tmpfs tmpfs rw\n";
    assert_eq!(mounts(mountinfo), ["31 30 0:27 / /sys rw - tmpfs tmpfs rw"]);
}
