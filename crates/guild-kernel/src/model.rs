//! What thinks: one trait, whoever is behind it.
//!
//! A model is asked with everything that it needs to know and answers once. It keeps nothing, and it has no effect: an
//! answer that is lost with its worker is asked for again.
//!
//! [`Online`] is a door to models behind a line: [`Endpoints`] say where, by what key and for how much.

mod dial;
mod draft;
mod endpoint;
mod exchange;
mod failure;
mod frames;
mod online;
mod signed;
mod talk;
mod wire;

pub use endpoint::{Endpoint, Endpoints, Limits, Price, Provider, Secret};
pub use online::Online;

use guild_protocol::env::BoxFuture;
use serde_json::Value;

use crate::turn::step::Usage;

/// What a model is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt {
    /// `llm_config` of the profile: the model's name and how it is to think.
    pub config: Value,
    /// What was said so far, in order.
    pub messages: Vec<Message>,
    /// What it may call.
    pub tools: Vec<ToolSpec>,
    /// Whether it must call one of them.
    pub must_call: bool,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// By the system.
    System(String),
    /// By whoever asks.
    User(String),
    /// By the model itself.
    Assistant {
        /// What it said.
        text: String,
        /// What it thought before, where a provider wants that back.
        reasoning: Option<String>,
        /// What it called.
        calls: Vec<ModelCall>,
    },
    /// By a tool.
    Tool {
        /// Which call it answers, as the model named it.
        model_call_id: String,
        /// Which tool.
        tool_name: String,
        /// What came out.
        text: String,
    },
}

/// A call that a model makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    /// The model's own name for it. It may be empty, and it may repeat.
    pub id: String,
    /// What is called.
    pub tool_name: String,
    /// With what, as the model wrote it: mostly a JSON object.
    pub arguments: String,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// What it is called.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// A JSON Schema of the arguments that the model chooses.
    pub parameters: Value,
}

/// What a model answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// What it says; empty if it only calls.
    pub text: String,
    /// What it thought before, where the provider tells.
    pub reasoning: Option<String>,
    /// What it calls.
    pub calls: Vec<ModelCall>,
    /// What it used.
    pub usage: Usage,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It may answer later: too many questions, or no way to it.
    Busy {
        /// What it said.
        message: String,
        /// When it wants to be asked again, if it says so.
        retry_after_ms: Option<i64>,
        /// Whether it may have worked all the same: nobody knows what that cost.
        cost_unknown: bool,
    },
    /// It will not answer this: the question, the key or the name of the model is refused.
    Refused(String),
    /// Its answer cannot be read.
    Garbled(String),
}

/// A piece of an answer that is still coming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Of what it says.
    Text(String),
    /// Of what it thinks.
    Reasoning(String),
    /// Of a call: the tool's name, or a piece of its arguments.
    Call(String),
}

/// Takes pieces of an answer while it comes. It never waits.
pub type Chunks = Box<dyn FnMut(Chunk) + Send>;

/// A model, or a door to many: which one answers is said by [`Prompt::config`].
pub trait Model: Send + Sync {
    /// Answers once.
    fn answer(&self, prompt: Prompt, chunks: Chunks) -> BoxFuture<Result<Reply, Failure>>;
}
