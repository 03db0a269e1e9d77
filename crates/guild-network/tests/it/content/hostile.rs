//! Blocks that nobody honest makes.

use guild_network::content::{FoundNode, Options, Path, Reach};
use guild_protocol::content::dag_pb::{Link, MAX_BLOCK_BYTES, MAX_LINKS, PbNode};
use guild_protocol::content::unixfs::{Data, Kind};
use guild_protocol::content::{Cid, Codec};

use super::{Moved, code_of, content, pin, usual};
use crate::support::{Scratch, block_on};

type Made = (Cid, Vec<u8>);

fn leaf(bytes: &[u8]) -> Made {
    (Cid::of(Codec::Raw, bytes), bytes.to_vec())
}

/// A file of these parts, each said to have so many bytes.
fn file(parts: &[(Cid, u64)]) -> Made {
    let sizes: Vec<u64> = parts.iter().map(|(_, bytes)| *bytes).collect();
    let total = sizes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let message =
        Data { content_bytes: Some(total), child_bytes: sizes, ..Data::new(Kind::File) }.encode();
    let links =
        parts.iter().map(|(cid, _)| Link { cid: *cid, name: Some(""), tree_bytes: Some(1) });
    let bytes = PbNode { links: links.collect(), data: Some(&message) }.encode();
    (Cid::of(Codec::DagPb, &bytes), bytes)
}

fn put(content: &guild_network::content::Content, made: &Made) -> Cid {
    block_on(content.put(&made.0, made.1.clone())).unwrap();
    made.0
}

async fn read(content: &guild_network::content::Content, cid: Cid) -> guild_network::Result<u64> {
    let found = content.resolve(&Path::new(cid, "")?, Reach::Local).await?;
    let FoundNode::File(bytes) = found.node else { panic!("{cid} is no file") };
    let mut reader = content.read_file(&cid, bytes, (0, u64::MAX), Reach::Local);
    let mut total = 0;
    while let Some(piece) = reader.next().await? {
        total += u64::try_from(piece.len()).unwrap();
    }
    Ok(total)
}

#[test]
fn deep_files_are_refused_and_honest_ones_are_not() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    let mut cid = put(&content, &leaf(b"x"));
    for depth in 1..=40 {
        cid = put(&content, &file(&[(cid, 1)]));
        let read = block_on(read(&content, cid));
        match depth {
            0..=16 => assert_eq!(read.unwrap(), 1),
            _ => assert_eq!(code_of(read), "content.too_deep"),
        }
    }
    // To keep them is no harm: that needs no depth.
    assert_eq!(block_on(content.pin(&cid, &pin(), Reach::Local)).unwrap().blocks, 41);
}

#[test]
fn sizes_that_lie_are_seen_before_anything_wrong_is_given() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    let small = put(&content, &leaf(b"abc"));
    for said in [0, 1, 2, 4, 1 << 40, u64::MAX] {
        let liar = put(&content, &file(&[(small, said)]));
        match said {
            // Nothing of it is asked for, so nothing is looked at.
            0 => assert_eq!(block_on(read(&content, liar)).unwrap(), 0),
            _ => assert_eq!(code_of(block_on(read(&content, liar))), "content.sizes_lie"),
        }
    }
    let overflow = put(&content, &file(&[(small, u64::MAX), (small, 2)]));
    assert_eq!(code_of(block_on(read(&content, overflow))), "block.unixfs_malformed");
    // A directory where a part should be.
    let message = Data::new(Kind::Directory).encode();
    let bytes = PbNode { links: Vec::new(), data: Some(&message) }.encode();
    let directory = put(&content, &(Cid::of(Codec::DagPb, &bytes), bytes));
    let odd = put(&content, &file(&[(directory, 3)]));
    assert_eq!(code_of(block_on(read(&content, odd))), "content.not_a_file");
}

