//! An answer while it comes.

use serde_json::Value;

use super::endpoint::{Limits, Price};
use super::signed;
use super::{Chunk, Chunks, Failure, ModelCall, Reply};
use crate::turn::step::Usage;

/// More tokens than any answer has. A larger number is not believed.
const TOKENS_MAX: i64 = 1_000_000_000;
/// What the kernel keeps of a model's own name for a call.
const CALL_ID_MAX_BYTES: usize = 200;
const TOOL_NAME_MAX_BYTES: usize = 256;

/// What came so far.
pub(super) struct Draft {
    pub(super) text: String,
    reasoning: String,
    calls: Vec<ModelCall>,
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    /// What the provider wants back with its thoughts.
    pub(super) signed: Option<(&'static str, Value)>,
    /// Whether the model has said all.
    pub(super) is_finished: bool,
    /// Whether nothing more is sent, not even what it used.
    pub(super) is_over: bool,
    chunks: Chunks,
    calls_max: usize,
}

impl Draft {
    pub(super) fn new(chunks: Chunks, limits: &Limits) -> Draft {
        Draft {
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            prompt_tokens: None,
            completion_tokens: None,
            signed: None,
            is_finished: false,
            is_over: false,
            chunks,
            calls_max: limits.calls_max,
        }
    }

    /// A piece of what it says.
    pub(super) fn say(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            (self.chunks)(Chunk::Text(text.to_owned()));
        }
    }

    /// A piece of what it thinks.
    pub(super) fn think(&mut self, text: &str) {
        if !text.is_empty() {
            self.reasoning.push_str(text);
            (self.chunks)(Chunk::Reasoning(text.to_owned()));
        }
    }

    /// How long the thoughts are.
    pub(super) fn thought_bytes(&self) -> usize {
        self.reasoning.len()
    }

    /// A call begins. Gives its place. An id that the kernel could not keep is as good as none.
    pub(super) fn call(&mut self, id: &str, tool_name: &str) -> Result<usize, Failure> {
        let place = self.calls.len();
        if place >= self.calls_max {
            let message = format!("the answer has more than {place} calls");
            return Err(Failure::Garbled(message));
        }
        let fits = id.len() <= CALL_ID_MAX_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic());
        let id = if fits { id.to_owned() } else { String::new() };
        self.calls.push(ModelCall { id, tool_name: String::new(), arguments: String::new() });
        self.name(place, tool_name)?;
        Ok(place)
    }

    /// The name of what is called, which some send later and some again and again.
    pub(super) fn name(&mut self, place: usize, tool_name: &str) -> Result<(), Failure> {
        if tool_name.len() > TOOL_NAME_MAX_BYTES {
            return Err(Failure::Garbled("the name of a tool is too long".to_owned()));
        }
        if let Some(call) = self.calls.get_mut(place)
            && call.tool_name.is_empty()
            && !tool_name.is_empty()
        {
            call.tool_name = tool_name.to_owned();
            (self.chunks)(Chunk::Call(tool_name.to_owned()));
        }
        Ok(())
    }

    /// A piece of a call's arguments.
    pub(super) fn arguments(&mut self, place: usize, piece: &str) {
        if let Some(call) = self.calls.get_mut(place)
            && !piece.is_empty()
        {
            call.arguments.push_str(piece);
            (self.chunks)(Chunk::Call(piece.to_owned()));
        }
    }

    /// The calls so far.
    pub(super) fn calls(&self) -> &[ModelCall] {
        &self.calls
    }

    /// What was used, where it is said. What is said last counts.
    pub(super) fn used(&mut self, prompt: Option<i64>, completion: Option<i64>) {
        self.prompt_tokens = prompt.or(self.prompt_tokens);
        self.completion_tokens = completion.or(self.completion_tokens);
    }

    /// The answer, once it is finished.
    pub(super) fn into_reply(mut self, model: String, price: Option<&Price>) -> Reply {
        for call in &mut self.calls {
            // A tool without arguments is called with nothing by some.
            if call.arguments.trim().is_empty() {
                call.arguments = "{}".to_owned();
            }
        }
        let believed = |tokens: Option<i64>| tokens.filter(|n| (0..=TOKENS_MAX).contains(n));
        let tokens = believed(self.prompt_tokens).zip(believed(self.completion_tokens));
        let (prompt_tokens, completion_tokens) = (
            believed(self.prompt_tokens).unwrap_or(0),
            believed(self.completion_tokens).unwrap_or(0),
        );
        let cost =
            tokens.zip(price).and_then(|((read, written), price)| cost(read, written, price));
        Reply {
            text: self.text,
            reasoning: signed::join(self.reasoning, self.signed),
            calls: self.calls,
            usage: Usage {
                prompt_tokens,
                completion_tokens,
                cost_micro_usd: cost.unwrap_or(0),
                cost_unknown: cost.is_none(),
                model: Some(model),
            },
        }
    }
}

