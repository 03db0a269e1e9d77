//! Accepting turns. The same wish under the same correlation is the same turn, however often it comes.

use std::collections::BTreeMap;

use guild_protocol::env::UnixMs;
use guild_store::Tx;
use serde_json::Value;

use super::plan::Plan;
use super::{DEPTH_MAX, check_count};
use crate::edge::{Edge, End, Phase, Primitive};
use crate::event::About;
use crate::inbox::{self, InboxRow, InboxStatus, MessageType, TurnHeaders, TurnPayload};
use crate::roster::{AgentStatus, BODY_MAX_BYTES};
use crate::row::{check_text, to_json};
use crate::{
    AgentId, AgentKey, AgentTurnId, BoxId, ChannelId, Error, InboxId, Result, StepId, ToolCallId,
    code, trace,
};

const CORRELATION_MAX_BYTES: usize = 256;

/// The turn that asks for another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Whose.
    pub agent_id: AgentId,
    /// Which. It must be open.
    pub agent_turn_id: AgentTurnId,
    /// In which of its steps.
    pub step_id: Option<StepId>,
    /// The call that the end of the new turn answers. The parent must wait for it.
    pub answers: Option<ToolCallId>,
}

/// A turn that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    /// Of whom.
    pub key: AgentKey,
    /// Where.
    pub channel_id: ChannelId,
    /// What whoever asks calls it: unique in the project.
    pub correlation_id: String,
    /// How it thinks; as its agent does, if nothing is said.
    pub profile_name: Option<String>,
    /// What it reads.
    pub context_box_id: BoxId,
    /// What it writes to.
    pub output_box_id: BoxId,
    /// The turn that asks. Without one it is the first of its kind, at depth zero.
    pub parent: Option<Parent>,
    /// The trace that it belongs to: its id, or a whole `traceparent` whose span led to it. Without one it is that of
    /// the turn that asks, or a new one.
    pub trace_id: Option<String>,
    /// What else whoever asks wants to say.
    pub metadata: Value,
}

/// A turn that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its name.
    pub agent_turn_id: AgentTurnId,
    /// Whether it had been accepted before.
    pub known: bool,
}

/// Accepts turns, and begins those whose agents are idle. One answer for each, in order.
pub fn enqueue_all(
    tx: &mut Tx<'_>,
    new: &[NewTurn],
    now_ms: UnixMs,
) -> Result<Vec<Result<Accepted>>> {
    check_count(new.len())?;
    let mut plan = Plan::new(now_ms);
    // Rows are looked for only by what rows can hold.
    let formed: Vec<Result<()>> = new.iter().map(NewTurn::check_form).collect();
    let asked: Vec<&NewTurn> =
        new.iter().zip(&formed).filter(|(_, formed)| formed.is_ok()).map(|(new, _)| new).collect();
    let mut known = plan.load_for_enqueue(tx, &asked)?;
    let mut answers = Vec::with_capacity(new.len());
    for (new, formed) in new.iter().zip(formed) {
        let wish = match formed.and_then(|()| plan.wish(new)) {
            Ok(wish) => wish,
            Err(error) => {
                answers.push(Err(error));
                continue;
            }
        };
        let name = (new.key.project_id.as_str().to_owned(), new.correlation_id.clone());
        if let Some(row) = known.get(&name) {
            answers.push(wish.again(row));
            continue;
        }
        answers.push(match plan.fit(new, &wish) {
            Err(error) => Err(error),
            Ok(()) => {
                let row = plan.accept(new, wish)?;
                let agent_turn_id = row.agent_turn_id.clone();
                known.insert(name, row);
                Ok(Accepted { agent_turn_id, known: false })
            }
        });
    }
    plan.settle(tx)?;
    Ok(answers)
}

/// A turn as it would be written.
struct Wish {
    /// Without a trace, unless one is named.
    headers: TurnHeaders,
    payload: TurnPayload,
    payload_json: String,
    key: AgentKey,
    channel_id: ChannelId,
}

impl Wish {
    /// What is answered if something was accepted under this correlation before. Who asks, and for what, must be the
    /// same; how deep the parent is now does not matter, nor the span of this try.
    fn again(&self, row: &InboxRow) -> Result<Accepted> {
        let mut before = row.turn_headers().unwrap_or_default();
        before.recursion_depth = self.headers.recursion_depth;
        before.parent_traceparent = self.headers.parent_traceparent.clone();
        if self.headers.trace_id.is_none() {
            before.trace_id = None;
        }
        let same = row.key == self.key
            && row.channel_id == self.channel_id
            && row.payload == self.payload_json
            && before == self.headers;
        if same {
            return Ok(Accepted { agent_turn_id: row.agent_turn_id.clone(), known: true });
        }
        let message =
            format!("{:?} names {}, which is another turn", row.correlation_id, row.agent_turn_id);
        Err(Error::refused(&code::CONFLICT, message))
    }
}

type Names = BTreeMap<(String, String), InboxRow>;

