//! Speaks to the node that runs on a data directory.

use std::io::Read;
use std::time::Duration;

use guild_gateway::encoded;
use guild_protocol::env::Clock;
use guild_protocol::id::EntryId;
use guild_roles::agents::{AgentKey, AgentTurnId, Stopped, Task};
use guild_roles::audit_log::Note;
use guild_roles::judgements::Judged;
use guild_roles::outbox::{Retried, Which};
use guild_roles::reviews::ReviewId;
use guild_roles::router::{Entry, Quarantine, TaskType};
use guild_roles::treasury::{Account, Approval, Changed, NewTransfer, RuleChange, Step};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ureq::Agent;
use ureq::http::Response;

use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::node::{NodeFile, Parts};
use crate::real::{SystemClock, runtime};
use crate::reply;

mod content;

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

/// What became of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    /// Whether it was booked now.
    pub(crate) is_new: bool,
    /// Its number in the history.
    pub(crate) seq: i64,
    /// What it moved, held or gave back.
    pub(crate) units: i64,
}

fn not_understood() -> Error {
    Error::new(&code::NODE_UNREACHABLE, "the node's answer is not understood")
}

fn is_new(answer: &Value) -> Option<bool> {
    match answer["outcome"].as_str() {
        Some("new") => Some(true),
        Some("known") => Some(false),
        _ => None,
    }
}

fn changed(answer: &Value) -> Result<Changed> {
    match (is_new(answer), answer["seq"].as_i64()) {
        (Some(true), Some(seq)) => Ok(Changed::New(seq)),
        (Some(false), _) => Ok(Changed::Known),
        _ => Err(not_understood()),
    }
}

/// What anybody gets at a path of a node, without its token.
pub(crate) fn look(node_url: &str, path: &str) -> Result<Vec<u8>> {
    let stranger = Client { agent: agent(), url: node_url.to_owned(), token: String::new() };
    let answer = stranger.agent.get(format!("{node_url}{path}")).call();
    let mut answer = stranger.accepted(answer.map_err(|e| stranger.unreachable(&e))?)?;
    answer.body_mut().read_to_vec().map_err(|e| stranger.unreachable(&e))
}

fn agent() -> Agent {
    agent_within(Some(ANSWER_TIMEOUT))
}

/// For what takes as long as there is much of it.
fn patient_agent() -> Agent {
    agent_within(None)
}

fn agent_within(answer_timeout: Option<Duration>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        // A node is on this host: what the environment says of proxies is meant for others.
        .proxy(None)
        // And it points nowhere else.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(answer_timeout)
        .build();
    config.into()
}

/// A connection to a node.
pub(crate) struct Client {
    agent: Agent,
    url: String,
    token: String,
}

impl Client {
    pub(crate) fn new(node: &NodeFile) -> Client {
        Client { agent: agent(), url: node.url.clone(), token: node.token.clone() }
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
        let body = self.post("/api/log", &body)?;
        let entry_id = body["entry_id"].as_str().map(str::parse::<EntryId>);
        match (entry_id, body["seq"].as_i64()) {
            (Some(Ok(entry_id)), Some(seq)) => Ok((entry_id, seq)),
            _ => Err(not_understood()),
        }
    }

    /// Tries dead letters again.
    pub(crate) fn retry(&self, which: &Which) -> Result<Retried> {
        let body = match which {
            Which::Named(seqs) => json!({ "seqs": seqs }),
            Which::AllDead { sink } => json!({ "all_dead": true, "sink": sink }),
        };
        let body = self.post("/api/outbox/retry", &body)?;
        let numbers = |name: &str| {
            let list = body[name].as_array()?;
            list.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()
        };
        match (numbers("retried"), numbers("not_dead")) {
            (Some(retried), Some(not_dead)) => Ok(Retried { retried, not_dead }),
            _ => Err(not_understood()),
        }
    }

    /// Asks an agent for a turn; its name.
    pub(crate) fn ask_turn(&self, task: &Task) -> Result<AgentTurnId> {
        let body = serde_json::to_value(task).map_err(|_| not_understood())?;
        let body = self.post("/api/turns", &body)?;
        let id = body["agent_turn_id"].as_str().map(str::parse::<AgentTurnId>);
        id.and_then(|id| id.ok()).ok_or_else(not_understood)
    }

