//! Two nodes that are real processes: one hires, the other works.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use serde_json::Value;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const WORK: [&str; 4] = ["--schema", "oa.embedding.v1", "--input", r#"{"texts":["hello"]}"#];

/// A node with a relay that works, and the home of a buyer that knows the relay and has money.
struct Pair {
    worker: Home,
    node: Node,
    buyer: Home,
}

impl Pair {
    fn new(more: &[&str]) -> Pair {
        let worker = Home::new();
        let node = Node::up(&worker, &[&ANY_PORT, more].concat());
        let relay = format!("ws://{}/relay", node.address());
        let buyer = Home::new().with("GUILD_NETWORK_RELAYS", &relay);
        Pair { worker, node, buyer }
    }

    fn funded(more: &[&str]) -> Pair {
        let pair = Pair::new(more);
        let buyer =
            Node::up(&pair.buyer, &[&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat());
        pair.fund();
        assert_eq!(buyer.stop(), 0);
        pair
    }

    fn fund(&self) {
        let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
        let run = self.buyer.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "10000"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    }

    fn hire(&self, more: &[&str]) -> (i32, Value) {
        self.buyer.json(&[&["hire"], &WORK[..], more].concat())
    }
}

fn code_of(told: &Value) -> &str {
    told["error"]["code"].as_str().unwrap()
}

/// The way of a newcomer: hiring says that the wallet is empty, the command that it names funds it, then it works.
#[test]
fn a_newcomer_hires_somebody_over_a_relay() {
    let pair = Pair::new(&["--set", "provider.name=Wanda"]);
    let (code, told) = pair.hire(&[]);
    assert_eq!((code, code_of(&told)), (2, "market.wallet_empty"), "{told}");
    pair.fund();
    let (code, told) = pair.hire(&["--key", "first", "--output", "vectors.json"]);
    assert_eq!((code, &told["state"], &told["paid_msat"]), (0, &"released".into(), &1_000.into()));
    assert_eq!(told["output"]["model_id"], "guild-hash-v1");
    let written = std::fs::read(pair.buyer.path().join("vectors.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), told["output"]);
    // The same key is the same order: nobody is hired twice.
    let (code, again) = pair.hire(&["--key", "first"]);
    assert_eq!((code, &again["order_id"]), (0, &told["order_id"]));
    let receipt = told["receipt_id"].as_str().unwrap();
    let (code, checked) = pair.buyer.json(&["receipts", "verify", receipt]);
    assert_eq!((code, &checked["receipt_id"]), (0, &told["receipt_id"]));
    // The worker has the same receipt, and both tell the story of the same request.
    let request = told["request_id"].as_str().unwrap();
    for (home, side) in [(&pair.buyer, "bought"), (&pair.worker, "hired")] {
        let (_, list) = home.json(&["requests", "ls"]);
        assert_eq!(list["requests"][0]["request_id"], request);
        let (_, story) = home.json(&["requests", "show", request]);
        assert_eq!(story["request"]["side"], side);
        let (_, kept) = home.json(&["receipts", "ls"]);
        assert_eq!(kept["receipts"][0]["receipt_id"], receipt);
    }
    let (_, providers) = pair.buyer.json(&["providers", "ls", "--schema", "oa.embedding.v1"]);
    assert_eq!(providers["providers"][0]["provider"]["name"], "Wanda");
    let npub = providers["providers"][0]["provider"]["npub"].as_str().unwrap();
    let (_, provider) = pair.buyer.json(&["providers", "show", npub]);
    assert_eq!(provider["record"]["released"], 1);
    it_was_learnt_of(&pair, npub, told["order_id"].as_str().unwrap());
    let run = pair.buyer.run(&["receipts", "export", receipt, "proof"]);
    assert_eq!(run.code, 0, "{run:?}");
    let replay = ["replay", "verify", "proof/REPLAY.jsonl", "--receipt", "proof/receipt.json"];
    assert_eq!(pair.buyer.run(&replay).code, 0);
    assert_eq!(pair.node.stop(), 0);
}

/// The job is in the routing log, its copies are here, and the next one is chosen by it.
fn it_was_learnt_of(pair: &Pair, npub: &str, order_id: &str) {
    let (code, log) = pair.buyer.json(&["route", "log", "--task", "oa.embedding.v1"]);
    assert_eq!(code, 0, "{log}");
    let told: Vec<_> = log["rows"].as_array().unwrap().iter().map(|row| &row["what"]).collect();
    assert_eq!(told, ["SUCCESS", "assigned", "admitted"]);
    let row = &log["rows"][0];
    assert_eq!(row["key"], format!("order:{order_id}:ended"));
    assert_eq!((&row["before"]["trust_bp"], &row["provider"]), (&4_500.into(), &npub.into()));
    assert_eq!((&row["after"]["status"], &row["whole"]), (&"CONDITIONAL".into(), &true.into()));
    let (code, checked) = pair.buyer.json(&["route", "verify", "--copies"]);
    assert_eq!((code, &checked["rows"]), (0, &3.into()), "{checked}");
    assert!(checked["copies"]["same"].as_u64().unwrap() >= 1, "{checked}");
    let (_, listed) = pair.buyer.json(&["providers", "ls", "--status", "conditional"]);
    assert_eq!(listed["providers"][0]["routing"][0]["tier"], "tertiary", "{listed}");
    let (_, listed) = pair.buyer.json(&["providers", "ls", "--tier", "primary"]);
    assert_eq!(listed["providers"], serde_json::json!([]));
    let shut = |more: &[&str]| {
        let quarantine = ["providers", "quarantine", npub, "--reason", "a test"];
        pair.buyer.json(&[&quarantine[..], more].concat())
    };
    let (code, told) = shut(&["--for", "30d"]);
    assert_eq!((code, &told["entries"][0]["entry"]["status"]), (0, &"QUARANTINED".into()));
    let (code, told) = pair.hire(&[]);
    assert_eq!((code, code_of(&told)), (2, "buyer.no_provider"), "{told}");
    assert_eq!(shut(&["--lift"]).0, 0);
    let (code, told) = shut(&["--task", "other"]);
    assert_eq!((code, code_of(&told)), (2, "route.quarantine_refused"), "{told}");
    let hire = [&["hire", "--explain", "--policy", "thompson"], &WORK[..]].concat();
    let run = pair.buyer.run(&hire);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains(&format!("thompson: {npub}")), "{run:?}");
    let (_, shown) = pair.buyer.json(&["providers", "show", npub]);
    assert_eq!(
        (&shown["routing"][0]["entry"]["jobs"], &shown["trust"][0]["task"]),
        (&2.into(), &"oa.embedding.v1".into())
    );
}

#[test]
fn a_private_job_through_a_running_node_is_told_step_by_step() {
    let pair = Pair::funded(&[]);
    let buyer =
        Node::up(&pair.buyer, &[&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat());
    // It has just connected, and may not have heard yet who works there.
    let mut run = pair.buyer.run(&[&["hire", "--private"], &WORK[..]].concat());
    for _ in 0..100 {
        if run.code != 2 {
            break;
        }
        testbed::wait_ms(100);
        run = pair.buyer.run(&[&["hire", "--private"], &WORK[..]].concat());
    }
    assert_eq!(run.code, 0, "{run:?}");
    for step in ["· posted as ", "· delivered by npub1", "· checked: all 6 checks hold"] {
        assert!(run.stderr.contains(step), "{step} is not in {run:?}");
    }
    // What was made is the answer; what happened stands beside it.
    assert!(run.stderr.contains("\nresult    accepted and paid\npaid      1 sat\n"), "{run:?}");
    let output: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(output["model_id"], "guild-hash-v1");
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    let request = list["requests"][0]["request_id"].as_str().unwrap();
    assert!(run.stderr.contains(&format!("· posted as {request}, ")), "whole: {run:?}");
    // And it is there later.
    let again = pair.buyer.run(&["requests", "result", request]);
    assert_eq!((again.code, again.stdout), (0, run.stdout));
    assert_eq!((buyer.stop(), pair.node.stop()), (0, 0));
}

/// What could not be written when all is paid is said before anything is ordered.
#[test]
fn a_file_that_cannot_be_written_orders_nothing() {
    let pair = Pair::funded(&[]);
    pair.buyer.write("there.json", "mine");
    for (path, name) in [("there.json", "io.exists"), ("no/such/place", "io.not_found")] {
        let (code, told) = pair.hire(&["--output", path]);
        assert_eq!((code, code_of(&told)), (2, name), "{told}");
    }
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    assert_eq!(list["requests"], serde_json::json!([]));
    assert_eq!(std::fs::read(pair.buyer.path().join("there.json")).unwrap(), b"mine");
    assert_eq!(pair.node.stop(), 0);
}

#[test]
fn what_cannot_be_ordered_is_refused() {
    let pair = Pair::funded(&["--set", "provider.price_msat=5000"]);
    let refusals: [(&[&str], i32, &str); 5] = [
        (&["--budget", "1sat"], 2, "buyer.no_provider"),
        (&["--provider", "somebody"], 2, "gateway.bad_request"),
        (&["--budget", "11sat"], 2, "market.wallet_empty"),
        (&["--budget", "9999sat"], 2, "quote.denied"),
        (&["--budget", "5sat", "--deadline", "9000d"], 2, "market.order_malformed"),
    ];
    for (more, exit, name) in refusals {
        let (code, told) = pair.hire(more);
        assert_eq!((code, code_of(&told)), (exit, name), "{more:?}: {told}");
    }
    let unknown = ["hire", "--schema", "oa.nothing.v1", "--input", "{}"];
    let (code, told) = pair.buyer.json(&unknown);
    assert_eq!((code, code_of(&told)), (2, "schema.unknown"), "{told}");
    let wrong = ["hire", "--schema", "oa.embedding.v1", "--input", r#"{"texts":[]}"#];
    assert_eq!(pair.buyer.json(&wrong).0, 2);
    for (args, name) in [
        (["requests", "show", &"0".repeat(64)], "market.unknown"),
        (["receipts", "show", &format!("rcpt_{}", "0".repeat(64))], "market.unknown"),
    ] {
        let (code, told) = pair.buyer.json(&args);
        assert_eq!((code, code_of(&told)), (2, name), "{args:?}");
    }
    assert_eq!(pair.node.stop(), 0);
}

/// Several are asked for one budget. Where there is one only, that is said; or it is enough.
#[test]
fn work_that_matters_is_given_to_several() {
    let pair = Pair::funded(&[]);
    let high = ["--criticality", "high"];
    let with = |more: &[&str]| pair.hire(&[&high[..], more].concat());
    let (code, told) = with(&[]);
    assert_eq!((code, code_of(&told)), (2, "delegation.malformed"), "{told}");
    let (code, told) = with(&["--budget", "6sat"]);
    assert_eq!((code, code_of(&told)), (2, "delegation.too_few"), "{told}");
    let (code, told) = with(&["--budget", "6sat", "--fewer-ok"]);
    assert_eq!((code, &told["state"]), (0, &"decided".into()), "{told}");
    assert_eq!(told["replicas"][0]["paid_msat"], 1_000, "{told}");
    assert_eq!(pair.buyer.run(&["audit"]).code, 0);
    assert_eq!(pair.node.stop(), 0);
}

/// Nobody who is there can do it in time: the order ends, and the money is free again.
#[test]
fn an_order_that_nobody_takes_expires() {
    let pair = Pair::funded(&[]);
    let (_, stranger) = pair.buyer.json(&["key", "show"]);
    let stranger = stranger["npub"].as_str().unwrap();
    let (code, told) = pair.hire(&["--provider", stranger, "--deadline", "1s"]);
    assert_eq!((code, &told["state"]), (1, &"expired".into()), "{told}");
    // It asked everybody to forget the request; its own list still says what became of it.
    let request = told["request_id"].as_str().unwrap();
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    let line = &list["requests"][0];
    assert_eq!((&line["request_id"], &line["standing"]), (&request.into(), &"expired".into()));
    let (code, result) = pair.buyer.json(&["requests", "result", request]);
    assert_eq!((code, &result["state"], &result["output"]), (1, &"expired".into(), &Value::Null));
    let (code, told) = pair.hire(&["--budget", "10sat"]);
    assert_eq!((code, &told["state"]), (0, &"released".into()), "{told}");
    assert_eq!(pair.node.stop(), 0);
}

/// By a command, through the node that runs or without one.
#[test]
fn an_order_is_given_up() {
    let pair = Pair::funded(&[]);
    let (_, stranger) = pair.buyer.json(&["key", "show"]);
    let stranger = stranger["npub"].as_str().unwrap();
    let quiet = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let buyer = Node::up(&pair.buyer, &quiet);
    let post = || {
        let (code, posted) = pair.hire(&["--provider", stranger, "--budget", "5sat", "--no-wait"]);
        assert_eq!((code, &posted["state"]), (0, &"posted".into()), "{posted}");
        posted
    };
    let id = |order: &Value, name: &str| order[name].as_str().unwrap().to_owned();
    let (first, second) = (post(), post());
    let (code, told) = pair.buyer.json(&["requests", "result", &id(&first, "request_id")]);
    assert_eq!((code, &told["output"]), (3, &Value::Null), "{told}");
    let cancel = |id: &str| pair.buyer.json(&["requests", "cancel", id]);
    for _ in 0..2 {
        let (code, told) = cancel(&id(&first, "request_id"));
        assert_eq!((code, &told["state"]), (0, &"cancelled".into()), "{told}");
    }
    assert_eq!(buyer.stop(), 0);
    let (code, told) = cancel(&id(&second, "order_id"));
    assert_eq!((code, &told["state"]), (0, &"cancelled".into()), "{told}");
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    let standings: Vec<_> =
        list["requests"].as_array().unwrap().iter().map(|line| &line["standing"]).collect();
    assert_eq!(standings, ["cancelled", "cancelled"]);
    // What is done cannot be given up, and what is not ours neither.
    let (_, done) = pair.hire(&["--budget", "10sat"]);
    let (code, told) = cancel(&id(&done, "request_id"));
    assert_eq!((code, code_of(&told)), (2, "market.order_closed"), "{told}");
    let (code, told) = cancel(&"0".repeat(64));
    assert_eq!((code, code_of(&told)), (2, "market.unknown"), "{told}");
    assert_eq!(pair.node.stop(), 0);
}

/// Starts `guild hire --json` of somebody who never answers, and waits until the order is there.
fn hire_in_vain(pair: &Pair, deadline: &str, before: usize) -> std::process::Child {
    let (_, stranger) = pair.buyer.json(&["key", "show"]);
    let more = ["--provider", stranger["npub"].as_str().unwrap(), "--deadline", deadline, "--json"];
    let mut command = pair.buyer.command(&[&["hire"], &WORK[..], &more].concat());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let ordered = (0..200).any(|_| {
        testbed::wait_ms(25);
        let (_, list) = pair.buyer.json(&["requests", "ls"]);
        list["requests"].as_array().is_some_and(|all| all.len() > before)
    });
    assert!(ordered, "nothing was ordered");
    child
}

fn end_of(child: std::process::Child) -> (Option<i32>, Value) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_node_that_is_restarted_does_not_end_the_wait() {
    let pair = Pair::funded(&[]);
    let quiet = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let buyer = Node::up(&pair.buyer, &quiet);
    let waiting = hire_in_vain(&pair, "6s", 0);
    buyer.kill();
    let buyer = Node::up(&pair.buyer, &quiet);
    let (code, told) = end_of(waiting);
    assert_eq!((code, &told["state"]), (Some(1), &"expired".into()), "{told}");
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    assert_eq!(list["requests"].as_array().unwrap().len(), 1, "ordered once");
    assert_eq!((buyer.stop(), pair.node.stop()), (0, 0));
}

/// Two commands and no node: the first is the node, and ends; the second goes on.
#[test]
fn a_command_goes_on_when_the_node_that_another_one_was_is_gone() {
    let pair = Pair::funded(&[]);
    let first = hire_in_vain(&pair, "2s", 0);
    let second = hire_in_vain(&pair, "5s", 1);
    for (child, which) in [(first, "first"), (second, "second")] {
        let (code, told) = end_of(child);
        assert_eq!((code, &told["state"]), (Some(1), &"expired".into()), "{which}: {told}");
    }
    let (_, list) = pair.buyer.json(&["requests", "ls"]);
    assert_eq!(list["requests"].as_array().unwrap().len(), 2);
    assert_eq!(pair.node.stop(), 0);
}

/// The policy asks a guardian: the same command, once that has signed, posts the order.
#[test]
fn an_order_waits_for_its_guardian() {
    let pair = Pair::funded(&[]);
    let guardian = Home::new();
    let (_, key) = guardian.json(&["key", "new"]);
    let policy = serde_json::json!({"schema_version": "guild.policy_bundle.v1", "name": "guarded",
        "caps": {}, "rules": [{"id": "ask", "when": {}, "action": "guardian", "guardian_key": key["npub"]}]});
    let file = pair.buyer.write("policy.json", policy.to_string());
    let guarded = ["--set", &format!("policy.file={}", file.display())];
    let hire = |key: &str| pair.hire(&[&guarded[..], &["--key", key]].concat());
    let waits = |key: &str| {
        let (code, told) = hire(key);
        assert_eq!((code, code_of(&told)), (2, "quote.not_approved"), "{told}");
        assert!(told["error"]["help"].as_str().unwrap().contains(&format!("`--key {key}`")));
        let message = told["error"]["message"].as_str().unwrap();
        message.split(' ').next().unwrap().to_owned()
    };
    let quote = waits("guarded");
    assert_eq!(waits("guarded"), quote, "the same is the same");
    // Not by whoever asks.
    let (code, told) = pair.buyer.json(&["policy", "approve", &quote]);
    assert_eq!((code, code_of(&told)), (2, "quote.wrong_guardian"), "{told}");
    let sign = |quote: &str, more: &[&str]| {
        let terms = pair.buyer.run(&["policy", "quote", quote]);
        assert_eq!(terms.code, 0, "{terms:?}");
        let args = [&["policy", "sign", "-"], more].concat();
        let signed = guardian.run_with_input(&args, terms.stdout.as_bytes());
        assert_eq!(signed.code, 0, "{signed:?}");
        signed
    };
    let signed = sign(&quote, &[]);
    assert!(
        signed.stderr.starts_with("approve: 2000 BTC_LN for oa.embedding.v1 by npub1"),
        "{signed:?}"
    );
    pair.buyer.write("approval.json", &signed.stdout);
    let approve = ["policy", "approve", &quote, "--approval", "approval.json"];
    for _ in 0..2 {
        let (code, told) = pair.buyer.json(&approve);
        assert_eq!((code, &told["state"]), (0, &"approved".into()), "{told}");
    }
    let (code, told) = hire("guarded");
    assert_eq!((code, &told["state"]), (0, &"released".into()), "{told}");
    // And a no is a no.
    let other = waits("other");
    pair.buyer.write("denial.json", sign(&other, &["--deny"]).stdout);
    let deny = ["policy", "approve", &other, "--approval", "denial.json"];
    let quiet = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let running = Node::up(&pair.buyer, &quiet);
    assert_eq!(pair.buyer.json(&deny).1["state"], "denied");
    let (code, told) =
        pair.buyer.json(&["policy", "approve", &other, "--approval", "approval.json"]);
    assert_eq!((code, code_of(&told)), (2, "quote.wrong_quote"), "{told}");
    assert_eq!(running.stop(), 0);
    let (code, told) = hire("other");
    assert_eq!((code, code_of(&told)), (2, "quote.denied"), "{told}");
    assert_eq!(pair.node.stop(), 0);
}

/// An order can be given up through the API, by whoever has the token; then the money is free again.
#[test]
fn an_order_is_given_up_by_who_may() {
    let pair = Pair::funded(&[]);
    let quiet = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
    let buyer = Node::up(&pair.buyer, &quiet);
    let (_, stranger) = pair.buyer.json(&["key", "show"]);
    let stranger = stranger["npub"].as_str().unwrap();
    let (code, posted) = pair.hire(&["--provider", stranger, "--budget", "10sat", "--no-wait"]);
    assert_eq!((code, &posted["state"]), (0, &"posted".into()), "{posted}");
    let file = pair.buyer.path().join(".local/share/guildhall/node.json");
    let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let url = format!(
        "{}/api/orders/{}",
        file["url"].as_str().unwrap(),
        posted["order_id"].as_str().unwrap()
    );
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let delete = |token: &str| {
        let authorization = format!("Bearer {token}");
        let mut answer = agent.delete(&url).header("authorization", authorization).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_json::<Value>().unwrap())
    };
    assert_eq!(delete("guessed").0, 403);
    assert_eq!(
        agent.get(&url).call().unwrap().status().as_u16(),
        403,
        "what was ordered is private"
    );
    for _ in 0..2 {
        let (status, order) = delete(file["token"].as_str().unwrap());
        assert_eq!((status, &order["state"]), (200, &"cancelled".into()), "{order}");
    }
    let (_, accounts) = pair.buyer.json(&["ledger", "accounts"]);
    let mut all = accounts["accounts"].as_array().unwrap().iter();
    let wallet = all.find(|account| account["purpose"] == "wallet").unwrap();
    assert_eq!(wallet["free_units"], "10000", "{wallet}");
    assert_eq!((buyer.stop(), pair.node.stop()), (0, 0));
}

/// A node that works and hires is no market: it pays itself only if it is told to.
#[test]
fn nobody_hires_itself_unless_it_is_named() {
    let home = Home::new();
    let node = Node::up(&home, &ANY_PORT);
    let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
    let run = home.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "10000"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let hire = [&["hire"], &WORK[..]].concat();
    let (code, told) = home.json(&hire);
    assert_eq!((code, code_of(&told)), (2, "buyer.no_provider"), "{told}");
    let itself = node.ready["provider"].as_str().unwrap();
    let (code, told) = home.json(&[&hire[..], &["--provider", itself]].concat());
    assert_eq!((code, &told["provider"]), (0, &itself.into()), "{told}");
    assert_eq!(node.stop(), 0);
}
