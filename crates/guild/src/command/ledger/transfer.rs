//! `guild ledger transfer`, `settle` and `void`

use guild_ledger::{NewTransfer, Step, TransferId};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::{Clock, UnixMs};
use guild_protocol::error::Kind;
use guild_roles::treasury::{AccountName, Outcome, Treasury, code};

use super::{find, read, shown_time};
use crate::client::{Told, write_through};
use crate::command::Context;
use crate::config::Loaded;
use crate::error::{self, Error, Result};
use crate::output::Answer;
use crate::real::{SystemClock, SystemRandom};

/// Move money from one account to another, or set it aside
///
/// Through the running node, or directly when none runs. Prints the id of the transfer. Repeating the command with that
/// --id books nothing twice, and says so.
#[derive(Debug, clap::Args)]
pub(crate) struct TransferArgs {
    /// OWNER/PURPOSE, or the account's id
    #[arg(long, value_name = "ACCOUNT")]
    from: AccountName,
    /// OWNER/PURPOSE, or the account's id
    #[arg(long, value_name = "ACCOUNT")]
    to: AccountName,
    /// What is moved; may be left out where the accounts say it
    #[arg(long, value_name = "ASSET", value_parser = super::asset)]
    asset: Option<AssetId>,
    /// How many of the asset's smallest unit: micro-dollars of USD_MICRO, millisatoshi of BTC_LN
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::some_units)]
    units: i64,
    /// Why, in a word that a statement shows [default: transfer, or hold]
    #[arg(long)]
    memo: Option<String>,
    /// Only set it aside until this time (2026-12-31T12:00:00Z) or for so long (2h, 30m, 7d)
    #[arg(long, value_name = "WHEN", value_parser = until)]
    hold_until: Option<Until>,
    /// The transfer's id, if the command may be repeated
    #[arg(long, value_name = "ID")]
    id: Option<TransferId>,
}

/// Move what a hold set aside
///
/// All of it, or a part; the rest is free again. Repeating it books nothing twice.
#[derive(Debug, clap::Args)]
pub(crate) struct SettleArgs {
    /// The id of the transfer that made the hold
    hold: TransferId,
    /// How many of the asset's smallest unit [default: all that is held]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = super::some_units)]
    units: Option<i64>,
    /// Why, in a word that a statement shows
    #[arg(long, default_value = "hold.settle")]
    memo: String,
}

/// Give a hold back
///
/// Repeating it books nothing twice.
#[derive(Debug, clap::Args)]
pub(crate) struct VoidArgs {
    /// The id of the transfer that made the hold
    hold: TransferId,
    /// Why, in a word that a statement shows
    #[arg(long, default_value = "hold.void")]
    memo: String,
}

/// When a hold runs out, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    At(UnixMs),
    For(i64),
}

fn until(text: &str) -> Result<Until, String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Ok(Until::At(at.as_millisecond()));
    }
    let duration_ms = text
        .parse::<jiff::Span>()
        .and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()))
        .map(|duration| duration.as_millis());
    match duration_ms.map(i64::try_from) {
        Ok(Ok(ms)) if ms > 0 => Ok(Until::For(ms)),
        Ok(_) => Err("a hold runs out in the future".to_owned()),
        Err(_) => {
            Err("write a time such as 2026-12-31T12:00:00Z, or a duration such as 2h, 30m or 7d"
                .to_owned())
        }
    }
}

impl Until {
    /// The moment. With an id of the caller's own it must be said: a duration would be another moment at every repeat,
    /// and so another transfer under one id.
    fn at_ms(self, now_ms: UnixMs, has_own_id: bool) -> Result<UnixMs> {
        match self {
            Until::At(at_ms) => Ok(at_ms),
            Until::For(duration_ms) => {
                let at_ms = now_ms.saturating_add(duration_ms);
                if !has_own_id {
                    return Ok(at_ms);
                }
                let message = "with --id, --hold-until takes a time: a duration ends elsewhere at every repeat";
                let help = format!("Write --hold-until {}.", shown_time(at_ms));
                Err(Error::new(&error::code::USAGE, message).help(help))
            }
        }
    }
}

pub(super) fn transfer(args: &TransferArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let now_ms = SystemClock.now_ms();
    let expires_ms =
        args.hold_until.map(|until| until.at_ms(now_ms, args.id.is_some())).transpose()?;
    let loaded = cx.config()?;
    let (from, to) = (args.from.clone(), args.to.clone());
    let (from, to) = read(&loaded, move |rx| Ok((find::look(rx, &from)?, find::look(rx, &to)?)))?;
    let debit = find::choose(&args.from, args.asset.as_ref(), from)?.account;
    let credit = find::choose(&args.to, args.asset.as_ref(), to)?.account;
    if debit.asset_id != credit.asset_id {
        let message = format!(
            "{} counts {}, {} counts {}",
            args.from, debit.asset_id, args.to, credit.asset_id
        );
        return Err(Error::new(&code::WRONG_ASSET, message));
    }
    let amount = Amount::new(debit.asset_id.clone(), args.units);
    let (debit, credit) = (debit.account_id.clone(), credit.account_id.clone());
    let (step, memo) = match expires_ms {
        None => (Step::Post { debit, credit, amount }, "transfer"),
        Some(expires_ms) => (Step::Hold { debit, credit, amount, expires_ms }, "hold"),
    };
    // Made here and not by the node, so that trying again books nothing twice.
    let made = || TransferId::make(&SystemClock, &SystemRandom);
    let id = args.id.clone().unwrap_or_else(made);
    let memo = args.memo.as_deref().unwrap_or(memo);
    let transfer = NewTransfer::new(id, step, memo)?;
    let told = book(&loaded, &transfer).map_err(|error| repeatable(error, &transfer))?;
    show(&transfer, told, cx)
}

