//! Work that several do, over HTTP.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_gateway::Options;
use serde_json::{Value, json};

use crate::{Scene, post_to};

fn asked(change: &Value) -> String {
    let mut body = json!({
        "schema_id": "oa.embedding.v1", "input": {"texts": ["x"]}, "budget_msat": 5000, "time_limit_ms": 60_000,
        "criticality": "critical",
    });
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string()
}

fn to(method: &str, path: &str, token: Option<&str>) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_delegation_needs_the_token_and_enough_operators() {
    let scene = Scene::new(Options::default());
    let path = "/api/delegations";
    let (status, _) = scene.ask(post_to(path, &asked(&json!({})), None)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let refused: [(Value, StatusCode, &str); 5] = [
        (json!({ "criticality": "low" }), StatusCode::BAD_REQUEST, "gateway.bad_request"),
        (json!({ "criticality": "huge" }), StatusCode::BAD_REQUEST, "gateway.bad_request"),
        (json!({ "provider": "best" }), StatusCode::BAD_REQUEST, "gateway.bad_request"),
        (json!({ "time_limit_ms": 0 }), StatusCode::BAD_REQUEST, "delegation.malformed"),
        (json!({}), StatusCode::CONFLICT, "delegation.too_few"),
    ];
    for (change, status, code) in refused {
        let (told, answer) = scene.ask(post_to(path, &asked(&change), Some("secret"))).await;
        assert_eq!((told, answer["error"]["code"].as_str()), (status, Some(code)), "{answer}");
    }
}

#[tokio::test]
async fn a_delegation_that_is_not_there_is_not_found() {
    let scene = Scene::new(Options::default());
    let path = format!("/api/delegations/delegation_{}", "0".repeat(64));
    let course = format!("{path}/course");
    for (method, path) in [("GET", &course), ("DELETE", &path)] {
        let (status, answer) = scene.ask(to(method, path, Some("secret"))).await;
        let code = &answer["error"]["code"];
        assert_eq!((status, code), (StatusCode::NOT_FOUND, &json!("delegation.unknown")));
        let (status, _) = scene.ask(to(method, path, None)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "what was delegated may be private");
    }
    let (status, _) = scene.ask(to("GET", &path, None)).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, answer) = scene.ask(to("GET", "/api/delegations", None)).await;
    assert_eq!((status, &answer["delegations"]), (StatusCode::OK, &json!([])));
}
