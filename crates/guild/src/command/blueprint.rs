//! `guild blueprint`

use std::path::Path;

use guild_protocol::blueprint::{
    Blueprint, Evaluation, Invariant, MAX_BYTES, Measured, Measurements, Outcome, Verdict,
};
use serde::Serialize;

use super::Context;
use crate::error::{InFile, Result};
use crate::input::Input;
use crate::output::{Answer, lossy};

/// Check what a job must achieve
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Check(CheckArgs),
}

/// Check a blueprint, and measured values against it
///
/// Without measurements: whether the blueprint is a good one. With them: whether they meet it; the exit code is 1 if
/// an invariant fails, and 3 if none fails but not all were measured.
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// The blueprint; - reads from standard input
    file: Input,
    /// Measured values by the id of their invariant, such as {"TEST-001": 91.5, "BUILD-001": true}
    #[arg(long, value_name = "FILE")]
    measurements: Option<Input>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a Path,
    blueprint_hash: String,
    invariants: usize,
    #[serde(flatten)]
    evaluation: Option<&'a Evaluation>,
}

pub(crate) fn run(command: &Command, cx: &mut Context<'_>) -> Result<Answer> {
    let Command::Check(args) = command;
    let path = args.file.path();
    let text = args.file.read(MAX_BYTES)?;
    let blueprint = Blueprint::parse(&text).in_file(path)?;
    let evaluation = match &args.measurements {
        None => None,
        Some(file) => {
            let text = file.read(MAX_BYTES)?;
            let measured = Measurements::parse(&text).in_file(file.path())?;
            Some(blueprint.evaluate(&measured).in_file(file.path())?)
        }
    };
    let answer = match evaluation.as_ref().map(|evaluation| evaluation.verdict) {
        None | Some(Verdict::Pass) => Answer::Yes,
        Some(Verdict::Fail) => Answer::No,
        Some(Verdict::NotMeasured) => Answer::Open,
    };
    if cx.out.json() {
        let body = Body {
            file: path,
            blueprint_hash: blueprint.hash()?.to_string(),
            invariants: blueprint.invariants().len(),
            evaluation: evaluation.as_ref(),
        };
        cx.out.object(answer == Answer::Yes, body)?;
    } else {
        print(path, &blueprint, evaluation.as_ref(), cx)?;
    }
    Ok(answer)
}

fn print(
    path: &Path,
    blueprint: &Blueprint,
    evaluation: Option<&Evaluation>,
    cx: &mut Context<'_>,
) -> Result<()> {
    let count = blueprint.invariants().len();
    let plural = if count == 1 { "" } else { "s" };
    let Some(evaluation) = evaluation else {
        let hash = blueprint.hash()?;
        cx.out.line(&format!(
            "{}: a good blueprint with {count} invariant{plural}",
            path.display()
        ))?;
        return cx.out.line(&format!("  {hash}"));
    };
    let verdict = match evaluation.verdict {
        Verdict::Pass => "is met",
        Verdict::Fail => "is NOT met",
        Verdict::NotMeasured => "is not yet measured in full",
    };
    cx.out.line(&format!("{}: the blueprint {verdict}", path.display()))?;
    let width =
        evaluation.outcomes.iter().map(|o| o.invariant.id.chars().count()).max().unwrap_or(0);
    for Outcome { invariant, measured_value, verdict } in &evaluation.outcomes {
        let word = match verdict {
            Verdict::Pass => "ok",
            Verdict::Fail => "FAILED",
            Verdict::NotMeasured => "open",
        };
        let id = &invariant.id;
        let measured = measured_value.map_or_else(|| "not measured".to_owned(), value);
        cx.out.line(&format!("  {word:6}  {id:width$}  {measured}; {}", wanted(invariant)))?;
    }
    Ok(())
}

fn value(measured: Measured) -> String {
    match measured {
        Measured::Boolean(value) => value.to_string(),
        Measured::Number(number) => number.to_string(),
    }
}

/// What the invariant demands, in a few words.
fn wanted(invariant: &Invariant) -> String {
    use guild_protocol::blueprint::Check;
    match &invariant.check {
        Check::Boolean { condition } => format!("wanted: {condition}"),
        Check::Floor { metric, min } => format!("wanted: {metric} of at least {min}"),
        Check::Ceiling { metric, max } => format!("wanted: {metric} of at most {max}"),
        Check::Range { metric, min, max } => format!("wanted: {metric} from {min} to {max}"),
    }
}
