//! Content at `/ipfs/{cid}/{path}`, as gateways of IPFS serve it. Strangers made it: it has no origin here, runs
//! nothing, and is never taken for another type than it is said to be.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path as UrlPath, Query, State};
use axum::http::header::{
    ACCEPT, ACCEPT_RANGES, AUTHORIZATION, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH,
    CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE, LOCATION, RANGE, VARY,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use guild_network::content::{Content, FileReader, Found, FoundNode, Path, Reach, Walker};
use guild_protocol::content::{Cid, car};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use crate::dress::Foreign;
use crate::explore::names;
use crate::guard::{self, require_token};
use crate::log::bad_query;
use crate::{Error, Result, Shared, web};

mod mime;
mod range;

use range::Asked;

/// What has a hash for a name never changes.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=29030400, immutable");
const IPFS_PATH: HeaderName = HeaderName::from_static("x-ipfs-path");
/// What a directory without an index is shown as.
const INDEX: &str = "index.html";

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/ipfs/{cid}", get(root))
        .route("/ipfs/{cid}/", get(root))
        .route("/ipfs/{cid}/{*path}", get(below))
}

/// Somebody who reads content, and how far it is fetched for them: whoever shows the token may make this node ask its
/// peers, strangers see what is here.
pub(crate) struct Reader {
    pub(crate) content: Content,
    pub(crate) reach: Reach,
}

impl FromRequestParts<Shared> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Reader> {
        let content = content(shared, parts.uri.path())?;
        if !parts.headers.contains_key(AUTHORIZATION) && shared.options.content_public {
            return Ok(Reader { content, reach: Reach::Local });
        }
        require_token(shared, &parts.headers)?;
        Ok(Reader { content, reach: Reach::Peers })
    }
}

/// The content of this node, if it has any.
pub(crate) fn content(shared: &Shared, path: &str) -> Result<Content> {
    let none = || Error::NoSuchPath(path.chars().take(200).collect());
    shared.content.clone().ok_or_else(none)
}

#[derive(Debug, Default, Deserialize)]
struct Wish {
    format: Option<String>,
}

/// In what form content is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A file as it is, a directory as a page.
    Usual,
    /// One block.
    Raw,
    /// Everything below, block by block.
    Car,
}

/// What is asked for, taken apart.
struct Asking {
    reader: Reader,
    form: Form,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
}

impl FromRequestParts<Shared> for Asking {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Asking> {
        let reader = Reader::from_request_parts(parts, shared).await?;
        let Query(wish): Query<Wish> =
            Query::from_request_parts(parts, shared).await.map_err(bad_query)?;
        let accept = guard::header(&parts.headers, &ACCEPT).unwrap_or_default();
        let form = match wish.format.as_deref() {
            Some("raw") => Form::Raw,
            Some("car") => Form::Car,
            Some(_) => return Err(Error::bad("format", "must be raw or car")),
            None if accept.contains(RAW_TYPE) => Form::Raw,
            None if accept.contains("application/vnd.ipld.car") => Form::Car,
            None => Form::Usual,
        };
        let (method, headers) = (parts.method.clone(), parts.headers.clone());
        Ok(Asking { reader, form, method, headers, uri: parts.uri.clone() })
    }
}

const RAW_TYPE: &str = "application/vnd.ipld.raw";

async fn root(
    State(shared): State<Shared>,
    asking: Asking,
    cid: Result<UrlPath<String>, PathRejection>,
) -> Result<Response> {
    let UrlPath(cid) = cid.map_err(unreadable)?;
    asking.answer(&shared, Path::new(parse(&cid)?, "")?).await
}

async fn below(
    State(shared): State<Shared>,
    asking: Asking,
    named: Result<UrlPath<(String, String)>, PathRejection>,
) -> Result<Response> {
    let UrlPath((cid, path)) = named.map_err(unreadable)?;
    asking.answer(&shared, Path::new(parse(&cid)?, &path)?).await
}

fn unreadable(rejected: PathRejection) -> Error {
    Error::bad("path", rejected.body_text())
}

pub(crate) fn parse(cid: &str) -> Result<Cid> {
    Ok(cid.parse::<Cid>().map_err(guild_network::Error::from)?)
}

