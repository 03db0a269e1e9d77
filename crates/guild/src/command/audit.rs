//! `guild audit`

use std::path::{Path, PathBuf};

use guild_ledger::evidence::{Calls, Checker, Events, Part, Problem, Receipts, Report};
use guild_protocol::receipt;
use serde::Serialize;

use self::directory::Directory;
use super::Context;
use crate::error::Result;
use crate::output::Answer;

mod directory;

/// Check evidence of what happened, from its files alone
///
/// Reads ledger.jsonl, and calls.jsonl, receipts/*.json and events.jsonl where they are there, and checks that the
/// money could have moved as they say: nothing lost, nothing doubled, nothing below zero, no gate passed, every hash
/// right. It needs no node and no configuration, and uses none of the code that books transfers. Files of other names
/// are listed as not checked.
///
/// The exit code is 0 if all is well, 1 if there are problems, 2 if there is no such directory or no ledger in it, and
/// 3 if a file cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory with the files
    #[arg(long, value_name = "DIR")]
    evidence: PathBuf,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let directory = Directory::open(&args.evidence)?;
    let report = check(&directory, cx);
    cx.out.progress("");
    let report = report?;
    let answer = Answer::of(report.holds());
    if cx.out.json() {
        cx.out.object(report.holds(), Body::of(&args.evidence, &directory, &report))?;
    } else {
        show(&args.evidence, &directory, &report, cx)?;
    }
    Ok(answer)
}

/// The ledger comes last: of a file that may be larger than memory, only what the others name is kept.
fn check(directory: &Directory, cx: &mut Context<'_>) -> Result<Report> {
    let mut receipts = Receipts::new();
    for (at, name) in directory.receipts().iter().enumerate() {
        if at % 1_000 == 0 {
            cx.out.progress(&format!("receipts: {at} of {}", directory.receipts().len()));
        }
        receipts.file(&name.to_string_lossy(), &directory.receipt(name, receipt::MAX_BYTES)?);
    }
    let mut events = Events::new();
    directory.each_line(Part::Events, cx, |line| events.line(line))?;
    let mut checker = Checker::new().with_receipts(receipts);
    if directory.has(Part::Calls) {
        let mut calls = Calls::new();
        directory.each_line(Part::Calls, cx, |line| calls.line(line))?;
        checker = checker.with_calls(calls);
    }
    let mut checker = checker.with_events(events);
    directory.each_line(Part::Ledger, cx, |line| checker.line(line))?;
    Ok(checker.finish())
}

const PARTS: [Part; 4] = [Part::Ledger, Part::Calls, Part::Receipts, Part::Events];

/// What was checked of a part, in words.
fn extent(part: Part, report: &Report) -> String {
    let Report { accounts, transfers, heads, .. } = report;
    match part {
        Part::Ledger => format!("{transfers} transfers between {accounts} accounts, {heads} heads"),
        Part::Calls => format!("{} calls", report.calls),
        Part::Receipts => format!("{} receipts", report.receipts),
        Part::Events => format!("{} events, their form only", report.events),
    }
}

fn show(path: &Path, directory: &Directory, report: &Report, cx: &mut Context<'_>) -> Result<()> {
    let verdict = if report.holds() { "holds" } else { "does NOT hold" };
    cx.out.line(&format!("{}: the evidence {verdict}", path.display()))?;
    for part in PARTS {
        let name = part.file_name();
        match (directory.has(part), report.found_in(part)) {
            (false, _) => cx.out.line(&format!("  absent       {name}"))?,
            (true, 0) => {
                cx.out.line(&format!("  ok           {name:<12}  {}", extent(part, report)))?;
            }
            (true, problems) => {
                let extent = extent(part, report);
                cx.out
                    .line(&format!("  FAILED       {name:<12}  {extent}, {problems} problems"))?;
            }
        }
    }
    for name in directory.not_checked() {
        cx.out.line(&format!("  not checked  {name}"))?;
    }
    if directory.not_checked_left_out() > 0 {
        cx.out.line(&format!("  not checked  (and {} more)", directory.not_checked_left_out()))?;
    }
    if !report.holds() {
        cx.out.line("")?;
    }
    for problem in &report.problems {
        cx.out.line(&format!("  {}: {}", problem.place, problem.message))?;
        cx.out.line(&format!("      [{}] {}", problem.code.name, problem.code.meaning))?;
    }
    if report.problems_left_out() > 0 {
        cx.out.line(&format!("  (and {} more)", report.problems_left_out()))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Body {
    directory: String,
    parts: Vec<PartBody>,
    records: u64,
    accounts: u64,
    transfers: u64,
    heads: u64,
    calls: u64,
    receipts: u64,
    events: u64,
    problems: Vec<ProblemBody>,
    problems_left_out: u64,
    not_checked: Vec<String>,
    not_checked_left_out: usize,
}

#[derive(Serialize)]
struct PartBody {
    file: &'static str,
    present: bool,
    problems: u64,
}

#[derive(Serialize)]
struct ProblemBody {
    code: &'static str,
    file: String,
    line: Option<u64>,
    seq: Option<i64>,
    message: String,
}

impl Body {
    fn of(path: &Path, directory: &Directory, report: &Report) -> Body {
        let part = |part: Part| PartBody {
            file: part.file_name(),
            present: directory.has(part),
            problems: report.found_in(part),
        };
        let problem = |problem: &Problem| ProblemBody {
            code: problem.code.name,
            file: problem.place.file(),
            line: problem.place.line,
            seq: problem.place.seq,
            message: problem.message.clone(),
        };
        Body {
            directory: path.display().to_string(),
            parts: PARTS.into_iter().map(part).collect(),
            records: report.records,
            accounts: report.accounts,
            transfers: report.transfers,
            heads: report.heads,
            calls: report.calls,
            receipts: report.receipts,
            events: report.events,
            problems: report.problems.iter().map(problem).collect(),
            problems_left_out: report.problems_left_out(),
            not_checked: directory.not_checked().to_vec(),
            not_checked_left_out: directory.not_checked_left_out(),
        }
    }
}
