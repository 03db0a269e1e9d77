//! Orchestration: turns that ask for turns. Five tools, each a command that the outbox brings here.
//!
//! | tool | what it does | when the call is answered |
//! |---|---|---|
//! | `delegate_async` | asks an agent for a turn: a new one of a profile, one that is there, or a copy of one | at once |
//! | `launch_principal` | the same with a new agent of a profile | at once |
//! | `ask_expert` | the same with a question, and with what the turn has written if wanted | at once |
//! | `fork_join` | asks up to eight agents, and waits for all of them | by the end of the batch |
//! | `provision_agent` | makes an agent, finds it, copies it, or retires it | at once |
//!
//! A command is one transaction ([`handle`]): the agents, cards, boxes, turns and the batch or the answer of a call are
//! there together, or nothing is. It is named by its call, so a command that comes twice is handled once. What cannot
//! be done is answered with a code ([`refuse`]), and the turn goes on with that.
//!
//! Who may be asked is said by the `delegation_policy` of the profile that the turn thinks with ([`policy`]); a turn
//! hands over only boxes of its own. The end of a task reaches its batch, and that of a batch its call, in the
//! transaction that ends the task.

use std::sync::Arc;

use guild_protocol::env::{Clock, UnixMs};
use guild_store::outbox::{Deliver, Failure, Message};
use guild_store::{Store, Tx};
use serde_json::{Value, json};

use crate::inbox::Outcome;
use crate::turn::{self, Report, Reported};
use crate::{Error, Result, code};

pub mod batch;
mod call;
mod delegate;
mod fork;
mod pack;
pub mod policy;
mod provision;
mod target;
mod tools;

use call::{Call, Found, Order};
pub use tools::tool_rows;

/// Which sink of the outbox takes the commands of orchestration.
pub const SINK: &str = "pmo";
/// What their subjects begin with. The rest is the name of the tool.
pub const SUBJECT: &str = "cmd.sys.pmo.internal.";
/// Who answers.
pub const AUTHOR: &str = "sys.pmo";

/// Asks for a turn and goes on.
pub const DELEGATE_ASYNC: &str = "delegate_async";
/// Asks a new agent and goes on.
pub const LAUNCH_PRINCIPAL: &str = "launch_principal";
/// Asks a new agent a question and goes on.
pub const ASK_EXPERT: &str = "ask_expert";
/// Asks several agents and waits.
pub const FORK_JOIN: &str = "fork_join";
/// Makes an agent.
pub const PROVISION_AGENT: &str = "provision_agent";

/// How long a batch may take if nobody says how long.
pub const FORK_JOIN_DEADLINE_MS: i64 = 900_000;

/// So many characters of a refusal reach the turn that asked.
const WORDS_MAX: usize = 500;

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// It was carried out.
    Done,
    /// It was carried out before, or nobody waits for it any more: nothing was changed.
    Gone,
}

/// Carries out a command. An error means that nothing was changed; [`refuse`] tells the turn that asked.
pub fn handle(tx: &mut Tx<'_>, message: &Message, now_ms: UnixMs) -> Result<Handled> {
    let order = Order::read(message)?;
    let Found::Awaited(call) = Call::find(tx, &order, now_ms)? else { return Ok(Handled::Gone) };
    let answer = match order.tool.as_str() {
        DELEGATE_ASYNC => Some(delegate::delegate_async(tx, &call, now_ms)?),
        LAUNCH_PRINCIPAL => Some(delegate::launch_principal(tx, &call, now_ms)?),
        ASK_EXPERT => Some(delegate::ask_expert(tx, &call, now_ms)?),
        PROVISION_AGENT => Some(provision::provision_agent(tx, &call, now_ms)?),
        FORK_JOIN => {
            fork::fork_join(tx, &call, now_ms)?;
            None
        }
        other => {
            let start: String = other.chars().take(80).collect();
            let message = format!("orchestration has no tool {start:?}");
            return Err(Error::refused(&code::MALFORMED, message));
        }
    };
    if let Some(result) = answer {
        report(tx, &order, &call, (Outcome::Success, result, Value::Null), now_ms)?;
    }
    Ok(Handled::Done)
}

/// Tells the turn that asked why its command was not carried out. If somebody else has carried it out meanwhile, or
/// nobody waits any more, nothing is changed.
pub fn refuse(
    tx: &mut Tx<'_>,
    message: &Message,
    refusal: &Error,
    now_ms: UnixMs,
) -> Result<Handled> {
    let order = Order::read(message)?;
    let Found::Awaited(call) = Call::find(tx, &order, now_ms)? else { return Ok(Handled::Gone) };
    let words: String = refusal.to_string().chars().take(WORDS_MAX).collect();
    let error = json!({ "code": refusal.code().name, "message": words, "source": AUTHOR });
    report(tx, &order, &call, (Outcome::Failed, Value::Null, error), now_ms)?;
    Ok(Handled::Done)
}

fn report(
    tx: &mut Tx<'_>,
    order: &Order,
    call: &Call,
    (status, result, error): (Outcome, Value, Value),
    now_ms: UnixMs,
) -> Result<()> {
    let report = Report {
        key: call.key.clone(),
        agent_turn_id: call.agent_turn_id.clone(),
        tool_call_id: order.tool_call_id.clone(),
        source: AUTHOR.to_owned(),
        status,
        after_execution: None,
        result,
        error,
    };
    let reported = turn::report_all(tx, &[report], now_ms)?.into_iter().next().transpose()?;
    match reported {
        Some(Reported::Applied { .. }) => Ok(()),
        _ => Err(Error::refused(&code::ANSWERED, "the call has another answer")),
    }
}

/// What the drainer of the outbox is given for [`SINK`].
pub fn sink(store: Store, clock: Arc<dyn Clock>) -> Deliver {
    Arc::new(move |message| {
        let (store, clock) = (store.clone(), clock.clone());
        Box::pin(async move { deliver(&store, &*clock, message).await })
    })
}

async fn deliver(store: &Store, clock: &dyn Clock, message: Message) -> Result<(), Failure> {
    let (now_ms, order) = (clock.now_ms(), message.clone());
    let handled = store.write(move |tx| handle(tx, &order, now_ms)).await;
    let told = match handled {
        Ok(_) => return Ok(()),
        Err(Error::Store(error)) => return Err(Failure::Retry(error.to_string())),
        Err(refusal) => {
            let now_ms = clock.now_ms();
            store.write(move |tx| refuse(tx, &message, &refusal, now_ms)).await
        }
    };
    match told {
        Ok(_) => Ok(()),
        Err(Error::Store(error)) => Err(Failure::Retry(error.to_string())),
        // There is no call that could be answered.
        Err(error) => Err(Failure::Never(error.to_string())),
    }
}
