//! `cargo xtask test`: every check that must pass before a change is taken, in the order of their price.

use std::time::{Duration, Instant};

use crate::deadline::{self, Limits, Pulse};
use crate::services::Services;
use crate::workspace::{self, Workspace};
use crate::{Result, fuzz, setup, tidy};

/// How long the simulations inside the tests may run: they share it.
const SIM_SECONDS: &str = "GUILD_SIM_SECONDS";
const FULL_SIM_SECONDS: u64 = 45;
const QUICK_SIM_SECONDS: u64 = 5;
/// How many calls to the API are made up, at least.
pub(crate) const API_CALLS: &str = "GUILD_TEST_API_CALLS";
const FULL_API_CALLS: u64 = 2_000;
/// For each target, and libFuzzer adds one. There are some twenty: together they stay below a minute, which is enough
/// to find what a changed parser breaks near the seeds.
const FUZZ_SECONDS: u64 = 1;

const CARGO_DENY_VERSION: &str = "0.20.2";

/// Several times what the longest step takes on a slow machine, and what its longest test takes.
const LIMITS: Limits =
    Limits { whole: Duration::from_secs(45 * 60), silent: Duration::from_secs(10 * 60) };

struct Step {
    name: &'static str,
    /// Whether `--quick` runs it too.
    quick: bool,
    run: fn(&Workspace, quick: bool, &Pulse) -> Result,
}

const STEPS: &[Step] = &[
    Step { name: "toolchain", quick: true, run: toolchain },
    Step { name: "format", quick: true, run: format },
    Step { name: "tidy", quick: true, run: |tree, _, _| tidy::run(tree) },
    Step { name: "lint", quick: true, run: lint },
    Step { name: "tests", quick: true, run: tests },
    Step {
        name: "fuzz: every parser",
        quick: false,
        run: |tree, _, _| fuzz::smoke(tree, FUZZ_SECONDS),
    },
    Step { name: "fuzz: a planted bug", quick: false, run: |tree, _, _| fuzz::find_planted(tree) },
    Step { name: "licences and sources", quick: false, run: deny },
];

/// Runs the steps; the first failure ends it.
pub(crate) fn run(tree: &Workspace, quick: bool) -> Result {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.quick || !quick).collect();
    let start = Instant::now();
    let end = || deadline::kill_below(std::process::id());
    let outcome = run_steps(&steps, |step| {
        deadline::guard(LIMITS, end, |pulse| (step.run)(tree, quick, pulse))
    });
    println!(
        "\n{} of {} steps in {:.0} s",
        outcome.passed,
        steps.len(),
        start.elapsed().as_secs_f64()
    );
    println!("{}", outcome.summary());
    outcome.failure.map_or(Ok(()), Err)
}

struct Outcome {
    passed: usize,
    failure: Option<String>,
}

impl Outcome {
    fn summary(&self) -> String {
        format!("{} passed, {} failed", self.passed, usize::from(self.failure.is_some()))
    }
}

fn run_steps(steps: &[&Step], mut run: impl FnMut(&Step) -> Result) -> Outcome {
    let total = steps.len();
    for (done, step) in steps.iter().enumerate() {
        let place = format!("[{}/{total}] {}", done + 1, step.name);
        println!("{place} …");
        let start = Instant::now();
        let result = run(step);
        let seconds = start.elapsed().as_secs_f64();
        if let Err(why) = result {
            println!("{place}: FAILED after {seconds:.1} s: {why}");
            return Outcome { passed: done, failure: Some(format!("{} failed", step.name)) };
        }
        println!("{place}: ok, {seconds:.1} s");
    }
    Outcome { passed: total, failure: None }
}

