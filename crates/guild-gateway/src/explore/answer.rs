//! One thing, two forms, and no second copy of what the reader has.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use guild_protocol::hash::Hash;
use serde_json::Value;

use crate::{Result, guard};

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// For programs.
    Json,
    /// For people.
    Page,
}

/// What a request says about the answer it wants.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    form: Form,
    path: String,
    /// The answer that the reader still has, by its tag.
    known: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked, Infallible> {
        let path = parts.uri.path().to_owned();
        let form = if path.starts_with("/api/") || wants_json_only(&parts.headers) {
            Form::Json
        } else {
            Form::Page
        };
        let known = guard::header(&parts.headers, &IF_NONE_MATCH).map(str::to_owned);
        Ok(Asked { form, path, known })
    }
}

/// Programs name JSON; browsers always name HTML.
fn wants_json_only(headers: &HeaderMap) -> bool {
    let accept = guard::header(headers, &ACCEPT).unwrap_or_default();
    accept.contains("application/json") && !accept.contains("text/html")
}

/// Whether a person is looking, so that an error should be a page too.
pub(crate) fn wants_page(headers: &HeaderMap, path: &str) -> bool {
    let accept = guard::header(headers, &ACCEPT).unwrap_or_default();
    accept.contains("text/html") && !path.starts_with("/api/") && !path.starts_with("/v1/")
}

impl Asked {
    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The answer in the form that was asked for; only that one is made.
    pub(super) fn answer(
        &self,
        json: impl FnOnce() -> Value,
        page: impl FnOnce() -> String,
    ) -> Response {
        match self.form {
            Form::Json => self.bytes("application/json", json().to_string().into_bytes()),
            Form::Page => self.page(page()),
        }
    }

    pub(super) fn page(&self, page: String) -> Response {
        self.bytes("text/html; charset=utf-8", page.into_bytes())
    }

    /// These bytes, or only the word that the reader has them already.
    pub(super) fn bytes(&self, content_type: &'static str, bytes: Vec<u8>) -> Response {
        let tag = format!("\"{}\"", Hash::of(&bytes).hex());
        let known = self.known.as_deref().is_some_and(|known| names(known, &tag));
        let (status, body) = match known {
            true => (StatusCode::NOT_MODIFIED, Body::empty()),
            false => (StatusCode::OK, Body::from(bytes)),
        };
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(ETAG, tag);
        }
        response
    }
}

/// Whether a list of tags, as `If-None-Match` has it, names this one.
pub(crate) fn names(list: &str, tag: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_a_list() {
        for list in ["\"a\"", "W/\"a\"", "\"x\", \"a\"", "*"] {
            assert!(names(list, "\"a\""), "{list}");
        }
        assert!(!names("\"ab\", a", "\"a\""));
    }

    #[test]
    fn browsers_get_pages_and_programs_json() {
        let accept =
            |text: &'static str| HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(text))]);
        assert!(wants_json_only(&accept("application/json")));
        assert!(!wants_json_only(&accept("text/html,application/json;q=0.9")));
        assert!(!wants_json_only(&accept("*/*")) && !wants_json_only(&HeaderMap::new()));
        assert!(
            wants_page(&accept("text/html"), "/x") && !wants_page(&accept("text/html"), "/api/x")
        );
        assert!(!wants_page(&accept("*/*"), "/x"));
    }
}
