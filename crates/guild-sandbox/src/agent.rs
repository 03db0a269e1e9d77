//! The sandbox-agent: serves one sandbox that stays, over HTTP, to the one controller whose key it was given.

mod auth;
mod client;
mod error;
mod lease;
mod redact;
mod secrets;
mod wire;
mod execs {
    pub(crate) const MAX_FIRST_INPUT_BYTES: usize = 64 << 10;
}

pub use auth::{Nonce, Party, SandboxId, WINDOW_MS};
pub use client::{Attested, Client, Download, ExecStream, Tunnel};
pub use error::{Error, Result, code};
pub use lease::Lease;
pub use secrets::Secrets;
pub use wire::*;
