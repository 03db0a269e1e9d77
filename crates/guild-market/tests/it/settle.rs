use guild_ledger::{NewTransfer, Step, TransferId, history, ledger};
use guild_market::order::{
    HOLD_AFTER_DEADLINE_MS, MAX_DEADLINE_MS, NewOrder, OrderId, QUOTE_LIFETIME_MS, State, wallet,
};
use guild_market::receipts::{self, Direction};
use guild_market::settle::Settled;
use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::Signer;
use guild_protocol::nostr::receipt_notice::ReceiptNotice;
use guild_protocol::receipt::{Proof, Status};
use guild_protocol::replay;

use crate::world::{
    Node, T0, both, buyer, cheap, judge, new_order, output, provider, result_asking, why, work,
};

/// Posts and delivers; the order and what came.
fn delivered(node: &Node, new: &NewOrder, good: bool, asked: Option<i64>) -> (OrderId, String) {
    let order = node.post(new).unwrap().order().unwrap();
    let by = provider().public_key();
    let text = if good { output(&new.job, &by) } else { cheap(&new.job, &by) }.to_string();
    let result = result_asking(&order.request().unwrap(), &text, &provider(), T0 + 5, asked);
    node.deliver(&result, T0 + 250).unwrap();
    (order.order_id, text)
}

fn settled(node: &Node, new: &NewOrder, good: bool, asked: Option<i64>) -> Settled {
    let (order_id, text) = delivered(node, new, good, asked);
    node.settle(&order_id, &judge(&new.job, &text), T0 + 300).unwrap()
}

