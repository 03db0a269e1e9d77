//! Other limits for a sandbox that runs. Nobody in it is killed for that.

use std::collections::BTreeSet;
use std::{fs, io};

use super::{Group, number, put};

impl Group {
    /// Whether its limit of this controller can be set while it runs. What a runtime has set stays.
    pub(crate) fn can_resize(&self, controller: &str) -> bool {
        self.runtime.is_none() && self.has(controller)
    }

    /// Sets the limit of memory while somebody runs; false if more is in use. Nobody is killed for it.
    pub(crate) fn resize_memory(&self, bytes: u64) -> io::Result<bool> {
        let Some((path, version)) = self.with("memory") else { return Ok(false) };
        let name = if version == 2 { "memory.current" } else { "memory.usage_in_bytes" };
        // A kernel of version 2 would take what is missing from whoever runs.
        if number(&path.join(name)).is_none_or(|used| used > bytes) {
            return Ok(false);
        }
        if version == 1 {
            // The limit with swap is never the smaller one: before one that grows, behind one that shrinks.
            let _ = put(&path.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        }
        match self.set_memory(bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            set => set,
        }
    }

    /// Sets how much may be computed at once while somebody runs; false if that cannot be held.
    pub(crate) fn resize_cores(
        &self,
        cores_milli: u32,
        pid: u32,
        needed: bool,
    ) -> io::Result<bool> {
        let is_there = self.with("cpu").is_some_and(|(path, _)| path.is_dir());
        if !needed && !is_there {
            return Ok(true);
        }
        if !self.set_cores(cores_milli, pid)? {
            return Ok(false);
        }
        let Some((cpu, 1)) = self.with("cpu").filter(|_| !is_there) else { return Ok(true) };
        // In version 1 the group is new: whoever was born before it is brought in, until nobody is left outside.
        let Some((all, _)) = self.with("memory") else { return Ok(false) };
        for _ in 0..100 {
            let inside = fs::read_to_string(cpu.join("cgroup.procs"))?;
            let inside: BTreeSet<&str> = inside.lines().collect();
            let everybody = fs::read_to_string(all.join("cgroup.procs"))?;
            let mut outside = everybody.lines().filter(|pid| !inside.contains(pid)).peekable();
            if outside.peek().is_none() {
                return Ok(true);
            }
            for pid in outside {
                // It may have ended just now.
                let _ = put(&cpu.join("cgroup.procs"), pid);
            }
        }
        Ok(false)
    }
}
