//! The replay: what a session did, as JSON lines (`REPLAY.jsonl`, version 1).
//!
//! A [`Writer`] turns events into lines. Every line carries `chain`, the running hash of all lines up to it, so a
//! changed line is found by its number; the last line, `SessionEnd`, carries the end of the chain as
//! `trajectory_hash`, which a [receipt](crate::receipt) repeats and signs. [`verify`] checks a file, alone or against
//! its receipt; [`explain`] also looks for the changed field. Files of others without a chain are read tolerantly, and
//! are never more than "valid but not sealed". The format is written down in `docs/formats/replay.md`.

use serde_json::{Map, Value, json};

use crate::hash::{Hash, Hasher};
use crate::receipt::{Proof, Rail, Status};
use crate::timestamp::Timestamp;
use crate::{Result, amount};

pub mod bundle;
mod chain;
mod check;
mod fields;
mod repair;
mod report;
mod rules;
mod tables;
mod write;

pub use check::{Checker, explain, verify};
pub use fields::{SessionStatus, StepStatus};
pub use repair::{Repaired, repair};
pub use report::{Report, Standing};
pub use tables::WIRE;
pub use write::{Finished, Start, Writer};

/// The codes of this module.
pub mod code {
    crate::codes! {
        NOT_A_REPLAY = "replay.no_header", Invalid,
            "The file does not begin with the ReplayHeader of a replay.",
            "Give a REPLAY.jsonl file; its first line says replay_version.";
        UNKNOWN_VERSION = "replay.unknown_version", Invalid,
            "The replay has a replay_version that this program does not know.",
            "Use a newer program, or ask for a file of version 1.";
        LIMIT = "replay.limit", Invalid,
            "A replay is longer than the limits allow.",
            "Keep a line below 16 MiB and a file below 1 GiB and a million lines.";
        LINE = "replay.line_malformed", Invalid,
            "A line of a replay is not JSON, or not in canonical form.",
            "Do not trust the file from this line on.";
        TORN = "replay.torn", Invalid,
            "The last line of a replay breaks off.",
            "The writer was interrupted: `guild replay repair` closes the file, as failed.";
        FIELD = "replay.field_malformed", Invalid,
            "A field of a replay is missing, unknown, or not of its form.",
            "Do not trust the file: ask its writer for the original.";
        ORDER = "replay.order", Invalid,
            "An event of a replay stands where it cannot stand.",
            "Do not trust the file: ask its writer for the original.";
        CALLS = "replay.calls", Invalid,
            "The tool calls and results of a replay do not pair up.",
            "Do not trust the file: a call or a result is missing or stands twice.";
        TOTALS = "replay.totals", Invalid,
            "The totals at the end of a replay are not those of its lines.",
            "Do not trust the file: lines are missing or were added.";
        HASH = "replay.hash_mismatch", Invalid,
            "A line of a replay states a hash that its content does not have.",
            "Do not trust the line: its content was changed.";
        CHAIN = "replay.chain_broken", Invalid,
            "A line of a replay does not fit the chain of hashes.",
            "Do not trust the file: this line was changed, added or removed.";
        UNSEALED = "replay.unsealed", Invalid,
            "The replay carries no chain of hashes, so nobody can tell whether it was changed.",
            "Ask for a sealed replay; this one proves nothing.";
        REPAIRED = "replay.repaired", Invalid,
            "The replay was closed by a repair after its writer was interrupted.",
            "Read it, but do not pay on it: what happened after its last line is not known.";
        IMPORTED = "replay.imported", Invalid,
            "The replay was converted from another format, which carried no hashes.",
            "Read it, but do not pay on it: it proves nothing about the original.";
        RECEIPT = "replay.receipt_mismatch", Invalid,
            "The replay and the receipt do not belong together.",
            "Find the replay whose trajectory_hash the receipt names.";
        NOT_REPAIRABLE = "replay.not_repairable", Invalid,
            "The replay is damaged elsewhere than at its end, or not at all.",
            "Only a last line that broke off and a missing SessionEnd can be repaired.";
        BUNDLE = "replay.bundle_malformed", Invalid,
            "The file is not a ReplayBundle of version 1.0.",
            "Give the JSON file that an earlier system exported.";
    }
}

/// The version that this program writes and reads.
pub const REPLAY_VERSION: i64 = 1;

/// How `trajectory_hash` is computed: see `docs/formats/replay.md`.
pub const TRAJECTORY_HASH_ALG: &str = "guild.chain.v1";

/// A line is never longer than this.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// A file never has more lines than this.
pub const MAX_LINES: u64 = 1_000_000;

/// A file is never longer than this.
pub const MAX_BYTES: usize = 1024 * 1024 * 1024;
/// What the file of a replay is called, wherever one is written or given out.
pub const FILE_NAME: &str = "REPLAY.jsonl";

/// What the chain starts from: the hash of the name of its algorithm.
pub fn chain_start() -> Hash {
    Hash::of(TRAJECTORY_HASH_ALG.as_bytes())
}

