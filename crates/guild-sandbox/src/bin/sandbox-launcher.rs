//! A program that is nothing but a launcher, for tests and benches.

use std::process::ExitCode;

fn main() -> ExitCode {
    match guild_sandbox::launcher::is_asked_for() {
        true => guild_sandbox::launcher::main(),
        false => ExitCode::from(2),
    }
}
