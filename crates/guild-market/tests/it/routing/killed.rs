//! A process that writes the matrix is killed at any point, again and again: what it finds afterwards is what the log
//! says, and what it had acted upon is in there.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_market::Result;
use guild_market::judge::Class;
use guild_market::routing::log;
use guild_market::routing::snapshot::{self, Recovered, Snapshot};
use guild_market::routing::{Cause, Change, Draws, Matrix, Mutation, Options, Status};
use guild_store::{
    Db, Error as StoreError, Hooks, Migrations, Pump, Rx, Sqlite, Store, Tx, args, pumps,
};

use super::{admitted, change, outcome};
use crate::world::{T0, block_on};

const MUTATIONS: usize = 1_000;
/// How many seeds are run, if not a few: `cargo xtask soak routing --seeds 300`.
const SEEDS: &str = "GUILD_TEST_ROUTING_SEEDS";
const FEW_SEEDS: u64 = 12;

/// What is wrong with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Its matrix changes before the log does.
    EffectBeforeLog,
    /// After a start it takes a snapshot for the whole truth.
    LogNotReplayed,
}

/// A process and the database that outlives it.
struct World {
    name: String,
    /// Keeps the database while no process is there.
    _keeper: Sqlite,
    db: Sqlite,
    store: Store,
    writes: Pump,
    reads: Pump,
    /// How many points are left until the process dies.
    left: Arc<AtomicI64>,
    draws: Draws,
    bug: Option<Bug>,
    matrix: Matrix,
    kills: u64,
}

