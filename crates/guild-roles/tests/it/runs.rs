//! Commands that are run for others, and again to check them. What runs them is played by the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_ledger::policy::Bundle;
use guild_market::job::{Refusal, State as JobState};
use guild_market::order::State;
use guild_market::sandbox_run::{Artifact, Bounds, CommandRun, Plan, Printed, Ran, Status};
use guild_protocol::amount::Msat;
use guild_protocol::env::{BoxFuture, Clock, Signer};
use guild_protocol::hash::Hash;
use guild_protocol::nostr::job::{Input, Request};
use guild_protocol::nostr::unix_s;
use guild_protocol::schema::SchemaId;
use guild_roles::buyer::{self, Buyer, Choice, Order, Wish};
use guild_roles::provider::{self, CommandRunner, Provider, Worker};
use guild_roles::workshop::Workshop;
use guild_sandbox::{Image, Limits};
use guild_store::Store;
use serde_json::json;

mod known;
mod shared;

use crate::town::{Hand, PRICE, Town, key, payable, until, until_known, wallet};

const IMAGE: &str = "sha256:image";

fn schema() -> SchemaId {
    "oa.sandbox_run.v1".parse().unwrap()
}

fn bounds() -> Bounds {
    Bounds { limits: Limits::job(), images: [(IMAGE.to_owned(), Image::Host)].into() }
}

/// What a plan gives: a command fails if its line says so, and every command leaves a file.
fn truth(plan: &Plan) -> Ran {
    let printed = Printed { sha256: Hash::of(b"out"), head: b"out".to_vec() };
    let run = |cmd: &str| CommandRun {
        cmd: cmd.to_owned(),
        exit_code: i32::from(cmd.contains("fail")),
        duration_ms: 3,
        stdout: printed.clone(),
        stderr: printed.clone(),
    };
    let runs: Vec<_> = plan.commands.iter().map(|command| run(&command.cmd)).collect();
    let artifact = |(i, run): (usize, &CommandRun)| Artifact {
        path: format!("/workspace/{i}"),
        sha256: Hash::of(run.cmd.as_bytes()),
        size_bytes: 1,
    };
    let failed = runs.iter().any(|run| run.exit_code != 0);
    Ran {
        artifacts: runs.iter().enumerate().map(artifact).collect(),
        runs,
        status: if failed { Status::Failed } else { Status::Success },
        error: None,
    }
}

/// How often something was run, how many runs are under way, and how many were ended.
#[derive(Clone, Default)]
struct Tally {
    begun: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl Tally {
    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::SeqCst)
    }
}

struct Dropped(Tally);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// A workshop in which each plan gives what this says, the how-manieth run it is included.
fn workshop(
    tally: &Tally,
    gives: impl Fn(&Plan, u64) -> Result<Ran, Refusal> + Send + Sync + 'static,
) -> Workshop {
    let tally = tally.clone();
    let run = move |plan: Plan| {
        let number = tally.begun.fetch_add(1, Ordering::SeqCst);
        let given = gives(&plan, number);
        Box::pin(std::future::ready(given)) as BoxFuture<_>
    };
    Workshop { bounds: bounds(), run: Arc::new(run) }
}

/// A workshop that never comes to an end.
fn stuck(tally: &Tally) -> Workshop {
    let tally = tally.clone();
    let run = move |_: Plan| {
        tally.begun.fetch_add(1, Ordering::SeqCst);
        let dropped = Dropped(tally.clone());
        Box::pin(async move {
            let _dropped = dropped;
            std::future::pending().await
        }) as BoxFuture<_>
    };
    Workshop { bounds: bounds(), run: Arc::new(run) }
}

fn honest(tally: &Tally) -> Workshop {
    workshop(tally, |plan, _| Ok(truth(plan)))
}

fn offer() -> provider::Options {
    provider::Options { prices: [(schema(), PRICE)].into(), ..Town::offer() }
}

fn wish(commands: &[&str], provider: Choice) -> Wish {
    let commands: Vec<_> = commands.iter().map(|cmd| json!({"cmd": cmd})).collect();
    Wish {
        schema_id: schema(),
        input: json!({"sandbox": {"image_digest": IMAGE}, "commands": commands}),
        budget: Msat(2_000),
        time_limit_ms: 60_000,
        provider,
        private: false,
        policy: None,
        kind: None,
        idempotency_key: None,
    }
}

