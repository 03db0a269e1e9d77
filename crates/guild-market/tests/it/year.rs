//! A year of a market: fifty providers, most of them good, some bad and some worse, whose quality drifts; jobs of every
//! criticality, for work that can be checked by itself and for work that only a comparison can judge. The matrix, the
//! lifecycle, the decisions of delegations, the envelopes and the ledger are the product's; providers and their answers
//! are made up. `cargo xtask soak year --seeds 200` runs years of 100,000 jobs; the tests run a few short ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use guild_market::delegation::{Decision, Facts, Rule, Seat, decide};
use guild_market::evaluation::Pace;
use guild_market::health::watch::{self, Next, Seen, Times, Watch};
use guild_market::health::{PATHS, Signal, path, probe};
use guild_market::judge::Class;
use guild_market::routing::{
    Cause, Change, Draws, Matrix, Mutation, Options, Policy, Status, TaskType, Wanted, choose,
};
use guild_protocol::env::Random;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;

use crate::world::T0;

mod books;
mod people;
mod sum;

use books::{Books, Envelope};
use people::{Answer, Person};
use sum::Sum;

/// How many years are run, if not a few: `cargo xtask soak year --seeds 200`.
const SEEDS: &str = "GUILD_TEST_YEAR_SEEDS";
const FEW_SEEDS: u64 = 2;
const JOBS: u64 = 100_000;
const FEW_JOBS: u64 = 5_000;

const DAYS: i64 = 365;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The most that one replica may cost.
const PRICE_MAX: i64 = 100;
/// Kinds of work: name, whether a result is checked by itself, which part of the jobs, in hundredths, and priority.
const WORK: [(&str, bool, u64, i64); 5] = [
    ("year.code.v1", true, 35, 2),
    ("year.vectors.v1", true, 25, 1),
    ("year.commands.v1", true, 15, 1),
    ("year.ranking.v1", false, 15, 0),
    ("year.analysis.v1", false, 10, 0),
];
/// How many of the orders of one are followed by a hidden test, in ten-thousandths.
const HIDDEN_BP: u32 = 500;

/// A bug that is planted to see that it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Whoever differs is paid as well.
    EverybodyIsPaid,
    /// Somebody who was removed is hired again, just so.
    RemovedComeBack,
    /// Two keys of one operator do the same job.
    OneOperatorTwice,
    /// Nothing is charged to the envelopes, which are small.
    EnvelopesAreOpen,
    /// Whoever is drawn is hired, whatever is known of it.
    HiredBlindly,
}

/// Randomness for choosing, which a seed decides.
struct Dice(Mutex<Draws>);

impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        let mut draws = self.0.lock().unwrap();
        for chunk in bytes.chunks_mut(8) {
            let drawn = draws.any().to_le_bytes();
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

struct Year {
    options: Options,
    times: Times,
    matrix: Matrix,
    people: Vec<Person>,
    /// Who has which key.
    owners: BTreeMap<PublicKey, usize>,
    watches: BTreeMap<(TaskType, PublicKey), Watch>,
    books: Books,
    draws: Draws,
    dice: Dice,
    tasks: Vec<TaskType>,
    /// Jobs of a kind of work in the last hour: when, and whose.
    given: BTreeMap<TaskType, VecDeque<(i64, PublicKey)>>,
    bug: Option<Bug>,
    sum: Sum,
    problems: Vec<String>,
}

fn times() -> Times {
    Times::default()
}

impl Year {
    fn new(seed: u64, jobs: u64, bug: Option<Bug>) -> Year {
        let mut draws = Draws::new(seed);
        let people = people::all(&mut draws);
        let owners = people.iter().enumerate().map(|(number, one)| (one.key, number)).collect();
        let tasks: Vec<TaskType> = WORK.iter().map(|(name, ..)| name.parse().unwrap()).collect();
        let day = i64::try_from(jobs).unwrap() / DAYS + 1;
        let envelopes: Vec<Envelope> = WORK
            .iter()
            .zip(&tasks)
            .map(|((_, _, part, priority), task)| {
                // What a usual day costs, and a little more: some days are short of it.
                let part_of = if bug == Some(Bug::EnvelopesAreOpen) { 20 } else { 1 };
                let daily = day * i64::try_from(*part).unwrap() * 140 / 100 + 5 * PRICE_MAX;
                let daily = daily / part_of;
                Envelope { task: task.clone(), daily, monthly: daily * 28, priority: *priority }
            })
            .collect();
        Year {
            options: Options::default(),
            times: times(),
            matrix: Matrix::new(Options::default()),
            people,
            owners,
            watches: BTreeMap::new(),
            books: Books::new(seed, &envelopes, bug == Some(Bug::EnvelopesAreOpen)),
            dice: Dice(Mutex::new(Draws::new(!seed))),
            draws,
            tasks,
            given: BTreeMap::new(),
            bug,
            sum: Sum::default(),
            problems: Vec::new(),
        }
    }

    /// Something happens to an entry; whether it could. Where its health moves, it moves along a documented path.
    fn happen(
        &mut self,
        task: &TaskType,
        provider: PublicKey,
        mutation: Mutation,
        now_ms: i64,
    ) -> bool {
        let before = self.matrix.entry(task, &provider).map(|entry| entry.health.stage);
        let change = Change { key: "year".to_owned(), task: task.clone(), provider, mutation };
        let Ok(effect) = self.matrix.plan(&change, now_ms) else { return false };
        self.matrix.apply(effect).unwrap();
        let entry = self.matrix.entry(task, &provider).unwrap();
        if let Some(before) = before.filter(|before| *before != entry.health.stage) {
            let (to, signal) = (entry.health.stage, entry.health.signal);
            let is_known =
                PATHS.iter().any(|path| (path.0, Some(path.1), path.2) == (before, signal, to));
            if !is_known {
                let what = format!("{} → {} by {signal:?}", before.name(), to.name());
                self.problems.push(format!("an undocumented path of {provider}: {what}"));
            }
            self.sum.suspended += u64::from(to == guild_market::health::Stage::Suspended);
            self.sum.removed += u64::from(to == guild_market::health::Stage::Removed);
        }
        true
    }

    /// An evaluation of somebody, new or suspended before.
    fn meet(&mut self, task: &TaskType, number: usize, day: i64, now_ms: i64) {
        let provider = self.people[number].key;
        if self.matrix.is_blacklisted(&provider) {
            return;
        }
        let passed = (0..5).filter(|_| self.people[number].passes(day, &mut self.draws)).count();
        let was_known = self.matrix.entry(task, &provider).is_some();
        let mutation = match passed {
            4.. => Mutation::Admitted {
                d: String::new(),
                status: if passed == 5 { Status::Active } else { Status::Conditional },
                trust_bp: if passed == 5 { 6_000 } else { 4_500 },
                pace: Pace::Standard,
                notes: BTreeSet::new(),
            },
            _ if !was_known => return,
            _ => Mutation::Moved {
                status: Status::Quarantined,
                cause: Some(Cause::Rejected),
                until_ms: Some(now_ms + 30 * DAY_MS),
            },
        };
        self.sum.returned += u64::from(was_known && passed >= 4);
        self.happen(task, provider, mutation, now_ms);
        self.watches.entry((task.clone(), provider)).or_insert_with(|| Watch {
            provider,
            task: task.clone(),
            due_ms: now_ms,
            heartbeat_ms: now_ms + 3 * DAY_MS,
            suspended_ms: None,
            card_id: None,
            card_version: None,
        });
    }

    /// What time brings: what is warned for too long, who is tested, who is tried again, who is removed.
    fn look(&mut self, day: i64, now_ms: i64) {
        let due: Vec<(TaskType, PublicKey)> = self.watches.keys().cloned().collect();
        for (task, provider) in due {
            let number = self.owners[&provider];
            if self.people[number].key != provider {
                continue;
            }
            let Some(entry) = self.matrix.entry(&task, &provider).cloned() else { continue };
            let heard_ms = self.people[number].is_there(day).then_some(now_ms);
            let seen = Seen { heard_ms, card_id: Some("card".to_owned()), version: None };
            let watch = self.watches[&(task.clone(), provider)].clone();
            let facts = watch::Facts { entry: &entry, watch: &watch, seen: &seen, last: None };
            match watch::decide(&self.options.health, &self.times, &facts, now_ms) {
                Next::Waits(_) => {}
                Next::Notice(signal) => {
                    self.happen(&task, provider, Mutation::Noticed { signal }, now_ms);
                    if signal == Signal::Persistent {
                        self.shut_out(provider, now_ms);
                    }
                }
                Next::Test(_) => {
                    let watch = self.watches.get_mut(&(task.clone(), provider)).unwrap();
                    watch.heartbeat_ms = now_ms + self.times.heartbeat_ms;
                    self.test(&task, provider, day, now_ms);
                }
                Next::Meet => self.meet(&task, number, day, now_ms),
            }
        }
    }

    /// An ordinary order whose answer is known.
    fn test(&mut self, task: &TaskType, provider: PublicKey, day: i64, now_ms: i64) {
        let number = self.owners[&provider];
        let job = format!("test {} {now_ms} {task} {provider}", self.sum.tests);
        self.sum.tests += 1;
        let replicas = [(provider, self.people[number].price_msat)];
        if !self.books.hold(&job, task, &replicas, now_ms) {
            return;
        }
        let (answer, latency_ms) = self.people[number].answer(self.sum.tests, day, &mut self.draws);
        let is_right = answer == Answer::Right;
        let paid: &[usize] = if is_right { &[0] } else { &[] };
        self.books.settle(&job, &replicas, paid, (now_ms, false));
        self.outcome(task, provider, (answer, is_right, latency_ms), now_ms);
        let signal = if is_right { Signal::Verified } else { Signal::Mismatch };
        let entry = self.matrix.entry(task, &provider);
        let stage =
            entry.filter(|entry| entry.status.is_hireable()).map(|entry| entry.health.stage);
        let is_said = matches!(answer, Answer::Right | Answer::Wrong(_));
        if is_said && stage.is_some_and(|stage| path(stage, signal).is_some()) {
            self.happen(task, provider, Mutation::Noticed { signal }, now_ms);
        }
    }

    /// What the matrix learns of a result. Whoever tries what is forbidden is shut out of everything.
    fn outcome(
        &mut self,
        task: &TaskType,
        provider: PublicKey,
        (answer, is_good, latency_ms): (Answer, bool, i64),
        now_ms: i64,
    ) {
        let cost = self.people[self.owners[&provider]].price_msat;
        let (class, step_bp, latency_ms) = match answer {
            Answer::Forbidden => (Class::SecurityViolation, -10_000, Some(latency_ms)),
            Answer::Nothing => (Class::Error, -2_000, None),
            _ if is_good => (Class::Success, 1_200, Some(latency_ms)),
            _ => (Class::Failure, -1_500, Some(latency_ms)),
        };
        let cost_msat = is_good.then_some(cost);
        let outcome = Mutation::Outcome { class, step_bp, cost_msat, latency_ms };
        self.happen(task, provider, outcome, now_ms);
        if class == Class::SecurityViolation {
            self.shut_out(provider, now_ms);
        }
    }

    /// Whoever is removed, or tried what is forbidden, does nothing here any more.
    fn shut_out(&mut self, provider: PublicKey, now_ms: i64) {
        for change in self.matrix.blacklisting(&[provider], "year") {
            self.happen(&change.task, provider, change.mutation, now_ms);
        }
    }

    /// Everybody who does a job, each of another operator.
    fn choose(&mut self, task: &TaskType, count: u32, now_ms: i64) -> Vec<(PublicKey, i64)> {
        if self.bug == Some(Bug::HiredBlindly) {
            let all = u64::try_from(self.people.len()).unwrap();
            let drawn = usize::try_from(self.draws.below(all)).unwrap();
            return vec![(self.people[drawn].key, self.people[drawn].price_msat)];
        }
        let mut except: BTreeSet<PublicKey> = BTreeSet::new();
        let mut chosen: Vec<(PublicKey, i64)> = Vec::new();
        let is_one_twice = self.bug == Some(Bug::OneOperatorTwice);
        for _ in 0..count {
            let max_cost_msat = Some(PRICE_MAX);
            let wanted = Wanted { task, except: &except, max_cost_msat, now_ms };
            let choice = choose(&self.matrix, Policy::Tiered, &wanted, &self.dice);
            let Some(one) = choice.chosen else { break };
            let number = self.owners[&one.provider];
            self.share(task, one.provider, choice.share_waived, now_ms);
            let operator = self.people[number].operator;
            let of_it = |(_, other): &(usize, &Person)| other.operator == operator;
            let keys = self.people.iter().enumerate().filter(of_it).map(|(_, other)| other.key);
            match is_one_twice {
                true => except.extend([one.provider]),
                false => except.extend(keys),
            }
            chosen.push((one.provider, self.people[number].price_msat));
            self.happen(task, one.provider, Mutation::Assigned, now_ms);
        }
        let operators: BTreeSet<usize> =
            chosen.iter().map(|(key, _)| self.people[self.owners[key]].operator).collect();
        if operators.len() != chosen.len() {
            self.problems.push(format!(
                "{} do a job for {} operators",
                chosen.len(),
                operators.len()
            ));
        }
        chosen
    }

    /// Counts by itself who gets which part of an hour.
    fn share(&mut self, task: &TaskType, provider: PublicKey, is_waived: bool, now_ms: i64) {
        let given = self.given.entry(task.clone()).or_default();
        while given.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms - HOUR_MS) {
            given.pop_front();
        }
        let own = given.iter().filter(|(_, other)| *other == provider).count();
        given.push_back((now_ms, provider));
        if !is_waived && own > 0 && own >= given.len().div_ceil(2) {
            self.problems.push(format!(
                "{provider} has {} of {} jobs of an hour",
                own + 1,
                given.len()
            ));
        }
    }

    fn job(&mut self, job: u64, day: i64, now_ms: i64) {
        let drawn = self.draws.below(100);
        let mut upto = 0;
        let place = WORK.iter().position(|(_, _, part, _)| {
            upto += part;
            drawn < upto
        });
        let place = place.unwrap_or(0);
        let (task, objective) = (self.tasks[place].clone(), WORK[place].1);
        let (replicas, needed) = match self.draws.below(100) {
            0..80 => (1, 1),
            80..88 => (2, if objective { 1 } else { 2 }),
            88..96 => (3, 2),
            _ => (5, 3),
        };
        self.sum.jobs += 1;
        let best = self.people.iter().map(|one| one.chance_bp(day)).max().unwrap_or(0);
        let chosen = self.choose(&task, replicas, now_ms);
        if chosen.is_empty() {
            self.sum.nobody += 1;
            return;
        }
        let name = format!("job {job}");
        if !self.books.hold(&name, &task, &chosen, now_ms) {
            self.sum.refused += 1;
            for (provider, _) in &chosen {
                self.happen(&task, *provider, Mutation::Returned, now_ms);
            }
            return;
        }
        self.sum.oracle_bp += best;
        if day >= DAYS * 3 / 4 {
            for (key, _) in &chosen {
                self.sum.works_late(self.people[self.owners[key]].nature);
            }
        }
        let answers: Vec<(Answer, i64)> = chosen
            .iter()
            .map(|(key, _)| self.people[self.owners[key]].answer(job, day, &mut self.draws))
            .collect();
        let count = u32::try_from(chosen.len()).unwrap();
        let rule = Rule { needed: needed.min(count), objective };
        self.end(&name, (&task, rule), &chosen, &answers, now_ms);
        if let [(provider, _)] = chosen[..]
            && probe::is_drawn(HIDDEN_BP, self.draws.any())
            && self.matrix.entry(&task, &provider).is_some_and(|entry| entry.status.is_hireable())
        {
            self.test(&task, provider, day, now_ms + 1);
        }
    }

    /// Decides a job, pays for it, and lets the matrix learn of it.
    fn end(
        &mut self,
        name: &str,
        (task, rule): (&TaskType, Rule),
        chosen: &[(PublicKey, i64)],
        answers: &[(Answer, i64)],
        now_ms: i64,
    ) {
        let right = Hash::of(format!("{name} right").as_bytes());
        let seat = |(answer, _): &(Answer, i64)| match answer {
            Answer::Right => Seat::Voted(right),
            Answer::Wrong(hash) if !rule.objective => Seat::Voted(*hash),
            Answer::Wrong(_) => Seat::Wrong,
            Answer::Nothing | Answer::Forbidden => Seat::Gone,
        };
        let seats: BTreeMap<i64, Seat> = (0..).zip(answers.iter().map(seat)).collect();
        let facts = Facts {
            rule,
            seats,
            deadline_ms: now_ms,
            check_until_ms: now_ms,
            can_ask: false,
            has_judge: false,
            now_ms,
        };
        let (winner, agrees) = match decide(&facts) {
            Decision::Decided { winner, split } => (Some(winner), split.agrees),
            _ => (None, Vec::new()),
        };
        let agrees: Vec<usize> = agrees.iter().map(|one| usize::try_from(*one).unwrap()).collect();
        self.sum.decided += u64::from(winner.is_some());
        self.sum.right += u64::from(winner == Some(right));
        let paid: Vec<usize> = match self.bug {
            Some(Bug::EverybodyIsPaid) => (0..chosen.len()).collect(),
            _ => agrees.clone(),
        };
        for number in &paid {
            self.paid(name, (winner, rule), answers[*number].0, right);
            let nature = self.people[self.owners[&chosen[*number].0]].nature;
            self.sum.is_paid(nature, answers[*number].0, chosen[*number].1);
        }
        let twice = self.draws.below(50) == 0;
        self.books.settle(name, chosen, &paid, (now_ms, twice));
        for (number, ((provider, _), (answer, latency_ms))) in
            chosen.iter().zip(answers).enumerate()
        {
            let is_blamed = winner.is_some()
                || rule.objective
                || !matches!(answer, Answer::Right | Answer::Wrong(_));
            if is_blamed {
                let is_good = agrees.contains(&number);
                self.outcome(task, *provider, (*answer, is_good, *latency_ms), now_ms);
            } else {
                self.happen(task, *provider, Mutation::Returned, now_ms);
            }
        }
    }

    /// Whoever is paid gave the answer that won; of work that is checked by itself, the right one.
    fn paid(
        &mut self,
        name: &str,
        (winner, rule): (Option<Hash>, Rule),
        answer: Answer,
        right: Hash,
    ) {
        let said = match answer {
            Answer::Right => Some(right),
            Answer::Wrong(hash) => Some(hash),
            Answer::Nothing | Answer::Forbidden => None,
        };
        if said.is_none() || said != winner || (rule.objective && answer != Answer::Right) {
            self.problems.push(format!("{name}: paid for {answer:?}"));
        }
    }

    /// Everybody who is shut out comes back after a while, if it is after something.
    fn come_back(&mut self, day: i64, now_ms: i64) {
        for number in 0..self.people.len() {
            let key = self.people[number].key;
            let entries: Vec<_> =
                self.tasks.iter().filter_map(|task| self.matrix.entry(task, &key)).collect();
            let is_out = entries.iter().any(|entry| entry.is_shut_out());
            if self.bug == Some(Bug::RemovedComeBack) && is_out {
                let task = self.tasks[0].clone();
                let moved = Mutation::Moved { status: Status::Active, cause: None, until_ms: None };
                match self.happen(&task, key, moved, now_ms) {
                    true => self.problems.push("whoever was removed is hired again".to_owned()),
                    false => self.sum.kept_out += 1,
                }
            }
            if is_out && self.people[number].nature.is_hostile() && self.draws.below(20) == 0 {
                self.people[number].whitewash(number);
                self.owners.insert(self.people[number].key, number);
            }
            let key = self.people[number].key;
            for task in self.tasks.clone() {
                // Who is new, or was turned away before it had an entry, is met now and then.
                if self.matrix.entry(&task, &key).is_none()
                    && (day == 0 || self.draws.below(14) == 0)
                {
                    self.meet(&task, number, day, now_ms);
                }
            }
        }
    }

    fn run(mut self, jobs: u64) -> (Sum, Vec<String>) {
        let mut done = 0;
        for day in 0..DAYS {
            let start_ms = T0 + day * DAY_MS;
            self.come_back(day, start_ms);
            self.look(day, start_ms + 1);
            for one in 0..self.people.len() {
                self.people[one].drift(&mut self.draws);
            }
            let until = jobs * u64::try_from(day + 1).unwrap() / u64::try_from(DAYS).unwrap();
            let count = i64::try_from(until - done).unwrap();
            for n in 0..count {
                let now_ms = start_ms + HOUR_MS + n * (DAY_MS - 2 * HOUR_MS) / count.max(1);
                self.job(done, day, now_ms);
                done += 1;
            }
        }
        self.problems.extend(self.matrix.problems());
        let of_money = self.books.problems();
        self.problems.extend(of_money);
        (self.sum, self.problems)
    }
}

