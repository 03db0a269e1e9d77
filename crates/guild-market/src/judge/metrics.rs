//! What is measured beside the tests. What cannot be measured is absent with a reason, never zero.

use std::collections::BTreeSet;

use guild_sandbox::{Collected, Error as SandboxError, Limits, Spec, Usage};
use serde::{Deserialize, Serialize};

use super::Progress;
use super::reached;
use super::run::{JUDGE, Run, SUBMISSION, TOOLS, does_not_fit, how};
use super::suite::Language;
use crate::Result;

/// A number, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Measure {
    /// The number.
    Value(u64),
    /// Why there is none.
    Absent(String),
}

/// `{"value": 7}` or `{"absent": "not asked for"}`
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<String>,
}

impl From<Measure> for Written {
    fn from(measure: Measure) -> Written {
        match measure {
            Measure::Value(value) => Written { value: Some(value), absent: None },
            Measure::Absent(why) => Written { value: None, absent: Some(why) },
        }
    }
}

impl TryFrom<Written> for Measure {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Measure, &'static str> {
        match (written.value, written.absent) {
            (Some(value), None) => Ok(Measure::Value(value)),
            (None, Some(why)) => Ok(Measure::Absent(why)),
            _ => Err("has not one of value and absent"),
        }
    }
}

impl Measure {
    pub(super) fn absent(why: &str) -> Measure {
        Measure::Absent(why.chars().take(200).collect())
    }

    /// The number, if there is one.
    pub fn value(&self) -> Option<u64> {
        match self {
            Measure::Value(value) => Some(*value),
            Measure::Absent(_) => None,
        }
    }
}

/// What was measured. All sandboxes of a judgement count together; of memory, the largest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// From the start to the end of each sandbox.
    pub wall_us: u64,
    /// CPU time.
    pub cpu_us: u64,
    /// The most memory at one time.
    pub memory_peak_bytes: u64,
    /// Lines, and by pytest also branches, that the tests reached, in ten-thousandths.
    pub coverage_bp: Measure,
    /// The score of pylint, in thousandths of a point; 10 points are the best.
    pub pylint_milli: Measure,
    /// 10 points less 5 for each grave finding of bandit, 2 for each other and half a one for each small.
    pub bandit_milli: Measure,
    /// 10 points less one for each error of mypy in 100 lines, ten times.
    pub mypy_milli: Measure,
}

impl Metrics {
    pub(super) fn of(usage: &Usage, coverage: Option<Measure>) -> Metrics {
        let unasked = || Measure::absent("not asked for");
        Metrics {
            wall_us: usage.wall_us,
            cpu_us: usage.cpu_us,
            memory_peak_bytes: usage.memory_peak_bytes,
            coverage_bp: coverage.unwrap_or_else(unasked),
            pylint_milli: unasked(),
            bandit_milli: unasked(),
            mypy_milli: unasked(),
        }
    }
}

/// What looks at the quality of Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Pylint,
    Bandit,
    Mypy,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Pylint => "pylint",
            Tool::Bandit => "bandit",
            Tool::Mypy => "mypy",
        }
    }

    /// Its words. No file of settings that the submission brings is read.
    fn words(self) -> &'static [&'static str] {
        match self {
            Tool::Pylint => {
                &["--rcfile=/judge/empty.ini", "--score=y", "--persistent=n", "--jobs=1"]
            }
            Tool::Bandit => &[
                "-q",
                "-f",
                "json",
                "--exit-zero",
                "--ignore-nosec",
                "--ini",
                "/judge/bandit.ini",
                "-r",
            ],
            Tool::Mypy => &[
                "--config-file=",
                "--no-incremental",
                "--cache-dir=/dev/null",
                "--no-color-output",
            ],
        }
    }

    fn score(self, stdout: &str, lines: u64) -> Measure {
        let read = match self {
            Tool::Pylint => pylint(stdout),
            Tool::Bandit => bandit(stdout),
            Tool::Mypy => mypy(stdout, lines),
        };
        let last = || stdout.lines().last().unwrap_or_default().to_owned();
        read.map_or_else(
            || Measure::absent(&format!("it gave no score: {}", last())),
            Measure::Value,
        )
    }
}

/// Everything that was measured, with the scores of the tools that are there.
pub(super) fn measure(
    run: &mut Run<'_>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Metrics> {
    let mut metrics = run.measured();
    if !run.judge.options.quality {
        return Ok(metrics);
    }
    if run.suite.language == Language::Executable {
        let Metrics { coverage_bp, pylint_milli, bandit_milli, mypy_milli, .. } = &mut metrics;
        for measure in [coverage_bp, pylint_milli, bandit_milli, mypy_milli] {
            *measure = Measure::absent("only Python is looked at");
        }
        return Ok(metrics);
    }
    if run.suite.language == Language::Python {
        progress(&run.progress("coverage"));
        metrics.coverage_bp = reached::measure(run)?;
    }
    let there = installed(run)?;
    let mut score = |tool: Tool| match there.contains(tool.name()) {
        true => {
            progress(&run.progress(tool.name()));
            look(run, tool)
        }
        false => Ok(Measure::absent(&format!("{} is not installed", tool.name()))),
    };
    metrics.pylint_milli = score(Tool::Pylint)?;
    metrics.bandit_milli = score(Tool::Bandit)?;
    metrics.mypy_milli = score(Tool::Mypy)?;
    Ok(metrics)
}

