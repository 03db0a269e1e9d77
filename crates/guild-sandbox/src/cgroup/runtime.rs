//! Groups that an OCI runtime makes and limits: told where, then looked at before anything runs in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Group, PERIOD_US, Places, number};
use crate::error::{Error, Result};
use crate::host::Layer;
use crate::limits::{Limit, Limits};
use crate::outcome::{LimitReport, Standing};

/// Where the hierarchies are that runtimes know.
const TOP: &str = "/sys/fs/cgroup";

/// How a runtime holds the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Processes and threads that the runtime itself needs in the group for as long as the program runs.
    pub(crate) own_pids: u32,
}

impl Group {
    /// Groups that the runtime will make.
    pub(crate) fn of_a_runtime(places: &Places, held: Held) -> Group {
        let name = places.name();
        let at = |place: &PathBuf| place.join(&name);
        Group {
            unified: places.unified.as_ref().map(at),
            controllers: places.controllers.clone(),
            legacy: places.legacy.iter().map(|(name, place)| (name.clone(), at(place))).collect(),
            others: places.others.iter().map(at).collect(),
            runtime: Some(held),
        }
    }

    /// Where the runtime is to make them: below its own groups in version 1, from the top in version 2.
    pub(crate) fn path_for_a_runtime(&self) -> Result<String> {
        let Some(unified) = &self.unified else {
            // The process that asks may be another than the one whose number is in the name.
            let made = self.legacy.values().next().and_then(|path| path.file_name());
            return Ok(made.unwrap_or_default().to_string_lossy().into_owned());
        };
        match unified.strip_prefix(TOP) {
            Ok(path) => Ok(format!("/{}", path.display())),
            Err(_) => {
                let why =
                    format!("runtimes look for cgroups in {TOP}, not at {}", unified.display());
                Err(Error::LayerMissing { layer: Layer::CgroupMemory, why })
            }
        }
    }

    /// What the runtime is to set.
    pub(crate) fn resources(&self, limits: &Limits, cores_milli: u32) -> Value {
        let held = self.runtime.unwrap_or(Held { own_pids: 0 });
        let mut resources = Map::new();
        let mut memory = json!({ "limit": limits.memory_hard_bytes });
        if self.counts_swap() {
            memory["swap"] = json!(limits.memory_hard_bytes);
        }
        resources.insert("memory".to_owned(), memory);
        resources.insert("pids".to_owned(), json!({ "limit": pids(limits, held) }));
        if limits.cores_milli < cores_milli {
            let quota = json!({ "quota": quota_us(limits), "period": PERIOD_US });
            resources.insert("cpu".to_owned(), quota);
        }
        // Nothing but what every program may use, whatever nodes it finds.
        let device = |minor: u32| json!({ "allow": true, "type": "c", "major": 1, "minor": minor, "access": "rw" });
        let mut devices = vec![json!({ "allow": false, "access": "rwm" })];
        devices.extend([3, 5, 7, 8, 9].map(device));
        resources.insert("devices".to_owned(), Value::Array(devices));
        Value::Object(resources)
    }

    /// Whether the kernel counts swap; a runtime that is told to limit what nobody counts fails.
    fn counts_swap(&self) -> bool {
        match self.legacy.get("memory").and_then(|path| path.parent()) {
            Some(place) => place.join("memory.memsw.limit_in_bytes").exists(),
            None => self
                .unified
                .as_ref()
                .and_then(|path| path.parent())
                .is_some_and(|place| place.join("memory.swap.max").exists()),
        }
    }

