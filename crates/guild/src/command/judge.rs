//! `guild judge`

use std::path::PathBuf;

use guild_market::judge::{
    Class, Judge, Measure, Mode, Options, Progress, Salt, Status, Submission, Suite, Verdict,
};
use guild_protocol::env::{Clock, Random};
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_roles::judgements::Judged;
use guild_sandbox::Standing;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Context;
use super::table::{self, Column};
use crate::client::write_through;
use crate::error::{Error, InFile, Result, code};
use crate::input::Input;
use crate::output::Answer;
use crate::real::{SystemClock, SystemRandom, SystemStopwatch};

mod commit;
mod history;

/// Judge a program by a suite of tests that it cannot see
///
/// The tests and what they expect stay here; the submission runs in a sandbox and answers calls. What it is worth is
/// SUCCESS (every test passed), PARTIAL (at least 80 of 100), FAILURE, ERROR (it could not be run to its end) or
/// SECURITY_VIOLATION (it tried, or holds, what is forbidden). docs/judge.md describes suites and the protocol.
///
/// The exit code is 0 for SUCCESS, 1 for any other verdict, 2 if the suite, the submission or a limit is not right, and
/// 3 if the sandbox itself failed.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The suite: a JSON file, or - for standard input
    #[arg(long, value_name = "FILE", required = true)]
    suite: Option<Input>,
    /// The directory of the submission; links in it are refused
    #[arg(long, value_name = "DIR", required = true)]
    submission: Option<PathBuf>,
    /// Show submissions the directories below DIR instead of the host's /usr
    #[arg(long, value_name = "DIR")]
    image: Option<PathBuf>,
    /// A directory of Python packages for pytest and the tools of quality, as `pip install --target DIR` makes it
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Run pylint, bandit and mypy too, where they are installed
    #[arg(long)]
    quality: bool,
    /// Keep the verdict in the series of this provider
    #[arg(long, value_name = "NPUB")]
    provider: Option<PublicKey>,
    /// Say the commitment to the suite with this salt
    #[arg(long, value_name = "HEX")]
    salt: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Commit(commit::CommitArgs),
    VerifyCommitment(commit::VerifyArgs),
    History(history::Args),
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    match &args.command {
        Some(Command::Commit(args)) => commit::commit(args, cx),
        Some(Command::VerifyCommitment(args)) => commit::verify(args, cx),
        Some(Command::History(args)) => history::run(args, cx),
        None => judge(args, cx),
    }
}

fn read_suite(file: &Input) -> Result<Suite> {
    let text = file.read(guild_market::judge::MAX_SUITE_BYTES)?;
    let parsed = Suite::parse(&text).map_err(|error| match error {
        // It knows the field, but not of which format.
        guild_market::Error::Protocol(error)
            if error.code() == &guild_protocol::json::code::SHAPE =>
        {
            Error::from(error).help("Correct the field named; docs/judge.md lists all of a suite.")
        }
        guild_market::Error::Protocol(error) => Error::from(error),
        error => Error::from(error),
    });
    parsed.in_file(file.path())
}

fn absolute(path: &PathBuf) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(path, &e))
}

fn judge(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let missing = || Error::new(&code::USAGE, "--suite and --submission are needed");
    let mut loaded = cx.config_in_peace()?;
    // A subject has a sandbox each: while one works the next is made, and the first while files are read.
    loaded.config.sandbox.ahead = loaded.config.sandbox.ahead.max(1);
    let sandbox = crate::sandbox::open(&loaded.config, cx.environment)?;
    // If it fails, the judge will say why.
    let _ = sandbox.prepare();
    let suite = read_suite(args.suite.as_ref().ok_or_else(missing)?)?;
    let submission = Submission::read(args.submission.as_ref().ok_or_else(missing)?)?;
    let salt = args.salt.as_deref().map(Salt::parse).transpose()?;
    let options = options(args)?;
    let judge = Judge {
        sandbox: &*sandbox,
        random: &SystemRandom,
        stopwatch: &SystemStopwatch,
        options: &options,
    };
    let bar = bar(cx);
    let judged = judge.judge(&suite, &submission, &mut |progress| show_progress(&bar, progress));
    bar.finish_and_clear();
    let verdict = judged?;
    if let Some(provider) = args.provider {
        let at_ms = Some(SystemClock.now_ms());
        let judged = Judged { provider, at_ms, verdict: verdict.clone() };
        write_through(
            &loaded,
            |client| client.keep_judgement(&judged),
            |parts, runtime| {
                Ok(runtime.block_on(parts.judgements().keep(judged.clone())).map(drop)?)
            },
        )?;
    }
    let commitment = salt.map(|salt| suite.commitment(&salt));
    show(&verdict, commitment, cx)
}

fn options(args: &Args) -> Result<Options> {
    let mut options = Options { quality: args.quality, ..Options::default() };
    if let Some(image) = &args.image {
        options.image = guild_sandbox::Image::Directory(absolute(image)?);
    }
    options.tools = args.tools.as_ref().map(absolute).transpose()?;
    Ok(options)
}

