//! Whether a result is what was ordered.
//!
//! A verdict is pure: the same job and the same output give the same [`Verdict`], with the same document and hash, on
//! every machine and after every crash. It is a list of checks; a check that an earlier one makes impossible is left
//! out, so that it does not look passed. Work that nobody here can check is not passed, with the code
//! `market.unverifiable`: silence is no.
//!
//! ```
//! use guild_market::verify::{Options, Subject, verify};
//! use guild_protocol::{env::Signer, identity::SecretKey, schema::Registry};
//! let provider = "11".repeat(32).parse::<SecretKey>().unwrap().public_key();
//! let registry = Registry::builtin();
//! let id = "oa.embedding.v1".parse().unwrap();
//! let job = registry.validate_input(&id, &serde_json::json!({"texts": ["", "?"], "dimensions": 2})).unwrap();
//! let output_text = serde_json::json!({
//!     "embeddings": [[1, 0], [1, 0]], "model_id": "guild-hash-v1", "dimensions": 2,
//!     "provenance": {"model": "guild-hash-v1", "provider_id": provider.npub()},
//! }).to_string();
//! let subject = Subject { job: &job, provider: &provider, output_text: &output_text };
//! let verdict = verify(&registry, &Options::default(), &subject).unwrap();
//! assert!(verdict.passed, "{}", verdict.checks);
//! ```

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::json;
use guild_protocol::problems::Problems;
use guild_protocol::schema::{Job, Output, Registry, VerificationMode};
use guild_protocol::verification::{Check, Problem, Verification};
use serde::Serialize;

use crate::error::code;
use crate::sandbox_run::{Bounds, SCHEMA_ID};
use crate::{Error, Result};

pub(crate) mod embedding;
mod sandbox_run;

pub use sandbox_run::{Rerun, differs};

/// The version of the verdict's document.
pub const SCHEMA_VERSION: &str = "guild.verdict.v1";

/// How many problems of one check a verdict lists; the first ones say enough.
const PROBLEMS_MAX: usize = 10;

/// How strict a verdict is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// How like each vector must be to the recomputed one, from 0 to 1.
    pub min_likeness: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options { min_likeness: 0.999 }
    }
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// What was ordered.
    pub job: &'a Job,
    /// From whom.
    pub provider: &'a PublicKey,
    /// What came back, as it came.
    pub output_text: &'a str,
}

/// What a result is worth.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether it is paid.
    pub passed: bool,
    /// How it was checked.
    pub mode: VerificationMode,
    /// Every check.
    pub checks: Verification,
    /// From 0 to 1, if there was something to measure.
    pub score: Option<f64>,
    /// The canonical JSON of all this.
    pub document: String,
    /// The hash of the document: what a receipt repeats.
    pub verdict_hash: Hash,
}

#[derive(Serialize)]
struct Document<'a> {
    checks: Vec<DocumentCheck<'a>>,
    job_hash: Hash,
    min_likeness: f64,
    mode: &'static str,
    output_hash: Hash,
    passed: bool,
    provider_id: &'a PublicKey,
    schema_id: &'a str,
    schema_version: &'static str,
    score: Option<f64>,
}

/// A check without its words, which may change: another version of the program must come to the same hash.
#[derive(Serialize)]
struct DocumentCheck<'a> {
    code: Option<&'static str>,
    field: Option<&'a str>,
    name: &'static str,
    ok: bool,
}

impl DocumentCheck<'_> {
    fn of(check: &Check) -> DocumentCheck<'_> {
        let problem = check.outcome.as_ref().err();
        DocumentCheck {
            code: problem.map(|problem| problem.code.name),
            field: problem.and_then(|problem| problem.field.as_deref()),
            name: check.name,
            ok: check.is_ok(),
        }
    }
}

/// Judges a result by what this process can compute by itself.
pub fn verify(registry: &Registry, options: &Options, subject: &Subject<'_>) -> Result<Verdict> {
    verify_rerun(registry, options, subject, &[])
}

/// Judges a result for which the work was done again: `reruns` is what came of that, each time. Work that can be
/// computed without doing it in a sandbox does not need any.
pub fn verify_rerun(
    registry: &Registry,
    options: &Options,
    subject: &Subject<'_>,
    reruns: &[Rerun],
) -> Result<Verdict> {
    let mode = mode_of(subject.job);
    let method = no_method(subject.job, mode).map_or(Method::Recompute, Method::None);
    found(registry, options, subject, (method, reruns))
}

/// Judges one of several results of the same work, by itself: what is objective as [`verify_rerun`] does, what is not
/// by its form alone. Whether it is right is then said by the others.
pub fn verify_ballot(
    registry: &Registry,
    options: &Options,
    subject: &Subject<'_>,
    reruns: &[Rerun],
) -> Result<Verdict> {
    match mode_of(subject.job) {
        VerificationMode::Objective => verify_rerun(registry, options, subject, reruns),
        VerificationMode::Subjective => found(registry, options, subject, (Method::Compare, &[])),
    }
}

/// Judges the form of a result alone: whether it is right is said by something else.
pub(crate) fn verify_form(
    registry: &Registry,
    options: &Options,
    subject: &Subject<'_>,
) -> Result<Verdict> {
    found(registry, options, subject, (Method::Compare, &[]))
}

/// How it can be found out whether a result is right.
enum Method {
    /// By doing it again.
    Recompute,
    /// By what others say.
    Compare,
    /// Not at all, and why.
    None(String),
}

