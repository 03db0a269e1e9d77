//! The market over HTTP: pages and JSON of the same things.

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use futures_util::StreamExt;
use guild_bus::Bus;
use guild_gateway::Options;
use guild_market::job::Refusal;
use guild_market::order;
use guild_protocol::nostr::Event;
use guild_protocol::nostr::announcement::Announcement;
use guild_protocol::nostr::job::Status;
use guild_protocol::receipt;
use guild_protocol::replay;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::bazaar::{BUYER, Bazaar, T0, Wish, cheap, honest, key, public, work};
use crate::{Scene, get, numbers, open};

/// One job that went well, and one that did not.
pub(crate) struct Told {
    pub(crate) good: guild_protocol::nostr::Event,
    pub(crate) receipt_id: String,
}

/// A market in which something has happened.
pub(crate) async fn fill(scene: &Scene) -> Told {
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    bazaar.fund(1_000_000).await;
    bazaar.announce(2, "Fast box", 5_000, T0 + 20_000).await;
    bazaar.announce(3, "Quiet corner", 4_000, T0 + 10_000).await;
    bazaar.announce(4, "Bargain vectors", 1_000, T0 + 15_000).await;
    bazaar.announce(5, "Night shift", 6_000, T0 - 7_200_000).await;
    let asked = bazaar.ask(8, &[], "who can do this", T0 + 1_000).await;
    bazaar.say(3, &asked, Status::Processing, "", T0 + 1_100).await;
    let cheat = Wish { order_key: "cheat", provider: 4, budget_msat: 2_000, private: true };
    let request = bazaar.order(cheat, T0 + 2_000).await;
    bazaar.answer(4, &request, &cheap(4), T0 + 2_600).await;
    bazaar.settle("cheat", T0 + 2_650).await;
    bazaar.learn("cheat", T0 + 2_650).await;
    let hired = bazaar.ask(7, &[2], "for us", T0 + 3_000).await;
    bazaar.take(2, &hired, 5_000, T0 + 3_020).await;
    bazaar.say(2, &hired, Status::Processing, "", T0 + 3_020).await;
    bazaar.hand_in(2, &hired, T0 + 3_400).await;
    bazaar.sign_for(7, 2, &hired, T0 + 3_600).await;
    let wish = Wish { order_key: "good", provider: 2, budget_msat: 8_000, private: false };
    let good = bazaar.order(wish, T0 + 30_000).await;
    bazaar.say(2, &good, Status::Processing, "two texts, one moment", T0 + 30_120).await;
    bazaar.answer(2, &good, &honest(&work("good"), 2), T0 + 31_400).await;
    let settled = bazaar.settle("good", T0 + 31_450).await;
    bazaar.learn("good", T0 + 31_450).await;
    bazaar
        .order(
            Wish { order_key: "open", provider: 3, budget_msat: 4_000, private: false },
            T0 + 50_000,
        )
        .await;
    Told { good, receipt_id: settled.receipt.unwrap().receipt_id().to_string() }
}

async fn fetch(scene: &Scene, request: Request<Body>) -> (StatusCode, HeaderMap, Vec<u8>) {
    let answer = testbed::in_time(scene.gateway.router().oneshot(request)).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = testbed::in_time(body.collect()).await.unwrap().to_bytes().to_vec();
    (parts.status, parts.headers, body)
}

/// As a browser asks.
fn look(path: &str) -> Request<Body> {
    let mut request = get(path);
    request
        .headers_mut()
        .insert("accept", "text/html,application/xhtml+xml,*/*;q=0.8".parse().unwrap());
    request
}