/// Whoever does not know what became of it needs the id to ask again.
fn repeatable(error: Error, transfer: &NewTransfer) -> Error {
    if error.kind() != Kind::Unavailable {
        return error;
    }
    let help = format!(
        "{} Then repeat the command with --id {}: it is booked at most once.",
        error.remedy(),
        transfer.transfer_id
    );
    error.help(help)
}

pub(super) fn settle(args: &SettleArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let step = Step::Settle { hold: args.hold.clone(), units: args.units };
    close(&args.hold, step, "hold.settle", &args.memo, cx)
}

pub(super) fn void(args: &VoidArgs, cx: &mut Context<'_>) -> Result<Answer> {
    close(&args.hold, Step::Void { hold: args.hold.clone() }, "hold.void", &args.memo, cx)
}

/// A hold is closed once, so the transfer that does it is named by the hold.
fn close(
    hold: &TransferId,
    step: Step,
    word: &str,
    memo: &str,
    cx: &mut Context<'_>,
) -> Result<Answer> {
    let transfer_id = TransferId::named(time_of(hold), &[word, hold.as_str()]);
    let transfer = NewTransfer::new(transfer_id, step, memo)?;
    let loaded = cx.config()?;
    crate::node::require_database(&crate::node::store_options(&loaded))?;
    let told = book(&loaded, &transfer)?;
    show(&transfer, told, cx)
}

/// The time at the front of an id: those of one time lie together in the index.
fn time_of(id: &TransferId) -> UnixMs {
    let digits = id.as_str().get(TransferId::PREFIX.len() + 1..).and_then(|rest| rest.get(..12));
    digits.and_then(|digits| i64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

fn book(loaded: &Loaded, transfer: &NewTransfer) -> Result<Told> {
    write_through(
        loaded,
        |client| client.transfer(transfer),
        |parts, runtime| {
            let chain = vec![transfer.clone()];
            let ask = |treasury: Treasury| async move { treasury.transfer(chain).await };
            let outcome = parts.ask_treasury(runtime, ask)?.pop();
            let outcome = outcome.ok_or_else(|| {
                Error::new(&error::code::NODE_UNREACHABLE, "the ledger gave no answer")
            })?;
            let (is_new, booked) = (matches!(outcome, Outcome::New(_)), outcome.booked());
            Ok(Told { is_new, seq: booked.seq, units: booked.units })
        },
    )
}

fn show(transfer: &NewTransfer, told: Told, cx: &mut Context<'_>) -> Result<Answer> {
    let (id, Told { is_new, seq, units }) = (&transfer.transfer_id, told);
    let expires_ms = match transfer.step {
        Step::Hold { expires_ms, .. } => Some(expires_ms),
        _ => None,
    };
    if cx.out.json() {
        cx.out.object(
            true,
            serde_json::json!({
                "transfer_id": id,
                "outcome": if is_new { "new" } else { "known" },
                "seq": seq,
                "step": transfer.step.name().as_str(),
                "units": units.to_string(),
                "expires_ms": expires_ms,
            }),
        )?;
        return Ok(Answer::Yes);
    }
    let what = match (&transfer.step, expires_ms) {
        (Step::Post { .. }, _) => format!("moved {units}"),
        (_, Some(expires_ms)) => format!("holds {units} until {}", shown_time(expires_ms)),
        (Step::Settle { .. }, _) => format!("moved {units} of what was held"),
        _ => format!("gave {units} back"),
    };
    let before = if is_new { "" } else { "; it was booked before, and nothing changed" };
    cx.out.line(&format!("{id}  {what}, number {seq}{before}"))?;
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_ends_at_a_time_or_after_a_while() {
        assert_eq!(until("1970-01-01T00:00:02Z"), Ok(Until::At(2_000)));
        assert_eq!(until("2h"), Ok(Until::For(7_200_000)));
        assert_eq!(until("7d"), Ok(Until::For(604_800_000)));
        for bad in ["", "soon", "-2h", "0s", "2026-12-31", "12:00", "5"] {
            assert!(until(bad).is_err(), "{bad}");
        }
        assert_eq!(Until::For(5).at_ms(10, false).unwrap(), 15);
        assert_eq!(Until::At(5).at_ms(10, true).unwrap(), 5);
        let moving = Until::For(5).at_ms(10, true).unwrap_err();
        assert_eq!(moving.remedy(), "Write --hold-until 1970-01-01T00:00:00.015Z.");
    }

    #[test]
    fn what_closes_a_hold_lies_beside_it() {
        let hold = TransferId::named(0x0192_3456_789a, &["x"]);
        assert_eq!(time_of(&hold), 0x0192_3456_789a);
    }
}
