//! Stages follow from outcomes, along documented paths, and in no other way.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::evaluation::Pace as Standing;
use crate::judge::Class;
use crate::routing::{Draws, Entry, Mutation, Options as Numbers, Status, next};

const T0: i64 = 1_000 * DAY_MS;
const MINUTE_MS: i64 = 60_000;

fn admitted() -> Mutation {
    Mutation::Admitted {
        d: "main".to_owned(),
        status: Status::Active,
        trust_bp: 6_000,
        pace: Standing::Standard,
        notes: BTreeSet::new(),
    }
}

fn step(before: &Entry, mutation: &Mutation, now_ms: i64) -> Entry {
    next(&Numbers::default(), Some(before), mutation, now_ms).unwrap()
}

fn new() -> Entry {
    next(&Numbers::default(), None, &admitted(), T0).unwrap()
}

fn good(latency_ms: i64) -> Mutation {
    let latency_ms = Some(latency_ms);
    Mutation::Outcome { class: Class::Success, step_bp: 1_500, cost_msat: None, latency_ms }
}

fn bad() -> Mutation {
    let latency_ms = Some(900);
    Mutation::Outcome { class: Class::Failure, step_bp: -1_000, cost_msat: None, latency_ms }
}

fn silent() -> Mutation {
    Mutation::Outcome { class: Class::Error, step_bp: -2_000, cost_msat: None, latency_ms: None }
}

/// After these, a minute each.
fn after(mut entry: Entry, mutations: impl IntoIterator<Item = Mutation>) -> Entry {
    for (minute, mutation) in (1..).zip(mutations) {
        entry = step(&entry, &mutation, T0 + minute * MINUTE_MS);
    }
    entry
}

fn of(entry: &Entry) -> (Stage, Option<Signal>, Status) {
    (entry.health.stage, entry.health.signal, entry.status)
}

#[test]
fn a_warning_is_over_with_the_next_success() {
    let warned = after(new(), [good(900), bad()]);
    assert_eq!(of(&warned), (Stage::Warned, Some(Signal::Failed), Status::Active));
    let well = after(warned, [good(900)]);
    assert_eq!(of(&well), (Stage::Well, Some(Signal::Succeeded), Status::Active));
}

#[test]
fn each_signal_leads_one_stage_further() {
    let reduced = after(new(), [bad(), bad()]);
    assert_eq!(of(&reduced), (Stage::Reduced, Some(Signal::Failed), Status::Active));
    let still = after(reduced, [good(900), good(900)]);
    assert_eq!(still.health.stage, Stage::Reduced, "that takes a benchmark");
    let verified = Mutation::Noticed { signal: Signal::Verified };
    let well = step(&still, &verified, T0);
    assert_eq!(of(&well), (Stage::Well, Some(Signal::Verified), Status::Active));
    let gone = step(&still, &bad(), T0 + DAY_MS);
    assert_eq!(of(&gone), (Stage::Suspended, Some(Signal::Failed), Status::SuspectedDegraded));
    assert_eq!((gone.until_ms, gone.health.failures), (Some(T0 + 2 * DAY_MS), 1));
    // Late outcomes change nothing of that.
    let late = step(&gone, &good(900), T0 + DAY_MS + 1);
    assert_eq!((of(&late), late.until_ms), (of(&gone), gone.until_ms));
    let lasting = Mutation::Noticed { signal: Signal::Sustained };
    let warned = after(new(), [bad()]);
    assert_eq!(step(&warned, &lasting, T0 + 7 * DAY_MS).health.stage, Stage::Reduced);
}

#[test]
fn three_timeouts_in_a_row_suspend_at_once() {
    let two = after(new(), [silent(), silent()]);
    assert!(two.status.is_hireable());
    let three = after(two, [silent()]);
    assert_eq!(of(&three), (Stage::Suspended, Some(Signal::Timeouts), Status::SuspectedDegraded));
    // One that says no, at once, is not silent.
    let says =
        Mutation::Outcome { class: Class::Error, step_bp: -500, cost_msat: None, latency_ms: None };
    let mixed = after(new(), [silent(), good(900), silent(), good(900), silent()]);
    assert!(mixed.status.is_hireable(), "{:?}", mixed.health);
    assert_eq!((mixed.health.timeouts, after(mixed, [says]).health.timeouts), (1, 0));
}

