//! The money: accounts are opened, transfers booked, rules set. What is asked for carries its own name, so a request
//! may be repeated; the answer says whether something is `new` or was `known` before.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use guild_protocol::amount::{Amount, AssetId};
use guild_roles::treasury::{
    Account, AccountId, AccountName, Approval, CHAIN_MAX_TRANSFERS, Changed, Gate, Limit,
    NewTransfer, Outcome, RuleChange, Step, TransferId,
};
use serde::Deserialize;
use serde_json::{Value, json};

use self::units::Units;
use crate::body::{Raw, Sent};
use crate::guard::Owner;
use crate::{Error, Result, Shared};

mod units;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewAccount {
    owner: String,
    purpose: String,
    asset_id: AssetId,
    limit: Option<String>,
}

pub(crate) async fn open(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewAccount>,
) -> Result<(StatusCode, Json<Value>)> {
    let limit = match asked.limit.as_deref() {
        None => Limit::NeverNegative,
        Some(word) => Limit::parse(word).ok_or_else(|| {
            Error::bad(
                "limit",
                format!("must be one of {}", Limit::ALL.map(Limit::as_str).join(", ")),
            )
        })?,
    };
    let account = Account::new(&asked.owner, &asked.purpose, asked.asset_id, limit)
        .map_err(guild_roles::Error::from)?;
    let account_id = account.account_id.clone();
    let changed = shared.treasury.open(account).await?;
    let (status, outcome) = told(matches!(changed, Changed::New(_)));
    let body = json!({ "account_id": account_id, "outcome": outcome, "seq": changed.seq() });
    Ok((status, Json(body)))
}

/// A chain: all of it is booked, or nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chain {
    transfers: Vec<Transfer>,
}

/// One transfer, with the fields that its step takes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transfer {
    transfer_id: TransferId,
    step: String,
    debit: Option<String>,
    credit: Option<String>,
    asset_id: Option<AssetId>,
    units: Option<Units>,
    hold: Option<TransferId>,
    expires_ms: Option<i64>,
    memo: String,
}

pub(crate) async fn transfer(
    State(shared): State<Shared>,
    _: Owner,
    Sent(Chain { transfers }): Sent<Chain>,
) -> Result<(StatusCode, Json<Value>)> {
    if transfers.is_empty() || transfers.len() > CHAIN_MAX_TRANSFERS {
        let message = format!("must have 1 to {CHAIN_MAX_TRANSFERS} transfers");
        return Err(Error::bad("transfers", message));
    }
    let chain: Vec<NewTransfer> = transfers
        .into_iter()
        .enumerate()
        .map(|(at, transfer)| transfer.asked(&format!("transfers[{at}]")))
        .collect::<Result<_>>()?;
    let outcomes = shared.treasury.transfer(chain).await?;
    let is_new = |outcome: &Outcome| matches!(outcome, Outcome::New(_));
    let rows: Vec<Value> = outcomes
        .iter()
        .map(|outcome| {
            let booked = outcome.booked();
            json!({
                "transfer_id": booked.transfer_id,
                "outcome": told(is_new(outcome)).1,
                "seq": booked.seq,
                "units": booked.units.to_string(),
            })
        })
        .collect();
    let (status, _) = told(outcomes.iter().any(is_new));
    Ok((status, Json(json!({ "transfers": rows }))))
}