fn year(seed: u64, jobs: u64, bug: Option<Bug>) -> (Sum, Vec<String>) {
    Year::new(seed, jobs, bug).run(jobs)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the soak says what it found")]
fn a_year_goes_by_its_rules() {
    let many = std::env::var(SEEDS).ok().map(|seeds| seeds.parse::<u64>().unwrap());
    let (seeds, jobs) = many.map_or((FEW_SEEDS, FEW_JOBS), |seeds| (seeds, JOBS));
    let mut all = Sum::default();
    for seed in 0..seeds {
        let (sum, problems) = year(seed, jobs, None);
        assert_eq!(problems, Vec::<String>::new(), "seed {seed}");
        assert_eq!(sum.jobs, jobs);
        println!("seed {seed}: {}", sum.words());
        // Nothing of this shows if nothing happens.
        assert!(sum.suspended > 0 && sum.tests > 0 && sum.decided > 0, "{sum:?}");
        assert!(sum.is_within_bounds(), "seed {seed}: {sum:?}");
        all.right += sum.right;
        all.oracle_bp += sum.oracle_bp;
    }
    println!(
        "{seeds} years: {:.3} of the oracle",
        all.right as f64 * 10_000.0 / all.oracle_bp as f64
    );
}

#[test]
fn what_is_planted_in_a_year_is_found() {
    let of_envelopes = ["msat were used on 2026-", "msat were used in 2026-"];
    for (bug, words) in [
        (Bug::EverybodyIsPaid, &["paid for"][..]),
        (Bug::OneOperatorTwice, &["operators"]),
        (Bug::EnvelopesAreOpen, &of_envelopes),
    ] {
        let (_, problems) = year(1, FEW_JOBS, Some(bug));
        for words in words {
            let is_found = problems.iter().any(|problem| problem.contains(words));
            assert!(is_found, "{bug:?}: {problems:?}");
        }
    }
    // The matrix itself refuses to take back whoever was removed.
    let (sum, problems) = year(1, FEW_JOBS, Some(Bug::RemovedComeBack));
    assert_eq!(problems, Vec::<String>::new());
    assert!(sum.removed > 0 && sum.kept_out > 0, "somebody was to come back: {sum:?}");
}

/// Whoever does not look hires those who turn and the ring as often as anybody, and pays for what they make up.
#[test]
fn a_year_of_hiring_blindly_breaks_its_bounds() {
    let (sum, _) = year(1, FEW_JOBS, Some(Bug::HiredBlindly));
    assert!(!sum.is_within_bounds(), "{sum:?}");
}