#[test]
fn a_week_of_too_few_successes_suspends() {
    // Every tenth fails, one at a time: 90 % of those of a week, once there are twenty.
    let outcomes = |count: usize| {
        (1..=count).map(|n| if n % 10 == 0 { bad() } else { good(900) }).collect::<Vec<_>>()
    };
    assert!(after(new(), outcomes(19)).status.is_hireable());
    let low = after(new(), outcomes(20));
    assert_eq!(of(&low), (Stage::Suspended, Some(Signal::Rate), Status::SuspectedDegraded));
    // The same outcomes over two weeks: those of the first do not count in the second.
    let mut slow = new();
    for (n, outcome) in (0..).zip(outcomes(30)) {
        slow = step(&slow, &outcome, T0 + n * DAY_MS / 2);
    }
    assert!(slow.status.is_hireable(), "{:?}", slow.health);
    assert_eq!(slow.health.success_rate_bp(T0 + 15 * DAY_MS).1, 12);
}

#[test]
fn whoever_takes_twice_as_long_suspends_itself() {
    let usual: Vec<Mutation> = (0..20).map(|n| good(1_000 + n)).collect();
    let known = after(new(), usual);
    assert_eq!(known.health.pace.usual_p95_ms, Some(1_018));
    let mostly = |slow: usize| {
        let times = (0..40).map(|n| if n % 20 < slow { good(2_037) } else { good(1_000) });
        after(known.clone(), times)
    };
    assert!(mostly(1).status.is_hireable(), "one of twenty is what a 95th percentile allows");
    let slow = mostly(2);
    assert_eq!(of(&slow), (Stage::Suspended, Some(Signal::Latency), Status::SuspectedDegraded));
    let just = after(known.clone(), (0..40).map(|_| good(2_036)));
    assert!(just.status.is_hireable(), "twice as long is not more than twice");
}

#[test]
fn the_early_signal_warns_before_the_trigger_and_keeps_the_warning() {
    let numbers = Numbers::default();
    let (mut earlier, mut runs) = (0, 0);
    for seed in 0..200 {
        let mut draws = Draws::new(seed);
        let mut entry = after(new(), (0..200).map(|_| good(900)));
        let mut alarmed = None;
        for n in 1..=400_i64 {
            // It falls to four of five; what would lead by itself from stage to stage is left out.
            let outcome = if draws.unit() <= 0.8 { good(900) } else { bad() };
            let now_ms = T0 + (200 + n) * MINUTE_MS;
            entry = next(&numbers, Some(&entry), &outcome, now_ms).unwrap();
            alarmed = alarmed.or(entry.health.cusum.is_alarmed.then_some(n));
            if entry.health.stage == Stage::Reduced {
                let verified = Mutation::Noticed { signal: Signal::Verified };
                entry = next(&numbers, Some(&entry), &verified, now_ms).unwrap();
            }
            if entry.health.signal == Some(Signal::Rate) {
                runs += 1;
                earlier += i32::from(alarmed.is_some_and(|alarmed| alarmed < n));
                break;
            }
        }
    }
    assert!(runs > 150, "{runs}");
    // Nothing is left to chance: the seeds are fixed.
    assert!(earlier * 100 >= runs * 95, "{earlier} of {runs}");
    let mut warned = new();
    warned.health.cusum.sum_micro = 4_500_000;
    let warned = after(warned, [bad(), good(900)]);
    assert!(warned.health.cusum.is_alarmed);
    assert_eq!(warned.health.stage, Stage::Warned, "one success is not enough now");
}

#[test]
fn nothing_of_before_is_credited_to_a_fresh_evaluation() {
    let gone = after(new(), [silent(), silent(), silent()]);
    let back = step(&gone, &admitted(), T0 + DAY_MS);
    assert_eq!(of(&back), (Stage::Well, Some(Signal::Evaluated), Status::Active));
    let health = &back.health;
    assert_eq!((health.failures, health.timeouts, health.week.len()), (1, 0, 0));
    assert_eq!(health.cusum, Cusum::head_start(&Options::default()));
    // The second time it is three days.
    let again = after(back, [silent(), silent(), silent()]);
    assert_eq!(again.health.failures, 2);
    assert_eq!(again.until_ms.unwrap() - again.health.since_ms, 3 * DAY_MS);
    // An engagement that lasted long was none that failed.
    let back = step(&again, &admitted(), T0);
    let long = step(&back, &Mutation::Assigned, T0);
    let later_ms = T0 + Options::default().forget_ms;
    let long = (0..3).fold(long, |entry, n| step(&entry, &silent(), later_ms + n));
    assert_eq!((long.health.stage, long.health.failures), (Stage::Suspended, 1));
}

#[test]
fn an_operator_takes_back_whom_it_has_looked_at() {
    let gone = after(new(), [silent(), silent(), silent()]);
    let back = Mutation::Moved { status: Status::Conditional, cause: None, until_ms: None };
    let back = step(&gone, &back, T0 + 5);
    assert_eq!(of(&back), (Stage::Well, Some(Signal::Reviewed), Status::Conditional));
}