/// The process is dead.
struct Dead;

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let name = format!("routing-{seed}-{bug:?}-{:?}", std::thread::current().id());
        let mut keeper = Sqlite::open_memory(&name).unwrap();
        let all = Migrations::store()
            .and(guild_ledger::migrations())
            .and(guild_network::migrations())
            .and(guild_market::migrations());
        all.apply(&mut keeper, T0).unwrap();
        let left = Arc::new(AtomicI64::new(i64::MAX));
        let (store, writes, reads) = pumps(4, &dying(&left));
        let db = Sqlite::open_memory(&name).unwrap();
        let matrix = Matrix::new(Options::default());
        let draws = Draws::new(seed);
        let mut world = World {
            name,
            _keeper: keeper,
            db,
            store,
            writes,
            reads,
            left,
            draws,
            bug,
            matrix,
            kills: 0,
        };
        world.live_a_while();
        world
    }

    /// Decides when the process dies the next time.
    fn live_a_while(&mut self) {
        let points = i64::try_from(self.draws.below(4_000)).unwrap();
        self.left.store(points, Ordering::SeqCst);
    }

    fn write<T: Send + 'static>(
        &mut self,
        run: impl Fn(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<Result<T>, Dead> {
        let answer = self.store.write(run);
        self.writes.drain(&mut self.db, 1).map_err(|_| Dead)?;
        Ok(block_on(answer))
    }

    fn read<T: Send + 'static>(
        &mut self,
        run: impl Fn(&mut Rx<'_>) -> Result<T> + Send + 'static,
    ) -> std::result::Result<T, Dead> {
        let answer = self.store.read(run);
        self.reads.drain(&mut self.db, 1).map_err(|_| Dead)?;
        Ok(block_on(answer).unwrap())
    }

    /// One change: logged, then in effect.
    fn change(&mut self, change: &Change, now_ms: i64) -> std::result::Result<(), Dead> {
        if self.bug == Some(Bug::EffectBeforeLog) {
            let known = self.is_logged(&change.key)?;
            if !known {
                let effect = self.matrix.plan(change, now_ms).unwrap();
                self.matrix.apply(effect).unwrap();
            }
        }
        let wanted = change.clone();
        self.write(move |tx| {
            log::append(tx, &Options::default(), std::slice::from_ref(&wanted), now_ms)
        })?
        .unwrap();
        if self.bug != Some(Bug::EffectBeforeLog) {
            let behind = self.matrix.clone();
            self.matrix = self.read(move |rx| {
                let mut matrix = behind.clone();
                log::catch_up(rx, &mut matrix)?;
                Ok(matrix)
            })?;
        }
        Ok(())
    }

    fn is_logged(&mut self, key: &str) -> std::result::Result<bool, Dead> {
        let key = key.to_owned();
        let sql = "SELECT seq FROM market_route_log WHERE change_key = $1";
        self.read(move |rx| Ok(rx.first::<(i64,)>(sql, args![&key])?.is_some()))
    }

    fn save(&mut self) -> std::result::Result<(), Dead> {
        let saved = Snapshot::of(&self.matrix).unwrap();
        // The one with the bug has no heads: what it saves is refused, and that is not what is tested here.
        let _ = self.write(move |tx| snapshot::write(tx, &saved, T0))?;
        Ok(())
    }

    /// The process is gone, and another one starts. Gives what is wrong.
    fn restart(&mut self) -> Option<String> {
        self.left.store(i64::MAX, Ordering::SeqCst);
        self.kills += 1;
        let acted_upon = self.matrix.clone();
        // First nothing is left of the dead one, its open transaction above all.
        self.db = Sqlite::open_memory(&format!("{}-none", self.name)).unwrap();
        self.db = Sqlite::open_memory(&self.name).unwrap();
        (self.store, self.writes, self.reads) = pumps(4, &dying(&self.left));
        if self.draws.below(4) == 0 {
            self.damage();
        }
        let options = Options::default();
        let found: Recovered = match self.read(move |rx| snapshot::recover(rx, &options)) {
            Ok(found) => found,
            Err(Dead) => return Some("nobody kills it now".to_owned()),
        };
        let whole = self.read(|rx| log::replay(rx, &Options::default())).ok()?;
        self.matrix = match (self.bug, found.snapshot_seq) {
            (Some(Bug::LogNotReplayed), Some(seq)) => self.saved(seq),
            _ => found.matrix,
        };
        let until = self.up_to(acted_upon.seq());
        let wrong = if self.matrix != whole {
            Some("what was recovered is not what the log gives")
        } else if !same(&acted_upon, &until) {
            Some("it acted upon what is not in the log")
        } else if !whole.problems().is_empty() {
            Some("the matrix contradicts itself")
        } else {
            None
        };
        self.live_a_while();
        wrong.map(str::to_owned)
    }

    /// What a snapshot holds.
    fn saved(&mut self, seq: i64) -> Matrix {
        let sql = "SELECT text FROM market_route_snapshot WHERE seq = $1";
        let text = self.read(move |rx| Ok(rx.first::<(String,)>(sql, args![seq])?));
        let text = text.ok().flatten().map(|(text,)| text).unwrap_or_default();
        Snapshot::read(&text, &Options::default()).unwrap()
    }

    /// What the log gives up to a row.
    fn up_to(&mut self, seq: i64) -> Matrix {
        let rows = self.read(move |rx| {
            let mut rows = Vec::new();
            for task in log::replay(rx, &Options::default())?.task_types() {
                for n in 1..=PROVIDERS {
                    rows.extend(log::history(rx, task, &super::who(n), 1_000)?);
                }
            }
            Ok(rows)
        });
        let Ok(mut rows) = rows else { return Matrix::new(Options::default()) };
        rows.retain(|row| row.seq <= seq);
        rows.sort_by_key(|row| row.seq);
        let mut matrix = Matrix::new(Options::default());
        rows.into_iter().for_each(|row| matrix.apply(row).unwrap());
        matrix
    }

    /// The newest snapshot was written badly.
    fn damage(&mut self) {
        let sql = "UPDATE market_route_snapshot SET text = substr(text, 1, length(text) / 2)
                   WHERE seq = (SELECT max(seq) FROM market_route_snapshot)";
        self.db.batch(sql).unwrap();
    }
}

/// Whether two matrices are the same but for the hash of the log, which only one of them knows.
fn same(one: &Matrix, other: &Matrix) -> bool {
    let all = |matrix: &Matrix| {
        let mut all = Vec::new();
        for task in matrix.task_types() {
            let of = matrix.providers_of(task);
            all.extend(of.map(|(provider, entry)| (task.clone(), *provider, entry.clone())));
        }
        (matrix.seq(), all)
    };
    all(one) == all(other)
}

