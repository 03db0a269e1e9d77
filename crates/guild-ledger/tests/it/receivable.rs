use guild_ledger::book::Outcome;
use guild_ledger::evidence::{Checker, Receipts};
use guild_ledger::receivable::{self, Payment};
use guild_ledger::{Error, Limit, NewTransfer, Step, TransferId, export, ledger};
use guild_protocol::amount::AssetId;
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;

use crate::{Scratch, account, block_on, both, usd};

fn key(n: u8) -> SecretKey {
    SecretKey::from_bytes([n; 32]).unwrap()
}

fn buyer() -> SecretKey {
    key(1)
}

fn provider() -> PublicKey {
    key(2).public_key()
}

/// The buyer pays the provider in its own book, and signs that it owes.
fn pay(buyers_book: &Scratch, job: &str, units: i64) -> Receipt {
    let debt = receivable::payable(&provider(), AssetId::usd_micro()).unwrap();
    let step = Step::Post {
        debit: account("user-1", Limit::NeverNegative).account_id,
        credit: debt.account_id.clone(),
        amount: usd(units),
    };
    let transfer = NewTransfer::new(TransferId::named(9, &["job", job]), step, "job.paid").unwrap();
    let id = transfer.transfer_id.to_string();
    let head = block_on(buyers_book.store.write(move |tx| {
        ledger::open(tx, &debt, 9)?;
        ledger::book(tx, &[vec![transfer.clone()]], 9)?.remove(0)?;
        ledger::head(tx)
    }))
    .unwrap();
    sign(
        job,
        units,
        Proof::LedgerTransfer { transfer_id: id, ledger_head: head.hash },
        Rail::Ledger,
    )
}

fn sign(job: &str, units: i64, proof: Proof, rail: Rail) -> Receipt {
    let draft = Draft {
        session_id: "session".to_owned(),
        request_id: Some(job.to_owned()),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: Some(Hash::of(job.as_bytes())),
        payment_proof: Some(proof),
        rail,
        amount: usd(units),
        provider_id: provider(),
        buyer_id: buyer().public_key(),
        approval_rule_id: None,
        idempotency_key: job.to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(9).unwrap(),
    };
    draft.sign(&buyer()).unwrap()
}

fn book(providers_book: &Scratch, receipt: &Receipt, us: PublicKey) -> Result<Outcome, Error> {
    let receipt = receipt.clone();
    let booked = providers_book.store.write(move |tx| receivable::book(tx, &receipt, &us, 100, 10));
    block_on(booked)
}

fn owed(providers_book: &Scratch) -> i64 {
    let buyer = buyer().public_key();
    let owed = providers_book
        .store
        .read(move |rx| receivable::owed_units(rx, &buyer, AssetId::usd_micro()));
    block_on(owed).unwrap()
}

fn deposit(book: &Scratch) {
    let step = Step::Post {
        debit: account("outside", Limit::None).account_id,
        credit: account("user-1", Limit::NeverNegative).account_id,
        amount: usd(1_000),
    };
    let transfer = NewTransfer::new(TransferId::named(1, &["deposit"]), step, "deposit").unwrap();
    book.book(vec![vec![transfer]]).remove(0).unwrap();
}

/// What a stranger finds who gets a book and the receipts.
fn evidence(book: &Scratch, receipts: &[Receipt]) -> Vec<String> {
    let mut files = Receipts::new();
    for receipt in receipts {
        files.file(&format!("{}.json", receipt.receipt_id()), receipt.as_bytes());
    }
    let exported = book.store.read(|rx| {
        let mut bytes = Vec::new();
        export::export(rx, &mut bytes)?;
        Ok::<_, Error>(bytes)
    });
    let mut checker = Checker::new().with_receipts(files);
    block_on(exported).unwrap().split_inclusive(|b| *b == b'\n').for_each(|l| checker.line(l));
    checker.finish().problems.iter().map(|problem| problem.code.name.to_owned()).collect()
}

#[test]
fn the_two_books_agree_each_entry_once() {
    both(1, |buyers| {
        let providers = Scratch::sqlite(0);
        deposit(buyers);
        let receipts: Vec<Receipt> =
            [("a", 30), ("b", 45)].map(|(job, units)| pay(buyers, job, units)).into();
        for receipt in &receipts {
            assert!(matches!(book(&providers, receipt, provider()), Ok(Outcome::New(_))));
            assert!(matches!(book(&providers, receipt, provider()), Ok(Outcome::Known(_))));
        }
        let debt = receivable::payable(&provider(), AssetId::usd_micro()).unwrap();
        assert_eq!((owed(&providers), buyers.free(&debt.account_id)), (75, 75));
        assert_eq!(evidence(buyers, &receipts), Vec::<String>::new());
        assert_eq!(evidence(&providers, &receipts), Vec::<String>::new());
        assert_eq!(evidence(&Scratch::sqlite(0), &receipts[..1]), ["evidence.receipt_transfer"]);
        let other = sign("c", 5, receipts[0].stated().payment_proof.clone().unwrap(), Rail::Ledger);
        assert_eq!(evidence(buyers, &[other]), ["evidence.receipt_amount"]);
    });
}

