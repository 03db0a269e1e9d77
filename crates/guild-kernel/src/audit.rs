//! Recomputes from rows what must hold of turns, without the code that decided it.
//!
//! | what must hold | how it is seen |
//! |---|---|
//! | an agent has at most one open turn, and a turn one agent | heads beside rows of the inbox |
//! | a turn that is over has one terminal event and one deliverable, an open one none | inbox, events, cards |
//! | epochs only grow, and nothing happens after the end | the events in their order |
//! | nothing is written but under a lease | cards beside the steps that wrote them |
//! | a call has at most one result, and each is in its output box | calls, cards, boxes |
//! | nothing waits for nothing: no idle agent with a queue, no suspended turn without an open call | heads, calls |
//! | a response is as deep as its request, and nothing is too deep | edges |
//! | whoever waits for a turn is told of its end, and who works for one that was ended is stopped | turns, calls, stops |
//! | what is told of a turn belongs to its trace | events, turns |
//! | a batch has one call and one end, which follows from its tasks, and none of them is forgotten | batches, turns |
//! | boxes have no gaps | entries |
//! | a command is queued if and only if its call is written down | calls, their cards, the outbox |
//! | no payload says who acts | the outbox, rows of the inbox |
//! | the turns of an agent begin in the order in which they were asked for | the events in their order |
//!
//! That commands leave the node is the outbox's to keep. It forgets what it has delivered, and says from when that was.

use std::collections::{BTreeMap, VecDeque};

use guild_store::event::{self, Event};
use guild_store::{Rx, args};
use serde::Deserialize;

use crate::{QUEUED, Result, TASK, TOPIC};

mod batches;
mod commands;
mod rules;

/// More problems than these are not listed, and no more of one kind than the rules ask for.
const PROBLEMS_MAX: usize = 1_000;
const EVENTS_AT_ONCE: i64 = 1_000;
/// So many turns that began too early are looked up; more of them are the same bug.
const OVERTAKEN_MAX: usize = 1_000;

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many turns were accepted.
    pub turns: i64,
    /// How many of them are over.
    pub over: i64,
    /// How many steps were begun.
    pub steps: i64,
    /// How many events there are.
    pub events: i64,
    /// What does not hold; empty when all is well.
    pub problems: Vec<String>,
}

impl Report {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Looks at everything.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let mut report = Report::default();
    let counts: Option<(i64, i64)> = rx.first(
        "SELECT count(*), count(closed_ms) FROM agent_inbox WHERE message_type = 'turn'",
        args![],
    )?;
    (report.turns, report.over) = counts.unwrap_or_default();
    let steps: Option<(i64,)> = rx.first("SELECT count(*) FROM agent_steps", args![])?;
    report.steps = steps.map_or(0, |(count,)| count);
    for (sql, words) in rules::ALL.iter().chain(batches::ALL) {
        let subjects: Vec<(String,)> = rx.all(*sql, args![])?;
        for (subject,) in subjects {
            report.problem(format!("{subject} {words}"));
        }
    }
    commands::look(rx, &mut report)?;
    walk(rx, &mut report)?;
    Ok(report)
}

/// What an event says of its turn.
#[derive(Deserialize)]
struct Said {
    project_id: String,
    agent_id: String,
    agent_turn_id: String,
    turn_epoch: i64,
    status: String,
}

/// What was seen of an agent so far.
#[derive(Default)]
struct Seen {
    epoch: i64,
    /// The turn that it works on, from the first lease to the end.
    works_on: Option<String>,
    /// The turns that were asked of it and have neither begun nor ended, in their order.
    asked: VecDeque<String>,
}

/// A turn that began although another one was asked for before it.
struct Overtaken {
    began: String,
    before: String,
}