#[test]
fn a_tree_that_names_one_block_a_billion_times_is_small() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    let mut cid = put(&content, &leaf(&[1; 1_000]));
    let mut bytes = 1_000_u64;
    for _ in 0..10 {
        cid = put(&content, &file(&[(cid, bytes); 10]));
        bytes *= 10;
    }
    let walked = block_on(content.pin(&cid, &pin(), Reach::Local)).unwrap();
    assert_eq!(walked.blocks, 11);
    // The last bytes of ten terabytes take a few blocks.
    let part = block_on(async {
        let mut reader = content.read_file(&cid, bytes, (bytes - 5, bytes), Reach::Local);
        reader.next().await.unwrap().unwrap()
    });
    assert_eq!(part, [1; 5]);
}

#[test]
fn there_is_an_end_to_what_is_walked() {
    let scratch = Scratch::sqlite();
    let clock = Moved::new();
    let content = content(&scratch, &clock, Options { walk_max_blocks: 50, ..Options::default() });
    let leaves: Vec<(Cid, u64)> = (0..60_u8).map(|n| (put(&content, &leaf(&[n])), 1)).collect();
    let wide = put(&content, &file(&leaves));
    assert_eq!(code_of(block_on(content.pin(&wide, &pin(), Reach::Local))), "content.too_wide");
    assert!(block_on(content.pins(None)).unwrap().is_empty());
    let narrow = put(&content, &file(&leaves[..49]));
    assert_eq!(block_on(content.pin(&narrow, &pin(), Reach::Local)).unwrap().blocks, 50);
}

#[test]
fn what_is_no_block_is_refused_at_the_door() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    let refused = |cid: &Cid, bytes: Vec<u8>| code_of(block_on(content.put(cid, bytes)));
    let hello = Cid::of(Codec::Raw, b"hello");
    assert_eq!(refused(&hello, b"hullo".to_vec()), "cid.mismatch");
    let large = vec![0; MAX_BLOCK_BYTES + 1];
    assert_eq!(refused(&Cid::of(Codec::Raw, &large), large), "block.size");
    let no_node = Cid::of(Codec::DagPb, b"hello");
    assert_eq!(refused(&no_node, b"hello".to_vec()), "block.dag_pb_malformed");
    let cbor = Cid::of(Codec::Other(0x71), b"hello");
    assert_eq!(refused(&cbor, b"hello".to_vec()), "cid.unsupported_codec");
    let identity: Cid = "bafkqabtimvwgy3yk".parse().unwrap();
    assert_eq!(refused(&identity, b"hello\n".to_vec()), "cid.unsupported_hash");
    let wide = file(&vec![(hello, 1); MAX_LINKS + 1]);
    assert_eq!(refused(&wide.0, wide.1), "block.size");
    assert_eq!(block_on(content.summary()).unwrap().blocks, 0);
}

#[test]
fn large_directories_in_shards_are_named_as_such_and_paths_end_somewhere() {
    let scratch = Scratch::sqlite();
    let (content, _) = usual(&scratch);
    // The kind of a shard, as Kubo writes it: type 5, an empty field of bits, hash 0x22, fanout 256.
    let message = [0x08, 0x05, 0x12, 0x00, 0x28, 0x22, 0x30, 0x80, 0x02];
    let bytes = PbNode { links: Vec::new(), data: Some(&message) }.encode();
    let shard = put(&content, &(Cid::of(Codec::DagPb, &bytes), bytes));
    let path = |text: &str| Path::new(shard, text);
    let resolved =
        |text: &str| code_of(block_on(content.resolve(&path(text).unwrap(), Reach::Local)));
    assert_eq!(resolved(""), "block.unixfs_unsupported");
    block_on(content.pin(&shard, &pin(), Reach::Local)).unwrap();
    assert_eq!(code_of(path(&"a/".repeat(65))), "content.path");
    assert_eq!(code_of(path(&"a".repeat(5_000))), "content.path");
    let file = put(&content, &leaf(b"x"));
    let below = Path::new(file, "../etc/passwd").unwrap();
    assert_eq!(code_of(block_on(content.resolve(&below, Reach::Local))), "content.no_entry");
}