/// Which tools are there, asked in a sandbox without the submission.
pub(super) fn installed(run: &Run<'_>) -> Result<BTreeSet<String>> {
    const ASK: &str = "import importlib.util as u, sys\n\
                       print(*(n for n in sys.argv[1:] if u.find_spec(n)), sep='\\n')";
    let names = ["pytest", "pytest_cov", "pylint", "bandit", "mypy"];
    let words = ["python3", "-s", "-B", "-c", ASK].into_iter().chain(names);
    let mut spec = Spec::new(words, Limits::judge());
    spec.image = run.judge.options.image.clone();
    run.bring_tools(&mut spec);
    spec.env.insert("PYTHONPATH".to_owned(), TOOLS.to_owned());
    let collected = run.judge.sandbox.start(&spec)?.collect()?;
    let text = String::from_utf8_lossy(&collected.stdout).into_owned();
    Ok(text.lines().map(str::to_owned).collect())
}

fn look(run: &Run<'_>, tool: Tool) -> Result<Measure> {
    let words = ["python3", "-s", "-B", "-m", tool.name()].into_iter();
    let files = run.submission.files().iter().filter(|(path, _)| path.ends_with(".py"));
    let lines = files.clone().map(|(_, bytes)| bytes.split(|byte| *byte == b'\n').count());
    let lines = u64::try_from(lines.sum::<usize>()).unwrap_or(u64::MAX);
    let paths: Vec<String> = match tool {
        Tool::Bandit => vec![SUBMISSION.to_owned()],
        Tool::Pylint | Tool::Mypy => {
            files.map(|(path, _)| format!("{SUBMISSION}/{path}")).collect()
        }
    };
    let words = words.chain(tool.words().iter().copied()).map(str::to_owned).chain(paths);
    let mut spec = Spec::new(words, Limits::judge())
        .file(format!("{JUDGE}/empty.ini"), "")
        .file(format!("{JUDGE}/bandit.ini"), "[bandit]\n");
    run.dress(&mut spec);
    run.bring_tools(&mut spec);
    spec.env.insert("PYTHONPATH".to_owned(), TOOLS.to_owned());
    // Not in the submission, whose files would be taken for modules of the tool.
    JUDGE.clone_into(&mut spec.cwd);
    let running = match run.judge.sandbox.start(&spec) {
        Ok(running) => running,
        // The interpreter is there, so it is the names of the files that are too long all together.
        Err(SandboxError::NotStarted { why, .. }) => return Ok(Measure::absent(&why)),
        Err(error) => return does_not_fit(&spec, error).map(|why| Measure::absent(&why)),
    };
    let Collected { outcome, stdout, .. } = running.collect()?;
    match how(&outcome).filter(|_| outcome.exit_code.is_none() || !outcome.flags.is_empty()) {
        Some(end) => Ok(Measure::absent(&format!("{} did not end: {end}", tool.name()))),
        None => Ok(tool.score(&String::from_utf8_lossy(&stdout), lines)),
    }
}

const BEST_MILLI: u64 = 10_000;

/// The last line that tells the score: what stands in a submission may be repeated above it.
fn pylint(stdout: &str) -> Option<u64> {
    let told =
        stdout.lines().rev().find_map(|line| line.strip_prefix("Your code has been rated at "))?;
    let score: f64 = told.split('/').next()?.parse().ok()?;
    let milli = (score * 1_000.0).round().clamp(0.0, 10_000.0);
    // Between 0 and 10000.
    format!("{milli}").parse().ok()
}

fn bandit(stdout: &str) -> Option<u64> {
    let told: serde_json::Value = serde_json::from_str(stdout).ok()?;
    let totals = told.get("metrics")?.get("_totals")?;
    let count = |name: &str| totals.get(name).and_then(serde_json::Value::as_u64);
    let high = count("SEVERITY.HIGH")?.saturating_mul(5_000);
    let medium = count("SEVERITY.MEDIUM")?.saturating_mul(2_000);
    let low = count("SEVERITY.LOW")?.saturating_mul(500);
    Some(BEST_MILLI.saturating_sub(high.saturating_add(medium).saturating_add(low)))
}

fn mypy(stdout: &str, lines: u64) -> Option<u64> {
    let last = stdout.lines().last()?;
    if last.starts_with("Success: ") {
        return Some(BEST_MILLI);
    }
    let errors: u64 = last.strip_prefix("Found ")?.split(' ').next()?.parse().ok()?;
    let less = errors.saturating_mul(100_000).checked_div(lines.max(1))?;
    Some(BEST_MILLI.saturating_sub(less))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_and_never_invented() {
        let rated = "x.py:1: W0511: Your code has been rated at 10.00/10\n\nYour code has been rated at 8.33/10\n";
        assert_eq!(Tool::Pylint.score(rated, 1), Measure::Value(8_330));
        let worst = "Your code has been rated at -25.00/10 (previous run: 1.00/10, -26.00)\n";
        assert_eq!(Tool::Pylint.score(worst, 1), Measure::Value(0));
        let totals =
            r#"{"metrics":{"_totals":{"SEVERITY.HIGH":1,"SEVERITY.MEDIUM":1,"SEVERITY.LOW":1}}}"#;
        assert_eq!(Tool::Bandit.score(totals, 1), Measure::Value(2_500));
        assert_eq!(
            Tool::Mypy.score("Success: no issues found in 1 source file", 9),
            Measure::Value(10_000)
        );
        let found = "a.py:1: error: x\nFound 2 errors in 1 file (checked 1 source file)\n";
        assert_eq!(Tool::Mypy.score(found, 100), Measure::Value(8_000));
        assert_eq!(Tool::Mypy.score(found, 3), Measure::Value(0));
        for tool in [Tool::Pylint, Tool::Bandit, Tool::Mypy] {
            for nothing in ["", "{}", "Traceback\n", "Found none"] {
                assert!(matches!(tool.score(nothing, 1), Measure::Absent(_)), "{tool:?} {nothing}");
            }
        }
    }
}
