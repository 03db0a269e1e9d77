//! Many small histories, in which several workers do anything in any order while clocks jump and the database fails
//! between any two statements; beside a naive model that holds a turn in a few words.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_kernel::inbox::Outcome;
use guild_kernel::turn::{
    self, Committed, Fence, LOST_LEASES_MAX, Reported, Stop, Stopped, Then, sweep,
};
use guild_kernel::{AgentTurnId, Result, ToolCallId};
use guild_store::{Error, Hooks, Point, Tx};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::world::{Node, T0, TIMEOUT_MS, TTL_MS, call, claim, commit, new_turn, report, success};

const AGENTS: u32 = 3;
const TURNS: u32 = 12;

/// What happens, to which, how much of it, and after how many statements a failure comes.
type Act = (u8, usize, i64, i64);

/// A turn in a few words.
#[derive(Debug, Clone, PartialEq)]
enum Life {
    Queued,
    Due,
    Runs { fence: Fence, until_ms: i64 },
    Waits { fence: Fence, open: BTreeMap<ToolCallId, i64> },
    Over(Outcome),
}

#[derive(Debug, Default)]
struct Model {
    lives: BTreeMap<AgentTurnId, (u32, Life, i64)>,
    queues: BTreeMap<u32, VecDeque<AgentTurnId>>,
    /// When each turn that is due became so, in the order of time and acceptance.
    due: BTreeMap<(i64, usize), AgentTurnId>,
    order: Vec<AgentTurnId>,
    /// All fences and calls that ever were.
    fences: Vec<Fence>,
    calls: Vec<(Fence, ToolCallId)>,
    asked: u32,
}

impl Model {
    fn life(&mut self, id: &AgentTurnId) -> &mut Life {
        &mut self.lives.get_mut(id).unwrap().1
    }

    fn make_due(&mut self, id: &AgentTurnId, now_ms: i64) {
        let place = self.order.iter().position(|other| other == id).unwrap();
        self.due.insert((now_ms, place), id.clone());
        *self.life(id) = Life::Due;
    }

    /// The agent begins the next turn, if it is idle.
    fn begin_next(&mut self, agent: u32, now_ms: i64) {
        let open = |(of, life, _): &(u32, Life, i64)| {
            *of == agent && !matches!(life, Life::Queued | Life::Over(_))
        };
        if self.lives.values().any(open) {
            return;
        }
        if let Some(id) = self.queues.entry(agent).or_default().pop_front() {
            self.make_due(&id, now_ms);
        }
    }

    fn end(&mut self, id: &AgentTurnId, outcome: Outcome, now_ms: i64) {
        *self.life(id) = Life::Over(outcome);
        self.due.retain(|_, other| other != id);
        let agent = self.lives[id].0;
        self.queues.entry(agent).or_default().retain(|other| other != id);
        self.begin_next(agent, now_ms);
    }

    /// A call has its result; whether the turn goes on.
    fn answered(&mut self, id: &AgentTurnId, call: &ToolCallId, now_ms: i64) -> bool {
        let Life::Waits { open, .. } = self.life(id) else { return false };
        open.remove(call);
        if open.is_empty() {
            self.make_due(id, now_ms);
            return true;
        }
        false
    }

    fn holds(&self, fence: &Fence) -> bool {
        matches!(&self.lives[&fence.agent_turn_id].1, Life::Runs { fence: now, .. } if now == fence)
    }