/// A buyer and a provider.
struct Pair {
    clock: Arc<Hand>,
    buyer: Buyer,
    provider: Provider,
    /// The buyer's.
    store: Store,
}

impl Pair {
    fn in_town(
        town: &mut Town,
        nodes: [usize; 2],
        sold: Workshop,
        checks: Option<Workshop>,
    ) -> Pair {
        let worker: Arc<dyn Worker> = Arc::new(CommandRunner(sold));
        Pair::with(town, nodes, (offer(), worker), checks)
    }

    fn with(
        town: &mut Town,
        [a, b]: [usize; 2],
        (offer, worker): (provider::Options, Arc<dyn Worker>),
        checks: Option<Workshop>,
    ) -> Pair {
        let terms = (buyer::Options::default(), Bundle::builtin().unwrap());
        let buyer = town.buyer_who_runs(a, key(1), terms, checks);
        let provider = town.provider_with(b, key(2), offer, worker);
        Pair { clock: town.clock.clone(), buyer, provider, store: town.store(a).clone() }
    }

    async fn ready(&self) {
        until_known(&self.clock, &self.store, key(2).public_key()).await;
        until(&self.clock, "the wallet is full", || async { wallet(&self.store).await > 0 }).await;
    }

    async fn hire(&self, commands: &[&str]) -> Order {
        self.ready().await;
        let them = Choice::Chosen(key(2).public_key());
        self.buyer.hire(wish(commands, them)).await.unwrap()
    }

    async fn done(&self, commands: &[&str]) -> Order {
        let order = self.hire(commands).await;
        self.buyer.wait(&order.order_id).await.unwrap()
    }
}

/// Two nodes on each kind of database.
fn both(test: impl Fn(Town, [usize; 2])) {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    test(town, nodes);
    let mut town = Town::new();
    let nodes = [town.node_on_postgres(), town.node_on_postgres()];
    test(town, nodes);
}

fn honest_work_is_paid(mut town: Town, nodes: [usize; 2]) {
    let (sold, checked) = (Tally::default(), Tally::default());
    let pair = Pair::in_town(&mut town, nodes, honest(&sold), Some(honest(&checked)));
    town.tell(async move {
        let order = pair.done(&["make", "make fail"]).await;
        assert_eq!(
            (order.state, order.paid),
            (State::Released, Some(PRICE)),
            "bad news is good work"
        );
        assert_eq!((sold.begun(), checked.begun()), (1, 1));
        // Two cores for two minutes are four units.
        pair.ready().await;
        let mut large = wish(&["make"], Choice::Best);
        large.input["sandbox"]["resources"] = json!({"cpus": 2, "timeout_secs": 90});
        large.budget = Msat(4 * PRICE.0);
        let order = pair.buyer.hire(large).await.unwrap();
        let order = pair.buyer.wait(&order.order_id).await.unwrap();
        assert_eq!((order.state, order.paid), (State::Released, Some(Msat(4 * PRICE.0))));
        assert_eq!(payable(&pair.store, key(2).public_key()).await, 5 * PRICE.0);
    });
}

#[test]
fn honest_runs_are_paid() {
    both(honest_work_is_paid);
}

fn a_forgery_is_not_paid(mut town: Town, nodes: [usize; 2]) {
    let checked = Tally::default();
    let forged = workshop(&Tally::default(), |plan, _| {
        let mut ran = truth(plan);
        ran.runs[0].exit_code = 0;
        ran.status = Status::Success;
        Ok(ran)
    });
    let pair = Pair::in_town(&mut town, nodes, forged, Some(honest(&checked)));
    town.tell(async move {
        let order = pair.done(&["test fail"]).await;
        assert_eq!(order.state, State::Withheld);
        let verdict = order.verdict.unwrap();
        assert!(
            verdict.contains("market.output_differs") && verdict.contains("status"),
            "{verdict}"
        );
        assert_eq!(checked.begun(), 2, "nobody is blamed by one run");
        assert_eq!(payable(&pair.store, key(2).public_key()).await, 0);
        until(&pair.clock, "the provider knows", || async {
            let job = pair.provider.job(order.request_id).await.unwrap();
            job.is_some_and(|job| job.state == JobState::Withheld)
        })
        .await;
    });
}

#[test]
fn forged_runs_are_not_paid() {
    both(a_forgery_is_not_paid);
}

