//! Blocks of strangers: what is accepted is in its one form, and its sizes and names are sane.
#![no_main]

use guild_protocol::content::dag_pb::PbNode;
use guild_protocol::content::unixfs::Data;
use guild_protocol::content::{Cid, Codec, Node, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(node) = PbNode::decode(data) {
        assert_eq!(node.encode(), data, "a node has one form");
    }
    if let Ok(message) = Data::decode(data) {
        assert_eq!(message.encode(), data, "a message has one form");
        // The fuzzer reaches the meaning of a message sooner without a node around it.
        let node = PbNode { links: Vec::new(), data: Some(data) }.encode();
        check(&Cid::of(Codec::DagPb, &node), &node);
    }
    check(&Cid::of(Codec::DagPb, data), data);
    let raw = Cid::of(Codec::Raw, data);
    let content_bytes = data.len() as u64;
    assert_eq!(read(&raw, data), Ok(Node::File { data, children: Vec::new(), content_bytes }));
    assert!(read(&Cid::of(Codec::Raw, b"another block"), data).is_err(), "it has another hash");
});

fn check(cid: &Cid, block: &[u8]) {
    match read(cid, block) {
        Ok(Node::File { data, children, content_bytes }) => {
            let below = children.iter().map(|child| u128::from(child.content_bytes)).sum::<u128>();
            assert_eq!(below + data.len() as u128, u128::from(content_bytes));
        }
        Ok(Node::Directory(entries)) => {
            assert!(entries.is_sorted_by(|a, b| a.name < b.name), "each name once, in order");
            let plain =
                |name: &str| !name.contains(['/', '\0']) && !matches!(name, "" | "." | "..");
            assert!(entries.iter().all(|entry| plain(entry.name)), "a name leaves its directory");
        }
        Ok(Node::Symlink(_)) | Err(_) => {}
    }
}
