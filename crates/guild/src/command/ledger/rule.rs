//! `guild ledger rule`

use guild_ledger::Gate;
use guild_protocol::amount::AssetId;
use guild_roles::treasury::{AccountName, Changed, RuleChange};

use super::{find, read};
use crate::client::write_through;
use crate::command::Context;
use crate::error::Result;
use crate::output::Answer;

/// Set what an account must keep, and how much it may owe
///
/// It binds from now on; what was booked before stays. What is not named stays as it is, unless --clear takes it away
/// first. Through the running node, or directly when none runs.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").args(["reserve", "credit", "clear"]).required(true).multiple(true))]
pub(crate) struct Args {
    /// OWNER/PURPOSE, or the account's id
    #[arg(value_name = "ACCOUNT")]
    account: AccountName,
    /// What the account counts, if the name does not say it
    #[arg(long, value_name = "ASSET", value_parser = super::asset)]
    asset: Option<AssetId>,
    /// What must stay free, in smallest units
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::units_or_none)]
    reserve: Option<i64>,
    /// The purposes of the node's own accounts that may be paid from the reserve, separated by commas
    #[arg(long, value_name = "PURPOSE", value_delimiter = ',', requires = "reserve")]
    lets_through: Vec<String>,
    /// How far below zero it may go, in smallest units
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::units_or_none)]
    credit: Option<i64>,
    /// Take away the reserve and the credit it has
    #[arg(long)]
    clear: bool,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let name = args.account.clone();
    let found = read(&loaded, move |rx| find::look(rx, &name))?;
    let account = find::choose(&args.account, args.asset.as_ref(), found)?.account;
    let gate = |reserve_units| Gate { reserve_units, lets_through: args.lets_through.clone() };
    let change =
        RuleChange { clear: args.clear, gate: args.reserve.map(gate), credit_units: args.credit };
    let changed = write_through(
        &loaded,
        |client| client.set_rule(&account, &change),
        |parts, runtime| {
            let (account_id, change) = (account.account_id.clone(), change.clone());
            let ask = |treasury: guild_roles::treasury::Treasury| async move {
                treasury.set_rule(account_id, change).await
            };
            Ok(parts.ask_treasury(runtime, ask)?.0)
        },
    )?;
    if cx.out.json() {
        let outcome = if changed == Changed::Known { "known" } else { "new" };
        let (account_id, seq) = (&account.account_id, changed.seq());
        let body = serde_json::json!({ "account_id": account_id, "outcome": outcome, "seq": seq });
        cx.out.object(true, body)?;
        return Ok(Answer::Yes);
    }
    let (owner, purpose) = (&account.owner, &account.purpose);
    match changed {
        Changed::New(seq) => {
            cx.out.line(&format!("{owner}/{purpose} has a new rule, number {seq}"))?;
        }
        Changed::Known => cx.out.line(&format!("{owner}/{purpose} has this rule already"))?,
    }
    Ok(Answer::Yes)
}
