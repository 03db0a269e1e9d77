//! What becomes of orders reaches the matrix, once.

use guild_market::judge::Class;
use guild_market::order::{self, Order, OrderId, State};
use guild_market::routing::chosen::{self, Why};
use guild_market::routing::log::{self, Appended};
use guild_market::routing::{
    Asked, Cause, Entry, Logged, Matrix, Mutation, Options, Policy, Status, Wanted, check, choose,
    over, rows, work,
};
use guild_protocol::env::Signer;
use guild_protocol::nostr::job::{Feedback, Status as Says};
use guild_store::args;

use super::{admitted, change, task, who};
use crate::world::{
    Dice, Node, T0, TIME_MS, both, buyer, cheap, judge, key, new_order, output, provider, result_of,
};

const WORK: &str = "oa.embedding.v1";
/// The provider of all orders here.
const THEM: u8 = 2;

fn ended(node: &Node, order_id: &OrderId, now_ms: i64) -> Vec<Appended> {
    let order_id = order_id.clone();
    node.write(move |tx| {
        let order = order::get(tx, &order_id)?;
        work::ended(tx, &Options::default(), &order, now_ms)
    })
    .unwrap()
}

fn given(node: &Node, order: &Order) -> Vec<Appended> {
    let order = order.clone();
    node.write(move |tx| work::given(tx, &Options::default(), &order, T0)).unwrap()
}

fn posted(node: &Node, name: &str) -> Order {
    node.post(&new_order(name, 100)).unwrap().order().unwrap()
}

/// Does it, well or not, and is judged.
fn done(node: &Node, name: &str, good: bool) -> OrderId {
    let new = new_order(name, 100);
    let order = posted(node, name);
    let by = provider().public_key();
    let text = if good { output(&new.job, &by) } else { cheap(&new.job, &by) }.to_string();
    node.deliver(&result_of(&order.request().unwrap(), &text, &provider(), T0 + 5), T0 + 250)
        .unwrap();
    node.settle(&order.order_id, &judge(&new.job, &text), T0 + 300).unwrap();
    order.order_id
}

fn matrix(node: &Node) -> Matrix {
    let checked = node.read(|rx| check(rx, &Options::default()));
    assert_eq!(checked.problems, Vec::<String>::new());
    node.read(|rx| log::replay(rx, &Options::default()))
}

fn entry(node: &Node) -> Entry {
    matrix(node).entry(&task(WORK), &who(THEM)).unwrap().clone()
}

fn names(appended: &[Appended]) -> Vec<&'static str> {
    appended.iter().map(|row| row.effect.mutation.name()).collect()
}

#[test]
fn a_stranger_that_does_well_is_admitted_under_conditions() {
    both(|node| {
        node.fund(10_000);
        node.announce(&provider());
        let order = posted(node, "before");
        assert!(given(node, &order).is_empty(), "of a stranger there is nothing to change");
        let first = done(node, "first", true);
        let rows = ended(node, &first, T0 + 300);
        assert_eq!(names(&rows), ["admitted", "assigned", "outcome"]);
        let now = entry(node);
        assert_eq!((now.status, now.d.as_str()), (Status::Conditional, "main"));
        // 0.45, and 0.15 for a success without a fault; one job, none open; what it cost and took.
        assert_eq!((now.trust_bp, now.jobs, now.open_jobs, now.streak), (6_000, 1, 0, 1));
        assert_eq!((now.cost_msat(), now.latency_ms()), (Some(50), Some(250)));
        // Again, whenever and by whomever: nothing is new.
        let again = ended(node, &first, T0 + 9_000);
        assert!(again.iter().all(|row| !row.is_new));
        assert_eq!(entry(node), now);
        // The order that was posted while it was a stranger counts as well, and only once.
        let before = order.order_id.clone();
        node.write(move |tx| order::expire(tx, &before, T0 + TIME_MS, T0 + TIME_MS)).unwrap();
        let rows = ended(node, &order.order_id, T0 + TIME_MS);
        assert_eq!(names(&rows), ["assigned", "outcome"]);
        let now = entry(node);
        assert_eq!((now.trust_bp, now.jobs, now.open_jobs, now.streak), (4_000, 2, 0, 0));
    });
}

