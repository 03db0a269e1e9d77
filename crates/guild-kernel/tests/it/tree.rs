//! Trees of turns that grow and die in any order, by commands that come late, twice or not at all, while the database
//! fails between any two statements. An audit looks at everything after each act; in the end nothing is left open.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_kernel::inbox::Outcome;
use guild_kernel::pmo;
use guild_kernel::turn::{self, Fence, NewTurn, Stop, Then, sweep};
use guild_kernel::{AgentTurnId, Error, Result, ToolCallId};
use guild_store::{Hooks, Point, Tx, args};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use crate::office::{call, command, ends, furnish, look};
use crate::world::{Node, T0, TTL_MS, claim, commit, new_turn, report};

const ROOTS: u32 = 8;
const WAIT_MS: i64 = 20_000;

/// What happens, to which, how much of it, and after how many statements a failure comes.
type Act = (u8, usize, i64, i64);

struct Tree {
    node: Node,
    countdown: Arc<AtomicI64>,
    now_ms: i64,
    roots: u32,
    tokens: u32,
    fences: Vec<Fence>,
    calls: Vec<(Fence, ToolCallId)>,
    finished: u64,
}

fn failing(countdown: &Arc<AtomicI64>) -> Hooks {
    let countdown = countdown.clone();
    Hooks::default().with_faults(move |point, _| {
        let counts = matches!(point, Point::BeforeStatement | Point::AfterStatement);
        let fails = counts && countdown.fetch_sub(1, Ordering::Relaxed) == 0;
        fails.then(|| guild_store::Error::Database("planted".to_owned()))
    })
}

fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    // Mostly one of the newest, sometimes one that is long past.
    let back = if which.is_multiple_of(5) { which } else { which % 4 };
    let at = from.len().checked_sub(1 + back % from.len().max(1))?;
    from.get(at).cloned()
}

fn wish(which: usize, at: usize) -> Value {
    let (strategy, name) = match (which + at) % 6 {
        0 => ("reuse".to_owned(), format!("a{}", 4 + which % 4)),
        1 => ("clone".to_owned(), format!("a{}", at % 8)),
        2 => ("new".to_owned(), "coder".to_owned()),
        _ => ("new".to_owned(), "lead".to_owned()),
    };
    json!({ "target_strategy": strategy, "target_ref": name, "instruction": format!("{which}/{at}") })
}

impl Tree {
    fn new(open: fn(Hooks) -> Node) -> Tree {
        let countdown = Arc::new(AtomicI64::new(-1));
        let node = open(failing(&countdown));
        furnish(&node);
        node.pack(0..ROOTS);
        let (fences, calls) = (Vec::new(), Vec::new());
        Tree { node, countdown, now_ms: T0, roots: 0, tokens: 0, fences, calls, finished: 0 }
    }

