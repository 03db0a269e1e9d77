//! `oa.sandbox_run.v1` is checked by running the commands again.
//!
//! | the re-runs | verdict |
//! |---|---|
//! | one gives what the provider says | passed |
//! | two agree with each other, and not with the provider | failed: `market.output_differs`, at the field that differs |
//! | two differ from each other; there are none; none could be done, or not in time | not passed: `market.unverifiable` |
//!
//! Compared is what the schema calls compared: the image, each command with its exit code, each artifact with its hash
//! and size, and the status. Times, host and what was printed are not.

use std::collections::BTreeMap;

use guild_protocol::schema::{Job, Output};
use guild_protocol::verification::{Problem, Verification};
use serde_json::Value;

use super::PROBLEMS_MAX;
use crate::error::code;
use crate::job::Refusal;
use crate::sandbox_run::{Artifact, Bounds, CommandRun, Plan, Ran};

/// What came of running a job again: it ran, or why it could not be.
pub type Rerun = Result<Ran, Refusal>;

/// Whether a run differs from what a provider says of the same job: then it is run once more before anybody is blamed.
pub fn differs(job: &Job, output: &Output, ran: &Ran) -> bool {
    !problems(job, output, ran).is_empty()
}

/// Why this very work cannot be run again here, if it cannot.
pub(super) fn no_way(job: &Job, bounds: Option<&Bounds>) -> Option<String> {
    let Some(bounds) = bounds else {
        return Some("no sandbox can be started here to run it again".to_owned());
    };
    Plan::of(job, bounds).err().map(|refusal| refusal.words)
}

/// Records the checks.
pub(super) fn judge(job: &Job, output: &Output, reruns: &[Rerun], checks: &mut Verification) {
    let ran: Vec<&Ran> = reruns.iter().filter_map(|rerun| rerun.as_ref().ok()).collect();
    let refusal = reruns.iter().find_map(|rerun| rerun.as_ref().err());
    let not_run = ran.is_empty().then(|| match refusal {
        Some(refusal) => refusal.to_feedback(),
        None => "the commands were not run again".to_owned(),
    });
    let not_run = not_run.map(|why| Problem::new(&code::UNVERIFIABLE, why));
    checks.record("rerun", "the commands were run again here", not_run.clone());
    if not_run.is_some() {
        return;
    }
    if ran.iter().any(|ran| !differs(job, output, ran)) {
        checks.record("recomputed", "a run here gave the same", []);
        return;
    }
    // How fast this host is, and what else it does, is no evidence against anybody.
    let ran: Vec<&Ran> = ran.into_iter().filter(|ran| !ran.ran_out_of_time()).collect();
    let problems = match ran.as_slice() {
        [] => {
            let message = "the commands were not done in time here";
            vec![Problem::new(&code::UNVERIFIABLE, message)]
        }
        [first, second, ..] if same(first, second) => problems(job, output, first),
        [_, _, ..] => {
            let message = "two runs here gave different things: it cannot be told who is right";
            vec![Problem::new(&code::UNVERIFIABLE, message)]
        }
        _ => {
            let message = "one run here gave something else, and one run is not enough to blame";
            vec![Problem::new(&code::UNVERIFIABLE, message)]
        }
    };
    checks.record("recomputed", "a run here gave the same", problems);
}

/// Whether two runs say the same of all that is compared.
fn same(a: &Ran, b: &Ran) -> bool {
    let runs = |ran: &Ran| ran.runs.iter().map(compared).collect::<Vec<_>>();
    runs(a) == runs(b) && a.artifacts == b.artifacts && a.status == b.status
}

fn compared(run: &CommandRun) -> (String, i32) {
    (run.cmd.clone(), run.exit_code)
}

/// Where an output differs from a run.
fn problems(job: &Job, output: &Output, ran: &Ran) -> Vec<Problem> {
    let claimed = output.value();
    let mut problems = Vec::new();
    let ordered = job.payload().get("sandbox").and_then(|sandbox| sandbox.get("image_digest"));
    let stated = claimed.get("env_info").and_then(|info| info.get("image_digest"));
    if stated != ordered {
        let message = "another image than the one that was ordered";
        problems.push(differ(message).at("env_info.image_digest"));
    }
    compare_runs(&list(claimed, "runs"), &ran.runs, &mut problems);
    compare_artifacts(&list(claimed, "artifacts"), &ran.artifacts, &mut problems);
    // Last: it follows from the others, which say more.
    if text(claimed, "status") != ran.status.as_str() {
        let message = format!("{} here", ran.status.as_str());
        problems.push(differ(message).at("status"));
    }
    problems.truncate(PROBLEMS_MAX);
    problems
}

fn differ(message: impl Into<String>) -> Problem {
    Problem::new(&code::OUTPUT_DIFFERS, message)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten().collect()
}

fn compare_runs(claimed: &[&Value], ran: &[CommandRun], problems: &mut Vec<Problem>) {
    if claimed.len() != ran.len() {
        let message = format!("{} commands ran, here {}", claimed.len(), ran.len());
        problems.push(differ(message).at("runs"));
    }
    for (i, (claimed, ran)) in claimed.iter().zip(ran).enumerate() {
        if text(claimed, "cmd") != ran.cmd {
            problems.push(differ("another command than was ordered").at(format!("runs[{i}].cmd")));
        }
        let exit_code = claimed.get("exit_code").and_then(Value::as_i64);
        if exit_code != Some(i64::from(ran.exit_code)) {
            let cmd: String = ran.cmd.chars().take(60).collect();
            let message = format!("{cmd:?} exited with {} here", ran.exit_code);
            problems.push(differ(message).at(format!("runs[{i}].exit_code")));
        }
    }
}

fn compare_artifacts(claimed: &[&Value], ran: &[Artifact], problems: &mut Vec<Problem>) {
    let made: BTreeMap<&str, &Artifact> = ran.iter().map(|one| (one.path.as_str(), one)).collect();
    let mut named = BTreeMap::new();
    for (i, claimed) in claimed.iter().enumerate() {
        let path = text(claimed, "path");
        let at = |field: &str| format!("artifacts[{i}].{field}");
        if named.insert(path, i).is_some() {
            problems.push(differ("a file is named twice").at(at("path")));
            continue;
        }
        let Some(made) = made.get(path) else {
            problems.push(differ(format!("{path:?} was not made here")).at(at("path")));
            continue;
        };
        if text(claimed, "sha256") != made.sha256.to_string() {
            problems.push(differ(format!("{path:?} has other bytes here")).at(at("sha256")));
        }
        if claimed.get("size_bytes").and_then(Value::as_u64) != Some(made.size_bytes) {
            let message = format!("{path:?} has {} bytes here", made.size_bytes);
            problems.push(differ(message).at(at("size_bytes")));
        }
    }
    if let Some(path) = made.keys().find(|path| !named.contains_key(*path)) {
        problems.push(differ(format!("{path:?} was made here, and is not named")).at("artifacts"));
    }
}
