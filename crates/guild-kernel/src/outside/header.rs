//! What headers say: who acts, where, in which turn and on whose behalf.

use guild_bus::mail::Headers;
use guild_bus::subject::{Address, Prefix, Subject, Token};
use guild_protocol::env::UnixMs;
use serde::Deserialize;

use crate::{
    AgentId, AgentKey, AgentTurnId, ChannelId, Error, ProjectId, Result, StepId, ToolCallId, code,
};

/// Whose project.
pub const PROJECT_ID: &str = "Guild-Project-Id";
/// Which channel of it.
pub const CHANNEL_ID: &str = "Guild-Channel-Id";
/// Which agent acts.
pub const AGENT_ID: &str = "Guild-Agent-Id";
/// In which turn.
pub const TURN_ID: &str = "Guild-Turn-Id";
/// Under which lease.
pub const TURN_EPOCH: &str = "Guild-Turn-Epoch";
/// In which step.
pub const STEP_ID: &str = "Guild-Step-Id";
/// Which call.
pub const TOOL_CALL_ID: &str = "Guild-Tool-Call-Id";
/// How deep turns that ask turns are nested.
pub const RECURSION_DEPTH: &str = "Guild-Recursion-Depth";
/// The step that the turn was asked for by.
pub const PARENT_STEP_ID: &str = "Guild-Parent-Step-Id";
/// Until when the result is waited for, in milliseconds since 1970.
pub const DEADLINE: &str = "Guild-Deadline";
/// What proves that a tool was called.
pub const SECRET: &str = "Guild-Call-Secret";
/// When it was said, in milliseconds since 1970.
pub const TIMESTAMP: &str = "Guild-Timestamp";
/// The number of this form of headers.
pub const VERSION: &str = "Guild-Version";
/// What the letter is.
pub const MSG_TYPE: &str = "Guild-Msg-Type";
/// Who sends it.
pub const SENDER: &str = "Guild-Sender";
/// The place of an event: those of one place are one event.
pub const EVENT_SEQ: &str = "Guild-Event-Seq";
/// The trace that it belongs to, as the W3C writes it.
pub const TRACEPARENT: &str = "traceparent";
/// The span in that trace which led to it.
pub const PARENT_TRACEPARENT: &str = "Guild-Parent-Traceparent";

const FORM: &str = "1";
/// How the kernel names itself.
pub(super) const KERNEL: &str = "kernel";

/// Who calls a tool, as a command says it and a tool sends it back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Caller {
    pub(super) project_id: ProjectId,
    pub(super) channel_id: ChannelId,
    pub(super) agent_id: AgentId,
    pub(super) agent_turn_id: AgentTurnId,
    pub(super) turn_epoch: i64,
    pub(super) step_id: StepId,
    pub(super) tool_call_id: ToolCallId,
}

impl Caller {
    /// Reads what a tool sends back.
    pub(super) fn read(headers: &Headers) -> Result<Caller> {
        Ok(Caller {
            project_id: parsed(headers, PROJECT_ID)?,
            channel_id: parsed(headers, CHANNEL_ID)?,
            agent_id: parsed(headers, AGENT_ID)?,
            agent_turn_id: parsed(headers, TURN_ID)?,
            turn_epoch: parsed(headers, TURN_EPOCH)?,
            step_id: parsed(headers, STEP_ID)?,
            tool_call_id: parsed(headers, TOOL_CALL_ID)?,
        })
    }

    pub(super) fn write(&self, headers: &mut Headers) -> Result<()> {
        headers.set(PROJECT_ID, self.project_id.as_str())?;
        headers.set(CHANNEL_ID, self.channel_id.as_str())?;
        headers.set(AGENT_ID, self.agent_id.as_str())?;
        headers.set(TURN_ID, self.agent_turn_id.as_str())?;
        headers.set(TURN_EPOCH, &self.turn_epoch.to_string())?;
        headers.set(STEP_ID, self.step_id.as_str())?;
        Ok(headers.set(TOOL_CALL_ID, self.tool_call_id.as_str())?)
    }

    /// What its secret follows from. The number is written as we write it: `+1` is not `1`.
    pub(super) fn words(&self) -> [String; 7] {
        [
            self.project_id.as_str().to_owned(),
            self.channel_id.as_str().to_owned(),
            self.agent_id.as_str().to_owned(),
            self.agent_turn_id.as_str().to_owned(),
            self.turn_epoch.to_string(),
            self.step_id.as_str().to_owned(),
            self.tool_call_id.as_str().to_owned(),
        ]
    }

    pub(super) fn key(&self) -> AgentKey {
        AgentKey { project_id: self.project_id.clone(), agent_id: self.agent_id.clone() }
    }

    /// Whether a letter came to the project and the channel that it names.
    pub(super) fn is_at(&self, address: &Address) -> bool {
        address.project_id.as_str() == self.project_id.as_str()
            && address.channel_id.as_str() == self.channel_id.as_str()
    }
}

fn parsed<T: std::str::FromStr>(headers: &Headers, name: &str) -> Result<T> {
    let found = headers.get(name).and_then(|text| text.parse().ok());
    found.ok_or_else(|| {
        Error::refused(&code::MALFORMED, format!("the header {name} is missing or cannot be read"))
    })
}

/// What every letter of the kernel says.
pub(super) fn of_kernel(msg_type: &str, at_ms: UnixMs) -> Result<Headers> {
    let mut headers = Headers::new();
    headers.set(VERSION, FORM)?;
    headers.set(SENDER, KERNEL)?;
    headers.set(MSG_TYPE, msg_type)?;
    headers.set(TIMESTAMP, &at_ms.to_string())?;
    Ok(headers)
}

/// Where a letter about something in a channel goes.
pub(super) fn address(
    prefix: &Prefix,
    project_id: &ProjectId,
    channel_id: &ChannelId,
    subject: Subject,
) -> Result<Address> {
    Ok(Address {
        prefix: prefix.clone(),
        project_id: Token::parse(project_id.as_str())?,
        channel_id: Token::parse(channel_id.as_str())?,
        subject,
    })
}
