//! Where one piece of an answer ends and the next begins: server-sent events, lines, or one JSON text.

use hyper::HeaderMap;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::Value;

use super::Failure;

/// What OpenAI, and whoever speaks as it does, says last.
const DONE: &str = "[DONE]";

/// A piece of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// Something was said.
    Said(Value),
    /// Nothing more will be.
    Done,
}

/// Cuts bytes into pieces. How is said by the answer's type; where that says nothing, by its first byte.
#[derive(Debug)]
pub(super) struct Frames {
    way: Option<Way>,
    lines: Lines,
    /// The data of the event that is coming; or all of it.
    text: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Events,
    Lines,
    Whole,
}

impl Frames {
    pub(super) fn of(headers: &HeaderMap) -> Result<Frames, Failure> {
        let header = |name| headers.get(&name).and_then(|value| value.to_str().ok());
        if let Some(encoding) = header(CONTENT_ENCODING).filter(|found| *found != "identity") {
            let message = format!("the answer is packed as {encoding}, which nobody asked for");
            return Err(Failure::Garbled(message));
        }
        let media = header(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase();
        let way = match media.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Some(Way::Events),
            "application/x-ndjson" | "application/jsonl" => Some(Way::Lines),
            "application/json" => Some(Way::Whole),
            "text/html" => {
                let message = "the answer is a web page: the url is not that of an API";
                return Err(Failure::Garbled(message.to_owned()));
            }
            _ => None,
        };
        Ok(Frames { way, lines: Lines::default(), text: Vec::new() })
    }

    /// Takes bytes, and gives what they complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Piece) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let way = match self.way {
            Some(way) => way,
            None => {
                let Some(first) = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                    return Ok(());
                };
                let found = match first {
                    b'{' | b'[' => Way::Whole,
                    b'd' | b'e' | b':' | b'i' | b'r' => Way::Events,
                    _ => {
                        let message = "the answer is neither JSON nor a stream of events";
                        return Err(Failure::Garbled(message.to_owned()));
                    }
                };
                *self.way.insert(found)
            }
        };
        let text = &mut self.text;
        match way {
            Way::Whole => {
                text.extend_from_slice(bytes);
                Ok(())
            }
            Way::Lines => self.lines.feed(bytes, |line| said(line, &mut each)),
            Way::Events => self.lines.feed(bytes, |line| event(text, line, &mut each)),
        }
    }

    /// No more bytes come. Whatever was left open is given if it is whole.
    pub(super) fn end(
        mut self,
        mut each: impl FnMut(Piece) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let rest = std::mem::take(&mut self.lines.line);
        match self.way {
            None => Ok(()),
            Some(Way::Lines) => unless_cut(&rest, &mut each),
            Some(Way::Events) => {
                if let Some(data) = data_of(&rest) {
                    extend(&mut self.text, data);
                }
                unless_cut(&self.text, &mut each)
            }
            Some(Way::Whole) => whole(&self.text, &mut each),
        }
    }
}

/// A line of a stream of events. An empty one ends an event. Some write the JSON of an error without `data:`.
fn event(
    text: &mut Vec<u8>,
    line: &[u8],
    each: &mut impl FnMut(Piece) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if line.is_empty() {
        return said(&std::mem::take(text), each);
    }
    if line.first() == Some(&b'{') && text.is_empty() {
        return said(line, each);
    }
    if let Some(data) = data_of(line) {
        extend(text, data);
    }
    Ok(())
}

fn extend(text: &mut Vec<u8>, data: &[u8]) {
    if !text.is_empty() {
        text.push(b'\n');
    }
    text.extend_from_slice(data);
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
    let data = line.strip_prefix(b"data:")?;
    Some(data.strip_prefix(b" ").unwrap_or(data))
}

fn said(text: &[u8], each: &mut impl FnMut(Piece) -> Result<(), Failure>) -> Result<(), Failure> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(());
    }
    if text == DONE.as_bytes() {
        return each(Piece::Done);
    }
    each(Piece::Said(serde_json::from_slice(text).map_err(broken)?))
}

/// What stands after the last end of a piece. If it is not whole, the answer was cut off, and whoever reads finds that
/// its end is missing.
fn unless_cut(
    text: &[u8],
    each: &mut impl FnMut(Piece) -> Result<(), Failure>,
) -> Result<(), Failure> {
    match serde_json::from_slice::<Value>(text) {
        Err(error) if error.is_eof() => Ok(()),
        _ => said(text, each),
    }
}

