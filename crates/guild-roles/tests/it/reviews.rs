//! One buyer says what became of providers, another one hears it.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_bus::Local;
use guild_ledger::policy::Bundle;
use guild_market::order::State as OrderState;
use guild_market::review::{self, Options as Reviewing};
use guild_market::routing::Hearsay;
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Filter, kind};
use guild_roles::buyer::{self, Choice};
use guild_roles::explorer::{Explorer, Options as ExplorerOptions, Page};
use guild_roles::provider::{self, Embedder, Worker};
use guild_roles::reviews::{ReviewId, Row, State};
use guild_roles::router::TaskType;
use guild_roles::turn::Turns;
use guild_store::Store;

use crate::attacks::Cheat;
use crate::town::{Hand, Town, embedding, key, until, until_known, wallet, wish};

const SPEAKER: u8 = 1;
const LISTENER: u8 = 5;
const GOOD: u8 = 2;
const CHEAT: u8 = 3;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn task() -> TaskType {
    embedding().as_str().parse().unwrap()
}

async fn ours(store: &Store) -> Vec<Row> {
    store.read(|rx| review::page_before(rx, None, true, 100)).await.unwrap()
}

async fn heard(store: &Store) -> Vec<(PublicKey, &'static str)> {
    let seen = store.read(|rx| review::seen_page(rx, None, 100)).await.unwrap();
    seen.iter().map(|seen| (seen.review.subject, seen.grade.name())).collect()
}

fn explorer(store: &Store, clock: &Arc<Hand>) -> Explorer {
    let (turns, bus) = (Turns::new(store.clone()), Arc::new(Local::new()));
    Explorer::new(ExplorerOptions::default(), turns, bus, clock.clone())
}

/// The speaker hires both; the listener has its own node, on either database.
fn told(on_postgres: bool) {
    let mut town = Town::new();
    let (first, second) = match on_postgres {
        true => (town.node_on_postgres(), town.node_on_postgres()),
        false => (town.node(), town.node()),
    };
    let options = |n: u8| Reviewing { ours: [who(n)].into(), ..Reviewing::default() };
    let hires = buyer::Options { reviews: options(SPEAKER), ..buyer::Options::default() };
    let buyer = town.buyer_with(first, key(SPEAKER), hires, Bundle::builtin().unwrap());
    for n in [GOOD, CHEAT] {
        let theirs = town.node();
        let worker: Arc<dyn Worker> = if n == CHEAT { Arc::new(Cheat) } else { Arc::new(Embedder) };
        town.provider_with(theirs, key(n), provider::Options { ..Town::offer() }, worker);
    }
    let speaker = town.reviews(first, key(SPEAKER), options(SPEAKER));
    town.reviews(second, key(LISTENER), options(LISTENER));
    let (store, other) = (town.store(first).clone(), town.store(second).clone());
    let (clock, hub) = (town.clock.clone(), town.hub.clone());
    town.tell(async move {
        for n in [GOOD, CHEAT] {
            until_known(&clock, &store, who(n)).await;
        }
        until(&clock, "the wallet is full", || async { wallet(&store).await > 0 }).await;
        for (n, ended) in [(GOOD, OrderState::Released), (CHEAT, OrderState::Withheld)] {
            let posted =
                buyer.hire(wish(&format!("for {n}"), Choice::Chosen(who(n)))).await.unwrap();
            assert_eq!(buyer.wait(&posted.order_id).await.unwrap().state, ended);
        }
        // Nothing is said yet, and who asks too early hears why.
        let drafts = ours(&store).await;
        assert!(drafts.len() == 2 && drafts.iter().all(|row| row.state == State::Due));
        let early = speaker.publish(drafts[0].review_id.clone(), false).await.unwrap_err();
        assert_eq!(early.code().name, "review.not_due");
        let unknown = ReviewId::of_number(&who(GOOD), "nothing", 9);
        let unknown = speaker.publish(unknown, true).await.unwrap_err();
        assert_eq!(unknown.code().name, "review.unknown");
        let strangers = explorer(&store, &clock).reviews(Page::first(10)).await.unwrap();
        assert!(strangers.items.is_empty(), "drafts are nobody's business");
        // A day later all of it is said by itself, once.
        clock.forward(24 * 3_600_000);
        until(&clock, "both are heard", || async { heard(&other).await.len() == 2 }).await;
        let grades: BTreeSet<(PublicKey, &str)> = heard(&other).await.into_iter().collect();
        assert_eq!(grades, [(who(GOOD), "paid"), (who(CHEAT), "paid")].into());
        let said = Filter::kinds([kind::REVIEW, kind::REPLACEABLE_REVIEW, kind::LABEL]);
        until(&clock, "all forms are out", || async { hub.published(&said).len() == 6 }).await;
        assert!(hub.published(&said).iter().all(|event| event.pubkey == who(SPEAKER)));
        assert!(ours(&store).await.iter().all(|row| row.state == State::Published));
        assert!(heard(&store).await.is_empty(), "what we say is no news to us");
        let again = speaker.publish(drafts[0].review_id.clone(), true).await.unwrap();
        assert_eq!((again.state, hub.published(&said).len()), (State::Published, 6));
        weighed(&other, &clock).await;
    });
}

async fn weighed(other: &Store, clock: &Arc<Hand>) {
    let said = other.read(|rx| review::hearsay(rx, &task())).await.unwrap();
    // A tenth of an outcome each, by a reviewer of whom nothing is known.
    let (good, cheat) = (said[&who(GOOD)], said[&who(CHEAT)]);
    assert!(
        good.good_milli > good.bad_milli && good.good_milli + good.bad_milli == 100,
        "{good:?}"
    );
    assert!(cheat.bad_milli > cheat.good_milli, "{cheat:?}");
    assert_ne!(good, Hearsay::default());
    let explorer = explorer(other, clock);
    assert_eq!(explorer.weighed(who(CHEAT), None).await.unwrap(), None, "beliefs are our own");
    let told = explorer.for_owner().weighed(who(CHEAT), None).await.unwrap().unwrap();
    let [weighing] = told.as_slice() else { panic!("{told:?}") };
    let line = weighing.reviews[0].weight.as_ref().unwrap();
    assert_eq!(
        (line.reviewer, line.calibration_milli, weighing.own_outcomes),
        (who(SPEAKER), 100, 0)
    );
    let page = explorer.for_owner().provider(who(GOOD)).await.unwrap().unwrap();
    assert_eq!((page.reviews.ours.len(), page.reviews.others.len()), (0, 1));
    assert_eq!(page.reviews.others[0].evidence, "paid");
}

#[test]
fn one_says_it_and_another_hears_it() {
    told(false);
}

#[test]
fn the_same_on_a_server() {
    told(true);
}
