//! How fast events come in, from the text of a frame to a stored row, beside what no reader can do without: parsing
//! the author's key and checking the signature, by libsecp256k1 alone, on all cores.

use std::process::ExitCode;

use guild_store::Options;
use testbed::bench::{self, Arguments, Measured};

mod bare;
mod market;
mod ours;

fn main() -> ExitCode {
    bench::main(measure)
}

/// So many events for each second that the bench is asked to take.
const EVENTS_A_SECOND: u64 = 20_000;

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let Some((what, engine)) = arguments.case.split_once('_') else {
        return Err(format!("there is no case {:?}", arguments.case));
    };
    let options = match engine {
        "sqlite" => Options::file(&arguments.directory.join("ours.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        _ => return Err(format!("there is no database {engine:?}")),
    };
    let events = market::events(arguments.seconds * EVENTS_A_SECOND)?;
    let frames: Vec<String> = events.iter().map(market::frame).collect();
    let bare = bare::run(&events)?;
    let ours = match what {
        "new" => ours::new(&options, frames)?,
        "known" => ours::known(&options, frames)?,
        _ => return Err(format!("there is no case {:?}", arguments.case)),
    };
    Ok(vec![ours, bare])
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
