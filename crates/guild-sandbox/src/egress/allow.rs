//! The list: who may be reached.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::address::{Net, Special, special};
use super::host::{Host, name, port};
use crate::error::{Error, Result};

const MAX_RULES: usize = 1_024;
const MAX_PORTS: usize = 32;
/// What a rule without ports means: the web.
const WEB: [u16; 2] = [80, 443];

/// Whom a sandbox may reach. What no rule names is refused.
///
/// | rule | means |
/// |---|---|
/// | `example.org` | this name, ports 80 and 443 |
/// | `*.example.org` | every name below it, and not itself |
/// | `example.org:8080`, `example.org:80,443,9000-9010`, `example.org:*` | these ports, or all |
/// | `192.0.2.7`, `192.0.2.0/24:443`, `[2001:db8::/32]:443` | these addresses |
///
/// A name may lead only into the open network. To loopback, private and other special addresses leads only a rule with
/// an address or net that lies wholly inside that special one: `0.0.0.0/0` contains 10.0.0.1 but does not mean it,
/// `10.0.0.0/24` does. Addresses of the host itself and of the metadata services of clouds must be named alone.
///
/// ```
/// use guild_sandbox::egress::{Allow, Host};
/// let allow = Allow::parse(&["*.example.org:443".to_owned()])?;
/// let host = Host::parse("www.example.org").ok_or("no host")?;
/// assert!(allow.names(&host, 443) && !allow.names(&host, 80));
/// let wrong = Allow::parse(&["exa mple.org".to_owned()]).unwrap_err();
/// assert_eq!(wrong.to_string(), "the rule \"exa mple.org\": it is neither a name nor an address");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Allow(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    whom: Whom,
    ports: Ports,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Whom {
    Name(String),
    /// Names that end in a dot and this.
    Below(String),
    Net(Net),
}

/// Ranges, both ends included; none at all means the web.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ports(Vec<(u16, u16)>);

impl Allow {
    /// Reads a list. The error names the rule that is wrong.
    pub fn parse(rules: &[String]) -> Result<Allow> {
        if rules.len() > MAX_RULES {
            let why = format!("there are {}, at most {MAX_RULES}", rules.len());
            return Err(Error::spec("allow", why));
        }
        let rule = |text: &String| {
            Rule::parse(text)
                .map_err(|why| Error::BadRule { rule: text.clone(), why: why.to_owned() })
        };
        rules.iter().map(rule).collect::<Result<_>>().map(Allow)
    }

    /// Whether a rule names this host and port. A name must still lead to an address that is
    /// [reachable](Allow::reaches).
    pub fn names(&self, host: &Host, port: u16) -> bool {
        self.0.iter().any(|rule| rule.ports.contain(port) && rule.whom.is(host))
    }

    /// Whether an address may be connected to, for a host that has been [named](Allow::names). `own` says that it is
    /// one of the host's.
    pub fn reaches(&self, address: IpAddr, port: u16, own: bool) -> Result<(), Special> {
        let (kind, within) = match special(address) {
            // Written so it would slip past rules about IPv4: there is no way to mean it.
            Some((Special::Mapped, _)) => return Err(Special::Mapped),
            Some((Special::Loopback, within)) => (Special::Loopback, within),
            _ if own => (Special::Own, Net::single(address)),
            Some(found) => found,
            None => return Ok(()),
        };
        let meant = self.0.iter().any(|rule| match rule.whom {
            Whom::Net(net) => {
                rule.ports.contain(port) && net.contains(address) && within.covers(net)
            }
            _ => false,
        });
        if meant { Ok(()) } else { Err(kind) }
    }

    /// Whether nobody may be reached.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<Vec<String>> for Allow {
    type Error = Error;

    fn try_from(rules: Vec<String>) -> Result<Allow> {
        Allow::parse(&rules)
    }
}

impl From<Allow> for Vec<String> {
    fn from(allow: Allow) -> Vec<String> {
        allow.0.iter().map(Rule::to_string).collect()
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, &'static str> {
        let (whom, ports) = match text.strip_prefix('[').map(|inner| inner.split_once(']')) {
            Some(Some((inner, ""))) => (Whom::v6(inner)?, None),
            Some(Some((inner, rest))) => {
                let ports = rest.strip_prefix(':').ok_or("behind the bracket stands a colon")?;
                (Whom::v6(inner)?, Some(ports))
            }
            Some(None) => return Err("the bracket is not closed"),
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => {
                    return Err("write an IPv6 address in brackets");
                }
                Some((whom, ports)) => (Whom::parse(whom)?, Some(ports)),
                None => (Whom::parse(text)?, None),
            },
        };
        Ok(Rule { whom, ports: ports.map_or(Ok(Ports(Vec::new())), Ports::parse)? })
    }
}

