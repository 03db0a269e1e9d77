//! Runs simulated seeds from the command line. Exit 0: all well. Exit 1: a seed failed, and is printed.
#![expect(clippy::print_stdout, reason = "this is a program for a terminal")]

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use sim::campaign::{self, Plan, Summary};
use sim::scenario::Report;
use sim::scenario::audit_log::{self, Bug};

#[derive(Parser)]
#[command(name = "sim", about = "Run the simulation: a failure is a seed")]
struct Args {
    /// Run this one seed, twice, and show what happened.
    #[arg(long, conflicts_with_all = ["seeds", "seconds"])]
    seed: Option<u64>,
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
    scenario: Scenario,
    /// Plant a bug, to see that it is found.
    #[arg(long)]
    plant: Option<Planted>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Scenario {
    /// append → event row → outbox → bell → stream
    AuditLog,
}

#[derive(Clone, Copy, ValueEnum)]
enum Planted {
    /// The bells ring before the commit.
    RingBeforeCommit,
    /// The outbox is drained by whoever comes along.
    DrainWithoutLease,
    /// The outbox is drained from its end.
    DrainNewestFirst,
    /// A dead letter is retried by saying that it was delivered.
    RetryWithoutDelivery,
    /// A writer that was not answered writes again under another id.
    AppendWithoutId,
    /// A stream goes on one entry too late.
    FollowerSkips,
    /// A stream waits for bells alone.
    FollowerWithoutSweep,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let bug = args.plant.map(|plant| match plant {
        Planted::RingBeforeCommit => Bug::RingBeforeCommit,
        Planted::DrainWithoutLease => Bug::DrainWithoutLease,
        Planted::DrainNewestFirst => Bug::DrainNewestFirst,
        Planted::RetryWithoutDelivery => Bug::RetryWithoutDelivery,
        Planted::AppendWithoutId => Bug::AppendWithoutId,
        Planted::FollowerSkips => Bug::FollowerSkips,
        Planted::FollowerWithoutSweep => Bug::FollowerWithoutSweep,
    });
    let Scenario::AuditLog = args.scenario;
    let summary = match args.seed {
        Some(seed) => {
            let plan = Plan { from: seed, seeds: 1, seconds: None, repeat_one_in: 1, threads: 1 };
            // `is_multiple_of(1)`: this seed is run twice.
            campaign::run(plan, |seed| audit_log::run(seed, bug))
        }
        None => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let plan = Plan {
                from: args.from,
                seeds: args.seeds,
                seconds: args.seconds,
                repeat_one_in: 50,
                threads,
            };
            campaign::run(plan, |seed| audit_log::run(seed, bug))
        }
    };
    print(&summary);
    if summary.failure.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print(summary: &Summary) {
    println!(
        "{} seeds, {} of them twice, {} steps",
        summary.seeds, summary.repeated, summary.polls
    );
    for (point, count) in &summary.crashes {
        println!("{count:>10} crashes {point}");
    }
    if let Some(report) = &summary.failure {
        print_failure(report);
    }
    let line = serde_json::json!({
        "seeds": summary.seeds,
        "repeated": summary.repeated,
        "steps": summary.polls,
        "crashes": summary.crashes,
        "failing_seed": summary.failure.as_ref().map(|report| report.seed),
        "ok": summary.failure.is_none(),
    });
    println!("{line}");
}

fn print_failure(report: &Report) {
    println!("seed {} failed (trace {:016x}):", report.seed, report.trace);
    for violation in &report.violations {
        println!("  {violation}");
    }
    println!("run it again: cargo xtask sim --seed {}", report.seed);
}
