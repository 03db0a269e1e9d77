//! What the agents of a node can call: in its sandbox, in its ledger, on the market. Each call happens once, whoever
//! dies.
#![expect(clippy::unwrap_used, reason = "a test stops where its set-up fails")]

use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;
use crate::thinker::Thinker;

/// An agent that may call these tools.
fn profile(home: &Home, tools: &[&str]) -> String {
    let text = format!(
        "name = \"caller\"\nsystem_prompt = \"Call.\"\nmodel = \"here/thinker\"\ntools = {tools:?}\n"
    );
    home.write("caller.toml", text).to_str().unwrap().to_owned()
}

/// Calls tools, one after the other; what each call gave, in order.
fn call(home: &Home, allowed: &[&str], calls: &[(&str, Value)]) -> Vec<Value> {
    let told = ask(home, allowed, calls, &[]);
    assert_eq!(told["turn"]["outcome"], "success", "{told}");
    results(home, told["turn"]["agent_turn_id"].as_str().unwrap())
}

fn ask(home: &Home, allowed: &[&str], calls: &[(&str, Value)], more: &[&str]) -> Value {
    let lines: Vec<String> =
        calls.iter().map(|(name, asked)| format!("call {name} {asked}")).collect();
    let (profile, task) = (profile(home, allowed), lines.join("\n"));
    let args = ["agent", "run", "--profile", &profile, "--task", &task];
    let (code, told) = home.json(&[&args[..], more].concat());
    assert_eq!(code, 0, "{told}");
    told
}

/// What the calls of a turn gave.
fn results(home: &Home, id: &str) -> Vec<Value> {
    let (code, shown) = home.json(&["turn", "show", id]);
    assert_eq!(code, 0, "{shown}");
    let cards = shown["cards"].as_array().unwrap().iter();
    cards.filter(|card| card["type"] == "tool.result").map(|card| card["content"].clone()).collect()
}

fn status(home: &Home, id: &str) -> String {
    let (_, shown) = home.json(&["turn", "show", id]);
    shown["turn"]["status"].as_str().unwrap().to_owned()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = (0..600).any(|_| {
        let holds = holds();
        if !holds {
            testbed::wait_ms(50);
        }
        holds
    });
    assert!(held, "{what}");
}

#[test]
fn an_agent_runs_commands_in_a_sandbox_and_reads_the_wallet() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let node = Node::up(&home, &ANY_PORT);
    let command = "cat a/b.txt; echo made > new.txt; echo oops >&2; exit 3";
    let told = call(
        &home,
        &["sandbox_run", "ledger_balance"],
        &[
            ("sandbox_run", json!({ "command": command, "files": { "a/b.txt": "hello" } })),
            ("ledger_balance", json!({})),
            ("ledger_balance", json!({ "account": "somebody/else" })),
            ("sandbox_run", json!({ "command": "true", "files": { "../x": "" } })),
            ("hire", json!({})),
        ],
    );
    let ran = &told[0]["result"];
    assert_eq!((&told[0]["status"], &ran["exit_code"]), (&json!("success"), &json!(3)), "{told:?}");
    assert_eq!(ran["stdout"], json!({ "text": "hello", "is_cut": false }));
    assert_eq!(ran["stderr"]["text"], "oops\n");
    assert_eq!(ran["files"][0]["path"], "/workspace/new.txt");
    let wallet = json!({
        "account": "node/wallet", "asset_id": "BTC_LN",
        "units": "0", "held_units": "0", "free_units": "0",
    });
    assert_eq!(told[1]["result"], wallet);
    let code = |at: usize| told[at]["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(code(2), "tool.arguments_malformed");
    assert_eq!(code(3), "market.run_malformed");
    assert_eq!(code(4), "kernel.unknown_tool", "it is in no setting and in no profile");
    // What a profile does not allow is not there for its agents.
    let told = call(&home, &["ledger_balance"], &[("sandbox_run", json!({ "command": "true" }))]);
    assert_eq!(told[0]["error"]["code"], "kernel.unknown_tool");
    assert_eq!(node.stop(), 0);
    assert_eq!(home.run(&["audit"]).code, 0);
}

