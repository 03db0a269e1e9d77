//! What a worker writes when a step is done: all of it, under its fence, or nothing.

use std::collections::BTreeSet;

use guild_bus::subject::Token;
use guild_protocol::env::UnixMs;
use guild_store::Tx;
use serde_json::{Value, json};

use super::answer::Answer;
use super::close::{By, Ending};
use super::head::{Active, State};
use super::plan::{Command, Plan};
use super::step::{Step, StepEnd, StepStatus, Usage};
use super::wait::{Run, Wait, WaitStatus};
use super::{
    CALLS_MAX, CARDS_MAX, COMMAND_SINK, Fence, check_count, end_of, fenced, renewed, run_ttl_ms,
};
use crate::card::{CARD_MAX_BYTES, Card, CardType, Role};
use crate::edge::{Edge, End, Phase, Primitive};
use crate::event::About;
use crate::inbox::{self, InboxRow, MessageType, Outcome};
use crate::roster::{AfterExecution, BODY_MAX_BYTES, check_subject};
use crate::row::{check_text, to_json};
use crate::{CardId, Error, Result, StepId, ToolCallId, code, pmo};

const NAME_MAX_BYTES: usize = 256;

/// A card that a step writes.
#[derive(Debug, Clone, PartialEq)]
pub struct StepCard {
    /// What it is about. Deliverables are written by the end of the turn.
    pub card_type: CardType,
    /// Who speaks.
    pub role: Role,
    /// What it says.
    pub content: Value,
    /// What is said about it.
    pub metadata: Value,
    /// Which call of the step it makes or answers: the place in [`ToolCallId::of`].
    pub call: Option<usize>,
}

/// A call that the turn waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its place among the calls of the step: [`ToolCallId::of`].
    pub place: usize,
    /// What is called.
    pub tool_name: String,
    /// With what.
    pub arguments: Value,
    /// What the model calls it.
    pub model_call_id: Option<String>,
    /// What the result does to the turn.
    pub after_execution: AfterExecution,
    /// Where the command goes; without one the worker runs it, under the lease of a run that has the fence's token.
    pub target_subject: Option<String>,
    /// How long the turn waits.
    pub timeout_ms: i64,
}

/// How a turn ends by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// How it went.
    pub outcome: Outcome,
    /// What is delivered; without it something that says that there is nothing.
    pub deliverable: Option<Value>,
    /// What went wrong, as a code.
    pub error_code: Option<String>,
}

/// What follows a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Then {
    /// Another step, by the same worker.
    Continue,
    /// Waiting for the results of calls.
    Suspend(Vec<Call>),
    /// Nothing.
    Finish(Finish),
}

/// A step that is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// That the worker still has the turn.
    pub fence: Fence,
    /// What is added to the output box.
    pub cards: Vec<StepCard>,
    /// What was used.
    pub usage: Usage,
    /// What else is known of the step.
    pub metadata: Value,
    /// What follows.
    pub then: Then,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// The next step begins.
    Continued {
        /// What its writes must show.
        fence: Fence,
        /// Its number.
        step_number: i64,
        /// How long the turn is given.
        until_ms: UnixMs,
    },
    /// The turn waits, unless all results were there already.
    Suspended {
        /// The calls, in the order given.
        calls: Vec<ToolCallId>,
        /// Whether it waits for nothing any more.
        resumed: bool,
    },
    /// The turn is over.
    Finished {
        /// What it has delivered.
        deliverable_card_id: CardId,
    },
}

/// Writes steps that are done. For each what became of it, or that its holder had lost the turn: then nothing of it is
/// written. A lease goes on for `ttl_ms` where its turn goes on.
pub fn commit_all(
    tx: &mut Tx<'_>,
    commits: &[Commit],
    ttl_ms: i64,
    now_ms: UnixMs,
) -> Result<Vec<Result<Committed>>> {
    check_count(commits.len())?;
    let until_ms = end_of("a lease", ttl_ms, now_ms)?;
    let run_until_ms = end_of("a run", run_ttl_ms(ttl_ms), now_ms)?;
    let mut plan = Plan::new(now_ms);
    plan.load_heads(tx, commits.iter().map(|commit| &commit.fence.key))?;
    plan.load_output_boxes(tx)?;
    let early = load_early(tx, commits)?;
    let mut answers = Vec::with_capacity(commits.len());
    for commit in commits {
        let answer = match plan.check(commit, run_until_ms) {
            Err(error) => Err(error),
            Ok(written) => Ok(plan.commit(commit, written, &early, until_ms)?),
        };
        answers.push(answer);
    }
    plan.settle(tx)?;
    Ok(answers)
}

