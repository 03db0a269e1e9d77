//! The relay's door: what it is, who may come, and how many.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use guild_bus::Local;
use guild_gateway::Options;
use guild_network::intake::{Intake, Options as IntakeOptions};
use guild_network::relay::{Options as RelayOptions, Peer, Relay};
use guild_store::Store;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{Counting, Scene, Still};

/// A relay for two, without the services that would make it work.
pub(crate) fn relay(store: Store, bus: &Local) -> Relay {
    let (intake, _) = Intake::new(IntakeOptions::default(), store.clone(), bus, Arc::new(Still));
    let options = RelayOptions { connections_max: 2, ..RelayOptions::default() };
    Relay::new(options, intake, store, Arc::new(Still), Arc::new(Counting::default())).0
}

fn asking(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::get(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

const UPGRADE: [(&str, &str); 4] = [
    ("upgrade", "websocket"),
    ("connection", "upgrade"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

#[tokio::test]
async fn it_says_what_it_is_to_pages_of_any_site() {
    let scene = Scene::new(Options::default());
    for path in ["/relay", "/"] {
        let request = asking(path, &[("accept", "application/nostr+json")]);
        let answer = scene.gateway.router().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "application/nostr+json");
        assert_eq!(answer.headers()["access-control-allow-origin"], "*");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(told["supported_nips"], json!([1, 9, 11, 40, 42, 45, 70, 77]));
    }
    let (status, told) = scene.ask(asking("/relay", &[])).await;
    let code = &told["error"]["code"];
    assert_eq!((status, code), (StatusCode::UPGRADE_REQUIRED, &json!("gateway.needs_web_socket")));
    // Whoever asks for anything else at the root gets the explorer.
    let (status, told) = scene.ask(asking("/", &[("accept", "application/json")])).await;
    assert_eq!((status, &told["counts"]["requests"]), (StatusCode::OK, &json!(0)));
    let preflight = Request::options("/relay").header("host", "localhost");
    let answer = scene.gateway.router().oneshot(preflight.body(Body::empty()).unwrap()).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    assert_eq!(answer.headers()["access-control-allow-origin"], "*");
}

#[tokio::test]
async fn a_socket_under_a_foreign_name_or_without_room_is_refused() {
    let scene = Scene::new(Options::default());
    let mut foreign = asking("/relay", &UPGRADE);
    foreign.headers_mut().insert("host", "evil.example".parse().unwrap());
    let (status, told) = scene.ask(foreign).await;
    let code = &told["error"]["code"];
    assert_eq!((status, code), (StatusCode::FORBIDDEN, &json!("gateway.unknown_host")));
    // Without a socket behind it, it is no upgrade.
    let (status, told) = scene.ask(asking("/relay", &UPGRADE)).await;
    assert_eq!((status, &told["error"]["field"]), (StatusCode::BAD_REQUEST, &json!("upgrade")));
    let relay = scene.roles.relay.clone().unwrap();
    let peer = Peer { address: [10, 0, 0, 1].into(), host: "localhost".to_owned() };
    let held = [relay.admit(peer.clone()).ok(), relay.admit(peer.clone()).ok()];
    assert!(held.iter().all(Option::is_some) && relay.admit(peer.clone()).is_err());
    drop(held);
    assert!(relay.admit(peer).is_ok());
}
