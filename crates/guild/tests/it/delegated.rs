//! One piece of work that providers of different make do side by side, at two relays of different make.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use std::collections::BTreeMap;

use guild_protocol::identity::PublicKey;
use serde_json::{Value, json};
use testbed::{NostrDvm, NostrRelay};

use crate::node::{ANY_PORT, Node};
use crate::stranger::Stranger;
use crate::support::Home;
use crate::thinker::Thinker;

/// A node that works and whose relay is one of two, a relay of another make, and a node that hires at both.
struct Square {
    home: Home,
    buyer: Node,
    _at_home: Home,
    worker: Node,
    ours: String,
    theirs: NostrRelay,
}

impl Square {
    fn new(settle: impl FnOnce(&Home), more: &[&str]) -> Square {
        let at_home = Home::new();
        let worker = Node::up(&at_home, &ANY_PORT);
        let ours = format!("ws://{}/relay", worker.address());
        let theirs = NostrRelay::start().unwrap();
        let relays = format!("{ours},{}", theirs.url());
        let home = Home::new().with("GUILD_NETWORK_RELAYS", &relays);
        settle(&home);
        let only_buys = [&ANY_PORT[..], &["--set", "provider.enabled=false"], more].concat();
        let buyer = Node::up(&home, &only_buys);
        let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
        let run = home.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "100000"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        Square { home, buyer, _at_home: at_home, worker, ours, theirs }
    }

    /// Waits until as many are known who do this work.
    fn until_known(&self, schema: &str, count: usize) {
        let known = || {
            let (_, told) = self.home.json(&["providers", "ls", "--schema", schema]);
            told["providers"].as_array().unwrap().len()
        };
        let waited = (0..600).inspect(|_| testbed::wait_ms(100)).find(|_| known() >= count);
        assert!(waited.is_some(), "{} of {count} are known", known());
    }

    /// Hires several; how it ended, and what each of them has come to by its key.
    fn delegate(&self, args: &[&str]) -> (Value, BTreeMap<String, Value>) {
        let (code, told) = self.home.json(&[&["hire"], args].concat());
        assert_eq!((code, &told["state"]), (0, &"decided".into()), "{told}");
        let replicas = told["replicas"].as_array().unwrap().iter();
        let by_key = |one: &Value| (one["provider"].as_str().unwrap().to_owned(), one.clone());
        (told.clone(), replicas.map(by_key).collect())
    }

    /// What is owed to others by now, in msat.
    fn payable(&self) -> i64 {
        let (_, told) = self.home.json(&["ledger", "accounts"]);
        let accounts = told["accounts"].as_array().unwrap().iter();
        let owed = accounts.filter(|account| account["purpose"] == "payable");
        owed.map(|account| account["units"].as_str().unwrap().parse::<i64>().unwrap()).sum()
    }

    /// How far somebody is trusted, if anything is known of its work.
    fn trust(&self, npub: &str, schema: &str) -> Option<u64> {
        let (code, shown) = self.home.json(&["providers", "show", npub]);
        assert_eq!(code, 0, "{shown}");
        let mut stances = shown["routing"].as_array().unwrap().iter();
        let stance = stances.find(|stance| stance["task"] == schema)?;
        stance["entry"]["trust_bp"].as_u64()
    }

    fn end(self) {
        assert_eq!(self.home.run(&["audit"]).code, 0);
        assert_eq!((self.buyer.stop(), self.worker.stop()), (0, 0));
    }
}

/// What somebody says who has a directory and nothing else.
fn audit(directory: &std::path::Path) -> (i32, Value) {
    Home::new().json(&["audit", "--evidence", directory.to_str().unwrap()])
}

