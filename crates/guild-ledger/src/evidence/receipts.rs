//! `receipts/*.json`: whether they hold, and whether the ledger holds what they name.

use std::collections::{BTreeMap, BTreeSet};

use guild_protocol::amount::Amount;
use guild_protocol::hash::Hash;
use guild_protocol::receipt::{self, Proof, Rail, Receipt, Status};

use super::code;
use super::dealings::Promise;
use super::finding::{Findings, Place, Refusal};
use super::record::{AccountKey, Step, Transfer, TransferKey, quoted, transfer_key_of};

/// Receipts, to be compared with the ledger. Read before it, so that of the ledger only what they name is kept.
#[derive(Debug, Default)]
pub struct Receipts {
    findings: Findings,
    count: u64,
    claims: Vec<Claim>,
    /// Those on the rail `ledger`, by id, for whoever compares several nodes.
    promises: BTreeMap<String, Promise>,
    transfers: BTreeMap<TransferKey, Option<Paid>>,
    heads: BTreeMap<Hash, Option<i64>>,
    /// What is owed to the node whose ledger this is, by receipt: the receipts of its buyers name transfers and heads
    /// of other ledgers.
    owed: BTreeMap<String, Owed>,
}

/// A debt that a ledger may hold instead of the payment.
#[derive(Debug)]
struct Owed {
    /// The only account that it can be taken from.
    debtor: AccountKey,
    booked: Option<Paid>,
}

/// A payment in the ledger that a receipt states.
#[derive(Debug)]
struct Claim {
    name: String,
    receipt_id: String,
    buyer: String,
    /// The account in which the buyer keeps what it owes the provider.
    payable: AccountKey,
    transfer_id: String,
    amount: Amount,
    status: Status,
    head: Hash,
}

impl Claim {
    /// Whether it says that money moved.
    fn pays(&self) -> bool {
        matches!(self.status, Status::Released | Status::Prepaid)
    }
}

#[derive(Debug)]
struct Paid {
    seq: i64,
    credit: AccountKey,
    asset_id: Option<String>,
    units: i128,
    /// Whether it moved anything: holding and giving back do not.
    moved: bool,
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

    /// What they promise, taken out.
    pub(super) fn take_promises(&mut self) -> BTreeMap<String, Promise> {
        std::mem::take(&mut self.promises)
    }

    fn refuse(&mut self, name: &str, refusal: Refusal) {
        self.findings.push(refusal.at(Place::of_receipt(name)));
    }

    fn claim(&mut self, name: &str, receipt: &Receipt) {
        let stated = receipt.stated();
        if stated.rail == Rail::Ledger {
            let promise = Promise::of(name, receipt);
            self.promises.insert(receipt.receipt_id().to_string(), promise);
        }
        if let Some(Proof::LedgerTransfer { transfer_id, ledger_head }) = &stated.payment_proof {
            if let Some(key) = transfer_key_of(transfer_id) {
                self.transfers.insert(key, None);
            }
            self.heads.insert(*ledger_head, None);
            let (buyer, asset_id) = (stated.buyer_id.npub(), stated.amount.asset_id.as_str());
            let debtor = account_of(&buyer, "receivable", asset_id);
            let payable = account_of(&stated.provider_id.npub(), "payable", asset_id);
            let owed = Owed { debtor, booked: None };
            self.owed.insert(receipt.receipt_id().to_string(), owed);
            self.claims.push(Claim {
                name: name.to_owned(),
                receipt_id: receipt.receipt_id().to_string(),
                buyer,
                payable,
                transfer_id: transfer_id.clone(),
                amount: stated.amount.clone(),
                status: stated.status,
                head: *ledger_head,
            });
        }
    }

    /// Whether a receipt names this transfer, or is named by it.
    pub(super) fn name(&self, transfer: &Transfer<'_>) -> bool {
        self.transfers.contains_key(&transfer.transfer)
            || receipt_in(transfer).is_some_and(|receipt_id| self.owed.contains_key(receipt_id))
    }

    /// A transfer of the ledger.
    pub(super) fn booked(&mut self, transfer: &Transfer<'_>, seq: i64, asset_id: Option<&str>) {
        let paid = || Paid {
            seq,
            credit: transfer.credit,
            asset_id: asset_id.map(str::to_owned),
            units: transfer.units,
            moved: matches!(transfer.step, Step::Post | Step::Settle { .. }),
        };
        let owed = receipt_in(transfer).and_then(|receipt_id| self.owed.get_mut(receipt_id));
        if let Some(owed) = owed
            && transfer.step == Step::Post
            && transfer.debit == owed.debtor
        {
            owed.booked.get_or_insert_with(paid);
        }
        if let Some(found) = self.transfers.get_mut(&transfer.transfer) {
            // The first one counts: a second one is a problem of the ledger.
            found.get_or_insert_with(paid);
        }
    }

