//! How fast announcements come in, from the text of a frame to the registry of providers, beside what no reader can do
//! without: parsing the author's key and checking the signature, by libsecp256k1 alone, on all cores.

use std::process::ExitCode;

use guild_store::Options;
use testbed::bench::{self, Arguments, Measured};

mod bare;
mod cards;
mod ours;

fn main() -> ExitCode {
    bench::main(measure)
}

/// So many announcements for each second that the bench is asked to take, and at most so many.
const CARDS_A_SECOND: u64 = 40_000;
const CARDS_MAX: u64 = 100_000;

fn measure(arguments: &Arguments) -> Result<Vec<Measured>, String> {
    let options = match arguments.case.as_str() {
        "sqlite" => Options::file(&arguments.directory.join("ours.db")),
        "postgres" => Options::at(arguments.postgres_url()?),
        other => return Err(format!("there is no case {other:?}")),
    };
    let events = cards::events((arguments.seconds * CARDS_A_SECOND).min(CARDS_MAX))?;
    let frames: Vec<String> = events.iter().map(cards::frame).collect();
    let (bare_per_s, checked) = bare::run(&events)?;
    let (per_s, entries, bytes) = ours::run(&options, frames)?;
    if checked != entries {
        return Err(format!("{checked} signatures hold, and {entries} offers are known"));
    }
    // A party that does less has no registry: what ours takes is told beside both.
    let result = format!("{entries} offers, {} bytes of memory each", bytes / entries.max(1));
    Ok(vec![
        Measured { name: "guild", per_s, result: result.clone() },
        Measured { name: "libsecp256k1", per_s: bare_per_s, result },
    ])
}

/// What went wrong, in words: a bench that fails measures nothing.
fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}
