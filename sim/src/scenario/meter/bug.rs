//! Bugs to be planted, and found: where the product meets its database, by changing what a statement says; one in what
//! lies between commit and answer, one in the agents.

use crate::database::Plant;

/// A bug to be planted, and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// Now and then a minute that is paid is not counted, and nobody looks whether it is booked.
    PaidTwice,
    /// The meter believes that sandboxes started half a minute later.
    PaidLate,
    /// One minute more counts as paid than is.
    LeaseTooLong,
    /// Minutes that nobody metered in time are paid afterwards.
    BackBilled,
    /// The cap of a sandbox is looked at a minute too late.
    CapTooLate,
    /// The budget of a job is looked at a minute too late.
    BudgetTooLate,
    /// The time of a sandbox is looked at too late.
    TimeTooLate,
    /// Whether an account holds enough is not looked at.
    Overdrawn,
    /// A job that ends leaves its sandboxes as they are.
    JobLeavesThem,
    /// Whatever a clock shows is believed.
    ClockBelieved,
    /// A caller is answered, then the process dies, and the commit never happens.
    AnswerBeforeCommit,
    /// Agents do not end anything by themselves.
    LeaseIgnored,
    /// A shape is given before it is paid.
    ShapeTooSoon,
    /// Agents keep what they should give up, and say that they have not.
    ShapeKept,
    /// A minute is booked for twice of what it costs.
    PaidTooMuch,
}

impl Bug {
    /// How it is planted.
    pub(super) fn plant(self) -> Plant {
        const STARTED: &str = "coalesce(r.started_ms, 0)";
        let edits: &[(&str, &str)] = match self {
            Bug::PaidTwice => &[
                ("paid_minutes = $2 + 1", "paid_minutes = $2 + ($2 % 2)"),
                ("WHERE t.transfer_id = $1", "WHERE t.transfer_id = $1 AND t.step = 'hold'"),
                ("transfer_id     TEXT   NOT NULL UNIQUE", "transfer_id     TEXT   NOT NULL"),
            ],
            Bug::PaidLate => &[(STARTED, "coalesce(r.started_ms, 0) + 30000")],
            Bug::LeaseTooLong => &[
                ("ends_ms = $4, due_ms = $5", "ends_ms = $4 + 60000, due_ms = $5"),
                ("cap, spent, paid_minutes,", "cap, spent, paid_minutes + 1 AS paid_minutes,"),
            ],
            Bug::BackBilled => &[(
                STARTED,
                "CASE WHEN r.started_ms + 60000 * r.paid_minutes < $1
                   THEN $1 + 10000 - 60000 * r.paid_minutes ELSE coalesce(r.started_ms, 0) END",
            )],
            Bug::CapTooLate => &[("r.cap - r.spent", "r.cap - r.spent + 3000")],
            Bug::BudgetTooLate => &[(
                "max_spend - spent - held\n               FROM",
                "max_spend - spent - held + 3000\n               FROM",
            )],
            Bug::TimeTooLate => &[(
                "s.expires_ms,\n       s.last_activity_ms",
                "s.expires_ms + 70000,\n       s.last_activity_ms",
            )],
            Bug::Overdrawn => &[("a.balance_limit", "'none'")],
            Bug::JobLeavesThem => &[(
                "WHERE job_id = $1 AND status IN ('starting', 'running') ORDER BY sandbox_id",
                "WHERE job_id = $1 AND status IN ('starting') ORDER BY sandbox_id",
            )],
            Bug::ClockBelieved => {
                &[("FROM hosting_meter WHERE one = 1", "FROM hosting_meter WHERE one = 2")]
            }
            Bug::ShapeTooSoon => {
                &[("next_price, next_from_ms, cap", "next_price, next_from_ms * 0, cap")]
            }
            Bug::PaidTooMuch => &[(
                "s.status, coalesce(s.next_price, s.price)",
                "s.status, 2 * coalesce(s.next_price, s.price)",
            )],
            Bug::AnswerBeforeCommit | Bug::LeaseIgnored | Bug::ShapeKept => &[],
        };
        let answers_early_one_in = if self == Bug::AnswerBeforeCommit { 60 } else { 0 };
        Plant { edits, unchecked: true, answers_early_one_in, ..Plant::default() }
    }
}
