//! Who may ask, and who may write.

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::future::{Either, select};
use guild_roles::explorer::Explorer;

use crate::{Error, Result, Shared, kubo, v1};

/// Refuses requests under a foreign name: a page of another site whose name was made to point at this address would
/// otherwise read everything here through its visitor's browser.
pub(crate) async fn known_host(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let mut named: Vec<&str> = Vec::new();
    for host in request.headers().get_all(HOST) {
        named.push(host.to_str().unwrap_or_default());
    }
    // One name, not two of which we check the first. A request line may carry another, for whoever forwards it.
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let known = named.len() == 1
        && named.iter().copied().chain(authority).all(|host| is_known(host, &shared.options.hosts));
    if !known {
        let told = named.iter().copied().chain(authority).collect::<Vec<_>>().join(", ");
        return Err(Error::UnknownHost(told.chars().take(200).collect()));
    }
    Ok(next.run(request).await)
}

/// Ends a request that takes too long: one whose body never comes, above all. A stream is not meant: its answer begins
/// at once.
pub(crate) async fn in_time(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let route = request.extensions().get::<MatchedPath>();
    let own_pace = |route: &MatchedPath| {
        v1::has_own_pace(request.method(), route.as_str()) || kubo::has_own_pace(route.as_str())
    };
    if route.is_some_and(own_pace) {
        return Ok(next.run(request).await);
    }
    let answer = std::pin::pin!(next.run(request));
    match select(answer, shared.clock.sleep(shared.options.request_max_ms)).await {
        Either::Left((answer, _)) => Ok(answer),
        Either::Right(_) => Err(Error::TooSlow(shared.options.request_max_ms)),
    }
}

fn is_known(host: &str, hosts: &[String]) -> bool {
    let Some(name) = host_name(host) else { return false };
    is_loopback(host) || hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether this is a name of this very host.
pub(crate) fn is_loopback(host: &str) -> bool {
    let loopback = ["127.0.0.1", "localhost", "[::1]"];
    let is = |name: &str| loopback.iter().any(|known| known.eq_ignore_ascii_case(name));
    host_name(host).is_some_and(is)
}

/// `[::1]:4848` → `[::1]`, `localhost:4848` → `localhost`. Nothing, if it is not a name with or without a port.
fn host_name(host: &str) -> Option<&str> {
    let end = match host.rfind(']') {
        Some(end) => end + 1,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at_checked(end)?;
    let port = rest.strip_prefix(':').unwrap_or_default();
    let good = rest.is_empty() || port.parse::<u16>().is_ok();
    (good && !name.is_empty()).then_some(name)
}

/// Whoever this node works for, known by its token. A handler that takes this before the body refuses everybody else
/// without reading what they send.
pub(crate) struct Owner;

impl FromRequestParts<Shared> for Owner {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Owner> {
        require_token(shared, &parts.headers).map(|()| Owner)
    }
}

/// The same for the paths of hosting, where whoever shows no token at all hears that one is needed (401).
pub(crate) struct Operator;

impl FromRequestParts<Shared> for Operator {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Operator> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Err(guild_hosting::access::unauthenticated().into());
        }
        require_token(shared, &parts.headers).map(|()| Operator)
    }
}

/// The market as whoever asks may see it: with the node's token also what is private. A wrong token is refused, so that
/// nobody takes the public view for the whole.
pub(crate) struct Market(pub(crate) Explorer);

impl FromRequestParts<Shared> for Market {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Market> {
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Ok(Market(shared.explorer.clone()));
        }
        require_token(shared, &parts.headers)?;
        Ok(Market(shared.explorer.for_owner()))
    }
}

pub(crate) fn require_token(shared: &Shared, headers: &HeaderMap) -> Result<()> {
    let shown = header(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    match shown {
        Some(shown) if same(shown.as_bytes(), shared.token.as_bytes()) => Ok(()),
        _ => Err(Error::NoToken),
    }
}

/// Takes as long for a wrong token as for the right one.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_not_part_of_the_name() {
        let names = ["localhost:4848", "localhost", "[::1]:4848", "127.0.0.1:1", "evil.example:80"];
        let expected = ["localhost", "localhost", "[::1]", "127.0.0.1", "evil.example"];
        assert_eq!(names.map(host_name), expected.map(Some));
        let rubbish =
            ["", ":80", "[::1]evil", "[::1]evil:80", "localhost:evil", "a:1:2", "a:99999"];
        assert_eq!(rubbish.map(host_name), [None; 7]);
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd"));
        assert!(!same(b"ab", b"abc"));
        assert!(!same(b"", b"a"));
    }
}
