//! A model that answers at once, and a tool that does.

use guild_kernel::inbox::Outcome;
use guild_kernel::model::{Chunks, Failure, Message, Model, ModelCall, Prompt, Reply};
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome};
use guild_protocol::env::BoxFuture;
use serde_json::{Value, json};

/// What the tool of this bench is called.
pub(crate) const TOOL: &str = "look_up";

/// Calls the tool once if it may, and answers.
pub(crate) struct Quick;

impl Model for Quick {
    fn answer(&self, prompt: Prompt, _: Chunks) -> BoxFuture<Result<Reply, Failure>> {
        let may_call = prompt.tools.iter().any(|tool| tool.name == TOOL);
        let has_called = prompt.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        let reply = match may_call && !has_called {
            true => Reply {
                calls: vec![ModelCall {
                    id: "call_1".to_owned(),
                    tool_name: TOOL.to_owned(),
                    arguments: r#"{"key":"answer"}"#.to_owned(),
                }],
                ..Reply::default()
            },
            false => Reply { text: "It is done.".to_owned(), ..Reply::default() },
        };
        Box::pin(std::future::ready(Ok(reply)))
    }
}

/// Has an effect, for all that the kernel knows.
pub(crate) struct LookUp;

impl Tool for LookUp {
    fn effect(&self) -> Effect {
        Effect::Once
    }

    fn run(&self, _: ToolCall) -> BoxFuture<ToolOutcome> {
        let outcome = ToolOutcome {
            status: Outcome::Success,
            result: json!({ "value": 42 }),
            error: Value::Null,
            after_execution: None,
        };
        Box::pin(std::future::ready(outcome))
    }
}
