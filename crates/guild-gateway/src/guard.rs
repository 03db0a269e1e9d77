//! Who may ask, and who may write.

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;

use crate::{Error, Result, Shared};

/// Refuses requests under a foreign name: a page of another site whose name was made to point at this address would
/// otherwise read everything here through its visitor's browser.
pub(crate) async fn known_host(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Result<Response> {
    let host = header(request.headers(), &HOST).unwrap_or_default();
    let name = host_name(host);
    let loopback = ["127.0.0.1", "localhost", "[::1]"];
    if !loopback.contains(&name) && !shared.options.hosts.iter().any(|known| known == name) {
        return Err(Error::UnknownHost(host.chars().take(200).collect()));
    }
    Ok(next.run(request).await)
}

/// `[::1]:4848` → `[::1]`, `localhost:4848` → `localhost`.
fn host_name(host: &str) -> &str {
    match host.rfind(']') {
        Some(end) => host.get(..=end).unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Refuses a request that does not carry the node's token.
pub(crate) fn require_token(shared: &Shared, headers: &HeaderMap) -> Result<()> {
    let shown = header(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    match shown {
        Some(shown) if same(shown.as_bytes(), shared.token.as_bytes()) => Ok(()),
        _ => Err(Error::NoToken),
    }
}

/// Takes as long for a wrong token as for the right one.
fn same(a: &[u8], b: &[u8]) -> bool {
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
        let names =
            ["localhost:4848", "localhost", "[::1]:4848", "127.0.0.1:1", "", "evil.example:80"];
        let expected = ["localhost", "localhost", "[::1]", "127.0.0.1", "", "evil.example"];
        assert_eq!(names.map(host_name), expected);
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd"));
        assert!(!same(b"ab", b"abc"));
        assert!(!same(b"", b"a"));
    }
}
