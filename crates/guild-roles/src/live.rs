//! What the models of agents are saying right now.
//!
//! Pieces of answers are sent by workers to `str.agent.{agent_id}.chunk` and kept by nobody. Whoever listens may miss
//! some: what counts is written down as a card when the step is done.

use std::sync::Arc;

use guild_bus::mail::{Letter, Mail, Mailbox};
use guild_bus::subject::{Pattern, Prefix, Token};
use guild_kernel::AgentKey;
use guild_kernel::outside::{STEP_ID, TURN_ID};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;

/// So many pieces are handed over at once.
const AT_ONCE: usize = 64;

/// Where it is heard what models say.
#[derive(Clone)]
pub struct Live {
    mail: Arc<dyn Mail>,
    prefix: Prefix,
}

/// A piece of an answer, as it was heard. Anybody who may write to the bus may have sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// In which turn.
    pub agent_turn_id: String,
    /// In which step of it.
    pub step_id: String,
    /// Its place among the pieces of the step, from 0.
    pub index: u64,
    /// What it is a piece of: `start`, `content`, `reasoning`, `tool_call`, `end`.
    pub chunk_type: String,
    /// The piece.
    pub content: String,
}

impl Heard {
    fn read(letter: &Letter) -> Option<Heard> {
        let header = |name: &str| letter.headers.get(name).map(str::to_owned);
        let body = letter.body().ok()?;
        let word = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
        Some(Heard {
            agent_turn_id: header(TURN_ID)?,
            step_id: header(STEP_ID)?,
            index: body.get("index")?.as_u64()?,
            chunk_type: word("chunk_type")?,
            content: word("content")?,
        })
    }
}

/// Somebody who listens to an agent.
pub struct Listening(Mailbox);

impl Live {
    /// What is carried by this mail.
    pub fn new(mail: Arc<dyn Mail>, prefix: Prefix) -> Live {
        Live { mail, prefix }
    }

    /// Listens to an agent, in whatever channel, from now on.
    pub fn listen(&self, key: &AgentKey) -> Result<Listening> {
        let pattern = || {
            let project_id = Token::parse(key.project_id.as_str())?;
            let agent_id = Token::parse(key.agent_id.as_str())?;
            let (prefix, project_id) = (self.prefix.as_str(), project_id.as_str());
            let agent_id = agent_id.as_str();
            Pattern::parse(&format!("{prefix}.{project_id}.*.str.agent.{agent_id}.chunk"))
        };
        let pattern = pattern().map_err(guild_kernel::Error::from)?;
        Ok(Listening(self.mail.subscribe(pattern, None)))
    }
}

impl Listening {
    /// The next pieces; waits until there are any. What is none is left out.
    pub async fn next(&mut self) -> Vec<Heard> {
        loop {
            let mut heard: Vec<Heard> = Heard::read(&self.0.take().await).into_iter().collect();
            while heard.len() < AT_ONCE
                && let Some(letter) = self.0.try_take()
            {
                heard.extend(Heard::read(&letter));
            }
            if !heard.is_empty() {
                return heard;
            }
        }
    }
}
