//! Accounts: who holds what, and how far below zero it may go.

use guild_protocol::amount::AssetId;
use guild_protocol::typed_id;

use crate::error::code;
use crate::{Error, Result};

typed_id! {
    /// Names an account: the hash of its owner, purpose and asset, so that opening it twice is opening it once.
    AccountId = "acct", content;
}

const NAME_MAX_BYTES: usize = 200;

/// How far an account may go. The total over all accounts is zero, so somebody must be allowed below zero: the outside
/// world, from which deposits come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// What is owed out, with all holds, never exceeds what came in. The accounts of users.
    NeverNegative,
    /// What came in, with all holds, never exceeds what went out. What others owe us, up to a credit.
    NeverPositive,
    /// Any balance: the outside world.
    None,
}

impl Limit {
    /// All of them.
    pub const ALL: [Limit; 3] = [Limit::NeverNegative, Limit::NeverPositive, Limit::None];

    /// The word in the database and in exports.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::NeverNegative => "never_negative",
            Limit::NeverPositive => "never_positive",
            Limit::None => "none",
        }
    }

    /// The limit of this word, if it is one.
    pub fn parse(text: &str) -> Option<Limit> {
        Limit::ALL.into_iter().find(|limit| limit.as_str() == text)
    }
}

/// An account. Its id is made from the other fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The hash of owner, purpose and asset.
    pub account_id: AccountId,
    /// Whose it is: an npub, a user id, or `node`.
    pub owner: String,
    /// What it is for: `main`, `escrow`, `revenue`, `outside`, …
    pub purpose: String,
    /// What it counts.
    pub asset_id: AssetId,
    /// How far it may go.
    pub limit: Limit,
}

impl Account {
    /// The account of this owner for this purpose.
    pub fn new(owner: &str, purpose: &str, asset_id: AssetId, limit: Limit) -> Result<Account> {
        check_name("owner", owner)?;
        check_name("purpose", purpose)?;
        let account_id = AccountId::of(&name_hash(owner, purpose, &asset_id));
        let (owner, purpose) = (owner.to_owned(), purpose.to_owned());
        Ok(Account { account_id, owner, purpose, asset_id, limit })
    }
}

impl Account {
    /// Its fields can be written by anybody: an account under another's id would be paid in its place.
    pub(crate) fn check(&self) -> Result<()> {
        let Account { owner, purpose, asset_id, limit, .. } = self;
        if Account::new(owner, purpose, asset_id.clone(), *limit)? == *self {
            return Ok(());
        }
        let message = format!("{} is not the id of {purpose} of {owner}", self.account_id);
        Err(Error::refused(&code::MALFORMED, message))
    }
}

pub(crate) fn check_name(field: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > NAME_MAX_BYTES || text.chars().any(char::is_control) {
        let message = format!("{field} must be 1 to {NAME_MAX_BYTES} bytes of plain text");
        return Err(Error::refused(&code::MALFORMED, message));
    }
    Ok(())
}

fn name_hash(owner: &str, purpose: &str, asset_id: &AssetId) -> guild_protocol::hash::Hash {
    // None of the three can hold a line feed, so no two names share a text.
    let text = format!("guild.account.v1\n{owner}\n{purpose}\n{asset_id}");
    guild_protocol::hash::Hash::of(text.as_bytes())
}

/// What has gone through an account. All four only count up or, for the pending ones, return to what they were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balance {
    /// Taken out for good.
    pub debits_posted: i64,
    /// Put in for good.
    pub credits_posted: i64,
    /// Held, to be taken out.
    pub debits_pending: i64,
    /// Held by others, to be put in.
    pub credits_pending: i64,
}

impl Balance {
    /// What is there: in minus out.
    pub fn units(&self) -> i64 {
        // Both are between zero and i64::MAX, so the difference always fits.
        self.credits_posted.saturating_sub(self.debits_posted)
    }

    /// What can still be taken out: what is there, less what is held.
    pub fn free_units(&self) -> i64 {
        self.units().saturating_sub(self.debits_pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_named_by_what_it_is() {
        let usd = || AssetId::usd_micro();
        let one = Account::new("a", "main", usd(), Limit::NeverNegative).unwrap();
        assert_eq!(one, Account::new("a", "main", usd(), Limit::NeverNegative).unwrap());
        for other in [
            Account::new("b", "main", usd(), Limit::NeverNegative),
            Account::new("a", "escrow", usd(), Limit::NeverNegative),
            Account::new("a", "main", AssetId::btc_ln(), Limit::NeverNegative),
        ] {
            assert_ne!(other.unwrap().account_id, one.account_id);
        }
        for bad in ["", "a\nb", &"x".repeat(201)] {
            let error = Account::new(bad, "main", usd(), Limit::None).unwrap_err();
            assert_eq!(error.code(), &code::MALFORMED);
        }
    }
}
