//! The pages, from plain values.

use std::collections::BTreeSet;

use guild_market::evaluation::{Note, Pace};
use guild_market::routing::{Entry, Mutation, Options, Status as Hired, Tier, next};
use guild_protocol::amount::{Amount, Msat};
use guild_protocol::env::Signer;
use guild_protocol::hash::Hash;
use guild_protocol::identity::{PublicKey, SecretKey};
use guild_protocol::receipt::{self, Draft, Proof, Rail, Status};
use guild_protocol::timestamp::Timestamp;
use guild_roles::explorer::{
    Belief, Counts, Curve, Delegated, DelegatedDetail, Listed, MatrixRow, Offer, OtherReview,
    OwnReview, Party, Point, Provider, ProviderReviews, Receipt, Recommendations, Record,
    ReplicaView, Request, RequestDetail, Sheet, Side, Stance, Standing, Step, StepKind, Summary,
    Tone, Words, Work,
};
use guild_roles::reviews::{Grade, Line, ReviewId};

use super::*;

const NOW: i64 = 1_768_465_800_000;

fn secret(n: u8) -> SecretKey {
    format!("{n:064x}").parse().unwrap()
}

fn key(n: u8) -> PublicKey {
    secret(n).public_key()
}

fn party(n: u8, name: &str) -> Party {
    Party::new(&key(n), Some(name.to_owned()).filter(|name| !name.is_empty()), false)
}

fn offer(n: u8, name: &str) -> Offer {
    Offer {
        provider: party(n, name),
        d: "main".to_owned(),
        about: Some("Embeddings on one quiet machine.".to_owned()),
        schema_ids: vec!["oa.embedding.v1".to_owned()],
        kinds: vec!["5050".to_owned()],
        price_msat: Some(5_000),
        private: true,
        relays: vec!["ws://127.0.0.1:4848/relay".to_owned()],
        event_id: "ab".repeat(32),
        announced_ms: NOW - 3_600_000,
        first_seen_ms: NOW - 3_500_000,
        last_seen_ms: Some(NOW - 40_000),
        live: true,
        name_shared: false,
        routing: Vec::new(),
    }
}

fn words(trust_bp: u32, summary: &str) -> Words {
    Words {
        rating: guild_protocol::nostr::review::stars(trust_bp),
        trust_bp,
        summary: Some(summary.to_owned()),
        strengths: Vec::new(),
        weaknesses: Vec::new(),
        recommendation: None,
        alert: Some("security_violation".to_owned()),
        request_id: Some("ab".repeat(32)),
        result_id: None,
        verdict_hash: None,
        receipt_id: None,
    }
}

/// One review of ours, and one of somebody whose evidence is another's.
fn said_of_it() -> ProviderReviews {
    let task: guild_roles::router::TaskType = "oa.embedding.v1".parse().unwrap();
    let ours = OwnReview {
        review_id: ReviewId::of_number(&key(1), task.as_str(), 1),
        provider: party(1, "Fast box"),
        task: task.clone(),
        state: "published",
        reason: "order",
        outcomes: 3,
        changed_ms: NOW,
        due_ms: NOW,
        published_ms: Some(NOW),
        events: Vec::new(),
        words: words(6_125, "3 of 3 results were accepted."),
    };
    let line = Line {
        reviewer: key(7),
        trust_bp: 0,
        at_ms: NOW,
        grade: Grade::Forged,
        outcomes: 0,
        calibration_milli: 100,
        age_milli: 1_000,
        is_trusted: false,
        weight_milli: 100,
        counted_milli: 100,
    };
    let theirs = OtherReview {
        reviewer: party(7, ""),
        provider: party(1, "Fast box"),
        task,
        said_ms: NOW,
        event_id: guild_protocol::nostr::EventId::from_bytes([7; 32]),
        kind: 2020,
        evidence: "forged",
        weight: Some(line),
        words: words(0, "<b>paid</b> for \u{202e}nothing"),
    };
    ProviderReviews { ours: vec![ours], others: vec![theirs] }
}

#[test]
fn reviews_are_shown_with_what_they_are_worth() {
    let ProviderReviews { ours, others } = said_of_it();
    let page = reviews(&ours, &others, Some("/reviews?after=1-review_00"), NOW);
    assert!(page.contains("3.45") && page.contains("Published") && page.contains("Alert"));
    assert!(page.contains("&lt;b&gt;paid&lt;/b&gt;") && !page.contains('\u{202e}'), "{page}");
    assert!(page.contains("href=\"/reviews?after=1-review_00\""));
    let page = reviews(&[], &[], None, NOW);
    assert!(page.contains("None yet.") && page.contains("None was heard."));
}

