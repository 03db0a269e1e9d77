//! `guild ledger open`

use guild_ledger::{Account, Limit};
use guild_protocol::amount::AssetId;
use guild_roles::treasury::Changed;

use crate::client::write_through;
use crate::command::Context;
use crate::error::Result;
use crate::output::Answer;

const LIMITS: [&str; 3] = ["never-negative", "never-positive", "none"];

/// Open an account
///
/// Through the running node, or directly when none runs. Opening it again changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose it is: an npub, a name, or node
    owner: String,
    /// What it is for: main, escrow, revenue, …
    purpose: String,
    /// What it counts, such as USD_MICRO or BTC_LN
    #[arg(long, value_name = "ASSET", value_parser = super::asset)]
    asset: AssetId,
    /// How far it may go; none is for the outside world, from which deposits come
    #[arg(long, value_name = "LIMIT", default_value = LIMITS[0], value_parser = LIMITS)]
    limit: String,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    // One word for it everywhere; only a command line writes words with hyphens.
    let limit = Limit::parse(&args.limit.replace('-', "_")).unwrap_or(Limit::NeverNegative);
    let account = Account::new(&args.owner, &args.purpose, args.asset.clone(), limit)?;
    let loaded = cx.config()?;
    let changed = write_through(
        &loaded,
        |client| client.open_account(&account),
        |parts, runtime| {
            let account = account.clone();
            parts.ask_treasury(runtime, |treasury| async move { treasury.open(account).await })
        },
    )?;
    let account_id = &account.account_id;
    if cx.out.json() {
        let outcome = if changed == Changed::Known { "known" } else { "new" };
        let seq = changed.seq();
        let body = serde_json::json!({ "account_id": account_id, "outcome": outcome, "seq": seq });
        cx.out.object(true, body)?;
        return Ok(Answer::Yes);
    }
    match changed {
        Changed::New(seq) => cx.out.line(&format!("{account_id}  number {seq}"))?,
        Changed::Known => {
            cx.out.line(&format!("{account_id}  was open before; nothing changed"))?;
        }
    }
    Ok(Answer::Yes)
}
