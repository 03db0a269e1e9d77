//! Recomputes what the meter did, from the rows and the history of the ledger, without the code that decided it.
//!
//! | what must hold | how it is seen |
//! |---|---|
//! | no minute is paid twice, none is left out | the minutes of each sandbox are 0, 1, 2, … in the history |
//! | each minute is paid before it begins, from the account of its owner | time, id and accounts of each transfer |
//! | the last minute of each costs what its row says | rows of sandboxes |
//! | what ran is paid, or borne by us at its price | what agents reported, beside minutes and losses |
//! | no cap is passed, what is spent is the sum of its transfers | rows of sandboxes and jobs |
//! | nothing runs beyond its time; caps and times end at their minute | rows of sandboxes and jobs |
//! | nothing else is charged, nothing else goes out | every transfer to our revenue and to the outside |
//! | all accounts add up to zero, and no user is below it | the balances |

use guild_ledger::ledger;
use guild_protocol::amount::AssetId;
use guild_store::Rx;

use crate::{Result, UserId};

mod rows;
mod walk;

use rows::Rows;
use walk::Walk;

/// More problems than these are not listed.
const PROBLEMS_MAX: usize = 1_000;

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many jobs were looked at.
    pub jobs: u64,
    /// How many sandboxes.
    pub sandboxes: u64,
    /// How many paid minutes.
    pub minutes: u64,
    /// How long sandboxes ran without being paid, as their agents say.
    pub overrun_ms: i64,
    /// What we bear for that, in micro-USD.
    pub lost_units: i64,
    /// What does not hold; empty when all is well.
    pub problems: Vec<String>,
}

impl Report {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// Looks at everything. The ledger's own audit is another: this one believes that its history is as it is written.
pub fn run(rx: &mut Rx<'_>) -> Result<Report> {
    let mut report = Report::default();
    let rows = Rows::read(rx)?;
    let mut walk = Walk::new(&rows)?;
    walk.history(rx, &mut report)?;
    rows.compare(&walk, &mut report);
    balances(rx, &mut report)?;
    Ok(report)
}

/// All accounts in our asset add up to zero; no user is below it.
fn balances(rx: &mut Rx<'_>, report: &mut Report) -> Result<()> {
    let usd = AssetId::usd_micro();
    let mut sum: i128 = 0;
    for entry in ledger::all_entries(rx)?.into_values() {
        let (account, balance) = (&entry.account, &entry.balance);
        if account.asset_id != usd {
            continue;
        }
        sum = sum.saturating_add(i128::from(balance.units()));
        let of_user = account.purpose == "main" && account.owner.parse::<UserId>().is_ok();
        if of_user && balance.free_units() < 0 {
            report.problem(format!("{} has {} free", account.owner, balance.free_units()));
        }
    }
    if sum != 0 {
        report.problem(format!("all accounts of {usd} together hold {sum}, not zero"));
    }
    Ok(())
}
