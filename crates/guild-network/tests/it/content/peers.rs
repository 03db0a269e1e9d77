//! Peers that have a block, do not have it, lie, stall and come back.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use guild_network::content::{Content, Options, Peers, PeersOptions, Reach};
use guild_protocol::content::{Cid, Codec, Options as Layout};
use guild_protocol::env::{BoxFuture, Clock, UnixMs};
use testbed::{Dice, in_time};

use super::{Rolled, add, code_of, pattern, pin, usual};
use crate::support::{Scratch, both};

/// How a peer behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    Chunked,
    Lies,
    Silent,
    Endless,
    Refuses,
    Redirects,
    Rubbish,
    CutsOff,
}

/// A peer on a port of its own.
struct Peer {
    port: u16,
    asked: Arc<AtomicU64>,
    manner: Arc<Mutex<Manner>>,
}

type Blocks = Arc<BTreeMap<String, Vec<u8>>>;

impl Peer {
    fn start(manner: Manner, blocks: &Blocks) -> Peer {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, manner) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(manner)));
        let (count, how, blocks) = (asked.clone(), manner.clone(), blocks.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (how, blocks) = (*how.lock().unwrap(), blocks.clone());
                std::thread::spawn(move || serve(stream, how, &blocks));
            }
        });
        Peer { port, asked, manner }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, manner: Manner, blocks: &BTreeMap<String, Vec<u8>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut header = String::new();
    while reader.read_line(&mut header).ok()? > 2 {
        header.clear();
    }
    let mut words = line.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let cid = match method {
        "GET" => path.strip_prefix("/ipfs/")?.strip_suffix("?format=raw")?,
        _ => path.strip_prefix("/api/v0/block/get?arg=")?,
    };
    let mut stream = stream;
    let mut say = |head: &str, body: &[u8]| {
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
    };
    let block = blocks.get(cid);
    match (manner, block) {
        (Manner::Silent, _) => drop(reader.read(&mut [0])),
        (Manner::Refuses, _) => say("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", b"")?,
        (Manner::Redirects, _) => {
            say(
                "HTTP/1.1 302 Go\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
                b"",
            )?;
        }
        (Manner::Rubbish, _) => say("\0\0\0 what\r\n\r\n", &[7; 5_000])?,
        (Manner::Lies, _) => say("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"lies")?,
        (Manner::Endless, _) => {
            say("HTTP/1.1 200 OK\r\n\r\n", b"")?;
            while say("", &[0; 65_536]).is_some() {}
        }
        (_, None) => say("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", b"")?,
        (Manner::CutsOff, Some(block)) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", block.len());
            say(&head, &block[..block.len() / 2])?;
        }
        (Manner::Chunked, Some(block)) => {
            say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"")?;
            for piece in block.chunks(1_000) {
                say(&format!("{:x}\r\n", piece.len()), &[piece, b"\r\n"].concat())?;
            }
            say("0\r\n\r\n", b"")?;
        }
        (Manner::Honest, Some(block)) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", block.len());
            say(&head, block)?;
        }
    }
    Some(())
}

/// Time as it is, where somebody is waited for.
struct Real(AtomicU64);

