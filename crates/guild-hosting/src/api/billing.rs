//! The money of a user.

use guild_ledger::AccountId;
use guild_ledger::history::StatementLine;
use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ProblemDetail, amount_needed, cents};
use crate::Result;
use crate::meter::{self, Seen, Sight};
use crate::money::{Balance, Quote, Withdrawal};

/// How an account stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BalanceView {
    /// Whose it is.
    pub user_id: String,
    /// What can be spent.
    pub free_micro_usd: i64,
    /// The same in cents.
    pub free_cents: String,
    /// What is set aside: first minutes of sandboxes that start, withdrawals under way.
    pub held_micro_usd: i64,
    /// What the next minute of all running sandboxes costs.
    pub burn_micro_usd_per_minute: i64,
    /// The same in cents.
    pub burn_cents_per_minute: String,
    /// How many such minutes are free; none if nothing runs.
    pub minutes_left: Option<i64>,
    /// What has to stay after a withdrawal.
    pub reserve_micro_usd: i64,
    /// What could be withdrawn now.
    pub withdrawable_micro_usd: i64,
}

impl BalanceView {
    pub(crate) fn of(user_id: &crate::UserId, balance: &Balance, reserve: i64) -> BalanceView {
        BalanceView {
            user_id: user_id.to_string(),
            free_micro_usd: balance.free,
            free_cents: cents(balance.free),
            held_micro_usd: balance.held,
            burn_micro_usd_per_minute: balance.burn_per_minute,
            burn_cents_per_minute: cents(balance.burn_per_minute),
            minutes_left: balance.minutes_left,
            reserve_micro_usd: reserve,
            withdrawable_micro_usd: balance.free.saturating_sub(reserve).max(0),
        }
    }
}

/// A transfer that touched the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Line {
    /// Its number in the ledger.
    pub seq: i64,
    /// Names it.
    pub transfer_id: String,
    /// `post`, `hold`, `settle`, `void` or `expire`.
    pub step: String,
    /// What it is for.
    pub memo: String,
    /// What it is about; less than zero if it went out of the account.
    pub amount_micro_usd: i64,
    /// The same in cents.
    pub amount_cents: String,
    /// What was in the account after it.
    pub balance_micro_usd: i64,
    /// What of that could be spent.
    pub free_micro_usd: i64,
    /// When it was booked.
    pub booked_ms: UnixMs,
}

impl Line {
    pub(crate) fn of(line: &StatementLine, account_id: &AccountId) -> Line {
        let booked = &line.booked;
        let outward = booked.debit.account.account_id == *account_id;
        let units = if outward { booked.units.saturating_neg() } else { booked.units };
        Line {
            seq: booked.seq,
            transfer_id: booked.transfer_id.to_string(),
            step: booked.step.as_str().to_owned(),
            memo: booked.memo.clone(),
            amount_micro_usd: units,
            amount_cents: cents(units),
            balance_micro_usd: line.balance.units(),
            free_micro_usd: line.balance.free_units(),
            booked_ms: booked.at_ms,
        }
    }
}

/// A page of a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Statement {
    /// The newest first.
    pub lines: Vec<Line>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}

/// What would have to be paid in, and what that buys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct QuoteView {
    /// Names it.
    pub quote_id: String,
    /// What is missing.
    pub amount_micro_usd: i64,
    /// The same in cents.
    pub amount_cents: String,
    /// What it buys, with what is in the account.
    pub buys: BuysView,
    /// Until when it stands.
    pub expires_ms: UnixMs,
}

/// What a quote buys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct BuysView {
    /// Thousandths of a virtual processor.
    pub cpu_milli: i64,
    /// Memory.
    pub ram_mib: i64,
    /// Disk.
    pub disk_mib: i64,
    /// What a minute costs.
    pub price_micro_usd_per_minute: i64,
    /// For how many minutes.
    pub minutes: i64,
}

impl QuoteView {
    pub(crate) fn of(quote: &Quote) -> QuoteView {
        let buys = &quote.buys;
        QuoteView {
            quote_id: quote.quote_id.to_string(),
            amount_micro_usd: quote.units,
            amount_cents: cents(quote.units),
            buys: BuysView {
                cpu_milli: buys.shape.cpu_milli,
                ram_mib: buys.shape.ram_mib,
                disk_mib: buys.shape.disk_mib,
                price_micro_usd_per_minute: buys.price,
                minutes: buys.minutes,
            },
            expires_ms: quote.expires_ms,
        }
    }
}

/// The account does not pay for what was asked for (402).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Insufficient {
    /// What went wrong: `hosting.insufficient_balance`.
    pub error: ProblemDetail,
    /// What is missing.
    pub quote: QuoteView,
}

