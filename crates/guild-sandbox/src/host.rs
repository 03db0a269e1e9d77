//! What keeps a stranger's code inside its box on this host. Found once, by asking the kernel.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;

use serde::{Deserialize, Serialize};

use crate::cgroup::Places;
use crate::error::{Error, Result};
use crate::mac::Mac;
use crate::outcome::Standing;
use crate::spec::Spec;
use crate::sys;

/// A layer of isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Users of its own, and a user of the host that nothing belongs to.
    UserNamespace,
    /// Processes, files, network, messages and names of its own.
    Namespaces,
    /// Only listed system calls.
    Seccomp,
    /// A forbidden call is seen and named, not only refused.
    SeccompNotify,
    /// Only listed paths can be written, whatever the mounts say.
    Landlock,
    /// Memory of the whole tree, by the kernel.
    CgroupMemory,
    /// Processes of the whole tree, by the kernel.
    CgroupPids,
    /// Cores of the whole tree, by the kernel.
    CgroupCpu,
    /// Freezing the whole tree at once.
    CgroupFreeze,
    /// AppArmor or SELinux.
    Mac,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Layer; 10] = [
        Layer::UserNamespace,
        Layer::Namespaces,
        Layer::Seccomp,
        Layer::SeccompNotify,
        Layer::Landlock,
        Layer::CgroupMemory,
        Layer::CgroupPids,
        Layer::CgroupCpu,
        Layer::CgroupFreeze,
        Layer::Mac,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Layer::UserNamespace => "user_namespace",
            Layer::Namespaces => "namespaces",
            Layer::Seccomp => "seccomp",
            Layer::SeccompNotify => "seccomp_notify",
            Layer::Landlock => "landlock",
            Layer::CgroupMemory => "cgroup_memory",
            Layer::CgroupPids => "cgroup_pids",
            Layer::CgroupCpu => "cgroup_cpu",
            Layer::CgroupFreeze => "cgroup_freeze",
            Layer::Mac => "mac",
        }
    }

    /// The layer of that name.
    pub fn named(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.name() == name)
    }
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What was found of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// How well it holds.
    pub standing: Standing,
    /// What was found.
    pub found: String,
}

/// What this host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Every layer.
    pub layers: BTreeMap<Layer, Found>,
    /// How many cores there are, in thousandths.
    pub cores_milli: u32,
    pub(crate) places: Places,
    mac: Mac,
}

impl Host {
    /// Asks the kernel. Makes and removes one empty cgroup where it may; changes nothing else.
    pub fn probe() -> Host {
        let (places, mac) = (Places::find(), Mac::look());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let cores_milli = u32::try_from(cores.saturating_mul(1_000)).unwrap_or(u32::MAX);
        let layers = Layer::ALL.into_iter().map(|layer| (layer, look(layer, &places, &mac)));
        Host { layers: layers.collect(), cores_milli, places, mac }
    }

    /// How well a layer holds here.
    pub fn standing(&self, layer: Layer) -> Standing {
        self.layers.get(&layer).map_or(Standing::Absent, |found| found.standing)
    }

    /// Looks at a profile that programs will run under.
    pub(crate) fn look_at_profile(&mut self, profile: Option<&str>) {
        self.layers.insert(Layer::Mac, self.mac.found(profile));
    }

    /// Refuses if a layer that a spec requires is not there.
    pub(crate) fn require_for(&self, spec: &Spec) -> Result<()> {
        let mut host = Cow::Borrowed(self);
        if spec.require.contains(&Layer::Mac) {
            host.to_mut().look_at_profile(spec.mac.as_deref());
        }
        host.require(&spec.require)
    }

    /// Refuses if one of these is not there.
    pub(crate) fn require(&self, layers: &BTreeSet<Layer>) -> Result<()> {
        let lacking = |layer: &&Layer| self.standing(**layer) != Standing::Enforced;
        match layers.iter().find(lacking) {
            None => Ok(()),
            Some(layer) => {
                let found = self.layers.get(layer).map(|found| found.found.clone());
                Err(Error::LayerMissing { layer: *layer, why: found.unwrap_or_default() })
            }
        }
    }
}

