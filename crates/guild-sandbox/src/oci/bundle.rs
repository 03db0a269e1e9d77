//! What a runtime is told: the `config.json` of a bundle.
//!
//! The launcher has made the network, the processes, the messages and the names of the sandbox already, so the runtime
//! makes only what is left: users, mounts and cgroups. Those namespaces belong to the host's users, so nobody inside
//! has any power over them, not even its root.

use rustix::process::{Resource, Rlimit};
use serde_json::{Value, json};

use super::Kind;
use crate::mac::Module;
use crate::seccomp::{self, Strength};
use crate::spec::{Spec, WRITABLE};

/// Who a program is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    /// Inside.
    pub(crate) inside: u32,
    /// Users of the host that nothing else belongs to: of the program, and of the root that the runtime needs for a
    /// moment. None with a kernel of its own, which has no users of the host.
    pub(crate) outside: Option<(u32, u32)>,
}

/// What a bundle is made of.
#[derive(Debug)]
pub(crate) struct Bundle<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) kind: Kind,
    /// The directory that is the root.
    pub(crate) root: &'a str,
    pub(crate) ids: Ids,
    pub(crate) cgroups_path: &'a str,
    pub(crate) resources: Value,
    pub(crate) rlimits: &'a [(Resource, Rlimit)],
    /// Who holds the profile of the spec, if anybody.
    pub(crate) mac: Option<Module>,
    /// The socket to which the runtime hands the listener of the filter, if it can.
    pub(crate) listener: Option<&'a str>,
}

impl Bundle<'_> {
    /// `config.json`
    pub(crate) fn config(&self) -> Value {
        json!({
            "ociVersion": "1.0.2",
            "process": self.process(self.spec),
            "root": { "path": self.root, "readonly": true },
            "mounts": self.mounts(),
            "linux": self.linux(),
        })
    }

    /// What is said about a program, or about a command that comes later.
    pub(crate) fn process(&self, spec: &Spec) -> Value {
        let env: Vec<String> =
            spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let rlimits: Vec<Value> = self.rlimits.iter().filter_map(rlimit).collect();
        let nothing: [&str; 0] = [];
        let mut process = json!({
            "terminal": false,
            "user": { "uid": self.ids.inside, "gid": self.ids.inside },
            "args": if spec.stay { vec![STAY.to_owned()] } else { spec.argv.clone() },
            "env": env,
            "cwd": spec.cwd,
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": nothing,
                "effective": nothing,
                "inheritable": nothing,
                "permitted": nothing,
                "ambient": nothing,
            },
            "rlimits": rlimits,
            // Told by root, it is also the least that the program can set: nobody makes itself unkillable.
            "oomScoreAdj": 0,
        });
        if let (Some(module), Some(profile)) = (self.mac, &spec.mac) {
            let field = match module {
                Module::AppArmor => "apparmorProfile",
                Module::SeLinux => "selinuxLabel",
            };
            process[field] = json!(profile);
        }
        process
    }

    /// The root is whole already. A runtime that is not told of `/dev` makes its own, and a kernel of its own makes all
    /// of the root read-only, so it must be told what is not.
    fn mounts(&self) -> Vec<Value> {
        let bind = |at: &str, options: Value| {
            let source = format!("{}{at}", self.root);
            json!({ "destination": at, "type": "bind", "source": source, "options": options })
        };
        match self.kind {
            Kind::Shared => vec![bind("/dev", json!(["rbind"]))],
            Kind::Own => {
                let binds = self.spec.binds.iter().filter(|bind| bind.writable);
                let writable = WRITABLE.into_iter().chain(binds.map(|bind| bind.at.as_str()));
                writable.map(|at| bind(at, json!(["rbind", "rw"]))).collect()
            }
        }
    }

    fn linux(&self) -> Value {
        let namespaces: &[&str] = match self.kind {
            Kind::Shared => &["mount", "user", "cgroup"],
            Kind::Own => &["mount", "pid"],
        };
        let namespaces: Vec<Value> =
            namespaces.iter().map(|kind| json!({ "type": kind })).collect();
        let strength = match (self.kind, self.listener) {
            (Kind::Shared, Some(_)) => Strength::Ask,
            (Kind::Shared, None) => Strength::Process,
            (Kind::Own, _) => Strength::Thread,
        };
        let mut filter = seccomp::oci(self.spec.profile, strength);
        if let Some(path) = self.listener {
            filter["listenerPath"] = json!(path);
        }
        let mut linux = json!({
            "cgroupsPath": self.cgroups_path,
            "namespaces": namespaces,
            "resources": self.resources,
            "seccomp": filter,
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
        });
        if let Some((program, root)) = self.ids.outside {
            let map = |inside: u32, outside: u32| json!({ "containerID": inside, "hostID": outside, "size": 1 });
            let maps = json!([map(0, root), map(self.ids.inside, program)]);
            linux["uidMappings"] = maps.clone();
            linux["gidMappings"] = maps;
        }
        linux
    }
}

