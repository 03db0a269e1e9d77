use guild_ledger::receivable;
use guild_market::job::{self, Offer, Refusal, Stability, State, Taken, TakenJob};
use guild_market::{TOPIC, code, receipts};
use guild_protocol::amount::{Amount, AssetId, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::nostr::{Event, EventId};
use guild_protocol::receipt::{Draft, Proof, Rail, Receipt, Status};
use guild_protocol::timestamp::Timestamp;
use guild_store::event;

use crate::world::{
    Dice, Node, T0, UNPAID_MS, both, buyer, claimant, key, new_order, no_claim, offer, provider,
    request_of, result_of, why,
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

/// What a key has to do.
fn accepted(node: &Node, us: u8) -> Vec<EventId> {
    let us = key(us).public_key();
    let jobs = node.read(move |rx| job::accepted(rx, &us, 10));
    jobs.into_iter().map(|job| job.request_id).collect()
}

fn unpaid(node: &Node) -> Vec<TakenJob> {
    node.read(|rx| job::unpaid_after(rx, None, 10))
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
        assert_eq!(accepted(node, 2), [event.id]);
        let [first, second] =
            ["one", "two"].map(|text| result_of(&event, text, &provider(), T0 + 3));
        let job = node.hand_in(&event, &first, T0 + 41).unwrap();
        assert_eq!((job.state, job.delivered_ms), (State::Delivered, Some(T0 + 41)));
        // Another result, made after a crash, say: the first one counts.
        assert_eq!(node.hand_in(&event, &second, T0 + 50).unwrap(), job);
        assert_eq!(job.result_json, Some(first.to_json()));
        assert_eq!(unpaid(node), vec![job]);
        let receipt = signed(&draft("a", 50));
        let paid = node.take_receipt(&receipt, 1_000).unwrap();
        assert_eq!((paid.state, paid.paid), (State::Paid, Some(Msat(50))));
        assert_eq!(node.take_receipt(&receipt, 1_000).unwrap(), paid);
        assert_eq!((node.receivable(), unpaid(node).len()), (50, 0));
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

/// Room for two jobs.
fn small() -> Offer {
    Offer { credit: Msat(120), ..offer(50) }
}

/// What a buyer owes and what it lets us work for are one credit, and a buyer's own counts before the usual one.
#[test]
fn credit_is_given_once() {
    both(|node| {
        let take = |order_key: &str| node.take(&request(order_key), &small(), T0 + 1).unwrap();
        assert!(matches!(take("a"), Taken::Accepted(_)));
        assert!(matches!(take("b"), Taken::Accepted(_)));
        let Taken::Refused(refused) = take("c") else { panic!("over credit") };
        assert_eq!(refused.code, &code::OVER_CREDIT);
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
    });
}

/// Whoever lets us work and does not pay, for whatever reason and by whatever receipt, gets no more than its credit;
/// but not for ever.
#[test]
fn work_that_was_not_paid_counts_for_a_while() {
    let withheld =
        |name| Draft { status: Status::Withheld, payment_proof: None, ..draft(name, 100) };
    let ways: [(&str, Option<Draft>); 3] = [
        ("silent", None),
        ("withheld", Some(withheld("withheld"))),
        ("almost nothing", Some(draft("almost nothing", 1))),
    ];
    for (name, signed_for) in &ways {
        both(|node| {
            let standing = |at_ms: i64| {
                let buyer = buyer().public_key();
                node.read(move |rx| job::standing(rx, &buyer, &small(), at_ms))
            };
            done(node, name);
            if let Some(draft) = signed_for {
                node.take_receipt(&signed(draft), 1_000).unwrap();
            }
            let owed = node.receivable();
            let now = standing(T0 + 50);
            assert_eq!((now.owed.0, now.open.0), (owed, 50 - owed), "{name}");
            taken(node, "another");
            assert_eq!(standing(T0 + 50).open.0, 100 - owed);
            let third = node.take(&request("third"), &small(), T0 + 50).unwrap();
            assert!(matches!(third, Taken::Refused(_)), "{name}: {third:?}");
            // When it was done counts, and what is being done counts whenever it was taken.
            assert_eq!(standing(T0 + 40 + UNPAID_MS).open.0, 100 - owed);
            let later = standing(T0 + 41 + UNPAID_MS);
            assert_eq!((later.owed.0, later.open.0), (owed, 50), "{name}");
            let later = T0 + 41 + UNPAID_MS;
            let mut late = new_order("late", 100);
            late.deadline_ms = later + 60_000;
            let late = late.request(&buyer(), &Dice, later).unwrap();
            let taken = node.take(&late, &small(), later).unwrap();
            assert!(matches!(taken, Taken::Accepted(_)), "{name}: {taken:?}");
        });
    }
}

/// The usual credit is what the settings say now, also for those who owe already.
#[test]
fn the_usual_credit_may_be_changed() {
    both(|node| {
        for order_key in ["a", "b"] {
            done(node, order_key);
        }
        let take = |order_key, credit| node.take_receipt(&signed(&draft(order_key, 50)), credit);
        take("a", 60).unwrap();
        assert_eq!(why(take("b", 60)), "ledger.credit_limit");
        assert_eq!(take("b", 100).unwrap().state, State::Paid);
        // What is booked is booked, also beyond a lower credit.
        assert_eq!(take("a", 10).unwrap().state, State::Paid);
        assert_eq!(node.receivable(), 100);
    });
}

#[test]
fn a_refusal_is_a_small_row_and_is_forgotten() {
    both(|node| {
        let refusal = Refusal::new(&code::BUSY, "no time");
        let kept = || node.read(|rx| job::page_before(rx, None, 100));
        let poor = Offer { credit: Msat(0), ..offer(50) };
        assert!(matches!(node.take(&request("a"), &poor, T0).unwrap(), Taken::Refused(_)));
        assert_eq!(kept(), Vec::new(), "nobody was told");
        let told = node.refuse(&request("a"), &refusal, T0);
        assert_eq!((told.state, told.request_json.as_deref()), (State::Refused, None));
        assert_eq!(
            (told.code.as_deref(), told.words.as_deref()),
            (Some("market.busy"), Some("no time"))
        );
        assert_eq!(node.refuse(&request("a"), &refusal, T0 + 9), told);
        assert!(matches!(node.take(&request("a"), &offer(50), T0).unwrap(), Taken::Known(_)));
        for at in 1..10 {
            node.refuse(&request(&format!("more {at}")), &refusal, T0 + at);
        }
        let job = taken(node, "job");
        let forget = |before_ms, kept_max, limit| {
            node.write(move |tx| job::forget_refused(tx, before_ms, kept_max, limit)).unwrap()
        };
        assert_eq!(forget(T0, 10, 100), 0);
        assert_eq!(forget(T0 + 3, 10, 2), 2, "a few at a time");
        assert_eq!(forget(T0 + 3, 10, 2), 1);
        assert_eq!(forget(T0, 4, 100), 3, "the newest four stay");
        let left: Vec<i64> = kept().iter().map(|job| job.taken_ms - T0).collect();
        assert_eq!(left, [9, 8, 7, 6, 1]);
        assert_eq!(accepted(node, 2), [job.id]);
    });
}

/// What is bid is what was announced: a provider that has raised its price meanwhile refuses.
#[test]
fn a_raised_price_is_refused() {
    both(|node| {
        let (event, announced) = (request("a"), new_order("a", 100).price);
        assert_eq!((event.tag("bid"), announced), (Some("50"), Some(Msat(50))));
        let Taken::Refused(refused) = node.take(&event, &offer(51), T0).unwrap() else {
            panic!("it would be paid 50")
        };
        assert_eq!(refused.to_feedback(), "the price is 51 msat, the bid 50 [market.bid_too_low]");
        // Where nothing was announced, the budget is bid.
        let mut open = new_order("b", 100);
        (open.price, open.provider) = (None, None);
        assert_eq!(request_of(&open).tag("bid"), Some("100"));
    });
}

/// Two keystores on one database must never deliver each other's work.
#[test]
fn only_the_key_that_took_a_job_delivers_it() {
    both(|node| {
        let event = taken(node, "a");
        assert_eq!((accepted(node, 2), accepted(node, 9)), (vec![event.id], vec![]));
        let theirs = result_of(&event, "result", &key(9), T0 + 3);
        assert_eq!(why(node.hand_in(&event, &theirs, T0 + 4)), "market.unknown_job");
        assert_eq!(node.job(&event.id).state, State::Accepted);
        let ours = result_of(&event, "result", &provider(), T0 + 3);
        assert_eq!(node.hand_in(&event, &ours, T0 + 4).unwrap().state, State::Delivered);
    });
}

#[test]
fn a_database_belongs_to_the_first_node() {
    both(|node| {
        assert_eq!(node.read(receipts::owner), None);
        let claim = |n: u8| {
            let us = key(n).public_key();
            node.write(move |tx| receipts::claim(tx, &us, T0)).unwrap()
        };
        for n in [3, 4, 3] {
            assert_eq!(claim(n), key(3).public_key());
        }
        assert_eq!(node.read(receipts::owner), Some(key(3).public_key()));
        let said = [("node".to_owned(), key(3).public_key().npub())];
        assert_eq!(node.read(receipts::keys), said);
    });
}

#[test]
fn every_unpaid_job_has_its_turn() {
    both(|node| {
        let mut wanted: Vec<EventId> =
            ["a", "b", "c", "d", "e"].map(|order_key| done(node, order_key).id).into();
        // All were done in one millisecond.
        wanted.sort_by_key(|id| id.hex());
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = node.read(move |rx| {
                job::unpaid_after(rx, after.as_ref().map(|(at_ms, id)| (*at_ms, id)), 2)
            });
            let Some(last) = page.last() else { break };
            after = Some((last.delivered_ms.unwrap(), last.request_id));
            seen.extend(page.iter().map(|job| job.request_id));
        }
        assert_eq!(seen, wanted);
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

/// How well the provider has done.
fn stability(node: &Node) -> Stability {
    node.read(|rx| job::stability(rx, &provider().public_key()))
}

#[test]
fn stability_is_measured() {
    both(|node| {
        assert_eq!(stability(node).announced(), None);
        for order_key in ["a", "b", "c"] {
            done(node, order_key);
        }
        let failed = taken(node, "d").id;
        let refusal = Refusal::new(&code::BUSY, "the machine broke");
        assert_eq!(refusal.to_feedback(), "the machine broke [market.busy]");
        let fail = || {
            let refusal = refusal.clone();
            node.write(move |tx| {
                let claim = job::claim(tx, &failed, &claimant(), T0 + 9)?;
                let claim = claim.unwrap_or_else(no_claim);
                job::fail(tx, &failed, &claim, &refusal, T0 + 9)
            })
            .unwrap()
        };
        assert_eq!((fail().state, fail().words), (State::Failed, Some("the machine broke".into())));
        let nothing = Draft { status: Status::Withheld, payment_proof: None, ..draft("c", 100) };
        node.take_receipt(&signed(&nothing), 1_000).unwrap();
        assert_eq!(stability(node), Stability { good: 2, bad: 2, avg_latency_ms: 40 });
        let announced = stability(node).announced().unwrap();
        assert_eq!((announced.success_rate, announced.jobs_completed), (Some(0.5), Some(2)));
        // Of another key nothing is known.
        let other = node.read(|rx| job::stability(rx, &key(9).public_key()));
        assert_eq!(other, Stability::default());
    });
}

/// It is asked for every few seconds: what it costs must not grow with the jobs.
#[test]
fn stability_does_not_read_the_jobs() {
    both(|node| {
        done(node, "a");
        let before = stability(node);
        let hidden =
            node.write(|tx| Ok(tx.exec("ALTER TABLE market_job RENAME TO elsewhere", &[])?));
        hidden.unwrap();
        assert_eq!(stability(node), before);
        assert_eq!(before, Stability { good: 1, bad: 0, avg_latency_ms: 40 });
    });
}
