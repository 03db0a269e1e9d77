//! What is done inside of a sandbox.

use std::collections::{BTreeMap, BTreeSet};

use guild_sandbox::agent::{Bytes64, Entry, ExecId, ExecRequest, FileWritten};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::within;
use crate::Result;
use crate::clamp::NUMBER_MAX;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    /// The program and its arguments: never a line for a shell.
    #[schema(min_items = 1, max_items = 1000)]
    pub argv: Vec<String>,
    /// Variables on top of the sandbox's own.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it starts, if not in `/workspace`.
    pub cwd: Option<String>,
    /// When it is ended.
    #[schema(minimum = 1, maximum = 86400000)]
    pub timeout_ms: Option<u64>,
    /// What it reads first, in base64.
    #[schema(value_type = Option<String>)]
    pub stdin_b64: Option<Bytes64>,
    /// Whether more input follows; if not, its input ends behind `stdin_b64`.
    #[serde(default)]
    pub stdin_open: bool,
    /// The secrets that it gets, each as a variable of its name. Refused before they were released.
    #[serde(default)]
    pub needs_secrets: BTreeSet<String>,
}

impl ExecBody {
    /// Refuses what cannot be meant, before the sandbox is asked.
    pub(crate) fn check(&self) -> Result<()> {
        const DAY_MS: i64 = 86_400_000;
        let timeout_ms = self.timeout_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        timeout_ms.map_or(Ok(()), |ms| within("timeout_ms", ms, DAY_MS))
    }

    pub(crate) fn asked(self, id: ExecId) -> ExecRequest {
        ExecRequest {
            id: Some(id),
            argv: self.argv,
            env: self.env,
            cwd: self.cwd,
            timeout_ms: self.timeout_ms,
            stdin_b64: self.stdin_b64,
            stdin_open: self.stdin_open,
            max_output: None,
            needs_secrets: self.needs_secrets,
        }
    }
}

/// A command that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecView {
    /// Names it; what it prints is read at `…/exec/{exec_id}`.
    pub exec_id: String,
}

/// From which frame on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FromQuery {
    /// The number of the first frame that is wanted; they begin at 1.
    #[param(minimum = 1, maximum = 9007199254740991_i64)]
    pub from: Option<u64>,
}

impl FromQuery {
    /// The first frame that is wanted.
    pub(crate) fn first(&self) -> Result<u64> {
        let from = self.from.unwrap_or(1);
        within("from", i64::try_from(from).unwrap_or(i64::MAX), NUMBER_MAX)?;
        Ok(from)
    }
}

/// Input for a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StdinBody {
    /// What it reads next, in base64.
    #[schema(value_type = Option<String>)]
    pub data_b64: Option<Bytes64>,
    /// Whether its input ends here.
    #[serde(default)]
    pub close: bool,
}

/// A signal for a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalBody {
    /// Its number; 9 ends the command with all that it started.
    #[schema(minimum = 1, maximum = 64)]
    pub signal: i32,
}

impl SignalBody {
    /// Refuses what is no signal.
    pub(crate) fn check(&self) -> Result<()> {
        within("signal", i64::from(self.signal), 64)
    }
}

/// Which file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FileQuery {
    /// Below `/workspace`, without `..`; links are not followed.
    #[param(min_length = 1, max_length = 4096)]
    pub path: String,
    /// Whether it may be executed, for a file that goes in.
    #[serde(default)]
    pub executable: bool,
}

/// Which directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DirectoryQuery {
    /// Below `/workspace`, without `..`; links are not followed. That itself, if not said.
    #[serde(default)]
    #[param(max_length = 4096)]
    pub path: String,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FileView {
    /// Where it is.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
    /// Its hash.
    pub sha256: String,
}

impl FileView {
    pub(crate) fn of(path: &str, written: &FileWritten) -> FileView {
        FileView { path: path.to_owned(), bytes: written.bytes, sha256: written.sha256.to_string() }
    }
}

/// What is in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Directory {
    /// In the order of their names.
    #[schema(value_type = Vec<Object>)]
    pub entries: Vec<Entry>,
}

/// Secrets by their names. They are kept in the memory of the sandbox's agent, and nowhere else.
#[derive(Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretsBody {
    /// Each by its name, which is that of a variable.
    pub secrets: BTreeMap<String, String>,
}

/// The secrets that a sandbox has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecretsView {
    /// Their names.
    pub names: Vec<String>,
}