/// Results that came before their calls are awaited.
fn load_early(tx: &mut Tx<'_>, commits: &[Commit]) -> Result<Vec<InboxRow>> {
    let suspends = commits.iter().filter(|commit| matches!(commit.then, Then::Suspend(_)));
    let turns: BTreeSet<_> = suspends.map(|commit| &commit.fence.agent_turn_id).collect();
    let rows = inbox::pending(tx, &turns.into_iter().collect::<Vec<_>>())?;
    Ok(rows.into_iter().filter(|row| row.message_type == MessageType::ToolResult).collect())
}

/// What a step writes, of the right form.
struct Written {
    cards: Vec<Card>,
    calls: Vec<(Wait, Card, Option<Command>)>,
    /// All calls of the step: JSON.
    tool_call_ids: String,
    metadata: String,
    deliverable: Option<String>,
}

impl Plan {
    /// Everything that can be wrong with a commit is found here, before anything is decided.
    fn check(&self, commit: &Commit, run_until_ms: UnixMs) -> Result<Written> {
        let active = self.held(&commit.fence)?;
        match &active.state {
            State::Running { step_id, .. } if *step_id == commit.fence.step_id => {}
            _ => return Err(fenced(&commit.fence)),
        }
        check_usage(&commit.usage)?;
        let calls = match &commit.then {
            Then::Suspend(calls) => calls.as_slice(),
            _ => &[],
        };
        check_places(commit, calls)?;
        let mut cards = Vec::with_capacity(commit.cards.len());
        for (place, card) in commit.cards.iter().enumerate() {
            cards.push(self.step_card(commit, place, card)?);
        }
        let mut awaited = Vec::with_capacity(calls.len());
        for call in calls {
            awaited.push(self.call(commit, active, call, run_until_ms)?);
        }
        let deliverable = match &commit.then {
            Then::Finish(finish) => {
                if let Some(error_code) = &finish.error_code {
                    check_text("error_code", error_code, NAME_MAX_BYTES)?;
                }
                let content = finish.deliverable.as_ref();
                content
                    .map(|content| to_json("deliverable", content, CARD_MAX_BYTES))
                    .transpose()?
            }
            _ => None,
        };
        let made = cards.iter().filter(|card| card.card_type == CardType::ToolCall);
        let made = made.filter_map(|card| card.tool_call_id.as_ref());
        let ids: Vec<&ToolCallId> =
            made.chain(awaited.iter().map(|(wait, ..)| &wait.tool_call_id)).collect();
        Ok(Written {
            tool_call_ids: to_json("calls", &ids, BODY_MAX_BYTES)?,
            metadata: to_json("metadata", &commit.metadata, BODY_MAX_BYTES)?,
            cards,
            calls: awaited,
            deliverable,
        })
    }

    fn step_card(&self, commit: &Commit, place: usize, new: &StepCard) -> Result<Card> {
        let Fence { key, agent_turn_id, step_id, .. } = &commit.fence;
        let about_call = matches!(new.card_type, CardType::ToolCall | CardType::ToolResult);
        if about_call != new.call.is_some() || new.card_type == CardType::Deliverable {
            let message = format!("a step cannot write a card of type {} like this", new.card_type);
            return Err(Error::refused(&code::MALFORMED, message));
        }
        Ok(Card {
            card_id: CardId::named(self.now_ms, &[step_id.as_str(), "card", &place.to_string()]),
            project_id: key.project_id.clone(),
            card_type: new.card_type,
            role: new.role,
            author_id: key.agent_id.as_str().to_owned(),
            agent_turn_id: Some(agent_turn_id.clone()),
            step_id: Some(step_id.clone()),
            tool_call_id: new.call.map(|place| ToolCallId::of(step_id, place)),
            content: to_json("content", &new.content, CARD_MAX_BYTES)?,
            metadata: to_json("metadata", &new.metadata, BODY_MAX_BYTES)?,
            created_ms: self.now_ms,
        })
    }

