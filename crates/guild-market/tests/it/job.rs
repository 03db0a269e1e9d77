use guild_ledger::receivable;
use guild_market::job::{self, Refusal, Stability, State, Taken};
use guild_market::{TOPIC, code, receipts};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::Event;
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;
use guild_store::event;

use crate::world::{
    Dice, Node, T0, both, buyer, key, new_order, offer, provider, request_of, result_of, why,
};

fn request(order_key: &str) -> Event {
    request_of(&new_order(order_key, 100))
}

fn taken(node: &Node, order_key: &str) -> Event {
    let event = request(order_key);
    let taken = node.take(&event, &offer(50), T0 + 1).unwrap();
    assert!(matches!(taken, Taken::Accepted(_)), "{taken:?}");
    event
}

fn done(node: &Node, order_key: &str) -> Event {
    let event = taken(node, order_key);
    let result = result_of(&event, "result", &provider(), T0 + 3);
    node.hand_in(&event, &result, T0 + 41).unwrap();
    event
}

/// What the buyer signs for this request.
fn draft(order_key: &str, units: i64) -> Draft {
    let new = new_order(order_key, 100);
    Draft {
        session_id: "session".to_owned(),
        request_id: Some(request_of(&new).id.hex()),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: Some(new.job.job_hash()),
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: format!("xfer_{}", &Hash::of(order_key.as_bytes()).hex()[..32]),
            ledger_head: Hash::of(b"head"),
        }),
        rail: Rail::Ledger,
        amount: Amount::from(Msat(units)),
        provider_id: provider().public_key(),
        buyer_id: buyer().public_key(),
        approval_rule_id: None,
        idempotency_key: order_key.to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(T0).unwrap(),
    }
}

fn signed(draft: &Draft) -> Receipt {
    draft.sign(&buyer()).unwrap()
}

#[test]
fn a_job_is_taken_done_and_paid_once() {
    both(|node| {
        let event = taken(node, "a");
        assert!(matches!(node.take(&event, &offer(50), T0 + 9).unwrap(), Taken::Known(_)));
        assert_eq!(node.read(|rx| job::accepted(rx, 10)).len(), 1);
        let [first, second] =
            ["one", "two"].map(|text| result_of(&event, text, &provider(), T0 + 3));
        let job = node.hand_in(&event, &first, T0 + 41).unwrap();
        assert_eq!((job.state, job.delivered_ms), (State::Delivered, Some(T0 + 41)));
        // Another result, made after a crash, say: the first one counts.
        assert_eq!(node.hand_in(&event, &second, T0 + 50).unwrap(), job);
        assert_eq!(job.result_json, Some(first.to_json()));
        assert_eq!(node.read(|rx| job::unpaid(rx, 10)), vec![job]);
        let receipt = signed(&draft("a", 50));
        let paid = node.take_receipt(&receipt, 1_000).unwrap();
        assert_eq!((paid.state, paid.paid), (State::Paid, Some(Msat(50))));
        assert_eq!(node.take_receipt(&receipt, 1_000).unwrap(), paid);
        assert_eq!((node.receivable(), node.read(|rx| job::unpaid(rx, 10)).len()), (50, 0));
        let kept = node.read(|rx| receipts::page_before(rx, None, 10));
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].text.as_bytes(), receipt.as_bytes());
        let events = node.read(|rx| Ok(event::after(rx, TOPIC, 0, 10)?));
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["job.accepted", "job.delivered", "job.paid"]);
        assert_eq!(
            node.read(receipts::keys),
            [("provider".to_owned(), provider().public_key().npub())]
        );
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

#[test]
fn less_than_the_price_is_booked_and_shown() {
    both(|node| {
        for (order_key, units, state) in
            [("less", 49, State::Underpaid), ("price", 50, State::Paid), ("more", 51, State::Paid)]
        {
            done(node, order_key);
            let job = node.take_receipt(&signed(&draft(order_key, units)), 1_000).unwrap();
            assert_eq!((job.state, job.paid), (state, Some(Msat(units))));
        }
        assert_eq!(node.receivable(), 150);
        done(node, "none");
        let nothing = Draft { status: Status::Withheld, payment_proof: None, ..draft("none", 100) };
        let job = node.take_receipt(&signed(&nothing), 1_000).unwrap();
        assert_eq!((job.state, job.paid, node.receivable()), (State::Withheld, None, 150));
    });
}

