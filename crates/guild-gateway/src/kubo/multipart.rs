//! Bodies of several parts (RFC 7578), read as they come. Pure: bytes in, events out.

use crate::{Error, Result};

/// The most bytes of the headers of one part.
const HEADERS_MAX_BYTES: usize = 16 * 1024;
/// The longest boundary (RFC 2046).
const BOUNDARY_MAX_BYTES: usize = 70;

/// What happens next in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A part begins, with these headers.
    Part(Head),
    /// Bytes of it; none, if it is empty.
    Data(Vec<u8>),
    /// It ends.
    PartEnd,
    /// The body is whole.
    End,
}

/// What a part says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// The name of its file, as it stands there.
    pub(super) file_name: Option<String>,
    /// Its type, in lower case.
    pub(super) content_type: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    /// Behind a boundary: the line must end, or all of it.
    Boundary,
    Headers,
    Body,
    /// The data before the boundary has been handed out.
    BodyEnd,
    Done,
}

/// Takes a body apart.
pub(super) struct Parser {
    /// What stands before each part: a line end, two dashes and the boundary.
    mark: Vec<u8>,
    buffer: Vec<u8>,
    state: State,
}

impl Parser {
    /// For the boundary that the type of the body names.
    pub(super) fn of(content_type: &str) -> Result<Parser> {
        let wrong = || Error::bad("content-type", "must be multipart/form-data with a boundary");
        let (what, parameters) = content_type.split_once(';').ok_or_else(wrong)?;
        if !what.trim().to_ascii_lowercase().starts_with("multipart/") {
            return Err(wrong());
        }
        let boundary = parameter(parameters, "boundary").ok_or_else(wrong)?;
        let good = (1..=BOUNDARY_MAX_BYTES).contains(&boundary.len())
            && boundary.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !good {
            return Err(wrong());
        }
        let mark = format!("\r\n--{boundary}").into_bytes();
        // So that the first boundary, which no line end comes before, is like the others.
        Ok(Parser { mark, buffer: b"\r\n".to_vec(), state: State::Preamble })
    }

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        // What follows the end means nothing.
        if self.state != State::Done {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next event, or none until more comes.
    pub(super) fn next(&mut self) -> Result<Option<Event>> {
        loop {
            match self.state {
                State::Preamble => {
                    let Some(at) = find(&self.buffer, &self.mark) else {
                        self.keep_tail();
                        return Ok(None);
                    };
                    self.skip(at.saturating_add(self.mark.len()));
                    self.state = State::Boundary;
                }
                State::Boundary => match self.boundary()? {
                    None => return Ok(None),
                    Some(State::Done) => {
                        self.state = State::Done;
                        self.buffer = Vec::new();
                        return Ok(Some(Event::End));
                    }
                    Some(state) => self.state = state,
                },
                State::Headers => return self.headers(),
                State::Body => return Ok(self.body()),
                State::BodyEnd => {
                    self.state = State::Boundary;
                    return Ok(Some(Event::PartEnd));
                }
                State::Done => return Ok(None),
            }
        }
    }

    fn boundary(&mut self) -> Result<Option<State>> {
        if self.buffer.starts_with(b"--") {
            return Ok(Some(State::Done));
        }
        let Some(at) = find(&self.buffer, b"\r\n") else {
            let few = self.buffer.len() <= HEADERS_MAX_BYTES;
            return if few { Ok(None) } else { Err(malformed("a boundary has no end")) };
        };
        let blank = self.buffer.iter().take(at).all(|byte| matches!(byte, b' ' | b'\t'));
        if !blank {
            return Err(malformed("something follows a boundary"));
        }
        // The line end stays: headers that are none begin with another.
        self.skip(at);
        Ok(Some(State::Headers))
    }

    fn headers(&mut self) -> Result<Option<Event>> {
        let Some(end) = find(&self.buffer, b"\r\n\r\n") else {
            let few = self.buffer.len() <= HEADERS_MAX_BYTES;
            return if few {
                Ok(None)
            } else {
                Err(malformed("the headers of a part are too long"))
            };
        };
        if end > HEADERS_MAX_BYTES {
            return Err(malformed("the headers of a part are too long"));
        }
        let head = self.buffer.get(..end).unwrap_or_default();
        let text = std::str::from_utf8(head);
        let text = text.map_err(|_| malformed("the headers of a part are not UTF-8"))?;
        let mut part = Head::default();
        for line in text.split("\r\n") {
            let Some((name, value)) = line.split_once(':') else { continue };
            match name.trim().to_ascii_lowercase().as_str() {
                "content-disposition" => part.file_name = parameter(value, "filename"),
                "content-type" => part.content_type = value.trim().to_ascii_lowercase(),
                _ => {}
            }
        }
        self.skip(end.saturating_add(4));
        self.state = State::Body;
        Ok(Some(Event::Part(part)))
    }

    fn body(&mut self) -> Option<Event> {
        if let Some(at) = find(&self.buffer, &self.mark) {
            let data: Vec<u8> = self.buffer.drain(..at).collect();
            self.skip(self.mark.len());
            self.state = State::BodyEnd;
            return Some(Event::Data(data));
        }
        let data = self.keep_tail();
        if data.is_empty() { None } else { Some(Event::Data(data)) }
    }

    /// Hands out all but what may be the beginning of a boundary.
    fn keep_tail(&mut self) -> Vec<u8> {
        let keep = self.mark.len().saturating_sub(1);
        let out = self.buffer.len().saturating_sub(keep);
        self.buffer.drain(..out).collect()
    }

    fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.buffer.len());
        self.buffer.drain(..bytes);
    }
}