#[test]
fn a_stranger_that_does_badly_is_remembered_too() {
    both(|node| {
        node.fund(10_000);
        let bad = done(node, "bad", false);
        ended(node, &bad, T0 + 300);
        let now = entry(node);
        assert_eq!((now.status, now.jobs), (Status::Conditional, 1));
        assert!(now.trust_bp < 3_000, "below every tier: {}", now.trust_bp);
        assert_eq!(now.cost_msat(), None, "what was not paid makes nobody cheap");
        let none = std::collections::BTreeSet::new();
        let task = task(WORK);
        let wanted = Wanted { task: &task, except: &none, max_cost_msat: None, now_ms: T0 };
        let choice = choose(&matrix(node), Policy::Tiered, &wanted, &Dice);
        assert_eq!(choice.tiers, [0, 0, 0, 1]);
    });
}

#[test]
fn whoever_is_known_is_given_jobs_and_judged_by_each_end() {
    both(|node| {
        node.fund(10_000);
        let known = change("met", WORK, THEM, admitted(7_000));
        node.write(move |tx| {
            log::append(tx, &Options::default(), std::slice::from_ref(&known), T0)
        })
        .unwrap();
        // Cancelled: taken back without an outcome.
        let order = posted(node, "cancelled");
        assert_eq!(names(&given(node, &order)), ["assigned"]);
        assert!(given(node, &order).iter().all(|row| !row.is_new));
        assert_eq!(entry(node).open_jobs, 1);
        assert!(ended(node, &order.order_id, T0).is_empty(), "it has not ended");
        let id = order.order_id.clone();
        node.write(move |tx| order::cancel(tx, &id, T0 + 1)).unwrap();
        assert_eq!(names(&ended(node, &order.order_id, T0 + 1)), ["returned"]);
        assert_eq!((entry(node).open_jobs, entry(node).trust_bp), (0, 7_000));
        // Given up by its provider, which costs little.
        let order = posted(node, "given up");
        given(node, &order);
        let says = Feedback::about(&order.request().unwrap(), Says::Error);
        let says = says.draft(order.request().unwrap().created_at).unwrap().sign(&provider());
        let says = says.unwrap();
        node.write(move |tx| order::fail(tx, &says, &buyer(), T0 + 2)).unwrap();
        ended(node, &order.order_id, T0 + 2);
        assert_eq!((entry(node).trust_bp, entry(node).jobs), (6_500, 1));
        // Bad work costs more.
        let bad = done(node, "bad", false);
        let learnt = ended(node, &bad, T0 + 300);
        let class = learnt.iter().find_map(|row| match row.effect.mutation {
            Mutation::Outcome { class, .. } => Some(class),
            _ => None,
        });
        assert_eq!(class, Some(Class::Failure));
        assert!((5_000..=5_500).contains(&entry(node).trust_bp), "{}", entry(node).trust_bp);
        let asked = Asked { provider: Some(who(THEM)), ..Asked::default() };
        let told: Vec<Logged> = node.read(move |rx| rows(rx, &asked, 100));
        assert!(told.iter().all(|row| row.is_whole));
        assert_eq!(told.last().unwrap().before, None);
        assert_eq!(told[0].before.as_ref().unwrap().trust_bp, 6_500);
    });
}

