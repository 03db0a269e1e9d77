//! Work that only a comparison judges: doing it again says nothing, so nobody loses by that.

use guild_market::dispute::{By, Heard, Outcome, Reason, Side, State};
use guild_market::order::NewOrder;
use guild_protocol::schema::Registry;
use serde_json::json;

use super::{Deal, SAID, advance, books, delivered_by, file, hear, of, problems, resolve};
use crate::world::{Node, both, embedding, judge, new_order};

/// Delivered and not accepted, as a test whose answer was known to be another.
fn withheld(node: &Node) -> Deal {
    let input = json!({
        "texts": ["a", "b"], "dimensions": 8, "verification": {"mode": "subjective"},
    });
    let job = Registry::builtin().validate_input(&embedding(), &input).unwrap();
    let new = NewOrder { job, ..new_order("a", 100) };
    let deal = delivered_by(node, &new, true);
    let settled = node.settle(&deal.order_id, &judge(&new.job, ""), SAID - 500).unwrap();
    node.take_receipt(&settled.receipt.unwrap(), 10_000).unwrap();
    deal
}

#[test]
fn who_disputes_what_is_only_compared_is_heard_by_an_arbiter_or_the_deadline() {
    for reason in [Reason::VerdictWrong, Reason::NotPaid] {
        both(|node| {
            node.fund(1_000);
            let deal = withheld(node);
            let filed = file(node, Side::Provider, &deal, reason);
            let Ok(Heard::Filed(heard)) = hear(node, Side::Buyer, &filed.events[0]) else {
                panic!()
            };
            assert!(
                !heard.is_to_check,
                "doing it again would say that it is wrong, whatever it is"
            );
            assert_eq!((heard.dispute.state, heard.dispute.outcome), (State::Open, None));
            let before_ms = heard.dispute.deadline_ms - 1;
            let waits = advance(node, Side::Buyer, &deal, None, before_ms).dispute;
            assert_eq!(waits.state, State::Open);
            assert_eq!(books(node), (1_000, 950, 0, 0), "what is due is held meanwhile");
            let won = resolve(node, Side::Buyer, &deal, Outcome::Release).unwrap().dispute;
            assert_eq!((won.by, won.moved.0), (Some(By::Concession), 50));
            assert_eq!(books(node), (950, 950, 50, 0));
            assert!(!of(node, Side::Buyer, &deal).is_lost());
            assert_eq!(problems(node), Vec::<String>::new());
        });
    }
}
