//! Work that several do: what becomes of it, side by side.

use std::path::Path;

use guild_protocol::env::Shutdown;
use guild_roles::explorer::msat;
use serde_json::Value;

use super::desk::{Desk, now_ms};
use super::{LOOK_MS, PATIENCE_MS};
use crate::command::Context;
use crate::error::Result;
use crate::input::Draft;
use crate::output::Answer;

/// How much of what came ahead is shown.
const PARTIAL_MAX_CHARS: usize = 200;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn replicas(delegation: &Value) -> &[Value] {
    delegation["replicas"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Says why each of them was chosen.
pub(super) fn explain(delegation: &Value, cx: &mut Context<'_>) {
    for replica in replicas(delegation) {
        cx.out.remark(&format!("replica {}, {}", replica["number"], text(replica, "reason")));
        let words = replica["choice"]["words"].as_str().unwrap_or("nothing is known of why");
        words.lines().for_each(|line| cx.out.remark(&format!("  {line}")));
    }
}

/// Where it can be looked at.
fn how_to_look(delegation: &Value) -> String {
    format!("the page /delegations/{} of the node tells", text(delegation, "delegation_id"))
}

pub(super) fn posted_only(delegation: &Value, cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        cx.out.object(true, delegation)?;
        return Ok(Answer::Yes);
    }
    cx.out.fields(&[("delegation", text(delegation, "delegation_id"))])?;
    cx.out.line(&table(delegation).join("\n"))?;
    cx.out.line(&how_to_look(delegation))?;
    Ok(Answer::Yes)
}

/// Looks at it until everybody is paid or not, or the reader has seen enough.
pub(super) fn follow(
    desk: &mut Desk<'_>,
    posted: &Value,
    interrupted: &Shutdown,
    file: Option<Draft>,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let id = text(posted, "delegation_id").to_owned();
    let deadline_ms = posted["deadline_ms"].as_i64().unwrap_or_default();
    let mut delegation = posted.clone();
    let mut told: Vec<String> = Vec::new();
    loop {
        tell(&delegation, &mut told, cx);
        if delegation["settled"].as_bool() == Some(true) {
            break;
        }
        if interrupted.is_triggered() {
            cx.out.progress("");
            let look = how_to_look(&delegation);
            cx.out.remark(&format!("it goes on when the node runs; {look} what becomes of it"));
            return Ok(Answer::Open);
        }
        desk.pause(LOOK_MS);
        let patience_ms = deadline_ms.max(now_ms()).saturating_add(PATIENCE_MS);
        let asked = desk.ask(patience_ms, interrupted, |client| client.delegation(&id));
        delegation = match asked {
            // What was interrupted is no failure: it is told as it was last seen.
            Err(_) if interrupted.is_triggered() => delegation,
            told => told?,
        };
    }
    let decided = text(&delegation, "state") == "decided";
    let file = match file {
        Some(file) if decided => Some(super::write_output(file, &delegation)?),
        _ => None,
    };
    show(&delegation, file.as_deref(), cx)
}

/// Tells what is new, as lines; a terminal also sees what is being waited for.
fn tell(delegation: &Value, told: &mut Vec<String>, cx: &mut Context<'_>) {
    if cx.out.json() {
        return;
    }
    for step in steps(delegation) {
        if !told.contains(&step) {
            cx.out.remark(&format!("· {step}"));
            told.push(step);
        }
    }
    if delegation["settled"].as_bool() == Some(true) {
        return cx.out.progress("");
    }
    let all = replicas(delegation);
    let here = all.iter().filter(|one| text(one, "state") != "posted").count();
    cx.out.progress(&format!("{here} of {} have answered …", all.len()));
}

/// Everything that has happened.
fn steps(delegation: &Value) -> Vec<String> {
    let budget = msat(delegation["budget_msat"].as_i64().unwrap_or(0));
    let count = replicas(delegation).len();
    let mut steps = vec![format!(
        "{} work, by {} at first, for up to {budget} in all",
        text(delegation, "criticality"),
        count.min(usize::try_from(delegation["wanted"].as_u64().unwrap_or(0)).unwrap_or(count))
    )];
    for one in replicas(delegation) {
        let (number, who) = (&one["number"], text(one, "provider"));
        let asked = match text(one, "reason") {
            "hedge" => ", because others are slow",
            "replacement" => ", because others have failed",
            _ => "",
        };
        steps.push(format!("{number}: asked {who}{asked}"));
        for answer in one["answers"].as_array().into_iter().flatten() {
            if let Some(partial) = answer["partial"].as_str() {
                let plain = partial.chars().map(|c| if c.is_control() { ' ' } else { c });
                let shown: String = plain.take(PARTIAL_MAX_CHARS).collect();
                steps.push(format!("{number}: says so far: {shown}"));
            }
        }
        match (text(one, "state"), one["passed"].as_bool()) {
            ("posted", _) => {}
            (_, Some(true)) => steps.push(format!("{number}: delivered, its own check passed")),
            (_, Some(false)) => steps.push(format!("{number}: delivered, its own check FAILED")),
            ("delivered", None) => steps.push(format!("{number}: delivered")),
            (state @ ("failed" | "expired"), None) => steps.push(format!("{number}: {state}")),
            _ => {}
        }
    }
    if let Some(why) = delegation["why"].as_str() {
        steps.push(format!("{}: {why}", text(delegation, "state")));
    }
    steps
}

/// Those who do it, side by side: what each says, what it is worth, what it was paid.
fn table(delegation: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{:>2}  {:<16}  {:<11}  {:<9}  {:<9}  {:<12}  {:>10}  receipt",
        "", "provider", "asked", "order", "stands", "vote", "paid"
    )];
    for one in replicas(delegation) {
        let vote = one["vote"].as_str().or(one["says"].as_str()).unwrap_or("–");
        let vote = vote.strip_prefix("sha256:").unwrap_or(vote);
        let paid = one["paid_msat"].as_i64().map_or_else(|| "nothing".to_owned(), msat);
        let receipt: String = one["receipt_id"].as_str().unwrap_or("–").chars().take(16).collect();
        let short = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        lines.push(format!(
            "{:>2}  {:<16}  {:<11}  {:<9}  {:<9}  {:<12}  {:>10}  {receipt}",
            one["number"].as_i64().unwrap_or(0),
            short(text(one, "provider"), 16),
            text(one, "reason"),
            text(one, "state"),
            text(one, "standing"),
            short(vote, 12),
            paid
        ));
    }
    lines
}