fn look(layer: Layer, places: &Places, mac: &Mac) -> Found {
    let cgroup = |controller: &str| match places.version(controller) {
        Some(version) => enforced(format!("cgroup version {version}")),
        None => absent(places.why_not(controller)),
    };
    match layer {
        Layer::UserNamespace => user_namespace(),
        Layer::Namespaces => namespaces(),
        Layer::Seccomp => match actions() {
            Some(_) if crate::seccomp::NATIVE.is_some() => enforced("filters"),
            Some(_) => absent("filters, but no list of calls for this architecture"),
            None => absent("the kernel has no filters"),
        },
        Layer::SeccompNotify => match actions() {
            Some(actions) if actions.contains("user_notif") => enforced("filters that ask"),
            _ => absent("the kernel has no filters that ask"),
        },
        Layer::Landlock => match sys::landlock_version() {
            Ok(version) => enforced(format!("version {version}")),
            Err(error) => absent(format!("not active: {error}")),
        },
        Layer::CgroupMemory => cgroup("memory"),
        Layer::CgroupPids => cgroup("pids"),
        Layer::CgroupCpu => cgroup("cpu"),
        Layer::CgroupFreeze => match (places.has_unified(), places.version("freezer")) {
            (true, _) => enforced("cgroup version 2"),
            (false, Some(_)) => enforced("cgroup version 1"),
            (false, None) => Found {
                standing: Standing::Weaker,
                found: "no cgroup: by signals, one process after the other".to_owned(),
            },
        },
        Layer::Mac => mac.found(None),
    }
}

fn enforced(found: impl Into<String>) -> Found {
    Found { standing: Standing::Enforced, found: found.into() }
}

fn absent(found: impl Into<String>) -> Found {
    Found { standing: Standing::Absent, found: found.into() }
}

fn actions() -> Option<String> {
    read_to_string("/proc/sys/kernel/seccomp/actions_avail").ok()
}

/// The first kernel whose mounts can be made read-only as whole trees.
const OLDEST: (u32, u32) = (5, 12);

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn namespaces() -> Found {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if version(&release).is_none_or(|version| version < OLDEST) {
        let (major, minor) = OLDEST;
        return absent(format!("Linux {major}.{minor} or later is needed, this is {release}"));
    }
    let lacking: Vec<_> = ["cgroup", "ipc", "mnt", "net", "pid", "uts"]
        .into_iter()
        .filter(|name| !std::path::Path::new("/proc/self/ns").join(name).exists())
        .collect();
    match lacking.is_empty() {
        true => enforced("pid, mount, network, ipc, uts, cgroup"),
        false => absent(format!("the kernel lacks {}", lacking.join(", "))),
    }
}

fn user_namespace() -> Found {
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<i64>().ok();
    match number("/proc/sys/user/max_user_namespaces") {
        None => return absent("the kernel has none"),
        Some(0) => return absent("switched off: user.max_user_namespaces is 0"),
        Some(_) => {}
    }
    if !rustix::process::geteuid().is_root() {
        if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
            return absent("kept for root: kernel.unprivileged_userns_clone is 0");
        }
        if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
            return absent("kept for root by AppArmor");
        }
    }
    enforced("a user of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_names_and_are_all_looked_at() {
        let host = Host::probe();
        for layer in Layer::ALL {
            assert_eq!(Layer::named(layer.name()), Some(layer));
            assert_eq!(serde_json::to_string(&layer).unwrap(), format!("\"{layer}\""));
            assert!(!host.layers[&layer].found.is_empty(), "{layer}");
        }
    }

    #[test]
    fn versions_of_the_kernel_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc-v490"), Some((6, 18)));
        assert_eq!(version("5.4.0-generic"), Some((5, 4)));
        assert!(version("5.4.0").unwrap() < OLDEST && version("5.12-rc1").unwrap() >= OLDEST);
        assert_eq!(version("plan9"), None);
    }

    #[test]
    fn a_missing_layer_is_refused_by_name() {
        let mut host = Host::probe();
        host.layers.insert(Layer::Landlock, absent("it is not active"));
        let error = host.require(&[Layer::Landlock].into()).unwrap_err();
        let says = "the layer landlock is required, but it is not active";
        assert_eq!(
            (error.to_string().as_str(), error.code().name),
            (says, "sandbox.layer_missing")
        );
        assert_eq!(host.require(&BTreeSet::new()), Ok(()));
    }
}
