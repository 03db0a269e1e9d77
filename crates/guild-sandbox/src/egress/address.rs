//! Addresses that are not the open network, and nets that name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// An address with the count of its leading bits that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Net {
    first: IpAddr,
    bits: u8,
}

impl Net {
    /// `10.0.0.0/8`, or an address alone. Bits behind the net must be zero: otherwise something else was meant.
    pub(super) fn parse(text: &str) -> Result<Net, &'static str> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| "it is no address")?;
        let most = width(address);
        let bits = match bits {
            None => most,
            Some(digits) if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                return Err("behind the slash stands a number of bits");
            }
            Some(digits) => digits.parse().map_err(|_| "so many bits has no address")?,
        };
        if bits > most {
            return Err("so many bits has no address");
        }
        let net = Net { first: address, bits };
        match number(address) & !net.mask() {
            0 => Ok(net),
            _ => Err("bits behind the net are set"),
        }
    }

    pub(super) fn single(address: IpAddr) -> Net {
        Net { first: address, bits: width(address) }
    }

    fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Net {
        Net { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    fn v6(start: [u16; 3], bits: u8) -> Net {
        let [a, b, c] = start;
        Net { first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), bits }
    }

    /// The bits that matter, in the low bits of the width of its kind.
    fn mask(self) -> u128 {
        let width = u32::from(width(self.first));
        let all = u128::MAX >> (128 - width);
        let host = width - u32::from(self.bits);
        all & u128::MAX.checked_shl(host).unwrap_or(0)
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4()
            && number(address) & self.mask() == number(self.first)
    }

    /// Whether the whole of another lies in it.
    pub(super) fn covers(self, other: Net) -> bool {
        self.bits <= other.bits && self.contains(other.first)
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first {
            IpAddr::V6(first) if self.bits == 128 => write!(f, "[{first}]"),
            IpAddr::V6(first) => write!(f, "[{first}/{}]", self.bits),
            IpAddr::V4(first) if self.bits == 32 => write!(f, "{first}"),
            IpAddr::V4(first) => write!(f, "{first}/{}", self.bits),
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// Why an address is not simply somewhere in the open network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Special {
    /// Where clouds hand out a machine's credentials.
    Metadata,
    /// The host itself.
    Loopback,
    /// An address that one of the host's interfaces has.
    Own,
    /// Networks of one household or company.
    Private,
    /// Between a provider and its customers (CGNAT).
    Shared,
    /// One wire.
    LinkLocal,
    /// Many at once.
    Multicast,
    /// No address at all, which some systems take for the host itself.
    Unspecified,
    /// An IPv4 address written as one of IPv6.
    Mapped,
    /// An IPv4 address that a gateway makes of one of IPv6 (NAT64, 6to4, Teredo).
    Translated,
    /// For documentation, tests and times to come.
    Reserved,
}

impl Special {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Special::Metadata => "metadata",
            Special::Loopback => "loopback",
            Special::Own => "own",
            Special::Private => "private",
            Special::Shared => "shared",
            Special::LinkLocal => "link_local",
            Special::Multicast => "multicast",
            Special::Unspecified => "unspecified",
            Special::Mapped => "mapped",
            Special::Translated => "translated",
            Special::Reserved => "reserved",
        }
    }
}

/// The nets that are special; the first that holds counts.
fn table() -> [(Net, Special); 35] {
    use Special::{
        LinkLocal, Loopback, Mapped, Metadata, Multicast, Private, Reserved, Shared, Translated,
        Unspecified,
    };
    let ec2 = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let mapped = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0);
    [
        (Net::v4(169, 254, 169, 254, 32), Metadata),
        (Net::v4(100, 100, 100, 200, 32), Metadata),
        (Net::single(IpAddr::V6(ec2)), Metadata),
        (Net::v4(0, 0, 0, 0, 8), Unspecified),
        (Net::v4(10, 0, 0, 0, 8), Private),
        (Net::v4(100, 64, 0, 0, 10), Shared),
        (Net::v4(127, 0, 0, 0, 8), Loopback),
        (Net::v4(169, 254, 0, 0, 16), LinkLocal),
        (Net::v4(172, 16, 0, 0, 12), Private),
        (Net::v4(192, 0, 0, 0, 24), Reserved),
        (Net::v4(192, 0, 2, 0, 24), Reserved),
        (Net::v4(192, 88, 99, 0, 24), Translated),
        (Net::v4(192, 168, 0, 0, 16), Private),
        (Net::v4(198, 18, 0, 0, 15), Reserved),
        (Net::v4(198, 51, 100, 0, 24), Reserved),
        (Net::v4(203, 0, 113, 0, 24), Reserved),
        (Net::v4(224, 0, 0, 0, 4), Multicast),
        (Net::v4(240, 0, 0, 0, 4), Reserved),
        (Net::single(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), Unspecified),
        (Net::single(IpAddr::V6(Ipv6Addr::LOCALHOST)), Loopback),
        (Net { first: IpAddr::V6(mapped), bits: 96 }, Mapped),
        (Net::v6([0x64, 0xff9b, 0], 96), Translated),
        (Net::v6([0x64, 0xff9b, 1], 48), Translated),
        (Net::v6([0x2001, 0, 0], 32), Translated),
        (Net::v6([0x2001, 0, 0], 23), Reserved),
        (Net::v6([0x2001, 0xdb8, 0], 32), Reserved),
        (Net::v6([0x2002, 0, 0], 16), Translated),
        (Net::v6([0x3fff, 0, 0], 20), Reserved),
        (Net::v6([0xfc00, 0, 0], 7), Private),
        (Net::v6([0xfe80, 0, 0], 10), LinkLocal),
        (Net::v6([0xfec0, 0, 0], 10), Private),
        (Net::v6([0xff00, 0, 0], 8), Multicast),
        // Of the rest of IPv6 only an eighth has been given out, and that is the open network.
        (Net::v6([0, 0, 0], 3), Reserved),
        (Net::v6([0x4000, 0, 0], 2), Reserved),
        (Net::v6([0x8000, 0, 0], 1), Reserved),
    ]
}