    /// Writes something that fails at first: what has failed has changed nothing, and is done again.
    fn write<T: Send + 'static>(
        &self,
        fails_after: i64,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        if fails_after >= 0 {
            let before = self.node.dump();
            self.countdown.store(fails_after, Ordering::Relaxed);
            let tried = self.node.write(run.clone());
            self.countdown.store(-1, Ordering::Relaxed);
            match tried {
                Ok(done) => return Ok(done),
                Err(_) => assert_eq!(self.node.dump(), before),
            }
        }
        self.node.write(run)
    }

    fn act(&mut self, (kind, which, amount, fails_after): Act) {
        self.now_ms += 200;
        match kind {
            0..=2 => self.root(),
            3..=7 => self.claim(amount, fails_after),
            8..=12 => self.call(&self.fork(which, amount), which, fails_after),
            13 => self.call(&(pmo::DELEGATE_ASYNC, wish(which, 3)), which, fails_after),
            14..=19 => self.finish(which, amount, fails_after),
            20..=25 => self.deliver(which, fails_after),
            26 => self.stop(which, fails_after),
            27 => self.now_ms += amount * 2_000,
            28 => self.report(which, fails_after),
            _ => self.sweep(fails_after),
        }
        look(&self.node);
    }

    fn root(&mut self) {
        let n = self.roots;
        if n < ROOTS {
            self.roots += 1;
            let new = NewTurn { profile_name: Some("lead".to_owned()), ..new_turn(n, n % 4) };
            self.node.enqueue(&new, self.now_ms).unwrap();
        }
    }

    fn claim(&mut self, amount: i64, fails_after: i64) {
        let (now_ms, first) = (self.now_ms, self.tokens + 1);
        self.tokens += 5;
        let wish = claim((first..).take(usize::try_from(amount % 5 + 1).unwrap()));
        let claimed = self.write(fails_after, move |tx| turn::claim(tx, &wish, now_ms)).unwrap();
        self.fences.extend(claimed.into_iter().map(|one| one.fence));
    }

    fn fork(&self, which: usize, amount: i64) -> (&'static str, Value) {
        let count = usize::try_from(amount % 4 + 1).unwrap();
        let tasks: Vec<Value> = (0..count).map(|at| wish(which, at)).collect();
        let mut arguments = json!({ "tasks": tasks, "fail_fast": which.is_multiple_of(2) });
        if which.is_multiple_of(3) {
            arguments["deadline_seconds"] = json!(amount * 3);
        }
        (pmo::FORK_JOIN, arguments)
    }

    fn call(&mut self, (tool, arguments): &(&str, Value), which: usize, fails_after: i64) {
        let Some(fence) = pick(&self.fences, which) else { return };
        let now_ms = self.now_ms;
        let then = Then::Suspend(vec![call(tool, arguments.clone(), WAIT_MS)]);
        let commits = [commit(&fence, then)];
        let committed =
            self.write(fails_after, move |tx| turn::commit_all(tx, &commits, TTL_MS, now_ms));
        if let Ok(turn::Committed::Suspended { calls, .. }) = committed.unwrap().remove(0) {
            self.calls.extend(calls.into_iter().map(|call| (fence.clone(), call)));
        }
    }

    fn finish(&mut self, which: usize, amount: i64, fails_after: i64) {
        let Some(fence) = pick(&self.fences, which) else { return };
        let now_ms = self.now_ms;
        let outcome = match amount {
            1 => Outcome::Failed,
            2 => Outcome::Partial,
            _ => Outcome::Success,
        };
        let commits = [commit(&fence, ends(outcome, "done"))];
        let committed =
            self.write(fails_after, move |tx| turn::commit_all(tx, &commits, TTL_MS, now_ms));
        self.finished += u64::from(committed.unwrap().remove(0).is_ok());
    }

    /// As the sink does it.
    fn deliver(&mut self, which: usize, fails_after: i64) {
        let Some((_, call)) = pick(&self.calls, which) else { return };
        let (message, now_ms) = (command(&self.node, &call), self.now_ms);
        let order = message.clone();
        match self.write(fails_after, move |tx| pmo::handle(tx, &order, now_ms)) {
            Ok(_) => {}
            Err(Error::Store(error)) => panic!("{error}"),
            Err(refusal) => {
                let refused =
                    self.write(fails_after, move |tx| pmo::refuse(tx, &message, &refusal, now_ms));
                refused.unwrap();
            }
        }
    }

    fn turns(&self) -> Vec<AgentTurnId> {
        let names: Vec<(String,)> = self.node.read(|rx| {
            let sql =
                "SELECT agent_turn_id FROM agent_inbox WHERE message_type = 'turn' ORDER BY seq";
            Ok(rx.all(sql, args![])?)
        });
        names.into_iter().map(|(name,)| name.parse().unwrap()).collect()
    }

    fn stop(&mut self, which: usize, fails_after: i64) {
        let Some(agent_turn_id) = pick(&self.turns(), which) else { return };
        let now_ms = self.now_ms;
        let stops = [Stop { agent_turn_id, reason: "enough".to_owned() }];
        self.write(fails_after, move |tx| turn::stop_all(tx, &stops, now_ms)).unwrap();
    }

    /// Somebody else answers.
    fn report(&mut self, which: usize, fails_after: i64) {
        let Some((fence, call)) = pick(&self.calls, which) else { return };
        let (reports, now_ms) = ([report(&fence, &call)], self.now_ms);
        self.write(fails_after, move |tx| turn::report_all(tx, &reports, now_ms)).unwrap();
    }

    fn sweep(&mut self, fails_after: i64) {
        let now_ms = self.now_ms;
        let due = self.node.read(move |rx| sweep::due(rx, now_ms, 100));
        self.write(fails_after, move |tx| sweep::settle(tx, &due, now_ms)).unwrap();
    }

    /// Some worker and some node keep running: everything ends.
    fn run_out(&mut self) {
        for round in 0..100 {
            self.now_ms += WAIT_MS / 5;
            self.node.sweep(self.now_ms);
            for at in 0..self.calls.len() {
                self.calls.rotate_left(usize::from(at > 0));
                self.deliver(4, -1);
            }
            for _ in 0..5 {
                self.claim(4, -1);
            }
            for at in 0..self.fences.len() {
                self.fences.rotate_left(usize::from(at > 0));
                self.finish(4, 3, -1);
            }
            self.fences.clear();
            let open: Vec<(i64,)> = self.node.read(|rx| {
                let sql = "SELECT count(*) FROM agent_inbox WHERE closed_ms IS NULL";
                Ok(rx.all(sql, args![])?)
            });
            if open == [(0,)] {
                return;
            }
            assert!(round < 99, "{open:?} rows stay open");
        }
    }
}

/// How many turns and batches ended well.
fn run(open: fn(Hooks) -> Node, acts: &[Act]) -> (u64, i64) {
    let mut tree = Tree::new(open);
    for act in acts {
        tree.act(*act);
    }
    tree.run_out();
    tree.node.assert_well();
    let counts: Option<(i64, i64)> = tree.node.read(|rx| {
        let sql = "SELECT coalesce(sum(CASE WHEN status = 'running' THEN 1 ELSE 0 END), 0),
                     coalesce(sum(CASE WHEN status = 'success' THEN 1 ELSE 0 END), 0) FROM pmo_batches";
        Ok(rx.first(sql, args![])?)
    });
    let (running, well) = counts.unwrap();
    assert_eq!(running, 0);
    (tree.finished, well)
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    prop::collection::vec((0_u8..32, 0_usize..60, 1_i64..9, -80_i64..80), 40..90)
}

fn many(cases: u32, open: fn(Hooks) -> Node) {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    // The same cases on every run: how much happens in them is then known, and `sim` is what explores.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let (turns, batches) = (Cell::new(0), Cell::new(0));
    runner
        .run(&acts(), |acts| {
            let (finished, well) = run(open, &acts);
            turns.set(turns.get() + finished);
            batches.set(batches.get() + well);
            Ok(())
        })
        .unwrap();
    // Few cases may all be poor ones: they are for the database, the many for what happens.
    let (turns_least, batches_least) =
        if cases < 10 { (1, 0) } else { (u64::from(cases) * 4, i64::from(cases) / 4) };
    assert!(turns.get() >= turns_least, "{} turns ended: nothing happened", turns.get());
    assert!(batches.get() >= batches_least, "{} batches ended well", batches.get());
}

#[test]
fn trees_of_turns_end_whatever_happens() {
    many(20, Node::sqlite);
}

#[test]
fn so_do_trees_on_postgres() {
    many(2, Node::postgres);
}