#[test]
fn failure_after_failure_is_the_end() {
    let options = Options::default();
    let mut entry = new();
    let mut at_ms = T0;
    let mut pauses = Vec::new();
    for _ in 0..options.remove_after {
        entry = (0..3).fold(entry, |entry, n| step(&entry, &silent(), at_ms + n));
        assert_eq!(entry.health.stage, Stage::Suspended);
        pauses.push((entry.until_ms.unwrap() - entry.health.since_ms) / DAY_MS);
        at_ms = entry.until_ms.unwrap();
        if entry.health.failures < options.remove_after {
            entry = step(&entry, &admitted(), at_ms);
        }
    }
    assert_eq!(pauses, [1, 3, 7, 30, 30, 30]);
    let known = Engagement { is_version_new: true, ..Engagement::default() };
    assert_eq!(retry(&options, &entry, &known, i64::MAX), Some(Retry::Never));
    let over = step(&entry, &Mutation::Noticed { signal: Signal::Persistent }, at_ms);
    assert_eq!(of(&over), (Stage::Removed, Some(Signal::Persistent), Status::Archived));
    let numbers = Numbers::default();
    assert!(next(&numbers, Some(&over), &admitted(), at_ms).is_err());
    let moved = Mutation::Moved { status: Status::Active, cause: None, until_ms: None };
    assert!(next(&numbers, Some(&over), &moved, at_ms).is_err());
}

#[test]
fn what_leads_nowhere_is_refused() {
    let numbers = Numbers::default();
    for signal in [Signal::Verified, Signal::Sustained, Signal::Persistent, Signal::Succeeded] {
        let noticed = Mutation::Noticed { signal };
        assert!(next(&numbers, Some(&new()), &noticed, T0).is_err(), "{signal:?}");
    }
}

#[test]
fn each_failure_is_tried_again_as_it_is_written() {
    let options = Options::default();
    let suspended = |failures: u32| {
        let mut entry = after(new(), [silent(), silent(), silent()]);
        entry.health.failures = failures;
        entry.health.since_ms = T0;
        entry.until_ms = None;
        entry
    };
    let nothing = Engagement::default();
    let card = Engagement { is_card_new: true, ..Engagement::default() };
    let version = Engagement { is_version_new: true, is_card_new: true };
    let at = |failures, known: &Engagement, days: i64| {
        retry(&options, &suspended(failures), known, T0 + days * DAY_MS).unwrap()
    };
    for (failures, days) in [(1, 1), (2, 3), (3, 7), (4, 30), (5, 30)] {
        for known in [&nothing, &card, &version] {
            let early = retry(&options, &suspended(failures), known, T0 + days * DAY_MS - 1);
            assert_eq!(early, Some(Retry::At(T0 + days * DAY_MS)), "nothing makes it shorter");
        }
        assert_eq!(at(failures, &version, days), Retry::Now);
    }
    let waits = |retry| matches!(retry, Retry::Waits(_));
    assert_eq!((at(1, &nothing, 1), at(2, &nothing, 3)), (Retry::Now, Retry::Now));
    assert!(waits(at(3, &nothing, 29)));
    assert_eq!((at(3, &card, 7), at(3, &nothing, 30)), (Retry::Now, Retry::Now));
    assert!(waits(at(4, &nothing, 900)) && waits(at(4, &card, 900)));
    // What a meeting says counts as well: whichever is later.
    let mut rejected = suspended(1);
    rejected.until_ms = Some(T0 + 30 * DAY_MS);
    assert_eq!(
        retry(&options, &rejected, &nothing, T0 + DAY_MS),
        Some(Retry::At(T0 + 30 * DAY_MS))
    );
    assert_eq!(retry(&options, &new(), &nothing, T0), None, "nobody is suspended");
}

