//! What is being said, while it is said. Pieces may be lost: only what is written down counts.

use std::sync::Arc;

use guild_bus::mail::{Letter, Mail};
use guild_bus::subject::{Prefix, Subject, Token};
use guild_protocol::env::Clock;
use serde_json::{Value, json};

use super::header::{AGENT_ID, CHANNEL_ID, PROJECT_ID, STEP_ID, TURN_ID, address, of_kernel};
use crate::model::Chunk;
use crate::turn::step::Usage;
use crate::{AgentKey, AgentTurnId, ChannelId, Result, StepId};

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// Which agent.
    pub key: AgentKey,
    /// Where.
    pub channel_id: ChannelId,
    /// In which turn.
    pub agent_turn_id: AgentTurnId,
    /// In which step.
    pub step_id: StepId,
}

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// The model is asked.
    Start,
    /// A piece of the answer.
    Chunk(&'a Chunk),
    /// The model has answered, or failed.
    End(&'a Usage),
}

/// Sends pieces of answers to whoever listens at `str.agent.{agent_id}.chunk`.
#[derive(Clone)]
pub struct Voice {
    mail: Arc<dyn Mail>,
    prefix: Prefix,
    clock: Arc<dyn Clock>,
}

impl Voice {
    /// A voice over this mail.
    pub fn new(mail: Arc<dyn Mail>, prefix: Prefix, clock: Arc<dyn Clock>) -> Voice {
        Voice { mail, prefix, clock }
    }

    /// Says a piece: the one with this place among those of the step. It never waits.
    pub fn say(&self, speaker: &Speaker, index: u64, said: Said<'_>) {
        match self.letter(speaker, index, said) {
            Ok(letter) => self.mail.cast(letter),
            Err(error) => tracing::debug!(%error, "a piece of an answer was not sent"),
        }
    }

    fn letter(&self, speaker: &Speaker, index: u64, said: Said<'_>) -> Result<Letter> {
        let Speaker { key, channel_id, agent_turn_id, step_id } = speaker;
        let subject = Subject::Chunk(Token::parse(key.agent_id.as_str())?);
        let topic = address(&self.prefix, &key.project_id, channel_id, subject)?.topic()?;
        let mut headers = of_kernel("agent.chunk", self.clock.now_ms())?;
        headers.set(PROJECT_ID, key.project_id.as_str())?;
        headers.set(CHANNEL_ID, channel_id.as_str())?;
        headers.set(AGENT_ID, key.agent_id.as_str())?;
        headers.set(TURN_ID, agent_turn_id.as_str())?;
        headers.set(STEP_ID, step_id.as_str())?;
        Ok(Letter::json(topic, headers, &payload(index, said))?)
    }
}

fn payload(index: u64, said: Said<'_>) -> Value {
    let piece = |chunk_type: &str, content: &str| {
        json!({
            "chunk_type": chunk_type,
            "content": content,
            "index": index,
        })
    };
    match said {
        Said::Start => piece("start", ""),
        Said::Chunk(Chunk::Text(text)) => piece("content", text),
        Said::Chunk(Chunk::Reasoning(text)) => piece("reasoning", text),
        Said::Chunk(Chunk::Call(text)) => piece("tool_call", text),
        Said::End(usage) => json!({
            "chunk_type": "end",
            "content": "",
            "index": index,
            "usage": {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "model": usage.model,
            },
            "response_cost_micro_usd": usage.cost_micro_usd,
        }),
    }
}
