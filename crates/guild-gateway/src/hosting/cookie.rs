//! The cookie by which a browser is known to the pages of hosting.
//!
//! It holds the token of a session that only reads, an API key that only reads, or, for the operator on this host, a
//! word that follows from the node's token and is good for these pages alone. A cookie of a host is sent to every port
//! of it, so whatever else listens there may see it: nothing in it moves money or runs a command.

use std::net::IpAddr;

use axum::http::header::{COOKIE, HOST};
use axum::http::{HeaderMap, HeaderValue};
use guild_hosting::access::Token;
use guild_hosting::desk::Viewer;
use guild_protocol::hash::Hash;

use crate::guard::{header, is_loopback, same};
use crate::{Error, Result, Shared};

const NAME: &str = "guild_page";
const OPERATOR: &str = "operator_";

/// Who looks, by the cookie that the browser sends.
pub(super) fn viewer(shared: &Shared, headers: &HeaderMap, address: IpAddr) -> Result<Viewer> {
    let value = read(headers).unwrap_or_default();
    if value.starts_with(OPERATOR) {
        let good =
            is_here(headers, address) && same(value.as_bytes(), operator(&shared.token).as_bytes());
        return if good { Ok(Viewer::Operator) } else { Err(nobody()) };
    }
    Ok(Viewer::User(value.parse::<Token>()?))
}

fn nobody() -> Error {
    let message = "the cookie is not of this node, or of an earlier run of it";
    guild_hosting::Error::refused(&guild_hosting::access::code::UNAUTHENTICATED, message).into()
}

/// The value of our cookie. Two of them are none: one was planted.
fn read(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = all
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='));
    match (ours.next(), ours.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// What the operator's browser keeps. It follows from the node's token, so it ends with it, and says nothing about it.
pub(super) fn operator(token: &str) -> String {
    format!("{OPERATOR}{}", Hash::of(format!("guild hosting pages\n{token}").as_bytes()).hex())
}

/// Whether somebody on this very host asks, under a name of this host.
pub(super) fn is_here(headers: &HeaderMap, address: IpAddr) -> bool {
    address.to_canonical().is_loopback() && header(headers, &HOST).is_some_and(is_loopback)
}

/// The header that gives a browser its cookie: for these pages alone, out of reach of scripts and of other sites.
pub(super) fn give(value: &str, lasts_s: Option<i64>, secure: bool) -> Result<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    let lasts = lasts_s.map(|lasts_s| format!("; Max-Age={lasts_s}")).unwrap_or_default();
    let text = format!("{NAME}={value}; Path=/hosting; HttpOnly; SameSite=Strict{secure}{lasts}");
    HeaderValue::from_str(&text).map_err(|_| Error::bad("token", "has signs that no token has"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cookies: &[&'static str]) -> HeaderMap {
        cookies.iter().map(|text| (COOKIE, HeaderValue::from_static(text))).collect()
    }

    #[test]
    fn one_cookie_is_ours_and_two_are_none() {
        assert_eq!(read(&headers(&["a=b; guild_page=x; c=d"])), Some("x"));
        assert_eq!(read(&headers(&["a=b", "guild_page=x"])), Some("x"));
        for none in [&["guild_page"][..], &["xguild_page=x"], &["guild_page=x; guild_page=y"], &[]]
        {
            assert_eq!(read(&headers(none)), None, "{none:?}");
        }
        assert_eq!(read(&headers(&["guild_page=x", "guild_page=x"])), None);
    }

    #[test]
    fn what_the_operator_keeps_does_not_show_the_token() {
        let kept = operator("secret");
        assert!(!kept.contains("secret") && kept != operator("secrets"));
        let given = give(&kept, None, true).unwrap();
        let text = given.to_str().unwrap();
        assert!(text.ends_with("; Path=/hosting; HttpOnly; SameSite=Strict; Secure"), "{text}");
        assert!(give("a\nb", None, false).is_err());
    }
}
