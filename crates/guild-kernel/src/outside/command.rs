//! Commands leave the outbox.

use std::sync::Arc;

use guild_bus::mail::{Letter, MESSAGE_ID, Mail, Receipt};
use guild_bus::subject::{Prefix, Subject};
use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::error::Kind;
use guild_store::outbox::{Deliver, Failure, Message};
use serde::Deserialize;
use serde_json::Value;

use super::header::{
    Caller, DEADLINE, PARENT_STEP_ID, PARENT_TRACEPARENT, RECURSION_DEPTH, SECRET, TRACEPARENT,
    address, of_kernel,
};
use super::secret::CallKey;
use crate::{Error, Result, StepId, code, trace};

/// A command as its row has it.
#[derive(Deserialize)]
struct Body {
    subject: String,
    headers: Said,
    payload: Value,
}

#[derive(Deserialize)]
struct Said {
    #[serde(flatten)]
    caller: Caller,
    recursion_depth: i64,
    deadline_ms: UnixMs,
    trace_id: Option<String>,
    parent_step_id: Option<StepId>,
}

/// The sink [`COMMAND_SINK`](crate::turn::COMMAND_SINK) of the outbox: sends the commands that call tools. A command
/// that nobody hears and nobody keeps is tried again, for as long as its call is waited for.
pub fn command_sink(
    mail: Arc<dyn Mail>,
    prefix: Prefix,
    key: CallKey,
    clock: Arc<dyn Clock>,
) -> Deliver {
    Arc::new(move |message| {
        let read = read(&message, &prefix, &key, clock.now_ms());
        let mail = mail.clone();
        Box::pin(async move {
            let letter = match read {
                Ok(Some(letter)) => letter,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Failure::Never(error.to_string())),
            };
            let subject = letter.subject.as_str().to_owned();
            match mail.send_all(vec![letter]).await.into_iter().next() {
                Some(Ok(Receipt::Kept | Receipt::Passed)) => Ok(()),
                Some(Ok(Receipt::Unheard)) => {
                    Err(Failure::Retry(format!("nobody listens at {subject}")))
                }
                Some(Err(error)) if error.kind() == Kind::Invalid => {
                    Err(Failure::Never(error.to_string()))
                }
                Some(Err(error)) => Err(Failure::Retry(error.to_string())),
                None => Err(Failure::Retry("nothing was sent".to_owned())),
            }
        })
    })
}

/// The letter; nothing if its call is not waited for any more.
fn read(
    message: &Message,
    prefix: &Prefix,
    key: &CallKey,
    now_ms: UnixMs,
) -> Result<Option<Letter>> {
    let Body { subject, headers: said, payload } = serde_json::from_str(&message.body)
        .map_err(|error| Error::refused(&code::MALFORMED_ROW, format!("a command: {error}")))?;
    if said.deadline_ms <= now_ms {
        return Ok(None);
    }
    let Said { caller, recursion_depth, deadline_ms, trace_id, parent_step_id } = said;
    let subject = Subject::parse(&subject)?;
    let topic = address(prefix, &caller.project_id, &caller.channel_id, subject)?.topic()?;
    let mut headers = of_kernel("tool.call", now_ms)?;
    caller.write(&mut headers)?;
    headers.set(RECURSION_DEPTH, &recursion_depth.to_string())?;
    headers.set(DEADLINE, &deadline_ms.to_string())?;
    if let Some(parent_step_id) = &parent_step_id {
        headers.set(PARENT_STEP_ID, parent_step_id.as_str())?;
    }
    let (turn, call) = (caller.agent_turn_id.as_str(), caller.tool_call_id.as_str());
    let trace_id = trace_id.as_deref();
    headers.set(TRACEPARENT, &trace::traceparent(trace_id, turn, call))?;
    headers.set(PARENT_TRACEPARENT, &trace::of_turn(trace_id, &caller.agent_turn_id))?;
    headers.set(SECRET, &key.secret(&caller))?;
    headers.set(MESSAGE_ID, &format!("command/{call}"))?;
    Ok(Some(Letter::json(topic, headers, &payload)?))
}
