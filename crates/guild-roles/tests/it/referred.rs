//! Orders whose input is too large for an event: it lies in the content of the buyer, and the request names its hash.

use std::collections::BTreeMap;

use guild_ledger::policy::Bundle;
use guild_market::dossier::{self, About, Folder, Options, gather};
use guild_market::order::State;
use guild_market::reference;
use guild_protocol::env::{Clock, Signer};
use guild_protocol::nostr::Filter;
use guild_protocol::nostr::job::{InputType, Request};
use guild_protocol::schema::Registry;
use guild_roles::buyer::{self, Choice};
use guild_roles::reference::refer_to;

use crate::town::{PRICE, Town, key, until_known, wish};

/// What is wrong with evidence, by codes.
fn problems(files: &BTreeMap<String, Vec<u8>>) -> Vec<&'static str> {
    let registry = Registry::builtin();
    let report = dossier::check(&Folder::of(files), Options { registry: &registry, rerun: true });
    report.problems().map(|(_, problem)| problem.code.name).collect()
}

/// A buyer that refers to nearly every input, and a provider that reads what is kept at the buyer.
fn town() -> (Town, buyer::Buyer, guild_roles::provider::Provider) {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    town.share_content_of(nodes.0);
    let options = buyer::Options { inline_max_bytes: 10, ..buyer::Options::default() };
    let buyer = town.buyer_with(nodes.0, key(1), options, Bundle::builtin().unwrap());
    let provider = town.provider(nodes.1, key(2));
    (town, buyer, provider)
}

#[test]
fn an_input_that_is_referred_to_is_read_by_its_hash_done_and_proven() {
    let (town, buyer, provider) = town();
    let (store, clock, hub) = (town.store(0).clone(), town.clock.clone(), town.hub.clone());
    town.tell(async move {
        let them = provider.public_key();
        until_known(&clock, &store, them).await;
        let posted = buyer.hire(wish("hello", Choice::Chosen(them))).await.unwrap();
        let done = buyer.wait(&posted.order_id).await.unwrap();
        assert_eq!((done.state, done.paid), (State::Released, Some(PRICE)));
        let request = hub.published(&Filter::kinds([5050])).remove(0);
        let read = Request::parse(&request, None).unwrap();
        assert_eq!((read.inputs.len(), &read.inputs[0].input_type), (1, &InputType::Url));
        assert!(read.inputs[0].data.starts_with("http://town.example/ipfs/baf"), "{read:?}");
        // Whoever has the evidence has the input too, and sees when it is another.
        let about = About::Request(done.request_id);
        let gathered = store.read(move |rx| gather(rx, &about, false)).await.unwrap();
        assert_eq!(problems(&gathered.files), Vec::<&str>::new());
        let input = gathered.files.keys().find(|name| name.starts_with("inputs/")).unwrap();
        let mut forged = gathered.files.clone();
        let text = String::from_utf8(forged[input].clone()).unwrap().replace("hello", "jello");
        forged.insert(input.clone(), text.into_bytes());
        assert_eq!(problems(&forged), ["dossier.changed", "dossier.input"]);
    });
}

#[test]
fn an_input_is_kept_until_nobody_looks_at_its_request_any_more() {
    let (town, buyer, provider) = town();
    let (store, clock) = (town.store(0).clone(), town.clock.clone());
    let content = town.content.clone().unwrap();
    town.tell(async move {
        let them = provider.public_key();
        until_known(&clock, &store, them).await;
        let pins = async || content.pins(None).await.unwrap();
        let let_go = async |at_ms| store.write(move |tx| reference::let_go(tx, at_ms)).await;
        let posted = buyer.hire(wish("hello", Choice::Chosen(them))).await.unwrap();
        assert_eq!(pins().await.len(), 1);
        let done = buyer.wait(&posted.order_id).await.unwrap();
        assert_eq!(done.state, State::Released);
        let over_ms = done.changed_ms + reference::KEPT_MS;
        let two_days_ms = 2 * 24 * 3_600_000;
        assert_eq!(let_go(posted.posted_ms + two_days_ms).await.unwrap(), (0, false));
        assert_eq!(let_go(over_ms - 1).await.unwrap(), (0, false));
        assert_eq!(pins().await.len(), 1, "whoever looks at the evidence finds it");
        assert_eq!(let_go(over_ms).await.unwrap(), (1, false));
        assert_eq!(pins().await, []);
        assert_eq!(let_go(over_ms + two_days_ms).await.unwrap(), (0, false));
    });
}

#[test]
fn what_no_request_came_to_name_is_let_go_and_what_is_referred_to_again_is_kept() {
    let (town, ..) = town();
    let (store, clock) = (town.store(0).clone(), town.clock.clone());
    let content = town.content.clone().unwrap();
    let refer = refer_to(content.clone(), store.clone(), clock.clone(), "http://x");
    town.tell(async move {
        let day_ms = 24 * 3_600_000;
        let now_ms = clock.now_ms();
        let let_go = async |at_ms| store.write(move |tx| reference::let_go(tx, at_ms)).await;
        refer(b"never asked for".to_vec()).await.unwrap();
        assert_eq!(let_go(now_ms + day_ms / 2).await.unwrap(), (0, false));
        assert_eq!(let_go(now_ms + 3 * day_ms).await.unwrap(), (1, false));
        assert_eq!(content.pins(None).await.unwrap(), []);
        let address = refer(b"never asked for".to_vec()).await.unwrap();
        assert!(address.starts_with("http://x/ipfs/"));
        assert_eq!(content.pins(None).await.unwrap().len(), 1);
        assert_eq!(let_go(clock.now_ms() + day_ms / 2).await.unwrap(), (0, false));
    });
}

#[test]
fn a_private_input_stays_in_its_request() {
    let (town, buyer, provider) = town();
    let (store, clock, hub) = (town.store(0).clone(), town.clock.clone(), town.hub.clone());
    town.tell(async move {
        let them = provider.public_key();
        until_known(&clock, &store, them).await;
        let wanted = buyer::Wish { private: true, ..wish("hello", Choice::Chosen(them)) };
        let posted = buyer.hire(wanted).await.unwrap();
        assert_eq!(buyer.wait(&posted.order_id).await.unwrap().state, State::Released);
        let request = hub.published(&Filter::kinds([5050])).remove(0);
        let read = Request::parse(&request, Some(&key(2))).unwrap();
        assert_eq!(read.inputs[0].input_type, InputType::Text);
        assert_eq!(key(1).public_key(), request.pubkey);
    });
}
