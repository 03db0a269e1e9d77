//! Where groups can be made, found by looking and by trying.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::put;
use super::remains::{PREFIX, owner};

/// Where groups can be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    /// In the hierarchy of version 2, if there is one.
    pub(super) unified: Option<PathBuf>,
    /// The controllers that groups made there have.
    pub(super) controllers: BTreeSet<String>,
    /// In the hierarchies of version 1, by controller.
    pub(super) legacy: BTreeMap<String, PathBuf>,
    /// In hierarchies that are of no use to us, where runtimes make groups all the same.
    pub(super) others: BTreeSet<PathBuf>,
    /// The process that looked for them: groups carry its number, so that people see whose they are.
    pub(super) caller: u32,
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

    pub(super) fn all(&self) -> BTreeSet<&PathBuf> {
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
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{}-{}", owner(), self.caller)
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

#[cfg(test)]
mod tests {
    use super::super::remains::is_alive;
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
}
