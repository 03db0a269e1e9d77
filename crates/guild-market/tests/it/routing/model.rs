//! The quick structures beside a model that looks at everybody each time.

use std::collections::{BTreeMap, BTreeSet};

use guild_market::health;
use guild_market::judge::Class;
use guild_market::routing::snapshot::Snapshot;
use guild_market::routing::{
    Cause, Choice, Draws, How, Matrix, Mutation, Options, Parts, Policy, Status, Tier, Wanted,
    choose,
};
use guild_protocol::env::Random;
use guild_protocol::identity::PublicKey;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::{admitted, happen, outcome, task, who};
use crate::world::T0;

/// Randomness that says what it is told to.
struct Fixed(u64);

impl Random for Fixed {
    fn fill(&self, bytes: &mut [u8]) {
        for (to, from) in bytes.iter_mut().zip(self.0.to_le_bytes()) {
            *to = from;
        }
    }
}

/// What happens, to whom, and with which number.
type Step = (u8, u8, u32);

fn act(matrix: &mut Matrix, (what, n, number): Step, now_ms: i64) {
    let (n, name) = (1 + n % 7, if number % 5 == 0 { "other" } else { "work" });
    let known = matrix.entry(&task(name), &who(n)).is_some();
    let mutation = match what % 8 {
        _ if !known => admitted(number % 9_001),
        0 => admitted(number % 9_001),
        1 => Mutation::Assigned,
        2 => Mutation::Returned,
        3 | 4 => outcome(Class::Success, 1_000 + i64::from(number % 500)),
        5 => outcome(Class::Failure, -1_000 - i64::from(number % 500)),
        6 => outcome(Class::Partial, 200 + i64::from(number % 600)),
        _ => {
            let all = [Status::Active, Status::Conditional, Status::Quarantined, Status::Archived];
            let status = all[usize::try_from(number).unwrap() % all.len()];
            let cause = (!status.is_hireable()).then_some(Cause::Operator);
            Mutation::Moved { status, cause, until_ms: None }
        }
    };
    happen(matrix, name, n, mutation, now_ms);
}

/// Who is chosen, by looking at everybody: as the documentation says it, and not as the code does.
struct Naive<'a> {
    matrix: &'a Matrix,
    given: &'a [(i64, PublicKey)],
    wanted: &'a Wanted<'a>,
    jobs: u64,
}

impl Naive<'_> {
    fn may(&self, provider: &PublicKey, limited: bool) -> bool {
        if self.wanted.except.contains(provider) {
            return false;
        }
        let hour: Vec<_> =
            self.given.iter().filter(|(at, _)| *at > self.wanted.now_ms - 3_600_000).collect();
        let own = hour.iter().filter(|(_, to)| to == provider).count();
        // With this one no more than half, rounded up.
        !limited || own == 0 || own < (hour.len() + 1).div_ceil(2)
    }

    fn best(&self, tier: Tier, limited: bool) -> Option<PublicKey> {
        let options = self.matrix.options();
        let all = self.matrix.providers_of(self.wanted.task).enumerate();
        let in_tier = all.filter(|(_, (provider, entry))| {
            Tier::of(options, entry) == Some(tier) && self.may(provider, limited)
        });
        let rank = |(place, (provider, entry)): (usize, (&PublicKey, &_))| {
            let score = Parts::of(options, entry).score_micro(options);
            (std::cmp::Reverse(score), place, *provider)
        };
        in_tier.map(rank).min().map(|(_, _, provider)| provider)
    }

    fn choose(&self, seed: u64) -> Option<PublicKey> {
        [true, false].into_iter().find_map(|limited| self.choose_with(seed, limited))
    }

    fn choose_with(&self, seed: u64, limited: bool) -> Option<PublicKey> {
        let (options, mut draws) = (self.matrix.options(), Draws::new(seed));
        let entries: Vec<_> = self.matrix.providers_of(self.wanted.task).collect();
        if entries.is_empty() {
            return None;
        }
        if draws.below(10_000) < 1_000 * 500 / (500 + self.jobs) {
            let may = |at: &usize| {
                let (provider, entry) = entries[*at];
                entry.status.is_hireable() && self.may(provider, limited)
            };
            let mut at = 0;
            for _ in 0..32 {
                at = usize::try_from(draws.below(entries.len() as u64)).unwrap();
                if may(&at) {
                    return Some(*entries[at].0);
                }
            }
            if let Some(at) = (at..entries.len()).chain(0..at).find(may) {
                return Some(*entries[at].0);
            }
        }
        let filled =
            |tier: Tier| entries.iter().any(|(_, entry)| Tier::of(options, entry) == Some(tier));
        let weights = [(Tier::Primary, 70), (Tier::Secondary, 25), (Tier::Tertiary, 5)];
        let weights: Vec<_> = weights.into_iter().filter(|(tier, _)| filled(*tier)).collect();
        let mut drawn = draws.below(weights.iter().map(|(_, weight)| weight).sum());
        let mut first = None;
        for (tier, weight) in weights {
            if drawn < weight {
                first = Some(tier);
                break;
            }
            drawn -= weight;
        }
        first.into_iter().chain(Tier::ALL).find_map(|tier| self.best(tier, limited))
    }
}