    /// How the limits will be held if [`Group::check`] finds nothing.
    pub(super) fn promised(
        &self,
        held: &Held,
        limits: &Limits,
        cores_milli: u32,
    ) -> BTreeMap<Limit, LimitReport> {
        let report = |standing, by: String| LimitReport { standing, by, reached: false };
        let enforced = |by: &str| report(Standing::Enforced, by.to_owned());
        let mut reports = BTreeMap::from([
            (Limit::Memory, enforced("cgroup memory, set by the runtime and looked at")),
            (Limit::Cpu, enforced("cgroup CPU time, looked at all the time")),
        ]);
        let pids = match held.own_pids {
            0 => enforced("cgroup pids, set by the runtime and looked at"),
            own => {
                report(Standing::Weaker, format!("cgroup pids, with {own} for the runtime itself"))
            }
        };
        reports.insert(Limit::Pids, pids);
        let cores = match limits.cores_milli >= cores_milli {
            true => enforced("the host has no more"),
            false => enforced("cgroup cpu, set by the runtime and looked at"),
        };
        reports.insert(Limit::Cores, cores);
        reports
    }

    /// Refuses if a limit is not what was told to the runtime, or the process is not where it holds.
    pub(crate) fn check(&self, limits: &Limits, cores_milli: u32, pid: u32) -> Result<()> {
        let held = self.runtime.unwrap_or(Held { own_pids: 0 });
        let (memory, pids_layer) = (Layer::CgroupMemory, Layer::CgroupPids);
        let memory_file = ["memory.limit_in_bytes", "memory.max"];
        self.check_number(memory, "memory", memory_file, limits.memory_hard_bytes)?;
        self.check_number(pids_layer, "pids", ["pids.max"; 2], pids(limits, held))?;
        if limits.cores_milli < cores_milli {
            let quota = quota_us(limits);
            match self.with("cpu") {
                Some((path, 2)) => {
                    let text = fs::read_to_string(path.join("cpu.max")).unwrap_or_default();
                    let set = text.split_whitespace().next().and_then(|word| word.parse().ok());
                    refuse_unless(Layer::CgroupCpu, "cpu.max", set, quota)?;
                }
                _ => self.check_number(Layer::CgroupCpu, "cpu", ["cpu.cfs_quota_us"; 2], quota)?,
            }
        }
        for (layer, controller) in [(memory, "memory"), (pids_layer, "pids")] {
            self.check_inside(layer, self.with(controller).map(|(path, _)| path), pid)?;
        }
        let counts = self.unified.as_deref().or(self.legacy.get("cpuacct").map(PathBuf::as_path));
        self.check_inside(Layer::CgroupCpu, counts, pid)?;
        let freezes = self.unified.as_deref().or(self.legacy.get("freezer").map(PathBuf::as_path));
        self.check_inside(Layer::CgroupFreeze, freezes, pid)
    }

    /// Reads a limit back: the first file in version 1, the second in version 2.
    fn check_number(
        &self,
        layer: Layer,
        controller: &str,
        files: [&str; 2],
        wanted: u64,
    ) -> Result<()> {
        let Some((path, version)) = self.with(controller) else {
            let why = format!("this host has no controller {controller}");
            return Err(Error::LayerMissing { layer, why });
        };
        let file = if version == 2 { files[1] } else { files[0] };
        // The kernel rounds memory down to whole pages.
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4_096);
        let page = if controller == "memory" { page } else { 1 };
        refuse_unless(layer, file, number(&path.join(file)).map(|set| set / page), wanted / page)
    }

    fn check_inside(&self, layer: Layer, group: Option<&Path>, pid: u32) -> Result<()> {
        let missing = |why: String| Err(Error::LayerMissing { layer, why });
        let Some(group) = group else {
            return missing("this host has no such cgroup".to_owned());
        };
        let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        match inside.lines().any(|line| line.parse() == Ok(pid)) {
            true => Ok(()),
            false => missing("the runtime did not put the program into its cgroup".to_owned()),
        }
    }
}

fn pids(limits: &Limits, held: Held) -> u64 {
    u64::from(limits.pids) + u64::from(held.own_pids)
}

fn quota_us(limits: &Limits) -> u64 {
    u64::from(limits.cores_milli) * PERIOD_US / 1_000
}

