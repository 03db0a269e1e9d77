//! What the meter costs.
//!
//! `sqlite`, `postgres`: how fast a minute of each of 100,000 running sandboxes is paid, as a node does it, beside the
//! ledger that books the same transfers and nothing else, in batches as large as it makes them, on the same database.
//!
//! `api_sqlite`, `api_postgres`: how often the 99th percentile of what users ask over HTTP fits into a second, while
//! all of that is paid, beside the same without it.
//!
//! `lease`: how many leases are signed and taken to an agent in a second, one after another, beside the signatures
//! alone.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use guild_hosting::upkeep::{self, Upkeep};
use guild_hosting::{Result, audit};
use guild_ledger::{NewTransfer, ledger, writer};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use guild_store::{Options, Store};
use testbed::bench::{self, Arguments, Measured, Watch};
use tokio::runtime::Runtime;

#[path = "../shared/asking.rs"]
mod asking;
mod fleet;
#[path = "../shared/hall.rs"]
mod hall;
mod lease;

use asking::{Connection, Times, ask, create_job, get};
use fleet::{Fleet, SANDBOXES};
use hall::{Hall, T0};

/// At this moment the next minute of all of them is due.
const DUE_MS: i64 = T0 + 50_000;
/// So many users ask at once.
const CALLERS: usize = 4;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
    if arguments.case == "lease" {
        return lease::measure(&runtime, arguments);
    }
    let (with_api, database) = match arguments.case.strip_prefix("api_") {
        Some(database) => (true, database),
        None => (false, arguments.case.as_str()),
    };
    let (options, upkeep) = match database {
        "sqlite" => {
            let file = Options::file(&arguments.directory.join("node.db"));
            (file, upkeep::Options::default())
        }
        "postgres" => (Options::at(arguments.postgres_url()?), upkeep::Options::on_server()),
        other => return Err(format!("there is no case {other:?}")),
    };
    let fleet = Fleet::open(&options, &runtime)?;
    let measured = match with_api {
        true => beside_users(&fleet, upkeep, &runtime, arguments.seconds.max(1)),
        false => alone(&fleet, upkeep, &runtime),
    };
    fleet.close();
    measured
}

fn alone(
    fleet: &Fleet,
    upkeep: upkeep::Options,
    runtime: &Runtime,
) -> Result<Vec<Measured>, String> {
    let store = fleet.store();
    let batch = writer::Options::default().batch_max_transfers;
    // The ledger before and after, so that neither has the warmer or the smaller database.
    let mut first = fleet.transfers()?;
    let second = first.split_off(SANDBOXES / 2);
    let measured = runtime.block_on(async {
        let before = book(&store, first, batch).await?;
        let ticking = Watch::start();
        meter(&store, upkeep).look().await?;
        let ticked = ticking.elapsed();
        let after = book(&store, second, batch).await?;
        Ok::<_, guild_hosting::Error>((ticked, before + after))
    });
    let (ticked, booked) = measured.map_err(said)?;
    all_is_paid(&store, runtime)?;
    let result = || format!("{SANDBOXES} transfers");
    let per_s = |time: Duration| SANDBOXES as f64 / time.as_secs_f64();
    Ok(vec![
        Measured { name: "guild", per_s: per_s(ticked), result: result() },
        Measured { name: "ledger alone", per_s: per_s(booked), result: result() },
    ])
}

/// It stays the same moment, however long it takes on this machine: nothing ends meanwhile.
struct Still;

impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        DUE_MS
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// The meter as a node has it.
fn meter(store: &Store, upkeep: upkeep::Options) -> Upkeep {
    Upkeep::new(upkeep, store.clone(), Arc::new(Still))
}

fn all_is_paid(store: &Store, runtime: &Runtime) -> Result<(), String> {
    let report = runtime.block_on(store.read(audit::run)).map_err(said)?;
    assert_eq!(report.problems, Vec::<String>::new(), "what the audit found");
    assert_eq!(report.minutes, 2 * SANDBOXES as u64, "minutes in the history");
    Ok(())
}

/// Books transfers in batches; how long it took.
async fn book(store: &Store, transfers: Vec<NewTransfer>, batch: usize) -> Result<Duration> {
    let batches: Vec<Vec<Vec<NewTransfer>>> = transfers
        .chunks(batch)
        .map(|batch| batch.iter().map(|transfer| vec![transfer.clone()]).collect())
        .collect();
    let watch = Watch::start();
    for batch in batches {
        let booked = store.write(move |tx| ledger::book(tx, &batch, DUE_MS)).await?;
        for outcome in booked {
            outcome?;
        }
    }
    Ok(watch.elapsed())
}

/// Users read and create jobs in turn, first without the meter, then until it has paid everything.
fn beside_users(
    fleet: &Fleet,
    upkeep: upkeep::Options,
    runtime: &Runtime,
    seconds: u64,
) -> Result<Vec<Measured>, String> {
    let store = fleet.store();
    let hall = Hall::open(&store)?;
    let watch = Watch::start();
    let idle = runtime.block_on(users(&hall, &|| watch.before(seconds)))?;
    let ticks = AtomicBool::new(true);
    let (ticking, ticked) = std::thread::scope(|scope| {
        let metering = scope.spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
            let watch = Watch::start();
            let looked = runtime.block_on(meter(&store, upkeep).look()).map_err(said);
            ticks.store(false, Ordering::SeqCst);
            looked.map(|_| watch.elapsed())
        });
        let asked = runtime.block_on(users(&hall, &|| ticks.load(Ordering::SeqCst)));
        (asked, metering.join())
    });
    hall.close();
    let ticking = ticking?;
    let ticked = ticked.map_err(|_| "the meter panicked".to_owned())??;
    all_is_paid(&store, runtime)?;
    idle.tell("without the meter");
    ticking.tell(&format!("while {SANDBOXES} minutes are paid, in {ticked:?}"));
    let result = || "reads and creations of jobs in turn, each answered in full".to_owned();
    let per_s = |times: &Times| 1.0 / times.percentile(99).as_secs_f64();
    Ok(vec![
        Measured { name: "guild", per_s: per_s(&ticking), result: result() },
        Measured { name: "without the meter", per_s: per_s(&idle), result: result() },
    ])
}

async fn users(hall: &Hall, go_on: &(dyn Fn() -> bool + Sync)) -> Result<Times, String> {
    let tokens = &hall.tokens;
    let make = |number: u64| {
        let token = &tokens[usize::try_from(number / 2).unwrap_or(0) % tokens.len()];
        match number % 2 {
            0 => get("/v1/jobs?limit=10", token),
            _ => create_job(token, &format!("job-{number}")),
        }
    };
    Connection::open(hall.address).await?.ask(&get("/healthz", "")).await?;
    ask(hall.address, CALLERS, go_on, &make).await
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