fn ask(standing: Standing, side: Side) -> Request {
    Request {
        request_id: "cd".repeat(32),
        side,
        standing,
        buyer: party(9, ""),
        providers: vec![party(1, "Fast box")],
        more_providers: 0,
        kind: 5050,
        schema_id: Some("oa.embedding.v1".to_owned()),
        bid_msat: Some(8_000),
        private: false,
        created_ms: NOW - 65_000,
        received_ms: NOW - 64_000,
    }
}

fn step(kind: StepKind, tone: Tone, after_ms: i64, text: &str) -> Step {
    let author = Some(party(1, "Fast box"));
    let event_id = Some("ef".repeat(32));
    Step { kind, tone, at_ms: NOW - 65_000 + after_ms, author, text: text.to_owned(), event_id }
}

fn line(status: Status) -> Receipt {
    Receipt {
        receipt_id: format!("rcpt_{}", "12".repeat(32)),
        request_id: Some("cd".repeat(32)),
        side: Side::Bought,
        buyer: party(9, ""),
        provider: party(1, "Fast box"),
        amount: Amount::from(Msat(5_000)),
        status,
        at_ms: NOW - 60_000,
    }
}

fn signed() -> receipt::Receipt {
    let draft = Draft {
        session_id: "order_1".to_owned(),
        request_id: Some("cd".repeat(32)),
        trajectory_hash: Hash::of(b"trajectory"),
        policy_bundle_id: "policy".to_owned(),
        job_hash: Some(Hash::of(b"job")),
        payment_proof: Some(Proof::LedgerTransfer {
            transfer_id: "xfer_1".to_owned(),
            ledger_head: Hash::of(b"head"),
        }),
        rail: Rail::Ledger,
        amount: Amount::from(Msat(5_000)),
        provider_id: key(1),
        buyer_id: key(9),
        approval_rule_id: None,
        idempotency_key: "pay_1".to_owned(),
        status: Status::Released,
        verdict_hash: Some(Hash::of(b"verdict")),
        timestamp: Timestamp::from_ms(NOW).unwrap(),
    };
    draft.sign(&secret(9)).unwrap()
}

fn entry() -> Entry {
    let change = Mutation::Admitted {
        d: "main".to_owned(),
        status: Hired::Conditional,
        trust_bp: 4_500,
        pace: Pace::Slow,
        notes: BTreeSet::from([Note::Reliable]),
    };
    next(&Options::default(), None, &change, NOW - 60_000).unwrap()
}

fn belief() -> Belief {
    Belief {
        task: "oa.embedding.v1".parse().unwrap(),
        tier: Some(Tier::Tertiary),
        success_rate_30d_bp: Some(9_000),
        cost_msat: Some(5_000),
        latency_ms: Some(12_300),
        share_jobs: 1,
        share_of: 3,
        entry: entry(),
    }
}

fn curve() -> Curve {
    let point = |at_ms, trust_bp, what| Point { at_ms, trust_bp, what, hired: true };
    let points = vec![point(NOW - 60_000, 4_500, "admitted"), point(NOW, 5_500, "SUCCESS")];
    Curve { task: "oa.embedding.v1".parse().unwrap(), points }
}

#[test]
fn the_matrix_shows_every_cell_and_leads_to_why() {
    let stance = Stance {
        task: "oa.embedding.v1".parse().unwrap(),
        status: Hired::Quarantined,
        trust_bp: 3_000,
        tier: None,
        pace: Pace::Standard,
        cost_msat: None,
    };
    let work = |task: &str| Work {
        task: task.parse().unwrap(),
        providers: 2,
        active: 1,
        short_of_active: 2,
    };
    let row = MatrixRow {
        provider: party(1, "<script>alert(1)</script>"),
        cells: vec![Some(stance), None],
    };
    let sheet = Sheet {
        log_seq: 1_234,
        works: vec![work("oa.embedding.v1"), work("a/b?<x>\"")],
        more_works: 3,
        rows: Listed { items: vec![row], next: None },
    };
    let page = matrix(&sheet, Some("/matrix?after=0-npub1x"));
    assert!(page.contains("so far 1,234") && page.contains("Quarantined"), "{page}");
    assert!(page.contains("href=\"/matrix/oa.embedding.v1\""), "{page}");
    assert!(page.contains("href=\"/matrix/a%2Fb%3F%3Cx%3E%22\""), "{page}");
    assert!(page.contains("And 3 more kinds of work") && page.contains("2 more should be met"));
    assert!(!page.contains("<script>alert"), "{page}");
    let nobody = Sheet { rows: Listed { items: Vec::new(), next: None }, ..sheet };
    assert!(matrix(&nobody, None).contains("Nobody is known for any work yet."));
}

