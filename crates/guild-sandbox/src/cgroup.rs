//! Cgroups of version 2, of version 1, or none, as the host has them. A sandbox has one group in each hierarchy that is
//! of use, below the group of whoever starts it, so that limits set from above still hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::limits::{Limit, Limits};
use crate::outcome::{LimitReport, Standing};

/// How the names of our groups begin. Then come the launcher's process number and its start time, and the number of the
/// process that it works for.
const PREFIX: &str = "guild-sandbox-";
const PERIOD_US: u64 = 100_000;

/// Where groups can be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    /// In the hierarchy of version 2, if there is one.
    unified: Option<PathBuf>,
    /// The controllers that groups made there have.
    controllers: BTreeSet<String>,
    /// In the hierarchies of version 1, by controller.
    legacy: BTreeMap<String, PathBuf>,
    /// In hierarchies that are of no use to us, where runtimes make groups all the same.
    others: BTreeSet<PathBuf>,
    /// The process that looked for them: groups carry its number, so that people see whose they are.
    caller: u32,
}

/// The controllers that are of use.
const WANTED: [&str; 5] = ["memory", "pids", "cpu", "cpuacct", "freezer"];

impl Places {
    /// Where this process may make groups, found by trying.
    pub(crate) fn find() -> Places {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mut places = Places::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        places.caller = std::process::id();
        places.unified = places.unified.map(place).filter(|path| can_make(path));
        places.legacy.retain(|_, path| can_make(path));
        if let Some(path) = &places.unified {
            places.controllers = handed_down(path);
        }
        places
    }

    /// The own groups of a process, by its mounts and its place in them.
    fn parse(mountinfo: &str, cgroup: &str) -> Places {
        let mut places = Places::default();
        for line in mountinfo.lines() {
            let Some((mount, system)) = line.split_once(" - ") else { continue };
            let mount: Vec<&str> = mount.split(' ').collect();
            let system: Vec<&str> = system.split(' ').collect();
            let ([_, _, _, root, point, ..], [kind, _, options]) = (&mount[..], &system[..]) else {
                continue;
            };
            match *kind {
                "cgroup2" if places.unified.is_none() => {
                    places.unified = own(cgroup, "").and_then(|own| below(point, root, own));
                }
                "cgroup" => {
                    for controller in options.split(',') {
                        let own = own(cgroup, controller).and_then(|own| below(point, root, own));
                        match own {
                            Some(path) if WANTED.contains(&controller) => {
                                places.legacy.insert(controller.to_owned(), path);
                            }
                            Some(path) => drop(places.others.insert(path)),
                            None => {}
                        }
                    }
                }
                _ => {}
            }
        }
        places
    }

    pub(crate) fn has_unified(&self) -> bool {
        self.unified.is_some()
    }

    /// Which version's controller of that name is of use.
    pub(crate) fn version(&self, controller: &str) -> Option<u8> {
        if self.unified.is_some() && self.controllers.contains(controller) {
            return Some(2);
        }
        self.legacy.contains_key(controller).then_some(1)
    }

    pub(crate) fn why_not(&self, controller: &str) -> String {
        match &self.unified {
            Some(path) => format!(
                "{controller} is not handed down in {}; with systemd: Delegate=yes and DelegateSubgroup=node",
                path.display()
            ),
            None => "no cgroup that this user may make groups in".to_owned(),
        }
    }

    fn all(&self) -> BTreeSet<&PathBuf> {
        self.unified.iter().chain(self.legacy.values()).chain(&self.others).collect()
    }

    /// The same for a runtime, which uses one version: that which limits memory here.
    pub(crate) fn for_a_runtime(mut self) -> Places {
        if self.legacy.contains_key("memory") {
            self.others.extend(self.unified.take());
            self.controllers.clear();
        } else {
            self.legacy.clear();
        }
        self
    }

