use guild_protocol::amount::Msat;
use guild_protocol::nostr::announcement::{
    Announcement, Capabilities, Content, KindNames, Pricing, SupplyClass,
};
use guild_protocol::nostr::{Draft, tag::tag};
use proptest::prelude::*;
use serde_json::json;

use super::{cases, hostile_tags, secret, vector};

#[test]
fn a_card_of_the_wild_is_read() {
    let event = vector("card");
    let card = Announcement::parse(&event).unwrap();
    assert_eq!(card.d, "Benchmark Platform v2");
    assert_eq!(card.canonical_d(), "benchmark-platform-v2");
    assert_eq!(card.kinds, ["5000", "benchmark-task", "5050,5100"]);
    assert_eq!(card.relays, ["wss://relay.one.example", "wss://relay.two.example"]);
    assert_eq!(card.schema_ids(), ["oa.sandbox_run.v1"]);
    assert_eq!(card.other_tags, [tag(["web", "https://provider.example/", "nevent"])]);
    let content = &card.content;
    assert_eq!(content.name.as_deref(), Some("ComputeNode Alpha"));
    assert_eq!(content.pricing.as_ref().unwrap().scheme.as_deref(), Some("per-request"));
    assert_eq!(content.performance.as_ref().unwrap().typical_latency_ms, Some(5000));
    assert_eq!(content.supply_class, Some(SupplyClass::BundleLan));
    assert_eq!(content.supports_encryption, Some(true));
    assert_eq!(content.supported_kinds.as_ref().unwrap().0, ["5000", "benchmark-task"]);
    let names = content.capabilities.as_ref().unwrap().names.as_ref().unwrap();
    assert_eq!(names[..], ["benchmark-task", "data-processing"]);
    assert_eq!(serde_json::to_value(&content.other).unwrap(), json!({"nip90Params": {}}));
    assert_eq!(
        card.address(&event.pubkey),
        format!("31990:{}:Benchmark Platform v2", event.pubkey.hex())
    );
    // Only numbers are sent as kinds.
    assert_eq!(card.draft(1).unwrap_err().place(), Some("kinds"));
}

#[test]
fn a_card_with_the_structured_fields_is_read() {
    let card = Announcement::parse(&vector("structured")).unwrap();
    assert_eq!(card.schema_ids(), ["oa.code_chunk_analysis.v1", "oa.sandbox_run.v1"]);
    let content = card.content;
    assert_eq!(content.supply_class, Some(SupplyClass::BundleLan));
    let capabilities = content.capabilities.unwrap();
    assert_eq!(capabilities.models.unwrap(), ["gpt-4"]);
    let hardware = capabilities.hardware.unwrap();
    assert_eq!((hardware.memory_gb, hardware.vram_gb), (Some(64), Some(128)));
    let pricing = content.pricing.unwrap();
    assert_eq!(pricing.input_tokens_per_1k, Some(Msat(10)));
    assert_eq!(pricing.output_tokens_per_1k, Some(Msat(30)));
    assert_eq!(pricing.sandbox_per_minute, Some(Msat(100)));
    assert_eq!(content.capacity.unwrap().max_context_tokens, Some(128_000));
    let stability = content.stability.unwrap();
    assert_eq!(stability.success_rate, Some(0.95));
    assert_eq!(stability.jobs_completed, Some(1523));
    assert_eq!(content.description.as_deref(), Some("x"));
    assert!(content.other.is_empty());
}

#[test]
fn a_card_that_says_nothing_is_read_too() {
    let card = Announcement::parse(&vector("bare")).unwrap();
    assert_eq!(card, Announcement { kinds: vec!["5050".into()], ..Announcement::new("") });
    assert_eq!(card.draft(1).unwrap_err().place(), Some("d"));
}

