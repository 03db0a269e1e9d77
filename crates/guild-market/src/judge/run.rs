//! One judgement, from the first test to the verdict.

use std::collections::BTreeMap;

use guild_sandbox::{
    Bind, Class as End, Error as SandboxError, File, Flag, Limit, LimitReport, Outcome, Spec,
    Standing, Usage,
};

use super::metrics::{self, Metrics};
use super::pattern::{self, Finding};
use super::subject::{Answered, Broken, Ended, Gave, Subject};
use super::suite::{Case, Check, Expect, Isolation, Language, Layer, Suite, Test};
use super::verdict::{Mode, SCHEMA_VERSION, Status, Tally, TestResult, Verdict, count_layers};
use super::{Judge, Progress, Submission, value};
use crate::Result;

mod ratio;

/// Where the files of a submission are, read-only.
pub(super) const SUBMISSION: &str = "/submission";
/// Where ours are.
pub(super) const JUDGE: &str = "/judge";
/// Where packages of Python are shown.
pub(super) const TOOLS: &str = "/tools";
const SUBJECT: &str = include_str!("subject.py");
const PRINTED_BYTES: usize = 4 << 10;
/// How much is said of why something does not fit: names of files may be long.
const MAX_WHY_CHARS: usize = 200;
/// How many different attempts are told apart.
const MAX_FLAGS: usize = 64;

/// What is known so far.
pub(super) struct Run<'a> {
    pub(super) judge: &'a Judge<'a>,
    pub(super) suite: &'a Suite,
    pub(super) submission: &'a Submission,
    results: Vec<TestResult>,
    flags: Vec<Flag>,
    findings: Vec<Finding>,
    limits: BTreeMap<Limit, LimitReport>,
    isolation: BTreeMap<guild_sandbox::Layer, Standing>,
    usage: Usage,
    printed: String,
    pub(super) coverage: Option<metrics::Measure>,
    /// Nothing more is run.
    over: bool,
}

/// What became of one test.
struct Fate {
    status: Status,
    why: Option<String>,
    wall_us: Option<u64>,
}

impl Fate {
    fn passed(wall_us: u64) -> Fate {
        Fate { status: Status::Passed, why: None, wall_us: Some(wall_us) }
    }

    fn failed(why: impl Into<String>) -> Fate {
        Fate { status: Status::Failed, why: Some(why.into()), wall_us: None }
    }

    fn error(why: impl Into<String>) -> Fate {
        Fate { status: Status::Error, why: Some(why.into()), wall_us: None }
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(
        judge: &'a Judge<'a>,
        suite: &'a Suite,
        submission: &'a Submission,
    ) -> Run<'a> {
        let not_run = |test: &Test| TestResult {
            id: test.id.clone(),
            layer: test.layer,
            status: Status::NotRun,
            why: None,
            wall_us: None,
        };
        Run {
            judge,
            suite,
            submission,
            results: suite.tests.iter().map(not_run).collect(),
            flags: Vec::new(),
            findings: Vec::new(),
            limits: BTreeMap::new(),
            isolation: BTreeMap::new(),
            usage: Usage::default(),
            printed: String::new(),
            coverage: None,
            over: false,
        }
    }

    /// What stands in the submission is looked at before anything of it runs.
    pub(super) fn look(&mut self) {
        for (at, test) in self.suite.of_layer(Layer::Security) {
            let Check::Forbid(names) = &test.check else { continue };
            let found = pattern::find(self.suite.language, self.submission, names);
            let fate = match found.first() {
                None => Fate { status: Status::Passed, why: None, wall_us: None },
                Some(first) => {
                    Fate::failed(format!("{} in {}, line {}", first.name, first.file, first.line))
                }
            };
            self.findings.extend(found);
            self.settle(at, fate);
        }
        self.over |= !self.findings.is_empty();
    }