    /// The name of this process's groups.
    fn name(&self) -> String {
        format!("{PREFIX}{}-{}", owner(), self.caller)
    }

    /// Removes the groups of launchers that are gone, and whoever is still in them. Says how many there were.
    pub(crate) fn sweep(&self) -> usize {
        let mut dead = Vec::new();
        for place in self.all() {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name();
                let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
                    continue;
                };
                if !is_alive(owner) {
                    dead.push(entry.path());
                }
            }
        }
        // Those of all hierarchies before any is waited for: only one of them thaws.
        dead.iter().for_each(|group| kill_all(group));
        dead.iter().filter(|group| remove(group)).count()
    }
}

/// The path of this process in a hierarchy: that of version 2 has no controllers in the list.
fn own<'a>(cgroup: &'a str, controller: &str) -> Option<&'a str> {
    cgroup.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Where a path of a hierarchy is seen whose `root` is mounted at `point`.
fn below(point: &str, root: &str, path: &str) -> Option<PathBuf> {
    let (point, root) = (unescaped(point), unescaped(root));
    let inside = Path::new(path).strip_prefix(root).ok()?;
    // Nothing joined to it would leave a slash.
    Some(if inside == Path::new("") { point.into() } else { Path::new(&point).join(inside) })
}

/// A path as mountinfo writes it: blanks and the like are three digits there.
fn unescaped(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Where groups of version 2 are best made: in our own, or in the one above. A group with processes in it cannot hand
/// controllers down, and ours has at least us. The one above is taken only if it was given away for this, which is what
/// systemd writes on it, and nobody is in it.
fn place(own: PathBuf) -> PathBuf {
    let Some(above) = own.parent().filter(|_| !handed_down(&own).contains("memory")) else {
        return own;
    };
    let processes = fs::read_to_string(above.join("cgroup.procs"));
    if !is_given_away(above) || !processes.is_ok_and(|processes| processes.is_empty()) {
        return own;
    }
    for controller in ["memory", "pids", "cpu"] {
        // Not every host has all of them.
        let _ = put(&above.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    match handed_down(above).contains("memory") && can_make(above) {
        true => above.to_owned(),
        false => own,
    }
}

fn is_given_away(group: &Path) -> bool {
    let says = |name: &str| {
        let mut value = [0; 1];
        rustix::fs::getxattr(group, name, &mut value) == Ok(1) && value == *b"1"
    };
    says("user.delegate") || says("trusted.delegate")
}

/// The controllers that the groups below one have.
fn handed_down(group: &Path) -> BTreeSet<String> {
    let enabled = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    enabled.split_whitespace().map(str::to_owned).collect()
}

fn can_make(place: &Path) -> bool {
    /// Other threads may look at the same place.
    static TRIALS: AtomicU64 = AtomicU64::new(0);
    let trial = TRIALS.fetch_add(1, Ordering::Relaxed);
    let trial = place.join(format!("{PREFIX}{}-trial-{trial}", owner()));
    let made = fs::create_dir(&trial).is_ok();
    made && fs::remove_dir(&trial).is_ok()
}

/// This process, unmistakably: numbers of processes come again, with their start times they do not.
fn owner() -> String {
    let pid = std::process::id();
    format!("{pid}-{}", start_time(&pid.to_string()).unwrap_or_default())
}

fn start_time(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may hold anything, ends with the last parenthesis. The start time is the 22nd field.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // Whoever is dead and has not been waited for will do nothing any more.
    let state = fields.next()?;
    fields.nth(18).filter(|_| !["Z", "X"].contains(&state)).map(str::to_owned)
}

fn is_alive(owner: &str) -> bool {
    let mut parts = owner.split('-');
    let (Some(pid), Some(started)) = (parts.next(), parts.next()) else { return false };
    start_time(pid).is_some_and(|now| now == started)
}

fn kill_all(group: &Path) {
    if put(&group.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    for pid in
        processes.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?))
    {
        // Whoever is gone already is no harm.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    // In version 1 the frozen do not die. Groups that freeze nobody have no such file.
    let _ = put(&group.join("freezer.state"), "THAWED");
}

/// Removes a group as soon as it is empty; whoever is in it has been killed.
fn remove(group: &Path) -> bool {
    for _ in 0..1_000 {
        match fs::remove_dir(group) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => pause(),
            Err(_) => return false,
        }
    }
    false
}

fn pause() {
    let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // Only time passes.
    let _ = rustix::event::poll(&mut [], Some(&moment));
}

/// The groups of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Group {
    unified: Option<PathBuf>,
    /// The controllers of version 2 that it has.
    controllers: BTreeSet<String>,
    legacy: BTreeMap<String, PathBuf>,
    /// Groups that nobody here uses, and that are removed with it.
    others: BTreeSet<PathBuf>,
    /// Who sets its limits, if it is not the launcher.
    runtime: Option<runtime::Held>,
}

mod resize;
pub(crate) mod runtime;

impl Group {
    /// Makes groups wherever it can. Those that cannot be made are missed when their limit is set.
    pub(crate) fn make(places: &Places) -> Group {
        let name = places.name();
        let make = |place: &PathBuf| {
            let path = place.join(&name);
            fs::create_dir(&path).is_ok().then_some(path)
        };
        let mut group = Group::default();
        if let Some(path) = places.unified.as_ref().and_then(make) {
            group.unified = Some(path);
            group.controllers.clone_from(&places.controllers);
        }
        for (controller, place) in &places.legacy {
            // Version 2 counts CPU time and freezes without any controller.
            let spare = ["cpuacct", "freezer"].contains(&controller.as_str());
            if group.controllers.contains(controller) || (spare && group.unified.is_some()) {
                continue;
            }
            let path = place.join(&name);
            // Few need the group of `cpu`, so it is made when it is needed. Controllers that are mounted together
            // share a directory.
            if controller == "cpu" || path.is_dir() || fs::create_dir(&path).is_ok() {
                group.legacy.insert(controller.clone(), path);
            }
        }
        group
    }

    /// The group of version 2, which a process can be born into.
    pub(crate) fn unified(&self) -> Option<&Path> {
        self.unified.as_deref()
    }

    /// Puts a process into the group of version 2, if it was not born there.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        self.unified.iter().try_for_each(|path| enter(path, pid))
    }

    /// The doors of the groups of version 1, but for that of `cpu`, which few need. A thread that walks in by itself
    /// ([`walk_in`]) makes nobody wait; whoever is put in from outside stops every fork and exit of the host first.
    pub(crate) fn doors(&self) -> io::Result<Vec<File>> {
        let paths = self.legacy.iter().filter(|(name, _)| *name != "cpu").map(|(_, path)| path);
        let paths: BTreeSet<&PathBuf> = paths.collect();
        paths.into_iter().map(|path| File::options().write(true).open(path.join("tasks"))).collect()
    }

    /// Sets the limits that the kernel can enforce, and says which.
    pub(crate) fn limit(
        &self,
        limits: &Limits,
        pid: u32,
        cores_milli: u32,
    ) -> io::Result<BTreeMap<Limit, LimitReport>> {
        if let Some(held) = &self.runtime {
            return Ok(self.promised(held, limits, cores_milli));
        }
        let mut reports = BTreeMap::new();
        let mut enforced = |limit, by: &str| {
            let report =
                LimitReport { standing: Standing::Enforced, by: by.to_owned(), reached: false };
            reports.insert(limit, report);
        };
        if self.set_memory(limits.memory_hard_bytes)? {
            enforced(Limit::Memory, "cgroup memory");
        }
        // Init is one of them.
        if let Some((path, _)) = self.with("pids") {
            put(&path.join("pids.max"), (u64::from(limits.pids) + 1).to_string())?;
            enforced(Limit::Pids, "cgroup pids");
        }
        if limits.cores_milli >= cores_milli {
            enforced(Limit::Cores, "the host has no more");
        } else if self.set_cores(limits.cores_milli, pid)? {
            enforced(Limit::Cores, "cgroup cpu");
        }
        if self.cpu_us().is_some() {
            enforced(Limit::Cpu, "cgroup CPU time, looked at all the time");
        }
        Ok(reports)
    }

    fn set_memory(&self, bytes: u64) -> io::Result<bool> {
        let Some((path, version)) = self.with("memory") else { return Ok(false) };
        if version == 2 {
            put(&path.join("memory.max"), bytes.to_string())?;
            // Without swap there is nothing to limit, and older kernels have no group kill.
            let _ = put(&path.join("memory.swap.max"), "0");
            let _ = put(&path.join("memory.oom.group"), "1");
        } else {
            put(&path.join("memory.limit_in_bytes"), bytes.to_string())?;
            let _ = put(&path.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        }
        Ok(true)
    }

    fn set_cores(&self, cores_milli: u32, pid: u32) -> io::Result<bool> {
        let Some((path, version)) = self.with("cpu") else { return Ok(false) };
        let quota_us = u64::from(cores_milli) * PERIOD_US / 1_000;
        if version == 2 {
            put(&path.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
        } else {
            if !path.is_dir() && fs::create_dir(path).is_err() {
                return Ok(false);
            }
            put(&path.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            put(&path.join("cpu.cfs_quota_us"), quota_us.to_string())?;
            // Some kernels let no thread in that has a real-time priority.
            if enter(path, pid).is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn with(&self, controller: &str) -> Option<(&Path, u8)> {
        match &self.unified {
            Some(path) if self.controllers.contains(controller) => Some((path, 2)),
            _ => self.legacy.get(controller).map(|path| (path.as_path(), 1)),
        }
    }

    /// Whether it has this controller.
    pub(crate) fn has(&self, controller: &str) -> bool {
        self.with(controller).is_some()
    }

    /// CPU time of everybody who is or was in it.
    pub(crate) fn cpu_us(&self) -> Option<u64> {
        if let Some(path) = &self.unified
            && let Some(us) = field(&path.join("cpu.stat"), "usage_usec")
        {
            return Some(us);
        }
        Some(number(&self.legacy.get("cpuacct")?.join("cpuacct.usage"))? / 1_000)
    }

    /// The most memory at one time.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        let (path, version) = self.with("memory")?;
        match version {
            2 => number(&path.join("memory.peak")).or_else(|| number(&path.join("memory.current"))),
            _ => number(&path.join("memory.max_usage_in_bytes")),
        }
    }

    /// How often the kernel killed somebody for want of memory. Neither the exit code nor failed charges say it.
    pub(crate) fn memory_kills(&self) -> Option<u64> {
        let (path, version) = self.with("memory")?;
        field(
            &path.join(if version == 2 { "memory.events" } else { "memory.oom_control" }),
            "oom_kill",
        )
    }

    /// The most processes at one time, init not counted, so far as the kernel kept it.
    pub(crate) fn pids_peak(&self) -> Option<u64> {
        let (path, _) = self.with("pids")?;
        let peak = number(&path.join("pids.peak")).or_else(|| number(&path.join("pids.current")));
        peak.map(|peak| peak.saturating_sub(u64::from(self.runtime.is_none())))
    }

    /// How often there was no room for a process.
    pub(crate) fn pids_refused(&self) -> Option<u64> {
        field(&self.with("pids")?.0.join("pids.events"), "max")
    }

    /// Whether everybody can be frozen at once.
    pub(crate) fn can_freeze(&self) -> bool {
        self.unified.is_some() || self.legacy.contains_key("freezer")
    }

    /// Freezes or thaws everybody at once; false if no group can.
    pub(crate) fn freeze(&self, frozen: bool) -> io::Result<bool> {
        if let Some(path) = &self.unified {
            put(&path.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
            return Ok(true);
        }
        let Some(path) = self.legacy.get("freezer") else { return Ok(false) };
        put(&path.join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" })?;
        Ok(true)
    }

    /// Removes the groups. Everybody in them must be dead.
    pub(crate) fn remove(&self) -> bool {
        let paths = self.unified.iter().chain(self.legacy.values()).chain(&self.others);
        let paths: BTreeSet<&PathBuf> = paths.collect();
        let mut all = true;
        for path in paths {
            all &= remove(path);
        }
        all
    }
}

/// Takes the only thread of this process through doors that another process has opened.
pub(crate) fn walk_in(doors: &[File]) -> io::Result<()> {
    doors.iter().try_for_each(|mut door| door.write_all(b"0"))
}

fn enter(group: &Path, pid: u32) -> io::Result<()> {
    put(&group.join("cgroup.procs"), pid.to_string())
}

/// Writes into a file that the kernel has made: nothing is ever created here.
fn put(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_ref())
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    text.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn both_versions_are_found() {
        let own = "5:memory:/a/b\n3:cpu,cpuacct:/\n0::/\n";
        let places = Places::parse(HYBRID, own);
        assert_eq!(places.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        let legacy: Vec<_> =
            places.legacy.iter().map(|(k, v)| (k.as_str(), v.to_str().unwrap())).collect();
        let cpu = "/sys/fs/cgroup/cpu,cpuacct";
        let expected = [("cpu", cpu), ("cpuacct", cpu), ("memory", "/sys/fs/cgroup/memory/a/b")];
        assert_eq!(legacy, expected.map(|(k, v)| (k, v)));
        assert_eq!((places.version("memory"), places.version("pids")), (Some(1), None));
        assert!(places.others.is_empty(), "we are in no group of blkio: {places:?}");
        let own = "5:memory:/a/b\n4:blkio:/c\n3:cpu,cpuacct:/\n0::/\n";
        let blkio = PathBuf::from("/sys/fs/cgroup/blkio/c");
        assert_eq!(Places::parse(HYBRID, own).others, [blkio].into());
        let pure = "30 23 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let places = Places::parse(pure, "0::/box/guild\n");
        assert_eq!(places.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/guild")));
        assert_eq!(Places::parse(pure, "0::/boxes/guild\n").unified, None, "another group");
        let blank = "30 23 0:26 / /a\\040b rw - cgroup2 cgroup2 rw\n";
        let places = Places::parse(blank, "0::/c\n");
        assert_eq!(places.unified.as_deref(), Some(Path::new("/a b/c")));
        assert_eq!(Places::parse("nonsense\n1 2 - x", "x"), Places::default());
    }

    /// A directory that looks like a group of version 2 to whoever writes and reads its files.
    #[test]
    fn version_2_is_written_and_read() {
        let top = tempfile::tempdir().unwrap();
        let places = Places {
            unified: Some(top.path().to_owned()),
            controllers: ["memory", "pids", "cpu"].map(str::to_owned).into(),
            ..Places::default()
        };
        let group = Group::make(&places);
        let path = group.unified().unwrap().to_owned();
        let set = |name: &str, text: &str| fs::write(path.join(name), text).unwrap();
        let get = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        for file in ["memory.max", "pids.max", "cpu.max", "cgroup.freeze", "cgroup.procs"] {
            set(file, "");
        }
        set("cpu.stat", "usage_usec 1500\nuser_usec 2\n");
        let limits = Limits { cores_milli: 1_500, ..Limits::judge() };
        let reports = group.limit(&limits, 1, 4_000).unwrap();
        let limited: Vec<_> = reports.keys().copied().collect();
        assert_eq!(limited, [Limit::Cores, Limit::Cpu, Limit::Memory, Limit::Pids]);
        assert_eq!(get("memory.max"), (4u64 << 30).to_string());
        assert_eq!((get("pids.max"), get("cpu.max")), ("101".into(), "150000 100000".into()));
        set("memory.events", "low 0\noom 3\noom_kill 2\n");
        set("memory.peak", "77\n");
        set("pids.peak", "9\n");
        set("pids.events", "max 4\n");
        assert_eq!((group.cpu_us(), group.memory_kills()), (Some(1_500), Some(2)));
        assert_eq!((group.memory_peak(), group.pids_peak()), (Some(77), Some(8)));
        assert_eq!(group.pids_refused(), Some(4));
        assert!(group.freeze(true).unwrap());
        assert_eq!(get("cgroup.freeze"), "1");
        assert_eq!(group.doors().unwrap().len(), 0);
        group.add(7).unwrap();
        assert_eq!(get("cgroup.procs"), "7");
    }

    /// In version 1 nobody dies who is frozen.
    #[test]
    fn whoever_is_killed_is_thawed() {
        let top = tempfile::tempdir().unwrap();
        let state = top.path().join("freezer.state");
        fs::write(&state, "FROZEN").unwrap();
        kill_all(top.path());
        assert_eq!(fs::read_to_string(&state).unwrap(), "THAWED");
    }

    /// Directories that look like a group of version 2 and the one above.
    #[test]
    fn the_group_above_is_taken_only_if_it_was_given_away() {
        let top = tempfile::tempdir().unwrap();
        let (above, own) = (top.path().to_owned(), top.path().join("node"));
        fs::create_dir(&own).unwrap();
        let set = |file: &str, text: &str| fs::write(above.join(file), text).unwrap();
        set("cgroup.procs", "");
        set("cgroup.subtree_control", "cpu memory pids\n");
        assert_eq!(place(own.clone()), own, "it is somebody else's");
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&above, "user.delegate", b"1", flags).is_err() {
            return;
        }
        set("cgroup.procs", "7\n");
        assert_eq!(place(own.clone()), own, "somebody is in it");
        set("cgroup.procs", "");
        set("cgroup.subtree_control", "cpu\n");
        assert_eq!(place(own.clone()), own, "it hands no memory down");
        set("cgroup.subtree_control", "                    memory");
        assert_eq!(place(own.clone()), above);
        fs::write(own.join("cgroup.subtree_control"), "memory").unwrap();
        assert_eq!(place(own.clone()), own, "there is no need");
    }

    /// Several look at once, in threads of one process.
    #[test]
    fn looking_twice_hides_nothing() {
        let top = tempfile::tempdir().unwrap();
        let looked = std::thread::scope(|scope| {
            let look = || (0..200).all(|_| can_make(top.path()));
            let lookers: Vec<_> = (0..8).map(|_| scope.spawn(look)).collect();
            lookers.into_iter().all(|looker| looker.join().unwrap())
        });
        assert!(looked);
        assert!(is_alive(&format!("{}-trial-1", owner())), "nobody sweeps a trial");
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 0);
    }

    #[test]
    fn groups_of_the_dead_are_swept_and_those_of_the_living_are_not() {
        let top = tempfile::tempdir().unwrap();
        let places = Places { unified: Some(top.path().to_owned()), ..Places::default() };
        let make =
            |owner: &str| fs::create_dir(top.path().join(format!("{PREFIX}{owner}"))).unwrap();
        fs::create_dir(top.path().join(places.name())).unwrap();
        make(&format!("{}-1", std::process::id()));
        make(&format!("4194305-7-{}", std::process::id()));
        make("nonsense");
        fs::create_dir(top.path().join("somebody-else")).unwrap();
        assert!(is_alive(&owner()) && !is_alive("4194305-7") && !is_alive("4194305-7-1"));
        assert_eq!(places.sweep(), 3);
        let mut left: Vec<_> =
            fs::read_dir(top.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [places.name().as_str(), "somebody-else"]);
    }
}