#[test]
fn rubbish_of_a_stranger_fills_nothing_and_of_the_known_counts() {
    both(|node| {
        node.fund(10_000);
        node.announce(&key(3));
        node.announce(&key(4));
        let known = change("met", WORK, 3, admitted(7_000));
        node.write(move |tx| {
            log::append(tx, &Options::default(), std::slice::from_ref(&known), T0)
        })
        .unwrap();
        let mut new = new_order("open", 100);
        new.provider = None;
        let order = node.post(&new).unwrap().order().unwrap();
        for who in [3, 4] {
            let rubbish = result_of(&order.request().unwrap(), "{}", &key(who), T0 + 5);
            let order = node.reject(&rubbish, T0 + 6).unwrap();
            let author = key(who).public_key();
            let write = move |tx: &mut guild_store::Tx<'_>| {
                work::rejected(tx, &Options::default(), (&order, &author), T0 + 6)
            };
            node.write(write).unwrap();
        }
        let matrix = matrix(node);
        assert_eq!(matrix.providers_of(&task(WORK)).count(), 1);
        let entry = matrix.entry(&task(WORK), &who(3)).unwrap();
        assert_eq!((entry.trust_bp, entry.jobs, entry.open_jobs), (5_500, 1, 0));
    });
}

#[test]
fn two_results_of_one_order_are_a_day_without_work() {
    both(|node| {
        node.fund(10_000);
        let first = done(node, "a", true);
        ended(node, &first, T0 + 300);
        let order = node.order(&first);
        assert_eq!(order.state, State::Released);
        for now_ms in [T0 + 400, T0 + 500] {
            let order = order.clone();
            node.write(move |tx| work::signed_twice(tx, &Options::default(), &order, now_ms))
                .unwrap();
        }
        let until_ms = T0 + 400 + 24 * 3_600_000;
        let now = entry(node);
        assert_eq!((now.status, now.cause), (Status::Quarantined, Some(Cause::Forbidden)));
        assert_eq!(now.until_ms, Some(until_ms));
        assert!(over(&matrix(node), until_ms - 1).is_empty());
        let back = over(&matrix(node), until_ms);
        node.write(move |tx| log::append(tx, &Options::default(), &back, until_ms)).unwrap();
        let now = entry(node);
        assert_eq!((now.status, now.cause, now.until_ms), (Status::Conditional, None, None));
        assert!(over(&matrix(node), until_ms).is_empty());
    });
}

#[test]
fn why_somebody_was_hired_is_kept_and_stays() {
    both(|node| {
        node.fund(10_000);
        let order = posted(node, "a");
        let why = Why {
            at_ms: T0,
            how: "tiered".to_owned(),
            words: "tiered: somebody\n  the best".to_owned(),
            document: Some(serde_json::json!({"seed": "7"})),
        };
        let other = Why { how: "cheapest".to_owned(), ..why.clone() };
        for kept in [why.clone(), other] {
            let id = order.order_id.clone();
            node.write(move |tx| chosen::keep(tx, &id, &kept)).unwrap();
        }
        let id = order.order_id;
        assert_eq!(node.read(move |rx| chosen::find(rx, &id)), Some(why));
        let id = OrderId::of_key("nobody");
        assert_eq!(node.read(move |rx| chosen::find(rx, &id)), None);
    });
}

#[test]
fn a_row_that_was_changed_is_told() {
    let node = Node::sqlite(guild_store::Hooks::default());
    node.fund(10_000);
    let first = done(&node, "a", true);
    ended(&node, &first, T0 + 300);
    // Only somebody who breaks the rules of the database can.
    node.write(|tx| {
        tx.exec("DROP TRIGGER market_route_log_is_fixed", &[])?;
        let forged = "UPDATE market_route_log SET at_ms = at_ms + 1 WHERE seq = $1";
        tx.exec(forged, args![2_i64])?;
        Ok(())
    })
    .unwrap();
    let checked = node.read(|rx| check(rx, &Options::default()));
    assert!(checked.problems[0].contains("row 2"), "{checked:?}");
    let told = node.read(|rx| rows(rx, &Asked::default(), 10));
    assert_eq!(told.iter().map(|row| row.is_whole).collect::<Vec<_>>(), [true, false, true]);
}