impl Asking {
    async fn answer(self, shared: &Shared, path: Path) -> Result<Response> {
        let mut response = match self.form {
            Form::Raw => self.block(&path).await?,
            Form::Car => self.car(shared, &path).await?,
            Form::Usual => self.usual(shared, &path).await?,
        };
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(self.uri.path()) {
            headers.insert(IPFS_PATH, value);
        }
        headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
        if !shared.options.content_public {
            // Nobody in between may keep what is not for everybody.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
        }
        Ok(response)
    }

    async fn resolve(&self, path: &Path) -> Result<Found> {
        Ok(self.reader.content.resolve(path, self.reader.reach).await?)
    }

    async fn block(&self, path: &Path) -> Result<Response> {
        // A root needs to be no file and no directory that could be read here.
        let cid = if path.names.is_empty() { path.root } else { self.resolve(path).await?.cid };
        let tag = format!("\"{cid}.raw\"");
        let bytes = self.reader.content.block(&cid, self.reader.reach).await?;
        if self.knows(&tag) {
            return Ok(not_modified(&tag));
        }
        let mut response = foreign(RAW_TYPE, Body::from(bytes));
        attach(&mut response, &format!("{cid}.bin"));
        tagged(&mut response, &tag);
        Ok(response)
    }

    async fn car(&self, shared: &Shared, path: &Path) -> Result<Response> {
        let cid = if path.names.is_empty() { path.root } else { self.resolve(path).await?.cid };
        let mut walker = self.reader.content.walker(&cid, self.reader.reach)?;
        let first = walker.next().await?;
        let mut begin = car::header(&cid);
        begin.extend(first.map(section).unwrap_or_default());
        let body = Body::from_stream(stream::unfold(
            Some((Some(begin), walker, permit(shared)?)),
            |state| async move {
                let (begin, mut walker, permit) = state?;
                if let Some(begin) = begin {
                    return Some((Ok(Bytes::from(begin)), Some((None, walker, permit))));
                }
                next_section(&mut walker).await.map(|piece| {
                    let goes_on = piece.is_ok();
                    (piece, goes_on.then_some((None, walker, permit)))
                })
            },
        ));
        let mut response = foreign("application/vnd.ipld.car; version=1", body);
        attach(&mut response, &format!("{cid}.car"));
        response.headers_mut().insert(CACHE_CONTROL, FOR_EVER);
        Ok(response)
    }

    async fn usual(&self, shared: &Shared, path: &Path) -> Result<Response> {
        let found = self.resolve(path).await?;
        match found.node {
            FoundNode::File(bytes) => {
                self.file(shared, (found.cid, bytes), path.names.last()).await
            }
            FoundNode::Symlink(_) => {
                let error = guild_network::Error::refused(
                    &guild_network::code::CONTENT_NOT_A_FILE,
                    "this is a symbolic link, which is not followed",
                );
                Err(error.into())
            }
            FoundNode::Directory(entries) => {
                if !self.uri.path().ends_with('/') {
                    return self.to_directory();
                }
                let Some(index) = entries.iter().find(|entry| entry.name == INDEX) else {
                    let tag = format!("\"listing-{}\"", found.cid);
                    if self.knows(&tag) {
                        return Ok(not_modified(&tag));
                    }
                    let page = web::directory(path, &found.cid, &entries);
                    let mut response = Body::from(page).into_response();
                    let html = HeaderValue::from_static("text/html; charset=utf-8");
                    response.headers_mut().insert(CONTENT_TYPE, html);
                    tagged(&mut response, &tag);
                    // The page may look otherwise in another version of this program.
                    let short = HeaderValue::from_static("public, max-age=600");
                    response.headers_mut().insert(CACHE_CONTROL, short);
                    return Ok(response);
                };
                let index = self.resolve(&Path::new(index.cid, "")?).await?;
                match index.node {
                    FoundNode::File(bytes) => {
                        let name = INDEX.to_owned();
                        self.file(shared, (index.cid, bytes), Some(&name)).await
                    }
                    _ => Err(Error::NoSuchPath(INDEX.to_owned())),
                }
            }
        }
    }

