//! `POST /api/v0/add`: files and directories in, a line of JSON for each out.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use guild_network::content::{Adding, Folder};
use guild_protocol::content::{Options as Layout, Tree, Version};
use serde_json::json;

use super::multipart::{Event, Head};
use super::parts::Parts;
use super::{Arguments, pin};
use crate::guard::Owner;
use crate::{Error, Result, Shared, ipfs};

const CHUNKED: HeaderName = HeaderName::from_static("x-chunked-output");
const DIRECTORY_TYPE: &str = "application/x-directory";

pub(crate) async fn add(
    State(shared): State<Shared>,
    _: Owner,
    arguments: Arguments,
    request: Request,
) -> Result<Response> {
    let content = ipfs::content(&shared, request.uri().path())?;
    let wish = Wish::read(&arguments)?;
    let pin = pin(&arguments)?;
    let adding = if wish.only_hash { content.only_hash() } else { content.begin().await? };
    let mut addition = Addition { adding, wish, folder: Folder::default(), lines: String::new() };
    let mut parts = Parts::of(&shared, request)?;
    loop {
        match parts.next().await? {
            Event::Part(head) => addition.part(&head, &mut parts).await?,
            Event::Data(_) | Event::PartEnd => {}
            Event::End => break,
        }
    }
    let folder = std::mem::take(&mut addition.folder);
    let Wish { layout, wrap, .. } = addition.wish;
    let packed = folder.pack(&mut addition.adding, layout.version, wrap).await?;
    for (path, tree) in &packed.directories {
        addition.line(path, tree);
    }
    let Addition { adding, wish, lines, .. } = addition;
    match wish.pin {
        true => adding.keep(&packed.roots, &pin).await?,
        false => adding.end().await?,
    }
    let mut response = Body::from(lines).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CHUNKED, HeaderValue::from_static("1"));
    Ok(response)
}

/// How something is to be added.
#[derive(Clone, Copy)]
struct Wish {
    layout: Layout,
    wrap: bool,
    pin: bool,
    only_hash: bool,
}

impl Wish {
    fn read(arguments: &Arguments) -> Result<Wish> {
        arguments.refuse(&[
            "trickle",
            "nocopy",
            "fscache",
            "inline",
            "preserve-mode",
            "preserve-mtime",
        ])?;
        for name in ["mode", "mtime", "to-files"] {
            if arguments.text(name).is_some() {
                return Err(Error::bad(name, "is not done here"));
            }
        }
        if arguments.text("hash").is_some_and(|hash| hash != "sha2-256") {
            return Err(Error::bad("hash", "must be sha2-256"));
        }
        let version = match arguments.number("cid-version")? {
            None | Some(0) => Version::V0,
            Some(1) => Version::V1,
            Some(_) => return Err(Error::bad("cid-version", "must be 0 or 1")),
        };
        let raw_leaves = arguments.flag("raw-leaves", version == Version::V1)?;
        let mut layout = Layout { raw_leaves, version, ..Layout::default() };
        if let Some(chunker) = arguments.text("chunker").filter(|text| *text != "default") {
            let size = chunker.strip_prefix("size-").and_then(|size| size.parse().ok());
            layout.chunk_bytes = size.ok_or_else(|| Error::bad("chunker", "must be size-BYTES"))?;
        }
        let only_hash = arguments.flag("only-hash", false)?;
        Ok(Wish {
            layout,
            wrap: arguments.flag("wrap-with-directory", false)?,
            pin: arguments.flag("pin", true)? && !only_hash,
            only_hash,
        })
    }
}

struct Addition {
    adding: Adding,
    wish: Wish,
    folder: Folder,
    lines: String,
}

impl Addition {
    /// One file, or a directory that is named by itself.
    async fn part(&mut self, head: &Head, parts: &mut Parts) -> Result<()> {
        let names = names(head.file_name.as_deref().unwrap_or_default())?;
        if head.content_type.starts_with(DIRECTORY_TYPE) {
            return Ok(self.folder.make(&names)?);
        }
        let mut file = self.adding.file(self.wish.layout)?;
        loop {
            match parts.next().await? {
                Event::Data(data) => file.push(&data).await?,
                Event::PartEnd => break,
                Event::Part(_) | Event::End => return Err(Error::bad("body", "has no order")),
            }
        }
        let tree = file.finish().await?;
        let path = self.folder.insert(&names, tree)?;
        self.line(&path, &tree);
        Ok(())
    }

    fn line(&mut self, path: &str, tree: &Tree) {
        let size = tree.tree_bytes.to_string();
        let line = json!({ "Name": path, "Hash": tree.cid.to_string(), "Size": size });
        self.lines.push_str(&line.to_string());
        self.lines.push('\n');
    }
}

/// The names of a path, as clients write them: with slashes, and by their bytes.
fn names(file_name: &str) -> Result<Vec<String>> {
    let wrong = |why: &str| Error::bad("filename", why);
    let decoded = decoded(file_name).ok_or_else(|| wrong("is not UTF-8 by its bytes"))?;
    let names: Vec<String> =
        decoded.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect();
    if names.iter().any(|name| name == "..") {
        return Err(wrong("must not leave its directory"));
    }
    Ok(names)
}

/// `%20` and its like as the bytes that they stand for; what only looks so stays. Some write a space as a plus sign,
/// others mean the sign: it stays.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let plain = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match plain.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = behind.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_clients_write_them() {
        assert_eq!(names("a%20b/c%2Fd").unwrap(), ["a b", "c", "d"]);
        assert_eq!(names("/./x//y+z%").unwrap(), ["x", "y+z%"]);
        assert!(names("").unwrap().is_empty());
        for bad in ["../x", "a/..", "%2e%2e/x", "%ff"] {
            assert!(names(bad).is_err(), "{bad}");
        }
    }
}
