//! `cargo xtask soak SUBJECT --minutes N`: the large counts. `docs/RELIABILITY.md` holds the results.

use std::time::Instant;

use crate::workspace::Workspace;
use crate::{Result, fuzz, sim};

/// Something that gets more certain the longer it runs.
struct Subject {
    name: &'static str,
    /// Runs for about so many seconds.
    run: fn(&Workspace, u64) -> Result,
}

const SUBJECTS: &[Subject] =
    &[Subject { name: "fuzz", run: fuzz::run_all }, Subject { name: "sim", run: sim::run_for }];

/// What to run and how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// What to run.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SUBJECTS.iter().map(|s| s.name)))]
    subject: String,
    /// For how long.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: u64,
}

/// Runs the subject for its time.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let subject = SUBJECTS
        .iter()
        .find(|subject| subject.name == options.subject)
        .ok_or_else(|| format!("there is no subject {:?}", options.subject))?;
    let start = Instant::now();
    (subject.run)(tree, options.minutes * 60)?;
    println!("soak {}: no failure in {} s", subject.name, start.elapsed().as_secs());
    Ok(())
}