/// The text that a reader sees, a line for each piece.
fn seen(page: &str) -> Vec<String> {
    let main = page.split_once("<main").unwrap().1.split_once("</main>").unwrap().0;
    let mut pieces = Vec::new();
    for piece in main.split('<').skip(1) {
        let text = piece.split_once('>').map_or("", |(_, text)| text).trim();
        if !text.is_empty() {
            pieces.push(text.to_owned());
        }
    }
    pieces
}

fn summary() -> Summary {
    Summary {
        counts: Counts {
            offers: 3,
            offers_live: 2,
            requests: 1_234,
            receipts: 2,
            paid_msat: 21_500,
            earned_msat: 0,
        },
        offers: vec![offer(1, "Fast box"), Offer { price_msat: None, ..offer(2, "") }],
        requests: vec![
            ask(Standing::Working, Side::Bought),
            Request {
                private: true,
                schema_id: None,
                providers: vec![],
                ..ask(Standing::Open, Side::Seen)
            },
        ],
        receipts: vec![line(Status::Released), line(Status::Withheld)],
    }
}

#[test]
fn what_is_not_counted_to_its_end_says_so() {
    let mut summary = summary();
    summary.counts.requests = guild_roles::explorer::COUNT_MAX;
    assert!(seen(&home(&summary, NOW)).contains(&"20,000+".to_owned()));
}

