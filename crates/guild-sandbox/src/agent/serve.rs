//! The routes, and what stands before all of them.

mod body;
mod exec;
mod files;
mod ports;
mod sandbox;

use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use futures_util::future::{Either, select};
use guild_protocol::hash::Hash;
use tokio::net::TcpListener;

use super::auth::{ANSWER_HEADER, Asked, Nonce, Pass, Seal};
use super::error::{Error, Result, code};
use super::socket::{Door, Known};
use super::{FAREWELL_MS, Shared, lock};

pub(super) use ports::MAX_TUNNELS;

/// The largest body of an answer that is signed whole.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Serves until the shutdown.
pub(super) async fn serve(shared: Arc<Shared>, listener: TcpListener) -> Result<()> {
    let door = Door::new(listener, shared.clock.clone());
    let service = router(shared.clone()).into_make_service_with_connect_info::<Known>();
    let served = axum::serve(door, service)
        .with_graceful_shutdown(shared.shutdown.triggered())
        .into_future();
    let late = std::pin::pin!(async {
        shared.shutdown.triggered().await;
        shared.clock.sleep(FAREWELL_MS).await;
    });
    match select(served, late).await {
        Either::Left((served, _)) => {
            served.map_err(|e| Error::new(&code::UNREACHABLE, e.to_string()))
        }
        Either::Right(_) => Ok(()),
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let routes = Router::new()
        .route("/health", get(sandbox::health))
        .route("/attestation", get(sandbox::attestation))
        .route("/release-secrets", post(sandbox::release_secrets))
        .route("/lease", post(sandbox::lease))
        .route("/resize", post(sandbox::resize))
        .route("/freeze", post(sandbox::freeze))
        .route("/thaw", post(sandbox::thaw))
        .route("/shutdown", post(sandbox::shutdown))
        .route("/exec", post(exec::start))
        .route("/exec/{id}/stream", get(exec::stream))
        .route("/exec/{id}/stdin", post(exec::stdin))
        .route("/exec/{id}/signal", post(exec::signal))
        .route("/files", put(files::write).get(files::read).delete(files::remove))
        .route("/files/list", get(files::list))
        .route("/files/archive", post(files::unpack).get(files::pack))
        .route("/ports/{port}", get(ports::tunnel));
    Router::new()
        .nest("/v1", routes)
        .fallback(nothing_there)
        .method_not_allowed_fallback(nothing_there)
        .layer(axum::middleware::from_fn_with_state(shared.clone(), admit))
        .with_state(shared)
}

async fn nothing_there(method: Method, uri: axum::http::Uri) -> Error {
    let path: String = uri.path().chars().take(200).collect();
    Error::new(&code::NO_SUCH_PATH, format!("there is nothing at {method} {path}"))
}

/// What the controller has signed, beside what the request shows.
#[derive(Debug, Clone, Copy)]
struct Admitted {
    nonce: Nonce,
    body: Hash,
}

/// An answer that is made while it is sent: only its head is signed.
#[derive(Debug, Clone, Copy)]
struct Streamed;

/// Lets in what is signed, and signs the answer.
async fn admit(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(known): ConnectInfo<Known>,
    mut request: Request,
    next: Next,
) -> Response {
    let (nonce, admitted) = check(&shared, &request);
    let answer = match admitted {
        Ok(admitted) => {
            known.set();
            request.extensions_mut().insert(admitted);
            next.run(request).await
        }
        Err(error) => {
            tracing::info!(code = error.code().name, "a request was refused");
            error.into_response()
        }
    };
    seal(&shared, nonce, answer).await
}

fn check(shared: &Shared, request: &Request) -> (Option<Nonce>, Result<Admitted>) {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let missing = || Error::new(&code::NOT_SIGNED, "there is no header authorization");
    let pass = match header.ok_or_else(missing).and_then(Pass::parse) {
        Ok(pass) => pass,
        Err(error) => return (None, Err(error)),
    };
    let path_and_query = request.uri().path_and_query().map_or("", |whole| whole.as_str());
    let asked = Asked { method: request.method().as_str(), path_and_query };
    let admitted = lock(&shared.gate).admit(&pass, &asked, shared.clock.now_ms());
    (Some(pass.nonce), admitted.map(|()| Admitted { nonce: pass.nonce, body: pass.body }))
}

/// Signs an answer for the request that it belongs to.
async fn seal(shared: &Shared, nonce: Option<Nonce>, answer: Response) -> Response {
    let streamed = answer.extensions().get::<Streamed>().is_some();
    let (answer, hash) = if streamed { (answer, None) } else { whole(shared, answer).await };
    let (mut head, body) = answer.into_parts();
    let seal = Seal::sign(&shared.party, nonce, head.status.as_u16(), hash, &shared.key);
    let header = seal.ok().and_then(|seal| HeaderValue::from_str(&seal.to_string()).ok());
    if let Some(header) = header {
        head.headers.insert(ANSWER_HEADER, header);
    }
    Response::from_parts(head, body)
}

/// An answer with its hash. A refusal says nothing secret.
async fn whole(shared: &Shared, answer: Response) -> (Response, Option<Hash>) {
    let (mut head, body) = answer.into_parts();
    let mut bytes = match axum::body::to_bytes(body, MAX_ANSWER_BYTES).await {
        Ok(bytes) => bytes,
        Err(_) => {
            let why = format!("the answer is larger than {MAX_ANSWER_BYTES} bytes");
            let (refused, body) = Error::new(&code::TOO_LARGE, why).into_response().into_parts();
            head = refused;
            axum::body::to_bytes(body, MAX_ANSWER_BYTES).await.unwrap_or_default()
        }
    };
    if head.status.is_client_error() || head.status.is_server_error() {
        head.headers.remove(axum::http::header::CONTENT_LENGTH);
        let forms = shared.forms.read().unwrap_or_else(PoisonError::into_inner);
        bytes = Error::reworded(&bytes, |words| forms.mask_message(words)).into();
    }
    let hash = Hash::of(&bytes);
    (Response::from_parts(head, Body::from(bytes)), Some(hash))
}