#[test]
fn receipts_that_do_not_fit_are_refused_and_change_nothing() {
    both(|node| {
        let event = done(node, "a");
        taken(node, "not done");
        let refused = |draft: Draft, by: u8| {
            let buyer_id = key(by).public_key();
            let receipt = Draft { buyer_id, ..draft }.sign(&key(by)).unwrap();
            why(node.take_receipt(&receipt, 1_000))
        };
        let a = || draft("a", 50);
        let provider_id = key(9).public_key();
        assert_eq!(refused(Draft { provider_id, ..a() }, 1), "market.receipt_mismatch");
        assert_eq!(refused(a(), 9), "market.receipt_mismatch");
        let job_hash = Some(Hash::of(b"other"));
        assert_eq!(refused(Draft { job_hash, ..a() }, 1), "market.receipt_mismatch");
        let amount = Amount::new(AssetId::usd_micro(), 50);
        assert_eq!(refused(Draft { amount, ..a() }, 1), "market.receipt_mismatch");
        let prepaid = Draft { status: Status::Prepaid, verdict_hash: None, ..a() };
        assert_eq!(refused(prepaid, 1), "market.receipt_mismatch");
        assert_eq!(refused(draft("unknown", 50), 1), "market.unknown_job");
        assert_eq!(refused(Draft { request_id: Some("7".into()), ..a() }, 1), "market.unknown_job");
        assert_eq!(refused(draft("not done", 50), 1), "market.job_closed");
        assert_eq!(
            why(node.take_receipt(&signed(&draft("a", 1_001)), 1_000)),
            "ledger.credit_limit"
        );
        let job = node.job(&event.id);
        assert_eq!((job.state, node.receivable()), (State::Delivered, 0));
        assert_eq!(node.read(|rx| receipts::page_before(rx, None, 10)), Vec::new());
    });
}

#[test]
fn one_entry_of_the_buyers_book_pays_for_one_job() {
    both(|node| {
        done(node, "a");
        let other = done(node, "b");
        node.take_receipt(&signed(&draft("a", 50)), 1_000).unwrap();
        // A second receipt of the same job, and one of another job for the same entry.
        let again = signed(&Draft { session_id: "again".into(), ..draft("a", 50) });
        assert_eq!(why(node.take_receipt(&again, 1_000)), "market.job_closed");
        let same = Draft { payment_proof: draft("a", 50).payment_proof, ..draft("b", 50) };
        assert_eq!(why(node.take_receipt(&signed(&same), 1_000)), "ledger.transfer_conflict");
        assert_eq!((node.job(&other.id).state, node.receivable()), (State::Delivered, 50));
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

/// What a buyer owes and what it lets us work for are one credit, and a buyer's own counts before the usual one.
#[test]
fn credit_is_given_once() {
    both(|node| {
        let small = || {
            let mut offer = offer(50);
            offer.credit = Msat(120);
            offer
        };
        let take = |order_key: &str| node.take(&request(order_key), &small(), T0 + 1).unwrap();
        assert!(matches!(take("a"), Taken::Accepted(_)));
        assert!(matches!(take("b"), Taken::Accepted(_)));
        let Taken::Refused(refused) = take("c") else { panic!("over credit") };
        assert_eq!(refused.code.as_deref(), Some(code::OVER_CREDIT.name));
        let result = result_of(&request("a"), "result", &provider(), T0 + 3);
        node.hand_in(&request("a"), &result, T0 + 4).unwrap();
        node.take_receipt(&signed(&draft("a", 50)), 120).unwrap();
        assert!(matches!(take("d"), Taken::Refused(_)));
        node.write(|tx| {
            let buyer = buyer().public_key();
            Ok(receivable::set_credit(tx, &buyer, AssetId::btc_ln(), 150, T0 + 5)?)
        })
        .unwrap();
        assert!(matches!(take("e"), Taken::Accepted(_)));
        // A refusal is remembered, until it is forgotten.
        assert!(matches!(take("c"), Taken::Known(_)));
        assert_eq!(node.write(|tx| job::forget_refused(tx, T0 + 2, 10)).unwrap(), 2);
        assert!(matches!(take("c"), Taken::Refused(_)));
    });
}

#[test]
fn what_is_not_ours_leaves_no_row() {
    both(|node| {
        let mut new = new_order("a", 100);
        new.provider = Some(key(9).public_key());
        let event = new.request(&buyer(), &Dice, T0).unwrap();
        assert!(matches!(node.take(&event, &offer(50), T0 + 1).unwrap(), Taken::Ignored(_)));
        assert_eq!(node.read(|rx| job::page_before(rx, None, 10)), Vec::new());
        assert_eq!(node.read(receipts::keys), Vec::new());
    });
}

#[test]
fn stability_is_measured() {
    both(|node| {
        assert_eq!(node.read(job::stability).announced(), None);
        for order_key in ["a", "b", "c"] {
            done(node, order_key);
        }
        let failed = taken(node, "d").id;
        let refusal = Refusal::new(&code::BUSY, "the machine broke");
        assert_eq!(refusal.to_feedback(), "the machine broke [market.busy]");
        let fail = || {
            let refusal = refusal.clone();
            node.write(move |tx| job::fail(tx, &failed, &refusal, T0 + 9)).unwrap()
        };
        assert_eq!((fail().state, fail().words), (State::Failed, Some("the machine broke".into())));
        let nothing = Draft { status: Status::Withheld, payment_proof: None, ..draft("c", 100) };
        node.take_receipt(&signed(&nothing), 1_000).unwrap();
        let stability = node.read(job::stability);
        assert_eq!(stability, Stability { good: 2, bad: 2, avg_latency_ms: 40 });
        let announced = stability.announced().unwrap();
        assert_eq!((announced.success_rate, announced.jobs_completed), (Some(0.5), Some(2)));
    });
}
