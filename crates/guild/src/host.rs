//! Speaks to a node that sells sandboxes, for whoever is signed in there.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use guild_network::client::Trust;
use guild_protocol::env::Random;
use guild_protocol::hash::{Hash, to_hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::Response;
use ureq::{Agent, RequestBuilder};

use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::input::{Existing, write_whole};
use crate::keystore::{OWNER_ONLY, refuse_readable_by_others};
use crate::real::SystemRandom;
use crate::reply;

mod secure;

const FILE: &str = "hosting.json";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a request is sent again that got no answer. Each carries the same idempotency key.
const TRIES: u32 = 3;

/// Where somebody is signed in. Kept in the data directory, for its owner alone.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) user_id: String,
    pub(crate) expires_ms: i64,
    /// Who must have certified the node, if that is not left to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<PathBuf>,
}

impl Session {
    fn path(loaded: &Loaded) -> PathBuf {
        loaded.data_file(FILE)
    }

    pub(crate) fn read(loaded: &Loaded) -> Result<Session> {
        let path = Session::path(loaded);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(&code::HOST_SIGNED_OUT, "you are not signed in anywhere"));
            }
            Err(e) => return Err(Error::io(&path, &e)),
        };
        refuse_readable_by_others(&path)?;
        serde_json::from_slice(&text).map_err(|_| unreadable(&path))
    }

    pub(crate) fn write(&self, loaded: &Loaded) -> Result<()> {
        let path = Session::path(loaded);
        let text = serde_json::to_vec(self).map_err(|_| unreadable(&path))?;
        write_whole(&path, &text, OWNER_ONLY, Existing::Replace)
    }

    pub(crate) fn forget(loaded: &Loaded) -> Result<()> {
        let path = Session::path(loaded);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&path, &e)),
            _ => Ok(()),
        }
    }
}

fn unreadable(path: &Path) -> Error {
    Error::new(&code::HOST_SIGNED_OUT, "the file is not one that guild wrote").in_file(path)
}

/// A new idempotency key.
fn new_key() -> String {
    let mut key = [0; 16];
    SystemRandom.fill(&mut key);
    to_hex(&key)
}

/// A node that sells sandboxes.
pub(crate) struct Host {
    agent: Agent,
    url: String,
    authorization: Option<String>,
    /// Who must have certified the node, if that is not left to the host.
    trust: Option<Trust>,
}

impl Host {
    /// For whoever is signed in.
    pub(crate) fn of(loaded: &Loaded) -> Result<Host> {
        let session = Session::read(loaded)?;
        Ok(Host {
            authorization: Some(format!("Bearer {}", session.token)),
            ..Host::at(&session.url, session.ca_file.as_deref())?
        })
    }

    /// For a stranger. Behind https it must be certified by whom the file names, or by whom this host trusts.
    pub(crate) fn at(url: &str, ca_file: Option<&Path>) -> Result<Host> {
        let secure = secure::is_secure(url);
        if ca_file.is_some() && !secure {
            return Err(Error::new(&code::USAGE, "certificates are for a node behind https://"));
        }
        let trust = ca_file.map(secure::of_file).transpose()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The node that is named is the one that is asked: nothing goes where an answer points.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(ANSWER_TIMEOUT));
        let config = match secure {
            true => config.https_only(true).tls_config(secure::config(trust.as_ref())?),
            false => config,
        };
        let url = url.trim_end_matches('/').to_owned();
        Ok(Host { agent: config.build().into(), url, authorization: None, trust })
    }

    /// With the token of the node itself, for its operator.
    pub(crate) fn operator(url: &str, token: &str) -> Result<Host> {
        Ok(Host { authorization: Some(format!("Bearer {token}")), ..Host::at(url, None)? })
    }

    /// With another word for who asks.
    pub(crate) fn authorized(self, authorization: String) -> Host {
        Host { authorization: Some(authorization), ..self }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Who must have certified the node, if that is not left to the host.
    pub(crate) fn trust(&self) -> Option<&Trust> {
        self.trust.as_ref()
    }

    /// The word for who asks.
    pub(crate) fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        let mut answer = self.asked(path)?;
        answer.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    /// A stream, as it comes.
    pub(crate) fn read(&self, path: &str) -> Result<impl Read + use<>> {
        self.fetch(path).map(|(_, body)| body)
    }

    /// A file as it comes, and how long it is, if that is said.
    pub(crate) fn fetch(&self, path: &str) -> Result<(Option<u64>, impl Read + use<>)> {
        let body = self.asked(path)?.into_body();
        Ok((body.content_length(), body.into_reader()))
    }

    fn asked(&self, path: &str) -> Result<Response<ureq::Body>> {
        self.retried(|| self.authorized_by(self.agent.get(format!("{}{path}", self.url))).call())
    }

    /// The request with the word for who asks, if there is one.
    fn authorized_by<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    }

    /// Writes: under a key of its own, so that it happens once however often it must be sent.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.post_as(path, body, &new_key())
    }

    /// Removes something, once however often it must be sent.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        let key = new_key();
        let mut answer = self.retried(|| {
            let request = self.agent.delete(format!("{}{path}", self.url));
            self.authorized_by(request.header("idempotency-key", &key)).call()
        })?;
        answer.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    fn post_as(&self, path: &str, body: &Value, key: &str) -> Result<Value> {
        let mut answer = self.retried(|| {
            let request = self.agent.post(format!("{}{path}", self.url));
            self.authorized_by(request).header("idempotency-key", key).send_json(body)
        })?;
        let text = answer.body_mut().read_to_vec().map_err(|e| self.unreachable(&e))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text)
            .map_err(|_| Error::new(&code::NODE_UNREACHABLE, "the node's answer is not understood"))
    }

    /// Sends a file as it is read, with its hash ahead.
    pub(crate) fn put_file(&self, path: &str, file: &File, hash: &Hash) -> Result<Value> {
        let digest = format!("sha-256=:{}:", STANDARD.encode(hash.as_bytes()));
        let key = new_key();
        let mut answer = self.retried(|| {
            // Again from its beginning, if it must be sent again.
            { file }.rewind()?;
            let request = self.agent.put(format!("{}{path}", self.url));
            let request = request.header("content-digest", &digest).header("idempotency-key", &key);
            self.authorized_by(request).send(file)
        })?;
        answer.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    fn retried(
        &self,
        send: impl Fn() -> std::result::Result<Response<ureq::Body>, ureq::Error>,
    ) -> Result<Response<ureq::Body>> {
        let mut tries = 1;
        loop {
            match send() {
                Ok(answer) => return self.accepted(answer),
                Err(e) => match secure::distrust(&self.url, &e) {
                    // Whoever is not the node now is not the node a moment later.
                    Some(error) => return Err(error),
                    None if tries < TRIES => tries += 1,
                    None => return Err(self.unreachable(&e)),
                },
            }
        }
    }

    fn accepted(&self, answer: Response<ureq::Body>) -> Result<Response<ureq::Body>> {
        reply::accepted(&self.url, answer)
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        reply::unreachable(&self.url, error)
    }
}
