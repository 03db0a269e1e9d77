//! One integration binary for the crate: the routes, on a real store, without a socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
#[path = "../../../guild-roles/tests/it/bazaar.rs"]
mod bazaar;
mod budgets;
mod content;
mod delegations;
mod disputes;
mod explore;
mod hosting;
mod ledger;
mod live;
mod orders;
mod pictures;
mod relay;
mod relays;
mod routing;
mod slow;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::{FutureExt, StreamExt};
use guild_bus::{Bus, Local};
use guild_gateway::{Options, Roles, Service, Services};
use guild_ledger::policy::Bundle;
use guild_protocol::env::{BoxFuture, Clock, Random, Shutdown, UnixMs};
use guild_protocol::schema::Registry;
use guild_roles::agents::Agents;
use guild_roles::audit_log::{AuditLog, Note, Options as LogOptions};
use guild_roles::buyer::Buyer;
use guild_roles::explorer::{Explorer, Options as ExplorerOptions};
use guild_roles::judgements::Judgements;
use guild_roles::outbox::Outbox;
use guild_roles::relays::Relays;
use guild_roles::treasury::Treasury;
use guild_roles::turn::Turns;
use guild_store::{Hooks, Rx, Service as StoreService, Store};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};
use tower::ServiceExt;

/// Time stands still: nothing here may depend on a sweep or a keep-alive.
struct Still;
impl Clock for Still {
    fn now_ms(&self) -> UnixMs {
        1_000
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Where the market stands a minute after it began, and still does.
struct MinuteLater;
impl Clock for MinuteLater {
    fn now_ms(&self) -> UnixMs {
        bazaar::T0 + 60_000
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

#[derive(Default)]
struct Counting(AtomicU64);
impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let drawn = self.0.fetch_add(1, Ordering::SeqCst).to_le_bytes();
        bytes.iter_mut().zip(drawn.iter().cycle()).for_each(|(byte, drawn)| *byte = *drawn);
    }
}

/// Where the database of a scene is.
#[expect(dead_code, reason = "held only so that it is removed at the end")]
enum Place {
    Directory(tempfile::TempDir),
    Database(testbed::Database),
}

struct Scene {
    _place: Place,
    store: Option<StoreService>,
    log: AuditLog,
    turns: Turns,
    roles: Roles,
    bus: Arc<Local>,
    shutdown: Shutdown,
    gateway: Service,
}

/// Somebody who hires, with an empty wallet.
fn buyer(store: Store, bus: Arc<dyn Bus>) -> Buyer {
    let node = guild_roles::buyer::Node {
        store,
        bus,
        clock: Arc::new(Still),
        random: Arc::new(Counting::default()),
        registry: Arc::new(Registry::builtin()),
        policy: Arc::new(Bundle::builtin().unwrap()),
        workshop: None,
        judge: None,
        refer: None,
        discovery: None,
    };
    Buyer::new(guild_roles::buyer::Options::default(), "22".repeat(32).parse().unwrap(), node).0
}

impl Scene {
    fn new(options: Options) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let file = guild_store::Options::file(&dir.path().join("node.db"));
        Scene::at(options, &file, Place::Directory(dir))
    }

    fn at(options: Options, file: &guild_store::Options, place: Place) -> Scene {
        let migrations = bazaar::migrations().and(guild_hosting::migrations());
        let store = StoreService::open(file, &migrations, Hooks::default(), 0).unwrap();
        let (bus, turns) = (Arc::new(Local::new()), Turns::new(store.handle()));
        let log = AuditLog::new(
            LogOptions::default(),
            turns.clone(),
            bus.clone(),
            Arc::new(Still),
            Arc::new(Counting::default()),
        );
        let outbox = Outbox::new(store.handle(), Arc::new(Still));
        let writing = guild_ledger::writer::Options::default();
        let (writer, service) =
            guild_ledger::Writer::new(&writing, store.handle(), Arc::new(Still)).unwrap();
        // Ends with the scene, when the last handle of the writer is gone.
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(service);
        });
        let treasury = Treasury::new(store.handle(), writer, Arc::new(Still));
        let explorer = Explorer::new(
            ExplorerOptions { matrix_public: true, ..ExplorerOptions::default() },
            turns.clone(),
            bus.clone(),
            Arc::new(MinuteLater),
        );
        let services = Services::default();
        let relay = Some(relay::relay(store.handle(), &bus));
        let relays = Relays::new(None, &[], store.handle(), Arc::new(Still));
        let roles = Roles {
            agents: Agents::new(store.handle(), Arc::new(Still)),
            content: Some(content::content(store.handle())),
            log: log.clone(),
            judgements: Judgements::new(store.handle(), Arc::new(Still)),
            outbox,
            relay,
            relays,
            treasury,
            buyer: Some(buyer(store.handle(), bus.clone())),
            meetings: None,
            disputes: None,
            reviews: None,
            desk: None,
            explorer,
            services,
            metrics: None,
        };
        let shutdown = Shutdown::new();
        let gateway =
            Service::new(options, roles.clone(), Arc::new(Still), "secret", shutdown.clone());
        Scene { _place: place, store: Some(store), log, turns, roles, bus, shutdown, gateway }
    }

    async fn ask(&self, request: Request<Body>) -> (StatusCode, Value) {
        let answer = testbed::in_time(self.gateway.router().oneshot(request)).await.unwrap();
        let status = answer.status();
        let body = testbed::in_time(answer.into_body().collect()).await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn note(&self, action: &str) -> i64 {
        let note = Note {
            entry_id: None,
            actor: "tester".to_owned(),
            action: action.to_owned(),
            subject: None,
            detail: Map::new(),
        };
        self.log.append(note).await.unwrap().1
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(store) = self.store.take() {
            store.close();
        }
    }
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).header("host", "127.0.0.1:4848").body(Body::empty()).unwrap()
}

