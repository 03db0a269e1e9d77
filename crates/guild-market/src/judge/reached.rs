//! How much of a program the calls of its suite reach: they are made once more, by a process that counts lines.
//!
//! The program shares that process, so it can forge the number as it can forge pytest's. Nothing follows from it but an
//! annotation, and what the tests found stands whatever it says.

use std::io::Write;

use guild_protocol::hash::to_hex;
use guild_protocol::json;
use guild_sandbox::{Collected, Error as SandboxError, Limits, Spec};
use serde_json::json;

use super::metrics::Measure;
use super::run::{JUDGE, Run, does_not_fit, how};
use super::suite::Check;
use crate::Result;

const PROGRAM: &str = include_str!("reached.py");
/// Calls of more bytes are not made again.
const CALLS_MAX_BYTES: usize = 4 << 20;

/// Makes the calls of a suite in Python once more; how many lines of all they reach.
pub(super) fn measure(run: &Run<'_>) -> Result<Measure> {
    if run.is_over() {
        return Ok(Measure::absent("it was not run to its end"));
    }
    let files: Vec<&String> =
        run.submission.files().keys().filter(|path| path.ends_with(".py")).collect();
    let calls: Vec<_> = run
        .suite
        .tests
        .iter()
        .filter_map(|test| match &test.check {
            Check::Call(case) => Some(json!({"call": case.call, "args": case.args})),
            _ => None,
        })
        .collect();
    let module = run.suite.entry.strip_suffix(".py").unwrap_or(&run.suite.entry).replace('/', ".");
    let asked = json::to_canonical(&json!({"files": files, "module": module, "calls": calls}))?;
    if asked.len() > CALLS_MAX_BYTES {
        return Ok(Measure::absent("its calls are too large to be made again"));
    }
    let program = format!("{JUDGE}/reached.py");
    let mut spec = Spec::new(["python3", "-s", "-B", program.as_str()], Limits::judge())
        .file(&program, PROGRAM)
        .file(format!("{JUDGE}/calls.json"), asked);
    run.dress(&mut spec);
    let mut running = match run.judge.sandbox.start(&spec) {
        Ok(running) => running,
        Err(SandboxError::NotStarted { why, .. }) => return Ok(Measure::absent(&why)),
        Err(error) => return does_not_fit(&spec, error).map(|why| Measure::absent(&why)),
    };
    let mut word = [0; 16];
    run.judge.random.fill(&mut word);
    let word = to_hex(&word);
    if let Some(mut stdin) = running.stdin.take() {
        // One that is gone has told nothing, which is seen below.
        let _ = stdin.write_all(format!("{word}\n").as_bytes());
    }
    let Collected { outcome, stdout, .. } = running.collect()?;
    Ok(match how(&outcome) {
        Some(end) => Measure::absent(&format!("its lines were not counted: {end}")),
        None => read(&String::from_utf8_lossy(&stdout), &word),
    })
}

/// The one line that is due: the word of this run, lines that were reached, lines that there are.
fn read(told: &str, word: &str) -> Measure {
    let words: Vec<&str> = told.split_whitespace().take(4).collect();
    let counted = match words.as_slice() {
        [own, part, of] if *own == word => part.parse().ok().zip(of.parse().ok()),
        _ => None,
    };
    match counted {
        Some((part, of)) if of > 0 && part <= of => {
            Measure::Value(u64::saturating_mul(part, 10_000).checked_div(of).unwrap_or(0))
        }
        _ => Measure::absent("it ended without telling which lines were reached"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_line_that_is_due_counts() {
        assert_eq!(read("w 3 4\n", "w"), Measure::Value(7_500));
        for forged in
            ["", "w", "w 3", "v 3 4", "w 5 4", "w 0 0", "w 3 4 5", "w 3 4\nw 4 4\n", "w -1 4"]
        {
            assert_eq!(read(forged, "w").value(), None, "{forged:?}");
        }
    }
}
