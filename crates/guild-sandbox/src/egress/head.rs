//! What a program asks of the proxy: the head of one HTTP request, read so strictly that no two readers of it can
//! disagree about whom it is for or where it ends.

use super::body::Framing;
use super::host::Host;

const MAX_FIELDS: usize = 100;
/// Fields between the program and the proxy; they go no further.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "upgrade",
];
/// Fields that say whom a request is for or where it ends, so nobody may have them taken out.
const FRAMING: [&str; 3] = ["host", "content-length", "transfer-encoding"];
const WEB_PORT: u16 = 80;

/// What is wrong with a head.
pub type Flaw = &'static str;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `CONNECT host:port`: bytes in both directions.
    Tunnel {
        /// Whom.
        host: Host,
        /// Which port.
        port: u16,
    },
    /// `GET http://host/…`: one request and its answer.
    Forward {
        /// Whom.
        host: Host,
        /// Which port.
        port: u16,
        /// The head as the server gets it.
        head: Vec<u8>,
        /// How far the body goes.
        body: Body,
    },
}

/// How far the body of a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes, which may be none.
    Length(u64),
    /// As its own chunks say.
    Chunked,
}

impl Body {
    pub(super) fn framing(self) -> Framing {
        match self {
            Body::Length(bytes) => Framing::length(bytes),
            Body::Chunked => Framing::chunked(),
        }
    }
}

impl Request {
    /// Where a head ends, if its end is there. Lines end in CR LF and nothing else.
    pub fn end(bytes: &[u8]) -> Result<Option<usize>, Flaw> {
        let mut line = 0;
        while let Some(length) = bytes.get(line..).and_then(|rest| find(rest, b'\n')) {
            let end = line + length;
            if length == 0 || bytes.get(end - 1) != Some(&b'\r') {
                return Err("a line does not end in CR LF");
            }
            if length == 1 {
                return Ok(Some(end + 1));
            }
            line = end + 1;
        }
        Ok(None)
    }

    /// Reads a whole head, with the empty line at its end.
    pub fn parse(bytes: &[u8]) -> Result<Request, Flaw> {
        let text = bytes.strip_suffix(b"\r\n\r\n").ok_or("the head has no end")?;
        let mut lines = text.split(|byte| *byte == b'\n');
        let first = line(lines.next().unwrap_or_default(), text.contains(&b'\n'))?;
        let first = std::str::from_utf8(first).map_err(|_| "the first line is not plain")?;
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("the first line has not three words");
        };
        if method.is_empty() || !method.bytes().all(is_token) {
            return Err("the method is no word");
        }
        if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return Err("the target is not plain");
        }
        let old = match version {
            "HTTP/1.1" => false,
            "HTTP/1.0" => true,
            _ => return Err("the version is neither HTTP/1.0 nor HTTP/1.1"),
        };
        let rest: Vec<&[u8]> = lines.collect();
        let fields = Fields::parse(&rest)?;
        match method {
            "CONNECT" => tunnel(target, &fields),
            _ => forward(method, target, version, old, &fields),
        }
    }

    /// Whom it is for.
    pub fn target(&self) -> (&Host, u16) {
        match self {
            Request::Tunnel { host, port } | Request::Forward { host, port, .. } => (host, *port),
        }
    }
}

fn find(bytes: &[u8], wanted: u8) -> Option<usize> {
    bytes.iter().position(|byte| *byte == wanted)
}

/// A line without its CR, which all but the last still have.
fn line(bytes: &[u8], has_end: bool) -> Result<&[u8], Flaw> {
    let bytes = match has_end {
        true => bytes.strip_suffix(b"\r").ok_or("a line does not end in CR LF")?,
        false => bytes,
    };
    let plain = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if bytes.iter().all(plain) { Ok(bytes) } else { Err("there is a control byte") }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The fields of a head, names in small letters.
struct Fields<'a>(Vec<(String, &'a [u8])>);

