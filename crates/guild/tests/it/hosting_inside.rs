//! Using a sandbox over the gateway: its ports, its files, its shape; and what must not come through.

#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::node::Node;
use crate::support::Home;

const HOSTING: [&str; 4] = ["--set", "hosting.enabled=true", "--set", "gateway.listen=127.0.0.1:0"];

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no {field}: {value}")).to_owned()
}

fn good(home: &Home, args: &[&str]) -> Value {
    let (code, answer) = home.json(args);
    assert_eq!(code, 0, "{args:?}: {answer}");
    answer
}

/// A node, somebody with a sandbox that runs, and somebody without.
struct Shop {
    operator: Home,
    node: Node,
    buyer: Home,
    id: String,
}

impl Shop {
    fn open(more: &[&str]) -> Shop {
        let (operator, buyer) = (Home::new(), Home::new());
        let node = Node::up(&operator, &HOSTING);
        let shop = Shop { operator, node, buyer, id: String::new() };
        shop.join(&shop.buyer);
        let job = good(&shop.buyer, &["job", "create", "--budget", "50c", "--ttl", "1h"]);
        let create = ["sandbox", "create", &text(&job, "job_id")];
        let sandbox = good(&shop.buyer, &[&create, more].concat());
        assert_eq!(text(&sandbox, "status"), "running");
        Shop { id: text(&sandbox, "sandbox_id"), ..shop }
    }

    /// Somebody signs in, with a little money.
    fn join(&self, home: &Home) -> String {
        good(home, &["key", "new"]);
        let url = format!("http://{}", self.node.address());
        let user_id = text(&good(home, &["login", "--host", &url]), "user_id");
        let credit = ["billing", "credit", &user_id, "1usd", "--reference", &user_id];
        good(&self.operator, &credit);
        user_id
    }

    fn token(&self, home: &Home) -> String {
        let found = home.contents().into_iter().find(|(path, _)| path.ends_with("hosting.json"));
        let session: Value = serde_json::from_slice(&found.unwrap().1.1).unwrap();
        text(&session, "token")
    }

    /// Starts a program that stays, and waits for its first line.
    fn start(&self, code: &str) -> Child {
        let args = ["sandbox", "exec", &self.id, "--", "python3", "-uc", code];
        let mut command = self.buyer.command(&args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "up");
        child
    }

    /// Sends this, and gives the status, the head and the body.
    fn raw(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.node.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, head.to_ascii_lowercase(), body.to_owned())
    }

    fn ask(&self, token: &str, method: &str, path: &str, more: &str) -> (u16, String, String) {
        let address = self.node.address();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\n{more}\r\n"
        ))
    }
}

/// Says what it was asked, and tries what it must not be able to do.
const STRANGER: &str = r#"
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def any(self):
        n = int(self.headers.get('content-length') or 0)
        body = self.rfile.read(n)
        out = json.dumps({'method': self.command, 'path': self.path, 'body': body.decode(),
                          'headers': {k.lower(): v for k, v in self.headers.items()}}).encode()
        if self.path.startswith('/to/'):
            self.send_response(307)
            self.send_header('Location', self.path[4:].split('?')[0].replace('%3A', ':'))
        else:
            self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.send_header('Content-Length', str(len(out)))
        self.send_header('Set-Cookie', 'session=stolen; Path=/')
        self.send_header('Content-Security-Policy', "default-src *; script-src 'unsafe-inline'")
        self.send_header('Access-Control-Allow-Origin', '*')
        self.send_header('Service-Worker-Allowed', '/')
        self.send_header('X-Accel-Redirect', '/etc/passwd')
        self.end_headers()
        if self.command != 'HEAD': self.wfile.write(out)
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = any
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), H)
print('up', flush=True)
s.serve_forever()
"#;

/// A WebSocket that says everything again, with nothing but the standard library.
const ECHO: &str = r#"
import socket, hashlib, base64, struct, threading
s = socket.create_server(('127.0.0.1', 9000)); print('up', flush=True)
MAGIC = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
def exact(c, n):
    b = b''
    while len(b) < n:
        p = c.recv(n - len(b))
        if not p: raise EOFError
        b += p
    return b
def frame(kind, data):
    size = bytes([len(data)]) if len(data) < 126 else bytes([126]) + struct.pack('>H', len(data))
    return bytes([kind]) + size + data