/// A line that moves, for a person at a terminal.
pub(super) fn bar(cx: &Context<'_>) -> ProgressBar {
    let bar = if cx.out.json() { ProgressBar::hidden() } else { ProgressBar::new(0) };
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} of {len}  {msg}") {
        bar.set_style(style);
    }
    bar
}

pub(super) fn show_progress(bar: &ProgressBar, progress: &Progress<'_>) {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    bar.set_length(count(progress.total));
    bar.set_position(count(progress.done));
    // A test may be named by a stranger.
    let doing: String = progress.doing.chars().filter(|c| !c.is_control()).take(60).collect();
    bar.set_message(doing);
    bar.tick();
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    verdict: &'a Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    commitment: Option<Hash>,
}

pub(super) fn show(
    verdict: &Verdict,
    commitment: Option<Hash>,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let answer = Answer::of(verdict.class == Class::Success);
    if cx.out.json() {
        cx.out.object(verdict.class == Class::Success, Body { verdict, commitment })?;
        return Ok(answer);
    }
    let text = |us: Option<u64>| {
        us.map_or_else(String::new, |us| format!("{}.{:03} ms", us / 1_000, us % 1_000))
    };
    let rows: Vec<_> = verdict
        .tests
        .iter()
        .map(|test| {
            let why = test.why.clone().unwrap_or_default();
            let status = match test.status {
                Status::NotRun => "not run".to_owned(),
                status => status.name().to_owned(),
            };
            [test.layer.name().to_owned(), test.id.clone(), status, text(test.wall_us), why]
        })
        .collect();
    let columns = [
        Column::Left("layer"),
        Column::Left("test"),
        Column::Left("result"),
        Column::Right("time"),
        Column::Left("why"),
    ];
    table::print(columns, &rows, cx.out)?;
    cx.out.line("")?;
    let fields = fields(verdict, commitment);
    let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    cx.out.fields(&fields)?;
    remarks(verdict, cx);
    Ok(answer)
}

fn fields(verdict: &Verdict, commitment: Option<Hash>) -> Vec<(&'static str, String)> {
    let counts = verdict.layers.iter();
    let counts: Vec<_> = counts
        .map(|(layer, count)| format!("{} {}/{}", layer.name(), count.passed, count.total))
        .collect();
    let mode = match verdict.mode {
        Mode::Trusted => "trusted: the tests were never in the submission's process",
        Mode::TamperEvident => "tamper evident: tests and submission shared a process",
    };
    let points = |bp: i64| {
        format!("{}{}.{:04}", if bp < 0 { '-' } else { '+' }, bp.abs() / 10_000, bp.abs() % 10_000)
    };
    let trust = match verdict.trust.blacklist {
        true => "blacklisted".to_owned(),
        false => points(verdict.trust.step_bp),
    };
    let metrics = &verdict.metrics;
    let measure = |measure: &Measure, unit: u64| match measure {
        Measure::Value(value) => format!("{}.{:02}", value / unit, value % unit * 100 / unit),
        Measure::Absent(why) => format!("absent, {why}"),
    };
    let mut fields = vec![
        ("verdict", verdict.class.name().to_owned()),
        ("passed", format!("{} of {}: {}", verdict.passed, verdict.total, counts.join(", "))),
        ("mode", mode.to_owned()),
        ("trust", trust),
        ("wall", format!("{} ms", metrics.wall_us / 1_000)),
        ("CPU", format!("{} ms", metrics.cpu_us / 1_000)),
        ("memory", format!("{} KiB", metrics.memory_peak_bytes >> 10)),
        ("coverage", measure(&metrics.coverage_bp, 100)),
        ("pylint", measure(&metrics.pylint_milli, 1_000)),
        ("bandit", measure(&metrics.bandit_milli, 1_000)),
        ("mypy", measure(&metrics.mypy_milli, 1_000)),
        ("suite", format!("{} {}", verdict.suite, verdict.suite_hash)),
        ("submission", verdict.submission_hash.to_string()),
    ];
    fields.extend(commitment.map(|commitment| ("commitment", commitment.to_string())));
    fields
}

/// What a reader of the verdict must know beside it.
fn remarks(verdict: &Verdict, cx: &mut Context<'_>) {
    for flag in &verdict.flags {
        let line = format!("tried {} {} {} times", flag.call, flag.detail, flag.count);
        cx.out.remark(&line.replace("  ", " "));
    }
    for found in &verdict.findings {
        cx.out.remark(&format!("{} stands in {}, line {}", found.name, found.file, found.line));
    }
    for (limit, report) in &verdict.limits {
        if report.reached {
            cx.out.remark(&format!("reached the limit of {}", limit.name()));
        }
        if report.standing != Standing::Enforced {
            cx.out.remark(&format!("the limit of {} is weaker here: {}", limit.name(), report.by));
        }
    }
}

/// A salt that nobody can guess.
fn made_up_salt() -> Salt {
    let mut bytes = [0; guild_market::judge::SALT_BYTES];
    SystemRandom.fill(&mut bytes);
    Salt::new(bytes)
}
