//! Programs that a node can use if they are there. None is needed.

use super::Check;
use crate::config::Environment;

/// The program, and what it is for.
const PROGRAMS: [(&str, &str); 6] = [
    ("git", "Install it to let jobs work on repositories."),
    ("node", "Install it to run jobs and tools written in JavaScript."),
    ("podman", "Install it to run sandboxes from container images."),
    ("claude", "Install the Claude CLI to let turns use it."),
    ("codex", "Install the Codex CLI to let turns use it."),
    ("gemini", "Install the Gemini CLI to let turns use it."),
];

pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    let check = |(name, advice)| match environment.find_program(name) {
        Some(path) => Check::ok(name, path.display().to_string()),
        None => Check::missing(name, "not on PATH", advice),
    };
    PROGRAMS.map(check).into()
}
