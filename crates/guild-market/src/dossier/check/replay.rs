//! The replay: whether it is the one that the receipt signs for, and tells of this work.

use guild_protocol::hash::Hash;
use guild_protocol::json;
use guild_protocol::replay::{self, Standing};
use guild_protocol::verification::Verification;
use serde_json::{Value, json};

use super::Desk;
use super::work::Seat;
use crate::dossier::{Problem, code, receipt_at, replay_at};

pub(super) fn check(desk: &mut Desk<'_>, seat: &Seat) {
    let path = replay_at(&seat.work.request_id);
    let settled = ["released", "withheld"].contains(&seat.work.state.as_str());
    if !settled && !desk.has(&path) {
        return;
    }
    let Some(bytes) = desk.bytes(&path) else { return };
    let receipt = match (&seat.receipt, &seat.work.receipt_id) {
        (Some(_), Some(id)) => desk.bytes(&receipt_at(id)),
        _ => None,
    };
    let outcome = holds(bytes, receipt).and_then(|()| tells(bytes, seat));
    desk.report.record("replay", seat.of(), outcome);
}

fn holds(bytes: &[u8], receipt: Option<&[u8]>) -> Result<(), Problem> {
    let wrong = |why: String| Problem::new(&code::REPLAY, why);
    let report = replay::verify(bytes, receipt).map_err(|error| wrong(error.to_string()))?;
    let wanted = if receipt.is_some() { Standing::Verified } else { Standing::Sealed };
    match report.standing == wanted {
        true => Ok(()),
        false => Err(wrong(first(&report.checks, report.standing))),
    }
}

fn first(checks: &Verification, standing: Standing) -> String {
    let problem = checks.problems().next();
    problem.map_or_else(|| standing.sentence().to_owned(), ToString::to_string)
}

/// Whether its lines say what the other files say.
fn tells(bytes: &[u8], seat: &Seat) -> Result<(), Problem> {
    let lines: Vec<Value> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap_or_default())
        .collect();
    let line = |event: &str, id: &str| {
        lines.iter().find(|line| {
            line.get("event") == Some(&json!(event)) && line.get("id") == Some(&json!(id))
        })
    };
    let params = |id: &str| line("ToolCall", id).and_then(|line| line.get("params"));
    let output = |id: &str| line("ToolResult", id).and_then(|line| line.get("output_hash"));
    let hired = |name: &str| params("hire").and_then(|params| params.get(name));
    let delivered = seat.output.as_ref().map(|output| json!(Hash::of(output.as_bytes())));
    let judged = seat.work.verdict_hash.map(|hash| json!(hash));
    let request_id = json!(seat.work.request_id);
    let provider = json!(seat.work.provider);
    let mut expected = vec![
        ("the request", hired("request_id"), Some(request_id)),
        ("the provider", hired("provider_id"), Some(provider)),
        ("the result", output("hire"), delivered.clone()),
        (
            "what was judged",
            params("verify").and_then(|params| params.get("output_hash")),
            delivered,
        ),
        ("the verdict", output("verify"), judged),
    ];
    if let Some(job) = &seat.job {
        expected.push(("the job", hired("job_hash"), Some(json!(job.job_hash()))));
        let open = hired("payload").filter(|payload| !payload.is_null());
        expected.push(("what was asked", open, open.map(|_| job.payload().clone())));
    }
    for (what, said, is) in expected {
        if is.is_some() && !same(said, is.as_ref()) {
            return Err(other(format!("{what} is another one in it")));
        }
    }
    payment(&lines, seat)?;
    if seat.receipt.is_none() {
        return nothing_due(hired("price_msat"), seat);
    }
    within_budget(hired("budget_msat"), seat)
}

/// Whether two say the same, in whatever form numbers are written.
fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let canonical = |value: Option<&Value>| value.and_then(|value| json::to_canonical(value).ok());
    canonical(a) == canonical(b)
}

fn other(message: String) -> Problem {
    Problem::new(&code::REPLAY_OTHER, message)
}

/// The payment of which it tells is that of the receipt.
fn payment(lines: &[Value], seat: &Seat) -> Result<(), Problem> {
    let mut payments = lines.iter().filter(|line| line.get("event") == Some(&json!("Payment")));
    let told = payments.next();
    if payments.next().is_some() {
        return Err(other("it tells of two payments".to_owned()));
    }
    let (told, stated) = match (told, &seat.receipt) {
        (None, None) => return Ok(()),
        (Some(told), Some(receipt)) => (told, receipt.stated()),
        (Some(_), None) => return Err(other("it tells of a payment without a receipt".to_owned())),
        (None, Some(_)) => return Err(other("it tells of no payment".to_owned())),
    };
    let status = json!(stated.status.as_str());
    let units = told.get("amount").and_then(|amount| amount.get("units"));
    let job_hash = json!(stated.job_hash);
    let is_same = told.get("status") == Some(&status)
        && same(units, Some(&json!(stated.amount.units)))
        && told.get("job_hash") == Some(&job_hash);
    match is_same {
        true => Ok(()),
        false => Err(other("the payment is another one in it".to_owned())),
    }
}

/// What was agreed on would have been paid, and signed for.
fn nothing_due(price: Option<&Value>, seat: &Seat) -> Result<(), Problem> {
    let agreed = price.and_then(Value::as_i64).unwrap_or(0);
    let due = seat.asked_msat.map_or(agreed, |asked| asked.min(agreed));
    if seat.work.state != "released" || due <= 0 {
        return Ok(());
    }
    let message = format!("{due} msat were agreed on, and there is no receipt");
    Err(Problem::new(&code::RECEIPT, message))
}

/// Nothing is paid beyond the budget, and what is withheld is all of it.
fn within_budget(budget: Option<&Value>, seat: &Seat) -> Result<(), Problem> {
    let Some(receipt) = &seat.receipt else { return Ok(()) };
    let units = receipt.stated().amount.units;
    let Some(budget) = budget.and_then(Value::as_i64) else {
        return Err(other("it names no budget".to_owned()));
    };
    let withheld = seat.work.state == "withheld";
    if units > budget || (withheld && units != budget) {
        let message = format!("the receipt is about {units} msat, the budget was {budget}");
        return Err(Problem::new(&code::AMOUNT, message));
    }
    Ok(())
}
