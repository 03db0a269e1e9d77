//! Ports of sandboxes that have an address at this node. Only their owner gets there, and only while the sandbox runs;
//! what has no address is not passed on by HTTP.

use guild_protocol::env::UnixMs;
use guild_store::{Rx, Tx, args};

use crate::error::code;
use crate::sandbox::{self, SandboxId};
use crate::{Error, Result, UserId};

/// How many ports of a sandbox have an address at once.
pub const PORTS_MAX: usize = 32;

/// A port that has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub port: u16,
    /// Since when.
    pub created_ms: UnixMs,
}

/// Gives a port of a sandbox that starts or runs an address. The same again changes nothing.
pub fn expose(
    tx: &mut Tx<'_>,
    user_id: &UserId,
    sandbox_id: &SandboxId,
    port: u16,
    now_ms: UnixMs,
) -> Result<Port> {
    check(port)?;
    let sandbox = sandbox::get(tx, user_id, sandbox_id)?;
    let known = list(tx, user_id, sandbox_id)?;
    if let Some(known) = known.iter().find(|known| known.port == port) {
        return Ok(*known);
    }
    if !matches!(sandbox.status, sandbox::Status::Starting | sandbox::Status::Running) {
        let message = format!("{sandbox_id} is {}", sandbox.status.as_str());
        return Err(Error::refused(&code::SANDBOX_ENDED, message));
    }
    if known.len() >= PORTS_MAX {
        let message = format!("{PORTS_MAX} ports of {sandbox_id} have an address");
        return Err(Error::refused(&code::TOO_MANY, message));
    }
    tx.exec(
        "INSERT INTO hosting_port (sandbox_id, port, created_ms) VALUES ($1, $2, $3)",
        args![sandbox_id.as_str(), i64::from(port), now_ms],
    )?;
    Ok(Port { port, created_ms: now_ms })
}

/// Takes the address of a port away. What has none stays as it is.
pub fn close(tx: &mut Tx<'_>, user_id: &UserId, sandbox_id: &SandboxId, port: u16) -> Result<()> {
    check(port)?;
    sandbox::get(tx, user_id, sandbox_id)?;
    tx.exec(
        "DELETE FROM hosting_port WHERE sandbox_id = $1 AND port = $2",
        args![sandbox_id.as_str(), i64::from(port)],
    )?;
    Ok(())
}

/// The ports of a sandbox that have an address, by their numbers.
pub fn list(rx: &mut Rx<'_>, user_id: &UserId, sandbox_id: &SandboxId) -> Result<Vec<Port>> {
    sandbox::get(rx, user_id, sandbox_id)?;
    let rows: Vec<(i64, i64)> = rx.all(
        "SELECT port, created_ms FROM hosting_port WHERE sandbox_id = $1 ORDER BY port",
        args![sandbox_id.as_str()],
    )?;
    let port = |(port, created_ms)| match u16::try_from(port) {
        Ok(port) => Ok(Port { port, created_ms }),
        Err(_) => Err(guild_store::Error::Decode(format!("{port} is no port")).into()),
    };
    rows.into_iter().map(port).collect()
}

/// Refuses a port that has no address.
pub fn require(rx: &mut Rx<'_>, user_id: &UserId, sandbox_id: &SandboxId, port: u16) -> Result<()> {
    check(port)?;
    if list(rx, user_id, sandbox_id)?.iter().any(|known| known.port == port) {
        return Ok(());
    }
    let message = format!("port {port} of {sandbox_id} has no address here");
    Err(Error::refused(&code::PORT_CLOSED, message))
}

/// Refuses what is no port.
pub(crate) fn check(port: u16) -> Result<()> {
    match port {
        0 => Err(Error::refused(&code::MALFORMED, "port: must be 1 to 65535")),
        _ => Ok(()),
    }
}
