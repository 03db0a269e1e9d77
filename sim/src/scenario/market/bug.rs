//! Bugs to be planted, and found. Most are planted where the product meets its database, by changing what a statement
//! says; two in what surrounds it.

use crate::database::Plant;

/// A bug to be planted, and found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// The verdict accepts whatever has the right form.
    VerdictBlind,
    /// The relay says that it has an event, and has not, now and then.
    RelayForgets,
    /// Now and then an event is decided and not queued.
    NotQueued,
    /// A job that was delivered is worked on and delivered again.
    DeliveredAgain,
    /// A role that starts anew goes on a little too late.
    CursorAhead,
    /// A job is handed in without a look at who has claimed it.
    UnfencedHandIn,
    /// Whoever looks for work does not see that it is claimed.
    ClaimUnseen,
    /// A receipt that was taken is not remembered, so its job stays unpaid.
    ReceiptForgotten,
    /// Now and then an outcome is not written into the routing log.
    OutcomeLost,
    /// Whoever was a stranger when it was hired has an outcome of a job that it was never given.
    OutcomeUngiven,
}

impl Bug {
    /// How it is planted.
    pub(super) fn plant(self) -> Plant {
        let edits: &[(&str, &str)] = match self {
            Bug::VerdictBlind | Bug::RelayForgets => &[],
            Bug::NotQueued => &[(
                "VALUES ($1, $2, 'queued', '', $3) ON CONFLICT (event_id, relay)",
                "SELECT $1, $2, 'queued', '', $3 WHERE $3 % 3 > 0 ON CONFLICT (event_id, relay)",
            )],
            Bug::DeliveredAgain => &[
                (
                    "WHERE state = 'accepted' AND provider",
                    "WHERE state IN ('accepted', 'delivered') AND provider",
                ),
                (
                    "due_ms, state, changed_ms, result_json,",
                    "due_ms, CASE state WHEN 'delivered' THEN 'accepted' ELSE state END, changed_ms, NULL,",
                ),
                (
                    "WHERE request_id = $1 AND state = 'accepted'",
                    "WHERE request_id = $1 AND state IN ('accepted', 'delivered')",
                ),
            ],
            Bug::CursorAhead => {
                &[("SELECT seq FROM role_cursor", "SELECT seq + 4 FROM role_cursor")]
            }
            Bug::UnfencedHandIn => &[(
                "AND claim_token = $4 AND claim_epoch = $5",
                "AND $4 IS NOT NULL AND $5 IS NOT NULL",
            )],
            Bug::ClaimUnseen => &[
                ("claim_until_ms <= $3 OR", "$3 IS NOT NULL OR"),
                (
                    "claim_token, claim_until_ms, claim_epoch FROM market_job",
                    "NULL, NULL, claim_epoch FROM market_job",
                ),
            ],
            Bug::ReceiptForgotten => &[(
                "state = $2, paid_units = $3, receipt_id = $4, changed_ms = $5",
                "changed_ms = $5 + 0 * length($2 || $3 || $4)",
            )],
            Bug::OutcomeLost => &[(
                "entry, prev_hash, hash)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
                "entry, prev_hash, hash)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 WHERE $2 NOT LIKE '%:ended' OR $3 % 3 > 0",
            )],
            Bug::OutcomeUngiven => &[(
                "SELECT seq FROM market_route_log WHERE change_key = $1",
                "SELECT 1 FROM market_order WHERE length($1) > 0 LIMIT 1",
            )],
        };
        Plant { edits, unchecked: self == Bug::DeliveredAgain, ..Plant::default() }
    }
}
