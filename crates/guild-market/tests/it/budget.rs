//! Envelopes: charged with an order, freed with its end, never exceeded.

use guild_ledger::policy::Bundle;
use guild_market::budget::{self, Asked, Layer, Standing, What};
use guild_market::order::{self, NewOrder, OrderId, Placed};
use guild_market::routing::TaskType;
use guild_market::{Error, Result};
use guild_protocol::amount::Msat;
use guild_protocol::timestamp::Timestamp;
use guild_store::args;

use crate::world::{
    Dice, Node, T0, TIME_MS, both, buyer, cheap, judge, new_order, output, provider, request_of,
    result_of, why,
};
use guild_protocol::env::Signer;

fn task(name: &str) -> TaskType {
    name.parse().unwrap()
}

fn embedding() -> TaskType {
    task("oa.embedding.v1")
}

fn limits(daily: i64, monthly: i64) -> Asked {
    Asked { daily: Some(Msat(daily)), monthly: Some(Msat(monthly)), ..Asked::default() }
}

fn set(node: &Node, name: &str, asked: Asked, now_ms: i64) -> bool {
    let name = task(name);
    node.write(move |tx| budget::set(tx, &name, &asked, now_ms)).unwrap().1
}

/// Where the envelope of embeddings stands.
fn standing(node: &Node, now_ms: i64) -> Standing {
    let all = node.read(move |rx| budget::standings(rx, now_ms));
    all.into_iter().find(|one| one.envelope.task == embedding()).unwrap()
}

/// What is held and spent of it, today and this month.
fn used(node: &Node, now_ms: i64) -> [(i64, i64); 2] {
    let Standing { today, month, .. } = standing(node, now_ms);
    [(today.held, today.spent), (month.held, month.spent)]
}

fn post_at(node: &Node, order_key: &str, units: i64, now_ms: i64) -> Result<Placed> {
    let new = NewOrder { deadline_ms: now_ms + TIME_MS, ..new_order(order_key, units) };
    let request = new.request(&buyer(), &Dice, now_ms).unwrap();
    node.write(move |tx| order::post(tx, &new, &request, &Bundle::builtin().unwrap(), now_ms))
}

fn audited(node: &Node) {
    let found = node.read(budget::audit::run);
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(node.problems(), Vec::<String>::new());
}

/// The provider delivers, and the result is judged.
fn deliver_and_settle(node: &Node, order_key: &str, units: i64, good: bool) {
    let new = new_order(order_key, units);
    let by = provider().public_key();
    let text = if good { output(&new.job, &by) } else { cheap(&new.job, &by) }.to_string();
    let result = result_of(&request_of(&new), &text, &provider(), T0 + 5);
    node.deliver(&result, T0 + 10).unwrap();
    let settle = |_| node.settle(&new.order_id(), &judge(&new.job, &text), T0 + 20).unwrap();
    // Settling again spends nothing again.
    (0..2).for_each(|again| drop(settle(again)));
}

#[test]
fn without_an_envelope_nothing_is_limited_or_charged() {
    both(|node| {
        node.fund(10_000);
        post_at(node, "a", 5_000, T0).unwrap();
        set(node, "something.else.v1", limits(1, 1), T0);
        post_at(node, "b", 5_000, T0).unwrap();
        let charged = node.read(|rx| budget::charge_of(rx, &OrderId::of_key("b")));
        assert_eq!(charged, None);
        audited(node);
    });
}

#[test]
fn an_order_is_charged_once_and_freed_by_every_end() {
    both(|node| {
        node.fund(10_000);
        set(node, "oa.embedding.v1", limits(1_000, 5_000), T0);
        for _ in 0..2 {
            post_at(node, "paid", 100, T0).unwrap();
            assert_eq!(used(node, T0), [(100, 0), (100, 0)]);
        }
        deliver_and_settle(node, "paid", 100, true);
        assert_eq!(used(node, T0), [(0, 50), (0, 50)], "the price is half of the budget");
        post_at(node, "bad", 100, T0).unwrap();
        deliver_and_settle(node, "bad", 100, false);
        post_at(node, "cancelled", 100, T0).unwrap();
        post_at(node, "expired", 100, T0).unwrap();
        assert_eq!(used(node, T0), [(200, 50), (200, 50)]);
        for _ in 0..2 {
            node.write(|tx| order::cancel(tx, &OrderId::of_key("cancelled"), T0 + 30)).unwrap();
            let late = T0 + TIME_MS;
            node.write(move |tx| order::expire(tx, &OrderId::of_key("expired"), late, late))
                .unwrap();
        }
        assert_eq!(used(node, T0), [(0, 50), (0, 50)]);
        // What ends later counts for the day on which it was posted.
        assert_eq!(used(node, T0 + 24 * 3_600_000), [(0, 0), (0, 50)]);
        // What is free holds nothing.
        post_at(node, "free", 0, T0).unwrap();
        assert_eq!(used(node, T0), [(0, 50), (0, 50)]);
        audited(node);
    });
}

