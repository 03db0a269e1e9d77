//! A buyer and providers on nodes of their own: what each believes, does, and books.

use guild_market::job;
use guild_market::order::State;
use guild_protocol::env::Signer;
use guild_protocol::nostr::{Filter, kind, tag};
use guild_roles::buyer::Choice;
use guild_store::Store;

use crate::town::{PRICE, Town, key, owed, payable, until, until_known, wallet, wish};

/// The two books say the same.
async fn agree(buyer: (&Store, u8), provider: (&Store, u8), units: i64) {
    let (payable, owed) = (
        payable(buyer.0, key(provider.1).public_key()).await,
        owed(provider.0, key(buyer.1).public_key()).await,
    );
    assert_eq!((payable, owed), (units, units));
}

fn a_job_is_done_and_paid(
    private: bool,
    town: &mut Town,
    nodes: (usize, usize),
) -> impl Future<Output = ()> + use<> {
    let (a, b) = nodes;
    let (buyer, provider) = (town.buyer(a, key(1)), town.provider(b, key(2)));
    let (stores, clock, hub) =
        ((town.store(a).clone(), town.store(b).clone()), town.clock.clone(), town.hub.clone());
    async move {
        let them = provider.public_key();
        until_known(&clock, &stores.0, them).await;
        let mut wanted = wish("hello", Choice::Best);
        wanted.private = private;
        let posted = buyer.hire(wanted.clone()).await.unwrap();
        assert_eq!((posted.provider, posted.price), (Some(them), Some(PRICE)));
        let done = buyer.wait(&posted.order_id).await.unwrap();
        assert_eq!((done.state, done.paid), (State::Released, Some(PRICE)));
        // Ordering again is the same order.
        assert_eq!(buyer.hire(wanted).await.unwrap(), done);
        until(&clock, "the receipt is taken", || async {
            let job = provider.job(done.request_id).await.unwrap().unwrap();
            job.state == job::State::Paid
        })
        .await;
        agree((&stores.0, 1), (&stores.1, 2), PRICE.0).await;
        assert_eq!(wallet(&stores.0).await, 100_000 - PRICE.0);
        let sealed = |kinds: Vec<u16>| {
            let all = hub.published(&Filter::kinds(kinds));
            (all.len(), all.iter().all(|event| tag::has(&event.tags, "encrypted")))
        };
        assert_eq!(sealed(vec![5050]), (1, private));
        assert_eq!(sealed(vec![6050]), (1, private));
        assert_eq!(sealed(vec![kind::APP_DATA]), (1, private));
        let progress = buyer.progress(done.order_id.clone()).await.unwrap();
        assert_eq!(
            progress.answers.iter().map(|answer| answer.kind).collect::<Vec<_>>(),
            [7000, 6050]
        );
    }
}

#[test]
fn a_job_in_the_open_is_done_verified_and_paid_once() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    let story = a_job_is_done_and_paid(false, &mut town, nodes);
    town.tell(story);
}

#[test]
fn a_private_job_is_done_verified_and_paid_once() {
    let mut town = Town::new();
    let nodes = (town.node(), town.node());
    let story = a_job_is_done_and_paid(true, &mut town, nodes);
    town.tell(story);
}

#[test]
fn on_a_server_it_is_the_same() {
    let mut town = Town::new();
    let nodes = (town.node_on_postgres(), town.node_on_postgres());
    let story = a_job_is_done_and_paid(true, &mut town, nodes);
    town.tell(story);
}
