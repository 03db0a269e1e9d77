//! What a turn that is asked for reads: cards that are handed over, then what is to be done, then who asks.

use std::collections::BTreeSet;

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx};
use serde_json::{Value, json};

use super::call::Call;
use super::target::Target;
use crate::boxes::{self, FIRST_CARDS_MAX, NewBox};
use crate::card::{self, CardType, NewCard, Role};
use crate::turn::{NewTurn, Parent};
use crate::{AgentKey, BoxId, CardId, Error, Result, ToolCallId, code, roster};

/// The longest instruction.
const INSTRUCTION_MAX_BYTES: usize = 256 * 1024;

/// A turn that is to be asked for.
pub(super) struct Packed {
    pub(super) target: Target,
    pub(super) context_box_id: BoxId,
    pub(super) output_box_id: BoxId,
    cards: Vec<NewCard>,
    boxes: Vec<NewBox>,
    index: usize,
}

/// Whether the turn that asks may hand over a box: it reads or writes it, or the box is its agent's or that of an agent
/// which that one owns.
fn check_box(rx: &mut Rx<'_>, call: &Call, box_id: &BoxId) -> Result<()> {
    let active = &call.active;
    let known = [&active.context_box_id, &active.output_box_id];
    if known.contains(&box_id) || call.last_output_box_id.as_ref() == Some(box_id) {
        return Ok(());
    }
    let denied = || {
        let message = format!("{} may not hand over {box_id}", call.key);
        Error::refused(&code::BOX_DENIED, message)
    };
    let found = boxes::find(rx, box_id)?.filter(|found| found.project_id == call.key.project_id);
    let owner = found.and_then(|found| found.owner_agent_id).ok_or_else(denied)?;
    if owner == call.key.agent_id {
        return Ok(());
    }
    let key = AgentKey { project_id: call.key.project_id.clone(), agent_id: owner };
    let agent = roster::agent(rx, &key)?;
    let own = agent.is_some_and(|a| a.owner_agent_id.as_ref() == Some(&call.key.agent_id));
    if own { Ok(()) } else { Err(denied()) }
}

/// Decides what a turn reads and writes. Nothing is written yet.
pub(super) fn pack(
    rx: &mut Rx<'_>,
    call: &Call,
    target: Target,
    (instruction, context_box_id): (&str, Option<&BoxId>),
    (index, now_ms): (usize, UnixMs),
) -> Result<Packed> {
    check_instruction(instruction)?;
    if let Some(box_id) = context_box_id {
        check_box(rx, call, box_id)?;
    }
    let cards = new_cards(call, instruction, index, now_ms);
    let mut names = Vec::new();
    let mut seen = BTreeSet::new();
    for box_id in context_box_id.into_iter().chain(target.copies.as_ref()) {
        let inherited = boxes::card_ids(rx, box_id, FIRST_CARDS_MAX)?;
        names.extend(inherited.into_iter().filter(|card_id| seen.insert(card_id.clone())));
    }
    names.extend(cards.iter().map(|card| card.card_id.clone()));
    if names.len() > FIRST_CARDS_MAX {
        let message = format!("a turn is handed at most {FIRST_CARDS_MAX} cards");
        return Err(Error::refused(&code::TOO_LARGE, message));
    }
    let place = index.to_string();
    let named =
        |what: &str| BoxId::named(now_ms, &[call.tool_call_id.as_str(), what, place.as_str()]);
    let new = |box_id: &BoxId, cards| NewBox {
        box_id: box_id.clone(),
        project_id: call.key.project_id.clone(),
        owner_agent_id: Some(target.agent.key.agent_id.clone()),
        cards,
    };
    let context = named("context");
    let mut boxes = vec![new(&context, names)];
    let output = target.memory.clone().unwrap_or_else(|| named("output"));
    if target.memory.is_none() {
        boxes.push(new(&output, vec![]));
    }
    Ok(Packed { context_box_id: context, output_box_id: output, target, cards, boxes, index })
}

fn check_instruction(instruction: &str) -> Result<()> {
    if instruction.trim().is_empty() {
        return Err(Error::refused(&code::MALFORMED, "the instruction is empty"));
    }
    if instruction.len() > INSTRUCTION_MAX_BYTES {
        let message = format!("an instruction has at most {INSTRUCTION_MAX_BYTES} bytes");
        return Err(Error::refused(&code::TOO_LARGE, message));
    }
    Ok(())
}

/// What is to be done, and who asks.
fn new_cards(call: &Call, instruction: &str, index: usize, now_ms: UnixMs) -> Vec<NewCard> {
    let place = index.to_string();
    let new = |card_type: CardType, role, author_id: &str, content| NewCard {
        card_id: CardId::named(now_ms, &[call.tool_call_id.as_str(), card_type.as_str(), &place]),
        project_id: call.key.project_id.clone(),
        card_type,
        role,
        author_id: author_id.to_owned(),
        content,
        metadata: json!({ "tool_call_id": call.tool_call_id }),
    };
    let pointer = json!({
        "parent_agent_id": call.key.agent_id,
        "parent_agent_turn_id": call.agent_turn_id,
    });
    vec![
        new(CardType::Instruction, Role::User, &call.tool_name, json!({ "text": instruction })),
        new(CardType::ParentPointer, Role::System, super::AUTHOR, pointer),
    ]
}

/// Makes the agents, cards and boxes of turns, and says which turns they are.
pub(super) fn store(
    tx: &mut Tx<'_>,
    call: &Call,
    packed: &[Packed],
    answers: Option<&ToolCallId>,
    now_ms: UnixMs,
) -> Result<Vec<NewTurn>> {
    for Packed { target, .. } in packed.iter().filter(|packed| packed.target.is_new) {
        let metadata = json!({ "tool_call_id": call.tool_call_id });
        roster::put_agent(tx, &target.agent, &metadata, now_ms)?;
    }
    let cards: Vec<NewCard> = packed.iter().flat_map(|packed| packed.cards.clone()).collect();
    card::put_all(tx, &cards, now_ms)?;
    let boxes: Vec<NewBox> = packed.iter().flat_map(|packed| packed.boxes.clone()).collect();
    boxes::create_all(tx, &boxes, now_ms)?;
    let turn = |packed: &Packed| NewTurn {
        key: packed.target.agent.key.clone(),
        channel_id: call.active.channel_id.clone(),
        correlation_id: format!("{}/{}", call.tool_call_id, packed.index),
        profile_name: None,
        context_box_id: packed.context_box_id.clone(),
        output_box_id: packed.output_box_id.clone(),
        parent: Some(Parent {
            agent_id: call.key.agent_id.clone(),
            agent_turn_id: call.agent_turn_id.clone(),
            step_id: Some(call.step_id.clone()),
            answers: answers.cloned(),
        }),
        trace_id: Some(call.traceparent()),
        metadata: Value::Null,
    };
    Ok(packed.iter().map(turn).collect())
}
