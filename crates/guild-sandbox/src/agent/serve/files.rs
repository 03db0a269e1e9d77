//! Files of the workspace. What a path may be is the workspace's to say; nothing outside of it can be named.

use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::super::Shared;
use super::super::error::{Error, Result};
use super::super::wire::{Entry, FileWritten, Listing};
use super::body::pour;
use super::exec::blocking;
use super::{Admitted, Streamed};

const PIECE_BYTES: usize = 256 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    #[serde(default)]
    path: String,
    #[serde(default)]
    executable: bool,
}

type At = Result<Query<Place>, QueryRejection>;
type Agent = State<Arc<Shared>>;

fn place(at: At) -> Result<Place> {
    at.map(|Query(place)| place).map_err(|e| Error::bad("query", e.body_text()))
}
