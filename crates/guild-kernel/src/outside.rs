//! How the kernel meets processes outside it: commands leave, what happens is told, and results come in.
//!
//! | what | subject, below `{prefix}.{project_id}.{channel_id}` | who sends |
//! |---|---|---|
//! | a command | `cmd.tool.…`, from the tool's row | the outbox, by [`command_sink`] |
//! | a question about a call | `cmd.sys.kernel.call` | a tool; answered by a [`Desk`] |
//! | a result | `cmd.sys.kernel.report` | a tool; taken by a [`Desk`] |
//! | what has happened | `evt.agent.{agent_id}.{step\|task\|state}` | a [`Teller`], from the event table |
//! | there is work for a target | `cmd.agent.{target}.wakeup` | a [`Teller`], once work waits; heard by a [`Doorbell`] |
//! | what is being said | `str.agent.{agent_id}.chunk` | a [`Voice`]; nobody keeps these |
//!
//! Who acts in which turn stands in headers. A command carries a secret that follows from exactly these headers and a
//! key of the store; whoever asks or reports sends the headers back with it. So a tool can answer what it was called
//! for and nothing else, and what was forged changes nothing.

mod command;
mod desk;
pub(crate) mod doorbell;
mod header;
mod report;
mod secret;
mod tell;
mod voice;

pub use command::command_sink;
pub use desk::{Desk, DeskOptions};
pub use doorbell::Doorbell;
pub use header::{
    AGENT_ID, CHANNEL_ID, DEADLINE, EVENT_SEQ, MSG_TYPE, PARENT_STEP_ID, PARENT_TRACEPARENT,
    PROJECT_ID, RECURSION_DEPTH, SECRET, SENDER, STEP_ID, TIMESTAMP, TOOL_CALL_ID, TRACEPARENT,
    TURN_EPOCH, TURN_ID, VERSION,
};
pub use secret::CallKey;
pub use tell::{Teller, TellerOptions, TellerParts};
pub use voice::{Said, Speaker, Voice};

/// The subject of results.
pub const REPORT: &str = "cmd.sys.kernel.report";
/// The subject of questions about calls.
pub const CALL: &str = "cmd.sys.kernel.call";
