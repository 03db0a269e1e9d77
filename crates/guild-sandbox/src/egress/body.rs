//! Where the body of a request ends, so that nothing behind it reaches a server.

use super::head::Flaw;

/// What a line between chunks may weigh.
const MAX_LINE_BYTES: u32 = 4_096;
/// What all the fields behind the last chunk may weigh.
const MAX_TRAILER_BYTES: u32 = 16 << 10;

/// How far a body has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Framing {
    state: State,
    /// The length of the current line, or of the fields at the end.
    overhead: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes, and then the end.
    Length(u64),
    /// The size of a chunk, and whether a digit of it has been seen.
    Size(u64, bool),
    Extension(u64),
    SizeLf(u64),
    Data(u64),
    DataCr,
    DataLf,
    /// At the start of a line behind the last chunk, or in it.
    Trailer {
        at_start: bool,
    },
    TrailerLf,
    LastLf,
    Done,
}

impl Framing {
    pub(super) fn length(bytes: u64) -> Framing {
        let state = if bytes == 0 { State::Done } else { State::Length(bytes) };
        Framing { state, overhead: 0 }
    }

    pub(super) fn chunked() -> Framing {
        Framing { state: State::Size(0, false), overhead: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many of these bytes belong to the body.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize, Flaw> {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            let left = match self.state {
                State::Done => return Ok(taken),
                State::Length(left) | State::Data(left) => left,
                _ => {
                    self.state = self.next(rest.first().copied().unwrap_or_default())?;
                    taken += 1;
                    continue;
                }
            };
            let length = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - u64::try_from(length).unwrap_or(left);
            taken += length;
            self.state = match (self.state, left) {
                (State::Length(_), 0) => State::Done,
                (State::Length(_), left) => State::Length(left),
                (_, 0) => State::DataCr,
                (_, left) => State::Data(left),
            };
        }
        Ok(taken)
    }

    /// One byte of what stands around the chunks.
    fn next(&mut self, byte: u8) -> Result<State, Flaw> {
        const BAD: Flaw = "a chunk is not written as it must be";
        self.overhead += 1;
        let trailer = matches!(self.state, State::Trailer { .. } | State::TrailerLf);
        if self.overhead > if trailer { MAX_TRAILER_BYTES } else { MAX_LINE_BYTES } {
            return Err("there is too much between the chunks");
        }
        let plain = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
        Ok(match (self.state, byte) {
            (State::Size(size, _), digit) if digit.is_ascii_hexdigit() => {
                let value = char::from(digit).to_digit(16).map_or(0, u64::from);
                // Larger than anything that is sent, and far from an overflow.
                State::Size(size * 16 + value, true).checked().ok_or("a chunk is too large")?
            }
            (State::Size(size, true), b'\r') | (State::Extension(size), b'\r') => {
                State::SizeLf(size)
            }
            (State::Size(size, true), b';') => State::Extension(size),
            (State::Extension(size), _) if plain => State::Extension(size),
            (State::SizeLf(size), b'\n') => {
                self.overhead = 0;
                if size == 0 { State::Trailer { at_start: true } } else { State::Data(size) }
            }
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.overhead = 0;
                State::Size(0, false)
            }
            (State::Trailer { at_start: true }, b'\r') => State::LastLf,
            (State::Trailer { at_start: false }, b'\r') => State::TrailerLf,
            (State::Trailer { .. }, _) if plain => State::Trailer { at_start: false },
            (State::TrailerLf, b'\n') => State::Trailer { at_start: true },
            (State::LastLf, b'\n') => State::Done,
            _ => return Err(BAD),
        })
    }
}

impl State {
    fn checked(self) -> Option<State> {
        match self {
            State::Size(size, _) if size >= 1 << 48 => None,
            state => Some(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_length_is_kept() {
        let mut framing = Framing::length(5);
        assert_eq!(framing.take(b"abc"), Ok(3));
        assert_eq!(framing.take(b"deGET /"), Ok(2));
        assert!(framing.is_done());
        assert_eq!(framing.take(b"more"), Ok(0));
        assert!(Framing::length(0).is_done());
    }

    #[test]
    fn chunks_end_where_they_say() {
        let body = b"3;name=\"v\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: 1\r\n\r\n";
        let next = b"GET http://other/ HTTP/1.1\r\n";
        let both = [&body[..], next].concat();
        let mut framing = Framing::chunked();
        assert_eq!((framing.take(&both), framing.is_done()), (Ok(body.len()), true));
    }

    #[test]
    fn chunks_that_two_readers_read_differently_are_refused() {
        for body in [
            "\r\n",
            "x\r\n",
            "0x3\r\nabc",
            " 3\r\nabc",
            "3 \r\nabc",
            "+3\r\nabc",
            "3\nabc",
            "3\rabc",
            "3\r\nabcd\r\n",
            "3\r\nabc\n0",
            "3;\n\r\n",
            "3;a\0\r\n",
            "0\r\nX: 1\n\r\n",
            "0\r\n\n",
            "fffffffffffffffff\r\n",
            "1000000000000\r\n",
        ] {
            assert!(Framing::chunked().take(body.as_bytes()).is_err(), "{body:?}");
        }
        let long = format!("3;{}\r\n", "x".repeat(5_000));
        assert!(Framing::chunked().take(long.as_bytes()).is_err());
        let zeros = "0".repeat(5_000);
        assert!(Framing::chunked().take(zeros.as_bytes()).is_err());
        let trailers = format!("0\r\n{}", "X: 1\r\n".repeat(5_000));
        assert!(Framing::chunked().take(trailers.as_bytes()).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// It does not matter in which pieces a body comes.
        #[test]
        fn pieces_do_not_matter(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..5),
            cuts in proptest::collection::vec(1usize..20, 1..40),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend(format!("{:x}\r\n", chunk.len()).bytes());
                body.extend(chunk);
                body.extend(b"\r\n");
            }
            body.extend(b"0\r\n\r\n");
            let length = body.len();
            body.extend(b"behind");
            let (mut framing, mut at, mut taken) = (Framing::chunked(), 0, 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(body.len());
                taken += framing.take(&body[at..end]).unwrap();
                at = end;
                if at == body.len() { break }
            }
            prop_assert_eq!((taken, framing.is_done()), (length, true));
        }
    }
}
