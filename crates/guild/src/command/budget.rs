//! `guild budget`

use std::sync::Arc;

use guild_protocol::amount::Msat;
use guild_roles::budget::{Asked, Budgets, Change, Layer, Period, Standing, TaskType, What};
use serde_json::json;

use super::Context;
use super::hire::budget as amount;
use super::reading::time;
use super::table::{self, Column};
use crate::client::write_through;
use crate::config::Loaded;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

/// Say how much may be spent on which kind of work, by day and by month
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show every envelope: its limits, and what of them is held and spent today and this month
    Ls,
    Set(SetArgs),
    Log(LogArgs),
}

/// Set how much a kind of work may cost
///
/// It binds from now on. What is not named stays as it is; a new envelope lends 30 % of what it has left, and carries
/// half of what a month has left into the next. Work without an envelope is not limited. Through the running node, or
/// directly when none runs.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change")
    .args(["daily", "monthly", "priority", "lends", "rolls", "remove"]).required(true).multiple(true))]
pub(crate) struct SetArgs {
    /// The kind of work: the id of a schema, or '*' for all that have no envelope of their own
    #[arg(value_name = "TASK")]
    task: TaskType,
    /// The most of a day, such as 2000msat or 5sat [default of a new one: as much as the month]
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    daily: Option<i64>,
    /// The most of a month, beside what is carried into it [default of a new one: 31 days]
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    monthly: Option<i64>,
    /// How important it is: it borrows of all that are not more important, the least important first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// The part of what it has left that it lends to others in a day or month, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(i64).range(0..=100))]
    lends: Option<i64>,
    /// The part of what a month has left that is carried into the next, in percent
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(i64).range(0..=100))]
    rolls: Option<i64>,
    /// Take the envelope away
    #[arg(long, conflicts_with_all = ["daily", "monthly", "priority", "lends", "rolls"])]
    remove: bool,
}

/// Show what changed envelopes, the newest first: set, lent to another, carried into a month
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Only of this envelope
    #[arg(long, value_name = "TASK")]
    task: Option<TaskType>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls => ls(cx),
        Command::Set(args) => set(args, cx),
        Command::Log(args) => log(args, cx),
    }
}

/// Reads the envelopes beside whoever writes them.
fn read<T, F>(loaded: &Loaded, ask: impl FnOnce(Budgets) -> F) -> Result<T>
where
    F: Future<Output = guild_roles::Result<T>>,
{
    let service = node::open_read_only(loaded)?;
    let budgets = Budgets::new(service.handle(), Arc::new(SystemClock));
    let answer = runtime().map(|runtime| runtime.block_on(ask(budgets)));
    service.close();
    Ok(answer??)
}

fn ls(cx: &mut Context<'_>) -> Result<Answer> {
    let standings = read(&cx.config()?, |budgets| async move { budgets.standings().await })?;
    if cx.out.json() {
        cx.out.object(true, json!({ "envelopes": standings }))?;
        return Ok(Answer::Yes);
    }
    if standings.is_empty() {
        cx.out.remark("there are no envelopes: nothing is limited");
        return Ok(Answer::Yes);
    }
    let columns = [
        Column::Left("work"),
        Column::Right("priority"),
        Column::Right("today"),
        Column::Right("of"),
        Column::Right("left"),
        Column::Right("month"),
        Column::Right("of"),
        Column::Right("left"),
    ];
    table::print(columns, &standings.iter().map(line).collect::<Vec<_>>(), cx.out)?;
    cx.out.remark("in millisatoshi; what is held for open orders counts as used");
    Ok(Answer::Yes)
}

fn line(one: &Standing) -> [String; 8] {
    let used = |at: &Period| at.held.saturating_add(at.spent).to_string();
    let (today, month) = (&one.today, &one.month);
    [
        one.envelope.task.to_string(),
        one.envelope.terms.priority.to_string(),
        used(today),
        today.most().to_string(),
        today.room().to_string(),
        used(month),
        month.most().to_string(),
        month.room().to_string(),
    ]
}

fn set(args: &SetArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let bp = |percent: Option<i64>| percent.map(|percent| percent.saturating_mul(100));
    let asked = Asked {
        daily: args.daily.map(Msat),
        monthly: args.monthly.map(Msat),
        priority: args.priority,
        lends_bp: bp(args.lends),
        rolls_bp: bp(args.rolls),
    };
    let body = json!({
        "task": args.task,
        "daily_msat": args.daily,
        "monthly_msat": args.monthly,
        "priority": args.priority,
        "lends_bp": asked.lends_bp,
        "rolls_bp": asked.rolls_bp,
        "remove": args.remove,
    });
    let outcome = write_through(
        &loaded,
        |client| client.set_budget(&body),
        |parts, runtime| {
            let (budgets, task) = (parts.budgets(), args.task.clone());
            let outcome = if args.remove {
                if runtime.block_on(budgets.remove(task))? { "removed" } else { "known" }
            } else {
                let (_, is_new) = runtime.block_on(budgets.set(task, asked))?;
                if is_new { "new" } else { "known" }
            };
            Ok(outcome.to_owned())
        },
    )?;
    if cx.out.json() {
        cx.out.object(true, json!({ "task": args.task, "outcome": outcome }))?;
        return Ok(Answer::Yes);
    }
    let said = match outcome.as_str() {
        "removed" => "is taken away",
        "new" => "is set",
        _ if args.remove => "is not there",
        _ => "is so already",
    };
    cx.out.line(&format!("the envelope {} {said}", args.task))?;
    Ok(Answer::Yes)
}

fn log(args: &LogArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let (task, limit) = (args.task.clone(), i64::from(args.limit));
    let changes =
        read(&cx.config()?, |budgets| async move { budgets.log(task, None, limit).await })?;
    if cx.out.json() {
        cx.out.object(true, json!({ "changes": changes }))?;
        return Ok(Answer::Yes);
    }
    if changes.is_empty() {
        cx.out.remark("no envelope was ever changed");
        return Ok(Answer::Yes);
    }
    let row = |change: &Change| [time(change.at_ms), change.task.to_string(), told(&change.what)];
    let columns = [Column::Left("when"), Column::Left("work"), Column::Left("what")];
    table::print(columns, &changes.iter().map(row).collect::<Vec<_>>(), cx.out)?;
    Ok(Answer::Yes)
}

fn told(what: &What) -> String {
    match what {
        What::Set(terms) => {
            let (daily, monthly) = (terms.daily.0, terms.monthly.0);
            format!("{daily} msat a day, {monthly} a month, priority {}", terms.priority)
        }
        What::Removed => "taken away".to_owned(),
        What::Lent { borrower, layer, period, msat, .. } => {
            let layer = match layer {
                Layer::Day => "day",
                Layer::Month => "month",
            };
            format!("lent {msat} msat to {borrower} for the {layer} {period}")
        }
        What::Rolled { period, msat } => format!("{msat} msat carried into {period}"),
    }
}
