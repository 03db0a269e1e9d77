//! Whether the envelopes are what their rows say: every sum is made again from single charges and loans.

use guild_store::{Rx, args};

use crate::Result;

/// So many problems are told of each kind.
const PROBLEMS_MAX: i64 = 50;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many envelopes there are, also those that were taken away.
    pub envelopes: i64,
    /// How many orders and disputes were charged to one.
    pub charges: i64,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Makes every sum again.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let count = |rx: &mut Rx<'_>, sql: &'static str| -> Result<i64> {
        let found: Option<(i64,)> = rx.first(sql, args![])?;
        Ok(found.unwrap_or_default().0)
    };
    let envelopes = count(rx, "SELECT count(*) FROM market_envelope")?;
    let of_orders = count(rx, "SELECT count(*) FROM market_envelope_use")?;
    let of_disputes = count(rx, "SELECT count(*) FROM market_envelope_dispute")?;
    let charges = of_orders.saturating_add(of_disputes);
    let mut problems = Vec::new();
    exceeded(rx, &mut problems)?;
    sums(rx, &mut problems)?;
    totals(rx, &mut problems)?;
    orders(rx, &mut problems)?;
    disputes(rx, &mut problems)?;
    Ok(Report { envelopes, charges, problems })
}

/// No period holds and spends more than it has.
fn exceeded(rx: &mut Rx<'_>, problems: &mut Vec<String>) -> Result<()> {
    let rows: Vec<(String, String, i64, i64)> = rx.all(
        "SELECT task, period, held_units + spent_units, limit_units + rolled_units + borrowed_units - lent_units
         FROM market_envelope_period
         WHERE held_units + spent_units > limit_units + rolled_units + borrowed_units - lent_units
         ORDER BY task, period LIMIT $1",
        args![PROBLEMS_MAX],
    )?;
    problems.extend(rows.into_iter().map(|(task, period, used, most)| {
        format!("the envelope {task} has used {used} msat of {most} in {period}")
    }));
    let rows: Vec<(String, String, i64, i64)> = rx.all(
        "SELECT task, period, rolled_units, limit_units FROM market_envelope_period
         WHERE rolled_units > limit_units OR rolled_units < 0 ORDER BY task, period LIMIT $1",
        args![PROBLEMS_MAX],
    )?;
    problems.extend(rows.into_iter().map(|(task, period, rolled, limit)| {
        format!("the envelope {task} has {rolled} msat carried into {period}, its limit is {limit}")
    }));
    Ok(())
}

/// What a period counts, and of what it is the sum.
const SUMS: [(&str, &str); 4] = [
    (
        "held",
        "SELECT p.task, p.layer, p.period, p.held_units, CAST(coalesce((SELECT sum(u.held_units)
           FROM market_envelope_use u WHERE u.task = p.task AND u.month = substr(p.period, 1, 7)
             AND (p.layer = 'month' OR u.day = p.period)), 0)
           + coalesce((SELECT sum(u.held_units) FROM market_envelope_dispute u
             WHERE u.task = p.task AND u.month = substr(p.period, 1, 7)
             AND (p.layer = 'month' OR u.day = p.period)), 0) AS BIGINT) FROM market_envelope_period p
         WHERE p.task > $1 OR (p.task = $1 AND (p.layer > $2 OR (p.layer = $2 AND p.period > $3)))
         ORDER BY p.task, p.layer, p.period LIMIT $4",
    ),
    (
        "spent",
        "SELECT p.task, p.layer, p.period, p.spent_units, CAST(coalesce((SELECT sum(u.spent_units)
           FROM market_envelope_use u WHERE u.task = p.task AND u.month = substr(p.period, 1, 7)
             AND (p.layer = 'month' OR u.day = p.period)), 0)
           + coalesce((SELECT sum(u.spent_units) FROM market_envelope_dispute u
             WHERE u.task = p.task AND u.month = substr(p.period, 1, 7)
             AND (p.layer = 'month' OR u.day = p.period)), 0) AS BIGINT) FROM market_envelope_period p
         WHERE p.task > $1 OR (p.task = $1 AND (p.layer > $2 OR (p.layer = $2 AND p.period > $3)))
         ORDER BY p.task, p.layer, p.period LIMIT $4",
    ),
    (
        "lent",
        "SELECT p.task, p.layer, p.period, p.lent_units, CAST(coalesce((SELECT sum(l.units)
           FROM market_envelope_log l WHERE l.what = 'lent' AND l.task = p.task AND l.layer = p.layer
             AND l.period = p.period), 0) AS BIGINT) FROM market_envelope_period p
         WHERE p.task > $1 OR (p.task = $1 AND (p.layer > $2 OR (p.layer = $2 AND p.period > $3)))
         ORDER BY p.task, p.layer, p.period LIMIT $4",
    ),
    (
        "borrowed",
        "SELECT p.task, p.layer, p.period, p.borrowed_units, CAST(coalesce((SELECT sum(l.units)
           FROM market_envelope_log l WHERE l.what = 'lent' AND l.borrower = p.task AND l.layer = p.layer
             AND l.period = p.period), 0) AS BIGINT) FROM market_envelope_period p
         WHERE p.task > $1 OR (p.task = $1 AND (p.layer > $2 OR (p.layer = $2 AND p.period > $3)))
         ORDER BY p.task, p.layer, p.period LIMIT $4",
    ),
];
/// So many periods are read at a time.
const PERIODS: i64 = 500;

