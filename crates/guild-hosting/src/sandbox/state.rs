//! Where a sandbox stands, and why it ended.

use serde::Serialize;

/// Where a sandbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its first minute is held; a machine is being made ready.
    Starting,
    /// Its minutes are paid, each before it begins.
    Running,
    /// Its end is decided: it runs until `ends_ms` at most.
    Ending,
    /// It runs no more; its files are kept.
    Stopped,
    /// It is being removed, with its files.
    Destroying,
    /// Nothing is left of it.
    Destroyed,
    /// It never ran, or its machine is lost.
    Failed,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Starting,
        Status::Running,
        Status::Ending,
        Status::Stopped,
        Status::Destroying,
        Status::Destroyed,
        Status::Failed,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Starting => "starting",
            Status::Running => "running",
            Status::Ending => "ending",
            Status::Stopped => "stopped",
            Status::Destroying => "destroying",
            Status::Destroyed => "destroyed",
            Status::Failed => "failed",
        }
    }

    /// The status of this word.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether it starts or runs: only then money is held or moves.
    pub fn is_live(self) -> bool {
        matches!(self, Status::Starting | Status::Running)
    }
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its time was over.
    SandboxTtl,
    /// It was not used for too long.
    SandboxIdle,
    /// The time of its job was over.
    JobTtl,
    /// Its job was not used for too long.
    JobIdle,
    /// Its own cap does not pay for the next minute.
    SandboxCap,
    /// The budget of its job does not pay for the next minute.
    JobCap,
    /// The account does not pay for the next minute.
    Account,
    /// Nobody metered it in time: its lease ran out before the next minute was paid.
    MeterGap,
    /// Its owner stopped it.
    User,
    /// Its owner stopped its job.
    JobStopped,
    /// It did not start in time, or could not.
    NotStarted,
    /// Its machine stopped it, or is lost.
    Machine,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 12] = [
        Reason::SandboxTtl,
        Reason::SandboxIdle,
        Reason::JobTtl,
        Reason::JobIdle,
        Reason::SandboxCap,
        Reason::JobCap,
        Reason::Account,
        Reason::MeterGap,
        Reason::User,
        Reason::JobStopped,
        Reason::NotStarted,
        Reason::Machine,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::SandboxTtl => "sandbox_ttl",
            Reason::SandboxIdle => "sandbox_idle",
            Reason::JobTtl => "job_ttl",
            Reason::JobIdle => "job_idle",
            Reason::SandboxCap => "sandbox_cap",
            Reason::JobCap => "job_cap",
            Reason::Account => "account",
            Reason::MeterGap => "meter_gap",
            Reason::User => "user",
            Reason::JobStopped => "job_stopped",
            Reason::NotStarted => "not_started",
            Reason::Machine => "machine",
        }
    }

    /// The reason of this word.
    pub fn parse(word: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}
