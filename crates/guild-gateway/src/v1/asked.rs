//! What every request brings: a token, an idempotency key, a body that is read strictly.

use std::net::{IpAddr, Ipv4Addr};

use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use guild_hosting::access::Token;
use guild_hosting::access::idempotency::Reply;
use guild_hosting::desk::{Desk, Sent};
use guild_protocol::hash::Hash;
use guild_protocol::json;
use serde::de::DeserializeOwned;

use crate::body::{Raw, malformed};
use crate::guard::header;
use crate::relay::Remote;
use crate::{Error, Result, Shared, proxy};

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPEATED: HeaderName = HeaderName::from_static("idempotency-repeated");

/// The desk, for a request that is counted by its address.
pub(crate) struct At {
    pub(crate) desk: Desk,
    pub(crate) address: IpAddr,
}

impl FromRequestParts<Shared> for At {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<At> {
        let Some(desk) = shared.desk.clone() else {
            return Err(Error::NoSuchPath(parts.uri.path().chars().take(200).collect()));
        };
        let remote = parts.extensions.get::<ConnectInfo<Remote>>();
        let peer =
            remote.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |ConnectInfo(remote)| remote.address());
        let address = proxy::client(&shared.options.trusted_proxies, peer, &parts.headers);
        desk.come(address)?;
        Ok(At { desk, address })
    }
}

/// The desk, for whoever asks for a nonce or signs in: that is counted once more.
pub(super) struct Knock(pub(super) At);

impl FromRequestParts<Shared> for Knock {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Knock> {
        let at = At::from_request_parts(parts, shared).await?;
        at.desk.knock(at.address)?;
        Ok(Knock(at))
    }
}

/// The desk, for whoever shows a token. Whether it is good is the desk's to say.
pub(super) struct Caller {
    pub(super) desk: Desk,
    pub(super) token: Token,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Caller> {
        let At { desk, .. } = At::from_request_parts(parts, shared).await?;
        Ok(Caller { desk, token: bearer(&parts.headers)? })
    }
}

fn bearer(headers: &HeaderMap) -> Result<Token> {
    let shown = header(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    Ok(shown.unwrap_or_default().parse::<Token>()?)
}

/// A write: the desk, the request as it came, and its body.
pub(super) struct Write<T> {
    pub(super) desk: Desk,
    pub(super) sent: Sent,
    pub(super) body: T,
}

/// A body that says nothing.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

impl<T: DeserializeOwned> FromRequest<Shared> for Write<T> {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Write<T>> {
        let (mut parts, body) = request.into_parts();
        // Before the body is read: whoever has no token sends nothing here.
        let Caller { desk, token } = Caller::from_request_parts(&mut parts, shared).await?;
        let key = idempotency_key(&parts.headers)?;
        let request = Request::from_parts(parts.clone(), body);
        let Raw(bytes) = Raw::from_request(request, shared).await?;
        let body = read(&bytes)?;
        let sent = sent(&parts, token, key, Hash::of(&bytes));
        Ok(Write { desk, sent, body })
    }
}

fn sent(parts: &Parts, token: Token, idempotency_key: String, body_hash: Hash) -> Sent {
    Sent {
        token,
        idempotency_key,
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        body_hash,
    }
}

/// A write whose body is not read yet.
pub(super) struct Unread {
    pub(super) desk: Desk,
    /// With the hash of an empty body, until that of the body is known.
    pub(super) sent: Sent,
}

impl FromRequestParts<Shared> for Unread {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Unread> {
        let Caller { desk, token } = Caller::from_request_parts(parts, shared).await?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Unread { desk, sent: sent(parts, token, key, Hash::of(b"")) })
    }
}

/// The body, read strictly; an empty one is an object without fields.
pub(crate) fn read<T: DeserializeOwned>(bytes: &Bytes) -> Result<T> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    json::decode(text).map_err(|e| malformed(&e))
}

fn idempotency_key(headers: &HeaderMap) -> Result<String> {
    let mut all = headers.get_all(IDEMPOTENCY_KEY).iter();
    match (all.next().map(HeaderValue::to_str), all.next()) {
        (Some(Ok(key)), None) => Ok(key.to_owned()),
        (None, _) => Err(Error::bad(
            "idempotency-key",
            "is needed: a random text of your own, the same when you send the same request again",
        )),
        _ => Err(Error::bad("idempotency-key", "must be one visible ASCII text")),
    }
}

/// A body without a token: to sign in, or from the operator.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Body<T>> {
        let Raw(bytes) = Raw::from_request(request, shared).await?;
        read(&bytes).map(Body)
    }
}

/// The name in a path.
pub(crate) struct Id(pub(crate) String);

impl FromRequestParts<Shared> for Id {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Id> {
        match Path::<String>::from_request_parts(parts, shared).await {
            Ok(Path(id)) => Ok(Id(id)),
            Err(rejected) => Err(Error::bad("path", rejected.body_text())),
        }
    }
}

/// The names in a path: a sandbox, and a command in it.
pub(super) struct Ids(pub(super) String, pub(super) String);

impl FromRequestParts<Shared> for Ids {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Ids> {
        match Path::<(String, String)>::from_request_parts(parts, shared).await {
            Ok(Path((outer, inner))) => Ok(Ids(outer, inner)),
            Err(rejected) => Err(Error::bad("path", rejected.body_text())),
        }
    }
}

/// The parameters of a read; an unknown one is refused.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Asked<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Asked<T>> {
        match Query::<T>::from_request_parts(parts, shared).await {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(rejected) => Err(Error::bad("query", rejected.body_text())),
        }
    }
}

/// The answer to a write, as it is kept.
pub(super) struct Answered(pub(super) Reply);

impl IntoResponse for Answered {
    fn into_response(self) -> Response {
        let Reply { answer, repeated } = self.0;
        let status = StatusCode::from_u16(answer.status()).unwrap_or(StatusCode::OK);
        let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let mut response = match answer.body() {
            "" => status.into_response(),
            body => (status, kind, body.to_owned()).into_response(),
        };
        if repeated {
            response.headers_mut().insert(REPEATED, HeaderValue::from_static("true"));
        }
        response
    }
}
