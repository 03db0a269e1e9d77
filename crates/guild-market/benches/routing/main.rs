//! How well and how quickly somebody is chosen.
//!
//! Regret is given as how many jobs are done for each one that is lost, so that more is better as everywhere: `tiered`
//! beside what its documented steps of trust are known to lose, `thompson` beside what is aimed at and beside
//! Thompson's own in the same worlds. What the plain tiers lose there is told with the first.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::ExitCode;

use guild_market::evaluation::Pace;
use guild_market::health;
use guild_market::judge::Class;
use guild_market::routing::{
    Change, Draws, Matrix, Mutation, Options, Policy, Status, TaskType, Wanted, choose,
};
use guild_protocol::env::Signer;
use guild_protocol::identity::{PublicKey, SecretKey};
use regret::{Others, Seeded, mean_regret, mean_regret_of_others, options};
use testbed::bench::{self, Arguments, Measured, Watch};

mod regret;

/// So many can do one task type.
const ENTRIES: u64 = 10_000;
/// A choice among them may take two microseconds.
const CHOICES_A_SECOND: f64 = 500_000.0;
/// What is chosen between two looks at the clock.
const BATCH: u64 = 1_000;
const NOW_MS: i64 = 1_768_465_800_000;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    match arguments.case.as_str() {
        "tiered_stationary" => Ok(lost(Policy::Tiered, false, 186.0)),
        "tiered_drifting" => Ok(lost(Policy::Tiered, true, 203.0)),
        "thompson_stationary" => Ok(lost(Policy::Thompson, false, 40.0)),
        "thompson_drifting" => Ok(lost(Policy::Thompson, true, 70.0)),
        "select" => select(arguments.seconds),
        "candidates" => candidates(arguments.seconds),
        other => Err(format!("there is no case {other:?}")),
    }
}

/// The regret of a policy, and what is aimed at.
fn lost(policy: Policy, drifting: bool, aim: f64) -> Vec<Measured> {
    let ours = mean_regret(&options(), policy, drifting);
    let (plain, name) = match policy {
        Policy::Tiered => (Others::PlainTiers, "plain tiers"),
        Policy::Thompson => (Others::PlainThompson, "plain Thompson"),
    };
    let plain = mean_regret_of_others(plain, drifting);
    let result = format!("regret {ours:.1}, {name} {plain:.1}, {aim} at most");
    let measured = |name, regret: f64| {
        let per_s = regret::JOBS as f64 / regret;
        Measured { name, per_s, result: result.clone() }
    };
    match policy {
        Policy::Tiered => vec![measured("guild", ours), measured("documented", aim)],
        Policy::Thompson => {
            vec![measured("guild", ours), measured(name, plain), measured("aim", aim)]
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn key(n: u64) -> Result<PublicKey, String> {
    let mut bytes = [7; 32];
    for (to, from) in bytes.iter_mut().zip(n.to_be_bytes()) {
        *to = from;
    }
    SecretKey::from_bytes(bytes).map(|key| key.public_key()).map_err(said)
}

/// Many who differ in everything, and an hour's work that was given away.
fn market(task: &TaskType) -> Result<Matrix, String> {
    // All of them stay: what is measured is a choice among so many.
    let mut matrix = Matrix::new(Options { health: health::Options::off(), ..Options::default() });
    let mut draws = Draws::new(1);
    let happen = |matrix: &mut Matrix, provider, mutation| -> Result<(), String> {
        let change = Change { key: "k".to_owned(), task: task.clone(), provider, mutation };
        let effect = matrix.plan(&change, NOW_MS).map_err(said)?;
        matrix.apply(effect).map_err(said)
    };
    for n in 0..ENTRIES {
        let provider = key(n)?;
        let admitted = Mutation::Admitted {
            d: "main".to_owned(),
            status: Status::Active,
            trust_bp: u32::try_from(draws.below(9_000)).unwrap_or(0),
            pace: Pace::Standard,
            notes: BTreeSet::new(),
        };
        happen(&mut matrix, provider, admitted)?;
        for _ in 0..draws.below(5) {
            let (class, step_bp) =
                if draws.below(4) > 0 { (Class::Success, 1_200) } else { (Class::Failure, -1_200) };
            let cost_msat = i64::try_from(draws.below(5_000)).ok();
            let latency_ms = i64::try_from(draws.below(20_000)).ok();
            let outcome = Mutation::Outcome { class, step_bp, cost_msat, latency_ms };
            happen(&mut matrix, provider, outcome)?;
        }
        if n % 10 == 0 {
            happen(&mut matrix, provider, Mutation::Assigned)?;
        }
    }
    Ok(matrix)
}

fn select(seconds: u64) -> Result<Vec<Measured>, String> {
    let task: TaskType = "work".parse().map_err(said)?;
    let (matrix, except) = (market(&task)?, BTreeSet::new());
    let wanted = Wanted { task: &task, except: &except, max_cost_msat: None, now_ms: NOW_MS + 1 };
    let (dice, watch, mut chosen) = (Seeded::new(3), Watch::start(), 0_u64);
    while watch.before(seconds) {
        for _ in 0..BATCH {
            let choice = black_box(choose(&matrix, Policy::Tiered, &wanted, &dice));
            chosen += u64::from(choice.chosen.is_some());
        }
    }
    let result = format!("one of {ENTRIES}");
    Ok(vec![
        Measured { name: "guild", per_s: watch.per_s(chosen), result: result.clone() },
        Measured { name: "2 µs", per_s: CHOICES_A_SECOND, result },
    ])
}

fn candidates(seconds: u64) -> Result<Vec<Measured>, String> {
    let task: TaskType = "work".parse().map_err(said)?;
    let (matrix, except) = (market(&task)?, BTreeSet::new());
    let wanted = Wanted { task: &task, except: &except, max_cost_msat: None, now_ms: NOW_MS + 1 };
    let (dice, watch, mut looked) = (Seeded::new(3), Watch::start(), 0_u64);
    while watch.before(seconds) {
        black_box(choose(&matrix, Policy::Thompson, &wanted, &dice));
        looked += ENTRIES;
    }
    let ours = watch.per_s(looked);
    let (mut draws, watch, mut drawn) = (Draws::new(4), Watch::start(), 0_u64);
    while watch.before(seconds) {
        for n in 0..BATCH {
            black_box(draws.beta(1.0 + (n % 7) as f64, 1.0 + (n % 3) as f64));
        }
        drawn += BATCH;
    }
    let result = format!("each of {ENTRIES}");
    Ok(vec![
        Measured { name: "guild", per_s: ours, result: result.clone() },
        Measured { name: "a draw alone", per_s: watch.per_s(drawn), result },
    ])
}
