//! Who is hired by what was learnt of earlier jobs, on both kinds of databases.

use std::collections::BTreeSet;
use std::sync::Arc;

use guild_bus::Local;
use guild_ledger::policy::Bundle;
use guild_market::order::State;
use guild_market::routing::Mutation;
use guild_protocol::amount::Msat;
use guild_protocol::env::{Clock, Signer};
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::{Filter, kind};
use guild_roles::buyer::{self, Buyer, Choice, Progress};
use guild_roles::explorer::{Explorer, Options as ExplorerOptions, Page, Wanted};
use guild_roles::provider::{self, Embedder};
use guild_roles::router::{Asked, Cause, Policy, Quarantine, Status, TaskType, Tier};
use guild_roles::turn::Turns;
use guild_store::Store;

use crate::attacks::Cheat;
use crate::town::{Hand, Town, embedding, key, until, until_known, wallet, wish};

const CHEAT: u8 = 2;
const GOOD: u8 = 3;
const OTHER: u8 = 4;

fn task() -> TaskType {
    embedding().as_str().parse().unwrap()
}

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

/// A buyer that copies its matrix, and three who announce the work: the cheapest of them cheats.
struct Market {
    buyer: Buyer,
    store: Store,
    clock: Arc<Hand>,
}

impl Market {
    fn in_town(town: &mut Town, node: usize) -> Market {
        let options = buyer::Options { copies: true, ..buyer::Options::default() };
        let buyer = town.buyer_with(node, key(1), options, Bundle::builtin().unwrap());
        for (n, price) in [(CHEAT, 100), (GOOD, 200), (OTHER, 300)] {
            let offer =
                provider::Options { prices: [(embedding(), Msat(price))].into(), ..Town::offer() };
            let worker: Arc<dyn provider::Worker> =
                if n == CHEAT { Arc::new(Cheat) } else { Arc::new(Embedder) };
            let theirs = town.node();
            town.provider_with(theirs, key(n), offer, worker);
        }
        Market { buyer, store: town.store(node).clone(), clock: town.clock.clone() }
    }

    async fn opened(&self) {
        for n in [CHEAT, GOOD, OTHER] {
            until_known(&self.clock, &self.store, who(n)).await;
        }
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    /// Whom a job went to, how it ended, and by what it was chosen.
    async fn hire(&self, text: &str, policy: Option<Policy>) -> (PublicKey, State, String) {
        let mut wanted = wish(text, Choice::Best);
        wanted.policy = policy;
        let posted = self.buyer.hire(wanted).await.unwrap();
        let done = self.buyer.wait(&posted.order_id).await.unwrap();
        let Progress { why, .. } = self.buyer.progress(done.order_id).await.unwrap();
        (done.provider.unwrap(), done.state, why.unwrap().how)
    }

    async fn status(&self, n: u8) -> Option<(Status, u32)> {
        let matrix = self.buyer.router().current().await.unwrap();
        matrix.entry(&task(), &who(n)).map(|entry| (entry.status, entry.trust_bp))
    }

    fn explorer(&self) -> Explorer {
        let (turns, bus) = (Turns::new(self.store.clone()), Arc::new(Local::new()));
        Explorer::new(ExplorerOptions::default(), turns, bus, self.clock.clone())
    }
}

fn quarantine(n: u8, name: &str, lift: bool) -> Quarantine {
    Quarantine {
        provider: who(n),
        task: None,
        until_ms: None,
        lift,
        reason: "it was rude".to_owned(),
        idempotency_key: name.to_owned(),
    }
}

async fn story(market: Market, hub: crate::town::Hub) {
    market.opened().await;
    // Nobody is known: the cheapest, who cheats, and is remembered for it.
    let first = market.hire("one", None).await;
    assert_eq!(first, (who(CHEAT), State::Withheld, "cheapest".to_owned()));
    assert!(market.status(CHEAT).await.unwrap().1 < 3_000);
    // Whom the matrix hardly trusts comes after those whom it does not know.
    let second = market.hire("two", None).await;
    assert_eq!(second, (who(GOOD), State::Released, "cheapest".to_owned()));
    assert_eq!(market.status(GOOD).await, Some((Status::Conditional, 6_000)));
    // From now on by the matrix. The cheat is shut out, so that nobody is curious about it.
    market.buyer.router().quarantine(&quarantine(CHEAT, "y", false)).await.unwrap();
    let third = market.hire("three", None).await;
    assert_eq!(third, (who(GOOD), State::Released, "tiered".to_owned()));
    let fourth = market.hire("four", Some(Policy::Thompson)).await;
    assert_eq!(fourth, (who(GOOD), State::Released, "thompson".to_owned()));
    assert_eq!(market.status(GOOD).await.unwrap().0, Status::Active, "three successes in a row");
    // Every order is in the log once: given, and ended.
    let router = market.buyer.router();
    let rows = router.log(Asked::default(), 100).await.unwrap();
    let keys: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys.len(), rows.len());
    let outcomes =
        rows.iter().filter(|row| matches!(row.effect.mutation, Mutation::Outcome { .. }));
    assert_eq!(outcomes.count(), 4);
    assert!(router.check().await.unwrap().problems.is_empty());
    shut_out(&market).await;
    copied(&market, &hub).await;
    shown(&market).await;
}

