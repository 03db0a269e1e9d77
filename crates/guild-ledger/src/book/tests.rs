use guild_protocol::amount::AssetId;

use super::*;
use crate::account::Limit;
use crate::rule::Gate;

fn account(owner: &str, limit: Limit) -> Account {
    Account::new(owner, "main", AssetId::usd_micro(), limit).unwrap()
}

/// The outside world, and two users; the first has 100.
fn book() -> (Book, [AccountId; 3]) {
    let accounts = [
        account("outside", Limit::None),
        account("ann", Limit::NeverNegative),
        account("bob", Limit::NeverNegative),
    ];
    let ids = accounts.clone().map(|account| account.account_id);
    let mut book = Book::default();
    for account in accounts {
        let number = i64::try_from(book.entries().len()).unwrap() + 1;
        book.add_account(Entry::opened(account, number));
    }
    book.apply(&post("deposit", &ids[0], &ids[1], 100), 0).unwrap();
    (book, ids)
}

fn transfer(name: &str, step: Step) -> NewTransfer {
    NewTransfer::new(TransferId::named(0, &[name]), step, "test").unwrap()
}

fn usd(units: i64) -> Amount {
    Amount::new(AssetId::usd_micro(), units)
}

fn post(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
    let (debit, credit) = (debit.clone(), credit.clone());
    transfer(name, Step::Post { debit, credit, amount: usd(units) })
}

fn hold(name: &str, debit: &AccountId, credit: &AccountId, units: i64) -> NewTransfer {
    let (debit, credit) = (debit.clone(), credit.clone());
    transfer(name, Step::Hold { debit, credit, amount: usd(units), expires_ms: 1_000 })
}

fn named(name: &str) -> TransferId {
    TransferId::named(0, &[name])
}

fn free(book: &Book, id: &AccountId) -> (i64, i64) {
    let balance = book.entry(id).unwrap().balance;
    (balance.units(), balance.free_units())
}

fn refused(book: &mut Book, transfer: &NewTransfer, now_ms: UnixMs) -> &'static str {
    let before = book.clone();
    let code = book.apply(transfer, now_ms).unwrap_err().code().name;
    assert_eq!(*book, before, "a refusal changes nothing");
    code
}

#[test]
fn a_hold_is_settled_voided_or_expires_once() {
    let (mut book, [_, ann, bob]) = book();
    for name in ["settled", "part", "voided", "expired"] {
        book.apply(&hold(name, &ann, &bob, 20), 0).unwrap();
    }
    assert_eq!(free(&book, &ann), (100, 20));
    let settle = |name: &str, units| {
        transfer(&format!("{name}-s"), Step::Settle { hold: named(name), units })
    };
    let void = transfer("void", Step::Void { hold: named("voided") });
    let expire = transfer("expire", Step::Expire { hold: named("expired") });
    book.apply(&settle("settled", None), 10).unwrap();
    book.apply(&settle("part", Some(5)), 10).unwrap();
    book.apply(&void, 10).unwrap();
    assert_eq!(refused(&mut book, &expire, 999), "ledger.not_expired");
    assert_eq!(refused(&mut book, &settle("expired", None), 1_000), "ledger.hold_expired");
    book.apply(&expire, 1_000).unwrap();
    assert_eq!((free(&book, &ann), free(&book, &bob)), ((75, 75), (25, 25)));
    for name in ["settled", "part", "voided", "expired"] {
        let again = transfer("again", Step::Void { hold: named(name) });
        assert_eq!(refused(&mut book, &again, 2_000), "ledger.hold_closed");
    }
}

#[test]
fn a_repeat_is_the_same_transfer_and_other_content_a_conflict() {
    let (mut book, [_, ann, bob]) = book();
    let first = book.apply(&post("x", &ann, &bob, 10), 5).unwrap();
    let Outcome::New(booked) = first else { panic!("{first:?}") };
    assert_eq!(book.apply(&post("x", &ann, &bob, 10), 99), Ok(Outcome::Known(booked)));
    assert_eq!(refused(&mut book, &post("x", &ann, &bob, 11), 5), "ledger.transfer_conflict");
    assert_eq!(refused(&mut book, &post("x", &bob, &ann, 10), 5), "ledger.transfer_conflict");
    assert_eq!(free(&book, &bob), (10, 10));
}

