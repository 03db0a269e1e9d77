//! `guild ledger accounts`

use guild_ledger::book::Entry;
use guild_ledger::ledger;
use serde::Serialize;

use crate::command::Context;
use crate::command::table::{self, Column};
use crate::error::Result;
use crate::output::Answer;

/// Amounts are texts: not every reader of JSON keeps 64 bits.
#[derive(Serialize)]
struct Row<'a> {
    account_id: &'a str,
    owner: &'a str,
    purpose: &'a str,
    asset_id: &'a str,
    limit: &'a str,
    units: String,
    free_units: String,
    held_units: String,
    reserve_units: Option<String>,
    lets_through: Option<&'a [String]>,
    credit_units: Option<String>,
}

impl Row<'_> {
    fn of(entry: &Entry) -> Row<'_> {
        let gate = entry.rule.gate.as_ref();
        Row {
            account_id: entry.account.account_id.as_str(),
            owner: &entry.account.owner,
            purpose: &entry.account.purpose,
            asset_id: entry.account.asset_id.as_str(),
            limit: entry.account.limit.as_str(),
            units: entry.balance.units().to_string(),
            free_units: entry.balance.free_units().to_string(),
            held_units: entry.balance.debits_pending.to_string(),
            reserve_units: gate.map(|gate| gate.reserve_units.to_string()),
            lets_through: gate.map(|gate| &gate.lets_through[..]),
            credit_units: entry.rule.credit_units.map(|units| units.to_string()),
        }
    }

    fn cells(self) -> [String; 8] {
        let or_dash = |units: Option<String>| units.unwrap_or_else(|| "-".to_owned());
        [
            self.owner.to_owned(),
            self.purpose.to_owned(),
            self.asset_id.to_owned(),
            self.units,
            self.free_units,
            self.held_units,
            or_dash(self.reserve_units),
            or_dash(self.credit_units),
        ]
    }
}

pub(super) fn run(cx: &mut Context<'_>) -> Result<Answer> {
    let entries = super::read(&cx.config()?, ledger::all_entries)?;
    let mut entries: Vec<Entry> = entries.into_values().collect();
    entries.sort_by_cached_key(|entry| {
        let account = &entry.account;
        (account.owner.clone(), account.purpose.clone(), account.asset_id.clone())
    });
    let rows = entries.iter().map(Row::of);
    if cx.out.json() {
        cx.out.object(true, serde_json::json!({ "accounts": rows.collect::<Vec<_>>() }))?;
        return Ok(Answer::Yes);
    }
    if entries.is_empty() {
        cx.out.line("no account has been opened")?;
        return Ok(Answer::Yes);
    }
    let columns = [
        Column::Left("owner"),
        Column::Left("purpose"),
        Column::Left("asset"),
        Column::Right("balance"),
        Column::Right("free"),
        Column::Right("held"),
        Column::Right("reserve"),
        Column::Right("credit"),
    ];
    table::print(columns, &rows.map(Row::cells).collect::<Vec<_>>(), cx.out)?;
    Ok(Answer::Yes)
}
