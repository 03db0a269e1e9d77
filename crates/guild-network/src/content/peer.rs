//! Other nodes that may have a block: gateways and the RPC of Kubo. Nobody is believed: every block is hashed.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{Either, select};
use guild_protocol::content::Cid;
use guild_protocol::content::dag_pb::MAX_BLOCK_BYTES;
use guild_protocol::env::{Clock, UnixMs};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, CONTENT_LENGTH, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;

use super::block;
use crate::client::{Address, Trust, reach};
use crate::error::code;
use crate::{Error, Result};

/// The first pause after a failure; it doubles with each further one.
const REST_MS: i64 = 1_000;
/// The longest pause.
const REST_MAX_MS: i64 = 300_000;
/// The pause after a block that was not what was asked for.
const LIE_REST_MS: i64 = 600_000;
/// So much of what went wrong is kept.
const WORDS_MAX_CHARS: usize = 200;

/// How peers are asked.
#[derive(Debug, Clone)]
pub struct PeersOptions {
    /// How long one of them may take for one block.
    pub timeout_ms: i64,
    /// Whose certificates are believed; those that the host trusts, if this says nothing.
    pub trust: Option<Trust>,
}

impl Default for PeersOptions {
    fn default() -> PeersOptions {
        PeersOptions { timeout_ms: 15_000, trust: None }
    }
}

/// How a peer is asked for a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// `GET /ipfs/{cid}?format=raw`.
    Gateway,
    /// `POST /api/v0/block/get?arg={cid}`.
    Kubo,
}

struct Peer {
    /// As it was configured, in its one spelling.
    url: String,
    way: Way,
    address: Address,
    health: Mutex<Health>,
}

/// How it goes with a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Health {
    failures: u32,
    rests_until_ms: UnixMs,
    blocks: u64,
    missing: u64,
    lies: u64,
    last_error: Option<String>,
}

/// What is known of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeerStatus {
    /// Its address.
    pub url: String,
    /// How many blocks it gave.
    pub blocks: u64,
    /// How often it did not have one.
    pub missing: u64,
    /// How often it gave something else than was asked for.
    pub lies: u64,
    /// How often it failed in a row until now.
    pub failures: u32,
    /// Until when others are asked first, if so.
    pub rests_until_ms: Option<UnixMs>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// Peers, in the order in which they are asked. Cheap to clone.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    peers: Vec<Peer>,
    options: PeersOptions,
    clock: Arc<dyn Clock>,
}

/// What became of a question.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Block(Vec<u8>),
    Missing,
    Lie(String),
    Failed(String),
}

/// The one way to write the address of a peer; refused if it is none.
///
/// ```
/// use guild_network::content::peer_url;
/// assert_eq!(peer_url("HTTPS://Gateway.Example/").unwrap(), "https://gateway.example");
/// assert_eq!(peer_url("kubo+http://127.0.0.1:5001").unwrap(), "kubo+http://127.0.0.1:5001");
/// assert_eq!(peer_url("ftp://x").unwrap_err().code().name, "content.peer_url");
/// ```
pub fn peer_url(text: &str) -> Result<String> {
    parse(text.trim()).map(|peer| peer.url)
}

fn parse(text: &str) -> Result<Peer> {
    let bad = |why: &str| {
        let shown: String = text.chars().take(100).collect();
        Error::refused(&code::CONTENT_PEER_URL, format!("{shown:?} is no peer: {why}"))
    };
    let (way, web) = match text.strip_prefix("kubo+") {
        Some(web) => (Way::Kubo, web),
        None => (Way::Gateway, text),
    };
    let (scheme, rest) = web.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
    let (scheme, socket) = match scheme.to_ascii_lowercase().as_str() {
        "http" => ("http", "ws"),
        "https" => ("https", "wss"),
        _ => return Err(bad("it begins with neither http:// nor https://")),
    };
    if rest.contains(['?', '#']) {
        return Err(bad("it has a question in it"));
    }
    // Dialled as relays are.
    let address = Address::parse(&format!("{socket}://{rest}"))
        .map_err(|_| bad("its host or port is wrong"))?;
    let prefix = if way == Way::Kubo { "kubo+" } else { "" };
    let path = address.path.trim_end_matches('/');
    let url = format!("{prefix}{scheme}://{}{path}", address.authority);
    Ok(Peer { url, way, address, health: Mutex::default() })
}