    fn sweep(&mut self, now_ms: i64) {
        let lost: Vec<AgentTurnId> = self
            .lives
            .iter()
            .filter(
                |(_, (_, l, _))| matches!(l, Life::Runs { until_ms, .. } if *until_ms <= now_ms),
            )
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            let lost = &mut self.lives.get_mut(&id).unwrap().2;
            *lost += 1;
            if *lost >= LOST_LEASES_MAX {
                self.end(&id, Outcome::Failed, now_ms);
            } else {
                self.make_due(&id, now_ms);
            }
        }
        let late: Vec<(AgentTurnId, ToolCallId)> =
            self.lives
                .iter()
                .filter_map(|(id, (_, life, _))| {
                    if let Life::Waits { open, .. } = life { Some((id, open)) } else { None }
                })
                .flat_map(|(id, open)| open.iter().map(move |(call, at_ms)| (id, call, *at_ms)))
                .filter(|(_, _, at_ms)| *at_ms <= now_ms)
                .map(|(id, call, _)| (id.clone(), call.clone()))
                .collect();
        for (id, call) in late {
            self.answered(&id, &call, now_ms);
        }
    }

    /// What the heads must say.
    fn statuses(&self) -> Vec<(&'static str, Option<AgentTurnId>)> {
        let status = |agent: u32| {
            let open = self.lives.iter().find_map(|(id, (of, life, _))| match life {
                _ if *of != agent => None,
                Life::Due => Some(("dispatched", id)),
                Life::Runs { .. } => Some(("running", id)),
                Life::Waits { .. } => Some(("suspended", id)),
                Life::Queued | Life::Over(_) => None,
            });
            open.map_or(("idle", None), |(status, id)| (status, Some(id.clone())))
        };
        (0..AGENTS).map(status).collect()
    }
}

/// A node, its model, and a database that fails when it is told to.
struct Story {
    node: Node,
    model: Model,
    countdown: Arc<AtomicI64>,
    now_ms: i64,
    acts: u32,
    /// An audit comes after every so many acts.
    audit_every: u32,
    done: u64,
}

fn failing(countdown: &Arc<AtomicI64>) -> Hooks {
    let countdown = countdown.clone();
    Hooks::default().with_faults(move |point, _| {
        let counts = matches!(point, Point::BeforeStatement | Point::AfterStatement);
        let fails = counts && countdown.fetch_sub(1, Ordering::Relaxed) == 0;
        fails.then(|| Error::Database("planted".to_owned()))
    })
}

impl Story {
    fn new(open: fn(Hooks) -> Node, audit_every: u32) -> Story {
        let countdown = Arc::new(AtomicI64::new(-1));
        let node = open(failing(&countdown));
        node.pack(0..TURNS);
        let model = Model::default();
        Story { node, model, countdown, now_ms: T0, acts: 0, audit_every, done: 0 }
    }

    /// Writes something that fails at first: what has failed has changed nothing, and is done again.
    fn write<T: Send + 'static>(
        &self,
        fails_after: i64,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> T {
        if fails_after >= 0 {
            let before = self.node.dump();
            self.countdown.store(fails_after, Ordering::Relaxed);
            let tried = self.node.write(run.clone());
            self.countdown.store(-1, Ordering::Relaxed);
            match tried {
                Ok(done) => return done,
                Err(_) => assert_eq!(self.node.dump(), before),
            }
        }
        self.node.write(run).unwrap()
    }

    fn act(&mut self, (kind, which, amount, fails_after): Act) {
        self.now_ms += 300;
        match kind {
            0..=3 => self.enqueue(which, fails_after),
            4..=8 => self.claim(amount, fails_after),
            9..=17 => self.commit(kind, which, amount, fails_after),
            18..=22 => self.report(which, fails_after),
            23 => self.stop(which, fails_after),
            24 => self.cancel(which),
            25 => self.heartbeat(which),
            26 | 27 => self.now_ms += amount * 1_500,
            28 => self.now_ms -= amount * 200,
            _ => self.sweep(fails_after),
        }
        self.acts += 1;
        self.compare();
    }

    fn enqueue(&mut self, which: usize, fails_after: i64) {
        // Sometimes for something that was asked for before.
        let n = if which.is_multiple_of(4) { self.model.asked / 2 } else { self.model.asked };
        if n >= TURNS {
            return;
        }
        let (agent, now_ms) = (n % AGENTS, self.now_ms);
        let new = [new_turn(n, agent)];
        let accepted = self.write(fails_after, move |tx| turn::enqueue_all(tx, &new, now_ms));
        let accepted = accepted.into_iter().next().unwrap().unwrap();
        assert_eq!(accepted.known, n < self.model.asked);
        if !accepted.known {
            let id = accepted.agent_turn_id;
            self.model.asked += 1;
            self.model.order.push(id.clone());
            self.model.lives.insert(id.clone(), (agent, Life::Queued, 0));
            self.model.queues.entry(agent).or_default().push_back(id);
            self.model.begin_next(agent, now_ms);
        }
    }

