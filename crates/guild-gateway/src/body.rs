//! What a request carries, within the limit.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use guild_protocol::json;
use serde::de::DeserializeOwned;

use crate::{Error, Result, Shared};

/// The bytes as they came.
pub(crate) struct Raw(pub(crate) Bytes);

impl FromRequest<Shared> for Raw {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Raw> {
        match Bytes::from_request(request, shared).await {
            Ok(body) => Ok(Raw(body)),
            Err(rejected) if rejected.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Error::TooLarge(shared.options.body_max_bytes))
            }
            Err(rejected) => Err(Error::bad("body", rejected.body_text())),
        }
    }
}

/// JSON, read strictly.
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Sent<T> {
    type Rejection = Error;

    async fn from_request(request: Request, shared: &Shared) -> Result<Sent<T>> {
        let Raw(body) = Raw::from_request(request, shared).await?;
        json::decode(&body).map(Sent).map_err(|e| malformed(&e))
    }
}

/// What is wrong with a body, and where.
pub(crate) fn malformed(e: &guild_protocol::Error) -> Error {
    Error::bad(e.place().unwrap_or("body"), format!("{} ({})", e.message(), e.code().name))
}