impl<'a> Fields<'a> {
    fn parse(lines: &[&'a [u8]]) -> Result<Fields<'a>, Flaw> {
        if lines.len() > MAX_FIELDS {
            return Err("there are too many fields");
        }
        let mut fields = Vec::new();
        for (number, bytes) in lines.iter().enumerate() {
            let bytes = line(bytes, number + 1 < lines.len())?;
            let colon = find(bytes, b':').ok_or("a field has no colon")?;
            let (name, value) = bytes.split_at(colon);
            // A space before the colon, or at the start as in a folded line, is not part of a word.
            if name.is_empty() || !name.iter().copied().all(is_token) {
                return Err("the name of a field is no word");
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            fields.push((name, value.get(1..).unwrap_or_default().trim_ascii()));
        }
        Ok(Fields(fields))
    }

    /// A field that may be there once.
    fn single(&self, name: &str) -> Result<Option<&'a [u8]>, Flaw> {
        let mut found = self.0.iter().filter(|(other, _)| other == name).map(|(_, value)| *value);
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            _ => Err("a field that may be there once is there twice"),
        }
    }

    /// The host that a field names, which must be the one of the target; a missing port is that of the target.
    fn check_host(&self, host: &Host, port: u16, missing: Option<u16>) -> Result<bool, Flaw> {
        let Some(value) = self.single("host")? else { return Ok(false) };
        let text = std::str::from_utf8(value).map_err(|_| "Host names no host")?;
        let (named, named_port) = Host::parse_with_port(text).ok_or("Host names no host")?;
        let same = named == *host && named_port.or(missing).is_none_or(|named| named == port);
        if same { Ok(true) } else { Err("Host is not the host of the target") }
    }

    fn body(&self, old: bool) -> Result<Body, Flaw> {
        match (self.single("content-length")?, self.single("transfer-encoding")?) {
            (None, None) => Ok(Body::Length(0)),
            (Some(_), Some(_)) => Err("there are two lengths"),
            (Some(digits), None) => length(digits).map(Body::Length),
            (None, Some(_)) if old => Err("HTTP/1.0 has no transfer encoding"),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
            (None, Some(_)) => Err("the transfer encoding is not chunked"),
        }
    }

    /// Those that go on to the server.
    fn end_to_end(&self) -> Result<Vec<&(String, &'a [u8])>, Flaw> {
        let mut dropped: Vec<String> = HOP_BY_HOP.iter().map(|name| (*name).to_owned()).collect();
        for (_, value) in self.0.iter().filter(|(name, _)| name == "connection") {
            for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                let word = String::from_utf8_lossy(word).to_ascii_lowercase();
                if FRAMING.contains(&word.as_str()) {
                    return Err("Connection names a field that must stay");
                }
                // A word of its own, and no field.
                if word != "close" {
                    dropped.push(word);
                }
            }
        }
        Ok(self.0.iter().filter(|(name, _)| name != "host" && !dropped.contains(name)).collect())
    }
}

