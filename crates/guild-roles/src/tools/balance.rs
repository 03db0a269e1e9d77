//! What the wallet of the node has.

use guild_kernel::ProjectId;
use guild_kernel::roster::Tool as Row;
use guild_kernel::tool::{Effect, Tool, ToolCall, ToolOutcome};
use guild_ledger::ledger;
use guild_market::order;
use guild_protocol::env::BoxFuture;
use guild_store::Store;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{NodeTool, arguments, refusal, row, success};
use crate::{Error, Result};

const WORDS: &str = "Tell how much money the wallet of this node has, in millisatoshi: in all, held for orders that \
                     are under way, and free to be spent.";
const WAIT_S: u32 = 30;

pub(super) fn row_of(project_id: &ProjectId) -> Row {
    let parameters = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    row(project_id, NodeTool::LedgerBalance, WORDS.to_owned(), parameters, WAIT_S)
}

/// Reads, and nothing else. It tells of the wallet alone: other accounts belong to others.
pub(super) struct LedgerBalance(pub(super) Store);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Tool for LedgerBalance {
    fn effect(&self) -> Effect {
        Effect::Pure
    }

    fn run(&self, call: ToolCall) -> BoxFuture<ToolOutcome> {
        let store = self.0.clone();
        Box::pin(async move {
            let told = match arguments::<Nothing>(call.arguments) {
                Ok(Nothing {}) => balance(&store).await,
                Err(error) => Err(error),
            };
            told.map_or_else(|error| refusal(&error), success)
        })
    }
}

async fn balance(store: &Store) -> Result<Value> {
    let read = store.read(|rx| {
        let wallet = order::wallet()?;
        let found = ledger::entries(rx, &[wallet.account_id.clone()].into())?;
        // A wallet that nobody has opened is empty.
        let balance = found.get(&wallet.account_id).map(|entry| entry.balance);
        Ok::<_, Error>((wallet, balance.unwrap_or_default()))
    });
    let (wallet, balance) = read.await?;
    Ok(json!({
        "account": format!("{}/{}", wallet.owner, wallet.purpose),
        "asset_id": wallet.asset_id,
        "units": balance.units().to_string(),
        "held_units": balance.debits_pending.to_string(),
        "free_units": balance.free_units().to_string(),
    }))
}