/// The next value of the chain: the hash of the former value's 32 bytes and the canonical line without `chain` and
/// `trajectory_hash`.
pub fn chain_next(former: &Hash, line: &[u8]) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(former.as_bytes());
    hasher.update(line);
    hasher.finish()
}

/// What a tool gave back. Only its hash is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Bytes: their hash is that of the bytes as they are.
    Raw(Vec<u8>),
    /// The hash of bytes, for an output too large to hold.
    RawHash(Hash),
    /// JSON: its hash is that of its canonical form.
    Json(Value),
}

impl Output {
    fn encoding_and_hash(&self) -> Result<(&'static str, Hash)> {
        Ok(match self {
            Output::Raw(bytes) => ("raw", Hash::of(bytes)),
            Output::RawHash(hash) => ("raw", *hash),
            Output::Json(value) => ("json", crate::json::hash(value)?),
        })
    }
}

/// What happens between the start and the end of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A plan is begun.
    PlanStart {
        /// The hash of the plan's canonical JSON.
        plan_hash: Hash,
        /// How many steps it has.
        step_count: u32,
    },
    /// A tool is called.
    ToolCall {
        /// Names the call in this session.
        id: String,
        /// The tool.
        tool: String,
        /// What it is given, in full.
        params: Value,
        /// The step it belongs to.
        step_id: String,
    },
    /// A tool has answered.
    ToolResult {
        /// The call it answers.
        id: String,
        /// The answer, in full.
        output: Output,
        /// The exit code, if it was a process.
        exit_code: Option<i32>,
        /// How much it helped, from −1 to 1.
        step_utility: f64,
        /// How long it took.
        latency_ms: u32,
    },
    /// A step is over.
    StepComplete {
        /// The step.
        step_id: String,
        /// How it ended.
        status: StepStatus,
        /// How often it was tried.
        iterations: u8,
    },
    /// Commands were run to verify the work.
    Verification {
        /// The commands, each with its exit code.
        runs: Vec<(String, i32)>,
        /// Failing tests before minus failing tests after: more is better.
        verification_delta: i32,
    },
    /// Money moved.
    Payment {
        /// What moved it.
        rail: Rail,
        /// How much of what.
        amount: amount::Amount,
        /// What proves it.
        payment_proof: Option<Proof>,
        /// The job paid for.
        job_hash: Option<Hash>,
        /// How it was settled.
        status: Status,
    },
    /// Anything else that the runtime reports.
    RuntimeEvent {
        /// The runtime's own number for it.
        seq: u32,
        /// What sort of event.
        runtime_event_type: String,
        /// What it says.
        payload: Value,
        /// Made from what it is, if it has an effect.
        idempotency_key: Option<String>,
    },
}

impl Event {
    /// The members of its line, without those that every line has.
    fn members(&self, session_id: &str) -> Result<Map<String, Value>> {
        let members = match self {
            Event::PlanStart { plan_hash, step_count } => json!({
                "event": "PlanStart", "plan_hash": plan_hash, "step_count": step_count,
            }),
            Event::ToolCall { id, tool, params, step_id } => json!({
                "event": "ToolCall", "id": id, "tool": tool, "params": params,
                "params_hash": crate::json::hash(params)?, "step_id": step_id,
            }),
            Event::ToolResult { id, output, exit_code, step_utility, latency_ms } => {
                let (output_encoding, output_hash) = output.encoding_and_hash()?;
                json!({
                    "event": "ToolResult", "id": id, "output_encoding": output_encoding,
                    "output_hash": output_hash, "exit_code": exit_code,
                    "step_utility": step_utility, "latency_ms": latency_ms,
                })
            }
            Event::StepComplete { step_id, status, iterations } => json!({
                "event": "StepComplete", "step_id": step_id, "status": status.as_str(),
                "iterations": iterations,
            }),
            Event::Verification { runs, verification_delta } => json!({
                "event": "Verification",
                "commands": runs.iter().map(|(command, _)| command).collect::<Vec<_>>(),
                "exit_codes": runs.iter().map(|(_, exit_code)| exit_code).collect::<Vec<_>>(),
                "verification_delta": verification_delta,
            }),
            Event::Payment { rail, amount, payment_proof, job_hash, status } => {
                let mut payment = json!({
                    "event": "Payment", "rail": rail, "asset_id": amount.asset_id,
                    "amount": amount, "payment_proof": payment_proof, "job_hash": job_hash,
                    "status": status,
                });
                if let (true, Some(members)) = (amount.asset_id.is_msat(), payment.as_object_mut())
                {
                    members.insert("amount_msats".to_owned(), amount.units.into());
                }
                payment
            }
            Event::RuntimeEvent { seq, runtime_event_type, payload, idempotency_key } => json!({
                "event": "RuntimeEvent", "session_id": session_id, "seq": seq,
                "runtime_event_type": runtime_event_type, "payload": payload,
                "payload_hash": crate::json::hash(payload)?, "idempotency_key": idempotency_key,
            }),
        };
        Ok(into_members(members))
    }
}

fn into_members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Puts the moment into the members of a line.
fn stamped(mut members: Map<String, Value>, t: Timestamp) -> Map<String, Value> {
    members.insert("t".to_owned(), t.to_string().into());
    members
}
