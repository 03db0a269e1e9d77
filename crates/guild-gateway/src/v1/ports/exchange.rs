//! One request and its answer over a tunnel: as much of HTTP/1.1 as that needs. Whoever answers is a stranger, so all
//! of it is bounded, and what could be read in two ways is refused.

use std::pin::Pin;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use futures_util::future::{Either, select};
use futures_util::{StreamExt, stream};
use guild_hosting::desk::{Pass, Way};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};

use super::headers;
use crate::{Error, Result};

const HEAD_MAX_BYTES: u64 = 64 << 10;
const HEADERS_MAX: usize = 128;
/// How many words come before the answer at most (100, 103).
const INTERIM_MAX: usize = 8;
const PIECE_BYTES: usize = 64 << 10;

/// What a program in a sandbox answered.
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// What is still to be sent.
type Sending = Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

/// Passes a request on, and gives its answer as it comes.
pub(super) async fn pass(
    Way { tunnel, pass }: Way,
    port: u16,
    target: &str,
    request: Request,
) -> Result<Answered> {
    let is_head = request.method() == Method::HEAD;
    let (parts, body) = request.into_parts();
    let framing = Framing::of(&parts.method, &body);
    let head = head_of(&parts.method, target, port, &headers::inward(&parts.headers), framing);
    let (reader, writer) = tokio::io::split(tunnel);
    let mut sending: Option<Sending> = Some(Box::pin(send(writer, head, body, framing)));
    let mut reader = BufReader::new(reader);
    let (status, headers) = beside(&mut sending, read_head(&mut reader)).await?;
    let left = Left::of(status, &headers, is_head)?;
    let piece = Pieces { reader, left, sending, pass };
    let pieces = stream::unfold(Some(piece), |pieces| async move {
        let mut pieces = pieces?;
        match pieces.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(pieces))),
            Ok(None) => None,
            // An error ends the answer before its end, so nobody takes a part for the whole.
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    });
    Ok(Answered { status, headers, body: Body::from_stream(pieces) })
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Nothing,
    Length(u64),
    Chunks,
}

impl Framing {
    fn of(method: &Method, body: &Body) -> Framing {
        let may_be_empty = !matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        match body.size_hint().exact() {
            Some(0) if may_be_empty => Framing::Nothing,
            Some(length) => Framing::Length(length),
            None => Framing::Chunks,
        }
    }
}

fn head_of(
    method: &Method,
    target: &str,
    port: u16,
    headers: &HeaderMap,
    framing: Framing,
) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nhost: localhost:{port}\r\n").into_bytes();
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let framing = match framing {
        Framing::Nothing => String::new(),
        Framing::Length(length) => format!("content-length: {length}\r\n"),
        Framing::Chunks => "transfer-encoding: chunked\r\n".to_owned(),
    };
    head.extend_from_slice(format!("{framing}connection: close\r\n\r\n").as_bytes());
    head
}

/// Sends a request. Whoever has heard enough answers and closes; then what is left is not sent.
async fn send(
    mut to: impl AsyncWrite + Unpin,
    head: Vec<u8>,
    body: Body,
    framing: Framing,
) -> std::io::Result<()> {
    to.write_all(&head).await?;
    let mut body = body.into_data_stream();
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(std::io::Error::other)?;
        match framing {
            // An empty chunk would be the end.
            Framing::Chunks if piece.is_empty() => {}
            Framing::Chunks => {
                to.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await?;
                to.write_all(&piece).await?;
                to.write_all(b"\r\n").await?;
            }
            Framing::Length(_) => to.write_all(&piece).await?,
            Framing::Nothing => {}
        }
    }
    if framing == Framing::Chunks {
        to.write_all(b"0\r\n\r\n").await?;
    }
    to.flush().await
}

/// Does something while what is to be sent is sent.
async fn beside<T>(sending: &mut Option<Sending>, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Some(future) = sending {
        match select(work.as_mut(), future).await {
            Either::Left((done, _)) => return done,
            // If it could not be sent, the answer says why, or there is none.
            Either::Right(_) => *sending = None,
        }
    }
    work.await
}

fn bad<T>(why: &str) -> Result<T> {
    Err(Error::PortAnswer(why.to_owned()))
}

