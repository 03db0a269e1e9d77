use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use guild_protocol::Error;
use guild_protocol::content::dag_pb::{Link, PbNode};
use guild_protocol::content::unixfs::{Data, Kind};
use guild_protocol::content::{
    Cid, Codec, Directory, Importer, Node, Options, Tree, Version, import, read,
};
use guild_protocol::hash::Hash;
use proptest::prelude::*;
use serde::Deserialize;

mod blocks;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Vector {
    name: String,
    size: usize,
    generator: String,
    chunker: String,
    max_links: usize,
    layout: String,
    cid_version: u8,
    raw_leaves: bool,
    reduce_single_leaf_to_self: bool,
    file_cid: String,
    dir_cid: String,
    dir_digest_hex: String,
}

impl Vector {
    fn content(&self) -> Vec<u8> {
        let bytes = if self.generator.starts_with("utf8") {
            format!("{{\"requestId\":\"{}\",\"output\":\"hello\"}}", self.name).into_bytes()
        } else {
            pattern(self.size)
        };
        assert_eq!(bytes.len(), self.size);
        bytes
    }

    fn options(&self) -> Options {
        assert_eq!((self.layout.as_str(), self.cid_version), ("balanced", 1));
        assert!(self.reduce_single_leaf_to_self);
        Options {
            chunk_bytes: self.chunker.strip_prefix("size-").unwrap().parse().unwrap(),
            max_links: self.max_links,
            raw_leaves: self.raw_leaves,
            version: Version::V1,
        }
    }
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|i| ((i * 31 + (i >> 8) * 7 + 11) & 0xff) as u8).collect()
}

type Blocks = BTreeMap<Cid, Vec<u8>>;

fn import_into(blocks: &mut Blocks, options: Options, content: &[u8]) -> Tree {
    import(options, content, |block| {
        blocks.insert(block.cid, block.to_vec());
        Ok(())
    })
    .unwrap()
}

/// The content below a CID, each part checked against the size its parent promises.
fn content_of(blocks: &Blocks, cid: &Cid) -> Vec<u8> {
    let Node::File { data, children, content_bytes } = read(cid, &blocks[cid]).unwrap() else {
        panic!("{cid} is not a file")
    };
    let mut content = data.to_vec();
    for child in children {
        let part = content_of(blocks, &child.cid);
        assert_eq!(part.len() as u64, child.content_bytes);
        content.extend(part);
    }
    assert_eq!(content.len() as u64, content_bytes);
    content
}

fn wrap(name: &str, tree: Tree, version: Version) -> Tree {
    let mut directory = Directory::new(version);
    directory.insert(name, tree).unwrap();
    directory.finish(|_| Ok(())).unwrap()
}

#[test]
fn every_vector_has_its_cid() {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../vectors/ipfs.json")).unwrap();
    assert_eq!(vectors.len(), 40);
    for vector in vectors {
        let content = vector.content();
        let mut blocks = Blocks::new();
        let file = import_into(&mut blocks, vector.options(), &content);
        let what = format!("{} bytes, {:?}", vector.size, vector.options());
        assert_eq!(file.cid.to_string(), vector.file_cid, "{what}");
        assert!(content_of(&blocks, &file.cid) == content, "{what}: other content was read back");
        let directory = wrap(&vector.name, file, Version::V1);
        assert_eq!(directory.cid.to_string(), vector.dir_cid, "{what}");
        assert_eq!(directory.cid.digest().unwrap().hex(), vector.dir_digest_hex, "{what}");
        assert_eq!(directory.content_bytes, vector.size as u64);
    }
}

#[test]
fn known_contents_have_their_known_cids() {
    let cid = |options, content: &[u8]| import(options, content, |_| Ok(())).unwrap();
    let nodes = Options { raw_leaves: false, ..Options::default() };
    let json = br#"{"requestId":"42","result":"ok"}"#;
    for (content, expected) in [
        (&b""[..], "bafybeif7ztnhq65lumvvtr4ekcwd2ifwgm3awq4zfr3srh462rwyinlb4y"),
        (b"hello", "bafybeid3weurg3gvyoi7nisadzolomlvoxoppe2sesktnpvdve3256n5tq"),
        (json, "bafybeihjg4w34tu2zmlriemthl24wdynhfx2rpsiflv7wxmb4lsk34etlu"),
        (&[b'x'; 100_000], "bafybeiay23kics7rguz4kaxxmyz7d6bciozygbi27wllerri6dpqenuifi"),
    ] {
        assert_eq!(cid(nodes, content).cid.to_string(), expected);
    }
    // As `ipfs add` of an empty file has answered from the first day.
    let empty = cid(Options::v0(), b"");
    assert_eq!(empty.cid.to_string(), "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH");
    assert_eq!(empty.cid.to_v1(), cid(nodes, b"").cid);

    let raw = cid(Options::default(), json);
    assert_eq!(raw.cid.to_string(), "bafkreidqgyjuku5bfi4lif7cwdwxojjtdlz64btiqboe3uszy5z3endu4e");
    assert_eq!(
        wrap("42", raw, Version::V1).cid.to_string(),
        "bafybeie5yjylp5qjdv2nkzeexsvfkde36hi2xejk352uosxshe76ib33ha"
    );
    let directory = |version| Directory::new(version).finish(|_| Ok(())).unwrap().cid.to_string();
    assert_eq!(
        directory(Version::V1),
        "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354"
    );
    assert_eq!(directory(Version::V0), "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn");
}

