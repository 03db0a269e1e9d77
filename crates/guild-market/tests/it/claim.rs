use std::collections::BTreeSet;

use guild_market::claim::{self, Claim, Claimant};
use guild_market::job::{self, Refusal, State, TakenJob};
use guild_market::order::{self, OrderId, Waits};
use guild_market::settle::{self, Keys};
use guild_market::{Result, code};
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Event, EventId};

use crate::world::{
    Dice, Node, T0, both, buyer, claimant, judge, new_order, offer, output, provider, request_of,
    result_of, why, work,
};

const TTL_MS: i64 = 1_000;

fn other() -> Claimant {
    Claimant { token: "other".to_owned(), ..claimant() }
}

/// Takes a request at this moment, as the first of the two processes.
fn taken(node: &Node, order_key: &str, at_ms: i64) -> Event {
    let request = request_of(&new_order(order_key, 100));
    node.take(&request, &offer(50), at_ms).unwrap();
    request
}

fn to_do(node: &Node, who: Claimant, at_ms: i64) -> Vec<EventId> {
    let us = provider().public_key();
    let jobs = node.read(move |rx| job::to_do(rx, &us, &who, at_ms, 10));
    jobs.into_iter().map(|job| job.request_id).collect()
}

fn claim_job(node: &Node, id: EventId, who: Claimant, at_ms: i64) -> Option<Claim> {
    node.write(move |tx| job::claim(tx, &id, &who, at_ms)).unwrap()
}

fn hand_in(node: &Node, request: &Event, claim: &Claim, at_ms: i64) -> Result<TakenJob> {
    let result = result_of(request, "result", &provider(), T0 + 3);
    let (id, claim) = (request.id, claim.clone());
    node.write(move |tx| job::deliver(tx, &id, &claim, &result, at_ms))
}

#[test]
fn whoever_takes_a_job_has_it_claimed_as_long_as_it_has_room() {
    both(|node| {
        let ids = ["a", "b", "c"].map(|name| taken(node, name, T0).id);
        let held = ids.map(|id| node.job(&id).claimed.held_by(&claimant()));
        // Two at once.
        assert_eq!(held.map(|claim| claim.map(|claim| claim.epoch)), [Some(1), Some(1), None]);
        assert_eq!(to_do(node, claimant(), T0 + 1).len(), 3);
        assert_eq!(to_do(node, other(), T0 + 1), [ids[2]]);
        assert_eq!(claim_job(node, ids[0], other(), T0 + TTL_MS - 1), None);
        assert_eq!(claim_job(node, ids[2], other(), T0 + 1).unwrap().epoch, 1);
        assert_eq!(to_do(node, claimant(), T0 + 2).len(), 2);
        // What one gives back is free at once, and what it never had is not its to give.
        let released = node.write(|tx| job::release(tx, &claimant())).unwrap();
        assert_eq!((released, to_do(node, other(), T0 + 2).len()), (2, 3));
        // A process that is alone knows that all others are dead.
        node.write(claim::forget_all).unwrap();
        assert_eq!(to_do(node, claimant(), T0 + 3).len(), 3);
        assert_eq!(claim_job(node, ids[2], claimant(), T0 + 3).unwrap().epoch, 2);
    });
}

#[test]
fn a_job_that_was_taken_over_is_not_handed_in_by_the_one_that_lost_it() {
    both(|node| {
        let request = taken(node, "a", T0);
        let id = request.id;
        let first = node.job(&id).claimed.held_by(&claimant()).unwrap();
        let renewed = {
            let first = first.clone();
            node.write(move |tx| job::renew(tx, &id, &first, T0 + 1_500)).unwrap()
        };
        assert_eq!((renewed.epoch, renewed.until_ms), (1, T0 + 1_500));
        assert_eq!(claim_job(node, id, other(), T0 + 1_499), None);
        let second = claim_job(node, id, other(), T0 + 1_500).unwrap();
        assert_eq!(second.epoch, 2);
        let before = node.job(&id);
        assert_eq!(why(hand_in(node, &request, &first, T0 + 1_600)), code::CLAIM_LOST.name);
        let refusal = Refusal::new(&code::BUSY, "no time");
        let lost = first.clone();
        let failed = node.write(move |tx| job::fail(tx, &id, &lost, &refusal, T0 + 1_600));
        assert_eq!(why(failed), code::CLAIM_LOST.name);
        let lost = first.clone();
        assert_eq!(
            why(node.write(move |tx| job::renew(tx, &id, &lost, T0 + 9_000))),
            code::CLAIM_LOST.name
        );
        assert_eq!(node.job(&id), before, "nothing has changed");
        // A claim that is over and that nobody has taken is still good: the row decides.
        let done = hand_in(node, &request, &second, T0 + 60_000).unwrap();
        assert_eq!(done.state, State::Delivered);
        // It is over: nobody works on it any more, and it stays as it was handed in.
        assert_eq!(claim_job(node, id, claimant(), T0 + 90_000), None);
        assert_eq!(hand_in(node, &request, &first, T0 + 90_000).unwrap(), done);
        assert_eq!(to_do(node, claimant(), T0 + 90_000), []);
    });
}

fn settle(node: &Node, order_id: &OrderId, claim: &Claim, text: &str) -> Result<settle::Settled> {
    let (order_id, claim, verdict) = (order_id.clone(), claim.clone(), judge(&work("a"), text));
    node.write(move |tx| {
        let keys = Keys { key: &buyer(), random: &Dice };
        settle::settle(tx, &order_id, &claim, &verdict, keys, T0 + 5_000)
    })
}

#[test]
fn an_order_that_was_taken_over_is_not_settled_by_the_one_that_lost_it() {
    both(|node| {
        node.fund(1_000);
        let new = new_order("a", 100);
        let order = node.post(&new).unwrap().order().unwrap();
        let order_id = order.order_id.clone();
        let early = order_id.clone();
        let claimed = node.write(move |tx| order::claim(tx, &early, &other(), T0)).unwrap();
        assert_eq!(claimed, None, "nothing waits for a verdict");
        let text = output(&new.job, &provider().public_key()).to_string();
        let result = result_of(&order.request().unwrap(), &text, &provider(), T0 + 5);
        node.deliver(&result, T0 + 250).unwrap();
        let first = node.order(&order_id).claimed.held_by(&claimant()).unwrap();
        let waiting = |who: Claimant, at_ms| {
            node.read(move |rx| {
                order::waiting(rx, Waits::Verdict, (&who, at_ms), &BTreeSet::new(), 10)
            })
        };
        assert_eq!(waiting(other(), T0 + 300), []);
        let only = std::slice::from_ref(&order_id);
        assert_eq!(waiting(claimant(), T0 + 300), only);
        assert_eq!(waiting(other(), T0 + 250 + TTL_MS), only);
        let late = order_id.clone();
        let second =
            node.write(move |tx| order::claim(tx, &late, &other(), T0 + 2_000)).unwrap().unwrap();
        let (before, wallet) = (node.order(&order_id), node.wallet());
        assert_eq!(why(settle(node, &order_id, &first, &text)), code::CLAIM_LOST.name);
        assert_eq!((node.order(&order_id), node.wallet()), (before, wallet), "nothing moved");
        assert_eq!(node.payable(), 0);
        let settled = settle(node, &order_id, &second, &text).unwrap();
        assert_eq!((settled.order.state, node.payable()), (order::State::Released, 50));
        // Whoever comes late reads what was settled, and publishes nothing.
        let again = settle(node, &order_id, &first, &text).unwrap();
        assert_eq!((again.order, again.notice), (settled.order, None));
    });
}
