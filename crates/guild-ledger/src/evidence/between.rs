//! The evidence of several nodes together: what one of them owes another, the other is owed by it, each payment once.
//!
//! Only debts between the nodes that are there can be compared. Who they are is said by their keys. A node that leaves
//! some of them out cannot be compared, so it agrees with nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::code;
use super::dealings::{Dealings, Moved, Promise};
use super::finding::{Part, Place, Problem, Refusal};
use super::{MAX_PROBLEMS, record::TransferKey};

/// A problem between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Between {
    /// In whose evidence it is to be looked for: the number of the node, from 0.
    pub node: usize,
    /// What does not hold.
    pub problem: Problem,
}

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Together {
    /// How many receipts were about payments between these nodes.
    pub receipts: u64,
    /// The first problems.
    pub problems: Vec<Between>,
    /// How many there are beyond those.
    pub problems_left_out: u64,
}

impl Together {
    /// Whether the nodes agree.
    pub fn holds(&self) -> bool {
        self.problems.is_empty()
    }

    fn push(&mut self, node: usize, place: Place, refusal: Refusal) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Between { node, problem: refusal.at(place) });
        } else {
            self.problems_left_out = self.problems_left_out.saturating_add(1);
        }
    }
}

/// Compares the dealings of several nodes.
pub fn compare(nodes: &[Dealings]) -> Together {
    let mut found = Together::default();
    let owners = owners(nodes, &mut found);
    let world = World { nodes, owners };
    let promises = world.promises();
    for (receipt_id, promise) in &promises {
        world.check_promise(receipt_id, promise, &mut found);
    }
    world.check_debts(&promises, &mut found);
    world.check_payments(&promises, &mut found);
    if found.holds() {
        // Whatever was found already would show here once more.
        world.check_balances(&mut found);
    }
    found
}

/// Which node deals under which key.
fn owners<'a>(nodes: &'a [Dealings], found: &mut Together) -> BTreeMap<&'a str, usize> {
    let mut owners = BTreeMap::new();
    for (node, dealings) in nodes.iter().enumerate() {
        if let Some(why) = dealings.nameless() {
            found.push(node, Place::of(Part::Keys), Refusal::new(&code::KEYS, why));
        }
        for key in &dealings.keys {
            let first = *owners.entry(key.as_str()).or_insert(node);
            if first != node {
                let message = format!("{key} is the key of another node, too");
                found.push(node, Place::of(Part::Keys), Refusal::new(&code::KEYS, message));
            }
        }
    }
    owners
}

struct World<'a> {
    nodes: &'a [Dealings],
    owners: BTreeMap<&'a str, usize>,
}

impl World<'_> {
    fn owner(&self, npub: &str) -> Option<(usize, &Dealings)> {
        let node = *self.owners.get(npub)?;
        Some((node, self.nodes.get(node)?))
    }

    /// Every receipt that any of them holds, once.
    fn promises(&self) -> BTreeMap<&str, &Promise> {
        let all = self.nodes.iter().flat_map(|dealings| &dealings.promises);
        all.map(|(receipt_id, promise)| (receipt_id.as_str(), promise)).collect()
    }

    /// The node that holds the file of a receipt.
    fn holder(&self, receipt_id: &str) -> usize {
        let holds = |dealings: &Dealings| dealings.promises.contains_key(receipt_id);
        self.nodes.iter().position(holds).unwrap_or(0)
    }

    /// A receipt between two of them: paid in the one book, owed in the other.
    fn check_promise(&self, receipt_id: &str, promise: &Promise, found: &mut Together) {
        let (buyer, provider) = (self.owner(&promise.buyer), self.owner(&promise.provider));
        if buyer.is_some() && provider.is_some() {
            found.receipts = found.receipts.saturating_add(1);
        }
        let place = || Place::of_receipt(&promise.file);
        if let Some((_, dealings)) = buyer
            && promise.pays
        {
            let payment = promise.transfer.and_then(|transfer| dealings.payments.get(&transfer));
            if let Err(refusal) = check_payment(promise, payment) {
                found.push(self.holder(receipt_id), place(), refusal);
            }
        }
        let Some((node, dealings)) = provider else { return };
        let debts = dealings.debts.get(receipt_id).map_or(&[][..], Vec::as_slice);
        if let Err(refusal) = check_debt(promise, debts) {
            found.push(node, place(), refusal);
        }
    }

    /// What is booked as owed: by a receipt that somebody shows, and each payment once.
    fn check_debts(&self, promises: &BTreeMap<&str, &Promise>, found: &mut Together) {
        for (node, dealings) in self.nodes.iter().enumerate() {
            let mut paid: BTreeMap<(&str, TransferKey), &str> = BTreeMap::new();
            for (receipt_id, debts) in &dealings.debts {
                let seq = debts.first().map(|debt| debt.seq);
                let place = || Place { seq, ..Place::of(Part::Ledger) };
                let Some(promise) = promises.get(receipt_id.as_str()) else {
                    let message =
                        format!("nobody shows the receipt {}", super::record::quoted(receipt_id));
                    found.push(node, place(), Refusal::new(&code::DEBT_UNPROVEN, message));
                    continue;
                };
                let Some(transfer) = promise.transfer else { continue };
                let first = *paid.entry((&promise.buyer, transfer)).or_insert(receipt_id);
                if first != receipt_id {
                    let message = format!("{receipt_id} is about the payment of {first}");
                    found.push(node, place(), Refusal::new(&code::DEBT_DOUBLED, message));
                }
            }
        }
    }

    /// What is paid to one of them: with a receipt of the one who paid. Others may name the same transfer, in a book of
    /// their own or in none.
    fn check_payments(&self, promises: &BTreeMap<&str, &Promise>, found: &mut Together) {
        let paying = promises.values().filter(|promise| promise.pays);
        let promised: BTreeSet<(TransferKey, &str)> = paying
            .filter_map(|promise| Some((promise.transfer?, promise.buyer.as_str())))
            .collect();
        for (node, dealings) in self.nodes.iter().enumerate() {
            for (transfer, payment) in &dealings.payments {
                let is_promised =
                    dealings.keys.iter().any(|key| promised.contains(&(*transfer, key.as_str())));
                if self.owner(&payment.other).is_some() && !is_promised {
                    let place = Place { seq: Some(payment.seq), ..Place::of(Part::Ledger) };
                    let message =
                        format!("{} was paid {} without a receipt", payment.other, shown(payment));
                    found.push(node, place, Refusal::new(&code::DEBT_MISSING, message));
                }
            }
        }
    }

    /// What one owes another is what the other is owed by it.
    fn check_balances(&self, found: &mut Together) {
        for (node, dealings) in self.nodes.iter().enumerate() {
            for (other, others) in self.nodes.iter().enumerate() {
                let owes = between(&dealings.payable, others);
                let owed = between(&others.receivable, dealings);
                for (asset_id, units) in differing(&owes, &owed) {
                    let message = format!(
                        "it owes node {} {} {asset_id}, which counts {}",
                        other.saturating_add(1),
                        units.0,
                        units.1
                    );
                    let refusal = Refusal::new(&code::DEBT_BALANCE, message);
                    found.push(node, Place::of(Part::Ledger), refusal);
                }
            }
        }
    }
}