fn refuse_unless(layer: Layer, file: &str, set: Option<u64>, wanted: u64) -> Result<()> {
    match set {
        Some(set) if set == wanted => Ok(()),
        Some(_) => {
            let why = format!("the runtime did not set the limit: {file} is another");
            Err(Error::LayerMissing { layer, why })
        }
        None => {
            let why = format!("the runtime did not set the limit: there is no {file}");
            Err(Error::LayerMissing { layer, why })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories that look like groups of version 1.
    fn group(top: &Path) -> Group {
        let legacy = ["memory", "pids", "cpuacct", "freezer", "cpu"].map(|name| {
            let path = top.join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("cgroup.procs"), "7\n9\n").unwrap();
            (name.to_owned(), path)
        });
        let held = Some(Held { own_pids: 0 });
        Group { legacy: legacy.into(), runtime: held, ..Group::default() }
    }

    #[test]
    fn a_limit_that_was_ignored_is_refused_by_its_layer() {
        let top = tempfile::tempdir().unwrap();
        let group = group(top.path());
        let limits = Limits { cores_milli: 500, ..Limits::judge() };
        let set = |file: &str, text: String| fs::write(top.path().join(file), text).unwrap();
        let says = |pid| group.check(&limits, 2_000, pid).unwrap_err().to_string();
        let memory = "memory/memory.limit_in_bytes";
        assert!(
            says(9).contains("cgroup_memory is required, but the runtime did not set the limit")
        );
        set(memory, i64::MAX.to_string());
        assert!(says(9).contains("memory.limit_in_bytes is another"), "{}", says(9));
        set(memory, limits.memory_hard_bytes.to_string());
        assert!(says(9).contains("cgroup_pids"), "{}", says(9));
        set("pids/pids.max", "max\n".to_owned());
        assert!(says(9).contains("cgroup_pids"), "{}", says(9));
        set("pids/pids.max", "100\n".to_owned());
        assert!(says(9).contains("cgroup_cpu"), "{}", says(9));
        set("cpu/cpu.cfs_quota_us", "50000\n".to_owned());
        assert_eq!(group.check(&limits, 2_000, 9), Ok(()));
        assert!(says(8).contains("did not put the program into its cgroup"), "{}", says(8));
    }

    #[test]
    fn a_runtime_is_told_what_is_looked_at() {
        let top = tempfile::tempdir().unwrap();
        let limits = Limits { cores_milli: 500, ..Limits::judge() };
        let resources = group(top.path()).resources(&limits, 2_000);
        assert_eq!(resources["memory"], json!({ "limit": 4u64 << 30 }));
        assert_eq!(resources["pids"], json!({ "limit": 100 }));
        assert_eq!(resources["cpu"], json!({ "quota": 50_000, "period": 100_000 }));
        assert_eq!(resources["devices"][0], json!({ "allow": false, "access": "rwm" }));
    }

    #[test]
    fn a_runtime_uses_the_version_that_limits_memory() {
        let hybrid = Places {
            unified: Some("/sys/fs/cgroup/unified".into()),
            legacy: [("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory/a"))].into(),
            ..Places::default()
        };
        let held = Held { own_pids: 0 };
        let hybrid = hybrid.for_a_runtime();
        let group = Group::of_a_runtime(&hybrid, held);
        assert_eq!((group.unified(), group.path_for_a_runtime().unwrap()), (None, hybrid.name()));
        assert_eq!(group.others.len(), 1, "a runtime may make a group there all the same");
        let pure = Places { unified: Some("/sys/fs/cgroup/b".into()), ..Places::default() };
        let group = Group::of_a_runtime(&pure.clone().for_a_runtime(), held);
        assert_eq!(group.path_for_a_runtime().unwrap(), format!("/b/{}", pure.name()));
        let elsewhere = Places { unified: Some("/cgroups/b".into()), ..pure };
        let group = Group::of_a_runtime(&elsewhere, held);
        assert_eq!(group.path_for_a_runtime().unwrap_err().code().name, "sandbox.layer_missing");
    }
}
