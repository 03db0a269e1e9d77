//! Which headers go in, and which come out.
//!
//! Inwards all pass but those that are about the connection or prove who asks. Outwards only those pass that say what
//! the answer is: a header that we do not know might mean something to a browser or a proxy in front of this node.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// About one connection, or proves something to this node.
const STAY_HERE: &[HeaderName] = &[
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::COOKIE,
    header::EXPECT,
    header::FORWARDED,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::REFERER,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VIA,
];
/// The same without a name that the library knows.
const STAY_HERE_TOO: &[&str] = &[
    "cookie2",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "proxy-connection",
    "x-real-ip",
];

/// Says what an answer is.
const COME_OUT: &[HeaderName] = &[
    header::ACCEPT_RANGES,
    header::AGE,
    header::ALLOW,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_TYPE,
    header::DATE,
    header::ETAG,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::PRAGMA,
    header::RETRY_AFTER,
    header::VARY,
];

/// What a request says inside.
pub(super) fn inward(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let stays = |name: &HeaderName| {
        let text = name.as_str();
        STAY_HERE.contains(name)
            || STAY_HERE_TOO.contains(&text)
            || text.starts_with("x-forwarded-")
            || text.starts_with("x-guild-")
            || named.iter().any(|named| named == text)
    };
    let goes_in = headers.iter().filter(|(name, _)| !stays(name));
    goes_in.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// What an answer says here. Where it leads to stays below the path of its port.
pub(super) fn outward(headers: &HeaderMap, base: &str, inner: &str, port: u16) -> HeaderMap {
    let comes_out = headers.iter().filter(|(name, _)| COME_OUT.contains(name));
    let mut out: HeaderMap = comes_out.map(|(name, value)| (name.clone(), value.clone())).collect();
    let to = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let to = to.and_then(|to| confined(to, base, inner, port));
    if let Some(to) = to.and_then(|to| HeaderValue::from_str(&to).ok()) {
        out.insert(header::LOCATION, to);
    }
    out
}

/// Where an answer leads, below the path of its port. Nothing if it leads elsewhere: a client that follows it would
/// send its token there.
fn confined(to: &str, base: &str, inner: &str, port: u16) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '\\';
    if !to.chars().all(is_plain) || to.starts_with("//") {
        return None;
    }
    let own = ["localhost", "127.0.0.1"].map(|name| format!("http://{name}:{port}"));
    let behind = own.iter().find_map(|own| to.strip_prefix(own.as_str()));
    let to =
        behind.filter(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#'])).unwrap_or(to);
    let asked = inner.split('?').next().unwrap_or("/");
    let (path, rest) = to.split_at(to.find(['?', '#']).unwrap_or(to.len()));
    if path.split('/').next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    let path = match path {
        "" => asked.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{}{path}", asked.get(..=asked.rfind('/')?)?),
    };
    Some(format!("{base}{}{rest}", without_dots(&path)))
}

/// A path that goes nowhere but down.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut is_directory = false;
    for segment in path.split('/').skip(1) {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        is_directory = matches!(plain.as_str(), "." | "..");
        match plain.as_str() {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    if is_directory {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(headers: &[(&str, &str)]) -> HeaderMap {
        headers
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn no_credential_goes_in() {
        let sent = map(&[
            ("authorization", "Bearer ghs_secret"),
            ("cookie", "a=b"),
            ("proxy-authorization", "x"),
            ("idempotency-key", "k"),
            ("host", "guild.example"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-guild-anything", "1"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
            ("x-own", "kept"),
            ("content-type", "text/plain"),
        ]);
        assert_eq!(names(&inward(&sent)), ["accept", "content-type", "x-own"]);
    }

    #[test]
    fn only_what_says_what_it_is_comes_out() {
        let answered = map(&[
            ("content-type", "text/html"),
            ("etag", "1"),
            ("set-cookie", "session=stolen; Path=/"),
            ("content-security-policy", "default-src *"),
            ("access-control-allow-origin", "*"),
            ("strict-transport-security", "max-age=1"),
            ("clear-site-data", "*"),
            ("service-worker-allowed", "/"),
            ("www-authenticate", "Basic"),
            ("x-accel-redirect", "/etc/passwd"),
            ("refresh", "0; url=/v1/keys"),
            ("link", "</x>; rel=preload"),
            ("connection", "upgrade"),
            ("idempotency-repeated", "true"),
        ]);
        let out = outward(&answered, "/base", "/", 80);
        assert_eq!(names(&out), ["content-type", "etag"]);
    }

    #[test]
    fn an_answer_leads_nowhere_but_below_its_port() {
        let base = "/v1/sandboxes/sbx_1/ports/80";
        let to = |to: &str| confined(to, base, "/a/b?q=1", 80);
        let below = |path: &str| Some(format!("{base}{path}"));
        assert_eq!(to("/x?y#z"), below("/x?y#z"));
        assert_eq!(to("x"), below("/a/x"));
        assert_eq!(to("?r"), below("/a/b?r"));
        assert_eq!(to(""), below("/a/b"));
        assert_eq!(to("http://localhost:80/x"), below("/x"));
        assert_eq!(to("http://127.0.0.1:80"), below("/a/b"));
        assert_eq!(to("../../../../../keys"), below("/keys"));
        assert_eq!(to("/%2e%2E/%2e./v1/keys"), below("/v1/keys"));
        assert_eq!(to("/x/.."), below("/"));
        assert_eq!(to("./"), below("/a/"));
        for elsewhere in [
            "//evil.example/x",
            "https://evil.example/",
            "http://127.0.0.1:4848/v1/keys",
            "http://localhost:80@evil.example/",
            "http://localhost:8080/",
            "javascript:alert(1)",
            "\\\\evil.example",
            "/\\evil.example",
            " /x",
            "/x\u{e4}",
        ] {
            let to = to(elsewhere);
            assert!(to.as_deref().is_none_or(|to| to.starts_with(base)), "{elsewhere}: {to:?}");
        }
        assert_eq!(to("http://localhost:8080/"), None);
        assert_eq!(to("//evil.example/x"), None);
        assert_eq!(to("https://evil.example/"), None);
        assert_eq!(to("http://127.0.0.1:4848/v1/keys"), None);
    }
}
