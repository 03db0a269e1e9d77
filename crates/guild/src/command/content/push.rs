//! `guild content push`

use std::time::Duration;

use guild_network::content::Reach;
use guild_protocol::content::{Cid, Codec};
use guild_protocol::env::Random;
use guild_protocol::hash::to_hex;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Response;

use super::super::Context;
use crate::error::{Error, Result, code};
use crate::input::Input;
use crate::output::Answer;
use crate::real::SystemRandom;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A block is small; a pin may look at all of it.
const BLOCK_TIMEOUT: Duration = Duration::from_secs(60);
const PIN_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest token, and the longest answer that is read.
const TOKEN_MAX_BYTES: usize = 4_096;
const ANSWER_MAX_BYTES: u64 = 64 * 1_024;
/// How much of what somebody else says is shown.
const WORDS_MAX_CHARS: usize = 200;
/// How often a person who waits is told how far it is.
const PROGRESS_EVERY_BLOCKS: u64 = 64;

/// Bring content to a Kubo node, or to another guild node, and have it pinned there
///
/// Every block below the root is sent, and must come back under its own name; then the root is pinned. What is there
/// already is sent again, which changes nothing.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The root
    #[arg(value_name = "CID")]
    cid: Cid,
    /// The address of its RPC, such as http://127.0.0.1:5001
    #[arg(long, value_name = "URL", value_parser = address)]
    to: String,
    /// A file with the token that it asks for, as guild nodes do
    #[arg(long, value_name = "FILE")]
    token_file: Option<Input>,
}

/// An address without what is behind it.
fn address(text: &str) -> Result<String, String> {
    let url = text.strip_prefix("kubo+").unwrap_or(text).trim_end_matches('/');
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let plain = |host: &str| {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic() && !"/?#@".contains(c))
    };
    match host {
        Some(host) if plain(host) => Ok(url.to_owned()),
        _ => Err("write an address such as http://127.0.0.1:5001".to_owned()),
    }
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let remote = Remote::new(args)?;
    let out = &mut *cx.out;
    let (blocks, bytes) = super::read(&loaded, |content, runtime| {
        let mut walker = content.walker(&args.cid, Reach::Local)?;
        let (mut blocks, mut bytes) = (0_u64, 0_u64);
        while let Some((cid, block)) = runtime.block_on(walker.next())? {
            remote.put(&cid, &block)?;
            blocks = blocks.saturating_add(1);
            bytes = bytes.saturating_add(u64::try_from(block.len()).unwrap_or(0));
            if blocks.is_multiple_of(PROGRESS_EVERY_BLOCKS) {
                out.progress(&format!("{blocks} blocks, {} MiB", bytes >> 20));
            }
        }
        Ok((blocks, bytes))
    })?;
    cx.out.progress("having it pinned …");
    remote.pin(&args.cid)?;
    cx.out.progress("");
    if cx.out.json() {
        let body = json!({ "cid": args.cid, "to": args.to, "blocks": blocks, "bytes": bytes });
        cx.out.object(true, body)?;
    } else {
        cx.out.line(&format!("{} is at {}: {blocks} blocks, {bytes} bytes", args.cid, args.to))?;
    }
    Ok(Answer::Yes)
}

/// Somebody who keeps content.
struct Remote {
    url: String,
    token: Option<String>,
    /// What no block holds: it stands between the parts of a body.
    boundary: String,
}

impl Remote {
    fn new(args: &Args) -> Result<Remote> {
        let token = match &args.token_file {
            Some(file) => {
                let text = String::from_utf8_lossy(&file.read(TOKEN_MAX_BYTES)?).into_owned();
                let token = text.trim().to_owned();
                if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
                    let message = "this is no token: it has spaces, or nothing";
                    return Err(Error::new(&code::USAGE, message).in_file(file.path()));
                }
                Some(token)
            }
            None => None,
        };
        let mut drawn = [0; 24];
        SystemRandom.fill(&mut drawn);
        let boundary = format!("guild-{}", to_hex(&drawn));
        Ok(Remote { url: args.to.clone(), token, boundary })
    }

    /// Brings one block, which must get the name that it has.
    fn put(&self, cid: &Cid, block: &[u8]) -> Result<()> {
        let codec = match cid.codec() {
            Codec::Raw => "raw",
            Codec::DagPb => "dag-pb",
            Codec::Other(codec) => {
                let message = format!("{cid} has the codec {codec:#x}, which is not brought");
                return Err(Error::new(&code::USAGE, message));
            }
        };
        let head = format!(
            "--{0}\r\ncontent-disposition: form-data; name=\"data\"; filename=\"block\"\r\n\
             content-type: application/octet-stream\r\n\r\n",
            self.boundary
        );
        let tail = format!("\r\n--{}--\r\n", self.boundary);
        let body = [head.as_bytes(), block, tail.as_bytes()].concat();
        let call = format!("block/put?cid-codec={codec}&mhtype=sha2-256");
        let told = self.call(&call, Some(&body), BLOCK_TIMEOUT)?;
        let named = told["Key"].as_str().and_then(|key| key.parse::<Cid>().ok());
        if named.map(|named| named.to_v1()) != Some(cid.to_v1()) {
            let message = format!("{} gives {cid} another name", self.url);
            return Err(Error::new(&code::NODE_UNREACHABLE, message));
        }
        Ok(())
    }

    fn pin(&self, cid: &Cid) -> Result<()> {
        self.call(&format!("pin/add?arg={cid}"), None, PIN_TIMEOUT).map(drop)
    }

    fn call(&self, call: &str, body: Option<&[u8]>, within: Duration) -> Result<Value> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_global(Some(within))
            .build();
        let mut request = Agent::from(config).post(format!("{}/api/v0/{call}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let sent = match body {
            Some(body) => request
                .header("content-type", format!("multipart/form-data; boundary={}", self.boundary))
                .send(body),
            None => request.send_empty(),
        };
        let unreachable = |e: &ureq::Error| {
            let message = format!("{} does not answer: {e}", self.url);
            Error::new(&code::NODE_UNREACHABLE, message)
        };
        self.answer(sent.map_err(|e| unreachable(&e))?)
    }

    fn answer(&self, mut answer: Response<ureq::Body>) -> Result<Value> {
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(ANSWER_MAX_BYTES).read_to_string();
        let text = text.unwrap_or_default();
        let told: Value = serde_json::from_str(&text).unwrap_or_default();
        if status.is_success() && told.is_object() {
            return Ok(told);
        }
        let said = told["Message"].as_str().unwrap_or(&text);
        let said: String = said.chars().filter(|c| !c.is_control()).take(WORDS_MAX_CHARS).collect();
        let message = format!("{} refuses ({}): {said}", self.url, status.as_u16());
        Err(Error::new(&code::NODE_UNREACHABLE, message)
            .help("Look at the address, and at --token-file if it asks for a token."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_nothing_behind_it() {
        let good =
            ["http://127.0.0.1:5001", "http://127.0.0.1:5001/", "kubo+http://127.0.0.1:5001"];
        assert!(good.iter().all(|text| address(text).as_deref() == Ok("http://127.0.0.1:5001")));
        for bad in
            ["", "127.0.0.1:5001", "ftp://x", "http://", "http://a/b", "http://u@h", "http://a b"]
        {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
