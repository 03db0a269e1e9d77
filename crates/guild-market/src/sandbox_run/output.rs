//! What came of a plan, as the schema writes it.

use guild_protocol::identity::PublicKey;
use guild_protocol::schema::Job;
use serde_json::{Value, json};

use super::{ARTIFACTS_MAX, Artifact, CommandRun, PATHS_MAX_BYTES, Plan, Printed, Ran};

/// What did the work, for provenance and announcements.
pub const MODEL_ID: &str = "guild-sandbox-v1";

/// How much of one stream is shown, and how much of all: a result must fit into an event.
const PREVIEW_MAX_BYTES: usize = 2_048;
const PREVIEWS_MAX_BYTES: usize = 12 * 1_024;
/// All of a run but its command line and previews, and of an artifact but its path, with room to spare.
const RUN_BYTES: usize = 400;
const ARTIFACT_BYTES: usize = 140;
/// Everything else.
const REST_BYTES: usize = 2_048;

/// The most bytes that a result of this job has: what might not fit is not begun.
pub fn frame_bytes(job: &Job) -> usize {
    let commands = job.payload().get("commands").and_then(Value::as_array);
    let texts = commands.into_iter().flatten().filter_map(|command| command.get("cmd"));
    let each = texts.map(|cmd| cmd.to_string().len().saturating_add(RUN_BYTES));
    let artifacts = PATHS_MAX_BYTES.saturating_add(ARTIFACTS_MAX.saturating_mul(ARTIFACT_BYTES));
    let frame = PREVIEWS_MAX_BYTES.saturating_add(REST_BYTES).saturating_add(artifacts);
    each.fold(frame, usize::saturating_add)
}

/// The output of a job.
pub fn output(job: &Job, plan: &Plan, ran: &Ran, provider: &PublicKey) -> Value {
    let mut room = PREVIEWS_MAX_BYTES;
    let runs: Vec<Value> = ran.runs.iter().map(|run| run_value(run, &mut room)).collect();
    let mut output = json!({
        "env_info": {
            "image_digest": plan.image_digest,
            "hostname": "sandbox",
            "system_info": format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        },
        "runs": runs,
        "artifacts": ran.artifacts.iter().map(artifact_value).collect::<Vec<_>>(),
        "status": ran.status.as_str(),
        "provenance": {
            "model": MODEL_ID, "provider_id": provider.npub(), "input_sha256": job.job_hash(),
        },
    });
    if let (Some(error), Value::Object(members)) = (&ran.error, &mut output) {
        members.insert("error".to_owned(), json!(error));
    }
    output
}

fn run_value(run: &CommandRun, room: &mut usize) -> Value {
    let mut value = json!({
        "cmd": run.cmd,
        "exit_code": run.exit_code,
        "duration_ms": run.duration_ms,
        "stdout_sha256": run.stdout.sha256,
        "stderr_sha256": run.stderr.sha256,
    });
    for (name, printed) in [("stdout_preview", &run.stdout), ("stderr_preview", &run.stderr)] {
        if let (Some(preview), Value::Object(members)) = (preview(printed, room), &mut value) {
            members.insert(name.to_owned(), Value::String(preview));
        }
    }
    value
}

/// The beginning of what was printed, as far as there is room for it as JSON.
fn preview(printed: &Printed, room: &mut usize) -> Option<String> {
    let head = printed.head.get(..PREVIEW_MAX_BYTES).unwrap_or(&printed.head);
    let text = String::from_utf8_lossy(head);
    let mut shown = String::new();
    for c in text.chars() {
        let bytes = match c {
            '"' | '\\' | '\n' | '\t' | '\r' => 2,
            c if c.is_control() => 6,
            c => c.len_utf8(),
        };
        if bytes > *room || shown.len().saturating_add(c.len_utf8()) > PREVIEW_MAX_BYTES {
            break;
        }
        *room = room.saturating_sub(bytes);
        shown.push(c);
    }
    (!shown.is_empty()).then_some(shown)
}

fn artifact_value(artifact: &Artifact) -> Value {
    let Artifact { path, sha256, size_bytes } = artifact;
    json!({"path": path, "sha256": sha256, "size_bytes": size_bytes})
}
