//! A token does what its scopes say, on every route, and nothing else.

use axum::http::StatusCode;
use serde_json::json;

use super::routes::{Estate, Need, ROUTES, SCOPES};
use super::{Host, both, code};

/// A key with this scope alone, for each scope.
async fn keys(host: &Host, token: &str) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    for scope in SCOPES {
        let wanted = json!({"name": scope, "scopes": [scope]});
        let (status, made) = host.post(token, "/v1/keys", scope, &wanted).await;
        assert_eq!(status, StatusCode::CREATED, "{made}");
        keys.push((scope, made["token"].as_str().unwrap().to_owned()));
    }
    // Each is used once, so that its use is written down already.
    for (_, key) in &keys {
        assert_eq!(host.get(key, "/v1/auth/me").await.0, StatusCode::OK);
    }
    keys
}

#[test]
fn each_scope_opens_its_routes_and_no_other() {
    both(async |host: &Host| {
        let estate = Estate::of(host, 1).await;
        let keys = keys(host, &estate.token).await;
        let before = host.books().await;
        let mut refused = 0;
        for route in ROUTES {
            for (scope, key) in &keys {
                let wanted = match route.need {
                    Need::Nothing | Need::Token => continue,
                    Need::Scope(needs) if needs == *scope => continue,
                    Need::Scope(_) => (403, "access.scope_missing"),
                    Need::Session => (403, "access.needs_session"),
                    Need::Node => (403, "gateway.no_token"),
                };
                let wanted = route.refusal(wanted.0, wanted.1);
                let answer = host.ask(route.ask(&estate, key, "escape")).await;
                assert_eq!(code(&answer), wanted, "{} with {scope}", route.is());
                refused += 1;
            }
        }
        assert!(refused > 250, "{refused}");
        assert_eq!(host.books().await, before);
        // And the scope that a route names does open it: what comes now is no matter of rights any more.
        for route in ROUTES {
            let Need::Scope(needs) = route.need else { continue };
            let (_, key) = keys.iter().find(|(scope, _)| *scope == needs).unwrap();
            let answer = host.ask(route.ask(&estate, key, "right")).await;
            let rights = ["access.scope_missing", "access.unauthenticated", "access.needs_session"];
            assert!(!rights.contains(&code(&answer).1), "{}: {}", route.is(), answer.1);
        }
    });
}

#[tokio::test]
async fn no_token_a_wrong_one_and_the_node_s_own_open_nothing_of_users() {
    let host = Host::new();
    let often = Estate::of(&host, 1).await;
    let before = host.books().await;
    let unknown = format!("ghs_{}", "0".repeat(64));
    let revoked = {
        let token = host.sign_in(2).await;
        let out = super::request("POST", "/v1/auth/logout", &token, None, "");
        assert_eq!(host.ask(out).await.0, StatusCode::NO_CONTENT);
        token
    };
    for route in ROUTES {
        let wanted = match route.need {
            Need::Nothing => continue,
            Need::Token | Need::Session | Need::Scope(_) => (401, "access.unauthenticated"),
            Need::Node => (403, "gateway.no_token"),
        };
        for token in ["", "secret ", "ghs_", &unknown, &revoked] {
            host.clock.pass(1_000);
            let answer = host.ask(route.ask(&often, token, "k")).await;
            let wanted = if token.is_empty() { (401, "access.unauthenticated") } else { wanted };
            let wanted = route.refusal(wanted.0, wanted.1);
            assert_eq!(code(&answer), wanted, "{} with {token:?}", route.is());
        }
        if route.need != Need::Node {
            let answer = host.ask(route.ask(&often, "secret", "k")).await;
            let wanted = route.refusal(wanted.0, wanted.1);
            assert_eq!(code(&answer), wanted, "{} with the node's token", route.is());
        }
    }
    // One session was opened and ended since, which is told.
    let after = host.books().await;
    assert_eq!(before.accounts(), after.accounts());
}

#[test]
fn a_key_makes_no_wider_one_and_cannot_be_widened() {
    both(async |host: &Host| {
        let token = host.sign_in(1).await;
        let wanted =
            json!({"name": "maker", "scopes": ["keys:write", "jobs:read"], "lifetime_s": 60});
        let (_, made) = host.post(&token, "/v1/keys", "k", &wanted).await;
        let maker = made["token"].as_str().unwrap().to_owned();
        host.get(&maker, "/v1/auth/me").await;
        let before = host.books().await;
        for (n, wider) in [
            json!({"name": "x", "scopes": ["billing:withdraw"]}),
            json!({"name": "x", "scopes": ["jobs:read", "jobs:write"]}),
            json!({"name": "x", "scopes": ["jobs:read"]}),
            json!({"name": "x", "scopes": ["jobs:read"], "lifetime_s": 61}),
        ]
        .iter()
        .enumerate()
        {
            let answer = host.post(&maker, "/v1/keys", &format!("w{n}"), wider).await;
            assert_eq!(code(&answer), (403, "access.scope_wider"), "{wider}");
        }
        for rubbish in [json!(["all"]), json!(["*"]), json!(["jobs:read jobs:write"]), json!([])] {
            let body = json!({"name": "x", "scopes": rubbish});
            let answer = host.post(&maker, "/v1/keys", "rubbish", &body).await;
            assert_eq!(answer.0, StatusCode::BAD_REQUEST, "{body}: {}", answer.1);
        }
        assert_eq!(host.books().await, before);
    });
}
