//! Content over HTTP: added as Kubo's clients do it, read as from a gateway, and harmless.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use guild_gateway::{Options, Service};
use guild_network::content::{Content, Options as ContentOptions};
use guild_protocol::content::{Cid, Codec};
use guild_store::Store;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Counting, Scene, Still};

pub(crate) fn content(store: Store) -> Content {
    let random = Arc::new(Counting::default());
    Content::new(ContentOptions::default(), store, Arc::new(Still), random)
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn send(service: &Service, request: Request<Body>) -> Answer {
    let answer = testbed::in_time(service.router().oneshot(request)).await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = testbed::in_time(answer.into_body().collect()).await.unwrap().to_bytes();
    Answer { status, headers, body }
}

fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

async fn get(scene: &Scene, path: &str, headers: &[(&str, &str)]) -> Answer {
    send(&scene.gateway, request(Method::GET, path, headers)).await
}

const TOKEN: (&str, &str) = ("authorization", "Bearer secret");

async fn call(scene: &Scene, path: &str) -> Answer {
    send(&scene.gateway, request(Method::POST, &format!("/api/v0/{path}"), &[TOKEN])).await
}

/// A body with these files; no bytes for a directory.
fn form(files: &[(&str, Option<&[u8]>)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, bytes) in files {
        let what = bytes.map_or("application/x-directory", |_| "application/octet-stream");
        let head = format!(
            "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: {what}\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(bytes.unwrap_or_default());
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xyz--\r\n");
    body
}

async fn post_form(scene: &Scene, path: &str, body: Vec<u8>) -> Answer {
    let request = Request::post(format!("/api/v0/{path}"))
        .header("host", "localhost")
        .header(TOKEN.0, TOKEN.1)
        .header("content-type", "multipart/form-data; boundary=xyz")
        .body(Body::from(body));
    send(&scene.gateway, request.unwrap()).await
}

async fn add(scene: &Scene, query: &str, files: &[(&str, Option<&[u8]>)]) -> Vec<Value> {
    let answer = post_form(scene, &format!("add?{query}"), form(files)).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    answer.lines()
}

#[tokio::test]
async fn files_get_the_ids_that_kubo_gives_them() {
    let scene = Scene::new(Options::default());
    let hello: &[(&str, Option<&[u8]>)] = &[("hello.txt", Some(b"hello"))];
    // What Kubo says by itself: version 0, leaves in nodes.
    let v0 = add(&scene, "", hello).await;
    let qm = "QmWfVY9y3xjsixTgbd9AorQxH7VtMpzfx2HaWtsoUYecaX";
    assert_eq!(v0, [json!({ "Name": "hello.txt", "Hash": qm, "Size": "13" })]);
    let v1 = add(&scene, "cid-version=1", hello).await;
    let raw = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";
    assert_eq!(v1, [json!({ "Name": "hello.txt", "Hash": raw, "Size": "5" })]);
    let node = add(&scene, "cid-version=1&raw-leaves=false", hello).await;
    let id = "bafybeid3weurg3gvyoi7nisadzolomlvoxoppe2sesktnpvdve3256n5tq";
    assert_eq!(node[0]["Hash"], id);
    let answer: &[(&str, Option<&[u8]>)] =
        &[("42", Some(b"{\"requestId\":\"42\",\"result\":\"ok\"}"))];
    let wrapped = add(&scene, "cid-version=1&wrap-with-directory=true", answer).await;
    let directory = "bafybeie5yjylp5qjdv2nkzeexsvfkde36hi2xejk352uosxshe76ib33ha";
    assert_eq!((wrapped.len(), &wrapped[1]["Name"]), (2, &json!("")));
    assert_eq!(wrapped[1]["Hash"], directory);
    let pins = call(&scene, "pin/ls").await.json();
    let keys = pins["Keys"].as_object().unwrap();
    assert_eq!(keys.len(), 3, "the roots alone, and version 0 is the same as 1: {pins}");
    assert!(keys.contains_key(directory));
}

#[tokio::test]
async fn trees_are_put_together_and_hashes_alone_keep_nothing() {
    let scene = Scene::new(Options::default());
    let files: &[(&str, Option<&[u8]>)] = &[
        ("top", None),
        ("top%2Fb%20c.txt", Some(b"two")),
        ("top/empty", None),
        ("top/deep/a.txt", Some(b"one")),
        ("top/deep/none", Some(b"")),
    ];
    let hashed = add(&scene, "cid-version=1&only-hash=true", files).await;
    let before = call(&scene, "pin/ls").await.json();
    assert_eq!(before["Keys"], json!({}));
    let lines = add(&scene, "cid-version=1", files).await;
    assert_eq!(lines, hashed);
    let names: Vec<&str> = lines.iter().map(|line| line["Name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["top/b c.txt", "top/deep/a.txt", "top/deep/none", "top/deep", "top/empty", "top"]
    );
    let root = lines[5]["Hash"].as_str().unwrap();
    let read = get(&scene, &format!("/ipfs/{root}/deep/a.txt"), &[]).await;
    assert_eq!((read.status, &read.body[..]), (StatusCode::OK, &b"one"[..]));
    let read = get(&scene, &format!("/ipfs/{root}/b%20c.txt"), &[]).await;
    assert_eq!(
        (read.header("content-type"), &read.body[..]),
        ("text/plain; charset=utf-8", &b"two"[..])
    );
    let read = get(&scene, &format!("/ipfs/{root}/deep/none"), &[]).await;
    assert_eq!((read.status, read.body.len()), (StatusCode::OK, 0));
    for (wrong, body) in [
        ("add?trickle=true", form(files)),
        ("add?hash=sha3-256", form(files)),
        ("add?chunker=rabin", form(files)),
        ("add?cid-version=2", form(files)),
        ("add", form(&[("a/../../b", Some(b"x"))])),
        ("add", form(&[("a", Some(b"x")), ("a", Some(b"y"))])),
        ("add", form(&[("a", Some(b"x")), ("a/b", Some(b"y"))])),
        ("add", form(&[])),
        ("add", b"--xyz\r\n\r\ncut off".to_vec()),
    ] {
        let refused = post_form(&scene, wrong, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        let said = refused.json();
        assert_eq!(
            (&said["Type"], said["Message"].is_string()),
            (&json!("error"), true),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn parts_of_files_and_what_is_known_already() {
    let scene = Scene::new(Options::default());
    let bytes: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
    let lines = add(&scene, "cid-version=1", &[("data.bin", Some(&bytes))]).await;
    let cid = lines[0]["Hash"].as_str().unwrap();
    let path = format!("/ipfs/{cid}");
    let whole = get(&scene, &path, &[]).await;
    assert_eq!((whole.status, &whole.body[..]), (StatusCode::OK, &bytes[..]));
    assert_eq!(whole.header("accept-ranges"), "bytes");
    assert_eq!(whole.header("etag"), format!("\"{cid}\""));
    assert!(whole.header("cache-control").contains("immutable"));
    assert_eq!(whole.header("x-ipfs-path"), path);
    let head = send(&scene.gateway, request(Method::HEAD, &path, &[])).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), "700000");
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=262140-262150", 262_140, 262_151),
        ("bytes=699999-", 699_999, 700_000),
        ("bytes=-3", 699_997, 700_000),
    ] {
        let part = get(&scene, &path, &[("range", range)]).await;
        assert_eq!(part.status, StatusCode::PARTIAL_CONTENT, "{range}");
        assert_eq!(&part.body[..], &bytes[from..to], "{range}");
        assert_eq!(part.header("content-range"), format!("bytes {from}-{}/700000", to - 1));
        assert_eq!(part.header("content-length"), (to - from).to_string());
    }
    let beyond = get(&scene, &path, &[("range", "bytes=700000-")]).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.header("content-range"), "bytes */700000");
    let several = get(&scene, &path, &[("range", "bytes=0-1,3-4")]).await;
    assert_eq!((several.status, several.body.len()), (StatusCode::OK, 700_000));
    let tag = format!("\"{cid}\"");
    let other = [("range", "bytes=0-1"), ("if-range", "\"other\"")];
    assert_eq!(get(&scene, &path, &other).await.status, StatusCode::OK);
    let same = [("range", "bytes=0-1"), ("if-range", tag.as_str())];
    assert_eq!(get(&scene, &path, &same).await.status, StatusCode::PARTIAL_CONTENT);
    let known = get(&scene, &path, &[("if-none-match", &format!("W/\"x\", {tag}"))]).await;
    assert_eq!((known.status, known.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let cat = call(&scene, &format!("cat?arg={cid}&offset=5&length=7")).await;
    assert_eq!(&cat.body[..], &bytes[5..12]);
}

#[tokio::test]
async fn blocks_and_whole_trees_can_be_had() {
    let scene = Scene::new(Options::default());
    let bytes = vec![3; 300_000];
    let lines = add(&scene, "cid-version=1", &[("d/x", Some(&bytes)), ("d/y", Some(b"y"))]).await;
    let root: Cid = lines.last().unwrap()["Hash"].as_str().unwrap().parse().unwrap();
    let block = get(&scene, &format!("/ipfs/{root}?format=raw"), &[]).await;
    root.verify(&block.body).unwrap();
    assert_eq!(block.header("content-type"), "application/vnd.ipld.raw");
    let asked =
        get(&scene, &format!("/ipfs/{root}/y"), &[("accept", "application/vnd.ipld.raw")]).await;
    assert_eq!(&asked.body[..], b"y");
    let car = get(&scene, &format!("/ipfs/{root}?format=car"), &[]).await;
    assert_eq!(car.header("content-type"), "application/vnd.ipld.car; version=1");
    // A header, the directory, the file, its two leaves, the other file.
    let mut rest = &car.body[..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (mut length, mut shift, mut at) = (0_usize, 0, 0);
        loop {
            length |= usize::from(rest[at] & 0x7f) << shift;
            shift += 7;
            at += 1;
            if rest[at - 1] & 0x80 == 0 {
                break;
            }
        }
        let (section, behind) = rest[at..].split_at(length);
        rest = behind;
        if found.is_empty() {
            assert!(section.starts_with(b"\xa2\x65roots"));
            found.push(root);
            continue;
        }
        let cid = Cid::from_bytes(&section[..36]).unwrap();
        cid.verify(&section[36..]).unwrap();
        found.push(cid);
    }
    assert_eq!((found.len(), found[0], found[1]), (6, root, root));
    assert_eq!(found[5], Cid::of(Codec::Raw, b"y"));
    let refused = get(&scene, &format!("/ipfs/{root}?format=tar"), &[]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let put = post_form(&scene, "block/put?cid-codec=raw", form(&[("b", Some(b"a block"))])).await;
    let key = put.json()["Key"].as_str().unwrap().to_owned();
    assert_eq!(key, Cid::of(Codec::Raw, b"a block").to_string());
    assert_eq!(&call(&scene, &format!("block/get?arg={key}")).await.body[..], b"a block");
    let large = vec![0; 2 * 1024 * 1024 + 1];
    let refused = post_form(&scene, "block/put", form(&[("b", Some(&large))])).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    let no_node = post_form(&scene, "block/put?cid-codec=dag-pb", form(&[("b", Some(b"x"))])).await;
    assert_eq!(no_node.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn pages_of_strangers_have_no_origin_and_their_names_play_no_tricks() {
    let scene = Scene::new(Options::default());
    let evil: &[u8] = b"<script>alert(document.cookie)</script>";
    let lines = add(
        &scene,
        "cid-version=1",
        &[
            ("site/index.html", Some(evil)),
            ("site/list/%3Cimg src=x onerror=alert(1)%3E", Some(b"1")),
            ("site/list/javascript:alert(1)", Some(b"2")),
            ("site/list/%E2%80%AEgnp.exe", Some(b"3")),
        ],
    )
    .await;
    let root = lines.last().unwrap()["Hash"].as_str().unwrap();
    let index = get(&scene, &format!("/ipfs/{root}/"), &[("accept", "text/html")]).await;
    assert_eq!(&index.body[..], evil);
    assert_eq!(index.header("content-type"), "text/html; charset=utf-8");
    for answer in [&index, &get(&scene, &format!("/ipfs/{root}/index.html"), &[]).await] {
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("sandbox;") && !policy.contains("allow"), "{policy}");
    }
    let there = get(&scene, &format!("/ipfs/{root}/list"), &[]).await;
    assert_eq!(there.status, StatusCode::FOUND);
    assert_eq!(there.header("location"), format!("/ipfs/{root}/list/"));
    let page = get(&scene, &format!("/ipfs/{root}/list/"), &[("accept", "text/html")]).await;
    let text = std::str::from_utf8(&page.body).unwrap();
    assert!(!text.contains("<img") && !text.contains("\u{202e}"), "{text}");
    assert!(text.contains("href=\"./javascript%3Aalert%281%29\""), "{text}");
    assert!(text.contains("&lt;img src=x"), "{text}");
    let missing = get(&scene, &format!("/ipfs/{root}/nothing"), &[("accept", "text/html")]).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.header("content-type").starts_with("text/html"));
    for (path, status) in [
        ("/ipfs/nonsense".to_owned(), StatusCode::BAD_REQUEST),
        (format!("/ipfs/{}", Cid::of(Codec::Raw, b"?")), StatusCode::NOT_FOUND),
        (format!("/ipfs/{root}/%ff"), StatusCode::BAD_REQUEST),
        (format!("/ipfs/{root}/{}", "a/".repeat(100)), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(get(&scene, &path, &[]).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn what_changes_something_needs_the_token_and_reading_does_unless_it_is_open() {
    let scene = Scene::new(Options::default());
    let lines = add(&scene, "cid-version=1", &[("x", Some(b"hello"))]).await;
    let cid = lines[0]["Hash"].as_str().unwrap();
    let closed = Service::new(
        Options { content_public: false, ..Options::default() },
        scene.roles.clone(),
        Arc::new(Still),
        "secret",
        scene.shutdown.clone(),
    );
    let changing = ["add", "block/put", "pin/add?arg=x", "pin/ls", "pin/rm?arg=x", "repo/gc"];
    let changing = changing.map(|call| format!("/api/v0/{call}"));
    for path in &changing {
        for service in [&scene.gateway, &closed] {
            let refused = send(service, request(Method::POST, path, &[])).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(refused.json()["error"]["code"], "gateway.no_token");
            assert!(refused.json()["Message"].is_string());
        }
        let by_page = send(&scene.gateway, request(Method::GET, path, &[TOKEN])).await;
        assert_eq!(by_page.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let reading = [
        (Method::GET, format!("/ipfs/{cid}")),
        (Method::POST, format!("/api/v0/cat?arg={cid}")),
        (Method::POST, format!("/api/v0/block/get?arg={cid}")),
    ];
    for (method, path) in reading {
        let ask = |headers| request(method.clone(), &path, headers);
        assert_eq!(send(&scene.gateway, ask(&[])).await.status, StatusCode::OK);
        assert_eq!(send(&closed, ask(&[])).await.status, StatusCode::FORBIDDEN);
        let shown = send(&closed, ask(&[TOKEN])).await;
        assert_eq!((shown.status, &shown.body[..]), (StatusCode::OK, &b"hello"[..]));
        let wrong = [("authorization", "Bearer other")];
        assert_eq!(send(&scene.gateway, ask(&wrong)).await.status, StatusCode::FORBIDDEN);
    }
    let kept = send(&closed, request(Method::GET, &format!("/ipfs/{cid}"), &[TOKEN])).await;
    assert_eq!(kept.header("cache-control"), "private, no-store");
}

#[tokio::test]
async fn pins_are_made_listed_and_let_go() {
    let scene = Scene::new(Options::default());
    let lines = add(&scene, "cid-version=1&pin=false", &[("x", Some(b"hello"))]).await;
    let cid = lines[0]["Hash"].as_str().unwrap();
    assert_eq!(call(&scene, "pin/ls").await.json(), json!({ "Keys": {} }));
    let not_yet = call(&scene, &format!("pin/ls?arg={cid}")).await;
    assert_eq!(not_yet.status, StatusCode::NOT_FOUND);
    let pinned = call(&scene, &format!("pin/add?arg={cid}&name=why")).await.json();
    assert_eq!(pinned, json!({ "Pins": [cid] }));
    let listed = call(&scene, &format!("pin/ls?arg=/ipfs/{cid}")).await.json();
    assert_eq!(listed["Keys"][cid], json!({ "Type": "recursive", "Name": "why" }));
    assert_eq!(call(&scene, "repo/gc").await.json(), json!({ "Removed": 0, "RemovedBytes": 0 }));
    assert_eq!(call(&scene, &format!("pin/rm?arg={cid}")).await.status, StatusCode::OK);
    assert_eq!(call(&scene, &format!("pin/rm?arg={cid}")).await.status, StatusCode::NOT_FOUND);
    let unknown = Cid::of(Codec::Raw, b"unknown");
    assert_eq!(call(&scene, &format!("pin/add?arg={unknown}")).await.status, StatusCode::NOT_FOUND);
    assert_eq!(call(&scene, "pin/add").await.status, StatusCode::BAD_REQUEST);
    assert!(call(&scene, "version").await.json()["Version"].is_string());
}
