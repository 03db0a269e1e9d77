//! What the proxy asks of the host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

/// The names and addresses of the network that the host is in.
pub trait Outside: Send + Sync {
    /// The addresses of a name. It may take long; it runs on a thread of its own.
    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>>;

    /// Whether an address belongs to the host itself.
    fn is_own(&self, address: IpAddr) -> bool;
}

/// The host as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Outside for System {
    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = (name, 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    }

    /// Whoever would be reached from the very same address is the host. Nothing is sent to find that out.
    fn is_own(&self, address: IpAddr) -> bool {
        let any: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect((address, 9))?;
            socket.local_addr()
        });
        from.is_ok_and(|from| from.ip() == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_knows_itself() {
        assert!(System.is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!System.is_own(Ipv4Addr::new(192, 0, 2, 1).into()));
        let found = System.addresses("localhost").unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
    }
}