fn dying(left: &Arc<AtomicI64>) -> Hooks {
    let left = left.clone();
    Hooks::default().with_faults(move |_, _| {
        (left.fetch_sub(1, Ordering::SeqCst) <= 0).then_some(StoreError::Crashed)
    })
}

const PROVIDERS: u8 = 8;

/// What shall happen: to whom is decided by the seed, and each can happen whatever happened before.
fn story(seed: u64) -> Vec<Change> {
    let mut draws = Draws::new(!seed);
    let mut story = Vec::new();
    for name in ["work", "other"] {
        for n in 1..=PROVIDERS {
            let trust_bp = u32::try_from(draws.below(9_000)).unwrap();
            story.push(change(&format!("{name}{n}"), name, n, admitted(trust_bp)));
        }
    }
    while story.len() < MUTATIONS {
        let n = 1 + u8::try_from(draws.below(u64::from(PROVIDERS))).unwrap();
        let name = if draws.below(3) == 0 { "other" } else { "work" };
        let step = i64::try_from(draws.below(500)).unwrap();
        let mutation = match draws.below(10) {
            0..3 => Mutation::Assigned,
            3 => Mutation::Returned,
            4..7 => outcome(Class::Success, 1_000 + step),
            7 => outcome(Class::Failure, -1_000 - step),
            8 => Mutation::Verified,
            _ => {
                let stays = draws.below(2) == 0;
                let status = if stays { Status::Active } else { Status::Quarantined };
                let cause = (!stays).then_some(Cause::Operator);
                Mutation::Moved { status, cause, until_ms: None }
            }
        };
        story.push(change(&format!("m{}", story.len()), name, n, mutation));
    }
    story
}

/// Runs a seed to its end. Gives how often the process was killed, or what was wrong.
fn run(seed: u64, bug: Option<Bug>) -> std::result::Result<u64, String> {
    let (mut world, story) = (World::new(seed, bug), story(seed));
    for (number, change) in story.iter().enumerate() {
        let now_ms = T0 + i64::try_from(number).unwrap() * 10_000;
        // Whoever asks asks again until it is answered, with the same key.
        loop {
            let mut done = world.change(change, now_ms);
            if done.is_ok() && number % 37 == 36 {
                done = world.save();
            }
            match done {
                Ok(()) => break,
                Err(Dead) => {
                    if let Some(wrong) = world.restart() {
                        return Err(format!("seed {seed}, at change {number}: {wrong}"));
                    }
                }
            }
        }
    }
    if let Some(wrong) = world.restart() {
        return Err(format!("seed {seed}, at the end: {wrong}"));
    }
    let mut expected = Matrix::new(Options::default());
    for (number, change) in story.iter().enumerate() {
        let now_ms = T0 + i64::try_from(number).unwrap() * 10_000;
        let effect = expected.plan(change, now_ms).unwrap();
        expected.apply(effect).unwrap();
    }
    if !same(&world.matrix, &expected) {
        return Err(format!("seed {seed}: something was lost, doubled or changed"));
    }
    Ok(world.kills)
}

fn seeds() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "how a test run tells its tests what to do")]
    let told = std::env::var(SEEDS);
    told.ok().and_then(|text| text.parse().ok()).unwrap_or(FEW_SEEDS)
}

#[test]
fn killed_at_any_point_the_matrix_is_what_the_log_says() {
    let (seeds, mut kills) = (seeds(), 0);
    for seed in 0..seeds {
        kills += run(seed, None).unwrap();
    }
    println!("{seeds} seeds of {MUTATIONS} changes, killed {kills} times");
    assert!(kills > seeds, "it was hardly ever killed: {kills}");
}

#[test]
fn an_effect_before_its_row_is_found() {
    let found = (0..20).find_map(|seed| run(seed, Some(Bug::EffectBeforeLog)).err());
    assert!(found.is_some_and(|wrong| wrong.contains("acted upon what is not in the log")));
}

#[test]
fn a_log_that_is_not_replayed_is_found() {
    let found = (0..20).find_map(|seed| run(seed, Some(Bug::LogNotReplayed)).err());
    assert!(found.is_some_and(|wrong| wrong.contains("not what the log gives")));
}
