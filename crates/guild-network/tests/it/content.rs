//! Content on real databases: what goes in comes out, what is wrong is seen, what is pinned stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use guild_network::content::{Content, FoundNode, OPERATOR, Options, Path, Pin, Reach, Summary};
use guild_protocol::content::{Cid, Codec, Directory, Options as Layout, Tree, Version};
use guild_protocol::env::{BoxFuture, Clock, Random, UnixMs};
use guild_store::args;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde::Deserialize;
use testbed::Dice;

use crate::support::{Scratch, block_on, both};

mod collected;
mod hostile;
mod killed;
mod peers;

pub(crate) const HOUR_MS: i64 = 3_600_000;

/// A clock that the test moves.
pub(crate) struct Moved(AtomicI64);

impl Moved {
    pub(crate) fn new() -> Arc<Moved> {
        Arc::new(Moved(AtomicI64::new(1_800_000_000_000)))
    }

    pub(crate) fn on(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Moved {
    fn now_ms(&self) -> UnixMs {
        self.0.load(Ordering::SeqCst)
    }

    fn sleep(&self, _: i64) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

pub(crate) struct Rolled(pub(crate) Dice);

impl Random for Rolled {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.roll().to_be_bytes()[0]);
    }
}

pub(crate) fn content(scratch: &Scratch, clock: &Arc<Moved>, options: Options) -> Content {
    let random = Arc::new(Rolled(Dice::seeded(1)));
    Content::new(options, scratch.store.clone(), clock.clone(), random)
}

pub(crate) fn usual(scratch: &Scratch) -> (Content, Arc<Moved>) {
    let clock = Moved::new();
    (content(scratch, &clock, Options::default()), clock)
}

pub(crate) fn pin() -> Pin {
    Pin::new(OPERATOR, "a test").unwrap()
}

/// Adds a file without a pin.
pub(crate) fn add(content: &Content, layout: Layout, bytes: &[u8]) -> Tree {
    block_on(async {
        let mut adding = content.begin().await.unwrap();
        let tree = adding.read(layout, bytes).await.unwrap();
        adding.end().await.unwrap();
        tree
    })
}

pub(crate) fn read_range(content: &Content, cid: &Cid, range: (u64, u64)) -> Vec<u8> {
    block_on(async {
        let found = content.resolve(&Path::new(*cid, "").unwrap(), Reach::Local).await.unwrap();
        let FoundNode::File(bytes) = found.node else { panic!("{cid} is no file") };
        let mut reader = content.read_file(cid, bytes, range, Reach::Local);
        let mut all = Vec::new();
        while let Some(piece) = reader.next().await.unwrap() {
            assert!(!piece.is_empty());
            all.extend(piece);
        }
        all
    })
}

pub(crate) fn code_of<T: std::fmt::Debug>(refused: guild_network::Result<T>) -> &'static str {
    refused.unwrap_err().code().name
}

pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|i| u8::try_from((i * 31 + (i >> 8) * 7 + 11) & 0xff).unwrap()).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    size: usize,
    generator: String,
    chunker: String,
    max_links: usize,
    raw_leaves: bool,
    file_cid: String,
    dir_cid: String,
}

#[test]
fn what_is_added_has_the_names_that_others_give_it_and_comes_back() {
    let vectors = include_str!("../../../guild-protocol/vectors/ipfs.json");
    let vectors: Vec<Vector> = serde_json::from_str(vectors).unwrap();
    both(|scratch| {
        let (content, _) = usual(scratch);
        // What is large adds nothing but time here: the importer itself has a test for each.
        let small = vectors.iter().filter(|vector| vector.size <= 3_000_000);
        let mut tried = 0;
        for vector in small.filter(|vector| !vector.generator.starts_with("utf8")) {
            let bytes = pattern(vector.size);
            let layout = Layout {
                chunk_bytes: vector.chunker.strip_prefix("size-").unwrap().parse().unwrap(),
                max_links: vector.max_links,
                raw_leaves: vector.raw_leaves,
                version: Version::V1,
            };
            let (file, root) = block_on(async {
                let mut adding = content.begin().await.unwrap();
                let file = adding.read(layout, bytes.as_slice()).await.unwrap();
                let mut directory = Directory::new(Version::V1);
                directory.insert(&vector.name, file).unwrap();
                let root = adding.directory(&directory).await.unwrap();
                adding.keep(&[root.cid], &pin()).await.unwrap();
                (file, root)
            });
            assert_eq!(file.cid.to_string(), vector.file_cid);
            assert_eq!(root.cid.to_string(), vector.dir_cid);
            let path = Path::new(root.cid, &vector.name).unwrap();
            let found = block_on(content.resolve(&path, Reach::Local)).unwrap();
            assert_eq!((found.cid, found.node), (file.cid, FoundNode::File(vector.size as u64)));
            assert_eq!(read_range(&content, &file.cid, (0, u64::MAX)), bytes);
            tried += 1;
        }
        assert!(tried >= 10, "{tried}");
    });
}

