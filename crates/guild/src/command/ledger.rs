//! `guild ledger`

use guild_ledger::audit;
use guild_protocol::amount::AssetId;
use guild_protocol::env::Clock;
use guild_store::Rx;
use serde::Serialize;

use super::Context;
use crate::config::Loaded;
use crate::error::Result;
use crate::node;
use crate::output::Answer;
use crate::real::{SystemClock, runtime};

mod accounts;
mod export;
mod find;
mod open;
mod rule;
mod statement;
mod transfer;

pub(super) use export::write_evidence;

/// Move, look at and prove the money of this node
///
/// Amounts are whole numbers of the asset's smallest unit: of USD_MICRO a millionth of a dollar (1500000 is 1.50
/// dollars), of BTC_LN a thousandth of a satoshi. An account is written OWNER/PURPOSE, as in ann/main, or by its id.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List every account with its balance
    Accounts,
    Open(open::Args),
    Transfer(transfer::TransferArgs),
    Settle(transfer::SettleArgs),
    Void(transfer::VoidArgs),
    Rule(rule::Args),
    Statement(statement::Args),
    /// Recompute everything from the transfers, and compare
    ///
    /// Every transfer is decided again by the rules, from nothing. Balances, sums and head hashes must be those that
    /// are stored. Works beside a running node.
    Audit,
    Export(export::Args),
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    match command {
        Command::Accounts => accounts::run(cx),
        Command::Open(args) => open::run(args, cx),
        Command::Transfer(args) => transfer::transfer(args, cx),
        Command::Settle(args) => transfer::settle(args, cx),
        Command::Void(args) => transfer::void(args, cx),
        Command::Rule(args) => rule::run(args, cx),
        Command::Statement(args) => statement::run(args, cx),
        Command::Audit => {
            let report = read(&cx.config()?, audit::run)?;
            audited(&report, cx)
        }
        Command::Export(args) => export::run(args, cx),
    }
}

/// Reads the database beside whoever writes it.
fn read<T: Send + 'static>(
    loaded: &Loaded,
    closure: impl Fn(&mut Rx<'_>) -> guild_ledger::Result<T> + Send + 'static,
) -> Result<T> {
    let service = node::open_read_only(loaded)?;
    let answer = runtime().map(|runtime| runtime.block_on(service.handle().read(closure)));
    service.close();
    Ok(answer??)
}

/// As [`read`], for what may take long: a person who waits is told how far it is.
fn read_long<T: Send + 'static>(
    loaded: &Loaded,
    cx: &mut Context<'_>,
    far: impl Fn() -> String,
    closure: impl Fn(&mut Rx<'_>) -> guild_ledger::Result<T> + Send + 'static,
) -> Result<T> {
    use futures_util::future::{Either, select};
    const TELL_EVERY_MS: i64 = 250;
    let runtime = runtime()?;
    let service = node::open_read_only(loaded)?;
    let mut answer = Box::pin(service.handle().read(closure));
    let answer = runtime.block_on(async {
        loop {
            match select(answer, SystemClock.sleep(TELL_EVERY_MS)).await {
                Either::Left((told, _)) => break told,
                Either::Right(((), waiting)) => answer = waiting,
            }
            cx.out.progress(&far());
        }
    });
    cx.out.progress("");
    service.close();
    Ok(answer?)
}

/// An asset on the command line.
fn asset(text: &str) -> Result<AssetId, String> {
    AssetId::new(text).map_err(|e| e.message().to_owned())
}

/// An amount on the command line.
fn units(text: &str) -> Result<i64, String> {
    const WANTED: &str =
        "write a whole number of the asset's smallest unit, such as 1500000 for 1.50 dollars";
    match text.parse::<i64>() {
        Ok(units) => Ok(units),
        Err(e) if *e.kind() == std::num::IntErrorKind::PosOverflow => {
            Err(format!("it does not fit into 64 bits; the most is {}", i64::MAX))
        }
        Err(_) => Err(WANTED.to_owned()),
    }
}

/// An amount that is moved: at least one unit.
fn some_units(text: &str) -> Result<i64, String> {
    match units(text)? {
        units if units >= 1 => Ok(units),
        _ => Err("it must be at least 1".to_owned()),
    }
}

/// An amount that is kept or owed: not below zero.
fn units_or_none(text: &str) -> Result<i64, String> {
    match units(text)? {
        units if units >= 0 => Ok(units),
        _ => Err("it must be 0 or more".to_owned()),
    }
}

/// A time as people read it.
fn shown_time(at_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(at_ms)
        .map_or_else(|_| at_ms.to_string(), |at| format!("{at:.3}"))
}

#[derive(Serialize)]
struct AuditBody<'a> {
    accounts: usize,
    transfers: u64,
    problems: &'a [String],
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
