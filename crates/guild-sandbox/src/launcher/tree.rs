//! The processes below one, read from `/proc`: what they use, for hosts where no cgroup counts it, and their end.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::sys;

/// What a tree of processes uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tree {
    /// CPU time, with that of descendants that have been waited for.
    pub(super) cpu_us: u64,
    pub(super) memory_bytes: u64,
    /// Processes and threads below the first.
    pub(super) pids: u64,
}

/// How long a walk may be: there are never more processes than the limit allows, but this is a loop over strangers.
const MAX_PROCESSES: usize = 1 << 16;

/// Looks at a process and all its descendants. Whoever ends meanwhile is missed.
pub(super) fn look(first: u32) -> Tree {
    let mut tree = Tree::default();
    for (pid, threads) in below("/proc", first) {
        tree.pids += if pid == first { 0 } else { threads };
        if let Some((cpu_us, memory_bytes)) = process(pid) {
            tree.cpu_us = tree.cpu_us.saturating_add(cpu_us);
            tree.memory_bytes = tree.memory_bytes.saturating_add(memory_bytes);
        }
    }
    tree
}

/// A process and all its descendants, with the number of their threads.
fn below(proc: &str, first: u32) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    let mut open = vec![first];
    while let Some(pid) = open.pop()
        && found.len() < MAX_PROCESSES
    {
        let mut count = 0;
        let threads = fs::read_dir(format!("{proc}/{pid}/task")).into_iter().flatten().flatten();
        for thread in threads {
            count += 1;
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            open.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
        found.push((pid, count));
    }
    found
}

/// How often whoever runs away is looked for.
const MAX_ROUNDS: usize = 256;
/// After the kill so many looks in a row find nobody new before it is over.
const QUIET_ROUNDS: usize = 2;

/// Kills all descendants of a process, for init: no number that it names can mean anybody outside. Whoever is found is
/// stopped first, so that nobody has children while the others are looked for. Says who was killed.
///
/// Whoever was about to fork when it was stopped can still do it, late if this host is busy, until it is killed. So
/// they are looked for again after that. Whose parent is gone is below the first process then, which adopts.
pub(super) fn kill_below(processes: &OwnedFd, first: u32) -> BTreeSet<u32> {
    let proc = format!("/proc/self/fd/{}", processes.as_raw_fd());
    let mut stopped = BTreeSet::new();
    let (mut killed, mut quiet) = (false, 0);
    for _ in 0..MAX_ROUNDS {
        let found = below(&proc, first).into_iter().map(|(pid, _)| pid);
        let new: Vec<u32> = found.filter(|pid| *pid != first && stopped.insert(*pid)).collect();
        new.iter().for_each(|pid| sys::signal(*pid, libc::SIGSTOP));
        (killed, quiet) = match (new.is_empty(), killed) {
            (false, _) => (false, 0),
            (true, false) => {
                stopped.iter().for_each(|pid| sys::signal(*pid, libc::SIGKILL));
                (true, 0)
            }
            (true, true) if quiet + 1 < QUIET_ROUNDS => (true, quiet + 1),
            (true, true) => return stopped,
        };
    }
    stopped.iter().for_each(|pid| sys::signal(*pid, libc::SIGKILL));
    stopped
}

fn process(pid: u32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4_096);
    let (ticks, pages) = parse(&stat)?;
    Some((ticks.saturating_mul(1_000_000) / ticks_per_s.max(1), pages.saturating_mul(page)))
}

/// Ticks of CPU time with those of children, and resident pages.
fn parse(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    let ticks = number(11)?.checked_add(number(12)?)?.checked_add(number(13)?)?;
    let ticks = ticks.checked_add(number(14)?)?;
    Some((u64::try_from(ticks).ok()?, u64::try_from(number(21)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_confuse() {
        let stat = "7 (x) 1 ) R 1 1 1 0 -1 4194304 9 0 0 0 10 20 3 4 20 0 1 0 77 1000 25 18 0";
        assert_eq!(parse(stat), Some((37, 25)));
        assert_eq!(parse("7 (x"), None);
        assert_eq!(parse("7 (x) R 1"), None);
    }

    #[test]
    fn a_child_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = look(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tree.pids >= 1 && tree.memory_bytes > 0, "{tree:?}");
    }
}