fn length(digits: &[u8]) -> Result<u64, Flaw> {
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return Err("Content-Length is no number");
    }
    Ok(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn tunnel(target: &str, fields: &Fields<'_>) -> Result<Request, Flaw> {
    let Some((host, Some(port))) = Host::parse_with_port(target) else {
        return Err("the target is not host:port");
    };
    fields.check_host(&host, port, None)?;
    match fields.body(false)? {
        Body::Length(0) => Ok(Request::Tunnel { host, port }),
        _ => Err("CONNECT has a body"),
    }
}

fn forward(
    method: &str,
    target: &str,
    version: &str,
    old: bool,
    fields: &Fields<'_>,
) -> Result<Request, Flaw> {
    const SCHEME: &str = "http://";
    let rest = match target.get(..SCHEME.len()) {
        Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => &target[SCHEME.len()..],
        _ => return Err("the target is not http://host/…"),
    };
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(split);
    let (host, port) = Host::parse_with_port(authority).ok_or("the target names no host")?;
    let port = port.unwrap_or(WEB_PORT);
    if !fields.check_host(&host, port, Some(WEB_PORT))? && !old {
        return Err("there is no Host");
    }
    let body = fields.body(old)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} {version}\r\nHost: {host}").into_bytes();
    if port != WEB_PORT {
        head.extend(format!(":{port}").bytes());
    }
    head.extend(b"\r\n");
    for (name, value) in fields.end_to_end()? {
        head.extend(name.bytes());
        head.extend(b": ");
        head.extend(*value);
        head.extend(b"\r\n");
    }
    // One request per connection: the next may be for somebody else, and is judged anew.
    head.extend(b"Connection: close\r\n\r\n");
    Ok(Request::Forward { host, port, head, body })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Request, Flaw> {
        assert_eq!(Request::end(text.as_bytes()), Ok(Some(text.len())), "{text:?}");
        Request::parse(text.as_bytes())
    }

    #[test]
    fn a_tunnel() {
        for host in ["", "Host: Example.org:443\r\n", "host: example.org\r\n"] {
            let head = format!("CONNECT example.org:443 HTTP/1.1\r\n{host}\r\n");
            let host = Host::Name("example.org".to_owned());
            assert_eq!(parse(&head), Ok(Request::Tunnel { host, port: 443 }));
        }
        assert!(parse("CONNECT [::1]:443 HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn a_forwarded_request_names_nobody_between() {
        let asked = "POST HTTP://Example.org:80?q=1 HTTP/1.1\r\nHost: example.org\r\n\
                     Proxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nConnection: X-Own, close\r\n\
                     x-own: 1\r\nX-Other:  two \r\nContent-Length: 5\r\n\r\n";
        let Ok(Request::Forward { head, body, port, .. }) = parse(asked) else { panic!() };
        assert_eq!((body, port), (Body::Length(5), 80));
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "POST /?q=1 HTTP/1.1\r\nHost: example.org\r\nx-other: two\r\ncontent-length: 5\r\n\
             Connection: close\r\n\r\n"
        );
        let Ok(Request::Forward { head, .. }) =
            parse("GET http://[2001:db8::1]:8080/a//b HTTP/1.0\r\n\r\n")
        else {
            panic!()
        };
        assert!(head.starts_with(b"GET /a//b HTTP/1.0\r\nHost: [2001:db8::1]:8080\r\n"));
    }

    #[test]
    fn heads_that_two_readers_read_differently_are_refused() {
        let get = |fields: &str| format!("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n{fields}\r\n");
        let cases = [
            (get("Host: a.b\r\n"), "a field that may be there once is there twice"),
            (get("Content-Length: 1\r\nContent-Length: 1\r\n"), "a field that may be there once"),
            (get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "there are two lengths"),
            (get("Content-Length: +1\r\n"), "Content-Length is no number"),
            (get("Content-Length: 1, 1\r\n"), "Content-Length is no number"),
            (get("Content-Length:\r\n"), "Content-Length is no number"),
            (get("Transfer-Encoding: gzip, chunked\r\n"), "the transfer encoding"),
            (get("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n"), "a field that may be"),
            (get("Content-Length : 1\r\n"), "the name of a field is no word"),
            (get(" folded: 1\r\n"), "the name of a field is no word"),
            (get("X: 1\r\n\tfolded\r\n"), "a field has no colon"),
            (get("X: 1\r\n folded: x\r\n"), "the name of a field is no word"),
            (get("X: a\0b\r\n"), "there is a control byte"),
            (get("X: a\rY: b\r\n"), "there is a control byte"),
            (
                get("Connection: content-length\r\nContent-Length: 3\r\n"),
                "Connection names a field",
            ),
            (get("Connection: Host\r\n"), "Connection names a field"),
            (get(": x\r\n"), "the name of a field is no word"),
            (get("nonsense\r\n"), "a field has no colon"),
            ("GET http://a.b/ HTTP/1.1\r\nHost: c.d\r\n\r\n".into(), "Host is not the host"),
            ("GET http://a.b:81/ HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "Host is not the host"),
            ("GET http://a.b/ HTTP/1.1\r\n\r\n".into(), "there is no Host"),
            ("GET http://a.b/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), "HTTP/1.0"),
            ("GET http://u@a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target names no host"),
            ("GET http://a.b\\@c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target names no"),
            (
                "GET http://a.b#@c.d/ HTTP/1.1\r\nHost: a.b\r\n\r\n".into(),
                "the target is not plain",
            ),
            ("GET http:///x HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target names no host"),
            ("GET / HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target is not http"),
            ("GET https://a.b/ HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target is not http"),
            ("GET file:///etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n".into(), "the target is not http"),
            ("GET http://a.b/  HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the first line has not"),
            ("GET http://a.b/\t HTTP/1.1\r\nHost: a.b\r\n\r\n".into(), "the target is not plain"),
            ("GET http://a.b/ HTTP/2.0\r\nHost: a.b\r\n\r\n".into(), "the version"),
            ("GET http://a.b/\r\n\r\n".into(), "the first line has not"),
            ("PRI * HTTP/2.0\r\n\r\n".into(), "the version"),
            ("CONNECT a.b HTTP/1.1\r\n\r\n".into(), "the target is not host:port"),
            ("CONNECT http://a.b:443/ HTTP/1.1\r\n\r\n".into(), "the target is not host:port"),
            ("CONNECT a.b:443 HTTP/1.1\r\nHost: c.d:443\r\n\r\n".into(), "Host is not"),
            ("CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:80\r\n\r\n".into(), "Host is not"),
            ("CONNECT a.b:443 HTTP/1.1\r\nContent-Length: 1\r\n\r\n".into(), "CONNECT has a body"),
            (
                "CONNECT a.b:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
                "CONNECT has",
            ),
        ];
        for (head, says) in cases {
            let flaw = parse(&head).unwrap_err();
            assert!(flaw.starts_with(says), "{head:?}: {flaw}");
        }
        let many = get(&"X: 1\r\n".repeat(MAX_FIELDS));
        assert_eq!(parse(&many), Err("there are too many fields"));
    }

    #[test]
    fn lines_end_in_two_bytes() {
        for text in ["GET / HTTP/1.1\n\n", "\n", "GET\r\nHost: a\n\r\n", "a\r\r\n\n"] {
            assert_eq!(
                Request::end(text.as_bytes()),
                Err("a line does not end in CR LF"),
                "{text:?}"
            );
        }
        assert_eq!(Request::end(b"GET / HTTP/1.1\r\nHost"), Ok(None));
        assert_eq!(Request::end(b"a\r\n\r\nrest"), Ok(Some(5)));
        assert_eq!(Request::end(b"\r\nGET"), Ok(Some(2)));
        assert_eq!(Request::parse(b"\r\n"), Err("the head has no end"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is put into a field stays in that field.
        #[test]
        fn a_value_adds_no_line(value in "[\\x00-\\x7f]{0,30}") {
            let head = format!("GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\nX: {value}\r\n\r\n");
            if let Ok(Some(end)) = Request::end(head.as_bytes())
                && let Ok(Request::Forward { head: out, .. }) = Request::parse(&head.as_bytes()[..end])
                && end == head.len() && !value.contains('\n')
            {
                let expected = format!(
                    "GET / HTTP/1.1\r\nHost: a.b\r\nx: {}\r\nConnection: close\r\n\r\n",
                    String::from_utf8_lossy(value.as_bytes().trim_ascii())
                );
                prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::end(&bytes);
            let _ = Request::parse(&bytes);
        }
    }
}
