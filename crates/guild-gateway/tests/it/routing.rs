//! The routing matrix over HTTP.

use axum::http::StatusCode;
use guild_gateway::Options;
use guild_roles::explorer::{Explorer, Options as ExplorerOptions};
use serde_json::{Value, json};

use crate::bazaar::public;
use crate::explore::fill;
use crate::{MinuteLater, Scene, Still, get, post_to};

fn asked(change: impl FnOnce(&mut Value)) -> String {
    let mut body = json!({
        "provider": public(2), "reason": "a test", "idempotency_key": "one", "until_ms": 99,
    });
    change(&mut body);
    body.to_string()
}

#[tokio::test]
async fn whoever_has_the_token_shuts_a_provider_out_and_back_in() {
    let scene = Scene::new(Options::default());
    fill(&scene).await;
    let path = "/api/routing/quarantine";
    let (status, _) = scene.ask(post_to(path, &asked(|_| ()), None)).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, told) = scene.ask(post_to(path, &asked(|_| ()), Some("secret"))).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let entry = &told["entries"][0]["entry"];
    assert_eq!((&entry["status"], &entry["until_ms"]), (&json!("QUARANTINED"), &json!(99)));
    let (_, sheet) = scene.ask(get("/api/matrix")).await;
    let cells: Vec<&Value> = sheet["rows"].as_array().unwrap().iter().collect();
    assert!(cells.iter().any(|row| row["cells"][0]["status"] == "QUARANTINED"), "{sheet}");
    let lift = asked(|body| {
        body["lift"] = true.into();
        body["until_ms"] = Value::Null;
        body["idempotency_key"] = "two".into();
    });
    let (status, told) = scene.ask(post_to(path, &lift, Some("secret"))).await;
    assert_eq!(
        (status, &told["entries"][0]["entry"]["status"]),
        (StatusCode::OK, &json!("CONDITIONAL"))
    );
    for (change, code) in [
        (json!({ "lift": true }), "gateway.bad_request"),
        (json!({ "colour": 1 }), "gateway.bad_request"),
        (json!({ "task": "two words" }), "gateway.bad_request"),
        (json!({ "reason": "" }), "route.quarantine_refused"),
        (json!({ "provider": public(99) }), "route.quarantine_refused"),
    ] {
        let body = asked(|body| {
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
        });
        let (status, told) = scene.ask(post_to(path, &body, Some("secret"))).await;
        assert_eq!((status, told["error"]["code"].as_str()), (StatusCode::BAD_REQUEST, Some(code)));
    }
}

#[tokio::test]
async fn a_closed_matrix_is_shown_to_its_owner_alone() {
    let scene = Scene::new(Options::default());
    fill(&scene).await;
    let closed = Explorer::new(
        ExplorerOptions::default(),
        scene.turns.clone(),
        scene.bus.clone(),
        std::sync::Arc::new(MinuteLater),
    );
    let roles = guild_gateway::Roles { explorer: closed, ..scene.roles.clone() };
    let clock = std::sync::Arc::new(Still);
    let gateway = guild_gateway::Service::new(
        Options::default(),
        roles,
        clock,
        "secret",
        scene.shutdown.clone(),
    );
    for path in ["/api/matrix", "/api/matrix/oa.embedding.v1"] {
        for (token, status) in [(None, StatusCode::NOT_FOUND), (Some("secret"), StatusCode::OK)] {
            let mut request = get(path);
            if let Some(token) = token {
                let bearer = format!("Bearer {token}").parse().unwrap();
                request.headers_mut().insert("authorization", bearer);
            }
            let answer = tower::ServiceExt::oneshot(gateway.router(), request).await.unwrap();
            assert_eq!(answer.status(), status, "{path}");
        }
    }
    let (_, narrowed) = scene.ask(get("/api/providers?status=CONDITIONAL&tier=tertiary")).await;
    let narrowed = narrowed["providers"].as_array().unwrap();
    let names: Vec<&Value> = narrowed.iter().map(|one| &one["provider"]["name"]).collect();
    assert_eq!(names, ["Fast box"]);
    let bad = ["/api/matrix?schema=x", "/api/matrix?after=0-nobody", "/api/providers?tier=best"];
    for path in bad {
        assert_eq!(scene.ask(get(path)).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(scene.ask(get("/api/matrix/nothing")).await.0, StatusCode::NOT_FOUND);
}
