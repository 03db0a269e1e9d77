//! `guild audit`

use std::path::{Path, PathBuf};

use guild_ledger::evidence::{
    Calls, Checker, Dealings, Events, Keys, Part, Receipts, Report, Together, compare,
};
use guild_protocol::receipt;

use self::directory::Directory;
use self::dossier::Dossier;
use super::Context;
use crate::error::Result;
use crate::output::Answer;

mod books;
mod directory;
mod dossier;
mod show;

/// Check the books of this node, or evidence from its files alone
///
/// Without a directory it reads the database of this node, also beside one that runs: every transfer is decided again
/// from nothing, and every minute that was sold is looked for in what was booked. No minute is paid twice, none ran
/// that is not paid, no cap is passed, no account is below zero, and all accounts together hold nothing. No envelope
/// has spent more than it may, and each counts what its orders say. The money of what is disputed is held, and follows
/// what was decided. Every turn of an agent has ended at most once, and nothing of it was written by a worker that had
/// lost it. Every provider came from one stage of its health to another along a documented path.
///
/// With --evidence it reads ledger.jsonl, and calls.jsonl, receipts/*.json, keys.json and events.jsonl where they are
/// there, and checks that the money could have moved as they say: nothing lost, nothing doubled, nothing below zero, no
/// gate passed, every hash right. It needs no node and no configuration, and uses none of the code that books
/// transfers. Files of other names are listed as not checked.
///
/// Given several directories, each of another node, it also checks what they say about each other: what one owes
/// another, the other is owed by it, each payment once.
///
/// A directory with an evidence.json is what `guild evidence export` wrote of one piece of work: events, verdicts,
/// receipts, payment, replay and reviews are checked against each other, and the votes of a delegation counted again.
/// With --rerun results are judged again too, as far as that needs no sandbox. Both may lie in one directory.
///
/// The exit code is 0 if all is well, 1 if there are problems, 2 if there is no such directory or no evidence in it,
/// and 3 if a file or the database cannot be read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory with the files; several times for several nodes
    #[arg(long, value_name = "DIR")]
    evidence: Vec<PathBuf>,
    /// Judge the results of an evidence.json again
    #[arg(long, requires = "evidence")]
    rerun: bool,
}

/// The evidence of one node.
struct Checked<'a> {
    path: &'a Path,
    directory: Directory,
    report: Report,
}

/// What was found, of each node and between them.
struct Found<'a> {
    nodes: Vec<Checked<'a>>,
    together: Option<Together>,
    /// The evidence of single pieces of work.
    dossiers: Vec<Dossier>,
}

impl Found<'_> {
    fn holds(&self) -> bool {
        self.nodes.iter().all(|node| node.report.holds())
            && self.together.as_ref().is_none_or(Together::holds)
            && self.dossiers.iter().all(Dossier::holds)
    }
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    if args.evidence.is_empty() {
        return books::run(cx);
    }
    let found = examine(&args.evidence, args.rerun, cx)?;
    let (holds, Found { nodes, together, dossiers }) = (found.holds(), &found);
    if cx.out.json() {
        show::json(holds, (nodes, together.as_ref()), dossiers, cx)?;
    } else {
        show::text(nodes, together.as_ref(), dossiers, cx)?;
    }
    Ok(Answer::of(holds))
}

/// Whether evidence holds, without a word about it.
pub(super) fn holds(paths: &[PathBuf], cx: &mut Context<'_>) -> Result<bool> {
    Ok(examine(paths, false, cx)?.holds())
}

fn examine<'a>(paths: &'a [PathBuf], rerun: bool, cx: &mut Context<'_>) -> Result<Found<'a>> {
    let (mut nodes, mut dealings, mut dossiers) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        let has_dossier = dossier::is_there(path);
        let has_ledger = path.join(Part::Ledger.file_name()).symlink_metadata().is_ok();
        if has_dossier {
            dossiers.push(Dossier::check(path, has_ledger, rerun)?);
        }
        if has_dossier && !has_ledger {
            continue;
        }
        let directory = Directory::open(path, has_dossier)?;
        let checked = check(&directory, cx);
        cx.out.progress("");
        let (report, dealt) = checked?;
        nodes.push(Checked { path, directory, report });
        dealings.push(dealt);
    }
    let together = (nodes.len() > 1).then(|| compare(&dealings));
    Ok(Found { nodes, together, dossiers })
}

/// The ledger comes last: of a file that may be larger than memory, only what the others name is kept.
fn check(directory: &Directory, cx: &mut Context<'_>) -> Result<(Report, Dealings)> {
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
    if directory.has(Part::Keys) {
        checker = checker.with_keys(Keys::file(&directory.keys()?));
    }
    let mut checker = checker.with_events(events);
    directory.each_line(Part::Ledger, cx, |line| checker.line(line))?;
    Ok(checker.finish_with_dealings())
}