    fn claim(&mut self, amount: i64, fails_after: i64) {
        let now_ms = self.now_ms;
        let first = u32::try_from(self.model.fences.len()).unwrap() + 1;
        let count = usize::try_from(amount % 3 + 1).unwrap();
        let wish = claim((first..).take(count));
        let claimed = self.write(fails_after, move |tx| turn::claim(tx, &wish, now_ms));
        let due: Vec<AgentTurnId> = self
            .model
            .due
            .range(..=(now_ms, usize::MAX))
            .take(count)
            .map(|(_, id)| id.clone())
            .collect();
        let given: Vec<AgentTurnId> =
            claimed.iter().map(|one| one.fence.agent_turn_id.clone()).collect();
        assert_eq!(given, due, "in the order of time and acceptance");
        for one in claimed {
            self.model.due.retain(|_, id| *id != one.fence.agent_turn_id);
            self.model.fences.push(one.fence.clone());
            let (id, until_ms) = (one.fence.agent_turn_id.clone(), one.until_ms);
            *self.model.life(&id) = Life::Runs { fence: one.fence, until_ms };
        }
    }

    fn commit(&mut self, kind: u8, which: usize, amount: i64, fails_after: i64) {
        let Some(fence) = pick(&self.model.fences, which) else { return };
        let now_ms = self.now_ms;
        let places = usize::try_from(amount % 3 + 1).unwrap();
        let then = match kind {
            9..=11 => Then::Continue,
            12..=14 => Then::Suspend((0..places).map(call).collect()),
            _ => success(),
        };
        let holds = self.model.holds(&fence);
        let commits = [commit(&fence, then)];
        let committed = self
            .write(fails_after, move |tx| turn::commit_all(tx, &commits, TTL_MS, now_ms))
            .remove(0);
        assert_eq!(committed.is_ok(), holds, "{committed:?}");
        let (id, Ok(committed)) = (fence.agent_turn_id.clone(), committed) else { return };
        self.model.lives.get_mut(&id).unwrap().2 = 0;
        match committed {
            Committed::Continued { fence, until_ms, .. } => {
                self.model.fences.push(fence.clone());
                *self.model.life(&id) = Life::Runs { fence, until_ms };
            }
            Committed::Suspended { calls, resumed } => {
                assert!(!resumed, "nothing came early");
                let open = calls.iter().map(|call| (call.clone(), now_ms + TIMEOUT_MS)).collect();
                self.model.calls.extend(calls.into_iter().map(|call| (fence.clone(), call)));
                *self.model.life(&id) = Life::Waits { fence, open };
            }
            Committed::Finished { .. } => {
                self.done += 1;
                self.model.end(&id, Outcome::Success, now_ms);
            }
        }
    }

    fn report(&mut self, which: usize, fails_after: i64) {
        let Some((fence, call)) = pick(&self.model.calls, which) else { return };
        let now_ms = self.now_ms;
        let id = fence.agent_turn_id.clone();
        let awaited = matches!(&self.model.lives[&id].1, Life::Waits { open, .. } if open.contains_key(&call));
        let reports = [report(&fence, &call)];
        let reported = self.write(fails_after, move |tx| turn::report_all(tx, &reports, now_ms));
        let reported = reported.into_iter().next().unwrap().unwrap();
        if awaited {
            let resumed = self.model.answered(&id, &call, now_ms);
            assert_eq!(reported, Reported::Applied { resumed });
        } else {
            assert!(matches!(reported, Reported::Known | Reported::Skipped(_)), "{reported:?}");
        }
    }

