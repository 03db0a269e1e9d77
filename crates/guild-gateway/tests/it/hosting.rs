//! Hosting over HTTP: sign-in, jobs, sandboxes, billing, and what must be refused.

mod amounts;
mod books;
mod idempotency;
mod limits;
mod money;
mod owners;
mod races;
mod routes;
mod scopes;
mod sign_in;
mod times;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_gateway::{Options, Roles, Service};
use guild_hosting::access::siwe::{self, Message, Time};
use guild_hosting::access::{nonce, rate};
use guild_hosting::clamp::Policy;
use guild_hosting::desk::{Desk, Options as DeskOptions};
use guild_hosting::machine::Abilities;
use guild_hosting::machine::image::{Images, Source};
use guild_hosting::machine::link::Link;
use guild_hosting::machine::visit::{Door, Limits};
use guild_hosting::meter;
use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Place, Scene};

mod pages;
mod pictures;

const T0: UnixMs = 1_800_000_000_000;

struct SetClock(AtomicI64);
impl Clock for SetClock {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Never the same twice, in all of its bits.
#[derive(Default)]
struct Dice(AtomicU64);
impl Random for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        let hash = Hash::of(&self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes());
        for (place, byte) in bytes.iter_mut().zip(hash.as_bytes().iter().cycle()) {
            *place = *byte;
        }
    }
}

impl SetClock {
    /// Time passes, or is set back.
    fn pass(&self, ms: i64) -> UnixMs {
        self.0.fetch_add(ms, Ordering::SeqCst) + ms
    }
}

/// A node that sells sandboxes, without machines.
pub(crate) struct Host {
    scene: Scene,
    gateway: Service,
    clock: Arc<SetClock>,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host::with(Arc::new(Dice::default()))
    }

    /// With this randomness.
    fn with(random: Arc<dyn Random>) -> Host {
        Host::open(Scene::new(Options::default()), rate::Options::default(), random)
    }

    /// On this database, with more requests than a test makes.
    fn on(file: &guild_store::Options, place: Place) -> Host {
        let often = rate::Rate { per_minute: 1_000_000, burst: 1_000_000 };
        let wide = rate::Options {
            per_token: often,
            per_place: often,
            sign_ins: often,
            ..rate::Options::default()
        };
        let scene = Scene::at(Options::default(), file, place);
        Host::open(scene, wide, Arc::new(Dice::default()))
    }

    /// Behind these proxies.
    fn behind(trusted_proxies: &[&str]) -> Host {
        let trusted = trusted_proxies.iter().map(|text| text.parse().unwrap());
        let options = Options { trusted_proxies: trusted.collect(), ..Options::default() };
        let (scene, random) = (Scene::new(Options::default()), Arc::new(Dice::default()));
        Host::serve(options, scene, rate::Options::default(), random)
    }

    fn open(scene: Scene, rate: rate::Options, random: Arc<dyn Random>) -> Host {
        Host::serve(Options::default(), scene, rate, random)
    }

    fn serve(serves: Options, scene: Scene, rate: rate::Options, random: Arc<dyn Random>) -> Host {
        let clock = Arc::new(SetClock(AtomicI64::new(T0)));
        let options = DeskOptions {
            policy: Policy::default(),
            siwe: siwe::Policy {
                origins: vec!["http://127.0.0.1:4848".parse().unwrap()],
                chain_ids: BTreeSet::from([1, 8453]),
                skew_ms: siwe::SKEW_MS,
            },
            session_ms: 86_400_000,
            rate,
            nonces: nonce::Limits::default(),
            machine: "local".to_owned(),
            abilities: Abilities { pause: true, resize: true },
            bypass: false,
        };
        let images = Images::new().with("sandbox-base:v1.0.0".parse().unwrap(), Source::Host);
        let store = scene.store.as_ref().unwrap().handle();
        let key: SecretKey = format!("{:064x}", 99).parse().unwrap();
        let link = Link::new(Arc::new(key), clock.clone(), random.clone());
        let door = Door::new(store.clone(), link, Limits::default());
        let desk = {
            let bus = scene.bus.clone();
            Desk::new(options, Arc::new(images), door, store, bus, clock.clone(), random)
        };
        let roles = Roles { desk: Some(desk), ..scene.roles.clone() };
        let gateway = Service::new(serves, roles, clock.clone(), "secret", scene.shutdown.clone());
        Host { scene, gateway, clock }
    }

    async fn ask(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = self.gateway.router().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn get(&self, token: &str, path: &str) -> (StatusCode, Value) {
        self.ask(request("GET", path, token, None, "")).await
    }

    async fn post(&self, token: &str, path: &str, key: &str, body: &Value) -> (StatusCode, Value) {
        self.ask(request("POST", path, token, Some(key), &body.to_string())).await
    }

    /// The owner of this secret signs in: a token.
    async fn sign_in(&self, secret: u64) -> String {
        let (_, asked) = self.ask(request("POST", "/v1/auth/nonce", "", None, "")).await;
        let key: SecretKey = format!("{secret:064x}").parse().unwrap();
        let message = self.message(&key, asked["nonce"].as_str().unwrap());
        let (status, session) = self.verify(&key, &message).await;
        assert_eq!(status, StatusCode::OK, "{session}");
        session["token"].as_str().unwrap().to_owned()
    }

    fn message(&self, key: &SecretKey, nonce: &str) -> String {
        let message = Message {
            scheme: None,
            domain: "127.0.0.1:4848".to_owned(),
            address: key.address(),
            statement: Some("Sign in to buy sandboxes.".to_owned()),
            uri: "http://127.0.0.1:4848".to_owned(),
            chain_id: 8453,
            nonce: nonce.parse().unwrap(),
            issued_at: Time::at(self.clock.now_ms()).unwrap(),
            expiration_time: None,
            not_before: None,
            request_id: None,
            resources: None,
        };
        message.text()
    }

    async fn verify(&self, key: &SecretKey, message: &str) -> (StatusCode, Value) {
        let signature = key.sign_message(message.as_bytes()).hex();
        let body = json!({"message": message, "signature": signature}).to_string();
        self.ask(request("POST", "/v1/auth/verify", "", None, &body)).await
    }

    async fn credit(&self, user_id: &str, units: i64, reference: &str) -> Value {
        let body = json!({"user_id": user_id, "amount_micro_usd": units, "reference": reference});
        let credit = request("POST", "/v1/operator/credits", "secret", None, &body.to_string());
        let (status, body) = self.ask(credit).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    }

    async fn tick(&self, later_ms: i64) {
        let now_ms = self.clock.pass(later_ms);
        let store = self.scene.store.as_ref().unwrap().handle();
        store.write(move |tx| meter::tick(tx, now_ms, 1_000)).await.unwrap();
    }
}

