//! What must hold of all disputes, checked from their rows, those of the orders and those of the ledger alone.

use guild_store::{Rx, args};

use crate::Result;

/// What was looked at, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many disputes there are.
    pub disputes: i64,
    /// How many of them are open.
    pub open: i64,
    /// How much is held for them, beside what their orders hold.
    pub held_units: i64,
    /// Everything that is wrong, in words.
    pub problems: Vec<String>,
}

/// So many of one sort are named.
const NAMED_MAX: i64 = 20;

/// What is still held, by the transfer that holds it.
macro_rules! still_held {
    ($hold:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM ledger_transfer t JOIN ledger_hold h ON h.seq = t.seq WHERE t.transfer_id = ",
            $hold,
            " AND h.closed_by IS NULL)"
        )
    };
}

/// Each rule finds the rows that break it: an id, and what is wrong with it.
const RULES: [&str; 9] = [
    concat!(
        "SELECT d.dispute_id, 'is open, and its money is not held any more' FROM market_dispute d
         WHERE d.state IN ('open', 'answered') AND d.hold_id IS NOT NULL AND NOT ",
        still_held!("d.hold_id"),
        " ORDER BY d.dispute_id LIMIT $1"
    ),
    concat!(
        "SELECT d.dispute_id, 'is open, and what its order holds is not held any more' FROM market_dispute d
         JOIN market_order o ON o.request_id = d.request_id
         JOIN ledger_transfer made ON made.transfer_id = o.hold_id
         WHERE d.side = 'buyer' AND d.state IN ('open', 'answered') AND d.stood IS NULL
           AND made.expires_ms > d.opened_ms AND NOT ",
        still_held!("o.hold_id"),
        " ORDER BY d.dispute_id LIMIT $1"
    ),
    "SELECT d.dispute_id, 'is open, and its order was settled meanwhile' FROM market_dispute d
     JOIN market_order o ON o.request_id = d.request_id
     WHERE d.side = 'buyer' AND d.state IN ('open', 'answered') AND d.stood IS NULL AND o.state <> 'delivered'
     ORDER BY d.dispute_id LIMIT $1",
    "SELECT d.dispute_id, 'was decided otherwise than its order was settled' FROM market_dispute d
     JOIN market_order o ON o.request_id = d.request_id
     WHERE d.side = 'buyer' AND d.stood IS NULL AND d.outcome IS NOT NULL
       AND ((d.outcome = 'release' AND o.state NOT IN ('delivered', 'released'))
         OR (d.outcome = 'withhold' AND o.state NOT IN ('delivered', 'withheld')))
     ORDER BY d.dispute_id LIMIT $1",
    concat!(
        "SELECT d.dispute_id, 'is decided, and still holds money' FROM market_dispute d
         WHERE d.decided_by IS NOT NULL AND d.pending = 0 AND d.hold_id IS NOT NULL AND ",
        still_held!("d.hold_id"),
        " ORDER BY d.dispute_id LIMIT $1"
    ),
    "SELECT d.dispute_id, 'has moved money against what was decided' FROM market_dispute d
     WHERE d.moved_units > 0 AND (d.outcome IS NULL OR d.stood = d.outcome) ORDER BY d.dispute_id LIMIT $1",
    "SELECT d.dispute_id, 'has paid more than the budget of its order' FROM market_dispute d
     JOIN market_order o ON o.request_id = d.request_id
     WHERE d.side = 'buyer' AND d.outcome = 'release'
       AND d.moved_units + coalesce(o.paid_units, 0) > o.budget_units ORDER BY d.dispute_id LIMIT $1",
    "SELECT d.dispute_id, 'has paid, and has no receipt of it' FROM market_dispute d
     WHERE d.side = 'buyer' AND d.outcome = 'release' AND d.moved_units > 0
       AND NOT EXISTS (SELECT 1 FROM market_receipt r
         WHERE r.receipt_id = d.receipt_id AND r.status = 'released' AND r.units = d.moved_units)
     ORDER BY d.dispute_id LIMIT $1",
    "SELECT d.dispute_id, 'does not have what filed it' FROM market_dispute d
     WHERE NOT EXISTS (SELECT 1 FROM market_dispute_said s
       WHERE s.dispute_id = d.dispute_id AND s.side = d.side AND s.event_id = d.filing_id)
     ORDER BY d.dispute_id LIMIT $1",
];

/// Looks at all of them.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let counts: Option<(i64, i64, i64)> = rx.first(
        "SELECT count(*), count(CASE WHEN state IN ('open', 'answered') THEN 1 END),
           CAST(coalesce(sum(CASE WHEN state IN ('open', 'answered') THEN held_units ELSE 0 END), 0) AS BIGINT)
         FROM market_dispute",
        &[],
    )?;
    let (disputes, open, held_units) = counts.unwrap_or_default();
    let mut problems = Vec::new();
    for rule in RULES {
        let broken: Vec<(String, String)> = rx.all(rule, args![NAMED_MAX])?;
        problems.extend(broken.into_iter().map(|(id, what)| format!("{id} {what}")));
    }
    Ok(Report { disputes, open, held_units, problems })
}
