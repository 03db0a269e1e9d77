//! Those who want to be paid for what they do not do, between whole nodes. Every attack is held against the same: which
//! share of the work the honest get, what the buyer loses, what every book says of it, and that no audit finds a thing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use guild_market::delegation::State;
use guild_market::job::Refusal;
use guild_market::order::State as OrderState;
use guild_market::review::{self, Options as Reviewing};
use guild_market::routing::Hearsay;
use guild_market::{budget, delegation, dispute, health};
use guild_network::archive::{self, Verified};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::nostr::Filter;
use guild_protocol::nostr::announcement::{Announcement, JobPrices, Pricing};
use guild_protocol::nostr::job::{JobResult, Price};
use guild_protocol::nostr::review::{Form, Review};
use guild_protocol::nostr::unix_s;
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{self, Buyer, Choice, Course, Criticality, Delegation, Order, Wanted};
use guild_roles::provider::{self, Embedder, Task, Worker};
use guild_roles::router::{Policy, TaskType};
use guild_store::Store;
use serde_json::{Value, json};

use crate::attacks::{Cheat, result};
use crate::buyer::card;
use crate::delegation::{Ranker, rerank};
use crate::town::{
    Dice, Hand, Hub, PRICE, RELAY, T0, Town, embedding, key, payable, until, until_known, wallet,
    wish,
};

const FULL: i64 = 100_000;
const HONEST: [u8; 2] = [2, 3];
const HOSTILE: u8 = 30;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

/// What an attack may come to at worst.
struct Bounds {
    /// How many of the jobs the honest get, in hundredths, at least.
    honest_pct: usize,
    /// What is paid to those who attack, at most.
    loss: Msat,
}

/// A buyer, those who do what they are asked, and those who do not.
struct Field {
    buyer: Buyer,
    store: Store,
    clock: Arc<Hand>,
    hub: Hub,
    honest: Vec<u8>,
    hostile: Vec<u8>,
}

impl Field {
    fn in_town(town: &mut Town, workers: Vec<(u8, Msat, Arc<dyn Worker>)>) -> Field {
        let node = town.node();
        let buyer = town.buyer(node, key(1));
        for (n, price, worker) in workers {
            let prices = worker.schema_ids().into_iter().map(|id| (id, price)).collect();
            let offer = provider::Options { prices, ..Town::offer() };
            let theirs = town.node();
            town.provider_with(theirs, key(n), offer, worker);
        }
        let (store, clock, hub) = (town.store(node).clone(), town.clock.clone(), town.hub.clone());
        Field { buyer, store, clock, hub, honest: Vec::new(), hostile: Vec::new() }
    }

