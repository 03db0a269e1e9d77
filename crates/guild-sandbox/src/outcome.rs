//! What is known about a run when it has ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::host::Layer;
use crate::limits::Limit;

/// How a run ended, what it used, and what held it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it ended.
    pub class: Class,
    /// The exit code of the program, if it exited by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended the program, if one did.
    pub signal: Option<i32>,
    /// What it tried that nobody in a sandbox has any business with, in the order of the first attempts.
    pub flags: Vec<Flag>,
    /// What it used.
    pub usage: Usage,
    /// How well each limit held.
    pub limits: BTreeMap<Limit, LimitReport>,
    /// The layers of isolation that were on.
    pub layers: BTreeMap<Layer, Standing>,
}

impl Outcome {
    /// Whether the program exited with 0 and tried nothing.
    pub fn succeeded(&self) -> bool {
        self.class == Class::Exited && self.exit_code == Some(0)
    }
}

/// Why a run ended. A flag wins over everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The program exited by itself.
    Exited,
    /// A signal that is no limit's ended the program.
    Signaled,
    /// It took too long.
    WallLimit,
    /// Its processes computed too long.
    CpuLimit,
    /// It needed too much memory.
    MemoryLimit,
    /// It printed too much.
    OutputLimit,
    /// Whoever started it stopped it.
    Stopped,
    /// It tried something forbidden.
    SecurityViolation,
}

/// An attempt that the kernel saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    /// The system call, as `socket`.
    pub call: String,
    /// What is known about it, as `AF_INET`.
    pub detail: String,
    /// How often it was tried, as far as that was seen.
    pub count: u64,
    /// Whether the run was ended for it.
    pub fatal: bool,
}

/// How well something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The kernel enforces it.
    Enforced,
    /// It holds against accidents, or late, or not for everything.
    Weaker,
    /// It is not there.
    Absent,
}

/// How well a limit held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    /// How well.
    pub standing: Standing,
    /// By what.
    pub by: String,
    /// Whether it was reached, so far as anybody can tell; a soft limit counts.
    pub reached: bool,
}

/// What a run used, all its processes together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From its start to its end, without the time it was frozen.
    pub wall_us: u64,
    /// CPU time.
    pub cpu_us: u64,
    /// The most memory at one time.
    pub memory_peak_bytes: u64,
    /// The most processes and threads at one time, so far as was seen.
    pub pids_peak: u64,
    /// What it printed, on both streams together.
    pub output_bytes: u64,
}
