//! What a buyer believes, how much of it, and what it never orders.

use std::sync::atomic::{AtomicBool, Ordering};

use guild_ledger::policy::Bundle;
use guild_ledger::quote::{self, Approval, Verdict};
use guild_market::order::{self, State};
use guild_network::archive::{self, Verified};
use guild_protocol::amount::Msat;
use guild_protocol::env::{Clock, Signer};
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::announcement::{Announcement, JobPrices, Pricing};
use guild_protocol::nostr::job::{Feedback, Status};
use guild_protocol::nostr::{Draft, Event, unix_s};
use guild_roles::buyer::{self, Choice, Wish};
use guild_store::Store;
use serde_json::json;

use crate::attacks::{Alone, honest, result};
use crate::town::{PRICE, T0, Town, embedding, key, payable, until_known, wallet, wish};

pub(crate) fn card(by: &SecretKey, price: Msat) -> Event {
    let mut card = Announcement::new("main");
    card.kinds.push("5050".to_owned());
    card.topics.push(embedding().to_string());
    let prices = [(embedding().to_string(), price)].into();
    card.content.pricing = Some(Pricing { per_job: Some(JobPrices(prices)), ..Pricing::default() });
    card.draft(unix_s(T0)).unwrap().sign(by).unwrap()
}

async fn number(store: &Store, sql: &'static str) -> i64 {
    let read = store.read(move |rx| rx.first::<(i64,)>(sql, &[]));
    read.await.unwrap().map_or(0, |(number,)| number)
}

#[test]
fn rubbish_does_not_end_an_order_that_is_open_to_all() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        for who in [2, 3] {
            alone.hub.post(card(&key(who), PRICE)).await;
            until_known(&alone.clock, &alone.store, key(who).public_key()).await;
        }
        let order = alone.hire("open", Choice::Any).await;
        alone.hub.post(result(&order, "{}", &key(3))).await;
        alone.until_counted("result_rejected", 1).await;
        assert_eq!(alone.order(&order).await, order, "others may still do it");
        // Whoever sent rubbish has had its try, however good the next one is.
        let good = honest(&order, key(3).public_key()).await;
        alone.hub.post(result(&order, &good, &key(3))).await;
        alone.until_counted("answer_refused", 1).await;
        assert_eq!(alone.order(&order).await.state, State::Posted);
        let good = honest(&order, key(2).public_key()).await;
        alone.hub.post(result(&order, &good, &key(2))).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((done.state, done.provider), (State::Released, Some(key(2).public_key())));
        assert_eq!(payable(&alone.store, key(2).public_key()).await, PRICE.0);
    });
}

#[test]
fn a_result_may_come_before_the_announcement_of_its_author() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(3).public_key();
        let order = alone.hire("open", Choice::Any).await;
        alone.hub.post(result(&order, &honest(&order, them).await, &key(3))).await;
        alone.until_counted("answer_refused", 1).await;
        assert_eq!(alone.order(&order).await.state, State::Posted);
        alone.hub.post(card(&key(3), PRICE)).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((done.state, done.provider), (State::Released, Some(them)));
    });
}

/// Who is hired could else fill our disk with what is never forgotten.
#[test]
fn a_provider_that_says_much_is_not_kept_for_ever() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("much", Choice::Chosen(them)).await;
        let pinned =
            "SELECT count(*) FROM nostr_event WHERE pinned = 1 AND kind BETWEEN 6000 AND 7000";
        let request = order.request().unwrap();
        for n in 0..40 {
            let mut feedback = Feedback::about(&request, Status::Partial);
            feedback.info = Some(format!("part {n}"));
            alone
                .hub
                .post(feedback.draft(request.created_at).unwrap().sign(&key(2)).unwrap())
                .await;
        }
        alone.until_counted("feedback", 40).await;
        assert_eq!(number(&alone.store, pinned).await, 0);
        alone.hub.post(result(&order, &honest(&order, them).await, &key(2))).await;
        for n in 0..40 {
            alone.hub.post(result(&order, &format!("another {n}"), &key(2))).await;
        }
        alone.until_counted("result_equivocation", 40).await;
        assert_eq!(alone.order(&order).await.state, State::Released);
        // The one that counts, and as much evidence as is kept.
        assert_eq!(number(&alone.store, pinned).await, 16);
        assert_eq!(number(&alone.store, "SELECT count(*) FROM market_answer").await, 16);
        let progress = alone.buyer.progress(order.order_id).await.unwrap();
        assert_eq!(progress.answers.len(), 60);
    });
}

