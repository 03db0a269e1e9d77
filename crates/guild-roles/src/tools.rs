//! What the agents of a node can call in the process of their worker.
//!
//! | tool | what it does | when its worker is lost |
//! |---|---|---|
//! | `sandbox_run` | runs a command line on a few files, in a sandbox | it is run again: a sandbox leaves nothing |
//! | `ledger_balance` | tells what the node's wallet has | it is read again |
//! | `hire` | orders work on the market and waits for it | the same order is waited for: the call is its key |
//!
//! An [`Offer`] says which of them a node has, and gives the rows by which projects know them; a profile says which of
//! those an agent may call. Every refusal has a code, and the turn goes on with it.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use guild_kernel::inbox::Outcome;
use guild_kernel::pmo;
use guild_kernel::roster::{AfterExecution, Tool as Row};
use guild_kernel::tool::{Tool, ToolOutcome, Tools};
use guild_kernel::{ProjectId, roster};
use guild_protocol::amount::Msat;
use guild_protocol::env::Clock;
use guild_protocol::error::Code;
use guild_protocol::schema::Registry;
use guild_store::{Store, Tx};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::buyer::Buyer;
use crate::error::code;
use crate::workshop::Workshop;
use crate::{Error, Result};

mod balance;
mod hire;
mod sandbox;

/// So many characters of a refusal reach the turn that called.
const WORDS_MAX_CHARS: usize = 500;

/// A tool of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeTool {
    /// Runs a command line in a sandbox.
    SandboxRun,
    /// Tells what the wallet has.
    LedgerBalance,
    /// Orders work on the market.
    Hire,
}

impl NodeTool {
    /// All of them.
    pub const ALL: [NodeTool; 3] = [NodeTool::SandboxRun, NodeTool::LedgerBalance, NodeTool::Hire];

    /// Its name, as models call it and as profiles allow it.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeTool::SandboxRun => "sandbox_run",
            NodeTool::LedgerBalance => "ledger_balance",
            NodeTool::Hire => "hire",
        }
    }
}

impl FromStr for NodeTool {
    type Err = Error;

    fn from_str(text: &str) -> Result<NodeTool> {
        NodeTool::ALL.into_iter().find(|tool| tool.as_str() == text).ok_or_else(|| {
            let (name, all) = (text.chars().take(60).collect::<String>(), NodeTool::ALL);
            let known = all.map(NodeTool::as_str).join(", ");
            Error::refused(&code::TOOL_UNKNOWN, format!("{name:?} is none of {known}"))
        })
    }
}

/// What a node offers to its agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Which tools.
    pub tools: BTreeSet<NodeTool>,
    /// How long one command line may run.
    pub run_max_s: u32,
    /// The most that one order of an agent may cost.
    pub hire_max: Msat,
}

impl Offer {
    /// The rows by which a project knows them, those of orchestration among them.
    pub fn rows(&self, project_id: &ProjectId) -> Vec<Row> {
        let own = self.tools.iter().map(|tool| match tool {
            NodeTool::SandboxRun => sandbox::row_of(project_id, self.run_max_s),
            NodeTool::LedgerBalance => balance::row_of(project_id),
            NodeTool::Hire => hire::row_of(project_id, self.hire_max),
        });
        own.chain(pmo::tool_rows(project_id)).collect()
    }

    /// Writes the rows of a project, as far as nobody else has written them.
    pub(crate) fn put(
        &self,
        tx: &mut Tx<'_>,
        project_id: &ProjectId,
        now_ms: i64,
    ) -> guild_kernel::Result<()> {
        roster::offer_tools(tx, &self.rows(project_id), now_ms)
    }
}

/// What the tools of a node work with.
#[derive(Clone)]
pub struct Means {
    /// Where the money is.
    pub store: Store,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The schemas that are known.
    pub registry: Arc<Registry>,
    /// Where commands are run, or why nowhere: nothing runs outside of a sandbox.
    pub workshop: Result<Workshop, String>,
    /// Who hires.
    pub buyer: Buyer,
}

/// The tools of an offer, for a worker.
pub fn tools(offer: &Offer, means: &Means) -> Tools {
    let tool = |one: NodeTool| -> Arc<dyn Tool> {
        match one {
            NodeTool::SandboxRun => {
                let (workshop, registry) = (means.workshop.clone(), means.registry.clone());
                Arc::new(sandbox::SandboxRun { workshop, registry })
            }
            NodeTool::LedgerBalance => Arc::new(balance::LedgerBalance(means.store.clone())),
            NodeTool::Hire => {
                let (buyer, clock) = (means.buyer.clone(), means.clock.clone());
                Arc::new(hire::Hire { buyer, clock, most: offer.hire_max })
            }
        }
    };
    offer.tools.iter().map(|one| (one.as_str().to_owned(), tool(*one))).collect()
}

/// The row of a tool that runs in the worker.
fn row(
    project_id: &ProjectId,
    tool: NodeTool,
    description: String,
    parameters: Value,
    wait_s: u32,
) -> Row {
    Row {
        project_id: project_id.clone(),
        tool_name: tool.as_str().to_owned(),
        description,
        parameters,
        target_subject: None,
        after_execution: AfterExecution::Suspend,
        options: json!({ "suspend_timeout_seconds": wait_s }),
    }
}

/// What a tool was called with. It comes from a model, so anything may be there.
fn arguments<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value)
        .map_err(|error| Error::refused(&code::TOOL_ARGUMENTS, error.to_string()))
}

fn success(result: Value) -> ToolOutcome {
    ToolOutcome { status: Outcome::Success, result, error: Value::Null, after_execution: None }
}

/// A call that came to nothing, or not to what was wanted.
fn failure(status: Outcome, code: &Code, words: &str, result: Value) -> ToolOutcome {
    let words: String = words.chars().take(WORDS_MAX_CHARS).collect();
    let error = json!({ "code": code.name, "message": words, "source": "sys.node" });
    ToolOutcome { status, result, error, after_execution: None }
}

fn refusal(error: &Error) -> ToolOutcome {
    failure(Outcome::Failed, error.code(), &error.to_string(), Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_has_one_name_and_others_are_refused() {
        for tool in NodeTool::ALL {
            assert_eq!(tool.as_str().parse(), Ok(tool));
        }
        let refused = "shell\u{1b}".parse::<NodeTool>().unwrap_err();
        assert_eq!(refused.code(), &code::TOOL_UNKNOWN);
        assert!(!refused.to_string().contains('\u{1b}'));
    }

    #[test]
    fn rows_are_named_by_their_tools_and_wait_long_enough() {
        let offer = Offer { tools: NodeTool::ALL.into(), run_max_s: 600, hire_max: Msat(100_000) };
        let project = "p1".parse().unwrap();
        let rows = offer.rows(&project);
        let names: Vec<&str> = rows.iter().map(|row| row.tool_name.as_str()).take(3).collect();
        assert_eq!(names, ["sandbox_run", "ledger_balance", "hire"]);
        assert!(rows.iter().any(|row| row.tool_name == pmo::FORK_JOIN));
        assert!(rows[0].options["suspend_timeout_seconds"].as_i64().unwrap() > 600);
        for row in &rows {
            assert_eq!(row.parameters["type"], "object", "{}", row.tool_name);
            assert_eq!(row.parameters["additionalProperties"], false, "{}", row.tool_name);
        }
        let none = Offer { tools: [].into(), ..offer };
        assert!(none.rows(&project).iter().all(|row| row.target_subject.is_some()));
    }
}