fn post(body: &str, token: Option<&str>) -> Request<Body> {
    post_to("/api/log", body, token)
}

fn post_to(path: &str, body: &str, token: Option<&str>) -> Request<Body> {
    let mut request = Request::post(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

#[tokio::test]
async fn it_answers_under_its_own_names_only() {
    let options = Options { hosts: vec!["guild.example".to_owned()], ..Options::default() };
    let scene = Scene::new(options);
    let with_host =
        |host: &str| Request::get("/healthz").header("host", host).body(Body::empty()).unwrap();
    for host in ["127.0.0.1", "localhost:9", "[::1]:4848", "guild.example"] {
        assert_eq!(scene.ask(with_host(host)).await.0, StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
        let (status, body) = scene.ask(with_host(host)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{host}");
        assert_eq!(body["error"]["code"], "gateway.unknown_host");
    }
    for host in ["[::1]evil.example", "localhost:evil", ":80"] {
        assert_eq!(scene.ask(with_host(host)).await.0, StatusCode::FORBIDDEN, "{host}");
    }
    assert_eq!(scene.ask(with_host("LocalHost")).await.0, StatusCode::OK);
    let mut two = with_host("localhost");
    two.headers_mut().append("host", "evil.example".parse().unwrap());
    assert_eq!(scene.ask(two).await.0, StatusCode::FORBIDDEN);
    let absolute = Request::get("http://evil.example/healthz").header("host", "localhost");
    assert_eq!(scene.ask(absolute.body(Body::empty()).unwrap()).await.0, StatusCode::FORBIDDEN);
    let nameless = Request::get("/healthz").body(Body::empty()).unwrap();
    assert_eq!(scene.ask(nameless).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn only_the_token_lets_one_write_and_a_repeat_is_the_same_entry() {
    let scene = Scene::new(Options::default());
    let body = r#"{"entry_id":"entry_00000000000000000000000000000001","actor":"me","action":"a.b","detail":{"x":1}}"#;
    for token in [None, Some(""), Some("secre"), Some("secrets")] {
        let (status, answer) = scene.ask(post(body, token)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::FORBIDDEN, &json!("gateway.no_token"))
        );
    }
    let first = scene.ask(post(body, Some("secret"))).await;
    assert_eq!(first.0, StatusCode::CREATED);
    assert_eq!(first, scene.ask(post(body, Some("secret"))).await);
    let other = body.replace("\"x\":1", "\"x\":2");
    let (status, answer) = scene.ask(post(&other, Some("secret"))).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::CONFLICT, &json!("store.event_conflict"))
    );
    let (_, page) = scene.ask(get("/api/log")).await;
    assert_eq!(page["entries"].as_array().unwrap().len(), 1);
    assert_eq!(page["entries"][0]["detail"], json!({"x": 1}));
}

#[tokio::test]
async fn rubbish_gets_a_typed_refusal_and_changes_nothing() {
    let scene = Scene::new(Options { body_max_bytes: 1_000, ..Options::default() });
    for body in [
        "",
        "[]",
        "{",
        "null",
        r#"{"actor":"a"}"#,
        r#"{"actor":"a","action":"a.b","colour":1}"#,
        r#"{"actor":"a","action":"a.b","action":"a.c"}"#,
        r#"{"actor":1,"action":"a.b"}"#,
        r#"{"actor":"a","action":"not an action"}"#,
        r#"{"actor":"a","action":"a.b","entry_id":"x"}"#,
        r#"{"actor":"a","action":"a.b","detail":{"x":9007199254740993}}"#,
        &"[".repeat(500),
    ] {
        let (status, answer) = scene.ask(post(body, Some("secret"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(
            answer["error"]["code"].is_string() && answer["error"]["field"].is_string(),
            "{answer}"
        );
    }
    let large = post(&" ".repeat(1_001), Some("secret"));
    let (status, answer) = scene.ask(large).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("gateway.too_large"))
    );
    for path in [
        "/api/log?after=x",
        "/api/log?limit=-1",
        "/api/log?after=1&after=2",
        "/api/events?after=1.5",
        "/api/events?last=x",
        "/api/events?last=1&last=1",
    ] {
        let (status, answer) = scene.ask(get(path)).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!("gateway.bad_request")),
            "{path}"
        );
    }
    let (status, answer) = scene.ask(get("/nowhere")).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("gateway.no_such_path"))
    );
    let delete =
        Request::delete("/api/log").header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(scene.ask(delete).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let (_, page) = scene.ask(get("/api/log")).await;
    assert_eq!(page, json!({"entries": [], "next_after": 0}));
}

#[tokio::test]
async fn pages_lead_to_the_next() {
    let scene = Scene::new(Options::default());
    for _ in 0..5 {
        scene.note("a.b").await;
    }
    let mut seen = Vec::new();
    let mut after = 0;
    loop {
        let (_, page) = scene.ask(get(&format!("/api/log?after={after}&limit=2"))).await;
        let entries = page["entries"].as_array().unwrap().clone();
        if entries.is_empty() {
            break;
        }
        seen.extend(entries.iter().map(|entry| entry["seq"].as_i64().unwrap()));
        after = page["next_after"].as_i64().unwrap();
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

/// The numbers of the next `count` events of a stream.
async fn numbers(
    stream: &mut (impl StreamExt<Item = Result<axum::body::Bytes, axum::Error>> + Unpin),
    count: usize,
) -> Vec<i64> {
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let piece = testbed::in_time(stream.next()).await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(&piece).unwrap());
    }
    text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
}

async fn open(scene: &Scene, request: Request<Body>) -> axum::body::BodyDataStream {
    let answer = testbed::in_time(scene.gateway.router().oneshot(request)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    answer.into_body().into_data_stream()
}

#[tokio::test]
async fn a_stream_goes_on_behind_what_was_seen_and_ends_with_the_node() {
    let scene = Scene::new(Options::default());
    for _ in 0..3 {
        scene.note("a.b").await;
    }
    let mut stream = open(&scene, get("/api/events?after=1")).await;
    assert_eq!(numbers(&mut stream, 2).await, [2, 3]);
    let next = scene.note("a.b").await;
    scene.bus.ring(guild_store::audit::TOPIC, next - 1);
    assert_eq!(numbers(&mut stream, 1).await, [4]);

    let mut again = get("/api/events?after=0");
    again.headers_mut().insert("last-event-id", "2".parse().unwrap());
    let mut resumed = open(&scene, again).await;
    assert_eq!(numbers(&mut resumed, 2).await, [3, 4]);

    let mut newest = open(&scene, get("/api/events?last=1")).await;
    assert_eq!(numbers(&mut newest, 1).await, [4]);

    scene.shutdown.trigger();
    assert!(stream.next().await.is_none());
    assert!(resumed.next().await.is_none());
}

#[tokio::test]
async fn streams_are_limited_and_given_back() {
    let scene = Scene::new(Options { streams_max: 1, ..Options::default() });
    scene.note("a.b").await;
    let first = open(&scene, get("/api/events")).await;
    let (status, answer) = scene.ask(get("/api/events")).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("gateway.too_many_streams"))
    );
    drop(first);
    let mut second = open(&scene, get("/api/events")).await;
    assert_eq!(numbers(&mut second, 1).await, [1]);
}

