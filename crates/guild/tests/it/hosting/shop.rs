//! A node that sells sandboxes, and somebody with money there, over plain HTTP.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStderr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use super::{HOSTING, good, text};
use crate::node::Node;
use crate::support::Home;

pub(super) struct Shop {
    node: Option<Node>,
    log: BufReader<ChildStderr>,
    pub(super) operator: Home,
    pub(super) url: String,
    /// The buyer's session.
    pub(super) token: String,
    agent: Agent,
    keys: AtomicU64,
}

impl Shop {
    /// A node with these settings, and a buyer with ten dollars.
    pub(super) fn open(more: &[&str]) -> Shop {
        let (operator, buyer) = (Home::new(), Home::new());
        let (node, log) = Node::up_with_log(&operator, &[&HOSTING, more].concat());
        let url = format!("http://{}", node.address());
        good(&buyer, &["key", "new"]);
        let signed_in = good(&buyer, &["login", "--host", &url]);
        let user_id = text(&signed_in, "user_id");
        good(&operator, &["billing", "credit", &user_id, "10usd", "--reference", "wire 1"]);
        let file = buyer.path().join(".local/share/guildhall/hosting.json");
        let session: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(120)))
            .build();
        Shop {
            node: Some(node),
            log,
            operator,
            url,
            token: text(&session, "token"),
            agent: config.into(),
            keys: AtomicU64::new(0),
        }
    }

    /// The node's own token.
    pub(super) fn node_token(&self) -> String {
        let file = self.operator.path().join(".local/share/guildhall/node.json");
        text(&serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap(), "token")
    }

    /// Asks with the buyer's token and a key of its own: status and body.
    pub(super) fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let key = format!("key-{}", self.keys.fetch_add(1, Ordering::SeqCst));
        self.ask_as(&key, method, path, body)
    }

    /// Asks with the buyer's token and this key.
    pub(super) fn ask_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .header("idempotency-key", key)
            .body(body)
            .unwrap();
        let mut answer = self.agent.run(request).unwrap();
        let mut bytes = Vec::new();
        answer.body_mut().as_reader().read_to_end(&mut bytes).unwrap();
        (answer.status().as_u16(), bytes)
    }

    pub(super) fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.ask("GET", path, b"");
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.ask("POST", path, body.to_string().as_bytes());
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(super) fn post_as(&self, key: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, body) = self.ask_as(key, "POST", path, body.to_string().as_bytes());
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The code of a refusal.
    pub(super) fn refused(&self, method: &str, path: &str, body: &[u8]) -> (u16, String) {
        let (status, body) = self.ask(method, path, body);
        let answer: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    /// A job with a dollar, and a sandbox in it that runs: their paths.
    pub(super) fn sandbox(&self) -> (String, String) {
        let (status, job) = self.post("/v1/jobs", &json!({"max_spend_cents": 100, "ttl_s": 3600}));
        assert_eq!(status, 201, "{job}");
        let job = format!("/v1/jobs/{}", text(&job, "job_id"));
        let wanted = json!({"image": "sandbox-base:v1.0.0", "disk_mib": 64});
        let (status, bought) = self.post(&format!("{job}/sandboxes"), &wanted);
        assert_eq!(status, 201, "{bought}");
        let sandbox = format!("/v1/sandboxes/{}", text(&bought, "sandbox_id"));
        for _ in 0..600 {
            let (_, shown) = self.get(&sandbox);
            match shown["status"].as_str().unwrap_or_default() {
                "starting" => testbed::wait_ms(100),
                "running" => return (job, sandbox),
                other => panic!("{other}: {shown}"),
            }
        }
        panic!("it does not start");
    }

    /// Starts a command: the path of what it prints.
    pub(super) fn exec(&self, sandbox: &str, body: &Value) -> String {
        let (status, started) = self.post(&format!("{sandbox}/exec"), body);
        assert_eq!(status, 201, "{started}");
        format!("{sandbox}/exec/{}", text(&started, "exec_id"))
    }

    /// All frames of a command, to its end.
    pub(super) fn frames(&self, exec: &str) -> Vec<Value> {
        let (status, body) = self.ask("GET", exec, b"");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let lines = String::from_utf8(body).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The frames of a command as they come, once its reader has heard that it is there.
    pub(super) fn opened(&self, exec: &str) -> impl Iterator<Item = Value> + use<> {
        let request = Request::get(format!("{}{exec}", self.url))
            .header("authorization", format!("Bearer {}", self.token));
        let answer = self.agent.run(request.body(()).unwrap()).unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// Runs a line of the shell: what it prints, and the last frame.
    pub(super) fn shell(&self, sandbox: &str, line: &str) -> (String, Value) {
        let exec = self.exec(sandbox, &json!({"argv": ["bash", "-c", line], "timeout_ms": 20_000}));
        let mut frames = self.frames(&exec);
        let last = frames.pop().unwrap();
        let printed = frames.iter().map(|frame| text(frame, "data_b64")).collect::<String>();
        (printed, last)
    }

    /// Stops the node; all that it said.
    pub(super) fn close(mut self) -> (String, Home) {
        assert_eq!(self.node.take().unwrap().stop(), 0);
        let mut said = String::new();
        self.log.read_to_string(&mut said).unwrap();
        (said, self.operator)
    }
}
