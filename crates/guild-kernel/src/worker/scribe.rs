//! Writes what tasks have done: as much as waits, one write at a time. While one is written the next one collects.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Worker, is_closed};
use crate::turn::{self, Commit, Committed, Report, Reported};
use crate::{Error, LeaseToken, Result, code};

/// What is to be written, and who wants to know what became of it.
pub(super) enum Job {
    /// A step.
    Step(Commit, oneshot::Sender<Result<Committed>>),
    /// The result of a run.
    Report((LeaseToken, Report), oneshot::Sender<Result<Reported>>),
}

impl Job {
    fn is_wanted(&self) -> bool {
        match self {
            Job::Step(_, answer) => !answer.is_closed(),
            Job::Report(_, answer) => !answer.is_closed(),
        }
    }
}

/// What one write is about.
#[derive(Clone, Default)]
struct Papers {
    steps: Arc<Vec<Commit>>,
    reports: Arc<Vec<(LeaseToken, Report)>>,
}

impl Papers {
    /// Each by itself.
    fn singles(&self) -> (Vec<Papers>, Vec<Papers>) {
        let step =
            |step: &Commit| Papers { steps: Arc::new(vec![step.clone()]), ..Papers::default() };
        let report = |report: &(LeaseToken, Report)| Papers {
            reports: Arc::new(vec![report.clone()]),
            ..Papers::default()
        };
        (self.steps.iter().map(step).collect(), self.reports.iter().map(report).collect())
    }
}

/// What became of it.
#[derive(Default)]
struct Written {
    steps: Vec<Result<Committed>>,
    reports: Vec<Result<Reported>>,
}

/// How long a write waits that the store cannot take now.
const PAUSE_MS: i64 = 100;

impl Worker {
    /// Has a step written.
    pub(super) async fn commit(&self, number: u64, commit: Commit) -> Result<Committed> {
        let (answer, answered) = oneshot::channel();
        self.set_written(number, true);
        self.desk.push(Job::Step(commit, answer));
        let written = answered.await.unwrap_or_else(|_| Err(guild_store::Error::Closed.into()));
        self.set_written(number, false);
        written
    }

    /// Has the result of a run written.
    pub(super) async fn report(
        &self,
        number: u64,
        token: LeaseToken,
        report: Report,
    ) -> Result<Reported> {
        let (answer, answered) = oneshot::channel();
        self.set_written(number, true);
        self.desk.push(Job::Report((token, report), answer));
        answered.await.unwrap_or_else(|_| Err(guild_store::Error::Closed.into()))
    }

    /// Writes what is on the desk.
    pub(super) async fn scribe(&self) {
        loop {
            let jobs = self.desk.take(self.options.batch_max).await;
            let (mut steps, mut step_answers) = (Vec::new(), Vec::new());
            let (mut reports, mut report_answers) = (Vec::new(), Vec::new());
            // Whoever was dropped meanwhile has nothing to say any more.
            for job in jobs.into_iter().filter(Job::is_wanted) {
                match job {
                    Job::Step(step, answer) => {
                        steps.push(step);
                        step_answers.push(answer);
                    }
                    Job::Report(report, answer) => {
                        reports.push(report);
                        report_answers.push(answer);
                    }
                }
            }
            let papers = Papers { steps: Arc::new(steps), reports: Arc::new(reports) };
            let written = self.write_all(papers).await;
            for (answer, step) in step_answers.into_iter().zip(written.steps) {
                self.count(&step);
                // Nobody may be waiting any more.
                drop(answer.send(step));
            }
            for (answer, report) in report_answers.into_iter().zip(written.reports) {
                drop(answer.send(report));
            }
        }
    }

    fn count(&self, written: &Result<Committed>) {
        let word = match written {
            Ok(Committed::Continued { .. }) => "step",
            Ok(Committed::Suspended { .. }) => "suspended",
            Ok(Committed::Finished { .. }) => "finished",
            Err(error) if error.code() == &code::FENCED => "fenced",
            Err(_) => "unwritten",
        };
        self.counts.add(word, 1);
    }

    /// All of it together; each by itself if that is refused, so that it fails alone.
    async fn write_all(&self, papers: Papers) -> Written {
        let count = papers.steps.len().saturating_add(papers.reports.len());
        let error = match self.write(papers.clone()).await {
            Ok(written) => return written,
            Err(error) => error,
        };
        if count <= 1 || is_closed(&error) {
            return Written {
                steps: papers.steps.iter().map(|_| Err(error.clone())).collect(),
                reports: papers.reports.iter().map(|_| Err(error.clone())).collect(),
            };
        }
        let none = || Error::from(guild_store::Error::Panicked);
        let (steps, reports) = papers.singles();
        let mut written = Written::default();
        for one in steps {
            let one = self.write(one).await;
            written.steps.push(one.and_then(|mut one| one.steps.pop().ok_or_else(none)?));
        }
        for one in reports {
            let one = self.write(one).await;
            written.reports.push(one.and_then(|mut one| one.reports.pop().ok_or_else(none)?));
        }
        written
    }

    /// Writes it, again while the store cannot take it, as long as a lease lasts.
    async fn write(&self, papers: Papers) -> Result<Written> {
        let (ttl_ms, tries) = (self.options.lease_ms, self.options.lease_ms / PAUSE_MS);
        for _ in 0..=tries {
            let (papers, clock) = (papers.clone(), self.parts.clock.clone());
            let written = self.parts.store.write(move |tx| {
                let now_ms = clock.now_ms();
                Ok(Written {
                    steps: turn::commit_all(tx, &papers.steps, ttl_ms, now_ms)?,
                    reports: turn::report_runs(tx, &papers.reports, now_ms)?,
                })
            });
            match written.await {
                Err(error) if is_passing(&error) => {
                    self.warn(&error, "steps cannot be written now");
                    self.parts.clock.sleep(PAUSE_MS).await;
                }
                other => return other,
            }
        }
        Err(guild_store::Error::Closed.into())
    }
}

/// Whether the same write may succeed later.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.is_passing())
}
