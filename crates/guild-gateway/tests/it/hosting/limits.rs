//! Too much at once: refused with a word about when to come again, and others are not held up.

use axum::body::Body;
use axum::http::Request;
use tower::ServiceExt;

use super::{Host, both, request};

/// The status, and the header that says when to try again.
async fn told(host: &Host, asked: Request<Body>) -> (u16, Option<u64>) {
    let answer = host.gateway.router().oneshot(asked).await.unwrap();
    let after = answer.headers().get("retry-after").map(|value| value.to_str().unwrap());
    (answer.status().as_u16(), after.map(|value| value.parse().unwrap()))
}

fn nonce() -> Request<Body> {
    request("POST", "/v1/auth/nonce", "", None, "")
}

#[tokio::test]
async fn a_flood_of_sign_ins_waits_and_comes_in_again() {
    let host = Host::new();
    for _ in 0..30 {
        assert_eq!(told(&host, nonce()).await, (200, None));
    }
    assert_eq!(told(&host, nonce()).await, (429, Some(2)));
    let proof = || request("POST", "/v1/auth/verify", "", None, r#"{"message":"","signature":""}"#);
    let bypass = || request("POST", "/v1/auth/bypass", "", None, r#"{"user_id":"x"}"#);
    assert_eq!(told(&host, proof()).await, (429, Some(2)));
    assert_eq!(told(&host, bypass()).await, (429, Some(2)));
    // Whoever only asks for prices is not held up by it.
    assert_eq!(told(&host, request("GET", "/v1/prices", "", None, "")).await, (200, None));
    host.clock.pass(2_000);
    assert_eq!(told(&host, nonce()).await, (200, None));
    assert_eq!(told(&host, nonce()).await, (429, Some(2)));
}

/// A request for a nonce that a proxy passes on for these.
fn forwarded(value: &str) -> Request<Body> {
    let mut request = nonce();
    request.headers_mut().insert("x-forwarded-for", value.parse().unwrap());
    request
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_is_counted_by_itself() {
    let host = Host::behind(&["127.0.0.1"]);
    for _ in 0..30 {
        assert_eq!(told(&host, forwarded("203.0.113.1")).await, (200, None));
    }
    assert_eq!(told(&host, forwarded("203.0.113.1")).await, (429, Some(2)));
    // Whatever the client has written before the proxy added its address.
    let spoofed = forwarded("198.51.100.77, 203.0.113.1");
    assert_eq!(told(&host, spoofed).await, (429, Some(2)));
    assert_eq!(told(&host, forwarded("203.0.113.2")).await, (200, None));
    // Two clients do not share what is outstanding, either.
    assert_eq!(told(&host, nonce()).await, (200, None));
}

#[tokio::test]
async fn whoever_is_no_trusted_proxy_cannot_say_for_whom_it_asks() {
    for host in [Host::new(), Host::behind(&["10.0.0.0/8"])] {
        for n in 0..30 {
            assert_eq!(told(&host, forwarded(&format!("203.0.113.{n}"))).await, (200, None));
        }
        assert_eq!(told(&host, forwarded("203.0.113.99")).await, (429, Some(2)));
    }
}

#[test]
fn so_many_nonces_are_outstanding_and_the_answer_says_until_when() {
    both(async |host: &Host| {
        for _ in 0..32 {
            assert_eq!(told(host, nonce()).await, (200, None));
            host.clock.pass(1_000);
        }
        // The first of them expires five minutes after it was given.
        let (status, after) = told(host, nonce()).await;
        assert_eq!((status, after), (429, Some(300 - 32)));
        let (_, answer) = host.ask(nonce()).await;
        assert_eq!(answer["error"]["code"], "access.nonce_limit");
        host.clock.pass(268_000);
        assert_eq!(told(host, nonce()).await, (200, None));
    });
}

#[tokio::test]
async fn a_token_that_asks_too_often_is_told_when_to_ask_again() {
    let host = Host::new();
    let (ours, theirs) = (host.sign_in(1).await, host.sign_in(2).await);
    let ask = |token: &str| request("GET", "/v1/jobs", token, None, "");
    for _ in 0..120 {
        assert_eq!(told(&host, ask(&ours)).await, (200, None));
    }
    assert_eq!(told(&host, ask(&ours)).await, (429, Some(1)));
    // Another user at the same place goes on, until the place itself is tired.
    assert_eq!(told(&host, ask(&theirs)).await, (200, None));
    let mut after = (200, None);
    for _ in 0..120 {
        after = told(&host, ask(&theirs)).await;
    }
    assert_eq!(after, (429, Some(1)));
    host.clock.pass(1_000);
    assert_eq!(told(&host, ask(&ours)).await, (200, None));
}