fn found(
    registry: &Registry,
    options: &Options,
    subject: &Subject<'_>,
    (method, reruns): (Method, &[Rerun]),
) -> Result<Verdict> {
    let mut checks = Verification::default();
    let mode = mode_of(subject.job);
    let score = judge(registry, options, subject, (method, reruns), &mut checks).map(six_decimals);
    let passed = checks.holds();
    let schema_id = subject.job.schema_id().to_string();
    let document = Document {
        checks: checks.checks().iter().map(DocumentCheck::of).collect(),
        job_hash: subject.job.job_hash(),
        min_likeness: options.min_likeness,
        mode: mode.as_str(),
        output_hash: Hash::of(subject.output_text.as_bytes()),
        passed,
        provider_id: subject.provider,
        schema_id: &schema_id,
        schema_version: SCHEMA_VERSION,
        score,
    };
    let document = String::from_utf8_lossy(&json::to_canonical(&document)?).into_owned();
    let verdict_hash = Hash::of(document.as_bytes());
    Ok(Verdict { passed, mode, checks, score, document, verdict_hash })
}

/// What the buyer asked for, in the payload: the mode of the schema is only its default.
pub fn mode_of(job: &Job) -> VerificationMode {
    let mode = job.payload().get("verification").and_then(|wanted| wanted.get("mode"));
    match mode.and_then(serde_json::Value::as_str) {
        Some("objective") => VerificationMode::Objective,
        _ => VerificationMode::Subjective,
    }
}

/// Refuses work whose result nobody here could judge: whoever ordered it would never pay, however good it is. Commands
/// can be run again within these bounds; not at all without.
///
/// ```
/// use guild_market::verify::can_verify;
/// use guild_protocol::schema::Registry;
/// let registry = Registry::builtin();
/// let id = "oa.embedding.v1".parse().unwrap();
/// let job = |dimensions: u64| {
///     let input = serde_json::json!({"texts": ["hello"], "dimensions": dimensions});
///     registry.validate_input(&id, &input).unwrap()
/// };
/// assert!(can_verify(&job(4096), None).is_ok());
/// assert_eq!(can_verify(&job(4097), None).unwrap_err().code().name, "market.unverifiable");
/// ```
pub fn can_verify(job: &Job, sandbox: Option<&Bounds>) -> Result<()> {
    let why = no_method(job, mode_of(job)).or_else(|| match is_sandbox_run(job) {
        true => sandbox_run::no_way(job, sandbox),
        false => embedding::no_way(job),
    });
    why.map_or(Ok(()), |why| Err(Error::refused(&code::UNVERIFIABLE, why)))
}

/// Whether a result of this job is judged by running commands again: slowly, and with [`verify_rerun`].
pub fn is_sandbox_run(job: &Job) -> bool {
    job.schema_id().as_str() == SCHEMA_ID
}

/// Why there is no method to check such work, if there is none.
fn no_method(job: &Job, mode: VerificationMode) -> Option<String> {
    match (mode, job.schema_id().to_string().as_str()) {
        (VerificationMode::Objective, "oa.embedding.v1" | SCHEMA_ID) => None,
        (VerificationMode::Objective, other) => {
            Some(format!("{other} cannot be checked by recomputing it"))
        }
        (VerificationMode::Subjective, _) => {
            Some("there is no judge for subjective work".to_owned())
        }
    }
}

fn judge(
    registry: &Registry,
    options: &Options,
    subject: &Subject<'_>,
    (method, reruns): (Method, &[Rerun]),
    checks: &mut Verification,
) -> Option<f64> {
    let Subject { job, provider, output_text } = subject;
    let read = registry.validate_output_text(job.schema_id(), output_text.as_bytes());
    checks.record("output", "the output is what its schema says", listed(read.as_ref().err()));
    let output = read.ok()?;
    let provenance = provenance_problems(job, provider, &output);
    checks.record("provenance", "the output says of itself what is so", provenance);
    let problem = match method {
        Method::None(why) => Some(Problem::new(&code::UNVERIFIABLE, why)),
        Method::Compare => {
            checks.record("method", "the work is judged by comparing results", []);
            return None;
        }
        Method::Recompute => None,
    };
    checks.record("method", "the work can be checked", problem.clone());
    if problem.is_some() {
        return None;
    }
    if is_sandbox_run(job) {
        sandbox_run::judge(job, &output, reruns, checks);
        return None;
    }
    embedding::judge(registry, options, job, &output, checks)
}

fn listed(problems: Option<&Problems>) -> Vec<Problem> {
    let all = problems.into_iter().flat_map(Problems::iter);
    all.take(PROBLEMS_MAX).cloned().map(Problem::from).collect()
}

fn provenance_problems(job: &Job, provider: &PublicKey, output: &Output) -> Vec<Problem> {
    let stated = |detail: &str| output.value().get("provenance")?.get(detail)?.as_str();
    let wanted = [
        ("provider_id", provider.npub()),
        ("input_sha256", job.job_hash().to_string()),
        ("output_sha256", output.output_hash().to_string()),
    ];
    let differs = |(detail, is): &(&str, String)| stated(detail).is_some_and(|said| said != is);
    let problem = |(detail, is): (&str, String)| {
        Problem::new(&code::PROVENANCE, format!("is {is}")).at(format!("provenance.{detail}"))
    };
    wanted.into_iter().filter(differs).map(problem).collect()
}

/// Cut, never rounded up: a score that is not enough must not look like one that is.
fn six_decimals(score: f64) -> f64 {
    (score * 1e6).floor() / 1e6
}
