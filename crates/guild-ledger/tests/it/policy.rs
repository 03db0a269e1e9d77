use guild_ledger::policy::{Action, Asked, Bundle, Tier, code, decide, lint};
use guild_protocol::amount::{Amount, AssetId};
use guild_protocol::env::Signer;
use guild_protocol::identity::SecretKey;
use guild_protocol::json;
use guild_protocol::receipt::Rail;
use proptest::prelude::*;
use serde_json::{Value, json};

fn guardian() -> SecretKey {
    format!("{:064x}", 7).parse().unwrap()
}

fn bundle_of(rules: Value) -> Value {
    json!({
        "schema_version": "guild.policy_bundle.v1", "name": "test",
        "caps": {"USD_MICRO": 4, "BTC_LN": 0}, "rules": rules,
    })
}

fn read(value: &Value) -> Bundle {
    Bundle::parse(value.to_string().as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn rule(when: Value) -> Bundle {
    read(&bundle_of(json!([{"id": "it", "when": when, "action": "deny"}])))
}

fn asked(asset: &str, units: i64) -> Asked {
    Asked {
        amount: Amount::new(AssetId::new(asset).unwrap(), units),
        provider_tier: Tier::Secondary,
        schema_id: Some("oa.embedding.v1".parse().unwrap()),
        rail: Rail::Ledger,
    }
}

fn matches(bundle: &Bundle, asked: &Asked) -> bool {
    decide(bundle, asked).approval_rule_id.is_some()
}

#[test]
fn each_condition_is_one_that_must_hold() {
    let ask = asked("USD_MICRO", 3);
    let holding = [
        json!({}),
        json!({"amount": {"USD_MICRO": {"at_least": 3, "at_most": 3}}}),
        json!({"amount": {"USD_MICRO": {"at_most": 3}, "BTC_LN": {"at_least": 9}}}),
        json!({"provider_tiers": ["primary", "secondary"]}),
        json!({"schema_ids": ["oa.sandbox_run.v1", "oa.embeddings.v1"]}),
        json!({"rails": ["ledger"]}),
    ];
    let not_holding = [
        json!({"amount": {"USD_MICRO": {"at_least": 4}}}),
        json!({"amount": {"USD_MICRO": {"at_most": 2}}}),
        json!({"amount": {"BTC_LN": {"at_least": 1}}}),
        json!({"provider_tiers": ["primary", "tertiary"]}),
        json!({"schema_ids": ["oa.sandbox_run.v1"]}),
        json!({"rails": ["lightning", "cashu"]}),
    ];
    for when in &holding {
        assert!(matches(&rule(when.clone()), &ask), "{when}");
    }
    for when in &not_holding {
        assert!(!matches(&rule(when.clone()), &ask), "{when}");
        for other in &holding {
            let mut both = other.clone();
            both.as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
            assert!(!matches(&rule(both.clone()), &ask), "{both}");
        }
    }
    let no_schema = Asked { schema_id: None, ..ask };
    assert!(matches(&rule(json!({})), &no_schema));
    assert!(!matches(&rule(holding[4].clone()), &no_schema));
}

#[test]
fn each_action_is_taken_with_its_rule() {
    let key = guardian().public_key();
    let only = |units| json!({"amount": {"USD_MICRO": {"at_least": units, "at_most": units}}});
    let bundle = read(&bundle_of(json!([
        {"id": "let", "when": only(101), "action": "auto"},
        {"id": "ask", "when": only(102), "action": "guardian", "guardian_key": key.npub()},
        {"id": "hex", "when": only(103), "action": "guardian", "guardian_key": key.hex()},
        {"id": "not", "when": only(1), "action": "deny"},
    ])));
    let decided = |units| {
        let decision = decide(&bundle, &asked("USD_MICRO", units));
        (decision.action, decision.approval_rule_id)
    };
    assert_eq!(decided(101), (Action::Auto, Some("let".to_owned())));
    assert_eq!(decided(102), (Action::Guardian(key), Some("ask".to_owned())));
    assert_eq!(decided(103), (Action::Guardian(key), Some("hex".to_owned())));
    assert_eq!(decided(1), (Action::Deny, Some("not".to_owned())));
}

#[test]
fn without_a_rule_the_cap_decides_and_what_is_no_payment_is_denied() {
    let bundle = read(&bundle_of(json!([])));
    let why = |asked: &Asked| {
        let decision = decide(&bundle, asked);
        assert_eq!(decision.approval_rule_id, None);
        (decision.action == Action::Auto, decision.why)
    };
    let lightning = Asked { rail: Rail::Lightning, ..asked("USD_MICRO", 1) };
    let texts: Vec<String> = [
        asked("USD_MICRO", 4),
        asked("USD_MICRO", 5),
        asked("USD_MICRO", i64::MAX),
        asked("BTC_LN", 1),
        asked("EUR_MICRO", 1),
        asked("USD_MICRO", 0),
        asked("USD_MICRO", i64::MIN),
        lightning,
    ]
    .iter()
    .map(|asked| {
        let (allowed, why) = why(asked);
        format!("{}: {why}", if allowed { "auto" } else { "deny" })
    })
    .collect();
    assert_eq!(
        texts,
        [
            "auto: no rule matches, and 4 USD_MICRO is within the cap of 4",
            "deny: no rule matches, and 5 USD_MICRO is above the cap of 4",
            "deny: no rule matches, and 9223372036854775807 USD_MICRO is above the cap of 4",
            "deny: no rule matches, and 1 BTC_LN is above the cap of 0",
            "deny: no rule matches, and there is no cap for EUR_MICRO",
            "deny: there is nothing to pay",
            "deny: there is nothing to pay",
            "deny: the rail lightning does not move USD_MICRO",
        ]
    );
    let all = read(&bundle_of(json!([{"id": "all", "when": {}, "action": "auto"}])));
    assert_eq!(decide(&all, &asked("USD_MICRO", 0)).action, Action::Deny);
    assert_eq!(decide(&all, &asked("USD_MICRO", i64::MAX)).action, Action::Auto);
}

#[test]
fn the_id_is_the_hash_of_the_document_however_it_is_written() {
    let text =
        br#"{"rules": [], "name": "x", "caps": {}, "schema_version": "guild.policy_bundle.v1"}"#;
    let bundle = Bundle::parse(text).unwrap();
    let hash = json::hash_text(text).unwrap();
    assert_eq!(bundle.policy_bundle_id().as_str(), format!("policy_{}", hash.hex()));
    let again = Bundle::parse(bundle.canonical().as_bytes()).unwrap();
    assert_eq!(again, bundle);
}

#[test]
fn the_built_in_bundle_lets_small_payments_through_and_no_large_ones() {
    let bundle = Bundle::builtin().unwrap();
    assert_eq!(lint(&bundle), []);
    for asset in ["USD_MICRO", "BTC_LN"] {
        let most = |tier| {
            let auto = |units: &i64| {
                let asked = Asked { provider_tier: tier, ..asked(asset, *units) };
                decide(&bundle, &asked).action == Action::Auto
            };
            let steps = [1, 100_000, 100_001, 1_000_000, 1_000_001, 10_000_000, 10_000_001];
            let allowed: Vec<i64> = steps.into_iter().filter(auto).collect();
            assert!(allowed.iter().eq(steps.iter().take(allowed.len())), "no gap");
            allowed.last().copied()
        };
        let limits = Tier::ALL.map(most);
        assert_eq!(limits, [Some(10_000_000), Some(1_000_000), Some(100_000), None], "{asset}");
    }
}

/// What is said of a bundle with one change, made by `change`.
fn problems(change: impl FnOnce(&mut Value)) -> Vec<(&'static str, String)> {
    let mut value = bundle_of(json!([
        {"id": "a", "when": {"amount": {"USD_MICRO": {"at_least": 1}}}, "action": "auto"},
        {"id": "b", "when": {}, "action": "guardian", "guardian_key": guardian().public_key().npub()},
    ]));
    read(&value);
    change(&mut value);
    let problems = Bundle::parse(value.to_string().as_bytes()).unwrap_err();
    problems.iter().map(|e| (e.code().name, e.place().unwrap_or("").to_owned())).collect()
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let set = |pointer: &'static str, value: Value| {
        move |bundle: &mut Value| *bundle.pointer_mut(pointer).unwrap() = value
    };
    let add = |pointer: &'static str, name: &'static str, value: Value| {
        move |bundle: &mut Value| bundle.pointer_mut(pointer).unwrap()[name] = value
    };
    type Change = Box<dyn FnOnce(&mut Value)>;
    let cases: Vec<(Change, &str, &str)> = vec![
        (Box::new(set("/schema_version", json!("v2"))), "policy.unknown_version", "schema_version"),
        (Box::new(add("", "extra", json!(1))), "json.shape", "extra"),
        (Box::new(add("/rules/1", "note", json!(1))), "json.shape", "rules[1].note"),
        (Box::new(add("/rules/0/when", "tier", json!([]))), "json.shape", "rules[0].when.tier"),
        (Box::new(add("/rules/0/when", "rails", json!(null))), "json.shape", "rules[0].when.rails"),
        (Box::new(set("/rules/0/id", json!(7))), "json.shape", "rules[0].id"),
        (Box::new(set("/name", json!(""))), "policy.bad_value", "name"),
        (Box::new(set("/name", json!("n".repeat(101)))), "policy.bad_value", "name"),
        (Box::new(set("/caps/USD_MICRO", json!(-1))), "policy.bad_value", "caps.USD_MICRO"),
        (Box::new(add("/caps", "USD", json!(1))), "policy.bad_value", "caps.USD"),
        (Box::new(set("/rules/0/id", json!("A b"))), "policy.bad_value", "rules[0].id"),
        (Box::new(set("/rules/0/id", json!("b"))), "policy.duplicate", "rules[1].id"),
        (Box::new(set("/rules/0/action", json!("ask"))), "policy.bad_value", "rules[0].action"),
        (
            Box::new(set("/rules/0/action", json!("guardian"))),
            "policy.guardian",
            "rules[0].guardian_key",
        ),
        (
            Box::new(set("/rules/1/action", json!("deny"))),
            "policy.guardian",
            "rules[1].guardian_key",
        ),
        (
            Box::new(set("/rules/1/guardian_key", json!("npub1x"))),
            "policy.bad_value",
            "rules[1].guardian_key",
        ),
        (
            Box::new(set("/rules/0/when/amount", json!({}))),
            "policy.empty_range",
            "rules[0].when.amount",
        ),
        (
            Box::new(set("/rules/0/when/amount/USD_MICRO", json!({}))),
            "policy.empty_range",
            "rules[0].when.amount.USD_MICRO",
        ),
        (
            Box::new(set("/rules/0/when/amount/USD_MICRO", json!({"at_least": 5, "at_most": 4}))),
            "policy.empty_range",
            "rules[0].when.amount.USD_MICRO.at_least",
        ),
        (
            Box::new(set("/rules/0/when/amount/USD_MICRO", json!({"at_most": 0}))),
            "policy.empty_range",
            "rules[0].when.amount.USD_MICRO.at_most",
        ),
        (
            Box::new(add("/rules/0/when/amount", "a.b", json!({"at_most": 1}))),
            "policy.bad_value",
            "rules[0].when.amount.\"a.b\"",
        ),
        (
            Box::new(add("/rules/0/when", "provider_tiers", json!([]))),
            "policy.empty_range",
            "rules[0].when.provider_tiers",
        ),
        (
            Box::new(add("/rules/0/when", "provider_tiers", json!(["primary", "best"]))),
            "policy.bad_value",
            "rules[0].when.provider_tiers[1]",
        ),
        (
            Box::new(add("/rules/0/when", "rails", json!(["cash"]))),
            "policy.bad_value",
            "rules[0].when.rails[0]",
        ),
        (
            Box::new(add("/rules/0/when", "rails", json!(["ledger", "ledger"]))),
            "policy.duplicate",
            "rules[0].when.rails[1]",
        ),
        (
            Box::new(add("/rules/0/when", "schema_ids", json!(["oa.x"]))),
            "policy.bad_value",
            "rules[0].when.schema_ids[0]",
        ),
    ];
    for (change, code, place) in cases {
        assert_eq!(problems(change), [(code, place.to_owned())]);
    }
}

#[test]
fn all_problems_are_listed_and_sizes_are_limited() {
    let two = problems(|bundle| {
        bundle["rules"][0]["id"] = json!("");
        bundle["rules"][1]["guardian_key"] = json!("nobody");
    });
    assert_eq!(two.len(), 2);
    let rules = |count: usize| {
        move |bundle: &mut Value| {
            let rule = |i| json!({"id": format!("r{i}"), "when": {}, "action": "deny"});
            bundle["rules"] = (0..count).map(rule).collect();
        }
    };
    assert_eq!(problems(rules(201)), [("policy.too_many", "rules".to_owned())]);
    let mut most = bundle_of(json!([]));
    rules(200)(&mut most);
    assert_eq!(read(&most).rules().len(), 200);
    let schemas: Vec<String> = (0..101).map(|i| format!("oa.x{i}.v1")).collect();
    let many = problems(|bundle| bundle["rules"][0]["when"]["schema_ids"] = json!(schemas));
    assert_eq!(many, [("policy.too_many", "rules[0].when.schema_ids".to_owned())]);
    let long = Bundle::parse(&vec![b' '; 64 * 1024 + 1]).unwrap_err();
    assert_eq!(long.iter().next().unwrap().code().name, "json.size");
    assert_eq!(code::ALL.len(), 6);
}

const ASSETS: [&str; 8] = [
    "USD_MICRO",
    "BTC_LN",
    "BTC_CASHU(m)",
    "USD_CASHU(m)",
    "USDC_EIP155_1",
    "USDC_EIP155_2",
    "USDT_TAP(0f)",
    "USDT_TAP(1f)",
];
const SCHEMAS: [&str; 3] = ["oa.a.v1", "oa.b.v1", "oa.c.v1"];

fn words(of: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let most = of.len();
    proptest::sample::subsequence(of, 1..=most).prop_map(|words| json!(words))
}

fn some_range() -> impl Strategy<Value = Value> {
    prop_oneof![
        (1..6i64).prop_map(|least| json!({"at_least": least})),
        (1..6i64).prop_map(|most| json!({"at_most": most})),
        (1..6i64, 0..5i64)
            .prop_map(|(least, more)| json!({"at_least": least, "at_most": least + more})),
    ]
}

fn some_rule() -> impl Strategy<Value = Value> {
    let assets = proptest::sample::subsequence(ASSETS[..3].to_vec(), 1..=2);
    let amount =
        (assets, proptest::collection::vec(some_range(), 2)).prop_map(|(assets, ranges)| {
            Value::Object(assets.iter().map(ToString::to_string).zip(ranges).collect())
        });
    let rails = Rail::ALL.iter().map(|rail| rail.as_str()).collect();
    let conditions = (
        proptest::option::of(amount),
        proptest::option::of(words(Tier::ALL.map(Tier::as_str).to_vec())),
        proptest::option::of(words(SCHEMAS[..2].to_vec())),
        proptest::option::of(words(rails)),
    );
    let key = guardian().public_key().hex();
    let action = prop_oneof![
        Just(json!({"action": "auto"})),
        Just(json!({"action": "deny"})),
        Just(json!({"action": "guardian", "guardian_key": key})),
    ];
    (conditions, action).prop_map(|((amount, tiers, schemas, rails), mut rule)| {
        let named = [
            ("amount", amount),
            ("provider_tiers", tiers),
            ("schema_ids", schemas),
            ("rails", rails),
        ];
        let given = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        rule["when"] = Value::Object(given.collect());
        rule
    })
}

fn some_bundle() -> impl Strategy<Value = Value> {
    proptest::collection::vec(some_rule(), 0..6).prop_map(|mut rules| {
        rules.iter_mut().enumerate().for_each(|(i, rule)| rule["id"] = json!(format!("r{i}")));
        bundle_of(json!(rules))
    })
}

/// Every payment that a small world knows, those that no rail can move left out.
fn every_payment() -> Vec<Asked> {
    let mut all = Vec::new();
    for asset in ASSETS {
        for units in (1..=11).chain([i64::MAX]) {
            for tier in Tier::ALL {
                for schema in SCHEMAS.iter().map(Some).chain([None]) {
                    for rail in Rail::ALL {
                        let amount = Amount::new(AssetId::new(asset).unwrap(), units);
                        let schema_id = schema.map(|id| id.parse().unwrap());
                        all.push(Asked { amount, provider_tier: tier, schema_id, rail: *rail });
                    }
                }
            }
        }
    }
    all.retain(|asked| asked.rail.carries(&asked.amount.asset_id));
    all
}

/// The conditions again, read straight from the document.
fn naive_holds(when: &Value, asked: &Asked) -> bool {
    let listed = |name: &str, word: Option<&str>| match when.get(name) {
        None => true,
        Some(list) => word.is_some_and(|word| list.as_array().unwrap().contains(&json!(word))),
    };
    let amount = match when.get("amount") {
        None => true,
        Some(ranges) => match ranges.get(asked.amount.asset_id.as_str()) {
            None => false,
            Some(range) => {
                range
                    .get("at_least")
                    .is_none_or(|least| asked.amount.units >= least.as_i64().unwrap())
                    && range
                        .get("at_most")
                        .is_none_or(|most| asked.amount.units <= most.as_i64().unwrap())
            }
        },
    };
    amount
        && listed("provider_tiers", Some(asked.provider_tier.as_str()))
        && listed("schema_ids", asked.schema_id.as_ref().map(|id| id.as_str()))
        && listed("rails", Some(asked.rail.as_str()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    /// The first rule that holds decides, otherwise the cap: against a second reading of the document.
    #[test]
    fn the_first_rule_that_matches_wins(document in some_bundle()) {
        let bundle = read(&document);
        for asked in every_payment() {
            let decision = decide(&bundle, &asked);
            let mut expected = None;
            for rule in document["rules"].as_array().unwrap() {
                if naive_holds(&rule["when"], &asked) {
                    expected = Some((rule["action"].as_str().unwrap(), rule["id"].as_str()));
                    break;
                }
            }
            let cap = document["caps"].get(asked.amount.asset_id.as_str());
            let within = cap.is_some_and(|cap| asked.amount.units <= cap.as_i64().unwrap());
            let expected = expected.unwrap_or((if within { "auto" } else { "deny" }, None));
            prop_assert_eq!(
                (decision.action.as_str(), decision.approval_rule_id.as_deref()), expected, "{:?}", asked
            );
        }
    }

    /// Whatever is done to a text, it is refused with a place or read, and what is read has one canonical form.
    #[test]
    fn a_damaged_text_is_refused_or_read(
        document in some_bundle(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        end in any::<proptest::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut text = document.to_string().into_bytes();
        for (at, byte) in damage {
            let at = at.index(text.len());
            // Mostly what JSON is made of, so that some of it still reads.
            text[at] = if byte < 128 { b"0123456789,:\"[]{} "[usize::from(byte) % 18] } else { byte };
        }
        if cut {
            text.truncate(end.index(text.len()));
        }
        match Bundle::parse(&text) {
            Err(problems) => prop_assert!(problems.iter().count() > 0),
            Ok(bundle) => {
                let again = Bundle::parse(bundle.canonical().as_bytes());
                prop_assert_eq!(again.as_ref(), Ok(&bundle));
                prop_assert_eq!(decide(&bundle, &asked("USD_MICRO", 0)).action, Action::Deny);
                lint(&bundle);
            }
        }
    }

    /// A rule is warned of exactly when one earlier rule takes every payment that it matches.
    #[test]
    fn a_rule_is_warned_of_exactly_when_an_earlier_one_covers_it(document in some_bundle()) {
        let bundle = read(&document);
        let payments = every_payment();
        let matched: Vec<Vec<bool>> = bundle
            .rules()
            .iter()
            .map(|rule| payments.iter().map(|asked| rule.when.holds(asked)).collect())
            .collect();
        let mut expected = Vec::new();
        for (i, late) in matched.iter().enumerate() {
            let nothing = late.iter().all(|hit| !hit);
            let covers = |early: &&Vec<bool>| early.iter().zip(late).all(|(early, late)| *early || !late);
            let by = matched[..i].iter().position(|early| covers(&early));
            if nothing || by.is_some() {
                expected.push((i, by.filter(|_| !nothing).map(|by| format!("r{by}"))));
            }
        }
        let warned: Vec<_> = lint(&bundle).into_iter().map(|w| (w.place, w.covered_by)).collect();
        prop_assert_eq!(warned, expected);
    }
}

#[test]
fn a_warning_names_both_rules() {
    let bundle = read(&bundle_of(json!([
        {"id": "over-lightning", "when": {"amount": {"BTC_LN": {"at_least": 1}}}, "action": "auto"},
        {"id": "late", "when": {"rails": ["lightning"], "provider_tiers": ["primary"]}, "action": "deny"},
        {"id": "odd", "when": {"rails": ["lightning"], "amount": {"USD_MICRO": {"at_most": 9}}}, "action": "deny"},
    ])));
    let said: Vec<String> = lint(&bundle).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "late never decides: all it could match is taken by over-lightning",
            "odd never decides: no rail it names moves an asset it names",
        ]
    );
}