/// Money out, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawBody {
    /// How much.
    #[schema(minimum = 1, maximum = 9007199254740991_i64)]
    pub amount_micro_usd: Option<i64>,
    /// The same in cents.
    #[schema(minimum = 1, maximum = 900719925474_i64)]
    pub amount_cents: Option<i64>,
    /// Where to.
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub destination: String,
}

impl WithdrawBody {
    pub(crate) fn units(&self) -> Result<i64> {
        amount_needed("amount", self.amount_micro_usd, self.amount_cents)
    }
}

/// Money on its way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WithdrawalView {
    /// Names it.
    pub withdrawal_id: String,
    /// From whose account.
    pub user_id: String,
    /// How much.
    pub amount_micro_usd: i64,
    /// The same in cents.
    pub amount_cents: String,
    /// Where to.
    pub destination: String,
    /// `requested`, `confirmed` or `failed`.
    pub status: String,
    /// What the outside calls the payment, once it has arrived.
    pub reference: Option<String>,
    /// Why it failed.
    pub words: Option<String>,
    /// When it was asked for.
    pub requested_ms: UnixMs,
    /// Since when it stands like this.
    pub changed_ms: UnixMs,
}

impl WithdrawalView {
    pub(crate) fn of(withdrawal: &Withdrawal) -> WithdrawalView {
        WithdrawalView {
            withdrawal_id: withdrawal.withdrawal_id.to_string(),
            user_id: withdrawal.user_id.to_string(),
            amount_micro_usd: withdrawal.units,
            amount_cents: cents(withdrawal.units),
            destination: withdrawal.destination.clone(),
            status: withdrawal.status.as_str().to_owned(),
            reference: withdrawal.reference.clone(),
            words: withdrawal.words.clone(),
            requested_ms: withdrawal.requested_ms,
            changed_ms: withdrawal.changed_ms,
        }
    }
}

/// A page of withdrawals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Withdrawals {
    /// The newest first.
    pub withdrawals: Vec<WithdrawalView>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}

/// Money in, as the operator of this node saw it arrive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreditBody {
    /// Whose account.
    #[schema(pattern = "^(eip155:0x[0-9a-f]{40}|nostr:[0-9a-f]{64})$")]
    pub user_id: String,
    /// How much.
    #[schema(minimum = 1, maximum = 9007199254740991_i64)]
    pub amount_micro_usd: Option<i64>,
    /// The same in cents.
    #[schema(minimum = 1, maximum = 900719925474_i64)]
    pub amount_cents: Option<i64>,
    /// What the outside calls the payment: it is booked once.
    #[schema(min_length = 1, max_length = 128, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub reference: String,
}

impl CreditBody {
    pub(crate) fn units(&self) -> Result<i64> {
        amount_needed("amount", self.amount_micro_usd, self.amount_cents)
    }
}

/// What became of a credit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CreditView {
    /// Whose account.
    pub user_id: String,
    /// How much.
    pub amount_micro_usd: i64,
    /// Whether it was booked now; else it was before.
    pub new: bool,
    /// How the account stands.
    pub balance: BalanceView,
}

/// What the meter makes of the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ClockView {
    /// Whether minutes are metered.
    pub steady: bool,
    /// `steady`, `back`, `jumped`, or `never` if the meter has not looked yet.
    pub sight: String,
    /// By how much it ran back or jumped.
    pub by_ms: i64,
    /// The present time.
    pub now_ms: UnixMs,
    /// When the meter looked last.
    pub last_ms: Option<UnixMs>,
    /// How often it looked.
    pub ticks: i64,
    /// How often the clock had run back.
    pub backs: i64,
    /// How often it had jumped ahead.
    pub jumps: i64,
}

impl ClockView {
    /// What it makes of the present time.
    pub fn of(seen: Option<&Seen>, now_ms: UnixMs) -> ClockView {
        let (sight, by_ms) = match (seen, meter::sight(seen, now_ms).0) {
            (None, _) => ("never", 0),
            (Some(_), Sight::Steady) => ("steady", 0),
            (Some(_), Sight::Back { by_ms }) => ("back", by_ms),
            (Some(_), Sight::Jumped { by_ms }) => ("jumped", by_ms),
        };
        let counts = seen.map(|seen| (seen.ticks, seen.backs, seen.jumps));
        let (ticks, backs, jumps) = counts.unwrap_or_default();
        ClockView {
            steady: by_ms == 0,
            sight: sight.to_owned(),
            by_ms,
            now_ms,
            last_ms: seen.map(|seen| seen.last_ms),
            ticks,
            backs,
            jumps,
        }
    }
}

/// A withdrawal has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBody {
    /// What the outside calls the payment.
    #[schema(min_length = 1, max_length = 128, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub reference: String,
}

/// A withdrawal could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailBody {
    /// Why.
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    pub words: String,
}
