//! What launchers that are gone have left: groups that carry the name of a process that is no more.

use std::fs;
use std::io;
use std::path::Path;

use super::{Places, put};

/// How the names of our groups begin. Then come the launcher's process number and its start time, and the number of the
/// process that it works for.
pub(super) const PREFIX: &str = "guild-sandbox-";

impl Places {
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

/// This process, unmistakably: numbers of processes come again, with their start times they do not.
pub(super) fn owner() -> String {
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

pub(super) fn is_alive(owner: &str) -> bool {
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
pub(super) fn remove(group: &Path) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In version 1 nobody dies who is frozen.
    #[test]
    fn whoever_is_killed_is_thawed() {
        let top = tempfile::tempdir().unwrap();
        let state = top.path().join("freezer.state");
        fs::write(&state, "FROZEN").unwrap();
        kill_all(top.path());
        assert_eq!(fs::read_to_string(&state).unwrap(), "THAWED");
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
