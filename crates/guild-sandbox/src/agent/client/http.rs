//! As much of HTTP/1.1 as an agent needs: one request per connection, and answers with a length, in chunks, or to the
//! end. What comes is bounded, and comes from somebody who may not be the agent.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::super::error::{Error, Result, code};

const MAX_HEAD_BYTES: u64 = 64 << 10;
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The head of an answer.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

pub(super) fn broken(error: io::Error) -> Error {
    Error::new(&code::UNREACHABLE, error.to_string())
}

fn bad(why: impl Into<String>) -> Error {
    Error::new(&code::BAD_ANSWER, why)
}

/// A connection for one request.
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.map_err(broken)?;
        // A small request shall not wait for more of it. A socket that is already dead need not.
        let _ = stream.set_nodelay(true);
        Ok(Connection(BufReader::new(stream)))
    }

    /// Sends the head of a request with a body of this length.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        target: &str,
        host: &str,
        authorization: &str,
        length: u64,
    ) -> Result<()> {
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\nauthorization: {authorization}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        self.0.write_all(head.as_bytes()).await.map_err(broken)
    }

    /// Sends a piece of the body. An agent that has heard enough answers and closes: that is no mistake yet, but there
    /// is no use in sending more. Says whether there is.
    pub(super) async fn send(&mut self, piece: &[u8]) -> Result<bool> {
        Ok(self.0.write_all(piece).await.is_ok())
    }

    /// Reads the head of the answer.
    pub(super) async fn head(&mut self) -> Result<Head> {
        let mut left = MAX_HEAD_BYTES;
        let first = self.line(&mut left).await?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = status.and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| bad("the answer is not HTTP/1.1"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line(&mut left).await?;
            if line.is_empty() {
                return Ok(Head { status, headers });
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a header has no name"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// A line without its end.
    async fn line(&mut self, left: &mut u64) -> Result<String> {
        let mut line = Vec::new();
        let read = (&mut self.0).take(*left).read_until(b'\n', &mut line).await.map_err(broken)?;
        *left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        if line.pop() != Some(b'\n') {
            return match *left {
                0 => Err(bad("the head of the answer is too long")),
                _ => Err(broken(io::ErrorKind::UnexpectedEof.into())),
            };
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| bad("the head of the answer is not text"))
    }

    /// The body behind a head.
    pub(super) fn body(self, head: &Head) -> Result<Body> {
        let left = if head.header("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            Left::Chunk(0)
        } else if let Some(length) = head.header("content-length") {
            Left::Bytes(length.parse().map_err(|_| bad("the length of the answer is no number"))?)
        } else if matches!(head.status, 101 | 204) {
            Left::Bytes(0)
        } else {
            return Err(bad("the answer does not say how long it is"));
        };
        Ok(Body { connection: self, left })
    }
}

/// How much of a body is to come.
enum Left {
    Bytes(u64),
    /// Of the chunk that has begun.
    Chunk(u64),
    Nothing,
}

/// A body as it comes.
pub(super) struct Body {
    connection: Connection,
    left: Left,
}

impl Body {
    /// The next piece; `None` behind the last. A body that breaks off is an error.
    pub(super) async fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        let left = match self.left {
            Left::Nothing | Left::Bytes(0) => return Ok(None),
            Left::Bytes(left) => left,
            Left::Chunk(0) => match self.chunk().await? {
                0 => return Ok(None),
                size => size,
            },
            Left::Chunk(left) => left,
        };
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
        let mut piece = vec![0; most];
        let read = self.connection.0.read(&mut piece).await.map_err(broken)?;
        if read == 0 {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        piece.truncate(read);
        let left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        match &mut self.left {
            Left::Bytes(still) => *still = left,
            Left::Chunk(still) => {
                *still = left;
                if left == 0 {
                    let mut end = [0; 2];
                    self.connection.0.read_exact(&mut end).await.map_err(broken)?;
                }
            }
            Left::Nothing => {}
        }
        Ok(Some(piece))
    }

    /// The size of the next chunk.
    async fn chunk(&mut self) -> Result<u64> {
        let mut most = MAX_HEAD_BYTES;
        let line = self.connection.line(&mut most).await?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| bad("a chunk has no size"))?;
        if size == 0 {
            // Trailers are not used, so the empty line behind them is all there is.
            self.connection.line(&mut most).await?;
            self.left = Left::Nothing;
        } else {
            self.left = Left::Chunk(size);
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the client makes of an answer.
    async fn heard(answer: &'static [u8]) -> Result<(u16, Vec<u8>)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (connection, accepted) =
            futures_util::future::join(Connection::open(&address), listener.accept()).await;
        let (mut connection, (mut far, _)) = (connection?, accepted.unwrap());
        far.write_all(answer).await.unwrap();
        drop(far);
        let head = connection.head().await?;
        let status = head.status;
        let mut body = connection.body(&head)?;
        let mut whole = Vec::new();
        while let Some(piece) = body.piece().await? {
            whole.extend(piece);
        }
        Ok((status, whole))
    }

    #[tokio::test]
    async fn answers_are_read_in_every_form() {
        let sized = heard(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd").await.unwrap();
        assert_eq!(sized, (200, b"abc".to_vec()));
        let chunked = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n";
        assert_eq!(heard(chunked).await.unwrap(), (201, b"abc".to_vec()));
        assert_eq!(heard(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap(), (204, Vec::new()));
    }

    #[tokio::test]
    async fn what_is_no_answer_or_breaks_off_is_an_error() {
        let cases: [(&[u8], &str); 9] = [
            (b"", "agent.unreachable"),
            (b"HTTP/1.1 200 OK\r\n", "agent.unreachable"),
            (b"SSH-2.0-x\r\n\r\n", "agent.bad_answer"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "agent.bad_answer"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc", "agent.unreachable"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nabc", "agent.bad_answer"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", "agent.unreachable"),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "agent.bad_answer"),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
                "agent.unreachable",
            ),
        ];
        for (answer, code) in cases {
            let error = heard(answer).await.unwrap_err();
            assert_eq!(error.code().name, code, "{}", String::from_utf8_lossy(answer));
        }
        static LONG: [u8; 70_000] = [b'a'; 70_000];
        assert_eq!(heard(&LONG).await.unwrap_err().code().name, "agent.bad_answer");
    }
}
