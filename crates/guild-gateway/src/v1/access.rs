//! Signing in, and the keys of programs.

use axum::Json;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode, Uri};
use guild_hosting::access::nip98;
use guild_hosting::api::{
    Keys, NewKeyBody, NewKeyView, NonceView, Problem, Proof, RevokedView, SessionView, WhoView,
};
use serde::Deserialize;
use utoipa::ToSchema;

use super::asked::{Answered, Body, Caller, Id, Knock, Nothing, Write, read};
use super::document::{Idempotent, KeyPath};
use crate::Result;
use crate::body::Raw;
use crate::guard::header;

/// Asks for a nonce, to sign in with a wallet.
#[utoipa::path(post, path = "/v1/auth/nonce", tag = "sign-in", security(()), responses(
    (status = 200, description = "What the message must name.", body = NonceView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn nonce(Knock(at): Knock) -> Result<Json<NonceView>> {
    Ok(Json(at.desk.nonce(at.address).await?))
}

/// Signs in: with a message of EIP-4361 and its signature, or with a header `authorization: Nostr …` (NIP-98) and no
/// body.
#[utoipa::path(post, path = "/v1/auth/verify", tag = "sign-in", security(()),
    request_body(content = Proof), responses(
    (status = 200, description = "A session. Its token is shown here and never again.", body = SessionView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn verify(
    Knock(at): Knock,
    uri: Uri,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Json<SessionView>> {
    let nostr = header(&headers, &AUTHORIZATION).filter(|value| value.starts_with("Nostr "));
    let Some(nostr) = nostr else {
        return Ok(Json(at.desk.sign_in(read(&body)?).await?));
    };
    let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
    let asked = nip98::Asked { origins: &[], method: "POST", path_and_query, body: &body };
    Ok(Json(at.desk.sign_in_nostr(nostr, &asked).await?))
}

/// Who wants to sign in without a proof.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unproven {
    /// As whom: `eip155:0x…` or `nostr:…`.
    #[schema(min_length = 1, max_length = 100)]
    user_id: String,
}

/// Signs in without a proof. Only on a node that was started with that switched on, which listens on loopback.
#[utoipa::path(post, path = "/v1/auth/bypass", tag = "sign-in", security(()),
    request_body(content = Unproven), responses(
    (status = 200, description = "A session.", body = SessionView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn bypass(
    Knock(at): Knock,
    Body(body): Body<Unproven>,
) -> Result<Json<SessionView>> {
    Ok(Json(at.desk.sign_in_unproven(&body.user_id).await?))
}

/// Whose token this is, and what it may do.
#[utoipa::path(get, path = "/v1/auth/me", tag = "sign-in", responses(
    (status = 200, description = "Whose it is.", body = WhoView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn me(Caller { desk, token }: Caller) -> Result<Json<WhoView>> {
    Ok(Json(desk.me(token).await?))
}

/// Ends the session.
#[utoipa::path(post, path = "/v1/auth/logout", tag = "sign-in", responses(
    (status = 204, description = "It has ended."),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn logout(Caller { desk, token }: Caller) -> Result<StatusCode> {
    desk.sign_out(token).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The API keys.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", responses(
    (status = 200, description = "All of them that are good.", body = Keys),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn keys(Caller { desk, token }: Caller) -> Result<Json<Keys>> {
    Ok(Json(desk.keys(token).await?))
}

/// Makes an API key.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body(content = NewKeyBody),
    params(Idempotent), responses(
    (status = 201, description = "The key, with its token; in the answer to the same request again without.",
        body = NewKeyView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn create_key(write: Write<NewKeyBody>) -> Result<Answered> {
    Ok(Answered(write.desk.create_key(write.sent, write.body).await?))
}

/// Revokes an API key, and those that were made with it.
#[utoipa::path(delete, path = "/v1/keys/{key_id}", tag = "keys",
    params(KeyPath, Idempotent), responses(
    (status = 200, description = "How many were revoked.", body = RevokedView),
    (status = "default", description = "What went wrong.", body = Problem),
))]
pub(crate) async fn revoke_key(Id(key_id): Id, write: Write<Nothing>) -> Result<Answered> {
    Ok(Answered(write.desk.revoke_key(write.sent, &key_id).await?))
}