impl Plan {
    fn load_for_enqueue(&mut self, tx: &mut Tx<'_>, new: &[&NewTurn]) -> Result<Names> {
        self.load_seq(tx)?;
        let asked: BTreeMap<(&str, &str), &AgentKey> = new
            .iter()
            .map(|new| ((new.key.project_id.as_str(), new.correlation_id.as_str()), &new.key))
            .collect();
        let asked: Vec<(&AgentKey, MessageType, &str)> =
            asked.into_iter().map(|((_, name), key)| (key, MessageType::Turn, name)).collect();
        let rows = inbox::by_correlation(tx, &asked)?;
        let keys: Vec<&AgentKey> = new.iter().map(|new| &new.key).collect();
        self.load_agents(tx, &keys)?;
        let parents: Vec<AgentKey> = new.iter().filter_map(|new| new.parent_key()).collect();
        self.load_heads(tx, keys.iter().copied().chain(&parents))?;
        let calls: Vec<&ToolCallId> = new
            .iter()
            .filter_map(|new| new.parent.as_ref().and_then(|parent| parent.answers.as_ref()))
            .collect();
        if !calls.is_empty() {
            self.load_calls(tx, &calls)?;
        }
        self.load_boxes(tx, new.iter().flat_map(|new| [&new.context_box_id, &new.output_box_id]))?;
        let names: Vec<Option<String>> =
            new.iter().map(|new| self.profile_of(new).map(str::to_owned)).collect();
        let profiles = new
            .iter()
            .zip(&names)
            .filter_map(|(new, name)| Some((&new.key.project_id, name.as_deref()?)))
            .collect();
        self.load_profiles(tx, &profiles)?;
        let name = |row: InboxRow| {
            ((row.key.project_id.as_str().to_owned(), row.correlation_id.clone()), row)
        };
        Ok(rows.into_iter().map(name).collect())
    }

    fn profile_of<'a>(&'a self, new: &'a NewTurn) -> Option<&'a str> {
        let of_agent = || self.agents.get(&new.key).map(|agent| agent.profile_name.as_str());
        new.profile_name.as_deref().or_else(of_agent)
    }

    /// The turn as it would be written.
    fn wish(&self, new: &NewTurn) -> Result<Wish> {
        let Some(profile_name) = self.profile_of(new) else {
            return Err(Error::refused(
                &code::UNKNOWN_AGENT,
                format!("there is no agent {}", new.key),
            ));
        };
        let above = new.parent_key().and_then(|key| self.active(&key));
        let recursion_depth = match (&new.parent, above) {
            (None, _) => 0,
            (Some(_), above) => above.map_or(0, |active| active.recursion_depth).saturating_add(1),
        };
        let parent = new.parent.as_ref();
        let given = new.trace_id.as_deref().map(trace::Given::parse).transpose()?;
        let (trace_id, parent_traceparent) =
            given.map(|given| (given.trace_id, given.parent_traceparent)).unzip();
        let headers = TurnHeaders {
            recursion_depth,
            trace_id,
            parent_traceparent: parent_traceparent.flatten(),
            parent_agent_id: parent.map(|parent| parent.agent_id.clone()),
            parent_agent_turn_id: parent.map(|parent| parent.agent_turn_id.clone()),
            parent_step_id: parent.and_then(|parent| parent.step_id.clone()),
            answers_tool_call_id: parent.and_then(|parent| parent.answers.clone()),
        };
        let payload = TurnPayload {
            profile_name: profile_name.to_owned(),
            context_box_id: new.context_box_id.clone(),
            output_box_id: new.output_box_id.clone(),
            metadata: new.metadata.clone(),
        };
        Ok(Wish {
            payload_json: to_json("payload", &payload, BODY_MAX_BYTES)?,
            headers,
            payload,
            key: new.key.clone(),
            channel_id: new.channel_id.clone(),
        })
    }

    /// Whether all that the turn needs is there.
    fn fit(&self, new: &NewTurn, wish: &Wish) -> Result<()> {
        if let Some(parent) = &new.parent {
            self.fit_parent(new, parent)?;
        }
        match self.unfit(&wish.key, &wish.payload, wish.headers.recursion_depth) {
            None => Ok(()),
            Some((code, message)) => Err(Error::refused(code, message)),
        }
    }

    fn fit_parent(&self, new: &NewTurn, parent: &Parent) -> Result<()> {
        let key =
            AgentKey { project_id: new.key.project_id.clone(), agent_id: parent.agent_id.clone() };
        let open = self.active(&key).is_some_and(|a| a.agent_turn_id == parent.agent_turn_id);
        let awaited = parent.answers.as_ref().is_none_or(|call| {
            let wait = self.waits.get(call);
            wait.is_some_and(|wait| wait.key == key && self.is_awaited(wait))
        });
        if open && awaited {
            return Ok(());
        }
        let message = format!("{} waits for nothing that this could answer", parent.agent_turn_id);
        Err(Error::refused(&code::PARENT_CLOSED, message))
    }