impl Whom {
    fn parse(text: &str) -> Result<Whom, &'static str> {
        if text.contains('/') {
            return Net::parse(text).map(Whom::Net);
        }
        if let Some(suffix) = text.strip_prefix("*.") {
            return name(suffix).map(Whom::Below).ok_or("behind the star stands no name");
        }
        if !text.is_ascii() {
            return Err("write the name as it is sent, beginning with xn--");
        }
        match Host::parse(text) {
            Some(Host::Name(name)) => Ok(Whom::Name(name)),
            Some(Host::Address(address)) => Ok(Whom::Net(Net::single(address))),
            None => Err("it is neither a name nor an address"),
        }
    }

    fn v6(text: &str) -> Result<Whom, &'static str> {
        let net = Net::parse(text)?;
        match special(
            text.split('/').next().and_then(|a| a.parse().ok()).ok_or("it is no address")?,
        ) {
            Some((Special::Mapped, _)) => Err("write the IPv4 address itself"),
            _ if !text.contains(':') => Err("only IPv6 addresses stand in brackets"),
            _ => Ok(Whom::Net(net)),
        }
    }

    fn is(&self, host: &Host) -> bool {
        match (self, host) {
            (Whom::Name(name), Host::Name(host)) => name == host,
            (Whom::Below(suffix), Host::Name(host)) => {
                host.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (Whom::Net(net), Host::Address(address)) => net.contains(*address),
            _ => false,
        }
    }
}

