//! Content through the node that runs, by the calls that Kubo's clients make too.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Map, Value};
use ureq::SendBody;

use super::{Client, not_understood};
use crate::error::{Error, Result, code};

/// The most lines that an answer has.
const LINES_MAX: usize = 200_000;
/// The longest answer.
const ANSWER_MAX_BYTES: u64 = 64 * 1024 * 1024;

impl Client {
    /// Adds what the body has in its parts; a line for each file and directory.
    pub(crate) fn content_add(
        &self,
        query: &str,
        content_type: &str,
        body: &mut dyn Read,
    ) -> Result<Vec<Map<String, Value>>> {
        let sent = super::patient_agent()
            .post(format!("{}/api/v0/add?{query}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", content_type)
            .send(SendBody::from_reader(body))
            .map_err(|e| self.unreachable(&e))?;
        let answer = self.accepted(sent)?.into_body().into_reader();
        let mut lines = Vec::new();
        for line in BufReader::new(answer.take(ANSWER_MAX_BYTES)).lines().take(LINES_MAX) {
            let line = line.map_err(|e| Error::new(&code::NODE_UNREACHABLE, e.to_string()))?;
            lines.push(serde_json::from_str(&line).map_err(|_| not_understood())?);
        }
        Ok(lines)
    }

    /// Any other call, which has all that it says in its address.
    pub(crate) fn content_call(&self, call: &str) -> Result<Value> {
        let answer = super::patient_agent()
            .post(format!("{}/api/v0/{call}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .send_empty()
            .map_err(|e| self.unreachable(&e))?;
        self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }
}