/// Runs a test on every kind of database. They are opened and closed outside of the runtime, as clients that block must
/// be.
fn both(test: impl AsyncFn(&Host)) {
    let dir = tempfile::tempdir().unwrap();
    let file = guild_store::Options::file(&dir.path().join("node.db"));
    let lite = Host::on(&file, Place::Directory(dir));
    let database = testbed::Database::new().unwrap();
    let file = guild_store::Options::at(&database.url());
    let server = Host::on(&file, Place::Database(database));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for host in [&lite, &server] {
        runtime.block_on(test(host));
    }
}

fn request(method: &str, path: &str, token: &str, key: Option<&str>, body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:4848");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["error"]["code"].as_str().unwrap_or_default())
}

fn job() -> Value {
    json!({"name": "test", "max_spend_cents": 100, "ttl_s": 3600})
}

fn sandbox() -> Value {
    json!({"image": "sandbox-base:v1.0.0", "cpu_milli": 1000, "ram_mib": 1024})
}

#[tokio::test]
async fn a_stranger_signs_in_is_credited_and_buys() {
    let host = Host::new();
    let token = host.sign_in(1).await;
    let (_, me) = host.get(&token, "/v1/auth/me").await;
    let user_id = me["user_id"].as_str().unwrap().to_owned();
    let (status, made) = host.post(&token, "/v1/jobs", "k1", &job()).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(made["max_spend_micro_usd"], 1_000_000);
    assert_eq!(made["granted"]["expires_ms"]["bound_by"], "requested");
    let job_id = made["job_id"].as_str().unwrap();
    let sandboxes = format!("/v1/jobs/{job_id}/sandboxes");

    // Without money: what is missing. The same request buys it once it is there.
    let (status, unpaid) = host.post(&token, &sandboxes, "k2", &sandbox()).await;
    assert_eq!(status, StatusCode::PAYMENT_REQUIRED, "{unpaid}");
    let (missing, buys) = (&unpaid["quote"]["amount_micro_usd"], &unpaid["quote"]["buys"]);
    let minutes = buys["minutes"].as_i64().unwrap();
    assert_eq!(missing.as_i64(), Some(1_110 * minutes));
    let quote = format!("/v1/billing/quotes/{}", unpaid["quote"]["quote_id"].as_str().unwrap());
    assert_eq!(host.get(&token, &quote).await.1["amount_micro_usd"], *missing);
    let credited = host.credit(&user_id, 5_000, "wire 1").await;
    assert_eq!(
        (&credited["new"], &credited["balance"]["free_cents"]),
        (&json!(true), &json!("0.5"))
    );
    assert_eq!(host.credit(&user_id, 5_000, "wire 1").await["new"], false);
    let (status, bought) = host.post(&token, &sandboxes, "k2", &sandbox()).await;
    assert_eq!(status, StatusCode::CREATED, "{bought}");
    assert_eq!(bought["status"], "starting");
    assert_eq!(bought["price_micro_usd_per_minute"], 1_110);
    // And again: the same answer, nothing more is held.
    let again = host.post(&token, &sandboxes, "k2", &sandbox()).await;
    assert_eq!(again, (StatusCode::CREATED, bought.clone()));
    let (_, balance) = host.get(&token, "/v1/billing/balance").await;
    assert_eq!(
        (&balance["free_micro_usd"], &balance["held_micro_usd"]),
        (&json!(3_890), &json!(1_110))
    );
    assert_eq!(balance["minutes_left"], 3);
    let (_, list) = host.get(&token, &sandboxes).await;
    assert_eq!(list["sandboxes"].as_array().unwrap().len(), 1);

    // Nobody starts it: what was held comes back.
    for _ in 0..4 {
        // Not at once: a clock that jumps is not believed.
        host.tick(4 * 60_000).await;
    }
    let (_, balance) = host.get(&token, "/v1/billing/balance").await;
    assert_eq!(
        (&balance["free_micro_usd"], &balance["held_micro_usd"]),
        (&json!(5_000), &json!(0))
    );
    let (_, statement) = host.get(&token, "/v1/billing/statement?limit=1").await;
    assert_eq!(statement["lines"][0]["step"], "void");
    assert!(statement["next"].is_string());
    let id = bought["sandbox_id"].as_str().unwrap();
    let (_, ended) = host.get(&token, &format!("/v1/sandboxes/{id}")).await;
    assert_eq!(ended["stop_reason"], "not_started");
}