def serve(c):
    head = b''
    while b'\r\n\r\n' not in head: head += exact(c, 1)
    lines = [line.split(b':', 1) for line in head.split(b'\r\n')[1:] if b':' in line]
    heads = {name.lower(): value.strip() for name, value in lines}
    if b'sec-websocket-key' not in heads:
        c.sendall(b'SSH-2.0-nonsense\r\n'); c.close(); return
    accept = base64.b64encode(hashlib.sha1(heads[b'sec-websocket-key'] + MAGIC).digest())
    proto = b'\r\nSec-WebSocket-Protocol: chat' if b'sec-websocket-protocol' in heads else b''
    c.sendall(b'HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: '
              + accept + proto + b'\r\n\r\n' + frame(0x81, b','.join(sorted(heads))))
    while True:
        a, b = exact(c, 2); n = b & 127
        if n == 126: n = struct.unpack('>H', exact(c, 2))[0]
        mask = exact(c, 4); data = bytes(x ^ mask[i % 4] for i, x in enumerate(exact(c, n)))
        if a & 15 == 8: c.close(); return
        c.sendall(frame(a, data))
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"#;

#[test]
fn ports_are_reached_by_their_owner_and_strangers_get_nothing() {
    let shop = Shop::open(&[]);
    let (id, token) = (shop.id.clone(), shop.token(&shop.buyer));
    let mut server = shop.start(STRANGER);
    let at = |path: &str| format!("/v1/sandboxes/{id}/ports/8000{path}");

    // Without an address nothing is passed on.
    let (status, _, body) = shop.ask(&token, "GET", &at("/"), "");
    assert!(status == 404 && body.contains("hosting.port_closed"), "{status} {body}");
    let exposed = good(&shop.buyer, &["sandbox", "ports", &id, "expose", "8000"]);
    assert_eq!(text(&exposed, "url"), format!("http://{}{}", shop.node.address(), at("/")));
    let listed = good(&shop.buyer, &["sandbox", "ports", &id, "ls"]);
    assert_eq!(listed["ports"].as_array().unwrap().len(), 1, "{listed}");

    // What goes in holds no credential, and nothing about the connection.
    let more =
        "cookie: a=b\r\nx-own: kept\r\nx-forwarded-for: 1.2.3.4\r\ncontent-length: 4\r\n\r\nbody";
    let (status, head, body) = shop.ask(&token, "POST", &at("/a%2Fb/../c?d=e"), more);
    assert_eq!(status, 200, "{head} {body}");
    let seen: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&seen["method"], &seen["path"]), (&"POST".into(), &"/a%2Fb/../c?d=e".into()));
    assert_eq!((&seen["body"], &seen["headers"]["x-own"]), (&"body".into(), &"kept".into()));
    for secret in [token.as_str(), "a=b", "1.2.3.4", "ghs_"] {
        assert!(!body.contains(secret), "{secret} went in: {body}");
    }
    assert_eq!(seen["headers"]["host"], "localhost:8000");

    // What comes out sets nothing, and runs nothing.
    assert!(head.contains("\r\ncontent-security-policy: sandbox; "), "{head}");
    assert!(!head.contains("unsafe-inline'; script") && !head.contains("script-src"), "{head}");
    for never in ["set-cookie", "access-control", "service-worker", "x-accel", "stolen"] {
        assert!(!head.contains(never), "{never} came out: {head}");
    }
    let (status, head, body) = shop.ask(&token, "HEAD", &at("/"), "");
    assert!(status == 200 && head.contains("content-length") && body.is_empty(), "{head} {body}");

    // Where it leads to is below its port.
    for (to, location) in [
        ("/v1/keys", Some(at("/v1/keys"))),
        ("../../../../../keys", Some(at("/keys"))),
        ("//evil.example/", None),
        ("https%3A//evil.example/", None),
    ] {
        let (status, head, _) = shop.ask(&token, "GET", &at(&format!("/to/{to}")), "");
        assert_eq!(status, 307);
        let found = head.lines().find_map(|line| line.strip_prefix("location: "));
        assert_eq!(found, location.as_deref(), "{to}");
    }
    attacks(&shop, &token, &at("/"));

    // Closed: nothing more.
    good(&shop.buyer, &["sandbox", "ports", &id, "close", "8000"]);
    assert_eq!(shop.ask(&token, "GET", &at("/"), "").0, 404);
    let _ = server.kill();
    let _ = server.wait();
    shop.node.stop();
}