#[test]
fn the_first_page_says_what_happens_now() {
    let page = home(&summary(), NOW);
    insta::assert_debug_snapshot!(seen(&page)[2..14], @r#"
    [
        "2",
        "offers live",
        "1,234",
        "requests seen",
        "2",
        "receipts",
        "21,500 msat",
        "paid by this node",
        "Latest requests",
        "All requests",
        "Embedding",
        "ordered here ·",
    ]
    "#);
    assert!(page.contains("aria-current=\"page\">Overview"));
}

#[test]
fn a_job_is_told_from_top_to_bottom() {
    let detail = RequestDetail {
        request: ask(Standing::Paid, Side::Bought),
        price_msat: Some(5_000),
        reason: None,
        receipt_id: Some("rcpt_1".to_owned()),
        delegation_id: None,
        dispute: None,
        timeline: vec![
            step(StepKind::Request, Tone::Plain, 0, "An embedding is wanted."),
            step(StepKind::Verdict, Tone::Good, 1_450, "Accepted: it is equal."),
        ],
    };
    let page = request(&detail, NOW);
    let story = seen(&page);
    let from = story.iter().position(|piece| piece == "What happened").unwrap();
    insta::assert_debug_snapshot!(story[from..from + 16], @r#"
    [
        "What happened",
        "•",
        "Asked",
        "2026-01-15 08:28:55 UTC",
        "An embedding is wanted.",
        "Fast box",
        "npub10xlxv…pkge6d",
        "event",
        "efefefefef",
        "efefefefefefefefefefefefefefefefefefefefefefefef",
        "efefef",
        "✓",
        "Checked",
        "+1.4 s",
        "Accepted: it is equal.",
        "Fast box",
    ]
    "#);
    assert!(page.contains("href=\"/receipts/rcpt_1\""));
    let ended = RequestDetail { receipt_id: None, reason: Some("too <busy>".to_owned()), ..detail };
    assert!(request(&ended, NOW).contains("too &lt;busy&gt;"));
}

#[test]
fn a_receipt_is_green_only_if_it_holds() {
    let proven = signed();
    let line = line(Status::Released);
    let verification = receipt::verify(proven.as_bytes()).unwrap();
    let shown = Shown {
        receipt: &line,
        verification: &verification,
        proven: Some(&proven),
        has_replay: true,
    };
    let page = super::receipt(&shown, NOW);
    assert!(page.contains("banner good") && page.contains("REPLAY.jsonl"));
    let text = String::from_utf8(proven.as_bytes().to_vec()).unwrap();
    let forged = text.replace("\"units\":5000", "\"units\":9000");
    let verification = receipt::verify(forged.as_bytes()).unwrap();
    let shown =
        Shown { receipt: &line, verification: &verification, proven: None, has_replay: false };
    let page = super::receipt(&shown, NOW);
    assert!(page.contains("Do not trust this receipt") && page.contains("knot bad"));
    assert!(page.contains("receipt.digest_mismatch") && !page.contains("What it binds together"));
}

#[test]
fn lists_and_a_provider_show_what_they_have() {
    let silent = Offer { live: false, last_seen_ms: None, price_msat: Some(0), ..offer(3, "") };
    let page = providers(
        &[offer(1, "Fast box"), silent],
        &Filter::default(),
        Some("/providers?after=1-2"),
        NOW,
    );
    assert!(
        page.contains("free")
            && page.contains("never seen alive")
            && page.contains("5 sat per job")
    );
    assert!(page.contains("href=\"/providers?after=1-2\""));
    let one = Provider {
        provider: party(1, "Fast box"),
        last_seen_ms: Some(NOW),
        live: true,
        offers: vec![Offer { name_shared: true, ..offer(1, "Fast box") }],
        record: Record { released: 3, withheld: 1, paid_msat: 15_000 },
        recommendations: Recommendations::default(),
        routing: vec![belief()],
        trust: vec![curve()],
        receipts: vec![line(Status::Withheld)],
        reviews: said_of_it(),
    };
    let page = provider(&one, NOW);
    assert!(
        page.contains("What is said of it") && page.contains("3.45") && page.contains("Forged"),
        "{page}"
    );
    assert!(page.contains("counts 0.100") && !page.contains("<b>paid</b>"), "{page}");
    assert!(page.contains("3 of 4 results accepted, 15 sat paid.") && page.contains("Shared name"));
    // What is believed, and the curve of it: drawn in the page, without a style or a script of its own.
    assert!(page.contains("What this node believes of it") && page.contains("Conditional"));
    assert!(page.contains("Trust for oa.embedding.v1: from 0.45 to 0.55 in 2 changes"), "{page}");
    let drawing =
        page.split_once("<figure class=\"curve\">").unwrap().1.split_once("</svg>").unwrap().0;
    assert!(drawing.contains("points=\"34,") && drawing.contains("class=\"up\""), "{drawing}");
    assert!(!drawing.contains("style") && !drawing.contains("script"), "{drawing}");
    let mut alone = ask(Standing::Open, Side::Seen);
    alone.providers = (1..=9).map(|n| party(n, "")).collect();
    assert!(requests(&[alone], None, NOW).contains("and 6 more"));
    let page =
        problem(axum::http::StatusCode::BAD_REQUEST, &crate::code::BAD_REQUEST, "limit: is <bad>");
    assert!(page.contains("limit: is &lt;bad&gt;") && page.contains("gateway.bad_request"));
    assert!(receipts(&[], None, NOW).contains("No receipt yet."));
}

#[test]
fn those_who_do_the_same_stand_side_by_side() {
    let row = Delegated {
        delegation_id: format!("delegation_{}", "ab".repeat(32)),
        schema_id: Some("oa.embedding.v1".to_owned()),
        criticality: "high",
        consensus: "majority",
        replicas: 3,
        needed: 2,
        state: "decided",
        why: Some("a <b>judge</b> chose".to_owned()),
        decided_by: Some("judge"),
        winner: Some(Hash::of(b"right").to_string()),
        budget_msat: 9_000,
        private: false,
        posted_ms: NOW - 60_000,
        deadline_ms: NOW,
    };
    let replica = |number: u8, standing, vote: &[u8], paid_msat| ReplicaView {
        number: i64::from(number),
        provider: party(number, "<i>One</i>"),
        cluster: key(number).npub(),
        reason: "hedge",
        request_id: "cd".repeat(32),
        order_state: "released",
        standing,
        passed: Some(true),
        says: Some(Hash::of(vote).to_string()),
        vote: Some(Hash::of(vote).to_string()),
        took_ms: Some(1_200),
        budget_msat: 3_000,
        paid_msat,
        receipt_id: Some("rcpt_1".to_owned()),
        verdict_hash: None,
        words: None,
    };
    let replicas =
        vec![replica(1, "agrees", b"right", Some(3_000)), replica(2, "differs", b"wrong", None)];
    let detail =
        DelegatedDetail { delegation: row.clone(), replicas, paid_msat: 3_000, held_msat: 0 };
    let page = delegation(&detail, NOW);
    for piece in ["Agrees", "Differs", "· the answer", "a judge model", "2 of 3 must say the same"]
    {
        assert!(page.contains(piece), "{piece}");
    }
    assert_eq!(page.matches("· the answer").count(), 1);
    assert!(!page.contains("<i>One") && !page.contains("<b>judge"), "strangers' words are escaped");
    let list = delegations(&[row], None, NOW);
    assert!(list.contains("3 do it, 2 must say the same") && list.contains("Decided"));
    assert!(delegations(&[], None, NOW).contains("Nothing was delegated yet."));
}
