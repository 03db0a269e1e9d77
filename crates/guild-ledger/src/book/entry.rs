//! What a book holds: accounts as they stand, transfers as they are booked.

use std::sync::Arc;

use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::UnixMs;

use crate::account::{Account, Balance};
use crate::rule::Rule;
use crate::transfer::{StepName, TransferId};

/// An account with what has gone through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The account.
    pub account: Arc<Account>,
    /// Its short name inside one database.
    pub account_no: i64,
    /// What has gone through it.
    pub balance: Balance,
    /// Its present rule.
    pub rule: Rule,
    /// The number of the newest transfer that touched it; 0 if none did.
    pub last_seq: i64,
}

impl Entry {
    /// An account that was just opened.
    pub fn opened(account: Account, account_no: i64) -> Entry {
        Entry {
            account: Arc::new(account),
            account_no,
            balance: Balance::default(),
            rule: Rule::default(),
            last_seq: 0,
        }
    }
}

/// One side of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The account.
    pub account: Arc<Account>,
    /// Its short name inside one database.
    pub account_no: i64,
    /// The transfer that touched the account before this one; 0 if none did. A statement walks along these.
    pub prev_seq: i64,
}

/// The hold that a transfer closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedHold {
    /// The number of the transfer that made it.
    pub seq: i64,
    /// The id of the transfer that made it.
    pub transfer_id: TransferId,
    /// What it held.
    pub units: i64,
}

/// A transfer as it is booked: what it did, with all amounts resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// Its place in the history.
    pub seq: i64,
    /// Names it.
    pub transfer_id: TransferId,
    /// What it did.
    pub step: StepName,
    /// From here.
    pub debit: Side,
    /// To here.
    pub credit: Side,
    /// What it moves, holds, settles or gives back, in units of the asset of its accounts.
    pub units: i64,
    /// The hold it closes, if it closes one.
    pub hold: Option<ClosedHold>,
    /// When it runs out, if it is a hold.
    pub expires_ms: Option<UnixMs>,
    /// Why.
    pub memo: String,
    /// When it was booked.
    pub at_ms: UnixMs,
}

impl Booked {
    /// What it counts in: the asset of both its accounts.
    pub fn asset_id(&self) -> &AssetId {
        &self.debit.account.asset_id
    }

    /// Its amount with the asset.
    pub fn amount(&self) -> Amount {
        Amount::new(self.asset_id().clone(), self.units)
    }
}

/// What became of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Booked now.
    New(Arc<Booked>),
    /// Booked before, with the same content.
    Known(Arc<Booked>),
}

impl Outcome {
    /// The transfer as it is booked.
    pub fn booked(&self) -> &Arc<Booked> {
        match self {
            Outcome::New(booked) | Outcome::Known(booked) => booked,
        }
    }
}