#[test]
fn without_a_sandbox_nothing_runs_and_limits_end_what_does() {
    let (home, thinker) = (Home::new(), Thinker::start());
    thinker.tell(&home);
    let broken = ["--set", "sandbox.backend=oci", "--set", "sandbox.runtime=/no/such/runtime"];
    let node = Node::up(&home, &[&ANY_PORT[..], &broken].concat());
    let wish = || ("sandbox_run", json!({ "command": "echo here" }));
    let told = call(&home, &["sandbox_run"], &[wish()]);
    assert_eq!(told[0]["error"]["code"], "tool.no_sandbox", "{told:?}");
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("/no/such/runtime"), "{told:?}");
    assert_eq!(node.stop(), 0);
    let small = ["--set", "sandbox_run.max_timeout_s=1"];
    let node = Node::up(&home, &[&ANY_PORT[..], &small].concat());
    let loops = ("sandbox_run", json!({ "command": "echo begun; sleep 600" }));
    let greedy = ("sandbox_run", json!({ "command": "true", "timeout_s": 2 }));
    let told = call(&home, &["sandbox_run"], &[wish(), loops, greedy]);
    assert_eq!(told[0]["result"]["stdout"]["text"], "here\n", "{told:?}");
    assert_eq!(
        (&told[1]["status"], &told[1]["error"]["code"]),
        (&json!("timeout"), &json!("tool.limit_reached"))
    );
    assert_eq!(told[2]["error"]["code"], "market.limits_exceeded");
    assert_eq!(node.stop(), 0);
    let bad = home.run(&["up", "--set", "kernel.tools=sandbox_run,shell"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(
        bad.stderr.contains("kernel.tools") && bad.stderr.contains("ledger_balance"),
        "{bad:?}"
    );
}

/// A turn whose node was killed between the call of a command and its result. A host that is very busy may need several
/// tries to come in between.
fn killed_in_between(home: &Home) -> String {
    let wish = [("sandbox_run", json!({ "command": "sleep 3; echo done" }))];
    let turn = || {
        let node = Node::up(home, &ANY_PORT);
        let asked = ask(home, &["sandbox_run"], &wish, &["--no-wait"]);
        let id = asked["agent_turn_id"].as_str().unwrap().to_owned();
        until("it waits for its command", || {
            ["suspended", "closed"].contains(&status(home, &id).as_str())
        });
        node.kill();
        results(home, &id).is_empty().then_some(id)
    };
    (0..10).find_map(|_| turn()).unwrap()
}

#[test]
fn a_command_whose_node_is_killed_has_one_result() {
    let (home, thinker) = (Home::new().with("GUILD_KERNEL_LEASE_MS", "2000"), Thinker::start());
    thinker.tell(&home);
    let id = killed_in_between(&home);
    let asked = thinker.asked();
    let node = Node::up(&home, &ANY_PORT);
    let (code, told) = home.json(&["turn", "watch", &id]);
    assert_eq!((code, &told["turn"]["outcome"]), (0, &json!("success")), "{told}");
    let results = results(&home, &id);
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0]["result"]["stdout"]["text"], "done\n");
    assert_eq!(thinker.asked(), asked + 1, "the step before the call was not taken again");
    assert_eq!(node.stop(), 0);
    assert_eq!(home.run(&["audit"]).code, 0);
}

/// A relay that stays, somebody who works there, and a node whose agents hire.
struct Market {
    relay: (Home, Node),
    worker: Home,
    npub: String,
    buyer: Home,
    thinker: Thinker,
}

const HIRING: [&str; 6] = [
    "--set",
    "provider.enabled=false",
    "--set",
    "kernel.tools=hire,ledger_balance",
    "--set",
    "kernel.hire_max_msat=2000",
];

