//! Bugs to be planted, and found. The product has no switch for them: they are planted where it meets its database, by
//! changing what a statement says, so that the deciding code is lied to or what it decided is written wrongly; and one
//! in a client.

use crate::database::Plant;

/// A bug to be planted, and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// Whether an account holds enough is not looked at.
    NoOverdraftCheck,
    /// The reserve of a gate is not looked at.
    GateIgnored,
    /// How much an account may owe is not looked at.
    CreditIgnored,
    /// Whether a hold is closed already is not looked at.
    HoldClosedTwice,
    /// Whether an id is booked already is not looked at.
    BookedTwice,
    /// A client that was not answered asks again under another id.
    NewIdAfterSilence,
    /// A caller is answered, then the process dies, and the commit never happens.
    AnswerBeforeCommit,
    /// The balance of one of the two accounts is not written, now and then.
    OneSideUnwritten,
    /// Holds are given back before their time.
    ExpiryTooEarly,
    /// A head covers nothing of what it stands for, now and then.
    HeadSkipped,
    /// The row of a hold says that it runs out a day later than the transfer does.
    HoldNeverSwept,
}

impl Bug {
    /// How it is planted.
    pub(super) fn plant(self) -> Plant {
        let edits: &[(&str, &str)] = match self {
            Bug::NoOverdraftCheck => &[("a.balance_limit", "'none'")],
            Bug::GateIgnored => &[("a.reserve_units", "NULL"), ("a.lets_through", "NULL")],
            Bug::CreditIgnored => &[("a.credit_units", "NULL")],
            Bug::HoldClosedTwice => &[
                ("h.closed_by, t.transfer_id", "NULL, t.transfer_id"),
                ("WHERE seq = $1 AND closed_by IS NULL", "WHERE seq = $1"),
            ],
            // Holds are found, so that they can be closed.
            Bug::BookedTwice => &[
                ("WHERE t.transfer_id = $1", "WHERE t.transfer_id = $1 AND t.step = 'hold'"),
                ("transfer_id     TEXT   NOT NULL UNIQUE", "transfer_id     TEXT   NOT NULL"),
            ],
            Bug::AnswerBeforeCommit | Bug::NewIdAfterSilence => &[],
            Bug::OneSideUnwritten => &[(
                "credits_posted = $3",
                "credits_posted = CASE WHEN account_no > 2 AND $6 % 3 = 0 THEN credits_posted ELSE $3 END",
            )],
            Bug::ExpiryTooEarly => &[
                ("o.units, t.expires_ms", "o.units, t.expires_ms - 200"),
                ("AND expires_ms <= $1", "AND expires_ms - 200 <= $1"),
            ],
            Bug::HeadSkipped => &[(
                "INTO ledger_head (last_seq, hash) VALUES ($1, $2)",
                "INTO ledger_head (last_seq, hash) SELECT $1, CASE WHEN $1 % 7 = 0
                   THEN (SELECT hash FROM ledger_head ORDER BY last_seq DESC LIMIT 1) ELSE $2 END",
            )],
            Bug::HoldNeverSwept => &[(
                "INSERT INTO ledger_hold (seq, expires_ms, closed_by) VALUES ($1, $2, $3)",
                "INSERT INTO ledger_hold (seq, expires_ms, closed_by) VALUES ($1, $2 + 86400000, $3)",
            )],
        };
        let answers_early_one_in = if self == Bug::AnswerBeforeCommit { 20 } else { 0 };
        Plant { edits, unchecked: true, answers_early_one_in, ..Plant::default() }
    }
}
