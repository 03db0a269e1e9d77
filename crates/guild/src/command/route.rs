//! `guild route`

use std::sync::Arc;

use guild_roles::router::{Candidate, Entry, Explanation, Options, Router, TaskType};

use super::Context;
use super::reading::short;
use super::table::{self, Column};
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, SystemRandom, runtime};

mod log;

/// Say who would be hired for which work, and why; look at the log of that
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Explain(ExplainArgs),
    Log(log::LogArgs),
    Verify(log::VerifyArgs),
}

/// Show everybody for some work, how each ranks, and whom either policy would choose now
///
/// Nothing is changed, and nobody is hired. The exit code is 1 if nobody can be.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The kind of work: the id of a schema, or a word such as benchmark-task
    task: TaskType,
    /// Choose by this seed, which an earlier explanation named [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Explain(args) => explain(args, cx),
        Command::Log(args) => log::log(args, cx),
        Command::Verify(args) => log::verify(args, cx),
    }
}

/// Reads the matrix beside whoever writes it.
fn read<T, F>(loaded: &Loaded, ask: impl FnOnce(Router) -> F) -> Result<T>
where
    F: Future<Output = guild_roles::Result<T>>,
{
    let service = node::open_read_only(loaded)?;
    let store = service.handle();
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let answer = runtime().map(|runtime| {
        runtime.block_on(async {
            ask(Router::open(Options::default(), store, clock, random, None).await?).await
        })
    });
    service.close();
    Ok(answer??)
}

fn explain(args: &ExplainArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let (task, seed) = (args.task.clone(), args.seed);
    let told = read(&cx.config()?, |router| async move { router.explain(&task, seed).await })?;
    let Some(told) = told else {
        let why = format!("nobody was ever admitted for {}", args.task);
        return Err(Error::new(&code::MARKET_UNKNOWN, why)
            .help("`guild providers ls` lists who offers work; an evaluation admits them."));
    };
    let someone = told.choices.iter().any(|choice| choice.chosen.is_some());
    if cx.out.json() {
        cx.out.object(someone, &told)?;
    } else {
        print(&told, cx)?;
    }
    Ok(Answer::of(someone))
}

fn print(told: &Explanation, cx: &mut Context<'_>) -> Result<()> {
    let columns = [
        Column::Left("provider"),
        Column::Left("tier"),
        Column::Right("rank"),
        Column::Right("trust"),
        Column::Right("score"),
        Column::Right("jobs"),
        Column::Right("30 days"),
        Column::Right("cost"),
        Column::Right("time"),
        Column::Right("open"),
        Column::Right("last hour"),
        Column::Left("pace"),
        Column::Left("not now, because it"),
    ];
    let rows: Vec<_> = told.candidates.iter().map(row).collect();
    table::print(columns, &rows, cx.out)?;
    for choice in &told.choices {
        cx.out.line("")?;
        for line in choice.to_string().lines() {
            cx.out.line(line)?;
        }
    }
    if let Some(choice) = told.choices.first() {
        let again =
            format!("the same again: guild route explain {} --seed {}", told.task, choice.seed);
        cx.out.remark(&again);
    }
    Ok(())
}

/// Ten-thousandths as people read them.
pub(super) fn part(bp: u32) -> String {
    format!("{}.{:02}", bp / 10_000, bp % 10_000 / 100)
}

fn row(one: &Candidate) -> [String; 13] {
    let entry = &one.entry;
    let known = |value: Option<i64>, unit: &str| {
        value.map_or_else(String::new, |value| format!("{value} {unit}"))
    };
    let against = match (one.against, one.tier) {
        (None, _) => String::new(),
        (Some(_), None) => format!("is {}", standing(entry)),
        (Some(reason), Some(_)) => reason.words().to_owned(),
    };
    [
        short(&one.provider.npub()),
        one.tier.map_or_else(String::new, |tier| tier.name().to_owned()),
        one.rank.map_or_else(String::new, |rank| rank.to_string()),
        part(entry.trust_bp),
        part(one.score_micro / 100),
        entry.jobs.to_string(),
        one.success_rate_30d_bp.map_or_else(String::new, |bp| format!("{} %", bp / 100)),
        known(entry.cost_msat(), "msat"),
        known(entry.latency_ms(), "ms"),
        entry.open_jobs.to_string(),
        format!("{}/{}", one.share_jobs, one.share_of),
        entry.pace.name().to_owned(),
        against,
    ]
}

/// The status, and why.
pub(super) fn standing(entry: &Entry) -> String {
    match entry.cause {
        Some(cause) => format!("{} ({})", entry.status.name(), cause.name()),
        None => entry.status.name().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shown_with_two_digits() {
        assert_eq!(
            [0, 99, 4_500, 9_000, 10_000].map(part),
            ["0.00", "0.00", "0.45", "0.90", "1.00"]
        );
    }
}
