//! The call behind a command: who asks, and with what.

use guild_protocol::env::UnixMs;
use guild_store::Rx;
use guild_store::outbox::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::policy::Policy;
use super::{SUBJECT, batch};
use crate::card::{self, CardType};
use crate::row::check_text;
use crate::turn::head::{self, Active, State};
use crate::turn::wait::{self, Wait, WaitStatus};
use crate::{
    AgentKey, AgentTurnId, BoxId, CardId, Error, Result, StepId, ToolCallId, code, roster, trace,
};

const NAME_MAX_BYTES: usize = 256;

/// A command as it stands in the outbox. Who asks is read from the rows of the call, not from here.
#[derive(Deserialize)]
struct Body {
    subject: String,
    headers: Headers,
    payload: Payload,
}

#[derive(Deserialize)]
struct Headers {
    tool_call_id: ToolCallId,
}

#[derive(Deserialize)]
struct Payload {
    tool_call_card_id: CardId,
}

/// What is to be done.
pub(super) struct Order {
    pub(super) tool: String,
    pub(super) tool_call_id: ToolCallId,
    card_id: CardId,
}

impl Order {
    pub(super) fn read(message: &Message) -> Result<Order> {
        let unreadable = |why: String| Error::refused(&code::MALFORMED_ROW, why);
        let body: Body =
            serde_json::from_str(&message.body).map_err(|error| unreadable(error.to_string()))?;
        let Some(tool) = body.subject.strip_prefix(SUBJECT) else {
            return Err(unreadable("this is no command of orchestration".to_owned()));
        };
        Ok(Order {
            tool: tool.to_owned(),
            tool_call_id: body.headers.tool_call_id,
            card_id: body.payload.tool_call_card_id,
        })
    }
}

/// Whether there is something to do.
pub(super) enum Found {
    /// A turn waits.
    Awaited(Box<Call>),
    /// Nobody waits, or what was asked for is under way.
    Gone,
}

/// A call that a turn waits for.
pub(super) struct Call {
    /// Who asks.
    pub(super) key: AgentKey,
    pub(super) agent_turn_id: AgentTurnId,
    pub(super) step_id: StepId,
    pub(super) tool_call_id: ToolCallId,
    pub(super) tool_name: String,
    /// Until when it waits.
    pub(super) deadline_ms: UnixMs,
    /// The turn that asks.
    pub(super) active: Active,
    /// What the agent that asks wrote to before.
    pub(super) last_output_box_id: Option<BoxId>,
    card_id: CardId,
}

impl Call {
    pub(super) fn find(rx: &mut Rx<'_>, order: &Order, now_ms: UnixMs) -> Result<Found> {
        let wait = wait::find_all(rx, &[&order.tool_call_id])?.into_iter().next();
        // What is late is answered by the clock.
        let open = |wait: &Wait| wait.status == WaitStatus::Waiting && wait.deadline_ms > now_ms;
        let Some(wait) = wait.filter(open) else { return Ok(Found::Gone) };
        let Some(head) = head::find(rx, &wait.key)? else { return Ok(Found::Gone) };
        let last_output_box_id = head.last_output_box_id;
        let waits = |active: &Active| {
            active.agent_turn_id == wait.agent_turn_id
                && matches!(&active.state, State::Suspended { step_id, .. } if *step_id == wait.step_id)
        };
        let Some(active) = head.active.filter(waits) else { return Ok(Found::Gone) };
        if batch::of_call(rx, &order.tool_call_id)?.is_some() {
            return Ok(Found::Gone);
        }
        let call = Call {
            key: wait.key,
            agent_turn_id: wait.agent_turn_id,
            step_id: wait.step_id,
            tool_call_id: wait.tool_call_id,
            tool_name: wait.tool_name,
            deadline_ms: wait.deadline_ms,
            active,
            last_output_box_id,
            card_id: order.card_id.clone(),
        };
        Ok(Found::Awaited(Box::new(call)))
    }

    /// What was asked for, of the right form.
    pub(super) fn arguments<T: DeserializeOwned>(&self, rx: &mut Rx<'_>) -> Result<T> {
        let card = card::find_all(rx, &[&self.card_id])?.into_iter().next();
        let card = card.filter(|card| {
            card.card_type == CardType::ToolCall
                && card.tool_call_id.as_ref() == Some(&self.tool_call_id)
        });
        let Some(card) = card else {
            let message = format!("{} is not the card of {}", self.card_id, self.tool_call_id);
            return Err(Error::refused(&code::UNKNOWN_CARD, message));
        };
        let mut content: Value = serde_json::from_str(&card.content).unwrap_or_default();
        let arguments = content.get_mut("arguments").map(Value::take).unwrap_or_default();
        serde_json::from_value(arguments)
            .map_err(|error| Error::refused(&code::MALFORMED, format!("arguments: {error}")))
    }

    /// What is asked for by this call belongs to the trace of the turn that asks.
    pub(super) fn traceparent(&self) -> String {
        let (turn, call) = (self.agent_turn_id.as_str(), self.tool_call_id.as_str());
        trace::traceparent(self.active.trace_id.as_deref(), turn, call)
    }

    /// Whom the turn may ask.
    pub(super) fn policy(&self, rx: &mut Rx<'_>) -> Result<Policy> {
        let profile = roster::profile(rx, &self.key.project_id, &self.active.profile_name)?;
        Ok(profile.map_or(Policy::Nobody, |profile| Policy::of(&profile.body)))
    }

    /// The agent of the same project with this name.
    pub(super) fn agent_key(&self, name: &str) -> Result<AgentKey> {
        Ok(AgentKey { project_id: self.key.project_id.clone(), agent_id: name.parse()? })
    }

    /// The name of an agent that is made for this call.
    pub(super) fn new_agent_name(&self, index: usize) -> String {
        let hex = self.tool_call_id.as_str().trim_start_matches("call_");
        format!("agent_{hex}_{index}")
    }
}

/// A name that rows are looked for by.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    check_text(what, name, NAME_MAX_BYTES)
}
