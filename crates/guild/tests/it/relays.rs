//! The relays of others: one node with another's relay between them.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, Event};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

fn card(n: u64) -> Event {
    let key: SecretKey = format!("{n:064x}").parse().unwrap();
    let created_at = u64::try_from(testbed::now_ms() / 1_000).unwrap();
    let tags = vec![vec!["d".to_owned(), "a".to_owned()], vec!["k".to_owned(), "5050".to_owned()]];
    Draft { kind: 31990, created_at, tags, content: "{}".to_owned() }.sign(&key).unwrap()
}

/// Looks until the program answers so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let until_ms = testbed::now_ms() + 120_000;
    while !is_so() {
        assert!(testbed::now_ms() < until_ms, "not within 120 s: {what}");
        testbed::wait_ms(50);
    }
}

fn ids(home: &Home, more: &[&str]) -> Vec<Value> {
    let run = home.run(&[&["relay", "query", "--json"], more].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"]["id"].clone();
    run.stdout.lines().map(id).collect()
}

#[test]
fn events_cross_from_one_node_to_another() {
    let (there, here) = (Home::new(), Home::new());
    let silent = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let far = Node::up(&there, &silent);
    let url = far.ready["url"].as_str().unwrap().replace("http://", "ws://") + "/relay";
    let (a, b) = (card(1), card(2));

    // Straight to a relay, and asked of it, without a node.
    let file = here.write("a.json", a.to_json());
    let file = file.to_str().unwrap();
    assert_eq!(here.run(&["relay", "publish", file, "--url", &url]).code, 0);
    assert_eq!(ids(&here, &["--url", &url, "--kind", "31990"]), [json!(a.id)]);
    let tag = ["--url", &url, "--tag", "k=5050", "--limit", "1"];
    assert_eq!(ids(&here, &tag), [json!(a.id)]);
    assert!(ids(&here, &["--url", &url, "--author", &b.pubkey.hex()]).is_empty());

    // Queued while no node runs; it leaves when one does, and what is there comes in.
    let set = format!("network.relays={url}");
    let settings = ["--set", set.as_str()];
    let lines = format!("{}\n\n", b.to_json());
    let queued = here
        .run_with_input(&[&settings[..], &["relay", "publish", "-"]].concat(), lines.as_bytes());
    assert_eq!(queued.stdout, format!("{}  queued for {url}\n", b.id), "{queued:?}");
    let near = Node::up(&here, &[&settings[..], &silent].concat());
    until("sent", || ids(&there, &[]).len() == 2);
    until("fetched", || ids(&here, &[]).len() == 2);
    assert_eq!(ids(&here, &["--id", &a.id.hex()]), [json!(a.id)]);

    until("listed", || here.run(&["relay", "ls"]).stdout.contains("echo heard"));
    let (_, listed) = here.json(&["relay", "ls"]);
    let relay = &listed["relays"][0];
    assert_eq!((&relay["state"], &relay["live"]["state"]), (&json!("connected"), &json!("live")));
    assert_eq!((&relay["fetched"], &relay["counts"]["stored"]), (&json!(true), &json!(1)));

    // How closely it is followed, and why; beside it the node's own memory of it.
    until("known", || here.run(&["relay", "show", &url]).code == 0);
    assert!(here.run(&["relay", "ls"]).stdout.contains("network.relays names it"));
    let (code, shown) = here.json(&["relay", "show", &url]);
    assert_eq!((code, &shown["known"]["standing"]["tier"]), (0, &json!("live")));
    assert_eq!(shown["known"]["source"], "configured");
    let shown = here.run(&["relay", "show", &url]);
    assert!(shown.stdout.contains("tier          1 live, since "), "{shown:?}");
    let (code, unknown) = here.json(&["relay", "show", "wss://nowhere.example"]);
    assert_eq!((code, &unknown["known"]), (1, &json!(null)));
    assert_eq!(here.run(&["relay", "show", "nonsense"]).code, 2);

    // Through the running node, and again: the same.
    let c = card(3);
    for _ in 0..2 {
        let run = here.run_with_input(&["relay", "publish", "-"], c.to_json().as_bytes());
        assert_eq!(run.code, 0, "{run:?}");
    }
    until("sent", || ids(&there, &["--id", &c.id.hex()]).len() == 1);

    // What the relay said about it, also once no node runs.
    let acked = || here.json(&["relay", "acks", &c.id.hex()]).1["acks"][0]["state"] == "acked";
    until("acked", acked);
    assert_eq!((near.stop(), far.stop()), (0, 0));
    let shown = here.run(&["relay", "acks", &c.id.hex()]);
    assert!(shown.code == 0 && shown.stdout.starts_with("acked     "), "{shown:?}");
    assert!(shown.stdout.contains(&url), "{shown:?}");
    // One that came from elsewhere was never on its way.
    let (code, none) = here.json(&["relay", "acks", &a.id.hex()]);
    assert_eq!((code, &none["acks"]), (1, &json!([])));
    assert_eq!(here.run(&["relay", "acks", "nonsense"]).code, 2);
}

#[test]
fn what_is_no_event_or_no_relay_is_refused() {
    let home = Home::new();
    let forged = Event { content: "other".to_owned(), ..card(1) };
    let run = home.run_with_input(&["relay", "publish", "-"], forged.to_json().as_bytes());
    assert_eq!(run.code, 2);
    assert!(run.stderr.starts_with("error[nostr.event_id_wrong]"), "{run:?}");
    assert_snapshot!(home.run(&["relay", "query", "--url", "http://a.example"]).shown(&home), @r#"
    exit 2
    --- stderr
    error[network.relay_url]: "http://a.example" is no relay: it begins with neither ws:// nor wss://
    help: Write it as wss://host or ws://host:port/path.
    "#);
    assert_snapshot!(home.run(&["relay", "ls"]).shown(&home), @"
    exit 3
    --- stderr
    error[node.not_running]: no node runs on this data directory
    help: Start it with `guild up`, or name another --data-dir.
    ");
    let nobody = format!("ws://127.0.0.1:{}", testbed::free_port().unwrap());
    let run = home.run(&["relay", "query", "--url", &nobody]);
    assert_eq!(run.code, 3);
    assert!(run.stderr.starts_with("error[network.relay_unreachable]"), "{run:?}");
    let run = home.run(&["up", "--set", "network.relays=ws://a,nonsense"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("network.relays"), "{run:?}");
    assert_eq!(home.run(&["relay", "query", "--tag", "name=x"]).code, 2);
}