/// Whoever is shut out is not hired, until that is lifted.
async fn shut_out(market: &Market) {
    let router = market.buyer.router();
    let told = router.quarantine(&quarantine(GOOD, "a", false)).await.unwrap();
    assert_eq!(told[0].1.cause, Some(Cause::Operator));
    let before = router.log(Asked::default(), 1).await.unwrap()[0].effect.seq;
    router.quarantine(&quarantine(GOOD, "a", false)).await.unwrap();
    assert_eq!(router.log(Asked::default(), 1).await.unwrap()[0].effect.seq, before);
    let (provider, state, _) = market.hire("five", None).await;
    assert_eq!((provider, state), (who(OTHER), State::Released));
    router.quarantine(&quarantine(GOOD, "b", true)).await.unwrap();
    router.quarantine(&quarantine(CHEAT, "z", true)).await.unwrap();
    assert_eq!(market.status(GOOD).await.unwrap().0, Status::Conditional);
    for bad in [
        Quarantine { reason: String::new(), ..quarantine(GOOD, "c", false) },
        Quarantine { reason: "a\nb".to_owned(), ..quarantine(GOOD, "c", false) },
        Quarantine { idempotency_key: "x".repeat(99), ..quarantine(GOOD, "c", false) },
        Quarantine { task: Some("unknown".parse().unwrap()), ..quarantine(GOOD, "c", false) },
        quarantine(9, "c", false),
    ] {
        let refused = router.quarantine(&bad).await.unwrap_err();
        assert_eq!(refused.code(), &guild_roles::code::QUARANTINE, "{bad:?}");
    }
    // For a while only.
    let until_ms = market.clock.now_ms() + 10;
    let short = Quarantine { until_ms: Some(until_ms), ..quarantine(OTHER, "d", false) };
    router.quarantine(&short).await.unwrap();
    until(&market.clock, "the time is over", || async { market.clock.now_ms() >= until_ms }).await;
    assert_eq!(router.take_back().await.unwrap(), 1);
    assert_eq!(market.status(OTHER).await.unwrap().0, Status::Conditional);
}

/// What is significant has left, and can be read by nobody else.
async fn copied(market: &Market, hub: &crate::town::Hub) {
    let wraps = || hub.published(&Filter::kinds([kind::GIFT_WRAP]));
    until(&market.clock, "copies leave", || async { !wraps().is_empty() }).await;
    let router = market.buyer.router();
    let found = router.copies(Arc::new(key(1))).await.unwrap();
    assert!(found.messages >= 3 && found.same >= found.messages, "{found:?}");
    assert_eq!(found.other, Vec::<i64>::new());
    let foreign = router.copies(Arc::new(key(CHEAT))).await.unwrap();
    assert_eq!((foreign.messages, foreign.same), (0, 0));
}

/// What readers see: all of it the owner, strangers only if they may.
async fn shown(market: &Market) {
    let stranger = market.explorer();
    let owner = stranger.for_owner();
    assert_eq!(stranger.matrix(Page::first(10)).await.unwrap(), None);
    assert!(stranger.explained(task()).await.unwrap().is_none());
    assert!(stranger.provider(who(GOOD)).await.unwrap().unwrap().routing.is_empty());
    let sheet = owner.matrix(Page::first(2)).await.unwrap().unwrap();
    assert_eq!((sheet.works.len(), sheet.rows.items.len()), (1, 2));
    let rest = Page { after: sheet.rows.next, limit: 2 };
    let rest = owner.matrix(rest).await.unwrap().unwrap();
    assert_eq!((rest.rows.items.len(), rest.rows.next), (1, None));
    let provider = owner.provider(who(GOOD)).await.unwrap().unwrap();
    assert_eq!(provider.routing[0].task, task());
    assert!(provider.trust[0].points.len() > 2, "{:?}", provider.trust);
    let told = owner.explained(task()).await.unwrap().unwrap();
    assert_eq!(told.parties.len(), 3);
    let wanted = Wanted { tier: Some(Tier::Below), ..Wanted::default() };
    let below = owner.providers(Page::first(10), wanted).await.unwrap();
    let keys: Vec<&str> = below.items.iter().map(|one| one.provider.npub.as_str()).collect();
    assert_eq!(keys, [who(CHEAT).npub()]);
    let wanted = Wanted { status: Some(Status::Conditional), ..Wanted::default() };
    assert_eq!(owner.providers(Page::first(10), wanted).await.unwrap().items.len(), 3);
    let requests = owner.requests(Page::first(50)).await.unwrap().items;
    let third = requests.iter().find(|one| one.providers[0].npub == who(GOOD).npub()).unwrap();
    let story = owner.request(third.request_id.parse().unwrap()).await.unwrap().unwrap();
    let chosen = story.timeline.iter().find(|step| step.text.starts_with("Chosen by ")).unwrap();
    assert_eq!(chosen.author.as_ref().unwrap().npub, who(GOOD).npub());
}

#[test]
fn what_was_learnt_decides_who_is_hired() {
    let mut town = Town::new();
    let node = town.node();
    let (market, hub) = (Market::in_town(&mut town, node), town.hub.clone());
    town.tell(story(market, hub));
}

#[test]
fn what_was_learnt_decides_on_a_server_too() {
    let mut town = Town::new();
    let node = town.node_on_postgres();
    let (market, hub) = (Market::in_town(&mut town, node), town.hub.clone());
    town.tell(story(market, hub));
}
