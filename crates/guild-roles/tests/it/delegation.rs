//! Work that several do, between whole nodes: liars, the slow and the dead, a judge, and a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use guild_market::claim::Claimant;
use guild_market::delegation::{self, Means, Reason, Standing, State, Step, vote};
use guild_market::job::Refusal;
use guild_market::order::{self, State as OrderState};
use guild_market::receipts;
use guild_market::verify::{Options as Strictness, Subject, verify_ballot};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Signer};
use guild_protocol::identity::PublicKey;
use guild_protocol::json::to_canonical;
use guild_protocol::nostr::job::{Feedback, Status};
use guild_protocol::nostr::{Filter, kind};
use guild_protocol::schema::{Registry, SchemaId};
use guild_roles::buyer::{self, Ask, Buyer, Choice, Course, Criticality, Delegation, Wanted, Wish};
use guild_roles::provider::{self, Embedder, Task, Worker};
use guild_roles::router::TaskType;
use guild_store::Store;
use serde_json::{Value, json};

use crate::attacks::{Alone, Cheat, honest, result};
use crate::buyer::card;
use crate::town::{
    Hand, Hold, Hub, PRICE, Town, embedding, key, payable, until, until_known, wallet, wish,
};

const HONEST: u8 = 4;
const SLOW: u8 = 5;
const DEAD: u8 = 6;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn wanted(text: &str, criticality: Criticality, budget: i64) -> Wanted {
    let wish = Wish { budget: Msat(budget), ..wish(text, Choice::Best) };
    Wanted { wish, criticality, fewer_ok: false }
}

/// A buyer, and what is needed to look at what it does.
struct Hall {
    buyer: Buyer,
    store: Store,
    clock: Arc<Hand>,
    hub: Hub,
}

impl Hall {
    fn with(town: &mut Town, judge: Option<Ask>) -> Hall {
        let node = town.node();
        let buyer = town.buyer_with_judge(node, key(1), buyer::Options::default(), judge);
        Hall::of(town, node, buyer)
    }

    fn of(town: &Town, node: usize, buyer: Buyer) -> Hall {
        let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
        Hall { buyer, store, clock, hub }
    }