    /// A call as it is waited for, its card, and the command that makes it.
    fn call(
        &self,
        commit: &Commit,
        active: &Active,
        call: &Call,
        run_until_ms: UnixMs,
    ) -> Result<(Wait, Card, Option<Command>)> {
        let Fence { key, agent_turn_id, turn_epoch, step_id, token } = &commit.fence;
        Token::parse(&call.tool_name)?;
        if let Some(model_call_id) = &call.model_call_id {
            check_text("model_call_id", model_call_id, NAME_MAX_BYTES)?;
        }
        call.target_subject.as_deref().map(check_subject).transpose()?;
        let deadline_ms = end_of("the wait for a call", call.timeout_ms, self.now_ms)?;
        let tool_call_id = ToolCallId::of(step_id, call.place);
        let content = json!({
            "tool_name": call.tool_name,
            "arguments": call.arguments,
            "status": "called",
            "target_subject": call.target_subject,
        });
        let metadata = json!({ "model_call_id": call.model_call_id });
        let card = Card {
            card_id: CardId::of_call(&tool_call_id, self.now_ms),
            project_id: key.project_id.clone(),
            card_type: CardType::ToolCall,
            role: Role::Assistant,
            author_id: key.agent_id.as_str().to_owned(),
            agent_turn_id: Some(agent_turn_id.clone()),
            step_id: Some(step_id.clone()),
            tool_call_id: Some(tool_call_id.clone()),
            content: to_json("content", &content, CARD_MAX_BYTES)?,
            metadata: to_json("metadata", &metadata, BODY_MAX_BYTES)?,
            created_ms: self.now_ms,
        };
        let command = match &call.target_subject {
            Some(subject) => Some(command(commit, active, call, subject, &card, deadline_ms)?),
            None => None,
        };
        let wait = Wait {
            tool_call_id,
            key: key.clone(),
            agent_turn_id: agent_turn_id.clone(),
            turn_epoch: *turn_epoch,
            step_id: step_id.clone(),
            tool_name: call.tool_name.clone(),
            after_execution: call.after_execution,
            target_subject: call.target_subject.clone(),
            // Whoever wrote the step runs what nobody else is told of.
            run: call
                .target_subject
                .is_none()
                .then(|| Run { token: token.clone(), until_ms: run_until_ms }),
            status: WaitStatus::Waiting,
            result: None,
            deadline_ms,
            timeout_ms: call.timeout_ms,
            created_ms: self.now_ms,
            closed_ms: None,
        };
        Ok((wait, card, command))
    }

    fn commit(
        &mut self,
        commit: &Commit,
        written: Written,
        early: &[InboxRow],
        until_ms: UnixMs,
    ) -> Result<Committed> {
        let Written { cards, calls, tool_call_ids, metadata, deliverable } = written;
        let output_box_id = self.active(&commit.fence.key).map(|a| a.output_box_id.clone());
        for card in cards {
            self.put_card(card, output_box_id.as_ref());
        }
        let (status, error_code) = match &commit.then {
            Then::Continue => (StepStatus::Completed, None),
            Then::Suspend(_) => (StepStatus::Suspended, None),
            Then::Finish(Finish { outcome: Outcome::Failed, error_code, .. }) => {
                (StepStatus::Failed, error_code.clone())
            }
            Then::Finish(finish) => (StepStatus::Completed, finish.error_code.clone()),
        };
        self.changes.steps.push(StepEnd {
            step_id: commit.fence.step_id.clone(),
            status,
            tool_call_ids,
            error_code,
            usage: commit.usage.clone(),
            metadata,
        });
        match &commit.then {
            Then::Continue => self.go_on(&commit.fence, until_ms),
            Then::Suspend(_) => self.suspend(&commit.fence, calls, early),
            Then::Finish(finish) => self.end(&commit.fence, finish, deliverable),
        }
    }