/// Others, other ports, other words.
fn attacks(shop: &Shop, token: &str, at: &str) {
    let other = Home::new();
    shop.join(&other);
    let foreign = shop.token(&other);
    let (status, _, body) = shop.ask(&foreign, "GET", at, "");
    assert!(status == 404 && body.contains("hosting.unknown_sandbox"), "{status} {body}");
    let tunnel = format!("/v1/sandboxes/{}/tunnels/8000", shop.id);
    let upgrade = "upgrade: websocket\r\nconnection: upgrade, close\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let address = shop.node.address();
    let ask = |token: &str, path: &str| {
        shop.raw(&format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{upgrade}\r\n"
        ))
        .0
    };
    assert_eq!((ask(&foreign, &tunnel), ask("", &tunnel), ask("ghs_x", at)), (404, 401, 401));
    assert_eq!(shop.ask("", "GET", at, "").0, 401);
    // Ports that have no address, that are none, and those of the node and of the agent: nobody listens there inside.
    for (port, statuses) in
        [("0", [400, 400]), ("65536", [400, 400]), ("x", [400, 400]), ("8001", [404, 409])]
    {
        let path = format!("/v1/sandboxes/{}/ports/{port}/", shop.id);
        assert_eq!(shop.ask(token, "GET", &path, "").0, statuses[0], "{port}");
        let path = format!("/v1/sandboxes/{}/tunnels/{port}", shop.id);
        assert_eq!(ask(token, &path), statuses[1], "{port}");
    }
    let own = address.rsplit(':').next().unwrap();
    assert_eq!(ask(token, &format!("/v1/sandboxes/{}/tunnels/{own}", shop.id)), 409);
    // Words that would be another request to whoever listens.
    let (status, _, body) = shop.ask(token, "TRACE", at, "");
    assert_eq!(status, 405, "{body}");
    let smuggled = "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n";
    let (_, _, body) = shop.ask(token, "POST", at, smuggled);
    assert!(!body.contains("smuggled"), "{body}");
    // A key that may only read does not get there.
    let key = "{\"scopes\":[\"sandboxes:read\"],\"name\":\"reader\",\"lifetime_s\":3600}";
    let more = format!("idempotency-key: 1\r\ncontent-length: {}\r\n\r\n{key}", key.len());
    let (_, _, made) = shop.ask(token, "POST", "/v1/keys", &more);
    if let Ok(made) = serde_json::from_str::<Value>(&made)
        && let Some(reader) = made["token"].as_str()
    {
        assert_eq!(shop.ask(reader, "GET", at, "").0, 403);
    } else {
        panic!("no key was made: {made}");
    }
}

