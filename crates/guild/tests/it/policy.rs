use std::fs;
use std::path::Path;

use insta::assert_snapshot;
use serde_json::json;

use crate::node::{ANY_PORT, Node};
use crate::support::Home;

/// The worked example of the documentation.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/policy.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    let (_, rest) = page.split_once("```json\n").unwrap_or_default();
    rest.split("```").next().unwrap_or_default().to_owned()
}

fn home() -> Home {
    let home = Home::new();
    home.write("studio.json", example());
    home
}

#[test]
fn a_good_policy_has_an_id() {
    let home = home();
    assert_snapshot!(home.run(&["policy", "check", "studio.json"]).shown(&home), @"
    exit 0
    --- stdout
    studio.json: a good policy, 3 rules
      policy_a535e647abaf41cd3bfaae1842ba87dbefc3b08bbf2be75f761535818727fab9
    ");
    let (_, checked) = home.json(&["policy", "check", "studio.json"]);
    let (_, hashed) = home.json(&["hash", "studio.json"]);
    let hash = hashed["hash"].as_str().unwrap_or_default().replace("sha256:", "policy_");
    assert_eq!(checked["policy_bundle_id"], hash);
    assert_eq!(checked["warnings"], json!([]));
}

#[test]
fn a_rule_that_never_decides_is_a_warning() {
    let home = home();
    let late = r#"{"id": "late", "when": {"schema_ids": ["oa.embedding.v1"], "provider_tiers": ["untrusted"]},
        "action": "auto"}, {"id": "embeddings""#;
    home.write("late.json", example().replace(r#"{"id": "embeddings""#, late));
    let run = home.run(&["policy", "check", "late.json"]);
    assert_eq!(run.code, 1);
    assert_eq!(
        run.stdout.lines().last(),
        Some("  WARNING  rules[1]: late never decides: all it could match is taken by untrusted")
    );
    let (code, answer) = home.json(&["policy", "check", "late.json"]);
    let warning = &answer["warnings"][0];
    assert_eq!(
        (code, &warning["at"], &warning["covered_by"]),
        (1, &json!("rules[1]"), &json!("untrusted"))
    );
}

#[test]
fn everything_wrong_is_listed_with_its_place() {
    let home = home();
    let bad = example().replace("\"untrusted\"]", "\"worst\"]").replace("2000000", "0");
    home.write("bad.json", bad);
    assert_snapshot!(home.run(&["policy", "check", "bad.json"]).shown(&home), @r#"
    exit 2
    --- stderr
    error[policy.bad_value]: "worst" is not primary, secondary, tertiary or untrusted
      --> bad.json, rules[0].when.provider_tiers[0]
    help: Correct the place named; docs/formats/policy.md lists what each field takes.
    error[policy.empty_range]: rules[1].when.amount.USD_MICRO.at_most must be 1 or more: there is no smaller payment
      --> bad.json, rules[1].when.amount.USD_MICRO.at_most
    help: Give at_least, at_most or both, the first not above the second; leave out a condition that is not meant.
    "#);
}

#[test]
fn a_policy_is_shown_as_a_table() {
    let home = home();
    assert_snapshot!(home.run(&["policy", "show", "studio.json"]).shown(&home), @"
    exit 0
    --- stdout
    policy  studio
    id      policy_a535e647abaf41cd3bfaae1842ba87dbefc3b08bbf2be75f761535818727fab9
    from    studio.json

    The first rule that matches decides:
       1  untrusted   deny      tier untrusted
       2  embeddings  auto      at most 2000000 USD_MICRO; schema oa.embedding.v1
       3  large       guardian  500001 to 50000000 USD_MICRO; rail ledger
                                approved by npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d
    If none matches:
          auto up to 500000 USD_MICRO
          deny everything else
    ");
}

#[test]
fn the_node_has_the_built_in_policy_until_it_is_told_another() {
    let home = home();
    let (_, own) = home.json(&["policy", "show"]);
    assert_eq!((&own["file"], &own["bundle"]["name"]), (&json!(null), &json!("default")));
    home.write(".local/share/guildhall/studio.json", example());
    home.write(".local/share/guildhall/guild.toml", "[policy]\nfile = \"studio.json\"\n");
    let (_, own) = home.json(&["policy", "show"]);
    assert_eq!(own["bundle"]["name"], "studio");
    let (code, decided) =
        home.json(&["policy", "decide", "--units", "500001", "--asset", "USD_MICRO"]);
    assert_eq!((code, &decided["approval_rule_id"]), (3, &json!("large")));
    let (code, gone) = home.json(&["policy", "show", "--set", "policy.file=gone.json"]);
    assert_eq!((code, &gone["error"]["code"]), (2, &json!("io.not_found")));
}

#[test]
fn the_default_policy_of_the_documentation_is_the_built_in_one() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/policy.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    let home = Home::new();
    let shown = home.run(&["policy", "show"]).stdout;
    assert!(page.contains(&shown), "docs/formats/policy.md does not show: {shown}");
}

#[test]
fn a_dry_run_says_what_would_happen() {
    let home = home();
    let decide = |units: &str, more: &[&str]| {
        let asked = ["policy", "decide", "studio.json", "--asset", "USD_MICRO", "--units", units];
        home.run(&[&asked, more].concat()).shown(&home)
    };
    assert_snapshot!(decide("500000", &[]), @"
    exit 0
    --- stdout
    500000 USD_MICRO goes through by itself: no rule matches, and 500000 USD_MICRO is within the cap of 500000
    ");
    assert_snapshot!(decide("500001", &["--tier", "primary"]), @"
    exit 3
    --- stdout
    500001 USD_MICRO waits for the approval of npub10xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqpkge6d: the rule large is the first that matches
    ");
    assert_snapshot!(decide("500001", &["--schema", "oa.embedding.v1"]), @"
    exit 0
    --- stdout
    500001 USD_MICRO goes through by itself: the rule embeddings is the first that matches
    ");
    assert_snapshot!(decide("1", &["--rail", "lightning"]), @"
    exit 1
    --- stdout
    1 USD_MICRO is denied: the rail lightning does not move USD_MICRO
    ");
    for bad in [&["--tier", "best"][..], &["--schema", "x"], &["--rail", "cash"]] {
        assert!(decide("1", bad).starts_with("exit 2\n--- stderr\nerror[cli.usage]"), "{bad:?}");
    }
    assert!(decide("0", &[]).starts_with("exit 2"));
}

#[test]
fn a_node_starts_with_a_good_policy_only_and_says_which() {
    let home = home();
    home.write(".local/share/guildhall/studio.json", example());
    home.write(".local/share/guildhall/bad.json", r#"{"name": 7}"#);
    for file in ["bad.json", "gone.json"] {
        let setting = format!("policy.file={file}");
        let (exit, answer) = home.json(&["up", "--set", &setting]);
        assert_eq!(exit, 2, "{answer}");
        let named = answer["error"]["file"].as_str().unwrap_or_default();
        assert!(named.ends_with(file), "{answer}");
    }
    let data = home.path().join(".local/share/guildhall");
    assert!(!data.join("node.db").exists(), "nothing was made");
    let node = Node::up(&home, &[&["--set", "policy.file=studio.json"], &ANY_PORT[..]].concat());
    let (_, checked) = home.json(&["policy", "check", "studio.json"]);
    let started = home.run(&["log", "tail", "--json"]).stdout;
    let id = checked["policy_bundle_id"].as_str().unwrap_or_default();
    assert!(id.starts_with("policy_") && started.contains(id), "{started}");
    assert_eq!(node.stop(), 0);
}
