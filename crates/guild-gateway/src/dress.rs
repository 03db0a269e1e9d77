//! What every answer wears: headers that keep other sites out, and for people a page around an error.

use axum::extract::Request;
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use guild_protocol::error::Code;

use crate::{explore, web};

/// An error as it was told, kept beside the answer for whoever shows it in another form.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static Code,
    pub(crate) message: String,
}

/// An answer that a program in a sandbox has made: nobody here vouches for it.
#[derive(Clone, Copy)]
pub(crate) struct Foreign;

/// A page of a stranger has no origin, runs nothing and sends nothing: this node's own pages stand beside it.
const SANDBOXED: &str = "sandbox; default-src 'none'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Only what comes from here is loaded, run or sent to; nobody may frame a page of this node.
const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(crate) async fn dress(request: Request, next: Next) -> Response {
    let by_person = matches!(*request.method(), Method::GET | Method::HEAD)
        && explore::wants_page(request.headers(), request.uri().path());
    let of_hosting = is_of_hosting(request.uri().path());
    let mut response = next.run(request).await;
    if let (true, Some(told)) = (by_person, response.extensions_mut().remove::<Told>()) {
        let page = match of_hosting && told.code == &guild_hosting::access::code::UNAUTHENTICATED {
            true => web::hosting::sign_in(None),
            false => web::problem(told.status, told.code, &told.message),
        };
        *response.body_mut() = page.into();
        let headers = response.headers_mut();
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
    let is_foreign = response.extensions().get::<Foreign>().is_some();
    let policy = if is_foreign { SANDBOXED } else { POLICY };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Forms of hosting must say where they come from; to other sites neither policy says anything.
    let referrer = if of_hosting { "same-origin" } else { "no-referrer" };
    headers.insert(REFERRER_POLICY, HeaderValue::from_static(referrer));
    response
}

fn is_of_hosting(path: &str) -> bool {
    path == "/hosting" || path.starts_with("/hosting/")
}
