//! A program that is nothing but a launcher, for tests.

use std::process::ExitCode;

use guild_sandbox::launcher;

fn main() -> ExitCode {
    if launcher::is_asked_for() { launcher::main() } else { ExitCode::from(2) }
}
