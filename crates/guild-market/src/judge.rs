//! Whether a delivered program does what a suite of tests asks for, decided where the program cannot reach.
//!
//! ```text
//! runner (this process)                        sandbox, a new one each time
//!   suite: calls and what they must give         subject: loads the submission
//!   ── {"id": random, "call": f, "args": […]} ──▶
//!   ◀── {"id": the same, "ok": value} ───────────
//!   compares plain JSON
//! ```
//!
//! Expected values, ids of tests and their layers never enter the sandbox. An answer is taken if it is the one thing
//! said after a call and carries the id that the call brought; anything else on the channel, and an end without an
//! answer, is an error, and all tests that are left count as failed.
//!
//! Suites of pytest run too, because people have them. There the tests share a process with the submission, which can
//! then forge what it likes: such a verdict says [`Mode::TamperEvident`].

use guild_protocol::env::Random;
use guild_sandbox::{Image, Sandbox};

use crate::Result;

mod metrics;
mod pattern;
mod pytest;
mod reached;
pub mod record;
mod run;
mod subject;
mod submission;
mod suite;
mod value;
mod verdict;

pub use metrics::{Measure, Metrics};
pub use pattern::Finding;
pub use submission::Submission;
pub use suite::{
    Case, Check, Compare, Expect, Isolation, Language, Layer, MAX_SUITE_BYTES, Ratio, SALT_BYTES,
    Salt, Suite, Test,
};
pub use verdict::{Class, Count, Mode, Status, Tally, TestResult, Trust, Verdict};

/// Time that only goes forward, for what is shorter than a millisecond.
pub trait Stopwatch: Send + Sync {
    /// Microseconds since some moment.
    fn now_us(&self) -> u64;
}

/// What a judge works with.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Where submissions run.
    pub sandbox: &'a dyn Sandbox,
    /// Where the ids of calls come from: whoever can guess them can answer before it is asked.
    pub random: &'a dyn Random,
    /// What times calls.
    pub stopwatch: &'a dyn Stopwatch,
    /// The rest.
    pub options: &'a Options,
}

/// How a judge works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The system that submissions see.
    pub image: Image,
    /// A directory of Python packages, shown read-only: pytest, pylint, bandit, mypy. Without one the image's are used.
    pub tools: Option<std::path::PathBuf>,
    /// Whether the tools that look at quality are run where they are installed, and the lines that calls reach counted.
    pub quality: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { image: Image::Host, tools: None, quality: false }
    }
}

/// How far a judge is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Tests that are done.
    pub done: usize,
    /// Tests that there are.
    pub total: usize,
    /// What is done now.
    pub doing: &'a str,
}

impl Judge<'_> {
    /// Judges a submission. An error means that nothing is known about it: bad input, or a sandbox that failed.
    pub fn judge(
        &self,
        suite: &Suite,
        submission: &Submission,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Verdict> {
        self.prepare();
        submission.require(&suite.entry)?;
        let mut run = run::Run::new(self, suite, submission);
        match suite.language {
            Language::Pytest => run.pytest(progress)?,
            Language::Python | Language::Executable => run.calls(progress)?,
        }
        run.verdict(progress)
    }

    /// Lets sandboxes be made ahead, so many as whoever made the sandbox wants: now there is something else to do.
    fn prepare(&self) {
        // If it fails, the next start fails as well, and says why.
        let _ = self.sandbox.prepare();
    }
}