    /// A head of the ledger.
    pub(super) fn head(&mut self, hash: &Hash, last_seq: i64) {
        if let Some(found) = self.heads.get_mut(hash) {
            *found = Some(last_seq);
        }
    }

    /// After the whole ledger: what it does not hold. `keys` are those of its node, if they are known.
    pub(super) fn finish(mut self, keys: Option<&BTreeSet<String>>) -> Findings {
        let mut claimed = BTreeMap::new();
        for claim in std::mem::take(&mut self.claims) {
            let checked = match keys {
                // Anybody can name a transfer. Only of whoever keeps this book does it show that it was paid.
                Some(keys) if !keys.contains(&claim.buyer) => self.check_owed(&claim),
                Some(_) => self.check_paid_to(&claim, &mut claimed),
                None if self.paid(&claim).is_none() => self.check_owed(&claim),
                None => self.check_paid(&claim, &mut claimed),
            };
            if let Err(refusal) = checked {
                self.refuse(&claim.name, refusal);
            }
        }
        self.findings
    }

    fn paid(&self, claim: &Claim) -> Option<&Paid> {
        self.transfers.get(&transfer_key_of(&claim.transfer_id)?)?.as_ref()
    }

    /// The ledger is that of the buyer: what it says that it has paid is owed to the provider.
    fn check_paid_to(&self, claim: &Claim, claimed: &mut Claimed) -> Result<(), Refusal> {
        self.check_paid(claim, claimed)?;
        match self.paid(claim) {
            Some(paid) if claim.pays() && paid.credit != claim.payable => {
                let message = format!("{} is not owed to its provider", claim.transfer_id);
                Err(Refusal::new(&code::RECEIPT_PAYEE, message))
            }
            _ => Ok(()),
        }
    }

    fn check_paid(&self, claim: &Claim, claimed: &mut Claimed) -> Result<(), Refusal> {
        let Claim { transfer_id, head, .. } = claim;
        let Some(paid) = self.paid(claim) else { return Err(not_there(claim)) };
        check_amount(claim, paid, transfer_id)?;
        if paid.moved == (claim.status == Status::Withheld) {
            let did = if paid.moved { "moved" } else { "did not move" };
            let message = format!("it is {}, {transfer_id} {did} money", claim.status.as_str());
            return Err(Refusal::new(&code::RECEIPT_STEP, message));
        }
        match self.heads.get(head).copied().flatten() {
            None => {
                let message = format!("the ledger never had the head {head}");
                return Err(Refusal::new(&code::RECEIPT_HEAD, message));
            }
            Some(last_seq) if last_seq < paid.seq => {
                let message = format!("{head} is of record {last_seq}, before {transfer_id}");
                return Err(Refusal::new(&code::RECEIPT_HEAD, message));
            }
            Some(_) => {}
        }
        check_once(claim, claimed)
    }

    /// The ledger is that of the provider, and the payment in the buyer's. What moved nothing is owed to nobody.
    fn check_owed(&self, claim: &Claim) -> Result<(), Refusal> {
        let owed = self.owed.get(&claim.receipt_id).and_then(|owed| owed.booked.as_ref());
        match (claim.pays(), owed) {
            (true, Some(owed)) => check_amount(claim, owed, "what is booked as owed"),
            (true, None) => Err(not_there(claim)),
            (false, None) => Ok(()),
            (false, Some(_)) => {
                let message = format!("it is {}, a debt is booked", claim.status.as_str());
                Err(Refusal::new(&code::RECEIPT_STEP, message))
            }
        }
    }
}

/// The receipt that a transfer is the payment of.
type Claimed = BTreeMap<String, String>;

/// A transfer of this ledger pays for one receipt. What was given back later is the same payment.
fn check_once(claim: &Claim, claimed: &mut Claimed) -> Result<(), Refusal> {
    if !claim.pays() {
        return Ok(());
    }
    let first = claimed.entry(claim.transfer_id.clone()).or_insert(claim.receipt_id.clone());
    if *first == claim.receipt_id {
        return Ok(());
    }
    let message = format!("{} is already the payment of {first}", claim.transfer_id);
    Err(Refusal::new(&code::RECEIPT_DOUBLED, message))
}

fn not_there(claim: &Claim) -> Refusal {
    let transfer_id = quoted(&claim.transfer_id);
    let message = format!("the ledger holds neither the transfer {transfer_id} nor the debt");
    Refusal::new(&code::RECEIPT_TRANSFER, message)
}

/// The receipt that an entry says it is owed by.
fn receipt_in<'a>(transfer: &Transfer<'a>) -> Option<&'a str> {
    transfer.memo.strip_prefix("iou ")
}

/// The account of somebody with whom there are debts.
fn account_of(npub: &str, purpose: &str, asset_id: &str) -> AccountKey {
    let name = format!("guild.account.v1\n{npub}\n{purpose}\n{asset_id}");
    *Hash::of(name.as_bytes()).as_bytes()
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