#[test]
fn what_does_not_fit_is_refused_names_the_envelope_and_changes_nothing() {
    both(|node| {
        node.fund(10_000);
        set(node, "*", limits(1_000, 1_500), T0);
        post_at(node, "a", 700, T0).unwrap();
        let before = (node.wallet(), node.read(|rx| budget::log(rx, None, None, 10)));
        let refused = post_at(node, "b", 301, T0).unwrap_err();
        assert_eq!(refused.code().name, "budget.envelope_empty");
        assert_eq!(
            refused.to_string(),
            "the envelope * has 300 of 1000 msat left for the day 2026-01-15, 1 fewer than the order needs, and others \
             can lend 0; the day ends at 2026-01-16T00:00:00.000Z"
        );
        assert_eq!(node.read(|rx| order::find(rx, &OrderId::of_key("b"))), None);
        assert_eq!(before, (node.wallet(), node.read(|rx| budget::log(rx, None, None, 10))));
        post_at(node, "b", 300, T0).unwrap();
        // Tomorrow there is more, until the month is used up.
        let tomorrow = T0 + 24 * 3_600_000;
        let refused = post_at(node, "c", 501, tomorrow).unwrap_err();
        assert!(
            refused.to_string().contains("500 of 1500 msat left for the month 2026-01"),
            "{refused}"
        );
        assert!(refused.to_string().contains("ends at 2026-02-01T00:00:00.000Z"), "{refused}");
        post_at(node, "c", 500, tomorrow).unwrap();
        // An envelope of its own comes before the one for all others.
        set(node, "oa.embedding.v1", limits(10, 10), tomorrow);
        assert_eq!(why(post_at(node, "d", 11, tomorrow)), "budget.envelope_empty");
        post_at(node, "d", 10, tomorrow).unwrap();
        audited(node);
    });
}

#[test]
fn others_lend_what_is_missing_and_it_is_written_down() {
    both(|node| {
        node.fund(100_000);
        set(node, "oa.embedding.v1", limits(100, 10_000), T0);
        set(node, "test.rich.v1", limits(1_000, 10_000), T0);
        let dear = Asked { priority: Some(7), lends_bp: Some(10_000), ..limits(9_000, 90_000) };
        set(node, "test.dear.v1", dear, T0);
        // 30 % of 1,000; whoever is more important lends nothing.
        assert_eq!(why(post_at(node, "a", 401, T0)), "budget.envelope_empty");
        post_at(node, "a", 300, T0).unwrap();
        post_at(node, "b", 100, T0).unwrap();
        assert_eq!(why(post_at(node, "c", 1, T0)), "budget.envelope_empty");
        let today = standing(node, T0).today;
        assert_eq!((today.limit, today.borrowed, today.held), (100, 300, 400));
        let lent = node.read(|rx| budget::log(rx, Some(&task("test.rich.v1")), None, 10));
        let of = |key: &str, msat| What::Lent {
            borrower: embedding(),
            layer: Layer::Day,
            period: "2026-01-15".to_owned(),
            order_id: OrderId::of_key(key),
            msat,
        };
        let told: Vec<&What> = lent.iter().map(|change| &change.what).collect();
        assert!(told.contains(&&of("a", 200)) && told.contains(&&of("b", 100)), "{told:?}");
        // What was lent stays lent until the day is over, also if the order ends.
        node.write(|tx| order::cancel(tx, &OrderId::of_key("a"), T0 + 30)).unwrap();
        assert_eq!(standing(node, T0).today.room(), 300);
        assert_eq!(standing(node, T0 + 24 * 3_600_000).today.room(), 100);
        // Work that is more important can borrow of both.
        let asked = Asked { priority: Some(7), ..Asked::default() };
        set(node, "oa.embedding.v1", asked, T0);
        post_at(node, "d", 5_000, T0).unwrap();
        audited(node);
    });
}

#[test]
fn a_lower_limit_binds_at_once_and_breaks_no_promise() {
    both(|node| {
        node.fund(10_000);
        assert!(set(node, "oa.embedding.v1", limits(1_000, 5_000), T0));
        assert!(!set(node, "oa.embedding.v1", limits(1_000, 5_000), T0), "it is so already");
        post_at(node, "a", 700, T0).unwrap();
        set(node, "oa.embedding.v1", limits(100, 600), T0);
        let Standing { today, month, .. } = standing(node, T0);
        assert_eq!((today.room(), month.room()), (0, 0));
        assert_eq!(why(post_at(node, "b", 1, T0)), "budget.envelope_empty");
        audited(node);
        // What is given back was promised, and is there again only as far as the limit goes.
        node.write(|tx| order::cancel(tx, &OrderId::of_key("a"), T0 + 30)).unwrap();
        let Standing { today, month, .. } = standing(node, T0);
        assert_eq!((today.room(), month.room()), (100, 600));
        // One that is taken away limits nothing, and its charges end with it.
        post_at(node, "c", 50, T0).unwrap();
        assert!(node.write(|tx| budget::remove(tx, &embedding(), T0)).unwrap());
        assert!(!node.write(|tx| budget::remove(tx, &embedding(), T0)).unwrap());
        post_at(node, "d", 5_000, T0).unwrap();
        node.write(|tx| order::cancel(tx, &OrderId::of_key("c"), T0 + 30)).unwrap();
        set(node, "oa.embedding.v1", limits(10, 10), T0);
        assert_eq!(standing(node, T0).today.room(), 10);
        audited(node);
    });
}