    async fn funded(&self) {
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    async fn knows(&self, n: u8) {
        until_known(&self.clock, &self.store, who(n)).await;
    }

    async fn course(&self, delegation: &Delegation) -> Course {
        self.buyer.course(delegation.delegation_id.clone()).await.unwrap()
    }

    /// Nothing is wrong with the money, nor with who got it.
    async fn audited(&self) {
        let read = self.store.read(guild_ledger::audit::run);
        assert_eq!(read.await.unwrap().problems, Vec::<String>::new());
        let read = self.store.read(delegation::audit::run);
        assert_eq!(read.await.unwrap().problems, Vec::<String>::new());
    }

    async fn trust(&self, n: u8) -> Option<u32> {
        let matrix = self.buyer.router().current().await.unwrap();
        let task: TaskType = embedding().as_str().parse().unwrap();
        matrix.entry(&task, &who(n)).map(|entry| entry.trust_bp)
    }
}

fn shown(course: &Course) -> Vec<String> {
    let replica = |(replica, progress): &(delegation::Replica, buyer::Progress)| {
        format!("{} {}", replica.standing.as_str(), progress.order.state.as_str())
    };
    let mut shown: Vec<String> = course.replicas.iter().map(replica).collect();
    shown.sort();
    shown
}

#[test]
fn two_colluding_liars_one_slow_and_one_dead_of_five() {
    let mut town = Town::new();
    let hall = Hall::with(&mut town, None);
    for n in [2, 3, HONEST] {
        let node = town.node();
        let worker: Arc<dyn Worker> =
            if n == HONEST { Arc::new(Embedder) } else { Arc::new(Cheat) };
        town.provider_with(node, key(n), Town::offer(), worker);
    }
    town.tell(async move {
        hall.funded().await;
        for n in [SLOW, DEAD] {
            hall.hub.post(card(&key(n), PRICE)).await;
        }
        for n in [2, 3, HONEST, SLOW, DEAD] {
            hall.knows(n).await;
        }
        let asked = wanted("critical", Criticality::Critical, 5_000);
        let posted = hall.buyer.delegate(asked.clone()).await.unwrap();
        assert_eq!((posted.replicas, posted.needed), (5, 3));
        let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided, "{course:?}");
        assert_eq!(
            shown(&course),
            [
                "agrees released",
                "cancelled cancelled",
                "cancelled cancelled",
                "differs withheld",
                "differs withheld"
            ]
        );
        // The right answer, and everybody's money.
        let first = &course.replicas[0].1.order;
        let right: Value = serde_json::from_str(&honest(first, who(HONEST)).await).unwrap();
        let got: Value = serde_json::from_str(course.output_text().unwrap()).unwrap();
        // In one form: 0 and 0.0 are one number.
        let [got, right] = [got, right].map(|output| to_canonical(&output["embeddings"]).unwrap());
        assert_eq!(got, right);
        let paid = async || {
            let mut paid = Vec::new();
            for n in [2, 3, HONEST, SLOW, DEAD] {
                paid.push(payable(&hall.store, who(n)).await);
            }
            (paid, wallet(&hall.store).await)
        };
        let books = (vec![0, 0, PRICE.0, 0, 0], 100_000 - PRICE.0);
        assert_eq!(paid().await, books);
        hall.audited().await;
        let kept = hall.store.read(|rx| receipts::page_before(rx, None, 9)).await.unwrap();
        assert_eq!(kept.len(), 3, "one for who was paid, and two that say why not");
        // Whoever was still at it was told to stop.
        let taken_back = Filter { kinds: Some([kind::DELETION].into()), ..Filter::default() };
        until(&hall.clock, "both are told", || async {
            hall.hub.published(&taken_back).len() == 2
        })
        .await;
        // The liars are believed less.
        let trusted = hall.trust(HONEST).await.unwrap();
        for liar in [2, 3] {
            assert!(hall.trust(liar).await.unwrap() < trusted);
        }
        assert_eq!(hall.trust(DEAD).await, None, "nobody waited for it");
        // The slow one delivers all the same, and it changes nothing.
        let slow = course.replicas.iter().find(|(one, _)| one.provider == who(SLOW)).unwrap();
        let order = &slow.1.order;
        hall.hub.post(result(order, &honest(order, who(SLOW)).await, &key(SLOW))).await;
        until(&hall.clock, "it is late", || async {
            hall.course(&posted)
                .await
                .replicas
                .iter()
                .any(|(one, _)| one.standing == Standing::Late)
        })
        .await;
        let after = hall.course(&posted).await;
        assert_eq!(after.delegation, course.delegation);
        assert_eq!(paid().await, books);
        // Asking again is the same, and one of them cannot be given up alone.
        assert_eq!(hall.buyer.delegate(asked).await.unwrap(), after.delegation);
        let alone = hall.buyer.cancel(first.order_id.clone()).await.unwrap_err();
        assert_eq!(alone.code().name, "delegation.part");
        hall.audited().await;
    });
}

#[test]
fn when_those_who_were_asked_are_late_one_more_is_asked() {
    let mut town = Town::new();
    let hall = Hall::with(&mut town, None);
    let node = town.node();
    town.provider(node, key(HONEST));
    town.tell(async move {
        hall.funded().await;
        for n in [SLOW, DEAD] {
            hall.hub.post(card(&key(n), Msat(100))).await;
        }
        for n in [HONEST, SLOW, DEAD] {
            hall.knows(n).await;
        }
        // The two cheapest are asked first, and say nothing.
        let posted =
            hall.buyer.delegate(wanted("medium", Criticality::Medium, 2_000)).await.unwrap();
        assert_eq!(wallet(&hall.store).await, 99_800);
        // One of them says how far it is.
        let first = hall.course(&posted).await.replicas[0].1.order.clone();
        let request = first.request().unwrap();
        let mut feedback = Feedback::about(&request, Status::Partial);
        feedback.content = "a first part".to_owned();
        let by = if first.provider == Some(who(SLOW)) { SLOW } else { DEAD };
        hall.hub.post(feedback.draft(request.created_at).unwrap().sign(&key(by)).unwrap()).await;
        until(&hall.clock, "the part is seen", || async {
            let course = hall.course(&posted).await;
            course.replicas[0].1.partials.values().any(|part| part == "a first part")
        })
        .await;
        hall.clock.forward(31_000);
        let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided);
        assert_eq!(course.replicas.len(), 3);
        let (hedge, progress) = &course.replicas[2];
        assert_eq!((hedge.reason, hedge.provider), (Reason::Hedge, who(HONEST)));
        assert_eq!(progress.order.state, OrderState::Released);
        assert_eq!(wallet(&hall.store).await, 100_000 - PRICE.0);
        hall.audited().await;
    });
}