#[test]
fn what_must_not_be_is_refused() {
    let (mut book, [outside, ann, bob]) = book();
    let stranger = account("stranger", Limit::None).account_id;
    let msat = Step::Post {
        debit: ann.clone(),
        credit: bob.clone(),
        amount: Amount::new(AssetId::btc_ln(), 1),
    };
    for (asked, code) in [
        (post("a", &ann, &bob, 101), "ledger.overdraft"),
        (hold("a", &ann, &bob, 101), "ledger.overdraft"),
        (post("a", &ann, &bob, 0), "ledger.bad_amount"),
        (post("a", &ann, &bob, -5), "ledger.bad_amount"),
        (post("a", &ann, &bob, i64::MIN), "ledger.bad_amount"),
        (post("a", &ann, &ann, 1), "ledger.same_account"),
        (post("a", &ann, &stranger, 1), "ledger.unknown_account"),
        (transfer("a", msat), "ledger.wrong_asset"),
        (transfer("a", Step::Void { hold: named("nothing") }), "ledger.unknown_hold"),
        (transfer("a", Step::Void { hold: named("deposit") }), "ledger.unknown_hold"),
        (post("a", &outside, &ann, i64::MAX), "ledger.overflow"),
    ] {
        assert_eq!(refused(&mut book, &asked, 0), code, "{asked:?}");
    }
    let late = hold("a", &ann, &bob, 1);
    assert_eq!(refused(&mut book, &late, 1_000), "ledger.hold_expired");
    book.apply(&hold("h", &ann, &bob, 60), 0).unwrap();
    assert_eq!(refused(&mut book, &post("a", &ann, &bob, 41), 0), "ledger.overdraft");
    let more = transfer("a", Step::Settle { hold: named("h"), units: Some(61) });
    assert_eq!(refused(&mut book, &more, 0), "ledger.bad_amount");
}

#[test]
fn a_gate_keeps_its_reserve_from_everything_but_running_costs() {
    let (mut book, [outside, ann, bob]) = book();
    let fees =
        Account::new("node", "sandboxes", AssetId::usd_micro(), Limit::NeverNegative).unwrap();
    let costs = fees.account_id.clone();
    book.add_account(Entry::opened(fees, 4));
    let gate = Gate { reserve_units: 30, lets_through: vec!["sandboxes".to_owned()] };
    assert!(book.set_rule(&ann, Rule { gate: Some(gate), credit_units: None }));
    for to in [&outside, &bob] {
        assert_eq!(refused(&mut book, &post("a", &ann, to, 71), 0), "ledger.gated");
        assert_eq!(refused(&mut book, &hold("a", &ann, to, 71), 0), "ledger.gated");
    }
    book.apply(&hold("out", &ann, &outside, 70), 0).unwrap();
    assert_eq!(refused(&mut book, &post("a", &ann, &bob, 1), 0), "ledger.gated");
    book.apply(&post("minute", &ann, &costs, 30), 0).unwrap();
    assert_eq!(free(&book, &ann), (70, 0));
}

#[test]
fn a_chain_stands_or_falls_as_one() {
    let (mut book, [_, ann, bob]) = book();
    let before = book.clone();
    let chain = [
        hold("h", &ann, &bob, 50),
        transfer("s", Step::Settle { hold: named("h"), units: None }),
        post("back", &bob, &ann, 51),
        post("never", &ann, &bob, 1),
    ];
    let refusal = book.apply_chain(&chain, 0).unwrap_err();
    assert_eq!(refusal.code().name, "ledger.overdraft");
    assert_eq!(refusal.to_string(), "transfer 3 of 4: main of bob has 50 free");
    assert_eq!(book, before);
    let good = book.apply_chain(&chain[..2], 0).unwrap();
    assert!(good.iter().all(|outcome| matches!(outcome, Outcome::New(_))));
    let seqs: Vec<i64> = good.iter().map(|outcome| outcome.booked().seq).collect();
    assert_eq!(seqs, [2, 3], "a refused chain takes no numbers");
    let prevs = good.iter().map(|o| (o.booked().debit.prev_seq, o.booked().credit.prev_seq));
    assert_eq!(prevs.collect::<Vec<_>>(), [(1, 0), (2, 2)]);
    assert_eq!(free(&book, &bob), (50, 50));
}

#[test]
fn a_credit_is_how_far_below_zero_an_account_may_go() {
    let (mut book, [outside, ann, bob]) = book();
    let rule = |units| Rule { gate: None, credit_units: Some(units) };
    assert!(book.set_rule(&outside, rule(150)));
    assert_eq!(refused(&mut book, &post("a", &outside, &bob, 51), 0), "ledger.credit_limit");
    assert_eq!(refused(&mut book, &hold("a", &outside, &bob, 51), 0), "ledger.credit_limit");
    book.apply(&hold("h", &outside, &bob, 50), 0).unwrap();
    assert_eq!(refused(&mut book, &post("a", &outside, &bob, 1), 0), "ledger.credit_limit");
    // A lower credit leaves what was booked; paying back is always allowed.
    assert!(book.set_rule(&outside, rule(0)));
    book.apply(&post("back", &ann, &outside, 100), 0).unwrap();
    book.apply(&transfer("s", Step::Settle { hold: named("h"), units: None }), 0).unwrap();
    assert_eq!(free(&book, &outside), (-50, -50));
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    let (mut book, [_, ann, bob]) = book();
    let chain: Vec<_> =
        (0..=CHAIN_MAX_TRANSFERS).map(|n| post(&n.to_string(), &ann, &bob, 1)).collect();
    assert_eq!(book.apply_chain(&chain, 0).unwrap_err().code().name, "ledger.malformed");
}