#[test]
fn what_we_send() {
    let mut card = Announcement::new("fast-box");
    card.kinds = vec!["5050".into(), "5000".into()];
    card.topics = vec!["benchmark-task".into()];
    card.relays = vec!["wss://relay.one.example".into()];
    card.content = Content {
        name: Some("Fast box".into()),
        description: Some("Runs tests.".into()),
        supported_kinds: Some(KindNames(vec!["5050".into(), "benchmark-task".into()])),
        supply_class: Some(SupplyClass::SingleNode),
        capabilities: Some(Capabilities {
            supported_jobs: Some(vec!["oa.sandbox_run.v1".into()]),
            ..Capabilities::default()
        }),
        pricing: Some(Pricing { sandbox_per_minute: Some(Msat(100)), ..Pricing::default() }),
        supports_encryption: Some(true),
        ..Content::default()
    };
    let draft = card.draft(1_763_190_000).unwrap();
    let tags: Vec<String> = draft.tags.iter().map(|tag| tag.join(" ")).collect();
    insta::assert_snapshot!(tags.join("\n"), @r"
    d fast-box
    k 5050
    k 5000
    t benchmark-task
    t oa.sandbox_run.v1
    relays wss://relay.one.example
    ");
    insta::assert_snapshot!(draft.content, @r#"{"about":"Runs tests.","capabilities":{"supported_jobs":["oa.sandbox_run.v1"]},"description":"Runs tests.","name":"Fast box","pricing":{"sandbox_per_minute_msats":100},"supply_class":"SingleNode","supported_kinds":[5050,"benchmark-task"],"supportsEncryption":true}"#);
    let back = Announcement::parse(&draft.sign(&secret("provider")).unwrap()).unwrap();
    card.topics.push("oa.sandbox_run.v1".into());
    assert_eq!(back, card);
}

#[test]
fn an_odd_field_is_kept_and_hides_nothing() {
    let text = json!({
        "name": 7, "version": "1", "supply_class": "Moon",
        "pricing": {"input_tokens_per_1k_msats": -1, "output_tokens_per_1k_msats": 3},
        "capacity": "much", "about": "a", "description": "b",
    });
    let content = Content::parse(&text.to_string()).unwrap();
    assert_eq!((&content.name, content.version.as_deref()), (&None, Some("1")));
    let pricing = content.pricing.clone().unwrap();
    assert_eq!((pricing.input_tokens_per_1k, pricing.output_tokens_per_1k), (None, Some(Msat(3))));
    assert_eq!(content.description.as_deref(), Some("b"));
    let kept: Vec<_> = content.other.keys().map(String::as_str).collect();
    assert_eq!(kept, ["about", "capacity", "name", "supply_class"]);
    let again: serde_json::Value = serde_json::from_str(&content.to_json().unwrap()).unwrap();
    assert_eq!(again, text);
}

#[test]
fn a_number_that_is_no_kind_stays_a_number() {
    let text = r#"{"supported_kinds":[5050,505000,"x"]}"#;
    assert_eq!(Content::parse(text).unwrap().to_json().unwrap(), text);
    let double = Content::parse(r#"{"supported_kinds":[5050,5050e2,"x"]}"#).unwrap();
    assert_eq!(double.to_json().unwrap(), text);
}

#[test]
fn what_is_read_again_is_what_was_read() {
    for content in [
        "",
        "{}",
        r#"{"name":"a\u00e9\ud83e\udd80\n","about":"b","encryptionSupported":true}"#,
        r#"{"x":[1,-1,-0,0.1,1e300,5e-324,1E2,9007199254740991,true,null,{"y":{}}],"name":[]}"#,
        r#"{"about":"a","description":"a","capabilities":["x"],"pricing":"free","capacity":{"z":1}}"#,
    ] {
        let draft = Draft { kind: 31990, created_at: 1, tags: vec![], content: content.to_owned() };
        let event = draft.sign(&secret("buyer")).unwrap();
        let read = Announcement::parse(&event).unwrap();
        assert_eq!(Announcement::read_again(&event.tags, content), Some(read), "{content}");
    }
}

#[test]
fn supply_classes_have_several_spellings() {
    for class in SupplyClass::ALL {
        assert_eq!(SupplyClass::of(class.as_str()), Some(class));
    }
    let snake = ["single_node", "bundle_lan", "bundle_rack", "instance_market", "reserve_pool"];
    assert_eq!(snake.map(|text| SupplyClass::of(text).unwrap()), SupplyClass::ALL);
    assert_eq!(SupplyClass::of("local_cluster"), Some(SupplyClass::BundleLan));
    assert_eq!(SupplyClass::of(""), None);
}

#[test]
fn content_that_is_no_object_within_limits_is_refused() {
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(65_536));
    let deep = format!("{{\"x\":{}{}}}", "[".repeat(16), "]".repeat(16));
    for bad in ["x", "[]", "{", "\"text\"", "{\"a\":1,\"a\":2}", &long, &deep] {
        let draft = Draft { kind: 31990, created_at: 1, tags: vec![], content: bad.to_owned() };
        let error = Announcement::parse(&draft.sign(&secret("buyer")).unwrap()).unwrap_err();
        assert_eq!(error.code().name, "announcement.content_malformed", "{bad}");
        assert!(error.place().unwrap().starts_with("content"), "{error}");
    }
    assert_eq!(
        Announcement::parse(&vector("request")).unwrap_err().code().name,
        "announcement.kind_wrong"
    );
}

#[test]
fn what_may_not_be_sent() {
    let good = Announcement::new("x");
    let refused = |card: Announcement| card.draft(1).unwrap_err().place().unwrap().to_owned();
    for bad in ["", "05050", "benchmark-task", "65536", "5050,5100", "+1"] {
        assert_eq!(refused(Announcement { kinds: vec![bad.into()], ..good.clone() }), "kinds");
    }
    assert_eq!(refused(Announcement { relays: vec!["x".into()], ..good.clone() }), "relays");
    let tags = vec![tag(["k", "x"])];
    assert_eq!(refused(Announcement { other_tags: tags, ..good.clone() }), "other_tags");
    assert_eq!(refused(Announcement { d: "x".repeat(257), ..good.clone() }), "d");
    let mut huge = good;
    huge.content.version = Some("x".repeat(65_536));
    assert_eq!(huge.draft(1).unwrap_err().code().name, "announcement.content_malformed");
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn hostile_cards_never_panic(tags in hostile_tags(), content in any::<String>()) {
        let draft = Draft { kind: 31990, created_at: 1, tags, content };
        let _ = Announcement::parse(&draft.sign(&secret("buyer")).unwrap());
    }

    #[test]
    fn what_is_built_is_read_back(
        d in "[ -~é]{1,20}",
        kinds in prop::collection::vec(any::<u16>(), 0..3),
        topics in prop::collection::vec(any::<String>(), 0..3),
        name in any::<String>(),
        rate in 0.0f64..1.0,
        msat in 0i64..1_000_000_000,
        class in prop::sample::select(SupplyClass::ALL.to_vec()),
        bare in any::<bool>(),
    ) {
        let mut card = Announcement::new(d);
        card.kinds = kinds.iter().map(u16::to_string).collect();
        card.topics = topics;
        if !bare {
            let content = &mut card.content;
            content.description = Some(name.clone());
            content.name = Some(name);
            content.supply_class = Some(class);
            content.stability.get_or_insert_default().success_rate = Some(rate);
            content.pricing.get_or_insert_default().sandbox_per_minute = Some(Msat(msat));
            content.other.insert("further".into(), json!({"x": [msat]}));
        }
        let event = card.draft(1).unwrap().sign(&secret("provider")).unwrap();
        let again = Announcement::read_again(&event.tags, &event.content);
        prop_assert_eq!(again.as_ref(), Some(&card));
        prop_assert_eq!(Announcement::parse(&event).unwrap(), card);
    }
}
