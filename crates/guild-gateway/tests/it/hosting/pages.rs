//! The pages of hosting: who sees what, and what a browser gets to keep.

use axum::body::Body;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, Request, StatusCode};
use futures_util::StreamExt;
use guild_bus::Bus;
use guild_hosting::access::nip98;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, kind, tag, unix_s};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

const ORIGIN: &str = "http://127.0.0.1:4848";

/// An answer as a browser gets it.
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Got {
    /// The cookie that it gives, as a browser sends it back.
    fn cookie(&self) -> String {
        let given = self.headers[SET_COOKIE].to_str().unwrap();
        given.split(';').next().unwrap().to_owned()
    }
}

impl Host {
    pub(super) async fn browse(&self, request: Request<Body>) -> Got {
        let answer = self.gateway.router().oneshot(request).await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        Got { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    pub(super) async fn page(&self, cookie: &str, path: &str) -> Got {
        let request = Request::get(path).header("host", "127.0.0.1:4848");
        let request = request.header("accept", "text/html").header("cookie", cookie);
        self.browse(request.body(Body::empty()).unwrap()).await
    }

    async fn send(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut request = Request::post(path).header("host", "127.0.0.1:4848");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.browse(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    async fn paste(&self, token: &str) -> Got {
        let form = ("content-type", "application/x-www-form-urlencoded");
        let body = format!("token={token}");
        self.send("/hosting/sign-in", &[("origin", ORIGIN), form], &body).await
    }

    /// The owner of this secret signs in on the page, with a wallet that writes its address in small letters.
    async fn sign_in_on_page(&self, secret: u64) -> Got {
        let key: SecretKey = format!("{secret:064x}").parse().unwrap();
        let page = [("origin", ORIGIN), ("content-type", "application/json")];
        let address = key.address().to_string().to_lowercase();
        let wanted = json!({"address": address, "chain_id": 31337}).to_string();
        let got = self.send("/hosting/sign-in/message", &page, &wanted).await;
        assert_eq!(got.status, StatusCode::OK, "{}", got.text);
        let asked: Value = serde_json::from_str(&got.text).unwrap();
        let message = asked["message"].as_str().unwrap();
        let signature = key.sign_message(message.as_bytes()).hex();
        let proof = json!({"message": message, "signature": signature}).to_string();
        self.send("/hosting/sign-in", &page, &proof).await
    }

    /// What the API makes: an id of it.
    async fn made(&self, token: &str, path: &str, body: &Value, field: &str) -> String {
        let key = format!("{path}{body}");
        let key: String = key.chars().filter(char::is_ascii_graphic).take(250).collect();
        let (status, made) = self.post(token, path, &key, body).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        made[field].as_str().unwrap().to_owned()
    }

    /// The cookies of the first customer and of the operator.
    pub(super) async fn cookies(&self) -> (String, String) {
        (self.sign_in_on_page(1).await.cookie(), self.paste("secret").await.cookie())
    }

    /// Somebody with money, a job and a sandbox that has run for almost three minutes.
    pub(super) async fn customer(&self, secret: u64, name: &str) -> Customer {
        let token = self.sign_in(secret).await;
        let (_, me) = self.get(&token, "/v1/auth/me").await;
        let user_id = me["user_id"].as_str().unwrap().to_owned();
        self.credit(&user_id, 1_250_000, &format!("wire {secret}")).await;
        let wanted = json!({"name": name, "max_spend_cents": 50, "ttl_s": 3600});
        let job_id = self.made(&token, "/v1/jobs", &wanted, "job_id").await;
        let path = format!("/v1/jobs/{job_id}/sandboxes");
        let sandbox_id = self.made(&token, &path, &sandbox(), "sandbox_id").await;
        self.start(&sandbox_id).await;
        for _ in 0..8 {
            self.tick(20_000).await;
        }
        Customer { token, user_id, job_id, sandbox_id }
    }
}

pub(super) struct Customer {
    pub(super) token: String,
    pub(super) user_id: String,
    pub(super) job_id: String,
    pub(super) sandbox_id: String,
}

#[tokio::test]
async fn whoever_is_not_signed_in_is_asked_to() {
    let host = Host::new();
    let customer = host.customer(1, "mine").await;
    let forged = format!("guild_page=ghw_{}", "0".repeat(64));
    let session = format!("guild_page={}", customer.token);
    let job = format!("/hosting/jobs/{}", customer.job_id);
    for path in ["/hosting", "/hosting/statement", &job] {
        for cookie in ["", "guild_page=", "guild_page=x", &forged, &format!("{forged}; {forged}")] {
            let got = host.page(cookie, path).await;
            assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{path} {cookie}");
            assert!(got.text.contains("A key that only reads"), "{}", got.text);
            assert!(!got.text.contains("mine") && !got.text.contains(&customer.user_id));
        }
        // A session may do more than a browser should be able to.
        assert_eq!(host.page(&session, path).await.status, StatusCode::FORBIDDEN);
    }
    for path in ["/hosting/statement.csv", "/hosting/statement.json", "/hosting/events"] {
        let request = Request::get(path).header("host", "127.0.0.1:4848");
        let got = host.browse(request.body(Body::empty()).unwrap()).await;
        assert_eq!(got.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[tokio::test]
async fn a_wallet_signs_in_and_its_browser_can_only_read() {
    let host = Host::new();
    let customer = host.customer(1, "<script>alert(1)</script>").await;
    let got = host.sign_in_on_page(1).await;
    assert_eq!((got.status, got.text.as_str()), (StatusCode::NO_CONTENT, ""));
    let given = got.headers[SET_COOKIE].to_str().unwrap();
    assert!(given.contains("; Path=/hosting; HttpOnly; SameSite=Strict; Max-Age="), "{given}");
    let cookie = got.cookie();
    let token = cookie.strip_prefix("guild_page=").unwrap();

    let got = host.page(&cookie, "/hosting").await;
    assert_eq!(got.status, StatusCode::OK, "{}", got.text);
    assert_eq!(got.headers["cache-control"], "no-store");
    // Two minutes and forty seconds have passed: four are paid, the last before it begins.
    assert!(
        got.text.contains("<b>1.24556 <small>USD") && got.text.contains("0.00111 USD"),
        "{}",
        got.text
    );
    assert!(!got.text.contains("<script>alert"));
    assert!(got.text.contains("&lt;script&gt;alert"));
    let job = host.page(&cookie, &format!("/hosting/jobs/{}", customer.job_id)).await;
    let page = host.page(&cookie, &format!("/hosting/sandboxes/{}", customer.sandbox_id)).await;
    let statement = host.page(&cookie, "/hosting/statement").await;
    for got in [&got, &job, &page, &statement] {
        assert_eq!(got.status, StatusCode::OK);
        assert!(!got.text.contains("ghw_") && !got.text.contains("ghs_"), "a secret is on a page");
    }
    // Each minute on its page is a transfer of the statement.
    let (_, lines) = host.get(&customer.token, "/v1/billing/statement").await;
    let minutes = lines["lines"].as_array().unwrap().iter();
    let minutes =
        minutes.filter(|line| line["memo"].as_str().unwrap().starts_with("sandbox.minute"));
    let ids: Vec<&str> = minutes.map(|line| line["transfer_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 4);
    for id in ids {
        for got in [&job, &page, &statement] {
            assert!(got.text.contains(&format!("title=\"{id}\"")), "{id}: {}", got.text);
        }
    }
    assert!(!page.text.contains(">?<"), "every minute is booked");

    // The token of the cookie changes nothing, wherever it is shown.
    assert_eq!(host.get(token, "/v1/jobs").await.0, StatusCode::OK);
    let answer = host.post(token, "/v1/jobs", "k", &super::job()).await;
    assert_eq!(code(&answer), (403, "access.scope_missing"));
    let out = json!({"amount_cents": 1, "destination": "x"});
    let answer = host.post(token, "/v1/billing/withdrawals", "k", &out).await;
    assert_eq!(code(&answer), (403, "access.scope_missing"));
    let wanted = json!({"name": "more", "scopes": ["jobs:write"]});
    let answer = host.post(token, "/v1/keys", "k", &wanted).await;
    assert_eq!(code(&answer), (403, "access.scope_missing"));
    // And the API does not know cookies.
    let request = Request::get("/v1/jobs").header("host", "127.0.0.1:4848");
    let request = request.header("cookie", &cookie).body(Body::empty()).unwrap();
    assert_eq!(code(&host.ask(request).await), (401, "access.unauthenticated"));

    let page = [("origin", ORIGIN), ("cookie", cookie.as_str())];
    let got = host.send("/hosting/sign-out", &page, "").await;
    assert_eq!(got.status, StatusCode::SEE_OTHER);
    assert!(got.headers[SET_COOKIE].to_str().unwrap().ends_with("Max-Age=0"));
    assert_eq!(host.page(&cookie, "/hosting").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_nostr_key_signs_in_once_for_each_event() {
    let host = Host::new();
    let key: SecretKey = format!("{:064x}", 3).parse().unwrap();
    let tags = vec![
        tag::tag(["u", "http://127.0.0.1:4848/hosting/sign-in"]),
        tag::tag(["method", "POST"]),
    ];
    let draft =
        Draft { created_at: unix_s(T0), kind: kind::HTTP_AUTH, tags, content: String::new() };
    let header = nip98::header(&draft.sign(&key).unwrap());
    let page = [("origin", ORIGIN), ("authorization", header.as_str())];
    let got = host.send("/hosting/sign-in", &page, "").await;
    assert_eq!(got.status, StatusCode::NO_CONTENT, "{}", got.text);
    let home = host.page(&got.cookie(), "/hosting").await;
    assert!(home.text.contains("Nothing runs.") && home.text.contains("guild job create"));
    let again = host.send("/hosting/sign-in", &page, "").await;
    assert_eq!(again.status, StatusCode::UNAUTHORIZED);
    assert!(again.headers.get(SET_COOKIE).is_none());
}

#[tokio::test]
async fn a_page_of_another_site_signs_nobody_in_or_out() {
    let host = Host::new();
    let session = host.sign_in(1).await;
    let scopes = ["jobs:read", "sandboxes:read", "billing:read"];
    let key =
        host.made(&session, "/v1/keys", &json!({"name": "p", "scopes": scopes}), "token").await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    let body = format!("token={key}");
    for origin in ["https://evil.example", "null", "http://127.0.0.1:9999", "", "127.0.0.1:4848"] {
        for path in ["/hosting/sign-in", "/hosting/sign-out", "/hosting/sign-in/message"] {
            let got = host.send(path, &[("origin", origin), form], &body).await;
            assert_eq!(got.status, StatusCode::FORBIDDEN, "{origin} {path}");
            assert!(
                got.headers.get(SET_COOKIE).is_none() && got.text.contains("gateway.foreign_page")
            );
        }
    }
    assert_eq!(host.send("/hosting/sign-in", &[form], &body).await.status, StatusCode::FORBIDDEN);
    let got = host.paste(&key).await;
    assert_eq!(got.status, StatusCode::SEE_OTHER, "{}", got.text);
    assert_eq!(got.headers["location"], "/hosting");
    assert_eq!(host.page(&got.cookie(), "/hosting").await.status, StatusCode::OK);
    // A form tells where it comes from only if the page lets it.
    let page = host.page("", "/hosting").await;
    assert_eq!(page.headers["referrer-policy"], "same-origin");
}

#[tokio::test]
async fn only_a_key_that_only_reads_is_taken() {
    let host = Host::new();
    let session = host.sign_in(1).await;
    for scopes in
        [&["jobs:read"][..], &["jobs:read", "sandboxes:read", "billing:read", "jobs:write"]]
    {
        let wanted = json!({"name": "p", "scopes": scopes});
        let key = host.made(&session, "/v1/keys", &wanted, "token").await;
        let got = host.paste(&key).await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{}", got.text);
        assert!(got.headers.get(SET_COOKIE).is_none() && !got.text.contains(&key));
        assert!(got.text.contains("jobs:read sandboxes:read billing:read and nothing else"));
    }
    for bad in [session.as_str(), "", "x", "%00", &"9".repeat(9_000)] {
        let got = host.paste(bad).await;
        assert!(got.status.is_client_error() && got.headers.get(SET_COOKIE).is_none(), "{bad}");
        assert!(got.text.contains("That is not taken."));
    }
}

#[tokio::test]
async fn what_is_another_one_s_is_not_there() {
    let host = Host::new();
    let ours = host.customer(1, "ours").await;
    let theirs = host.sign_in_on_page(2).await.cookie();
    for path in [
        format!("/hosting/jobs/{}", ours.job_id),
        format!("/hosting/sandboxes/{}", ours.sandbox_id),
    ] {
        let got = host.page(&theirs, &path).await;
        assert_eq!(got.status, StatusCode::NOT_FOUND, "{path}");
        assert!(got.text.contains("Nothing is here") && !got.text.contains(&ours.user_id));
    }
    let got = host.page(&theirs, "/hosting").await;
    assert!(!got.text.contains("ours") && !got.text.contains(&ours.job_id), "{}", got.text);
    let csv = host.page(&theirs, "/hosting/statement.csv").await;
    assert_eq!(csv.text.lines().count(), 1, "only the names of the columns: {}", csv.text);
    for path in ["/hosting/jobs/nonsense", "/hosting/sandboxes/sbx_1", "/hosting?before=x"] {
        assert_eq!(host.page(&theirs, path).await.status, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn a_statement_is_a_file_and_a_change_is_told() {
    let host = Host::new();
    let customer = host.customer(1, "mine").await;
    let cookie = host.sign_in_on_page(1).await.cookie();
    let csv = host.page(&cookie, "/hosting/statement.csv").await;
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    // A credit, the hold of the first minute, and four minutes.
    assert_eq!(csv.text.lines().count(), 7, "{}", csv.text);
    assert!(csv.text.lines().nth(6).unwrap().contains("post,\"hosting.credit wire 1\",1250000,"));
    let json: Value =
        serde_json::from_str(&host.page(&cookie, "/hosting/statement.json").await.text).unwrap();
    let (_, told) = host.get(&customer.token, "/v1/billing/statement").await;
    assert_eq!(json["lines"], told["lines"]);

    let request = Request::get("/hosting/events").header("host", "127.0.0.1:4848");
    let request = request.header("cookie", &cookie).body(Body::empty()).unwrap();
    let answer = host.gateway.router().oneshot(request).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut stream = answer.into_body().into_data_stream();
    let first = testbed::in_time(stream.next()).await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    assert!(first.starts_with("event: hosting\ndata: "), "{first}");
    assert!(first.contains("\"burn_micro_usd_per_minute\":1110"), "{first}");
    // Here no sleep ever ends: it is the bell that tells of a change, and the events whose it is.
    let other = host.sign_in(2).await;
    host.clock.pass(1_000);
    host.post(&other, "/v1/jobs", "theirs", &super::job()).await;
    host.scene.bus.ring(guild_hosting::TOPIC, 0);
    host.credit(&customer.user_id, 1_000_000, "wire 2").await;
    host.scene.bus.ring(guild_hosting::TOPIC, 0);
    let next = testbed::in_time(stream.next()).await.unwrap().unwrap();
    let next = String::from_utf8(next.to_vec()).unwrap();
    let free = |text: &str| {
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str::<Value>(data).unwrap()["free_micro_usd"].as_i64().unwrap()
    };
    assert_eq!(free(&next), free(&first) + 1_000_000, "{next}");
    host.scene.shutdown.trigger();
    assert!(testbed::in_time(stream.next()).await.is_none());
}

#[tokio::test]
async fn the_operator_sees_everything_on_this_host_alone() {
    let host = Host::new();
    let (one, two) = (host.customer(1, "one's").await, host.customer(2, "two's").await);
    let got = host.paste("secret").await;
    assert_eq!(got.status, StatusCode::SEE_OTHER, "{}", got.text);
    let cookie = got.cookie();
    assert!(!cookie.contains("secret"));
    let got = host.page(&cookie, "/hosting").await;
    assert!(got.text.contains("Everything that is hosted here"), "{}", got.text);
    for customer in [&one, &two] {
        assert!(got.text.contains(&customer.job_id));
        let page = host.page(&cookie, &format!("/hosting/sandboxes/{}", customer.sandbox_id)).await;
        assert!(page.text.contains(&customer.user_id), "{}", page.text);
    }
    let earned = host.page(&cookie, "/hosting/statement").await;
    assert!(earned.text.contains("What was earned") && earned.text.contains("minute 1 of"));
    // The word of the cookie is no token, and no other word will do.
    let word = cookie.strip_prefix("guild_page=").unwrap();
    let credit = request("POST", "/v1/operator/credits", word, None, "{}");
    assert_eq!(code(&host.ask(credit).await), (403, "gateway.no_token"));
    let other = format!("guild_page=operator_{}", "0".repeat(64));
    assert_eq!(host.page(&other, "/hosting").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_node_that_sells_nothing_says_so() {
    let scene = Scene::new(Options::default());
    let request = Request::get("/hosting").header("host", "localhost").body(Body::empty()).unwrap();
    let answer = scene.gateway.router().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains("This node sells no sandboxes") && text.contains("hosting.enabled=true"));
}

#[test]
fn the_script_of_the_page_signs_in_with_what_the_browser_has() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut node = std::process::Command::new("node");
    node.arg(here.join("tests/it/hosting/door.js")).arg(here.join("src/web/hosting.js"));
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @r#"
    a wallet: true a key: false
    POST /hosting/sign-in/message content-type {"address":"0x7e5f4552091a69125d5dfcb7b8c2659029395bdf","chain_id":8453}
    POST /hosting/sign-in content-type {"message":"grüezi","signature":"signed grüezi by 0x7e5f"}
    reloads: 1
    a key, later: true
    POST /hosting/sign-in authorization [["u","http://127.0.0.1:4848/hosting/sign-in"],["method","POST"]]
    refused: That did not work: no 2
    counted: 58 s
    "#);
}