impl Clock for Real {
    fn now_ms(&self) -> UnixMs {
        testbed::now_ms() + i64::try_from(self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn sleep(&self, ms: i64) -> BoxFuture<()> {
        let duration = Duration::from_millis(u64::try_from(ms).unwrap());
        #[expect(clippy::disallowed_methods, reason = "peers on sockets answer in real time")]
        Box::pin(tokio::time::sleep(duration))
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(in_time(test))
}

fn with_peers(scratch: &Scratch, urls: &[String], clock: &Arc<Real>) -> Content {
    let options = PeersOptions { timeout_ms: 300, ..PeersOptions::default() };
    let peers = Peers::new(urls, options, clock.clone()).unwrap();
    let random = Arc::new(Rolled(Dice::seeded(2)));
    Content::new(Options::default(), scratch.store.clone(), clock.clone(), random).with_peers(peers)
}

fn real() -> Arc<Real> {
    Arc::new(Real(AtomicU64::new(0)))
}

/// Every block of a file, as others have it.
fn elsewhere() -> (Cid, Blocks) {
    let mut blocks = BTreeMap::new();
    let layout = Layout { chunk_bytes: 3_000, max_links: 3, ..Layout::default() };
    let tree = guild_protocol::content::import(layout, &pattern(40_000), |block| {
        blocks.insert(block.cid.to_string(), block.to_vec());
        Ok(())
    });
    (tree.unwrap().cid, Arc::new(blocks))
}

#[test]
fn a_file_is_fetched_from_whoever_has_it_and_then_it_is_here() {
    both(|scratch| {
        let (root, blocks) = elsewhere();
        let peer = Peer::start(Manner::Honest, &blocks);
        for url in [peer.url(), format!("kubo+{}", peer.url())] {
            let content = with_peers(scratch, &[url], &real());
            assert_eq!(code_of(run(content.walk(&root, Reach::Local))), "content.missing");
            let walked = run(content.pin(&root, &pin(), Reach::Peers)).unwrap();
            assert_eq!(walked.blocks, u64::try_from(blocks.len()).unwrap());
            assert_eq!(content.peers()[0].blocks, walked.blocks);
            run(content.walk(&root, Reach::Local)).unwrap();
            // Once more from nothing, in the other way.
            for sql in [
                "DELETE FROM content_bytes",
                "DELETE FROM content_block",
                "DELETE FROM content_pin",
            ] {
                run(scratch.store.write(move |tx| tx.exec(sql, &[]))).unwrap();
            }
        }
        let content = with_peers(scratch, &[peer.url()], &real());
        let unknown = Cid::of(Codec::Raw, b"nobody has it");
        assert_eq!(code_of(run(content.block(&unknown, Reach::Peers))), "content.missing");
        assert_eq!(content.peers()[0].missing, 1);
        let asked = peer.asked();
        assert_eq!(code_of(run(content.block(&unknown, Reach::Local))), "content.missing");
        assert_eq!(peer.asked(), asked, "nobody else is asked for strangers");
    });
}

#[test]
fn bad_peers_cost_time_and_nothing_else() {
    let (root, blocks) = elsewhere();
    for manner in [
        Manner::Lies,
        Manner::Silent,
        Manner::Endless,
        Manner::Refuses,
        Manner::Redirects,
        Manner::Rubbish,
        Manner::CutsOff,
    ] {
        let scratch = Scratch::sqlite();
        let (bad, good) = (Peer::start(manner, &blocks), Peer::start(Manner::Chunked, &blocks));
        let clock = real();
        let content = with_peers(&scratch, &[bad.url(), good.url()], &clock);
        run(content.pin(&root, &pin(), Reach::Peers)).unwrap();
        run(content.walk(&root, Reach::Local)).unwrap();
        let [status, honest] = &content.peers()[..] else { panic!("two peers") };
        assert_eq!(honest.failures, 0);
        assert!(status.failures >= 1 && status.last_error.is_some(), "{manner:?}: {status:?}");
        assert_eq!(status.lies > 0, matches!(manner, Manner::Lies | Manner::Endless), "{manner:?}");
        // It rests, so the other is asked first.
        assert!(bad.asked() < good.asked(), "{manner:?}");
        // Alone it is asked all the same, and what it says is told.
        let nothing = Scratch::sqlite();
        let alone = with_peers(&nothing, &[bad.url()], &clock);
        let refused = run(alone.block(&root, Reach::Peers));
        assert_eq!(refused.unwrap_err().code().name, "content.peers_failed", "{manner:?}");
        // When it has come to its senses it is forgiven.
        *bad.manner.lock().unwrap() = Manner::Honest;
        clock.0.fetch_add(3_600_000, Ordering::SeqCst);
        assert!(run(alone.block(&root, Reach::Peers)).is_ok());
        assert_eq!(alone.peers()[0].failures, 0);
    }
}

#[test]
fn what_is_here_is_not_asked_for() {
    let (_, blocks) = elsewhere();
    let scratch = Scratch::sqlite();
    let peer = Peer::start(Manner::Honest, &blocks);
    let (content, _) = usual(&scratch);
    let tree = add(&content, Layout::default(), b"here");
    let content = with_peers(&scratch, &[peer.url()], &real());
    assert_eq!(run(content.block(&tree.cid, Reach::Peers)).unwrap(), b"here");
    assert_eq!(peer.asked(), 0);
}
