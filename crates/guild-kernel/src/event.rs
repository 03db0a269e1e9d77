//! What happens to turns, as events that others follow.

use guild_protocol::env::UnixMs;
use guild_protocol::json;
use guild_store::Tx;
use guild_store::event::{Appended, NewEvent, append_all};
use serde::Serialize;

use crate::inbox::Outcome;
use crate::{AgentKey, AgentTurnId, BoxId, CardId, ChannelId, Result, trace};

/// The topic of the events of this crate, and of the bell that tells of them.
pub const TOPIC: &str = "turns";

/// A turn was accepted.
pub const QUEUED: &str = "turn.queued";
/// A turn goes on, or waits.
pub const STATE: &str = "turn.state";
/// A step is done and another one follows.
pub const STEP: &str = "turn.step";
/// A turn is over. There is one for each turn.
pub const TASK: &str = "turn.task";

/// Something that has happened. `id` names the happening, so it is told once.
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) body: String,
}

/// What an event says of its turn.
#[derive(Serialize)]
pub(crate) struct Body<'a> {
    pub(crate) project_id: &'a str,
    pub(crate) channel_id: &'a str,
    pub(crate) agent_id: &'a str,
    pub(crate) agent_turn_id: &'a str,
    pub(crate) turn_epoch: i64,
    pub(crate) status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_tool_count: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deliverable_card_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_box_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_code: Option<&'a str>,
    /// The span of the turn.
    pub(crate) traceparent: String,
    /// The one under which it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_traceparent: Option<&'a str>,
}

/// The turn that events are about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) key: &'a AgentKey,
    pub(crate) channel_id: &'a ChannelId,
    pub(crate) agent_turn_id: &'a AgentTurnId,
    pub(crate) turn_epoch: i64,
    pub(crate) trace_id: Option<&'a str>,
}

impl<'a> About<'a> {
    fn body(self, status: &'a str) -> Body<'a> {
        Body {
            project_id: self.key.project_id.as_str(),
            channel_id: self.channel_id.as_str(),
            agent_id: self.key.agent_id.as_str(),
            agent_turn_id: self.agent_turn_id.as_str(),
            turn_epoch: self.turn_epoch,
            status,
            step: None,
            waiting_tool_count: None,
            deliverable_card_id: None,
            output_box_id: None,
            error_code: None,
            traceparent: trace::of_turn(self.trace_id, self.agent_turn_id),
            parent_traceparent: None,
        }
    }

    pub(crate) fn queued(self, parent_traceparent: Option<&str>) -> Result<Told> {
        let body = Body { parent_traceparent, ..self.body("queued") };
        told(format!("{}/queued", self.agent_turn_id), QUEUED, &body)
    }

    /// The turn goes on, or waits. Each state is reached at most once in an epoch.
    pub(crate) fn state(self, status: &str, waiting_tool_count: Option<i64>) -> Result<Told> {
        let id = format!("{}/{}/{status}", self.agent_turn_id, self.turn_epoch);
        told(id, STATE, &Body { waiting_tool_count, ..self.body(status) })
    }

    pub(crate) fn step(self, number: i64) -> Result<Told> {
        let id = format!("{}/{}/step-{number}", self.agent_turn_id, self.turn_epoch);
        told(id, STEP, &Body { step: Some(number), ..self.body("completed") })
    }

    pub(crate) fn task(
        self,
        outcome: Outcome,
        deliverable_card_id: &CardId,
        output_box_id: Option<&BoxId>,
        error_code: Option<&str>,
    ) -> Result<Told> {
        let body = Body {
            deliverable_card_id: Some(deliverable_card_id.as_str()),
            output_box_id: output_box_id.map(BoxId::as_str),
            error_code,
            ..self.body(outcome.as_str())
        };
        told(format!("{}/task", self.agent_turn_id), TASK, &body)
    }
}

fn told(id: String, kind: &'static str, body: &Body<'_>) -> Result<Told> {
    let body = String::from_utf8(json::to_canonical(body)?).unwrap_or_default();
    Ok(Told { id, kind, body })
}

/// Tells what has happened, in this order.
pub(crate) fn tell(tx: &mut Tx<'_>, told: &[Told], now_ms: UnixMs) -> Result<()> {
    let mut events = Vec::with_capacity(told.len());
    for Told { id, kind, body } in told {
        events.push(NewEvent { topic: TOPIC, id, kind, at_ms: now_ms, body });
    }
    if events.is_empty() {
        return Ok(());
    }
    let first = append_all(tx, &events)?.into_iter().find_map(|appended| match appended {
        Appended::New(seq) => Some(seq),
        Appended::Known(_) => None,
    });
    if let Some(seq) = first {
        tx.ring(TOPIC, seq.saturating_sub(1));
    }
    Ok(())
}
