//! What becomes of an order, as it is told to whoever waits.

use std::path::Path;

use guild_roles::explorer::msat;
use serde_json::Value;

use super::desk::now_ms;
use crate::command::Context;
use crate::error::Result;
use crate::output::Answer;

/// What was told already, and how often was looked.
pub(super) struct Watch {
    told: Vec<String>,
    deadline_ms: i64,
    looks: usize,
}

/// One after the other, they turn.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Whether nothing more happens to an order.
pub(super) fn is_over(order: &Value) -> bool {
    !matches!(order["state"].as_str(), Some("posted" | "delivered"))
}

/// Whether its result is what was ordered.
pub(super) fn is_accepted(order: &Value) -> bool {
    order["state"].as_str() == Some("released")
}

impl Watch {
    pub(super) fn new(deadline_ms: i64) -> Watch {
        Watch { told: Vec::new(), deadline_ms, looks: 0 }
    }

    /// Tells what is new: as lines, so that a log shows each; a terminal also sees what is being waited for.
    pub(super) fn tell(&mut self, order: &Value, cx: &mut Context<'_>) {
        if cx.out.json() {
            return;
        }
        for step in steps(order) {
            if !self.told.contains(&step) {
                cx.out.remark(&format!("· {step}"));
                self.told.push(step);
            }
        }
        if is_over(order) {
            return cx.out.progress("");
        }
        cx.out.progress(&self.waiting(order, now_ms()));
        self.looks = self.looks.wrapping_add(1);
    }

    /// What is being waited for.
    fn waiting(&self, order: &Value, now_ms: i64) -> String {
        let turn = SPINNER.get(self.looks % SPINNER.len()).copied().unwrap_or_default();
        let left_s = self.deadline_ms.saturating_sub(now_ms).max(0) / 1_000;
        match order["state"].as_str() {
            Some("delivered") => format!("{turn} checking the result …"),
            // Its node knows whether something came in time.
            _ if left_s == 0 => format!("{turn} the time is over …"),
            _ => format!("{turn} waiting for the result, {left_s} s left …"),
        }
    }
}

/// Everything that has happened, in order.
fn steps(order: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let budget = msat(order["budget_msat"].as_i64().unwrap_or(0));
    let mut steps = vec![format!("posted as {}, {budget} set aside", text(&order["request_id"]))];
    for answer in order["answers"].as_array().into_iter().flatten() {
        let who = text(&answer["provider"]);
        let price = answer["price_msat"].as_i64().map(|price| format!(" for {}", msat(price)));
        match (answer["kind"].as_u64(), answer["status"].as_str()) {
            (Some(7_000), Some("processing")) => {
                steps.push(format!("accepted by {who}{}", price.unwrap_or_default()));
            }
            (Some(7_000), Some("error")) => {
                steps.push(format!("refused by {who}; `guild requests show` tells why"));
            }
            (Some(7_000), Some("partial")) => {
                let said = answer["partial"].as_str().unwrap_or_default();
                let plain = said.chars().map(|c| if c.is_control() { ' ' } else { c });
                let said: String = plain.take(200).collect();
                steps.push(format!("{who} says so far: {said}"));
            }
            (Some(7_000), Some(status)) => steps.push(format!("{who} says: {status}")),
            (Some(7_000), None) => steps.push(format!("{who} answers in private")),
            _ => steps.push(format!("delivered by {who}")),
        }
    }
    let state = order["state"].as_str().unwrap_or_default();
    if matches!(state, "released" | "withheld") {
        steps.push(format!("checked: {}", verdict(order)));
    }
    steps
}

/// The verdict in words: what holds, or which check does not.
fn verdict(order: &Value) -> String {
    let document = &order["verdict"];
    let likeness = document["score"].as_f64().map(|score| format!(", likeness {score:.3}"));
    let likeness = likeness.unwrap_or_default();
    let checks = document["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = checks.iter().find(|check| check["ok"].as_bool() == Some(false));
    match (order["state"].as_str(), failed) {
        (Some("released"), _) => format!("all {} checks hold{likeness}", checks.len()),
        (Some("withheld"), Some(check)) => {
            let word = |name: &str| check[name].as_str().unwrap_or_default().to_owned();
            format!("the check `{}` does not hold{likeness} [{}]", word("name"), word("code"))
        }
        _ => order["words"].as_str().unwrap_or_default().to_owned(),
    }
}

/// The end of an order. What was made is the answer; where it is not printed, what happened is.
pub(super) fn show(order: &Value, file: Option<&Path>, cx: &mut Context<'_>) -> Result<Answer> {
    let released = is_accepted(order);
    if cx.out.json() {
        cx.out.object(released, order)?;
        return Ok(Answer::of(released));
    }
    let text = |name: &str| order[name].as_str().unwrap_or("none").to_owned();
    let paid = match order["paid_msat"].as_i64() {
        Some(paid) if released => msat(paid),
        _ => "nothing; the budget is free again".to_owned(),
    };
    let state = match order["state"].as_str().unwrap_or_default() {
        "released" => "accepted and paid".to_owned(),
        "withheld" => format!("NOT accepted: {}", verdict(order)),
        other => format!("{other}: {}", verdict(order)),
    };
    let mut fields = vec![
        ("result", state),
        ("paid", paid),
        ("provider", text("provider")),
        ("receipt", text("receipt_id")),
        ("request", text("request_id")),
    ];
    fields.extend(file.map(|path| ("output", path.display().to_string())));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if released && file.is_none() {
        cx.out.document(&order["output"])?;
        cx.out.remarks(&fields);
    } else {
        cx.out.fields(&fields)?;
    }
    Ok(Answer::of(released))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whoever_waits_sees_for_what() {
        let mut watch = Watch::new(20_000);
        let (posted, delivered) = (json!({"state": "posted"}), json!({"state": "delivered"}));
        assert_eq!(watch.waiting(&posted, 0), "⠋ waiting for the result, 20 s left …");
        watch.looks = 11;
        assert_eq!(watch.waiting(&posted, 18_500), "⠙ waiting for the result, 1 s left …");
        assert_eq!(watch.waiting(&posted, 20_001), "⠙ the time is over …");
        assert_eq!(watch.waiting(&delivered, 20_001), "⠙ checking the result …");
    }
}
