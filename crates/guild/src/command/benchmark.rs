//! `guild benchmark`

use std::path::PathBuf;

use guild_market::benchmark::{self, Benchmark, SEED_BYTES};
use guild_market::judge::{Judge, Options, Submission};
use guild_protocol::env::Random;
use guild_protocol::hash::{from_hex_exact, to_hex};
use serde_json::json;

use super::providers::benchmark_named;
use super::table::{self, Column};
use super::{Context, judge};
use crate::error::{Error, Result, code};
use crate::output::Answer;
use crate::real::{SystemRandom, SystemStopwatch};

/// Look at the benchmarks that providers are met with, and try them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls,
    Task(TaskArgs),
    Run(RunArgs),
}

/// Print a task, as a provider gets it
#[derive(Debug, clap::Args)]
pub(crate) struct TaskArgs {
    /// Which benchmark
    #[arg(value_parser = benchmark_named, default_value = "std-v3")]
    benchmark: Benchmark,
    /// The task of this seed, 64 hex digits [default: another one each time]
    #[arg(long, value_name = "HEX")]
    seed: Option<String>,
}

/// Judge a submission by a benchmark, as a meeting would
///
/// Without a submission it is the answer that is built in. A submission answers the task of one seed: `guild benchmark
/// task --seed HEX` prints it. The exit code is 0 for SUCCESS, 1 for any other verdict, 2 if something is not right,
/// and 3 if the sandbox itself failed.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Which benchmark
    #[arg(value_parser = benchmark_named, default_value = "std-v3")]
    benchmark: Benchmark,
    /// The directory of the submission; links in it are refused
    #[arg(long, value_name = "DIR", requires = "seed")]
    submission: Option<PathBuf>,
    /// The task of this seed, 64 hex digits [default: another one each time]
    #[arg(long, value_name = "HEX")]
    seed: Option<String>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Ls => ls(cx),
        Command::Task(args) => task(args, cx),
        Command::Run(args) => try_out(args, cx),
    }
}

fn ls(cx: &mut Context<'_>) -> Result<Answer> {
    let modules = |one: Benchmark| -> Vec<&str> {
        one.modules().into_iter().map(|module| module.name()).collect()
    };
    if cx.out.json() {
        let all: Vec<_> = Benchmark::ALL
            .into_iter()
            .map(|one| json!({"benchmark": one.name(), "modules": modules(one), "purpose": one.purpose()}))
            .collect();
        cx.out.object(true, json!({"benchmarks": all}))?;
        return Ok(Answer::Yes);
    }
    let columns = [Column::Left("benchmark"), Column::Left("modules"), Column::Left("purpose")];
    let row =
        |one: Benchmark| [one.name().to_owned(), modules(one).join(", "), one.purpose().to_owned()];
    table::print(columns, &Benchmark::ALL.map(row), cx.out)?;
    Ok(Answer::Yes)
}

fn seed(written: Option<&String>) -> Result<[u8; SEED_BYTES]> {
    let Some(written) = written else {
        let mut seed = [0; SEED_BYTES];
        SystemRandom.fill(&mut seed);
        return Ok(seed);
    };
    from_hex_exact(written)
        .ok_or_else(|| Error::new(&code::USAGE, "a seed is 64 lower-case hex digits"))
}

fn task(args: &TaskArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let seed = seed(args.seed.as_ref())?;
    let task = match args.benchmark.job(&seed)? {
        Some(job) => job.payload().clone(),
        None => args.benchmark.task(&seed, &args.benchmark.modules())?.spec().clone(),
    };
    cx.out.object(true, json!({"seed": to_hex(&seed), "task": task}))?;
    Ok(Answer::Yes)
}

fn try_out(args: &RunArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let seed = seed(args.seed.as_ref())?;
    let task = args.benchmark.task(&seed, &args.benchmark.modules())?;
    let submission = match &args.submission {
        Some(directory) => Submission::read(directory)?,
        None => {
            let answer = benchmark::reference(task.spec())?;
            benchmark::read_answer(&answer.to_string())?
        }
    };
    let loaded = cx.config_in_peace()?;
    let sandbox = crate::sandbox::open(&loaded.config, cx.environment)?;
    let options = Options::default();
    let judge = Judge {
        sandbox: &*sandbox,
        random: &SystemRandom,
        stopwatch: &SystemStopwatch,
        options: &options,
    };
    let bar = judge::bar(cx);
    let suite = task.suite();
    let judged =
        judge.judge(suite, &submission, &mut |progress| judge::show_progress(&bar, progress));
    bar.finish_and_clear();
    if args.seed.is_none() && !cx.out.json() {
        cx.out.remark(&format!("the same task again: --seed {}", to_hex(&seed)));
    }
    judge::show(&judged?, Some(task.commitment()), cx)
}
