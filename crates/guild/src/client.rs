//! Speaks to the node that runs on a data directory.

use std::io::Read;
use std::time::Duration;

use guild_protocol::env::Clock;
use guild_protocol::id::EntryId;
use guild_roles::audit_log::Note;
use guild_roles::outbox::{Retried, Which};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ureq::Agent;
use ureq::http::Response;

use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node::{NodeFile, Parts};
use crate::real::{SystemClock, runtime};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a write waits for its turn at the data directory.
const BUSY_WAIT_MS: i64 = 5_000;

/// Writes through the node that runs, or as the node for as long as one write takes. Somebody else may do the same at
/// this moment, or a node may just be starting or ending: then it tries again for a while. So the write must be one
/// that can be repeated.
pub(crate) fn write_through<T>(
    loaded: &Loaded,
    by_node: impl Fn(&Client) -> Result<T>,
    here: impl Fn(&Parts, &Runtime) -> Result<T>,
) -> Result<T> {
    let runtime = runtime()?;
    let until_ms = SystemClock.now_ms().saturating_add(BUSY_WAIT_MS);
    loop {
        let written = match NodeFile::of_running(&loaded.config.data_dir)? {
            Some(node) => by_node(&Client::new(&node)),
            None => Parts::open(loaded).and_then(|parts| {
                let corrected = runtime.block_on(parts.correct_clock());
                let written = corrected.and_then(|()| here(&parts, &runtime));
                parts.close();
                written
            }),
        };
        match written {
            Err(error) if is_passing(&error) && SystemClock.now_ms() < until_ms => {
                runtime.block_on(SystemClock.sleep(50));
            }
            written => return written,
        }
    }
}

fn is_passing(error: &Error) -> bool {
    [&code::NODE_RUNNING, &code::NODE_UNREACHABLE].contains(&error.code())
}

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

    /// Tries dead letters again.
    pub(crate) fn retry(&self, which: &Which) -> Result<Retried> {
        let body = match which {
            Which::Named(seqs) => json!({ "seqs": seqs }),
            Which::AllDead { sink } => json!({ "all_dead": true, "sink": sink }),
        };
        let answer = self
            .agent
            .post(format!("{}/api/outbox/retry", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .send_json(&body)
            .map_err(|e| self.unreachable(&e))?;
        let mut answer = self.accepted(answer)?;
        let body: Value = answer.body_mut().read_json().map_err(|e| self.unreachable(&e))?;
        let numbers = |name: &str| {
            let list = body[name].as_array()?;
            list.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()
        };
        match (numbers("retried"), numbers("not_dead")) {
            (Some(retried), Some(not_dead)) => Ok(Retried { retried, not_dead }),
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
