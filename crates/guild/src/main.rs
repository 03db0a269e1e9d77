//! `guild`: the one binary. Commands, configuration and wiring; the only real clock, randomness and environment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

mod cli;
mod client;
mod command;
mod config;
mod error;
mod host;
mod image;
mod input;
mod keystore;
mod models;
mod node;
mod output;
mod real;
mod reply;
mod sandbox;
mod suggest;
mod telemetry;

fn main() -> ExitCode {
    // Before anything else: a launcher of sandboxes must have one thread and nothing open.
    if guild_sandbox::launcher::is_asked_for() {
        return guild_sandbox::launcher::main();
    }
    output::report_panics();
    let environment = config::Environment::of_this_process();
    let outcome = catch_unwind(AssertUnwindSafe(|| match cli::parse(&environment) {
        Ok((cli, mut output)) => {
            let answer = command::run(cli, &environment, &mut output);
            output.conclude(answer)
        }
        Err(code) => code,
    }));
    // The panic hook has told the reader.
    ExitCode::from(outcome.unwrap_or(error::EXIT_COULD_NOT_FIND_OUT))
}
