//! Every route, who may use it and how: a route of the document that is not in this table fails a test.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::{Host, job, request, sandbox};

/// What a route asks of whoever comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// A token of any sort.
    Token,
    /// A session.
    Session,
    /// This scope.
    Scope(&'static str),
    /// The node's own token.
    Node,
}

use Need::{Node, Nothing, Scope, Session, Token};

const READ_JOBS: Need = Scope("jobs:read");
const WRITE_JOBS: Need = Scope("jobs:write");
const READ: Need = Scope("sandboxes:read");
const WRITE: Need = Scope("sandboxes:write");
const EXEC: Need = Scope("sandboxes:exec");
const BILLING: Need = Scope("billing:read");
const WITHDRAW: Need = Scope("billing:withdraw");
const KEYS: Need = Scope("keys:write");

/// All scopes there are.
pub(super) const SCOPES: [&str; 8] = [
    "jobs:read",
    "jobs:write",
    "sandboxes:read",
    "sandboxes:write",
    "sandboxes:exec",
    "billing:read",
    "billing:withdraw",
    "keys:write",
];

/// A route: method, path, what it needs, and a body that it reads.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) need: Need,
    pub(super) body: &'static str,
}

const fn route(method: &'static str, path: &'static str, need: Need, body: &'static str) -> Route {
    Route { method, path, need, body }
}

const JOB: &str = r#"{"name":"more","max_spend_cents":1,"ttl_s":60}"#;
const SANDBOX: &str = r#"{"image":"sandbox-base:v1.0.0"}"#;
const MORE: &str = r#"{"version":1,"max_spend_cents":300}"#;
const LARGER: &str = r#"{"version":2,"cpu_milli":2000}"#;
const KEY: &str = r#"{"name":"more","scopes":["jobs:read"],"lifetime_s":60}"#;
const OUT: &str = r#"{"amount_micro_usd":1,"destination":"there"}"#;
const CREDIT: &str = r#"{"user_id":"nostr:00","amount_micro_usd":1,"reference":"never"}"#;
const PROOF: &str = r#"{"message":"","signature":""}"#;

