//! Set-up, tests, benches and the rules of the tree: `cargo xtask <command>`.
//!
//! Everything that decides is a pure function over values (a list of files, a measurement, a program's output) with a
//! test that plants a fault and sees it caught. What starts programs is thin.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a tool for developers: it prints, reads the environment, and measures real time"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod deadline;
mod fuzz;
mod pictures;
mod services;
mod setup;
mod sim;
mod soak;
mod suite;
mod tidy;
mod workspace;

use workspace::Workspace;

/// What a command gives back: a failure is a text for the person at the keyboard.
type Result<T = (), E = String> = std::result::Result<T, E>;

/// Set-up, tests, benches and the rules of the tree.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the rules of the tree: layers, names, sizes, manifests, documents.
    Tidy {
        /// Check another tree than this one.
        #[arg(long)]
        root: Option<PathBuf>,
    },
    /// Run every check that must pass before a change is taken.
    Test {
        /// Only what answers within three minutes.
        #[arg(long)]
        quick: bool,
    },
    /// Measure against the peers.
    Bench(bench::Options),
    /// Run for a long time and count.
    Soak(soak::Options),
    /// Run the seeded simulation of the whole system.
    Sim(sim::Options),
    /// Fuzz the parsers.
    Fuzz(fuzz::Options),
    /// Run a command with a PostgreSQL and a NATS server for its tests.
    Services(services::Options),
    /// Take pictures of the pages in a real browser.
    Pictures(pictures::Options),
    /// Write the generated documents anew.
    Docs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result {
    let here = Workspace::find()?;
    match command {
        Command::Tidy { root: None } => tidy::run(&here),
        Command::Tidy { root: Some(root) } => tidy::run(&Workspace::at(root)?),
        Command::Test { quick } => suite::run(&here, *quick),
        Command::Bench(options) => bench::run(&here, options),
        Command::Soak(options) => soak::run(&here, options),
        Command::Sim(options) => sim::run(&here, options),
        Command::Fuzz(options) => fuzz::run(&here, options),
        Command::Services(options) => services::run(&here, options),
        Command::Pictures(options) => pictures::run(&here, options),
        Command::Docs => {
            here.cargo(&["run", "-q", "-p", "guild", "--", "generate", "docs", "--dir", "docs"])
        }
    }
}