impl Peers {
    /// These peers, asked in this order.
    pub fn new(urls: &[String], options: PeersOptions, clock: Arc<dyn Clock>) -> Result<Peers> {
        let peers = urls.iter().map(|url| parse(url)).collect::<Result<Vec<Peer>>>()?;
        Ok(Peers(Arc::new(Inner { peers, options, clock })))
    }

    /// What is known of each.
    pub fn status(&self) -> Vec<PeerStatus> {
        let now_ms = self.0.clock.now_ms();
        let status = |peer: &Peer| {
            let health = peer.health().clone();
            PeerStatus {
                url: peer.url.clone(),
                blocks: health.blocks,
                missing: health.missing,
                lies: health.lies,
                failures: health.failures,
                rests_until_ms: Some(health.rests_until_ms).filter(|until_ms| *until_ms > now_ms),
                last_error: health.last_error,
            }
        };
        self.0.peers.iter().map(status).collect()
    }

    /// Asks one after the other for a block; those that failed lately come last.
    pub async fn fetch(&self, cid: &Cid) -> Result<Vec<u8>> {
        // Before anybody is asked: what nobody could check nobody is asked for.
        cid.digest()?;
        let mut said_no = Vec::new();
        let mut all_missing = true;
        for peer in self.order() {
            let said = self.ask(peer, cid).await;
            let now_ms = self.0.clock.now_ms();
            match peer.health().judge(said, now_ms) {
                Ok(block) => return Ok(block),
                Err(None) => said_no.push(format!("{} does not have it", peer.url)),
                Err(Some(why)) => {
                    all_missing = false;
                    said_no.push(format!("{}: {why}", peer.url));
                }
            }
        }
        if all_missing {
            return Err(block::missing(cid));
        }
        let message = format!("nobody gave {cid}: {}", said_no.join("; "));
        Err(Error::refused(&code::CONTENT_PEERS, message))
    }

    fn order(&self) -> Vec<&Peer> {
        let now_ms = self.0.clock.now_ms();
        let (rest, ready): (Vec<&Peer>, Vec<&Peer>) =
            self.0.peers.iter().partition(|peer| peer.health().rests_until_ms > now_ms);
        ready.into_iter().chain(rest).collect()
    }

    async fn ask(&self, peer: &Peer, cid: &Cid) -> Said {
        let timeout_ms = self.0.options.timeout_ms;
        let asked = pin!(self.exchange(peer, cid));
        match select(asked, self.0.clock.sleep(timeout_ms)).await {
            Either::Left((Ok(said), _)) => said,
            Either::Left((Err(why), _)) => Said::Failed(why),
            Either::Right(_) => Said::Failed(format!("no answer within {timeout_ms} ms")),
        }
    }

    async fn exchange(&self, peer: &Peer, cid: &Cid) -> Result<Said, String> {
        let said = |e: &dyn std::error::Error| e.to_string();
        let request = peer.request(cid).map_err(|e| said(&e))?;
        let trust = self.0.options.trust.as_ref();
        let wire = reach(&peer.address.to_string(), trust).await.map_err(|e| said(&e))?;
        let (mut sender, connection) =
            http1::handshake::<_, Empty<Bytes>>(TokioIo::new(wire)).await.map_err(|e| said(&e))?;
        let answered = async {
            let answer = sender.send_request(request).await.map_err(|e| said(&e))?;
            match answer.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(Said::Missing),
                status => return Err(format!("it answers {status}")),
            }
            let mut body = answer.into_body();
            let mut block = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|e| said(&e))?;
                let Ok(piece) = frame.into_data() else { continue };
                if block.len().saturating_add(piece.len()) > MAX_BLOCK_BYTES {
                    return Ok(Said::Lie("it sends more than a block has".to_owned()));
                }
                block.extend_from_slice(&piece);
            }
            match cid.verify(&block) {
                Ok(()) => Ok(Said::Block(block)),
                Err(error) => Ok(Said::Lie(error.message().to_owned())),
            }
        };
        match select(pin!(connection), pin!(answered)).await {
            Either::Right((answered, _)) => answered,
            // What it has sent before it went is still there.
            Either::Left((_, answered)) => answered.await,
        }
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.peers.iter().map(|peer| &peer.url)).finish()
    }
}

