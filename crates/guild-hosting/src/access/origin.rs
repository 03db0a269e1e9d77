//! Where this node is found, and where others come from.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use super::code;
use crate::{Error, Result};

/// A public origin of this node: `https://guild.example`, `http://127.0.0.1:4848`. Compared byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    scheme: &'static str,
    authority: String,
}

impl Origin {
    /// `http` or `https`.
    pub fn scheme(&self) -> &str {
        self.scheme
    }

    /// The host, and the port if it is written.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Whether only this machine is found there.
    pub fn is_loopback(&self) -> bool {
        if let Some(rest) = self.authority.strip_prefix('[') {
            let inside = rest.split_once(']').and_then(|(inside, _)| inside.parse::<IpAddr>().ok());
            return inside.is_some_and(|address| address.to_canonical().is_loopback());
        }
        let host = self.authority.split(':').next().unwrap_or_default();
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether a URI is at this origin: the same scheme and authority, and any path.
    pub(super) fn holds(&self, uri: &str) -> bool {
        let rest = uri
            .strip_prefix(self.scheme)
            .and_then(|rest| rest.strip_prefix("://"))
            .and_then(|rest| rest.strip_prefix(self.authority.as_str()));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    }
}

impl FromStr for Origin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Origin> {
        let parts = ["https", "http"]
            .into_iter()
            .find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?.strip_prefix("://")?)));
        let of_host =
            |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b':' | b'[' | b']');
        match parts {
            Some((scheme, authority))
                if (1..=255).contains(&authority.len()) && authority.bytes().all(of_host) =>
            {
                Ok(Origin { scheme, authority: authority.to_owned() })
            }
            _ => {
                let message =
                    "an origin is http:// or https://, a host in small letters, and maybe a port";
                Err(Error::refused(&code::ORIGIN_MALFORMED, message))
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Where somebody comes from. Whoever has one IPv6 address usually has its whole /64.
///
/// ```
/// # use guild_hosting::access::Place;
/// let place = |text: &str| Place::of(text.parse().unwrap());
/// assert_eq!(place("2001:db8::1"), place("2001:db8::2"));
/// assert_eq!(place("::ffff:10.0.0.1"), place("10.0.0.1"));
/// assert_ne!(place("10.0.0.1"), place("10.0.0.2"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(IpAddr);

impl Place {
    /// The place of an address.
    pub fn of(address: IpAddr) -> Place {
        match address.to_canonical() {
            IpAddr::V6(v6) => Place(Ipv6Addr::from(u128::from(v6) >> 64 << 64).into()),
            v4 => Place(v4),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_an_origin_is_at_it() {
        let origin: Origin = "https://guild.example".parse().unwrap();
        assert_eq!((origin.scheme(), origin.authority()), ("https", "guild.example"));
        for good in
            ["https://guild.example", "https://guild.example/login?a=b", "https://guild.example#x"]
        {
            assert!(origin.holds(good), "{good}");
        }
        for bad in [
            "http://guild.example",
            "https://guild.example.evil.org",
            "https://guild.example:444",
            "https://guild.example@evil.org",
            "https://GUILD.example",
            "https:guild.example",
            "https://evil.org/https://guild.example",
        ] {
            assert!(!origin.holds(bad), "{bad}");
        }
        for bad in [
            "",
            "guild.example",
            "https://",
            "ftp://x",
            "https://x/",
            "https://a@b",
            "https://Guild.example",
        ] {
            assert_eq!(bad.parse::<Origin>().unwrap_err().code(), &code::ORIGIN_MALFORMED, "{bad}");
        }
    }
}