#[test]
fn a_flaky_program_is_judged_by_its_second_run() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let checked = Tally::default();
    let flaky = workshop(&checked, |plan, number| {
        let mut ran = truth(plan);
        if number == 0 {
            ran.artifacts.clear();
        }
        Ok(ran)
    });
    let pair = Pair::in_town(&mut town, nodes, honest(&Tally::default()), Some(flaky));
    town.tell(async move {
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
        assert_eq!(checked.begun(), 2);
    });
}

#[test]
fn what_cannot_be_run_again_is_not_ordered() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let pair = Pair::in_town(&mut town, nodes, honest(&Tally::default()), None);
    town.tell(async move {
        pair.ready().await;
        let refused = pair.buyer.hire(wish(&["make"], Choice::Best)).await.unwrap_err();
        assert_eq!(refused.code().name, "market.unverifiable");
    });
}

#[test]
fn commands_are_not_open_to_all() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let (sold, checked) = (Tally::default(), Tally::default());
    let pair = Pair::in_town(&mut town, nodes, honest(&sold), Some(honest(&checked)));
    town.tell(async move {
        pair.ready().await;
        let refused = pair.buyer.hire(wish(&["make"], Choice::Any)).await.unwrap_err();
        assert_eq!(refused.code().name, "buyer.open_run");
    });
}

/// The buyer can run it, the provider does not give as much: it says so, and the budget is back.
#[test]
fn a_job_beyond_the_bounds_of_the_provider_is_refused() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let sold = Tally::default();
    let small = Workshop {
        bounds: Bounds { limits: Limits { wall_ms: 30_000, ..Limits::job() }, ..bounds() },
        ..honest(&sold)
    };
    let pair = Pair::in_town(&mut town, nodes, small, Some(honest(&Tally::default())));
    town.tell(async move {
        let order = pair.done(&["make"]).await;
        assert_eq!(order.state, State::Failed);
        let words = order.words.unwrap();
        let wanted =
            "sandbox.resources.timeout_secs: 60 is more than is given, 30 [market.limits_exceeded]";
        assert_eq!((words.as_str(), sold.begun()), (wanted, 0));
    });
}

#[test]
fn a_run_ends_when_its_buyer_takes_it_back() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let sold = Tally::default();
    let pair = Pair::in_town(&mut town, nodes, stuck(&sold), Some(honest(&Tally::default())));
    town.tell(async move {
        let order = pair.hire(&["sleep"]).await;
        until(&pair.clock, "it runs", || async { sold.begun() == 1 }).await;
        assert_eq!(sold.dropped(), 0);
        pair.buyer.cancel(order.order_id).await.unwrap();
        until(&pair.clock, "the run is ended", || async { sold.dropped() == 1 }).await;
        let job = pair.provider.job(order.request_id).await.unwrap().unwrap();
        assert_eq!(job.state, JobState::Cancelled);
        until(&pair.clock, "it is counted", || async {
            pair.provider.counts().of("job_known") == 1
        })
        .await;
    });
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let sold = Tally::default();
    let offer = provider::Options { job_timeout_ms: 100, ..offer() };
    let worker = Arc::new(CommandRunner(stuck(&sold)));
    let pair = Pair::with(&mut town, nodes, (offer, worker), Some(honest(&Tally::default())));
    town.tell(async move {
        let order = pair.done(&["sleep"]).await;
        assert_eq!((order.state, sold.dropped()), (State::Failed, 1));
        assert!(order.words.unwrap().contains("[provider.timeout]"));
    });
}

/// Other jobs are done while one hangs, and taken while all places are full.
#[test]
fn a_run_that_hangs_holds_up_nobody_else() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let tally = Tally::default();
    let (hangs, works) = (stuck(&tally), honest(&Tally::default()));
    let run = move |plan: Plan| match plan.commands[0].cmd.as_str() {
        "sleep" => (hangs.run)(plan),
        _ => (works.run)(plan),
    };
    let sold = Workshop { bounds: bounds(), run: Arc::new(run) };
    let pair = Pair::in_town(&mut town, nodes, sold, Some(honest(&Tally::default())));
    town.tell(async move {
        pair.hire(&["sleep"]).await;
        until(&pair.clock, "it hangs", || async { tally.begun() == 1 }).await;
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
        assert_eq!(tally.dropped(), 0);
    });
}