#[tokio::test]
async fn a_message_is_good_for_one_try_and_for_this_site() {
    let host = Host::new();
    let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
    let (_, asked) = host.ask(request("POST", "/v1/auth/nonce", "", None, "")).await;
    let nonce = asked["nonce"].as_str().unwrap();
    let message = host.message(&key, nonce);
    let foreign = message.replace("127.0.0.1:4848 wants", "evil.example wants");
    assert_eq!(code(&host.verify(&key, &foreign).await), (401, "access.siwe_mismatch"));
    // The failed try has used up the nonce.
    assert_eq!(code(&host.verify(&key, &message).await), (401, "access.nonce_unknown"));
    let (_, asked) = host.ask(request("POST", "/v1/auth/nonce", "", None, "")).await;
    let message = host.message(&key, asked["nonce"].as_str().unwrap());
    assert_eq!(host.verify(&key, &message).await.0, StatusCode::OK);
    assert_eq!(code(&host.verify(&key, &message).await), (401, "access.nonce_unknown"));
    let bypass = request("POST", "/v1/auth/bypass", "", None, r#"{"user_id":"nostr:00"}"#);
    assert_eq!(code(&host.ask(bypass).await), (403, "hosting.bypass_off"));
}

#[tokio::test]
async fn what_is_another_one_s_is_unknown_and_a_key_does_what_it_may() {
    let host = Host::new();
    let (ours, theirs) = (host.sign_in(1).await, host.sign_in(2).await);
    let (_, made) = host.post(&ours, "/v1/jobs", "k", &job()).await;
    let job_id = made["job_id"].as_str().unwrap();
    for (method, path, body) in [
        ("GET", format!("/v1/jobs/{job_id}"), ""),
        ("GET", format!("/v1/jobs/{job_id}/sandboxes"), ""),
        ("POST", format!("/v1/jobs/{job_id}/stop"), ""),
        ("POST", format!("/v1/jobs/{job_id}/extend"), r#"{"version":1,"max_spend_cents":200}"#),
        ("POST", format!("/v1/jobs/{job_id}/sandboxes"), r#"{"image":"sandbox-base:v1.0.0"}"#),
    ] {
        let key = (method == "POST").then_some("k");
        let answer = host.ask(request(method, &path, &theirs, key, body)).await;
        assert_eq!(code(&answer), (404, "hosting.unknown_job"), "{path}");
    }
    assert_eq!(host.get(&theirs, "/v1/jobs").await.1["jobs"], json!([]));
    // A key reads jobs and nothing else; its token is shown once.
    let wanted = json!({"name": "reader", "scopes": ["jobs:read"]});
    let (status, made) = host.post(&ours, "/v1/keys", "k", &wanted).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let key = made["token"].as_str().unwrap().to_owned();
    let (_, again) = host.post(&ours, "/v1/keys", "k", &wanted).await;
    assert_eq!((&again["token"], &again["key"]), (&Value::Null, &made["key"]));
    assert_eq!(host.get(&key, "/v1/jobs").await.0, StatusCode::OK);
    assert_eq!(code(&host.get(&key, "/v1/billing/balance").await), (403, "access.scope_missing"));
    let write = host.post(&key, "/v1/jobs", "k3", &job()).await;
    assert_eq!(code(&write), (403, "access.scope_missing"));
    let wider = json!({"name": "wider", "scopes": ["jobs:write"]});
    assert_eq!(
        code(&host.post(&key, "/v1/keys", "k4", &wider).await),
        (403, "access.scope_missing")
    );
    let revoke = format!("/v1/keys/{}", made["key"]["key_id"].as_str().unwrap());
    let (status, revoked) = host.ask(request("DELETE", &revoke, &ours, Some("k"), "")).await;
    assert_eq!((status, &revoked["revoked"]), (StatusCode::OK, &json!(1)));
    assert_eq!(code(&host.get(&key, "/v1/jobs").await), (401, "access.unauthenticated"));
    // The operator's routes know only the node's token, and users' tokens are no node's.
    let credit = request("POST", "/v1/operator/credits", &ours, None, "{}");
    assert_eq!(code(&host.ask(credit).await), (403, "gateway.no_token"));
    assert_eq!(code(&host.get("secret", "/v1/jobs").await), (401, "access.unauthenticated"));
    let out = request("POST", "/v1/auth/logout", &theirs, None, "");
    assert_eq!(host.ask(out).await.0, StatusCode::NO_CONTENT);
    assert_eq!(code(&host.get(&theirs, "/v1/jobs").await), (401, "access.unauthenticated"));
}

#[tokio::test]
async fn a_repeat_is_one_effect_and_rubbish_changes_nothing() {
    let host = Host::new();
    let token = host.sign_in(1).await;
    let first = host.post(&token, "/v1/jobs", "k", &job()).await;
    assert_eq!(first, host.post(&token, "/v1/jobs", "k", &job()).await);
    let mut other = job();
    other["ttl_s"] = json!(7200);
    let answer = host.post(&token, "/v1/jobs", "k", &other).await;
    assert_eq!(code(&answer), (422, "access.idempotency_mismatch"));
    let keyless = host.ask(request("POST", "/v1/jobs", &token, None, &job().to_string())).await;
    assert_eq!(code(&keyless), (400, "gateway.bad_request"));
    for (n, bad) in [
        r#"{"max_spend_cents":-1,"ttl_s":60}"#,
        r#"{"max_spend_cents":0,"ttl_s":60}"#,
        r#"{"max_spend_cents":1.5,"ttl_s":60}"#,
        r#"{"max_spend_cents":"1e3","ttl_s":60}"#,
        r#"{"max_spend_cents":1e400,"ttl_s":60}"#,
        r#"{"max_spend_cents":9223372036854775808,"ttl_s":60}"#,
        r#"{"max_spend_micro_usd":9007199254740993,"ttl_s":60}"#,
        r#"{"max_spend_cents":1,"max_spend_micro_usd":1,"ttl_s":60}"#,
        r#"{"ttl_s":60}"#,
        r#"{"max_spend_cents":1,"ttl_s":0}"#,
        r#"{"max_spend_cents":1,"ttl_s":9223372036854775807}"#,
        r#"{"max_spend_cents":1,"ttl_s":60,"more":1}"#,
        r#"{"max_spend_cents":1,"ttl_s":60,"name":""}"#,
        r#"{"max_spend_cents":1,"ttl_s":60,"name":"a\u0000b"}"#,
        r#"{"max_spend_cents":1,"max_spend_cents":2,"ttl_s":60}"#,
        "[]",
        "",
        "{",
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("bad{n}");
        let answer = host.ask(request("POST", "/v1/jobs", &token, Some(&key), bad)).await;
        assert_eq!(answer.0, StatusCode::BAD_REQUEST, "{bad}: {}", answer.1);
    }
    let (_, jobs) = host.get(&token, "/v1/jobs").await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    for path in ["/v1/jobs/nonsense", "/v1/jobs?limit=0", "/v1/jobs?limit=x", "/v1/jobs?more=1"] {
        assert_eq!(host.get(&token, path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    let confidential = json!({"image": "sandbox-base:v1.0.0", "security_mode": "confidential"});
    let sandboxes = format!("/v1/jobs/{}/sandboxes", first.1["job_id"].as_str().unwrap());
    let answer = host.post(&token, &sandboxes, "c", &confidential).await;
    assert_eq!(code(&answer), (400, "hosting.not_enabled"));
    for image in ["sandbox-base:latest", "sandbox-base", "../etc", "sandbox-base:v9.9.9"] {
        let answer = host.post(&token, &sandboxes, image, &json!({"image": image})).await;
        assert_eq!(code(&answer), (400, "hosting.no_such_image"), "{image}");
    }
}

#[tokio::test]
async fn an_extension_is_absolute_and_about_a_version() {
    let host = Host::new();
    let token = host.sign_in(1).await;
    let (_, made) = host.post(&token, "/v1/jobs", "k", &job()).await;
    let path = format!("/v1/jobs/{}/extend", made["job_id"].as_str().unwrap());
    let more = json!({"version": 1, "max_spend_cents": 100_000_000});
    let (status, extended) = host.post(&token, &path, "e1", &more).await;
    assert_eq!(status, StatusCode::OK, "{extended}");
    let granted = &extended["granted"]["max_spend_micro_usd"];
    assert_eq!(
        *granted,
        json!({"requested": 1_000_000_000_000_i64, "granted": 1_000_000_000, "bound_by": "policy_cap"})
    );
    // The same wish under another key changes nothing; another one about an old version is refused.
    let (_, same) = host.post(&token, &path, "e2", &more).await;
    assert_eq!(same, extended);
    let other = json!({"version": 1, "max_spend_cents": 200});
    let answer = host.post(&token, &path, "e3", &other).await;
    assert_eq!(code(&answer), (409, "hosting.version_conflict"));
}

#[tokio::test]
async fn every_path_is_described_and_every_description_is_a_path() {
    let host = Host::new();
    let (status, document) = host.ask(request("GET", "/v1/openapi.json", "", None, "")).await;
    assert_eq!(status, StatusCode::OK);
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 25);
    for (path, item) in paths {
        for method in item.as_object().unwrap().keys() {
            let at = path.replace(['{', '}'], "");
            let answer = host.ask(request(&method.to_uppercase(), &at, "", Some("k"), "{}")).await;
            let reached = answer.1["error"]["code"] != "gateway.no_such_path"
                && answer.0 != StatusCode::METHOD_NOT_ALLOWED;
            assert!(reached, "{method} {path}: {}", answer.1);
        }
    }
    let checked_in = include_str!("../../../../docs/openapi.json");
    assert!(guild_gateway::openapi() == checked_in, "run: cargo xtask docs");
    let page = request("GET", "/v1", "", None, "");
    let answer = host.gateway.router().oneshot(page).await.unwrap();
    let page = answer.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8(page.to_vec()).unwrap();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            let line = format!("<code>{} {path}</code>", method.to_uppercase());
            assert!(page.contains(&line), "{line} is not on the page");
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let Some(name) = body.as_str().and_then(|body| body.rsplit('/').next()) else {
                continue;
            };
            let schema = &document["components"]["schemas"][name];
            let required: Vec<&str> = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(Value::as_str)
                .collect();
            for field in schema["properties"].as_object().into_iter().flatten() {
                let mark = if required.contains(&field.0.as_str()) { "" } else { "?" };
                let field = format!("<code>{}{mark}</code>", field.0);
                assert!(page.contains(&field), "{field} of {name} is not on the page");
            }
        }
    }
}