/// What tokens cost, rounded up. Nothing if it is more than can be counted.
fn cost(prompt_tokens: i64, completion_tokens: i64, price: &Price) -> Option<i64> {
    let read = prompt_tokens.checked_mul(price.prompt_micro_usd);
    let written = completion_tokens.checked_mul(price.completion_micro_usd);
    let millionths = read?.checked_add(written?)?;
    Some(millionths.checked_add(999_999)?.div_euclid(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_exact_and_rounded_up() {
        let price = Price { prompt_micro_usd: 2_500_000, completion_micro_usd: 10_000_000 };
        for (prompt, completion, expected) in
            [(0, 0, 0), (1, 0, 3), (2, 0, 5), (0, 1, 10), (1_000, 500, 7_500), (3, 1, 18)]
        {
            assert_eq!(cost(prompt, completion, &price), Some(expected), "{prompt} {completion}");
        }
        let free = Price::default();
        assert_eq!(cost(TOKENS_MAX, TOKENS_MAX, &free), Some(0));
        let dear = Price { prompt_micro_usd: i64::MAX, completion_micro_usd: 1 };
        assert_eq!(cost(2, 0, &dear), None);
        assert_eq!(cost(1, 1, &dear), None);
    }

    #[test]
    fn what_is_not_known_costs_nothing_and_says_so() {
        let price = Price { prompt_micro_usd: 1_000_000, completion_micro_usd: 1_000_000 };
        let used = |prompt, completion, price: Option<&Price>| {
            let mut draft = Draft::new(Box::new(|_| ()), &Limits::default());
            draft.used(prompt, completion);
            let usage = draft.into_reply("a/b".to_owned(), price).usage;
            (usage.prompt_tokens, usage.completion_tokens, usage.cost_micro_usd, usage.cost_unknown)
        };
        assert_eq!(used(Some(3), Some(4), Some(&price)), (3, 4, 7, false));
        assert_eq!(used(Some(3), Some(4), None), (3, 4, 0, true));
        assert_eq!(used(None, None, Some(&price)), (0, 0, 0, true));
        assert_eq!(used(Some(3), None, Some(&price)), (3, 0, 0, true));
        assert_eq!(used(Some(-3), Some(1), Some(&price)), (0, 1, 0, true));
        assert_eq!(used(Some(i64::MAX), Some(1), Some(&price)), (0, 1, 0, true));
        assert_eq!(used(Some(3), Some(4), Some(&Price::default())), (3, 4, 0, false));
    }

    #[test]
    fn calls_are_counted() {
        let limits = Limits { calls_max: 2, ..Limits::default() };
        let mut draft = Draft::new(Box::new(|_| ()), &limits);
        assert_eq!(draft.call("a", "x"), Ok(0));
        assert_eq!(draft.call(&"b".repeat(201), ""), Ok(1));
        assert!(matches!(draft.call("c", "x"), Err(Failure::Garbled(_))));
        assert_eq!(draft.calls()[1].id, "");
        assert!(draft.name(1, &"n".repeat(257)).is_err());
        draft.name(1, "y").unwrap();
        draft.name(1, "z").unwrap();
        assert_eq!(draft.calls()[1].tool_name, "y");
        let reply = draft.into_reply(String::new(), None);
        assert_eq!(reply.calls[0].arguments, "{}");
    }
}
