//! Ports of a sandbox.

use guild_protocol::env::UnixMs;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::SandboxId;
use crate::access::Origin;
use crate::port::Port;

/// A port that shall have an address.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortBody {
    /// Its number; something listens there on the sandbox's own loopback, or will.
    #[schema(minimum = 1, maximum = 65535)]
    pub port: u16,
}

/// A port that has an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PortView {
    /// Its number.
    pub port: u16,
    /// Where it is reached, by HTTP and WebSocket, with the token of its owner.
    pub url: String,
    /// Since when.
    pub created_ms: UnixMs,
}

impl PortView {
    pub(crate) fn of(port: Port, sandbox_id: &SandboxId, origin: Option<&Origin>) -> PortView {
        let path = format!("/v1/sandboxes/{sandbox_id}/ports/{}/", port.port);
        let url = match origin {
            Some(origin) => format!("{}://{}{path}", origin.scheme(), origin.authority()),
            None => path,
        };
        PortView { port: port.port, url, created_ms: port.created_ms }
    }
}

/// The ports of a sandbox that have an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Ports {
    /// By their numbers.
    pub ports: Vec<PortView>,
}

/// A port that has no address any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PortClosed {
    /// Its number.
    pub port: u16,
}