#[test]
fn web_sockets_and_tunnels_are_carried_both_ways_and_end_with_the_sandbox() {
    let shop = Shop::open(&[]);
    let (id, token) = (shop.id.clone(), shop.token(&shop.buyer));
    let mut server = shop.start(ECHO);
    good(&shop.buyer, &["sandbox", "ports", &id, "expose", "9000"]);
    let url = format!("ws://{}/v1/sandboxes/{id}/ports/9000/chat?x=y", shop.node.address());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut socket = runtime.block_on(async {
        let mut request = url.as_str().into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        headers.insert("sec-websocket-protocol", "chat, other".parse().unwrap());
        let (mut socket, answer) = tokio_tungstenite::connect_async(request).await.unwrap();
        assert_eq!(answer.headers()["sec-websocket-protocol"], "chat");
        let seen = socket.next().await.unwrap().unwrap().into_text().unwrap();
        assert!(!seen.contains("authorization") && seen.contains("sec-websocket-key"), "{seen}");
        for message in [Message::text("hello"), Message::binary(vec![7; 60_000])] {
            socket.send(message.clone()).await.unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap(), message);
        }
        socket
    });

    // What is no HTTP is a bad gateway, and no answer of ours.
    let (status, _, body) = shop.ask(&token, "GET", &format!("/v1/sandboxes/{id}/ports/9000/"), "");
    assert!(status == 502 && body.contains("gateway.port_answer"), "{status} {body}");

    // The same from a port of this host.
    let mut forward = shop.buyer.command(&["sandbox", "forward", &id, "0:9000", "--json"]);
    let mut forward = forward.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(forward.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let near: Value = serde_json::from_str(&line).unwrap();
    drop(runtime.block_on(socket.close(None)));
    let mut stream = TcpStream::connect(text(&near, "address")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nx: y\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "SSH-2.0-nonsense\r\n");

    // With the sandbox everything ends.
    let mut socket = runtime.block_on(async {
        let mut request = url.as_str().into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        socket.next().await.unwrap().unwrap();
        socket
    });
    good(&shop.buyer, &["sandbox", "stop", &id]);
    runtime.block_on(async {
        loop {
            match socket.next().await {
                None | Some(Ok(Message::Close(_))) | Some(Err(Error::ConnectionClosed)) => break,
                Some(Err(Error::Protocol(_) | Error::Io(_))) => break,
                Some(Ok(_)) => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
    });
    let path = format!("/v1/sandboxes/{id}/ports/9000/");
    let (status, _, body) = shop.ask(&token, "GET", &path, "");
    assert!(status == 409 && body.contains("hosting.not_running"), "{status} {body}");
    let _ = forward.kill();
    let _ = forward.wait();
    let _ = server.wait();
    shop.node.stop();
}

#[test]
fn a_large_file_goes_in_and_out_and_nobody_holds_it() {
    const SIZE: u64 = 200 << 20;
    let shop = Shop::open(&["--ram-mib", "512", "--disk-mib", "256"]);
    let (id, token) = (shop.id.clone(), shop.token(&shop.buyer));
    let file = shop.buyer.path().join("large");
    let written = std::process::Command::new("dd")
        .args(["if=/dev/urandom", "bs=1M", "count=200", "status=none"])
        .arg(format!("of={}", file.display()))
        .status()
        .unwrap();
    assert!(written.success());
    // Whatever it needs once it has: a small file first.
    let small = shop.buyer.write("small", vec![1; 1 << 20]);
    good(&shop.buyer, &["sandbox", "cp", small.to_str().unwrap(), &format!("{id}:small")]);
    let before_kb = shop.node.resident_kb();
    let told = good(&shop.buyer, &["sandbox", "cp", "large", &format!("{id}:large")]);
    assert_eq!(told["bytes"], SIZE);
    let grown_kb = shop.node.resident_kb().saturating_sub(before_kb);
    good(&shop.buyer, &["sandbox", "cp", &format!("{id}:large"), "back"]);
    let mut same = std::process::Command::new("cmp");
    same.arg(&file).arg(shop.buyer.path().join("back"));
    assert!(same.status().unwrap().success());
    let peak_kb = shop.node.peak_kb().saturating_sub(before_kb);
    assert!(grown_kb < 16_384 && peak_kb < 32_768, "grown by {grown_kb} kB, {peak_kb} kB at most");

    // One that comes again as it was is answered as it was, and not written: somebody else has written since.
    let again = format!("/v1/sandboxes/{id}/files?path=again");
    let digest = "content-digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n";
    let more = format!("{digest}idempotency-key: again\r\ncontent-length: 3\r\n\r\nabc");
    let (status, _, first) = shop.ask(&token, "PUT", &again, &more);
    assert_eq!(status, 200, "{first}");
    good(&shop.buyer, &["sandbox", "cp", small.to_str().unwrap(), &format!("{id}:again")]);
    let (status, head, second) = shop.ask(&token, "PUT", &again, &more);
    assert_eq!((status, second), (200, first));
    assert!(head.contains("idempotency-repeated: true"), "{head}");
    good(&shop.buyer, &["sandbox", "cp", &format!("{id}:again"), "again"]);
    assert_eq!(std::fs::metadata(shop.buyer.path().join("again")).unwrap().len(), 1 << 20);

    // What is too large, has no hash, or is not what it says is refused, and changes nothing.
    let at = format!("/v1/sandboxes/{id}/files?path=small");
    let digest = "content-digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:\r\n";
    for (more, status, code) in [
        (format!("{digest}content-length: 3\r\n\r\nabc"), 400, "agent.body_changed"),
        (format!("{digest}content-length: {}\r\n", 300 << 20), 400, "hosting.too_large"),
        (format!("content-length: {}\r\n", 64 << 20), 413, "gateway.too_large"),
        ("content-digest: md5\r\ncontent-length: 0\r\n".to_owned(), 400, "gateway.bad_request"),
    ] {
        let more = format!("idempotency-key: {code}\r\n{more}");
        let (found, _, body) = shop.ask(&token, "PUT", &at, &more);
        assert!(found == status && body.contains(code), "{more}: {found} {body}");
    }
    good(&shop.buyer, &["sandbox", "cp", &format!("{id}:small"), "small"]);
    assert_eq!(std::fs::read(&small).unwrap(), vec![1; 1 << 20]);
    shop.node.stop();
}
