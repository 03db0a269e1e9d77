//! A judge with a suite of one test, as `guild judge` has it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use guild_market::judge::{Class, Judge, Options, Stopwatch, Submission, Suite};
use guild_protocol::env::Random;
use guild_sandbox::Ns;
use testbed::bench::Watch;

const SUITE: &str = r#"{"schema_version": 1, "name": "one", "language": "python", "entry": "solution.py",
    "layers": {"smoke": 1}, "tests": [{"id": "one", "layer": "smoke", "call": "sort", "args": [[3, 1, 2]],
    "expect": {"value": [1, 2, 3]}}]}"#;

const ENTRY: &str = "solution.py";
const CODE: &str = "def sort(items):\n    return sorted(items)\n";

/// The submission as files, for whoever runs it without a judge; where.
pub(super) fn write_submission(directory: &Path) -> Result<String, String> {
    let submission = directory.join("submission");
    std::fs::create_dir_all(&submission)
        .and_then(|()| std::fs::write(submission.join(ENTRY), CODE))
        .map_err(|e| format!("{}: {e}", submission.display()))?;
    Ok(submission.display().to_string())
}

pub(super) struct Judging<'a> {
    sandbox: &'a Ns,
    suite: Suite,
    submission: Submission,
    options: Options,
    counter: Counter,
    since: Since,
}

/// Numbers that are all different: nobody attacks here.
struct Counter(AtomicU64);

impl Random for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_le_bytes();
        bytes.iter_mut().zip(number.iter().cycle()).for_each(|(byte, from)| *byte = *from);
    }
}

struct Since(Watch);

impl Stopwatch for Since {
    fn now_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl<'a> Judging<'a> {
    pub(super) fn new(sandbox: &'a Ns) -> Result<Judging<'a>, String> {
        Ok(Judging {
            sandbox,
            suite: Suite::parse(SUITE.as_bytes()).map_err(|e| e.to_string())?,
            submission: Submission::new([(ENTRY.to_owned(), CODE.as_bytes().to_vec())]),
            options: Options::default(),
            counter: Counter(AtomicU64::new(1)),
            since: Since(Watch::start()),
        })
    }

    /// One judgement, everything included.
    pub(super) fn run(&self) -> Result<f64, String> {
        let judge = Judge {
            sandbox: self.sandbox,
            random: &self.counter,
            stopwatch: &self.since,
            options: &self.options,
        };
        let watch = Watch::start();
        let verdict = judge.judge(&self.suite, &self.submission, &mut |_| {});
        let ms = watch.elapsed().as_secs_f64() * 1_000.0;
        match verdict {
            Ok(verdict) if verdict.class == Class::Success => Ok(ms),
            Ok(verdict) => Err(format!("it was judged as {}", verdict.class.name())),
            Err(error) => Err(error.to_string()),
        }
    }
}
