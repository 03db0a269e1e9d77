//! Runs simulated seeds from the command line. Exit 0: all well. Exit 1: a seed failed, and is told. Exit 2: bad usage.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for a terminal")]

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::Parser;
use sim::campaign::{self, Plan, Summary};
use sim::fault::Selection;
use sim::minimise::minimise;
use sim::scenario::{Report, Scenario};

#[derive(Parser)]
#[command(name = "sim", about = "Run the simulation: a failure is a seed")]
struct Args {
    /// Run this one seed, twice, and show what happened.
    #[arg(long, conflicts_with_all = ["seeds", "seconds"])]
    seed: Option<u64>,
    /// Of the faults of that seed, only those with these numbers: `3,17`, or `none`.
    #[arg(long, requires = "seed")]
    only: Option<String>,
    /// Let things happen in another order than the seed's own.
    #[arg(long, requires = "seed", default_value_t = 0)]
    schedule: u64,
    /// The first seed of many.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// Stop after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// What to simulate.
    #[arg(long, default_value = "audit-log")]
    scenario: String,
    /// Plant a bug, to see that it is found.
    #[arg(long)]
    plant: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let told = Scenario::named(&args.scenario, args.plant.as_deref())
        .and_then(|scenario| Ok((scenario, numbers(args.only.as_deref())?)));
    let (scenario, only) = match told {
        Ok(told) => told,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let summary = match (args.seed, only) {
        (Some(seed), only) => one(scenario, seed, only.as_ref(), args.schedule),
        (None, _) => many(scenario, &args),
    };
    print(&summary);
    if let Some(report) = &summary.failure {
        tell(scenario, report, &args);
    }
    print_json(&summary);
    if summary.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn numbers(only: Option<&str>) -> Result<Option<BTreeSet<u64>>, String> {
    let number = |text: &str| {
        text.trim().parse().map_err(|_| format!("--only takes numbers of faults, not {text:?}"))
    };
    match only {
        None => Ok(None),
        Some("none") => Ok(Some(BTreeSet::new())),
        Some(list) => list.split(',').map(number).collect::<Result<_, _>>().map(Some),
    }
}

/// One seed, twice: with all its faults, or with some.
fn one(scenario: Scenario, seed: u64, only: Option<&BTreeSet<u64>>, schedule: u64) -> Summary {
    let selection = match only {
        None => Selection::ALL,
        Some(numbers) => {
            // The numbers are those of the whole run.
            Selection::numbered(&scenario.run(seed, &Selection::ALL).faults, numbers)
        }
    };
    let selection = selection.with_schedule(schedule);
    let plan =
        Plan { from: seed, seeds: 1, seconds: None, at_least: 1, repeat_one_in: 1, threads: 1 };
    campaign::run(plan, |seed| scenario.run(seed, &selection), |_| {})
}

fn many(scenario: Scenario, args: &Args) -> Summary {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        from: args.from,
        seeds: args.seeds,
        seconds: args.seconds,
        at_least: 1,
        repeat_one_in: 50,
        threads,
    };
    campaign::run(
        plan,
        |seed| scenario.run(seed, &Selection::ALL),
        |progress| {
            let (seeds, per_second) = (progress.seeds, progress.seeds_per_second());
            eprintln!("{seeds} seeds, {per_second} seeds/s");
        },
    )
}

fn print(summary: &Summary) {
    println!(
        "{} seeds, {} of them twice, {} steps, {} seeds/s",
        summary.seeds,
        summary.repeated,
        summary.polls,
        summary.seeds_per_second()
    );
    for (words, count) in summary.crashes.iter().chain(&summary.faults).chain(&summary.deeds) {
        println!("{count:>12}  {words}");
    }
}

fn print_json(summary: &Summary) {
    let line = serde_json::json!({
        "seeds": summary.seeds,
        "repeated": summary.repeated,
        "steps": summary.polls,
        "seconds": summary.seconds,
        "seeds_per_second": summary.seeds_per_second(),
        "crashes": summary.crashes,
        "faults": summary.faults,
        "deeds": summary.deeds,
        "failing_seed": summary.failure.as_ref().map(|report| report.seed),
        "ok": summary.failure.is_none(),
    });
    println!("{line}");
}

/// The failing seed as it is, and as short as it can be made.
fn tell(scenario: Scenario, report: &Report, args: &Args) {
    println!("seed {} failed (trace {:016x}):", report.seed, report.trace);
    for violation in report.violations.iter().take(10) {
        println!("  {violation}");
    }
    let plant = args.plant.as_ref().map(|bug| format!(" --plant {bug}")).unwrap_or_default();
    let arguments = format!(" --scenario {}{plant}", args.scenario);
    if args.only.is_none() {
        let story = minimise(report, &|selection| scenario.run(report.seed, selection));
        println!("{}", story.told(&arguments));
    } else {
        report.faults.iter().for_each(|fault| println!("{fault}"));
    }
}
