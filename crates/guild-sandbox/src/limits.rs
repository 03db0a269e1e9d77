//! How much a sandbox may use. All limits hold for the whole tree of its processes.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Limits of one run. A soft limit is only reported; a hard one ends the run.
///
/// ```
/// use guild_sandbox::Limits;
/// let limits = Limits { wall_ms: 2_000, ..Limits::judge() };
/// assert_eq!((limits.cpu_hard_ms, limits.pids), (60_000, 100));
/// assert!(limits.check().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// How much it may compute at once, in thousandths of a core.
    pub cores_milli: u32,
    /// CPU time of the whole tree after which the run is flagged.
    pub cpu_soft_ms: u64,
    /// CPU time of the whole tree after which it is ended.
    pub cpu_hard_ms: u64,
    /// Memory of the whole tree above which the run is flagged.
    pub memory_soft_bytes: u64,
    /// Memory of the whole tree that it cannot exceed. What it writes into its own directories counts; what others put
    /// there from outside counts for them.
    pub memory_hard_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
    /// What it can write into its own directories (`/tmp`, `/workspace`, `/dev/shm`). It is memory, so it is no more
    /// than that.
    pub disk_bytes: u64,
    /// How many files there can be in them.
    pub inodes: u32,
    /// Time from its start to its end. It stands still while the sandbox is frozen.
    pub wall_ms: u64,
    /// What it may print, on both streams together.
    pub output_bytes: u64,
    /// Open descriptors of a process.
    pub open_files: u32,
}

/// The name of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// [`Limits::cores_milli`]
    Cores,
    /// [`Limits::cpu_hard_ms`]
    Cpu,
    /// [`Limits::memory_hard_bytes`]
    Memory,
    /// [`Limits::pids`]
    Pids,
    /// [`Limits::disk_bytes`]
    Disk,
    /// [`Limits::inodes`]
    Inodes,
    /// [`Limits::wall_ms`]
    Wall,
    /// [`Limits::output_bytes`]
    Output,
    /// No packet leaves but through the proxy, if there is one.
    Network,
}

impl Limit {
    /// Every limit.
    pub const ALL: [Limit; 9] = [
        Limit::Cores,
        Limit::Cpu,
        Limit::Memory,
        Limit::Pids,
        Limit::Disk,
        Limit::Inodes,
        Limit::Wall,
        Limit::Output,
        Limit::Network,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Cores => "cores",
            Limit::Cpu => "cpu",
            Limit::Memory => "memory",
            Limit::Pids => "pids",
            Limit::Disk => "disk",
            Limit::Inodes => "inodes",
            Limit::Wall => "wall",
            Limit::Output => "output",
            Limit::Network => "network",
        }
    }
}

impl Limits {
    /// For submissions that are judged: short, small, and no network.
    pub fn judge() -> Limits {
        Limits {
            cores_milli: 2_000,
            cpu_soft_ms: 30_000,
            cpu_hard_ms: 60_000,
            memory_soft_bytes: 512 * MIB,
            memory_hard_bytes: 4 * GIB,
            pids: 100,
            disk_bytes: 100 * MIB,
            inodes: 10_000,
            wall_ms: 120_000,
            output_bytes: 5 * MIB,
            open_files: 256,
        }
    }

    /// For jobs, where the request says less than these.
    pub fn job() -> Limits {
        Limits {
            cpu_soft_ms: 300_000,
            cpu_hard_ms: 600_000,
            memory_soft_bytes: 2 * GIB,
            pids: 256,
            disk_bytes: GIB,
            inodes: 100_000,
            wall_ms: 900_000,
            output_bytes: 64 * MIB,
            open_files: 1_024,
            ..Limits::judge()
        }
    }

    /// For a sandbox that is sold: what was bought, for as long as it is paid.
    pub fn hosted(cores_milli: u32, memory_bytes: u64, disk_bytes: u64) -> Limits {
        Limits {
            cores_milli,
            cpu_soft_ms: NEVER_MS,
            cpu_hard_ms: NEVER_MS,
            memory_soft_bytes: memory_bytes,
            memory_hard_bytes: memory_bytes,
            pids: 4_096,
            disk_bytes,
            inodes: 1_000_000,
            wall_ms: NEVER_MS,
            output_bytes: 1 << 40,
            open_files: 16_384,
        }
    }

    /// Whether every limit is in its range, and they go together.
    pub fn check(&self) -> Result<()> {
        let ranges = [
            ("cores_milli", u64::from(self.cores_milli), 10, 1_024_000),
            ("cpu_soft_ms", self.cpu_soft_ms, 1, NEVER_MS),
            ("cpu_hard_ms", self.cpu_hard_ms, 1, NEVER_MS),
            ("memory_soft_bytes", self.memory_soft_bytes, MIB, 1 << 50),
            ("memory_hard_bytes", self.memory_hard_bytes, 4 * MIB, 1 << 50),
            ("pids", u64::from(self.pids), 1, 1 << 22),
            ("disk_bytes", self.disk_bytes, 1 << 16, 1 << 50),
            ("inodes", u64::from(self.inodes), 16, 1 << 30),
            ("wall_ms", self.wall_ms, 1, NEVER_MS),
            ("output_bytes", self.output_bytes, 0, 1 << 50),
            ("open_files", u64::from(self.open_files), 8, 1 << 20),
        ];
        for (limit, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let why = format!("{value} is not between {least} and {most}");
                return Err(Error::limit(limit, why));
            }
        }
        let pairs = [
            ("cpu_soft_ms", self.cpu_soft_ms, "cpu_hard_ms", self.cpu_hard_ms),
            (
                "memory_soft_bytes",
                self.memory_soft_bytes,
                "memory_hard_bytes",
                self.memory_hard_bytes,
            ),
            // What is written is memory: the larger limit would never be reached.
            ("disk_bytes", self.disk_bytes, "memory_hard_bytes", self.memory_hard_bytes),
        ];
        for (limit, value, other, most) in pairs {
            if value > most {
                let why = format!("{value} is more than {other}, {most}");
                return Err(Error::limit(limit, why));
            }
        }
        Ok(())
    }
}

/// Longer than any run: a hundred years.
const NEVER_MS: u64 = 100 * 366 * 24 * 3_600 * 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_consistent_and_mistakes_are_named() {
        let hosted = Limits::hosted(2_000, GIB, GIB);
        for limits in [Limits::judge(), Limits::job(), hosted] {
            assert_eq!(limits.check(), Ok(()));
        }
        let wrong = [
            (Limits { pids: 0, ..Limits::judge() }, "limits.pids: 0 is not between 1 and"),
            (Limits { wall_ms: 0, ..Limits::judge() }, "limits.wall_ms: 0"),
            (
                Limits { disk_bytes: 8 * GIB, ..Limits::judge() },
                "limits.disk_bytes: 8589934592 is more than memory_hard_bytes",
            ),
            (
                Limits { cpu_hard_ms: 10, ..Limits::judge() },
                "limits.cpu_soft_ms: 30000 is more than cpu_hard_ms, 10",
            ),
        ];
        for (limits, says) in wrong {
            let error = limits.check().unwrap_err();
            assert!(error.to_string().starts_with(says), "{error}");
            assert_eq!(error.code().name, "sandbox.bad_limit");
        }
    }
}