#[test]
fn good_work_is_paid_once_and_proven() {
    both(|node| {
        node.fund(1_000);
        let Settled { order, receipt, notice } = settled(node, &new_order("a", 100), true, None);
        let (receipt, notice) = (receipt.unwrap(), notice.unwrap());
        assert_eq!((order.state, order.paid), (State::Released, Some(Msat(50))));
        assert_eq!((node.wallet(), node.payable()), ((950, 950), 50));
        let stated = receipt.stated();
        assert_eq!((stated.status, stated.amount.units), (Status::Released, 50));
        assert_eq!(stated.request_id, Some(order.request_id.hex()));
        assert_eq!(stated.job_hash, Some(order.job_hash));
        let verdict = judge(&work("a"), order.output_text.as_deref().unwrap());
        assert_eq!(stated.verdict_hash, Some(verdict.verdict_hash));
        assert_eq!(order.verdict, Some(verdict.document));
        let head = node.read(|rx| Ok(ledger::head(rx)?));
        assert_eq!(
            stated.payment_proof,
            Some(Proof::LedgerTransfer {
                transfer_id: order.payment_id().to_string(),
                ledger_head: head.hash
            })
        );
        let file = order.replay.clone().unwrap();
        let report = replay::verify(file.as_bytes(), Some(receipt.as_bytes())).unwrap();
        assert!(report.is_verified(), "{report}");
        assert_eq!(ReceiptNotice::parse(&notice, None).unwrap().receipt, receipt);
        notice.verify().unwrap();
        // Again, even by another verdict: the same, and nothing to publish.
        let again = node.settle(&order.order_id, &judge(&work("a"), ""), T0 + 900).unwrap();
        assert_eq!(again, Settled { order, receipt: Some(receipt.clone()), notice: None });
        let id = receipt.receipt_id().clone();
        let (kept, seen) = node
            .read(move |rx| Ok((receipts::get(rx, &id)?.unwrap(), receipts::replay_of(rx, &id)?)));
        assert_eq!((kept.direction, kept.text.as_bytes()), (Direction::Given, receipt.as_bytes()));
        assert_eq!(seen, Some(file));
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

#[test]
fn bad_work_is_not_paid_and_that_is_proven_too() {
    both(|node| {
        node.fund(1_000);
        let Settled { order, receipt, notice } = settled(node, &new_order("a", 100), false, None);
        let receipt = receipt.unwrap();
        assert_eq!((order.state, order.paid), (State::Withheld, None));
        assert_eq!((node.wallet(), node.payable()), ((1_000, 1_000), 0));
        let stated = receipt.stated();
        assert_eq!((stated.status, stated.amount.units), (Status::Withheld, 100));
        assert_eq!(stated.payment_proof, None);
        let file = order.replay.unwrap();
        let report = replay::verify(file.as_bytes(), Some(receipt.as_bytes())).unwrap();
        assert!(report.is_verified(), "{report}");
        assert!(notice.is_some());
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

#[test]
fn free_work_has_a_verdict_and_no_receipt() {
    both(|node| {
        node.fund(1_000);
        let mut unpriced = new_order("unpriced", 100);
        unpriced.price = None;
        for (new, good, state) in [
            (new_order("free", 0), true, State::Released),
            (new_order("bad", 0), false, State::Withheld),
            (unpriced, true, State::Released),
        ] {
            let Settled { order, receipt, notice } = settled(node, &new, good, None);
            assert_eq!((order.state, receipt, notice), (state, None, None));
            assert_eq!(order.paid, good.then_some(Msat(0)));
            assert!(order.verdict.is_some() && order.replay.is_some());
        }
        assert_eq!((node.wallet(), node.payable()), ((1_000, 1_000), 0));
    });
}

#[test]
fn nobody_is_paid_more_than_was_agreed() {
    both(|node| {
        node.fund(1_000);
        let mut unpriced = new_order("unpriced", 100);
        unpriced.price = None;
        for (new, asked, paid) in [
            (new_order("greedy", 100), Some(99), 50),
            (new_order("modest", 100), Some(7), 7),
            (unpriced, Some(5_000), 100),
        ] {
            let done = settled(node, &new, true, asked);
            assert_eq!(done.order.paid, Some(Msat(paid)), "{}", new.order_key);
        }
        assert_eq!((node.wallet(), node.payable()), ((843, 843), 157));
    });
}

#[test]
fn a_private_receipt_is_read_by_the_two_only() {
    both(|node| {
        node.fund(1_000);
        let mut new = new_order("a", 100);
        new.private = true;
        let done = settled(node, &new, true, None);
        let (receipt, notice) = (done.receipt.unwrap(), done.notice.unwrap());
        assert!(!notice.to_json().contains(receipt.stated().idempotency_key.as_str()));
        assert_eq!(ReceiptNotice::parse(&notice, None).unwrap_err().code().name, "nip90.encrypted");
        for key in [provider(), buyer()] {
            assert_eq!(ReceiptNotice::parse(&notice, Some(&key)).unwrap().receipt, receipt);
        }
        // Whoever has the receipt may read its replay, and does not learn what the work was.
        let file = done.order.replay.unwrap();
        assert!(replay::verify(file.as_bytes(), Some(receipt.as_bytes())).unwrap().is_verified());
        assert!(!file.contains("another text"), "{file}");
    });
}

/// The node was down for longer than its money was held.
#[test]
fn a_debt_outlives_its_hold() {
    both(|node| {
        node.fund(100);
        let (order_id, text) = delivered(node, &new_order("a", 100), true, None);
        let verdict = judge(&work("a"), &text);
        let late = T0 + QUOTE_LIFETIME_MS + MAX_DEADLINE_MS + HOLD_AFTER_DEADLINE_MS;
        let (given_back, spent) = (order_id.clone(), verdict.clone());
        // Not swept yet: the held money is there, though it cannot be settled from the hold.
        let done = node.settle(&order_id, &verdict, late).unwrap();
        assert_eq!(done.order.paid, Some(Msat(50)));
        assert_eq!((node.wallet(), node.payable()), ((50, 50), 50));
        assert_eq!(node.settle(&given_back, &spent, late + 1).unwrap().order, done.order);
        assert_eq!(node.problems(), Vec::<String>::new());
    });
    both(|node| {
        node.fund(100);
        let (order_id, text) = delivered(node, &new_order("a", 100), true, None);
        let verdict = judge(&work("a"), &text);
        let late = T0 + QUOTE_LIFETIME_MS + MAX_DEADLINE_MS + HOLD_AFTER_DEADLINE_MS;
        // Swept, and the money is gone: it stays delivered until there is money again.
        let hold_id = node.order(&order_id).hold_id.unwrap();
        node.write(move |tx| {
            let expire = Step::Expire { hold: hold_id.clone() };
            let expire =
                NewTransfer::new(TransferId::named(1, &["expire"]), expire, "hold.expired")?;
            ledger::book(tx, &[vec![expire]], late)?.remove(0)?;
            spend(tx, "spend", true, late)
        })
        .unwrap();
        assert_eq!(why(node.settle(&order_id, &verdict, late + 1)), "ledger.overdraft");
        assert_eq!(node.order(&order_id).state, State::Delivered);
        node.write(move |tx| spend(tx, "refill", false, late + 2)).unwrap();
        let done = node.settle(&order_id, &verdict, late + 3).unwrap();
        assert_eq!((done.order.paid, node.payable()), (Some(Msat(50)), 50));
        assert_eq!(node.problems(), Vec::<String>::new());
        let newest = node.read(|rx| Ok(history::PAGE_MAX.min(ledger::head(rx)?.last_seq)));
        assert!(newest > 5);
    });
}

/// Moves 100 out of the wallet, or back.
fn spend(
    tx: &mut guild_store::Tx<'_>,
    name: &str,
    out: bool,
    now_ms: i64,
) -> guild_market::Result<()> {
    use guild_ledger::{Account, Limit};
    use guild_protocol::amount::AssetId;
    let outside = Account::new("outside", "main", AssetId::btc_ln(), Limit::None)?.account_id;
    let wallet = wallet()?.account_id;
    let (debit, credit) = if out { (wallet, outside) } else { (outside, wallet) };
    let step = Step::Post { debit, credit, amount: Amount::from(Msat(100)) };
    let transfer = NewTransfer::new(TransferId::named(1, &[name]), step, name)?;
    ledger::book(tx, &[vec![transfer]], now_ms)?.remove(0)?;
    Ok(())
}

#[test]
fn only_the_buyer_settles_and_only_what_was_delivered() {
    both(|node| {
        node.fund(1_000);
        let order = node.post(&new_order("a", 100)).unwrap().order().unwrap();
        let verdict = judge(&work("a"), "");
        assert_eq!(why(node.settle(&order.order_id, &verdict, T0 + 1)), "market.order_closed");
        let unknown = OrderId::of_key("never");
        assert_eq!(why(node.settle(&unknown, &verdict, T0 + 1)), "market.unknown_order");
        assert_eq!(node.wallet(), (1_000, 900));
        assert_ne!(buyer().public_key(), provider().public_key());
    });
}