    /// One step more is done.
    fn count_step(&mut self, fence: &Fence) -> Result<i64> {
        let head = self.head_mut(&fence.key)?;
        let Some(active) = &mut head.active else { return Ok(0) };
        active.steps_taken = active.steps_taken.saturating_add(1);
        active.lost_leases = 0;
        Ok(active.steps_taken)
    }

    fn go_on(&mut self, fence: &Fence, renewed_ms: UnixMs) -> Result<Committed> {
        let done = self.count_step(fence)?;
        let number = done.saturating_add(1);
        let Fence { key, agent_turn_id, turn_epoch, .. } = fence;
        let step = Step::begun(key, agent_turn_id, *turn_epoch, number, self.now_ms);
        let next = Fence { step_id: step.step_id.clone(), ..fence.clone() };
        self.changes.new_steps.push(step);
        let now_ms = self.now_ms;
        let mut until = renewed_ms;
        if let Some(active) = &mut self.head_mut(key)?.active
            && let State::Running { step_id, until_ms, .. } = &mut active.state
        {
            *step_id = next.step_id.clone();
            *until_ms = renewed(*until_ms, renewed_ms, now_ms);
            until = *until_ms;
        }
        if let Some(active) = self.active(key) {
            let (channel_id, turn_epoch) = (&active.channel_id, *turn_epoch);
            let trace_id = active.trace_id.as_deref();
            let about = About { key, channel_id, agent_turn_id, turn_epoch, trace_id };
            let told = about.step(done)?;
            self.changes.events.push(told);
        }
        Ok(Committed::Continued { fence: next, step_number: number, until_ms: until })
    }

    fn suspend(
        &mut self,
        fence: &Fence,
        calls: Vec<(Wait, Card, Option<Command>)>,
        early: &[InboxRow],
    ) -> Result<Committed> {
        self.count_step(fence)?;
        let ids: Vec<ToolCallId> =
            calls.iter().map(|(wait, ..)| wait.tool_call_id.clone()).collect();
        let waiting = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let deadline_ms = calls.iter().map(|(wait, ..)| wait.deadline_ms).min();
        let deadline_ms = deadline_ms.unwrap_or(self.now_ms);
        for (wait, card, command) in calls {
            self.await_call(fence, wait, card, command);
        }
        let step_id = fence.step_id.clone();
        self.set_state(&fence.key, State::Suspended { step_id, waiting, deadline_ms })?;
        let mut resumed = false;
        for row in early.iter().filter(|row| row.agent_turn_id == fence.agent_turn_id) {
            let answer = Answer::of_early(row).filter(|early| ids.contains(&early.tool_call_id));
            if let Some(answer) = answer {
                resumed |= self.answer(&answer)? == Some(true);
            }
        }
        Ok(Committed::Suspended { calls: ids, resumed })
    }

    fn await_call(&mut self, fence: &Fence, wait: Wait, card: Card, command: Option<Command>) {
        let Some(active) = self.active(&fence.key) else { return };
        let (channel_id, output_box_id) = (active.channel_id.clone(), active.output_box_id.clone());
        let edge = Edge {
            project_id: fence.key.project_id.clone(),
            channel_id,
            primitive: Primitive::ToolCall,
            phase: Phase::Request,
            source: End {
                agent_id: Some(fence.key.agent_id.clone()),
                agent_turn_id: Some(fence.agent_turn_id.clone()),
            },
            source_step_id: Some(fence.step_id.clone()),
            target: End::default(),
            correlation_id: wait.tool_call_id.as_str().to_owned(),
            recursion_depth: active.recursion_depth,
            trace_id: active.trace_id.clone(),
        };
        self.changes.edges.push(edge);
        self.put_card(card, Some(&output_box_id));
        self.changes.new_waits.insert(wait.tool_call_id.clone());
        self.waits.insert(wait.tool_call_id.clone(), wait);
        self.changes.commands.extend(command);
    }

