//! Double-entry money. Every transfer takes from one account what it gives to another, so the sum over all accounts of
//! an asset is always zero; nothing is ever changed or deleted, only added.
//!
//! | module | what it settles |
//! |---|---|
//! | [`account`] | who holds what, and how far below zero it may go |
//! | [`rule`] | what an account must keep, and how much it may owe, from now on |
//! | [`transfer`] | what can be asked: post, hold, settle, void, expire; alone or linked |
//! | [`book`] | the pure decision: given balances and holds, what a transfer changes or why it is refused |
//! | [`ledger`] | the thin effect: a batch of transfers in one transaction, a few statements whatever its size |
//! | [`receivable`] | what other nodes owe us, by the receipts they signed |
//! | [`writer`] | many callers, one batch per commit |
//! | [`history`] | statements, holds that ran out, everything that happened in order |
//! | [`record`], [`head`] | the history as lines, and a hash over all of them |
//! | [`export`] | the whole history as a file that a stranger can check |
//! | [`audit`] | recomputes everything from the history alone |
//! | [`policy`] | which payments go through, which need a guardian, which are refused |
//! | [`quote`] | a payment that is decided first, approved perhaps, and then reserved |
//! | [`evidence`] | checks an exported history, without the code that decides |
// Whoever computes with money must get an error, never a panic or a wrapped number.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing, clippy::panic, clippy::float_arithmetic)]

pub mod account;
pub mod audit;
pub mod book;
mod error;
pub mod evidence;
pub mod export;
pub mod head;
pub mod history;
pub mod ledger;
pub mod policy;
pub mod quote;
pub mod receivable;
pub mod record;
mod row;
pub mod rule;
pub mod transfer;
pub mod writer;

pub use account::{Account, AccountId, Balance, Limit};
pub use error::{Error, Result, code};
pub use rule::{Gate, Rule};
pub use transfer::{NewTransfer, Step, StepName, TransferId};
pub use writer::Writer;

/// The tables of this crate.
pub fn migrations() -> Vec<guild_store::Migration> {
    let mut all = ledger::migrations();
    all.push(quote::migration());
    all
}
