//! How fast the store is: a queue of jobs beside queues made for nothing else, and the durable cycle of a turn beside
//! a bare loop of the same statements.

use std::process::ExitCode;

use testbed::bench::{self, Arguments, Measured};

mod cycle;
mod jobs;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let words: Vec<&str> = arguments.case.split('_').collect();
    let callers = words.get(2).and_then(|word| word.parse().ok()).filter(|callers| *callers > 0);
    match (words.as_slice(), callers) {
        (["jobs", "postgres"], _) => jobs::measure(arguments),
        (["cycle", "sqlite", _], Some(callers)) => cycle::on_sqlite(arguments, callers),
        (["cycle", "postgres", _], Some(callers)) => cycle::on_postgres(arguments, callers),
        _ => Err(format!("there is no case {:?}", arguments.case)),
    }
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