    async fn knows(&self, keys: &[u8]) {
        for n in keys {
            until_known(&self.clock, &self.store, who(*n)).await;
        }
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    async fn hire(&self, text: &str) -> Order {
        self.buyer.hire(wish(text, Choice::Best)).await.unwrap()
    }

    async fn done(&self, order: &Order) -> Order {
        self.buyer.wait(&order.order_id).await.unwrap()
    }

    fn is_hostile(&self, order: &Order) -> bool {
        self.hostile.iter().any(|n| order.provider == Some(who(*n)))
    }

    async fn owed(&self, keys: &[u8]) -> i64 {
        let mut sum = 0;
        for n in keys {
            sum += payable(&self.store, who(*n)).await;
        }
        sum
    }

    /// What is held against every attack.
    async fn stood(&self, orders: &[Order], bounds: &Bounds) {
        let all = orders.len();
        let hostile = orders.iter().filter(|order| self.is_hostile(order)).count();
        let honest = all - hostile;
        assert!(
            honest * 100 >= all * bounds.honest_pct,
            "the honest have {honest} of {all} jobs, {} of 100 is the least",
            bounds.honest_pct
        );
        self.money(bounds.loss).await;
        // The books say no more and no less than the orders.
        let paid = |is_hostile: bool| -> i64 {
            let of = orders.iter().filter(|order| self.is_hostile(order) == is_hostile);
            of.filter_map(|order| order.paid).map(|paid| paid.0).sum()
        };
        assert_eq!(self.owed(&self.honest).await, paid(false), "what the honest are owed");
        assert_eq!(self.owed(&self.hostile).await, paid(true), "what those are owed who attack");
    }

    /// The same of work that several do.
    async fn agreed(&self, courses: &[Course], bounds: &Bounds) {
        let orders: Vec<Order> = courses
            .iter()
            .flat_map(|course| course.replicas.iter().map(|(_, one)| one.order.clone()))
            .collect();
        self.stood(&orders, bounds).await;
    }

    async fn money(&self, loss: Msat) {
        let (good, bad) = (self.owed(&self.honest).await, self.owed(&self.hostile).await);
        assert!(bad <= loss.0, "{bad} msat went to those who attack, of at most {}", loss.0);
        assert_eq!(
            wallet(&self.store).await,
            FULL - good - bad,
            "nothing is held, nothing is lost"
        );
        let mut found = self.store.read(guild_ledger::audit::run).await.unwrap().problems;
        found.extend(self.store.read(delegation::audit::run).await.unwrap().problems);
        found.extend(self.store.read(dispute::audit::run).await.unwrap().problems);
        found.extend(self.store.read(budget::audit::run).await.unwrap().problems);
        found.extend(self.store.read(health::audit::run).await.unwrap().problems);
        assert_eq!(found, Vec::<String>::new());
    }
}

/// Whoever was found comes back under a new key each time, cheaper than everybody. Those who have proven themselves
/// keep their work all the same.
#[test]
fn new_keys_wash_nobody_clean() {
    let mut town = Town::new();
    let workers = HONEST.map(|n| (n, PRICE, Arc::new(Embedder) as Arc<dyn Worker>));
    let mut field = Field::in_town(&mut town, workers.into());
    field.honest = HONEST.into();
    town.tell(async move {
        field.knows(&HONEST).await;
        let mut orders = Vec::new();
        for n in HONEST {
            let asked = wish(&format!("first of {n}"), Choice::Chosen(who(n)));
            let order = field.buyer.hire(asked).await.unwrap();
            orders.push(field.done(&order).await);
        }
        for n in 0..16_u8 {
            let fresh = HOSTILE + n;
            field.hostile.push(fresh);
            field.hub.post(card(&key(fresh), Msat(1))).await;
            field.knows(&[fresh]).await;
            let order = field.hire(&format!("job {n}")).await;
            if field.is_hostile(&order) {
                let by = field.hostile.iter().find(|n| order.provider == Some(who(**n)));
                field.hub.post(result(&order, "{\"no\":\"work\"}", &key(*by.unwrap()))).await;
            }
            orders.push(field.done(&order).await);
        }
        let paid = |order: &&Order| order.state == OrderState::Released;
        let honest = orders.iter().filter(|order| !field.is_hostile(order));
        assert!(honest.clone().all(|order| paid(&order)));
        field.stood(&orders, &Bounds { honest_pct: 75, loss: Msat(0) }).await;
    });
}

/// One who is good until it is believed, and cheats from then on.
struct Turncoat {
    good: usize,
    every: usize,
    given: AtomicUsize,
}

impl Turncoat {
    /// Cheats in all jobs after so many.
    fn after(good: usize) -> Arc<Turncoat> {
        Arc::new(Turncoat { good, every: 1, given: AtomicUsize::new(0) })
    }

    /// Cheats in one of so many.
    fn every(every: usize) -> Arc<Turncoat> {
        Arc::new(Turncoat { good: 0, every, given: AtomicUsize::new(0) })
    }
}

impl Worker for Turncoat {
    fn schema_ids(&self) -> Vec<SchemaId> {
        Embedder.schema_ids()
    }

