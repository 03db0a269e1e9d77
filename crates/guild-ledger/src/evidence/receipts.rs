//! `receipts/*.json`: whether they hold, and whether the ledger holds what they name.

use std::collections::BTreeMap;

use guild_protocol::amount::Amount;
use guild_protocol::hash::Hash;
use guild_protocol::receipt::{self, Proof, Receipt};

use super::code;
use super::finding::{Findings, Place, Refusal};
use super::record::{Transfer, TransferKey, quoted, transfer_key_of};

/// Receipts, to be compared with the ledger. Read before it, so that of the ledger only what they name is kept.
#[derive(Debug, Default)]
pub struct Receipts {
    findings: Findings,
    count: u64,
    claims: Vec<Claim>,
    transfers: BTreeMap<TransferKey, Option<Paid>>,
    heads: BTreeMap<Hash, Option<i64>>,
    /// What is owed to the node whose ledger this is, by receipt: the receipts of its buyers name transfers and heads
    /// of other ledgers.
    owed: BTreeMap<String, Option<Paid>>,
}

/// A payment in the ledger that a receipt states.
#[derive(Debug)]
struct Claim {
    name: String,
    receipt_id: String,
    transfer_id: String,
    amount: Amount,
    head: Hash,
}

#[derive(Debug)]
struct Paid {
    seq: i64,
    asset_id: Option<String>,
    units: i128,
}

impl Receipts {
    /// No receipt yet.
    pub fn new() -> Receipts {
        Receipts::default()
    }

    /// Takes a receipt and the name of its file.
    pub fn file(&mut self, name: &str, bytes: &[u8]) {
        self.count = self.count.saturating_add(1);
        let verified = if bytes.len() > receipt::MAX_BYTES {
            Err(format!("it is longer than {} bytes", receipt::MAX_BYTES))
        } else {
            Receipt::from_bytes(bytes).map_err(|e| format!("{e} [{}]", e.code().name))
        };
        match verified {
            Ok(receipt) => self.claim(name, &receipt),
            Err(message) => self.refuse(name, Refusal::new(&code::RECEIPT, message)),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn refuse(&mut self, name: &str, refusal: Refusal) {
        self.findings.push(refusal.at(Place::of_receipt(name)));
    }

    fn claim(&mut self, name: &str, receipt: &Receipt) {
        let stated = receipt.stated();
        if let Some(Proof::LedgerTransfer { transfer_id, ledger_head }) = &stated.payment_proof {
            if let Some(key) = transfer_key_of(transfer_id) {
                self.transfers.insert(key, None);
            }
            self.heads.insert(*ledger_head, None);
            self.owed.insert(receipt.receipt_id().to_string(), None);
            self.claims.push(Claim {
                name: name.to_owned(),
                receipt_id: receipt.receipt_id().to_string(),
                transfer_id: transfer_id.clone(),
                amount: stated.amount.clone(),
                head: *ledger_head,
            });
        }
    }

    /// Whether a receipt names this transfer.
    pub(super) fn name(&self, transfer: &Transfer<'_>) -> bool {
        self.transfers.contains_key(&transfer.transfer)
    }

    /// A transfer of the ledger.
    pub(super) fn booked(&mut self, transfer: &Transfer<'_>, seq: i64, asset_id: Option<&str>) {
        let receipt_id = transfer.memo.strip_prefix("iou ");
        if let Some(owed) = receipt_id.and_then(|id| self.owed.get_mut(id)) {
            let asset_id = asset_id.map(str::to_owned);
            owed.get_or_insert(Paid { seq, asset_id, units: transfer.units });
        }
        if let Some(paid) = self.transfers.get_mut(&transfer.transfer) {
            // The first one counts: a second one is a problem of the ledger.
            let asset_id = asset_id.map(str::to_owned);
            paid.get_or_insert(Paid { seq, asset_id, units: transfer.units });
        }
    }

    /// A head of the ledger.
    pub(super) fn head(&mut self, hash: &Hash, last_seq: i64) {
        if let Some(found) = self.heads.get_mut(hash) {
            *found = Some(last_seq);
        }
    }

    /// After the whole ledger: what it does not hold.
    pub(super) fn finish(mut self) -> Findings {
        for claim in std::mem::take(&mut self.claims) {
            if let Err(refusal) = self.check(&claim) {
                self.refuse(&claim.name, refusal);
            }
        }
        self.findings
    }

    fn check(&self, claim: &Claim) -> Result<(), Refusal> {
        let Claim { transfer_id, head, .. } = claim;
        let paid = transfer_key_of(transfer_id).and_then(|key| self.transfers.get(&key)?.as_ref());
        let Some(paid) = paid else { return self.check_owed(claim) };
        check_amount(claim, paid, transfer_id)?;
        match self.heads.get(head).copied().flatten() {
            None => Err(Refusal::new(
                &code::RECEIPT_HEAD,
                format!("the ledger never had the head {head}"),
            )),
            Some(last_seq) if last_seq < paid.seq => {
                let message = format!("{head} is of record {last_seq}, before {transfer_id}");
                Err(Refusal::new(&code::RECEIPT_HEAD, message))
            }
            Some(_) => Ok(()),
        }
    }

    /// The payment is not in this ledger, so it must be the buyer's, and this one the provider's.
    fn check_owed(&self, claim: &Claim) -> Result<(), Refusal> {
        match self.owed.get(&claim.receipt_id).and_then(Option::as_ref) {
            Some(owed) => check_amount(claim, owed, "what is booked as owed"),
            None => {
                let transfer_id = quoted(&claim.transfer_id);
                let message =
                    format!("the ledger holds neither the transfer {transfer_id} nor the debt");
                Err(Refusal::new(&code::RECEIPT_TRANSFER, message))
            }
        }
    }
}

fn check_amount(claim: &Claim, paid: &Paid, what: &str) -> Result<(), Refusal> {
    let (amount, asset_id) = (&claim.amount, paid.asset_id.as_deref());
    if paid.units == i128::from(amount.units) && asset_id == Some(amount.asset_id.as_str()) {
        return Ok(());
    }
    let asset_id = asset_id.unwrap_or("of an unknown asset");
    let message = format!("it states {amount}, {what} is {} {asset_id}", paid.units);
    Err(Refusal::new(&code::RECEIPT_AMOUNT, message))
}
