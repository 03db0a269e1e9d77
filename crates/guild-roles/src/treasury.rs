//! The money of this node as its users see it: open an account, move money, set a rule, approve a payment.
//!
//! Whoever asks names what is asked for: an account by what it is, a transfer by an id of the caller's own. So asking
//! again is asking for the same, and the answer says whether it was done now or before.

use std::str::FromStr;
use std::sync::Arc;

use guild_ledger::{Writer, ledger, quote};
use guild_protocol::amount::AssetId;
use guild_protocol::env::Clock;
use guild_store::{Store, Tx};

use crate::Result;

pub use guild_ledger::book::{Booked, CHAIN_MAX_TRANSFERS, Outcome};
pub use guild_ledger::quote::{Approval, Quote};
pub use guild_ledger::{
    Account, AccountId, Error, Gate, Limit, NewTransfer, Rule, Step, StepName, TransferId, code,
};

/// The handle of the money.
#[derive(Clone)]
pub struct Treasury {
    store: Store,
    writer: Writer,
    clock: Arc<dyn Clock>,
}

/// Whether a call changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Written now, as this number of the history.
    New(i64),
    /// It was so before.
    Known,
}

impl Changed {
    /// The number under which it was written now, if it was.
    pub fn seq(self) -> Option<i64> {
        match self {
            Changed::New(seq) => Some(seq),
            Changed::Known => None,
        }
    }
}

/// What is to change in the rule of an account. What is not named stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleChange {
    /// Begin with no rule at all.
    pub clear: bool,
    /// The reserve to keep.
    pub gate: Option<Gate>,
    /// The credit to give.
    pub credit_units: Option<i64>,
}

impl RuleChange {
    /// The whole rule after the change.
    #[must_use]
    pub fn applied_to(&self, before: &Rule) -> Rule {
        let before = if self.clear { Rule::default() } else { before.clone() };
        Rule {
            gate: self.gate.clone().or(before.gate),
            credit_units: self.credit_units.or(before.credit_units),
        }
    }
}

impl Treasury {
    /// The money in this store. The service of `writer` must run.
    pub fn new(store: Store, writer: Writer, clock: Arc<dyn Clock>) -> Treasury {
        Treasury { store, writer, clock }
    }

    /// Opens an account. One that is open with another limit is refused.
    pub async fn open(&self, account: Account) -> Result<Changed> {
        let clock = self.clock.clone();
        let opened = self.store.write(move |tx| {
            changed(tx, |tx| ledger::open(tx, &account, clock.now_ms()))
                .map(|(changed, ())| changed)
        });
        Ok(opened.await?)
    }

    /// Books a chain, all of it or nothing: what became of each transfer.
    pub async fn transfer(&self, chain: Vec<NewTransfer>) -> Result<Vec<Outcome>> {
        Ok(self.writer.book(chain).await?)
    }

    /// Changes the rule of an account; the rule that is in force now.
    pub async fn set_rule(
        &self,
        account_id: AccountId,
        change: RuleChange,
    ) -> Result<(Changed, Rule)> {
        let clock = self.clock.clone();
        let set = self.store.write(move |tx| {
            changed(tx, |tx| {
                let found = ledger::entries(tx, &[account_id.clone()].into())?;
                // An account that is not there is refused by the ledger, in its own words.
                let before = found.get(&account_id).map(|entry| entry.rule.clone());
                let rule = change.applied_to(&before.unwrap_or_default());
                ledger::set_rule(tx, &account_id, &rule, clock.now_ms())?;
                Ok(rule)
            })
        });
        Ok(set.await?)
    }

    /// Takes what a guardian has signed about a quote; the quote as it stands then.
    pub async fn approve(&self, approval: Approval) -> Result<Quote> {
        let clock = self.clock.clone();
        let approved = self
            .store
            .write(move |tx| quote::approve(tx, &approval.quote_id, &approval, clock.now_ms()));
        Ok(approved.await?)
    }
}

