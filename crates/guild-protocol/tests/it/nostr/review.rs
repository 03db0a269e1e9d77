use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::id::ReceiptId;
use guild_protocol::nostr::review::{
    Content, Evidence, Form, MOST_BP, NAMESPACE, Payment, Reveal, Review, TASK_NAMESPACE, code,
    is_review,
};
use guild_protocol::nostr::{Draft, Event, EventId, Limits, kind, tag};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{cases, hostile_tags, secret};

const AT: u64 = 1_763_190_060;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../vectors/review.json")).unwrap()
}

/// The review of the vectors.
fn full() -> Review {
    Review {
        relay: Some("wss://relay.example".to_owned()),
        content: Content {
            summary: Some("19 of 20 results for oa.embedding.v1 were accepted. 😀".to_owned()),
            strengths: vec!["19 of 20 results accepted".to_owned()],
            weaknesses: vec!["some results took 5300 ms, half of them 2300 ms or less".to_owned()],
            test_score_bp: Some(9_400),
            latency_p50_ms: Some(2_300),
            latency_p95_ms: Some(5_300),
            recommendation: Some("Hired here.".to_owned()),
            evidence_cid: Some(
                "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy".to_owned(),
            ),
            alert: None,
        },
        evidence: Evidence {
            request_id: Some(EventId::from_bytes([0x11; 32])),
            result_id: Some(EventId::from_bytes([0x22; 32])),
            job_hash: Some(Hash::of(b"job")),
            verdict_hash: Some(Hash::of(b"verdict")),
            payment: Some(Payment {
                receipt_id: ReceiptId::of(&Hash::of(b"receipt")),
                receipt_hash: Hash::of(b"receipt, signed"),
            }),
            reveal: Some(Reveal {
                commitment: Hash::of(b"salt and suite"),
                salt: "07".repeat(32),
                benchmark: "std-v3".to_owned(),
                seed: "09".repeat(32),
            }),
        },
        ..Review::new(secret("provider").public_key(), "oa.embedding.v1", 6_125)
    }
}

fn sent(review: &Review, form: Form) -> Event {
    review.draft(form, AT).unwrap().sign(&secret("buyer")).unwrap()
}

#[test]
fn the_vectors_are_what_is_sent() {
    let vectors = vectors();
    for (form, name) in Form::ALL.into_iter().zip(["review", "set", "label"]) {
        let event = sent(&full(), form);
        let written: Value = serde_json::from_str(&event.to_json()).unwrap();
        assert_eq!(written, vectors["events"][name], "{name}: {written}");
        let read =
            Event::parse_verified(vectors["events"][name].to_string().as_bytes(), &Limits::DEFAULT);
        assert_eq!(Review::parse(&read.unwrap()).unwrap(), full(), "{name}");
    }
    for (trust_bp, rating) in vectors["ratings"].as_object().unwrap() {
        let review =
            Review::new(secret("provider").public_key(), "x", trust_bp.parse::<u32>().unwrap());
        assert_eq!(review.rating(), rating.as_str().unwrap());
    }
}

#[test]
fn a_label_labels_its_subject_alone() {
    let label = sent(&full(), Form::Label);
    assert!(!tag::has(&label.tags, "e") && tag::all(&label.tags, "p").count() == 1);
    assert_eq!(tag::values(&label.tags, "L").collect::<Vec<_>>(), [NAMESPACE, TASK_NAMESPACE]);
    let foreign = Draft {
        kind: kind::LABEL,
        created_at: AT,
        tags: vec![tag::tag(["L", "ugc"]), tag::tag(["l", "spam", "ugc"])],
        content: String::new(),
    };
    let foreign = foreign.sign(&secret("buyer")).unwrap();
    assert!(!is_review(&foreign));
    assert_eq!(Review::parse(&foreign).unwrap_err().code(), &code::WRONG_KIND);
}

fn read(tags: &[&[&str]], content: &str) -> Result<Review, &'static str> {
    let tags = tags.iter().map(|tag| tag.iter().map(|item| (*item).to_owned()).collect()).collect();
    let draft = Draft { kind: kind::REVIEW, created_at: AT, tags, content: content.to_owned() };
    Review::parse(&draft.sign(&secret("buyer")).unwrap()).map_err(|error| error.code().name)
}

#[test]
fn what_others_write_is_read() {
    let hex = secret("provider").public_key().hex();
    // As the first document of this kind writes it.
    let said = read(
        &[
            &["subject", &hex, "not a relay"],
            &["max_rating", "5"],
            &["rating", "4.5"],
            &["task", "benchmark-task"],
        ],
        &json!({
            "summary": "Reliable", "strengths": ["a", 7, "b"], "weaknesses": "none",
            "metrics": {"test_score": 0.94, "latency_p50_ms": 2300.7, "latency_p95_ms": -1},
            "evidence_cid": "QmAbCdEf...",
        })
        .to_string(),
    )
    .unwrap();
    assert_eq!((said.trust_bp, said.task.as_str(), said.relay), (8_750, "benchmark-task", None));
    assert_eq!(said.content.strengths, ["a", "b"]);
    assert_eq!((said.content.weaknesses.len(), said.content.latency_p95_ms), (0, None));
    assert_eq!(
        (said.content.test_score_bp, said.content.latency_p50_ms),
        (Some(9_400), Some(2_300))
    );
    // Only a `p`, no scale, a plain text, evidence in tags.
    let (one, two) = ("11".repeat(32), "22".repeat(32));
    let said = read(
        &[
            &["p", &hex],
            &["rating", "3"],
            &["task", "x"],
            &["e", &one, "", "request"],
            &["e", &two, "wss://r.example", "result"],
            &["e", "rubbish", "", "request"],
        ],
        "Was fine.",
    )
    .unwrap();
    assert_eq!((said.trust_bp, said.content.summary.as_deref()), (5_000, Some("Was fine.")));
    assert_eq!(said.evidence.request_id.unwrap().hex(), one);
    assert_eq!(said.evidence.result_id.unwrap().hex(), two);
}

