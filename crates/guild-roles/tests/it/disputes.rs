//! Two nodes that do not agree about a result: what each hears, what the money does, and who gains nothing by it.

use std::sync::Arc;

use guild_market::order::State as OrderState;
use guild_market::review::{self, Options as Reviewing};
use guild_market::routing::log;
use guild_market::{dispute, job, receipts};
use guild_protocol::env::Signer;
use guild_protocol::identity::PublicKey;
use guild_protocol::nostr::EventId;
use guild_roles::buyer::{Buyer, Choice, Order};
use guild_roles::disputes::{
    Answer, By, Dispute, DisputeId, Disputes, Filing, Outcome, Reason, Side, State,
};
use guild_roles::provider::{Embedder, Worker};
use guild_roles::reviews::State as ReviewState;
use guild_roles::router::TaskType;
use guild_store::Store;

use crate::attacks::Cheat;
use crate::town::{Hand, Town, embedding, key, owed, payable, until, until_known, wallet, wish};

const BUYER: u8 = 1;
const GOOD: u8 = 2;
const CHEAT: u8 = 3;
const ARBITER: u8 = 9;
/// Long enough for every deadline.
const DAYS_MS: i64 = 4 * 24 * 3_600_000;
const FULL: i64 = 100_000;
const PRICE: i64 = 700;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn filing(request_id: EventId, reason: Reason) -> Filing {
    let statement = Some("so it is".to_owned());
    Filing { request_id, reason, statement, evidence: Vec::new(), arbiter: None }
}

async fn dispute_of(store: &Store, request_id: EventId, side: Side) -> Option<Dispute> {
    store.read(move |rx| dispute::of_request(rx, &request_id, side)).await.unwrap()
}

async fn until_dispute(
    clock: &Hand,
    store: &Store,
    (request_id, side): (EventId, Side),
    is: impl Fn(&Dispute) -> bool,
) -> Dispute {
    until(clock, "the dispute is so", || async {
        dispute_of(store, request_id, side).await.is_some_and(|one| is(&one))
    })
    .await;
    dispute_of(store, request_id, side).await.unwrap()
}

async fn until_job(clock: &Hand, store: &Store, request_id: EventId, is: job::State) {
    until(clock, "the provider has heard of it", || async {
        let found = store.read(move |rx| job::find(rx, &request_id)).await.unwrap();
        found.is_some_and(|job| job.state == is)
    })
    .await;
}

async fn problems(store: &Store) -> Vec<String> {
    let mut found = store.read(dispute::audit::run).await.unwrap().problems;
    found.extend(store.read(guild_ledger::audit::run).await.unwrap().problems);
    found
}

/// A buyer's node and one of a provider, each with its disputes.
struct Two {
    buyer: Buyer,
    ours: Disputes,
    theirs: Disputes,
    here: Store,
    there: Store,
    clock: Arc<Hand>,
}

impl Two {
    fn new(town: &mut Town, provider: u8, worker: Arc<dyn Worker>) -> Two {
        let (here, there) = (town.node(), town.node());
        let buyer = town.buyer(here, key(BUYER));
        town.provider_with(there, key(provider), Town::offer(), worker);
        let ours = town.disputes(here, (key(BUYER), key(20)));
        let theirs = town.disputes(there, (key(21), key(provider)));
        let (here, there) = (town.store(here).clone(), town.store(there).clone());
        Two { buyer, ours, theirs, here, there, clock: town.clock.clone() }
    }

    async fn hired(&self, text: &str, provider: u8) -> Order {
        until_known(&self.clock, &self.here, who(provider)).await;
        until(&self.clock, "the wallet is full", || async { wallet(&self.here).await > 0 }).await;
        let order = self.buyer.hire(wish(text, Choice::Chosen(who(provider)))).await.unwrap();
        self.buyer.wait(&order.order_id).await.unwrap()
    }
}

