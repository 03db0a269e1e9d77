//! Orders over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_gateway::Options;
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use serde_json::{Value, json};

use crate::{Scene, post_to};

fn order(change: impl FnOnce(&mut Value)) -> String {
    let mut body = json!({
        "schema_id": "oa.embedding.v1", "input": {"texts": ["x"]}, "budget_msat": 1000, "time_limit_ms": 60_000,
        "provider": "33".repeat(32).parse::<SecretKey>().unwrap().public_key().npub(),
    });
    change(&mut body);
    body.to_string()
}

fn to(method: &str, path: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    request.header("authorization", "Bearer secret").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn an_order_needs_the_token_a_provider_and_money() {
    let scene = Scene::new(Options::default());
    let (status, _) = scene.ask(post_to("/api/orders", &order(|_| ()), None)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let refused: [(Value, StatusCode, &str); 6] = [
        (json!({ "provider": "bob" }), StatusCode::BAD_REQUEST, "gateway.bad_request"),
        (json!({ "colour": "red" }), StatusCode::BAD_REQUEST, "gateway.bad_request"),
        (json!({ "schema_id": "oa.none.v1" }), StatusCode::NOT_FOUND, "schema.unknown"),
        (json!({ "provider": "best" }), StatusCode::NOT_FOUND, "buyer.no_provider"),
        (json!({ "kind": 1 }), StatusCode::BAD_REQUEST, "buyer.kind_not_allowed"),
        (json!({}), StatusCode::CONFLICT, "market.wallet_empty"),
    ];
    for (change, status, code) in refused {
        let body = order(|body| {
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
        });
        let (told, answer) = scene.ask(post_to("/api/orders", &body, Some("secret"))).await;
        assert_eq!((told, answer["error"]["code"].as_str()), (status, Some(code)), "{answer}");
    }
}

#[tokio::test]
async fn an_order_that_is_not_there_is_not_found() {
    let scene = Scene::new(Options::default());
    let unknown = format!("/api/orders/order_{}", "0".repeat(64));
    for method in ["GET", "DELETE"] {
        let (status, answer) = scene.ask(to(method, &unknown)).await;
        let code = &answer["error"]["code"];
        assert_eq!((status, code), (StatusCode::NOT_FOUND, &json!("market.unknown_order")));
        let (status, _) = scene.ask(to(method, "/api/orders/nothing")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn an_input_is_as_large_as_a_request_carries() {
    let scene = Scene::new(Options::default());
    let with = |bytes: usize| {
        let texts = vec!["x".repeat(50_000); bytes / 50_000];
        order(|body| body["input"] = json!({ "texts": texts }))
    };
    for (bytes, status, code) in [
        (200_000, StatusCode::CONFLICT, "market.wallet_empty"),
        (300_000, StatusCode::BAD_REQUEST, "nostr.tag_size"),
        (600_000, StatusCode::PAYLOAD_TOO_LARGE, "gateway.too_large"),
    ] {
        let (told, answer) = scene.ask(post_to("/api/orders", &with(bytes), Some("secret"))).await;
        assert_eq!((told, answer["error"]["code"].as_str()), (status, Some(code)), "{answer}");
    }
}
