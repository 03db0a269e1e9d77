//! How much is lost by not knowing who is best: ten providers, each of whom does well with a rate that nobody knows,
//! drawn from Beta(4, 2); 2,000 jobs; the sum of how much likelier the best would have done well than the one who was
//! chosen. In a drifting market a provider becomes another one every 200 jobs.

use std::collections::{BTreeMap, BTreeSet};

use guild_market::evaluation::Pace;
use guild_market::health;
use guild_market::judge::Class;
use guild_market::routing::{
    Change, Draws, Matrix, Mutation, Options, Policy, Status, TaskType, Wanted, choose,
};
use guild_protocol::env::{Random, Signer};
use guild_protocol::identity::{PublicKey, SecretKey};

pub(crate) const PROVIDERS: u8 = 10;
pub(crate) const JOBS: usize = 2_000;
pub(crate) const SEEDS: u64 = 40;
/// Jobs are spread over 30 days.
const JOB_MS: i64 = 30 * 24 * 3_600_000 / JOBS as i64;
/// A provider of a drifting market changes before one in so many jobs.
const CHANGES_EVERY: u64 = 200;

/// The rates of all providers at every job.
pub(crate) struct World(Vec<Vec<f64>>);

impl World {
    pub(crate) fn of(seed: u64, drifting: bool) -> World {
        let mut draws = Draws::new(seed);
        let mut rates: Vec<f64> = (0..PROVIDERS).map(|_| draws.beta(4.0, 2.0)).collect();
        let mut jobs = Vec::with_capacity(JOBS);
        for _ in 0..JOBS {
            if drifting && draws.below(CHANGES_EVERY) == 0 {
                let who = usize::try_from(draws.below(u64::from(PROVIDERS))).unwrap_or(0);
                rates[who] = draws.beta(4.0, 2.0);
            }
            jobs.push(rates.clone());
        }
        World(jobs)
    }
}

/// Randomness that a seed decides.
pub(crate) struct Seeded(std::sync::Mutex<Draws>);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(std::sync::Mutex::new(Draws::new(seed)))
    }
}

impl Random for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut draws = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(draws.any().to_le_bytes()) {
                *to = from;
            }
        }
    }
}

pub(crate) fn key(n: u8) -> PublicKey {
    SecretKey::from_bytes([n; 32]).map(|secret| secret.public_key()).unwrap_or_else(|_| key(1))
}

/// One provider may have all the work: whoever is compared with the best must be able to choose it always.
pub(crate) fn options() -> Options {
    // How one is chosen is measured, of providers that do well two times of three: none of them is suspended for it.
    Options { share_pct: 100, health: health::Options::off(), ..Options::default() }
}

/// What a policy loses in a world.
pub(crate) fn regret(options: &Options, policy: Policy, world: &World, seed: u64) -> f64 {
    let task: TaskType = match "work".parse() {
        Ok(task) => task,
        Err(_) => return f64::NAN,
    };
    let mut matrix = Matrix::new(options.clone());
    let happen = |matrix: &mut Matrix, provider, mutation, now_ms| {
        let change = Change { key: "k".to_owned(), task: task.clone(), provider, mutation };
        matrix.plan(&change, now_ms).and_then(|effect| matrix.apply(effect)).is_ok()
    };
    let mut places = BTreeMap::new();
    for n in 0..PROVIDERS {
        let admitted = Mutation::Admitted {
            d: String::new(),
            status: Status::Active,
            trust_bp: 6_000,
            pace: Pace::Standard,
            notes: BTreeSet::new(),
        };
        places.insert(key(n + 1), usize::from(n));
        happen(&mut matrix, key(n + 1), admitted, 0);
    }
    let (dice, mut luck) = (Seeded::new(seed), Draws::new(!seed));
    let (except, mut lost) = (BTreeSet::new(), 0.0);
    for (job, rates) in (1_i64..).zip(&world.0) {
        let now_ms = job * JOB_MS;
        let wanted = Wanted { task: &task, except: &except, max_cost_msat: None, now_ms };
        let Some(chosen) = choose(&matrix, policy, &wanted, &dice).chosen else { return f64::NAN };
        let rate = rates[places[&chosen.provider]];
        lost += rates.iter().copied().fold(0.0, f64::max) - rate;
        let good = luck.unit() <= rate;
        let (class, step_bp) =
            if good { (Class::Success, 1_500) } else { (Class::Failure, -1_500) };
        let outcome = Mutation::Outcome { class, step_bp, cost_msat: None, latency_ms: None };
        happen(&mut matrix, chosen.provider, outcome, now_ms);
    }
    lost
}

/// The mean over all seeds.
pub(crate) fn mean_regret(options: &Options, policy: Policy, drifting: bool) -> f64 {
    let lost: f64 = (0..SEEDS)
        .map(|seed| regret(options, policy, &World::of(seed, drifting), seed + 1_000))
        .sum();
    lost / SEEDS as f64
}

/// The same worlds, by a policy of others: tiers drawn by trust and anybody in them, or Thompson's own, from a flat
/// prior.
pub(crate) fn mean_regret_of_others(others: Others, drifting: bool) -> f64 {
    let lost: f64 = (0..SEEDS)
        .map(|seed| others.regret(&World::of(seed, drifting), &mut Draws::new(seed + 2_000)))
        .sum();
    lost / SEEDS as f64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    PlainTiers,
    PlainThompson,
}

impl Others {
    fn regret(self, world: &World, draws: &mut Draws) -> f64 {
        let mut trust = [0.6_f64; PROVIDERS as usize];
        let (mut good, mut bad) = ([1.0_f64; PROVIDERS as usize], [1.0_f64; PROVIDERS as usize]);
        let mut lost = 0.0;
        for rates in &world.0 {
            let who = match self {
                Others::PlainTiers => drawn_tier(&trust, draws),
                Others::PlainThompson => {
                    let drawn: Vec<f64> =
                        good.iter().zip(&bad).map(|(good, bad)| draws.beta(*good, *bad)).collect();
                    (0..drawn.len()).max_by(|a, b| drawn[*a].total_cmp(&drawn[*b])).unwrap_or(0)
                }
            };
            lost += rates.iter().copied().fold(0.0, f64::max) - rates[who];
            if draws.unit() <= rates[who] {
                good[who] += 1.0;
                trust[who] = (trust[who] + 0.1 * (0.9 - trust[who])).clamp(0.1, 0.9);
            } else {
                bad[who] += 1.0;
                trust[who] = (trust[who] - 0.15).clamp(0.1, 0.9);
            }
        }
        lost
    }
}

fn drawn_tier(trust: &[f64], draws: &mut Draws) -> usize {
    let in_tier = |low: f64, high: f64| -> Vec<usize> {
        (0..trust.len()).filter(|who| (low..high).contains(&trust[*who])).collect()
    };
    let tiers = [(70, in_tier(0.8, 1.0)), (25, in_tier(0.5, 0.8)), (5, in_tier(0.0, 0.5))];
    let filled: Vec<_> = tiers.into_iter().filter(|(_, tier)| !tier.is_empty()).collect();
    let mut drawn = draws.below(filled.iter().map(|(weight, _)| *weight).sum());
    for (weight, tier) in &filled {
        if drawn < *weight {
            return tier[usize::try_from(draws.below(tier.len() as u64)).unwrap_or(0)];
        }
        drawn -= weight;
    }
    0
}