    /// Links of a page in a directory start there, so its address must end like one.
    fn to_directory(&self) -> Result<Response> {
        let question = self.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let place = HeaderValue::from_str(&format!("{}/{question}", self.uri.path()));
        let place = place.map_err(|_| Error::bad("path", "cannot stand in a header"))?;
        Ok((StatusCode::FOUND, [(LOCATION, place)]).into_response())
    }

    async fn file(
        &self,
        shared: &Shared,
        (cid, bytes): (Cid, u64),
        name: Option<&String>,
    ) -> Result<Response> {
        let tag = format!("\"{cid}\"");
        if self.knows(&tag) {
            return Ok(not_modified(&tag));
        }
        let same = guard::header(&self.headers, &IF_RANGE).is_none_or(|said| said == tag);
        let wished = guard::header(&self.headers, &RANGE).filter(|_| same);
        let asked = wished.map_or(Asked::All, |text| range::parse(text, bytes));
        let (start, end) = match asked {
            Asked::All => (0, bytes),
            Asked::Part(start, end) => (start, end),
            Asked::Nothing => return Ok(not_satisfiable(bytes)),
        };
        let mut reader =
            self.reader.content.read_file(&cid, bytes, (start, end), self.reader.reach);
        let body = if self.method == Method::HEAD {
            Body::empty()
        } else {
            // Before the answer begins: what is missing or wrong at once is still told as an error.
            let first = reader.next().await?;
            pour(first, reader, permit(shared)?)
        };
        let mut response = foreign(mime::of(name.map(String::as_str)), body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(end.saturating_sub(start)));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Asked::Part(start, end) = asked {
            let range = format!("bytes {start}-{}/{bytes}", end.saturating_sub(1));
            if let Ok(range) = HeaderValue::from_str(&range) {
                headers.insert(CONTENT_RANGE, range);
            }
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        tagged(&mut response, &tag);
        Ok(response)
    }

    /// Whether whoever asks has it already.
    fn knows(&self, tag: &str) -> bool {
        guard::header(&self.headers, &IF_NONE_MATCH).is_some_and(|list| names(list, tag))
    }
}

pub(crate) fn permit(shared: &Shared) -> Result<OwnedSemaphorePermit> {
    let most = shared.options.streams_max;
    shared.streams.clone().try_acquire_owned().map_err(|_| Error::TooManyStreams(most))
}

/// A file as it is read. An error ends the answer before its end, so nobody takes a part for the whole.
pub(crate) fn pour(
    first: Option<Vec<u8>>,
    reader: FileReader,
    permit: OwnedSemaphorePermit,
) -> Body {
    let state = first.map(|first| (Some(first), reader, permit));
    Body::from_stream(stream::unfold(state, |state| async move {
        let (first, mut reader, permit) = state?;
        let piece = match first {
            Some(first) => Ok(Some(first)),
            None => reader.next().await,
        };
        match piece {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some((None, reader, permit)))),
            Ok(None) => None,
            Err(error) => Some((Err(std::io::Error::other(error.to_string())), None)),
        }
    }))
}

fn section((cid, bytes): (Cid, Vec<u8>)) -> Vec<u8> {
    let mut section = car::section(&cid, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    section.extend(bytes);
    section
}

async fn next_section(walker: &mut Walker) -> Option<std::io::Result<Bytes>> {
    match walker.next().await {
        Ok(block) => block.map(|block| Ok(Bytes::from(section(block)))),
        Err(error) => Some(Err(std::io::Error::other(error.to_string()))),
    }
}

/// An answer that strangers made.
fn foreign(content_type: &'static str, body: Body) -> Response {
    let mut response = body.into_response();
    response.extensions_mut().insert(Foreign);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn attach(response: &mut Response, name: &str) {
    let value = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    if let Ok(value) = value {
        response.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
}

fn tagged(response: &mut Response, tag: &str) {
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(ETAG, tag);
    }
    headers.insert(CACHE_CONTROL, FOR_EVER);
}

fn not_modified(tag: &str) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    tagged(&mut response, tag);
    response
}

fn not_satisfiable(bytes: u64) -> Response {
    let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("bytes */{bytes}")) {
        response.headers_mut().insert(CONTENT_RANGE, value);
    }
    response
}