/// Whether the history grew. A write closure is alone, so nobody else's record can be the one.
fn changed<T>(
    tx: &mut Tx<'_>,
    run: impl FnOnce(&mut Tx<'_>) -> guild_ledger::Result<T>,
) -> guild_ledger::Result<(Changed, T)> {
    let before = ledger::head(tx)?.last_seq;
    let done = run(tx)?;
    let after = ledger::head(tx)?.last_seq;
    Ok((if after > before { Changed::New(after) } else { Changed::Known }, done))
}

/// How people name an account: `owner/purpose`, or its id.
///
/// ```
/// # use guild_roles::treasury::AccountName;
/// let named: AccountName = "ann/main".parse().unwrap();
/// assert!(matches!(named, AccountName::Named { .. }));
/// assert!("ann".parse::<AccountName>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccountName {
    /// By its id.
    Id(AccountId),
    /// By what it is. There may be one for each asset.
    Named {
        /// Whose it is.
        owner: String,
        /// What it is for.
        purpose: String,
    },
}

impl AccountName {
    /// The id of the account, which its asset decides unless the name does.
    pub fn account_id(&self, asset_id: &AssetId) -> Result<AccountId> {
        match self {
            AccountName::Id(account_id) => Ok(account_id.clone()),
            AccountName::Named { owner, purpose } => {
                // The limit is no part of the id.
                Ok(Account::new(owner, purpose, asset_id.clone(), Limit::None)?.account_id)
            }
        }
    }
}

impl std::fmt::Display for AccountName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AccountName::Id(account_id) => account_id.fmt(f),
            AccountName::Named { owner, purpose } => write!(f, "{owner}/{purpose}"),
        }
    }
}

impl FromStr for AccountName {
    type Err = Error;

    fn from_str(text: &str) -> Result<AccountName, Error> {
        let refused = |message: String| Error::refused(&code::MALFORMED, message);
        // An owner may have a slash in its name, as an address has; a purpose is a word.
        if let Some((owner, purpose)) = text.rsplit_once('/') {
            Account::new(owner, purpose, AssetId::usd_micro(), Limit::None)?;
            return Ok(AccountName::Named { owner: owner.to_owned(), purpose: purpose.to_owned() });
        }
        match text.parse() {
            Ok(account_id) => Ok(AccountName::Id(account_id)),
            Err(error) if text.starts_with("acct_") => Err(refused(error.to_string())),
            Err(_) => Err(refused(
                "an account is written owner/purpose, or acct_ and its hash".to_owned(),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_change_does_not_name_stays() {
        let gate = |reserve_units| Some(Gate { reserve_units, lets_through: Vec::new() });
        let before = Rule { gate: gate(5), credit_units: Some(7) };
        let credit = RuleChange { credit_units: Some(9), ..RuleChange::default() };
        assert_eq!(credit.applied_to(&before), Rule { gate: gate(5), credit_units: Some(9) });
        let only = RuleChange { clear: true, gate: gate(1), credit_units: None };
        assert_eq!(only.applied_to(&before), Rule { gate: gate(1), credit_units: None });
        assert_eq!(RuleChange::default().applied_to(&before), before);
    }

    #[test]
    fn a_name_is_an_id_or_two_words() {
        let named = |owner: &str, purpose: &str| AccountName::Named {
            owner: owner.to_owned(),
            purpose: purpose.to_owned(),
        };
        assert_eq!("ann/main".parse(), Ok(named("ann", "main")));
        assert_eq!("https://ann/main".parse(), Ok(named("https://ann", "main")));
        let usd = AssetId::usd_micro();
        let account = Account::new("ann", "main", usd.clone(), Limit::NeverNegative).unwrap();
        let by_id: AccountName = account.account_id.as_str().parse().unwrap();
        assert_eq!(by_id.account_id(&usd), named("ann", "main").account_id(&usd));
        for bad in
            ["", "ann", "/main", "ann/", "acct_1", "a\n/b", &format!("{}/x", "a".repeat(201))]
        {
            let refused = bad.parse::<AccountName>().unwrap_err();
            assert_eq!(refused.code(), &code::MALFORMED, "{bad}");
        }
    }
}
