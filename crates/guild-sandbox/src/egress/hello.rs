//! The first words of TLS, which name the server before anything is secret.

use super::head::Flaw;
use super::host::name;

/// Longer than any greeting that is meant.
pub(super) const MAX_HELLO_BYTES: usize = 16 << 10;
const RECORD_HEADER_BYTES: usize = 5;
const MESSAGE_HEADER_BYTES: usize = 4;
const SERVER_NAME: usize = 0;

/// What the first bytes of a client say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// Not enough yet.
    More,
    /// The name of the server that is wanted, in small letters. With an encrypted greeting it is the outer one.
    Name(String),
    /// A greeting without a name.
    Nameless,
    /// Something else, or a greeting that is not written as it must be.
    Wrong(Flaw),
}

impl Hello {
    /// Reads the greeting at the start of these bytes.
    ///
    /// ```
    /// use guild_sandbox::egress::Hello;
    /// assert_eq!(Hello::read(&[22, 3, 1]), Hello::More);
    /// assert_eq!(Hello::read(b"GET / HTTP/1.1"), Hello::Wrong("it is not TLS"));
    /// ```
    pub fn read(bytes: &[u8]) -> Hello {
        match message(bytes) {
            Ok(Some(message)) => match server_name(&message) {
                Ok(Some(name)) => Hello::Name(name),
                Ok(None) => Hello::Nameless,
                Err(flaw) => Hello::Wrong(flaw),
            },
            Ok(None) => Hello::More,
            Err(flaw) => Hello::Wrong(flaw),
        }
    }
}

/// The body of the first message, which may be spread over records.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, Flaw> {
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.first().is_some_and(|kind| *kind != 22) || rest.get(1).is_some_and(|v| *v != 3) {
            return Err("it is not TLS");
        }
        let Some(&[_, _, _, high, low]) = rest.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length == 0 || length > MAX_HELLO_BYTES {
            return Err("a record has no length that can be meant");
        }
        let body = rest.get(RECORD_HEADER_BYTES..).unwrap_or_default();
        message.extend(body.iter().take(length));
        if let Some(&[kind, a, b, c]) = message.first_chunk::<MESSAGE_HEADER_BYTES>() {
            let wanted = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if kind != 1 || wanted > MAX_HELLO_BYTES {
                return Err("it does not begin with a greeting");
            }
            let end = MESSAGE_HEADER_BYTES + wanted;
            if message.len() > end || (message.len() == end && body.len() < length) {
                return Err("something follows the greeting in its record");
            }
            if message.len() == end {
                return Ok(Some(message.split_off(MESSAGE_HEADER_BYTES)));
            }
        } else if message.first().is_some_and(|kind| *kind != 1) {
            return Err("it does not begin with a greeting");
        }
        if body.len() < length {
            return Ok(None);
        }
        at += RECORD_HEADER_BYTES + length;
    }
}

/// Takes fields off the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    const SHORT: Flaw = "the greeting is too short for what it says";

    fn take(&mut self, count: usize) -> Result<&'a [u8], Flaw> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Self::SHORT)?;
        self.0 = rest;
        Ok(front)
    }

    /// A number of one or two bytes.
    fn number(&mut self, bytes: usize) -> Result<usize, Flaw> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A field that begins with its length, a number of one or two bytes.
    fn field(&mut self, bytes: usize) -> Result<&'a [u8], Flaw> {
        let length = self.number(bytes)?;
        self.take(length)
    }
}

fn server_name(message: &[u8]) -> Result<Option<String>, Flaw> {
    let mut reader = Reader(message);
    let (_version, _random) = (reader.take(2)?, reader.take(32)?);
    let (session, suites, compression) = (reader.field(1)?, reader.field(2)?, reader.field(1)?);
    let odd = suites.is_empty() || suites.len() % 2 == 1;
    if session.len() > 32 || odd || compression.is_empty() {
        return Err("the greeting is not written as it must be");
    }
    if reader.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(reader.field(2)?);
    if !reader.0.is_empty() {
        return Err("something follows the extensions");
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, body) = (extensions.number(2)?, extensions.field(2)?);
        if kind == SERVER_NAME {
            if found.is_some() {
                return Err("there are two names");
            }
            found = Some(listed_name(body)?);
        }
    }
    Ok(found)
}

fn listed_name(body: &[u8]) -> Result<String, Flaw> {
    let mut reader = Reader(body);
    let mut list = Reader(reader.field(2)?);
    let (kind, text) = (list.number(1)?, list.field(2)?);
    if kind != 0 || !list.0.is_empty() || !reader.0.is_empty() {
        return Err("there are two names");
    }
    let text = std::str::from_utf8(text).map_err(|_| "the name is none")?;
    name(text).ok_or("the name is none")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::greeting::{extension, greeting, named, records};
    use super::*;

    #[test]
    fn the_name_is_found() {
        let plain = records(&named("WWW.Example.org"), 16_384);
        assert_eq!(Hello::read(&plain), Hello::Name("www.example.org".to_owned()));
        let early = [plain.as_slice(), &[20, 3, 3, 0, 1, 1]].concat();
        assert_eq!(Hello::read(&early), Hello::Name("www.example.org".to_owned()));
        assert_eq!(Hello::read(&records(&greeting(&[]), 16_384)), Hello::Nameless);
        let other = extension(65_037, b"an encrypted greeting");
        assert_eq!(Hello::read(&records(&greeting(&[other]), 16_384)), Hello::Nameless);
    }

    #[test]
    fn it_may_come_in_pieces() {
        for size in [1, 2, 3, 7, 50] {
            let pieces = records(&named("a.example"), size);
            assert_eq!(Hello::read(&pieces), Hello::Name("a.example".to_owned()), "{size}");
            for end in 0..pieces.len() {
                assert_eq!(Hello::read(&pieces[..end]), Hello::More, "{size} {end}");
            }
        }
    }

    #[test]
    fn what_two_readers_read_differently_is_wrong() {
        let name = |text: &str| {
            let entry = [&[0, 0, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
            let list = [&[0, u8::try_from(entry.len()).unwrap()], entry.as_slice()].concat();
            extension(0, &list)
        };
        let two_entries = b"\x00\x08\x00\x00\x01a\x00\x00\x01b";
        let wrong = [
            greeting(&[name("a.b"), name("a.b")]),
            greeting(&[extension(0, two_entries)]),
            greeting(&[extension(0, b"")]),
            greeting(&[extension(0, b"\x00\x04\x01\x00\x01a")]),
            greeting(&[name("127.0.0.1")]),
            greeting(&[name("a\0.b")]),
            greeting(&[name("")]),
            [named("a.b").as_slice(), b"x"].concat(),
            {
                let mut server = named("a.b");
                server[0] = 2;
                server
            },
        ];
        for message in wrong {
            let read = Hello::read(&records(&message, 16_384));
            assert!(matches!(read, Hello::Wrong(_)), "{read:?}");
        }
        for bytes in [
            &b"SSH-2.0-x"[..],
            &[0x80, 0x2e, 1],
            &[22, 2],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 255, 255],
        ] {
            assert!(matches!(Hello::read(bytes), Hello::Wrong(_)), "{bytes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), tls in any::<bool>()) {
            if tls {
                bytes.splice(0..0, records(&named("a.b"), 40).into_iter().take(60));
            }
            let _ = Hello::read(&bytes);
        }

        /// A changed byte gives another name or none, never a panic.
        #[test]
        fn one_byte_is_changed(at in 0usize..100, byte in any::<u8>()) {
            let mut bytes = records(&named("a.example"), 16_384);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = Hello::read(&bytes);
        }
    }
}