/// One JSON text, or several one after the other, or a list of them.
fn whole(text: &[u8], each: &mut impl FnMut(Piece) -> Result<(), Failure>) -> Result<(), Failure> {
    for value in serde_json::Deserializer::from_slice(text).into_iter::<Value>() {
        match value {
            Ok(Value::Array(list)) => list.into_iter().try_for_each(|v| each(Piece::Said(v)))?,
            Ok(value) => each(Piece::Said(value))?,
            Err(error) if error.is_eof() => return Ok(()),
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(())
}

fn broken(error: serde_json::Error) -> Failure {
    Failure::Garbled(format!("the answer is no JSON: {error}"))
}

/// Lines that end as the standard for events allows: `\n`, `\r\n` or `\r`.
#[derive(Debug, Default)]
struct Lines {
    line: Vec<u8>,
    after_cr: bool,
}

impl Lines {
    fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, end) = match part.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                _ => (part, None),
            };
            let is_second = self.after_cr && text.is_empty() && end == Some(b'\n');
            self.after_cr = end == Some(b'\r');
            if is_second {
                continue;
            }
            self.line.extend_from_slice(text);
            if end.is_some() {
                each(&std::mem::take(&mut self.line))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn frames(media: &'static str) -> Frames {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        Frames::of(&headers).unwrap()
    }

    /// Whatever the pieces in which bytes come, the same is said.
    fn read(media: &'static str, text: &[u8]) -> Result<Vec<Piece>, Failure> {
        let mut first = None;
        for size in [1, 2, 3, 7, text.len().max(1)] {
            let mut frames = frames(media);
            let mut pieces = Vec::new();
            let mut each = |piece| {
                pieces.push(piece);
                Ok(())
            };
            text.chunks(size).try_for_each(|bytes| frames.feed(bytes, &mut each))?;
            frames.end(&mut each)?;
            assert_eq!(first.get_or_insert_with(|| format!("{pieces:?}")), &format!("{pieces:?}"));
            if size >= text.len() {
                return Ok(pieces);
            }
        }
        Ok(Vec::new())
    }

    #[test]
    fn events_are_read_with_any_end_of_line() {
        let expected = [Piece::Said(json!({"a": "é"})), Piece::Said(json!([1])), Piece::Done];
        for end in ["\n", "\r\n", "\r"] {
            let lines = [": hello", "event: x", "data: {\"a\":", "data:\"é\"}", "", "id: 3", ""];
            let more = ["data: [1]", "", "", "data: [DONE]", "", ""];
            let text = lines.iter().chain(&more).copied().collect::<Vec<_>>().join(end);
            assert_eq!(
                read("text/event-stream; charset=utf-8", text.as_bytes()).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn the_last_event_needs_no_end_but_must_be_whole() {
        let read = |text: &str| read("text/event-stream", text.as_bytes()).unwrap();
        assert_eq!(read("data: {}"), [Piece::Said(json!({}))]);
        assert_eq!(read("data: [DONE]"), [Piece::Done]);
        assert_eq!(read("data: {}\n\ndata: {\"a\": [1, 2"), [Piece::Said(json!({}))]);
        assert_eq!(read("\u{feff}data: 1\n\n"), [Piece::Said(json!(1))]);
        assert_eq!(read("{\"error\": 1}\n"), [Piece::Said(json!({"error": 1}))]);
        assert_eq!(read(""), []);
    }

    #[test]
    fn lines_and_whole_texts_are_read() {
        let two = [Piece::Said(json!({"a": 1})), Piece::Said(json!({"a": 2}))];
        assert_eq!(read("application/x-ndjson", b"{\"a\":1}\n\n{\"a\":2}").unwrap(), two);
        assert_eq!(read("application/json", b" {\"a\":1}\n{\"a\":2}\n").unwrap(), two);
        assert_eq!(read("application/json", b"[{\"a\":1},{\"a\":2}]").unwrap(), two);
        assert_eq!(read("application/json", b"{\"a\":1").unwrap(), []);
        assert_eq!(read("text/plain", b"\n{\"a\":1}{\"a\":2}").unwrap(), two);
        assert_eq!(read("text/plain", b"data: {\"a\":1}\n\ndata: {\"a\":2}\n\n").unwrap(), two);
    }

    #[test]
    fn what_is_no_json_is_garbled() {
        for (media, text) in [
            ("text/event-stream", &b"data: {a}\n\n"[..]),
            ("text/event-stream", b"data: \xff\n\n"),
            ("application/x-ndjson", b"{\"a\":1}\nno\n"),
            ("application/json", b"{\"a\":1} x"),
            ("application/json", b"\xff"),
            ("text/plain", b"<html>"),
            ("application/octet-stream", b"\x1f\x8b"),
        ] {
            assert!(matches!(read(media, text), Err(Failure::Garbled(_))), "{media}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        assert!(matches!(Frames::of(&headers), Err(Failure::Garbled(_))));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(matches!(Frames::of(&headers), Err(Failure::Garbled(_))));
    }

    #[test]
    fn a_line_without_an_end_is_read_once() {
        // Ten megabytes in pieces of one byte: whoever looked through all of it at each piece would not come back.
        let mut lines = Lines::default();
        for _ in 0..10_000_000 {
            lines.feed(b"a", |_| Ok(())).unwrap();
        }
        assert_eq!(lines.line.len(), 10_000_000);
    }
}