#[test]
fn a_buyer_owes_no_more_than_its_credit_and_pays_no_more_than_it_owes() {
    both(1, |providers| {
        let buyers = Scratch::sqlite(1);
        deposit(&buyers);
        let (small, large) = (pay(&buyers, "small", 60), pay(&buyers, "large", 41));
        book(providers, &small, provider()).unwrap();
        let refused = book(providers, &large, provider()).unwrap_err();
        assert_eq!(refused.code().name, "ledger.credit_limit");
        assert_eq!(owed(providers), 60);
        let pay = |units: i64, reference: &str, rail: Rail| {
            let (reference, buyer) = (reference.to_owned(), buyer().public_key());
            let payment = Payment { rail, reference, amount: usd(units) };
            let paid = providers.store.write(move |tx| receivable::paid(tx, &buyer, &payment, 12));
            block_on(paid).map_err(|error| error.code().name)
        };
        assert_eq!(pay(61, "tx1", Rail::Onchain), Err("ledger.overdraft"));
        assert_eq!(pay(50, "tx1", Rail::Ledger), Err("ledger.not_an_iou"));
        assert!(matches!(pay(50, "tx1", Rail::Onchain), Ok(Outcome::New(_))));
        assert!(matches!(pay(50, "tx1", Rail::Onchain), Ok(Outcome::Known(_))));
        assert_eq!(pay(40, "tx1", Rail::Onchain), Err("ledger.transfer_conflict"));
        assert_eq!(owed(providers), 10);
        book(providers, &large, provider()).unwrap();
        assert_eq!(owed(providers), 51);
        assert_eq!(providers.problems(), Vec::<String>::new());
    });
}

#[test]
fn only_what_is_owed_to_us_is_booked() {
    let providers = Scratch::sqlite(1);
    let buyers = Scratch::sqlite(1);
    deposit(&buyers);
    let receipt = pay(&buyers, "a", 5);
    let refused = book(&providers, &receipt, key(3).public_key()).unwrap_err();
    assert_eq!(refused.code().name, "ledger.not_an_iou");
    assert_eq!(owed(&providers), 0);
    assert_eq!(receivable::receipt_of("iou "), None);
    let memo = format!("{}{}", receivable::MEMO, receipt.receipt_id());
    assert_eq!(receivable::receipt_of(&memo).as_ref(), Some(receipt.receipt_id()));
}

/// A receipt that is signed again, a moment later, is another receipt of the same debt.
#[test]
fn one_payment_is_owed_once_however_often_it_is_signed() {
    both(0, |providers| {
        let buyers = Scratch::sqlite(1);
        deposit(&buyers);
        let first = pay(&buyers, "a", 30);
        let mut later = first.stated().clone();
        later.timestamp = Timestamp::from_ms(10).unwrap();
        let second = later.sign(&buyer()).unwrap();
        assert_ne!(first.receipt_id(), second.receipt_id());
        book(providers, &first, provider()).unwrap();
        let refused = book(providers, &second, provider()).unwrap_err();
        assert_eq!(refused.code().name, "ledger.transfer_conflict");
        assert!(matches!(book(providers, &first, provider()), Ok(Outcome::Known(_))));
        assert_eq!(owed(providers), 30);
        // The second one claims what the first one does.
        let both = [first, second];
        assert_eq!(evidence(&buyers, &both), ["evidence.receipt_doubled"]);
        assert_eq!(evidence(providers, &both), ["evidence.receipt_transfer"]);
    });
}

/// Only what the buyer owes by this receipt counts: no other entry may pass for it.
#[test]
fn no_other_entry_passes_for_the_debt() {
    let buyers = Scratch::sqlite(1);
    deposit(&buyers);
    let receipt = pay(&buyers, "a", 30);
    let memo = format!("{}{}", receivable::MEMO, receipt.receipt_id());
    let other = receivable::receivable(&key(3).public_key(), AssetId::usd_micro()).unwrap();
    let debtor = receivable::receivable(&buyer().public_key(), AssetId::usd_micro()).unwrap();
    let fakes = [(&other, false), (&debtor, true)];
    for (debtor, held) in fakes {
        let providers = Scratch::sqlite(1);
        providers.open_account(debtor, 9).unwrap();
        let (debit, credit) = (debtor.account_id.clone(), providers.ids[1].clone());
        let step = match held {
            true => Step::Hold { debit, credit, amount: usd(30), expires_ms: 99 },
            false => Step::Post { debit, credit, amount: usd(30) },
        };
        let fake = NewTransfer::new(TransferId::named(9, &["fake"]), step, &memo).unwrap();
        providers.book(vec![vec![fake]]).remove(0).unwrap();
        assert_eq!(
            evidence(&providers, std::slice::from_ref(&receipt)),
            ["evidence.receipt_transfer"]
        );
    }
}