    /// Why a turn cannot begin, if it cannot.
    pub(super) fn unfit(
        &self,
        key: &AgentKey,
        payload: &TurnPayload,
        recursion_depth: i64,
    ) -> Option<(&'static guild_protocol::error::Code, String)> {
        let takes_work = |key: &AgentKey| {
            self.agents.get(key).is_some_and(|agent| agent.status == AgentStatus::Active)
        };
        if !takes_work(key) || !self.heads.contains_key(key) {
            return Some((&code::UNKNOWN_AGENT, format!("no agent {key} takes work")));
        }
        let (project_id, name) = (&key.project_id, &payload.profile_name);
        if !self.has_profile(project_id, name) {
            return Some((&code::UNKNOWN_PROFILE, format!("{project_id} has no profile {name:?}")));
        }
        let boxes = [&payload.context_box_id, &payload.output_box_id];
        if let Some(missing) = boxes.into_iter().find(|id| !self.has_box(project_id, id)) {
            return Some((&code::UNKNOWN_BOX, format!("{project_id} has no box {missing}")));
        }
        if !(0..DEPTH_MAX).contains(&recursion_depth) {
            let message = format!("depth {recursion_depth} of less than {DEPTH_MAX}");
            return Some((&code::TOO_DEEP, message));
        }
        None
    }

    /// The trace that the turn belongs to, and the span which led to it.
    fn traced(&self, new: &NewTurn, headers: TurnHeaders, id: &AgentTurnId) -> TurnHeaders {
        let above = new.parent_key().and_then(|key| self.active(&key));
        let of_parent = || {
            let (above, parent) = (above?, new.parent.as_ref()?);
            let (turn, trace_id) = (parent.agent_turn_id.as_str(), above.trace_id.as_deref());
            let span_of = parent.answers.as_ref().map_or(turn, ToolCallId::as_str);
            trace::Given::parse(&trace::traceparent(trace_id, turn, span_of)).ok()
        };
        if headers.trace_id.is_some() {
            return headers;
        }
        let (trace_id, parent_traceparent) = match of_parent() {
            Some(given) => (given.trace_id, given.parent_traceparent),
            None => (trace::own(id.as_str()), None),
        };
        TurnHeaders { trace_id: Some(trace_id), parent_traceparent, ..headers }
    }

    fn accept(&mut self, new: &NewTurn, wish: Wish) -> Result<InboxRow> {
        let (project_id, now_ms) = (new.key.project_id.as_str(), self.now_ms);
        let words = [project_id, MessageType::Turn.as_str(), &new.correlation_id];
        let agent_turn_id = AgentTurnId::named(now_ms, &words);
        let headers = self.traced(new, wish.headers, &agent_turn_id);
        let row = InboxRow {
            seq: self.next_seq(),
            inbox_id: InboxId::named(now_ms, &words),
            key: wish.key,
            channel_id: wish.channel_id,
            message_type: MessageType::Turn,
            correlation_id: new.correlation_id.clone(),
            agent_turn_id,
            turn_epoch: self.heads.get(&new.key).map_or(0, |head| head.turn_epoch),
            parent_agent_turn_id: headers.parent_agent_turn_id.clone(),
            context_headers: to_json("headers", &headers, BODY_MAX_BYTES)?,
            payload: wish.payload_json,
            status: InboxStatus::Queued,
            outcome: None,
            error_code: None,
            retry_count: 0,
            next_retry_ms: None,
            created_ms: now_ms,
            closed_ms: None,
        };
        self.changes.edges.push(Edge {
            project_id: row.key.project_id.clone(),
            channel_id: row.channel_id.clone(),
            primitive: Primitive::Enqueue,
            phase: Phase::Request,
            source: End {
                agent_id: headers.parent_agent_id.clone(),
                agent_turn_id: headers.parent_agent_turn_id.clone(),
            },
            source_step_id: headers.parent_step_id.clone(),
            target: End {
                agent_id: Some(row.key.agent_id.clone()),
                agent_turn_id: Some(row.agent_turn_id.clone()),
            },
            correlation_id: row.correlation_id.clone(),
            recursion_depth: headers.recursion_depth,
            trace_id: headers.trace_id.clone(),
        });
        let (key, channel_id) = (&row.key, &row.channel_id);
        let (agent_turn_id, turn_epoch) = (&row.agent_turn_id, row.turn_epoch);
        let trace_id = headers.trace_id.as_deref();
        let about = About { key, channel_id, agent_turn_id, turn_epoch, trace_id };
        let told = about.queued(headers.parent_traceparent.as_deref())?;
        self.changes.events.push(told);
        self.freed.insert(row.key.clone());
        self.changes.new_rows.insert(row.seq, row.clone());
        Ok(row)
    }
}

impl NewTurn {
    /// The texts that others chose can stand in a row.
    fn check_form(&self) -> Result<()> {
        check_text("correlation_id", &self.correlation_id, CORRELATION_MAX_BYTES)?;
        if let Some(trace_id) = &self.trace_id {
            trace::Given::parse(trace_id)?;
        }
        if let Some(profile_name) = &self.profile_name {
            check_text("profile_name", profile_name, CORRELATION_MAX_BYTES)?;
        }
        Ok(())
    }

    fn parent_key(&self) -> Option<AgentKey> {
        let parent = self.parent.as_ref()?;
        let project_id = self.key.project_id.clone();
        Some(AgentKey { project_id, agent_id: parent.agent_id.clone() })
    }
}
