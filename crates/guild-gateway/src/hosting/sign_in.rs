//! Signing in on a page: by a wallet, by a Nostr key, or by a key that is pasted.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use guild_hosting::access::{TokenKind, nip98};
use guild_hosting::api::{Proof, SessionView};
use guild_hosting::desk::{Browser, Desk, Viewer};
use serde::{Deserialize, Serialize};

use super::{Visit, cookie, shown};
use crate::body::Raw;
use crate::guard::{header, same};
use crate::v1::asked::{At, Body, read};
use crate::{Error, Result, Shared, web};

const HOME: HeaderValue = HeaderValue::from_static("/hosting");

/// The origin of the page that sends this, if it is a page of this node. Browsers say it with every such request.
fn own_origin<'a>(desk: &Desk, headers: &'a HeaderMap) -> Result<&'a str> {
    let origin = header(headers, &ORIGIN).ok_or(Error::ForeignPage)?;
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let here = authority.is_some() && authority == header(headers, &HOST);
    if here || desk.origin(origin).is_ok() { Ok(origin) } else { Err(Error::ForeignPage) }
}

/// Somebody at a page of this node.
pub(super) struct AtPage {
    at: At,
    origin: String,
}

impl FromRequestParts<Shared> for AtPage {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<AtPage> {
        let at = At::from_request_parts(parts, shared).await?;
        let origin = own_origin(&at.desk, &parts.headers)?.to_owned();
        Ok(AtPage { at, origin })
    }
}

/// Which wallet is to sign.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    address: String,
    chain_id: u64,
}

/// What it is to sign.
#[derive(Serialize)]
pub(super) struct ToSign {
    message: String,
}

pub(super) async fn message(
    AtPage { at, origin }: AtPage,
    Body(wanted): Body<Wanted>,
) -> Result<Json<ToSign>> {
    let wallet = (wanted.address.as_str(), wanted.chain_id);
    let message = at.desk.page_message(at.address, &origin, wallet).await?;
    Ok(Json(ToSign { message }))
}

pub(super) async fn sign_in(
    State(shared): State<Shared>,
    AtPage { at, origin }: AtPage,
    request: Request,
) -> Result<Response> {
    let headers = request.headers().clone();
    let request = axum::body::to_bytes(request.into_body(), shared.options.body_max_bytes);
    let body = request.await.map_err(|_| Error::TooLarge(shared.options.body_max_bytes))?;
    let secure = origin.starts_with("https://");
    if let Some(nostr) = header(&headers, &AUTHORIZATION) {
        let path_and_query = "/hosting/sign-in";
        let asked = nip98::Asked { origins: &[], method: "POST", path_and_query, body: &body };
        let opened = at.desk.sign_in_page(at.address, Browser::Nostr(nostr, asked)).await?;
        return opened_here(&shared, &opened, secure);
    }
    if header(&headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json")) {
        let proof: Proof = read(&body)?;
        let opened = at.desk.sign_in_page(at.address, Browser::Wallet(proof)).await?;
        return opened_here(&shared, &opened, secure);
    }
    match pasted(&shared, &at, &headers, &body).await {
        Ok(value) => {
            let cookie = cookie::give(&value, None, secure)?;
            Ok((StatusCode::SEE_OTHER, [(LOCATION, HOME), (SET_COOKIE, cookie)]).into_response())
        }
        Err(error) => {
            let page = shown(web::hosting::sign_in(Some(&error.to_string())));
            Ok((error.status(), page).into_response())
        }
    }
}

/// A script has signed in: the cookie, and nothing that the script could read.
fn opened_here(shared: &Shared, opened: &SessionView, secure: bool) -> Result<Response> {
    let lasts_s = opened.expires_ms.saturating_sub(shared.clock.now_ms()).div_euclid(1_000);
    let cookie = cookie::give(&opened.token, Some(lasts_s.max(0)), secure)?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

/// What a cookie holds for whoever pastes a key into the form.
async fn pasted(shared: &Shared, at: &At, headers: &HeaderMap, body: &[u8]) -> Result<String> {
    at.desk.knock(at.address)?;
    let text = std::str::from_utf8(body).unwrap_or_default();
    let text = text.strip_prefix("token=").unwrap_or_default();
    // Spaces around it, as forms write them.
    let token = text.trim_matches('+').trim_end_matches("%0D%0A");
    if same(token.as_bytes(), shared.token.as_bytes()) {
        if cookie::is_here(headers, at.address) {
            return Ok(cookie::operator(&shared.token));
        }
        return Err(Error::bad("token", "the node's token is taken on this host alone"));
    }
    let token: guild_hosting::access::Token = token.parse()?;
    if token.kind() != TokenKind::Key {
        return Err(Error::bad(
            "token",
            "paste an API key; a session may do too much for a browser",
        ));
    }
    let value = token.reveal().to_owned();
    at.desk.look(token).await?;
    Ok(value)
}

pub(super) async fn sign_out(page: AtPage, visit: Result<Visit>, Raw(_): Raw) -> Result<Response> {
    if let Ok(Visit { desk, viewer: Viewer::User(token) }) = visit
        && token.kind() == TokenKind::Page
    {
        // One that has ended already is as good as ended.
        let ended = desk.sign_out(token).await;
        ended.or_else(|e| if e.code() == gone() { Ok(()) } else { Err(e) })?;
    }
    let cookie = cookie::give("", Some(0), page.origin.starts_with("https://"))?;
    Ok((StatusCode::SEE_OTHER, [(LOCATION, HOME), (SET_COOKIE, cookie)]).into_response())
}

fn gone() -> &'static guild_protocol::error::Code {
    &guild_hosting::access::code::UNAUTHENTICATED
}