fn chosen(choice: &Choice) -> Option<PublicKey> {
    choice.chosen.as_ref().map(|chosen| chosen.provider)
}

fn check(steps: &[Step], seeds: &[u64], left_out: Option<u8>) {
    // Who gets half as much work is no part of the model.
    let mut matrix = Matrix::new(Options { health: health::Options::off(), ..Options::default() });
    let (name, mut given) = (task("work"), Vec::new());
    let except: BTreeSet<PublicKey> = left_out.map(who).into_iter().collect();
    for (number, step) in (0_i64..).zip(steps) {
        let now_ms = T0 + number * 100_000;
        act(&mut matrix, *step, now_ms);
        assert_eq!(matrix.problems(), Vec::<String>::new());
        let seed = seeds[usize::try_from(number).unwrap() % seeds.len()] ^ number.unsigned_abs();
        let wanted = Wanted { task: &name, except: &except, max_cost_msat: None, now_ms };
        given.clear();
        let all: Vec<_> = matrix.providers_of(&name).map(|(provider, _)| *provider).collect();
        let jobs = matrix.providers_of(&name).map(|(_, entry)| entry.jobs).sum::<u64>();
        for provider in all {
            let (own, _) = matrix.share(&name, &provider, now_ms);
            given.extend(std::iter::repeat_n((now_ms, provider), own));
        }
        let naive = Naive { matrix: &matrix, given: &given, wanted: &wanted, jobs };
        let quick = choose(&matrix, Policy::Tiered, &wanted, &Fixed(seed));
        assert_eq!(chosen(&quick), naive.choose(seed), "{quick}");
        // Whoever is chosen may be hired, by either policy.
        for policy in [Policy::Tiered, Policy::Thompson] {
            let choice = choose(&matrix, policy, &wanted, &Fixed(seed));
            if let Some(provider) = chosen(&choice) {
                assert!(matrix.entry(&name, &provider).unwrap().status.is_hireable());
                assert!(!except.contains(&provider));
            }
        }
    }
    // What is written and read again is the same, and chooses the same.
    let text = Snapshot::of(&matrix).unwrap().text;
    assert_eq!(Snapshot::read(&text, matrix.options()).unwrap(), matrix);
}

#[test]
fn the_quick_choice_is_the_naive_one() {
    let config =
        ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() };
    // The same cases on every run.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let steps = prop::collection::vec((any::<u8>(), any::<u8>(), any::<u32>()), 1..120);
    let seeds = prop::collection::vec(any::<u64>(), 20);
    let cases = (steps, seeds, prop::option::of(1_u8..8));
    let checked = runner.run(&cases, |(steps, seeds, left_out)| {
        check(&steps, &seeds, left_out);
        Ok(())
    });
    checked.unwrap();
}

/// Three who differ much, and many jobs: each is given away as chosen.
fn an_hour(policy: Policy, jobs: i64, apart_ms: i64) -> (Matrix, Vec<(i64, PublicKey)>) {
    let mut matrix = Matrix::new(Options { health: health::Options::off(), ..Options::default() });
    for (n, trust_bp) in [(1, 9_000), (2, 6_000), (3, 3_500)] {
        happen(&mut matrix, "work", n, admitted(trust_bp), T0);
    }
    let (name, except, mut given) = (task("work"), BTreeSet::new(), Vec::new());
    for job in 0..jobs {
        let now_ms = T0 + job * apart_ms;
        let wanted = Wanted { task: &name, except: &except, max_cost_msat: None, now_ms };
        let choice = choose(&matrix, policy, &wanted, &Fixed(Draws::new(job.unsigned_abs()).any()));
        assert!(!choice.share_waived);
        let provider = chosen(&choice).unwrap();
        let n = (1..4).find(|n| who(*n) == provider).unwrap();
        given.push((now_ms, provider));
        happen(&mut matrix, "work", n, Mutation::Assigned, now_ms);
        let (class, step) = if n == 1 { (Class::Success, 1_500) } else { (Class::Failure, -100) };
        happen(&mut matrix, "work", n, outcome(class, step), now_ms);
    }
    (matrix, given)
}