/// Others may send without end: what was delivered is judged before all of that is read.
#[test]
fn judging_does_not_wait_for_the_end_of_a_flood() {
    let mut town = Town::new();
    let options = buyer::Options { page_max: 1, ..buyer::Options::default() };
    let alone = Alone::with(&mut town, options, Bundle::builtin().unwrap());
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("flood", Choice::Chosen(them)).await;
        let mut events = vec![result(&order, &honest(&order, them).await, &key(2))];
        events.extend((0..500).map(|n| {
            let tags = vec![vec!["e".to_owned(), format!("{n:064x}")]];
            let created_at = order.request().unwrap().created_at;
            let draft = Draft { kind: 6050, created_at, tags, content: n.to_string() };
            draft.sign(&key(9)).unwrap()
        }));
        let events: Vec<Verified> =
            events.into_iter().map(|event| Verified::check(event).unwrap()).collect();
        let now_ms = alone.clock.now_ms();
        let put = move |tx: &mut guild_store::Tx<'_>| {
            archive::put(tx, &events, "ws://flood.example", now_ms)
        };
        alone.store.write(put).await.unwrap();
        let last = number(&alone.store, "SELECT last_seq FROM nostr_archive").await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!(done.state, State::Released);
        let read =
            number(&alone.store, "SELECT seq FROM role_cursor WHERE name LIKE 'buyer:%'").await;
        assert!(read < last, "all {last} were read first");
    });
}

/// A clock that was days ahead for a moment, and is right again, ends no order whose result is there and not yet read.
#[test]
fn a_clock_that_was_set_back_does_not_hide_what_came_in_time() {
    let mut town = Town::new();
    let options = buyer::Options { page_max: 1, ..buyer::Options::default() };
    let alone = Alone::with(&mut town, options, Bundle::builtin().unwrap());
    town.tell(async move {
        let them = key(2).public_key();
        let order = alone.hire("set back", Choice::Chosen(them)).await;
        let created_at = order.request().unwrap().created_at;
        let noise = Draft { kind: 6050, created_at, tags: vec![], content: String::new() };
        let noise = Verified::check(noise.sign(&key(9)).unwrap()).unwrap();
        let answer = result(&order, &honest(&order, them).await, &key(2));
        let answer = Verified::check(answer).unwrap();
        let (clock, in_time_ms) = (alone.clock.clone(), alone.clock.now_ms());
        let passed = AtomicBool::new(false);
        let put = move |tx: &mut guild_store::Tx<'_>| {
            let ahead_ms = in_time_ms + 3 * 24 * 3_600_000;
            archive::put(tx, std::slice::from_ref(&noise), "ws://noise.example", ahead_ms)?;
            archive::put(tx, std::slice::from_ref(&answer), "ws://them.example", in_time_ms)?;
            // By the time that both are there, the deadline has passed.
            if !passed.swap(true, Ordering::SeqCst) {
                clock.forward(61_000);
            }
            Ok::<_, guild_network::Error>(())
        };
        alone.store.write(put).await.unwrap();
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((done.state, done.paid), (State::Released, Some(PRICE)));
    });
}

