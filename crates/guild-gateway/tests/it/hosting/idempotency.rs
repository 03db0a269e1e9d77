//! A request that comes again, in every way that somebody might try: one effect, one answer.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::task::Poll;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::{Either, join_all, select};
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use serde_json::{Value, json};

use super::routes::{Estate, Need, ROUTES};
use super::{Host, both, code, job, request, sandbox};

async fn jobs(host: &Host, token: &str) -> usize {
    host.get(token, "/v1/jobs").await.1["jobs"].as_array().unwrap().len()
}

#[test]
fn fifty_at_once_are_one_job_and_one_sandbox() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        host.credit(&host.user_id(&token).await, 1_000_000, "wire").await;
        let job = job();
        let made = join_all((0..50).map(|_| host.post(&token, "/v1/jobs", "k", &job))).await;
        let ids: BTreeSet<String> =
            made.iter().map(|(_, body)| body["job_id"].to_string()).collect();
        assert!(made.iter().all(|(status, _)| *status == StatusCode::CREATED));
        assert_eq!((ids.len(), jobs(host, &token).await), (1, 1));
        let path = format!("/v1/jobs/{}/sandboxes", made[0].1["job_id"].as_str().unwrap());
        let sandbox = sandbox();
        let bought = join_all((0..50).map(|_| host.post(&token, &path, "k", &sandbox))).await;
        assert!(bought.iter().all(|one| *one == bought[0]), "one answer for all");
        assert_eq!(bought[0].0, StatusCode::CREATED);
        let (_, balance) = host.get(&token, "/v1/billing/balance").await;
        assert_eq!(balance["held_micro_usd"], 1_110);
        assert_eq!(host.problems().await, Vec::<String>::new());
    });
}

#[test]
fn a_key_is_for_one_request_of_one_user_at_one_path() {
    both(async |host: &Host| {
        let (ours, theirs) = (host.sign_in(1).await, host.sign_in(2).await);
        let (_, first) = host.post(&ours, "/v1/jobs", "k", &job()).await;
        let before = host.books().await;
        // Another body; another query; a body that means the same and is written in another way.
        let same = job().to_string();
        let other = json!({"name": "test", "max_spend_cents": 101, "ttl_s": 3600}).to_string();
        for (path, body) in
            [("/v1/jobs", other), ("/v1/jobs?x=1", same.clone()), ("/v1/jobs", format!("{same} "))]
        {
            let answer = host.ask(request("POST", path, &ours, Some("k"), &body)).await;
            assert_eq!(code(&answer), (422, "access.idempotency_mismatch"), "{path} {body}");
        }
        assert_eq!(host.books().await, before);
        // The same key of another user is another wish: neither its answer nor its effect is shared.
        let (status, second) = host.post(&theirs, "/v1/jobs", "k", &job()).await;
        assert_eq!(status, StatusCode::CREATED);
        assert_ne!(first["job_id"], second["job_id"]);
        // And at another path too.
        let stop = format!("/v1/jobs/{}/stop", first["job_id"].as_str().unwrap());
        let (status, stopped) = host.ask(request("POST", &stop, &ours, Some("k"), "")).await;
        assert_eq!((status, &stopped["status"]), (StatusCode::OK, &json!("stopped")));
    });
}

