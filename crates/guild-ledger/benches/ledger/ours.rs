//! The ledger itself: overdraft checks, idempotency and the hash of every commit.

use std::sync::Arc;

use futures_util::future::{join, try_join_all};
use guild_ledger::writer::{self, Writer};
use guild_ledger::{Result, audit, ledger};
use guild_protocol::env::Clock;
use testbed::bench::{Measured, Watch};

use crate::rows::History;
use crate::said;
use crate::world::{Still, World};

const USERS: usize = 1_000;
const CALLERS: usize = 512;

/// How transfers get into the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Many callers of one writer, each with one transfer at a time.
    Batched,
    /// One caller, one transaction for each transfer.
    Direct,
}

impl Way {
    /// More than are booked in a second on most machines.
    fn prepared_a_second(self) -> u64 {
        match self {
            Way::Batched => 200_000,
            Way::Direct => 10_000,
        }
    }
}

/// Measures, audits, and gives what was written.
pub(crate) fn run(
    options: &guild_store::Options,
    way: Way,
    seconds: u64,
) -> Result<(Measured, History), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(said)?;
    let world = World::open(options, &runtime, USERS)?;
    world.prepare(seconds * way.prepared_a_second()).map_err(said)?;
    let watch = Watch::start();
    let booked = runtime
        .block_on(async {
            match way {
                Way::Batched => batched(&world, |_| watch.before(seconds)).await,
                Way::Direct => direct(&world, |_| watch.before(seconds)).await,
            }
        })
        .map_err(said)?;
    let per_s = watch.per_s(booked);
    let history = runtime.block_on(History::read(&world)).map_err(said)?;
    assert_eq!(history.transfers(), booked, "transfers in the table");
    runtime.block_on(check(&world, booked)).map_err(said)?;
    world.service.close();
    Ok((Measured { name: "guild", per_s, result: history.result() }, history))
}

/// The ledger adds up to zero and agrees with its own history.
pub(crate) async fn check(world: &World, booked: u64) -> Result<()> {
    let report = world.store().read(audit::run).await?;
    assert_eq!(report.problems, Vec::<String>::new(), "what the audit found");
    let funding = u64::try_from(world.users.len()).unwrap_or(0);
    assert_eq!(report.transfers, booked + funding, "transfers that the audit replayed");
    let entries = world.store().read(ledger::all_entries).await?;
    let sum: i64 = entries.values().map(|entry| entry.balance.units()).sum();
    assert_eq!(sum, 0, "the sum over all accounts");
    Ok(())
}

/// Many callers, until `goes_on(asked)` says no; how many transfers were booked.
pub(crate) async fn batched(world: &World, goes_on: impl Fn(u64) -> bool) -> Result<u64> {
    let options = writer::Options::default();
    let (writer, service) = Writer::new(&options, world.store(), Arc::new(Still))?;
    let asked = std::cell::Cell::new(0);
    let goes_on = || {
        let on = goes_on(asked.get());
        asked.set(asked.get() + u64::from(on));
        on
    };
    let callers: Vec<_> = (0..CALLERS).map(|_| call(world, writer.clone(), &goes_on)).collect();
    // The service ends with the last handle.
    drop(writer);
    let (booked, ()) = join(try_join_all(callers), service).await;
    Ok(booked?.into_iter().sum())
}

async fn call(world: &World, writer: Writer, goes_on: &impl Fn() -> bool) -> Result<u64> {
    let mut booked = 0;
    while goes_on() {
        let outcomes = writer.book(vec![world.next_transfer()?]).await?;
        booked += outcomes.len() as u64;
    }
    Ok(booked)
}

async fn direct(world: &World, goes_on: impl Fn(u64) -> bool) -> Result<u64> {
    let (store, mut booked) = (world.store(), 0);
    while goes_on(booked) {
        let chains = [vec![world.next_transfer()?]];
        let answers = store.write(move |tx| ledger::book(tx, &chains, Still.now_ms())).await?;
        for answer in answers {
            booked += answer?.len() as u64;
        }
    }
    Ok(booked)
}
