//! What is said between an agent and its client, as JSON.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use guild_protocol::env::UnixMs;
use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use serde::{Deserialize, Serialize};

use super::auth::{Nonce, SandboxId};
use crate::outcome::Class;

guild_protocol::typed_id! {
    /// Names a command. Its starter chooses it, so that a repeated request starts nothing twice.
    ExecId = "exec", made;
}

/// Bytes that are base64 in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes64(pub Vec<u8>);

impl Serialize for Bytes64 {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes64 {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Bytes64, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD
            .decode(text)
            .map(Bytes64)
            .map_err(|_| serde::de::Error::custom("this is not base64"))
    }
}

/// `GET /health`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The sandbox that is served.
    pub sandbox_id: SandboxId,
    /// What it does.
    pub state: State,
    /// Why it ended, if it did.
    pub ended_by: Option<EndedBy>,
    /// How the sandbox says that it ended.
    pub class: Option<Class>,
    /// What its system is called.
    pub image_version: String,
    /// Until when it may run.
    pub run_until_ms: UnixMs,
    /// The agent's clock.
    pub now_ms: UnixMs,
    /// How long the agent has run, whatever its clock says.
    pub uptime_ms: i64,
    /// Whether commands may run: one that awaits its first lease lets none in before it.
    #[serde(default)]
    pub leased: bool,
    /// How long commands could run, from the first lease to the end of everything inside.
    #[serde(default)]
    pub ran_ms: i64,
    /// What it may use now. Older agents do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// How many commands run.
    pub execs: usize,
    /// Whether secrets have been released.
    pub secrets_released: bool,
    /// The version of the agent.
    pub version: String,
}

/// How much everything in a sandbox may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How much it may compute at once, in thousandths of a core.
    pub cpu_milli: u32,
    /// How much memory it has; its files count.
    pub memory_mib: u64,
}

/// What a sandbox does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Commands can be started.
    Running,
    /// Everything stands still.
    Frozen,
    /// Nothing runs any more. Files can still be fetched for a while.
    Ended,
}

/// Why a sandbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Nobody has said that it may run longer.
    Lease,
    /// The controller said so.
    Stop,
    /// A limit, or a failure of the sandbox.
    Sandbox,
}

/// `POST /exec`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Its id; a repeated request with the same id starts nothing. Without one, the agent makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ExecId>,
    /// The program and its arguments: never a line for a shell.
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it starts, if not in `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// When it is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What it reads first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_b64: Option<Bytes64>,
    /// Whether more input follows by `POST /exec/{id}/stdin`; if not, its input ends behind `stdin_b64`.
    #[serde(default)]
    pub stdin_open: bool,
    /// How much it may print, on both streams; more ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The secrets that it gets, each as a variable of its name. No other command sees them, nor does its `argv`; where
    /// commands are not kept apart by landlock it is refused.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub needs_secrets: BTreeSet<String>,
}

/// The answer to `POST /exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Its id.
    pub id: ExecId,
}

/// A line of `GET /exec/{id}/stream`. Numbers begin at 1 and have no holes, but for what a `gap` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its number. A reader that comes again asks from the next one on.
    pub seq: u64,
    /// What it carries.
    pub stream: Stream,
    /// What was printed.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub data_b64: Bytes64,
    /// Of `exit`: the exit code, if it exited by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Of `exit`: the signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Of `exit`: why it ended; missing if the sandbox failed, so that nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Of `exit`: whether it printed more than it may. Of `gap`: always.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

fn is_empty(bytes: &Bytes64) -> bool {
    bytes.0.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// What the command printed.
    Stdout,
    /// What it printed as errors.
    Stderr,
    /// Its end; the last frame.
    Exit,
    /// All frames up to this number are gone: nobody read them in time.
    Gap,
}

/// `POST /exec/{id}/stdin`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StdinRequest {
    /// A name for this input; what has come under it already is not written again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How much of the input of that name stands before this piece of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub from: u64,
    /// What it reads next.
    #[serde(default)]
    pub data_b64: Bytes64,
    /// Whether its input ends with this.
    #[serde(default)]
    pub close: bool,
}

/// The answer: a command that does not read takes only so much.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StdinTaken {
    /// So many bytes.
    pub written: usize,
    /// Whether the input is closed now.
    pub closed: bool,
}

/// `POST /exec/{id}/signal`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// A name for this signal; it is sent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The number: 9 ends it with all that it started.
    pub signal: i32,
}

/// The answer to `PUT /files`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWritten {
    /// How much was written.
    pub bytes: u64,
    /// Its hash.
    pub sha256: Hash,
}

/// The answer to `GET /files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// What is there, by name.
    pub entries: Vec<Entry>,
}

/// Something in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// `file`, `directory`, `link` or `other`.
    pub kind: String,
    /// Of a file: how large it is.
    pub size: u64,
    /// Of a file: whether it can be executed.
    pub executable: bool,
}

/// `GET /attestation`: exactly these three.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// `standard`: nothing but the agent's word.
    pub mode: String,
    /// The system that the sandbox shows.
    pub image_version: String,
    /// What a machine that measures itself would say.
    pub measurement: Option<String>,
}

/// `POST /release-secrets`: made by [`super::Secrets::seal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRelease {
    /// The nonce of the request that fetched the attestation.
    pub attestation: Nonce,
    /// The key that sealed this, made for this once.
    pub sender: PublicKey,
    /// NIP-44 to the agent's key: a JSON object of names and values.
    pub sealed: String,
}

/// The answer: what can be asked for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretsReleased {
    /// The names.
    pub names: Vec<String>,
}

/// `POST /resize`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// How much it may compute at once, in thousandths of a core.
    pub cpu_milli: u32,
    /// How much memory it has; its files count.
    pub memory_mib: u64,
}

/// The answer to `POST /lease`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStands {
    /// Until when it may run, as it stands.
    pub run_until_ms: UnixMs,
    /// Whether this request changed it.
    pub changed: bool,
}
