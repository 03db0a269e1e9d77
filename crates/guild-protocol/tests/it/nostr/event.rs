use guild_protocol::env::Signer;
use guild_protocol::nostr::{Draft, Event, Limits, kind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{cases, secret, vector, vector_text, vectors};

fn parse(text: &str) -> Result<Event, guild_protocol::Error> {
    Event::parse(text.as_bytes(), &Limits::DEFAULT)
}

fn refused(value: &Value) -> (&'static str, Option<String>) {
    let error = parse(&value.to_string()).unwrap_err();
    (error.code().name, error.place().map(str::to_owned))
}

#[test]
fn events_signed_elsewhere_are_read_and_written_back() {
    let vectors = vectors();
    let events = vectors["events"].as_object().unwrap();
    assert_eq!(events.len(), 12);
    for (name, written) in events {
        let event = parse(&written.to_string()).unwrap();
        event.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(event.id, event.compute_id());
        let back: Value = serde_json::from_str(&event.to_json()).unwrap();
        assert_eq!(&back, written, "{name}");
    }
}

#[test]
fn the_documentation_shows_events_that_verify() {
    let page = include_str!("../../../../../docs/formats/nostr.md");
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let shown: Vec<_> =
        blocks.map(|b| Event::parse_verified(b.as_bytes(), &Limits::DEFAULT).unwrap()).collect();
    let (foreign, own) = shown.split_at(3);
    assert_eq!(foreign, ["request", "feedback", "structured"].map(vector));
    assert_eq!(own.iter().map(|event| event.kind).collect::<Vec<_>>(), [kind::HEARTBEAT]);
}

#[test]
fn our_events_have_the_ids_of_the_others() {
    for name in ["request", "feedback", "card"] {
        let theirs = vector(name);
        let key = if theirs.pubkey == secret("buyer").public_key() { "buyer" } else { "provider" };
        let draft = Draft {
            kind: theirs.kind,
            created_at: theirs.created_at,
            tags: theirs.tags.clone(),
            content: theirs.content.clone(),
        };
        let ours = draft.clone().sign(&secret(key)).unwrap();
        assert_eq!(ours.id, theirs.id);
        ours.verify().unwrap();
        assert_eq!(ours, draft.sign(&secret(key)).unwrap(), "signing twice gives the same bytes");
    }
}

#[test]
fn every_changed_character_is_refused() {
    let event = vector("feedback");
    let other = |c: char| if c == 'a' { 'b' } else { 'a' };
    let changed = |text: &str, at: usize| -> String {
        text.chars().enumerate().map(|(i, c)| if i == at { other(c) } else { c }).collect()
    };
    let mut tried = 0;
    let mut refuse = |forged: Event| {
        assert_ne!(forged, event);
        let error = forged.verify().unwrap_err();
        assert!(["nostr.event_id_wrong", "key.signature_wrong"].contains(&error.code().name));
        tried += 1;
    };
    for at in 0..event.content.chars().count() {
        refuse(Event { content: changed(&event.content, at), ..event.clone() });
    }
    for (i, tag) in event.tags.iter().enumerate() {
        for (j, item) in tag.iter().enumerate() {
            for at in 0..item.chars().count() {
                let mut forged = event.clone();
                forged.tags[i][j] = changed(item, at);
                refuse(forged);
            }
        }
    }
    for at in 0..128 {
        refuse(Event { sig: changed(&event.sig.hex(), at).parse().unwrap(), ..event.clone() });
    }
    for at in 0..64 {
        refuse(Event { id: changed(&event.id.hex(), at).parse().unwrap(), ..event.clone() });
    }
    refuse(Event { kind: 7001, ..event.clone() });
    refuse(Event { created_at: event.created_at + 1, ..event.clone() });
    refuse(Event { pubkey: secret("buyer").public_key(), ..event.clone() });
    assert!(tried > 300, "{tried}");
}

#[test]
fn a_changed_event_under_its_old_id_is_seen_before_the_signature_is() {
    let forged = Event { content: "TAMPERED".into(), ..vector("result") };
    assert_eq!(forged.verify_id().unwrap_err().code().name, "nostr.event_id_wrong");
    // The signature alone still fits the claimed id: it must never be the only check.
    forged.verify_signature().unwrap();
    assert_ne!(forged.compute_id(), forged.id);
}

#[test]
fn what_is_not_an_event_is_refused_with_its_place() {
    let good: Value = serde_json::from_str(&vector_text("feedback")).unwrap();
    let with = |field: &str, value: Value| {
        let mut event = good.clone();
        event[field] = value;
        refused(&event)
    };
    let shape = |place: &str| ("nostr.event_shape", Some(place.to_owned()));
    assert_eq!(refused(&json!([])), ("nostr.event_shape", None));
    for field in ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"] {
        let mut event = good.clone();
        event.as_object_mut().unwrap().remove(field);
        assert_eq!(refused(&event), shape(field));
        assert_eq!(with(field, Value::Null), shape(field));
    }
    for number in [json!(-1), json!(1.5), json!("1"), json!(65_536)] {
        assert_eq!(with("kind", number), shape("kind"));
    }
    assert_eq!(with("tags", json!([["a"], "b"])), shape("tags[1]"));
    assert_eq!(with("tags", json!([["a", 1]])), shape("tags[0][1]"));
    assert_eq!(with("id", json!("00")).0, "nostr.event_id_malformed");
    assert_eq!(with("sig", json!("00")), ("key.signature_malformed", Some("sig".to_owned())));
    assert_eq!(with("pubkey", json!("f".repeat(64))).0, "key.public_malformed");
    assert_eq!(with("pubkey", json!(secret("buyer").public_key().npub())), shape("pubkey"));
    let upper = good["id"].as_str().unwrap().to_uppercase();
    assert_eq!(with("id", json!(upper)).0, "nostr.event_id_malformed");
    let twice = good.to_string().replacen('{', "{\"kind\":1,", 1);
    assert_eq!(parse(&twice).unwrap_err().code().name, "json.duplicate_key");
}

