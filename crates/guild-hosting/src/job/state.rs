//! Where a job stands.

use serde::Serialize;

/// Where a job stands. Only a running one buys; the others have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its sandboxes may run.
    Running,
    /// Its owner stopped it.
    Stopped,
    /// Its budget did not pay for the next minute.
    StoppedDueToBudget,
    /// The account did not pay for the next minute of its last sandbox.
    StoppedDueToBalance,
    /// Its time is over.
    Expired,
    /// It was not used for as long as its owner allowed.
    Idle,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 6] = [
        Status::Running,
        Status::Stopped,
        Status::StoppedDueToBudget,
        Status::StoppedDueToBalance,
        Status::Expired,
        Status::Idle,
    ];

    /// The word in the database and in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Stopped => "stopped",
            Status::StoppedDueToBudget => "stopped_due_to_budget",
            Status::StoppedDueToBalance => "stopped_due_to_balance",
            Status::Expired => "expired",
            Status::Idle => "idle",
        }
    }

    /// The status of this word.
    pub fn parse(word: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == word)
    }
}
