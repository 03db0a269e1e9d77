//! Strangers of another make are met, and meet us.

use std::path::Path;

use guild_protocol::identity::PublicKey;
use serde_json::{Value, json};
use testbed::NostrDvm;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

fn relay_of(node: &Node) -> String {
    format!("ws://{}/relay", node.address())
}

/// The program that a stranger answers with.
fn solution() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guild-market/src/benchmark/solution.py")
}

/// Discovery, meeting, evaluation and routing, with a provider of another make: first in the open, for one kind of
/// work, then in private, for another.
#[test]
fn a_stranger_of_another_make_is_found_met_and_ranked() {
    let home = Home::new();
    let only_buys = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let node = Node::up(&home, &only_buys);
    let stranger = NostrDvm::start(&relay_of(&node), &solution(), 5050).unwrap();
    let key: PublicKey = stranger.public_key().unwrap().trim().parse().unwrap();
    let npub = key.npub();
    // Until its announcement is here; it takes seconds to load what it needs.
    let is_known = |_: &u32| home.json(&["providers", "show", &npub]).0 == 0;
    let waited = (0..600).inspect(|_| testbed::wait_ms(100)).find(is_known);
    assert!(waited.is_some(), "{}", stranger.log());
    for (task, private) in [("benchmark-task", false), ("private-task", true)] {
        let mut args = vec!["providers", "meet", &npub, "--task", task];
        args.extend(private.then_some("--encrypted"));
        let (code, told) = home.json(&args);
        assert_eq!(
            (code, told["outcome"].as_str()),
            (0, Some("active")),
            "{told}\n{}",
            stranger.log()
        );
        assert_eq!((&told["kind"], &told["encrypted"]), (&5050.into(), &private.into()));
        let trials = told["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 3);
        for trial in trials {
            assert_eq!((&trial["class"], &trial["passed"]), (&"SUCCESS".into(), &trial["total"]));
            let said: Vec<&str> = trial["said"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|said| said["standing"].as_str())
                .collect();
            assert!(said.contains(&"feedback") && said.contains(&"delivered"), "{said:?}");
        }
        let (code, why) = home.json(&["route", "explain", task]);
        assert_eq!(code, 0, "{why}");
        let candidates = why["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0]["entry"]["status"], "ACTIVE", "{why}");
    }
    assert_eq!(node.stop(), 0);
}

/// A stranger benchmarks this node, in every form; what it gets is judged as a meeting judges it.
#[test]
fn a_stranger_benchmarks_this_node() {
    let home = Home::new();
    let offers = [&ANY_PORT[..], &["--set", "provider.solver=reference"]].concat();
    let node = Node::up(&home, &offers);
    let seed = "07".repeat(32);
    let (_, printed) = home.json(&["benchmark", "task", "--seed", &seed]);
    home.write("task.json", printed["task"].to_string());
    let file = home.path().join("task.json");
    let arguments = [relay_of(&node), file.display().to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let seen = testbed::javascript::run("benchmark.mjs", &arguments).unwrap();
    let seen: Value = serde_json::from_str(&seen).unwrap();
    for form in ["plain", "sealed", "documented"] {
        assert_eq!(seen[form]["told"], json!([["processing"]]), "{form}: {seen}");
        let program = seen[form]["output"]["files"]["solution.py"].as_str().unwrap();
        home.write(&format!("{form}/solution.py"), program);
        let (code, verdict) =
            home.json(&["benchmark", "run", "--seed", &seed, "--submission", form]);
        assert_eq!((code, verdict["class"].as_str()), (0, Some("SUCCESS")), "{verdict}");
        assert_eq!(verdict["commitment"], printed["task"]["commitment"]);
    }
    assert_eq!(node.stop(), 0);
}
