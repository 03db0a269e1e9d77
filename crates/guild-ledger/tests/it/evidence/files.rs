//! What lies beside the ledger: calls, receipts, events.

use guild_ledger::evidence::Part;
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_protocol::receipt::{Draft, Proof, Rail, Status};
use guild_protocol::timestamp::Timestamp;
use serde_json::{Value, json};

use super::export::{canonical, transfer_id};
use super::{Evidence, bob, codes, honest};

/// The codes that this file plants bugs for.
pub(super) const CODES: [&str; 13] = [
    "evidence.answer",
    "evidence.call",
    "evidence.content",
    "evidence.event",
    "evidence.lost",
    "evidence.receipt",
    "evidence.receipt_amount",
    "evidence.receipt_doubled",
    "evidence.receipt_head",
    "evidence.receipt_step",
    "evidence.receipt_transfer",
    "evidence.refused",
    "evidence.unasked",
];

fn asked(transfer: &Value) -> Value {
    let mut asked = json!({"call": "asked"});
    let fields = ["credit", "debit", "expires_ms", "hold", "memo", "step", "transfer_id", "units"];
    for field in fields {
        asked[field] = transfer[field].clone();
    }
    asked
}

fn told(name: &str, outcome: &str) -> Value {
    let mut told = json!({"call": "told", "outcome": outcome, "transfer_id": transfer_id(name)});
    if outcome == "refused" {
        told["code"] = "ledger.overdraft".into();
    }
    told
}

/// All that was asked for the honest history, and one thing that was refused.
fn calls() -> Vec<Value> {
    let mut calls = Vec::new();
    for transfer in honest().records.iter().filter(|record| record["record"] == "transfer") {
        calls.push(asked(transfer));
        calls.push(told(transfer["memo"].as_str().unwrap(), "booked"));
    }
    calls.push(json!({"call": "asked", "transfer_id": transfer_id("dream"), "units": "1000000"}));
    calls.push(told("dream", "refused"));
    calls
}

fn found(calls: &[Value]) -> Vec<&'static str> {
    let calls = Some(calls.iter().map(canonical).collect());
    codes(&Evidence { ledger: honest().lines(), calls, ..Evidence::default() }.check())
}

/// The call for this transfer.
fn call<'a>(calls: &'a mut [Value], memo: &str) -> &'a mut Value {
    calls.iter_mut().find(|call| call["memo"] == memo).unwrap()
}

#[test]
fn honest_calls_agree_with_the_ledger() {
    assert_eq!(found(&calls()), [""; 0]);
    let mut partly = calls();
    // A caller that knows little, one that was never answered, one that asked again, one that had to ask again.
    *call(&mut partly, "pay") =
        json!({"call": "asked", "transfer_id": transfer_id("pay"), "units": null});
    partly.retain(|call| *call != told("minute", "booked"));
    partly.push(call(&mut calls(), "deposit").clone());
    partly.push(call(&mut calls(), "credit").clone());
    partly.push(told("credit", "refused"));
    // One that asked for something else under the same id, and was refused.
    let mut other = call(&mut calls(), "lend").clone();
    other["units"] = "6".into();
    partly.extend([other, told("lend", "refused")]);
    assert_eq!(found(&partly), [""; 0]);
}

#[test]
fn a_line_of_the_calls_that_broke_off_says_nothing() {
    let mut lines: Vec<String> = calls().iter().map(canonical).collect();
    lines.push("{\"call\":\"told\",\"outco".to_owned());
    let evidence = Evidence { ledger: honest().lines(), calls: Some(lines), ..Evidence::default() };
    assert!(evidence.check().holds());
}

