use std::collections::BTreeSet;

use guild_ledger::policy::{Bundle, Tier};
use guild_ledger::quote::{self, Approval, Verdict as Say};
use guild_market::order::{
    self, NewOrder, OrderId, Placed, QUOTE_LIFETIME_MS, Standing, State, price_due,
};
use guild_market::{Result, TOPIC};
use guild_protocol::amount::Msat;
use guild_protocol::env::Signer;
use guild_protocol::nostr::job::{Feedback, Request, Status};
use guild_protocol::nostr::{Event, unix_s};
use guild_store::event;
use serde_json::json;

use crate::world::{
    Dice, Node, T0, TIME_MS, both, buyer, claimant, key, new_order, output, provider, request_of,
    result_of, why, work,
};

fn posted(node: &Node, order_key: &str, budget: i64) -> OrderId {
    let placed = node.post(&new_order(order_key, budget)).unwrap();
    assert!(matches!(placed, Placed::Posted(_)), "{placed:?}");
    placed.order().unwrap().order_id
}

fn answer(order_key: &str, text: &str) -> Event {
    result_of(&request_of(&new_order(order_key, 100)), text, &provider(), T0 + 5)
}

#[test]
fn ordering_again_is_the_same_order() {
    both(|node| {
        node.fund(1_000);
        let id = posted(node, "a", 100);
        assert_eq!(node.wallet(), (1_000, 900));
        // A later try makes another request; the first one counts.
        let mut later = new_order("a", 100);
        later.deadline_ms += 5_000;
        let Placed::Known(known) = node.post(&later).unwrap() else { panic!("posted twice") };
        assert_eq!(known, node.order(&id));
        assert_eq!(known.request_id, request_of(&new_order("a", 100)).id);
        let others: [fn(&mut NewOrder); 4] = [
            |new| new.budget = Msat(101),
            |new| new.job = work("other"),
            |new| new.provider = Some(key(9).public_key()),
            |new| new.private = true,
        ];
        for change in others {
            let mut other = new_order("a", 100);
            change(&mut other);
            assert_eq!(why(node.post(&other)), "market.order_conflict");
        }
        assert_eq!(node.wallet(), (1_000, 900));
        // The same work under another key is another request, also in the same second; one request is one order.
        let mut twin = new_order("a", 100);
        twin.order_key = "twin".into();
        assert_ne!(request_of(&twin).id, known.request_id);
        let request = request_of(&new_order("a", 100));
        let stolen =
            node.write(move |tx| order::post(tx, &twin, &request, &Bundle::builtin().unwrap(), T0));
        assert_eq!(why(stolen), "market.order_malformed");
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

type Bad = (&'static str, fn(&mut NewOrder));

#[test]
fn what_cannot_be_an_order_is_refused_and_changes_nothing() {
    both(|node| {
        node.fund(1_000);
        let cases: [Bad; 8] = [
            ("market.order_malformed", |new| new.order_key = String::new()),
            ("market.order_malformed", |new| new.order_key = "a\nb".into()),
            ("market.order_malformed", |new| new.deadline_ms = T0),
            ("market.order_malformed", |new| new.deadline_ms = T0 + 15 * 24 * 3_600_000),
            ("market.price_above_budget", |new| new.price = Some(Msat(101))),
            ("quote.denied", |new| new.provider_tier = Tier::Untrusted),
            ("quote.denied", |new| (new.budget, new.price) = (Msat(1_000_001), None)),
            ("market.wallet_empty", |new| (new.budget, new.price) = (Msat(1_001), None)),
        ];
        for (code, change) in cases {
            let mut new = new_order("a", 100);
            change(&mut new);
            let refused = node.post(&new).unwrap_err();
            assert_eq!(refused.code().name, code, "{refused}");
            if code == "market.wallet_empty" {
                let command = "guild ledger transfer --from outside/main --to node/wallet \
                               --asset BTC_LN --units 1001";
                assert!(refused.to_string().contains(command), "{refused}");
            }
        }
        let mut new = new_order("a", 100);
        let request = request_of(&new);
        // What would have to be bid cannot be sent.
        let negative = NewOrder { price: Some(Msat(-1)), ..new.clone() };
        assert_eq!(why(negative.request(&buyer(), &Dice, T0)), "nip90.value_not_allowed");
        new.provider = Some(key(5).public_key());
        let other =
            node.write(move |tx| order::post(tx, &new, &request, &Bundle::builtin().unwrap(), T0));
        assert_eq!(why(other), "market.order_malformed");
        let nothing =
            node.read(|rx| Ok((order::page_before(rx, None, 10)?, event::last(rx, TOPIC)?)));
        assert_eq!(nothing, (Vec::new(), 0));
        assert_eq!(node.wallet(), (1_000, 1_000));
    });
}

#[test]
fn a_guardian_decides_first_where_the_policy_says_so() {
    both(|node| {
        node.fund(1_000);
        let guardian = key(7);
        let policy = json!({"schema_version": "guild.policy_bundle.v1", "name": "guarded", "caps": {},
            "rules": [{"id": "ask", "when": {}, "action": "guardian",
                       "guardian_key": guardian.public_key().npub()}]});
        let bundle = Bundle::parse(policy.to_string().as_bytes()).unwrap();
        // Whoever orders again does so later, and waits until later.
        let post_as = |at_ms: i64, change: fn(&mut NewOrder)| {
            let (mut new, bundle) = (new_order("a", 100), bundle.clone());
            new.deadline_ms = at_ms + TIME_MS;
            change(&mut new);
            let request = new.request(&buyer(), &Dice, at_ms).unwrap();
            node.write(move |tx| order::post(tx, &new, &request, &bundle, at_ms))
        };
        let post = |at_ms: i64| post_as(at_ms, |_| ());
        let Placed::Waits(quote) = post(T0).unwrap() else { panic!("posted without approval") };
        assert_eq!(why(post(T0 + 1_500).unwrap().order()), "quote.not_approved");
        assert_eq!(node.wallet(), (1_000, 1_000));
        let id = OrderId::of_key("a");
        assert_eq!(node.read(move |rx| order::quoted(rx, &id)).as_ref(), Some(&*quote));
        let pays = |who: u8| order::would_pay(&quote, &key(who).public_key()).unwrap();
        assert_eq!((pays(2), pays(3)), (true, false));
        let others: [fn(&mut NewOrder); 3] = [
            |new| new.budget = Msat(101),
            |new| new.provider = Some(key(9).public_key()),
            |new| new.provider = None,
        ];
        for change in others {
            assert_eq!(why(post_as(T0 + 1_500, change)), "market.order_conflict");
        }
        let approval = Approval::sign(&quote.terms, Say::Approve, T0 + 1, &guardian).unwrap();
        let quote_id = quote.terms.wanted.quote_id.clone();
        node.write(move |tx| Ok(quote::approve(tx, &quote_id, &approval, T0 + 1)?)).unwrap();
        // The guardian has its own time, whatever the work may take.
        let late_ms = T0 + QUOTE_LIFETIME_MS - 1;
        let order = post(late_ms).unwrap().order().unwrap();
        assert_eq!(order.approval_rule_id.as_deref(), Some("ask"));
        assert_eq!(order.deadline_ms, late_ms + TIME_MS);
        assert_eq!(node.wallet(), (1_000, 900));
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

#[test]
fn the_first_result_counts_and_the_others_are_kept() {
    both(|node| {
        node.fund(1_000);
        let id = posted(node, "a", 100);
        let (good, other) = (answer("a", "result"), answer("a", "another result"));
        let again = result_of(&request_of(&new_order("a", 100)), "result", &provider(), T0 + 7_000);
        let standings =
            [(&good, false), (&good, true), (&other, false), (&again, false), (&other, true)].map(
                |(event, known)| {
                    let delivery = node.deliver(event, T0 + 10).unwrap();
                    assert_eq!(delivery.known, known);
                    delivery.standing
                },
            );
        use Standing::{Delivered, Equivocation, Repeated};
        assert_eq!(standings, [Delivered, Delivered, Equivocation, Repeated, Equivocation]);
        let order = node.order(&id);
        assert_eq!((order.state, order.result_id), (State::Delivered, Some(good.id)));
        assert_eq!(order.output_text.as_deref(), Some("result"));
        let request_id = order.request_id;
        let kept = node.read(move |rx| order::answers(rx, &request_id));
        assert_eq!(kept.len(), 3);
        let events = node.read(|rx| Ok(event::after(rx, TOPIC, 0, 10)?));
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["order.posted", "order.delivered", "order.equivocation"]);
        // More of them fill nothing.
        for n in 0..30 {
            node.deliver(&answer("a", &format!("spam {n}")), T0 + 11).unwrap();
        }
        assert_eq!(node.read(move |rx| order::answers(rx, &request_id)).len(), 16);
        assert_eq!(node.wallet(), (1_000, 900));
    });
}

/// Rubbish that somebody sends first must not keep others from doing the work.
#[test]
fn an_open_order_waits_for_a_result_that_is_what_was_ordered() {
    both(|node| {
        node.fund(1_000);
        let mut new = new_order("open", 100);
        new.provider = None;
        let order = node.post(&new).unwrap().order().unwrap();
        let request = order.request().unwrap();
        let result = |by: u8, text: &str| result_of(&request, text, &key(by), T0 + 5);
        assert_eq!(why(node.reject(&result(3, "rubbish"), T0 + 10)), "nip90.author_wrong");
        [2, 3].into_iter().for_each(|who| node.announce(&key(who)));
        let rubbish = result(3, "rubbish");
        assert_eq!(node.reject(&rubbish, T0 + 10).unwrap().state, State::Posted);
        // It has had its try.
        for again in [&rubbish, &result(3, "something else")] {
            assert_eq!(why(node.reject(again, T0 + 11)), "nip90.author_wrong");
            assert_eq!(why(node.deliver(again, T0 + 11)), "nip90.author_wrong");
        }
        let good = node.deliver(&result(2, "good"), T0 + 12).unwrap();
        assert_eq!((good.standing, good.order.state), (Standing::Delivered, State::Delivered));
        assert_eq!(good.order.provider, Some(key(2).public_key()));
        assert_eq!(why(node.reject(&result(2, "more"), T0 + 13)), "market.order_closed");
        let request_id = order.request_id;
        let kept = node.read(move |rx| order::answers(rx, &request_id));
        let kept: Vec<_> = kept.iter().map(|one| (one.standing, one.json.is_some())).collect();
        assert_eq!(kept, [(Standing::Rejected, false), (Standing::Delivered, true)]);
        // An order that addresses somebody judges what that one sends.
        posted(node, "a", 100);
        assert_eq!(why(node.reject(&answer("a", "rubbish"), T0 + 10)), "market.order_closed");
    });
}

/// Both sides mean the same second; a provider never works for a buyer that has stopped waiting.
#[test]
fn a_request_says_until_when_to_the_second() {
    for (now_ms, limit_ms) in [(T0, 60_000), (T0 + 999, 60_000), (T0 + 1, 1_998), (T0 + 900, 50)] {
        let mut new = new_order("a", 100);
        new.deadline_ms = now_ms + limit_ms;
        let request = new.request(&buyer(), &Dice, now_ms).unwrap();
        let read = Request::parse(&request, None).unwrap();
        let limit_s: u64 = read.param(order::TIME_LIMIT).unwrap().parse().unwrap();
        assert_eq!(request.created_at + limit_s, unix_s(new.deadline_ms), "{now_ms} {limit_ms}");
    }
}

#[test]
fn what_strangers_send_is_refused() {
    both(|node| {
        node.fund(1_000);
        let id = posted(node, "a", 100);
        let request = request_of(&new_order("a", 100));
        let forged = result_of(&request, "result", &key(3), T0 + 5);
        assert_eq!(why(node.deliver(&forged, T0 + 10)), "nip90.author_wrong");
        let mut tampered = answer("a", "result");
        tampered.content = "tampered".into();
        assert_eq!(why(node.deliver(&tampered, T0 + 10)), "nostr.event_id_wrong");
        let unknown = result_of(&request_of(&new_order("b", 100)), "result", &provider(), T0 + 5);
        assert_eq!(why(node.deliver(&unknown, T0 + 10)), "market.unknown_order");
        let mut nameless = answer("a", "result");
        nameless.tags.clear();
        assert_eq!(why(node.deliver(&nameless, T0 + 10)), "nostr.event_id_malformed");
        assert_eq!(node.order(&id).state, State::Posted);
    });
}

#[test]
fn an_order_ends_without_a_result_once_and_gives_back_its_budget() {
    both(|node| {
        node.fund(1_000);
        let [late, cancelled, failed] =
            ["late", "cancelled", "failed"].map(|name| posted(node, name, 100));
        assert_eq!(node.wallet(), (1_000, 700));
        let expire = |now_ms: i64| {
            node.write(move |tx| {
                let waits = order::Waits::End(now_ms);
                let due = order::waiting(tx, waits, (&claimant(), T0), &BTreeSet::new(), 10)?;
                for id in &due {
                    assert!(order::expire(tx, id, now_ms, now_ms)?.is_some());
                    assert_eq!(order::expire(tx, id, now_ms, now_ms)?, None);
                }
                Ok(due.len())
            })
            .unwrap()
        };
        assert_eq!(expire(T0 + TIME_MS - 1), 0);
        let cancel = |id: &OrderId| {
            let id = id.clone();
            node.write(move |tx| order::cancel(tx, &id, T0 + 3))
        };
        assert_eq!(cancel(&cancelled).unwrap().state, State::Cancelled);
        assert_eq!(cancel(&cancelled).unwrap(), node.order(&cancelled));
        assert_eq!(feedback(node, "failed", Status::Processing).unwrap(), None);
        let order = feedback(node, "failed", Status::Error).unwrap().unwrap();
        assert_eq!((order.state, order.words.as_deref()), (State::Failed, Some("no such luck")));
        assert_eq!(feedback(node, "failed", Status::Error).unwrap(), None);
        assert_eq!(node.order(&failed), order);
        assert_eq!(order.order_id, failed);
        // A result after the deadline is late, before and after the order has ended.
        let result = answer("late", "result");
        assert_eq!(node.deliver(&result, T0 + TIME_MS).unwrap().standing, Standing::Late);
        assert_eq!((expire(T0 + TIME_MS), expire(T0 + TIME_MS)), (1, 0));
        assert_eq!(node.order(&late).state, State::Expired);
        assert_eq!(why(cancel(&late)), "market.order_closed");
        let after = node.deliver(&answer("cancelled", "result"), T0 + 4).unwrap();
        assert_eq!((after.standing, after.order.state), (Standing::Late, State::Cancelled));
        assert_eq!(node.wallet(), (1_000, 1_000));
        assert_eq!(node.problems(), Vec::<String>::new());
    });
}

fn feedback(node: &Node, order_key: &str, status: Status) -> Result<Option<order::Order>> {
    let mut feedback = Feedback::about(&request_of(&new_order(order_key, 100)), status);
    feedback.info = Some("no\u{7} such luck".into());
    let event = feedback.draft(5).unwrap().sign(&provider()).unwrap();
    node.write(move |tx| order::fail(tx, &event, &buyer(), T0 + 4))
}

#[test]
fn a_private_order_is_read_with_our_key_only() {
    both(|node| {
        node.fund(1_000);
        let mut new = new_order("secret", 100);
        new.private = true;
        let request = new.request(&buyer(), &Dice, T0).unwrap();
        assert!(!request.to_json().contains("another text"));
        let order = node.post(&new).unwrap().order().unwrap();
        let text = output(&new.job, &provider().public_key()).to_string();
        let result = result_of(&order.request().unwrap(), &text, &provider(), T0 + 5);
        assert!(!result.to_json().contains("guild-hash-v1"));
        let delivery = node.deliver(&result, T0 + 10).unwrap();
        assert_eq!(delivery.order.output_text, Some(text));
    });
}

/// PostgreSQL keeps no NUL in a text, and a stranger chooses the text.
#[test]
fn a_result_with_a_nul_is_a_bad_result_and_nothing_worse() {
    both(|node| {
        node.fund(1_000);
        let id = posted(node, "a", 100);
        let text = output(&work("a"), &provider().public_key())
            .to_string()
            .replace("guild-hash", "guild\0hash");
        assert_eq!(
            node.deliver(&answer("a", &text), T0 + 5).unwrap().standing,
            Standing::Delivered
        );
        let kept = node.order(&id).output_text.unwrap();
        assert!(!crate::world::judge(&work("a"), &kept).passed);
        assert_eq!(kept.len(), text.len());
    });
}

#[test]
fn the_price_is_the_smaller_of_what_was_agreed_and_asked_within_the_budget() {
    let due = |agreed: Option<i64>, asked: Option<i64>| {
        price_due(agreed.map(Msat), asked.map(Msat), Msat(100)).0
    };
    assert_eq!(due(Some(50), None), 50);
    assert_eq!(due(Some(50), Some(70)), 50);
    assert_eq!(due(Some(50), Some(30)), 30);
    assert_eq!(due(None, Some(70)), 70);
    assert_eq!(due(None, Some(170)), 100);
    assert_eq!(due(None, None), 0);
    assert_eq!(due(None, Some(-5)), 0);
    assert_eq!(due(Some(0), Some(70)), 0);
}
