//! The processes of agents, found by what `/proc` says of them.
//!
//! A number alone names nobody: it is given to another when its owner is gone. So an agent is known by its number and
//! the moment of its start, and by a word of its command line that no other has: the path of the file that it writes
//! when it is ready. A program in a sandbox can call itself so too; it gains nothing but to be ended.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The option before that word.
pub(super) const READY_FILE: &str = "--ready-file";

/// One process, and no other that ever had its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// The moment of its start, in ticks since that of the host.
    pub(super) start: u64,
}

impl Process {
    /// The process that has this number now, if it is alive.
    pub(super) fn now(pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start = alive_since(&stat)?;
        Some(Process { pid, start })
    }

    /// Whether it is still there, and more than a name that nobody has waited for.
    pub(super) fn is_alive(&self) -> bool {
        Process::now(self.pid) == Some(*self)
    }

    /// Sends it a signal, and nobody else: the descriptor is taken first, then it is looked whose it is.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(descriptor) = self.descriptor()
            && self.is_alive()
        {
            // It may have ended just now.
            let _ = pidfd_send_signal(descriptor, signal);
        }
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()
    }

    /// The file that it was told to write when it is ready.
    pub(super) fn ready_file(&self) -> Option<PathBuf> {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).ok()?;
        let mut words = line.split(|byte| *byte == 0);
        words.by_ref().find(|word| *word == READY_FILE.as_bytes())?;
        let path = std::str::from_utf8(words.next()?).ok()?;
        Some(PathBuf::from(path))
    }
}

/// The moment of the start in a line of `/proc/<pid>/stat`, unless it is dead.
fn alive_since(stat: &str) -> Option<u64> {
    // The name of the program stands in parentheses and may have any characters in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let is_dead = matches!(fields.next(), None | Some("Z" | "X" | "x"));
    // The state is the third field, the start the 22nd.
    let start = fields.nth(18)?.parse().ok()?;
    (!is_dead).then_some(start)
}

/// All agents whose ready file stands below this directory, by that file.
pub(super) fn below(root: &Path) -> BTreeMap<PathBuf, Vec<Process>> {
    let mut found: BTreeMap<PathBuf, Vec<Process>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(process) = pid.and_then(Process::now) else { continue };
        if let Some(file) = process.ready_file().filter(|file| file.starts_with(root)) {
            found.entry(file).or_default().push(process);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_behind_any_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987 20";
        assert_eq!(alive_since(&format!("42 (a) {rest}")), Some(987));
        assert_eq!(alive_since(&format!("42 (a) Z 9 (b)) {rest}")), Some(987));
        assert_eq!(alive_since(&format!("42 (a) {}", rest.replacen('S', "Z", 1))), None);
        assert_eq!(alive_since(""), None);
    }

    #[test]
    fn a_number_with_another_start_is_another_process() {
        let me = Process::now(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        assert!(!Process { start: me.start + 1, ..me }.is_alive());
        // To nobody: the test would end.
        Process { start: me.start + 1, ..me }.signal(Signal::KILL);
        assert_eq!(Process::now(i32::MAX), None);
    }
}