impl Market {
    fn open() -> Market {
        let home = Home::new();
        let quiet = [&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat();
        let node = Node::up(&home, &quiet);
        let url = format!("ws://{}/relay", node.address());
        let member = || Home::new().with("GUILD_NETWORK_RELAYS", &url);
        let (worker, buyer) = (member(), member().with("GUILD_KERNEL_LEASE_MS", "2000"));
        let first = Node::up(&worker, &ANY_PORT);
        let npub = first.ready["provider"].as_str().unwrap().to_owned();
        assert_eq!(first.stop(), 0);
        let thinker = Thinker::start();
        thinker.tell(&buyer);
        Market { relay: (home, node), worker, npub, buyer, thinker }
    }

    fn hiring(&self) -> Node {
        Node::up(&self.buyer, &[&ANY_PORT[..], &HIRING].concat())
    }

    fn fund(&self) {
        let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
        let run = self.buyer.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "5000"]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    }

    fn wish(&self, budget_msat: i64) -> (&'static str, Value) {
        let input = json!({ "texts": ["hello"] });
        let wish = json!({
            "schema_id": "oa.embedding.v1", "input": input, "budget_msat": budget_msat,
            "provider": self.npub,
        });
        ("hire", wish)
    }

    fn orders(&self) -> usize {
        self.buyer.json(&["requests", "ls"]).1["requests"].as_array().unwrap().len()
    }
}

const MAY_HIRE: [&str; 2] = ["hire", "ledger_balance"];

#[test]
fn an_agent_hires_within_its_budget() {
    let market = Market::open();
    let (worker, buyer) = (Node::up(&market.worker, &ANY_PORT), market.hiring());
    let refused = call(&market.buyer, &MAY_HIRE, &[market.wish(1_000)]);
    assert_eq!(refused[0]["error"]["code"], "market.wallet_empty", "{refused:?}");
    market.fund();
    let told = call(
        &market.buyer,
        &MAY_HIRE,
        &[
            market.wish(2_001),
            market.wish(1_000),
            ("ledger_balance", json!({})),
            ("hire", json!({ "schema_id": "oa.nothing.v1", "input": {} })),
            ("hire", json!({ "schema_id": "oa.embedding.v1", "input": {}, "provider": "me" })),
        ],
    );
    let code = |at: usize| told[at]["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(code(0), "tool.budget_exceeded");
    let hired = &told[1]["result"];
    assert_eq!(
        (&hired["state"], &hired["paid_msat"]),
        (&json!("released"), &json!(1_000)),
        "{told:?}"
    );
    assert_eq!(hired["output"]["model_id"], "guild-hash-v1");
    assert_eq!(
        (&hired["provider"], &told[2]["result"]["free_units"]),
        (&json!(market.npub), &json!("4000"))
    );
    assert_eq!([code(3), code(4)], ["schema.unknown", "tool.arguments_malformed"]);
    assert_eq!(market.orders(), 1, "one order was placed, whatever else was asked for");
    for node in [worker, buyer, market.relay.1] {
        assert_eq!(node.stop(), 0);
    }
    assert_eq!(market.buyer.run(&["audit"]).code, 0);
}

/// The node dies after its agent has ordered and before anybody has worked: it goes on waiting for the same order.
#[test]
fn an_order_whose_node_is_killed_is_placed_once() {
    let market = Market::open();
    let buyer = market.hiring();
    market.fund();
    let asked = ask(&market.buyer, &MAY_HIRE, &[market.wish(1_000)], &["--no-wait"]);
    let id = asked["agent_turn_id"].as_str().unwrap();
    until("it has ordered", || market.orders() == 1);
    buyer.kill();
    assert!(results(&market.buyer, id).is_empty(), "killed between the call and its result");
    let buyer = market.hiring();
    // Only now is there somebody who could do it.
    let worker = Node::up(&market.worker, &ANY_PORT);
    let (code, told) = market.buyer.json(&["turn", "watch", id]);
    assert_eq!((code, &told["turn"]["outcome"]), (0, &json!("success")), "{told}");
    let results = results(&market.buyer, id);
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0]["result"]["state"], "released", "{results:?}");
    assert_eq!(market.orders(), 1, "hired once");
    let (_, receipts) = market.buyer.json(&["receipts", "ls"]);
    assert_eq!(receipts["receipts"].as_array().unwrap().len(), 1, "paid once");
    assert_eq!(market.thinker.asked(), 2);
    for node in [worker, buyer, market.relay.1] {
        assert_eq!(node.stop(), 0);
    }
    assert_eq!(market.buyer.run(&["audit"]).code, 0);
}
