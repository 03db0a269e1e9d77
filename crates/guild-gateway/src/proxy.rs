//! Who asks, where a proxy stands in front: only a proxy that is trusted is believed when it says for whom it asks.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// More proxies do not stand behind each other; what is further away is not looked at.
const HOPS_MAX: usize = 32;

/// An address, or all that begin alike: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
///
/// ```
/// # use guild_gateway::Network;
/// let network: Network = "10.1.2.3/8".parse()?;
/// assert_eq!(network.to_string(), "10.0.0.0/8");
/// assert!(network.holds("10.9.9.9".parse().unwrap()) && !network.holds("11.0.0.1".parse().unwrap()));
/// for refused in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "host", "10.0.0.0/+8"] {
///     assert!(refused.parse::<Network>().is_err(), "{refused}");
/// }
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// The bits of an address, from the left, and how many there are.
fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()).wrapping_shl(96), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// So many ones from the left.
fn mask(bits: u32) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(bits)).unwrap_or(0)
}

impl Network {
    /// Whether it holds this address. One of IPv4 that is written as IPv6 is one of IPv4.
    pub fn holds(&self, address: IpAddr) -> bool {
        let (ours, of) = bits_of(self.address);
        let (theirs, theirs_of) = bits_of(address.to_canonical());
        of == theirs_of && (ours ^ theirs) & mask(self.bits) == 0
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong =
            || format!("{text:?} is not an address, as 10.0.0.7, or a network, as 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let (all, most) = bits_of(address);
        let digits = |bits: &&str| !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits = match bits {
            None => most,
            Some(bits) => {
                let bits = Some(bits).filter(digits).and_then(|bits| bits.parse().ok());
                bits.filter(|bits| *bits <= most).ok_or_else(wrong)?
            }
        };
        let first = all & mask(bits);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(u32::try_from(first.wrapping_shr(96)).unwrap_or(0).into()),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(first)),
        };
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, most) = bits_of(self.address);
        if self.bits == most {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Whether an address is that of a proxy that is trusted.
pub(crate) fn is_trusted(trusted: &[Network], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.holds(address))
}

/// For whom a request is made. Whoever is connected, unless that is a trusted proxy: then the last of those that it
/// names which is not one itself. What stands before that one, anybody may have written.
pub(crate) fn client(trusted: &[Network], peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    if !is_trusted(trusted, peer) {
        return peer;
    }
    let values: Vec<&str> =
        headers.get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or("")).collect();
    let hops = values.iter().rev().flat_map(|value| value.rsplit(','));
    let mut client = peer;
    for hop in hops.take(HOPS_MAX) {
        // A hop that cannot be read hides whoever is behind it: the last one that is known counts.
        let Some(address) = address_of(hop.trim()) else { return client };
        client = address;
        if !is_trusted(trusted, client) {
            return client;
        }
    }
    client
}

/// An address as proxies write it: alone, in brackets, or with a port.
fn address_of(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let with_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.parse::<IpAddr>().ok().or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn networks(all: &[&str]) -> Vec<Network> {
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn seen(trusted: &[&str], peer: &str, values: &[&str]) -> IpAddr {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FORWARDED_FOR, value.parse().unwrap());
        }
        client(&networks(trusted), ip(peer), &headers)
    }

    #[test]
    fn nobody_is_believed_who_is_not_trusted() {
        assert_eq!(seen(&[], "203.0.113.9", &["198.51.100.1"]), ip("203.0.113.9"));
        assert_eq!(seen(&["10.0.0.0/8"], "203.0.113.9", &["198.51.100.1"]), ip("203.0.113.9"));
    }

    #[test]
    fn a_trusted_proxy_names_the_last_who_is_none() {
        let trusted = ["127.0.0.1", "10.0.0.0/8", "fd00::/8"];
        for (values, expected) in [
            (&["198.51.100.1"][..], "198.51.100.1"),
            // What the client wrote itself stands before, and says nothing.
            (&["192.0.2.66, 198.51.100.1"], "198.51.100.1"),
            (&["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
            // Several proxies, and several headers.
            (&["198.51.100.1, 10.0.0.3"], "198.51.100.1"),
            (&["192.0.2.66", "198.51.100.1", "10.0.0.3, fd00::7"], "198.51.100.1"),
            (&["198.51.100.1:4711"], "198.51.100.1"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["::ffff:198.51.100.1"], "198.51.100.1"),
            // Nobody is named, or nobody that can be read.
            (&[], "127.0.0.1"),
            (&["unknown"], "127.0.0.1"),
            (&["198.51.100.1, unknown, 10.0.0.3"], "10.0.0.3"),
            // Only proxies: the farthest of them asks itself.
            (&["10.0.0.4, 10.0.0.3"], "10.0.0.4"),
        ] {
            assert_eq!(seen(&trusted, "127.0.0.1", values), ip(expected), "{values:?}");
        }
        assert_eq!(seen(&trusted, "::ffff:127.0.0.1", &["198.51.100.1"]), ip("198.51.100.1"));
    }

    #[test]
    fn a_network_is_written_in_one_way() {
        for (text, written) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("10.0.0.7/32", "10.0.0.7"),
            ("fd00::1/64", "fd00::/64"),
            ("::1", "::1"),
            ("::ffff:10.0.0.7", "10.0.0.7"),
        ] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), written);
            assert_eq!(written.parse::<Network>().unwrap(), network);
        }
        let everybody = networks(&["0.0.0.0/0"]);
        assert!(is_trusted(&everybody, ip("203.0.113.9")) && !is_trusted(&everybody, ip("::1")));
    }
}
