//! Free ports.

use std::net::{Ipv4Addr, TcpListener};

/// A port of 127.0.0.1 that nobody listened on a moment ago.
pub fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}