#[test]
fn any_part_of_a_file_is_that_part_and_only_what_is_needed_is_read() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    let bytes = pattern(40_000);
    let layout = Layout { chunk_bytes: 64, max_links: 3, ..Layout::default() };
    let inner = Layout { raw_leaves: false, version: Version::V0, ..layout };
    let trees = [add(&content, layout, &bytes), add(&content, inner, &bytes)];
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let ranges = (0..41_000_u64, 0..41_000_u64, 0..2_usize);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let checked = runner.run(&ranges, |(start, end, which)| {
        let expected =
            bytes.get(start as usize..(end as usize).min(bytes.len())).unwrap_or_default();
        prop_assert_eq!(read_range(&content, &trees[which].cid, (start, end)), expected);
        Ok(())
    });
    checked.unwrap();
    // Everything but the blocks on the way to one byte may be gone.
    let lost = scratch.store.write(|tx| {
        tx.exec(
            "DELETE FROM content_bytes WHERE length(data) = 64 AND digest <> $1",
            args![&Cid::of(Codec::Raw, &pattern(40_000)[6_400..6_464]).digest().unwrap().hex()],
        )
    });
    assert!(block_on(lost).unwrap() > 100);
    assert_eq!(read_range(&content, &trees[0].cid, (6_410, 6_412)), bytes[6_410..6_412]);
}

#[test]
fn a_block_with_wrong_bytes_is_never_served_is_set_aside_and_can_come_back() {
    both(|scratch| {
        let (content, _) = usual(scratch);
        let tree = add(&content, Layout::default(), b"hello");
        block_on(content.pin(&tree.cid, &pin(), Reach::Local)).unwrap();
        let wrong: &[u8] = b"hullo";
        block_on(
            scratch
                .store
                .write(move |tx| tx.exec("UPDATE content_bytes SET data = $1", args![wrong])),
        )
        .unwrap();
        let scrubbed = block_on(content.scrub(None)).unwrap();
        assert_eq!(scrubbed.wrong, [tree.cid.digest().unwrap()]);
        assert_eq!(code_of(block_on(content.walk(&tree.cid, Reach::Local))), "content.corrupt");
        assert_eq!(code_of(block_on(content.block(&tree.cid, Reach::Local))), "content.missing");
        let aside = block_on(content.aside()).unwrap();
        assert_eq!((aside.len(), aside[0].bytes, aside[0].times), (1, 5, 1));
        let summary = block_on(content.summary()).unwrap();
        assert_eq!(summary, Summary { blocks: 0, bytes: 0, pins: 1, aside: 1 });
        add(&content, Layout::default(), b"hello");
        assert_eq!(block_on(content.block(&tree.cid, Reach::Local)).unwrap(), b"hello");
        assert!(block_on(content.walk(&tree.cid, Reach::Local)).is_ok());
    });
}

#[test]
fn there_is_a_limit_and_what_does_not_fit_leaves_the_rest_as_it_was() {
    both(|scratch| {
        let clock = Moved::new();
        let options = Options { max_bytes: 1_000, ..Options::default() };
        let content = content(scratch, &clock, options);
        let tree = add(&content, Layout::default(), &pattern(900));
        // The same once more takes no room.
        assert_eq!(add(&content, Layout::default(), &pattern(900)), tree);
        let before = block_on(content.summary()).unwrap();
        assert_eq!((before.blocks, before.bytes), (1, 900));
        let cid = Cid::of(Codec::Raw, &[7; 101]);
        assert_eq!(code_of(block_on(content.put(&cid, vec![7; 101]))), "content.full");
        assert_eq!(block_on(content.summary()).unwrap(), before);
        let cid = Cid::of(Codec::Raw, &[7; 100]);
        block_on(content.put(&cid, vec![7; 100])).unwrap();
    });
}

#[test]
fn pins_have_owners_and_reasons() {
    both(|scratch| {
        let (content, _) = usual(scratch);
        let roots: Vec<Cid> =
            (0..5_u8).map(|n| add(&content, Layout::default(), &[n; 10]).cid).collect();
        let other = Pin::new("somebody", "else").unwrap();
        for root in &roots {
            block_on(content.pin(root, &pin(), Reach::Local)).unwrap();
        }
        block_on(content.pin(&roots[0], &other, Reach::Local)).unwrap();
        let again = Pin::new(OPERATOR, "another reason").unwrap();
        block_on(content.pin(&roots[0], &again, Reach::Local)).unwrap();
        let of_one = block_on(content.pins_of(&roots[0])).unwrap();
        let told: Vec<_> =
            of_one.iter().map(|pin| (pin.owner.as_str(), pin.reason.as_str())).collect();
        assert_eq!(told, [(OPERATOR, "another reason"), ("somebody", "else")]);
        let all = block_on(content.pins(None)).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(block_on(content.pins(Some(&all[3]))).unwrap(), all[4..]);
        assert!(block_on(content.unpin(&roots[0], OPERATOR)).unwrap());
        assert!(!block_on(content.unpin(&roots[0], OPERATOR)).unwrap());
        assert_eq!(block_on(content.pins_of(&roots[0])).unwrap().len(), 1);
        let unknown = Cid::of(Codec::Raw, b"never added");
        assert_eq!(
            code_of(block_on(content.pin(&unknown, &pin(), Reach::Local))),
            "content.missing"
        );
    });
    for bad in ["", "a\nb", &"x".repeat(257)] {
        assert_eq!(code_of(Pin::new(bad, "")), "content.pin");
    }
}