type Lie = (&'static str, fn(&mut Vec<Value>));

#[test]
fn every_lie_about_calls_is_found() {
    let cases: &[Lie] = &[
        ("evidence.lost", |c| {
            c.push(json!({"call": "asked", "transfer_id": transfer_id("gone")}));
            c.push(told("gone", "booked"));
        }),
        ("evidence.lost", |c| *c.last_mut().unwrap() = told("dream", "booked")),
        ("evidence.unasked", |c| {
            c.retain(|call| call["transfer_id"] != transfer_id("deposit"));
        }),
        ("evidence.content", |c| call(c, "deposit")["units"] = "101".into()),
        ("evidence.content", |c| call(c, "deposit")["debit"] = bob().into()),
        ("evidence.content", |c| call(c, "deposit")["credit"] = bob().into()),
        ("evidence.content", |c| call(c, "deposit")["step"] = "hold".into()),
        ("evidence.content", |c| call(c, "deposit")["hold"] = transfer_id("escrow").into()),
        ("evidence.content", |c| call(c, "escrow")["expires_ms"] = 999.into()),
        ("evidence.content", |c| call(c, "escrow")["memo"] = "other".into()),
        ("evidence.content", |c| {
            let mut other = call(c, "deposit").clone();
            other["units"] = "101".into();
            c.extend([other, told("deposit", "booked")]);
        }),
        ("evidence.refused", |c| {
            let at = c.iter().position(|call| *call == told("deposit", "booked")).unwrap();
            c[at] = told("deposit", "refused");
        }),
        ("evidence.answer", |c| c.push(told("never", "refused"))),
        ("evidence.call", |c| c.push(json!([]))),
        ("evidence.call", |c| c.push(json!({"call": "asked"}))),
        ("evidence.call", |c| c.push(json!({"call": "asked", "transfer_id": "xfer_1"}))),
        ("evidence.call", |c| call(c, "deposit")["extra"] = 1.into()),
        ("evidence.call", |c| call(c, "deposit")["units"] = 100.into()),
        ("evidence.call", |c| c.push(told("deposit", "perhaps"))),
    ];
    for (code, lie) in cases {
        let mut calls = calls();
        lie(&mut calls);
        let found = found(&calls);
        assert_eq!(found, [*code]);
    }
}

fn buyer() -> SecretKey {
    "11".repeat(32).parse().unwrap()
}

/// A receipt for the settled escrow, which is in the third commit.
fn draft() -> Draft {
    let heads: Vec<Value> =
        honest().lines().iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    let heads: Vec<&Value> = heads.iter().filter(|line| line["record"] == "head").collect();
    Draft {
        session_id: "session".to_owned(),
        request_id: None,
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: None,
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: transfer_id("pay"),
            ledger_head: heads[2]["hash"].as_str().unwrap().parse().unwrap(),
        }),
        rail: Rail::Ledger,
        amount: Amount::new(AssetId::usd_micro(), 25),
        provider_id: buyer().public_key(),
        buyer_id: buyer().public_key(),
        approval_rule_id: None,
        idempotency_key: "pay".to_owned(),
        status: Status::Released,
        verdict_hash: None,
        timestamp: Timestamp::from_ms(1_768_465_800_000).unwrap(),
    }
}

fn found_in_receipt(bytes: &[u8]) -> Vec<&'static str> {
    let receipts = vec![bytes.to_vec()];
    let report = Evidence { ledger: honest().lines(), receipts, ..Evidence::default() }.check();
    assert_eq!(report.receipts, 1);
    assert_eq!(report.found_in(Part::Ledger), 0);
    codes(&report)
}

#[test]
fn a_receipt_names_a_transfer_of_the_ledger() {
    let signed = |draft: Draft| draft.sign(&buyer()).unwrap().as_bytes().to_vec();
    assert_eq!(found_in_receipt(&signed(draft())), [""; 0]);
    let proof = |name: &str, ledger_head: Hash| {
        Some(Proof::LedgerTransfer { transfer_id: name.to_owned(), ledger_head })
    };
    let Some(Proof::LedgerTransfer { ledger_head, .. }) = draft().payment_proof else { panic!() };
    let cases = [
        ("evidence.receipt_transfer", proof(&transfer_id("none"), ledger_head), 25),
        ("evidence.receipt_transfer", proof("transfer-3", ledger_head), 25),
        ("evidence.receipt_amount", proof(&transfer_id("pay"), ledger_head), 26),
        ("evidence.receipt_head", proof(&transfer_id("pay"), Hash::of(b"other")), 25),
        ("evidence.receipt_head", proof(&transfer_id("repay"), ledger_head), 5),
    ];
    for (code, payment_proof, units) in cases {
        let amount = Amount::new(AssetId::usd_micro(), units);
        let receipt = signed(Draft { payment_proof, amount, ..draft() });
        assert_eq!(found_in_receipt(&receipt), [code]);
    }
    let other = Amount::new(AssetId::btc_ln(), 25);
    let receipt = signed(Draft { amount: other, ..draft() });
    assert_eq!(found_in_receipt(&receipt), ["evidence.receipt_amount"]);
}