/// Hired and refused again and again, a cheat disputes all of it; beside it somebody honest works.
#[test]
fn griefing_by_disputes_gains_nothing() {
    let mut town = Town::new();
    let two = Two::new(&mut town, CHEAT, Arc::new(Cheat));
    let honest = town.node();
    town.provider_with(honest, key(GOOD), Town::offer(), Arc::new(Embedder));
    let honest = town.store(honest).clone();
    town.tell(async move {
        let Two { theirs, here, there, clock, .. } = &two;
        for n in 0..5 {
            let order = two.hired(&format!("bad {n}"), CHEAT).await;
            assert_eq!(order.state, OrderState::Withheld);
            let request_id = order.request_id;
            until_job(clock, there, request_id, job::State::Withheld).await;
            theirs.file(filing(request_id, Reason::VerdictWrong)).await.unwrap();
            let about = (request_id, Side::Buyer);
            let ours = until_dispute(clock, here, about, |one| one.state.is_over()).await;
            assert_eq!(ours.outcome, Some(Outcome::Withhold));
            let by = if n < 3 { By::Rule } else { By::Record };
            assert_eq!(ours.by, Some(by), "{n}");
            let about = (request_id, Side::Provider);
            let mine = until_dispute(clock, there, about, |one| one.state.is_over()).await;
            assert_eq!(mine.outcome, Some(Outcome::Withhold), "both nodes say the same");
            assert_eq!(wallet(here).await, FULL, "not one msat is lost, and none is held");
        }
        assert_eq!((payable(here, who(CHEAT)).await, owed(there, who(BUYER)).await), (0, 0));
        // The honest one has its whole share, and the money it was promised.
        until_known(clock, here, who(GOOD)).await;
        for n in 0..3 {
            let order = two.buyer.hire(wish(&format!("any {n}"), Choice::Best)).await.unwrap();
            assert_eq!(order.provider, Some(who(GOOD)), "nobody hires the cheat any more");
            let order = two.buyer.wait(&order.order_id).await.unwrap();
            assert_eq!(order.state, OrderState::Released);
            until_job(clock, &honest, order.request_id, job::State::Paid).await;
        }
        assert_eq!(payable(here, who(GOOD)).await, 3 * PRICE);
        assert_eq!(owed(&honest, who(BUYER)).await, 3 * PRICE);
        assert_eq!(wallet(here).await, FULL - 3 * PRICE);
        let task: TaskType = embedding().as_str().parse().unwrap();
        let entry = here.read(move |rx| log::latest(rx, &task, &who(CHEAT))).await.unwrap();
        let entry = entry.unwrap();
        assert_eq!(entry.jobs, 10, "five refusals, and five disputes that it lost");
        for store in [here, there, &honest] {
            assert_eq!(problems(store).await, Vec::<String>::new());
        }
    });
}

/// The buyer says that paid work is stolen. The provider gives in, and both books agree; or it does not.
#[test]
fn what_was_paid_comes_back_if_the_provider_gives_in() {
    let mut town = Town::new();
    let two = Two::new(&mut town, GOOD, Arc::new(Embedder));
    town.tell(async move {
        let Two { ours, theirs, here, there, clock, .. } = &two;
        for (n, gives_in) in [(0, true), (1, false)] {
            let order = two.hired(&format!("job {n}"), GOOD).await;
            assert_eq!(order.state, OrderState::Released);
            let request_id = order.request_id;
            until_job(clock, there, request_id, job::State::Paid).await;
            let filed = ours.file(filing(request_id, Reason::Copied)).await.unwrap();
            assert_eq!((filed.state, filed.held.0), (State::Open, PRICE));
            let (mine, yours) = ((request_id, Side::Buyer), (request_id, Side::Provider));
            until_dispute(clock, there, yours, |_| true).await;
            let id: DisputeId = filed.dispute_id;
            let said = Answer { statement: Some("it is not".to_owned()), ..Answer::default() };
            theirs.answer(id.clone(), said).await.unwrap();
            until_dispute(clock, here, mine, |one| one.state == State::Answered).await;
            let outcome = match gives_in {
                true => {
                    theirs.resolve(id.clone(), Outcome::Withhold, None).await.unwrap();
                    Outcome::Withhold
                }
                false => {
                    clock.forward(DAYS_MS);
                    Outcome::Release
                }
            };
            let over = until_dispute(clock, here, mine, |one| one.state.is_over()).await;
            assert_eq!(over.outcome, Some(outcome));
            until_dispute(clock, there, yours, |one| one.outcome == Some(outcome)).await;
            let said = here.read(move |rx| dispute::said_in(rx, &id, Side::Buyer)).await.unwrap();
            assert!(said.iter().any(|one| one.content.contains("it is not")), "both are kept");
            let due = if gives_in { 0 } else { PRICE };
            assert_eq!(wallet(here).await, FULL - due);
            assert_eq!((payable(here, who(GOOD)).await, owed(there, who(BUYER)).await), (due, due));
        }
        for store in [here, there] {
            assert_eq!(problems(store).await, Vec::<String>::new());
        }
    });
}

