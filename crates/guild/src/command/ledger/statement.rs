//! `guild ledger statement`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_ledger::book::{Booked, Entry};
use guild_ledger::history::{self, PAGE_MAX, StatementLine};
use guild_ledger::{Account, StepName};
use guild_protocol::amount::AssetId;
use guild_roles::treasury::AccountName;
use serde::Serialize;

use super::{find, read, read_long, shown_time};
use crate::command::Context;
use crate::command::table::{self, Column};
use crate::error::Result;
use crate::output::Answer;

/// A walk over more than this is told of.
const LONG_WALK: u64 = 100_000;

/// Show what went through an account, newest first
///
/// Each line has the balance after it. An amount in parentheses was held or given back, and moved nothing. Works beside
/// a running node.
///
/// Only the present balance is stored, so a page far back walks over all that is newer: some seconds for a million
/// transfers of the account. To read a whole history, export it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// OWNER/PURPOSE, or the account's id
    #[arg(value_name = "ACCOUNT")]
    account: AccountName,
    /// What the account counts, if the name does not say it
    #[arg(long, value_name = "ASSET", value_parser = super::asset)]
    asset: Option<AssetId>,
    /// How many lines at most
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT",
        value_parser = clap::value_parser!(i64).range(1..=PAGE_MAX))]
    lines: i64,
    /// Only what is older than this number
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
    before: Option<i64>,
}

#[derive(Serialize)]
struct Row<'a> {
    seq: i64,
    at_ms: i64,
    transfer_id: &'a str,
    step: &'a str,
    memo: &'a str,
    counterparty: Counterparty<'a>,
    units: String,
    /// What the balance gained or lost.
    in_units: String,
    out_units: String,
    balance_units: String,
    free_units: String,
    held_units: String,
}

#[derive(Serialize)]
struct Counterparty<'a> {
    account_id: &'a str,
    owner: &'a str,
    purpose: &'a str,
}

pub(super) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let name = args.account.clone();
    let found = read(&loaded, move |rx| find::look(rx, &name))?;
    let entry = find::choose(&args.account, args.asset.as_ref(), found)?;
    let account_id = entry.account.account_id.clone();
    let (before, count) = (args.before, args.lines);
    let walked = Arc::new(AtomicU64::new(0));
    let seen = walked.clone();
    let far = || format!("walked over {} transfers", walked.load(Ordering::Relaxed));
    let lines = read_long(&loaded, cx, far, move |rx| {
        history::statement_told(rx, &account_id, before, count, &|so_far| {
            seen.store(so_far, Ordering::Relaxed);
        })
    })?;
    let walked = walked.load(Ordering::Relaxed);
    if walked > LONG_WALK {
        cx.out.remark(&format!("walked over {walked} transfers to get there"));
    }
    let full = lines.len() == usize::try_from(args.lines).unwrap_or(usize::MAX);
    let next_before = lines.last().filter(|_| full).map(|line| line.booked.seq);
    show(&entry, &lines, next_before, cx)?;
    Ok(Answer::Yes)
}

fn show(
    entry: &Entry,
    lines: &[StatementLine],
    next_before: Option<i64>,
    cx: &mut Context<'_>,
) -> Result<()> {
    let Account { account_id, owner, purpose, asset_id, .. } = &*entry.account;
    if cx.out.json() {
        let rows: Vec<Row<'_>> = lines.iter().map(|line| row(line, entry.account_no)).collect();
        return cx.out.object(
            true,
            serde_json::json!({
                "account_id": account_id,
                "owner": owner,
                "purpose": purpose,
                "asset_id": asset_id,
                "lines": rows,
                "next_before": next_before,
            }),
        );
    }
    cx.out.line(&format!("{owner}/{purpose}, in {asset_id}"))?;
    if lines.is_empty() {
        return cx.out.line("nothing went through it");
    }
    let columns = [
        Column::Right("number"),
        Column::Left("time"),
        Column::Left("step"),
        Column::Right("in"),
        Column::Right("out"),
        Column::Right("balance"),
        Column::Right("held"),
        Column::Left("counterparty"),
        Column::Left("memo"),
    ];
    let rows: Vec<_> = lines.iter().map(|line| cells(line, entry.account_no)).collect();
    table::print(columns, &rows, cx.out)?;
    if let Some(before) = next_before {
        cx.out.remark(&format!("older ones: --before {before}"));
    }
    Ok(())
}

/// What a line did to the account: what came in, what went out, for good.
fn moved(booked: &Booked, account_no: i64) -> (i64, i64) {
    match booked.step {
        StepName::Post | StepName::Settle if booked.debit.account_no == account_no => {
            (0, booked.units)
        }
        StepName::Post | StepName::Settle => (booked.units, 0),
        StepName::Hold | StepName::Void | StepName::Expire => (0, 0),
    }
}

fn counterparty(booked: &Booked, account_no: i64) -> &Account {
    let goes_out = booked.debit.account_no == account_no;
    if goes_out { &booked.credit.account } else { &booked.debit.account }
}

fn row(line: &StatementLine, account_no: i64) -> Row<'_> {
    let StatementLine { booked, balance } = line;
    let (into, out) = moved(booked, account_no);
    let other = counterparty(booked, account_no);
    Row {
        seq: booked.seq,
        at_ms: booked.at_ms,
        transfer_id: booked.transfer_id.as_str(),
        step: booked.step.as_str(),
        memo: &booked.memo,
        counterparty: Counterparty {
            account_id: other.account_id.as_str(),
            owner: &other.owner,
            purpose: &other.purpose,
        },
        units: booked.units.to_string(),
        in_units: into.to_string(),
        out_units: out.to_string(),
        balance_units: balance.units().to_string(),
        free_units: balance.free_units().to_string(),
        held_units: balance.debits_pending.to_string(),
    }
}

fn cells(line: &StatementLine, account_no: i64) -> [String; 9] {
    let StatementLine { booked, balance } = line;
    let goes_out = booked.debit.account_no == account_no;
    let units = match moved(booked, account_no) {
        (0, 0) => format!("({})", booked.units),
        _ => booked.units.to_string(),
    };
    let (into, out) = if goes_out { (String::new(), units) } else { (units, String::new()) };
    let other = counterparty(booked, account_no);
    [
        booked.seq.to_string(),
        shown_time(booked.at_ms),
        booked.step.as_str().to_owned(),
        into,
        out,
        balance.units().to_string(),
        balance.debits_pending.to_string(),
        format!("{}/{}", other.owner, other.purpose),
        booked.memo.clone(),
    ]
}