/// Whether an address is special, and the net within which a rule must lie to mean it. A rule that is wider happens to
/// contain it, but does not say so.
pub(super) fn special(address: IpAddr) -> Option<(Special, Net)> {
    let (net, kind) = table().into_iter().find(|(net, _)| net.contains(address))?;
    let hides = match kind {
        Special::Translated => embedded(address).is_none_or(|v4| special(IpAddr::V4(v4)).is_some()),
        _ => false,
    };
    // Behind a translation to something special there must be somebody who means exactly that.
    Some((kind, if hides { Net::single(address) } else { net }))
}

/// The IPv4 address that a gateway would make of one of IPv6, if that can be told.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match (a, b) {
        (0x2002, _) => Some(v4(b, c)),
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => Some(v4(g, h)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nets_are_read_and_written() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "192.0.2.7", "[2001:db8::/32]", "[::1]", "[::/0]"] {
            let plain = text.trim_matches(['[', ']']);
            assert_eq!(Net::parse(plain).unwrap().to_string(), text);
        }
        for text in
            ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::1/129", "x", "1.2", ""]
        {
            assert!(Net::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nets_contain_what_they_should() {
        let net = |text| Net::parse(text).unwrap();
        let ip = |text: &str| text.parse().unwrap();
        assert!(net("10.0.0.0/8").contains(ip("10.255.1.2")));
        assert!(!net("10.0.0.0/8").contains(ip("11.0.0.0")));
        assert!(net("0.0.0.0/0").contains(ip("8.8.8.8")) && !net("0.0.0.0/0").contains(ip("::1")));
        assert!(net("::/0").contains(ip("ffff::1")) && !net("::/0").contains(ip("0.0.0.0")));
        assert!(net("10.0.0.0/8").covers(net("10.1.0.0/16")));
        assert!(!net("10.1.0.0/16").covers(net("10.0.0.0/8")));
    }

    #[test]
    fn what_is_special_is_told() {
        let table = [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("10.0.0.1", "private"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("100.64.0.1", "shared"),
            ("100.100.100.200", "metadata"),
            ("169.254.0.1", "link_local"),
            ("169.254.169.254", "metadata"),
            ("192.0.0.8", "reserved"),
            ("192.0.2.1", "reserved"),
            ("198.18.0.1", "reserved"),
            ("198.51.100.1", "reserved"),
            ("203.0.113.1", "reserved"),
            ("192.88.99.1", "translated"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "reserved"),
            ("::ffff:127.0.0.1", "mapped"),
            ("::ffff:8.8.8.8", "mapped"),
            ("64:ff9b::8.8.8.8", "translated"),
            ("64:ff9b::169.254.169.254", "translated"),
            ("64:ff9b:1::1", "translated"),
            ("2001::1", "translated"),
            ("2001:2::1", "reserved"),
            ("2001:db8::1", "reserved"),
            ("2002:7f00:1::", "translated"),
            ("3fff::1", "reserved"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("8000::1", "reserved"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "metadata"),
            ("fe80::1", "link_local"),
            ("fec0::1", "private"),
            ("ff02::1", "multicast"),
            ("100::1", "reserved"),
        ];
        for (text, name) in table {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(special(address).map(|(kind, _)| kind.name()), Some(name), "{text}");
        }
        for text in
            ["1.1.1.1", "8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1", "3ffe::1"]
        {
            assert_eq!(special(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn what_is_hidden_in_a_translation_must_be_meant() {
        let within = |text: &str| special(text.parse().unwrap()).unwrap().1.to_string();
        assert_eq!(within("64:ff9b::8.8.8.8"), "[64:ff9b::/96]");
        assert_eq!(within("64:ff9b::10.0.0.1"), "[64:ff9b::a00:1]");
        assert_eq!(within("2002:a00:1::5"), "[2002:a00:1::5]");
        assert_eq!(within("2001::1"), "[2001::1]");
    }
}
