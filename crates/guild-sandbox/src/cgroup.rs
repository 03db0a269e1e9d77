//! Cgroups of version 2, of version 1, or none, as the host has them. A sandbox has one group in each hierarchy that is
//! of use, below the group of whoever starts it, so that limits set from above still hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::limits::{Limit, Limits};
use crate::outcome::{LimitReport, Standing};

mod places;
mod remains;
mod resize;
pub(crate) mod runtime;

pub(crate) use places::Places;
use remains::remove;

const PERIOD_US: u64 = 100_000;

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
}