#[test]
fn what_nobody_can_judge_or_pay_is_not_ordered() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        alone.until_funded().await;
        alone.hub.post(card(&key(2), PRICE)).await;
        until_known(&alone.clock, &alone.store, key(2).public_key()).await;
        let refused = async |change: fn(&mut Wish)| {
            let mut wish = wish("refused", Choice::Best);
            change(&mut wish);
            alone.buyer.hire(wish).await.unwrap_err().code().name
        };
        let subjective =
            |wish: &mut Wish| wish.input["verification"] = json!({"mode": "subjective"});
        let long = |wish: &mut Wish| wish.input["dimensions"] = json!(4_097);
        let other = |wish: &mut Wish| wish.input["model_hint"] = json!("better-model");
        for change in [subjective as fn(&mut Wish), long, other] {
            assert_eq!(refused(change).await, "market.unverifiable");
        }
        assert_eq!(refused(|wish| wish.budget = Msat(100_001)).await, "quote.denied");
        assert_eq!(refused(|wish| wish.time_limit_ms = 0).await, "market.order_malformed");
        assert_eq!(number(&alone.store, "SELECT count(*) FROM market_order").await, 0);
        assert_eq!(number(&alone.store, "SELECT count(*) FROM ledger_quote").await, 0);
        assert_eq!(wallet(&alone.store).await, 100_000);
        // What is held for one order is not there for another.
        let dear = Wish { budget: Msat(60_000), ..wish("dear", Choice::Best) };
        alone.buyer.hire(dear).await.unwrap();
        assert_eq!(refused(|wish| wish.budget = Msat(60_000)).await, "market.wallet_empty");
        assert_eq!(wallet(&alone.store).await, 40_000);
    });
}

/// The guardian says yes to one provider at one price. Ordering again is that, whoever is cheaper by now.
#[test]
fn an_order_that_a_guardian_approved_is_posted_when_it_is_asked_for_again() {
    let mut town = Town::new();
    let guardian = key(7);
    let policy = json!({"schema_version": "guild.policy_bundle.v1", "name": "guarded", "caps": {},
        "rules": [{"id": "ask", "when": {}, "action": "guardian",
                   "guardian_key": guardian.public_key().npub()}]});
    let policy = Bundle::parse(policy.to_string().as_bytes()).unwrap();
    let alone = Alone::with(&mut town, buyer::Options::default(), policy);
    town.tell(async move {
        alone.until_funded().await;
        alone.hub.post(card(&key(2), PRICE)).await;
        until_known(&alone.clock, &alone.store, key(2).public_key()).await;
        let hire = async || alone.buyer.hire(wish("guarded", Choice::Best)).await;
        assert_eq!(hire().await.unwrap_err().code().name, "quote.not_approved");
        alone.hub.post(card(&key(3), Msat(1))).await;
        until_known(&alone.clock, &alone.store, key(3).public_key()).await;
        alone.clock.forward(3_600_000);
        let now_ms = alone.clock.now_ms();
        let approved = alone.store.write(move |tx| {
            let quote = order::quoted(tx, &order::OrderId::of_key("guarded"))?.unwrap();
            let terms = &quote.terms;
            let approval = Approval::sign(terms, Verdict::Approve, now_ms, &guardian)?;
            Ok::<_, guild_market::Error>(quote::approve(
                tx,
                &terms.wanted.quote_id,
                &approval,
                now_ms,
            )?)
        });
        approved.await.unwrap();
        // Both give a sign of life: an hour has passed.
        for (who, price) in [(2, PRICE), (3, Msat(1))] {
            let mut again = card(&key(who), price);
            again.created_at += 3_600;
            let Event { kind, created_at, tags, content, .. } = again;
            let again = Draft { kind, created_at, tags, content }.sign(&key(who)).unwrap();
            alone.hub.post(again).await;
        }
        let order = hire().await.unwrap();
        assert_eq!((order.state, order.provider), (State::Posted, Some(key(2).public_key())));
        assert_eq!(wallet(&alone.store).await, 99_000);
    });
}