#[test]
fn fewer_operators_than_asked_for_are_refused_unless_they_are_enough() {
    let mut town = Town::new();
    let hall = Hall::with(&mut town, None);
    town.tell(async move {
        hall.funded().await;
        for n in [2, 3] {
            hall.hub.post(card(&key(n), PRICE)).await;
            hall.knows(n).await;
        }
        let delegate = async |wanted: Wanted| hall.buyer.delegate(wanted).await;
        let few = wanted("few", Criticality::High, 3_000);
        let refused = delegate(few.clone()).await.unwrap_err();
        assert_eq!(refused.code().name, "delegation.too_few");
        assert!(refused.to_string().contains("by 3 distinct operators, and 2 do"), "{refused}");
        // For less than they ask for, there is nobody.
        let poor = wanted("poor", Criticality::Medium, 1_000);
        assert_eq!(delegate(poor).await.unwrap_err().code().name, "delegation.too_few");
        let posted = delegate(Wanted { fewer_ok: true, ..few }).await.unwrap();
        assert_eq!((posted.replicas, posted.needed), (2, 2));
        assert_eq!(wallet(&hall.store).await, 100_000 - 2 * PRICE.0);
        let given_up = hall.buyer.give_up(posted.delegation_id).await.unwrap();
        assert_eq!(given_up.state, State::Cancelled);
        assert_eq!(wallet(&hall.store).await, 100_000);
        let named = Wanted {
            wish: wish("named", Choice::Chosen(who(2))),
            ..wanted("named", Criticality::High, 3_000)
        };
        assert_eq!(delegate(named).await.unwrap_err().code().name, "delegation.malformed");
        hall.audited().await;
    });
}

pub(crate) fn rerank() -> SchemaId {
    "oa.retrieval_rerank.v1".parse().unwrap()
}

/// One who thinks that this candidate is the best.
pub(crate) struct Ranker(pub(crate) u32);

impl Worker for Ranker {
    fn schema_ids(&self) -> Vec<SchemaId> {
        vec![rerank()]
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let best = json!({"rank": 1, "id": self.0.to_string(), "score": 0.5});
        let provenance = json!({"model": "m", "provider_id": task.provider.npub()});
        Box::pin(async move { Ok(json!({"topk": [best], "provenance": provenance})) })
    }
}

fn ranking(text: &str) -> Wanted {
    let candidates: Vec<Value> =
        (0..5).map(|n| json!({"id": n.to_string(), "content": "c"})).collect();
    let mut wanted = wanted(text, Criticality::High, 3_000);
    wanted.wish.schema_id = rerank();
    wanted.wish.input = json!({"user_task": text, "candidates": candidates});
    wanted
}

/// Three who rank like this, and somebody who is asked if they do not agree.
fn ranked(opinions: [u32; 3], judge: Option<Ask>, story: impl AsyncFnOnce(Hall)) {
    let mut town = Town::new();
    let hall = Hall::with(&mut town, judge);
    for (n, best) in (2..).zip(opinions) {
        let node = town.node();
        let offer = provider::Options { prices: [(rerank(), PRICE)].into(), ..Town::offer() };
        town.provider_with(node, key(n), offer, Arc::new(Ranker(best)));
    }
    town.tell(async move {
        hall.funded().await;
        for n in [2, 3, 4] {
            hall.knows(n).await;
        }
        story(hall).await;
    });
}

#[test]
fn what_nobody_can_check_is_decided_by_most() {
    ranked([1, 1, 2], None, async |hall: Hall| {
        let posted = hall.buyer.delegate(ranking("most")).await.unwrap();
        let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided);
        let output: Value = serde_json::from_str(course.output_text().unwrap()).unwrap();
        assert_eq!(output["topk"][0]["id"], "1");
        assert_eq!(payable(&hall.store, who(2)).await, PRICE.0);
        assert_eq!(payable(&hall.store, who(3)).await, PRICE.0);
        assert_eq!(payable(&hall.store, who(4)).await, 0);
        hall.audited().await;
    });
}