async fn page(scene: &Scene, path: &str) -> (StatusCode, String) {
    let (status, headers, body) = fetch(scene, look(path)).await;
    assert_eq!(headers["content-type"], "text/html; charset=utf-8", "{path}");
    (status, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn every_page_has_its_json_and_strict_headers() {
    let scene = Scene::new(Options::default());
    let told = fill(&scene).await;
    let paths = [
        "/".to_owned(),
        "/providers".to_owned(),
        format!("/providers/{}", public(2).npub()),
        "/matrix".to_owned(),
        "/matrix/oa.embedding.v1".to_owned(),
        "/requests".to_owned(),
        format!("/requests/{}", told.good.id.hex()),
        "/receipts".to_owned(),
        format!("/receipts/{}", told.receipt_id),
    ];
    for path in &paths {
        let (status, headers, body) = fetch(&scene, look(path)).await;
        let text = String::from_utf8(body).unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        assert!(
            headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'self'")
        );
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["referrer-policy"], "no-referrer");
        assert!(text.contains("<main") && text.contains("Fast box"), "{path}");
        // What the policy would refuse must not be there: styles and scripts in the page itself.
        assert!(
            !text.contains("style=") && !text.contains("<style") && !text.contains("onclick"),
            "{path}"
        );
        let json =
            text.split_once("For programs: <a href=\"").unwrap().1.split_once('"').unwrap().0;
        let (status, headers, body) = fetch(&scene, look(json)).await;
        assert_eq!(
            (status, &headers["content-type"]),
            (StatusCode::OK, &"application/json".parse().unwrap())
        );
        let mut program = get(path);
        program.headers_mut().insert("accept", "application/json".parse().unwrap());
        assert_eq!(fetch(&scene, program).await.2, body, "{path} in JSON is {json}");
        assert!(serde_json::from_slice::<Value>(&body).unwrap().is_object());
    }
}

/// What only buyer and provider know of the work in [`in_private`].
const SECRETS: [&str; 3] = ["zanzibar", "oa.embedding", "embedding"];

/// Private work, bought and done here, that ends in every way; its requests and receipts.
async fn in_private(scene: &Scene) -> (Vec<Event>, Vec<String>) {
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    bazaar.fund(1_000_000).await;
    let wish = |order_key| Wish { order_key, provider: 4, budget_msat: 8_000, private: true };
    let failed = bazaar.order(wish("zanzibar lost"), T0 + 1_000).await;
    let no = bazaar.say(4, &failed, Status::Error, "no map of Zanzibar", T0 + 1_100).await;
    bazaar.write(move |tx| Ok(order::fail(tx, &no, &key(BUYER), T0 + 1_200)?)).await;
    let withheld = bazaar.order(wish("zanzibar cheap"), T0 + 2_000).await;
    bazaar.answer(4, &withheld, &cheap(4), T0 + 2_100).await;
    let mut receipts = vec![bazaar.settle("zanzibar cheap", T0 + 2_200).await.receipt];
    let paid = bazaar.order(wish("zanzibar"), T0 + 3_000).await;
    bazaar.answer(4, &paid, &honest(&work("zanzibar"), 4), T0 + 3_100).await;
    receipts.push(bazaar.settle("zanzibar", T0 + 3_200).await.receipt);
    let hired = bazaar.ask_in_private(7, 2, "zanzibar too", T0 + 4_000).await;
    bazaar.take(2, &hired, 5_000, T0 + 4_100).await;
    let id = hired.id;
    let refusal =
        || Refusal { code: &guild_roles::code::WORK_FAILED, words: "Zanzibar".to_owned() };
    bazaar.give_up(&id, &refusal(), T0 + 4_200).await;
    let receipts = receipts.into_iter().map(|receipt| receipt.unwrap().receipt_id().to_string());
    (vec![failed, withheld, paid, hired], receipts.collect())
}

#[tokio::test]
async fn what_is_private_is_on_no_public_route() {
    let scene = Scene::new(Options::default());
    let (requests, receipts) = in_private(&scene).await;
    let mut paths: Vec<String> =
        ["/", "/providers", "/requests", "/receipts", "/relays"].map(str::to_owned).into();
    paths.push(format!("/providers/{}", public(4).npub()));
    paths.extend(requests.iter().map(|request| format!("/requests/{}", request.id.hex())));
    paths.extend(receipts.iter().map(|id| format!("/receipts/{id}")));
    let api: Vec<String> = paths.iter().map(|path| format!("/api{path}")).collect();
    paths.extend(api);
    paths.extend(receipts.iter().map(|id| format!("/api/receipts/{id}/replay")));
    let others = ["/api/summary", "/api/log", "/metrics", "/readyz", "/relay"];
    paths.extend(others.map(str::to_owned));
    for path in &paths {
        let (_, _, body) = fetch(&scene, look(path)).await;
        let shown = String::from_utf8(body).unwrap().to_lowercase();
        // Examples of what one may look for and ask for, the same on every node.
        let shown = shown.replace("placeholder=\"oa.embedding.v1\"", "");
        let shown = shown.replace("guild hire --schema oa.embedding.v1", "");
        for secret in SECRETS {
            assert!(!shown.contains(secret), "{path} tells {secret}: {shown}");
        }
    }
    let mut stream = open(&scene, get("/api/market/events")).await;
    let mut told = String::new();
    while told.matches("\n\n").count() < 10 {
        told.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    assert!(told.contains("order.failed") && told.contains("job.failed"), "{told}");
    for secret in SECRETS {
        assert!(!told.to_lowercase().contains(secret), "the stream tells {secret}: {told}");
    }
}

#[tokio::test]
async fn the_owner_sees_what_is_private_and_a_wrong_token_sees_nothing() {
    let scene = Scene::new(Options::default());
    let (requests, receipts) = in_private(&scene).await;
    let with = |path: &str, token: &str| {
        let mut request = get(path);
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    for (request, words) in
        requests.iter().zip(["no map of Zanzibar", "not what", "exactly what", "Zanzibar"])
    {
        let path = format!("/api/requests/{}", request.id.hex());
        let (status, headers, body) = fetch(&scene, with(&path, "secret")).await;
        let shown = String::from_utf8(body).unwrap();
        assert_eq!(
            (status, &headers["vary"]),
            (StatusCode::OK, &"accept, authorization".parse().unwrap())
        );
        assert!(shown.contains("oa.embedding.v1") && shown.contains(words), "{shown}");
        assert_eq!(scene.ask(with(&path, "wrong")).await.0, StatusCode::FORBIDDEN);
    }
    let replay = format!("/api/receipts/{}/replay", receipts[1]);
    assert_eq!(fetch(&scene, get(&replay)).await.0, StatusCode::NOT_FOUND);
    let (status, _, lines) = fetch(&scene, with(&replay, "secret")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(String::from_utf8(lines).unwrap().contains("oa.embedding.v1"));
    let (_, summary) = scene.ask(with("/api/summary", "secret")).await;
    assert_eq!(summary["requests"][0]["schema_id"], "oa.embedding.v1");
}

#[tokio::test]
async fn a_receipt_is_given_byte_for_byte_and_shown_check_by_check() {
    let scene = Scene::new(Options::default());
    let told = fill(&scene).await;
    let path = format!("/api/receipts/{}", told.receipt_id);
    let (_, headers, bytes) = fetch(&scene, get(&path)).await;
    assert_eq!(headers["content-disposition"], "inline; filename=\"receipt.json\"");
    let proven = receipt::Receipt::from_bytes(&bytes).unwrap();
    assert_eq!(proven.receipt_id().as_str(), told.receipt_id);
    let (status, _, replay) = fetch(&scene, get(&format!("{path}/replay"))).await;
    assert_eq!(status, StatusCode::OK);
    assert!(replay::verify(&replay[..], Some(&bytes)).unwrap().checks.holds());
    let (_, page) = page(&scene, &format!("/receipts/{}", told.receipt_id)).await;
    assert_eq!(page.matches("knot good").count(), receipt::verify(&bytes).unwrap().checks().len());
    assert!(page.contains("This receipt holds") && !page.contains("knot bad"));
    // The file that is given is the one that the command names.
    assert!(
        page.contains("download=\"receipt.json\"")
            && page.contains("guild receipts verify receipt.json")
    );
    assert!(
        page.contains("download=\"REPLAY.jsonl\"")
            && page.contains("guild replay verify REPLAY.jsonl \\\n    --receipt")
    );
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let scene = Scene::new(Options::default());
    let told = fill(&scene).await;
    for path in
        ["/".to_owned(), "/api/requests".to_owned(), format!("/api/receipts/{}", told.receipt_id)]
    {
        let (_, headers, _) = fetch(&scene, get(&path)).await;
        assert_eq!(headers["cache-control"], "no-cache");
        let mut again = get(&path);
        again.headers_mut().insert("if-none-match", headers["etag"].clone());
        let (status, _, body) = fetch(&scene, again).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
        let mut other = get(&path);
        other.headers_mut().insert("if-none-match", "\"other\"".parse().unwrap());
        assert_eq!(fetch(&scene, other).await.0, StatusCode::OK);
    }
    let (_, home) = page(&scene, "/").await;
    for asset in home.split("\"/assets/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        let (status, headers, _) = fetch(&scene, get(&format!("/assets/{asset}"))).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(headers["cache-control"], "public, max-age=31536000, immutable");
    }
    assert_eq!(fetch(&scene, get("/assets/style-0.css")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn lists_lead_to_their_next_page_and_can_be_narrowed() {
    let scene = Scene::new(Options::default());
    fill(&scene).await;
    for (path, name, count) in [
        ("/api/providers", "providers", 4),
        ("/api/requests", "requests", 5),
        ("/api/receipts", "receipts", 3),
    ] {
        let (mut seen, mut after) = (0, String::new());
        loop {
            let (_, body) = scene.ask(get(&format!("{path}?limit=1&after={after}"))).await;
            seen += body[name].as_array().unwrap().len();
            match body["next"].as_str() {
                Some(next) => after = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, count, "{path}");
    }
    let (_, first) = page(&scene, "/requests?limit=2").await;
    let next = first.split_once("rel=\"next\" href=\"").unwrap().1.split_once('"').unwrap().0;
    let (status, second) = page(&scene, &next.replace("&amp;", "&")).await;
    assert_eq!((status, second.matches("class=\"what\"").count()), (StatusCode::OK, 2));
    let (_, live) = scene.ask(get("/api/providers?live=true&schema=oa.embedding.v1")).await;
    assert_eq!(live["providers"].as_array().unwrap().len(), 3);
    let (_, none) = page(&scene, "/providers?schema=%22%3Cb%3E&live=").await;
    assert!(none.contains("Nobody offers that.") && none.contains("value=\"&quot;&lt;b&gt;\""));
    for bad in [
        "/api/requests?after=x",
        "/api/receipts?after=5-nothing",
        "/api/providers?after=5-nothing",
        "/api/requests?limit=-1",
        "/api/requests?live=true",
        "/api/providers?live=maybe",
        "/api/providers?schema=%00",
        "/api/providers?limit=1&limit=2",
        "/api/providers/nobody",
        "/api/requests/12",
        "/api/receipts/rcpt_1",
        "/api/requests/%ff",
    ] {
        let (status, body) = scene.ask(get(bad)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
        assert!(body["error"]["field"].is_string(), "{bad}: {body}");
    }
}

#[tokio::test]
async fn errors_are_pages_for_people_and_json_for_programs() {
    let scene = Scene::new(Options::default());
    let nothing = "ab".repeat(32);
    for (path, status, code) in [
        ("/nowhere".to_owned(), 404, "gateway.no_such_path"),
        (format!("/requests/{nothing}"), 404, "gateway.unknown_id"),
        (format!("/receipts/rcpt_{nothing}"), 404, "gateway.unknown_id"),
        (format!("/providers/{}", public(77).npub()), 404, "gateway.unknown_id"),
        ("/providers/%3Cscript%3E".to_owned(), 400, "gateway.bad_request"),
        ("/requests?after=x".to_owned(), 400, "gateway.bad_request"),
    ] {
        let (is, page) = page(&scene, &path).await;
        assert_eq!(is.as_u16(), status, "{path}");
        assert!(
            page.contains(code) && page.contains("To the overview") && !page.contains("<script>"),
            "{path}"
        );
        let (is, body) = scene.ask(get(&path.replacen('/', "/api/", 1))).await;
        assert_eq!(is.as_u16(), status, "{path}");
        assert!(body["error"]["help"].is_string());
    }
    let (_, headers, _) = fetch(&scene, get("/api/nowhere")).await;
    assert_eq!(headers["x-content-type-options"], "nosniff");
    let foreign = Request::get("/").header("host", "evil.example").header("accept", "text/html");
    let (status, _, body) = fetch(&scene, foreign.body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(String::from_utf8(body).unwrap().contains("gateway.unknown_host"));
}

#[tokio::test]
async fn an_empty_market_says_what_to_do_next() {
    let scene = Scene::new(Options::default());
    for (path, words) in [
        ("/", "guild hire --schema"),
        ("/providers", "Nobody has announced anything yet."),
        ("/requests", "No request yet."),
        ("/receipts", "guild demo --keep"),
    ] {
        let (status, page) = page(&scene, path).await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains(words), "{path}");
    }
}

/// An announcement of which every word is hostile. Ours would refuse to be sent like that.
fn hostile_card(markup: &str, long: &str) -> Event {
    let mut draft = Announcement::new(markup).draft(T0.unsigned_abs() / 1_000).unwrap();
    let tags = [
        ["k", markup].map(str::to_owned),
        ["k".to_owned(), format!("\u{202e}{long}")],
        ["t".to_owned(), format!("oa.{markup}.v1")],
        ["t", long].map(str::to_owned),
        ["relays".to_owned(), format!("wss://relay.example/{markup}")],
        ["relays".to_owned(), format!("wss://relay.example/{long}")],
    ];
    draft.tags.extend(tags.map(Vec::from));
    let name = format!("e{}", "\u{301}".repeat(200));
    let about = format!("\u{2067}{markup} {long}");
    draft.content = json!({ "name": name, "description": about }).to_string();
    draft.sign(&key(30)).unwrap()
}

#[tokio::test]
async fn nobody_else_is_called_this_node() {
    let scene = Scene::new(Options::default());
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    bazaar.announce(20, "\u{200b}This  NODE", 1, T0 + 1_000).await;
    let (_, shown) = page(&scene, "/providers").await;
    assert!(shown.contains(&public(20).npub()) && !shown.to_lowercase().contains("this node<"));
}

#[tokio::test]
async fn hostile_names_stay_words() {
    let scene = Scene::new(Options::default());
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    let markup = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let long = "long ".repeat(2_000);
    let names =
        [markup, "\u{202e}live\u{2066}", "a\u{0}\u{1b}[2Jb", long.as_str(), "\u{200b}\u{feff}"];
    for (n, name) in (20..).zip(names) {
        bazaar.announce(n, name, 1, T0 + 1_000).await;
        bazaar.ask(9, &[n], "x", T0 + 2_000).await;
    }
    bazaar.put(&hostile_card(markup, &long), T0 + 1_000).await;
    let request = bazaar.ask(9, &[20], "y", T0 + 3_000).await;
    bazaar.say(20, &request, Status::Error, markup, T0 + 3_100).await;
    let mut pages = vec!["/".to_owned(), "/providers".to_owned(), "/requests".to_owned()];
    pages.extend((20..25).map(|n| format!("/providers/{}", public(n).npub())));
    pages.push(format!("/requests/{}", request.id.hex()));
    pages.push(format!("/providers/{}", public(30).npub()));
    for path in &pages {
        let (status, page) = page(&scene, path).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        assert_eq!(page.matches("<script").count(), 1, "only our own: {path}");
        assert!(!page.contains("<img") && page.len() < 60_000, "{path}: {}", page.len());
        assert!(page.chars().all(|c| c == '\n' || !c.is_control()), "{path}");
        assert!(!page.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}']), "{path}");
    }
    for of in [3, 9] {
        let (_, shown) = page(&scene, &pages[of]).await;
        assert!(shown.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{shown}");
        assert!(!shown.contains(&"\u{301}".repeat(4)));
    }
    // A name that shows nothing is no name: the key stands for it.
    let (_, nameless) = page(&scene, &pages[7]).await;
    assert!(nameless.contains("<h1><bdi>npub1"));
    let (_, all) = scene.ask(get("/api/providers?limit=100")).await;
    let raw: Vec<&Value> =
        all["providers"].as_array().unwrap().iter().map(|p| &p["provider"]["name"]).collect();
    assert!(raw.contains(&&json!(markup)), "programs get what was announced");
}

#[tokio::test]
async fn the_market_is_followed_without_a_gap() {
    let scene = Scene::new(Options::default());
    fill(&scene).await;
    let mut all = open(&scene, get("/api/market/events")).await;
    let seen = numbers(&mut all, 3).await;
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    let mut again = get("/api/market/events");
    again.headers_mut().insert("last-event-id", seen[0].to_string().parse().unwrap());
    let mut resumed = open(&scene, again).await;
    assert_eq!(numbers(&mut resumed, 2).await, seen[1..]);
    let mut newest = open(&scene, get("/api/market/events?last=0")).await;
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    let wish = Wish { order_key: "new", provider: 2, budget_msat: 1_000, private: false };
    bazaar.order(wish, T0 + 60_000).await;
    scene.bus.ring(guild_market::TOPIC, 0);
    let fresh = numbers(&mut newest, 1).await;
    assert!(fresh[0] > seen[2]);
    for bad in ["/api/market/events?after=x", "/api/market/events?last=-1"] {
        assert_eq!(scene.ask(get(bad)).await.0, StatusCode::BAD_REQUEST);
    }
    scene.shutdown.trigger();
    while let Some(piece) = newest.next().await {
        piece.unwrap();
    }
}

#[tokio::test]
async fn a_node_is_ready_only_while_everything_runs() {
    let scene = Scene::new(Options::default());
    scene.roles.services.running("relay");
    assert_eq!(
        scene.ask(get("/readyz")).await,
        (StatusCode::OK, json!({ "ok": true, "reasons": [] }))
    );
    scene.roles.services.ended("relay");
    let (status, body) = scene.ask(get("/readyz")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body, json!({ "ok": false, "reasons": ["the service relay does not run"] }));
    scene.roles.services.running("relay");
    scene.shutdown.trigger();
    assert_eq!(scene.ask(get("/readyz")).await.1["reasons"], json!(["the node is stopping"]));
    let mut scene = Scene::new(Options::default());
    scene.store.take().unwrap().close();
    let (status, body) = scene.ask(get("/readyz")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        body["reasons"][0].as_str().unwrap().starts_with("the store does not answer"),
        "{body}"
    );
    assert_eq!(scene.ask(get("/healthz")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn numbers_are_shown_only_if_somebody_keeps_them() {
    let scene = Scene::new(Options::default());
    assert_eq!(scene.ask(get("/metrics")).await.0, StatusCode::NOT_FOUND);
    let roles = guild_gateway::Roles {
        metrics: Some(std::sync::Arc::new(|| "one 1\n".to_owned())),
        ..scene.roles.clone()
    };
    let clock = std::sync::Arc::new(crate::Still);
    let gateway = guild_gateway::Service::new(
        Options::default(),
        roles,
        clock,
        "secret",
        scene.shutdown.clone(),
    );
    let answer = gateway.router().oneshot(get("/metrics")).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "one 1\n");
}
