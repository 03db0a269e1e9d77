//! The cycle through the store, by several callers at once.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::try_join_all;
use guild_store::{Error, Hooks, Options, Point, Result, Service, Store, Tx, Val, args};
use testbed::bench::{Measured, Watch};

use super::ops::{self, Op, Statements};
use super::{DONE, Shape, expected, migrations};
use crate::said;

const CALLS_A_CYCLE: u64 = 4;

impl Statements for Tx<'_> {
    type Error = Error;

    fn exec(&mut self, op: Op, args: &[Val<'_>]) -> Result<()> {
        Tx::exec(self, op.sql(), args).map(drop)
    }

    fn cas(&mut self, op: Op, args: &[Val<'_>]) -> Result<()> {
        Tx::cas(self, op.sql(), args)
    }

    fn texts(&mut self, op: Op, args: &[Val<'_>]) -> Result<(String, String)> {
        self.first(op.sql(), args)?.ok_or(Error::Fenced)
    }

    fn ints(&mut self, op: Op, args: &[Val<'_>]) -> Result<(i64, i64)> {
        self.first(op.sql(), args)?.ok_or(Error::Fenced)
    }
}

pub(super) fn run(
    options: &Options,
    callers: usize,
    seconds: u64,
) -> Result<(Measured, Shape), String> {
    let commits = Arc::new(AtomicU64::new(0));
    let count = commits.clone();
    let hooks = Hooks::default().with_faults(move |point, _| {
        if point == Point::AfterCommit {
            count.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    let service = Service::open(options, &migrations(), hooks, 0).map_err(said)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(said)?;
    let store = service.handle();
    let (per_s, cycles) = runtime.block_on(cycles(&store, callers, seconds)).map_err(said)?;
    let commits = commits.load(Ordering::Relaxed).max(1);
    let stored = runtime.block_on(stored(&store)).map_err(said)?;
    service.close();
    assert_eq!(stored, expected(cycles), "what the tables of our own run hold");
    let calls_a_commit = (cycles * CALLS_A_CYCLE) as f64 / commits as f64;
    let shape = Shape { callers, cycles, calls_a_commit };
    Ok((Measured { name: "guild", per_s, result: shape.result() }, shape))
}

async fn stored(store: &Store) -> Result<Vec<i64>> {
    let row = store.read(|rx| rx.first::<(i64, i64, i64, i64, i64, i64)>(DONE, args![])).await?;
    Ok(row.map(|(a, b, c, d, e, f)| vec![a, b, c, d, e, f]).unwrap_or_default())
}

/// So many a second, and how many.
async fn cycles(store: &Store, callers: usize, seconds: u64) -> Result<(f64, u64)> {
    let started = Cell::new(0);
    let body: Arc<str> = ops::body().into();
    let watch = Watch::start();
    try_join_all((0..callers).map(|_| call(store, &started, &body, watch, seconds))).await?;
    Ok((watch.per_s(started.get()), started.get()))
}

async fn call(
    store: &Store,
    started: &Cell<u64>,
    body: &Arc<str>,
    watch: Watch,
    seconds: u64,
) -> Result<()> {
    while watch.before(seconds) {
        let number = started.get();
        started.set(number + 1);
        store.write(move |tx| ops::enqueue(tx, number)).await?;
        let claim = store.write(move |tx| ops::claim(tx, number)).await?;
        let (held, text) = (claim.clone(), body.clone());
        store.write(move |tx| ops::step(tx, &held, &text)).await?;
        let text = body.clone();
        store.write(move |tx| ops::finish(tx, &claim, &text)).await?;
    }
    Ok(())
}
