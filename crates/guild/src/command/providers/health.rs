//! `guild providers health`

use guild_protocol::identity::PublicKey;
use guild_roles::explorer::Condition;
use guild_roles::router::Stage;
use serde_json::json;

use crate::command::Context;
use crate::command::table::{self, Column};
use crate::command::{reading, route};
use crate::error::Result;
use crate::output::Answer;

/// Show how providers do: stages, signals, and when each is tried again
///
/// Without a key all are listed, the worst first. With one each of its kinds of work is shown with what was noticed and
/// when it is looked at next. The exit code is 1 if somebody is suspended or removed, and 2 if the key is not known.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its key, as npub or in hex digits [default: all]
    key: Option<PublicKey>,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let key = args.key;
    let ask = |market: guild_roles::explorer::Explorer| async move { market.conditions(key).await };
    let found = reading::read(&cx.config()?, ask)?;
    if let Some(key) = key.filter(|_| found.is_empty()) {
        return Err(reading::unknown("provider", &key.npub(), "providers"));
    }
    let holds = found.iter().all(|one| one.health.stage < Stage::Suspended);
    if cx.out.json() {
        cx.out.object(holds, json!({ "conditions": found }))?;
        return Ok(Answer::of(holds));
    }
    match key {
        Some(_) => found.iter().try_for_each(|one| print(one, cx))?,
        None if found.is_empty() => cx.out.remark("the matrix knows nobody"),
        None => list(&found, cx)?,
    }
    Ok(Answer::of(holds))
}

fn list(found: &[Condition], cx: &mut Context<'_>) -> Result<()> {
    let columns = [
        Column::Left("provider"),
        Column::Left("work"),
        Column::Left("stage"),
        Column::Left("by"),
        Column::Left("status"),
        Column::Right("of a week"),
        Column::Right("early signal"),
        Column::Right("failures"),
        Column::Left("tried again"),
    ];
    let row = |one: &Condition| {
        [
            one.provider.npub(),
            one.task.to_string(),
            one.health.stage.name().to_owned(),
            one.health.signal.map(|signal| signal.name().to_owned()).unwrap_or_default(),
            one.status.name().to_owned(),
            week(one),
            early(one),
            one.health.failures.to_string(),
            one.retry_ms.map(reading::time).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = found.iter().map(row).collect();
    table::print(columns, &rows, cx.out)
}

fn week(one: &Condition) -> String {
    match one.success_rate_bp {
        Some(bp) => format!("{} of {}", route::part(bp), one.outcomes),
        None => "nothing".to_owned(),
    }
}

/// The sum as a part of its limit cannot be told without the limit: it is shown as it is compared.
fn early(one: &Condition) -> String {
    let cusum = &one.health.cusum;
    let sum =
        format!("{}.{:02}", cusum.sum_micro / 1_000_000, cusum.sum_micro % 1_000_000 / 10_000);
    if cusum.is_alarmed { format!("{sum}, alarm") } else { sum }
}

fn print(one: &Condition, cx: &mut Context<'_>) -> Result<()> {
    let health = &one.health;
    let signal = health.signal.map(|signal| format!(": it {}", signal.words())).unwrap_or_default();
    let since = match health.since_ms {
        0 => String::new(),
        at_ms => format!(", since {}", reading::time(at_ms)),
    };
    let time = |at_ms: Option<i64>| at_ms.map_or_else(|| "–".to_owned(), reading::time);
    let usual = health.pace.usual_p95_ms.map(|ms| format!("{ms} ms"));
    let slow = format!(
        "95 % within {}; far slower: {} of the latest {}",
        usual.unwrap_or_else(|| "what is not known yet".to_owned()),
        health.pace.slow.count_ones(),
        health.pace.known
    );
    let cause = one.cause.map(|cause| format!(" ({})", cause.name())).unwrap_or_default();
    cx.out.fields(&[
        ("work", one.task.as_str()),
        ("  stage", &format!("{}{signal}{since}", health.stage.name())),
        ("  status", &format!("{}{cause}", one.status.name())),
        ("  of a week", &week(one)),
        ("  time", &slow),
        ("  timeouts", &format!("{} in a row", health.timeouts)),
        ("  early signal", &format!("{}, {} alarms", early(one), health.cusum.alarms)),
        ("  failures", &health.failures.to_string()),
        ("  tried again", &time(one.retry_ms)),
        ("  heartbeat", &time(one.heartbeat_ms)),
        ("  tests", &format!("{} posted, {} not passed", one.tested, one.not_passed)),
        ("  known answers", &one.known.to_string()),
    ])?;
    for test in &one.tests {
        let became = match (&test.order_id, &test.words) {
            (Some(order_id), _) => order_id.clone(),
            (None, Some(words)) => format!("not posted: {words}"),
            (None, None) => "not posted yet".to_owned(),
        };
        cx.out.line(&format!("  {:<9}  {}  {became}", test.reason, reading::time(test.due_ms)))?;
    }
    Ok(())
}
