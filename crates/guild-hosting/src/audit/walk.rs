//! The history of the ledger, from the first transfer to the last.

use std::collections::BTreeMap;

use guild_ledger::book::Booked;
use guild_ledger::history::{PAGE_MAX, history_after};
use guild_ledger::record::What;
use guild_ledger::{AccountId, StepName, TransferId};
use guild_store::Rx;

use super::Report;
use super::rows::Rows;
use crate::sandbox::MINUTE_MS;
use crate::{Result, money};

/// What is booked for a sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Paid {
    pub(super) minutes: i64,
    pub(super) units: i64,
    /// What the cheapest of them cost.
    pub(super) least_price: Option<i64>,
    /// What the latest of them cost.
    pub(super) last_price: Option<i64>,
}

/// What the history says.
pub(super) struct Walk<'a> {
    rows: &'a Rows,
    revenue: AccountId,
    loss: AccountId,
    outside: AccountId,
    pub(super) paid: BTreeMap<&'a str, Paid>,
    pub(super) lost: BTreeMap<&'a str, i64>,
    pub(super) went_out: BTreeMap<String, i64>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(rows: &'a Rows) -> Result<Walk<'a>> {
        Ok(Walk {
            rows,
            revenue: money::revenue()?.account_id,
            loss: money::loss()?.account_id,
            outside: money::outside()?.account_id,
            paid: BTreeMap::new(),
            lost: BTreeMap::new(),
            went_out: BTreeMap::new(),
        })
    }

    pub(super) fn history(&mut self, rx: &mut Rx<'_>, report: &mut Report) -> Result<()> {
        let mut after = 0;
        loop {
            let page = history_after(rx, after, PAGE_MAX)?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.seq;
            for record in &page {
                if let What::Transfer(booked) = &record.what {
                    self.take(booked, report);
                }
            }
        }
    }

    /// Only what moves money counts: a hold does so when it is settled.
    fn take(&mut self, booked: &Booked, report: &mut Report) {
        if !matches!(booked.step, StepName::Post | StepName::Settle) {
            return;
        }
        let to = &booked.credit.account.account_id;
        if *to == self.revenue {
            self.take_revenue(booked, report);
        } else if *to == self.outside {
            self.take_outgoing(booked, report);
        }
    }

    fn take_revenue(&mut self, booked: &Booked, report: &mut Report) {
        let words: Vec<&str> = booked.memo.split(' ').collect();
        let known = match words.as_slice() {
            ["sandbox.minute", id, number] => number.parse().ok().map(|number| (*id, Some(number))),
            ["sandbox.loss", id, _] => Some((*id, None)),
            _ => None,
        };
        let Some((id, minute)) = known else {
            let (seq, memo) = (booked.seq, &booked.memo);
            return report
                .problem(format!("transfer {seq} pays us for {memo:?}, which we do not sell"));
        };
        // The name that lives as long as the rows.
        let Some((id, _)) = self.rows.sandboxes.get_key_value(id) else {
            return report
                .problem(format!("transfer {} is about {id}, which does not exist", booked.seq));
        };
        match minute {
            Some(minute) => self.take_minute(id, minute, booked, report),
            None if booked.debit.account.account_id == self.loss => {
                let lost = self.lost.entry(id).or_default();
                *lost = lost.saturating_add(booked.units);
            }
            None => {
                report
                    .problem(format!("a loss of {id} is borne by {}", booked.debit.account.owner));
            }
        }
    }

    fn take_minute(&mut self, id: &'a str, minute: i64, booked: &Booked, report: &mut Report) {
        report.minutes = report.minutes.saturating_add(1);
        let paid = self.paid.entry(id).or_default();
        match minute.cmp(&paid.minutes) {
            std::cmp::Ordering::Less => {
                report.problem(format!("minute {minute} of {id} is paid twice"));
            }
            std::cmp::Ordering::Greater => {
                let first = paid.minutes;
                report.problem(format!("minute {first} of {id} is missing before minute {minute}"));
            }
            std::cmp::Ordering::Equal => {}
        }
        if minute >= paid.minutes {
            paid.last_price = Some(booked.units);
        }
        paid.minutes = paid.minutes.max(minute.saturating_add(1));
        paid.units = paid.units.saturating_add(booked.units);
        let least = paid.least_price.unwrap_or(booked.units).min(booked.units);
        paid.least_price = Some(least);
        let Some(sandbox) = self.rows.sandboxes.get(id) else { return };
        let owner = &booked.debit.account.owner;
        if owner != sandbox.user_id.as_str() {
            report.problem(format!("minute {minute} of {id} is paid by {owner}"));
        }
        if minute > 0 {
            check_minute(id, minute, sandbox.started_ms.unwrap_or(0), booked, report);
        }
    }

    fn take_outgoing(&mut self, booked: &Booked, report: &mut Report) {
        match booked.memo.strip_prefix("withdrawal.settle ") {
            Some(id) => {
                let units = self.went_out.entry(id.to_owned()).or_default();
                *units = units.saturating_add(booked.units);
            }
            None => {
                let (seq, memo) = (booked.seq, &booked.memo);
                report.problem(format!("transfer {seq} goes out for {memo:?}"));
            }
        }
    }
}

/// A minute is one transfer with one id, and is paid before it begins.
fn check_minute(id: &str, minute: i64, started_ms: i64, booked: &Booked, report: &mut Report) {
    let begins_ms = started_ms.saturating_add(minute.saturating_mul(MINUTE_MS));
    let named = TransferId::named(begins_ms, &["sandbox.minute", id, &minute.to_string()]);
    if named != booked.transfer_id {
        report.problem(format!("minute {minute} of {id} is booked under an id of another"));
    }
    if booked.at_ms >= begins_ms {
        let late_ms = booked.at_ms.saturating_sub(begins_ms);
        report.problem(format!("minute {minute} of {id} was paid {late_ms} ms after it began"));
    }
}