impl Transfer {
    /// What is asked for, if exactly the fields of its step are there.
    fn asked(self, place: &str) -> Result<NewTransfer> {
        let Transfer { debit, credit, asset_id, units, hold, expires_ms, .. } = self;
        let units = units.map(|Units(units)| units);
        let moved = |asset_id: AssetId, units: i64, debit: &str, credit: &str| {
            let account =
                |field: &str, text: &str| account_id(&format!("{place}.{field}"), text, &asset_id);
            let (debit, credit) = (account("debit", debit)?, account("credit", credit)?);
            Ok::<_, Error>((debit, credit, Amount::new(asset_id.clone(), units)))
        };
        let step = match (self.step.as_str(), debit, credit, asset_id, units, hold, expires_ms) {
            ("post", Some(debit), Some(credit), Some(asset_id), Some(units), None, None) => {
                let (debit, credit, amount) = moved(asset_id, units, &debit, &credit)?;
                Step::Post { debit, credit, amount }
            }
            (
                "hold",
                Some(debit),
                Some(credit),
                Some(asset_id),
                Some(units),
                None,
                Some(expires_ms),
            ) => {
                let (debit, credit, amount) = moved(asset_id, units, &debit, &credit)?;
                Step::Hold { debit, credit, amount, expires_ms }
            }
            ("settle", None, None, None, units, Some(hold), None) => Step::Settle { hold, units },
            ("void", None, None, None, None, Some(hold), None) => Step::Void { hold },
            (step, ..) => {
                let message = match step {
                    "post" => "a post takes debit, credit, asset_id and units",
                    "hold" => "a hold takes debit, credit, asset_id, units and expires_ms",
                    "settle" => "a settle takes hold, and units if it is not all of it",
                    "void" => "a void takes hold",
                    _ => "must be post, hold, settle or void",
                };
                return Err(Error::bad(&format!("{place}.step"), message));
            }
        };
        let asked = NewTransfer::new(self.transfer_id, step, &self.memo);
        Ok(asked.map_err(guild_roles::Error::from)?)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRule {
    account: String,
    asset_id: AssetId,
    #[serde(default)]
    clear: bool,
    gate: Option<NewGate>,
    credit_units: Option<Units>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewGate {
    reserve_units: Units,
    #[serde(default)]
    lets_through: Vec<String>,
}

pub(crate) async fn rule(
    State(shared): State<Shared>,
    _: Owner,
    Sent(asked): Sent<NewRule>,
) -> Result<(StatusCode, Json<Value>)> {
    let account_id = account_id("account", &asked.account, &asked.asset_id)?;
    let change = RuleChange {
        clear: asked.clear,
        gate: asked.gate.map(|NewGate { reserve_units: Units(reserve_units), lets_through }| {
            Gate { reserve_units, lets_through }
        }),
        credit_units: asked.credit_units.map(|Units(units)| units),
    };
    if change == RuleChange::default() {
        return Err(Error::bad("gate", "name a gate, credit_units or clear: nothing would change"));
    }
    let (changed, rule) = shared.treasury.set_rule(account_id.clone(), change).await?;
    let (status, outcome) = told(matches!(changed, Changed::New(_)));
    let gate = rule.gate.map(|gate| {
        json!({ "reserve_units": gate.reserve_units.to_string(), "lets_through": gate.lets_through })
    });
    let body = json!({
        "account_id": account_id,
        "outcome": outcome,
        "seq": changed.seq(),
        "gate": gate,
        "credit_units": rule.credit_units.map(|units| units.to_string()),
    });
    Ok((status, Json(body)))
}

/// What a guardian has signed about a quote: the body is that document.
pub(crate) async fn approve(
    State(shared): State<Shared>,
    _: Owner,
    Raw(body): Raw,
) -> Result<Json<Value>> {
    let approval = Approval::parse(&body).map_err(guild_roles::Error::from)?;
    let quote = shared.treasury.approve(approval).await?;
    let quote_id = &quote.terms.wanted.quote_id;
    Ok(Json(json!({ "quote_id": quote_id, "state": quote.state.as_str() })))
}

/// The account of this name, for this asset.
fn account_id(field: &str, text: &str, asset_id: &AssetId) -> Result<AccountId> {
    let name: AccountName =
        text.parse().map_err(|e: guild_roles::treasury::Error| Error::bad(field, e.to_string()))?;
    Ok(name.account_id(asset_id)?)
}

fn told(is_new: bool) -> (StatusCode, &'static str) {
    if is_new { (StatusCode::CREATED, "new") } else { (StatusCode::OK, "known") }
}
