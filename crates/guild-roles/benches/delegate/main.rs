//! How fast work is delegated on one node, with providers that answer at once: from the wish to the receipt, all of it
//! durable, signed, published, checked and paid. Beside it the intake alone, which only takes the very events that
//! these jobs were made of.
//!
//! `one_*`: one provider does each job. `three_*`: three do, and the majority decides. How much longer a job takes than
//! a call of the worker itself is told beside both.

use std::process::ExitCode;

use guild_store::Options;
use testbed::bench::{self, Arguments, Measured};

mod hall;
mod limit;

use hall::{Hall, Way};

/// So many jobs for each second that the bench is asked to take.
const JOBS_A_SECOND: u64 = 300;
/// Of work that three do, that is three times the orders.
const DELEGATIONS_A_SECOND: u64 = 100;
/// So many one after the other, to see how long one takes.
const ALONE: usize = 100;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let (way, database) = match arguments.case.split_once('_') {
        Some(("one", database)) => (Way::One, database),
        Some(("three", database)) => (Way::Three, database),
        _ => return Err(format!("there is no case {:?}", arguments.case)),
    };
    let options = match database {
        "sqlite" => Options::file(&arguments.directory.join("ours.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        other => return Err(format!("there is no database {other:?}")),
    };
    let each = if way == Way::One { JOBS_A_SECOND } else { DELEGATIONS_A_SECOND };
    let jobs = arguments.seconds.max(1) * each;
    let done = Hall::open(&options)?.run(way, jobs, ALONE)?;
    // On a database of its own, so that nothing is known there.
    let bare = Options::file(&arguments.directory.join("bare.db"));
    let events_per_s = limit::run(&bare, &done.frames)?;
    let events_per_job = done.frames.len() as f64 / jobs as f64;
    let result = format!(
        "{jobs} jobs paid, {events_per_job:.1} events each; alone {:.2} ms at the median and {:.2} ms of 99 in 100 \
         more than a call of {:.2} ms",
        done.overhead_ms(50),
        done.overhead_ms(99),
        done.direct_ms,
    );
    Ok(vec![
        Measured { name: "guild", per_s: done.per_s, result: result.clone() },
        Measured { name: "intake alone", per_s: events_per_s / events_per_job, result },
    ])
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
