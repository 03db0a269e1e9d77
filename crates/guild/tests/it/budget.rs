//! `guild budget`, and what `guild hire` bids when nobody says how much.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

const WORK: [&str; 4] = ["--schema", "oa.embedding.v1", "--input", r#"{"texts":["hello"]}"#];

#[test]
fn envelopes_are_set_shown_and_taken_away_without_a_node() {
    let home = Home::new();
    let set = |more: &[&str]| home.run(&[&["budget", "set"], more].concat()).shown(&home);
    assert_snapshot!(set(&["oa.embedding.v1", "--daily", "2sat", "--monthly", "20sat"]), @r"
    exit 0
    --- stdout
    the envelope oa.embedding.v1 is set
    ");
    assert_snapshot!(set(&["oa.embedding.v1", "--daily", "2sat"]), @r"
    exit 0
    --- stdout
    the envelope oa.embedding.v1 is so already
    ");
    set(&["*", "--monthly", "500msat", "--priority", "-3", "--lends", "0", "--rolls", "100"]);
    assert_snapshot!(home.run(&["budget", "ls"]).shown(&home), @r"
    exit 0
    --- stdout
    work             priority  today    of  left  month     of   left
    *                      -3      0   500   500      0    500    500
    oa.embedding.v1         0      0  2000  2000      0  20000  20000
    --- stderr
    in millisatoshi; what is held for open orders counts as used
    ");
    let (code, told) = home.json(&["budget", "ls"]);
    let every = &told["envelopes"][0];
    assert_eq!((code, &every["task"], &every["lends_bp"]), (0, &"*".into(), &0.into()), "{told}");
    assert_eq!((&every["month"]["limit"], &every["rolls_bp"]), (&500.into(), &10_000.into()));
    assert_snapshot!(set(&["*", "--remove"]), @r"
    exit 0
    --- stdout
    the envelope * is taken away
    ");
    let (_, log) = home.json(&["budget", "log"]);
    let whats: Vec<&Value> =
        log["changes"].as_array().unwrap().iter().map(|row| &row["what"]).collect();
    assert_eq!(whats, ["removed", "set", "set"], "{log}");
    let (_, own) = home.json(&["budget", "log", "--task", "oa.embedding.v1"]);
    assert_eq!(own["changes"].as_array().unwrap().len(), 1, "{own}");
    assert_eq!(home.run(&["audit"]).code, 0);
}

#[test]
fn what_cannot_be_set_is_refused() {
    let home = Home::new();
    for more in [
        &["oa.embedding.v1"][..],
        &["oa.embedding.v1", "--daily", "five"],
        &["oa.embedding.v1", "--lends", "101"],
        &["two words", "--daily", "5sat"],
        &["oa.embedding.v1", "--remove", "--daily", "5sat"],
        &["oa.embedding.v1", "--priority", "3"],
        &["oa.embedding.v1", "--daily", "5sat", "--priority", "9999"],
    ] {
        let (code, told) = home.json(&[&["budget", "set"], more].concat());
        assert_eq!(code, 2, "{more:?}: {told}");
    }
    let (_, told) = home.json(&["budget", "ls"]);
    assert_eq!(told["envelopes"], json!([]));
}

/// The formula proposes a budget, the envelope lets it through or not, and what is paid is spent.
#[test]
fn hiring_bids_by_the_formula_within_the_envelope() {
    let worker = Home::new();
    let node = Node::up(&worker, &ANY_PORT);
    let buyer = Home::new().with("GUILD_NETWORK_RELAYS", &format!("ws://{}/relay", node.address()));
    let own = Node::up(&buyer, &[&ANY_PORT[..], &["--set", "provider.enabled=false"]].concat());
    let fund = ["ledger", "transfer", "--from", "outside/main", "--to", "node/wallet"];
    let run = buyer.run(&[&fund[..], &["--asset", "BTC_LN", "--units", "100000"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    // Through the node that runs.
    let set = |daily: &str| buyer.json(&["budget", "set", "oa.embedding.v1", "--daily", daily]);
    assert_eq!(set("3500msat").1["outcome"], "new");
    assert_eq!(set("3500msat").1["outcome"], "known");
    let hire = |more: &[&str]| buyer.json(&[&["hire"], &WORK[..], more].concat());
    let mut told = hire(&["--urgency", "urgent", "--target-trust", "0.6", "--key", "one"]);
    for _ in 0..100 {
        // It has just connected, and may not have heard yet who works there.
        if told.1["error"]["code"] != "buyer.no_provider" {
            break;
        }
        testbed::wait_ms(100);
        told = hire(&["--urgency", "urgent", "--target-trust", "0.6", "--key", "one"]);
    }
    let (code, told) = told;
    assert_eq!(
        (code, &told["budget_msat"], &told["paid_msat"]),
        (0, &3_300.into(), &1_000.into()),
        "{told}"
    );
    // The same order again: the same budget, whatever would be bid now.
    let (code, again) = hire(&["--key", "one"]);
    assert_eq!((code, &again["order_id"]), (0, &told["order_id"]), "{again}");
    let (_, listed) = buyer.json(&["budget", "ls"]);
    let today = &listed["envelopes"][0]["today"];
    assert_eq!((&today["held"], &today["spent"]), (&0.into(), &1_000.into()), "{listed}");
    // What would not fit is refused.
    let (code, refused) = hire(&["--urgency", "critical"]);
    assert_eq!(
        (code, &refused["error"]["code"]),
        (2, &"budget.envelope_empty".into()),
        "{refused}"
    );
    let both = hire(&["--urgency", "critical", "--budget", "1sat"]);
    assert_eq!(both.0, 2, "{both:?}");
    let explained = buyer.run(&[&["hire", "--explain"], &WORK[..]].concat());
    assert_eq!(explained.code, 0, "{explained:?}");
    let words = "bid: 2000 msat for oa.embedding.v1\n  base           2000 msat  the configured price, 1 of 10 \
                 outcomes are known";
    assert!(explained.stderr.contains(words), "{explained:?}");
    let (code, books) = buyer.json(&["audit"]);
    assert_eq!(
        (code, &books["envelopes"], &books["charges"]),
        (0, &1.into(), &2.into()),
        "{books}"
    );
    assert_eq!((own.stop(), node.stop()), (0, 0));
}
