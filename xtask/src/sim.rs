//! `cargo xtask sim`: the simulation, built for speed, with its own arguments.

use crate::Result;
use crate::workspace::Workspace;

/// What the simulation is asked.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run this seed (again).
    #[arg(long)]
    seed: Option<u64>,
    /// Run so many seeds.
    #[arg(long)]
    seeds: Option<u64>,
    /// Run only this scenario.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Start no further seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
}

/// Runs the simulation; it prints the seed of a failure.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let arguments = arguments(options);
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tree.cargo(&words)
}

/// Runs the simulation for so many seconds.
pub(crate) fn run_for(tree: &Workspace, seconds: u64) -> Result {
    run(tree, &Options { seed: None, seeds: None, scenario: None, seconds: Some(seconds) })
}

fn arguments(options: &Options) -> Vec<String> {
    let mut words: Vec<String> =
        ["run", "--release", "-p", "sim", "--bin", "sim", "--"].map(str::to_owned).into();
    let numbers =
        [("--seed", options.seed), ("--seeds", options.seeds), ("--seconds", options.seconds)];
    for (name, value) in numbers {
        words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value.to_string()]));
    }
    let scenario = options.scenario.iter();
    words.extend(scenario.flat_map(|name| ["--scenario".to_owned(), name.clone()]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_passed_on() {
        let none = Options { seed: None, seeds: None, scenario: None, seconds: None };
        assert_eq!(arguments(&none).last().unwrap(), "--");
        let some = Options {
            seed: Some(7),
            seeds: None,
            scenario: Some("crash".into()),
            seconds: Some(9),
        };
        assert!(arguments(&some).join(" ").ends_with("-- --seed 7 --seconds 9 --scenario crash"));
    }
}
