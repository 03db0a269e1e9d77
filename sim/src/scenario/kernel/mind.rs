//! Models: slow, failing, rambling ones, that call whatever there is. What they are asked is looked at: it shows
//! nothing but what the turn may see, and every call in it has its answer.

use std::collections::BTreeSet;

use guild_kernel::model::{Chunk, Chunks, Failure, Message, Model, ModelCall, Prompt, Reply};
use guild_kernel::turn::step::Usage;
use guild_protocol::env::{BoxFuture, Clock};
use guild_store::args;
use serde_json::json;

use super::{LEASE_MS, Shared, client, delegation};

/// One of so many answers is none.
const FAILS_ONE_IN: u64 = 10;
/// After so many steps it comes to an end by itself.
const STEPS_ENOUGH: usize = 3;

/// The models of a world.
#[derive(Clone)]
pub(super) struct Mind(pub(super) Shared);

impl Model for Mind {
    fn answer(&self, prompt: Prompt, mut chunks: Chunks) -> BoxFuture<Result<Reply, Failure>> {
        let this = self.clone();
        Box::pin(async move {
            this.look_at(&prompt);
            chunks(Chunk::Text("hm".to_owned()));
            let pause_ms = this.pause_ms();
            this.0.world.sleep(pause_ms).await;
            match this.fails() {
                Some(failure) => Err(failure),
                None => Ok(this.reply(&prompt)),
            }
        })
    }
}

impl Mind {
    fn below(&self, n: u64) -> u64 {
        self.0.world.below(n)
    }

    /// Mostly quick, now and then slower than a lease lasts.
    fn pause_ms(&self) -> i64 {
        let most_ms = [20, 20, 20, 150, 150, 4 * LEASE_MS.unsigned_abs()];
        let at = usize::try_from(self.below(most_ms.len() as u64)).unwrap_or(0);
        self.0.world.below_ms(most_ms[at])
    }

    fn fails(&self) -> Option<Failure> {
        if self.below(FAILS_ONE_IN) > 0 {
            return None;
        }
        let world = &self.0.world;
        Some(match self.below(6) {
            0 => {
                world.count("model refuses");
                Failure::Refused("no".to_owned())
            }
            1 => {
                world.count("model talks nonsense");
                Failure::Garbled("?".to_owned())
            }
            n => {
                world.count("model is busy");
                let retry_after_ms = (n == 2).then_some(700);
                Failure::Busy { message: "later".to_owned(), retry_after_ms, cost_unknown: n > 3 }
            }
        })
    }

    fn reply(&self, prompt: &Prompt) -> Reply {
        let steps = prompt.messages.iter().filter(|m| matches!(m, Message::Assistant { .. }));
        let done = steps.count() >= STEPS_ENOUGH || self.below(3) == 0;
        let mut calls = Vec::new();
        if done {
            calls.push(self.submit());
        } else {
            let names: Vec<&str> = prompt.tools.iter().map(|tool| tool.name.as_str()).collect();
            let wish = wishes(prompt).into_iter().next().unwrap_or_default();
            let depth = delegation::depth_of(wish);
            for _ in 0..self.below(4) {
                calls.push(self.call(&names, depth));
            }
        }
        let text = if self.below(4) == 0 { String::new() } else { "hm, well".to_owned() };
        let usage = Usage {
            prompt_tokens: 10,
            completion_tokens: 3,
            cost_micro_usd: 7,
            cost_unknown: false,
            model: Some("sim".to_owned()),
        };
        Reply { text, reasoning: None, calls, usage }
    }

    fn submit(&self) -> ModelCall {
        let arguments = match self.below(5) {
            // Something else than was asked for.
            0 => json!({ "result": { "fields": [{ "name": "other", "value": 1 }] } }),
            _ => json!({ "result": { "fields": [{ "name": "answer", "value": 42 }] } }),
        };
        ModelCall {
            id: "call_0".to_owned(),
            tool_name: "submit_result".to_owned(),
            arguments: arguments.to_string(),
        }
    }

