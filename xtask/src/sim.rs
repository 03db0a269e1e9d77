//! `cargo xtask sim`: the simulation, built for speed, with its own arguments.

use crate::Result;
use crate::workspace::Workspace;

/// What the simulation is asked.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run this seed (again).
    #[arg(long)]
    seed: Option<u64>,
    /// Of the faults of that seed, only those with these numbers: `3,17`, or `none`.
    #[arg(long, value_name = "NUMBERS", requires = "seed")]
    only: Option<String>,
    /// Let things happen in another order than the seed's own.
    #[arg(long, value_name = "N", requires = "seed")]
    schedule: Option<u64>,
    /// Run so many seeds.
    #[arg(long)]
    seeds: Option<u64>,
    /// Run only this scenario: `audit-log`, `kernel`, `ledger`, `market` or `meter`.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Plant this bug, to see that it is found.
    #[arg(long, value_name = "BUG")]
    plant: Option<String>,
    /// Start no further seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
}

impl Options {
    /// Nothing but a scenario.
    pub(crate) fn of(scenario: &str) -> Options {
        let scenario = Some(scenario.to_owned());
        Options {
            seed: None,
            only: None,
            schedule: None,
            seeds: None,
            scenario,
            plant: None,
            seconds: None,
        }
    }
}

/// Runs the simulation; it prints the seed of a failure.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let arguments = arguments(options);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tree.cargo(&words)
}

/// Runs a scenario for as long, or for as many seeds, as given.
pub(crate) fn soak(
    tree: &Workspace,
    scenario: &str,
    seconds: Option<u64>,
    seeds: Option<u64>,
) -> Result {
    // Whichever is given decides; the other must not end it early.
    let seeds = seeds.or(Some(u64::MAX));
    run(tree, &Options { seconds, seeds, ..Options::of(scenario) })
}

fn arguments(options: &Options) -> Vec<String> {
    let mut words: Vec<String> =
        ["run", "--release", "-p", "sim", "--bin", "sim", "--"].map(str::to_owned).into();
    let numbers = [
        ("--seed", options.seed),
        ("--schedule", options.schedule),
        ("--seeds", options.seeds),
        ("--seconds", options.seconds),
    ];
    for (name, value) in numbers {
        words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value.to_string()]));
    }
    let texts =
        [("--only", &options.only), ("--scenario", &options.scenario), ("--plant", &options.plant)];
    for (name, value) in texts {
        words.extend(value.iter().flat_map(|value| [name.to_owned(), value.clone()]));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_passed_on() {
        let none = Options { scenario: None, ..Options::of("") };
        assert_eq!(arguments(&none).last().unwrap(), "--");
        let only = Some("3,17".to_owned());
        let some = Options { seed: Some(7), only, seconds: Some(9), ..Options::of("ledger") };
        let told = arguments(&some).join(" ");
        assert!(told.ends_with("-- --seed 7 --seconds 9 --only 3,17 --scenario ledger"), "{told}");
    }
}
