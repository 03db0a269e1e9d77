//! The parts of a request, one event after the other.

use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use guild_protocol::content::dag_pb::MAX_BLOCK_BYTES;
use tokio::io::AsyncReadExt;

use super::multipart::{Event, Parser};
use crate::v1::pour::Pour;
use crate::{Error, Result, Shared, guard};

/// So many bytes are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A body that is read as it comes.
pub(super) struct Parts {
    parser: Parser,
    pour: Pour,
    piece: Vec<u8>,
}

impl Parts {
    pub(super) fn of(shared: &Shared, request: Request) -> Result<Parts> {
        let content_type = guard::header(request.headers(), &CONTENT_TYPE).unwrap_or_default();
        let parser = Parser::of(content_type)?;
        Ok(Parts { parser, pour: super::pour(shared, request), piece: vec![0; PIECE_BYTES] })
    }

    /// What happens next. A body that ends before its end is refused.
    pub(super) async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(event);
            }
            let read = self.pour.read(&mut self.piece).await;
            if let Some(error) = self.pour.failed() {
                return Err(error);
            }
            match read.map_err(|e| Error::bad("body", e.to_string()))? {
                0 => return Err(Error::bad("body", "ends before its last boundary")),
                read => self.parser.feed(self.piece.get(..read).unwrap_or_default()),
            }
        }
    }
}

/// The bytes of the first part, which must fit into a block.
pub(super) async fn one(shared: &Shared, request: Request) -> Result<Vec<u8>> {
    let mut parts = Parts::of(shared, request)?;
    let mut bytes = Vec::new();
    loop {
        match parts.next().await? {
            Event::Part(_) => {}
            Event::Data(data) => {
                if bytes.len().saturating_add(data.len()) > MAX_BLOCK_BYTES {
                    return Err(Error::TooLarge(MAX_BLOCK_BYTES));
                }
                bytes.extend(data);
            }
            Event::PartEnd => return Ok(bytes),
            Event::End => return Err(Error::bad("body", "has no part")),
        }
    }
}