#[test]
fn unknown_fields_are_not_signed_and_fall_away() {
    let mut event: Value = serde_json::from_str(&vector_text("feedback")).unwrap();
    event["seen_on"] = json!(["wss://relay.example"]);
    assert_eq!(parse(&event.to_string()).unwrap(), vector("feedback"));
}

#[test]
fn limits_hold_for_readers_and_writers() {
    let text = vector_text("feedback");
    let within = |limits: Limits| {
        let error = Event::parse(text.as_bytes(), &limits).unwrap_err();
        (error.code().name, error.place().unwrap_or_default().to_owned())
    };
    let most = Limits::DEFAULT;
    assert_eq!(within(Limits { max_bytes: text.len() - 1, ..most }).0, "nostr.event_size");
    assert_eq!(
        within(Limits { max_content_bytes: 3, ..most }),
        ("nostr.content_size", "content".to_owned())
    );
    assert_eq!(within(Limits { max_tags: 4, ..most }), ("nostr.tag_count", "tags".to_owned()));
    assert_eq!(
        within(Limits { max_tag_items: 2, ..most }),
        ("nostr.tag_count", "tags[0]".to_owned())
    );
    assert_eq!(
        within(Limits { max_tag_item_bytes: 9, ..most }),
        ("nostr.tag_size", "tags[0][1]".to_owned())
    );

    let draft = |tags, content: String| {
        let draft = Draft { kind: 1, created_at: 1, tags, content };
        draft.sign(&secret("buyer")).unwrap_err().code().name
    };
    assert_eq!(draft(vec![vec![]; 2_001], String::new()), "nostr.tag_count");
    assert_eq!(draft(vec![], "x".repeat(256 * 1024 + 1)), "nostr.content_size");
    // Each part is within its limit, but escaped they are not together.
    assert_eq!(draft(vec![], "\u{1}".repeat(200 * 1024)), "nostr.event_size");
    let late = Draft { kind: 1, created_at: u64::MAX, tags: vec![], content: String::new() };
    assert_eq!(late.sign(&secret("buyer")).unwrap_err().place(), Some("created_at"));
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Event::parse(&bytes, &Limits::DEFAULT).is_err());
    }

    #[test]
    fn half_an_event_never_panics(cut in 0usize..900, byte in any::<u8>()) {
        let mut text = vector_text("feedback").into_bytes();
        let at = cut % text.len();
        let head = &text[..at];
        prop_assert!(Event::parse(head, &Limits::DEFAULT).is_err());
        let before = text[at];
        text[at] = byte;
        if let Ok(event) = Event::parse_verified(&text, &Limits::DEFAULT) {
            // White space, or the byte it was: never another meaning.
            prop_assert!(event == vector("feedback"), "{before} became {byte} at {at}");
        }
    }

    #[test]
    fn what_is_signed_is_read_back(
        kind in any::<u16>(),
        created_at in 0..=9_007_199_254_740_991u64,
        tags in prop::collection::vec(prop::collection::vec(any::<String>(), 0..4), 0..6),
        content in any::<String>(),
    ) {
        let draft = Draft { kind, created_at, tags, content };
        let event = draft.clone().sign(&secret("buyer")).unwrap();
        let back = Event::parse_verified(event.to_json().as_bytes(), &Limits::DEFAULT).unwrap();
        prop_assert_eq!(&back, &event);
        let Event { kind, created_at, tags, content, .. } = back;
        prop_assert_eq!(Draft { kind, created_at, tags, content }, draft);
    }

    /// The `nostr` crate is the judge of ids and signatures: what we sign it accepts, what it computes we compute.
    #[test]
    fn the_nostr_crate_agrees_on_ids_and_signatures(
        kind in any::<u16>(),
        created_at in 0..=4_102_444_800u64,
        tags in prop::collection::vec(prop::collection::vec(any::<String>(), 1..4), 0..6),
        content in prop_oneof![any::<String>(), "[\u{0}-\u{1f}\"\\\\/\u{7f}-\u{a0}\u{2028}\u{2029}]{0,40}"],
        changed in any::<bool>(),
    ) {
        let mut event = Draft { kind, created_at, tags, content }.sign(&secret("buyer")).unwrap();
        if changed {
            event.content.push('!');
        }
        let theirs = ::nostr::event::Event::from_json(event.to_json()).unwrap();
        prop_assert_eq!(theirs.verify().is_ok(), !changed);
        prop_assert_eq!(event.verify().is_ok(), !changed);
    }
}