#[test]
fn nobody_gets_more_than_half_of_an_hour() {
    for policy in [Policy::Tiered, Policy::Thompson] {
        let (_, given) = an_hour(policy, 600, 20_000);
        for (at, (now_ms, provider)) in given.iter().enumerate() {
            let hour: Vec<_> =
                given[..=at].iter().filter(|(then, _)| *then > now_ms - 3_600_000).collect();
            let own = hour.iter().filter(|(_, to)| to == provider).count();
            assert!(own <= hour.len().div_ceil(2), "{policy:?}: {own} of {}", hour.len());
        }
        let mut counts: BTreeMap<PublicKey, usize> = BTreeMap::new();
        given.iter().for_each(|(_, to)| *counts.entry(*to).or_default() += 1);
        // The best has all that it may have, nearly.
        assert!(counts[&who(1)] > 270, "{policy:?}: {counts:?}");
    }
}

#[test]
fn whoever_is_alone_is_hired_all_the_same_and_that_is_said() {
    let mut matrix = Matrix::new(Options::default());
    happen(&mut matrix, "work", 1, admitted(6_000), T0);
    happen(&mut matrix, "work", 1, Mutation::Assigned, T0);
    let (name, except) = (task("work"), BTreeSet::new());
    let wanted = Wanted { task: &name, except: &except, max_cost_msat: None, now_ms: T0 + 1 };
    for policy in [Policy::Tiered, Policy::Thompson] {
        let choice = choose(&matrix, policy, &wanted, &Fixed(7));
        assert_eq!((chosen(&choice), choice.share_waived), (Some(who(1)), true));
        assert_eq!(choice.short_of_active, 2);
        assert!(choice.to_string().contains("there is nobody else"), "{choice}");
    }
    let nobody = task("nothing");
    let wanted = Wanted { task: &nobody, ..wanted };
    let choice = choose(&matrix, Policy::Tiered, &wanted, &Fixed(7));
    assert_eq!((chosen(&choice), choice.short_of_active), (None, 3));
    assert!(choice.to_string().contains("nobody can be hired"), "{choice}");
}

#[test]
fn tiers_are_drawn_as_often_as_they_weigh() {
    let mut matrix = Matrix::new(Options { share_pct: 100, ..Options::default() });
    for (n, trust_bp) in [(1, 9_000), (2, 6_000), (3, 4_000), (4, 1_000)] {
        happen(&mut matrix, "work", n, admitted(trust_bp), T0);
    }
    let (name, except) = (task("work"), BTreeSet::new());
    let wanted = Wanted { task: &name, except: &except, max_cost_msat: None, now_ms: T0 };
    let mut counts: BTreeMap<PublicKey, u32> = BTreeMap::new();
    let mut explored = 0;
    for seed in 0..20_000 {
        let choice = choose(&matrix, Policy::Tiered, &wanted, &Fixed(seed));
        let chosen = choice.chosen.unwrap();
        match chosen.how {
            How::Explored { epsilon_bp } => {
                assert_eq!(epsilon_bp, 1_000);
                explored += 1;
            }
            How::Tier { of_pct, .. } => {
                assert_eq!(of_pct, 100);
                *counts.entry(chosen.provider).or_default() += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    // The seeds are fixed: this is not left to chance.
    assert!((1_900..2_100).contains(&explored), "{explored}");
    let of =
        |n| f64::from(counts.get(&who(n)).copied().unwrap_or(0)) / f64::from(20_000 - explored);
    assert!((of(1) - 0.70).abs() < 0.01 && (of(2) - 0.25).abs() < 0.01, "{counts:?}");
    assert!((of(3) - 0.05).abs() < 0.01 && of(4) == 0.0, "{counts:?}");
}

#[test]
fn what_it_costs_counts() {
    let mut matrix = Matrix::new(Options { share_pct: 100, epsilon_bp: 0, ..Options::default() });
    for (n, cost_msat) in [(1, 200), (2, 9_000)] {
        happen(&mut matrix, "work", n, admitted(8_500), T0);
        for _ in 0..200 {
            let done = Mutation::Outcome {
                class: Class::Success,
                step_bp: 1_000,
                cost_msat: Some(cost_msat),
                latency_ms: Some(1_000),
            };
            happen(&mut matrix, "work", n, done, T0);
        }
    }
    let (name, except) = (task("work"), BTreeSet::new());
    let wanted = Wanted { task: &name, except: &except, max_cost_msat: None, now_ms: T0 };
    for policy in [Policy::Tiered, Policy::Thompson] {
        for seed in 0..50 {
            assert_eq!(chosen(&choose(&matrix, policy, &wanted, &Fixed(seed))), Some(who(1)));
        }
        let dear = BTreeSet::from([who(1)]);
        let wanted = Wanted { except: &dear, max_cost_msat: Some(1_000), ..wanted };
        let choice = choose(&matrix, policy, &wanted, &Fixed(1));
        assert_eq!((chosen(&choice), choice.passed_over_count), (None, 2), "{choice}");
    }
}
