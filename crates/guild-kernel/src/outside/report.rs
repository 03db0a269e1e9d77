//! What tools send to the kernel, read and proven; and what they are told.

use guild_bus::mail::Letter;
use guild_bus::subject::{Address, Prefix};
use guild_protocol::error::Kind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::header::{Caller, SECRET, SENDER};
use super::secret::CallKey;
use crate::inbox::Outcome;
use crate::turn::{Report, Reported};
use crate::{Error, Result, code};

/// What a tool wants.
pub(super) enum Wish {
    /// Somebody takes this result.
    Report(Box<Report>),
    /// Somebody says what this call is.
    Call(Caller),
}

/// A result as a tool writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    status: String,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error: Value,
    #[serde(default)]
    after_execution: Option<String>,
}

/// Reads a letter. Whatever it says is believed only if it shows the secret of its call.
pub(super) fn read(letter: &Letter, prefix: &Prefix, key: &CallKey) -> Result<Wish> {
    let address = Address::parse(prefix, letter.subject.as_str())?;
    let caller = Caller::read(&letter.headers)?;
    let shown = letter.headers.get(SECRET).unwrap_or_default();
    if !caller.is_at(&address) || !key.is_shown(&caller, shown) {
        let message = "the letter does not show the secret of the call that it names";
        return Err(Error::refused(&code::UNPROVEN, message));
    }
    match address.subject.to_string().as_str() {
        super::REPORT => report(letter, &caller).map(|report| Wish::Report(Box::new(report))),
        super::CALL => Ok(Wish::Call(caller)),
        other => Err(Error::refused(&code::MALFORMED, format!("nobody takes letters at {other}"))),
    }
}

fn report(letter: &Letter, caller: &Caller) -> Result<Report> {
    let bad = |why: &dyn std::fmt::Display| {
        Error::refused(&code::MALFORMED, format!("the report: {why}"))
    };
    let payload: Payload =
        serde_json::from_value(Value::Object(letter.body()?)).map_err(|error| bad(&error))?;
    let status: Outcome = payload.status.parse()?;
    let is_error = matches!(status, Outcome::Failed | Outcome::Canceled | Outcome::Timeout);
    if is_error == payload.error.is_null() && status != Outcome::Partial {
        return Err(bad(&"error is null if and only if nothing went wrong"));
    }
    let after_execution = payload.after_execution.map(|word| word.parse()).transpose()?;
    Ok(Report {
        key: caller.key(),
        agent_turn_id: caller.agent_turn_id.clone(),
        tool_call_id: caller.tool_call_id.clone(),
        source: source(letter.headers.get(SENDER)),
        status,
        after_execution,
        result: payload.result,
        error: payload.error,
    })
}

/// A tool speaks as a tool: it cannot sign as an agent or a person.
fn source(sender: Option<&str>) -> String {
    match sender {
        Some(sender) if sender.starts_with("tool.") => sender.to_owned(),
        // The sender of the command, sent back.
        None | Some("" | "kernel") => "tool".to_owned(),
        Some(sender) => format!("tool.{sender}"),
    }
}

/// What the tool is told of its report.
pub(super) fn answer(reported: &Result<Reported>) -> Value {
    match reported {
        Ok(Reported::Applied { resumed }) => json!({ "status": "applied", "resumed": resumed }),
        Ok(Reported::Early) => json!({ "status": "early" }),
        Ok(Reported::Known) => json!({ "status": "known" }),
        Ok(Reported::Skipped(code)) => {
            json!({ "status": "skipped", "code": code.name, "message": code.meaning, "retry": false })
        }
        Err(error) => refusal(error),
    }
}

/// What the tool is told of a letter that was refused, and whether it should send it again.
pub(super) fn refusal(error: &Error) -> Value {
    let retry = matches!(error.kind(), Kind::Unavailable | Kind::Internal);
    let message: String = error.to_string().chars().take(500).collect();
    json!({ "status": "refused", "code": error.code().name, "message": message, "retry": retry })
}
