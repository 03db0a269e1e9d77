//! Work that others do, ordered on the market.

use std::sync::Arc;

use futures_util::future::{Either, select};
use guild_kernel::ProjectId;
use guild_kernel::inbox::Outcome;
use guild_kernel::roster::Tool as Row;
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_protocol::identity::PublicKey;
use guild_protocol::schema::SchemaId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{NodeTool, arguments, failure, refusal, row, success};
use crate::buyer::{Buyer, Choice, Order, State, Wish};
use crate::error::code;
use crate::{Error, Result};

/// How long the work may take, if nobody says how long.
const USUAL_S: u32 = 300;
/// The longest that it may take.
const MOST_S: u32 = 3_600;
/// A result that came in the last moment is still judged and paid while the call waits.
const JUDGING_S: u32 = 120;
/// So long before the call is given up its turn is told how the order stands.
const FAREWELL_MS: i64 = 5_000;
/// A store that is away is asked again.
const AGAIN_MS: i64 = 1_000;
/// A longer result is only begun: all of it is kept with the order.
const OUTPUT_MAX_BYTES: usize = 64 * 1_024;

pub(super) fn row_of(project_id: &ProjectId, most: Msat) -> Row {
    let words = format!(
        "Order work from somebody on the market, and wait for the result. It is checked, and paid from the wallet of \
         this node if it is what was ordered: {} millisatoshi at most for one order.",
        most.0
    );
    let parameters = json!({
        "type": "object",
        "properties": {
            "schema_id": {
                "type": "string",
                "minLength": 1,
                "description": "What kind of work: oa.embedding.v1, oa.sandbox_run.v1, …",
            },
            "input": { "type": "object", "description": "The work, as its schema wants it." },
            "budget_msat": {
                "type": "integer",
                "minimum": 0,
                "maximum": most.0,
                "description": "The most that is paid, in millisatoshi.",
            },
            "provider": {
                "type": "string",
                "description": "Who is to do it, npub1… or hex. Left out: the cheapest who is alive.",
            },
            "private": { "type": "boolean", "description": "Whether it travels encrypted." },
            "time_limit_s": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_S,
                "description": format!("Seconds until the result must be there: {USUAL_S}."),
            },
        },
        "required": ["schema_id", "input"],
        "additionalProperties": false,
    });
    row(project_id, NodeTool::Hire, words, parameters, MOST_S.saturating_add(JUDGING_S))
}

/// Hires as `guild hire` does, within a budget that the node sets.
#[derive(Clone)]
pub(super) struct Hire {
    pub(super) buyer: Buyer,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) most: Msat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    schema_id: SchemaId,
    input: Value,
    budget_msat: Option<i64>,
    provider: Option<String>,
    #[serde(default)]
    private: bool,
    time_limit_s: Option<u32>,
}

impl Tool for Hire {
    /// The order is named by the call. Whoever runs the call again finds the order, and waits for the same.
    fn effect(&self) -> Effect {
        Effect::Once
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let this = self.clone();
        Box::pin(async move {
            let ended = match this.wish(&call) {
                Ok(wish) => this.order(wish, call.deadline_ms).await,
                Err(error) => Err(error),
            };
            ended.map_or_else(|error| refusal(&error), |order| told(&order))
        })
    }
}

impl Hire {
    fn wish(&self, call: &ToolCall) -> Result<Wish> {
        let asked: Asked = arguments(call.arguments.clone())?;
        let budget = Msat(asked.budget_msat.unwrap_or(self.most.0));
        if budget > self.most {
            let words =
                format!("{} msat are more than one order may cost, {}", budget.0, self.most.0);
            return Err(Error::refused(&code::TOOL_BUDGET, words));
        }
        let malformed = |words: &str| Error::refused(&code::TOOL_ARGUMENTS, words);
        if budget.0 < 0 {
            return Err(malformed("budget_msat: it is less than nothing"));
        }
        let provider = match &asked.provider {
            None => Choice::Best,
            Some(key) => {
                let key = key.parse::<PublicKey>();
                Choice::Chosen(key.map_err(|_| malformed("provider: it is no key of anybody"))?)
            }
        };
        let limit_s = asked.time_limit_s.unwrap_or(USUAL_S);
        if !(1..=MOST_S).contains(&limit_s) {
            return Err(malformed(&format!("time_limit_s: from 1 to {MOST_S}, not {limit_s}")));
        }
        Ok(Wish {
            schema_id: asked.schema_id,
            input: asked.input,
            budget,
            time_limit_ms: i64::from(limit_s).saturating_mul(1_000),
            provider,
            private: asked.private,
            policy: None,
            kind: None,
            idempotency_key: Some(format!("agent-{}", call.tool_call_id)),
        })
    }