/// While the buyer's own checking hangs, its other orders are settled.
#[test]
fn a_check_that_hangs_holds_up_no_other_order() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let tally = Tally::default();
    let (hangs, works) = (stuck(&tally), honest(&Tally::default()));
    let run = move |plan: Plan| match plan.commands[0].cmd.as_str() {
        "sleep" => (hangs.run)(plan),
        _ => (works.run)(plan),
    };
    let checks = Workshop { bounds: bounds(), run: Arc::new(run) };
    let pair = Pair::in_town(&mut town, nodes, honest(&Tally::default()), Some(checks));
    town.tell(async move {
        let stuck = pair.hire(&["sleep"]).await;
        until(&pair.clock, "it hangs", || async { tally.begun() == 1 }).await;
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
        let order = pair.buyer.order(stuck.order_id).await.unwrap();
        assert_eq!(order.state, State::Delivered, "not passed, and nobody is blamed");
    });
}

/// A sandbox that fails says nothing about the result: it is tried again.
#[test]
fn a_check_that_fails_is_made_again() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let checked = Tally::default();
    let sometimes = workshop(&checked, |plan, number| match number {
        0 | 1 => Err(Refusal::new(&guild_sandbox::code::FAILED, "no room")),
        _ => Ok(truth(plan)),
    });
    let pair = Pair::in_town(&mut town, nodes, honest(&Tally::default()), Some(sometimes));
    town.tell(async move {
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
        assert_eq!((checked.begun(), pair.buyer.counts().of("order_not_settled")), (3, 2));
    });
}

/// A stranger's text that no database takes: it is refused like any other, and holds up nothing.
#[test]
fn a_request_with_what_nobody_can_write_down_is_refused() {
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let pair =
        Pair::in_town(&mut town, nodes, honest(&Tally::default()), Some(honest(&Tally::default())));
    let hub = town.hub.clone();
    town.tell(async move {
        pair.ready().await;
        let mut request = Request::new(5050);
        let input =
            json!({"sandbox": {"image_digest": "sha256:\0"}, "commands": [{"cmd": "make"}]});
        request.inputs.push(Input::text(input.to_string()));
        request.schema_id = Some(schema().to_string());
        request.providers.push(key(2).public_key());
        let request = request.draft(unix_s(pair.clock.now_ms())).unwrap().sign(&key(7)).unwrap();
        hub.post(request.clone()).await;
        until(&pair.clock, "a refusal", || async {
            let job = pair.provider.job(request.id).await.unwrap();
            job.is_some_and(|job| job.state == JobState::Refused)
        })
        .await;
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
    });
}

/// Orders that were judged and cannot be settled, more than are judged at once: none is run again for that, and they
/// keep nobody from being paid.
#[test]
fn orders_that_cannot_be_settled_hold_up_no_other_and_are_not_run_again() {
    const STUCK: u64 = 9;
    let mut town = Town::new();
    let nodes = [town.node(), town.node()];
    let checked = Tally::default();
    let offer = provider::Options { credit: Msat(100_000), ..offer() };
    let worker: Arc<dyn Worker> = Arc::new(CommandRunner(honest(&Tally::default())));
    let pair = Pair::with(&mut town, nodes, (offer, worker), Some(honest(&checked)));
    town.tell(async move {
        let plant = "CREATE TRIGGER planted BEFORE UPDATE ON market_order
            WHEN NEW.state = 'released' AND NEW.payload LIKE '%stuck%'
            BEGIN SELECT RAISE(ABORT, 'planted'); END";
        pair.store.write(move |tx| tx.exec(plant, &[])).await.unwrap();
        for n in 0..STUCK {
            pair.hire(&[&format!("stuck {n}")]).await;
        }
        until(&pair.clock, "all are judged", || async { checked.begun() == STUCK }).await;
        let met = |word: &str| pair.buyer.counts().of(word);
        until(&pair.clock, "tried again", || async { met("order_not_settled") > 2 * STUCK }).await;
        assert_eq!(pair.done(&["make"]).await.state, State::Released);
        assert_eq!(checked.begun(), STUCK + 1, "each was run again once");
        pair.store.write(|tx| tx.exec("DROP TRIGGER planted", &[])).await.unwrap();
        until(&pair.clock, "paid", || async { met("order_released") == STUCK + 1 }).await;
        assert_eq!(checked.begun(), STUCK + 1);
    });
}
