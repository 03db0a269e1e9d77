//! Many small fleets, in which anything may happen in any order, with failures between any two statements; beside a
//! naive meter that looks at one sandbox after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_hosting::clamp::{Extend, Policy};
use guild_hosting::job::{self, Job, NewJob, Status as JobStatus};
use guild_hosting::meter;
use guild_hosting::money::{self, NewWithdrawal};
use guild_hosting::price::Shape;
use guild_hosting::sandbox::{self, NewSandbox, Reason, Sandbox, Status};
use guild_hosting::{Result, UserId};
use guild_store::{Error, Hooks, Point, Rx, Tx, args};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::world::{
    MINUTE_MS, Node, PRICE, SHAPE, T0, job_id, new_job, new_sandbox, sandbox_id, user, wish,
    withdrawal_id,
};

const JOBS: u32 = 3;
const SANDBOXES: u32 = 6;
const LARGE: Shape = Shape { cpu_milli: 2_000, ..SHAPE };

/// What happens, to which, how much of it, and after how many statements a failure comes.
type Step = (u8, u32, i64, i64);

fn owner_of_job(n: u32) -> UserId {
    user(1 + u8::try_from(n % 2).unwrap())
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

/// What somebody does. Refusals are answers too.
fn act(tx: &mut Tx<'_>, kind: u8, n: u32, amount: i64, number: u32, now_ms: i64) -> Result<()> {
    let policy = Policy { reserve_ms: 5 * MINUTE_MS, ..Policy::default() };
    let job_n = n % JOBS;
    let (who, which) = (owner_of_job(job_n), sandbox_id(n));
    let idle = (amount % 3 == 0).then_some(40_000 + amount * 7_000);
    match kind {
        0 => money::credit(tx, &who, amount * PRICE, &format!("ref {number}"), now_ms).map(drop),
        1 => {
            let (max_spend, ttl_ms) = (amount * PRICE, 30_000 * amount);
            let new =
                NewJob { user_id: who, max_spend, ttl_ms, idle_timeout_ms: idle, ..new_job(job_n) };
            job::create(tx, &new, &policy, now_ms).map(drop)
        }
        2 => {
            let new = NewSandbox {
                user_id: who,
                job_id: job_id(job_n),
                shape: if n.is_multiple_of(2) { SHAPE } else { LARGE },
                cap: amount * PRICE,
                ttl_ms: 25_000 * amount,
                idle_timeout_ms: idle,
                ..new_sandbox(n)
            };
            sandbox::create(tx, &new, &policy, now_ms).map(drop)
        }
        3 | 4 => sandbox::started(tx, &which, "http://127.0.0.1:9", "key", now_ms).map(drop),
        5 => sandbox::touch(tx, &which, now_ms).map(drop),
        6 => sandbox::stop(tx, &who, &which, now_ms).map(drop),
        7 => job::stop(tx, &who, &job_id(job_n), now_ms).map(drop),
        8 => {
            let version = sandbox::find(tx, &which)?.map_or(0, |sandbox| sandbox.version);
            let shape = if amount % 2 == 0 { SHAPE } else { LARGE };
            sandbox::resize(tx, &who, &which, version, &shape, &policy, now_ms).map(drop)
        }
        9 => {
            let found = sandbox::find(tx, &which)?;
            let later = found.map_or(wish(0), |found| Extend {
                spend: Some(found.cap + amount * PRICE),
                expires_ms: Some(found.expires_ms + 20_000 * amount),
                ..wish(found.version)
            });
            sandbox::extend(tx, &who, &which, &later, &policy, now_ms).map(drop)
        }
        10 => {
            let found = job::find(tx, &job_id(job_n))?;
            let later = found.map_or(wish(0), |found| Extend {
                spend: Some(found.max_spend + amount * PRICE),
                expires_ms: Some(found.expires_ms + 20_000 * amount),
                ..wish(found.version)
            });
            job::extend(tx, &who, &job_id(job_n), &later, &policy, now_ms).map(drop)
        }
        11 => {
            let new = NewWithdrawal {
                withdrawal_id: withdrawal_id(number),
                user_id: who,
                units: amount * PRICE / 2,
                destination: "there".to_owned(),
            };
            money::withdraw(tx, &new, &policy, now_ms).map(drop)
        }
        12 => sandbox::failed(tx, &which, "lost", now_ms).map(drop),
        13 => sandbox::destroy(tx, &who, &which, now_ms).map(drop),
        _ => match sandbox::find(tx, &which)? {
            // An honest agent keeps its lease.
            Some(Sandbox { started_ms: Some(started_ms), ends_ms: Some(ends_ms), .. }) => {
                let ran_ms = (ends_ms.min(now_ms) - started_ms).max(0);
                sandbox::stopped(tx, &which, Some(ran_ms), now_ms).map(drop)
            }
            _ => Ok(()),
        },
    }
}

/// Everything that the meter goes by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fleet {
    jobs: BTreeMap<u32, Job>,
    sandboxes: BTreeMap<u32, Sandbox>,
    /// When each is due, and its place among those that are due then.
    due: BTreeMap<u32, (i64, i64)>,
    free: BTreeMap<u8, i64>,
    seen: Option<meter::Seen>,
}

