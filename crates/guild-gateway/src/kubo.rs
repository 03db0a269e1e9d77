//! Content as the RPC of Kubo has it, at `/api/v0`: what its clients need to add, read and pin. What changes something
//! needs the node's token; what reads is open to those who may read at `/ipfs`.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, FromRequestParts, Query, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use guild_network::content::{FoundNode, OPERATOR, Path, Pin, Reach};
use guild_protocol::content::{Cid, Codec};
use serde_json::{Map, Value, json};

use crate::dress::{Foreign, Told};
use crate::guard::Owner;
use crate::ipfs::{self, Reader};
use crate::log::bad_query;
use crate::relay::Remote;
use crate::v1::pour::Pour;
use crate::{Error, Result, Shared};

mod add;
mod multipart;
mod parts;

const ADD: &str = "/api/v0/add";
const PIN_ADD: &str = "/api/v0/pin/add";
const GC: &str = "/api/v0/repo/gc";

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route(ADD, post(add::add))
        .route("/api/v0/cat", post(cat))
        .route("/api/v0/block/get", post(block_get))
        .route("/api/v0/block/put", post(block_put))
        .route(PIN_ADD, post(pin_add))
        .route("/api/v0/pin/ls", post(pin_ls))
        .route("/api/v0/pin/rm", post(pin_rm))
        .route(GC, post(gc))
        .route("/api/v0/version", any(version))
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::map_response(as_kubo_says))
}

/// Whether a request has a pace of its own instead of a deadline: what is added may be large, and what is pinned or
/// removed may be much.
pub(crate) fn has_own_pace(route: &str) -> bool {
    [ADD, PIN_ADD, GC].contains(&route)
}

/// Errors in the form that Kubo's clients read.
async fn as_kubo_says(mut response: Response) -> Response {
    if let Some(told) = response.extensions().get::<Told>() {
        let body = json!({
            "Message": told.message,
            "Code": 0,
            "Type": "error",
            "error": { "code": told.code.name, "message": told.message },
        });
        *response.body_mut() = Body::from(body.to_string());
        response.headers_mut().remove(CONTENT_LENGTH);
    }
    response
}

/// The arguments of a call: all are in the address, and `arg` may stand there several times.
struct Arguments {
    named: BTreeMap<String, String>,
    args: Vec<String>,
}

/// So many arguments are read.
const ARGUMENTS_MAX: usize = 256;

impl FromRequestParts<Shared> for Arguments {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Arguments> {
        let Query(pairs): Query<Vec<(String, String)>> =
            Query::from_request_parts(parts, shared).await.map_err(bad_query)?;
        if pairs.len() > ARGUMENTS_MAX {
            return Err(Error::bad("query", format!("has more than {ARGUMENTS_MAX} arguments")));
        }
        let (mut named, mut args) = (BTreeMap::new(), Vec::new());
        for (name, value) in pairs {
            match name.as_str() {
                "arg" => args.push(value),
                _ => drop(named.insert(name, value)),
            }
        }
        Ok(Arguments { named, args })
    }
}

