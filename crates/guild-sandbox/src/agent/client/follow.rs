//! Follows what a command prints, across broken connections.

use super::super::error::{Error, Result, code};
use super::super::wire::{ExecId, Frame, Stream};
use super::Client;
use super::http::Body;
use futures_util::future::{Either, select};

/// How often a connection that broke is made again, one after another, without a frame between.
const MAX_TRIES: u32 = 8;
const FIRST_PAUSE_MS: i64 = 50;
/// The agent says something more often than this.
const SILENCE_MS: i64 = 45_000;
/// The longest line: a frame is at most some kilobytes.
const MAX_LINE_BYTES: usize = 1 << 20;

/// The frames of a command.
pub struct ExecStream {
    client: Client,
    id: ExecId,
    /// The next frame that is wanted.
    next: u64,
    open: Option<Lines>,
    tries: u32,
    /// Whether anything came over this connection.
    came: bool,
    over: bool,
}

/// Lines of a body that comes.
struct Lines {
    body: Body,
    /// What has come and is no whole line yet, or not looked at.
    held: Vec<u8>,
    at: usize,
}

impl ExecStream {
    pub(super) fn new(client: Client, id: ExecId, from: u64) -> ExecStream {
        ExecStream { client, id, next: from.max(1), open: None, tries: 0, came: false, over: false }
    }

    /// The next frame; `None` behind the end of the command. Numbers have no holes but for what a `gap` says. If the
    /// connection breaks it is made again a few times, from the frame that is missing.
    pub async fn next(&mut self) -> Result<Option<Frame>> {
        while !self.over {
            match self.try_next().await {
                Ok(Some(frame)) => return self.check(frame).map(Some),
                // So much has come that the agent wants to know that it has: the next question says so.
                Ok(None) if self.tries == 0 && self.came => self.open = None,
                // Otherwise it ends a stream without the last frame only when it ends itself.
                Ok(None) => {
                    self.pause(Error::new(&code::UNREACHABLE, "the stream ended early")).await?;
                }
                Err(error) if error.code() == &code::UNREACHABLE => self.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// All that is printed from here on, and the last frame. Fails if more than `max_bytes` come.
    pub async fn collect(mut self, max_bytes: usize) -> Result<(Vec<u8>, Vec<u8>, Frame)> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(frame) = self.next().await? {
            match frame.stream {
                Stream::Stdout => out.extend_from_slice(&frame.data_b64.0),
                Stream::Stderr => err.extend_from_slice(&frame.data_b64.0),
                Stream::Exit => return Ok((out, err, frame)),
                Stream::Gap => {
                    let why = format!("frames up to {} were not kept", frame.seq);
                    return Err(Error::new(&code::BAD_ANSWER, why));
                }
            }
            if out.len() + err.len() > max_bytes {
                return Err(Error::new(&code::BAD_ANSWER, format!("more than {max_bytes} bytes")));
            }
        }
        Err(Error::new(&code::BAD_ANSWER, "the command has no end"))
    }

    /// Drops the connection as if it had broken: the next frame comes over a new one.
    pub fn disconnect(&mut self) {
        self.open = None;
    }

    async fn try_next(&mut self) -> Result<Option<Frame>> {
        if self.open.is_none() {
            let target = format!("/v1/exec/{}/stream?from={}", self.id, self.next);
            let answer = self.client.ask_empty("GET", &target).await?;
            self.open = Some(Lines { body: answer.body, held: Vec::new(), at: 0 });
            self.came = false;
        }
        let Some(lines) = &mut self.open else { return Ok(None) };
        loop {
            match lines.line(&self.client).await? {
                None => return Ok(None),
                Some(line) if line.is_empty() => {}
                Some(line) => {
                    let frame = serde_json::from_slice(&line);
                    let frame = frame.map_err(|e| Error::new(&code::BAD_ANSWER, e.to_string()));
                    return frame.map(Some);
                }
            }
        }
    }

    /// Numbers only go on.
    fn check(&mut self, frame: Frame) -> Result<Frame> {
        let fits = match frame.stream {
            Stream::Gap => frame.seq >= self.next,
            _ => frame.seq == self.next,
        };
        if !fits {
            let why = format!("frame {} came instead of {}", frame.seq, self.next);
            return Err(Error::new(&code::BAD_ANSWER, why));
        }
        (self.next, self.tries, self.came) = (frame.seq + 1, 0, true);
        self.over = frame.stream == Stream::Exit;
        Ok(frame)
    }

    async fn pause(&mut self, why: Error) -> Result<()> {
        self.open = None;
        self.tries += 1;
        if self.tries > MAX_TRIES {
            return Err(why);
        }
        self.client.clock.sleep(FIRST_PAUSE_MS << (self.tries - 1)).await;
        Ok(())
    }
}

impl Lines {
    /// The next line without its end; `None` behind the last.
    async fn line(&mut self, client: &Client) -> Result<Option<Vec<u8>>> {
        loop {
            let rest = self.held.get(self.at..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.get(..end).unwrap_or_default().to_vec();
                self.at += end + 1;
                return Ok(Some(line));
            }
            self.held.drain(..self.at);
            self.at = 0;
            if self.held.len() > MAX_LINE_BYTES {
                return Err(Error::new(&code::BAD_ANSWER, "a line is too long"));
            }
            let piece = std::pin::pin!(self.body.piece());
            let piece = match select(piece, client.clock.sleep(SILENCE_MS)).await {
                Either::Left((piece, _)) => piece?,
                Either::Right(_) => {
                    return Err(Error::new(&code::UNREACHABLE, "nothing came for too long"));
                }
            };
            match piece {
                Some(piece) => self.held.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}
