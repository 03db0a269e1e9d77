//! What an audit found, for people and for programs.

use guild_ledger::evidence::{Between, Part, Problem, Report, Together};
use serde::Serialize;

use super::Checked;
use super::dossier::{self, Dossier};
use crate::command::Context;
use crate::error::Result;

const PARTS: [Part; 5] = [Part::Ledger, Part::Calls, Part::Receipts, Part::Keys, Part::Events];

/// What was checked of a part, in words.
fn extent(part: Part, node: &Checked<'_>) -> String {
    let Checked { directory, report, .. } = node;
    let Report { accounts, transfers, heads, .. } = report;
    let whose = if directory.has(Part::Keys) { "" } else { ", nobody says whose" };
    match part {
        Part::Ledger => format!("{transfers} transfers between {accounts} accounts, {heads} heads"),
        Part::Calls => format!("{} calls", report.calls),
        Part::Receipts => format!("{} receipts{whose}", report.receipts),
        Part::Keys => "the keys of the node".to_owned(),
        Part::Events => format!("{} events, their form only", report.events),
    }
}

pub(super) fn text(
    nodes: &[Checked<'_>],
    together: Option<&Together>,
    dossiers: &[Dossier],
    cx: &mut Context<'_>,
) -> Result<()> {
    for (at, node) in nodes.iter().enumerate() {
        if at > 0 {
            cx.out.line("")?;
        }
        one(node, cx)?;
    }
    if let Some(together) = together {
        between(nodes, together, cx)?;
    }
    for (at, one) in dossiers.iter().enumerate() {
        if at > 0 || !nodes.is_empty() {
            cx.out.line("")?;
        }
        dossier::text(one, cx)?;
    }
    Ok(())
}

fn one(node: &Checked<'_>, cx: &mut Context<'_>) -> Result<()> {
    let Checked { path, directory, report } = node;
    let verdict = if report.holds() { "holds" } else { "does NOT hold" };
    cx.out.line(&format!("{}: the evidence {verdict}", path.display()))?;
    for part in PARTS {
        let name = part.file_name();
        match (directory.has(part), report.found_in(part)) {
            (false, _) => cx.out.line(&format!("  absent       {name}"))?,
            (true, 0) => {
                cx.out.line(&format!("  ok           {name:<12}  {}", extent(part, node)))?;
            }
            (true, problems) => {
                let extent = extent(part, node);
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
        say(problem, "", cx)?;
    }
    left_out(report.problems_left_out(), cx)
}

fn between(nodes: &[Checked<'_>], together: &Together, cx: &mut Context<'_>) -> Result<()> {
    let verdict = if together.holds() { "agree" } else { "do NOT agree" };
    let (count, receipts) = (nodes.len(), together.receipts);
    cx.out.line("")?;
    cx.out.line(&format!("the {count} nodes {verdict}  {receipts} receipts between them"))?;
    for Between { node, problem } in &together.problems {
        let whose = nodes.get(*node).map(|node| format!("{}/", node.path.display()));
        say(problem, &whose.unwrap_or_default(), cx)?;
    }
    left_out(together.problems_left_out, cx)
}

fn say(problem: &Problem, whose: &str, cx: &mut Context<'_>) -> Result<()> {
    cx.out.line(&format!("  {whose}{}: {}", problem.place, problem.message))?;
    cx.out.line(&format!("      [{}] {}", problem.code.name, problem.code.meaning))
}

fn left_out(problems: u64, cx: &mut Context<'_>) -> Result<()> {
    if problems > 0 {
        cx.out.line(&format!("  (and {problems} more)"))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Body {
    directory: String,
    holds: bool,
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

#[derive(Serialize)]
struct TogetherBody<'a> {
    directories: Vec<Body>,
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<BetweenBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dossiers: Vec<dossier::Body<'a>>,
}

#[derive(Serialize)]
struct BetweenBody {
    holds: bool,
    receipts: u64,
    problems: Vec<BetweenProblemBody>,
    problems_left_out: u64,
}

#[derive(Serialize)]
struct BetweenProblemBody {
    directory: String,
    #[serde(flatten)]
    problem: ProblemBody,
}

impl ProblemBody {
    fn of(problem: &Problem) -> ProblemBody {
        ProblemBody {
            code: problem.code.name,
            file: problem.place.file(),
            line: problem.place.line,
            seq: problem.place.seq,
            message: problem.message.clone(),
        }
    }
}

impl Body {
    fn of(node: &Checked<'_>) -> Body {
        let Checked { path, directory, report } = node;
        let part = |part: Part| PartBody {
            file: part.file_name(),
            present: directory.has(part),
            problems: report.found_in(part),
        };
        Body {
            directory: path.display().to_string(),
            holds: report.holds(),
            parts: PARTS.into_iter().map(part).collect(),
            records: report.records,
            accounts: report.accounts,
            transfers: report.transfers,
            heads: report.heads,
            calls: report.calls,
            receipts: report.receipts,
            events: report.events,
            problems: report.problems.iter().map(ProblemBody::of).collect(),
            problems_left_out: report.problems_left_out(),
            not_checked: directory.not_checked().to_vec(),
            not_checked_left_out: directory.not_checked_left_out(),
        }
    }
}

/// One directory is an object as it always was, and so is one dossier; several are lists, and what is between them.
pub(super) fn json(
    holds: bool,
    (nodes, together): (&[Checked<'_>], Option<&Together>),
    dossiers: &[Dossier],
    cx: &mut Context<'_>,
) -> Result<()> {
    match (nodes, dossiers) {
        ([node], []) => return cx.out.object(holds, Body::of(node)),
        ([], [one]) => return cx.out.object(holds, dossier::Body::of(one)),
        _ => {}
    }
    let problem = |found: &Between| BetweenProblemBody {
        directory: nodes
            .get(found.node)
            .map_or_else(String::new, |node| node.path.display().to_string()),
        problem: ProblemBody::of(&found.problem),
    };
    let between = together.map(|together| BetweenBody {
        holds: together.holds(),
        receipts: together.receipts,
        problems: together.problems.iter().map(problem).collect(),
        problems_left_out: together.problems_left_out,
    });
    let directories = nodes.iter().map(Body::of).collect();
    let dossiers = dossiers.iter().map(dossier::Body::of).collect();
    cx.out.object(holds, TogetherBody { directories, between, dossiers })
}