/// Bad work that its buyer pays all the same, because both have named somebody who says so. Meanwhile nothing is
/// said of it in public.
#[test]
fn an_arbiter_decides_and_a_review_waits_for_that() {
    let mut town = Town::new();
    let two = Two::new(&mut town, CHEAT, Arc::new(Cheat));
    let node = town.node();
    let judge = town.disputes(node, (key(ARBITER), key(22)));
    let judges = town.store(node).clone();
    let reviewing = Reviewing { ours: [who(BUYER)].into(), ..Reviewing::default() };
    town.reviews(0, key(BUYER), reviewing);
    town.tell(async move {
        let Two { theirs, here, there, clock, .. } = &two;
        let order = two.hired("bad", CHEAT).await;
        let request_id = order.request_id;
        until_job(clock, there, request_id, job::State::Withheld).await;
        // A day later its review is due.
        clock.forward(23 * 3_600_000);
        let named = Filing { arbiter: Some(who(ARBITER)), ..filing(request_id, Reason::Terms) };
        let id = theirs.file(named).await.unwrap().dispute_id;
        let mine = (request_id, Side::Buyer);
        let held = until_dispute(clock, here, mine, |_| true).await;
        assert_eq!((held.held.0, held.arbiter), (PRICE, Some(who(ARBITER))));
        assert_eq!(wallet(here).await, FULL - PRICE, "it is held");
        clock.forward(2 * 3_600_000);
        let reviews = || async {
            let all = here.read(|rx| review::page_before(rx, None, true, 10)).await.unwrap();
            all.first().map(|row| row.state)
        };
        until(clock, "its review is held", || async { reviews().await == Some(ReviewState::Held) })
            .await;
        until_dispute(clock, &judges, (request_id, Side::Arbiter), |_| true).await;
        judge.resolve(id, Outcome::Release, Some("as agreed".to_owned())).await.unwrap();
        let paid = until_dispute(clock, here, mine, |one| one.moved.0 > 0).await;
        assert_eq!((paid.by, paid.moved.0), (Some(By::Arbiter), PRICE));
        let yours = (request_id, Side::Provider);
        let booked = until_dispute(clock, there, yours, |one| one.receipt_id.is_some()).await;
        assert_eq!(booked.moved.0, PRICE);
        assert_eq!(payable(here, who(CHEAT)).await, PRICE);
        assert_eq!(owed(there, who(BUYER)).await, PRICE);
        let hex = request_id.hex();
        let kept = there.read(move |rx| receipts::of_request(rx, &hex)).await.unwrap();
        assert_eq!(kept.len(), 2, "that it was withheld, and that it is paid");
        clock.forward(600_000);
        until(clock, "its review is out", || async {
            reviews().await == Some(ReviewState::Published)
        })
        .await;
        for store in [here, there, &judges] {
            assert_eq!(problems(store).await, Vec::<String>::new());
        }
    });
}

/// Somebody who is no part of it speaks: nothing is heard.
#[test]
fn nobody_disputes_the_work_of_others() {
    let mut town = Town::new();
    let two = Two::new(&mut town, GOOD, Arc::new(Embedder));
    let node = town.node();
    let thief = town.disputes(node, (key(30), key(31)));
    town.tell(async move {
        let Two { ours, here, .. } = &two;
        let order = two.hired("job", GOOD).await;
        let stolen = thief.file(filing(order.request_id, Reason::NotPaid)).await.unwrap_err();
        assert_eq!(stolen.code().name, "dispute.nothing_delivered");
        let unknown = DisputeId::of_request(&order.request_id);
        let unknown = ours.resolve(unknown, Outcome::Release, None).await.unwrap_err();
        assert_eq!(unknown.code().name, "dispute.unknown");
        assert_eq!(dispute_of(here, order.request_id, Side::Buyer).await, None);
        assert_eq!(payable(here, who(GOOD)).await, PRICE);
    });
}