/// The balances with the keys of this node, by asset.
fn between<'a>(
    balances: &'a BTreeMap<(String, String), i128>,
    with: &Dealings,
) -> BTreeMap<&'a str, i128> {
    let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
    for ((npub, asset_id), units) in balances {
        if with.keys.contains(npub) {
            let sum = sums.entry(asset_id).or_default();
            *sum = sum.saturating_add(*units);
        }
    }
    sums
}

fn differing<'a>(
    one: &BTreeMap<&'a str, i128>,
    other: &BTreeMap<&'a str, i128>,
) -> Vec<(&'a str, (i128, i128))> {
    let mut both: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    one.iter().for_each(|(asset_id, units)| both.entry(asset_id).or_default().0 = *units);
    other.iter().for_each(|(asset_id, units)| both.entry(asset_id).or_default().1 = *units);
    both.into_iter().filter(|(_, (one, other))| one != other).collect()
}

fn shown(moved: &Moved) -> String {
    format!("{} {}", moved.units, moved.asset_id)
}

fn check_payment(promise: &Promise, payment: Option<&Moved>) -> Result<(), Refusal> {
    match payment {
        Some(payment) if payment.other != promise.provider => {
            let message = format!("the buyer's book has paid {}, not its provider", payment.other);
            Err(Refusal::new(&code::DEBT_UNPAID, message))
        }
        Some(payment) if promise.is_for(payment) => Ok(()),
        Some(payment) => {
            let message =
                format!("it states {}, the buyer has paid {}", promise.amount, shown(payment));
            Err(Refusal::new(&code::DEBT_AMOUNT, message))
        }
        None => {
            let message = "the buyer's book does not hold the payment that it states";
            Err(Refusal::new(&code::DEBT_UNPAID, message))
        }
    }
}

fn check_debt(promise: &Promise, debts: &[Moved]) -> Result<(), Refusal> {
    match (promise.pays, debts) {
        (false, []) => Ok(()),
        (false, _) => {
            let message = "nothing is owed by it, and a debt is booked";
            Err(Refusal::new(&code::DEBT_UNPAID, message))
        }
        (true, []) => {
            let message = "its provider has not booked what is owed";
            Err(Refusal::new(&code::DEBT_MISSING, message))
        }
        (true, [debt]) if promise.is_for(debt) && debt.other == promise.buyer => Ok(()),
        (true, [debt]) => {
            let (amount, booked, who) = (&promise.amount, shown(debt), &debt.other);
            let message = format!("it states {amount}, its provider has booked {booked} of {who}");
            Err(Refusal::new(&code::DEBT_AMOUNT, message))
        }
        (true, several) => {
            let message = format!("its provider has booked it {} times", several.len());
            Err(Refusal::new(&code::DEBT_DOUBLED, message))
        }
    }
}
