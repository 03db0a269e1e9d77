//! Whom a program wants to reach, written in exactly one way.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// A name in small letters without the last dot, or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Host {
    /// As it stands in a target or a header: an IPv6 address in brackets. `None` if it is nothing that can be judged.
    ///
    /// ```
    /// use guild_sandbox::egress::Host;
    /// assert_eq!(Host::parse("Example.ORG."), Host::parse("example.org"));
    /// // Some systems read these as 127.0.0.1.
    /// assert_eq!((Host::parse("127.1"), Host::parse("0x7f000001")), (None, None));
    /// ```
    pub fn parse(text: &str) -> Option<Host> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']')?;
            return inner.parse::<Ipv6Addr>().ok().map(|v6| Host::Address(IpAddr::V6(v6)));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Host::Address(IpAddr::V4(address)));
        }
        name(text).map(Host::Name)
    }

    /// `host:port`; the port may be missing.
    pub(super) fn parse_with_port(text: &str) -> Option<(Host, Option<u16>)> {
        let behind = text.rfind(']').map_or(0, |at| at + 1);
        let colon = text.get(behind..)?.find(':').map(|at| behind + at);
        match colon {
            None => Some((Host::parse(text)?, None)),
            Some(at) => {
                Some((Host::parse(text.get(..at)?)?, Some(port(text.get(at + 1..)?.as_bytes())?)))
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A port in plain digits.
pub(super) fn port(digits: &[u8]) -> Option<u16> {
    if digits.is_empty() || digits.len() > 5 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0u32, |n, digit| n * 10 + u32::from(digit - b'0'));
    u16::try_from(number).ok().filter(|port| *port != 0)
}

/// A name as it is compared. One whose last label is a number is an address in disguise.
pub(super) fn name(text: &str) -> Option<String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() || text.len() > MAX_NAME_BYTES {
        return None;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let hexadecimal = last
        .strip_prefix("0x")
        .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let number = hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit());
    (text.split('.').all(label) && !number).then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, form) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("a_b.example", "a_b.example"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(Host::parse(text).unwrap().to_string(), form);
        }
    }

    #[test]
    fn disguises_are_no_hosts() {
        let long = "a.".repeat(127) + "a";
        for text in [
            "",
            ".",
            "a..b",
            ".a",
            "a..",
            "-a.b",
            "a-.b",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7F.1",
            "0x",
            "1.2.3.4.",
            "1.2.3.4.5",
            "0177.0.0.1",
            "1.2.3.256",
            "::1",
            "[::1",
            "[::1]x",
            "[fe80::1%eth0]",
            "[127.0.0.1]",
            "user@example.org",
            "example.org/",
            "exämple.org",
            "exa mple.org",
            "example.org\r\n",
            "*.example.org",
            "%31.example.org",
            &long,
        ] {
            assert_eq!(Host::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn ports_are_plain_numbers() {
        let parse = |text| Host::parse_with_port(text).map(|(host, port)| (host.to_string(), port));
        let name = |port| Some(("a.b".to_owned(), port));
        assert_eq!(parse("a.b"), name(None));
        assert_eq!(parse("a.b:443"), name(Some(443)));
        assert_eq!(parse("[::1]:80"), Some(("[::1]".to_owned(), Some(80))));
        assert_eq!(parse("[::1]"), Some(("[::1]".to_owned(), None)));
        for text in
            ["a.b:", "a.b:0", "a.b:65536", "a.b:+1", "a.b: 1", "a.b:1:2", "a:b]:1", "[::1]1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
