//! The durable cycle of a turn: it is enqueued, claimed, moved one step on under its fence, and finished. Four writes,
//! nine statements. Ours goes through [`Store::write`] with several callers; the limit is one thread that runs the
//! same statements in the same order, and commits as many calls at once as our pump did on average.

mod bare;
mod ops;
mod ours;

use guild_store::{Migration, Migrations, Sql};
use testbed::bench::{Arguments, Measured};

use bare::{Lite, Pg};

/// The tables of the cycle. A turn is due while it is open: one range of one index, which needs no statistics.
const SCHEMA: Sql = Sql {
    lite: "CREATE TABLE inbox (id TEXT PRIMARY KEY, agent TEXT NOT NULL, due_ms BIGINT, token TEXT);
           CREATE INDEX inbox_due ON inbox (due_ms, id) WHERE due_ms IS NOT NULL;
           CREATE TABLE head (agent TEXT PRIMARY KEY, epoch BIGINT NOT NULL, token TEXT, seq BIGINT NOT NULL);
           CREATE TABLE step (agent TEXT NOT NULL, seq BIGINT NOT NULL, turn TEXT NOT NULL, body TEXT NOT NULL,
                              PRIMARY KEY (agent, seq));
           CREATE TABLE turn_event (seq INTEGER PRIMARY KEY, turn TEXT NOT NULL, kind TEXT NOT NULL);
           CREATE TABLE turn_outbox (seq INTEGER PRIMARY KEY, turn TEXT NOT NULL, body TEXT NOT NULL);",
    pg: "CREATE TABLE inbox (id TEXT PRIMARY KEY, agent TEXT NOT NULL, due_ms BIGINT, token TEXT);
         CREATE INDEX inbox_due ON inbox (due_ms, id) WHERE due_ms IS NOT NULL;
         CREATE TABLE head (agent TEXT PRIMARY KEY, epoch BIGINT NOT NULL, token TEXT, seq BIGINT NOT NULL);
         CREATE TABLE step (agent TEXT NOT NULL, seq BIGINT NOT NULL, turn TEXT NOT NULL, body TEXT NOT NULL,
                            PRIMARY KEY (agent, seq));
         CREATE TABLE turn_event (seq BIGSERIAL PRIMARY KEY, turn TEXT NOT NULL, kind TEXT NOT NULL);
         CREATE TABLE turn_outbox (seq BIGSERIAL PRIMARY KEY, turn TEXT NOT NULL, body TEXT NOT NULL);",
};

/// All that was done, and nothing left open.
const DONE: &str = "SELECT
     (SELECT count(*) FROM step) , (SELECT count(*) FROM turn_event), (SELECT count(*) FROM turn_outbox),
     (SELECT count(*) FROM inbox WHERE due_ms IS NULL), (SELECT count(*) FROM inbox WHERE due_ms IS NOT NULL),
     (SELECT count(*) FROM head WHERE token IS NOT NULL)";

/// How a run of ours went: the limit does the same.
#[derive(Debug, Clone, Copy)]
struct Shape {
    callers: usize,
    cycles: u64,
    /// How many calls shared a commit, on average.
    calls_a_commit: f64,
}

impl Shape {
    fn result(self) -> String {
        let Shape { callers, cycles, calls_a_commit } = self;
        format!("{cycles} cycles of {callers} callers, {calls_a_commit:.1} calls a commit")
    }
}

pub(crate) fn on_sqlite(arguments: &Arguments, callers: usize) -> Result<Vec<Measured>, String> {
    let options = guild_store::Options::file(&arguments.directory.join("ours.db"));
    let (ours, shape) = ours::run(&options, callers, arguments.seconds)?;
    let limit = Lite::open(&arguments.directory.join("bare.db"), |db| bare::run(db, shape))?;
    Ok(vec![ours, limit])
}

pub(crate) fn on_postgres(arguments: &Arguments, callers: usize) -> Result<Vec<Measured>, String> {
    let url = arguments.postgres_url()?;
    let (ours, shape) = ours::run(&guild_store::Options::at(url), callers, arguments.seconds)?;
    let limit = bare::run(&mut Pg::connect(url)?, shape)?;
    Ok(vec![ours, limit])
}

fn migrations() -> Migrations {
    Migrations::store().and([Migration { area: "bench", number: 1, name: "cycle", sql: SCHEMA }])
}

/// What the tables must hold after so many cycles.
fn expected(cycles: u64) -> Vec<i64> {
    let cycles = i64::try_from(cycles).unwrap_or(i64::MAX);
    vec![cycles, cycles, cycles, cycles, 0, 0]
}
