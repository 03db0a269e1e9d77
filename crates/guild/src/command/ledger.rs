//! `guild ledger`

use guild_ledger::book::Entry;
use guild_ledger::{audit, ledger};
use serde::Serialize;

use super::Context;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::runtime;

/// Look at the money of this node
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List every account with its balance
    Accounts,
    /// Recompute everything from the transfers, and compare
    ///
    /// Every transfer is decided again by the rules, from nothing. Balances, sums and head hashes must be those that
    /// are stored. Works beside a running node.
    Audit,
}

#[derive(Serialize)]
struct AccountBody<'a> {
    account_id: &'a str,
    owner: &'a str,
    purpose: &'a str,
    asset_id: &'a str,
    units: i64,
    free_units: i64,
    reserve_units: Option<i64>,
    credit_units: Option<i64>,
}

#[derive(Serialize)]
struct AuditBody<'a> {
    accounts: usize,
    transfers: u64,
    problems: &'a [String],
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let service = node::open_read_only(&loaded)?;
    let store = service.handle();
    let answer = match command {
        Command::Accounts => {
            let entries = runtime()?.block_on(store.read(ledger::all_entries))?;
            let mut entries: Vec<Entry> = entries.into_values().collect();
            entries.sort_by_cached_key(|entry| {
                let account = &entry.account;
                (account.owner.clone(), account.purpose.clone(), account.asset_id.clone())
            });
            accounts(&entries, cx)
        }
        Command::Audit => {
            let report = runtime()?.block_on(store.read(audit::run))?;
            audited(&report, cx)
        }
    };
    service.close();
    answer
}

fn accounts(entries: &[Entry], cx: &mut Context<'_>) -> Result<Answer> {
    if cx.out.json() {
        let rows: Vec<AccountBody<'_>> = entries.iter().map(body).collect();
        cx.out.object(true, serde_json::json!({ "accounts": rows }))?;
        return Ok(Answer::Yes);
    }
    if entries.is_empty() {
        cx.out.line("no account has been opened")?;
    }
    for entry in entries {
        let row = body(entry);
        cx.out.line(&format!(
            "{:>16} {:<12} {} / {}  (free {})",
            row.units, row.asset_id, row.owner, row.purpose, row.free_units
        ))?;
    }
    Ok(Answer::Yes)
}

fn body(entry: &Entry) -> AccountBody<'_> {
    AccountBody {
        account_id: entry.account.account_id.as_str(),
        owner: &entry.account.owner,
        purpose: &entry.account.purpose,
        asset_id: entry.account.asset_id.as_str(),
        units: entry.balance.units(),
        free_units: entry.balance.free_units(),
        reserve_units: entry.rule.gate.as_ref().map(|gate| gate.reserve_units),
        credit_units: entry.rule.credit_units,
    }
}

fn audited(report: &audit::Report, cx: &mut Context<'_>) -> Result<Answer> {
    let audit::Report { accounts, transfers, problems } = report;
    let holds = problems.is_empty();
    if cx.out.json() {
        let body = AuditBody { accounts: *accounts, transfers: *transfers, problems };
        cx.out.object(holds, body)?;
        return Ok(Answer::of(holds));
    }
    for problem in problems {
        cx.out.line(&format!("FAILED  {problem}"))?;
    }
    let verdict = if holds { "the ledger holds" } else { "the ledger does NOT hold" };
    cx.out.line(&format!("{verdict}: {transfers} transfers between {accounts} accounts"))?;
    Ok(Answer::of(holds))
}
