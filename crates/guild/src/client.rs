//! Speaks to the node that runs on a data directory.

use std::io::Read;
use std::time::Duration;

use guild_protocol::id::EntryId;
use guild_roles::audit_log::Note;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Response;

use crate::error::{Error, Result, code};
use crate::node::NodeFile;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a node.
pub(crate) struct Client {
    agent: Agent,
    url: String,
    token: String,
}

impl Client {
    pub(crate) fn new(node: &NodeFile) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // A node is on this host: what the environment says of proxies is meant for others.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT))
            .build();
        Client { agent: config.into(), url: node.url.clone(), token: node.token.clone() }
    }

    /// Appends to the audit log; the entry's id and number.
    pub(crate) fn append(&self, note: &Note) -> Result<(EntryId, i64)> {
        let body = json!({
            "entry_id": note.entry_id,
            "actor": note.actor,
            "action": note.action,
            "subject": note.subject,
            "detail": note.detail,
        });
        let answer = self
            .agent
            .post(format!("{}/api/log", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .send_json(&body)
            .map_err(|e| self.unreachable(&e))?;
        let mut answer = self.accepted(answer)?;
        let body: Value = answer.body_mut().read_json().map_err(|e| self.unreachable(&e))?;
        let entry_id = body["entry_id"].as_str().map(str::parse::<EntryId>);
        match (entry_id, body["seq"].as_i64()) {
            (Some(Ok(entry_id)), Some(seq)) => Ok((entry_id, seq)),
            _ => Err(Error::new(&code::NODE_UNREACHABLE, "the node's answer is not understood")),
        }
    }

    /// The stream of the audit log behind number `after`. Ends when the node does.
    pub(crate) fn events(&self, after: i64) -> Result<impl Read + use<>> {
        let answer = self
            .agent
            .get(format!("{}/api/events?after={after}", self.url))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        Ok(self.accepted(answer)?.into_body().into_reader())
    }

    /// A refusal of the node becomes the same refusal here.
    fn accepted(&self, mut answer: Response<ureq::Body>) -> Result<Response<ureq::Body>> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let body: Value = answer.body_mut().read_json().map_err(|e| self.unreachable(&e))?;
        let error = &body["error"];
        let message = error["message"].as_str().unwrap_or("the node refuses").to_owned();
        let name = error["code"].as_str().unwrap_or_default();
        let known = crate::error::all_codes().into_iter().find(|code| code.name == name);
        Err(Error::new(known.unwrap_or(&code::NODE_UNREACHABLE), message))
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        let message = format!("the node at {} does not answer: {error}", self.url);
        Error::new(&code::NODE_UNREACHABLE, message)
    }
}