/// What is counted is what the rows add up to.
fn sums(rx: &mut Rx<'_>, problems: &mut Vec<String>) -> Result<()> {
    for (what, sql) in SUMS {
        let mut last = (String::new(), String::new(), String::new());
        loop {
            let rows: Vec<(String, String, String, i64, i64)> =
                rx.all(sql, args![&last.0, &last.1, &last.2, PERIODS])?;
            let is_last = rows.len() < usize::try_from(PERIODS).unwrap_or(usize::MAX);
            for (task, layer, period, counted, sum) in rows {
                if counted != sum {
                    problems.push(format!(
                        "the envelope {task} counts {counted} msat {what} in {period}, its rows say {sum}"
                    ));
                }
                last = (task, layer, period);
            }
            if is_last {
                break;
            }
        }
    }
    let lost: Vec<(String, String)> = rx.all(
        "SELECT u.order_id, u.task FROM (SELECT order_id, task, day, month FROM market_envelope_use
           UNION ALL SELECT dispute_id, task, day, month FROM market_envelope_dispute) u WHERE NOT EXISTS
           (SELECT 1 FROM market_envelope_period p WHERE p.task = u.task AND p.layer = 'month' AND p.period = u.month)
           OR NOT EXISTS
           (SELECT 1 FROM market_envelope_period p WHERE p.task = u.task AND p.layer = 'day' AND p.period = u.day)
           OR substr(u.day, 1, 7) <> u.month
         ORDER BY u.order_id LIMIT $1",
        args![PROBLEMS_MAX],
    )?;
    problems.extend(lost.into_iter().map(|(order_id, task)| {
        format!("{order_id} is charged to the envelope {task} in a period that it does not have")
    }));
    Ok(())
}

/// All envelopes together use no more than all of them together have: what one borrows, another lends.
fn totals(rx: &mut Rx<'_>, problems: &mut Vec<String>) -> Result<()> {
    let rows: Vec<(String, i64, i64)> = rx.all(
        "SELECT period, CAST(sum(held_units + spent_units) AS BIGINT), CAST(sum(limit_units + rolled_units) AS BIGINT)
         FROM market_envelope_period GROUP BY layer, period
         HAVING sum(held_units + spent_units) > sum(limit_units + rolled_units)
         ORDER BY period LIMIT $1",
        args![PROBLEMS_MAX],
    )?;
    problems.extend(rows.into_iter().map(|(period, used, most)| {
        format!("all envelopes together have used {used} msat of {most} in {period}")
    }));
    Ok(())
}