/// All of them, in the order of their paths.
pub(super) const ROUTES: &[Route] = &[
    route("POST", "/v1/auth/bypass", Nothing, r#"{"user_id":"nostr:00"}"#),
    route("POST", "/v1/auth/logout", Session, ""),
    route("GET", "/v1/auth/me", Token, ""),
    route("POST", "/v1/auth/nonce", Nothing, ""),
    route("POST", "/v1/auth/verify", Nothing, PROOF),
    route("GET", "/v1/billing/balance", BILLING, ""),
    route("GET", "/v1/billing/quotes/{quote_id}", BILLING, ""),
    route("GET", "/v1/billing/statement", BILLING, ""),
    route("GET", "/v1/billing/withdrawals", BILLING, ""),
    route("POST", "/v1/billing/withdrawals", WITHDRAW, OUT),
    route("GET", "/v1/billing/withdrawals/{withdrawal_id}", BILLING, ""),
    route("GET", "/v1/jobs", READ_JOBS, ""),
    route("POST", "/v1/jobs", WRITE_JOBS, JOB),
    route("GET", "/v1/jobs/{job_id}", READ_JOBS, ""),
    route("POST", "/v1/jobs/{job_id}/extend", WRITE_JOBS, MORE),
    route("GET", "/v1/jobs/{job_id}/sandboxes", READ, ""),
    route("POST", "/v1/jobs/{job_id}/sandboxes", WRITE, SANDBOX),
    route("POST", "/v1/jobs/{job_id}/stop", WRITE_JOBS, ""),
    route("GET", "/v1/keys", KEYS, ""),
    route("POST", "/v1/keys", KEYS, KEY),
    route("DELETE", "/v1/keys/{key_id}", KEYS, ""),
    route("POST", "/v1/operator/credits", Node, CREDIT),
    route("GET", "/v1/operator/clock", Node, ""),
    route("POST", "/v1/operator/clock/accept", Node, ""),
    route("GET", "/v1/operator/withdrawals", Node, ""),
    route("POST", "/v1/operator/withdrawals/{withdrawal_id}/confirm", Node, r#"{"reference":"x"}"#),
    route("POST", "/v1/operator/withdrawals/{withdrawal_id}/fail", Node, r#"{"words":"x"}"#),
    route("GET", "/v1/prices", Nothing, ""),
    route("GET", "/v1/sandboxes", READ, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}", READ, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/destroy", WRITE, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}/directory", EXEC, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/exec", EXEC, r#"{"argv":["true"]}"#),
    route("GET", "/v1/sandboxes/{sandbox_id}/exec/{exec_id}", EXEC, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/exec/{exec_id}/signal", EXEC, r#"{"signal":9}"#),
    route("POST", "/v1/sandboxes/{sandbox_id}/exec/{exec_id}/stdin", EXEC, r#"{"close":true}"#),
    route("POST", "/v1/sandboxes/{sandbox_id}/extend", WRITE, MORE),
    route("DELETE", "/v1/sandboxes/{sandbox_id}/files", EXEC, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}/files", EXEC, ""),
    route("PUT", "/v1/sandboxes/{sandbox_id}/files", EXEC, "some bytes"),
    route("POST", "/v1/sandboxes/{sandbox_id}/pause", WRITE, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}/ports", READ, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/ports", EXEC, r#"{"port":8080}"#),
    route("DELETE", "/v1/sandboxes/{sandbox_id}/ports/{port}", EXEC, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("HEAD", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("PUT", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("PATCH", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("DELETE", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("OPTIONS", "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", EXEC, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/resize", WRITE, LARGER),
    route("POST", "/v1/sandboxes/{sandbox_id}/resume", WRITE, ""),
    route("POST", "/v1/sandboxes/{sandbox_id}/secrets", WRITE, r#"{"secrets":{"A":"b"}}"#),
    route("POST", "/v1/sandboxes/{sandbox_id}/stop", WRITE, ""),
    route("GET", "/v1/sandboxes/{sandbox_id}/tunnels/{port}", EXEC, ""),
];

/// What somebody has: one of each thing that has a name.
pub(super) struct Estate {
    pub(super) token: String,
    pub(super) user_id: String,
    pub(super) job_id: String,
    pub(super) sandbox_id: String,
    pub(super) key_id: String,
    pub(super) withdrawal_id: String,
    pub(super) quote_id: String,
}

pub(super) const EXEC_ID: &str = "exec_0000000000000000000000000000000e";

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}")).to_owned()
}

impl Estate {
    /// Signs in with this secret, gets money and buys one of everything. Its sandbox runs, and has no agent.
    pub(super) async fn of(host: &Host, secret: u64) -> Estate {
        let token = host.sign_in(secret).await;
        let user_id = host.user_id(&token).await;
        let (_, made) = host.post(&token, "/v1/jobs", "e1", &job()).await;
        let job_id = text(&made, "job_id");
        let path = format!("/v1/jobs/{job_id}/sandboxes");
        // Without money it is a quote, and with money a sandbox.
        let (_, unpaid) = host.post(&token, &path, "e2", &sandbox()).await;
        let quote_id = text(&unpaid["quote"], "quote_id");
        host.credit(&user_id, 1_000_000, &format!("wire of {secret}")).await;
        let out: Value = serde_json::from_str(OUT).unwrap();
        let (_, withdrawal) = host.post(&token, "/v1/billing/withdrawals", "e3", &out).await;
        let (_, bought) = host.post(&token, &path, "e2", &sandbox()).await;
        let sandbox_id = text(&bought, "sandbox_id");
        host.start(&sandbox_id).await;
        let wanted = json!({"name": "own", "scopes": ["jobs:read"]});
        let (_, key) = host.post(&token, "/v1/keys", "e4", &wanted).await;
        Estate {
            key_id: text(&key["key"], "key_id"),
            withdrawal_id: text(&withdrawal, "withdrawal_id"),
            token,
            user_id,
            job_id,
            sandbox_id,
            quote_id,
        }
    }

    /// A path with the names of these things in it, and what else it must have.
    pub(super) fn path(&self, template: &str) -> String {
        let path = template
            .replace("{job_id}", &self.job_id)
            .replace("{sandbox_id}", &self.sandbox_id)
            .replace("{exec_id}", EXEC_ID)
            .replace("{port}", "8080")
            .replace("{path}", "page")
            .replace("{key_id}", &self.key_id)
            .replace("{withdrawal_id}", &self.withdrawal_id)
            .replace("{quote_id}", &self.quote_id);
        let file = path.ends_with("/files") || path.ends_with("/directory");
        if file { format!("{path}?path=a") } else { path }
    }

    /// The names of all of it.
    pub(super) fn names(&self) -> [&str; 6] {
        [
            &self.user_id,
            &self.job_id,
            &self.sandbox_id,
            &self.key_id,
            &self.withdrawal_id,
            &self.quote_id,
        ]
    }
}

impl Route {
    /// Asks for it with this token, about what this estate has.
    pub(super) fn ask(&self, estate: &Estate, token: &str, key: &str) -> Request<Body> {
        let key = (self.method != "GET").then_some(key);
        request(self.method, &estate.path(self.path), token, key, self.body)
    }

    /// The status and the code of a refusal, as an answer to this route shows it: one without a body has no words.
    pub(super) fn refusal(&self, status: u16, code: &'static str) -> (u16, &'static str) {
        (status, if self.method == "HEAD" { "" } else { code })
    }

    pub(super) fn is(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl Host {
    pub(super) async fn user_id(&self, token: &str) -> String {
        text(&self.get(token, "/v1/auth/me").await.1, "user_id")
    }

    /// Lets a sandbox run, as its machine would.
    pub(super) async fn start(&self, sandbox_id: &str) {
        let now_ms = guild_protocol::env::Clock::now_ms(&*self.clock);
        let id: guild_hosting::SandboxId = sandbox_id.parse().unwrap();
        let start = move |tx: &mut guild_store::Tx<'_>| {
            guild_hosting::sandbox::started(tx, &id, "http://127.0.0.1:9", "key", now_ms)
        };
        self.store().write(start).await.unwrap();
    }
}

#[tokio::test]
async fn the_table_has_every_route_of_the_document_and_no_other() {
    let document: Value = serde_json::from_str(&guild_gateway::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        })
        .collect();
    let listed: BTreeSet<String> = ROUTES.iter().map(Route::is).collect();
    assert_eq!(listed, described);
    assert_eq!(listed.len(), ROUTES.len());
}
