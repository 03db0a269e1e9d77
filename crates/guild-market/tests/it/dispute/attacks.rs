//! What nobody gains by disputes, and what an audit of them finds.

use guild_market::dispute::{self, By, Heard, Outcome, Reason, Side};
use guild_market::job;
use guild_protocol::env::Signer;

use super::{SAID, advance, books, delivered, file, file_as, filing, hear, of, problems, settled};
use crate::world::{Node, both, buyer, offer};

/// A provider that delivers rubbish and disputes every refusal.
#[test]
fn who_disputes_everything_gains_nothing() {
    both(|node| {
        node.fund(10_000);
        let mut most_held = 0;
        for n in 0..8 {
            let deal = settled(node, &format!("job {n}"), (false, false));
            let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
            let Ok(Heard::Filed(heard)) = hear(node, Side::Buyer, &filed.events[0]) else {
                panic!()
            };
            let (all, free) = node.wallet();
            most_held = most_held.max(all - free);
            match n {
                0..3 => {
                    assert!(heard.is_to_check);
                    let found = Some(Outcome::Withhold);
                    let done = advance(node, Side::Buyer, &deal, found, SAID + 20 + n);
                    assert!(done.dispute.is_lost());
                }
                // Nothing is held for it any more, and nothing is done again.
                _ => {
                    assert!(!heard.is_to_check);
                    let (by, outcome) = (heard.dispute.by, heard.dispute.outcome);
                    assert_eq!((by, outcome), (Some(By::Record), Some(Outcome::Withhold)));
                }
            }
            assert_eq!(books(node), (10_000, 10_000, 0, 0), "not one msat");
        }
        assert!(most_held <= 50, "{most_held}: one price, for as long as it takes to check");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

/// What nobody can check waits, and so is bounded.
#[test]
fn a_counterparty_has_few_open_at_a_time() {
    both(|node| {
        node.fund(10_000);
        let mut refused = 0;
        for n in 0..7 {
            let deal = settled(node, &format!("job {n}"), (false, false));
            let filed = file_as(node, Side::Provider, &filing(&deal, Reason::Terms), SAID).unwrap();
            match hear(node, Side::Buyer, &filed.events[0]) {
                Ok(heard) => assert!(matches!(heard, Heard::Filed(_))),
                Err(error) => {
                    assert_eq!(error.code().name, "dispute.too_many");
                    refused += 1;
                }
            }
        }
        assert_eq!(refused, 3);
        let (all, free) = node.wallet();
        assert_eq!((all, all - free), (10_000, 4 * 50), "held, and not lost");
        assert_eq!(node.read(dispute::audit::run).held_units, 200);
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

/// A buyer that disputes whatever it is sent.
#[test]
fn a_buyer_that_disputes_everything_gets_less_and_less_credit() {
    both(|node| {
        node.fund(10_000);
        let credit = |node: &Node, now_ms| {
            let standing =
                node.read(move |rx| job::standing(rx, &buyer().public_key(), &offer(50), now_ms));
            standing.credit.0
        };
        assert_eq!(credit(node, SAID), 1_000);
        for (n, left) in [(0, 500), (1, 250), (2, 125)] {
            let deal = settled(node, &format!("job {n}"), (true, true));
            let filed = file(node, Side::Buyer, &deal, Reason::ResultWrong);
            hear(node, Side::Provider, &filed.events[0]).unwrap();
            let done = advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20 + n);
            let said = done.events.iter().find(|event| dispute::is_dispute(event)).unwrap();
            hear(node, Side::Provider, said).unwrap();
            assert!(of(node, Side::Provider, &deal).is_lost());
            assert_eq!(credit(node, SAID + 100), left);
        }
        assert_eq!(books(node), (9_850, 9_850, 150, 150), "every job is paid all the same");
        assert_eq!(credit(node, SAID + 91 * 24 * 3_600_000), 1_000, "it is forgotten");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn the_audit_finds_what_is_planted() {
    let planted = |sql: &'static str| -> Vec<String> {
        let node = Node::sqlite(guild_store::Hooks::default());
        node.fund(10_000);
        let open = delivered(&node, "open", true);
        file(&node, Side::Buyer, &open, Reason::Copied);
        let again = settled(&node, "again", (false, false));
        let filed = file(&node, Side::Provider, &again, Reason::Terms);
        hear(&node, Side::Buyer, &filed.events[0]).unwrap();
        let paid = settled(&node, "paid", (true, false));
        let filed = file(&node, Side::Provider, &paid, Reason::VerdictWrong);
        hear(&node, Side::Buyer, &filed.events[0]).unwrap();
        advance(&node, Side::Buyer, &paid, Some(Outcome::Release), SAID + 20);
        assert_eq!(problems(&node), Vec::<String>::new(), "before");
        node.write(move |tx| {
            for trigger in [
                "DROP TRIGGER market_dispute_terms_are_fixed",
                "DROP TRIGGER market_dispute_is_decided_once",
                "DROP TRIGGER market_dispute_said_stays",
                "DROP TRIGGER market_order_stays_closed",
            ] {
                tx.exec(trigger, &[])?;
            }
            tx.exec(sql, &[])?;
            Ok(())
        })
        .unwrap();
        let problems = node.read(dispute::audit::run).problems;
        let words = problems.iter().map(|problem| problem.split_once(' ').unwrap().1.to_owned());
        words.collect()
    };
    for (sql, found) in [
        (
            "UPDATE ledger_hold SET closed_by = seq + 1000 WHERE closed_by IS NULL AND seq IN
               (SELECT t.seq FROM ledger_transfer t JOIN market_dispute d ON d.hold_id = t.transfer_id)",
            "is open, and its money is not held any more",
        ),
        (
            "UPDATE ledger_hold SET closed_by = seq + 1000 WHERE closed_by IS NULL AND seq IN
               (SELECT t.seq FROM ledger_transfer t JOIN market_order o ON o.hold_id = t.transfer_id)",
            "is open, and what its order holds is not held any more",
        ),
        (
            "UPDATE market_order SET state = 'withheld', verdict = '{}' WHERE state = 'delivered'",
            "is open, and its order was settled meanwhile",
        ),
        (
            "UPDATE market_dispute SET state = 'decided', decided_by = 'rule', outcome = 'withhold'
             WHERE state = 'open' AND stood = 'withhold' AND side = 'buyer'",
            "is decided, and still holds money",
        ),
        (
            "UPDATE market_dispute SET stood = 'release' WHERE moved_units > 0",
            "has moved money against what was decided",
        ),
        (
            "UPDATE market_dispute SET moved_units = 101 WHERE moved_units > 0",
            "has paid more than the budget of its order",
        ),
        (
            "UPDATE market_dispute SET receipt_id = NULL WHERE moved_units > 0",
            "has paid, and has no receipt of it",
        ),
        ("DELETE FROM market_dispute_said", "does not have what filed it"),
    ] {
        let problems = planted(sql);
        assert!(problems.iter().any(|problem| problem == found), "{sql}: {problems:?}");
    }
}
