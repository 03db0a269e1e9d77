//! Disputes over HTTP.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_gateway::{Options, Roles, Service};
use guild_protocol::schema::Registry;
use guild_roles::disputes::{self, Disputes};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::bazaar::{BUYER, Bazaar, T0, Wish, honest, key, work};
use crate::{Counting, Scene, Still, get, post_to};

const PATH: &str = "/api/disputes";

/// The scene with disputes, which it has not by itself.
fn gateway(scene: &Scene) -> Service {
    let node = disputes::Node {
        store: scene.store.as_ref().unwrap().handle(),
        bus: scene.bus.clone(),
        clock: Arc::new(Still),
        random: Arc::new(Counting::default()),
        registry: Arc::new(Registry::builtin()),
        workshop: None,
    };
    let role = Disputes::new(disputes::Options::default(), (key(BUYER), key(9)), node).0;
    let roles = Roles { disputes: Some(role), ..scene.roles.clone() };
    Service::new(Options::default(), roles, Arc::new(Still), "secret", scene.shutdown.clone())
}

async fn ask(gateway: &Service, request: Request<Body>) -> (StatusCode, Value) {
    let answer = testbed::in_time(gateway.router().oneshot(request)).await.unwrap();
    let status = answer.status();
    let body = testbed::in_time(answer.into_body().collect()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

async fn page(gateway: &Service, path: &str) -> String {
    let mut request = get(path);
    request.headers_mut().insert("accept", "text/html".parse().unwrap());
    let answer = testbed::in_time(gateway.router().oneshot(request)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    let body = testbed::in_time(answer.into_body().collect()).await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn whoever_has_the_token_disputes_and_everybody_reads_it() {
    let scene = Scene::new(Options::default());
    let bazaar = Bazaar { store: scene.store.as_ref().unwrap().handle() };
    bazaar.fund(100_000).await;
    let wish = Wish { order_key: "a", provider: 2, budget_msat: 8_000, private: false };
    let request = bazaar.order(wish, T0).await;
    bazaar.answer(2, &request, &honest(&work("a"), 2), T0 + 1_000).await;
    let gateway = gateway(&scene);
    let body = json!({
        "request_id": request.id, "reason": "copied", "statement": "<b>stolen</b>",
        "evidence": [{ "event": request.id }],
    });
    let text = body.to_string();
    assert_eq!(ask(&gateway, post_to(PATH, &text, None)).await.0, StatusCode::FORBIDDEN);
    let (status, told) = ask(&gateway, post_to(PATH, &text, Some("secret"))).await;
    assert_eq!((status, &told["state"]), (StatusCode::CREATED, &json!("open")), "{told}");
    let again = ask(&gateway, post_to(PATH, &text, Some("secret"))).await.1;
    assert_eq!(again, told, "filed again it is the same");
    let id = told["dispute_id"].as_str().unwrap().to_owned();
    let (status, listed) = ask(&gateway, get(PATH)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(listed["disputes"][0]["reason"], "copied", "{listed}");
    let (_, shown) = ask(&gateway, get(&format!("{PATH}/{id}"))).await;
    assert_eq!(shown["sides"][0]["side"], "buyer", "{shown}");
    assert_eq!(shown["sides"][0]["said"][0]["statement"], "<b>stolen</b>", "{shown}");
    // What a stranger wrote is shown, and does nothing.
    let html = page(&gateway, &format!("/disputes/{id}")).await;
    assert!(html.contains("&lt;b&gt;stolen") && !html.contains("<b>stolen"), "{html}");
    assert!(page(&gateway, "/disputes").await.contains(&id));
    assert!(page(&gateway, &format!("/requests/{}", request.id)).await.contains(&id));
    // Only the opposite of its own wish is the buyer's to say.
    let resolve = format!("{PATH}/{id}/resolve");
    for (outcome, status, code) in [
        ("split", StatusCode::BAD_REQUEST, "gateway.bad_request"),
        ("withhold", StatusCode::FORBIDDEN, "dispute.not_ours_to_decide"),
    ] {
        let said = json!({ "outcome": outcome }).to_string();
        let (told, answer) = ask(&gateway, post_to(&resolve, &said, Some("secret"))).await;
        assert_eq!((told, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }
    let said = json!({ "statement": "as I said" }).to_string();
    let answer = format!("{PATH}/{id}/answer");
    assert_eq!(ask(&gateway, post_to(&answer, &said, None)).await.0, StatusCode::FORBIDDEN);
    let (status, told) = ask(&gateway, post_to(&answer, &said, Some("secret"))).await;
    assert_eq!((status, &told["state"]), (StatusCode::OK, &json!("open")), "{told}");
    let said = json!({ "outcome": "release" }).to_string();
    assert_eq!(ask(&gateway, post_to(&resolve, &said, None)).await.0, StatusCode::FORBIDDEN);
    let (status, told) = ask(&gateway, post_to(&resolve, &said, Some("secret"))).await;
    assert_eq!((status, &told["by"]), (StatusCode::OK, &json!("concession")), "{told}");
    let (status, told) = ask(&gateway, post_to(&answer, &said, Some("secret"))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
}

#[tokio::test]
async fn bad_disputes_are_refused_and_change_nothing() {
    let scene = Scene::new(Options::default());
    let gateway = gateway(&scene);
    let id = "0".repeat(64);
    for (body, status, code) in [
        (json!({ "request_id": id, "reason": "why" }), 400, "gateway.bad_request"),
        (json!({ "request_id": "x", "reason": "other" }), 400, "gateway.bad_request"),
        (json!({ "request_id": id, "reason": "other", "more": 1 }), 400, "gateway.bad_request"),
        (json!({ "request_id": id, "reason": "other" }), 409, "dispute.nothing_delivered"),
    ] {
        let (told, answer) = ask(&gateway, post_to(PATH, &body.to_string(), Some("secret"))).await;
        assert_eq!((told.as_u16(), &answer["error"]["code"]), (status, &json!(code)), "{answer}");
    }
    let unknown = format!("{PATH}/dispute_{id}");
    assert_eq!(ask(&gateway, get(&unknown)).await.0, StatusCode::NOT_FOUND);
    let said = json!({ "outcome": "release" }).to_string();
    let (status, answer) =
        ask(&gateway, post_to(&format!("{unknown}/resolve"), &said, Some("secret"))).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("dispute.unknown"))
    );
    assert_eq!(ask(&gateway, get(PATH)).await.1["disputes"], json!([]));
    // A node without disputes has no such path.
    let said = json!({ "request_id": id, "reason": "other" }).to_string();
    let (status, _) = scene.ask(post_to(PATH, &said, Some("secret"))).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}