#[tokio::test]
async fn a_key_that_is_none_is_refused() {
    let host = Host::new();
    let token = host.sign_in(1).await;
    let before = host.books().await;
    let long = "k".repeat(256);
    for (key, wanted) in [
        (long.as_str(), "access.idempotency_malformed"),
        ("", "access.idempotency_malformed"),
        ("two words", "access.idempotency_malformed"),
        ("tab\tbed", "gateway.bad_request"),
        ("schlüssel", "gateway.bad_request"),
    ] {
        let mut asked = request("POST", "/v1/jobs", &token, None, &job().to_string());
        let value = axum::http::HeaderValue::from_bytes(key.as_bytes()).unwrap();
        asked.headers_mut().insert("idempotency-key", value);
        let answer = host.ask(asked).await;
        let (status, said) = code(&answer);
        // What a header may hold beside text is refused before anybody looks at its length.
        assert_eq!(status, 400, "{key:?}");
        assert!(said == wanted || said == "access.idempotency_malformed", "{key:?}: {said}");
    }
    let mut twice = request("POST", "/v1/jobs", &token, Some("a"), &job().to_string());
    twice.headers_mut().append("idempotency-key", "b".parse().unwrap());
    assert_eq!(code(&host.ask(twice).await), (400, "gateway.bad_request"));
    assert_eq!(host.books().await, before);
    let (status, _) = host.post(&token, "/v1/jobs", &"k".repeat(255), &job()).await;
    assert_eq!(status, StatusCode::CREATED);
}

/// Begins a request and drops it when it has been looked at so often, as if the connection had broken there; whether it
/// was answered before.
async fn broken_off(host: &Host, asked: Request<Body>, looks: usize) -> bool {
    let mut running = Box::pin(host.ask(asked));
    let mut left = looks;
    poll_fn(|cx| {
        left -= 1;
        match running.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[test]
fn a_request_whose_answer_was_lost_anywhere_is_answered_the_second_time() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let body = job().to_string();
        let mut looks = 1;
        loop {
            let key = format!("k{looks}");
            let asked = request("POST", "/v1/jobs", &token, Some(&key), &body);
            let answered = broken_off(host, asked, looks).await;
            let (status, made) = host.post(&token, "/v1/jobs", &key, &job()).await;
            assert_eq!(status, StatusCode::CREATED, "{made}");
            assert_eq!(jobs(host, &token).await, looks);
            if answered {
                break;
            }
            looks += 1;
        }
        assert!(looks > 1, "it was cut off at least once");
    });
}

#[test]
fn a_repeat_needs_the_right_to_ask_and_shows_no_secret() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let wanted = json!({"name": "maker", "scopes": ["keys:write", "jobs:write"]});
        let (_, made) = host.post(&token, "/v1/keys", "k", &wanted).await;
        let key = made["token"].as_str().unwrap().to_owned();
        let (status, _) = host.post(&key, "/v1/jobs", "j", &job()).await;
        assert_eq!(status, StatusCode::CREATED);
        let (_, again) = host.post(&token, "/v1/keys", "k", &wanted).await;
        assert_eq!(again["token"], Value::Null);
        // What was answered to a key is not answered to it once it is revoked.
        let path = format!("/v1/keys/{}", made["key"]["key_id"].as_str().unwrap());
        host.ask(request("DELETE", &path, &token, Some("r"), "")).await;
        let answer = host.post(&key, "/v1/jobs", "j", &job()).await;
        assert_eq!(code(&answer), (401, "access.unauthenticated"));
        // Nor does it do anything new, though no time has passed and its caller is remembered.
        let answer = host.post(&key, "/v1/jobs", "another", &job()).await;
        assert_eq!(code(&answer), (401, "access.unauthenticated"));
        // Its user gets it: the key was a right of that user.
        let (status, _) = host.post(&token, "/v1/jobs", "j", &job()).await;
        assert_eq!(status, StatusCode::CREATED);
        assert_eq!(jobs(host, &token).await, 1);
    });
}