    fn stop(&mut self, which: usize, fails_after: i64) {
        let Some(id) = pick(&self.model.order, which) else { return };
        let now_ms = self.now_ms;
        let stops = [Stop { agent_turn_id: id.clone(), reason: "enough".to_owned() }];
        let stopped = self.write(fails_after, move |tx| turn::stop_all(tx, &stops, now_ms));
        let stopped = stopped.into_iter().next().unwrap().unwrap();
        let wanted = match self.model.life(&id) {
            Life::Over(_) => Stopped::Over,
            Life::Queued => Stopped::Canceled,
            _ => Stopped::Stopped,
        };
        assert_eq!(stopped, wanted);
        if wanted != Stopped::Over {
            self.model.end(&id, Outcome::Canceled, now_ms);
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(id) = pick(&self.model.order, which) else { return };
        let queued = *self.model.life(&id) == Life::Queued;
        assert_eq!(self.node.cancel(&id, self.now_ms).is_ok(), queued);
        if queued {
            self.model.end(&id, Outcome::Canceled, self.now_ms);
        }
    }

    fn heartbeat(&mut self, which: usize) {
        let Some(fence) = pick(&self.model.fences, which) else { return };
        let renewed_ms = self.now_ms + TTL_MS;
        let renewed = self.node.heartbeat(&fence, self.now_ms);
        // Which step it is does not matter: a heartbeat may cross the write of a step.
        let id = fence.agent_turn_id.clone();
        match self.model.life(&id) {
            Life::Runs { fence: now, until_ms } if now.token == fence.token => {
                *until_ms = renewed_ms.max(*until_ms);
                assert_eq!(renewed, Ok(*until_ms));
            }
            _ => assert!(renewed.is_err()),
        }
    }

    fn sweep(&mut self, fails_after: i64) {
        let now_ms = self.now_ms;
        let due = self.node.read(move |rx| sweep::due(rx, now_ms, 100));
        self.write(fails_after, move |tx| sweep::settle(tx, &due, now_ms));
        assert_eq!(self.node.sweep(now_ms), 0, "all of it was done at once");
        self.model.sweep(now_ms);
    }

    fn compare(&self) {
        let found: Vec<_> = (0..AGENTS)
            .map(|agent| {
                let head = self.node.head(agent);
                (head.status(), head.active.map(|active| active.agent_turn_id))
            })
            .collect();
        assert_eq!(found, self.model.statuses());
        for (id, (_, life, _)) in &self.model.lives {
            let over = if let Life::Over(outcome) = life { Some(*outcome) } else { None };
            assert_eq!(self.node.row(id).outcome, over, "{id}");
        }
        if self.acts.is_multiple_of(self.audit_every) {
            self.node.assert_well();
        }
    }

    /// Some worker keeps running: everything ends.
    fn run_out(&mut self) {
        for round in 0..200 {
            if self.model.lives.values().all(|(_, life, _)| matches!(life, Life::Over(_))) {
                return;
            }
            self.now_ms += TIMEOUT_MS;
            self.sweep(-1);
            self.claim(2, -1);
            let held: Vec<usize> = (0..self.model.fences.len())
                .filter(|at| self.model.holds(&self.model.fences[*at]))
                .collect();
            for at in held {
                self.commit(17, at, 0, -1);
            }
            assert!(round < 199, "it does not end: {:?}", self.model.lives);
        }
    }
}

fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    // Mostly one of the newest, sometimes one that is long past.
    let back = if which.is_multiple_of(5) { which } else { which % 3 };
    let at = from.len().checked_sub(1 + back % from.len().max(1))?;
    from.get(at).cloned()
}

fn run(open: fn(Hooks) -> Node, audit_every: u32, acts: &[Act]) -> u64 {
    let mut story = Story::new(open, audit_every);
    for act in acts {
        story.act(*act);
    }
    story.run_out();
    story.compare();
    story.node.assert_well();
    story.done
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec((0_u8..32, 0_usize..60, 1_i64..9, -60_i64..60), 40..80)
}

fn many(cases: u32, audit_every: u32, open: fn(Hooks) -> Node) {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    // The same cases on every run: how much happens in them is then known, and `sim` is what explores.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let done = std::cell::Cell::new(0);
    runner
        .run(&acts(), |acts| {
            done.set(done.get() + run(open, audit_every, &acts));
            Ok(())
        })
        .unwrap();
    assert!(done.get() > 2 * u64::from(cases), "{} turns ended well: nothing happened", done.get());
}

#[test]
fn turns_live_as_the_naive_model_says() {
    many(24, 1, Node::sqlite);
}

#[test]
fn so_do_turns_on_postgres() {
    many(2, 10, Node::postgres);
}