    fn end(
        &mut self,
        fence: &Fence,
        finish: &Finish,
        deliverable: Option<String>,
    ) -> Result<Committed> {
        self.count_step(fence)?;
        let ending = Ending {
            outcome: finish.outcome,
            error_code: finish.error_code.clone(),
            deliverable,
            words: "The turn ended without a deliverable.".to_owned(),
            by: By::Itself,
        };
        match self.close(&fence.key, &ending)? {
            Some(deliverable_card_id) => Ok(Committed::Finished { deliverable_card_id }),
            None => Err(fenced(fence)),
        }
    }
}

fn check_usage(usage: &Usage) -> Result<()> {
    if let Some(model) = &usage.model {
        check_text("model", model, NAME_MAX_BYTES)?;
    }
    if usage.prompt_tokens.min(usage.completion_tokens).min(usage.cost_micro_usd) < 0 {
        return Err(Error::refused(&code::MALFORMED, "nothing uses less than nothing"));
    }
    if usage.cost_unknown && usage.cost_micro_usd != 0 {
        return Err(Error::refused(&code::MALFORMED, "a cost is known or it is zero"));
    }
    Ok(())
}

/// Each call of a step is made once and answered at most once.
fn check_places(commit: &Commit, calls: &[Call]) -> Result<()> {
    let of = |card_type| {
        let cards = commit.cards.iter().filter(move |card| card.card_type == card_type);
        cards.filter_map(|card| card.call)
    };
    let awaited = || calls.iter().map(|call| call.place);
    let (mut made, mut answered) = (BTreeSet::new(), BTreeSet::new());
    let once = of(CardType::ToolCall).chain(awaited()).all(|place| made.insert(place))
        && of(CardType::ToolResult).chain(awaited()).all(|place| answered.insert(place));
    let in_range = made.iter().chain(&answered).all(|place| *place < CALLS_MAX);
    if !once || !in_range {
        let message = "a call is made or answered twice, or there are too many";
        return Err(Error::refused(&code::MALFORMED, message));
    }
    if matches!(commit.then, Then::Suspend(_)) && calls.is_empty() {
        return Err(Error::refused(&code::MALFORMED, "a turn cannot wait for no call"));
    }
    if commit.cards.len() > CARDS_MAX {
        let message = format!("a step writes at most {CARDS_MAX} cards");
        return Err(Error::refused(&code::TOO_LARGE, message));
    }
    Ok(())
}

/// The message that calls a tool. Who calls stands beside what is called: a payload never says who.
fn command(
    commit: &Commit,
    active: &Active,
    call: &Call,
    subject: &str,
    card: &Card,
    deadline_ms: UnixMs,
) -> Result<Command> {
    let fence = &commit.fence;
    let tool_call_id = card.tool_call_id.as_ref().map(ToolCallId::as_str);
    let body = json!({
        "subject": subject,
        "headers": {
            "project_id": fence.key.project_id,
            "channel_id": active.channel_id,
            "agent_id": fence.key.agent_id,
            "agent_turn_id": fence.agent_turn_id,
            "turn_epoch": fence.turn_epoch,
            "step_id": fence.step_id,
            "tool_call_id": tool_call_id,
            "recursion_depth": active.recursion_depth,
            "deadline_ms": deadline_ms,
            "trace_id": active.trace_id,
            "parent_step_id": active.parent_step_id.as_ref().map(StepId::as_str),
        },
        "payload": {
            "tool_name": call.tool_name,
            "after_execution": call.after_execution.as_str(),
            "tool_call_card_id": card.card_id,
        },
    });
    let idempotency_key = tool_call_id.unwrap_or_default().to_owned();
    // One lane for each place that commands go to: a tool that is away holds up nobody else. What orchestration does
    // stands alone.
    let (sink, lane) = match subject.starts_with(pmo::SUBJECT) {
        true => (pmo::SINK, idempotency_key.clone()),
        false => {
            (COMMAND_SINK, format!("{}.{}.{subject}", fence.key.project_id, active.channel_id))
        }
    };
    Ok(Command { sink, lane, idempotency_key, body: to_json("command", &body, BODY_MAX_BYTES)? })
}