#[test]
fn whatever_happens_goes_along_the_paths() {
    let numbers = Numbers::default();
    let mut seen: BTreeMap<(Stage, Signal, Stage), u32> = BTreeMap::new();
    for seed in 0..300 {
        let mut draws = Draws::new(seed);
        let (mut entry, mut now_ms) = (new(), T0);
        // Some are left alone, some of those become slow, and some say nothing instead of something wrong.
        let (noise, mood) = ([40, 4_000][usize::from(seed % 2 == 0)], draws.below(3));
        let well = if mood == 0 { 1.0 } else { draws.unit() };
        for job in 0..400 {
            now_ms += i64::try_from(draws.below(3 * 3_600_000)).unwrap();
            let signals =
                [Signal::Mismatch, Signal::Verified, Signal::Sustained, Signal::Persistent];
            let moved = |status, cause| Mutation::Moved { status, cause, until_ms: None };
            let mutation = match draws.below(noise) {
                0 => admitted(),
                1 => moved(Status::Quarantined, Some(crate::routing::Cause::Rejected)),
                2 => moved(Status::Unresponsive, Some(crate::routing::Cause::Silent)),
                3 => moved(Status::Conditional, None),
                4..8 => {
                    let signal = signals[usize::try_from(draws.below(4)).unwrap()];
                    Mutation::Noticed { signal }
                }
                8 => silent(),
                _ if draws.unit() <= well => {
                    let slow = if mood == 0 && job > 100 { 9_000 } else { 0 };
                    good(900 + slow + i64::try_from(draws.below(900)).unwrap())
                }
                _ if mood == 1 => silent(),
                _ => bad(),
            };
            let Ok(after) = next(&numbers, Some(&entry), &mutation, now_ms) else { continue };
            let (from, to) = (&entry.health, &after.health);
            let has_moved = (from.stage, from.since_ms) != (to.stage, to.since_ms);
            if let Some(signal) = to.signal.filter(|_| has_moved) {
                let path = (from.stage, signal, to.stage);
                *seen.entry(path).or_default() += 1;
                let anew = to.stage == Stage::Well;
                let by_hand = anew && to.signal == Some(Signal::Reviewed);
                assert!(by_hand || PATHS.contains(&path), "{path:?}");
            }
            let suspended = after.health.stage >= Stage::Suspended;
            assert!(!(suspended && after.status.is_hireable()), "{after:?}");
            entry = after;
        }
    }
    let never: Vec<_> = PATHS.iter().filter(|path| !seen.contains_key(path)).collect();
    // What is forbidden was not tried here; and who is slow, or silent thrice, has mostly been noticed before.
    let is_rare = |from: Stage, by: Signal| match by {
        Signal::Forbidden => true,
        Signal::Latency => from != Stage::Well,
        Signal::Timeouts => from != Stage::Reduced,
        _ => false,
    };
    assert!(never.iter().all(|(from, by, _)| is_rare(*from, *by)), "{never:?}");
}

#[test]
fn half_as_much_work_is_half_as_much() {
    use guild_protocol::env::{Random, Signer};
    use guild_protocol::identity::SecretKey;

    use crate::routing::{Change, Matrix, Policy, TaskType, Wanted, choose};

    struct Seed(u64);
    impl Random for Seed {
        fn fill(&self, bytes: &mut [u8]) {
            let all = self.0.to_le_bytes();
            bytes.iter_mut().zip(all.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
    }
    let who = |n: u8| SecretKey::from_bytes([n; 32]).unwrap().public_key();
    let task: TaskType = "embed".parse().unwrap();
    let mut matrix = Matrix::new(Numbers { epsilon_bp: 0, ..Numbers::default() });
    // The first is far better, but for its two failures.
    let told = [(1, admitted()), (2, admitted()), (1, bad()), (1, bad()), (2, bad()), (2, bad())];
    let more = [(1, good(1)), (1, good(1)), (1, good(1))];
    for (n, mutation) in told.into_iter().chain(more) {
        let key = "k".to_owned();
        let change = Change { key, task: task.clone(), provider: who(n), mutation };
        matrix.apply(matrix.plan(&change, T0).unwrap()).unwrap();
    }
    let verified = Mutation::Noticed { signal: Signal::Verified };
    let change =
        Change { key: "v".to_owned(), task: task.clone(), provider: who(2), mutation: verified };
    matrix.apply(matrix.plan(&change, T0).unwrap()).unwrap();
    assert_eq!(matrix.entry(&task, &who(1)).unwrap().health.stage, Stage::Reduced);
    let times = |matrix: &Matrix, except: &BTreeSet<_>| {
        let wanted = Wanted { task: &task, except, max_cost_msat: None, now_ms: T0 };
        let chosen = (0..2_000_u64).map(|seed| {
            choose(matrix, Policy::Tiered, &wanted, &Seed(seed)).chosen.map(|one| one.provider)
        });
        chosen.filter(|one| *one == Some(who(1))).count()
    };
    let reduced = times(&matrix, &BTreeSet::new());
    // If there is nobody else, it is taken all the same.
    assert_eq!(times(&matrix, &BTreeSet::from([who(2)])), 2_000);
    let verified = Mutation::Noticed { signal: Signal::Verified };
    let change =
        Change { key: "w".to_owned(), task: task.clone(), provider: who(1), mutation: verified };
    matrix.apply(matrix.plan(&change, T0).unwrap()).unwrap();
    let whole = times(&matrix, &BTreeSet::new());
    let part = reduced as f64 / whole as f64;
    assert!(whole > 1_000 && (part - 0.5).abs() < 0.05, "{reduced} of {whole}");
}
