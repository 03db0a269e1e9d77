//! The relays of others over HTTP.

use axum::http::StatusCode;
use guild_gateway::Options;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, Event, Limits};
use serde_json::json;

use crate::{Scene, get, post_to};

fn event() -> Event {
    let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
    let draft = Draft { kind: 1, created_at: 1, tags: vec![], content: "hello".to_owned() };
    draft.sign(&key).unwrap()
}

#[tokio::test]
async fn whatever_is_an_event_fits_into_a_body() {
    let scene = Scene::new(Options::default());
    let key: SecretKey = format!("{:064x}", 7).parse().unwrap();
    // Every letter is escaped: the text is twice as long as the content.
    let content = "\"".repeat(Limits::DEFAULT.max_content_bytes - 500);
    let large = Draft { kind: 1, created_at: 1, tags: vec![], content }.sign(&key).unwrap();
    let text = large.to_json();
    assert!((500_000..=Limits::DEFAULT.max_bytes).contains(&text.len()), "{}", text.len());
    let (status, answer) = scene.ask(post_to("/api/relays/publish", &text, Some("secret"))).await;
    assert_eq!((status, answer["event_id"].clone()), (StatusCode::CREATED, json!(large.id)));
    let more = format!("{text}{}", " ".repeat(Limits::DEFAULT.max_bytes));
    let (status, _) = scene.ask(post_to("/api/relays/publish", &more, Some("secret"))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_signed_event_is_published_with_the_token_and_as_often_as_one_likes() {
    let scene = Scene::new(Options::default());
    assert_eq!(
        scene.ask(get("/api/relays")).await,
        (StatusCode::OK, json!({ "relays": [], "known": [] }))
    );
    let publish = |body: &str, token| scene.ask(post_to("/api/relays/publish", body, token));
    let text = event().to_json();
    let (status, answer) = publish(&text, None).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::FORBIDDEN, &json!("gateway.no_token"))
    );
    for _ in 0..2 {
        let (status, answer) = publish(&text, Some("secret")).await;
        assert_eq!(
            (status, answer),
            (StatusCode::CREATED, json!({ "event_id": event().id, "relays": [] }))
        );
    }
    for (body, code) in [
        (text.replace("hello", "hallo"), "nostr.event_id_wrong"),
        ("{}".to_owned(), "gateway.bad_request"),
        ("rubbish".to_owned(), "gateway.bad_request"),
    ] {
        let (status, answer) = publish(&body, Some("secret")).await;
        assert_eq!((status, &answer["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(code)));
    }
}

#[tokio::test]
async fn the_relays_have_a_page_and_the_same_for_programs() {
    let scene = Scene::new(Options::default());
    let (status, answer) = scene.ask(get("/api/relays")).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({ "relays": [], "known": [] })));
    let mut program = get("/relays");
    program.headers_mut().insert("accept", "application/json".parse().unwrap());
    assert_eq!(scene.ask(program).await.0, StatusCode::OK);
}