/// Passing something on to a port changes nothing here; whoever signs in or out brings a proof of its own.
#[tokio::test]
async fn every_write_needs_a_key_and_says_so_in_the_document() {
    let host = Host::new();
    let estate = Estate::of(&host, 1).await;
    let before = host.books().await;
    let document: Value = serde_json::from_str(&guild_gateway::openapi()).unwrap();
    let is_write = |method: &str| !["GET", "HEAD", "OPTIONS"].contains(&method);
    let writes = ROUTES.iter().filter(|route| {
        is_write(route.method)
            && matches!(route.need, Need::Scope(_))
            && !route.path.ends_with("/{path}")
    });
    let mut count = 0;
    for route in writes {
        let asked =
            request(route.method, &estate.path(route.path), &estate.token, None, route.body);
        let answer = host.ask(asked).await;
        assert_eq!(code(&answer), (400, "gateway.bad_request"), "{}", route.is());
        assert_eq!(answer.1["error"]["field"], "idempotency-key", "{}", route.is());
        let described = &document["paths"][route.path][route.method.to_lowercase()]["parameters"];
        let named = described.as_array().unwrap().iter();
        let named = named.filter(|one| one["name"] == "idempotency-key").count();
        assert_eq!(named, 1, "{}: {described}", route.is());
        count += 1;
    }
    assert_eq!(count, 21);
    assert_eq!(host.books().await, before);
}

/// The first is at work inside of a sandbox, for as long as its agent says nothing: the same again waits its turn.
#[tokio::test]
async fn the_same_while_the_first_is_at_work_is_told_so() {
    let host = Host::new();
    let estate = Estate::of(&host, 1).await;
    // An agent that takes connections, and never answers.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let key = Signer::public_key(&SecretKey::from_bytes([7; 32]).unwrap()).hex();
    let write = host.store().write::<u64, guild_store::Error, _>(move |tx| {
        let silent = "UPDATE hosting_sandbox SET endpoint = $1, agent_key = $2";
        tx.exec(silent, guild_store::args![&at, &key])
    });
    assert_eq!(write.await.unwrap(), 1);
    let path = format!("/v1/sandboxes/{}/exec", estate.sandbox_id);
    let exec = |key: &str, body: &str| request("POST", &path, &estate.token, Some(key), body);
    let body = r#"{"argv":["true"]}"#;
    let first = std::pin::pin!(host.ask(exec("k", body)));
    let others = std::pin::pin!(async {
        // The first is at work when its agent has been asked.
        let silent = listener.accept().await.unwrap();
        let same = host.ask(exec("k", body)).await;
        (same, host.ask(exec("k", r#"{"argv":["false"]}"#)).await, silent)
    });
    let Either::Right(((same, other, _), _)) = select(first, others).await else {
        panic!("nobody has answered the first");
    };
    assert_eq!(code(&same), (409, "access.idempotency_in_flight"));
    assert_eq!(code(&other), (422, "access.idempotency_mismatch"));
}

/// The sandbox runs, and its agent cannot be reached: nobody knows whether it was told. The same again goes on at once,
/// as the same.
#[tokio::test]
async fn what_may_have_happened_is_gone_on_with() {
    let host = &Host::new();
    let estate = Estate::of(host, 1).await;
    // An agent of that key, where nobody listens.
    let nobody = "UPDATE hosting_sandbox SET endpoint = '127.0.0.1:9', agent_key = $1";
    let key = SecretKey::from_bytes([7; 32]).unwrap();
    let key = Signer::public_key(&key).hex();
    let write = host
        .store()
        .write::<u64, guild_store::Error, _>(move |tx| tx.exec(nobody, guild_store::args![&key]));
    assert_eq!(write.await.unwrap(), 1);
    let inside = ROUTES.iter().filter(|route| {
        let inside = ["/exec", "/stdin", "/signal", "/files", "/secrets"];
        route.method != "GET" && inside.iter().any(|end| route.path.ends_with(end))
    });
    let mut count = 0;
    for route in inside {
        for _ in 0..2 {
            let answer = host.ask(route.ask(&estate, &estate.token, "lost")).await;
            assert_eq!(code(&answer), (503, "agent.unreachable"), "{}", route.is());
        }
        if !route.body.is_empty() {
            let (path, other) = (estate.path(route.path), format!("{} ", route.body));
            let asked = request(route.method, &path, &estate.token, Some("lost"), &other);
            let answer = host.ask(asked).await;
            assert_eq!(code(&answer), (422, "access.idempotency_mismatch"), "{}", route.is());
        }
        count += 1;
    }
    assert_eq!(count, 6);
}