#[test]
fn what_says_nothing_is_refused() {
    let hex = secret("provider").public_key().hex();
    let good: [&[&str]; 3] = [&["subject", &hex], &["rating", "4"], &["task", "x"]];
    assert!(read(&good, "").is_ok());
    for left_out in 0..3 {
        let mut tags = good.to_vec();
        tags.remove(left_out);
        assert_eq!(read(&tags, ""), Err("review.malformed"), "{left_out}");
    }
    let long = "x".repeat(101);
    let bad: [&[&str]; 6] = [
        &["task", ""],
        &["task", "two words"],
        &["task", "ünïcode"],
        &["task", &long],
        &["rating", "6"],
        &["rating", "∞"],
    ];
    for tag in bad {
        let mut tags = vec![tag];
        tags.extend(good);
        assert_eq!(read(&tags, ""), Err("review.malformed"), "{tag:?}");
    }
    assert!(read(&[&["subject", "nobody"], &["rating", "4"], &["task", "x"]], "").is_err());
    assert_eq!(read(&good, &"y".repeat(16 * 1_024 + 1)), Err("review.malformed"));
    assert!(read(&good, "{\"a\": 1, \"a\": 2}").is_err());
    assert!(read(&good, &format!("{}{}", "{\"a\":".repeat(40), "}".repeat(40))).is_err());
}

#[test]
fn what_may_not_be_sent_is_refused() {
    let good = full();
    let bad = [
        Review { trust_bp: MOST_BP + 1, ..good.clone() },
        Review { task: "two words".to_owned(), ..good.clone() },
        Review { relay: Some("https://relay.example".to_owned()), ..good.clone() },
        Review {
            content: Content { summary: Some("x".repeat(401)), ..good.content.clone() },
            ..good.clone()
        },
        Review {
            content: Content { strengths: vec![String::new(); 9], ..good.content.clone() },
            ..good.clone()
        },
        Review {
            content: Content { latency_p50_ms: Some(u64::MAX), ..good.content.clone() },
            ..good.clone()
        },
        // Within all limits but that of the whole.
        Review {
            content: Content {
                strengths: vec!["\u{1}".repeat(160); 8],
                weaknesses: vec!["\u{1}".repeat(160); 8],
                summary: Some("\u{1}".repeat(400)),
                ..good.content.clone()
            },
            ..good
        },
    ];
    for review in bad {
        for form in Form::ALL {
            let refused = review.draft(form, AT).unwrap_err();
            assert_eq!(refused.code(), &code::BAD_VALUE, "{review:?}");
        }
    }
}

fn hostile_content() -> impl Strategy<Value = String> {
    let text =
        prop::sample::select(vec!["", "a", "\u{202e}evil", "\u{0}", "𝕬", "👩‍👩‍👧", "sha256:00", "11"]);
    let value = prop_oneof![
        text.clone().prop_map(|text| json!(text)),
        any::<f64>().prop_map(|number| json!(number)),
        any::<u64>().prop_map(|number| json!(number)),
        prop::collection::vec(text, 0..12).prop_map(|list| json!(list)),
    ];
    let name = prop::sample::select(vec![
        "summary",
        "strengths",
        "weaknesses",
        "metrics",
        "recommendation",
        "evidence",
        "alert",
        "x",
    ]);
    prop_oneof![
        prop::collection::btree_map(name, value, 0..8).prop_map(|object| json!(object).to_string()),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn what_was_read_and_may_be_sent_is_read_again_as_the_same(
        kind in prop::sample::select(vec![kind::REVIEW, kind::REPLACEABLE_REVIEW, kind::LABEL]),
        more in hostile_tags(),
        content in hostile_content(),
        rating in "[0-9]{1,2}(\\.[0-9]{1,6})?",
    ) {
        let hex = secret("provider").public_key().hex();
        let mut tags = vec![
            tag::tag(["L", NAMESPACE]),
            tag::tag(["l", &rating, NAMESPACE]),
            tag::tag(["l", "x", TASK_NAMESPACE]),
            tag::tag(["p", &hex]),
            tag::tag(["subject", &hex]),
            tag::tag(["rating", &rating]),
            tag::tag(["denom", "10"]),
            tag::tag(["task", "x"]),
        ];
        tags.extend(more);
        let draft = Draft { kind, created_at: AT, tags, content };
        let Ok(event) = draft.sign(&secret("buyer")) else { return Ok(()) };
        let Ok(review) = Review::parse(&event) else { return Ok(()) };
        prop_assert!(review.trust_bp <= MOST_BP);
        for form in Form::ALL {
            let Ok(draft) = review.draft(form, AT) else { return Ok(()) };
            let again = draft.sign(&secret("buyer")).unwrap();
            prop_assert_eq!(Review::parse(&again).unwrap(), review.clone());
        }
        let text = review.content_text().unwrap();
        prop_assert_eq!(review.clone().with_content(&text).unwrap(), review);
    }
}