/// The receipt of a payment in this state, with this proof and amount, against the honest ledger.
fn found_of(status: Status, name: &str, units: i64) -> Vec<&'static str> {
    let Some(Proof::LedgerTransfer { ledger_head, .. }) = last_draft().payment_proof else {
        panic!()
    };
    let payment_proof = Some(Proof::LedgerTransfer { transfer_id: transfer_id(name), ledger_head });
    let amount = Amount::new(AssetId::usd_micro(), units);
    let receipt = Draft { payment_proof, amount, status, ..draft() }.sign(&buyer()).unwrap();
    found_in_receipt(receipt.as_bytes())
}

/// The draft with the last head, which covers everything.
fn last_draft() -> Draft {
    let lines = honest().lines();
    let end: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    let ledger_head = end["head"].as_str().unwrap().parse().unwrap();
    let payment_proof =
        Some(Proof::LedgerTransfer { transfer_id: transfer_id("pay"), ledger_head });
    Draft { payment_proof, ..draft() }
}

#[test]
fn a_receipt_says_what_its_transfer_did() {
    use Status::{Prepaid, Refunded, Released, Withheld};
    for (status, name, units) in [
        (Released, "pay", 25),
        (Released, "minute", 50),
        (Prepaid, "minute", 50),
        (Refunded, "repay", 5),
        (Withheld, "back", 10),
        (Withheld, "ran-out", 20),
        (Withheld, "late", 20),
    ] {
        assert_eq!(found_of(status, name, units), [""; 0], "{status:?} {name}");
    }
    for (status, name, units) in [
        (Released, "escrow", 40),
        (Released, "open", 3),
        (Prepaid, "open", 3),
        (Released, "back", 10),
        (Released, "ran-out", 20),
        (Refunded, "ran-out", 20),
        (Withheld, "pay", 25),
        (Withheld, "minute", 50),
    ] {
        assert_eq!(found_of(status, name, units), ["evidence.receipt_step"], "{status:?} {name}");
    }
}

#[test]
fn one_transfer_pays_for_one_receipt() {
    let signed = |draft: Draft| draft.sign(&buyer()).unwrap().as_bytes().to_vec();
    let again = |status| {
        let session_id = "another session".to_owned();
        signed(Draft { session_id, status, ..draft() })
    };
    let found = |second: Vec<u8>| {
        let receipts = vec![signed(draft()), second];
        let evidence = Evidence { ledger: honest().lines(), receipts, ..Evidence::default() };
        codes(&evidence.check())
    };
    assert_eq!(found(again(Status::Released)), ["evidence.receipt_doubled"]);
    assert_eq!(found(again(Status::Prepaid)), ["evidence.receipt_doubled"]);
    // The same receipt in two files, and what was paid and given back, are one payment.
    assert_eq!(found(signed(draft())), [""; 0]);
    assert_eq!(found(again(Status::Refunded)), [""; 0]);
}

#[test]
fn a_receipt_that_does_not_hold_is_found() {
    let good = draft().sign(&buyer()).unwrap().as_bytes().to_vec();
    let changed = String::from_utf8(good).unwrap().replace("\"session\"", "\"session-8\"");
    for bad in [changed.as_bytes(), b"", b"{}", &[b' '; 70_000]] {
        assert_eq!(found_in_receipt(bad), ["evidence.receipt"]);
    }
}

#[test]
fn events_are_numbered_objects() {
    let found = |events: &[&str]| {
        let events = events.iter().map(|line| (*line).to_owned()).collect();
        let report = Evidence { ledger: honest().lines(), events, ..Evidence::default() }.check();
        codes(&report)
    };
    assert_eq!(found(&["{\"seq\":1}\n", "{\"a\": [], \"seq\": 7}\n"]), [""; 0]);
    for bad in ["{\"seq\":7}\n", "{\"seq\":\"8\"}\n", "[8]\n", "\n", "{\"seq\":8}", "\u{1b}\n"] {
        assert_eq!(found(&["{\"seq\":7}\n", bad]), ["evidence.event"], "{bad}");
    }
}