    /// Ends a turn.
    pub(crate) fn stop_turn(&self, id: &AgentTurnId, reason: &str) -> Result<Stopped> {
        let body = self.post(&format!("/api/turns/{id}/stop"), &json!({ "reason": reason }))?;
        let outcome = body["outcome"].as_str().and_then(Stopped::parse);
        outcome.ok_or_else(not_understood)
    }

    /// Keeps a verdict of the judge.
    pub(crate) fn keep_judgement(&self, judged: &Judged) -> Result<()> {
        let body = json!({
            "provider": judged.provider,
            "at_ms": judged.at_ms,
            "verdict": judged.verdict,
        });
        self.post("/api/judgements", &body).map(drop)
    }

    /// Publishes a signed event, given as JSON; the relays that it goes to.
    pub(crate) fn publish(&self, event_json: &str) -> Result<Vec<String>> {
        let answer = self
            .agent
            .post(format!("{}/api/relays/publish", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .send(event_json)
            .map_err(|e| self.unreachable(&e))?;
        let body: Value =
            self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))?;
        let relays = body["relays"].as_array().ok_or_else(not_understood)?;
        Ok(relays.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// What the node knows of the relays of others.
    pub(crate) fn relays(&self) -> Result<Value> {
        let answer = self
            .agent
            .get(format!("{}/api/relays", self.url))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        let body: Value =
            self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))?;
        match (&body["relays"], &body["known"]) {
            (Value::Array(_), Value::Array(_)) => Ok(body),
            _ => Err(not_understood()),
        }
    }

    /// Says that the present time is right; what the meter of sandboxes makes of it then.
    pub(crate) fn accept_clock(&self) -> Result<Value> {
        self.post("/v1/operator/clock/accept", &json!({}))
    }

    /// Takes a provider out of the choice, or back into it; what the matrix believes of it then.
    pub(crate) fn quarantine(&self, asked: &Quarantine) -> Result<Vec<(TaskType, Entry)>> {
        let body = json!({
            "provider": asked.provider,
            "task": asked.task,
            "until_ms": asked.until_ms,
            "lift": asked.lift,
            "reason": asked.reason,
            "idempotency_key": asked.idempotency_key,
        });
        let told = self.post("/api/routing/quarantine", &body)?;
        let entries = told["entries"].as_array().ok_or_else(not_understood)?;
        let entry = |told: &Value| {
            let task = serde_json::from_value(told["task"].clone()).ok()?;
            Some((task, serde_json::from_value(told["entry"].clone()).ok()?))
        };
        entries.iter().map(entry).collect::<Option<_>>().ok_or_else(not_understood)
    }

    /// Sets an envelope; whether it is new, was known, or is taken away.
    pub(crate) fn set_budget(&self, envelope: &Value) -> Result<String> {
        let told = self.post("/api/budgets/set", envelope)?;
        told["outcome"].as_str().map(str::to_owned).ok_or_else(not_understood)
    }

    /// Has a review published; how it stands then.
    pub(crate) fn publish_review(&self, review_id: &ReviewId, now: bool) -> Result<Value> {
        self.post("/api/reviews/publish", &json!({ "review_id": review_id, "now": now }))
    }

    /// Files a dispute; how it stands then.
    pub(crate) fn file_dispute(&self, dispute: &Value) -> Result<Value> {
        self.post("/api/disputes", dispute)
    }

    /// Answers a dispute (`answer`), or decides it (`resolve`); how it stands then.
    pub(crate) fn dispute(&self, dispute_id: &str, what: &str, said: &Value) -> Result<Value> {
        self.post(&format!("/api/disputes/{dispute_id}/{what}"), said)
    }

    /// Begins to get to know a provider; the meeting as it stands.
    pub(crate) fn meet(&self, meeting: &Value) -> Result<Value> {
        self.post("/api/meetings", meeting)
    }

