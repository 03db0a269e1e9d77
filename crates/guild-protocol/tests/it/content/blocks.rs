//! Blocks from strangers.

use guild_protocol::Result;
use guild_protocol::content::dag_pb::{Link, PbNode};
use guild_protocol::content::unixfs::{Data, Kind, Mtime};
use guild_protocol::content::{Cid, Codec, read};
use guild_protocol::hash::Hash;
use proptest::prelude::*;

/// Reads a block under its own CID and says how it was refused.
fn refusal(block: &[u8]) -> String {
    let error = read(&Cid::of(Codec::DagPb, block), block).unwrap_err();
    format!("{} {error}", error.code().name)
}

fn node(links: &[Link<'_>], data: &Data<'_>) -> Vec<u8> {
    PbNode { links: links.to_vec(), data: Some(&data.encode()) }.encode()
}

#[test]
fn blocks_that_contradict_themselves_are_refused() {
    let link = |name| Link { cid: Cid::of(Codec::Raw, b"x"), name, tree_bytes: Some(1) };
    let file = Data::new(Kind::File);
    let sized = |content_bytes, child_bytes: &[u64]| Data {
        content_bytes: Some(content_bytes),
        child_bytes: child_bytes.to_vec(),
        ..file.clone()
    };
    let parts = [link(Some("")), link(Some(""))];
    let directory = Data::new(Kind::Directory);
    let filled = Data { data: Some(b"x"), ..directory.clone() };
    let target = Data { data: Some(b"\xff"), ..Data::new(Kind::Symlink) };
    let block = node(&parts, &sized(3, &[1, 2]));
    assert!(read(&Cid::of(Codec::DagPb, &block), &block).is_ok());
    let mut data_first = vec![0x0a, 2, 8, 2];
    data_first.extend(PbNode { links: parts.to_vec(), data: None }.encode());
    let refused = [
        refusal(&node(&parts, &sized(3, &[1]))),
        refusal(&node(&parts, &sized(4, &[1, 2]))),
        refusal(&node(&parts, &sized(0, &[1, u64::MAX]))),
        refusal(&node(&[link(Some("a"))], &sized(1, &[1]))),
        refusal(&node(&[link(Some("b")), link(Some("a"))], &directory)),
        refusal(&node(&[link(Some("a")), link(Some("a"))], &directory)),
        refusal(&node(&[link(None)], &directory)),
        refusal(&node(&[], &filled)),
        refusal(&node(&[], &target)),
        refusal(&node(&parts, &Data::new(Kind::Symlink))),
        refusal(&PbNode { links: parts.to_vec(), data: None }.encode()),
        refusal(&data_first),
        refusal(&[0x0a, 2, 8, 3]),
        refusal(&[0x0a, 2, 8, 5]),
        refusal(&[0x0a, 2, 8, 9]),
        refusal(&[0x0a, 2, 0x18, 0]),
        refusal(&[0x0a, 4, 8, 2, 8, 2]),
        refusal(&[0x0a, 4, 8, 2, 0x28, 0]),
        refusal(&[0x0a, 3, 8, 0x82, 0]),
        refusal(&[0x12, 0]),
        refusal(&[0x12, 4, 0x12, 0, 0x0a, 0]),
        refusal(&[0x18, 0]),
        refusal(&[0x0b]),
        refusal(&[0x0a, 9]),
        refusal(&[]),
    ];
    insta::assert_snapshot!(refused.join("\n"), @r#"
    block.unixfs_malformed the file does not say the size of each of its parts
    block.unixfs_malformed the size of the file is not the sum of its parts
    block.unixfs_malformed the sizes of the parts overflow
    block.unixfs_malformed a part of a file has a name
    block.unixfs_malformed links[1]: the entries are not sorted by name, or one stands twice
    block.unixfs_malformed links[1]: the entries are not sorted by name, or one stands twice
    content.name_malformed links[0]: the entry name "" is empty
    block.unixfs_malformed a directory has content of its own
    block.unixfs_malformed the target of a symbolic link is not UTF-8
    block.unixfs_malformed a symbolic link has links to blocks
    block.unixfs_malformed the node holds no UnixFS message
    block.dag_pb_malformed fields follow the data
    block.unixfs_unsupported a metadata node is not read
    block.unixfs_unsupported a shard of a large directory is not read
    block.unixfs_unsupported a UnixFS node of kind 9 is not read
    block.unixfs_malformed the UnixFS message does not begin with its kind
    block.unixfs_malformed the fields of the UnixFS message are repeated or out of order
    block.unixfs_malformed the UnixFS message has an unknown field
    block.unixfs_malformed a number is not in its shortest form
    block.dag_pb_malformed links[0]: the link has no hash
    block.dag_pb_malformed links[0]: the fields of a link are repeated or out of order
    block.dag_pb_malformed the node has an unknown field
    block.dag_pb_malformed a field has an unknown wire type
    block.dag_pb_malformed a field is longer than its message
    block.unixfs_malformed the node holds no UnixFS message
    "#);
}

#[test]
fn blocks_beyond_the_limits_are_refused() {
    let large = vec![0; 2 * 1024 * 1024 + 1];
    let error = read(&Cid::of(Codec::Raw, &large), &large).unwrap_err();
    assert_eq!(error.code().name, "block.size");
    let many = [0x12, 6, 0x0a, 4, 1, 0x55, 0, 0].repeat(16_385);
    assert!(PbNode::decode(&many[8..]).is_ok());
    assert_eq!(PbNode::decode(&many).unwrap_err().code().name, "block.size");
}

prop_compose! {
    fn any_cid()(kind in 0..4, digest in any::<[u8; 32]>()) -> Cid {
        let digest = Hash::from_bytes(digest);
        match kind {
            0 => Cid::v0(digest),
            1 => Cid::v1(Codec::Raw, digest),
            2 => Cid::v1(Codec::DagPb, digest),
            _ => Cid::v1(Codec::Other(0x129), digest),
        }
    }
}

type OwnedLink = (Cid, Option<String>, Option<u64>);

fn any_links() -> impl Strategy<Value = Vec<OwnedLink>> {
    prop::collection::vec((any_cid(), any::<Option<String>>(), any::<Option<u64>>()), 0..5)
}

fn borrow<'a>(links: &'a [OwnedLink]) -> Vec<Link<'a>> {
    let borrow =
        |link: &'a OwnedLink| Link { cid: link.0, name: link.1.as_deref(), tree_bytes: link.2 };
    links.iter().map(borrow).collect()
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Raw), Just(Kind::Directory), Just(Kind::File), Just(Kind::Symlink)]
}

