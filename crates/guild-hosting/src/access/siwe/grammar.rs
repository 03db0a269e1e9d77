//! The characters and forms that RFC 3986 and RFC 3339 allow, as far as EIP-4361 uses them.

use guild_protocol::timestamp::Timestamp;

use super::Time;

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_sub_delim(byte: u8) -> bool {
    b"!$&'()*+,;=".contains(&byte)
}

fn is_gen_delim(byte: u8) -> bool {
    b":/?#[]@".contains(&byte)
}

/// Whether each byte is one of these, or `%` with two hex digits.
fn all_or_escaped(text: &str, is_one: impl Fn(u8) -> bool) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let good = match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()];
                digits.iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
            }
            byte => is_one(byte),
        };
        if !good {
            return false;
        }
    }
    true
}

fn is_pchar(byte: u8) -> bool {
    is_unreserved(byte) || is_sub_delim(byte) || b":@".contains(&byte)
}

/// `*pchar`
pub(super) fn is_pchars(text: &str) -> bool {
    all_or_escaped(text, is_pchar)
}

/// `1*( reserved / unreserved / " " )`
pub(super) fn is_statement(text: &str) -> bool {
    let allowed =
        |byte| is_unreserved(byte) || is_sub_delim(byte) || is_gen_delim(byte) || byte == b' ';
    !text.is_empty() && text.bytes().all(allowed)
}

/// `ALPHA *( ALPHA / DIGIT / "+" / "-" / "." )`
pub(super) fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// `host [ ":" port ]`: an authority without a user, which only deceives people here.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rfind(']') {
        // The colons within the brackets are of the address.
        Some(_) => match text.rsplit_once("]:") {
            Some((address, port)) => (format!("{address}]"), port),
            None => (text.to_owned(), ""),
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host.to_owned(), port),
            None => (text.to_owned(), ""),
        },
    };
    let is_literal = |inner: &str| {
        !inner.is_empty() && inner.bytes().all(|b| is_unreserved(b) || is_sub_delim(b) || b == b':')
    };
    let host_good = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_literal),
        None => !host.is_empty() && all_or_escaped(&host, |b| is_unreserved(b) || is_sub_delim(b)),
    };
    host_good && is_port(port)
}

/// `*DIGIT`
fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

/// `scheme ":" hier-part [ "?" query ] [ "#" fragment ]`
pub(super) fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (hier, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_path = |path: &str| all_or_escaped(path, |b| is_pchar(b) || b == b'/');
    let hier_good = match hier.strip_prefix("//") {
        None => is_path(hier),
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
            let of_user = |b| is_unreserved(b) || is_sub_delim(b) || b == b':';
            // A name may be empty, as in file:///etc/hosts.
            let host_good =
                is_host_and_port(host) || is_port(host.strip_prefix(':').unwrap_or(host));
            all_or_escaped(user, of_user) && host_good && is_path(path)
        }
    };
    let of_tail = |b| is_pchar(b) || b"/?".contains(&b);
    is_scheme(scheme)
        && hier_good
        && all_or_escaped(query, of_tail)
        && all_or_escaped(fragment, of_tail)
}

/// `date-time`, in capital letters: `2026-01-15T08:30:00.123+01:00`.
pub(super) fn time(text: &str) -> Option<Time> {
    let (day_and_time, rest) = text.split_at_checked(19)?;
    let of_form = |text: &str, form: &str| {
        text.len() == form.len()
            && text.bytes().zip(form.bytes()).all(|(byte, of_form)| match of_form {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
    };
    let zone = match rest.strip_prefix('.') {
        None => rest,
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            rest.get(digits..).filter(|_| (1..=9).contains(&digits))?
        }
    };
    let good = of_form(day_and_time, "0000-00-00T00:00:00")
        && !day_and_time.ends_with("60")
        && (zone == "Z" || of_form(zone, "+00:00") || of_form(zone, "-00:00"));
    let moment = Timestamp::parse_liberal(text).ok().filter(|_| good)?;
    Some(Time { text: text.to_owned(), at_ms: moment.as_ms() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_rfc_3986() {
        for good in [
            "https://guild.example",
            "https://guild.example:8080/a/b?c=d&e=%20#f",
            "http://[2001:db8::1]:80/",
            "https://user:pw@host/",
            "ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/",
            "urn:isbn:0451450523",
            "did:key:abc",
            "file:///etc/passwd",
            "a:",
            "a://:80",
        ] {
            assert!(is_uri(good), "{good}");
        }
        for bad in [
            "",
            "guild.example",
            "/path",
            "://x",
            "1a://x",
            "https://a b",
            "https://ä.example",
            "https://x/%2",
            "https://x/%zz",
            "https://x#a#b",
            "https://x/[",
            "https://[::1",
            "https://::1",
            "https://x:80a",
            "a:\tb",
            "https://x/\u{202e}",
            "https://x/\"",
            "https://x/<>",
        ] {
            assert!(!is_uri(bad), "{bad}");
        }
    }

    #[test]
    fn a_domain_has_no_user() {
        for good in ["guild.example", "localhost:4848", "127.0.0.1", "[::1]:80", "[::1]"] {
            assert!(is_host_and_port(good), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a@b",
            "a:b",
            "a:1:2",
            "a/b",
            "[::1",
            "::1",
            "[]",
            "a b",
            "gúild.example",
            "[a]b",
        ] {
            assert!(!is_host_and_port(bad), "{bad}");
        }
    }

    #[test]
    fn moments_have_one_form() {
        for (good, at_ms) in [
            ("2026-01-15T08:30:00Z", 1_768_465_800_000),
            ("2026-01-15T08:30:00.123456789Z", 1_768_465_800_123),
            ("2026-01-15T09:30:00+01:00", 1_768_465_800_000),
            ("2026-01-15T07:00:00.5-01:30", 1_768_465_800_500),
        ] {
            let time = time(good).unwrap();
            assert_eq!((time.at_ms, time.to_string().as_str()), (at_ms, good));
        }
        for bad in [
            "",
            "2026-01-15",
            "2026-01-15T08:30Z",
            "2026-01-15T08:30:00",
            "2026-01-15t08:30:00Z",
            "2026-01-15T08:30:00z",
            "2026-01-15 08:30:00Z",
            "2026-02-30T08:30:00Z",
            "2026-01-15T24:00:00Z",
            "2026-01-15T08:30:60Z",
            "2026-01-15T08:30:00.Z",
            "2026-01-15T08:30:00.1234567890Z",
            "2026-01-15T08:30:00+0100",
            "+002026-01-15T08:30:00Z",
            "2026-01-15T08:30:00Z[UTC]",
            "２026-01-15T08:30:00Z",
            "2026-01-15T08:30:00Z ",
            "2026-01-15T08:30:00+99:00",
        ] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