/// The end of it. The answer is printed, unless it goes into a file.
fn show(delegation: &Value, file: Option<&Path>, cx: &mut Context<'_>) -> Result<Answer> {
    let decided = text(delegation, "state") == "decided";
    if cx.out.json() {
        cx.out.object(decided, delegation)?;
        return Ok(Answer::of(decided));
    }
    table(delegation).iter().for_each(|line| cx.out.remark(line));
    let paid = msat(delegation["paid_msat"].as_i64().unwrap_or(0));
    let result = format!("{}: {}", text(delegation, "state"), text(delegation, "why"));
    let mut fields = vec![
        ("result", result),
        ("paid", paid),
        ("answer", delegation["winner"].as_str().unwrap_or("none").to_owned()),
        ("delegation", text(delegation, "delegation_id").to_owned()),
    ];
    fields.extend(file.map(|path| ("output", path.display().to_string())));
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    if decided && file.is_none() {
        cx.out.document(&delegation["output"])?;
        cx.out.remarks(&fields);
    } else {
        cx.out.fields(&fields)?;
    }
    Ok(Answer::of(decided))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whoever_waits_sees_all_of_them_side_by_side() {
        let replica = |number: i64, state: &str, standing: &str, passed: Option<bool>| {
            json!({
                "number": number, "provider": format!("npub{number}"), "reason": "first",
                "state": state, "standing": standing, "passed": passed,
                "vote": passed.map(|_| "sha256:0123456789abcdef"), "paid_msat": passed.map(|_| 700),
                "answers": [{"partial": "half\nof it"}],
            })
        };
        let delegation = json!({
            "criticality": "high", "budget_msat": 3_000, "wanted": 2, "state": "decided",
            "why": "1 say the same, 1 had to",
            "replicas": [replica(1, "released", "agrees", Some(true)), replica(2, "cancelled", "cancelled", None)],
        });
        assert_eq!(
            steps(&delegation),
            [
                "high work, by 2 at first, for up to 3 sat in all",
                "1: asked npub1",
                "1: says so far: half of it",
                "1: delivered, its own check passed",
                "2: asked npub2",
                "2: says so far: half of it",
                "decided: 1 say the same, 1 had to",
            ]
        );
        let table = table(&delegation);
        assert_eq!(table.len(), 3);
        assert!(table[1].contains("agrees") && table[1].contains("0123456789ab"), "{}", table[1]);
        assert!(table[2].contains("cancelled") && table[2].contains("nothing"), "{}", table[2]);
    }
}
