//! Suites of pytest: the tests share a process with the submission, so what they tell can be forged.
//!
//! What is done makes forgery visible where that is possible. The tests stand outside of the submission and cannot be
//! written; settings, hooks and plugins that the submission brings are not read; the tests that must be told of are
//! known beforehand; an end without the one line that is due, with the word of this run, is an error.

use std::collections::BTreeMap;
use std::io::Write;

use guild_protocol::hash::to_hex;
use guild_protocol::json;
use guild_sandbox::{Collected, Spec};
use serde::Deserialize;

use super::Progress;
use super::metrics::{self, Measure};
use super::run::{JUDGE, Run, TOOLS, does_not_fit, how};
use super::subject::Ended;
use super::verdict::Status;
use crate::error::code;
use crate::{Error, Result};

const PROGRAM: &str = include_str!("pytest.py");
const SETTINGS: &str = "[pytest]\n";
const COVERAGE: &str = "[run]\ndata_file = /tmp/coverage\n";
const MAX_TOLD_BYTES: usize = 4 << 20;

/// What the tests tell of themselves.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    word: String,
    code: i64,
    told: BTreeMap<String, (String, String)>,
    coverage: Option<(u64, u64)>,
}

impl Run<'_> {
    /// Runs every test of a pytest suite.
    pub(super) fn pytest(&mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<()> {
        // Before the submission is anywhere near, so that it cannot say that a tool is missing.
        let tools = metrics::installed(self)?;
        if !tools.contains("pytest") {
            let why = "pytest is not installed where submissions run";
            return Err(Error::refused(&code::JUDGE_TOOL, why));
        }
        self.look();
        if self.is_over() {
            return Ok(());
        }
        progress(&self.progress("pytest"));
        let mut word = [0; 16];
        self.judge.random.fill(&mut word);
        let word = to_hex(&word);
        let spec = self.pytest_spec(tools.contains("pytest_cov"));
        let mut running = match self.judge.sandbox.start(&spec) {
            Ok(running) => running,
            Err(error) => {
                let why = does_not_fit(&spec, error)?;
                self.coverage = Some(Measure::absent(&why));
                self.settle_pytest(Err(why));
                return Ok(());
            }
        };
        if let Some(mut stdin) = running.stdin.take() {
            // One that is gone has told nothing, which is seen below.
            let _ = stdin.write_all(format!("{word}\n").as_bytes());
        }
        let Collected { outcome, stdout, stderr } = running.collect()?;
        let end = how(&outcome);
        self.count(Ended {
            outcome,
            spoke: false,
            printed: stderr.into_iter().take(4 << 10).collect(),
        });
        let told = read(&stdout, &word).and_then(|told| match end {
            None => Ok(told),
            Some(end) => Err(end),
        });
        self.coverage = Some(match &told {
            _ if !tools.contains("pytest_cov") => Measure::absent("pytest-cov is not installed"),
            Ok(told) => covered(told.coverage),
            Err(why) => Measure::absent(why),
        });
        let results = told.and_then(|told| self.results(told));
        self.settle_pytest(results.as_ref().map_err(Clone::clone));
        self.kernel();
        Ok(())
    }

    fn pytest_spec(&self, cover: bool) -> Spec {
        let program = format!("{JUDGE}/run.py");
        let mut words = vec!["python3", "-s", "-B", program.as_str()];
        words.extend(cover.then_some("cover"));
        let mut spec = Spec::new(words, self.suite.limits)
            .file(&program, PROGRAM)
            .file(format!("{JUDGE}/pytest.ini"), SETTINGS)
            .file(format!("{JUDGE}/coverage.ini"), COVERAGE);
        for (path, text) in &self.suite.files {
            spec = spec.file(format!("{JUDGE}/tests/{path}"), text.as_bytes());
        }
        self.dress(&mut spec);
        self.bring_tools(&mut spec);
        spec.env.insert("PYTHONPATH".to_owned(), TOOLS.to_owned());
        spec.env.insert("PYTEST_DISABLE_PLUGIN_AUTOLOAD".to_owned(), "1".to_owned());
        spec
    }

    /// What became of each test, if what was told fits the suite.
    fn results(&self, told: Told) -> Result<BTreeMap<String, (Status, Option<String>)>, String> {
        let known = |id: &String| self.suite.tests.iter().any(|test| test.id == *id);
        let mut results = BTreeMap::new();
        for (id, (status, why)) in told.told {
            let status = match status.as_str() {
                "passed" => Status::Passed,
                "failed" => Status::Failed,
                _ => return Err(format!("{}: {why}", short(&id))),
            };
            if !known(&id) {
                return Err(format!("pytest ran {}, which the suite does not name", short(&id)));
            }
            let why = (status != Status::Passed).then(|| short(&why));
            results.insert(id, (status, why));
        }
        // 0 and 1 are all that a run to the end gives; 5 is that there was nothing to run.
        match (results.is_empty(), told.code) {
            (true, _) | (_, 5) => Err("pytest found no test".to_owned()),
            (false, 0 | 1) => Ok(results),
            (false, code) => Err(format!("pytest ended with {code}")),
        }
    }
}

fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

fn covered(counts: Option<(u64, u64)>) -> Measure {
    match counts {
        Some((part, of)) if of > 0 && part <= of => {
            Measure::Value(part.saturating_mul(10_000).checked_div(of).unwrap_or(0))
        }
        Some(_) => Measure::absent("there is nothing to cover"),
        None => Measure::absent("pytest-cov told nothing"),
    }
}

/// The one line that is due.
fn read(stdout: &[u8], word: &str) -> Result<Told, String> {
    let none = || "it ended without telling what became of the tests".to_owned();
    let line = stdout.strip_suffix(b"\n").filter(|line| !line.is_empty()).ok_or_else(none)?;
    if line.contains(&b'\n') {
        return Err("it told more than one line".to_owned());
    }
    let limits = json::Limits { max_bytes: MAX_TOLD_BYTES, max_depth: 8 };
    let told: Told = json::decode_within(line, limits)
        .map_err(|error| format!("what it told is not understood: {}", error.message()))?;
    match told.word == word {
        true => Ok(told),
        false => Err("what it told lacks the word of this run".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_the_word_of_the_run() {
        let good = br#"{"word":"w","code":0,"told":{"a":["passed",""]},"coverage":[1,2]}"#;
        let line = [good.as_slice(), b"\n"].concat();
        assert_eq!(read(&line, "w").unwrap().told["a"].0, "passed");
        assert_eq!(covered(read(&line, "w").unwrap().coverage), Measure::Value(5_000));
        assert!(read(&line, "x").unwrap_err().contains("lacks the word"));
        assert!(read(good, "w").unwrap_err().contains("ended without"));
        assert!(read(b"", "w").unwrap_err().contains("ended without"));
        assert!(
            read(&[line.as_slice(), &line].concat(), "w").unwrap_err().contains("more than one")
        );
        assert!(read(b"{}\n", "w").unwrap_err().contains("not understood"));
    }
}
