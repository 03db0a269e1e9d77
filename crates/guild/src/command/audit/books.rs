//! The books of this node, from its database.

use guild_protocol::error::Code;
use guild_store::code::INCONSISTENT;
use serde::Serialize;

use crate::command::Context;
use crate::error::{Error, Result};
use crate::node;
use crate::output::Answer;
use crate::real::runtime;

/// What was looked at, of one moment.
struct Books {
    ledger: guild_ledger::audit::Report,
    hosting: guild_hosting::audit::Report,
    budget: guild_market::budget::audit::Report,
    kernel: guild_kernel::audit::Report,
    delegations: guild_market::delegation::audit::Report,
    disputes: guild_market::dispute::audit::Report,
    lifecycle: guild_market::health::audit::Report,
}

impl Books {
    /// Each part with its extent and its problems.
    fn parts(&self) -> [(&'static str, String, &[String]); 7] {
        let guild_ledger::audit::Report { accounts, transfers, problems } = &self.ledger;
        let ledger = format!("{transfers} transfers between {accounts} accounts");
        let guild_hosting::audit::Report { jobs, sandboxes, minutes, lost_units, .. } =
            &self.hosting;
        let mut hosting = format!("{jobs} jobs, {sandboxes} sandboxes, {minutes} minutes");
        if *lost_units > 0 {
            hosting.push_str(&format!(", {lost_units} micro-USD borne by this node"));
        }
        let guild_market::budget::audit::Report { envelopes, charges, .. } = &self.budget;
        let budget = format!("{envelopes} envelopes, {charges} orders charged");
        let guild_kernel::audit::Report { turns, over, steps, .. } = &self.kernel;
        let kernel = format!("{turns} turns, {over} of them over, {steps} steps");
        let guild_market::delegation::audit::Report { delegations, replicas, .. } =
            &self.delegations;
        let delegations = format!("{delegations} delegations by {replicas} orders");
        let guild_market::dispute::audit::Report { disputes, open, held_units, .. } =
            &self.disputes;
        let mut disputed = format!("{disputes} disputes, {open} of them open");
        if *held_units > 0 {
            disputed.push_str(&format!(", {held_units} msat held for them"));
        }
        let guild_market::health::audit::Report { entries, steps, .. } = &self.lifecycle;
        let lifecycle = format!("{entries} entries of the matrix, {steps} changes of a stage");
        [
            ("ledger", ledger, problems),
            ("hosting", hosting, &self.hosting.problems),
            ("budget", budget, &self.budget.problems),
            ("kernel", kernel, &self.kernel.problems),
            ("delegations", delegations, &self.delegations.problems),
            ("disputes", disputed, &self.disputes.problems),
            ("lifecycle", lifecycle, &self.lifecycle.problems),
        ]
    }

    fn holds(&self) -> bool {
        self.parts().iter().all(|(_, _, problems)| problems.is_empty())
    }
}

pub(super) fn run(cx: &mut Context<'_>) -> Result<Answer> {
    let service = node::open_read_only(&cx.config()?)?;
    let read = service.handle().read(|rx| {
        let ledger = guild_ledger::audit::run(rx)?;
        let hosting = guild_hosting::audit::run(rx)?;
        let budget = guild_market::budget::audit::run(rx)?;
        let kernel = guild_kernel::audit::run(rx)?;
        let delegations = guild_market::delegation::audit::run(rx)?;
        let disputes = guild_market::dispute::audit::run(rx)?;
        let lifecycle = guild_market::health::audit::run(rx)?;
        Ok::<_, Error>(Books { ledger, hosting, budget, kernel, delegations, disputes, lifecycle })
    });
    let books = runtime().map(|runtime| runtime.block_on(read));
    service.close();
    let books = books??;
    if cx.out.json() {
        json(&books, cx)?;
    } else {
        text(&books, cx)?;
    }
    Ok(Answer::of(books.holds()))
}

fn text(books: &Books, cx: &mut Context<'_>) -> Result<()> {
    let verdict = if books.holds() { "hold" } else { "do NOT hold" };
    cx.out.line(&format!("the books of this node {verdict}"))?;
    for (name, extent, problems) in books.parts() {
        match problems.len() {
            0 => cx.out.line(&format!("  ok           {name:<12}  {extent}"))?,
            count => {
                cx.out.line(&format!("  FAILED       {name:<12}  {extent}, {count} problems"))?;
            }
        }
    }
    if !books.holds() {
        cx.out.line("")?;
    }
    let Code { name: code, meaning, .. } = INCONSISTENT;
    for (name, _, problems) in books.parts() {
        for problem in problems {
            cx.out.line(&format!("  {name}: {problem}"))?;
            cx.out.line(&format!("      [{code}] {meaning}"))?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct Body<'a> {
    holds: bool,
    parts: Vec<PartBody>,
    accounts: usize,
    transfers: u64,
    jobs: u64,
    sandboxes: u64,
    minutes: u64,
    overrun_ms: i64,
    lost_micro_usd: i64,
    envelopes: i64,
    charges: i64,
    turns: i64,
    turns_over: i64,
    steps: i64,
    delegations: i64,
    disputes: i64,
    disputes_open: i64,
    entries: i64,
    stage_changes: i64,
    problems: Vec<ProblemBody<'a>>,
}

#[derive(Serialize)]
struct PartBody {
    part: &'static str,
    problems: usize,
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    code: &'static str,
    part: &'static str,
    message: &'a str,
}

impl ProblemBody<'_> {
    fn of<'a>(part: &'static str, message: &'a str) -> ProblemBody<'a> {
        ProblemBody { code: INCONSISTENT.name, part, message }
    }
}

fn json(books: &Books, cx: &mut Context<'_>) -> Result<()> {
    let parts = books.parts();
    let body = Body {
        holds: books.holds(),
        parts: parts
            .iter()
            .map(|(part, _, problems)| PartBody { part, problems: problems.len() })
            .collect(),
        accounts: books.ledger.accounts,
        transfers: books.ledger.transfers,
        jobs: books.hosting.jobs,
        sandboxes: books.hosting.sandboxes,
        minutes: books.hosting.minutes,
        overrun_ms: books.hosting.overrun_ms,
        lost_micro_usd: books.hosting.lost_units,
        envelopes: books.budget.envelopes,
        charges: books.budget.charges,
        turns: books.kernel.turns,
        turns_over: books.kernel.over,
        steps: books.kernel.steps,
        delegations: books.delegations.delegations,
        disputes: books.disputes.disputes,
        disputes_open: books.disputes.open,
        entries: books.lifecycle.entries,
        stage_changes: books.lifecycle.steps,
        problems: parts
            .iter()
            .flat_map(|(part, _, problems)| {
                problems.iter().map(|message| ProblemBody::of(part, message))
            })
            .collect(),
    };
    cx.out.object(books.holds(), body)
}
