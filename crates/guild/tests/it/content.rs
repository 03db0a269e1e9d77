//! Content on the command line and in a running node, also as others see it.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::fs;

use serde_json::{Value, json};

use crate::explorer::get;
use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const HELLO: &str = "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq";

fn token(home: &Home) -> String {
    let file = fs::read(home.path().join(".local/share/guildhall/node.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    file["token"].as_str().unwrap().to_owned()
}

/// What is added, listed, got back, let go and collected: without a node, and through one.
fn used(home: &Home) {
    home.write("tree/a.txt", "hello");
    home.write("tree/sub/b.bin", vec![7; 600_000]);
    home.write("tree/.hidden", "not seen");
    fs::create_dir_all(home.path().join("tree/empty")).unwrap();
    let (code, added) = home.json(&["content", "add", "tree", "--reason", "because"]);
    assert_eq!(code, 0, "{added}");
    let names: Vec<&str> = added["added"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["path"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tree/a.txt", "tree/sub/b.bin", "tree/empty", "tree/sub", "tree"]);
    assert_eq!(added["added"][0]["cid"], HELLO);
    let root = added["roots"][0].as_str().unwrap();
    assert_eq!(added["roots"].as_array().unwrap().len(), 1);

    let (_, listed) = home.json(&["content", "ls", &format!("{root}/sub")]);
    assert_eq!(listed["entries"][0]["name"], "b.bin");
    let (_, pins) = home.json(&["content", "ls"]);
    assert_eq!(pins["pins"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&pins["pins"][0]["cid"], &pins["pins"][0]["reason"]),
        (&json!(root), &json!("because"))
    );

    let got = home.run(&["content", "get", root, "-o", "out"]);
    assert_eq!(got.code, 0, "{got:?}");
    assert_eq!(fs::read(home.path().join("out/a.txt")).unwrap(), b"hello");
    assert_eq!(fs::read(home.path().join("out/sub/b.bin")).unwrap(), vec![7; 600_000]);
    assert!(home.path().join("out/empty").is_dir() && !home.path().join("out/.hidden").exists());
    assert_eq!(home.run(&["content", "get", root, "-o", "out"]).code, 2, "what is there stays");
    let printed = home.run(&["content", "get", &format!("{root}/a.txt"), "-o", "-"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (0, "hello"));

    let (code, verified) = home.json(&["content", "verify"]);
    assert_eq!((code, &verified["pins"], &verified["wrong"]), (0, &json!(1), &json!([])));

    assert_eq!(home.run(&["content", "pin", HELLO]).code, 0);
    assert_eq!(home.run(&["content", "unpin", root]).code, 0);
    assert_eq!(home.run(&["content", "unpin", root]).code, 1);
    let (_, kept) = home.json(&["content", "gc"]);
    assert_eq!(kept["removed"], 0, "within the grace period");
    let refused = home.run(&[
        "content",
        "pin",
        "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
    ]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("content.missing"), "{refused:?}");
    fs::remove_dir_all(home.path().join("out")).unwrap();
}

#[test]
fn content_is_kept_without_a_node() {
    let home = Home::new();
    assert_eq!(home.run(&["content", "ls"]).code, 2, "there is nothing yet");
    used(&home);
    let (_, removed) = home.json(&["content", "gc", "--set", "content.grace_minutes=0"]);
    assert_eq!(removed["removed"], 6, "{removed}");
    let (_, left) = home.json(&["content", "verify"]);
    assert_eq!((&left["blocks"], &left["bytes"]), (&json!(1), &json!(5)));
}

#[test]
fn content_is_kept_and_served_by_a_node() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    used(&home);
    assert_eq!(get(&node, &format!("/ipfs/{HELLO}")), (200, "hello".to_owned()));
    assert_eq!(get(&node, "/ipfs/bafkqaaa").0, 400);
    assert_eq!(node.stop(), 0);
    let (_, verified) = home.json(&["content", "verify"]);
    assert_eq!(verified["broken_pins"], json!([]));
}

#[test]
fn a_node_fetches_from_another_and_checks_what_it_gets() {
    let (near, far) = (Home::new(), Home::new());
    let far_node = Node::up(&far, &ANY_PORT);
    far.write("data.bin", vec![5; 700_000]);
    let (_, added) = far.json(&["content", "add", "data.bin"]);
    let root = added["roots"][0].as_str().unwrap();
    for peer in
        [format!("http://{}", far_node.address()), format!("kubo+http://{}", far_node.address())]
    {
        let peers = format!("content.peers={peer}");
        let near_node = Node::up(&near, &[&ANY_PORT[..], &["--set", &peers]].concat());
        // Strangers do not make it ask.
        assert_eq!(get(&near_node, &format!("/ipfs/{root}")).0, 404);
        assert_eq!(near.run(&["content", "pin", root, "--set", &peers]).code, 0);
        assert_eq!(get(&near_node, &format!("/ipfs/{root}")).0, 200);
        assert_eq!(near.run(&["content", "unpin", root]).code, 0);
        assert_eq!(near_node.stop(), 0);
        let none = ["content", "gc", "--set", "content.grace_minutes=0"];
        assert_eq!(near.json(&none).1["removed"], 3);
    }
}

#[test]
fn others_make_the_same_ids_add_with_their_own_client_and_read_block_by_block() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let url = format!("http://{}", node.address());
    let printed = testbed::javascript::run("content.mjs", &[&url, &token(&home)]).unwrap();
    let seen: Value = serde_json::from_str(&printed).unwrap();
    let expected = json!({
        "same": 18,
        "fetched": true,
        "note": HELLO,
        "read": "hello",
        "block": "a block",
        "pinned": true,
        "refused": "writing needs the node's token",
    });
    assert_eq!(seen, expected);
    assert_eq!(home.json(&["content", "verify"]).0, 0);
}

#[test]
fn content_is_brought_to_another_node() {
    let (from, to) = (Home::new(), Home::new());
    from.write("tree/a.txt", "hello");
    from.write("tree/b.bin", vec![9; 600_000]);
    let (_, added) = from.json(&["content", "add", "tree"]);
    let root = added["roots"][0].as_str().unwrap();
    let node = Node::up(&to, &ANY_PORT);
    let url = format!("http://{}", node.address());
    let (code, told) = from.json(&["content", "push", root, "--to", &url]);
    assert_eq!((code, told["error"]["code"].as_str()), (3, Some("node.unreachable")), "{told}");
    from.write("token", token(&to));
    let push = ["content", "push", root, "--to", &url, "--token-file", "token"];
    for _ in 0..2 {
        let (code, told) = from.json(&push);
        assert!(code == 0 && told["blocks"].as_u64().unwrap() > 3, "{told}");
    }
    let (status, page) = get(&node, &format!("/ipfs/{root}/a.txt"));
    assert_eq!((status, page.as_str()), (200, "hello"));
    let (_, pins) = to.json(&["content", "ls"]);
    assert_eq!(pins["pins"][0]["cid"], root);
    // What is not here cannot be brought.
    let missing = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    let (code, told) =
        from.json(&["content", "push", missing, "--to", &url, "--token-file", "token"]);
    assert_eq!((code, told["error"]["code"].as_str()), (2, Some("content.missing")), "{told}");
    assert_eq!(node.stop(), 0);
}