#[test]
fn what_cannot_be_an_envelope_is_refused() {
    both(|node| {
        let bad = [
            Asked::default(),
            limits(-1, 5),
            limits(5, budget::LIMIT_MAX + 1),
            Asked { lends_bp: Some(10_001), ..limits(1, 1) },
            Asked { rolls_bp: Some(-1), ..limits(1, 1) },
            Asked { priority: Some(i64::MIN), ..limits(1, 1) },
        ];
        for asked in bad {
            let refused = node.write(move |tx| budget::set(tx, &embedding(), &asked, T0));
            assert_eq!(why(refused), "budget.malformed", "{asked:?}");
        }
        let only_daily = Asked { daily: Some(Msat(10)), ..Asked::default() };
        set(node, "a", only_daily, T0);
        let only_monthly = Asked { monthly: Some(Msat(10)), ..Asked::default() };
        set(node, "b", only_monthly, T0);
        let terms: Vec<(i64, i64)> = node
            .read(budget::all)
            .iter()
            .map(|one| (one.terms.daily.0, one.terms.monthly.0))
            .collect();
        assert_eq!(terms, [(10, 310), (10, 10)]);
    });
}

#[test]
fn what_a_month_has_left_is_carried_over_in_part() {
    both(|node| {
        node.fund(10_000);
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_ms();
        set(node, "oa.embedding.v1", limits(1_000, 1_000), at("2026-01-31T23:59:59.999Z"));
        post_at(node, "a", 400, at("2026-01-31T23:59:59.999Z")).unwrap();
        let february = at("2026-02-01T00:00:00.000Z");
        assert_eq!(standing(node, february).month.room(), 1_300, "and half of 600");
        assert_eq!(standing(node, february).today.room(), 1_000, "of a day nothing is");
        post_at(node, "b", 1, february).unwrap();
        // What is given back afterwards is not carried over any more.
        node.write(move |tx| order::cancel(tx, &OrderId::of_key("a"), february)).unwrap();
        assert_eq!(standing(node, february).month.rolled, 300);
        // From February 1,299 are left; nothing happens in March.
        let april = at("2026-04-01T00:00:00.000Z");
        assert_eq!(standing(node, april).month.rolled, 824, "half of 1,000 and of half of 1,299");
        let log = node.read(|rx| budget::log(rx, None, None, 10));
        assert!(log.iter().any(|change| matches!(&change.what, What::Rolled { msat: 300, .. })));
        audited(node);
    });
}

#[test]
fn the_audit_finds_every_kind_of_lie() {
    let lies: [(&str, &str); 6] = [
        (
            "UPDATE market_envelope_period SET limit_units = 650 WHERE layer = 'day' AND task = 'oa.embedding.v1'",
            "has used 700 msat of 650 in 2026-01-15",
        ),
        (
            "UPDATE market_envelope_period SET held_units = 600 WHERE layer = 'month' AND task = 'oa.embedding.v1'",
            "counts 600 msat held in 2026-01, its rows say 700",
        ),
        (
            "UPDATE market_envelope_period SET lent_units = 5 WHERE layer = 'day' AND task = 'test.rich.v1'",
            "counts 5 msat lent in 2026-01-15, its rows say 0",
        ),
        (
            "UPDATE market_envelope_period SET borrowed_units = 5 WHERE layer = 'day' AND task = 'oa.embedding.v1'",
            "counts 5 msat borrowed in 2026-01-15, its rows say 0",
        ),
        (
            "UPDATE market_envelope_use SET held_units = 699",
            "is posted: its envelope holds 699 msat and has spent 0, it should be 700 and 0",
        ),
        ("UPDATE market_envelope_use SET month = '2026-02'", "in a period that it does not have"),
    ];
    for (sql, words) in lies {
        let node = Node::sqlite(guild_store::Hooks::default());
        node.fund(1_000);
        set(&node, "oa.embedding.v1", limits(1_000, 5_000), T0);
        set(&node, "test.rich.v1", limits(1_000, 5_000), T0);
        post_at(&node, "a", 700, T0).unwrap();
        audited(&node);
        let planted = node.write(move |tx| {
            tx.exec("PRAGMA ignore_check_constraints = ON", args![])?;
            Ok::<_, Error>(tx.exec(sql, args![])?)
        });
        assert_eq!(planted.unwrap(), 1, "{sql}");
        let found = node.read(budget::audit::run).problems;
        assert!(found.iter().any(|problem| problem.contains(words)), "{sql}: {found:?}");
    }
}
