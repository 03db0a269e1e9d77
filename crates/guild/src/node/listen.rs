//! The one listener of a node.

use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::TcpListener;

use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::input::{self, Existing};

/// Remembers the port that was taken when the usual one was not free, so that the node's address stays.
const KEPT_FILE: &str = "listen";

/// Binds the configured address. If nobody chose it and it is not free, any other port, which is then kept.
pub(crate) async fn bind(loaded: &Loaded) -> Result<(TcpListener, SocketAddr)> {
    let wanted = loaded.config.gateway.listen;
    let chosen = loaded.origins.contains_key("gateway.listen");
    let kept_file = loaded.data_file(KEPT_FILE);
    // Nothing but another port of the same address: the file never opens the node to a wider world.
    let kept = (!chosen).then(|| read_kept(&kept_file)).flatten();
    let kept = kept.filter(|kept| kept.ip() == wanted.ip() && kept.port() != 0);
    let first = kept.unwrap_or(wanted);
    match TcpListener::bind(first).await {
        Ok(listener) => with_address(listener),
        Err(error)
            if error.kind() == std::io::ErrorKind::AddrInUse && !chosen && kept.is_none() =>
        {
            let any = SocketAddr::new(wanted.ip(), 0);
            let listener = TcpListener::bind(any).await.map_err(|e| refused(any, &e))?;
            let (listener, address) = with_address(listener)?;
            tracing::info!(%wanted, %address, "the usual port is taken; this one is kept from now on");
            input::write_whole(
                &kept_file,
                address.to_string().as_bytes(),
                0o644,
                Existing::Replace,
            )?;
            Ok((listener, address))
        }
        Err(error) => Err(refused(first, &error)),
    }
}

fn with_address(listener: TcpListener) -> Result<(TcpListener, SocketAddr)> {
    match listener.local_addr() {
        Ok(address) => Ok((listener, address)),
        Err(error) => Err(Error::new(&code::NODE_LISTEN, error.to_string())),
    }
}

fn read_kept(file: &PathBuf) -> Option<SocketAddr> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn refused(address: SocketAddr, error: &std::io::Error) -> Error {
    Error::new(&code::NODE_LISTEN, format!("{address} cannot be listened on: {error}"))
}
