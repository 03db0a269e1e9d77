//! Whether the ledger and the event table stay as fast when they have grown.

use futures_util::future::try_join_all;
use guild_ledger::{NewTransfer, Result, ledger};
use guild_protocol::env::Clock;
use guild_store::event::{self, NewEvent};
use guild_store::{Store, Tx};
use testbed::bench::{Measured, Watch};

use crate::said;
use crate::world::{Still, World};

const USERS: usize = 10_000;
/// Transfers and events in one commit.
const BATCH: u64 = 500;
/// The first mark; the others are whole millions.
const FIRST: u64 = 100_000;
const MILLION: u64 = 1_000_000;
/// A speed is the median of so many short runs: a checkpoint hits one of them, not all.
const RUNS: usize = 9;
const WRITES_A_RUN: u64 = 20_000;
const READERS: usize = 4;
const READS_A_RUN: u64 = 20_000;

/// Grows to so many millions; at each mark the speed of writing and of reading, as `write` and `read`.
pub(crate) fn measure(
    options: &guild_store::Options,
    millions: u64,
) -> Result<Vec<Measured>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(said)?;
    let world = World::open(options, &runtime, USERS)?;
    let mut measured = Vec::new();
    let mut written = 0;
    let millions = (1..=millions).map(|million| million * MILLION);
    for mark in std::iter::once(FIRST).chain(millions) {
        runtime.block_on(write(&world, &mut written, mark)).map_err(said)?;
        let writes = (0..RUNS).map(|_| {
            let watch = Watch::start();
            let until = written + WRITES_A_RUN;
            runtime.block_on(write(&world, &mut written, until)).map_err(said)?;
            Ok(watch.per_s(WRITES_A_RUN))
        });
        let per_s = median(writes.collect::<Result<_, String>>()?);
        measured.push(Measured { name: "write", per_s, result: mark.to_string() });
        let reads = (0..RUNS).map(|_| {
            let watch = Watch::start();
            let readers = (0..READERS).map(|_| read(&world));
            runtime.block_on(try_join_all(readers)).map_err(said)?;
            Ok(watch.per_s(READS_A_RUN))
        });
        let per_s = median(reads.collect::<Result<_, String>>()?);
        measured.push(Measured { name: "read", per_s, result: mark.to_string() });
        tell(mark, &measured);
    }
    runtime.block_on(check(&world, written)).map_err(said)?;
    world.service.close();
    Ok(measured)
}

/// It takes long: whoever waits wants to see that it moves.
#[expect(clippy::print_stderr, reason = "a benchmark prints")]
fn tell(mark: u64, measured: &[Measured]) {
    for Measured { name, per_s, result } in measured {
        if *result == mark.to_string() {
            eprintln!("{mark} rows: {per_s:.0} {name}s a second");
        }
    }
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied().unwrap_or(0.0)
}

/// Writes transfers and as many events, until there are `until` of each.
async fn write(world: &World, written: &mut u64, until: u64) -> Result<()> {
    let store = world.store();
    // Two commits at a time: while one is written the next is made.
    let mut waiting = None;
    while *written < until {
        let count = BATCH.min(until - *written);
        let chains: Vec<Vec<NewTransfer>> =
            (0..count).map(|_| Ok(vec![world.next_transfer()?])).collect::<Result<_>>()?;
        let next = store.write(move |tx| commit(tx, &chains));
        if let Some(earlier) = waiting.replace(next) {
            earlier.await?;
        }
        *written += count;
    }
    match waiting {
        Some(last) => last.await,
        None => Ok(()),
    }
}

fn commit(tx: &mut Tx<'_>, chains: &[Vec<NewTransfer>]) -> Result<()> {
    let now_ms = Still.now_ms();
    let body = "x".repeat(100);
    let answers = ledger::book(tx, chains, now_ms)?.into_iter().collect::<Result<Vec<_>>>()?;
    let ids = answers.iter().flatten().map(|outcome| outcome.booked().transfer_id.as_str());
    let event =
        |id| NewEvent { topic: "ledger", id, kind: "bench.post", at_ms: now_ms, body: &body };
    let events: Vec<NewEvent<'_>> = ids.map(event).collect();
    event::append_all(tx, &events)?;
    Ok(())
}

async fn read(world: &World) -> Result<()> {
    let store: Store = world.store();
    for _ in 0..READS_A_RUN / READERS as u64 {
        let id = world.user();
        let asked = std::collections::BTreeSet::from([id]);
        let entries = store.read(move |rx| ledger::entries(rx, &asked)).await?;
        assert!(entries.values().all(|entry| entry.balance.units() > 0) && entries.len() == 1);
    }
    Ok(())
}

/// Everything that was written is there, once.
async fn check(world: &World, written: u64) -> Result<()> {
    crate::ours::check(world, written).await?;
    let sql = "SELECT count(*) FROM event";
    let events: Option<(i64,)> = world.store().read(move |rx| rx.first(sql, &[])).await?;
    assert_eq!(events.and_then(|(count,)| u64::try_from(count).ok()), Some(written), "events");
    Ok(())
}