/// Goes through the events in their order.
fn walk(rx: &mut Rx<'_>, report: &mut Report) -> Result<()> {
    let mut agents: BTreeMap<(String, String), Seen> = BTreeMap::new();
    let mut overtaken: Vec<Overtaken> = Vec::new();
    let mut after = 0;
    loop {
        let page = event::after(rx, TOPIC, after, EVENTS_AT_ONCE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for event in &page {
            report.events = report.events.saturating_add(1);
            match serde_json::from_str(&event.body) {
                Ok(said) => {
                    look(event, &said, &mut agents, report);
                    if let Some(early) = order(event, &said, &mut agents)
                        && overtaken.len() < OVERTAKEN_MAX
                    {
                        overtaken.push(early);
                    }
                }
                Err(error) => report.problem(format!("event {} cannot be read: {error}", event.id)),
            }
        }
    }
    for Overtaken { began, before } in &overtaken {
        if was_overtaken(rx, began, before)? {
            report.problem(format!("{began} began before {before}, which was asked for earlier"));
        }
    }
    let heads: Vec<(String, String, i64)> =
        rx.all("SELECT project_id, agent_id, turn_epoch FROM agent_state_head", args![])?;
    for (project_id, agent_id, epoch) in heads {
        let name = format!("{project_id}/{agent_id}");
        if let Some(seen) = agents.get(&(project_id, agent_id))
            && seen.epoch > epoch
        {
            report.problem(format!("{name} is in epoch {epoch}, an event in {}", seen.epoch));
        }
    }
    Ok(())
}

fn look(
    event: &Event,
    said: &Said,
    agents: &mut BTreeMap<(String, String), Seen>,
    report: &mut Report,
) {
    let Said { agent_turn_id, turn_epoch, .. } = said;
    if !event.id.starts_with(&format!("{agent_turn_id}/")) {
        report.problem(format!("event {} is about {agent_turn_id}", event.id));
    }
    let seen = agents.entry((said.project_id.clone(), said.agent_id.clone())).or_default();
    let works_on = seen.works_on.as_deref();
    if said.status == "running" {
        if *turn_epoch <= seen.epoch {
            report.problem(format!(
                "{agent_turn_id} runs in epoch {turn_epoch} after {}",
                seen.epoch
            ));
        }
        if works_on.is_some_and(|other| other != agent_turn_id) {
            report
                .problem(format!("{agent_turn_id} runs while {} is open", works_on.unwrap_or("?")));
        }
        seen.works_on = Some(agent_turn_id.clone());
    } else if works_on == Some(agent_turn_id) {
        if *turn_epoch < seen.epoch {
            report.problem(format!("event {} comes after epoch {}", event.id, seen.epoch));
        }
        if event.kind == TASK {
            seen.works_on = None;
        }
    }
    seen.epoch = seen.epoch.max(*turn_epoch);
}

/// Turns of an agent begin in the order in which they were asked for; the one that does not.
fn order(
    event: &Event,
    said: &Said,
    agents: &mut BTreeMap<(String, String), Seen>,
) -> Option<Overtaken> {
    let seen = agents.get_mut(&(said.project_id.clone(), said.agent_id.clone()))?;
    let turn = &said.agent_turn_id;
    match event.kind.as_str() {
        QUEUED => {
            seen.asked.push_back(turn.clone());
            None
        }
        _ => {
            let place = seen.asked.iter().position(|asked| asked == turn)?;
            seen.asked.remove(place);
            let before = seen.asked.front().filter(|_| place > 0 && event.kind != TASK)?;
            Some(Overtaken { began: turn.clone(), before: before.clone() })
        }
    }
}

/// Whether the rows say so too. A turn that could not be told of may be over without an event: it has no step.
fn was_overtaken(rx: &mut Rx<'_>, began: &str, before: &str) -> Result<bool> {
    let found: Option<(i64,)> = rx.first(
        "SELECT count(*) FROM agent_inbox AS b JOIN agent_inbox AS e
           ON e.message_type = 'turn' AND e.agent_turn_id = $2 AND e.seq < b.seq
           AND e.project_id = b.project_id AND e.agent_id = b.agent_id
         WHERE b.message_type = 'turn' AND b.agent_turn_id = $1 AND (e.closed_ms IS NULL
           OR EXISTS (SELECT 1 FROM agent_steps AS s WHERE s.agent_turn_id = e.agent_turn_id))",
        args![began, before],
    )?;
    Ok(found.is_some_and(|(count,)| count > 0))
}