impl Fleet {
    fn read(rx: &mut Rx<'_>) -> Result<Fleet> {
        let mut fleet = Fleet {
            jobs: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            due: BTreeMap::new(),
            free: BTreeMap::new(),
            seen: meter::seen(rx)?,
        };
        for n in 0..JOBS {
            fleet.jobs.extend(job::find(rx, &job_id(n))?.map(|job| (n, job)));
        }
        for n in 0..SANDBOXES {
            fleet.sandboxes.extend(sandbox::find(rx, &sandbox_id(n))?.map(|found| (n, found)));
            let sql = "SELECT r.due_ms, r.sandbox_no FROM hosting_sandbox AS s JOIN hosting_run AS r ON r.sandbox_no = s.sandbox_no
                       WHERE s.sandbox_id = $1";
            let due: Option<(Option<i64>, i64)> = rx.first(sql, args![sandbox_id(n).as_str()])?;
            fleet.due.extend(due.and_then(|(due, no)| Some((n, (due?, no)))));
        }
        for n in [1, 2] {
            fleet.free.insert(n, money::balance(rx, &user(n))?.free);
        }
        Ok(fleet)
    }

    fn user_of(sandbox: &Sandbox) -> u8 {
        if sandbox.user_id == user(1) { 1 } else { 2 }
    }

    fn live_of(&self, job: u32) -> Vec<u32> {
        let of = |(n, sandbox): (&u32, &Sandbox)| {
            (n % JOBS == job && sandbox.status.is_live()).then_some(*n)
        };
        self.sandboxes.iter().filter_map(of).collect()
    }

    fn give_back(&mut self, n: u32) {
        let sandbox = &self.sandboxes[&n];
        *self.free.get_mut(&Fleet::user_of(sandbox)).unwrap() += sandbox.price;
        self.jobs.get_mut(&(n % JOBS)).unwrap().held -= sandbox.price;
    }

    fn end(&mut self, n: u32, reason: Reason, now_ms: i64) {
        if self.sandboxes[&n].status == Status::Starting {
            self.give_back(n);
        }
        let sandbox = self.sandboxes.get_mut(&n).unwrap();
        sandbox.status = Status::Ending;
        sandbox.stop_reason = Some(reason);
        sandbox.ends_ms = sandbox.ends_ms.or(Some(now_ms));
        sandbox.version += 1;
    }

    fn end_job(&mut self, n: u32, status: JobStatus, reason: Reason, now_ms: i64) {
        for sandbox in self.live_of(n) {
            self.end(sandbox, reason, now_ms);
        }
        let job = self.jobs.get_mut(&n).unwrap();
        job.status = status;
        job.ended_ms = Some(now_ms);
        job.version += 1;
    }

    /// Why the next minute of a sandbox is not bought.
    fn blocked(&self, n: u32) -> Option<Reason> {
        let (sandbox, job) = (&self.sandboxes[&n], &self.jobs[&(n % JOBS)]);
        let begins_ms = sandbox.started_ms.unwrap() + sandbox.paid_minutes * MINUTE_MS;
        let price = sandbox.next_price();
        let idle = |last_ms: i64, timeout_ms: Option<i64>| {
            timeout_ms.is_some_and(|timeout_ms| last_ms + timeout_ms <= begins_ms)
        };
        if sandbox.expires_ms <= begins_ms {
            Some(Reason::SandboxTtl)
        } else if idle(sandbox.last_activity_ms, sandbox.idle_timeout_ms) {
            Some(Reason::SandboxIdle)
        } else if job.expires_ms <= begins_ms {
            Some(Reason::JobTtl)
        } else if idle(job.last_activity_ms, job.idle_timeout_ms) {
            Some(Reason::JobIdle)
        } else if sandbox.spent + price > sandbox.cap {
            Some(Reason::SandboxCap)
        } else if job.spent + job.held + price > job.max_spend {
            Some(Reason::JobCap)
        } else if self.free[&Fleet::user_of(sandbox)] < price {
            Some(Reason::Account)
        } else {
            None
        }
    }