    /// A meeting as it stands, with its trials and what was said.
    pub(crate) fn meeting(&self, meeting_id: &str) -> Result<Value> {
        let answer = self
            .agent
            .get(format!("{}/api/meetings/{meeting_id}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    /// Orders work; the order as it stands.
    pub(crate) fn hire(&self, order: &Value) -> Result<Value> {
        self.post("/api/orders", order)
    }

    /// An order as it stands, with what was answered to it.
    pub(crate) fn order(&self, order_id: &str) -> Result<Value> {
        let answer = self
            .agent
            .get(format!("{}/api/orders/{order_id}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    /// Gives an order up; the order as it stands then.
    pub(crate) fn cancel(&self, order_id: &str) -> Result<Value> {
        let answer = self
            .agent
            .delete(format!("{}/api/orders/{order_id}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    /// Has several do the same work; how they are getting on.
    pub(crate) fn delegate(&self, delegation: &Value) -> Result<Value> {
        self.post("/api/delegations", delegation)
    }

    /// How those are getting on who do the same work.
    pub(crate) fn delegation(&self, delegation_id: &str) -> Result<Value> {
        let answer = self
            .agent
            .get(format!("{}/api/delegations/{delegation_id}/course", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        self.accepted(answer)?.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    /// Hands in what a guardian has signed; the state of the quote.
    pub(crate) fn approve(&self, approval: &Approval) -> Result<String> {
        let document: Value = serde_json::from_str(&approval.to_canonical()?)
            .map_err(|e| Error::new(&code::IO_FAILED, e.to_string()))?;
        let told = self.post("/api/ledger/approval", &document)?;
        told["state"].as_str().map(str::to_owned).ok_or_else(not_understood)
    }

    /// Opens an account.
    pub(crate) fn open_account(&self, account: &Account) -> Result<Changed> {
        let body = json!({
            "owner": account.owner,
            "purpose": account.purpose,
            "asset_id": account.asset_id,
            "limit": account.limit.as_str(),
        });
        changed(&self.post("/api/ledger/account", &body)?)
    }

    /// Books a transfer; whether it is new, and its number.
    pub(crate) fn transfer(&self, transfer: &NewTransfer) -> Result<Told> {
        let mut row = json!({
            "transfer_id": transfer.transfer_id,
            "step": transfer.step.name().as_str(),
            "memo": transfer.memo,
        });
        match &transfer.step {
            Step::Post { debit, credit, amount } | Step::Hold { debit, credit, amount, .. } => {
                row["debit"] = json!(debit);
                row["credit"] = json!(credit);
                row["asset_id"] = json!(amount.asset_id);
                row["units"] = json!(amount.units.to_string());
            }
            Step::Settle { hold, units } => {
                row["hold"] = json!(hold);
                row["units"] = json!(units.map(|units| units.to_string()));
            }
            Step::Void { hold } | Step::Expire { hold } => row["hold"] = json!(hold),
        }
        if let Step::Hold { expires_ms, .. } = &transfer.step {
            row["expires_ms"] = json!(expires_ms);
        }
        let body = self.post("/api/ledger/transfer", &json!({ "transfers": [row] }))?;
        let told = &body["transfers"][0];
        let units = told["units"].as_str().and_then(|units| units.parse().ok());
        match (is_new(told), told["seq"].as_i64(), units) {
            (Some(is_new), Some(seq), Some(units)) => Ok(Told { is_new, seq, units }),
            _ => Err(not_understood()),
        }
    }

    /// Changes the rule of an account.
    pub(crate) fn set_rule(&self, account: &Account, change: &RuleChange) -> Result<Changed> {
        let gate = change.gate.as_ref().map(|gate| {
            json!({
                "reserve_units": gate.reserve_units.to_string(),
                "lets_through": gate.lets_through,
            })
        });
        let body = json!({
            "account": account.account_id,
            "asset_id": account.asset_id,
            "clear": change.clear,
            "gate": gate,
            "credit_units": change.credit_units.map(|units| units.to_string()),
        });
        changed(&self.post("/api/ledger/rule", &body)?)
    }

    /// What an agent's model says from now on. Ends when the node does.
    pub(crate) fn live(&self, key: &AgentKey) -> Result<impl Read + use<>> {
        let (project, agent) = (encoded(key.project_id.as_str()), encoded(key.agent_id.as_str()));
        let answer = self
            .agent
            .get(format!("{}/api/agents/{project}/{agent}/live", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .call()
            .map_err(|e| self.unreachable(&e))?;
        Ok(self.accepted(answer)?.into_body().into_reader())
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

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .send_json(body)
            .map_err(|e| self.unreachable(&e))?;
        let mut answer = self.accepted(answer)?;
        answer.body_mut().read_json().map_err(|e| self.unreachable(&e))
    }

    fn accepted(&self, answer: Response<ureq::Body>) -> Result<Response<ureq::Body>> {
        reply::accepted(&self.url, answer)
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        reply::unreachable(&self.url, error)
    }
}
