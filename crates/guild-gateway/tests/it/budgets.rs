//! Envelopes over HTTP.

use axum::http::StatusCode;
use guild_gateway::Options;
use guild_roles::explorer::{Explorer, Options as ExplorerOptions};
use serde_json::{Value, json};

use crate::{MinuteLater, Scene, Still, get, post_to};

const SET: &str = "/api/budgets/set";

#[tokio::test]
async fn whoever_has_the_token_sets_an_envelope_and_readers_see_it() {
    let scene = Scene::new(Options::default());
    let body =
        json!({ "task": "oa.embedding.v1", "daily_msat": 1000, "monthly_msat": 9000 }).to_string();
    assert_eq!(scene.ask(post_to(SET, &body, None)).await.0, StatusCode::FORBIDDEN);
    let (status, told) = scene.ask(post_to(SET, &body, Some("secret"))).await;
    assert_eq!((status, &told["outcome"]), (StatusCode::CREATED, &json!("new")), "{told}");
    assert_eq!((&told["daily_msat"], &told["lends_bp"]), (&json!(1000), &json!(3000)), "{told}");
    let (status, told) = scene.ask(post_to(SET, &body, Some("secret"))).await;
    assert_eq!((status, &told["outcome"]), (StatusCode::OK, &json!("known")), "{told}");
    let (status, listed) = scene.ask(get("/api/budgets")).await;
    assert_eq!(
        (status, &listed["envelopes"][0]["today"]["limit"]),
        (StatusCode::OK, &json!(1000)),
        "{listed}"
    );
    assert_eq!(listed["changes"][0]["what"], "set", "{listed}");
    let gone = json!({ "task": "oa.embedding.v1", "remove": true }).to_string();
    let (_, told) = scene.ask(post_to(SET, &gone, Some("secret"))).await;
    assert_eq!(told["outcome"], "removed", "{told}");
    for (bad, code) in [
        (json!({ "task": "two words", "daily_msat": 1 }), "gateway.bad_request"),
        (json!({ "task": "a", "colour": 1 }), "gateway.bad_request"),
        (json!({ "task": "a", "remove": true, "daily_msat": 1 }), "gateway.bad_request"),
        (json!({ "task": "a" }), "budget.malformed"),
        (json!({ "task": "a", "daily_msat": -1 }), "budget.malformed"),
    ] {
        let (status, told) = scene.ask(post_to(SET, &bad.to_string(), Some("secret"))).await;
        let told: &Value = &told["error"]["code"];
        assert_eq!((status, told), (StatusCode::BAD_REQUEST, &json!(code)), "{bad}");
    }
}

#[tokio::test]
async fn a_closed_market_shows_its_budgets_to_its_owner_alone() {
    let scene = Scene::new(Options::default());
    let (options, clock) = (ExplorerOptions::default(), std::sync::Arc::new(MinuteLater));
    let closed = Explorer::new(options, scene.turns.clone(), scene.bus.clone(), clock);
    let roles = guild_gateway::Roles { explorer: closed, ..scene.roles.clone() };
    let clock = std::sync::Arc::new(Still);
    let stop = scene.shutdown.clone();
    let gateway = guild_gateway::Service::new(Options::default(), roles, clock, "secret", stop);
    for (token, status) in [(None, StatusCode::NOT_FOUND), (Some("secret"), StatusCode::OK)] {
        let mut request = get("/api/budgets");
        if let Some(token) = token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
        }
        let answer = tower::ServiceExt::oneshot(gateway.router(), request).await.unwrap();
        assert_eq!(answer.status(), status);
    }
}

#[tokio::test]
async fn a_bid_is_made_only_where_no_budget_is_named() {
    let scene = Scene::new(Options::default());
    let order = |more: Value| {
        let mut body = json!({
            "schema_id": "oa.embedding.v1", "input": {"texts": ["x"]}, "time_limit_ms": 60_000,
            "provider": crate::bazaar::public(3),
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body.to_string()
    };
    for (more, words) in [
        (json!({}), "the order needs 2000"),
        (json!({ "urgency": "critical" }), "the order needs 4000"),
        (json!({ "target_trust_bp": 10000 }), "the order needs 3000"),
        (json!({ "budget_msat": 77 }), "the order needs 77"),
        (json!({ "budget_msat": 77, "urgency": "normal" }), "can change it"),
        (json!({ "urgency": "soon" }), "must be normal, urgent or critical"),
        (json!({ "target_trust_bp": 10001 }), "must be 0 to 10000"),
    ] {
        let (_, told) =
            scene.ask(post_to("/api/orders", &order(more.clone()), Some("secret"))).await;
        let message = told["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{more}: {told}");
    }
}