fn toolchain(tree: &Workspace, _: bool, _: &Pulse) -> Result {
    let parts = [
        ("rustc", vec!["--version"]),
        ("cargo", vec!["--version"]),
        ("cargo", vec!["fmt", "--version"]),
        ("cargo", vec!["clippy", "--version"]),
    ];
    for (program, arguments) in parts {
        let version = workspace::output(tree.program(program).args(&arguments)).map_err(|e| {
            format!("{e}\ninstall Rust from https://rustup.rs, then: rustup component add rustfmt clippy")
        })?;
        print!("  {version}");
    }
    // The servers of the tests too: better to hear now that they are missing.
    setup::ensure(&[
        setup::C_COMPILER,
        setup::LIBC_HEADERS,
        setup::POSTGRES,
        setup::NATS,
        setup::BROWSER,
        setup::NODE,
        setup::NPM,
        setup::RUNC,
        setup::RUNSC,
    ])?;
    setup::nostr_relay(tree)?;
    setup::judge_tools(tree)?;
    setup::nats_py(tree)?;
    setup::nostr_dvm(tree)?;
    setup::schemathesis(tree)
}

fn format(tree: &Workspace, _: bool, _: &Pulse) -> Result {
    tree.cargo(&["fmt", "--all", "--check"])
        .and_then(|()| tree.cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
        .map_err(|e| {
            format!("{e}\nmend with: cargo fmt --all && cargo fmt --manifest-path fuzz/Cargo.toml")
        })
}

fn lint(tree: &Workspace, _: bool, _: &Pulse) -> Result {
    tree.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn tests(tree: &Workspace, quick: bool, pulse: &Pulse) -> Result {
    // Examples in the documentation are linked one by one, which takes longer than running them.
    let what: &[&str] = if quick { &["--lib", "--bins", "--tests"] } else { &[] };
    // Built first: a compiler may be silent for long, a test may not.
    tree.cargo(&[&["test", "--workspace", "--no-run"], what].concat())?;
    let services = Services::start()?;
    let mut command = tree.program("cargo");
    // All that fails is told at once: a run takes too long to hear of one at a time.
    command.args(["test", "--workspace", "--no-fail-fast"]).args(what);
    command.env("INSTA_UPDATE", "no").envs(services.variables());
    let seconds = if quick { QUICK_SIM_SECONDS } else { FULL_SIM_SECONDS };
    if !quick {
        command.env(API_CALLS, FULL_API_CALLS.to_string());
    }
    pulse.listen(command.env(SIM_SECONDS, seconds.to_string()))
}

fn deny(tree: &Workspace, _: bool, _: &Pulse) -> Result {
    let root = tree.target("tools");
    let program = root.join("bin/cargo-deny");
    let wanted = format!("cargo-deny {CARGO_DENY_VERSION}");
    let present = program.is_file()
        && workspace::output(tree.program(&program).arg("--version"))
            .is_ok_and(|v| v.trim() == wanted);
    if !present {
        println!("  building {wanted}, once");
        let mut command = tree.program("cargo");
        command.args(["install", "--locked", "--profile", "dev", "--force", "--root"]).arg(&root);
        workspace::run(command.args(["--version", CARGO_DENY_VERSION, "cargo-deny"]))?;
    }
    workspace::run(tree.program(&program).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_it_and_is_counted() {
        let steps: Vec<&Step> = STEPS.iter().collect();
        let mut ran = Vec::new();
        let outcome = run_steps(&steps, |step| {
            ran.push(step.name);
            if step.name == "tidy" { Err("planted".to_owned()) } else { Ok(()) }
        });
        assert_eq!(ran, ["toolchain", "format", "tidy"]);
        assert_eq!(outcome.summary(), "2 passed, 1 failed");
        assert_eq!(outcome.failure.as_deref(), Some("tidy failed"));
    }

    #[test]
    fn without_failure_all_are_counted() {
        let steps: Vec<&Step> = STEPS.iter().filter(|step| step.quick).collect();
        let outcome = run_steps(&steps, |_| Ok(()));
        assert_eq!(outcome.summary(), format!("{} passed, 0 failed", steps.len()));
        assert!(outcome.failure.is_none());
    }
}
