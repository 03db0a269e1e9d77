//! Asking for one turn, without waiting for it.

use guild_protocol::env::UnixMs;
use guild_store::Tx;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::Call;
use super::pack;
use super::target::{self, Strategy};
use crate::{BoxId, Result, turn};

/// Whom, what, and with which cards.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    pub(super) target_strategy: Strategy,
    pub(super) target_ref: String,
    pub(super) instruction: String,
    #[serde(default)]
    pub(super) context_box_id: Option<BoxId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Launch {
    profile_name: String,
    instruction: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    expert_profile: String,
    question: String,
    #[serde(default)]
    include_history: bool,
}

pub(super) fn delegate_async(tx: &mut Tx<'_>, call: &Call, now_ms: UnixMs) -> Result<Value> {
    let wish: Wish = call.arguments(tx)?;
    ask(tx, call, &wish, now_ms)
}

pub(super) fn launch_principal(tx: &mut Tx<'_>, call: &Call, now_ms: UnixMs) -> Result<Value> {
    let Launch { profile_name, instruction } = call.arguments(tx)?;
    let wish = Wish {
        target_strategy: Strategy::New,
        target_ref: profile_name,
        instruction,
        context_box_id: None,
    };
    ask(tx, call, &wish, now_ms)
}

pub(super) fn ask_expert(tx: &mut Tx<'_>, call: &Call, now_ms: UnixMs) -> Result<Value> {
    let Question { expert_profile, question, include_history } = call.arguments(tx)?;
    let wish = Wish {
        target_strategy: Strategy::New,
        target_ref: expert_profile,
        instruction: question,
        context_box_id: include_history.then(|| call.active.output_box_id.clone()),
    };
    ask(tx, call, &wish, now_ms)
}

/// Asks for a turn, and says which one it is.
fn ask(tx: &mut Tx<'_>, call: &Call, wish: &Wish, now_ms: UnixMs) -> Result<Value> {
    let policy = call.policy(tx)?;
    let strategy = (wish.target_strategy, wish.target_ref.as_str());
    let target = target::find(tx, call, &policy, strategy, 0)?;
    let given = (wish.instruction.as_str(), wish.context_box_id.as_ref());
    let packed = [pack::pack(tx, call, target, given, (0, now_ms))?];
    let new = pack::store(tx, call, &packed, None, now_ms)?;
    let [packed] = &packed;
    let accepted = turn::enqueue_all(tx, &new, now_ms)?.into_iter().next().transpose()?;
    Ok(json!({
        "status": "accepted",
        "agent_id": packed.target.agent.key.agent_id,
        "agent_turn_id": accepted.map(|accepted| accepted.agent_turn_id),
        "context_box_id": packed.context_box_id,
        "output_box_id": packed.output_box_id,
    }))
}