#[test]
fn directories_list_files_and_directories_by_name() {
    let mut blocks = Blocks::new();
    let mut keep = |block: guild_protocol::content::Block<'_>| {
        blocks.insert(block.cid, block.to_vec());
        Ok(())
    };
    let file = import(Options::default(), b"x", &mut keep).unwrap();
    let mut inner = Directory::new(Version::V1);
    inner.insert("x", file).unwrap();
    let inner = inner.finish(&mut keep).unwrap();
    let mut outer = Directory::new(Version::V1);
    for name in ["é", "b", "B", "b.txt", "\u{1f600}", "\u{fb33}"] {
        outer.insert(name, file).unwrap();
    }
    outer.insert("a", inner).unwrap();
    assert_eq!(outer.insert("a", file).unwrap_err().code().name, "content.duplicate_name");
    let root = outer.finish(&mut keep).unwrap();
    let node = read(&root.cid, &blocks[&root.cid]).unwrap();
    let Node::Directory(entries) = &node else { panic!("not a directory") };
    let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["B", "a", "b", "b.txt", "é", "\u{fb33}", "\u{1f600}"]);
    let found = node.entry("a").unwrap();
    assert_eq!((found.cid, found.tree_bytes), (inner.cid, inner.tree_bytes));
    assert_eq!(node.entry("c"), None);
    assert_eq!(root.content_bytes, 7);
    assert_eq!(root.tree_bytes, 6 + inner.tree_bytes + blocks[&root.cid].len() as u64);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trees {
    files: Vec<FileRow>,
    directories: Vec<DirectoryRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRow {
    size: usize,
    chunk_bytes: usize,
    max_links: usize,
    raw_leaves: bool,
    cid_version: u8,
    cid: Cid,
    tree_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectoryRow {
    paths: Vec<String>,
    content: String,
    raw_leaves: bool,
    cid_version: u8,
    cid: Cid,
    tree_bytes: u64,
}

/// Trees of every shape, as another importer makes them: both versions, both kinds of leaves, several levels.
#[test]
fn trees_of_every_shape_equal_those_of_another_importer() {
    let version = |number| if number == 0 { Version::V0 } else { Version::V1 };
    let trees: Trees = serde_json::from_str(include_str!("../../vectors/ipfs_trees.json")).unwrap();
    assert_eq!((trees.files.len(), trees.directories.len()), (24, 4));
    for row in trees.files {
        let FileRow { chunk_bytes, max_links, raw_leaves, .. } = row;
        let version = version(row.cid_version);
        let options = Options { chunk_bytes, max_links, raw_leaves, version };
        let tree = import(options, &pattern(row.size), |_| Ok(())).unwrap();
        assert_eq!((tree.cid, tree.tree_bytes), (row.cid, row.tree_bytes), "{options:?}");
    }
    for row in trees.directories {
        let version = version(row.cid_version);
        let options = Options { raw_leaves: row.raw_leaves, version, ..Options::default() };
        let file = import(options, row.content.as_bytes(), |_| Ok(())).unwrap();
        let mut directory = Directory::new(version);
        for path in row.paths {
            match path.split_once('/') {
                None => directory.insert(&path, file).unwrap(),
                Some((outer, inner)) => {
                    directory.insert(outer, wrap(inner, file, version)).unwrap();
                }
            }
        }
        let tree = directory.finish(|_| Ok(())).unwrap();
        assert_eq!((tree.cid, tree.tree_bytes), (row.cid, row.tree_bytes), "{options:?}");
    }
}

#[test]
fn a_directory_that_would_be_sharded_is_refused() {
    let file = import(Options::default(), b"x", |_| Ok(())).unwrap();
    let mut directory = Directory::new(Version::V1);
    // 64 bytes for each entry: the 4096th would reach the limit.
    for i in 0..4095 {
        directory.insert(&format!("{i:028}"), file).unwrap();
    }
    let error = directory.insert(&format!("{:028}", 4095), file).unwrap_err();
    assert_eq!(error.code().name, "content.directory_size");
    directory.finish(|block| read(&block.cid, &block.to_vec()).map(|_| ())).unwrap();
}

#[test]
fn names_that_leave_the_directory_are_refused_by_writer_and_reader() {
    let file = import(Options::default(), b"x", |_| Ok(())).unwrap();
    let long = "x".repeat(256);
    for name in ["", ".", "..", "a/b", "/", "a\0", &long] {
        let error = Directory::new(Version::V1).insert(name, file).unwrap_err();
        assert_eq!(error.code().name, "content.name_malformed", "{name:?}");
        let message = Data::new(Kind::Directory).encode();
        let link = Link { cid: file.cid, name: Some(name), tree_bytes: Some(1) };
        let block = PbNode { links: vec![link], data: Some(&message) }.encode();
        let error = read(&Cid::of(Codec::DagPb, &block), &block).unwrap_err();
        assert_eq!(error.code().name, "content.name_malformed", "{name:?}");
        assert_eq!(error.place(), Some("links[0]"));
    }
}

#[test]
fn a_sink_that_fails_once_fails_the_import() {
    let options = Options { chunk_bytes: 1, ..Options::default() };
    let mut left = 2;
    let mut importer = Importer::new(options, |_| {
        left -= 1;
        if left == 0 {
            return Err(Error::new(&guild_protocol::content::code::BLOCK_SIZE, "the disk is full"));
        }
        Ok(())
    })
    .unwrap();
    importer.push(b"a").unwrap();
    assert!(importer.push(b"b").is_err());
    assert!(importer.push(b"c").is_err());
    assert_eq!(importer.finish().unwrap_err().message(), "the disk is full");
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |options| {
        let error = Importer::new(options, |_| Ok(())).unwrap_err();
        assert_eq!(error.code().name, "content.options");
        error.to_string()
    };
    let good = Options::default();
    let seen = [
        refused(Options { chunk_bytes: 0, ..good }),
        refused(Options { chunk_bytes: 1_048_577, ..good }),
        refused(Options { max_links: 1, ..good }),
        refused(Options { max_links: 8193, ..good }),
    ];
    insta::assert_snapshot!(seen.join("\n"), @r"
    chunk_bytes: 0 is not from 1 to 1048576
    chunk_bytes: 1048577 is not from 1 to 1048576
    max_links: 1 is not from 2 to 8192
    max_links: 8193 is not from 2 to 8192
    ");
}

#[test]
fn a_cid_with_a_number_beyond_64_bits_is_refused() {
    // The codec has ten bytes; those of the last above its lowest bit would be dropped.
    let codec = |last: u8| [&[0x01][..], &[0xde; 9], &[last, 0x12, 0x01, 0xff]].concat();
    assert_eq!(Cid::from_bytes(&codec(0x01)).unwrap().to_bytes(), codec(0x01));
    let error = Cid::from_bytes(&codec(0x19)).unwrap_err();
    assert_eq!(error.code().name, "cid.malformed");
}

#[test]
fn cids_are_read_in_every_base_and_only_in_normal_form() {
    let digest = Hash::of(b"hello");
    let [node, raw] = Cid::candidates(digest);
    assert_eq!(node.hex(), format!("f01701220{}", digest.hex()));
    assert_eq!(raw.hex(), format!("f01551220{}", digest.hex()));
    let v0 = Cid::v0(digest);
    assert_eq!(v0.hex(), node.hex());
    assert_eq!(v0.to_v1(), node);
    assert_eq!((v0.version(), v0.codec()), (Version::V0, Codec::DagPb));
    for cid in [node, raw, v0] {
        assert_eq!(cid.digest().unwrap(), digest);
        assert_eq!(Cid::from_bytes(&cid.to_bytes()).unwrap(), cid);
        for text in [cid.to_string(), cid.base58()] {
            assert_eq!(text.parse::<Cid>().unwrap(), cid, "{text}");
        }
        assert_eq!(cid.hex().parse::<Cid>().unwrap(), cid.to_v1());
        let json = serde_json::to_string(&cid).unwrap();
        assert_eq!(serde_json::from_str::<Cid>(&json).unwrap(), cid);
    }
}

#[test]
fn rubbish_is_not_a_cid() {
    let good = Cid::of(Codec::Raw, b"hello").to_string();
    let spare_bits = format!("{}r", &good[..good.len() - 1]);
    let hex = Cid::of(Codec::Raw, b"hello").hex();
    let mut seen = Vec::new();
    for bad in [
        "",
        "b",
        "Qm",
        "hello",
        "é",
        "z",
        &good[..40],
        &good.to_uppercase(),
        &format!("{good} "),
        &format!("/ipfs/{good}"),
        &spare_bits,
        &format!("{hex}00"),
        &hex.replacen("f01", "f02", 1),
        &hex.replacen("f01", "f8100", 1),
        &format!("f1220{}", &hex[9..]),
        &"b".repeat(300),
    ] {
        let error = bad.parse::<Cid>().unwrap_err();
        assert_eq!(error.code().name, "cid.malformed", "{bad}");
        seen.push(error.to_string());
    }
    insta::assert_snapshot!(seen.join("\n"), @r#"
    "" is not a CID: it does not begin as one in base32, base58 or hex does
    "b" is not a CID: it has no version, codec and hash, or ends too early
    "Qm" is not a CID: it has an unknown version
    "hello" is not a CID: it does not begin as one in base32, base58 or hex does
    "é" is not a CID: it does not begin as one in base32, base58 or hex does
    "z" is not a CID: it has no version, codec and hash, or ends too early
    "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa" is not a CID: it has no version, codec and hash, or ends too early
    "BAFKREIBM6JG3UX5QUMHCN2B3FLC3TYU6DMLB4XA7U5BF44YEGNRJHC4YEQ" is not a CID: it does not begin as one in base32, base58 or hex does
    "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq " is not a CID: it has digits of another base
    "/ipfs/bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq" is not a CID: it does not begin as one in base32, base58 or hex does
    "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yer" is not a CID: it has digits of another base
    "f015512202cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b982400" is not a CID: bytes follow its end
    "f025512202cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" is not a CID: it has an unknown version
    "f81005512202cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" is not a CID: it has no version, codec and hash, or ends too early
    "f12202cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" is not a CID: it is not in its normal form
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…" is not a CID: it is too long
    "#);
}

#[test]
fn other_hash_functions_and_codecs_are_refused() {
    // The identity function, blake2b-256, and SHA-256 cut to 20 bytes.
    let blake = format!("f0155a0e40220{}", "00".repeat(32));
    let short = format!("f01551214{}", "00".repeat(20));
    for text in ["f01550000", "f0155000548656c6c6f", &blake, &short] {
        let cid: Cid = text.parse().unwrap();
        assert_eq!(cid.digest().unwrap_err().code().name, "cid.unsupported_hash");
        assert_eq!(read(&cid, b"Hello").unwrap_err().code().name, "cid.unsupported_hash");
    }
    let cbor = Cid::of(Codec::Other(0x71), b"x");
    assert_eq!(cbor.to_string().parse::<Cid>().unwrap().codec(), Codec::Other(0x71));
    assert_eq!(read(&cbor, b"x").unwrap_err().code().name, "cid.unsupported_codec");
    assert_eq!(read(&cbor, b"y").unwrap_err().code().name, "cid.mismatch");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn rubbish_texts_never_panic(text in "[bfzQ]?[a-zA-Z0-9é]{0,70}") {
        if let Ok(cid) = text.parse::<Cid>() {
            prop_assert!([cid.to_string(), cid.base58(), cid.hex()].contains(&text));
        }
    }

    /// The same blocks in the same order, however the content is cut into pieces; and all of it is read back.
    #[test]
    fn pieces_of_any_size_give_one_tree(
        size in 0usize..400,
        pieces in prop::collection::vec(0usize..90, 0..12),
        chunk_bytes in 1usize..40,
        max_links in 2usize..6,
        raw_leaves: bool,
        v0: bool,
        threads in 1usize..4,
    ) {
        let version = if v0 { Version::V0 } else { Version::V1 };
        let options = Options { chunk_bytes, max_links, raw_leaves, version };
        let content = pattern(size);
        let mut whole = Vec::new();
        let expected = import(options, &content, |b| { whole.push((b.cid, b.to_vec())); Ok(()) }).unwrap();
        let mut parts = Vec::new();
        let mut importer =
            Importer::new(options, |b| { parts.push((b.cid, b.parts().concat())); Ok(()) }).unwrap();
        importer = importer.with_threads(NonZeroUsize::new(threads).unwrap());
        let mut rest = content.as_slice();
        for piece in pieces {
            let (head, tail) = rest.split_at(piece.min(rest.len()));
            importer.push(head).unwrap();
            rest = tail;
        }
        importer.push(rest).unwrap();
        let tree = importer.finish().unwrap();
        prop_assert_eq!(tree, expected);
        prop_assert_eq!(&parts, &whole);
        prop_assert_eq!(parts.last().map(|(cid, _)| *cid), Some(tree.cid));
        prop_assert_eq!(tree.tree_bytes, whole.iter().map(|(_, block)| block.len() as u64).sum::<u64>());
        let blocks: Blocks = whole.into_iter().collect();
        prop_assert_eq!(content_of(&blocks, &tree.cid), content);
    }
}