    fn pay(&mut self, n: u32, now_ms: i64) {
        let job = self.jobs.get_mut(&(n % JOBS)).unwrap();
        let sandbox = self.sandboxes.get_mut(&n).unwrap();
        let price = sandbox.next_price();
        if let Some(next) = sandbox.next.filter(|next| next.from_ms <= now_ms) {
            (sandbox.shape, sandbox.price, sandbox.next) = (next.shape, next.price, None);
        }
        *self.free.get_mut(&Fleet::user_of(sandbox)).unwrap() -= price;
        job.spent += price;
        sandbox.spent += price;
        sandbox.paid_minutes += 1;
        let paid_until_ms = sandbox.started_ms.unwrap() + sandbox.paid_minutes * MINUTE_MS;
        let ends_ms = paid_until_ms.min(sandbox.expires_ms).min(job.expires_ms);
        sandbox.ends_ms = Some(ends_ms);
    }

    /// The naive meter.
    fn tick(&mut self, now_ms: i64) {
        let due_jobs: Vec<(u32, JobStatus, Reason)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.status == JobStatus::Running)
            .filter_map(|(n, job)| {
                let idle_ms = job.idle_timeout_ms.map(|ms| job.last_activity_ms + ms);
                if job.expires_ms <= now_ms {
                    Some((*n, JobStatus::Expired, Reason::JobTtl))
                } else if idle_ms.is_some_and(|idle_ms| idle_ms <= now_ms) {
                    Some((*n, JobStatus::Idle, Reason::JobIdle))
                } else {
                    None
                }
            })
            .collect();
        for (n, status, reason) in due_jobs {
            self.end_job(n, status, reason, now_ms);
        }
        let mut due: Vec<(i64, i64, u32)> = self
            .due
            .iter()
            .filter(|(_, (due_ms, _))| *due_ms <= now_ms)
            .map(|(n, (due_ms, place))| (*due_ms, *place, *n))
            .collect();
        due.sort_unstable();
        let (mut over, mut alone) = (BTreeMap::new(), Vec::new());
        for (_, _, n) in &due {
            let (status, ends_ms) = (self.sandboxes[n].status, self.sandboxes[n].ends_ms);
            if status != Status::Running || over.contains_key(&(n % JOBS)) {
                continue;
            }
            let ends_ms = ends_ms.unwrap();
            match self.blocked(*n) {
                None if now_ms < ends_ms - meter::LAST_MS => self.pay(*n, now_ms),
                None => alone.push((*n, Reason::MeterGap)),
                Some(_) if now_ms < ends_ms - meter::GRACE_MS => {}
                Some(reason @ (Reason::JobTtl | Reason::JobIdle | Reason::JobCap)) => {
                    over.insert(n % JOBS, reason);
                }
                Some(reason) => alone.push((*n, reason)),
            }
        }
        self.end_decided(&over, &alone, now_ms);
        for (_, _, n) in due {
            self.sweep(n);
        }
    }

    fn end_decided(&mut self, over: &BTreeMap<u32, Reason>, alone: &[(u32, Reason)], now_ms: i64) {
        for (n, reason) in alone {
            self.end(*n, *reason, now_ms);
        }
        for (n, reason) in over {
            let status = match reason {
                Reason::JobTtl => JobStatus::Expired,
                Reason::JobIdle => JobStatus::Idle,
                _ => JobStatus::StoppedDueToBudget,
            };
            self.end_job(*n, status, *reason, now_ms);
        }
        let poor = alone.iter().filter(|(_, reason)| *reason == Reason::Account);
        for job in poor.map(|(n, _)| n % JOBS).collect::<BTreeSet<u32>>() {
            if self.jobs[&job].status == JobStatus::Running && self.live_of(job).is_empty() {
                self.end_job(job, JobStatus::StoppedDueToBalance, Reason::Account, now_ms);
            }
        }
    }

    fn sweep(&mut self, n: u32) {
        match self.sandboxes[&n].status {
            Status::Starting => {
                self.give_back(n);
                let sandbox = self.sandboxes.get_mut(&n).unwrap();
                sandbox.status = Status::Failed;
                sandbox.stop_reason = Some(Reason::NotStarted);
                sandbox.words = Some("it did not start in time".to_owned());
                sandbox.version += 1;
            }
            Status::Stopped => {
                let sandbox = self.sandboxes.get_mut(&n).unwrap();
                sandbox.status = Status::Destroying;
                sandbox.version += 1;
            }
            _ => {}
        }
    }
}

