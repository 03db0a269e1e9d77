//! Where a relay is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use guild_protocol::nostr::is_relay_url;

use crate::error::code;
use crate::{Error, Result};

/// The address of a relay, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_secure: bool,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As it stands in a request: with brackets, and the port if it is not the usual one.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Address {
    /// Reads `ws://host[:port][/path]` or `wss://…`.
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let bad = |why: &str| {
            let shown: String = url.chars().take(100).collect();
            Error::refused(&code::RELAY_URL, format!("{shown:?} is no relay: {why}"))
        };
        let lower = url.get(..6).unwrap_or(url).to_ascii_lowercase();
        let (is_secure, rest) = match (lower.starts_with("wss://"), lower.starts_with("ws://")) {
            (true, _) => (true, url.get(6..)),
            (_, true) => (false, url.get(5..)),
            _ => return Err(bad("it begins with neither ws:// nor wss://")),
        };
        let rest = rest.unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(bad("it names a user"));
        }
        let (host, port) = split(authority).ok_or_else(|| bad("its host or port is wrong"))?;
        let usual = if is_secure { 443 } else { 80 };
        let port = port.unwrap_or(usual);
        let host = host.to_ascii_lowercase();
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == usual { shown } else { format!("{shown}:{port}") };
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let address = Address { is_secure, host, port, authority, path };
        match is_relay_url(&address.to_string()) {
            true => Ok(address),
            false => Err(bad("it is too long, or has a character that an address never has")),
        }
    }
}

/// The one way to write it, so that two spellings are one relay.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_secure { "wss" } else { "ws" };
        let path = if self.path == "/" { "" } else { &self.path };
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
        None if port.is_empty() => None,
        None => return None,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    (!host.is_empty() && host.chars().all(plain)).then_some((host, port))
}

/// The one way to write the address of a relay; refused if it is none.
///
/// ```
/// use guild_network::client::relay_url;
/// assert_eq!(relay_url("WSS://Relay.Example:443/").unwrap(), "wss://relay.example");
/// assert_eq!(relay_url("http://relay.example").unwrap_err().code().name, "network.relay_url");
/// ```
pub fn relay_url(text: &str) -> Result<String> {
    Ok(Address::parse(text.trim())?.to_string())
}

/// Whether an address is this host's or a private network's.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_multicast()
                // Shared by the customers of one provider.
                || (a == 100 && (64..128).contains(&b))
                // For measurements, and for nobody yet.
                || (a == 198 && (18..20).contains(&b))
                || a >= 240
                || a == 0
        }
        IpAddr::V6(ip) => match within(ip) {
            Some(ip) => is_private(IpAddr::V4(ip)),
            None => {
                let [first, second, third, ..] = ip.segments();
                ip.is_loopback()
                    || ip.is_unspecified()
                    || ip.is_multicast()
                    || first & 0xfe00 == 0xfc00
                    || first & 0xffc0 == 0xfe80
                    // A translator of this network alone: nobody else knows where it leads.
                    || (first, second, third) == (0x64, 0xff9b, 1)
            }
        },
    }
}

/// The older address that a newer one leads to: written in it, through a translator, or through a tunnel.
fn within(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => ip.to_ipv4_mapped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_relay_are_one() {
        for (spelled, one) in [
            ("ws://127.0.0.1:4848/relay", "ws://127.0.0.1:4848/relay"),
            ("wss://A.example/", "wss://a.example"),
            ("Wss://a.example:443", "wss://a.example"),
            ("ws://a.example:443", "ws://a.example:443"),
            ("ws://[::1]:80/x?y=1#z", "ws://[::1]/x?y=1"),
        ] {
            assert_eq!(relay_url(spelled).unwrap(), one);
        }
        for bad in [
            "",
            "ws://",
            "ws:///x",
            "http://a",
            "ws://a:0",
            "ws://a:99999",
            "ws://u:p@a",
            "ws://a b",
            "ws://[1]",
            "ws://a/\r\nx: y",
            "wss://ä.example",
        ] {
            assert_eq!(relay_url(bad).unwrap_err().code(), &code::RELAY_URL, "{bad:?}");
        }
    }

    #[test]
    fn private_addresses_are_known() {
        for private in
            ["127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.1.1", "0.0.0.0", "100.64.0.1"]
                .into_iter()
                .chain(["198.18.0.1", "240.0.0.1", "255.255.255.255"])
                .chain(["::1", "fd00::1", "fe80::1", "::ffff:127.0.0.1", "::"])
                .chain(["64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::"])
        {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "1.1.1.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }
}