/// Nothing is waited for.
struct Hasty;
impl Clock for Hasty {
    fn now_ms(&self) -> UnixMs {
        1_000
    }
    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn a_body_that_never_comes_is_not_waited_for() {
    let scene = Scene::new(Options::default());
    let gateway = Service::new(
        Options::default(),
        scene.roles.clone(),
        Arc::new(Hasty),
        "secret",
        scene.shutdown.clone(),
    );
    let body =
        Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = Request::post("/api/log").header("host", "localhost");
    let request = request.header("authorization", "Bearer secret").body(body).unwrap();
    let answer = gateway.router().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn the_body_of_whoever_has_no_token_is_not_read() {
    let scene = Scene::new(Options::default());
    for path in ["/api/log", "/api/orders", "/api/ledger/transfer", "/api/relays/publish"] {
        // It never comes, and time stands still.
        let body =
            Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        let request = Request::post(path).header("host", "localhost").body(body).unwrap();
        assert_eq!(scene.ask(request).await.0, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn half_a_request_does_not_hold_up_the_end() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let scene = Scene::new(Options::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Time stands still for requests and connections; only the farewell is over at once.
    struct Farewell;
    impl Clock for Farewell {
        fn now_ms(&self) -> UnixMs {
            0
        }
        fn sleep(&self, duration_ms: i64) -> BoxFuture<()> {
            match duration_ms == Options::default().farewell_ms {
                true => Box::pin(std::future::ready(())),
                false => Box::pin(std::future::pending()),
            }
        }
    }
    let gateway = Service::new(
        Options::default(),
        scene.roles.clone(),
        Arc::new(Farewell),
        "secret",
        scene.shutdown.clone(),
    );
    let client = async {
        let mut half = tokio::net::TcpStream::connect(address).await.unwrap();
        half.write_all(b"POST /api/log HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx")
            .await
            .unwrap();
        let mut whole = tokio::net::TcpStream::connect(address).await.unwrap();
        whole.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        whole.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        scene.shutdown.trigger();
        half
    };
    let (served, _half) = futures_util::join!(gateway.run(listener), client);
    served.unwrap();
}

/// Strangers who read the log must not keep the node from its work, whatever they read.
#[tokio::test]
async fn the_log_and_its_stream_wait_for_their_turn() {
    let scene = Scene::new(Options::default());
    scene.note("a.one").await;
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let long = move |_: &mut Rx<'_>| {
        let _ = wait.lock().unwrap().recv();
        Ok::<_, guild_store::Error>(())
    };
    assert!(Box::pin(scene.turns.read(long)).now_or_never().is_none());
    let paths = ["/api/log", "/api/events?last=1", "/api/receipts", "/api/market/events?last=1"];
    for path in paths {
        let asked = scene.gateway.router().oneshot(get(path));
        assert!(Box::pin(asked).now_or_never().is_none(), "{path}");
    }
    let stream = scene.gateway.router().oneshot(get("/api/events")).await.unwrap();
    let mut events = stream.into_body().into_data_stream();
    assert!(events.next().now_or_never().is_none());
    assert_eq!(scene.ask(get("/readyz")).await.0, StatusCode::OK);
    go.send(()).unwrap();
    assert!(events.next().await.is_some());
    assert_eq!(scene.ask(get("/api/log")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn verdicts_are_kept_for_whoever_has_the_token() {
    let scene = Scene::new(Options::default());
    let hash = format!("sha256:{}", "0".repeat(64));
    let absent = serde_json::json!({"absent": "not asked for"});
    let mut body = serde_json::json!({
        "provider": "npub1xtscya34g58tk0z605fvr788k263gsu6cy9x0mhnm87echrgufzsevkk5s", "at_ms": 7,
        "verdict": {
            "schema_version": 1, "suite": "one", "suite_hash": hash, "submission_hash": hash, "class": "SUCCESS",
            "mode": "trusted", "passed": 1, "total": 1, "full": false, "layers": {"smoke": {"passed": 1, "total": 1}},
            "tests": [{"id": "t", "layer": "smoke", "status": "passed", "why": null, "wall_us": 5}],
            "flags": [], "findings": [], "limits": {}, "isolation": {}, "printed": "",
            "trust": {"least_bp": 1000, "most_bp": 1500, "step_bp": 1009, "blacklist": false},
            "metrics": {"wall_us": 1, "cpu_us": 1, "memory_peak_bytes": 1, "coverage_bp": absent,
                "pylint_milli": absent, "bandit_milli": absent, "mypy_milli": absent},
        },
    });
    let keep = |body: &Value, token| post_to("/api/judgements", &body.to_string(), token);
    assert_eq!(scene.ask(keep(&body, None)).await.0, StatusCode::FORBIDDEN);
    let (status, first) = scene.ask(keep(&body, Some("secret"))).await;
    assert_eq!(status, StatusCode::OK, "{first}");
    assert_eq!(scene.ask(keep(&body, Some("secret"))).await.1, first, "the same is kept once");
    body["verdict"]["passed"] = 2.into();
    let (status, refused) = scene.ask(keep(&body, Some("secret"))).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (StatusCode::BAD_REQUEST, &"judge.bad_verdict".into())
    );
    body["verdict"]["surprise"] = 1.into();
    let (status, refused) = scene.ask(keep(&body, Some("secret"))).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (StatusCode::BAD_REQUEST, &"gateway.bad_request".into())
    );
}

#[tokio::test]
async fn dead_letters_are_retried_by_whoever_has_the_token() {
    let scene = Scene::new(Options::default());
    for action in ["a.one", "a.two", "a.three"] {
        scene.note(action).await;
    }
    let store = scene.store.as_ref().unwrap().handle();
    let die = "UPDATE outbox SET state = 'dead', closed_ms = 1 WHERE seq <= 2";
    store.write(move |tx| tx.exec(die, &[])).await.unwrap();
    let retry = |body: &str, token| post_to("/api/outbox/retry", body, token);
    let (status, _) = scene.ask(retry(r#"{"seqs":[1]}"#, None)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for bad in [
        "{}",
        "[1]",
        r#"{"seqs":[]}"#,
        r#"{"seqs":["1"]}"#,
        r#"{"seqs":[1.5]}"#,
        r#"{"seqs":[1],"all_dead":true}"#,
        r#"{"seqs":[1],"sink":"bus"}"#,
        r#"{"all_dead":true,"more":1}"#,
    ] {
        let (status, body) = scene.ask(retry(bad, Some("secret"))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        assert_eq!(body["error"]["code"], "gateway.bad_request", "{bad}");
    }
    let (status, body) = scene.ask(retry(r#"{"seqs":[3,1,1,-9]}"#, Some("secret"))).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body, serde_json::json!({ "retried": [1], "not_dead": [-9, 3] }));
    let other = r#"{"all_dead":true,"sink":"other"}"#;
    let (_, body) = scene.ask(retry(other, Some("secret"))).await;
    assert_eq!(body, serde_json::json!({ "retried": [], "not_dead": [] }));
    let (_, body) = scene.ask(retry(r#"{"all_dead":true}"#, Some("secret"))).await;
    assert_eq!(body, serde_json::json!({ "retried": [2], "not_dead": [] }));
}
