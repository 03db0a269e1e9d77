//! Who may ask, and who answers.

use std::sync::Arc;

use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::SecretKey;
use guild_sandbox::agent::{Nonce, Party};

use super::{Dice, World, refused, run, sandbox_id, shell, words};

/// A request as it stands on the wire, signed as `docs/sandbox-agent.md` says, by nothing of the client's.
struct Hand<'a> {
    key: &'a SecretKey,
    party: Party,
    method: &'a str,
    target: &'a str,
    body: &'a str,
    at_ms: i64,
}

impl Hand<'_> {
    fn new<'a>(world: &'a World, method: &'a str, target: &'a str, body: &'a str) -> Hand<'a> {
        let at_ms = guild_protocol::env::Clock::now_ms(&super::Real);
        Hand { key: &world.controller, party: world.party.clone(), method, target, body, at_ms }
    }

    /// The header, and a request that carries it.
    fn write(&self) -> (String, String) {
        let nonce = Nonce::make(&Dice).to_string();
        let body = Hash::of(self.body.as_bytes()).hex();
        let signed = [
            "guildhall/sandbox-agent/request/v1",
            self.party.sandbox_id.as_str(),
            &self.party.agent.hex(),
            self.method,
            self.target,
            &body,
            &self.at_ms.to_string(),
            &nonce,
        ]
        .join("\n");
        let signature = self.key.sign_digest(Hash::of(signed.as_bytes()).as_bytes()).unwrap().hex();
        let header = format!(
            "Guild-Sandbox at={},nonce={nonce},body={body},signature={signature}",
            self.at_ms
        );
        let request = request(self.method, self.target, Some(&header), self.body);
        (header, request)
    }
}

fn request(method: &str, target: &str, authorization: Option<&str>, body: &str) -> String {
    let authorization = authorization.map(|text| format!("authorization: {text}\r\n"));
    format!(
        "{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{}\r\n{body}",
        body.len(),
        authorization.unwrap_or_default(),
    )
}

const EXEC: &str = r#"{"argv":["sh","-c","echo done > /workspace/done"]}"#;

/// Whether the command of an attack has run.
async fn has_run(world: &World) -> bool {
    run(&world.client, &words(&["ls", "/workspace"])).await.0.contains("done")
}

fn code_of(answer: &str) -> &str {
    let rest = answer.split_once("\"code\":\"").map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default()
}

#[tokio::test]
async fn a_request_signed_by_hand_is_served() {
    let world = World::new();
    let (_, request) = Hand::new(&world, "POST", "/v1/exec", EXEC).write();
    let answer = world.raw(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("exec_"), "{answer}");
}

