//! `guild market watch` and `guild doctor --market`, beside a running node.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::{Draft, Event};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, accept};

use crate::node::{ANY_PORT, Node};
use crate::relays::until;
use crate::support::Home;

fn key(n: u64) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

/// An announcement by somebody, with these kinds in tags and in its content.
fn card(n: u64, d: &str, kinds: &[&str], content: &str) -> Event {
    let created_at = u64::try_from(testbed::now_ms() / 1_000).unwrap();
    let mut tags = vec![vec!["d".to_owned(), d.to_owned()]];
    tags.extend(kinds.iter().map(|kind| vec!["k".to_owned(), (*kind).to_owned()]));
    Draft { kind: 31990, created_at, tags, content: content.to_owned() }.sign(&key(n)).unwrap()
}

fn publish(home: &Home, url: &str, event: &Event) -> i32 {
    let file = home.write("event.json", event.to_json());
    home.run(&["relay", "publish", file.to_str().unwrap(), "--url", url]).code
}

fn offers(home: &Home, more: &[&str]) -> Vec<Value> {
    let run = home.run(&[&["market", "watch", "--once", "--json"], more].concat());
    run.assert_no_panic();
    run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn providers_are_watched_as_they_appear() {
    let home = Home::new();
    let silent = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let node = Node::up(&home, &silent);
    let url = node.ready["url"].as_str().unwrap().replace("http://", "ws://") + "/relay";
    let nobody = home.run(&["market", "watch", "--once"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.stdout.starts_with("no provider;"), "{nobody:?}");

    // Somebody who watches sees each as it comes.
    let mut watching = home
        .command(&["market", "watch", "--json", "--every-ms", "100"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let honest = "{\"name\":\"Honest box\",\"performance\":{\"typical_latency_ms\":9}}";
    assert_eq!(publish(&home, &url, &card(1, "fast-box", &["5000", "benchmark-task"], honest)), 0);
    let seen: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!((&seen["d"], &seen["name"]), (&json!("fast-box"), &json!("Honest box")));
    assert_eq!(seen["npub"], key(1).public_key().npub());
    assert_eq!(seen["work"], json!(["5000", "benchmark-task"]));

    // One that looks the same, steers terminals and contradicts itself.
    let evil = "{\"name\":\"Honest b\\u001b[31mox\\u202e\",\"supported_kinds\":[5100]}";
    assert_eq!(publish(&home, &url, &card(2, "f\u{430}st box", &["5000"], evil)), 0);
    assert_eq!(publish(&home, &url, &card(3, "x", &["5000"], "not json")), 0);
    until("all are there", || offers(&home, &[]).len() == 2);
    let found = offers(&home, &["--task", "benchmark-task"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0]["score_bp"], &found[0]["why"]),
        (&json!(10_000), &json!("it names this work"))
    );
    let table = home.run(&["market", "watch", "--once"]);
    assert_eq!(table.code, 0);
    assert!(!table.stdout.contains(['\u{1b}', '\u{202e}']), "{table:?}");
    assert_eq!(table.stdout.matches("/f").count(), 2, "both with their keys: {table:?}");
    assert!(table.stdout.contains("5000?"), "{table:?}");

    // What is wrong with it all.
    until("counted", || {
        let (_, told) = home.json(&["doctor", "--market"]);
        told["counts"].as_array().is_some_and(|counts| !counts.is_empty())
            && told["discrepancies"] == 2
    });
    let (code, told) = home.json(&["doctor", "--market"]);
    assert_eq!((code, &told["ok"]), (0, &json!(true)));
    let offers = &told["offers"];
    assert_eq!((&offers["listed"], &offers["collisions"]), (&json!(2), &json!(1)), "{told}");
    assert_eq!((&offers["disputed"], &told["relays"]), (&json!(1), &json!([])));
    assert_eq!(told["counts"][0]["what"], "announcement.content_malformed");
    let told = home.run(&["doctor", "--market"]);
    assert!(told.stdout.contains("announcement.content_malformed"), "{told:?}");
    assert!(told.stdout.contains("looks like an offer of another key"), "{told:?}");
    assert!(
        told.stdout.contains("a tag names what supported_kinds does not, \"5000\""),
        "{told:?}"
    );
    assert_eq!(node.stop(), 0);
    // The same, without a node.
    let after = home.run(&["doctor", "--market"]);
    assert_eq!(after.code, 0, "{after:?}");
    assert!(after.stderr.contains("no node runs here"), "{after:?}");
}

/// A relay that answers every question with an announcement whose content is not the one that was signed.
fn forger() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || {
                // Whoever only asks what it says of itself is not answered.
                let Ok(mut socket) = accept(stream) else { return };
                while let Ok(message) = socket.read() {
                    let Ok(asked) = serde_json::from_slice::<Value>(&message.into_data()) else {
                        continue;
                    };
                    if asked[0] != "REQ" {
                        continue;
                    }
                    let forged = Event { content: "{}".to_owned(), ..card(9, "x", &["5000"], "") };
                    let event: Value = serde_json::from_str(&forged.to_json()).unwrap();
                    for answer in [json!(["EVENT", asked[1], event]), json!(["EOSE", asked[1]])] {
                        let _ = socket.send(Message::text(answer.to_string()));
                    }
                }
            });
        }
    });
    url
}

#[test]
fn a_relay_that_lies_is_named_also_when_no_node_runs() {
    let home = Home::new();
    let liar = forger();
    let polled = format!("network.polled_relays={liar}");
    let node = Node::up(&home, &[&ANY_PORT[..], &["--set", &polled]].concat());
    let named = || {
        let (_, told) = home.json(&["doctor", "--market"]);
        let relays = told["relays"].as_array().unwrap().clone();
        relays.into_iter().find(|one| one["url"] == liar.as_str())
    };
    // It is left alone once that was weighed: then it is written down.
    until("the liar is named", || named().is_some_and(|one| one["bans"] != 0));
    assert_eq!(node.stop(), 0);
    let told = named().unwrap();
    assert!(told["hostile"].as_u64() > Some(0) && told["bans"].as_u64() > Some(0), "{told}");
    let told = home.run(&["doctor", "--market"]);
    assert!(told.stdout.contains(&format!("{liar} lies: ")), "{told:?}");
}
