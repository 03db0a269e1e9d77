//! Everything that can happen between a buyer and a provider, in any order, each message any number of times, with
//! failures between any two statements; beside a model that is too simple to be wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_ledger::evidence::{Checker, Receipts};
use guild_market::job::{self, Stability, State as JobState, TakenJob};
use guild_market::order::{self, OrderId, State};
use guild_market::receipts;
use guild_protocol::env::Signer;
use guild_protocol::nostr::Event;
use guild_protocol::receipt::Receipt;
use guild_store::{Error, Hooks, Point};
use proptest::prelude::*;

use crate::world::{
    Node, T0, TIME_MS, cheap, judge, new_order, offer, output, provider, request_of, result_of,
    work,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const FUNDS: i64 = 1_000;
const BUDGET: i64 = 100;

#[derive(Debug, Clone, Copy)]
enum Act {
    Post,
    Take,
    HandIn,
    /// The provider's result reaches the buyer: the one that it handed in.
    Deliver,
    /// A second, different result of the provider reaches the buyer.
    Equivocate,
    Judge,
    Cancel,
    /// Time passes beyond the deadline, and the sweep runs.
    Expire,
    /// The receipt reaches the provider.
    Receipt,
}

const ACTS: [Act; 9] = [
    Act::Post,
    Act::Take,
    Act::HandIn,
    Act::Deliver,
    Act::Equivocate,
    Act::Judge,
    Act::Cancel,
    Act::Expire,
    Act::Receipt,
];

/// What must happen to an order, in this order, for it to be paid.
const STORY: [Act; 6] = [Act::Post, Act::Take, Act::HandIn, Act::Deliver, Act::Judge, Act::Receipt];

/// What happens, to which order, and after how many statements a failure comes. A number beyond the acts is the next
/// act of the story: acts by chance alone would hardly ever come to its end.
type Step = (usize, usize, i64);

struct World {
    buyer: Node,
    provider: Node,
    failing: Arc<AtomicI64>,
    now_ms: i64,
    results: BTreeMap<&'static str, Event>,
    receipts: BTreeMap<&'static str, Receipt>,
}

/// A database that fails once, after so many statements.
fn failing(countdown: &Arc<AtomicI64>) -> Hooks {
    let countdown = countdown.clone();
    Hooks::default().with_faults(move |point, _| {
        let counts = matches!(point, Point::BeforeStatement | Point::AfterStatement);
        let fails = counts && countdown.fetch_sub(1, Ordering::Relaxed) == 0;
        fails.then(|| Error::Database("planted".to_owned()))
    })
}

impl World {
    fn new() -> World {
        let calm = Arc::new(AtomicI64::new(i64::MAX));
        let buyer = Node::sqlite(failing(&calm));
        buyer.fund(FUNDS);
        World {
            buyer,
            provider: Node::sqlite(failing(&calm)),
            failing: calm,
            now_ms: T0,
            results: BTreeMap::new(),
            receipts: BTreeMap::new(),
        }
    }

    /// Does something; once with the failure, and then again without it, as a restarted node would.
    /// Whether it came to the failure.
    fn act(&mut self, act: Act, name: &'static str, fail_after: i64) -> bool {
        self.failing.store(fail_after, Ordering::Relaxed);
        self.try_to(act, name);
        let failed = self.failing.swap(i64::MAX, Ordering::Relaxed) < 0;
        self.try_to(act, name);
        failed
    }

    /// Most of what is tried here is refused: that is the point.
    fn try_to(&mut self, act: Act, name: &'static str) {
        let (new, now_ms) = (new_order(name, BUDGET), self.now_ms);
        let (order_id, request) = (new.order_id(), request_of(&new));
        match act {
            Act::Post => drop(self.buyer.post(&new)),
            Act::Take => drop(self.provider.take(&request, &offer(BUDGET / 2), now_ms)),
            Act::HandIn => {
                // Every other provider's result is a cheat's.
                let by = provider().public_key();
                let honest = matches!(name, "a" | "c");
                let text = if honest { output(&work(name), &by) } else { cheap(&work(name), &by) };
                let result = result_of(&request, &text.to_string(), &provider(), now_ms);
                if let Ok(job) = self.provider.hand_in(&request, &result, now_ms) {
                    let stored = job.result_json.unwrap();
                    let event = Event::parse(stored.as_bytes(), &Default::default()).unwrap();
                    self.results.insert(name, event);
                }
            }
            Act::Deliver => {
                if let Some(result) = self.results.get(name) {
                    drop(self.buyer.deliver(result, now_ms));
                }
            }
            Act::Equivocate => {
                let other = result_of(&request, "something else", &provider(), now_ms + 1_000);
                drop(self.buyer.deliver(&other, now_ms));
            }
            Act::Judge => {
                let id = order_id.clone();
                let found = self.buyer.write(move |tx| order::get(tx, &id));
                let Some(text) = found.ok().and_then(|order| order.output_text) else { return };
                if let Ok(settled) =
                    self.buyer.settle(&order_id, &judge(&work(name), &text), now_ms)
                {
                    self.receipts.extend(settled.receipt.map(|receipt| (name, receipt)));
                }
            }
            Act::Cancel => drop(self.buyer.write(move |tx| order::cancel(tx, &order_id, now_ms))),
            Act::Expire => {
                self.now_ms = self.now_ms.max(T0 + TIME_MS);
                let now_ms = self.now_ms;
                drop(self.buyer.write(move |tx| order::expire(tx, &order_id, now_ms, now_ms)));
            }
            Act::Receipt => {
                if let Some(receipt) = self.receipts.get(name) {
                    drop(self.provider.take_receipt(receipt, 1_000));
                }
            }
        }
    }

    fn check(&self) {
        let orders = self.buyer.read(|rx| order::page_before(rx, None, 10));
        let jobs = self.provider.read(|rx| job::page_before(rx, None, 10));
        // Each order paid at most once, and only honest work; holds are there for open orders only.
        let paid: i64 = orders.iter().filter_map(|order| order.paid).map(|paid| paid.0).sum();
        let open = orders.iter().filter(|order| !order.state.is_closed()).count();
        let held = i64::try_from(open).unwrap() * BUDGET;
        assert_eq!(self.buyer.wallet(), (FUNDS - paid, FUNDS - paid - held));
        assert_eq!(self.buyer.payable(), paid);
        for order in &orders {
            let honest = matches!(order.order_key.as_str(), "a" | "c");
            assert!(order.state != State::Released || honest, "a cheat was paid: {order:?}");
            if order.state == State::Released {
                assert_eq!(order.paid.unwrap().0, BUDGET / 2);
            }
        }
        // Each receipt booked at most once, and nothing else.
        let owed: i64 = jobs.iter().filter_map(|job| job.paid).map(|paid| paid.0).sum();
        assert_eq!(self.provider.receivable(), owed);
        assert!(owed <= paid);
        self.check_stability(&jobs);
        assert_eq!(self.buyer.problems(), Vec::<String>::new());
        assert_eq!(self.provider.problems(), Vec::<String>::new());
    }

    /// What is counted when jobs end is what the jobs say.
    fn check_stability(&self, jobs: &[TakenJob]) {
        let counted = self.provider.read(|rx| job::stability(rx, &provider().public_key()));
        let in_states = |states: &[JobState]| {
            u64::try_from(jobs.iter().filter(|job| states.contains(&job.state)).count()).unwrap()
        };
        let waited = jobs.iter().filter_map(|job| Some(job.delivered_ms? - job.taken_ms));
        let waited: Vec<i64> = waited.collect();
        let all = i64::try_from(waited.len().max(1)).unwrap();
        let measured = Stability {
            good: in_states(&[JobState::Delivered, JobState::Paid, JobState::Underpaid]),
            bad: in_states(&[JobState::Failed, JobState::Withheld]),
            avg_latency_ms: u64::try_from(waited.iter().sum::<i64>() / all).unwrap(),
        };
        assert_eq!(counted, measured);
    }

    /// Everything that is open comes to its end: afterwards the two books say the same.
    fn finish(&mut self) {
        for act in [Act::Deliver, Act::Judge, Act::Expire, Act::Judge, Act::Receipt] {
            NAMES.into_iter().for_each(|name| self.try_to(act, name));
        }
        self.check();
        assert_eq!(self.buyer.payable(), self.provider.receivable());
        assert_eq!(self.buyer.wallet().0, self.buyer.wallet().1, "something is still held");
        let orders = self.buyer.read(|rx| order::page_before(rx, None, 10));
        assert!(orders.iter().all(|order| order.state.is_closed()));
        for order in orders {
            let request_id = order.request_id;
            let job = self.provider.read(move |rx| job::find(rx, &request_id));
            let job = job.map(|job| job.state);
            match order.state {
                State::Released => assert_eq!(job, Some(JobState::Paid)),
                State::Withheld => {
                    assert!(matches!(job, None | Some(JobState::Accepted | JobState::Withheld)));
                }
                _ => assert_ne!(job, Some(JobState::Paid)),
            }
        }
        for node in [&self.buyer, &self.provider] {
            assert_eq!(evidence(node), Vec::<String>::new());
        }
    }
}

/// What a stranger finds in a node's ledger and receipts.
fn evidence(node: &Node) -> Vec<String> {
    let mut files = Receipts::new();
    for kept in node.read(|rx| receipts::page_before(rx, None, 100)) {
        files.file(kept.receipt_id.as_str(), kept.text.as_bytes());
    }
    let mut checker = Checker::new().with_receipts(files);
    node.ledger_lines().split_inclusive(|byte| *byte == b'\n').for_each(|line| checker.line(line));
    checker.finish().problems.iter().map(ToString::to_string).collect()
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    let mut told = [0; NAMES.len()];
    for (act, name, fail_after) in steps {
        let act = ACTS.get(*act).copied().unwrap_or_else(|| {
            let next = STORY[told[*name] % STORY.len()];
            told[*name] += 1;
            next
        });
        world.act(act, NAMES[*name], *fail_after);
        world.check();
    }
    world.finish();
    world
}

#[test]
fn an_undisturbed_world_pays_the_honest_and_nobody_else() {
    let steps: Vec<Step> = (0..24).map(|step| (usize::MAX, step % 4, i64::MAX)).collect();
    let world = run(&steps);
    let states = NAMES.map(|name| world.buyer.order(&OrderId::of_key(name)).state);
    use State::{Released, Withheld};
    assert_eq!(states, [Released, Withheld, Released, Withheld]);
    assert_eq!((world.buyer.payable(), world.provider.receivable()), (100, 100));
}

/// A failure before and after each statement of the whole story, one at a time, until there is none left to fail.
#[test]
fn no_single_failure_loses_or_doubles_money() {
    let mut failures = 0;
    for fail_after in 0.. {
        let mut world = World::new();
        let failed = STORY.map(|act| world.act(act, "a", fail_after));
        world.finish();
        assert_eq!((world.buyer.payable(), world.provider.receivable()), (50, 50), "{fail_after}");
        if !failed.contains(&true) {
            break;
        }
        failures += 1;
    }
    assert!(failures > 40, "only {failures} places to fail at");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_nothing_is_lost_or_doubled(
        steps in prop::collection::vec((0usize..27, 0usize..4, 0i64..80), 1..40),
    ) {
        run(&steps);
    }
}
