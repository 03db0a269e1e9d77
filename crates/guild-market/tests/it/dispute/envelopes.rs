//! What a dispute pays is charged to the envelope of its work, as what an order pays is.

use guild_market::budget::{self, Asked};
use guild_market::dispute::{self, Done, Heard, Outcome, Reason, Side, State, Wait};
use guild_market::order::{self, OrderId};
use guild_market::{Error, Result};
use guild_protocol::amount::Msat;
use guild_store::{Hooks, args};

use super::{Deal, SAID, advance, books, file, hear, of, options, settled, with};
use crate::world::{Node, T0, both, new_order, why};

/// An envelope of so much a day and a month.
fn limited(node: &Node, units: i64) {
    let most = Some(Msat(units));
    let asked = Asked { daily: most, monthly: most, ..Asked::default() };
    let task = "oa.embedding.v1".parse().unwrap();
    node.write(move |tx| budget::set(tx, &task, &asked, T0)).unwrap();
}

/// What of it is held and spent, today and this month.
fn used(node: &Node) -> [(i64, i64); 2] {
    let standings = node.read(|rx| budget::standings(rx, SAID));
    let [one] = standings.as_slice() else { panic!("{standings:?}") };
    [(one.today.held, one.today.spent), (one.month.held, one.month.spent)]
}

/// What any audit finds.
fn problems(node: &Node) -> Vec<String> {
    let mut problems = super::problems(node);
    problems.extend(node.read(budget::audit::run).problems);
    problems
}

/// Good work that was withheld, and is disputed by its provider; our node has heard of it.
fn disputed(node: &Node, name: &str) -> Deal {
    let deal = settled(node, name, (true, false));
    let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
    let heard = hear(node, Side::Buyer, &filed.events[0]);
    assert!(matches!(heard, Ok(Heard::Filed(_))), "{heard:?}");
    deal
}

fn retry(node: &Node, deal: &Deal, now_ms: i64) -> Result<Done> {
    let id = deal.id();
    with(node, Side::Buyer, &options(), move |tx, desk| {
        dispute::retry(tx, (&id, Side::Buyer), desk, now_ms)
    })
}

