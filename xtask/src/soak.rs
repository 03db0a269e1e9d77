//! `cargo xtask soak SUBJECT --minutes N`: the large counts. `docs/RELIABILITY.md` holds the results.

use std::time::Instant;

use crate::bench::growth::{self, Database};
use crate::workspace::{self, Workspace};
use crate::{Result, fuzz, setup, sim, suite};

/// How much.
struct Amount {
    seconds: Option<u64>,
    seeds: Option<u64>,
    millions: Option<u64>,
    kills: Option<u64>,
    runs: Option<u64>,
}

/// Something that gets more certain the longer it runs.
struct Subject {
    name: &'static str,
    run: fn(&Workspace, &Amount) -> Result,
}

const SUBJECTS: &[Subject] = &[
    Subject { name: "api", run: api },
    Subject { name: "fuzz", run: fuzz_for },
    Subject { name: "growth", run: |tree, amount| grow(tree, Database::Sqlite, amount) },
    Subject { name: "growth-postgres", run: |tree, amount| grow(tree, Database::Postgres, amount) },
    Subject { name: "hired", run: hired },
    Subject { name: "hosting", run: hosting },
    Subject {
        name: "kernel",
        run: |tree, amount| sim::soak(tree, "kernel", amount.seconds, amount.seeds),
    },
    Subject { name: "kill", run: kill },
    Subject {
        name: "ledger",
        run: |tree, amount| sim::soak(tree, "ledger", amount.seconds, amount.seeds),
    },
    Subject {
        name: "market",
        run: |tree, amount| sim::soak(tree, "market", amount.seconds, amount.seeds),
    },
    Subject {
        name: "meter",
        run: |tree, amount| sim::soak(tree, "meter", amount.seconds, amount.seeds),
    },
    Subject { name: "routing", run: routing },
    Subject { name: "turns", run: turns },
    Subject {
        name: "sim",
        run: |tree, amount| sim::soak(tree, "audit-log", amount.seconds, amount.seeds),
    },
    Subject { name: "year", run: year },
];

fn fuzz_for(tree: &Workspace, amount: &Amount) -> Result {
    match amount.seconds {
        Some(seconds) => fuzz::run_all(tree, seconds),
        None => Err("the fuzzers have no seeds to count: say --minutes".into()),
    }
}

fn grow(tree: &Workspace, database: Database, amount: &Amount) -> Result {
    match amount.millions {
        Some(millions) => growth::soak(tree, database, millions),
        None => Err("say how far it grows: --millions 10".into()),
    }
}

fn turns(tree: &Workspace, amount: &Amount) -> Result {
    match amount.millions {
        Some(millions) => growth::turns(tree, millions),
        None => Err("say how many turns there are: --millions 1".into()),
    }
}

/// Real processes on a real PostgreSQL, killed in the middle: the test of the ledger, as often as asked.
fn kill(tree: &Workspace, amount: &Amount) -> Result {
    let Some(kills) = amount.kills else {
        return Err("say how often processes are killed: --kills 300".into());
    };
    let mut command = tree.program("cargo");
    command
        .args(["test", "-p", "guild-ledger", "--test", "it", "--", "--nocapture", "killed::books"])
        .env("GUILD_TEST_KILL_RUNS", kills.to_string());
    setup::ensure(&[setup::POSTGRES])?;
    workspace::run(&mut command)
}

/// A process that changes the routing matrix, killed at any point: the test of the market, with as many seeds as asked.
fn routing(tree: &Workspace, amount: &Amount) -> Result {
    let Some(seeds) = amount.seeds else {
        return Err("say how many seeds: --seeds 300".into());
    };
    let mut command = tree.program("cargo");
    command
        .args([
            "test",
            "-p",
            "guild-market",
            "--test",
            "it",
            "--",
            "--nocapture",
            "routing::killed",
        ])
        .env("GUILD_TEST_ROUTING_SEEDS", seeds.to_string());
    workspace::run(&mut command)
}

/// Years of a market with fifty providers and 100,000 jobs: the test of the market, with as many seeds as asked.
fn year(tree: &Workspace, amount: &Amount) -> Result {
    let Some(seeds) = amount.seeds else {
        return Err("say how many years: --seeds 200".into());
    };
    let mut command = tree.program("cargo");
    command
        .args(["test", "--release", "-p", "guild-market", "--test", "it", "--", "--nocapture"])
        .arg("year::a_year")
        .env("GUILD_TEST_YEAR_SEEDS", seeds.to_string());
    workspace::run(&mut command)
}

/// Two nodes and a foreign relay, killed while one hires the other: the test of the program, as often as asked.
fn hired(tree: &Workspace, amount: &Amount) -> Result {
    let Some(runs) = amount.runs else {
        return Err("say how often somebody is hired: --runs 100".into());
    };
    let mut command = tree.program("cargo");
    command
        .args(["test", "-p", "guild", "--test", "it", "--", "--nocapture", "killed::a_job"])
        .env("GUILD_TEST_HIRED_RUNS", runs.to_string());
    setup::nostr_relay(tree)?;
    workspace::run(&mut command)
}

/// Calls that are made up from the description of the API, to a real node: at least so many.
fn api(tree: &Workspace, amount: &Amount) -> Result {
    let Some(calls) = amount.runs else {
        return Err("say how many calls are made: --runs 2000".into());
    };
    let mut command = tree.program("cargo");
    command
        .args([
            "test",
            "-p",
            "guild",
            "--test",
            "it",
            "--",
            "--nocapture",
            "hosting::schema::made_up",
        ])
        .env(suite::API_CALLS, calls.to_string());
    setup::schemathesis(tree)?;
    workspace::run(&mut command)
}

/// A node that sells sandboxes and their agents, killed for a time: the test of the program, as long as asked.
fn hosting(tree: &Workspace, amount: &Amount) -> Result {
    let Some(seconds) = amount.seconds else {
        return Err("say for how long: --minutes 10".into());
    };
    let mut command = tree.program("cargo");
    command
        .args(["test", "-p", "guild", "--test", "it", "--", "--nocapture", "hosting_killed::"])
        .env("GUILD_TEST_HOSTING_SECONDS", seconds.to_string());
    workspace::run(&mut command)
}

/// What to run and how long.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("amount").required(true).args(["minutes", "seeds", "millions", "kills", "runs"]))]
pub(crate) struct Options {
    /// What to run.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SUBJECTS.iter().map(|s| s.name)))]
    subject: String,
    /// For how long.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// How many seeds of a simulation, however long they take.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// How many millions of rows, however long they take.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    millions: Option<u64>,
    /// How often a process is killed.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    kills: Option<u64>,
    /// How often a job is done, or how many calls are made.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=5_000))]
    runs: Option<u64>,
}

/// Runs the subject for its time, its seeds or its rows.
pub(crate) fn run(tree: &Workspace, options: &Options) -> Result {
    let subject = SUBJECTS
        .iter()
        .find(|subject| subject.name == options.subject)
        .ok_or_else(|| format!("there is no subject {:?}", options.subject))?;
    let start = Instant::now();
    let seconds = options.minutes.map(|minutes| minutes * 60);
    (subject.run)(
        tree,
        &Amount {
            seconds,
            seeds: options.seeds,
            millions: options.millions,
            kills: options.kills,
            runs: options.runs,
        },
    )?;
    eprintln!("soak {}: no failure in {} s", subject.name, start.elapsed().as_secs());
    Ok(())
}
