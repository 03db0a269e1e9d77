//! How many turns one process does in a second, everything durable, with a model that answers at once.
//!
//! `sqlite`, `postgres`: from the wish to the terminal event, one step each; the second with bells over NATS. The peer
//! beside them only marks jobs as done that were put into its table before.
//!
//! `tool_sqlite`, `tool_postgres`: turns that call a tool, wait for it, and go on with its result, beside turns of one
//! step in the same process.
//!
//! `turns`: many turns, told in pieces: how fast they are and how much memory the process has.

use std::process::ExitCode;

use testbed::bench::{self, Arguments, Measured};

mod hall;
mod mind;
mod turns;

use hall::Hall;

/// As many as the peer does.
const TURNS_A_SECOND: u64 = 10_000;
/// A turn with a tool is two leases, two steps and a report.
const TOOL_TURNS_A_SECOND: u64 = 2_000;

fn main() -> ExitCode {
    bench::main(measure)
}

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let (tool, database) = match arguments.case.strip_prefix("tool_") {
        Some(database) => (true, database),
        None => (false, arguments.case.as_str()),
    };
    if database == "turns" {
        return turns::measure(arguments);
    }
    let hall = Hall::open(database, arguments)?;
    let seconds = arguments.seconds.max(1);
    let measured = match tool {
        false => {
            let count = seconds * TURNS_A_SECOND;
            let per_s = hall.run("plain", "p0", count)?;
            vec![Measured { name: "guild", per_s, result: format!("{count} jobs done once") }]
        }
        true => {
            let count = seconds * TOOL_TURNS_A_SECOND;
            let result = || format!("{count} turns ended once");
            let one_step = hall.run("plain", "p0", count)?;
            let per_s = hall.run("tool", "p1", count)?;
            vec![
                Measured { name: "guild", per_s, result: result() },
                Measured { name: "turns of one step", per_s: one_step, result: result() },
            ]
        }
    };
    hall.close();
    Ok(measured)
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