/// The head of an answer.
async fn read_head(
    reader: &mut (impl AsyncRead + AsyncBufReadExt + Unpin),
) -> Result<(StatusCode, HeaderMap)> {
    for _ in 0..INTERIM_MAX {
        let mut left = HEAD_MAX_BYTES;
        let status = status_of(&line(reader, &mut left).await?)?;
        let mut headers = HeaderMap::new();
        loop {
            let line = line(reader, &mut left).await?;
            if line.is_empty() {
                break;
            }
            if headers.len() >= HEADERS_MAX {
                return bad("there are too many headers");
            }
            let (name, value) = header_of(&line)?;
            headers.append(name, value);
        }
        match status.as_u16() {
            101 => return bad("it changes the protocol though nobody asked for it"),
            100..=199 => {}
            _ => return Ok((status, headers)),
        }
    }
    bad("it does not come to an answer")
}

/// A line without its end.
async fn line(
    reader: &mut (impl AsyncRead + AsyncBufReadExt + Unpin),
    left: &mut u64,
) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let read = reader.take(*left).read_until(b'\n', &mut line).await;
    let read = read.map_err(|e| Error::PortAnswer(e.to_string()))?;
    *left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
    if line.pop() != Some(b'\n') {
        return bad(if *left == 0 { "its head is too long" } else { "it breaks off" });
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(line)
}

fn status_of(line: &[u8]) -> Result<StatusCode> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
    let digits = rest.and_then(|rest| rest.split(|b| *b == b' ').next());
    match digits.and_then(|digits| StatusCode::from_bytes(digits).ok()) {
        Some(status) if status.as_u16() < 600 => Ok(status),
        _ => bad("it is not HTTP/1.1"),
    }
}

fn header_of(line: &[u8]) -> Result<(HeaderName, HeaderValue)> {
    let at = line.iter().position(|b| *b == b':');
    let Some((name, value)) = at.and_then(|at| line.split_at_checked(at)) else {
        return bad("a header has no name");
    };
    let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
    match (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        (Ok(name), Ok(value)) => Ok((name, value)),
        _ => bad("a header is not of its form"),
    }
}

/// How much of an answer is to come.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    Bytes(u64),
    /// Of the chunk that has begun.
    Chunk(u64),
    /// All until the connection ends.
    ToTheEnd,
    Nothing,
}

impl Left {
    fn of(status: StatusCode, headers: &HeaderMap, is_head: bool) -> Result<Left> {
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        let length = lengths.next();
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let coding = codings.next();
        if lengths.next().is_some()
            || codings.next().is_some()
            || (length.is_some() && coding.is_some())
        {
            return bad("it says twice how long it is");
        }
        let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        let left = match (length, coding) {
            (Some(length), _) => {
                let digits = length.to_str().unwrap_or_default();
                let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                match digits.parse().ok().filter(|_| is_number) {
                    Some(length) => Left::Bytes(length),
                    None => return bad("its length is no number"),
                }
            }
            (None, Some(coding)) if is_chunked(coding) => Left::Chunk(0),
            (None, Some(_)) => return bad("it is coded in a way that nobody asked for"),
            (None, None) => Left::ToTheEnd,
        };
        let has_none = is_head || matches!(status.as_u16(), 204 | 304);
        Ok(if has_none { Left::Nothing } else { left })
    }
}

/// The pieces of an answer as they come.
struct Pieces<R> {
    reader: BufReader<R>,
    left: Left,
    sending: Option<Sending>,
    pass: Pass,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    /// The next piece; `None` behind the last.
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let piece = beside(&mut self.sending, piece(&mut self.reader, &mut self.left)).await?;
        // Whoever reads uses the sandbox, for as long as it may.
        if piece.is_some() {
            self.pass.used().await?;
        }
        Ok(piece)
    }
}

async fn piece(
    reader: &mut BufReader<impl AsyncRead + Unpin>,
    left: &mut Left,
) -> Result<Option<Vec<u8>>> {
    let most = match *left {
        Left::Nothing | Left::Bytes(0) => return Ok(None),
        Left::Bytes(left) => left,
        Left::Chunk(0) => match chunk(reader).await? {
            0 => {
                *left = Left::Nothing;
                return Ok(None);
            }
            size => size,
        },
        Left::Chunk(left) => left,
        Left::ToTheEnd => u64::MAX,
    };
    let mut piece = vec![0; usize::try_from(most).unwrap_or(usize::MAX).min(PIECE_BYTES)];
    let read = reader.read(&mut piece).await.map_err(|e| Error::PortAnswer(e.to_string()))?;
    if read == 0 {
        return if *left == Left::ToTheEnd { Ok(None) } else { bad("it breaks off") };
    }
    piece.truncate(read);
    let rest = most.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
    match left {
        Left::Bytes(left) => *left = rest,
        Left::Chunk(left) => {
            *left = rest;
            if rest == 0 {
                let mut few = 2;
                if !line(reader, &mut few).await?.is_empty() {
                    return bad("a chunk is longer than it says");
                }
            }
        }
        Left::ToTheEnd | Left::Nothing => {}
    }
    Ok(Some(piece))
}

