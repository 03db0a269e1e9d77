//! Ports of a sandbox, for its owner: which have an address, what is passed on to them, and tunnels.
//!
//! Whatever listens there is a stranger. What it gets holds no credential of this node; what it answers sets nothing at
//! this origin, runs nothing in it, and leads no client to another of its paths.

use axum::Json;
use axum::Router;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::Uri;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::{MethodFilter, delete, get, on, post};
use guild_hosting::api::{PortBody, PortClosed, PortView, Ports, Problem};

use super::asked::{Answered, Caller, Id, Nothing, Write};
use super::document::{Idempotent, SandboxPath};
use crate::dress::Foreign;
use crate::relay::is_upgrade;
use crate::{Error, Result, Shared};

mod exchange;
mod headers;
mod socket;

/// What is passed on. The others are about the connection, or not known to those who stand between.
const METHODS: MethodFilter = MethodFilter::GET
    .or(MethodFilter::HEAD)
    .or(MethodFilter::POST)
    .or(MethodFilter::PUT)
    .or(MethodFilter::PATCH)
    .or(MethodFilter::DELETE)
    .or(MethodFilter::OPTIONS);

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/v1/sandboxes/{sandbox_id}/ports", post(expose).get(list))
        .route("/v1/sandboxes/{sandbox_id}/ports/{port}", delete(close))
        .route("/v1/sandboxes/{sandbox_id}/ports/{port}/", on(METHODS, pass))
        .route("/v1/sandboxes/{sandbox_id}/ports/{port}/{*path}", on(METHODS, pass))
        .route("/v1/sandboxes/{sandbox_id}/tunnels/{port}", get(tunnel))
}

/// A port of a sandbox, as a path names it.
pub(crate) struct At {
    sandbox_id: String,
    port: u16,
}

impl FromRequestParts<Shared> for At {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<At> {
        // There may be more in the path; the two come first.
        let named = Path::<Vec<(String, String)>>::from_request_parts(parts, shared).await;
        let Path(named) = named.map_err(|rejected| Error::bad("path", rejected.body_text()))?;
        let find = |name: &str| named.iter().find(|(known, _)| known == name);
        let (Some((_, sandbox_id)), Some((_, port))) = (find("sandbox_id"), find("port")) else {
            return Err(Error::bad("path", "names no port of a sandbox"));
        };
        let wrong = |_| Error::bad("port", "must be 1 to 65535");
        Ok(At { sandbox_id: sandbox_id.clone(), port: port.parse().map_err(wrong)? })
    }
}

/// Gives a port an address, at which its owner reaches it by HTTP and WebSocket.
#[utoipa::path(post, path = "/v1/sandboxes/{sandbox_id}/ports", tag = "ports", request_body(content = PortBody),
    params(SandboxPath, Idempotent), responses(
    (status = 201, description = "Its address.", body = PortView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn expose(Id(sandbox_id): Id, write: Write<PortBody>) -> Result<Answered> {
    Ok(Answered(write.desk.expose_port(write.sent, &sandbox_id, write.body).await?))
}

/// The ports that have an address.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/ports", tag = "ports",
    params(SandboxPath), responses(
    (status = 200, description = "The ports.", body = Ports),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn list(
    Caller { desk, token }: Caller,
    Id(sandbox_id): Id,
) -> Result<Json<Ports>> {
    Ok(Json(desk.ports(token, &sandbox_id).await?))
}

/// Takes the address of a port away. Connections that are open end within seconds.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox_id}/ports/{port}", tag = "ports", params(
    SandboxPath,
    ("port" = u16, Path, description = "The port.", minimum = 1, maximum = 65535), Idempotent), responses(
    (status = 200, description = "It has no address any more.", body = PortClosed),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn close(at: At, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.close_port(write.sent, &at.sandbox_id, at.port).await?))
}

/// Passes a request on to a port that has an address, and its answer back; a WebSocket too. Credentials do not go in.
/// Of the headers of an answer those pass that say what it is; it sets no cookies, and a browser runs nothing of it.
#[utoipa::path(method(get, head, post, put, patch, delete, options),
    path = "/v1/sandboxes/{sandbox_id}/ports/{port}/{path}", tag = "ports", params(
    SandboxPath,
    ("port" = u16, Path, description = "The port.", minimum = 1, maximum = 65535),
    ("path" = String, Path, description = "What is asked for there; may hold slashes.")), responses(
    (status = 200, description = "Whatever the program in the sandbox answers.", content_type = "*/*"),
    (status = 502, description = "Nothing there speaks HTTP.", body = Problem),
    (status = "default", description = "What went wrong, or what the program answers.", body = Problem),
))]
pub(crate) async fn pass(
    State(shared): State<Shared>,
    Caller { desk, token }: Caller,
    at: At,
    request: Request,
) -> Result<Response> {
    let Target { base, inner } = Target::of(request.uri(), at.port)?;
    let way = desk.way_to_port(token, &at.sandbox_id, at.port).await?;
    if is_upgrade(request.headers()) {
        return socket::pass(shared, way, at.port, &inner, request).await;
    }
    let answer = exchange::pass(way, at.port, &inner, request).await?;
    Ok(dressed(answer, &base, &inner, at.port))
}

/// An answer as it leaves: what it may say, and no more.
fn dressed(answer: exchange::Answered, base: &str, inner: &str, port: u16) -> Response {
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = headers::outward(&answer.headers, base, inner, port);
    response.extensions_mut().insert(Foreign);
    response
}

/// A tunnel to any port of a sandbox, for programs that speak something else: a WebSocket whose binary messages are
/// bytes to and from it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox_id}/tunnels/{port}", tag = "ports", params(
    SandboxPath,
    ("port" = u16, Path, description = "The port.", minimum = 1, maximum = 65535)), responses(
    (status = 101, description = "The tunnel."),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn tunnel(
    State(shared): State<Shared>,
    Caller { desk, token }: Caller,
    at: At,
    request: Request,
) -> Result<Response> {
    let way = desk.tunnel(token, &at.sandbox_id, at.port).await?;
    let upgrade = socket::upgrade(request).await?;
    Ok(socket::tunnel(shared, way, upgrade))
}

/// Where a request goes.
struct Target {
    /// The path of the port here, without a slash at its end.
    base: String,
    /// The path and query inside, as they were sent.
    inner: String,
}

impl Target {
    fn of(uri: &Uri, port: u16) -> Result<Target> {
        let path = uri.path();
        // `/v1/sandboxes/{sandbox_id}/ports/{port}`, and behind that all of it is the stranger's.
        let end = path.match_indices('/').nth(5).map(|(at, _)| at);
        let Some((base, rest)) = end.and_then(|end| path.split_at_checked(end)) else {
            return Err(Error::bad("path", format!("names nothing at port {port}")));
        };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Target { base: base.to_owned(), inner: format!("{rest}{query}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_port_is_passed_on_as_it_was_sent() {
        let target = |path: &str| {
            let Target { base, inner } = Target::of(&path.parse().unwrap(), 80).unwrap();
            (base, inner)
        };
        let base = "/v1/sandboxes/sbx_1/ports/80";
        let expect = |inner: &str| (base.to_owned(), inner.to_owned());
        assert_eq!(target(&format!("{base}/")), expect("/"));
        assert_eq!(target(&format!("{base}/a%2Fb/../c?d=/e")), expect("/a%2Fb/../c?d=/e"));
        assert_eq!(target(&format!("{base}//x")), expect("//x"));
        assert!(Target::of(&base.parse().unwrap(), 80).is_err());
    }
}