impl Ports {
    fn parse(text: &str) -> Result<Ports, &'static str> {
        if text == "*" {
            return Ok(Ports(vec![(1, u16::MAX)]));
        }
        let one = |text: &str| port(text.as_bytes()).ok_or("a port is a number from 1 to 65535");
        let range = |text: &str| match text.split_once('-') {
            Some((first, last)) => match (one(first)?, one(last)?) {
                (first, last) if first <= last => Ok((first, last)),
                _ => Err("a range of ports begins with the lower one"),
            },
            None => one(text).map(|port| (port, port)),
        };
        let ports: Vec<_> = text.split(',').map(range).collect::<Result<_, _>>()?;
        if ports.len() > MAX_PORTS { Err("there are too many ports") } else { Ok(Ports(ports)) }
    }

    fn contain(&self, port: u16) -> bool {
        match self.0.as_slice() {
            [] => WEB.contains(&port),
            ranges => ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.whom {
            Whom::Name(name) => f.write_str(name),
            Whom::Below(suffix) => write!(f, "*.{suffix}"),
            Whom::Net(net) => write!(f, "{net}"),
        }?;
        let range = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        match self.ports.0.as_slice() {
            [] => Ok(()),
            [(1, u16::MAX)] => f.write_str(":*"),
            ranges => write!(f, ":{}", ranges.iter().map(range).collect::<Vec<_>>().join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn allow(rules: &[&str]) -> Allow {
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        Allow::parse(&rules).unwrap()
    }

    fn names(allow: &Allow, host: &str, port: u16) -> bool {
        Host::parse(host).is_some_and(|host| allow.names(&host, port))
    }

    fn reaches(allow: &Allow, address: &str, own: bool) -> Result<(), &'static str> {
        allow.reaches(address.parse().unwrap(), 80, own).map_err(Special::name)
    }

    #[test]
    fn names_are_exact_or_below() {
        let allow = allow(&["example.org", "*.Example.net.:8080,9000-9002", "other.org:*"]);
        assert!(names(&allow, "EXAMPLE.org.", 443) && names(&allow, "example.org", 80));
        assert!(!names(&allow, "example.org", 8080) && !names(&allow, "www.example.org", 80));
        assert!(names(&allow, "a.b.example.net", 8080) && names(&allow, "a.example.net", 9001));
        for (host, port) in [
            ("example.net", 8080),
            ("badexample.net", 8080),
            ("example.net.evil.org", 8080),
            ("a.example.net", 443),
            ("a.example.net", 9003),
            ("192.0.2.1", 80),
        ] {
            assert!(!names(&allow, host, port), "{host}:{port}");
        }
        assert!(names(&allow, "other.org", 1) && names(&allow, "other.org", 65535));
    }

    #[test]
    fn mistakes_name_the_rule() {
        for (rule, why) in [
            ("", "it is neither a name nor an address"),
            ("*", "it is neither a name nor an address"),
            ("a.*.b", "it is neither a name nor an address"),
            ("http://a.b", "a port is a number"),
            ("a.b/c", "it is no address"),
            ("*.", "behind the star"),
            ("*.1.2.3.4", "behind the star"),
            ("bücher.example", "write the name as it is sent"),
            ("a.b:", "a port is a number"),
            ("a.b:0", "a port is a number"),
            ("a.b:9-8", "a range of ports"),
            ("a.b:80,,81", "a port is a number"),
            ("127.1", "it is neither"),
            ("10.0.0.1/8", "bits behind the net"),
            ("::1", "write an IPv6 address in brackets"),
            ("[::1", "the bracket is not closed"),
            ("[::1]80", "behind the bracket"),
            ("[127.0.0.1]", "only IPv6"),
            ("[::ffff:127.0.0.1]", "write the IPv4 address itself"),
            ("[::ffff:0:0/96]", "write the IPv4 address itself"),
        ] {
            let error = Allow::parse(&["ok.org".to_owned(), rule.to_owned()]).unwrap_err();
            let says = format!("the rule {rule:?}: {why}");
            assert!(error.to_string().starts_with(&says), "{error}");
            assert_eq!(error.code().name, "sandbox.bad_rule");
        }
        let many = vec!["a.b".to_owned(); MAX_RULES + 1];
        assert_eq!(Allow::parse(&many).unwrap_err().code().name, "sandbox.bad_spec");
    }

    #[test]
    fn special_addresses_must_be_meant() {
        let wide = allow(&["0.0.0.0/0", "[::/0]", "*.example.org"]);
        assert_eq!(reaches(&wide, "8.8.8.8", false), Ok(()));
        for (address, name) in [
            ("127.0.0.1", "loopback"),
            ("10.0.0.1", "private"),
            ("169.254.169.254", "metadata"),
            ("::1", "loopback"),
            ("::ffff:8.8.8.8", "mapped"),
            ("64:ff9b::1.1.1.1", "translated"),
        ] {
            assert_eq!(reaches(&wide, address, false), Err(name));
        }
        assert_eq!(reaches(&wide, "8.8.8.8", true), Err("own"));
        let meant =
            allow(&["10.0.0.0/24", "127.0.0.0/8", "169.254.0.0/16", "8.8.8.8", "[64:ff9b::/96]"]);
        assert_eq!(reaches(&meant, "10.0.0.7", false), Ok(()));
        assert_eq!(reaches(&meant, "10.0.1.7", false), Err("private"));
        assert_eq!(reaches(&meant, "10.0.0.7", true), Err("own"));
        assert_eq!(reaches(&meant, "127.0.0.1", true), Ok(()));
        assert_eq!(reaches(&meant, "169.254.1.1", false), Ok(()));
        assert_eq!(reaches(&meant, "169.254.169.254", false), Err("metadata"));
        assert_eq!(reaches(&meant, "8.8.8.8", true), Ok(()));
        assert_eq!(reaches(&meant, "64:ff9b::8.8.8.8", false), Ok(()));
        assert_eq!(reaches(&meant, "64:ff9b::127.0.0.1", false), Err("translated"));
        assert_eq!(meant.reaches("10.0.0.7".parse().unwrap(), 81, false), Err(Special::Private));
    }

    #[test]
    fn a_list_is_written_as_it_was_read() {
        let rules = ["a.b", "*.c.d:443", "e.f:*", "10.0.0.0/8:80,90-99", "[fd00::/8]", "[::1]:5"];
        let text = serde_json::to_string(&allow(&rules)).unwrap();
        assert_eq!(text, serde_json::to_string(&rules).unwrap());
        assert_eq!(serde_json::from_str::<Allow>(&text).unwrap(), allow(&rules));
        assert!(serde_json::from_str::<Allow>("[\"a b\"]").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_not_named_is_refused(host in "[a-z]{1,3}(\\.[a-z]{1,3}){0,3}", port in 1u16..) {
            let allow = allow(&["a.b", "*.c.d:90-99", "10.0.0.0/8"]);
            let named = (host == "a.b" && (port == 80 || port == 443))
                || (host.ends_with(".c.d") && (90..100).contains(&port));
            prop_assert_eq!(names(&allow, &host, port), named);
            prop_assert!(!names(&Allow::default(), &host, port));
        }

        #[test]
        fn no_wide_rule_means_a_special_address(number in any::<u32>(), bits in 0u8..8, own in any::<bool>()) {
            let address = IpAddr::V4(Ipv4Addr::from(number));
            let first = Ipv4Addr::from(if bits == 0 { 0 } else { number >> (32 - bits) << (32 - bits) });
            let rule = format!("{first}/{bits}");
            let multicast = matches!(special(address), Some((Special::Multicast | Special::Reserved, _)));
            let reaches = allow(&[&rule]).reaches(address, 80, own).is_ok();
            // Those two nets are as wide as the rules of this test can be.
            if bits < 4 || !multicast {
                prop_assert_eq!(reaches, special(address).is_none() && !own);
            }
        }

        #[test]
        fn any_text_is_read_or_refused(rule in "\\PC{0,40}") {
            if let Ok(allow) = Allow::parse(std::slice::from_ref(&rule)) {
                let written = Vec::<String>::from(allow.clone());
                prop_assert_eq!(Allow::parse(&written).unwrap(), allow);
            }
        }
    }
}
