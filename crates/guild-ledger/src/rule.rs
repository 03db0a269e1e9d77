//! Rules of an account that change over time: the reserve it must keep, and how far below zero it may go.

use crate::account::{Account, Balance, Limit, check_name};
use crate::error::code;
use crate::{Error, Result};

const LETS_THROUGH_MAX: usize = 32;

/// Keeps a reserve in an account: no transfer may take it below, except to accounts of the purposes it lets through
/// (the running costs that the reserve is for).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// What must stay free.
    pub reserve_units: i64,
    /// The purposes of the node's own accounts that may be paid from the reserve.
    pub lets_through: Vec<String>,
}

/// The whole rule of an account, from the moment it is set. What was booked before stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The reserve it must keep, if any.
    pub gate: Option<Gate>,
    /// How far below zero it may go: what a buyer may owe. Without it, as far as the account's limit says.
    pub credit_units: Option<i64>,
}

impl Rule {
    /// Refuses a rule that cannot be meant.
    pub(crate) fn check(&self) -> Result<()> {
        let reserve_units = self.gate.as_ref().map(|gate| gate.reserve_units);
        if [reserve_units, self.credit_units].into_iter().flatten().any(|units| units < 0) {
            return Err(Error::refused(&code::BAD_AMOUNT, "a reserve or a credit is zero or more"));
        }
        let Some(gate) = &self.gate else { return Ok(()) };
        if gate.lets_through.len() > LETS_THROUGH_MAX {
            let message = format!("a gate lets at most {LETS_THROUGH_MAX} purposes through");
            return Err(Error::refused(&code::MALFORMED, message));
        }
        gate.lets_through.iter().try_for_each(|purpose| check_name("lets_through", purpose))
    }

    /// Whether the account may stand at `after` when something has gone from it to `to`.
    pub(crate) fn allow_debit(&self, after: &Balance, to: &Account) -> Result<()> {
        if let Some(gate) = &self.gate {
            let running_cost = to.owner == "node" && gate.lets_through.contains(&to.purpose);
            if !running_cost && after.free_units() < gate.reserve_units {
                let (free, reserve) = (after.free_units(), gate.reserve_units);
                let message = format!("{free} would stay free, the gate keeps {reserve}");
                return Err(Error::refused(&code::GATED, message));
            }
        }
        match self.credit_units {
            Some(credit_units) if owed_units(after) > i128::from(credit_units) => {
                let message =
                    format!("{} would be owed, the credit is {credit_units}", owed_units(after));
                Err(Error::refused(&code::CREDIT_LIMIT, message))
            }
            _ => Ok(()),
        }
    }
}

/// How far below zero the account stands, with all holds. Three 64-bit counters always fit into 128 bits.
fn owed_units(balance: &Balance) -> i128 {
    i128::from(balance.debits_posted)
        .saturating_add(i128::from(balance.debits_pending))
        .saturating_sub(i128::from(balance.credits_posted))
}

/// Whether the limit that an account was opened with lets it stand at `after`.
pub(crate) fn allow_limit(account: &Account, before: &Balance, after: &Balance) -> Result<()> {
    let (out, into) = match account.limit {
        Limit::None => return Ok(()),
        Limit::NeverNegative => {
            (after.debits_posted.checked_add(after.debits_pending), after.credits_posted)
        }
        Limit::NeverPositive => {
            (after.credits_posted.checked_add(after.credits_pending), after.debits_posted)
        }
    };
    if out.is_some_and(|out| out <= into) {
        return Ok(());
    }
    let (purpose, owner) = (&account.purpose, &account.owner);
    let message = format!("{purpose} of {owner} has {} free", before.free_units());
    Err(Error::refused(&code::OVERDRAFT, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_cannot_be_meant_is_refused() {
        let gate = |reserve_units, lets_through: &[&str]| Rule {
            gate: Some(Gate {
                reserve_units,
                lets_through: lets_through.iter().map(|&s| s.to_owned()).collect(),
            }),
            credit_units: None,
        };
        let credit = |units| Rule { gate: None, credit_units: Some(units) };
        for good in [Rule::default(), gate(0, &["fees"]), credit(0)] {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, code) in [
            (gate(-1, &[]), &code::BAD_AMOUNT),
            (credit(-1), &code::BAD_AMOUNT),
            (gate(1, &[""]), &code::MALFORMED),
            (gate(1, &["a"; 33]), &code::MALFORMED),
        ] {
            assert_eq!(bad.check().unwrap_err().code(), code, "{bad:?}");
        }
    }

    #[test]
    fn what_is_owed_is_exact_at_the_edge_of_64_bits() {
        let after =
            Balance { debits_posted: i64::MAX, debits_pending: i64::MAX, ..Balance::default() };
        assert_eq!(owed_units(&after), i128::from(i64::MAX) * 2);
    }
}
