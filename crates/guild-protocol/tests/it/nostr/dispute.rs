use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::identity::SecretKey;
use guild_protocol::nostr::dispute::{
    By, EVIDENCE_MAX, Message, NAMESPACE, Outcome, Parties, Reason, Reference, STATEMENT_MAX_CHARS,
    Said, is_dispute,
};
use guild_protocol::nostr::{Draft, Event, EventId, Limits, kind, tag};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Fixed, cases, hostile_tags, secret};

const AT: u64 = 1_763_190_060;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../vectors/dispute.json")).unwrap()
}

fn arbiter() -> SecretKey {
    "09".repeat(32).parse().unwrap()
}

fn parties() -> Parties {
    Parties {
        buyer: secret("buyer").public_key(),
        provider: secret("provider").public_key(),
        arbiter: Some(arbiter().public_key()),
    }
}

fn request_id() -> EventId {
    EventId::from_bytes([0x11; 32])
}

fn filed() -> Message {
    Message {
        result_id: Some(EventId::from_bytes([0x22; 32])),
        statement: Some("It is what was ordered. 😀".to_owned()),
        evidence: vec![
            Reference::Event(EventId::from_bytes([0x33; 32])),
            Reference::Hash(Hash::of(b"verdict")),
            Reference::Receipt(ReceiptId::of(&Hash::of(b"receipt"))),
        ],
        ..Message::new(request_id(), parties(), Said::Filed(Reason::VerdictWrong))
    }
}

fn sent(message: &Message, by: &SecretKey, at: u64) -> Event {
    message.draft(&by.public_key(), at).unwrap().sign(by).unwrap()
}

#[test]
fn the_vectors_are_what_is_sent() {
    let filing = sent(&filed(), &secret("provider"), AT);
    let answered = Message {
        statement: Some("It is not.".to_owned()),
        ..Message::new(request_id(), parties(), Said::Answered)
    };
    let said = Said::Decided { outcome: Outcome::Release, by: By::Arbiter, filing: filing.id };
    let decided = Message::new(request_id(), parties(), said);
    let vectors = vectors();
    assert_eq!(vectors["dispute_id"], filed().dispute_id().as_str());
    for (name, message, event) in [
        ("filed", filed(), filing),
        ("answered", answered.clone(), sent(&answered, &secret("buyer"), AT + 60)),
        ("decided", decided.clone(), sent(&decided, &arbiter(), AT + 120)),
    ] {
        let written: Value = serde_json::from_str(&event.to_json()).unwrap();
        assert_eq!(written, vectors["events"][name], "{name}: {written}");
        let text = vectors["events"][name].to_string();
        let read = Event::parse_verified(text.as_bytes(), &Limits::DEFAULT).unwrap();
        assert!(is_dispute(&read));
        assert_eq!(Message::parse(&read, None).unwrap(), message, "{name}");
    }
}

fn why(message: &Message, by: &SecretKey) -> &'static str {
    message.draft(&by.public_key(), AT).unwrap_err().code().name
}

#[test]
fn nobody_says_what_is_not_theirs_to_say() {
    let (buyer, provider, stranger) = (secret("buyer"), secret("provider"), "77".repeat(32));
    let stranger: SecretKey = stranger.parse().unwrap();
    let wrong = "dispute.author_wrong";
    // A reason of the provider's, said by everybody else.
    for by in [&buyer, &arbiter(), &stranger] {
        assert_eq!(why(&filed(), by), wrong);
    }
    let answered = Message::new(request_id(), parties(), Said::Answered);
    assert_eq!(why(&answered, &arbiter()), wrong);
    let decided = |by| {
        let said = Said::Decided { outcome: Outcome::Release, by, filing: request_id() };
        Message::new(request_id(), parties(), said)
    };
    assert_eq!(why(&decided(By::Arbiter), &provider), wrong, "it is not the arbiter");
    assert_eq!(why(&decided(By::Rule), &arbiter()), wrong);
    let unnamed =
        Message { parties: Parties { arbiter: None, ..parties() }, ..decided(By::Arbiter) };
    assert_eq!(why(&unnamed, &arbiter()), wrong, "nobody has named it");
    let same = Parties { arbiter: Some(buyer.public_key()), ..parties() };
    let same = Message { parties: same, ..decided(By::Rule) };
    assert_eq!(why(&same, &buyer), "dispute.message_malformed");
}

