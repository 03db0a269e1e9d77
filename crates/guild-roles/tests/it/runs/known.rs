//! Tests by work whose answer was known, and has become another one.

use guild_market::health::Stage;
use guild_market::health::known;
use guild_market::health::probe::{self, Reason};
use guild_protocol::identity::PublicKey;
use guild_roles::router::TaskType;

use super::*;

const BEFORE: u8 = 2;
const AFTER: u8 = 3;
const LIAR: u8 = 4;

fn who(n: u8) -> PublicKey {
    key(n).public_key()
}

fn task() -> TaskType {
    schema().as_str().parse().unwrap()
}

/// A workshop in which what a command leaves depends on the day.
fn of_a_day(day: &Arc<AtomicU64>, lies_from: u64) -> Workshop {
    let day = day.clone();
    workshop(&Tally::default(), move |plan, number| {
        let (mut ran, today) = (truth(plan), day.load(Ordering::SeqCst));
        let lie = if number >= lies_from { "a lie" } else { "" };
        for artifact in &mut ran.artifacts {
            let left = format!("{} {today} {lie}", artifact.path);
            artifact.sha256 = Hash::of(left.as_bytes());
        }
        Ok(ran)
    })
}

struct Market {
    clock: Arc<Hand>,
    buyer: Buyer,
    store: Store,
}

impl Market {
    async fn hired(&self, command: &str, n: u8) -> Order {
        let asked = wish(&[command], Choice::Chosen(who(n)));
        let posted = self.buyer.hire(asked).await.unwrap();
        self.buyer.wait(&posted.order_id).await.unwrap()
    }

    async fn tested(&self, n: u8) -> Order {
        let (name, now_ms) = (format!("test of {n}"), self.clock.now_ms());
        let added = self.store.write(move |tx| {
            probe::add(tx, &name, (&who(n), &task()), Reason::Hidden, (now_ms, now_ms))
        });
        added.await.unwrap();
        let due = self.store.read(move |rx| probe::due(rx, now_ms, 10)).await.unwrap();
        let [one] = <[_; 1]>::try_from(due).unwrap();
        let posted = self.buyer.probe(one).await.unwrap().unwrap();
        self.buyer.wait(&posted.order_id).await.unwrap()
    }

    async fn known(&self) -> i64 {
        self.store.read(|rx| known::count(rx, &task())).await.unwrap()
    }

    async fn stage(&self, n: u8) -> Stage {
        let matrix = self.buyer.router().current().await.unwrap();
        matrix.entry(&task(), &who(n)).unwrap().health.stage
    }
}

fn an_old_answer_blames_nobody(mut town: Town, [a, _]: [usize; 2]) {
    let day = Arc::new(AtomicU64::new(0));
    let options =
        buyer::Options { hidden_max: Msat(10_000), hidden_rate_bp: 0, ..Default::default() };
    let terms = (options, Bundle::builtin().unwrap());
    let buyer = town.buyer_who_runs(a, key(1), terms, Some(of_a_day(&day, u64::MAX)));
    for n in [BEFORE, AFTER, LIAR] {
        let node = town.node();
        // The liar does its first job well.
        let lies_from = if n == LIAR { 1 } else { u64::MAX };
        let worker = Arc::new(CommandRunner(of_a_day(&day, lies_from)));
        town.provider_with(node, key(n), offer(), worker);
    }
    let market = Market { clock: town.clock.clone(), buyer, store: town.store(a).clone() };
    town.tell(async move {
        for n in [BEFORE, AFTER, LIAR] {
            until_known(&market.clock, &market.store, who(n)).await;
        }
        until(&market.clock, "the wallet is full", || async { wallet(&market.store).await > 0 })
            .await;
        for n in [BEFORE, AFTER, LIAR] {
            assert_eq!(market.hired(&format!("make {n}"), n).await.state, State::Released);
        }
        assert_eq!(market.known().await, 3);
        // The next day the same commands leave something else.
        day.store(1, Ordering::SeqCst);
        let test = market.tested(AFTER).await;
        assert_eq!((test.state, test.paid), (State::Released, Some(PRICE)), "{:?}", test.verdict);
        assert_eq!(market.stage(AFTER).await, Stage::Well, "it is no failure");
        assert_eq!(market.known().await, 2, "nobody else is asked for it");
        assert_eq!(market.buyer.counts().of("answer_outdated"), 1);
        assert_eq!(payable(&market.store, who(AFTER)).await, 2 * PRICE.0);
        // Whoever lies is found as before.
        let test = market.tested(LIAR).await;
        assert_eq!((test.state, test.paid), (State::Withheld, None));
        let verdict = test.verdict.unwrap();
        assert!(verdict.contains("health.known_answer_differs"), "{verdict}");
        assert_ne!(market.stage(LIAR).await, Stage::Well);
        assert_eq!(market.known().await, 2);
    });
}

#[test]
fn an_answer_that_is_no_longer_right_blames_nobody() {
    both(an_old_answer_blames_nobody);
}