impl Peer {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, cid: &Cid) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
        let base = self.address.path.trim_end_matches('/');
        let (method, path) = match self.way {
            Way::Gateway => (Method::GET, format!("{base}/ipfs/{cid}?format=raw")),
            Way::Kubo => (Method::POST, format!("{base}/api/v0/block/get?arg={cid}")),
        };
        let mut request = Request::builder().method(method).uri(path);
        if self.way == Way::Kubo {
            request = request.header(CONTENT_LENGTH, 0);
        }
        request
            .header(HOST, &self.address.authority)
            .header(USER_AGENT, concat!("guild/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/vnd.ipld.raw")
            .header(CONNECTION, "close")
            .body(Empty::new())
    }
}

impl Health {
    /// Learns from an answer; the block, or why there is none: `None` if the peer just does not have it.
    fn judge(&mut self, said: Said, now_ms: UnixMs) -> Result<Vec<u8>, Option<String>> {
        let (rest_ms, why) = match said {
            Said::Block(block) => {
                self.blocks = self.blocks.saturating_add(1);
                self.failures = 0;
                self.rests_until_ms = 0;
                return Ok(block);
            }
            Said::Missing => {
                self.missing = self.missing.saturating_add(1);
                self.failures = 0;
                return Err(None);
            }
            Said::Lie(why) => {
                self.lies = self.lies.saturating_add(1);
                (LIE_REST_MS, format!("it gave something else: {why}"))
            }
            Said::Failed(why) => {
                let doubled = REST_MS.saturating_mul(1 << self.failures.min(16));
                (doubled.min(REST_MAX_MS), why)
            }
        };
        self.failures = self.failures.saturating_add(1);
        self.rests_until_ms = now_ms.saturating_add(rest_ms);
        let words =
            why.chars().filter(|c| !c.is_control()).take(WORDS_MAX_CHARS).collect::<String>();
        self.last_error = Some(words.clone());
        Err(Some(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_fails_rests_longer_each_time_and_is_forgiven_at_once() {
        let mut health = Health::default();
        for n in 0..20 {
            assert!(health.judge(Said::Failed("no\n".to_owned()), 1_000).is_err());
            let rest_ms = health.rests_until_ms - 1_000;
            assert_eq!(rest_ms, (REST_MS << n.min(16)).min(REST_MAX_MS));
        }
        assert_eq!(health.last_error.as_deref(), Some("no"));
        assert_eq!(health.judge(Said::Block(vec![1]), 2_000), Ok(vec![1]));
        assert_eq!((health.failures, health.rests_until_ms, health.blocks), (0, 0, 1));
        assert_eq!(health.judge(Said::Missing, 2_000), Err(None));
        assert!(health.judge(Said::Lie("x".to_owned()), 3_000).is_err());
        assert_eq!((health.lies, health.rests_until_ms), (1, 3_000 + LIE_REST_MS));
    }

    #[test]
    fn addresses_have_one_spelling() {
        for (written, meant) in [
            ("http://a.example:80/", "http://a.example"),
            ("https://A.example/base/", "https://a.example/base"),
            ("kubo+HTTPS://a.example:5001", "kubo+https://a.example:5001"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(peer_url(written).unwrap(), meant);
        }
        for bad in ["", "a.example", "kubo+", "ws://a", "http://", "http://u@a", "http://a?x"] {
            assert_eq!(peer_url(bad).unwrap_err().code().name, "content.peer_url", "{bad}");
        }
    }
}