    /// The order, once it has ended or nobody waits any longer.
    async fn order(&self, wish: Wish, deadline_ms: UnixMs) -> Result<Order> {
        let posted = self.patiently(deadline_ms, || self.buyer.hire(wish.clone())).await?;
        let order_id = &posted.order_id;
        let left_ms = deadline_ms.saturating_sub(self.clock.now_ms()).saturating_sub(FAREWELL_MS);
        let wait = Box::pin(self.patiently(deadline_ms, || self.buyer.wait(order_id)));
        match select(wait, self.clock.sleep(left_ms)).await {
            Either::Left((ended, _)) => ended,
            Either::Right(_) => {
                self.patiently(deadline_ms, || self.buyer.order(order_id.clone())).await
            }
        }
    }

    /// Asks again while the store is away: what was asked may have been done, and asking again is asking for the same.
    async fn patiently<T, F: Future<Output = Result<T>>>(
        &self,
        deadline_ms: UnixMs,
        ask: impl Fn() -> F,
    ) -> Result<T> {
        loop {
            match ask().await {
                Err(error)
                    if error.concerns_all()
                        && !error.is_closed()
                        && self.clock.now_ms() < deadline_ms =>
                {
                    self.clock.sleep(AGAIN_MS).await;
                }
                answer => return answer,
            }
        }
    }
}

/// What came of an order.
fn told(order: &Order) -> ToolOutcome {
    let mut result = json!({
        "order_id": order.order_id,
        "request_id": order.request_id,
        "state": order.state.as_str(),
        "provider": order.provider.map(|provider| provider.npub()),
        "paid_msat": order.paid.map(|paid| paid.0),
        "receipt_id": order.receipt_id,
    });
    if order.state == State::Released {
        if let Some(result) = result.as_object_mut() {
            result.extend(output(order.output_text.as_deref().unwrap_or_default()));
        }
        return success(result);
    }
    let why = order.words.as_deref().unwrap_or("there is no result that could be accepted");
    let words = format!("the order is {}: {why}", order.state.as_str());
    failure(Outcome::Failed, &code::TOOL_ORDER, &words, result)
}

/// What somebody else made: as it is if it is short and JSON, else its beginning.
fn output(text: &str) -> Vec<(String, Value)> {
    if text.len() <= OUTPUT_MAX_BYTES
        && let Ok(output) = serde_json::from_str::<Value>(text)
    {
        return vec![("output".to_owned(), output)];
    }
    let end = (0..=OUTPUT_MAX_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let start = text.get(..end.unwrap_or(0)).unwrap_or_default();
    vec![
        ("output_start".to_owned(), Value::from(start)),
        ("output_bytes".to_owned(), Value::from(text.len())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_result_is_only_begun() {
        assert_eq!(output(r#"{"a":1}"#), [("output".to_owned(), json!({ "a": 1 }))]);
        assert_eq!(output("no json")[0], ("output_start".to_owned(), "no json".into()));
        let long = format!("\"{}\"", "ä".repeat(OUTPUT_MAX_BYTES));
        let told = output(&long);
        let start = told[0].1.as_str().unwrap();
        assert!(start.len() >= OUTPUT_MAX_BYTES - 1 && long.starts_with(start));
        assert_eq!(told[1], ("output_bytes".to_owned(), long.len().into()));
    }
}