    /// Every test that calls, in the order of the layers.
    pub(super) fn calls(&mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<()> {
        self.look();
        let suite = self.suite;
        let mut subject: Option<Subject<'a>> = None;
        for layer in [Layer::Smoke, Layer::Correctness, Layer::Edge] {
            for (at, test) in suite.of_layer(layer) {
                let Check::Call(case) = &test.check else { continue };
                if self.over {
                    continue;
                }
                progress(&self.progress(&test.id));
                self.call(at, case, &mut subject)?;
            }
        }
        self.part(subject.take(), None)?;
        for (at, test) in suite.of_layer(Layer::Performance) {
            let Check::Ratio(ratio) = &test.check else { continue };
            if self.over {
                continue;
            }
            progress(&self.progress(&test.id));
            let fate = self.ratio(at, ratio)?;
            self.settle(at, fate);
        }
        self.kernel();
        Ok(())
    }

    pub(super) fn progress<'b>(&self, doing: &'b str) -> Progress<'b> {
        let done = self.results.iter().filter(|result| result.status != Status::NotRun).count();
        Progress { done, total: self.results.len(), doing }
    }

    /// Writes down what became of a test. A smoke test that fails, and any error, is the end.
    fn settle(&mut self, at: usize, fate: Fate) {
        let Some(result) = self.results.get_mut(at) else { return };
        self.over |= fate.status == Status::Error
            || (fate.status == Status::Failed && result.layer == Layer::Smoke);
        (result.status, result.why, result.wall_us) = (fate.status, fate.why, fate.wall_us);
    }

    fn call(&mut self, at: usize, case: &Case, subject: &mut Option<Subject<'a>>) -> Result<()> {
        let fate = match self.answer(case, subject)? {
            Ok(answered) => compare(case, &answered),
            Err(why) => Fate::error(why),
        };
        self.settle(at, fate);
        if self.suite.isolation == Isolation::PerTest {
            self.part(subject.take(), Some(at))?;
        }
        Ok(())
    }

    /// Calls, in the subject that there is or in a new one. `Err` says why there is no answer; the subject is gone.
    fn answer(
        &mut self,
        case: &Case,
        subject: &mut Option<Subject<'a>>,
    ) -> Result<Result<Answered, String>> {
        let args = match value::expand_all(&case.args) {
            Ok(args) => args,
            // It was looked at when the suite was read.
            Err(why) => return Ok(Err(why)),
        };
        let mut partner = match subject.take() {
            Some(partner) => partner,
            None => match self.start()? {
                Ok(partner) => partner,
                Err(why) => return Ok(Err(why)),
            },
        };
        match partner.call(&case.call, args, self.suite.call_timeout_ms) {
            Ok(answered) => {
                *subject = Some(partner);
                Ok(Ok(answered))
            }
            Err(broken) => self.broke(partner, &broken).map(Err),
        }
    }

    /// A subject that has loaded the submission, or why there is none.
    fn start(&mut self) -> Result<Result<Subject<'a>, String>> {
        let spec = self.spec();
        let mut subject = match Subject::start(self.judge, &spec) {
            Ok(subject) => subject,
            // What cannot be executed is the submission's own mistake, unless it is our interpreter.
            Err(SandboxError::NotStarted { why, .. })
                if self.suite.language == Language::Executable =>
            {
                return Ok(Err(format!("it could not be started: {why}")));
            }
            Err(error) => return does_not_fit(&spec, error).map(Err),
        };
        let answered = match subject.ready(self.suite.call_timeout_ms) {
            Ok(answered) => answered,
            Err(broken) => return self.broke(subject, &broken).map(Err),
        };
        match answered.gave() {
            Gave::Value(_) => Ok(Ok(subject)),
            Gave::Error { names, message } => {
                let why = format!("it could not be loaded: {}", named(&names, &message));
                self.part(Some(subject), None)?;
                Ok(Err(why))
            }
        }
    }

    /// Ends a subject that did not answer, and says why it did not.
    fn broke(&mut self, subject: Subject<'a>, broken: &Broken) -> Result<String> {
        let ended = match broken {
            // It is gone already, or about to be.
            Broken::Ended => subject.end()?,
            Broken::Late | Broken::Noise(_) => subject.stop()?,
        };
        let why = match broken {
            Broken::Noise(why) => why.clone(),
            Broken::Late => format!("it gave no answer within {} ms", self.suite.call_timeout_ms),
            Broken::Ended => "it ended without an answer".to_owned(),
        };
        let end = how(&ended.outcome);
        self.count(ended);
        Ok(end.map_or(why.clone(), |end| format!("{why}: {end}")))
    }

    /// Ends a subject that has answered everything. What it does after that counts as well.
    fn part(&mut self, subject: Option<Subject<'a>>, last: Option<usize>) -> Result<()> {
        let Some(subject) = subject else { return Ok(()) };
        let ended = subject.end()?;
        let why = match (ended.spoke, how(&ended.outcome)) {
            (true, _) => Some("it spoke after its last answer".to_owned()),
            (false, Some(how)) => Some(format!("after its last answer: {how}")),
            (false, None) => None,
        };
        self.count(ended);
        let ran = |result: &TestResult| {
            result.status != Status::NotRun && result.layer != Layer::Security
        };
        let last = last.or_else(|| self.results.iter().rposition(ran));
        if let (Some(why), Some(last)) = (why, last) {
            self.settle(last, Fate::error(why));
        }
        Ok(())
    }

    /// What the kernel saw, once everything has run.
    pub(super) fn kernel(&mut self) {
        for (at, test) in self.suite.of_layer(Layer::Security) {
            if !matches!(test.check, Check::Kernel) || self.isolation.is_empty() {
                continue;
            }
            let fate = match self.flags.first() {
                None => Fate { status: Status::Passed, why: None, wall_us: None },
                Some(flag) => Fate::failed(format!("it tried {} {}", flag.call, flag.detail)),
            };
            self.settle(at, fate);
        }
    }

    /// A run that is over: its flags, its use, and how well it was held.
    pub(super) fn count(&mut self, ended: Ended) {
        let Outcome { flags, usage, limits, layers, .. } = ended.outcome;
        for flag in flags {
            let same = |seen: &&mut Flag| seen.call == flag.call && seen.detail == flag.detail;
            if let Some(seen) = self.flags.iter_mut().find(same) {
                seen.count = seen.count.saturating_add(flag.count);
                seen.fatal |= flag.fatal;
            } else if self.flags.len() < MAX_FLAGS {
                self.flags.push(flag);
            }
        }
        self.over |= !self.flags.is_empty();
        let all = &mut self.usage;
        all.wall_us = all.wall_us.saturating_add(usage.wall_us);
        all.cpu_us = all.cpu_us.saturating_add(usage.cpu_us);
        all.output_bytes = all.output_bytes.saturating_add(usage.output_bytes);
        all.memory_peak_bytes = all.memory_peak_bytes.max(usage.memory_peak_bytes);
        all.pids_peak = all.pids_peak.max(usage.pids_peak);
        for (limit, report) in limits {
            let kept = self.limits.entry(limit).or_insert_with(|| report.clone());
            let reached = kept.reached || report.reached;
            if report.standing > kept.standing {
                *kept = report;
            }
            kept.reached = reached;
        }
        for (layer, standing) in layers {
            let kept = self.isolation.entry(layer).or_insert(standing);
            *kept = standing.max(*kept);
        }
        let room = PRINTED_BYTES.saturating_sub(self.printed.len());
        let printed = String::from_utf8_lossy(&ended.printed);
        self.printed.extend(printed.chars().take(room));
    }

    /// The sandbox of a subject.
    fn spec(&self) -> Spec {
        let suite = self.suite;
        let mut spec = match suite.language {
            Language::Executable => {
                Spec::new([format!("{SUBMISSION}/{}", suite.entry)], suite.limits)
            }
            Language::Python | Language::Pytest => {
                let module = suite.entry.strip_suffix(".py").unwrap_or(&suite.entry);
                let mut words = vec!["python3", "-s", "-B"];
                words.extend((!suite.site_packages).then_some("-S"));
                let program = format!("{JUDGE}/subject.py");
                let module = module.replace('/', ".");
                words.extend([program.as_str(), module.as_str()]);
                Spec::new(words, suite.limits).file(&program, SUBJECT)
            }
        };
        self.dress(&mut spec);
        spec
    }

    /// What every sandbox of this judgement has.
    pub(super) fn dress(&self, spec: &mut Spec) {
        spec.image = self.judge.options.image.clone();
        spec.profile = self.suite.profile;
        spec.require.clone_from(&self.suite.require);
        // Whatever Python makes of hashes and bytes is the same each time.
        spec.env.insert("PYTHONHASHSEED".to_owned(), "0".to_owned());
        spec.env.insert("PYTHONUTF8".to_owned(), "1".to_owned());
        for (path, bytes) in self.submission.files() {
            let executable =
                self.suite.language == Language::Executable && *path == self.suite.entry;
            spec.files.push(File {
                at: format!("{SUBMISSION}/{path}"),
                executable,
                bytes: bytes.clone(),
            });
        }
    }

    /// The packages of Python that the judge brings.
    pub(super) fn bring_tools(&self, spec: &mut Spec) {
        if let Some(host) = self.judge.options.tools.clone() {
            spec.binds.push(Bind { host, at: TOOLS.to_owned(), writable: false });
        }
    }

    /// What became of the tests that pytest ran.
    pub(super) fn settle_pytest(
        &mut self,
        told: Result<&BTreeMap<String, (Status, Option<String>)>, String>,
    ) {
        for (at, test) in self.suite.tests.iter().enumerate() {
            if !matches!(test.check, Check::Pytest) || self.over {
                continue;
            }
            let fate = match &told {
                Err(why) => Fate::error(why.clone()),
                Ok(told) => match told.get(&test.id) {
                    Some((status, why)) => {
                        Fate { status: *status, why: why.clone(), wall_us: None }
                    }
                    None => Fate::failed("pytest told nothing about it"),
                },
            };
            self.settle(at, fate);
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Everything that is known, and the class that follows from it.
    pub(super) fn verdict(mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Verdict> {
        let metrics = metrics::measure(&mut self, progress)?;
        let is_flagged = !self.flags.is_empty() || !self.findings.is_empty();
        let tally = Tally::of(&self.results, is_flagged);
        let layers = count_layers(&self.results);
        let mode = match self.suite.language {
            Language::Pytest => Mode::TamperEvident,
            Language::Python | Language::Executable => Mode::Trusted,
        };
        Ok(Verdict {
            schema_version: SCHEMA_VERSION,
            suite: self.suite.name.clone(),
            suite_hash: self.suite.hash(),
            submission_hash: self.submission.hash(),
            class: tally.class(),
            mode,
            passed: tally.passed,
            total: tally.total,
            full: self.suite.is_full(),
            layers,
            tests: self.results,
            flags: self.flags,
            findings: self.findings,
            trust: tally.trust(),
            metrics,
            limits: self.limits,
            isolation: self.isolation,
            printed: self.printed,
        })
    }

    /// What was measured while the tests ran.
    pub(super) fn measured(&self) -> Metrics {
        Metrics::of(&self.usage, self.coverage.clone())
    }
}

/// Why a submission cannot be put into its sandbox, if that is its own doing: its files are too large, or too many, or
/// have names that nobody can use. Everything else is an error, of this host or of the suite.
pub(super) fn does_not_fit(spec: &Spec, error: SandboxError) -> Result<String> {
    let is_theirs = |file: &File| file.at.starts_with(&format!("{SUBMISSION}/"));
    let is_own = match &error {
        SandboxError::BadSpec { field, why } if field == "files.at" => why.contains(SUBMISSION),
        SandboxError::BadSpec { field, .. } if field == "files" => {
            let mut without = spec.clone();
            without.files.retain(|file| !is_theirs(file));
            without.check().is_ok()
        }
        // The suite was looked at when it was read: without the files its limit is enough to start.
        SandboxError::BadLimit { limit, .. } if limit == "memory_hard_bytes" => {
            spec.files.iter().any(|file| is_theirs(file) && !file.bytes.is_empty())
        }
        _ => false,
    };
    match is_own {
        true => {
            let why = format!("it does not fit into its sandbox: {error}");
            Ok(why.chars().take(MAX_WHY_CHARS).collect())
        }
        false => Err(error.into()),
    }
}

/// Compares what was answered with what was expected. What was expected is never said.
fn compare(case: &Case, answered: &Answered) -> Fate {
    let passed = Fate::passed(answered.wall_us);
    let fate = match (&case.expect, answered.gave()) {
        (Expect::Anything, Gave::Value(_)) => passed,
        (Expect::Value(expected), Gave::Value(given)) => match value::expand(expected) {
            Ok(expected) if value::is_equal(&expected, &given, case.compare) => passed,
            _ => Fate::failed("it gave another value"),
        },
        (Expect::Error(name), Gave::Error { names, message }) => match names.contains(name) {
            true => passed,
            false => Fate::failed(format!("it gave another error: {}", named(&names, &message))),
        },
        (Expect::Error(_), Gave::Value(_)) => Fate::failed("it gave a value where an error is due"),
        (_, Gave::Error { names, message }) => {
            Fate::failed(format!("it gave an error: {}", named(&names, &message)))
        }
    };
    Fate { wall_us: Some(answered.wall_us), ..fate }
}

fn named(names: &[String], message: &str) -> String {
    let kind = names.first().map_or("", String::as_str);
    format!("{kind}: {message}").trim_end_matches([' ', ':']).to_owned()
}

/// How a run ended, if it did not end as it should.
pub(super) fn how(outcome: &Outcome) -> Option<String> {
    if let Some(flag) = outcome.flags.first() {
        return Some(format!("it tried {} {}", flag.call, flag.detail).trim_end().to_owned());
    }
    match (outcome.class, outcome.exit_code, outcome.signal) {
        (End::Exited, Some(0), _) | (End::Stopped, ..) => None,
        (End::Exited, Some(code), _) => Some(format!("exit code {code}")),
        (End::Signaled, _, Some(signal)) => Some(format!("signal {signal}")),
        (End::WallLimit, ..) => Some("the limit of wall_ms was reached".to_owned()),
        (End::CpuLimit, ..) => Some("the limit of cpu_hard_ms was reached".to_owned()),
        (End::MemoryLimit, ..) => Some("the limit of memory_hard_bytes was reached".to_owned()),
        (End::OutputLimit, ..) => Some("the limit of output_bytes was reached".to_owned()),
        (class, ..) => Some(format!("{class:?}")),
    }
}