impl Arguments {
    fn text(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool> {
        match self.named.get(name).map(String::as_str) {
            None => Ok(default),
            Some("true" | "1" | "") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(_) => Err(Error::bad(name, "must be true or false")),
        }
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        let read =
            |text: &str| text.parse::<u64>().map_err(|_| Error::bad(name, "must be a number"));
        self.text(name).map(read).transpose()
    }

    /// Refuses what would change the result and is not done here.
    fn refuse(&self, names: &[&str]) -> Result<()> {
        for name in names {
            if self.flag(name, false)? {
                return Err(Error::bad(name, "is not done here"));
            }
        }
        Ok(())
    }

    fn paths(&self) -> Result<Vec<Path>> {
        if self.args.is_empty() {
            return Err(Error::bad("arg", "is missing"));
        }
        let read = |text: &String| text.parse::<Path>().map_err(Error::from);
        self.args.iter().map(read).collect()
    }

    fn path(&self) -> Result<Path> {
        match self.paths()?.as_slice() {
            [path] => Ok(path.clone()),
            _ => Err(Error::bad("arg", "must be one path")),
        }
    }
}

async fn cat(
    State(shared): State<Shared>,
    Reader { content, reach }: Reader,
    arguments: Arguments,
) -> Result<Response> {
    let found = content.resolve(&arguments.path()?, reach).await?;
    let FoundNode::File(bytes) = found.node else {
        let code = &guild_network::code::CONTENT_NOT_A_FILE;
        return Err(guild_network::Error::refused(code, format!("{} is no file", found.cid)).into());
    };
    let start = arguments.number("offset")?.unwrap_or(0);
    let end = arguments.number("length")?.map_or(u64::MAX, |length| start.saturating_add(length));
    let mut reader = content.read_file(&found.cid, bytes, (start, end), reach);
    let first = reader.next().await?;
    Ok(bytes_of(ipfs::pour(first, reader, ipfs::permit(&shared)?)))
}

async fn block_get(Reader { content, reach }: Reader, arguments: Arguments) -> Result<Response> {
    let path = arguments.path()?;
    let cid = match path.names.is_empty() {
        true => path.root,
        false => content.resolve(&path, reach).await?.cid,
    };
    Ok(bytes_of(Body::from(content.block(&cid, reach).await?)))
}

fn bytes_of(body: Body) -> Response {
    let mut response = body.into_response();
    response.extensions_mut().insert(Foreign);
    let what = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(CONTENT_TYPE, what);
    response
}

async fn block_put(
    State(shared): State<Shared>,
    _: Owner,
    arguments: Arguments,
    request: Request,
) -> Result<Json<Value>> {
    let content = ipfs::content(&shared, request.uri().path())?;
    if arguments.text("mhtype").is_some_and(|hash| hash != "sha2-256") {
        return Err(Error::bad("mhtype", "must be sha2-256"));
    }
    let named = arguments.text("cid-codec").or_else(|| arguments.text("format")).unwrap_or("raw");
    let make: fn(&[u8]) -> Cid = match named {
        "raw" => |block| Cid::of(Codec::Raw, block),
        "dag-pb" | "protobuf" => |block| Cid::of(Codec::DagPb, block),
        "v0" => |block| Cid::v0(guild_protocol::hash::Hash::of(block)),
        _ => return Err(Error::bad("cid-codec", "must be raw or dag-pb")),
    };
    let block = parts::one(&shared, request).await?;
    let (cid, size) = (make(&block), block.len());
    if arguments.flag("pin", false)? {
        let mut adding = content.begin().await?;
        adding.block(&cid, block).await?;
        adding.end().await?;
        content.pin(&cid, &pin(&arguments)?, Reach::Peers).await?;
    } else {
        content.put(&cid, block).await?;
    }
    Ok(Json(json!({ "Key": cid.to_string(), "Size": size })))
}

fn pin(arguments: &Arguments) -> Result<Pin> {
    let reason = arguments.text("pin-name").or_else(|| arguments.text("name")).unwrap_or_default();
    Ok(Pin::new(OPERATOR, reason)?)
}

async fn pin_add(
    Reader { content, reach }: Reader,
    _: Owner,
    arguments: Arguments,
) -> Result<Json<Value>> {
    arguments.refuse(&["direct"])?;
    if !arguments.flag("recursive", true)? {
        return Err(Error::bad("recursive", "must be true: a pin keeps everything below its root"));
    }
    let pin = pin(&arguments)?;
    let mut pinned = Vec::new();
    for path in arguments.paths()? {
        let cid = match path.names.is_empty() {
            true => path.root,
            false => content.resolve(&path, reach).await?.cid,
        };
        content.pin(&cid, &pin, reach).await?;
        pinned.push(cid.to_string());
    }
    Ok(Json(json!({ "Pins": pinned })))
}

async fn pin_rm(
    Reader { content, .. }: Reader,
    _: Owner,
    arguments: Arguments,
) -> Result<Json<Value>> {
    let mut unpinned = Vec::new();
    for path in arguments.paths()? {
        if !content.unpin(&path.root, OPERATOR).await? {
            return Err(not_pinned(&path.root));
        }
        unpinned.push(path.root.to_string());
    }
    Ok(Json(json!({ "Pins": unpinned })))
}

fn not_pinned(cid: &Cid) -> Error {
    Error::Unknown { what: "pin of", id: cid.to_string() }
}

/// So many pins are listed at most.
const PINS_MAX: usize = 100_000;

async fn pin_ls(
    Reader { content, .. }: Reader,
    _: Owner,
    arguments: Arguments,
) -> Result<Json<Value>> {
    let mut keys = Map::new();
    let entry = |reason: &str| json!({ "Type": "recursive", "Name": reason });
    if !arguments.args.is_empty() {
        for path in arguments.paths()? {
            let pins = content.pins_of(&path.root).await?;
            let Some(first) = pins.first() else { return Err(not_pinned(&path.root)) };
            keys.insert(path.root.to_string(), entry(&first.reason));
        }
        return Ok(Json(json!({ "Keys": keys })));
    }
    let mut page = content.pins(None).await?;
    while let Some(last) = page.last().cloned() {
        for pinned in &page {
            keys.insert(pinned.cid.to_string(), entry(&pinned.reason));
        }
        if keys.len() >= PINS_MAX {
            break;
        }
        page = content.pins(Some(&last)).await?;
    }
    Ok(Json(json!({ "Keys": keys })))
}

/// Collects garbage. Kubo names each block that goes; here it is said how many.
async fn gc(Reader { content, .. }: Reader, _: Owner) -> Result<Json<Value>> {
    let collected = content.collect().await?;
    Ok(Json(json!({ "Removed": collected.removed, "RemovedBytes": collected.removed_bytes })))
}

async fn version() -> Json<Value> {
    Json(json!({
        "Version": env!("CARGO_PKG_VERSION"),
        "Commit": "",
        "Repo": "",
        "System": "guildhall",
        "Golang": "",
    }))
}

/// The body of a request, read at its own pace.
fn pour(shared: &Shared, request: Request) -> Pour {
    let remote = request.extensions().get::<ConnectInfo<Remote>>();
    let patient = remote.map(|ConnectInfo(remote)| remote.be_patient());
    Pour::new(request.into_body(), shared.clock.clone(), patient)
}
