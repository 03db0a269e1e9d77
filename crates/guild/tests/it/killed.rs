//! Two nodes and a foreign relay between them, each a real process, any of them killed at any moment: a job that one
//! hires and the other does ends exactly once, and their books agree.

#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

mod books;
mod town;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;

use serde_json::{Value, json};
use testbed::{Dice, NostrRelay, now_ms};

use self::books::{Books, Ended, export};
use self::town::{Blow, Processes, Town, Who};
use crate::support::Home;

/// How many jobs; `cargo xtask soak hired` asks for more.
const RUNS: &str = "GUILD_TEST_HIRED_RUNS";
const DEFAULT_RUNS: u64 = 5;
/// The seed of an earlier run, to draw the same jobs and the same kills.
const SEED: &str = "GUILD_TEST_HIRED_SEED";

/// Every so many jobs, one has so little time that it may run out.
const HURRIED_EVERY: u64 = 5;
const ENOUGH_TIME_MS: u64 = 600_000;

fn variable(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how a test run tells its tests what to do")]
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// What is ordered in a run.
fn wish(run: u64, provider: &str, dice: &Dice) -> Value {
    let (whom, private) = [
        ("best", false),
        ("best", true),
        (provider, false),
        (provider, true),
        // Open to all, so there is nobody to encrypt to.
        ("any", false),
    ][usize::try_from(dice.below(5)).unwrap()];
    let hurried = run % HURRIED_EVERY == HURRIED_EVERY - 1;
    json!({
        "schema_id": "oa.embedding.v1",
        "input": { "texts": [format!("run {run}")] },
        "budget_msat": 200,
        "time_limit_ms": if hurried { 500 + dice.below(3_000) } else { ENOUGH_TIME_MS },
        "provider": whom,
        "private": private,
        "idempotency_key": format!("run-{run}"),
    })
}

/// One to three kills. Undisturbed, a job takes some fifty milliseconds from the order to the booked receipt; who is
/// missing makes it longer, and the next kill meets what those who came back make up for.
fn blows(dice: &Dice) -> Vec<Blow> {
    let mut at_ms = dice.below([10, 60, 250][usize::try_from(dice.below(3)).unwrap()]);
    let one = |_| {
        let whom = Who::ALL[usize::try_from(dice.below(3)).unwrap()];
        let blow = Blow { at_ms, whom, down_ms: dice.below(1_000) };
        at_ms += dice.below(blow.down_ms + 400);
        blow
    };
    (0..=dice.below(3)).map(one).collect()
}

/// How far a job is, for the count of what was hit when.
type Stage = Mutex<&'static str>;

/// Hires, and waits until nothing more is to come.
fn follow(town: &Town, wish: &Value, stage: &Stage) -> Ended {
    let at = |name| *stage.lock().unwrap() = name;
    at("ordering");
    let posted = town.hire(wish);
    at("working");
    let order = town.until_over(posted["order_id"].as_str().unwrap());
    assert_eq!(order["request_id"], posted["request_id"]);
    let ended = Ended::of(&order);
    if ended.is_paid() {
        at("booking");
        town.until_booked(&ended.request_id);
    }
    at("over");
    ended
}

#[test]
fn a_job_ends_once_whoever_is_killed() {
    let runs = variable(RUNS).unwrap_or(DEFAULT_RUNS);
    assert!(runs > 1, "two jobs at least: the books of the first are held against those of all");
    let seed = variable(SEED).unwrap_or_else(|| Dice::new(runs).roll());
    println!("{SEED}={seed}");
    let relay = NostrRelay::start().unwrap();
    let town = Town::new(&relay);
    let mut processes = Processes::start(&town, relay);
    let provider = processes.provider_key();
    town.fund();
    let begin_ms = now_ms();
    let (mut orders, mut hits) = (Vec::new(), BTreeMap::new());
    for run in 0..runs {
        let dice = Dice::seeded(seed.wrapping_add(run));
        let (wish, blows) = (wish(run, &provider, &dice), blows(&dice));
        orders.push(one(&town, &mut processes, &wish, &blows, &mut hits));
        if run == 0 {
            export(&town.provider, "early");
        }
    }
    let took_ms = now_ms() - begin_ms;
    processes.stop();
    every_end_is_learnt_once(&town, &orders);
    let books = Books::read(&town, &provider, orders);
    assert_eq!(books.problems(), Vec::<String>::new());
    audit_holds(&town, books.count_paid());
    audit_sees_what_is_missing(&town);
    let told = json!({
        "seed": seed, "runs": runs, "ended": books.states(), "kills": hits,
        "results": books.results.values().sum::<u64>(),
        "payable_msat": books.payable.iter().sum::<i64>(),
        "receivable_msat": books.receivable.iter().sum::<i64>(),
        "took_ms": took_ms,
    });
    println!("{told}");
}

/// The routing log of the buyer has every job that somebody had, once, whoever was killed when; and it is whole.
fn every_end_is_learnt_once(town: &Town, orders: &[Ended]) {
    let (code, told) = town.buyer.json(&["route", "verify", "--copies"]);
    assert_eq!((code, &told["problems"]), (0, &json!([])), "{told}");
    let (code, log) = town.buyer.json(&["route", "log", "--limit", "1000"]);
    assert_eq!(code, 0, "{log}");
    let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in log["rows"].as_array().unwrap() {
        let (key, what) = (row["key"].as_str().unwrap(), row["what"].as_str().unwrap());
        if let Some(order) = key.strip_prefix("order:").and_then(|key| key.strip_suffix(":ended")) {
            ends.entry(order).or_default().push(what);
        }
    }
    for order in orders {
        let learnt = ends.remove(order.order_id.as_str()).unwrap_or_default();
        assert_eq!(learnt, order.lesson(), "{order:?}");
    }
    assert_eq!(ends, BTreeMap::new());
}

/// One job with its kills.
fn one(
    town: &Town,
    processes: &mut Processes<'_>,
    wish: &Value,
    blows: &[Blow],
    hits: &mut BTreeMap<String, u64>,
) -> Ended {
    let story = format!("{wish} {blows:?}");
    let stage = Stage::new("ordering");
    let ended = std::thread::scope(|scope| {
        let struck = scope.spawn(|| processes.suffer(blows, || *stage.lock().unwrap()));
        let followed = scope.spawn(|| follow(town, wish, &stage)).join();
        for (who, stage) in struck.join().unwrap() {
            *hits.entry(format!("{} {stage}", who.as_str())).or_default() += 1;
        }
        followed.unwrap_or_else(|_| panic!("it happened in {story}"))
    });
    let hurried = wish["time_limit_ms"] != json!(ENOUGH_TIME_MS);
    assert!(ended.is_paid() || hurried, "{ended:?} in {story}");
    ended
}

/// What a stranger says of both exports.
fn audit(town: &Town, of_provider: &str) -> (i32, Value) {
    let [a, b] = [(&town.buyer, "late"), (&town.provider, of_provider)]
        .map(|(home, name)| home.path().join(name).display().to_string());
    Home::new().json(&["audit", "--evidence", &a, "--evidence", &b])
}

fn audit_holds(town: &Town, paid: usize) {
    let (code, told) = audit(town, "late");
    assert_eq!((code, &told["between"]["receipts"]), (0, &json!(paid)), "{told}");
}

/// The same program sees a provider that has not booked all, and an entry that was changed.
fn audit_sees_what_is_missing(town: &Town) {
    let early = town.provider.path().join("early").display().to_string();
    assert_eq!(Home::new().json(&["audit", "--evidence", &early]).0, 0, "whole by itself");
    let (code, told) = audit(town, "early");
    let problems = told["between"]["problems"].to_string();
    assert!(code == 1 && problems.contains("evidence.debt_missing"), "{told}");
    let file = town.provider.path().join("late/ledger.jsonl");
    let honest = fs::read_to_string(&file).unwrap();
    let (before, after) = honest.split_once(r#""memo":"iou "#).unwrap();
    let after = after.replacen(r#""units":"100""#, r#""units":"101""#, 1);
    fs::write(&file, format!(r#"{before}"memo":"iou {after}"#)).unwrap();
    let (code, told) = audit(town, "late");
    let problems = told["between"]["problems"].to_string();
    assert!(code == 1 && problems.contains("evidence.debt_amount"), "{told}");
}
