//! `guild hash`

use guild_protocol::json;
use serde::Serialize;

use super::Context;
use crate::error::{InFile, Result};
use crate::input::{Input, MAX_DOCUMENT_BYTES};
use crate::output::{Answer, lossy};

/// Print the hash of a JSON document
///
/// SHA-256 over the canonical form (RFC 8785), so white space and the order of keys do not matter. Duplicate keys,
/// integers beyond ±(2^53−1) and whatever else readers might disagree about is refused.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The JSON file; - reads from standard input
    file: Input,
    /// Use the canonical form of earlier systems, to check their old hashes
    #[arg(long)]
    legacy: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(serialize_with = "lossy")]
    file: &'a std::path::Path,
    form: &'static str,
    hash: String,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let text = args.file.read(MAX_DOCUMENT_BYTES)?;
    let path = args.file.path();
    let (form, hash) = match args.legacy {
        false => ("canonical", json::hash_text(&text)),
        true => ("legacy", json::legacy::hash_text(&text)),
    };
    let hash = hash.in_file(path)?.to_string();
    if cx.out.json() {
        cx.out.object(true, Body { file: path, form, hash })?;
    } else {
        cx.out.line(&hash)?;
    }
    Ok(Answer::Yes)
}
