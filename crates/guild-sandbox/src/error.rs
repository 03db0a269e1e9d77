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
            "Look at `sandbox.runtime`, `sandbox.platform` and `sandbox.timeout_ms`; `guild doctor` shows the runtimes of \
             this host.";
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
