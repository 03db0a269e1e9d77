//! What an agent's model says, for whoever has the token.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::StreamExt;
use guild_bus::mail::{Headers, Letter, Limits, Local, Mail};
use guild_bus::subject::{Prefix, Topic};
use guild_gateway::{Options, Roles, Service};
use guild_protocol::env::Shutdown;
use guild_roles::live::Live;
use tower::ServiceExt;

use crate::{Scene, Still, get};

fn listen(path: &str) -> Request<Body> {
    let request = Request::get(path).header("host", "localhost");
    request.header("authorization", "Bearer secret").body(Body::empty()).unwrap()
}

fn piece(turn: &str, payload: &str) -> Letter {
    let mut headers = Headers::new();
    headers.set("Guild-Turn-Id", turn).unwrap();
    headers.set("Guild-Step-Id", "step_1").unwrap();
    let subject = Topic::parse("guild.v1.p.public.str.agent.ann.chunk").unwrap();
    Letter { headers, ..Letter::new(subject, payload.as_bytes().to_vec()) }
}

#[tokio::test]
async fn an_agent_is_heard_with_the_token_alone() {
    let scene = Scene::new(Options::default());
    let path = "/api/agents/p/ann/live";
    assert_eq!(scene.ask(get(path)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(scene.ask(listen(path)).await.0, StatusCode::NOT_FOUND, "nobody carries it here");
    let mail = Arc::new(Local::new(Limits::default(), Arc::new(Still)));
    let live = Live::new(mail.clone(), Prefix::of("guild").unwrap());
    let roles = Roles { agents: scene.roles.agents.clone().heard_by(live), ..scene.roles.clone() };
    let shutdown = Shutdown::new();
    let gateway =
        Service::new(Options::default(), roles, Arc::new(Still), "secret", shutdown.clone());
    let bad = gateway.router().oneshot(listen("/api/agents/p/a%2Eb/live")).await.unwrap();
    assert_eq!(bad.status(), StatusCode::BAD_REQUEST);
    let answer = gateway.router().oneshot(listen(path)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut body = answer.into_body().into_data_stream();
    mail.cast(piece("turn_1", "rubbish"));
    mail.cast(piece("turn_1", r#"{"chunk_type":"content","content":"a\nb","index":7}"#));
    let told = testbed::in_time(body.next()).await.unwrap().unwrap();
    let told = String::from_utf8(told.to_vec()).unwrap();
    let wanted = "event: chunk\ndata: {\"agent_turn_id\":\"turn_1\",\"step_id\":\"step_1\",\
                  \"index\":7,\"chunk_type\":\"content\",\"content\":\"a\\nb\"}\n\n";
    assert_eq!(told, wanted);
    shutdown.trigger();
    assert!(testbed::in_time(body.next()).await.is_none(), "the node ends");
}