#[test]
fn what_is_too_much_is_refused() {
    let provider = secret("provider");
    for bad in [
        Message { statement: Some(String::new()), ..filed() },
        Message { statement: Some("x".repeat(STATEMENT_MAX_CHARS + 1)), ..filed() },
        Message { statement: Some("a\0b".to_owned()), ..filed() },
        Message { evidence: vec![Reference::Event(request_id()); EVIDENCE_MAX + 1], ..filed() },
    ] {
        assert_eq!(why(&bad, &provider), "dispute.message_malformed");
    }
    let most = Message {
        statement: Some("x".repeat(STATEMENT_MAX_CHARS)),
        evidence: vec![Reference::Event(request_id()); EVIDENCE_MAX],
        ..filed()
    };
    assert_eq!(Message::parse(&sent(&most, &provider, AT), None).unwrap(), most);
}

/// The filing of the vectors with another content, or other tags.
fn changed(change: impl Fn(&mut Draft)) -> Event {
    let Event { kind, created_at, tags, content, .. } = sent(&filed(), &secret("provider"), AT);
    let mut draft = Draft { kind, created_at, tags, content };
    change(&mut draft);
    draft.sign(&secret("provider")).unwrap()
}

#[test]
fn every_byte_is_as_it_must_be() {
    let content = filed().content_text().unwrap();
    let object: Value = serde_json::from_str(&content).unwrap();
    let with = |name: &str, value: Value| {
        let mut object = object.clone();
        object[name] = value;
        let bytes = guild_protocol::json::to_canonical(&object).unwrap();
        changed(|draft| draft.content = String::from_utf8_lossy(&bytes).into_owned())
    };
    let refused = |event: &Event| Message::parse(event, None).is_err();
    for (name, value) in [
        ("version", json!(2)),
        ("extra", json!(1)),
        ("step", json!("answered")),
        ("step", json!("decided")),
        ("reason", json!("because")),
        ("reason", json!("result_wrong")),
        ("outcome", json!("release")),
        ("dispute_id", json!(format!("dispute_{}", "0".repeat(64)))),
        ("request_id", json!("22".repeat(32))),
        ("buyer", json!(secret("buyer").public_key().npub())),
        ("buyer", json!(secret("buyer").public_key().hex().to_uppercase())),
        ("evidence", json!([])),
        ("evidence", json!([{"event": "33"}])),
        ("evidence", json!([{"url": "http://x"}])),
        ("statement", json!(7)),
        ("arbiter", json!(null)),
    ] {
        let event = with(name, value.clone());
        // An empty list is not how "none" is written.
        assert!(refused(&event), "{name}: {value}");
    }
    let spaced = changed(|draft| draft.content = format!(" {}", draft.content));
    assert!(refused(&spaced), "one way to write it");
    assert!(refused(&changed(|draft| draft.tags[2][1] = "0".repeat(64))));
    assert!(refused(&changed(|draft| draft.tags[1][1] = "decided".to_owned())));
    assert!(refused(&changed(|draft| drop(draft.tags.pop()))), "whoever is named is addressed");
    let more = changed(|draft| draft.tags.push(tag::tag(["p", &"0".repeat(64)])));
    assert!(refused(&more));
    let label = changed(|draft| draft.kind = kind::REVIEW);
    assert_eq!(Message::parse(&label, None).unwrap_err().code().name, "dispute.kind_wrong");
    assert!(!refused(&changed(|_| ())));
    assert_eq!(NAMESPACE, "guild.dispute");
}

#[test]
fn what_is_private_is_read_by_the_two_alone() {
    let (buyer, provider) = (secret("buyer"), secret("provider"));
    let with_arbiter = filed().sealed_draft(&provider, AT, &Fixed(4));
    assert_eq!(with_arbiter.unwrap_err().code().name, "dispute.message_malformed");
    let private = Message { parties: Parties { arbiter: None, ..parties() }, ..filed() };
    let sealed = private.sealed_draft(&provider, AT, &Fixed(4)).unwrap().sign(&provider).unwrap();
    assert!(!sealed.content.contains("ordered") && !sealed.content.contains("verdict"));
    for key in [&buyer, &provider] {
        assert_eq!(Message::parse(&sealed, Some(key)).unwrap(), private);
    }
    let code = |key| Message::parse(&sealed, key).unwrap_err().code().name;
    assert_eq!(code(None), "nip90.encrypted");
    assert_eq!(code(Some(&arbiter())), "nip44.not_opened");
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn whatever_comes_is_read_or_refused(tags in hostile_tags(), content in any::<String>()) {
        let mut tags = tags;
        tags.push(tag::tag(["L", NAMESPACE]));
        let draft = Draft { kind: kind::LABEL, created_at: AT, tags, content };
        if let Ok(event) = draft.sign(&secret("provider")) {
            prop_assert!(Message::parse(&event, Some(&secret("buyer"))).is_err());
        }
    }
}
