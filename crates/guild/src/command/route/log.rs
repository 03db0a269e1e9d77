//! `guild route log` and `guild route verify`

use std::sync::Arc;

use guild_protocol::identity::PublicKey;
use guild_roles::router::{Asked, Checked, CopiesFound, Entry, Logged, TaskType};
use serde_json::{Value, json};

use super::{part, read};
use crate::command::Context;
use crate::command::reading::{short, time};
use crate::command::table::{self, Column};
use crate::error::Result;
use crate::keystore::Keystore;
use crate::output::Answer;

/// Show what happened to the matrix, the newest first: what, to whom, and what it changed
///
/// The exit code is 1 if a row is not what was written.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Only for this work
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
    /// Only of this provider, as npub or in hex digits
    #[arg(long, value_name = "KEY")]
    provider: Option<PublicKey>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Only rows before this number
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    before: Option<i64>,
}

/// Check the whole log: every hash, and that a start would take what it gives
///
/// The exit code is 1 if something is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Also open the copies that are here, with the key of this node, and compare them
    #[arg(long)]
    copies: bool,
}

pub(super) fn log(args: &LogArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let asked = Asked { task: args.task.clone(), provider: args.provider, before_seq: args.before };
    let limit = i64::from(args.limit);
    let rows = read(&cx.config()?, |router| async move { router.log(asked, limit).await })?;
    let whole = rows.iter().all(|row| row.is_whole);
    if cx.out.json() {
        let next = rows.last().filter(|_| rows.len() == usize::from(args.limit));
        let next = next.map(|row| row.effect.seq);
        let rows: Vec<Value> = rows.iter().map(told).collect();
        cx.out.object(whole, json!({ "rows": rows, "next_before": next }))?;
        return Ok(Answer::of(whole));
    }
    let columns = [
        Column::Right("row"),
        Column::Left("when"),
        Column::Left("work"),
        Column::Left("provider"),
        Column::Left("what"),
        Column::Left("trust"),
        Column::Left("status"),
        Column::Left("by"),
        Column::Left(""),
    ];
    let lines: Vec<_> = rows.iter().map(line).collect();
    table::print(columns, &lines, cx.out)?;
    Ok(Answer::of(whole))
}

/// What something was, and is, if that is another thing.
fn moved(before: Option<String>, after: String) -> String {
    match before {
        Some(before) if before == after => after,
        Some(before) => format!("{before} → {after}"),
        None => format!("→ {after}"),
    }
}

fn line(row: &Logged) -> [String; 9] {
    let (effect, before) = (&row.effect, row.before.as_ref());
    let status = |entry: &Entry| super::standing(entry);
    [
        effect.seq.to_string(),
        time(effect.at_ms),
        effect.task.to_string(),
        short(&effect.provider.npub()),
        what(row),
        moved(before.map(|entry| part(entry.trust_bp)), part(effect.entry.trust_bp)),
        moved(before.map(status), status(&effect.entry)),
        row.key.clone(),
        if row.is_whole { String::new() } else { "NOT what was written".to_owned() },
    ]
}

fn what(row: &Logged) -> String {
    let mutation = json!(row.effect.mutation);
    if let Some(signal) = mutation["signal"].as_str() {
        return signal.to_owned();
    }
    match mutation["class"].as_str() {
        Some(class) => class.to_owned(),
        None => row.effect.mutation.name().to_owned(),
    }
}

fn told(row: &Logged) -> Value {
    let effect = &row.effect;
    let shown = |entry: &Entry| {
        json!({
            "status": entry.status, "cause": entry.cause, "until_ms": entry.until_ms,
            "trust_bp": entry.trust_bp, "version": entry.version, "stage": entry.health.stage,
        })
    };
    json!({
        "seq": effect.seq,
        "at_ms": effect.at_ms,
        "task": effect.task,
        "provider": effect.provider,
        "what": what(row),
        "mutation": effect.mutation,
        "key": row.key,
        "before": row.before.as_ref().map(shown),
        "after": shown(&effect.entry),
        "hash": row.hash,
        "whole": row.is_whole,
    })
}

pub(super) fn verify(args: &VerifyArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let checked = read(&loaded, |router| async move { router.check().await })?;
    let copies = match args.copies {
        false => None,
        true => {
            let key = Keystore::read(&Keystore::path(&loaded))?.unlock(cx.environment)?;
            let key = Arc::new(key.role("buyer")?);
            Some(read(&loaded, |router| async move { router.copies(key).await })?)
        }
    };
    let others = copies.as_ref().map_or(0, |copies| copies.other.len());
    let holds = checked.problems.is_empty() && others == 0;
    if cx.out.json() {
        cx.out.object(holds, report(&checked, copies.as_ref()))?;
        return Ok(Answer::of(holds));
    }
    let mut fields = vec![
        ("rows", checked.rows.to_string()),
        ("head", checked.head.to_string()),
        ("log", if checked.problems.is_empty() { "holds" } else { "does NOT hold" }.to_owned()),
    ];
    if let Some(copies) = &copies {
        let words = format!(
            "{} messages here, {} rows in them as in the log, {} otherwise",
            copies.messages,
            copies.same,
            copies.other.len()
        );
        fields.push(("copies", words));
    }
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    cx.out.fields(&fields)?;
    for problem in &checked.problems {
        cx.out.line(problem)?;
    }
    for (seq, why) in &checked.damaged {
        cx.out.remark(&format!("the snapshot of row {seq} cannot be used: {why}"));
    }
    Ok(Answer::of(holds))
}

fn report(checked: &Checked, copies: Option<&CopiesFound>) -> Value {
    let damaged = checked.damaged.iter().map(|(seq, why)| json!({ "seq": seq, "why": why }));
    let copies = copies.map(
        |copies| json!({ "messages": copies.messages, "same": copies.same, "other": copies.other }),
    );
    json!({
        "rows": checked.rows,
        "head": checked.head,
        "problems": checked.problems,
        "damaged_snapshots": damaged.collect::<Vec<_>>(),
        "copies": copies,
    })
}