/// The meter ticks, and comes to what the naive one comes to.
fn tick(node: &Node, failing: &AtomicI64, fails_after: i64, now_ms: i64) -> u64 {
    let mut expected = node.read(Fleet::read);
    let (sight, counts_ms) = meter::sight(expected.seen.as_ref(), now_ms);
    if let Some(counts_ms) = counts_ms {
        expected.tick(counts_ms);
    }
    failing.store(fails_after, Ordering::Relaxed);
    let first = node.write(move |tx| meter::tick(tx, now_ms, 100));
    failing.store(-1, Ordering::Relaxed);
    // Whatever failed has changed nothing: the next try is as good as the first.
    let ticked = first.unwrap_or_else(|_| node.tick(now_ms));
    assert_eq!(ticked.clock, sight);
    let mut found = node.read(Fleet::read);
    (found.seen, found.due) = (expected.seen, expected.due.clone());
    assert_eq!(found, expected, "at {}", now_ms - T0);
    ticked.paid
}

fn run(open: fn(Hooks) -> Node, steps: &[Step]) -> u64 {
    let countdown = Arc::new(AtomicI64::new(-1));
    let node = open(failing(&countdown));
    let (mut now_ms, mut paid) = (T0, 0);
    for (number, (kind, n, amount, fails_after)) in (1..).zip(steps.iter().copied()) {
        match kind {
            // Mostly the meter ticks as it should; sometimes it is away for longer.
            15..=30 => {
                for _ in 0..amount {
                    now_ms += 9_000;
                    paid += tick(&node, &countdown, fails_after, now_ms);
                }
            }
            31 => {
                now_ms += amount * 40_000;
                paid += tick(&node, &countdown, fails_after, now_ms);
            }
            _ => {
                now_ms += 400;
                let write = move |tx: &mut Tx<'_>| act(tx, kind, n, amount, number, now_ms);
                countdown.store(fails_after, Ordering::Relaxed);
                let first = node.write(write);
                countdown.store(-1, Ordering::Relaxed);
                if first.is_err_and(|error| matches!(error, guild_hosting::Error::Store(_))) {
                    let _refused = node.write(write);
                }
            }
        }
    }
    let report = node.audit();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!((report.overrun_ms, report.lost_units), (0, 0), "nothing ran that was not paid");
    assert_eq!(node.ledger_problems(), Vec::<String>::new());
    paid
}

/// A story in which something happens: money, jobs and two running sandboxes in each of them first, then anything.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let begin = (4_i64..60, 6_i64..40, 5_i64..12).prop_map(|(money, budget, cap)| {
        let jobs = (0..JOBS).flat_map(|n| [(0, n, money, -1), (1, n, budget + i64::from(n), -1)]);
        let sandboxes =
            (0..SANDBOXES).flat_map(|n| [(2, n, cap + i64::from(n), -1), (3, n, 1, -1)]);
        jobs.chain(sandboxes).collect::<Vec<Step>>()
    });
    let any = (0_u8..32, 0..SANDBOXES, 1_i64..12, -20_i64..60);
    (begin, prop::collection::vec(any, 20..40)).prop_map(|(begin, rest)| [begin, rest].concat())
}

fn many(cases: u32, open: fn(Hooks) -> Node) {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    // The same cases on every run: how much happens in them is then known, and `sim` is what explores.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let paid = std::cell::Cell::new(0);
    runner
        .run(&steps(), |steps| {
            paid.set(paid.get() + run(open, &steps));
            Ok(())
        })
        .unwrap();
    // Chance may end a story early, but in each of them the sandboxes of its beginning are paid for.
    let least = 4 * u64::from(cases);
    assert!(paid.get() > least, "{} minutes were paid: nothing happened", paid.get());
}

#[test]
fn fleets_are_metered_as_the_naive_meter_would() {
    many(24, Node::sqlite);
}

#[test]
fn so_are_fleets_on_postgres() {
    many(4, Node::postgres);
}