/// The size of the next chunk. What follows the last is read and not passed on.
async fn chunk(reader: &mut BufReader<impl AsyncRead + Unpin>) -> Result<u64> {
    let mut most = HEAD_MAX_BYTES;
    let head = line(reader, &mut most).await?;
    let digits = head.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let size = u64::from_str_radix(digits, 16).ok().filter(|_| is_number);
    let Some(size) = size else { return bad("a chunk has no size") };
    while size == 0 && !line(reader, &mut most).await?.is_empty() {}
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn heard(answer: &[u8], is_head: bool) -> Result<(u16, Vec<u8>)> {
        let mut reader = BufReader::new(answer);
        let (status, headers) = read_head(&mut reader).await?;
        let mut left = Left::of(status, &headers, is_head)?;
        let mut whole = Vec::new();
        while let Some(piece) = piece(&mut reader, &mut left).await? {
            whole.extend(piece);
        }
        Ok((status.as_u16(), whole))
    }

    #[tokio::test]
    async fn answers_are_read_in_every_form() {
        let good: [(&[u8], u16, &[u8]); 7] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", 200, b"abc"),
            (b"HTTP/1.0 200 OK\r\n\r\nto the end", 200, b"to the end"),
            (b"HTTP/1.1 404\nX: y\n\nabc", 404, b"abc"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: t\r\n\r\n",
                200,
                b"abc",
            ),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 C\r\ncontent-length: 0\r\n\r\n", 201, b""),
            (b"HTTP/1.1 204 No Content\r\n\r\nabc", 204, b""),
            (b"HTTP/1.1 304 N\r\ncontent-length: 9\r\n\r\n", 304, b""),
        ];
        for (answer, status, body) in good {
            let heard = heard(answer, false).await.unwrap();
            assert_eq!(heard, (status, body.to_vec()), "{}", String::from_utf8_lossy(answer));
        }
        let head = heard(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true).await.unwrap();
        assert_eq!(head, (200, Vec::new()));
    }

    #[tokio::test]
    async fn what_can_be_read_in_two_ways_is_refused() {
        let bad: [&[u8]; 17] = [
            b"",
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 99 x\r\n\r\n",
            b"HTTP/1.1 700 x\r\n\r\n",
            b"HTTP/1.1 101 Switching\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
            b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nbad\x01name: x\r\n\r\n",
        ];
        for answer in bad {
            let heard = heard(answer, false).await;
            assert!(heard.is_err(), "{}: {heard:?}", String::from_utf8_lossy(answer));
        }
        let long = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; 70_000]].concat();
        assert!(heard(&long, false).await.is_err());
        let many = b"HTTP/1.1 200 OK\r\n"
            .iter()
            .copied()
            .chain(b"a: b\r\n".repeat(500))
            .collect::<Vec<u8>>();
        assert!(heard(&many, false).await.is_err());
        let never = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        assert!(heard(&never, false).await.is_err());
    }

    #[tokio::test]
    async fn a_request_is_sent_with_its_length_or_in_chunks() {
        let sent = async |method: Method, body: Body| {
            let framing = Framing::of(&method, &body);
            let head = head_of(&method, "/x", 80, &HeaderMap::new(), framing);
            let mut sent = Vec::new();
            send(&mut sent, head, body, framing).await.unwrap();
            String::from_utf8(sent).unwrap()
        };
        let begin = "HTTP/1.1\r\nhost: localhost:80\r\n";
        assert_eq!(
            sent(Method::GET, Body::empty()).await,
            format!("GET /x {begin}connection: close\r\n\r\n")
        );
        assert_eq!(
            sent(Method::POST, Body::empty()).await,
            format!("POST /x {begin}content-length: 0\r\nconnection: close\r\n\r\n")
        );
        assert_eq!(
            sent(Method::GET, Body::from("abc")).await,
            format!("GET /x {begin}content-length: 3\r\nconnection: close\r\n\r\nabc")
        );
        let pieces =
            ["ab", "", "c"].map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from(piece)));
        assert_eq!(
            sent(Method::PUT, Body::from_stream(stream::iter(pieces))).await,
            format!(
                "PUT /x {begin}transfer-encoding: chunked\r\nconnection: close\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
            )
        );
    }
}
