//! What the hosting interface answers in a second, over HTTP on loopback, with a token.
//!
//! `reads_*` reads one job, beside the same server's `/healthz`, which asks nobody: the limit is HTTP itself.
//! `creations_*` makes a job, beside as many callers that write one row each, durably, and nothing else: the limit is
//! the commit. The times of which half and 99 of 100 are shorter are told too.

use std::process::ExitCode;

use futures_util::future::try_join_all;
use guild_store::{Hooks, Options, Service, Store, args};
use serde_json::Value;
use testbed::bench::{self, Arguments, Measured, Watch};

#[path = "../shared/asking.rs"]
mod asking;
#[path = "../shared/hall.rs"]
mod hall;

use asking::{Connection, Times, ask, create_job, get};
use hall::{Hall, T0};

/// So many ask at once.
const CALLERS: usize = 8;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let (work, database) = arguments.case.split_once('_').unwrap_or_default();
    let options = match database {
        "sqlite" => Options::file(&arguments.directory.join("node.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        other => return Err(format!("there is no database {other:?}")),
    };
    let service =
        Service::open(&options, &hall::migrations(), Hooks::default(), T0).map_err(said)?;
    let store = service.handle();
    let hall = Hall::open(&store)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
    let seconds = arguments.seconds.max(2);
    let measured = match work {
        "reads" => runtime.block_on(reads(&hall, seconds)),
        "creations" => runtime.block_on(creations(&hall, &store, seconds)),
        other => Err(format!("there is no work {other:?}")),
    };
    hall.close();
    service.close();
    measured
}

async fn reads(hall: &Hall, seconds: u64) -> Result<Vec<Measured>, String> {
    let mut paths = Vec::new();
    let mut connection = Connection::open(hall.address).await?;
    for token in &hall.tokens {
        let made = connection.ask(&create_job(token, "first")).await?;
        let made: Value = serde_json::from_slice(&made).map_err(said)?;
        let job_id = made["job_id"].as_str().ok_or("a job without an id")?.to_owned();
        paths.push(get(&format!("/v1/jobs/{job_id}"), token));
    }
    let health = |_| get("/healthz", "");
    let read = |number: u64| paths[usize::try_from(number).unwrap_or(0) % paths.len()].clone();
    // The limit before and after, so that neither has the warmer machine.
    let before = timed(hall, seconds / 2, &health).await?;
    let ours = timed(hall, seconds, &read).await?;
    let limit = together(before, timed(hall, seconds / 2, &health).await?);
    ours.tell("reads of a job");
    limit.tell("/healthz");
    let result = || "every request answered in full".to_owned();
    Ok(vec![
        Measured { name: "guild", per_s: ours.per_s(), result: result() },
        Measured { name: "/healthz", per_s: limit.per_s(), result: result() },
    ])
}

async fn creations(hall: &Hall, store: &Store, seconds: u64) -> Result<Vec<Measured>, String> {
    let tokens = &hall.tokens;
    let create = |number: u64| {
        let token = &tokens[usize::try_from(number).unwrap_or(0) % tokens.len()];
        create_job(token, &format!("job-{number}"))
    };
    let table = "CREATE TABLE bench_row (caller BIGINT NOT NULL, number BIGINT NOT NULL, body TEXT NOT NULL,
                   PRIMARY KEY (caller, number))";
    store.write(move |tx| tx.exec(table, args![])).await.map_err(said)?;
    let before = rows(store, 0, seconds / 2).await?;
    let ours = timed(hall, seconds, &create).await?;
    let after = rows(store, CALLERS, seconds / 2).await?;
    let counted: Option<(i64,)> = store
        .read(|rx| rx.first("SELECT count(*) FROM hosting_job", args![]))
        .await
        .map_err(said)?;
    assert_eq!(
        counted.map(|(jobs,)| jobs),
        i64::try_from(ours.times.len()).ok(),
        "jobs that were made"
    );
    ours.tell("creations of a job");
    let result = || "every write durable when it was answered".to_owned();
    let limit = (before + after) / (seconds / 2 * 2) as f64;
    Ok(vec![
        Measured { name: "guild", per_s: ours.per_s(), result: result() },
        Measured { name: "bare commit", per_s: limit, result: result() },
    ])
}

async fn timed(
    hall: &Hall,
    seconds: u64,
    make: &(dyn Fn(u64) -> String + Sync),
) -> Result<Times, String> {
    let watch = Watch::start();
    ask(hall.address, CALLERS, &|| watch.before(seconds), make).await
}

/// Both, one after the other.
fn together(before: Times, after: Times) -> Times {
    let mut times = [before.times, after.times].concat();
    times.sort_unstable();
    Times { times, took: before.took + after.took }
}

/// How many rows as many callers write, each in a transaction that is durable before the next.
async fn rows(store: &Store, first_caller: usize, seconds: u64) -> Result<f64, String> {
    let body = "x".repeat(400);
    let watch = Watch::start();
    let one = |caller: usize| {
        let body = body.clone();
        async move {
            let caller = i64::try_from(caller).unwrap_or(0);
            let mut number = 0;
            while watch.before(seconds) {
                let body = body.clone();
                let insert = "INSERT INTO bench_row (caller, number, body) VALUES ($1, $2, $3)";
                let written = store.write(move |tx| tx.exec(insert, args![caller, number, &body]));
                written.await.map_err(said)?;
                number += 1;
            }
            Ok::<_, String>(number)
        }
    };
    let written = try_join_all((first_caller..first_caller + CALLERS).map(one)).await?;
    Ok(written.iter().sum::<i64>() as f64)
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