/// Whatever is accepted must be written back as the same bytes.
fn accepted_means_normal_form(block: &[u8]) -> Result<()> {
    let node = PbNode::decode(block)?;
    assert_eq!(node.encode(), block);
    if let Some(message) = node.data {
        assert_eq!(Data::decode(message)?.encode(), message);
    }
    read(&Cid::of(Codec::DagPb, block), block).map(|_| ())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn nodes_come_back(links in any_links(), data: Option<Vec<u8>>) {
        let node = PbNode { links: borrow(&links), data: data.as_deref() };
        let block = node.encode();
        prop_assert_eq!(PbNode::decode(&block).unwrap(), node);
    }

    #[test]
    fn unixfs_messages_come_back(
        kind in any_kind(),
        data: Option<Vec<u8>>,
        content_bytes: Option<u64>,
        child_bytes in prop::collection::vec(any::<u64>(), 0..4),
        mode: Option<u32>,
        mtime: Option<(i64, Option<u32>)>,
    ) {
        let mtime = mtime.map(|(seconds, nanoseconds)| Mtime { seconds, nanoseconds });
        let message = Data { kind, data: data.as_deref(), content_bytes, child_bytes, mode, mtime };
        let bytes = message.encode();
        prop_assert_eq!(Data::decode(&bytes).unwrap(), message);
    }

    #[test]
    fn rubbish_blocks_never_panic(bytes: Vec<u8>) {
        let _ = accepted_means_normal_form(&bytes);
        let _ = Cid::from_bytes(&bytes);
    }

    /// A good block with a few bytes changed reaches deeper than rubbish does.
    #[test]
    fn damaged_blocks_never_panic(
        links in any_links(),
        kind in any_kind(),
        content in any::<Vec<u8>>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let message = Data { data: Some(&content), ..Data::new(kind) }.encode();
        let mut block = PbNode { links: borrow(&links), data: Some(&message) }.encode();
        for (place, byte) in damage {
            let place = place.index(block.len());
            block[place] = byte;
        }
        let _ = accepted_means_normal_form(&block);
    }
}