/// Ours, one on nostr-tools and one on nostr-dvm say the same; two on nostr-tools collude. All three who are honest are
/// needed for a quorum of five.
#[test]
fn five_of_three_makes_do_one_job_and_two_of_them_lie() {
    const EMBEDDING: &str = "oa.embedding.v1";
    let square = Square::new(|_| (), &[]);
    let (ours, theirs) = (square.ours.as_str(), square.theirs.url());
    let honest = Stranger::at_work(&theirs, &["700", "99"]);
    let liars = [(ours, "600"), (&theirs, "650")]
        .map(|(relay, price)| Stranger::at_work(relay, &[price, "99", EMBEDDING, "liar"]));
    let foreign = NostrDvm::embedding(&theirs, 5050).unwrap();
    square.until_known(EMBEDDING, 5);
    let python: PublicKey = foreign.public_key().unwrap().trim().parse().unwrap();
    let node = square.worker.ready["provider"].as_str().unwrap().to_owned();
    let good = [node, honest.key.npub(), python.npub()];
    let bad = liars.each_ref().map(|liar| liar.key.npub());

    let subjective = json!({"mode": "subjective"});
    let input = json!({"texts": ["Grüße 😀 42"], "dimensions": 12, "verification": subjective});
    let input = input.to_string();
    let work = ["--schema", EMBEDDING, "--input", &input, "--criticality", "critical"];
    let (told, replicas) = square.delegate(&[&work[..], &["--budget", "40sat"]].concat());
    assert_eq!((told["wanted"].as_u64(), told["needed"].as_u64()), (Some(5), Some(3)), "{told}");
    let prices = [1_000, 700, 900];
    for (npub, price) in good.iter().zip(prices) {
        let one = &replicas[npub];
        let paid = (&one["standing"], &one["paid_msat"]);
        assert_eq!(paid, (&"agrees".into(), &price.into()), "{}\n{one}", foreign.log());
    }
    for npub in &bad {
        let one = &replicas[npub];
        // It may be decided before a lie is there.
        let standing = one["standing"].as_str().unwrap();
        assert!(["differs", "late", "cancelled"].contains(&standing), "{one}");
        assert_eq!(one["paid_msat"].as_i64().unwrap_or(0), 0, "{one}");
    }
    assert_eq!((&told["paid_msat"], square.payable()), (&2_600.into(), 2_600), "{told}");
    // Whoever lied is trusted less than whoever did not.
    let least = good.iter().map(|npub| square.trust(npub, EMBEDDING).unwrap()).min().unwrap();
    for npub in &bad {
        assert!(square.trust(npub, EMBEDDING).is_none_or(|trust| trust < least), "{npub}");
    }
    // A stranger who has nothing but the files finds nothing wrong with them.
    let request = replicas[&good[1]]["request_id"].as_str().unwrap();
    let to = square.home.path().join("evidence");
    let export = ["evidence", "export", request, "--to", to.to_str().unwrap()];
    assert_eq!(square.home.json(&export).0, 0);
    let (code, answer) = audit(&to);
    assert_eq!((code, &answer["holds"]), (0, &true.into()), "{answer}");
    square.end();
}

/// Nobody agrees, and nobody can check it: a model behind an endpoint chooses.
#[test]
fn a_model_behind_an_endpoint_chooses_where_nobody_agrees() {
    const RERANK: &str = "oa.retrieval_rerank.v1";
    let thinker = Thinker::start();
    let settings = ["--set", "market.judge_model=here/thinker"];
    let square = Square::new(|home| thinker.tell(home), &settings);
    let honest = Stranger::at_work(&square.ours, &["700", "99", RERANK]);
    let liar = Stranger::at_work(&square.theirs.url(), &["600", "99", RERANK, "liar"]);
    square.until_known(RERANK, 2);
    let candidates =
        ["right", "second", "third", "fourth"].map(|id| json!({"id": id, "content": id}));
    let input = json!({"user_task": "what is right", "candidates": candidates, "k": 4}).to_string();
    let work = ["--schema", RERANK, "--input", &input, "--criticality", "medium"];
    let (told, replicas) = square.delegate(&[&work[..], &["--budget", "10sat"]].concat());
    assert_eq!((&told["decided_by"], thinker.asked()), (&"judge".into(), 1), "{told}");
    assert_eq!(told["output"]["topk"][0]["id"], "right", "{told}");
    let standing = |one: &Stranger| replicas[&one.key.npub()]["standing"].clone();
    assert_eq!((standing(&honest), standing(&liar)), ("agrees".into(), "differs".into()));
    assert_eq!((&told["paid_msat"], square.payable()), (&700.into(), 700), "{told}");
    square.end();
}