#[test]
fn what_is_disputed_is_charged_and_what_it_pays_is_spent() {
    both(|node| {
        node.fund(1_000);
        limited(node, 100);
        let deal = disputed(node, "a");
        assert_eq!(used(node), [(50, 0), (50, 0)], "the order's own charge is free again");
        assert_eq!(why(node.post(&new_order("more", 51))), "budget.envelope_empty");
        assert_eq!(problems(node), Vec::<String>::new());
        advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20);
        assert_eq!(books(node), (950, 950, 50, 0));
        assert_eq!(used(node), [(0, 50), (0, 50)]);
        assert_eq!(why(node.post(&new_order("more", 51))), "budget.envelope_empty");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn what_is_kept_after_all_is_free_again() {
    both(|node| {
        node.fund(1_000);
        limited(node, 100);
        let deal = disputed(node, "a");
        assert_eq!(used(node), [(50, 0), (50, 0)]);
        advance(node, Side::Buyer, &deal, Some(Outcome::Withhold), SAID + 20);
        assert_eq!((used(node), books(node)), ([(0, 0), (0, 0)], (1_000, 1_000, 0, 0)));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

/// Whoever fills the envelope again before the dispute is won has it pay no more than its limit.
#[test]
fn a_full_envelope_makes_what_was_won_wait() {
    both(|node| {
        node.fund(1_000);
        limited(node, 100);
        let deal = settled(node, "a", (true, false));
        node.post(&new_order("b", 100)).unwrap();
        let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
        hear(node, Side::Buyer, &filed.events[0]).unwrap();
        assert_eq!(of(node, Side::Buyer, &deal).hold_id, None, "there is no room for it");
        let won = advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20).dispute;
        assert_eq!((won.state, won.outcome), (State::Decided, Some(Outcome::Release)));
        assert!(won.pending, "it is owed, and waits");
        assert_eq!((used(node), books(node)), ([(100, 0), (100, 0)], (1_000, 900, 0, 0)));
        assert!(retry(node, &deal, SAID + 30).unwrap().dispute.pending);
        assert_eq!(problems(node), Vec::<String>::new());
        node.write(|tx| order::cancel(tx, &OrderId::of_key("b"), SAID + 40)).unwrap();
        let paid = retry(node, &deal, SAID + 50).unwrap().dispute;
        assert_eq!((paid.pending, paid.moved), (false, Msat(50)));
        assert_eq!((used(node), books(node)), ([(0, 50), (0, 50)], (950, 950, 50, 0)));
        retry(node, &deal, SAID + 60).unwrap();
        assert_eq!(used(node), [(0, 50), (0, 50)], "once");
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

/// Tries when it is due, until nothing is; how often that was, and when it ended.
fn tried_out(node: &Node, deal: &Deal, from_ms: i64) -> (i64, i64) {
    let (mut now_ms, mut tries) = (from_ms, 0);
    loop {
        let of_it = of(node, Side::Buyer, deal);
        let due = node.read(move |rx| dispute::due(rx, i64::MAX, 10));
        if !due.contains(&(deal.id(), Side::Buyer)) {
            return (tries, now_ms);
        }
        now_ms = of_it.due_ms.max(now_ms);
        retry(node, deal, now_ms).unwrap();
        tries += 1;
        assert!(tries < 1_000, "it is tried for ever: {of_it:?}");
    }
}

/// A dispute that the buyer has lost, while all its money is held for another order.
fn lost_without_money(node: &Node) -> Deal {
    node.fund(100);
    let deal = settled(node, "a", (true, false));
    node.post(&new_order("b", 100)).unwrap();
    let filed = file(node, Side::Provider, &deal, Reason::VerdictWrong);
    hear(node, Side::Buyer, &filed.events[0]).unwrap();
    advance(node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20);
    deal
}

#[test]
fn what_nobody_can_pay_is_given_up_with_a_reason_until_somebody_says_it_again() {
    both(|node| {
        let deal = lost_without_money(node);
        assert_eq!(of(node, Side::Buyer, &deal).waits_for, Some(Wait::Wallet));
        let (tries, ended_ms) = tried_out(node, &deal, SAID + 20);
        assert_eq!(tries, dispute::TRIES_MAX);
        let month_ms = 30 * 24 * 3_600_000;
        assert!((month_ms / 2..month_ms).contains(&(ended_ms - SAID)), "{ended_ms}");
        let over = of(node, Side::Buyer, &deal);
        assert!(over.pending && over.given_up, "it is still owed: {over:?}");
        assert_eq!((over.waits_for, over.tries), (Some(Wait::Wallet), tries));
        assert_eq!(retry(node, &deal, ended_ms + 5).unwrap().dispute, over, "nothing is tried");
        // Somebody has money again, and says so.
        node.write(|tx| order::cancel(tx, &OrderId::of_key("b"), SAID + 40)).unwrap();
        let id = deal.id();
        let again = with(node, Side::Buyer, &options(), move |tx, desk| {
            let said = (desk, ended_ms + 10);
            dispute::resolve(tx, (&id, Side::Buyer), Outcome::Release, None, said)
        });
        assert!(!again.unwrap().dispute.given_up);
        let paid = retry(node, &deal, ended_ms + 10).unwrap().dispute;
        assert_eq!((paid.pending, paid.moved, paid.waits_for), (false, Msat(50), None));
        assert_eq!(problems(node), Vec::<String>::new());
    });
}

#[test]
fn what_fails_again_and_again_is_given_up_as_well() {
    both(|node| {
        let deal = lost_without_money(node);
        for _ in 0..dispute::TRIES_MAX {
            let id = deal.id();
            node.write(move |tx| dispute::failed(tx, (&id, Side::Buyer), SAID + 30)).unwrap();
        }
        let over = of(node, Side::Buyer, &deal);
        assert_eq!((over.given_up, over.waits_for), (true, Some(Wait::Repair)));
    });
}

#[test]
fn the_audit_finds_what_a_dispute_paid_beside_its_envelope() {
    let lies: [(&[&str], &str); 3] = [
        (
            &[
                "DROP TRIGGER market_envelope_dispute_stays",
                "DELETE FROM market_envelope_dispute",
                "UPDATE market_envelope_period SET spent_units = 0",
            ],
            "has paid 50 msat, and the envelope oa.embedding.v1 was not charged",
        ),
        (
            &[
                "DROP TRIGGER market_envelope_dispute_stays_closed",
                "UPDATE market_envelope_dispute SET spent_units = 20",
                "UPDATE market_envelope_period SET spent_units = 20",
            ],
            "has paid 50 msat: its envelope holds 0 and has spent 20",
        ),
        (
            &["UPDATE market_envelope_period SET spent_units = 0 WHERE layer = 'day'"],
            "counts 0 msat spent in 2026-01-15, its rows say 50",
        ),
    ];
    for (steps, words) in lies {
        let node = Node::sqlite(Hooks::default());
        node.fund(1_000);
        limited(&node, 100);
        let deal = disputed(&node, "a");
        advance(&node, Side::Buyer, &deal, Some(Outcome::Release), SAID + 20);
        assert_eq!(problems(&node), Vec::<String>::new());
        node.write(move |tx| {
            for step in steps {
                tx.exec(*step, args![])?;
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        let found = problems(&node);
        assert!(found.iter().any(|problem| problem.contains(words)), "{words}: {found:?}");
    }
}