fn malformed(why: &str) -> Error {
    Error::bad("body", why)
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    loop {
        let rest = within.get(from..)?;
        let at = from.checked_add(rest.iter().position(|byte| *byte == first)?)?;
        let here = within.get(at..)?;
        if here.len() < what.len() {
            return None;
        }
        if here.starts_with(what) {
            return Some(at);
        }
        from = at.checked_add(1)?;
    }
}

/// A parameter of a header: `name=value` or `name="value"`, in which a backslash stands before quotes and itself.
pub(super) fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['=', ';']).unwrap_or(rest.len());
        let (found, behind) = rest.split_at(end);
        let Some(value) = behind.strip_prefix('=') else {
            rest = behind;
            continue;
        };
        let (value, behind) = match value.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted)?,
            None => {
                let end = value.find(';').unwrap_or(value.len());
                let (value, behind) = value.split_at(end);
                (value.trim().to_owned(), behind)
            }
        };
        if found.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = behind;
    }
}

fn quoted_text(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at.checked_add(1)?..)?)),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part as its name, its type and its bytes.
    fn read(body: &[u8], piece_bytes: usize) -> Result<Vec<(Head, Vec<u8>)>> {
        let mut parser = Parser::of("multipart/form-data; boundary=\"a b\"")?;
        let (mut parts, mut ends) = (Vec::new(), 0);
        for piece in body.chunks(piece_bytes) {
            parser.feed(piece);
            while let Some(event) = parser.next()? {
                match event {
                    Event::Part(head) => parts.push((head, Vec::new())),
                    Event::Data(data) => parts.last_mut().unwrap().1.extend(data),
                    Event::PartEnd => ends += 1,
                    Event::End => assert_eq!(ends, parts.len()),
                }
            }
        }
        match parser.state == State::Done {
            true => Ok(parts),
            false => Err(malformed("cut off")),
        }
    }

    #[test]
    fn parts_are_found_however_the_body_is_cut() {
        let tricky = b"x\r\n--a \r\n--a c\r\n-\r";
        let mut body = b"ignored\r\n--a b \t\r\nContent-Disposition: form-data; name=\"file\"; \
            filename=\"d/\\\"q\\\".txt\"\r\ncontent-type: Text/Plain\r\n\r\n"
            .to_vec();
        body.extend_from_slice(tricky);
        body.extend_from_slice(
            b"\r\n--a b\r\n\r\n\r\n\r\n--a b\r\nx: y\r\n\r\n\r\n--a b--\r\nafter",
        );
        for piece_bytes in [1, 2, 3, 7, 64, 4_096] {
            let parts = read(&body, piece_bytes).unwrap();
            let file_name = Some("d/\"q\".txt".to_owned());
            assert_eq!(parts[0].0, Head { file_name, content_type: "text/plain".to_owned() });
            assert_eq!(parts[0].1, tricky);
            assert_eq!(
                parts[1..],
                [(Head::default(), b"\r\n".to_vec()), (Head::default(), vec![])][..]
            );
            assert_eq!(parts.len(), 3);
        }
    }

    #[test]
    fn rubbish_is_refused_and_nothing_grows_without_end() {
        for bad in
            ["text/plain", "multipart/form-data", "multipart/form-data; boundary=", "x; boundary=y"]
        {
            assert!(Parser::of(bad).is_err(), "{bad}");
        }
        let long = format!("multipart/x; boundary={}", "b".repeat(71));
        assert!(Parser::of(&long).is_err());
        for cut in [&b""[..], b"--a b", b"--a b\r\n", b"--a b\r\nx: y\r\n\r\ndata"] {
            assert!(read(cut, 3).is_err());
        }
        assert!(read(b"--a bjunk\r\n\r\n", 3).is_err());
        let endless = [b"--a b\r\n".to_vec(), vec![b'h'; 20_000]].concat();
        assert!(read(&endless, 512).is_err());
        let mut parser = Parser::of("multipart/form-data; boundary=b").unwrap();
        for _ in 0..100 {
            parser.feed(&[b'.'; 10_000]);
            assert_eq!(parser.next().unwrap(), None);
            assert!(parser.buffer.len() < 16);
        }
    }

    /// Bodies put together from what such bodies are made of, the same ones each time.
    fn made_up(seed: u64) -> Vec<u8> {
        const PIECES: [&[u8]; 10] =
            [b"\r\n", b"--a b", b"--", b"x: y", b"\r\n\r\n", b"z", b"\r", b"\n", b"-", b" "];
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut body = b"--a b\r\n".to_vec();
        for _ in 0..seed % 24 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            body.extend(PIECES[usize::try_from(state >> 33).unwrap() % PIECES.len()]);
        }
        body
    }

    #[test]
    fn a_body_says_the_same_however_it_is_cut() {
        let mut whole = 0;
        for seed in 0..20_000 {
            let body = made_up(seed);
            let at_once = read(&body, 4_096).ok();
            for piece_bytes in [1, 3] {
                assert_eq!(read(&body, piece_bytes).ok(), at_once, "{}", body.escape_ascii());
            }
            whole += usize::from(at_once.is_some());
        }
        assert!(whole > 100, "{whole} were bodies");
    }

    #[test]
    fn parameters_are_found_behind_others() {
        let all = " form-data; name=\"a;filename=\\\"no\"; filename=plain ; x";
        assert_eq!(parameter(all, "filename").as_deref(), Some("plain"));
        assert_eq!(parameter(all, "name").as_deref(), Some("a;filename=\"no"));
        assert_eq!(parameter(all, "x"), None);
        assert_eq!(parameter("filename=\"open", "filename"), None);
    }
}
