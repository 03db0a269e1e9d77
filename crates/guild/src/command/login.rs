//! `guild login`, `guild logout`

use std::path::PathBuf;

use guild_hosting::access::Scopes;
use guild_hosting::access::siwe::{Message, Time};
use guild_protocol::env::Clock;
use guild_protocol::evm::Address;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, kind, tag, unix_s};
use serde::Serialize;
use serde_json::{Value, json};

use super::Context;
use crate::config::Loaded;
use crate::error::{Error, Result, code};
use crate::host::{Host, Session};
use crate::keystore::Keystore;
use crate::node::NodeFile;
use crate::output::Answer;
use crate::real::SystemClock;

/// Sign in at a node that sells sandboxes
///
/// Proves the key of this node's keystore: its EVM address by a message of EIP-4361, or with --nostr its Nostr key. The
/// two are two users, with an account each. Whoever is signed in is remembered in the data directory.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The node [default: the one that runs on the data directory]
    #[arg(long, value_name = "URL")]
    host: Option<String>,
    /// Who certifies the node, in PEM form, instead of those whom this host trusts
    #[arg(long, value_name = "FILE", requires = "host")]
    ca: Option<PathBuf>,
    /// Sign in with the Nostr key, by NIP-98
    #[arg(long)]
    nostr: bool,
    /// Make a key for the node's pages, where you are signed in: it only reads, and is good for a day
    #[arg(long, conflicts_with_all = ["host", "nostr"])]
    page: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    url: &'a str,
    user_id: &'a str,
    expires_ms: i64,
}

pub(crate) fn run(args: &Args, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    if args.page {
        return key_for_page(&loaded, cx);
    }
    let url = match &args.host {
        Some(url) => url.clone(),
        None => match NodeFile::of_running(&loaded.config.data_dir)? {
            Some(node) => node.url,
            None => {
                let message = "no node runs on this data directory; name one with --host";
                return Err(Error::new(&code::USAGE, message));
            }
        },
    };
    let key = Keystore::read(&Keystore::path(&loaded))?.unlock(cx.environment)?;
    // Whoever uses it later stands elsewhere.
    let ca_file =
        args.ca.as_ref().map(|path| std::path::absolute(path).map_err(|e| Error::io(path, &e)));
    let ca_file = ca_file.transpose()?;
    let host = Host::at(&url, ca_file.as_deref())?;
    let url = host.url().to_owned();
    let opened = if args.nostr { by_nostr(host, &key)? } else { by_wallet(&host, &key)? };
    let text = |field: &str| opened[field].as_str().unwrap_or_default().to_owned();
    let session = Session {
        url,
        token: text("token"),
        user_id: text("user_id"),
        expires_ms: opened["expires_ms"].as_i64().unwrap_or(0),
        ca_file,
    };
    session.write(&loaded)?;
    if cx.out.json() {
        let body =
            Body { url: &session.url, user_id: &session.user_id, expires_ms: session.expires_ms };
        cx.out.object(true, body)?;
    } else {
        cx.out.fields(&[("signed in as", &session.user_id), ("at", &session.url)])?;
    }
    Ok(Answer::Yes)
}

/// A key that is pasted on a page: a browser gets nothing that could change anything.
fn key_for_page(loaded: &Loaded, cx: &mut Context<'_>) -> Result<Answer> {
    let host = Host::of(loaded)?;
    let scopes: Vec<String> = Scopes::READ.iter().map(|scope| scope.to_string()).collect();
    let body = json!({ "name": "page", "scopes": scopes, "lifetime_s": 86_400 });
    let made = host.post("/v1/keys", &body)?;
    let page = format!("{}/hosting", host.url());
    if cx.out.json() {
        let expires_ms = &made["key"]["expires_ms"];
        cx.out.object(
            true,
            json!({ "url": page, "token": made["token"], "expires_ms": expires_ms }),
        )?;
        return Ok(Answer::Yes);
    }
    let token = made["token"].as_str().unwrap_or("-");
    cx.out.fields(&[("page", &page), ("key", token)])?;
    cx.out.remark("paste the key there; it is shown once, only reads, and is good for a day");
    Ok(Answer::Yes)
}

fn by_wallet(host: &Host, key: &SecretKey) -> Result<Value> {
    let asked = host.post("/v1/auth/nonce", &json!({}))?;
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let not_understood =
        || Error::new(&code::NODE_UNREACHABLE, "the node's answer is not understood");
    let address: Address = key.address();
    // The site that is named is the one that is asked: never one that the node says.
    let (_, domain) = host.url().split_once("://").ok_or_else(|| {
        Error::new(&code::USAGE, "the node's address begins with http:// or https://")
    })?;
    let message = Message {
        scheme: None,
        domain: domain.to_owned(),
        address,
        statement: Some("Sign in to buy sandboxes.".to_owned()),
        uri: host.url().to_owned(),
        chain_id: asked["chain_ids"][0].as_u64().ok_or_else(not_understood)?,
        nonce: text("nonce").parse().map_err(|_| not_understood())?,
        issued_at: Time::at(SystemClock.now_ms())?,
        expiration_time: None,
        not_before: None,
        request_id: None,
        resources: None,
    };
    let message = message.text();
    let signature = key.sign_message(message.as_bytes()).hex();
    host.post("/v1/auth/verify", &json!({ "message": message, "signature": signature }))
}

fn by_nostr(host: Host, key: &SecretKey) -> Result<Value> {
    let at = format!("{}/v1/auth/verify", host.url());
    let body = json!({});
    let hash = guild_protocol::hash::Hash::of(body.to_string().as_bytes()).hex();
    let draft = Draft {
        kind: kind::HTTP_AUTH,
        created_at: unix_s(SystemClock.now_ms()),
        tags: vec![
            tag::tag(["u", &at]),
            tag::tag(["method", "POST"]),
            tag::tag(["payload", &hash]),
        ],
        content: String::new(),
    };
    let event = draft.sign(key)?;
    let header = guild_hosting::access::nip98::header(&event);
    host.authorized(header).post("/v1/auth/verify", &body)
}

/// Sign out of the node where you are signed in
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {}

pub(crate) fn logout(_: &LogoutArgs, cx: &mut Context<'_>) -> Result<Answer> {
    let loaded = cx.config()?;
    let session = Session::read(&loaded)?;
    let ended = Host::of(&loaded)?.post("/v1/auth/logout", &json!({}));
    Session::forget(&loaded)?;
    match ended {
        // It had ended before.
        Err(error) if error.code().name == "access.unauthenticated" => {}
        ended => drop(ended?),
    }
    if cx.out.json() {
        cx.out.object(true, json!({ "url": session.url, "user_id": session.user_id }))?;
    } else {
        cx.out.line(&format!("signed out of {}", session.url))?;
    }
    Ok(Answer::Yes)
}
