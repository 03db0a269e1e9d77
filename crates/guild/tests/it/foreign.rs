//! Strangers who use another implementation of Nostr: one hires this node, one works for it.

use guild_protocol::hash::Hash;
use guild_protocol::identity::PublicKey;
use guild_protocol::receipt::Receipt;
use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::stranger::Stranger;
use crate::support::Home;

fn relay_of(node: &Node) -> String {
    format!("ws://{}/relay", node.address())
}

#[test]
fn a_stranger_hires_this_node() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let printed = testbed::javascript::run("buyer.mjs", &[&relay_of(&node)]).unwrap();
    let told: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(told["kinds"], serde_json::json!(["5000", "5050"]));
    assert_eq!(told["amounts"], serde_json::json!(["1000", "1000", "1000"]));
    for form in ["plain", "sealed", "open"] {
        assert_eq!(told[form], serde_json::json!(["processing"]), "{told}");
    }
    for (form, code) in [
        ("unknown", "[market.schema_not_served]"),
        ("cheap", "[market.bid_too_low]"),
        ("rubbish", "[schema."),
    ] {
        let words = told[form][0].as_str().unwrap();
        assert!(words.starts_with("error: ") && words.contains(code), "{form}: {words}");
    }
    let (_, list) = home.json(&["requests", "ls"]);
    let delivered =
        list["requests"].as_array().unwrap().iter().filter(|r| r["standing"] == "delivered");
    assert_eq!(delivered.count(), 3, "{list}");
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_stranger_has_this_node_run_commands() {
    let home = Home::new();
    let offers = ["--set", "sandbox_run.enabled=true", "--set", "sandbox_run.price_msat=40"];
    let node = Node::up(&home, &[&ANY_PORT[..], &offers].concat());
    let (_, images) = home.json(&["sandbox", "images"]);
    let image = images["images"][0]["digest"].as_str().unwrap();
    let printed = testbed::javascript::run("buyer.mjs", &[&relay_of(&node), image]).unwrap();
    let told: Value = serde_json::from_str(&printed).unwrap();
    let (run, output) = (&told["run"], &told["run"]["output"]);
    assert_eq!((&run["amount"], &run["told"]), (&"40".into(), &serde_json::json!(["processing"])));
    assert_eq!((&output["status"], &output["runs"][1]["exit_code"]), (&"failed".into(), &3.into()));
    assert_eq!(output["runs"][0]["stdout_preview"], "HELLO\n");
    let made = serde_json::json!([
        {"path": "/workspace/c.txt", "sha256": Hash::of(b"HELLO\n"), "size_bytes": 6}
    ]);
    assert_eq!(output["artifacts"], made);
    assert_eq!(node.stop(), 0);
}

#[test]
fn a_stranger_works_for_this_node_and_is_paid() {
    let home = Home::new();
    let only_buys = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let node = Node::up(&home, &only_buys);
    let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
    let run = home.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "10000"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let mut stranger = Stranger::at_work(&relay_of(&node), &["700", "2"]);
    let key: PublicKey = stranger.key;
    let input = r#"{"texts":["Grüße 😀 42","a b a"],"dimensions":12}"#;
    for private in [false, true] {
        let npub = key.npub();
        let mut args =
            vec!["hire", "--schema", "oa.embedding.v1", "--input", input, "--provider", &npub];
        args.extend(private.then_some("--private"));
        let (code, told) = home.json(&args);
        assert_eq!((code, &told["paid_msat"]), (0, &700.into()), "{told}");
        let got = stranger.receipt();
        assert_eq!((&got["receipt"], &got["sealed"]), (&told["receipt_id"], &private.into()));
        assert_eq!((&got["status"], &got["amount_msats"]), (&"released".into(), &700.into()));
        // What it was given is the very receipt, and proves what it says to anybody.
        let receipt = Receipt::from_bytes(got["text"].as_str().unwrap().as_bytes()).unwrap();
        assert_eq!(receipt.stated().provider_id, key);
    }
    assert_eq!(node.stop(), 0);
}