    fn work(&self, task: Task) -> BoxFuture<Result<Value, Refusal>> {
        let number = self.given.fetch_add(1, Ordering::SeqCst) + 1;
        match number > self.good && number.is_multiple_of(self.every) {
            true => Cheat.work(task),
            false => Embedder.work(task),
        }
    }
}

/// As the cheapest it is asked first, and does ten jobs well. Then it is found by the first that it does not, and has
/// little work soon.
#[test]
fn whoever_turns_is_found_at_once_and_paid_for_nothing_bad() {
    let mut town = Town::new();
    let mut workers: Vec<(u8, Msat, Arc<dyn Worker>)> =
        HONEST.map(|n| (n, PRICE, Arc::new(Embedder) as Arc<dyn Worker>)).into();
    workers.push((HOSTILE, Msat(100), Turncoat::after(10)));
    let mut field = Field::in_town(&mut town, workers);
    (field.honest, field.hostile) = (HONEST.into(), vec![HOSTILE]);
    town.tell(async move {
        field.knows(&[2, 3, HOSTILE]).await;
        let mut orders = Vec::new();
        // Those who are to be compared with it have proven themselves too.
        for n in HONEST {
            let asked = wish(&format!("first of {n}"), Choice::Chosen(who(n)));
            let order = field.buyer.hire(asked).await.unwrap();
            orders.push(field.done(&order).await);
        }
        for n in 0..10 {
            let asked = wish(&format!("good {n}"), Choice::Chosen(who(HOSTILE)));
            let order = field.buyer.hire(asked).await.unwrap();
            let done = field.done(&order).await;
            assert_eq!(done.state, OrderState::Released);
            orders.push(done);
        }
        let good = orders.len();
        for n in 0..24 {
            let order = field.hire(&format!("job {n}")).await;
            orders.push(field.done(&order).await);
        }
        let after = &orders[good..];
        let bad: Vec<&Order> = after.iter().filter(|order| field.is_hostile(order)).collect();
        assert!(bad.iter().all(|order| order.state == OrderState::Withheld), "not one is paid");
        assert!(bad.len() <= 8, "{} of 24 jobs are lost to it", bad.len());
        // What it was paid is for what it did.
        field.stood(&orders, &Bounds { honest_pct: 50, loss: Msat(10 * 100) }).await;
    });
}

/// Whoever cheats in every tenth job. Real orders of work that can be computed are all checked, so it is found by the
/// first; by tests of one in ten alone, theory says, it would have been found within a hundred jobs with 0.63.
#[test]
fn whoever_cheats_in_every_tenth_job_is_found_by_the_first_of_them() {
    let mut town = Town::new();
    let mut workers: Vec<(u8, Msat, Arc<dyn Worker>)> =
        HONEST.map(|n| (n, PRICE, Arc::new(Embedder) as Arc<dyn Worker>)).into();
    workers.push((HOSTILE, Msat(100), Turncoat::every(10)));
    let mut field = Field::in_town(&mut town, workers);
    (field.honest, field.hostile) = (HONEST.into(), vec![HOSTILE]);
    town.tell(async move {
        field.knows(&[2, 3, HOSTILE]).await;
        let mut orders = Vec::new();
        for n in 0..40 {
            let asked = wish(&format!("job {n}"), Choice::Chosen(who(HOSTILE)));
            let order = field.buyer.hire(asked).await.unwrap();
            orders.push(field.done(&order).await);
        }
        let found = orders.iter().position(|order| order.state == OrderState::Withheld).unwrap();
        assert_eq!(found, 9, "the tenth");
        let bad = orders.iter().filter(|order| order.state == OrderState::Withheld).count();
        assert_eq!(bad, 4, "each of them, and nothing else");
        let found_by_tests = 1.0 - (1.0_f64 - 0.1 * 0.1).powi(10);
        assert!(found_by_tests < 0.1, "{found_by_tests}: ten jobs say little by tests alone");
        // What is right is paid, and nothing else.
        field.stood(&orders, &Bounds { honest_pct: 0, loss: Msat(36 * 100) }).await;
    });
}

/// A thousand keys that nobody knows: half of them praise a cheat, half of them say of an honest one that it is none.
async fn rumour(store: &Store) {
    let somebody = |n: u16| {
        let mut bytes = [9; 32];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        SecretKey::from_bytes(bytes).unwrap()
    };
    let say = |n: u16| {
        let (of, trust_bp) = if n < 500 { (HOSTILE, 10_000) } else { (HONEST[0], 0) };
        let review = Review::new(who(of), embedding().as_str(), trust_bp);
        let said = review.draft(Form::Review, unix_s(T0)).unwrap().sign(&somebody(n)).unwrap();
        Verified::check(said).unwrap()
    };
    let all: Vec<Verified> = (0..1_000).map(say).collect();
    let put = store.write(move |tx| {
        for some in all.chunks(100) {
            archive::put(tx, some, RELAY, T0)?;
        }
        Ok::<_, guild_network::Error>(())
    });
    put.await.unwrap();
}

/// The policy that listens to others hears a thousand who can show nothing, and hires as if they had said nothing.
#[test]
fn a_thousand_sybils_lend_a_cheat_no_work_and_take_none_from_the_honest() {
    let mut town = Town::new();
    let mut workers: Vec<(u8, Msat, Arc<dyn Worker>)> =
        HONEST.map(|n| (n, PRICE, Arc::new(Embedder) as Arc<dyn Worker>)).into();
    workers.push((HOSTILE, Msat(100), Arc::new(Cheat)));
    let mut field = Field::in_town(&mut town, workers);
    town.reviews(0, key(1), Reviewing { ours: [who(1)].into(), ..Reviewing::default() });
    (field.honest, field.hostile) = (HONEST.into(), vec![HOSTILE]);
    town.tell(async move {
        field.knows(&[2, 3, HOSTILE]).await;
        rumour(&field.store).await;
        until(&field.clock, "as many as are kept are heard", || async {
            let sql = "SELECT count(*) FROM market_review_seen";
            let read = field.store.read(move |rx| rx.first::<(i64,)>(sql, &[]));
            read.await.unwrap().is_some_and(|(count,)| count >= 128)
        })
        .await;
        let task: TaskType = embedding().as_str().parse().unwrap();
        let heard = field.store.read(move |rx| review::hearsay(rx, &task)).await.unwrap();
        assert!(heard.values().all(|said| *said == Hearsay::default()), "{heard:?}");
        let mut orders = Vec::new();
        for n in HONEST {
            let asked = wish(&format!("first of {n}"), Choice::Chosen(who(n)));
            let order = field.buyer.hire(asked).await.unwrap();
            orders.push(field.done(&order).await);
        }
        for n in 0..16 {
            let asked = buyer::Wish {
                policy: Some(Policy::Thompson),
                ..wish(&format!("job {n}"), Choice::Best)
            };
            let order = field.buyer.hire(asked).await.unwrap();
            orders.push(field.done(&order).await);
        }
        let bombed = orders.iter().filter(|order| order.provider == Some(who(HONEST[0]))).count();
        assert!(bombed > 1, "it works as before");
        field.stood(&orders, &Bounds { honest_pct: 75, loss: Msat(0) }).await;
    });
}

/// Work that only a comparison judges.
fn ranking(text: &str, criticality: Criticality, private: bool) -> Wanted {
    let candidates: Vec<Value> =
        (0..5).map(|n| json!({"id": n.to_string(), "content": "c"})).collect();
    let wish = buyer::Wish {
        schema_id: rerank(),
        input: json!({"user_task": text, "candidates": candidates}),
        budget: Msat(5_000),
        private,
        ..wish(text, Choice::Best)
    };
    Wanted { wish, criticality, fewer_ok: false }
}

/// Seven honest ones and three who say the same wrong thing.
fn ten(worker: impl Fn(bool) -> Arc<dyn Worker>, town: &mut Town) -> Field {
    let (honest, hostile): (Vec<u8>, Vec<u8>) = ((2..9).collect(), vec![30, 31, 32]);
    let all = honest.iter().map(|n| (*n, true)).chain(hostile.iter().map(|n| (*n, false)));
    let workers = all.map(|(n, is_honest)| (n, PRICE, worker(is_honest))).collect();
    let field = Field::in_town(town, workers);
    Field { honest, hostile, ..field }
}

async fn delegated(field: &Field, asked: Wanted) -> Course {
    let posted = field.buyer.delegate(asked).await.unwrap();
    let course = field.buyer.wait_for(&posted.delegation_id).await.unwrap();
    assert_eq!(course.delegation.state, State::Decided);
    course
}

/// Whichever five do it: what can be checked is decided by who is right, and the others are paid nothing.
#[test]
fn three_of_ten_who_collude_are_paid_nothing_for_what_can_be_checked() {
    let mut town = Town::new();
    let worker = |is_honest: bool| -> Arc<dyn Worker> {
        if is_honest { Arc::new(Embedder) } else { Arc::new(Cheat) }
    };
    let field = ten(worker, &mut town);
    town.tell(async move {
        field.knows(&field.honest).await;
        field.knows(&field.hostile).await;
        let mut courses = Vec::new();
        for n in 0..4 {
            let wish =
                buyer::Wish { budget: Msat(5_000), ..wish(&format!("checked {n}"), Choice::Best) };
            let asked = Wanted { wish, criticality: Criticality::Critical, fewer_ok: false };
            courses.push(delegated(&field, asked).await);
        }
        field.agreed(&courses, &Bounds { honest_pct: 40, loss: Msat(0) }).await;
    });
}

/// Of what only a comparison judges fewer than three of five decide nothing. Where all three are among the five, as may
/// happen while nobody is known, they win, and that costs what they ask for.
#[test]
fn three_of_ten_who_collude_decide_only_where_they_are_most() {
    let mut town = Town::new();
    let worker =
        |is_honest: bool| Arc::new(Ranker(if is_honest { 1 } else { 2 })) as Arc<dyn Worker>;
    let field = ten(worker, &mut town);
    town.tell(async move {
        field.knows(&field.honest).await;
        field.knows(&field.hostile).await;
        let (mut courses, mut lost) = (Vec::new(), 0);
        for n in 0..4 {
            let asked = ranking(&format!("compared {n}"), Criticality::Critical, false);
            let course = delegated(&field, asked).await;
            let of_it = course.replicas.iter().map(|(_, one)| &one.order);
            let hostile = of_it.filter(|order| field.is_hostile(order)).count();
            let output: Value = serde_json::from_str(course.output_text().unwrap()).unwrap();
            if hostile < 3 {
                assert_eq!(output["topk"][0]["id"], "1", "{hostile} of five win");
            } else {
                lost += 3 * PRICE.0;
            }
            courses.push(course);
        }
        field.agreed(&courses, &Bounds { honest_pct: 40, loss: Msat(lost) }).await;
    });
}

/// Somebody who does nothing of its own: it sends what others have published, under its own name.
async fn copy(field: &Field, posted: &Delegation, from: u8, by: u8) -> bool {
    let course = field.buyer.course(posted.delegation_id.clone()).await.unwrap();
    let order_of = |n: u8| {
        let mut orders = course.replicas.iter().map(|(_, one)| &one.order);
        orders.find(|order| order.provider == Some(who(n))).unwrap().clone()
    };
    let (mine, theirs) = (order_of(by), order_of(from));
    let request = mine.request().unwrap();
    let of_it = || {
        let filter = Filter { authors: Some([who(from)].into()), ..Filter::default() };
        let said = field.hub.published(&filter.tag('e', [theirs.request_id.hex()]));
        said.into_iter().find(|event| event.kind == request.kind + 1_000)
    };
    until(&field.clock, "somebody has published a result", || async { of_it().is_some() }).await;
    let seen = of_it().unwrap();
    let read = JobResult::parse(&seen, None).ok();
    let read = read.and_then(|result| serde_json::from_str::<Value>(&result.content).ok());
    let is_readable = read.is_some();
    // Whoever cannot read it makes something up.
    let mut output = read.unwrap_or_else(|| {
        let best = json!({"rank": 1, "id": "4", "score": 0.5});
        json!({"topk": [best], "provenance": {"model": "m"}})
    });
    output["provenance"]["provider_id"] = json!(who(by).npub());
    let mut answer = JobResult::answering(&request, output.to_string()).unwrap();
    answer.price = Some(Price::new(PRICE));
    let draft = match is_readable {
        true => answer.draft(request.created_at),
        false => answer.sealed_draft(request.created_at, &key(by), &Dice::default()),
    };
    let draft = draft.unwrap();
    field.hub.post(draft.sign(&key(by)).unwrap()).await;
    is_readable
}

const LIAR: u8 = 31;
const COPIER: u8 = 32;

fn with_a_copier(private: bool, story: impl AsyncFnOnce(&Field, Delegation)) {
    let mut town = Town::new();
    let workers: Vec<(u8, Msat, Arc<dyn Worker>)> =
        vec![(2, PRICE, Arc::new(Ranker(1))), (LIAR, PRICE, Arc::new(Ranker(2)))];
    let mut field = Field::in_town(&mut town, workers);
    (field.honest, field.hostile) = (vec![2], vec![LIAR, COPIER]);
    town.tell(async move {
        let mut announced = Announcement::new("main");
        announced.kinds.push("5050".to_owned());
        announced.topics.push(rerank().to_string());
        announced.content.supports_encryption = Some(true);
        let prices = [(rerank().to_string(), PRICE)].into();
        announced.content.pricing =
            Some(Pricing { per_job: Some(JobPrices(prices)), ..Pricing::default() });
        field.hub.post(announced.draft(unix_s(T0)).unwrap().sign(&key(COPIER)).unwrap()).await;
        field.knows(&[2, LIAR, COPIER]).await;
        let asked = ranking("copied", Criticality::High, private);
        let posted = field.buyer.delegate(asked).await.unwrap();
        story(&field, posted).await;
    });
}

/// Results that everybody can read can be copied: a liar and one who copies it are two of three. What is lost is what
/// the two ask for, and never more than the budget. Nothing of it is hidden: `docs/delegation.md` says so.
#[test]
fn a_liar_and_who_copies_it_win_where_results_are_public_and_cost_their_price() {
    with_a_copier(false, async |field: &Field, posted: Delegation| {
        assert!(copy(field, &posted, LIAR, COPIER).await, "anybody can read it");
        let course = field.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Decided);
        field.agreed(&[course], &Bounds { honest_pct: 33, loss: Msat(2 * PRICE.0) }).await;
    });
}

/// In private nobody can read what the others say: whoever does nothing has nothing to say.
#[test]
fn nobody_copies_what_it_cannot_read() {
    with_a_copier(true, async |field: &Field, posted: Delegation| {
        assert!(!copy(field, &posted, LIAR, COPIER).await, "it is encrypted for the buyer");
        let course = field.buyer.wait_for(&posted.delegation_id).await.unwrap();
        assert_eq!(course.delegation.state, State::Undecided, "nobody agrees, nobody is paid");
        field.agreed(&[course], &Bounds { honest_pct: 33, loss: Msat(0) }).await;
    });
}