    fn call(&self, names: &[&str], depth: u64) -> ModelCall {
        let drawn = usize::try_from(self.below(names.len().max(1) as u64)).unwrap_or(0);
        let tool_name = match self.below(12) {
            0 => "nothing_of_this_name",
            _ => names.get(drawn).copied().unwrap_or("nothing_of_this_name"),
        };
        if tool_name == "submit_result" {
            return self.submit();
        }
        // Whoever may ask nobody any more looks instead.
        let delegates = delegation::is_tool(tool_name);
        let may = delegates && self.0.delegation.may_call(depth);
        let tool_name = if delegates && !may { "look" } else { tool_name };
        let arguments = match self.below(12) {
            0 => "{\"much\":".to_owned(),
            1 => "[1]".to_owned(),
            _ if may => delegation::arguments(&self.0, tool_name, depth).to_string(),
            _ => json!({ "much": self.below(9) }).to_string(),
        };
        // Names of models repeat, and may be empty.
        let id = ["call_0", "call_1", ""][usize::try_from(self.below(3)).unwrap_or(0)];
        ModelCall { id: id.to_owned(), tool_name: tool_name.to_owned(), arguments }
    }

    /// What a model is shown: what its turn was asked, nothing that another one was asked, no step that was not
    /// written down, and each call with its answer.
    fn look_at(&self, prompt: &Prompt) {
        let world = &self.0.world;
        let wishes = wishes(prompt);
        let [wish] = wishes.iter().copied().collect::<Vec<_>>()[..] else {
            return world.violate(format!("[prompt] it shows the wishes {wishes:?}"));
        };
        if let Err(what) = paired(&prompt.messages) {
            world.violate(format!("[prompt] {wish}: {what}"));
        }
        let steps = prompt.messages.iter().filter(|m| matches!(m, Message::Assistant { .. }));
        let steps = i64::try_from(steps.count()).unwrap_or(i64::MAX);
        let (sql, name) = match delegation::depth_of(wish) {
            0 => (SHOWN, wish.to_owned()),
            _ => (SHOWN_TO_KIDS, client::instruction(wish)),
        };
        let written: Option<i64> = self.0.database.one(sql, args![&name]).ok().flatten();
        if written.is_none_or(|written| steps > written) {
            world.violate(format!("[prompt] {wish}: {steps} steps are shown of {written:?}"));
        }
        if steps > 0 {
            world.count("step that follows another");
        }
    }
}

/// What is written in the box of a turn that a client has asked for.
const SHOWN: &str = "SELECT count(*) FROM agent_inbox AS i
    JOIN card_box_entries AS e ON e.box_id = json_extract(i.payload, '$.output_box_id')
    JOIN cards AS c ON c.card_id = e.card_id
    WHERE i.message_type = 'turn' AND i.correlation_id = $1
      AND c.type IN ('agent.thought', 'task.deliverable')";

/// The same of one that another turn has asked for; it may also have been handed what others have written.
const SHOWN_TO_KIDS: &str = "SELECT count(*) FROM cards AS k
    JOIN card_box_entries AS b ON b.card_id = k.card_id
    JOIN agent_inbox AS i ON i.message_type = 'turn' AND json_extract(i.payload, '$.context_box_id') = b.box_id
    JOIN card_box_entries AS e
      ON e.box_id IN (b.box_id, json_extract(i.payload, '$.output_box_id'))
    JOIN cards AS c ON c.card_id = e.card_id
    WHERE k.type = 'task.instruction' AND json_extract(k.content, '$.text') = $1
      AND c.type IN ('agent.thought', 'task.deliverable')";

/// What a turn was asked.
fn wishes(prompt: &Prompt) -> BTreeSet<&str> {
    prompt.messages.iter().filter_map(said).filter_map(client::wish_in).collect()
}

fn said(message: &Message) -> Option<&str> {
    match message {
        Message::User(text) => Some(text),
        _ => None,
    }
}

/// Providers refuse a call without its answer, and an answer without its call. Whatever follows a call comes after its
/// answers.
fn paired(messages: &[Message]) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for message in messages {
        match message {
            Message::Tool { model_call_id, .. } => {
                if !open.remove(model_call_id.as_str()) {
                    return Err(format!("an answer to {model_call_id:?}, which is not open"));
                }
            }
            _ if !open.is_empty() => return Err(format!("{open:?} have no answer")),
            Message::Assistant { calls, .. } => {
                for call in calls {
                    if call.id.is_empty() || !open.insert(&call.id) {
                        return Err(format!("two calls are named {:?}", call.id));
                    }
                }
            }
            Message::System(_) | Message::User(_) => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no answer")) }
}
