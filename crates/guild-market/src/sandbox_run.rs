//! `oa.sandbox_run.v1`: commands on a tree of files, in one sandbox.
//!
//! ```text
//! job ─▶ Plan ─▶ perform, in a sandbox ─▶ Ran ─▶ output          the provider
//! job ─▶ Plan ─▶ perform, in a sandbox ─▶ Ran ─▶ verdict         the buyer, again
//! ```
//!
//! A [`Plan`] follows from the job and the [`Bounds`] of this node alone; what cannot be planned is refused before
//! anything runs. [`perform`] is the one effect. What it gives is the same on every machine for programs that do not
//! look at the time, at chance or at the machine: the environment, the paths, the times of the files and the order of
//! everything are fixed.

use std::collections::BTreeMap;
use std::sync::Arc;

use guild_protocol::amount::Msat;
use guild_protocol::env::BoxFuture;
use guild_protocol::hash::Hash;
use guild_protocol::schema::Job;
use guild_sandbox::{File, Image, Limits};
use serde_json::Value;

use crate::job::Refusal;

mod output;
mod perform;
mod plan;
mod tree;

pub use output::{MODEL_ID, frame_bytes, output};
pub use perform::{Stop, perform};
pub use tree::{TREE_VARIABLE, pack};

/// The schema of this work.
pub const SCHEMA_ID: &str = "oa.sandbox_run.v1";

/// How many artifacts a result names, and how many bytes their paths have together, as JSON: a result must fit into an
/// event, whatever a job calls its files.
pub const ARTIFACTS_MAX: usize = 128;
const PATHS_MAX_BYTES: usize = 12 * 1_024;

/// What this node lets such work use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The most of everything. A job says how much of cores, memory, disk and time it wants; the rest is as here.
    pub limits: Limits,
    /// The images that there are, by their digest.
    pub images: BTreeMap<String, Image>,
}

/// A job as it is run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Names the image, as the job does.
    pub image_digest: String,
    /// The image.
    pub image: Image,
    /// What it may use.
    pub limits: Limits,
    /// The whole environment of every command.
    pub env: BTreeMap<String, String>,
    /// Where the tree is.
    pub mount: String,
    /// The tree, at its places in the sandbox.
    pub files: Vec<File>,
    /// What is run, in order.
    pub commands: Vec<Command>,
}

/// One command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// For the shell.
    pub cmd: String,
    /// Where it starts.
    pub cwd: String,
    /// Whether the next one runs even if this one fails.
    pub continue_on_fail: bool,
}

/// What came of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// One for each command that ran, in order.
    pub runs: Vec<CommandRun>,
    /// The files that were made or changed, by path.
    pub artifacts: Vec<Artifact>,
    /// How it went.
    pub status: Status,
    /// What went wrong, if the status is [`Status::Error`].
    pub error: Option<String>,
}

impl Ran {
    /// Whether it was this host's time that was not enough: another host, or this one at another time, may need less.
    pub fn ran_out_of_time(&self) -> bool {
        let computed = self.error.as_deref() == Some(perform::COMPUTED_TOO_LONG);
        self.status == Status::Timeout || (self.status == Status::Error && computed)
    }
}

/// What came of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRun {
    /// The command line.
    pub cmd: String,
    /// Its exit code: 128 and the number of the signal, if one ended it.
    pub exit_code: i32,
    /// How long it ran. Differs from run to run.
    pub duration_ms: u64,
    /// What it printed.
    pub stdout: Printed,
    /// What it printed as errors.
    pub stderr: Printed,
}

/// What was printed to one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// Of all of it.
    pub sha256: Hash,
    /// The beginning.
    pub head: Vec<u8>,
}

/// A file that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Where it is in the sandbox.
    pub path: String,
    /// Of its bytes.
    pub sha256: Hash,
    /// How many.
    pub size_bytes: u64,
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Every command exited with 0.
    Success,
    /// One did not.
    Failed,
    /// All together took too long.
    Timeout,
    /// A limit other than time ended it.
    Error,
}

impl Status {
    /// The word in a result.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Failed => "failed",
            Status::Timeout => "timeout",
            Status::Error => "error",
        }
    }
}

/// Runs plans, so many at once as whoever made it thinks right. Dropping the future ends the run and leaves nothing of
/// it. A refusal of the kind `unavailable` may pass; any other will not.
pub type Run = Arc<dyn Fn(Plan) -> BoxFuture<Result<Ran, Refusal>> + Send + Sync>;

/// How many units of its price a job costs: a unit is a minute on a core, of what the job may use at most, rounded up.
/// Work of any other schema is one unit.
///
/// ```
/// use guild_market::sandbox_run::price_units;
/// use guild_protocol::schema::Registry;
/// let job = |resources| {
///     let input = serde_json::json!({
///         "sandbox": {"image_digest": "sha256:x", "resources": resources}, "commands": [{"cmd": "true"}],
///     });
///     Registry::builtin().validate_input(&"oa.sandbox_run.v1".parse().unwrap(), &input).unwrap()
/// };
/// assert_eq!(price_units(&job(serde_json::json!({}))), 1);
/// assert_eq!(price_units(&job(serde_json::json!({"timeout_secs": 61, "cpus": 1.5}))), 4);
/// ```
pub fn price_units(job: &Job) -> i64 {
    if job.schema_id().as_str() != SCHEMA_ID {
        return 1;
    }
    let resources = job.payload().get("sandbox").and_then(|sandbox| sandbox.get("resources"));
    let of = |name: &str| resources.and_then(|resources| resources.get(name));
    let minutes = of("timeout_secs").and_then(Value::as_i64).unwrap_or(60).saturating_add(59) / 60;
    minutes.max(1).saturating_mul(i64::from(plan::cores_milli(job)).saturating_add(999) / 1_000)
}

/// What a job costs by the price of one unit.
pub fn price(unit: Msat, job: &Job) -> Msat {
    Msat(unit.0.saturating_mul(price_units(job)))
}
