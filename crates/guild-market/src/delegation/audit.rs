//! What must hold of all delegations, checked from their rows alone.

use guild_store::{Rx, args};

use crate::Result;

/// What was looked at, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many delegations there are.
    pub delegations: i64,
    /// How many orders they are made of.
    pub replicas: i64,
    /// Everything that is wrong, in words.
    pub problems: Vec<String>,
}

/// So many of one sort are named.
const NAMED_MAX: i64 = 20;

/// Each rule finds the rows that break it: an id, and what is wrong with it.
const RULES: [&str; 7] = [
    // Two answers are never paid.
    "SELECT d.delegation_id, 'pays an answer that did not win' FROM market_delegation d
     JOIN market_replica r ON r.delegation_id = d.delegation_id JOIN market_order o ON o.order_id = r.order_id
     WHERE o.state = 'released' AND (d.state <> 'decided' OR r.vote IS NULL OR r.vote <> d.winner)
     ORDER BY d.delegation_id LIMIT $1",
    "SELECT d.delegation_id, 'is decided, and nobody gave its answer' FROM market_delegation d
     WHERE d.state = 'decided' AND NOT EXISTS (SELECT 1 FROM market_replica r
       WHERE r.delegation_id = d.delegation_id AND r.standing = 'agrees' AND r.vote = d.winner)
     ORDER BY d.delegation_id LIMIT $1",
    "SELECT d.delegation_id, 'pays more than its budget' FROM market_delegation d
     WHERE d.budget_units < (SELECT CAST(coalesce(sum(o.paid_units), 0) AS BIGINT) FROM market_replica r
       JOIN market_order o ON o.order_id = r.order_id WHERE r.delegation_id = d.delegation_id)
     ORDER BY d.delegation_id LIMIT $1",
    "SELECT r.order_id, 'was settled before its delegation was decided' FROM market_replica r
     JOIN market_delegation d ON d.delegation_id = r.delegation_id JOIN market_order o ON o.order_id = r.order_id
     WHERE d.state = 'open' AND o.state IN ('released', 'withheld') ORDER BY r.order_id LIMIT $1",
    "SELECT r.order_id, 'ended otherwise than its delegation says' FROM market_replica r
     JOIN market_delegation d ON d.delegation_id = r.delegation_id JOIN market_order o ON o.order_id = r.order_id
     WHERE (r.standing = 'agrees' AND o.state NOT IN ('delivered', 'released'))
        OR (r.standing = 'differs' AND o.state NOT IN ('delivered', 'withheld'))
        OR (r.standing IN ('failed', 'late', 'cancelled') AND o.state IN ('posted', 'released'))
     ORDER BY r.order_id LIMIT $1",
    "SELECT d.delegation_id, 'has ended, and somebody still waits' FROM market_delegation d
     WHERE d.state <> 'open' AND EXISTS (SELECT 1 FROM market_replica r
       WHERE r.delegation_id = d.delegation_id AND r.standing = 'waiting') ORDER BY d.delegation_id LIMIT $1",
    "SELECT r.order_id, 'is not of the work of its delegation' FROM market_replica r
     JOIN market_delegation d ON d.delegation_id = r.delegation_id JOIN market_order o ON o.order_id = r.order_id
     WHERE o.job_hash <> d.job_hash OR o.private <> d.private OR o.provider IS NULL OR o.provider <> r.provider
     ORDER BY r.order_id LIMIT $1",
];

/// Looks at all of them.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let count =
        "SELECT (SELECT count(*) FROM market_delegation), (SELECT count(*) FROM market_replica)";
    let counts: Option<(i64, i64)> = rx.first(count, &[])?;
    let (delegations, replicas) = counts.unwrap_or_default();
    let mut problems = Vec::new();
    for rule in RULES {
        let broken: Vec<(String, String)> = rx.all(rule, args![NAMED_MAX])?;
        problems.extend(broken.into_iter().map(|(id, what)| format!("{id} {what}")));
    }
    Ok(Report { delegations, replicas, problems })
}