/// A charge holds the budget of its order while that is open, and what was paid afterwards.
fn orders(rx: &mut Rx<'_>, problems: &mut Vec<String>) -> Result<()> {
    let rows: Vec<(String, String, i64, i64, i64, i64)> = rx.all(
        "SELECT u.order_id, o.state, u.held_units, u.spent_units,
           CASE WHEN o.state IN ('posted', 'delivered') THEN o.budget_units ELSE 0 END,
           CASE WHEN o.state IN ('posted', 'delivered') THEN 0 ELSE coalesce(o.paid_units, 0) END
         FROM market_envelope_use u JOIN market_order o ON o.order_id = u.order_id
         WHERE u.held_units <> CASE WHEN o.state IN ('posted', 'delivered') THEN o.budget_units ELSE 0 END
            OR u.spent_units <> CASE WHEN o.state IN ('posted', 'delivered') THEN 0 ELSE coalesce(o.paid_units, 0) END
            OR (u.closed_ms IS NULL) <> (o.state IN ('posted', 'delivered'))
         ORDER BY u.order_id LIMIT $1",
        args![PROBLEMS_MAX],
    )?;
    problems.extend(rows.into_iter().map(|(order_id, state, held, spent, budget, paid)| {
        format!(
            "{order_id} is {state}: its envelope holds {held} msat and has spent {spent}, it should be {budget} and \
             {paid}"
        )
    }));
    Ok(())
}

/// A charge of a dispute is open while that may still be paid, and then is what was paid.
const OF_DISPUTES: &str =
    "SELECT u.dispute_id, u.held_units, u.spent_units, coalesce(d.moved_units, 0)
     FROM market_envelope_dispute u
     LEFT JOIN market_dispute d ON d.dispute_id = u.dispute_id AND d.side = 'buyer'
     LEFT JOIN market_order o ON o.order_id = u.order_id AND o.request_id = d.request_id
     WHERE d.dispute_id IS NULL OR o.order_id IS NULL OR d.stood IS NULL OR d.stood <> 'withhold'
        OR (u.closed_ms IS NULL) <> (d.decided_by IS NULL OR d.pending = 1)
        OR u.spent_units <> CASE WHEN u.closed_ms IS NULL THEN 0 ELSE d.moved_units END
     ORDER BY u.dispute_id LIMIT $1";

/// What a dispute paid is charged, if an envelope has been there since before it was filed.
const UNCHARGED: &str = "SELECT d.dispute_id, d.moved_units, e.task FROM market_dispute d
     JOIN market_order o ON o.request_id = d.request_id
     JOIN market_envelope e ON e.task IN (o.schema_id, '*') AND e.is_set = 1
     WHERE d.side = 'buyer' AND d.stood = 'withhold' AND d.outcome = 'release' AND d.moved_units > 0
       AND NOT EXISTS (SELECT 1 FROM market_envelope_dispute u WHERE u.dispute_id = d.dispute_id)
       AND EXISTS (SELECT 1 FROM market_envelope_log l
         WHERE l.task = e.task AND l.what = 'set' AND l.at_ms <= d.opened_ms)
       AND NOT EXISTS (SELECT 1 FROM market_envelope_log l WHERE l.task = e.task AND l.what = 'removed')
     ORDER BY d.dispute_id LIMIT $1";

/// What disputes pay is charged as well: their orders have ended before, and their charges with them.
fn disputes(rx: &mut Rx<'_>, problems: &mut Vec<String>) -> Result<()> {
    let rows: Vec<(String, i64, i64, i64)> = rx.all(OF_DISPUTES, args![PROBLEMS_MAX])?;
    problems.extend(rows.into_iter().map(|(dispute_id, held, spent, moved)| {
        format!(
            "{dispute_id} has paid {moved} msat: its envelope holds {held} and has spent {spent}"
        )
    }));
    let rows: Vec<(String, i64, String)> = rx.all(UNCHARGED, args![PROBLEMS_MAX])?;
    problems.extend(rows.into_iter().map(|(dispute_id, moved, task)| {
        format!("{dispute_id} has paid {moved} msat, and the envelope {task} was not charged")
    }));
    Ok(())
}
