//! What the evidence of one node says about its debts with others: kept while its ledger is read, compared afterwards.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::amount::Amount;
use guild_protocol::receipt::{Proof, Receipt, Status};

use super::money::Money;
use super::record::{AccountKey, Opened, Step, Transfer, TransferKey, transfer_key_of};

/// The dealings of one node with others. They grow with what it owes and is owed, not with its whole ledger.
#[derive(Debug, Default)]
pub struct Dealings {
    /// Under which keys it deals, as it says itself.
    pub(super) keys: BTreeSet<String>,
    /// Whether it says so at all.
    says_keys: bool,
    /// Keys that its ledger answers for, by the receipts beside it.
    proven: BTreeSet<String>,
    accounts: BTreeMap<AccountKey, Side>,
    /// What it owes, by whom and asset.
    pub(super) payable: BTreeMap<(String, String), i128>,
    /// What it is owed, by whom and asset.
    pub(super) receivable: BTreeMap<(String, String), i128>,
    /// What it has paid into what it owes.
    pub(super) payments: BTreeMap<TransferKey, Moved>,
    /// What it has booked as owed, by the receipt that says so.
    pub(super) debts: BTreeMap<String, Vec<Moved>>,
    /// The receipts about payments in ledgers that lie beside its own.
    pub(super) promises: BTreeMap<String, Promise>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Side {
    Payable(String),
    Receivable(String),
}

/// Something that moved, to or from somebody.
#[derive(Debug)]
pub(super) struct Moved {
    /// The other one's npub.
    pub(super) other: String,
    pub(super) asset_id: String,
    pub(super) units: i128,
    pub(super) seq: i64,
}

/// What a receipt promises.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    pub(super) file: String,
    pub(super) buyer: String,
    pub(super) provider: String,
    pub(super) amount: Amount,
    /// Whether it says that money moved.
    pub(super) pays: bool,
    /// The transfer in the buyer's book; none if nothing moved.
    pub(super) transfer: Option<TransferKey>,
}

impl Promise {
    pub(super) fn of(file: &str, receipt: &Receipt) -> Promise {
        let stated = receipt.stated();
        let transfer = match &stated.payment_proof {
            Some(Proof::LedgerTransfer { transfer_id, .. }) => transfer_key_of(transfer_id),
            _ => None,
        };
        Promise {
            file: file.to_owned(),
            buyer: stated.buyer_id.npub(),
            provider: stated.provider_id.npub(),
            amount: stated.amount.clone(),
            pays: matches!(stated.status, Status::Released | Status::Prepaid),
            transfer,
        }
    }

    /// Whether so much of this moved.
    pub(super) fn is_for(&self, moved: &Moved) -> bool {
        moved.units == i128::from(self.amount.units)
            && moved.asset_id == self.amount.asset_id.as_str()
    }
}

impl Dealings {
    /// The same node, which says that it deals under these keys.
    #[must_use]
    pub fn under(mut self, npubs: impl IntoIterator<Item = String>) -> Dealings {
        self.keys.extend(npubs);
        self.says_keys = true;
        self
    }

    /// Why nobody can tell what others owe to this node and are owed by it, if that is so.
    pub(super) fn nameless(&self) -> Option<String> {
        let has_dealt = !self.payments.is_empty() || !self.debts.is_empty();
        if !self.says_keys {
            return Some("nothing says under which keys it deals".to_owned());
        }
        if has_dealt && self.keys.is_empty() {
            return Some("it has paid or is owed, and says that it deals under no key".to_owned());
        }
        let unsaid = self.proven.difference(&self.keys).next();
        unsaid.map(|npub| format!("it deals under {npub}, too, and does not say so"))
    }

    pub(super) fn opened(&mut self, opened: &Opened<'_>) {
        let owner = opened.owner.to_owned();
        let side = match opened.purpose {
            "payable" => Side::Payable(owner),
            "receivable" => Side::Receivable(owner),
            _ => return,
        };
        self.accounts.insert(opened.account, side);
    }

    pub(super) fn booked(&mut self, transfer: &Transfer<'_>, seq: i64, money: &Money) {
        if self.accounts.is_empty() {
            return;
        }
        let moves = matches!(transfer.step, Step::Post | Step::Settle { .. });
        let asset_id =
            || money.account(&transfer.debit).map_or("", |(asset_id, _)| asset_id).to_owned();
        let moved = |other: &String| Moved {
            other: other.clone(),
            asset_id: asset_id(),
            units: transfer.units,
            seq,
        };
        if let (true, Some(Side::Payable(owner))) = (moves, self.accounts.get(&transfer.credit)) {
            self.payments.entry(transfer.transfer).or_insert_with(|| moved(owner));
        }
        if let (Step::Post, Some(Side::Receivable(owner)), Some(receipt_id)) =
            (transfer.step, self.accounts.get(&transfer.debit), transfer.memo.strip_prefix("iou "))
        {
            self.debts.entry(receipt_id.to_owned()).or_default().push(moved(owner));
        }
    }

    /// After the whole ledger: the balances, and the keys that receipts prove to be this node's. What it is owed by a
    /// receipt it did not pay by it, whatever transfer a stranger has named in it.
    pub(super) fn finish(&mut self, money: &Money, promises: BTreeMap<String, Promise>) {
        for (key, side) in &self.accounts {
            let Some((asset_id, counters)) = money.account(key) else { continue };
            let units = counters.credits_posted.saturating_sub(counters.debits_posted);
            let (owner, list, units) = match side {
                Side::Payable(owner) => (owner, &mut self.payable, units),
                Side::Receivable(owner) => (owner, &mut self.receivable, units.saturating_neg()),
            };
            list.insert((owner.clone(), asset_id.to_owned()), units);
        }
        for (receipt_id, promise) in &promises {
            if self.debts.contains_key(receipt_id) {
                self.proven.insert(promise.provider.clone());
            } else if promise.transfer.is_some_and(|id| self.payments.contains_key(&id)) {
                self.proven.insert(promise.buyer.clone());
            }
        }
        self.promises = promises;
    }
}
