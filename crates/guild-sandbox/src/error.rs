//! The error of this crate.

use std::io;

use guild_protocol::error::{Code, Kind};
use serde::{Deserialize, Serialize};

use crate::host::Layer;

/// The codes of this crate.
pub mod code {
    guild_protocol::codes! {
        BAD_SPEC = "sandbox.bad_spec", Invalid,
            "What a sandbox is to run, or how, is not written as it must be.",
            "The message names the field and what it takes.";
        BAD_LIMIT = "sandbox.bad_limit", Invalid,
            "A limit is outside its range, or two limits contradict each other.",
            "The message names the limit and what it takes.";
        NO_IMAGE = "sandbox.no_image", NotFound,
            "The image or a directory that is to be seen in the sandbox does not exist or cannot be read.",
            "Name a directory that the user who runs guild can read.";
        LAYER_MISSING = "sandbox.layer_missing", Denied,
            "This host lacks a layer of isolation that is required.",
            "`guild doctor` shows every layer of this host and what to do; or require less.";
        NOT_STARTED = "sandbox.not_started", Invalid,
            "The program could not be started inside the sandbox.",
            "Check that it exists in the image, is executable, and that its interpreter is there too.";
        RUNTIME = "sandbox.runtime", Unavailable,
            "The OCI runtime is not there, failed, or did not answer in time.",
            "Look at `sandbox.runtime`, `sandbox.platform` and `sandbox.timeout_ms`; `guild doctor` shows the runtimes \
             of this host.";
        ENDED = "sandbox.ended", Conflict,
            "The sandbox has ended, so nothing can be done in it any more.",
            "Start another one. What it left in its workspace can still be read.";
        BUSY = "sandbox.busy", Unavailable,
            "The sandbox cannot take another command now: too many run at once, or it is frozen.",
            "Try again when a command has ended, or after thawing it.";
        REFUSED = "sandbox.refused", Unavailable,
            "Nobody inside the sandbox takes connections at this port.",
            "Check that the program listens on 127.0.0.1 or 0.0.0.0 at this port, and try again.";
        BAD_PATH = "sandbox.bad_path", Invalid,
            "A path in the workspace is not a plain one below it.",
            "Write it as `dir/file`: relative, without `..`, `.`, empty parts or zero bytes; links are not followed.";
        NO_FILE = "sandbox.no_file", NotFound,
            "There is no such file in the workspace.",
            "List the directory above it.";
        NOT_A_FILE = "sandbox.not_a_file", Conflict,
            "What is at this path of the workspace is not of the kind that is needed.",
            "Only regular files are read and replaced; the message says what is there.";
        TOO_LARGE = "sandbox.too_large", Invalid,
            "Something is larger than its limit, or than what is left of the sandbox's disk.",
            "The message names the limit. Write less, or remove files first.";
        BAD_ARCHIVE = "sandbox.bad_archive", Invalid,
            "An archive was refused; nothing of it was kept.",
            "The message names the entry. Only plain files and directories are taken, as tar writes them.";
        FAILED = "sandbox.failed", Unavailable,
            "The sandbox itself failed, so nothing is known about what ran in it.",
            "The message names the step; `guild doctor` says what this host can do.";
    }
}

/// Why something was not run, or why nothing is known about how it ran.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Error {
    /// A field of the spec, and what is wrong with it.
    #[error("{field}: {why}")]
    BadSpec {
        /// The field.
        field: String,
        /// What is wrong.
        why: String,
    },
    /// A limit, and what is wrong with it.
    #[error("limits.{limit}: {why}")]
    BadLimit {
        /// The limit.
        limit: String,
        /// What is wrong.
        why: String,
    },
    /// A directory of the host that cannot be shown.
    #[error("{path}: {why}")]
    NoImage {
        /// The directory.
        path: String,
        /// What the system said.
        why: String,
    },
    /// A layer that was required.
    #[error("the layer {layer} is required, but {why}")]
    LayerMissing {
        /// The layer.
        layer: Layer,
        /// What was found instead.
        why: String,
    },
    /// The program could not be executed.
    #[error("{program}: {why}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the system said.
        why: String,
    },
    /// The sandbox is gone.
    #[error("the sandbox has ended")]
    Ended,
    /// The sandbox is there, but cannot take this now.
    #[error("the sandbox is busy: {why}")]
    Busy {
        /// What it waits for.
        why: String,
    },
    /// A port inside that nobody listens at.
    #[error("port {port}: {why}")]
    Refused {
        /// The port.
        port: u16,
        /// What the system said.
        why: String,
    },
    /// A path that is not a plain one below the workspace.
    #[error("{path:?}: {why}")]
    BadPath {
        /// The path, cut if it is long.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Nothing is there.
    #[error("{path}: there is no such file")]
    NoFile {
        /// The path.
        path: String,
    },
    /// Something else is there.
    #[error("{path}: {why}")]
    NotAFile {
        /// The path.
        path: String,
        /// What is there.
        why: String,
    },
    /// More than may be.
    #[error("{path}: {why}")]
    TooLarge {
        /// The path.
        path: String,
        /// The limit.
        why: String,
    },
    /// An archive that was refused.
    #[error("archive: {entry:?}: {why}")]
    BadArchive {
        /// The entry, cut if it is long.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
    /// The OCI runtime.
    #[error("{runtime}: {why}")]
    Runtime {
        /// The runtime.
        runtime: String,
        /// What is wrong with it, or what it said.
        why: String,
    },
    /// A step of the launcher.
    #[error("{step}: {why}")]
    Failed {
        /// The step.
        step: String,
        /// What the system said.
        why: String,
    },
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable code.
    pub fn code(&self) -> &'static Code {
        match self {
            Error::BadSpec { .. } => &code::BAD_SPEC,
            Error::BadLimit { .. } => &code::BAD_LIMIT,
            Error::NoImage { .. } => &code::NO_IMAGE,
            Error::LayerMissing { .. } => &code::LAYER_MISSING,
            Error::NotStarted { .. } => &code::NOT_STARTED,
            Error::Ended => &code::ENDED,
            Error::Busy { .. } => &code::BUSY,
            Error::Refused { .. } => &code::REFUSED,
            Error::BadPath { .. } => &code::BAD_PATH,
            Error::NoFile { .. } => &code::NO_FILE,
            Error::NotAFile { .. } => &code::NOT_A_FILE,
            Error::TooLarge { .. } => &code::TOO_LARGE,
            Error::BadArchive { .. } => &code::BAD_ARCHIVE,
            Error::Runtime { .. } => &code::RUNTIME,
            Error::Failed { .. } => &code::FAILED,
        }
    }

    /// The kind of its code.
    pub fn kind(&self) -> Kind {
        self.code().kind
    }

    pub(crate) fn spec(field: impl Into<String>, why: impl Into<String>) -> Error {
        Error::BadSpec { field: field.into(), why: why.into() }
    }

    pub(crate) fn limit(limit: impl Into<String>, why: impl Into<String>) -> Error {
        Error::BadLimit { limit: limit.into(), why: why.into() }
    }

    pub(crate) fn failed(step: impl Into<String>, why: impl ToString) -> Error {
        Error::Failed { step: step.into(), why: why.to_string() }
    }
}

/// Names the step that an error of the system belongs to.
pub(crate) trait Step<T> {
    fn step(self, step: &str) -> Result<T>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T> {
        self.map_err(|e| Error::failed(step, e))
    }
}

impl<T> Step<T> for rustix::io::Result<T> {
    fn step(self, step: &str) -> Result<T> {
        self.map_err(|e| Error::failed(step, io::Error::from(e)))
    }
}
