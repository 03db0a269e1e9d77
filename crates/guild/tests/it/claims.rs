//! Two processes of one node on one PostgreSQL database: each job is done once, by one of them. One that is killed or
//! stopped in the middle is taken over by the other, and what it brings late changes nothing.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::process::{Child, Stdio};

use serde_json::{Value, json};
use testbed::Database;

use crate::explorer::counted;
use crate::key::KEYSTORE;
use crate::node::{ANY_PORT, Node};
use crate::sandbox_run::{fund, image_of, wait_until};
use crate::support::Home;

/// A node that buys, and two processes of one that works.
struct Town {
    buyer: Home,
    hall: Node,
    homes: [Home; 2],
    image: String,
    _database: Database,
}

const OFFERS: [&str; 6] = [
    "--set",
    "sandbox_run.enabled=true",
    "--set",
    "relay.enabled=false",
    "--set",
    "sandbox_run.price_msat=1000",
];

impl Town {
    fn new() -> Town {
        let buyer = Home::new();
        let only_buys = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
        let hall = Node::up(&buyer, &only_buys);
        fund(&buyer);
        let relay = format!("ws://{}/relay", hall.address());
        let database = Database::new().unwrap();
        let homes = [(); 2].map(|()| {
            Home::new()
                .with("GUILD_STORE_URL", &database.url())
                .with("GUILD_NETWORK_RELAYS", &relay)
        });
        assert_eq!(homes[0].run(&["key", "new"]).code, 0);
        homes[1].copy_private(&homes[0], KEYSTORE);
        let image = image_of(&buyer);
        Town { buyer, hall, homes, image, _database: database }
    }

    fn up(&self, which: usize) -> Node {
        Node::up(&self.homes[which], &[&ANY_PORT[..], &OFFERS].concat())
    }

    fn until_known(&self) {
        wait_until("the provider is known", || {
            let (_, known) = self.buyer.json(&["providers", "ls", "--schema", "oa.sandbox_run.v1"]);
            known["providers"].as_array().is_some_and(|all| !all.is_empty())
        });
    }

    /// Somebody who waits for this command's result.
    fn hire(&self, provider: &str, name: &str, line: &str) -> Child {
        let input = json!({"commands": [{"cmd": line}], "sandbox": {"image_digest": self.image}});
        let input = self.buyer.write(&format!("{name}.json"), input.to_string());
        let hire = ["hire", "--json", "--provider", provider, "--deadline", "180s"];
        let work = ["--schema", "oa.sandbox_run.v1", "--input", input.to_str().unwrap()];
        let mut command = self.buyer.command(&[&hire[..], &work].concat());
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    fn receipts(&self) -> usize {
        let (_, kept) = self.buyer.json(&["receipts", "ls"]);
        kept["receipts"].as_array().unwrap().len()
    }
}

fn paid(hired: Child) {
    let told = hired.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&told["state"], &told["paid_msat"]), (&"released".into(), &1_000.into()), "{told}");
}

/// How often the provider of this process has met this.
fn met(node: &Node, what: &str) -> u64 {
    let number = format!(r#"role_met_total{{role="provider",what="{what}"}}"#);
    counted(node, &number).unwrap_or(0)
}

/// The one that works on something, and the other.
fn by_work(nodes: [Node; 2], before: [u64; 2]) -> (Node, Node) {
    let begun = |nodes: &[Node; 2]| [met(&nodes[0], "job_begun"), met(&nodes[1], "job_begun")];
    wait_until("it is begun", || begun(&nodes) != before);
    let first = begun(&nodes)[0] > before[0];
    let [one, other] = nodes;
    if first { (one, other) } else { (other, one) }
}

#[test]
fn two_processes_do_each_job_once_whoever_is_killed_or_stopped() {
    const JOBS: u64 = 4;
    let town = Town::new();
    let nodes = [town.up(0), town.up(1)];
    let provider = nodes[0].ready["provider"].as_str().unwrap().to_owned();
    assert_eq!(nodes[1].ready["provider"], provider.as_str());
    town.until_known();
    let hired: Vec<Child> =
        (0..JOBS).map(|n| town.hire(&provider, &format!("job{n}"), "sleep 1")).collect();
    hired.into_iter().for_each(paid);
    let begun = [met(&nodes[0], "job_begun"), met(&nodes[1], "job_begun")];
    assert_eq!(begun.iter().sum::<u64>(), JOBS, "each was begun once: {begun:?}");
    assert!(begun.iter().all(|begun| *begun > 0), "both had a part in it: {begun:?}");

    // Stopped for longer than its claim lasts.
    let hired = town.hire(&provider, "stopped", "sleep 2");
    let (holder, other) = by_work(nodes, begun);
    let before = met(&other, "job_begun");
    holder.pause();
    paid(hired);
    assert_eq!(met(&other, "job_begun"), before + 1, "the other took it over");
    let receipts = town.receipts();
    holder.go_on();
    wait_until("it lets go", || met(&holder, "job_lost") + met(&holder, "job_known") == 1);
    assert_eq!(met(&holder, "job_delivered") + met(&other, "job_delivered"), JOBS + 1);
    assert_eq!((town.receipts(), receipts), (5, 5), "nothing came of it");

    // Killed in the middle.
    let begun = [met(&holder, "job_begun"), met(&other, "job_begun")];
    let hired = town.hire(&provider, "killed", "sleep 2");
    let (holder, other) = by_work([holder, other], begun);
    let before = met(&other, "job_begun");
    holder.kill();
    paid(hired);
    assert_eq!(met(&other, "job_begun"), before + 1);
    assert_eq!(town.receipts(), 6);
    assert_eq!((other.stop(), town.hall.stop()), (0, 0));
    let run = town.homes[0].run(&["ledger", "audit"]);
    assert_eq!(run.code, 0, "{run:?}");
}
