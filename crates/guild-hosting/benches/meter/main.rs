//! How fast the meter pays a minute of each of 100,000 running sandboxes, beside the ledger that books the same
//! transfers and nothing else, in batches of the same size, on the same database.

use std::process::ExitCode;
use std::time::Duration;

use guild_hosting::{Result, audit, meter};
use guild_ledger::{NewTransfer, ledger};
use guild_store::{Options, Store};
use testbed::bench::{self, Arguments, Measured, Watch};

mod fleet;

use fleet::{Fleet, SANDBOXES, T0};

/// So many sandboxes are metered in one transaction, so that others wait for a few milliseconds only.
const BATCH: usize = 1_000;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let options = match arguments.case.as_str() {
        "sqlite" => Options::file(&arguments.directory.join("node.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        other => return Err(format!("there is no case {other:?}")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(said)?;
    let fleet = Fleet::open(&options, &runtime)?;
    let store = fleet.store();
    // The ledger before and after, so that neither has the warmer or the smaller database.
    let mut first = fleet.transfers()?;
    let second = first.split_off(SANDBOXES / 2);
    let measured = runtime.block_on(async {
        let before = book(&store, first).await?;
        let ticking = Watch::start();
        let paid = tick_all(&store).await?;
        let ticked = ticking.elapsed();
        let after = book(&store, second).await?;
        Ok::<_, guild_hosting::Error>((paid, ticked, before + after))
    });
    let (paid, ticked, booked) = measured.map_err(said)?;
    let report = runtime.block_on(store.read(audit::run)).map_err(said)?;
    assert_eq!(report.problems, Vec::<String>::new(), "what the audit found");
    assert_eq!(report.minutes, SANDBOXES as u64 + paid, "minutes in the history");
    fleet.close();
    let result = |things: u64| format!("{things} transfers");
    let per_s = |time: Duration, things: u64| things as f64 / time.as_secs_f64();
    let all = SANDBOXES as u64;
    Ok(vec![
        Measured { name: "guild", per_s: per_s(ticked, paid), result: result(paid) },
        Measured { name: "ledger alone", per_s: per_s(booked, all), result: result(all) },
    ])
}

/// Ticks until nothing is due; how many minutes were paid.
async fn tick_all(store: &Store) -> Result<u64> {
    let mut paid = 0;
    loop {
        let limit = i64::try_from(BATCH).unwrap_or(i64::MAX);
        let ticked = store.write(move |tx| meter::tick(tx, T0 + 50_000, limit)).await?;
        paid += ticked.paid;
        if !ticked.more {
            return Ok(paid);
        }
    }
}

/// Books transfers in batches; how long it took.
async fn book(store: &Store, transfers: Vec<NewTransfer>) -> Result<Duration> {
    let batches: Vec<Vec<Vec<NewTransfer>>> = transfers
        .chunks(BATCH)
        .map(|batch| batch.iter().map(|transfer| vec![transfer.clone()]).collect())
        .collect();
    let watch = Watch::start();
    for batch in batches {
        let booked = store.write(move |tx| ledger::book(tx, &batch, T0 + 50_000)).await?;
        for outcome in booked {
            outcome?;
        }
    }
    Ok(watch.elapsed())
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