/// A judge that says this, and counts how often it is asked.
fn judge(says: &str) -> (Ask, Arc<AtomicUsize>) {
    let (says, asked) = (says.to_owned(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    let ask: Ask = Arc::new(move |prompt| {
        assert!(prompt.user.contains("kind_of_work") && !prompt.user.contains("npub1"));
        count.fetch_add(1, Ordering::SeqCst);
        let says = says.clone();
        Box::pin(async move { Ok(says) })
    });
    (ask, asked)
}

#[test]
fn where_nobody_agrees_a_judge_chooses_one_of_them() {
    let (ask, asked) = judge(r#"{"winner": "B", "reason": "it answers the question"}"#);
    ranked([1, 2, 3], Some(ask), async move |hall: Hall| {
        let posted = hall.buyer.delegate(ranking("judged")).await.unwrap();
        let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided);
        assert!(course.delegation.why.unwrap().ends_with("it answers the question"));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(wallet(&hall.store).await, 100_000 - PRICE.0, "one of the three is paid");
        hall.audited().await;
    });
}

#[test]
fn rubbish_of_a_judge_or_none_at_all_decides_nothing() {
    for says in [Some("B, of course"), None] {
        let ask = says.map(|says| judge(says).0);
        ranked([1, 2, 3], ask, async |hall: Hall| {
            let posted = hall.buyer.delegate(ranking("undecided")).await.unwrap();
            let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
            assert_eq!(course.delegation.state, State::Undecided);
            assert_eq!(shown(&course), ["differs withheld"; 3]);
            assert_eq!((course.paid(), wallet(&hall.store).await), (Msat(0), 100_000));
            hall.audited().await;
        });
    }
}

/// The process that decided died before it could pay.
#[test]
fn what_was_decided_and_not_settled_is_settled_by_whoever_looks_next() {
    let mut town = Town::new();
    let (node, hold) = (town.node(), Hold::default());
    let buyer = town.buyer_held(node, key(1), hold.clone());
    let hall = Hall::of(&town, node, buyer);
    town.tell(async move {
        hall.funded().await;
        for n in [2, 3] {
            hall.hub.post(card(&key(n), PRICE)).await;
            hall.knows(n).await;
        }
        let few = Wanted { fewer_ok: true, ..wanted("crash", Criticality::High, 3_000) };
        let posted = hall.buyer.delegate(few).await.unwrap();
        hold.stop();
        for (_, progress) in hall.course(&posted).await.replicas {
            let order = progress.order;
            let n = if order.provider == Some(who(2)) { 2 } else { 3 };
            let event = result(&order, &honest(&order, who(n)).await, &key(n));
            let now_ms = hall.clock.now_ms();
            let dead = Claimant { token: "dead".to_owned(), ttl_ms: 1, at_once: 1 };
            let taken = hall.store.write(move |tx| {
                let order = order::deliver(tx, &event, &key(1), &dead, now_ms)?.order;
                let registry = Registry::builtin();
                let (job, text) = (order.job(&registry)?, order.output_text.clone().unwrap());
                let provider = order.deliverer()?;
                let subject = Subject { job: &job, provider: &provider, output_text: &text };
                let verdict = verify_ballot(&registry, &Strictness::default(), &subject, &[])?;
                let says = vote::projection(&registry, &job, &text);
                let claim = order.claimed.held_by(&dead).unwrap();
                delegation::voted(tx, &order.order_id, &claim, (&verdict, says), now_ms)
            });
            taken.await.unwrap();
        }
        let (id, now_ms) = (posted.delegation_id.clone(), hall.clock.now_ms());
        let stepped = hall.store.write(move |tx| {
            let (registry, options) = (Registry::builtin(), delegation::Options::default());
            let means = Means { registry: &registry, options: &options, has_judge: false };
            delegation::step(tx, &id, means, now_ms)
        });
        assert!(matches!(stepped.await.unwrap(), Step::Closed(_)));
        assert!(!hall.course(&posted).await.is_settled());
        hold.go_on();
        let course = hall.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(shown(&course), ["agrees released"; 2]);
        assert_eq!(wallet(&hall.store).await, 100_000 - 2 * PRICE.0);
        hall.audited().await;
    });
}

/// A plain order is what it was.
#[test]
fn an_order_whose_key_looks_like_that_of_a_replica_stands_for_itself() {
    let mut town = Town::new();
    let alone = Alone::in_town(&mut town);
    town.tell(async move {
        let order = alone.hire("delegation_0#1", Choice::Chosen(who(2))).await;
        alone.hub.post(result(&order, &honest(&order, who(2)).await, &key(2))).await;
        let done = alone.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!(done.state, OrderState::Released);
    });
}