#[tokio::test]
async fn nothing_is_served_without_a_signature() {
    let world = World::new();
    let routes = [
        ("GET", "/v1/health"),
        ("POST", "/v1/exec"),
        ("GET", "/v1/exec/exec_00000000000000000000000000000001/stream"),
        ("POST", "/v1/exec/exec_00000000000000000000000000000001/stdin"),
        ("POST", "/v1/exec/exec_00000000000000000000000000000001/signal"),
        ("PUT", "/v1/files?path=x"),
        ("GET", "/v1/files?path=x"),
        ("DELETE", "/v1/files?path=x"),
        ("GET", "/v1/files/list"),
        ("GET", "/v1/files/archive"),
        ("POST", "/v1/files/archive"),
        ("GET", "/v1/ports/80"),
        ("GET", "/v1/attestation"),
        ("POST", "/v1/release-secrets"),
        ("POST", "/v1/lease"),
        ("POST", "/v1/freeze"),
        ("POST", "/v1/thaw"),
        ("POST", "/v1/shutdown"),
        ("GET", "/"),
    ];
    for (method, target) in routes {
        for header in [None, Some("Bearer 00"), Some("Guild-Sandbox at=1")] {
            let answer = world.raw(request(method, target, header, EXEC).as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{method} {target}: {answer}");
            assert_eq!(code_of(&answer), "agent.not_signed", "{method} {target}");
        }
    }
    assert!(!has_run(&world).await);
}

#[tokio::test]
async fn a_signature_is_good_for_one_request_at_one_agent_once() {
    let world = World::new();
    let good = Hand::new(&world, "POST", "/v1/exec", EXEC);
    let stranger = SecretKey::make(&Dice);
    let other_sandbox = Party { sandbox_id: sandbox_id(), ..world.party.clone() };
    let other_agent = Party { agent: stranger.public_key(), ..world.party.clone() };
    let attacks = [
        (
            "another key",
            Hand { key: &stranger, ..Hand::new(&world, "POST", "/v1/exec", EXEC) },
            "agent.wrong_signature",
        ),
        (
            "another sandbox",
            Hand { party: other_sandbox, ..Hand::new(&world, "POST", "/v1/exec", EXEC) },
            "agent.wrong_signature",
        ),
        (
            "another agent",
            Hand { party: other_agent, ..Hand::new(&world, "POST", "/v1/exec", EXEC) },
            "agent.wrong_signature",
        ),
        (
            "too old",
            Hand { at_ms: good.at_ms - 61_000, ..Hand::new(&world, "POST", "/v1/exec", EXEC) },
            "agent.not_in_time",
        ),
        (
            "of the future",
            Hand { at_ms: good.at_ms + 90_000, ..Hand::new(&world, "POST", "/v1/exec", EXEC) },
            "agent.not_in_time",
        ),
    ];
    for (what, hand, code) in attacks {
        assert_eq!(code_of(&world.raw(hand.write().1.as_bytes()).await), code, "{what}");
    }
    let (header, _) = good.write();
    // For another method, path or query, or with another body.
    for (method, target) in [
        ("PUT", "/v1/exec"),
        ("POST", "/v1/exec?x=1"),
        ("POST", "/v1/lease"),
        ("POST", "/v1//exec"),
    ] {
        let answer = world.raw(request(method, target, Some(&header), EXEC).as_bytes()).await;
        assert_eq!(code_of(&answer), "agent.wrong_signature", "{method} {target}");
    }
    assert!(!has_run(&world).await);
    let changed = EXEC.replace("done", "dome");
    let answer = world.raw(request("POST", "/v1/exec", Some(&header), &changed).as_bytes()).await;
    assert_eq!(code_of(&answer), "agent.body_changed");
    assert!(!has_run(&world).await);
    let (_, request) = good.write();
    assert!(world.raw(request.as_bytes()).await.starts_with("HTTP/1.1 201 "));
    assert_eq!(code_of(&world.raw(request.as_bytes()).await), "agent.replayed");
}

#[tokio::test]
async fn what_was_signed_for_one_sandbox_is_useless_at_another_of_the_same_controller() {
    let (a, b) = (World::new(), World::new());
    let client = b.client_as(SecretKey::from_bytes(a.controller.to_bytes()).unwrap(), &a.party);
    assert_eq!(refused(client.health().await), "agent.wrong_agent");
    let hand = Hand { key: &a.controller, ..Hand::new(&a, "POST", "/v1/exec", EXEC) };
    assert_eq!(code_of(&b.raw(hand.write().1.as_bytes()).await), "agent.wrong_signature");
}

#[tokio::test]
async fn a_client_notices_another_agent() {
    let world = World::new();
    let wrong = Party { agent: SecretKey::make(&Dice).public_key(), ..world.party.clone() };
    let key = SecretKey::from_bytes(world.controller.to_bytes()).unwrap();
    let client = world.client_as(key, &wrong);
    assert_eq!(refused(client.health().await), "agent.wrong_agent");
    assert_eq!(refused(client.exec(&shell("true")).await), "agent.wrong_agent");
    assert_eq!(refused(client.connect(80).await), "agent.wrong_agent");
}

#[tokio::test]
async fn a_stranger_is_told_so_and_the_words_are_the_agent_s() {
    let world = World::new();
    let client = world.client_as(SecretKey::make(&Dice), &world.party);
    // The agent signs its refusals too, so the client believes them.
    assert_eq!(refused(client.health().await), "agent.wrong_signature");
    assert_eq!(refused(client.shutdown().await), "agent.wrong_signature");
    assert_eq!(refused(client.get_file("x").await), "agent.wrong_signature");
}

#[tokio::test]
async fn unknown_paths_and_bodies_are_refused() {
    let world = World::new();
    let cases = [
        ("GET", "/v1/nothing", "", "agent.no_such_path"),
        ("PATCH", "/v1/exec", "", "agent.no_such_path"),
        ("POST", "/v1/exec", "{", "agent.bad_request"),
        ("POST", "/v1/exec", r#"{"argv":["true"],"shell":true}"#, "agent.bad_request"),
        ("POST", "/v1/exec", r#"{"argv":"true"}"#, "agent.bad_request"),
        ("POST", "/v1/exec", r#"{"argv":["true"],"timeout_ms":-1}"#, "agent.bad_request"),
        ("POST", "/v1/lease", "{}", "agent.bad_request"),
        ("GET", "/v1/exec/nonsense/stream", "", "agent.bad_request"),
        ("GET", "/v1/ports/99999", "", "agent.bad_request"),
        ("GET", "/v1/ports/80", "", "agent.bad_request"),
    ];
    for (method, target, body, code) in cases {
        let answer = world.raw(Hand::new(&world, method, target, body).write().1.as_bytes()).await;
        assert_eq!(code_of(&answer), code, "{method} {target} {body}: {answer}");
    }
    let large = format!(r#"{{"argv":["{}"]}}"#, "x".repeat(5 << 20));
    let answer =
        world.raw(Hand::new(&world, "POST", "/v1/exec", &large).write().1.as_bytes()).await;
    assert!(answer.is_empty() || code_of(&answer) == "agent.too_large", "{answer}");
}

#[tokio::test]
async fn the_workload_reaches_neither_the_agent_nor_its_keys() {
    let world = World::new();
    let port = world.address.rsplit(':').next().unwrap();
    let code = format!(
        "import os, socket\n\
         try:\n    socket.create_connection(('127.0.0.1', {port}), 2); print('reached')\n\
         except OSError as e: print('no', e.errno)\n\
         me = os.getpid()\n\
         seen = [p for p in os.listdir('/proc') if p.isdigit()]\n\
         for p in seen:\n\
         \x20   if int(p) == me: continue\n\
         \x20   words = open(f'/proc/{{p}}/cmdline').read()\n\
         \x20   if '__sandbox' not in words: print('sees', p, words)\n\
         \x20   for name in ['environ', 'mem', 'maps', 'fd', 'root', 'exe']:\n\
         \x20       try:\n\
         \x20           path = f'/proc/{{p}}/{{name}}'\n\
         \x20           os.listdir(path) if name in ('fd', 'root') else open(path, 'rb').read(1)\n\
         \x20           print('reads', path)\n\
         \x20       except OSError: pass\n"
    );
    let (out, err, _) = run(&world.client, &words(&["python3", "-c", &code])).await;
    assert_eq!((out.as_str(), err.as_str()), ("no 111\n", ""));
}

#[tokio::test]
async fn a_connection_that_brings_nothing_signed_is_closed() {
    let clock = super::Set::new(1_000_000);
    let world = World::with(Arc::new(clock.clone()), 1 << 40);
    let idle = world.raw(b"GET /v1/health HTTP/1.1\r\nhost: ");
    let pass = async {
        for _ in 0..2_000 {
            clock.pass(200);
            guild_protocol::env::Clock::sleep(&super::Real, 5).await;
        }
        panic!("it was not closed");
    };
    let (idle, pass) = (std::pin::pin!(idle), std::pin::pin!(pass));
    let ended = futures_util::future::select(idle, pass).await;
    assert!(matches!(ended, futures_util::future::Either::Left(_)));
}