/// A runtime looks for the program before it waits for the word to start it. In a sandbox that stays that never comes.
pub(crate) const STAY: &str = "/dev/stay";

/// What of the kernel nobody sees, where a bought sandbox sees the rest.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
];
const READ_ONLY: [&str; 4] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"];

fn rlimit((resource, limit): &(Resource, Rlimit)) -> Option<Value> {
    let name = match resource {
        Resource::Core => "RLIMIT_CORE",
        Resource::Cpu => "RLIMIT_CPU",
        Resource::Fsize => "RLIMIT_FSIZE",
        Resource::Memlock => "RLIMIT_MEMLOCK",
        Resource::Msgqueue => "RLIMIT_MSGQUEUE",
        Resource::Nofile => "RLIMIT_NOFILE",
        _ => return None,
    };
    let (soft, hard) = (limit.current?, limit.maximum?);
    Some(json!({ "type": name, "soft": soft, "hard": hard }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn a_bundle_gives_nothing_away() {
        let profile = Some("guild-sandbox".to_owned());
        let spec = Spec { mac: profile, ..Spec::new(["true", "x y"], Limits::judge()) };
        let both = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
        let bundle = |kind, outside| {
            Bundle {
                spec: &spec,
                kind,
                root: "/site/root",
                ids: Ids { inside: 1_000, outside },
                cgroups_path: "group",
                resources: json!({}),
                rlimits: &[(Resource::Core, both(0)), (Resource::Nofile, both(256))],
                mac: (kind == Kind::Shared).then_some(Module::AppArmor),
                listener: None,
            }
            .config()
        };
        let shared = bundle(Kind::Shared, Some((7, 8)));
        let process = &shared["process"];
        assert_eq!(process["args"], json!(["true", "x y"]));
        assert_eq!(process["noNewPrivileges"], true);
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            assert_eq!(process["capabilities"][set], json!([]), "{set}");
        }
        assert_eq!(process["apparmorProfile"], "guild-sandbox");
        let core = json!({ "type": "RLIMIT_CORE", "soft": 0, "hard": 0 });
        assert_eq!(process["rlimits"][0], core);
        assert_eq!(shared["root"], json!({ "path": "/site/root", "readonly": true }));
        let map = |inside, outside| json!({ "containerID": inside, "hostID": outside, "size": 1 });
        assert_eq!(shared["linux"]["uidMappings"], json!([map(0, 8), map(1_000, 7)]));
        assert_eq!(shared["linux"]["seccomp"]["defaultAction"], "SCMP_ACT_ERRNO");
        let own = bundle(Kind::Own, None);
        assert_eq!(own["linux"].get("uidMappings"), None);
        let places: Vec<_> =
            own["mounts"].as_array().unwrap().iter().map(|m| &m["destination"]).collect();
        assert_eq!(places, ["/tmp", "/workspace", "/dev/shm"]);
    }
}
